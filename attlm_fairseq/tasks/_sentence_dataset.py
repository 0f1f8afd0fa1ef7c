"""Sentences for the language-modelling task, one sample per line of text, and their division into batches.

Shapes: B sentences in the batch, T positions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from fairseq.data import Dictionary, FairseqDataset
from torch import Tensor

from attlm_fairseq.batching import padded_batches
from attlm_fairseq.errors import InputError
from attlm_fairseq.numeric import ceil_div
from attlm_fairseq.tasks._absent import absent_batch
from attlm_fairseq.tasks._special_words import refuse_special_words

BATCH_ORDERS = ("corpus", "shuffled", "length")


class SentenceDataset(FairseqDataset):
    """Each line ``w_1 .. w_n </s>`` of an indexed dataset as input ``</s> w_1 .. w_n`` and target ``w_1 .. w_n </s>``.

    With ``cut`` > 0, a line of more than ``cut`` words keeps its first ``cut`` words. Its end is not predicted, because the
    sentence did not end there.
    """

    def __init__(
        self,
        lines: Sequence[Tensor],
        sizes: Sequence[int] | np.ndarray,
        dictionary: Dictionary,
        name: str,
        *,
        training: bool = False,
        cut: int = 0,
        skip_blank: bool = False,
    ) -> None:
        """Make the dataset from ``lines``, token ids (n + 1,) ending in ``</s>``, of the given ``sizes``.

        ``name`` is for messages. Raises InputError if there are no lines, fairseq's own symbols are words, or ``cut`` is
        negative.
        """
        if cut < 0:
            raise InputError(f"--cut-sentences {cut}: give the number of words after which to cut, or 0 for whole sentences")
        self.lines = lines
        self.dictionary = dictionary
        self.name = name
        self.training = training
        sizes = np.asarray(sizes)
        self.kept = np.flatnonzero(sizes > 1) if skip_blank else np.arange(len(sizes))
        if len(self.kept) == 0:
            raise InputError("the split has no sentences; preprocess a text with at least one line", path=name)
        refuse_special_words(lines, self.kept, name)
        self.cut = cut
        self.sizes = sizes[self.kept]
        if cut:
            self.sizes = np.where(self.sizes > cut + 1, cut, self.sizes)

    def __len__(self) -> int:
        return len(self.kept)

    def __getitem__(self, index: int) -> dict[str, Any]:
        target = self.lines[int(self.kept[index])].long()[: int(self.sizes[index])]
        return {"id": index, "target": target}

    def sample_targets(self, most: int) -> Iterator[Tensor]:
        """Yield the targets of at most ``most`` lines, spread over the text."""
        for index in range(0, len(self), ceil_div(len(self), most)):
            yield self[index]["target"]

    def num_tokens(self, index: int) -> int:
        return int(self.sizes[index])

    def size(self, index: int) -> int:
        return int(self.sizes[index])

    def collater(self, samples: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Return a fairseq batch of samples, padded on the right: ``src_tokens`` and ``target`` are (B, T)."""
        if not samples:
            return absent_batch()
        return collate([sample["id"] for sample in samples], [sample["target"] for sample in samples], self.dictionary)

    def batches(
        self, order: str, seed: int, max_sentences: int | None, max_tokens: int | None, option: str = "--max-tokens"
    ) -> list[list[int]]:
        """Return all sentences in batches of at most ``max_sentences`` sentences and ``max_tokens`` positions, with padding.

        ``corpus``: consecutive sentences. ``shuffled``: random sentences. ``length``: sentences of similar length, in batches of
        shuffled order. Random choices depend only on ``seed``. Raises InputError if a sentence exceeds ``max_tokens``, which the
        ``option`` has set.
        """
        longest = int(self.sizes.argmax())
        if max_tokens is not None and self.sizes[longest] > max_tokens:
            raise InputError(
                f"the line has {self.sizes[longest]} tokens, end of sentence included, more than {option} {max_tokens} allows in a "
                f"batch; raise {option}, or batch with --batch-size alone, or (training only) cut with --cut-sentences",
                path=self.name,
                line=int(self.kept[longest]) + 1,
            )
        random = np.random.RandomState(seed)
        indices = np.arange(len(self))
        if order == "shuffled":
            random.shuffle(indices)
        elif order == "length":
            indices = np.lexsort((random.permutation(len(self)), self.sizes))
        batches = list(padded_batches(indices.tolist(), lambda index: int(self.sizes[index]), max_tokens, max_sentences))
        if order == "length":
            random.shuffle(batches)
        return batches


def collate(ids: Sequence[int], targets: Sequence[Tensor], dictionary: Dictionary) -> dict[str, Any]:
    """Return fairseq's batch of several targets ``w_1 .. w_n </s>`` (or cut). Inputs are the targets shifted after ``</s>``."""
    lengths = torch.tensor([len(target) for target in targets])
    target = torch.full((len(targets), int(lengths.max())), dictionary.pad())
    for row, sentence in zip(target, targets, strict=True):
        row[: len(sentence)] = sentence
    source = target.roll(1, dims=1)
    source[:, 0] = dictionary.eos()
    source[torch.arange(source.size(1)) >= lengths.unsqueeze(1)] = dictionary.pad()  # beyond the end of a sentence
    return {
        "id": torch.tensor(ids),
        "nsentences": len(targets),
        "ntokens": int(lengths.sum()),
        "net_input": {"src_tokens": source, "src_lengths": lengths},
        "target": target,
    }
