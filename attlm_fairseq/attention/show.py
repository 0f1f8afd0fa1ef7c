"""The work of ``attlm attention``: run one model and show its attention for a sentence or a whole text."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from attlm_fairseq.attention import numbers
from attlm_fairseq.attention.comparison import HEADER, Comparison, Improvement
from attlm_fairseq.attention.distance import DistanceProfile
from attlm_fairseq.attention.figures import PICTURES, distance_chart, draw, heat_map
from attlm_fairseq.attention.highlight import as_text, highlights
from attlm_fairseq.attention.page import page
from attlm_fairseq.attention.weights import SentenceAttention, require_weights, sentence_attention
from attlm_fairseq.batching import batch_by_size
from attlm_fairseq.checkpoints.reading import TrainedModel
from attlm_fairseq.errors import InputError, require_utf8
from attlm_fairseq.files.reading import TextSource
from attlm_fairseq.files.writing import whole_file
from attlm_fairseq.messages import note
from attlm_fairseq.scoring.scorer import SentenceScore
from attlm_fairseq.scoring.text_file import read_lines
from attlm_fairseq.scoring.unknown_words.oov import OOVCount
from attlm_fairseq.text import TextPipeline

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMS = (*PICTURES, ".html", ".json", ".tsv")
TEXT_FORMS = (*FORMS, ".jsonl")  # for a text also: one JSON line per sentence
BLOCK_LINES = 512  # lines read at once: enough to find sentences of similar length for a batch
BLOCK_WEIGHTS = 1 << 24  # maximum number of attention weights of a block; one sentence of 4,000 words has as many


@dataclass(frozen=True)
class Shower:
    """Shows the attention of a model.

    Attributes:
        trained: the model.
        text: the text steps before it.
        outputs: files to write. The ending gives the form; ``-`` is a table on standard output.
        threshold: the smallest weight that is highlighted; None for no highlighted words.
        line: called with each line of highlighted words.
        marked: the form of a highlighted word in a line.
        contributions: also show the shares of inputs in the LSTM's cell.
        against: another LM; shows the sentences of a text that the model improves most over it.
    """

    trained: TrainedModel
    text: TextPipeline
    outputs: Sequence[str]
    threshold: float | None
    line: Callable[[str], None]
    marked: str = "[{word} {weight:.2f}]"
    contributions: bool = False
    against: Comparison | None = None

    @property
    def lm(self) -> str:
        """The model as titles name it."""
        return f"{self.trained.architecture} {self.trained.path.name}"

    def show_sentence(self, sentence: str) -> OOVCount:
        """Show a sentence: heat map, numbers, highlighted words.

        Raises:
            InputError: an output has no known ending, the model has no attention weights, or the sentence is not
                UTF-8 or has no words; nothing is written then. Or a file cannot be written.
        """
        forms = {output: form_of(output, FORMS) for output in self.outputs}
        require_weights(self.trained)
        require_utf8(sentence, "the sentence")
        words = self.text.words(sentence)
        if not words:
            raise InputError("the sentence has no words: there is nothing to show")
        [attention] = sentence_attention(self.trained, [words], with_log_probs=True, with_contributions=self.contributions)
        makers: dict[str, Callable[[], str]] = {
            ".html": lambda: page(self.lm, [("", attention)], self.threshold),
            ".json": lambda: as_json({"lm": signature(self.trained), **numbers.sentence_record(attention)}),
            ".tsv": lambda: "".join(f"{line}\n" for line in numbers.sentence_table(attention)),
        }
        self.write(forms, makers, lambda: heat_map(attention, self.lm))
        for line in self.highlighted(attention):
            self.line(line)
        oov = OOVCount(self.lm)
        oov.add([words], [attention.oov])
        return oov

    def show_text(self, text: TextSource | Iterable[str], examples: int, on_progress: Callable[[int], object] | None = None) -> OOVCount:
        """Show the attention of a text by distance; HTML also shows some of its sentences.

        Args:
            text: one sentence per line. A blank line is an empty sentence.
            examples: number of sentences in HTML: the first ones or, with ``against``, the most improved ones.
            on_progress: called with the number of sentences read since the last call.

        Returns:
            The unknown words.

        Raises:
            InputError: the text or a file name is unusable. No file is written then.
        """
        forms = {output: form_of(output, TEXT_FORMS) for output in self.outputs}
        require_weights(self.trained)
        profile, oov = DistanceProfile(), OOVCount(self.lm)
        shown: list[tuple[str, SentenceAttention]] = []
        with contextlib.ExitStack() as files:
            records = [files.enter_context(whole_file(output)) for output, form in forms.items() if form == ".jsonl"]
            for number, (attention, other) in enumerate(self.read(text, bool(records), on_progress), 1):
                profile.add(attention)
                oov.add([attention.words], [attention.oov])
                for file in records:
                    file.write(json.dumps({"line": number, **numbers.sentence_record(attention)}, ensure_ascii=False) + "\n")
                if self.against is not None and other is not None:
                    self.against.add(number, attention, other)
                    continue
                if attention.words and len(shown) < examples:
                    shown.append((f"Line {number}", attention))
                for line in self.highlighted(attention):
                    self.line(f"{number}\t{line}")
            if profile.persistence is not None:
                note(str(profile.persistence))
            improved = self.tell_improved() if self.against is not None else []
            shown += [(found.heading, found.attention) for found in improved]
            compared = {"improved": [found.as_dict() for found in improved]} if self.against is not None else {}
            makers: dict[str, Callable[[], str]] = {
                ".html": lambda: page(self.lm, shown, self.threshold, profile, "the most improved" if improved else "the first"),
                ".json": lambda: as_json({"lm": signature(self.trained), **numbers.distance_record(profile), **compared}),
                ".tsv": lambda: "".join(f"{line}\n" for line in numbers.distance_table(profile)),
            }
            whole = {output: form for output, form in forms.items() if form != ".jsonl"}
            self.write(whole, makers, lambda: distance_chart(profile, self.lm))
        return oov

    def tell_improved(self) -> list[Improvement]:
        """Print and return the sentences that improved most over the other LM, with their highlighted words."""
        assert self.against is not None, "there is another LM"
        self.line(HEADER)
        for found in self.against.best:
            self.line(str(found))
            for line in self.highlighted(found.attention):
                self.line(f"{found.line}\t{line}")
        if self.against.left_out:
            note(f"note: {self.against.left_out} sentences are not compared: they have words that only one of the LMs knows")
        return self.against.best

    def read(
        self, text: TextSource | Iterable[str], with_log_probs: bool, on_progress: Callable[[int], object] | None
    ) -> Iterator[tuple[SentenceAttention, SentenceScore | None]]:
        """Yield the attention of every line of a text, in order, and its score by the other LM if there is one."""
        lines = read_lines(text) if isinstance(text, TextSource) else text
        with_log_probs = with_log_probs or self.against is not None
        for block in blocks(self.text.words(line) for line in lines):
            others = self.against.scorer.score(block) if self.against is not None else repeat(None)
            yield from zip(sentence_attention(self.trained, block, with_log_probs, self.contributions), others, strict=False)
            if on_progress:
                on_progress(len(block))

    def highlighted(self, attention: SentenceAttention) -> Iterator[str]:
        """Yield the lines with highlighted words; none without a threshold."""
        if self.threshold is not None:
            for found in highlights(attention, self.threshold):
                yield as_text(attention, found, self.marked)

    def write(self, forms: dict[str, str], makers: dict[str, Callable[[], str]], figure: Callable[[], Figure]) -> None:
        """Write all outputs, after all of them are made. Then note what matplotlib could not draw."""
        made: dict[str, bytes] = {}
        notes: dict[str, None] = {}  # without repetitions: all pictures have the same texts
        for form in sorted(set(forms.values())):
            if form in makers:
                made[form] = makers[form]().encode("utf-8")
            else:
                made[form], told = draw(figure, form)
                notes |= dict.fromkeys(told)
        for output, form in forms.items():
            with whole_file(output) as file:
                file.buffer.write(made[form])
        for line in notes:
            note(line)


def blocks(sentences: Iterable[list[str]]) -> Iterator[list[list[str]]]:
    """Yield blocks of at most BLOCK_LINES sentences and BLOCK_WEIGHTS weights. A sentence has its length squared of these."""
    return batch_by_size(sentences, repeat(BLOCK_WEIGHTS), lambda words: (len(words) + 1) ** 2, BLOCK_LINES)


def form_of(output: str, forms: Sequence[str]) -> str:
    """Return the form that a file name's suffix asks for. Raises InputError if there is no such form."""
    form = ".tsv" if output == "-" else PurePath(output).suffix.lower()
    if form not in forms:
        raise InputError(f"cannot be written as {form or 'a file without ending'!r}; name it {', '.join(forms)}", path=output)
    return form


def signature(trained: TrainedModel) -> dict[str, Any]:
    return {"checkpoint": str(trained.path), "architecture": trained.architecture, "sha256": trained.sha256}


def as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=1) + "\n"
