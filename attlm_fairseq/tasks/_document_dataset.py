"""Documents for truncated backpropagation: segments of consecutive tokens in rows, so that state and memory can be carried along a row.

Shapes: B rows of the batch, T positions, at most the length of a segment.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from fairseq.data import Dictionary, FairseqDataset
from torch import Tensor

from attlm_fairseq.errors import InputError
from attlm_fairseq.numeric import ceil_div
from attlm_fairseq.tasks._special_words import refuse_special_words

DOCUMENT_ORDERS = ("shuffled", "corpus")


class Segment(NamedTuple):
    """A segment of the text as a batch reads it."""

    number: int  # in the text
    row: int = 0
    starts: bool = True  # whether the row starts from the initial state with it
    ends: bool = True  # whether the row reads no more of its document after it


class DocumentDataset(FairseqDataset):
    """Documents, each the lines between two separators as one sequence of tokens with a ``</s>`` after every line.

    An item is a segment: up to ``segment`` tokens of one document. The input of a token is the one before it, that of a document's
    first token ``</s>``. Separators are markup: they are not predicted. A batch takes the next segment of each row, and a row is
    one document after another: see :meth:`batches`.
    """

    def __init__(
        self,
        lines: Sequence[Tensor],
        sizes: Sequence[int] | np.ndarray,
        dictionary: Dictionary,
        name: str,
        *,
        segment: int,
        marker: str = "",
    ) -> None:
        """``lines`` are token ids (n + 1,) ending in ``</s>``, of the given ``sizes``; ``name`` is for messages.

        Documents end at lines that consist of the word ``marker``, or at blank lines where it is empty. Raises InputError where the
        marker never occurs, there is no text, or it has fairseq's own symbols as words.
        """
        self.lines = lines
        self.dictionary = dictionary
        self.name = name
        self.segment = segment
        sizes = np.asarray(sizes)
        candidates = np.flatnonzero(sizes == (2 if marker else 1))
        if marker:
            token = dictionary.index(marker)
            alone = [token != dictionary.unk() and int(lines[int(line)][0]) == token for line in candidates]
            candidates = candidates[np.array(alone, dtype=bool)]
            if not len(candidates):
                raise InputError(
                    f"no line consists of the document marker {marker!r}: put one between documents before fairseq-preprocess, "
                    "or leave --document-marker out where blank lines stand between them",
                    path=name,
                )
        bounds = [-1, *(int(line) for line in candidates), len(sizes)]
        self.documents = [(begin + 1, end) for begin, end in pairwise(bounds) if end > begin + 1]
        if not self.documents:
            raise InputError("the split has no text; preprocess one with at least one line that separates no documents", path=name)
        self.kept = np.concatenate([np.arange(begin, end) for begin, end in self.documents])  # the lines that separate nothing
        refuse_special_words(lines, self.kept, name)
        self.ends = np.cumsum(sizes)  # of lines, in tokens from the beginning of the text
        self.tokens = [int(sizes[begin:end].sum()) for begin, end in self.documents]
        self.starts = np.concatenate(([0], np.cumsum([ceil_div(length, segment) for length in self.tokens])))  # of a document's segments
        self.sizes = np.concatenate([self._segment_sizes(length) for length in self.tokens])

    def _segment_sizes(self, length: int) -> np.ndarray:
        return np.minimum(self.segment, length - np.arange(0, length, self.segment))

    def __len__(self) -> int:
        """How many segments."""
        return len(self.sizes)

    def place(self, segment: Segment) -> tuple[int, int]:
        """Return the document of a segment and its number in it."""
        document = int(np.searchsorted(self.starts, segment.number, side="right")) - 1
        return document, segment.number - int(self.starts[document])

    def __getitem__(self, segment: Segment) -> dict[str, Any]:
        document, number = self.place(segment)
        line = self.documents[document][0]
        origin = int(self.ends[line - 1]) if line else 0
        first = origin + number * self.segment
        target = self._tokens(first, first + self.num_tokens(segment))
        before = self._tokens(first - 1, first) if number else torch.tensor([self.dictionary.eos()])
        return {"place": segment, "source": torch.cat((before, target[:-1])), "target": target}

    def _tokens(self, begin: int, end: int) -> Tensor:
        """Tokens ``begin`` .. ``end`` of the text, from the lines that hold them."""
        first, last = np.searchsorted(self.ends, [begin, end - 1], side="right").tolist()
        skip = begin - (int(self.ends[first - 1]) if first else 0)
        return torch.cat([self.lines[line].long() for line in range(first, last + 1)])[skip : skip + end - begin]

    def sample_targets(self, most: int) -> Iterator[Tensor]:
        """What is predicted of at most ``most`` lines from all over the text."""
        for number in self.kept[:: ceil_div(len(self.kept), most)].tolist():
            yield self.lines[number].long()

    def num_tokens(self, segment: Segment) -> int:
        return int(self.sizes[segment.number])

    def size(self, segment: Segment) -> int:
        return self.num_tokens(segment)

    def collater(self, samples: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Segments -> a batch: ``src_tokens`` and ``target`` (B, T) padded on the right; ``rows``, ``starts`` and ``ends`` (B,) as in
        :class:`Segment`."""
        if not samples:
            return {}
        pad = self.dictionary.pad()
        source, target = (
            torch.nn.utils.rnn.pad_sequence([sample[part] for sample in samples], batch_first=True, padding_value=pad)
            for part in ("source", "target")
        )
        lengths = torch.tensor([len(sample["target"]) for sample in samples])
        return {
            "id": torch.tensor([sample["place"].number for sample in samples]),
            "nsentences": len(samples),
            "ntokens": int(lengths.sum()),
            "net_input": {
                "src_tokens": source,
                "src_lengths": lengths,
                "rows": torch.tensor([sample["place"].row for sample in samples]),
                "starts": torch.tensor([sample["place"].starts for sample in samples]),
                "ends": torch.tensor([sample["place"].ends for sample in samples]),
            },
            "target": target,
        }

    def batches(self, order: str, seed: int, rows: int, shards: int = 1, whole: bool = True) -> list[list[Segment]]:
        """All segments in batches of one segment per row. A row starts from the initial state with each document.

        There are ``rows`` rows for each of the ``shards``, and the batches of the shards alternate, as fairseq deals them out: a shard's
        rows are its own, and where it has none left its batch is empty. Documents are ``shuffled`` by ``seed`` or in the order of the
        ``corpus``. ``whole``: each goes to the row with the fewest segments so far, and the longest row is read alone in the end.
        Otherwise the segments of all documents are divided evenly, so that all batches are full: training on few documents alone
        would undo what was learned. A document in which a new row begins is cut there.
        """
        documents = np.arange(len(self.documents))
        if order == "shuffled":
            np.random.RandomState(seed).shuffle(documents)
        segments = [range(int(self.starts[document]), int(self.starts[document + 1])) for document in documents]
        queues: list[list[int]] = [[] for _ in range(rows * shards)]
        if whole:
            for of_document in segments:
                min(queues, key=len).extend(of_document)
        else:
            in_order = [number for of_document in segments for number in of_document]
            bounds = [len(in_order) * row // len(queues) for row in range(len(queues) + 1)]
            queues = [in_order[begin:end] for begin, end in pairwise(bounds)]
        first = set(self.starts.tolist())

        def segment(row: int, step: int) -> Segment:
            queue = queues[row]
            starts = step == 0 or queue[step] in first
            ends = step + 1 == len(queue) or queue[step + 1] in first
            return Segment(queue[step], row, starts, ends)

        return [
            [segment(row, step) for row in range(shard * rows, (shard + 1) * rows) if step < len(queues[row])]
            for step in range(max(map(len, queues)))
            for shard in range(shards)
        ]
