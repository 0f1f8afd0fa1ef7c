"""Documents for truncated backpropagation: rows of consecutive segments, so that state and memory can be carried.

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
from attlm_fairseq.tasks._absent import absent_batch
from attlm_fairseq.tasks._special_words import refuse_special_words

DOCUMENT_ORDERS = ("shuffled", "corpus", "rotated")
SHORTEST_RANDOM = 5  # the shortest random segment length, unless fewer tokens remain
LENGTH_DEVIATION = 5.0
SHARE_OF_HALVES = 0.05


class Segment(NamedTuple):
    """The tokens of one document that a row of a batch reads. It is an item of ``DocumentDataset``."""

    row: int
    starts: bool  # whether the row starts from the initial state
    ends: bool  # whether the row reads no more of its document after it
    document: int
    begin: int  # its first token, counted in its document
    length: int


class Stretch(NamedTuple):
    """Tokens of one document that a row reads one after another."""

    document: int
    begin: int
    end: int


class DocumentDataset(FairseqDataset):
    """Documents: the lines between two separators as one sequence of tokens, with ``</s>`` after every line.

    An item is a segment: up to ``segment`` tokens of one document. The input of a token is the token before it; that of a
    document's first token is ``</s>``. Separators are not predicted. A batch has the next segment of each row, and a row is
    one document after another: see ``batches``.
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
        sentences: int = 0,
        training: bool = False,
    ) -> None:
        """Make the dataset from ``lines``, token ids (n + 1,) ending in ``</s>``, of the given ``sizes``.

        Documents end at lines that consist of the word ``marker``, or at blank lines if it is empty. With ``sentences`` > 0 they
        also end after so many lines. ``name`` is for messages, ``training`` says that the text is read to train on it.
        Raises InputError if the marker never occurs, there is no text, or the text has fairseq's own symbols as words.
        """
        self.lines = lines
        self.dictionary = dictionary
        self.name = name
        self.segment = segment
        self.training = training
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
        if sentences:
            groups = [(first, end) for begin, end in self.documents for first in range(begin, end, sentences)]
            self.documents = [(first, min(first + sentences, end)) for first, end in groups]
        self.kept = np.concatenate([np.arange(begin, end) for begin, end in self.documents])  # the lines that separate nothing
        refuse_special_words(lines, self.kept, name)
        self.ends = np.cumsum(sizes)  # of lines, in tokens from the beginning of the text
        self.tokens = [int(sizes[begin:end].sum()) for begin, end in self.documents]
        self.sizes = np.concatenate([self._segment_sizes(length) for length in self.tokens])

    def _segment_sizes(self, length: int) -> np.ndarray:
        return np.minimum(self.segment, length - np.arange(0, length, self.segment))

    def __len__(self) -> int:
        return len(self.sizes)

    def first_token(self, segment: Segment) -> int:
        """Return the index of the segment's first token in the text, separators included."""
        line = self.documents[segment.document][0]
        return (int(self.ends[line - 1]) if line else 0) + segment.begin

    def __getitem__(self, segment: Segment) -> dict[str, Any]:
        first = self.first_token(segment)
        target = self._tokens(first, first + segment.length)
        before = self._tokens(first - 1, first) if segment.begin else torch.tensor([self.dictionary.eos()])
        return {"place": segment, "source": torch.cat((before, target[:-1])), "target": target}

    def _tokens(self, begin: int, end: int) -> Tensor:
        first, last = np.searchsorted(self.ends, [begin, end - 1], side="right").tolist()
        skip = begin - (int(self.ends[first - 1]) if first else 0)
        return torch.cat([self.lines[line].long() for line in range(first, last + 1)])[skip : skip + end - begin]

    def sample_targets(self, most: int) -> Iterator[Tensor]:
        """Yield the targets of at most ``most`` lines, spread over the text."""
        for number in self.kept[:: ceil_div(len(self.kept), most)].tolist():
            yield self.lines[number].long()

    def num_tokens(self, segment: Segment) -> int:
        return segment.length

    def size(self, segment: Segment) -> int:
        return segment.length

    def collater(self, samples: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Return a batch of segments.

        It has ``src_tokens`` and ``target`` (B, T), padded on the right, and ``rows``, ``starts`` and ``ends`` (B,) as in
        ``Segment``.
        """
        if not samples:
            return absent_batch()
        pad = self.dictionary.pad()
        source, target = (
            torch.nn.utils.rnn.pad_sequence([sample[part] for sample in samples], batch_first=True, padding_value=pad)
            for part in ("source", "target")
        )
        lengths = torch.tensor([len(sample["target"]) for sample in samples])
        return {
            "id": torch.tensor([self.first_token(sample["place"]) for sample in samples]),
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

    def batches(
        self, order: str, seed: int, rows: int, shards: int = 1, *, whole: bool = True, random_lengths: bool = False
    ) -> list[list[Segment]]:
        """Return all tokens in batches of one segment per row. A row starts from the initial state with each document.

        There are ``rows`` rows for each of the ``shards``. The batches of the shards alternate, as fairseq deals them out: each
        shard has its own rows, and its batch is empty when they are finished. Documents are ``shuffled`` by ``seed`` or in the
        order of the ``corpus``. ``rotated`` is that order too, but each row begins at a random token and wraps around. With
        ``random_lengths`` all rows of a batch have the next random length, otherwise that of the dataset; a document ends a
        segment.

        ``whole``: each document goes to the row with the fewest segments so far, and the longest row is finished alone.
        Otherwise the documents are divided evenly, so that all batches are full, since training on few documents alone would
        undo what was learned. A document in which a new row begins is cut there. With random lengths, rows are even in segments
        of the dataset's length, not in tokens: a row of short documents has more segments than its tokens need.
        """
        random = np.random.RandomState(seed)
        documents = np.arange(len(self.documents))
        if order == "shuffled":
            random.shuffle(documents)
        stretches = [Stretch(int(document), 0, self.tokens[document]) for document in documents]
        if whole:
            queues: list[list[Stretch]] = [[] for _ in range(rows * shards)]
            counts = [0] * len(queues)
            for stretch in stretches:
                shortest = counts.index(min(counts))
                queues[shortest].append(stretch)
                counts[shortest] += ceil_div(stretch.end, self.segment)
        else:
            queues = divide_evenly(stretches, rows * shards, self.segment)
        if order == "rotated":
            queues = [rotate(queue, random.randint(max(1, sum(map(len_of, queue))))) for queue in queues]
        most = max(sum(map(len_of, queue)) for queue in queues)
        lengths = [random_length(self.segment, random) for _ in range(most)] if random_lengths else [self.segment] * most
        segments = [list(cut(row, queue, lengths)) for row, queue in enumerate(queues)]
        return [
            [segments[row][step] for row in range(shard * rows, (shard + 1) * rows) if step < len(segments[row])]
            for step in range(max(map(len, segments)))
            for shard in range(shards)
        ]


def len_of(stretch: Stretch) -> int:
    return stretch.end - stretch.begin


def divide_evenly(stretches: Sequence[Stretch], rows: int, unit: int) -> list[list[Stretch]]:
    """Divide whole documents, in their order, between rows. A row begins at a multiple of ``unit`` tokens of a document."""
    units = sum(ceil_div(stretch.end, unit) for stretch in stretches)
    queues: list[list[Stretch]] = [[] for _ in range(rows)]
    row = read = 0  # units
    for stretch in stretches:
        begin = 0
        while begin < stretch.end:
            while read >= units * (row + 1) // rows:
                row += 1
            size = min(units * (row + 1) // rows - read, ceil_div(stretch.end - begin, unit))
            end = min(begin + size * unit, stretch.end)
            queues[row].append(Stretch(stretch.document, begin, end))
            begin, read = end, read + size
    return queues


def rotate(queue: Sequence[Stretch], tokens: int) -> list[Stretch]:
    """Move the first ``tokens`` tokens of a row to its end."""
    front: list[Stretch] = []
    behind: list[Stretch] = []
    for stretch in queue:
        middle = min(stretch.begin + max(0, tokens), stretch.end)
        tokens -= len_of(stretch)
        front.append(stretch._replace(end=middle))
        behind.append(stretch._replace(begin=middle))
    return [stretch for stretch in (*behind, *front) if len_of(stretch)]


def cut(row: int, queue: Sequence[Stretch], lengths: Sequence[int]) -> Iterator[Segment]:
    """Cut the stretches of a row into segments of the given lengths. The end of a stretch also ends a segment."""
    remaining = iter(lengths)
    for stretch in queue:
        begin = stretch.begin
        while begin < stretch.end:
            length = min(next(remaining), stretch.end - begin)
            yield Segment(row, begin == stretch.begin, begin + length == stretch.end, stretch.document, begin, length)
            begin += length


def random_length(length: int, random: np.random.RandomState) -> int:
    """Draw a segment's length as AWD-LSTM does."""
    mean = length / 2 if random.random_sample() < SHARE_OF_HALVES else length
    return max(min(SHORTEST_RANDOM, length), round(random.normal(mean, LENGTH_DEVIATION)))
