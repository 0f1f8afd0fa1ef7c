"""A neural corrector: a fairseq translation model from hypothesis to reference, as one more source of candidates.

Any model of ``fairseq-train --task translation`` that was trained on (hypothesis, reference) pairs of words; ``--arch attentive_lstm``
is this package's own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attlm_fairseq.nbest.corrections.alignment import MAX_WORDS
from attlm_fairseq.nbest.nbest_list import NbestList

if TYPE_CHECKING:
    from attlm_fairseq.scoring.translation import TranslationScorer

CORRECTOR = "corrector"
BEAM = 5
SENTENCES = 32  # that are searched together
MAX_LENGTH = 200  # words of a correction, as fairseq-generate has it


@dataclass(frozen=True)
class Corrector:
    """A translation model ready to correct. Made by :meth:`load`."""

    scorer: TranslationScorer

    @classmethod
    def load(cls, path: Path) -> Corrector:
        """Load a checkpoint; ``dict.*.txt`` are looked for next to it, then in its data folder. Raises InputError."""
        from attlm_fairseq.scoring.translation import load_translation_models

        return cls(load_translation_models([path], CORRECTOR))

    def candidates(self, texts: Sequence[str]) -> list[list[str]]:
        """Return the BEAM most probable corrections of each text, the best first; none that has an unknown word."""
        import torch

        words = [text.split() for text in texts]
        todo = [i for i, of_text in enumerate(words) if 0 < len(of_text) <= MAX_WORDS]
        todo.sort(key=lambda i: -len(words[i]))  # fairseq's LSTM encoders want the longest first
        found: list[list[str]] = [[] for _ in texts]
        with torch.inference_mode():
            for begin in range(0, len(todo), SENTENCES):
                batch = todo[begin : begin + SENTENCES]
                for i, corrected in zip(batch, self._searched([words[i] for i in batch]), strict=True):
                    found[i] = list(dict.fromkeys(corrected))
        return found

    def scored(self, lists: Sequence[NbestList]) -> list[NbestList]:
        """Return the lists with the score ``corrector``: ln p of each text and its end, given the 1-best text as read."""
        pairs = [(hypothesis.text.split(), nbest.hypotheses[0].text.split()) for nbest in lists for hypothesis in nbest.hypotheses]
        totals = iter(score.total for score in self.scorer.score_translations(*zip(*pairs, strict=True)))
        return [
            replace(nbest, hypotheses=[replace(one, scores=one.scores | {CORRECTOR: next(totals)}) for one in nbest.hypotheses])
            for nbest in lists
        ]

    def _searched(self, sentences: Sequence[Sequence[str]]) -> Iterator[list[str]]:
        """fairseq's beam search for sentences of words."""
        import torch
        from fairseq.data.data_utils import collate_tokens

        models = self.scorer.models
        ids = [torch.tensor([*models.source.ids(words), self._dictionary.eos()]) for words in sentences]
        sample = {
            "net_input": {
                "src_tokens": collate_tokens(ids, self._dictionary.pad(), left_pad=models.left_pad_source),
                "src_lengths": torch.tensor(list(map(len, ids))),
            }
        }
        for hypotheses in self._generator.forward(sample):
            tokens = [[int(token) for token in hypothesis["tokens"][:-1]] for hypothesis in hypotheses]
            yield [" ".join(self._dictionary[token] for token in of_one) for of_one in tokens if self._dictionary.unk() not in of_one]

    @cached_property
    def _dictionary(self) -> Any:
        return self.scorer.models.models[0].decoder.dictionary

    @cached_property
    def _generator(self) -> Any:
        from fairseq.sequence_generator import SequenceGenerator

        return SequenceGenerator(list(self.scorer.models.models), self._dictionary, beam_size=BEAM, max_len_b=MAX_LENGTH)
