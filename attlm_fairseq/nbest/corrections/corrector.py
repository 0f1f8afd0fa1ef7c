"""A neural corrector: a fairseq translation model from hypothesis to reference, as one more source of candidates.

It can be any model of ``fairseq-train --task translation`` trained on (hypothesis, reference) pairs of words. ``--arch
attentive_lstm`` is this package's own. It is loaded and scored like ``--mt`` (``scoring.translation``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attlm_fairseq.nbest.corrections.alignment import MAX_WORDS
from attlm_fairseq.nbest.corrections.phrase_table import MAX_VANISHING
from attlm_fairseq.nbest.nbest_list import NbestList

if TYPE_CHECKING:
    from attlm_fairseq.scoring.translation import TranslationScorer

CORRECTOR = "corrector"
BEAM = 5
SENTENCES = 32  # that are searched together
MAX_LENGTH = 200  # words of a correction, as fairseq-generate has it


@dataclass(frozen=True)
class Corrector:
    """A translation model that proposes corrections and scores them. Made by ``load``."""

    scorer: TranslationScorer

    @classmethod
    def load(cls, path: Path) -> Corrector:
        """Load a checkpoint. ``dict.*.txt`` are looked for next to it, then in the data folder that it names.

        Raises:
            InputError: fairseq is not installed, the file is not a translation model, or its dictionaries are missing.
        """
        from attlm_fairseq.scoring.translation import load_translation_models

        return cls(load_translation_models([path], CORRECTOR))

    def candidates(self, texts: Sequence[str]) -> list[list[str]]:
        """Return the BEAM most probable corrections of each text, best first.

        Left out are corrections with an unknown word, and those that are more than MAX_VANISHING words shorter than the text:
        small models end long sentences early.
        """
        words = [text.split() for text in texts]
        todo = [i for i, of_text in enumerate(words) if 0 < len(of_text) <= MAX_WORDS]
        todo.sort(key=lambda i: -len(words[i]))  # fairseq's LSTM encoders want the longest first
        found: list[list[str]] = [[] for _ in texts]
        for begin in range(0, len(todo), SENTENCES):
            batch = todo[begin : begin + SENTENCES]
            for i, corrected in zip(batch, self._searched([words[i] for i in batch]), strict=True):
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

    def _searched(self, sentences: Sequence[Sequence[str]]) -> Iterator[list[str]]:
        """Search for corrections of sentences of words with fairseq's beam search. Raises InputError for one that is too long."""
        from attlm_fairseq.checkpoints.vocabulary import UNK
        from attlm_fairseq.scoring.translation import Pair

        models = self.scorer.models
        sources = [tuple(models.source.ids(words)) for words in sentences]
        self.scorer.check_lengths([Pair(read, ()) for read in sources])
        tokens, lengths = self.scorer.source_batch(sources)
        sample = {"net_input": {"src_tokens": tokens, "src_lengths": lengths}}
        for hypotheses in self._generator.generate(models.models, sample):
            corrections = [hypothesis["tokens"][:-1].tolist() for hypothesis in hypotheses]
            yield [" ".join(models.target.symbols[token] for token in ids) for ids in corrections if UNK not in ids]

    @cached_property
    def _generator(self) -> Any:
        from fairseq.sequence_generator import SequenceGenerator

        [model] = self.scorer.models.models
        return SequenceGenerator([model], model.decoder.dictionary, beam_size=BEAM, max_len_b=MAX_LENGTH)
