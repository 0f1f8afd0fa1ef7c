"""A neural corrector: a translation model from hypothesis to reference, as one more source of candidates.

It can be any model of ``fairseq-train --task translation`` trained on (hypothesis, reference) pairs of words, or an encoder-decoder
model of Hugging Face. ``--arch attentive_lstm`` is this package's own. It is loaded and scored like ``--mt`` (``scoring/translation``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from attlm_fairseq.errors import InputError, NoDictionaryError
from attlm_fairseq.nbest.corrections.alignment import MAX_WORDS
from attlm_fairseq.nbest.corrections.phrase_table import MAX_VANISHING
from attlm_fairseq.nbest.nbest_list import NbestList

if TYPE_CHECKING:
    from attlm_fairseq.scoring.translation.translation_scorer import TranslationScorer

CORRECTOR = "corrector"
BEAM = 5
SENTENCES = 32  # that are searched together
MAX_LENGTH = 200  # pieces (words, subwords or bytes) that a correction may be longer than its text


@dataclass(frozen=True)
class Corrector:
    """A translation model that proposes corrections and scores them. Made by ``load``."""

    scorer: TranslationScorer

    @classmethod
    def load(cls, path: Path, languages: str | None = None, source_prefix: str | None = None) -> Corrector:
        """Load a checkpoint or a folder of Hugging Face. ``dict.*.txt`` are looked for next to a checkpoint, then in its data folder.

        Raises:
            InputError: as in ``load_translation_models``, where the options are told.
        """
        from attlm_fairseq.scoring.translation.translation_scorer import load_translation_models

        try:
            return cls(load_translation_models([path], CORRECTOR, languages=languages, source_prefix=source_prefix))
        except NoDictionaryError as error:  # whose reader would advise --dict, which is for LMs
            raise InputError(str(error)) from None

    def candidates(self, texts: Sequence[str]) -> list[list[str]]:
        """Return the BEAM most probable corrections of each text, best first.

        Left out are corrections with an unknown word, those that have not ended at MAX_LENGTH, and those that are more than
        MAX_VANISHING words shorter than the text: small models end long sentences early.
        """
        words = [text.split() for text in texts]
        todo = [i for i, of_text in enumerate(words) if 0 < len(of_text) <= MAX_WORDS]
        todo.sort(key=lambda i: -len(words[i]))  # fairseq's LSTM encoders want the longest first
        found: list[list[str]] = [[] for _ in texts]
        for begin in range(0, len(todo), SENTENCES):
            batch = todo[begin : begin + SENTENCES]
            for i, corrected in zip(batch, self.scorer.candidates([words[i] for i in batch], BEAM, MAX_LENGTH), strict=True):
                found[i] = [text for text in dict.fromkeys(corrected) if len(text.split()) >= len(words[i]) - MAX_VANISHING]
        return found

    def scored(self, lists: Sequence[NbestList]) -> list[NbestList]:
        """Return the lists with the score ``corrector``: ln p of each text and its end, given the input 1-best text."""
        hypotheses = [(nbest.hypotheses[0].text.split(), hypothesis.text.split()) for nbest in lists for hypothesis in nbest.hypotheses]
        found = iter(self.scorer.score_translations([written for _, written in hypotheses], [read for read, _ in hypotheses]))
        return [
            replace(
                nbest,
                hypotheses=[
                    replace(hypothesis, scores=hypothesis.scores | {CORRECTOR: next(found).total}) for hypothesis in nbest.hypotheses
                ],
            )
            for nbest in lists
        ]
