"""Estimate an n-gram model with interpolated modified Kneser-Ney smoothing, by KenLM's program ``lmplz``."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import signal
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from attlm_fairseq.errors import InputError, require_whole_number
from attlm_fairseq.files.folders import own_folder, remove_left_behind
from attlm_fairseq.files.reading import TextSource
from attlm_fairseq.scoring.ngrams.kenlm_files import gist, read_ngram_counts
from attlm_fairseq.scoring.ngrams.kenlm_programs import find_program
from attlm_fairseq.scoring.ngrams.unk_in_text import PLACEHOLDER, rename_placeholder
from attlm_fairseq.scoring.text_file import read_lines
from attlm_fairseq.text.symbols import END, START, UNKNOWN

TEMPORARY = ".attlm-ngram-"  # what the folders begin with in which models are made, next to their place
ORDERS = range(2, 7)  # KenLM reads no unigram models, and is compiled for 6 unless told otherwise
UNKNOWNS = frozenset([UNKNOWN, UNKNOWN.upper()])  # KenLM reads both as one, in texts and in ARPA files
RESERVED = frozenset([START, END]) | UNKNOWNS


@dataclass(frozen=True)
class NgramReport:
    """The result of an estimation.

    Attributes:
        path: the model.
        order: length of the longest n-grams.
        ngrams: number of n-grams of each order from 1; the first includes ``<s> </s> <unk>``.
        sentences: number of sentences of the text.
        words: number of words, without sentence ends.
        skipped_symbols: number of reserved words that were left out on request.
        unknown_words: number of words ``<unk>`` and ``<UNK>`` of the text that were counted on request.
        fallback_orders: orders with fallback discounts instead of estimated ones.
    """

    path: Path
    order: int
    ngrams: tuple[int, ...]
    sentences: int
    words: int
    skipped_symbols: int
    unknown_words: int
    fallback_orders: tuple[int, ...]

    def __str__(self) -> str:
        sizes = ", ".join(f"{count:,} {order}-grams" for order, count in enumerate(self.ngrams, 1))
        notes = [f"{sizes}, from {self.words:,} words in {self.sentences:,} sentences"]
        if self.skipped_symbols:
            notes.append(f"{self.skipped_symbols:,} words <s> </s> <unk> of the text left out")
        if self.unknown_words:
            notes.append(f"{self.unknown_words:,} of the words are {UNKNOWN}")
        if self.fallback_orders:
            notes.append(f"fallback discounts for order {', '.join(map(str, self.fallback_orders))}")
        return "; ".join(notes)


@dataclass(frozen=True)
class NgramOptions:
    """Options of the estimation.

    Attributes:
        memory: memory for lmplz's sorting: a number with K, M, G or % (of the machine's).
        discount_fallback: set the discounts to 0.5, 1 and 1.5 if the text is too small or too regular to estimate them.
        skip_symbols: leave out ``<s>``, ``</s>``, ``<unk>`` and ``<UNK>`` in the text, instead of refusing them.
        unk_in_text: count the text's ``<unk>`` and ``<UNK>`` like other words, as neural LMs do; unknown words get its probability.
        vocabulary_pad: share p(<unk>) as if the vocabulary had this many words. Not with ``unk_in_text``.

    Raises:
        InputError: ``vocabulary_pad`` is no whole number from 1 up, or is given with ``unk_in_text``: ``<unk>`` is then one event, not
            one of many types.
    """

    memory: str = "1G"
    discount_fallback: bool = False
    skip_symbols: bool = False
    unk_in_text: bool = False
    vocabulary_pad: int | None = None

    def __post_init__(self) -> None:
        if self.vocabulary_pad is not None:
            require_whole_number("vocabulary_pad", self.vocabulary_pad, 1)
        if self.unk_in_text and self.vocabulary_pad:
            raise InputError("--vocabulary-pad shares p(<unk>) among types, but with --unk-in-text <unk> is one word: give one of them")

    @property
    def arguments(self) -> list[str]:
        pad = ["--vocab_pad", str(self.vocabulary_pad)] if self.vocabulary_pad else []
        return ["--memory", self.memory, *pad, *(["--discount_fallback"] if self.discount_fallback else [])]


DEFAULT_NGRAM = NgramOptions()


def estimate_ngram(
    text: str | Path | TextSource | Iterable[str],
    output: Path | str,
    order: int,
    options: NgramOptions = DEFAULT_NGRAM,
    lmplz: Path | None = None,
) -> NgramReport:
    """Estimate an unpruned n-gram model. See ``verbs.ngram.estimate_ngram``, which also refuses n-best lists.

    Args:
        text: a file, opened or by name, or lines. A single string is a file's name.
        output, order, options, lmplz: as there.

    Raises:
        InputError: the text is unreadable or too small, the order is not supported, or lmplz is missing or fails.
    """
    if order not in ORDERS:
        raise InputError(f"the order must be {ORDERS[0]} to {ORDERS[-1]}, not {order}: KenLM can use no other")
    output = Path(output)
    target = _target(output)
    if isinstance(text, str | Path):
        text = TextSource(str(text), "one sentence per line")
    source = text.name if isinstance(text, TextSource) else "the text"
    sentences = _Sentences(text, source, options)
    program = str(lmplz or find_program("lmplz"))
    # Next to the output: on its file system, so that the finished model is moved and never copied, and where there is room for it.
    with _temporary_folder(target) as folder:
        arpa = folder / "model.arpa"
        places = ["--temp_prefix", f"{folder}/", "--arpa", str(arpa)]
        code, said = _run([program, "--order", str(order), *options.arguments, *places], sentences)
        if not sentences.words:
            raise InputError("has no words: there is nothing to estimate", path=source)
        if code and os.strerror(errno.ENOSPC) in said:
            raise InputError(f"cannot be written: {os.strerror(errno.ENOSPC)}, where lmplz keeps its temporary files, too", path=output)
        if code:
            raise InputError(_explain(code, said), path=source)
        if sentences.unknown:
            arpa = folder / "renamed.arpa"
            rename_placeholder(folder / "model.arpa", arpa)
        model = _as_binary(arpa, program, output) if output.suffix == ".bin" else arpa
        ngrams = read_ngram_counts(model)
        model.replace(target)
    fallback_orders = tuple(int(index) + 1 for index in re.findall(r"fallback discounts for order (\d+)", said))
    counts = (sentences.sentences, sentences.words, sentences.skipped, sentences.unknown)
    return NgramReport(output, order, ngrams, *counts, fallback_orders)


def _target(output: Path) -> Path:
    """Return the file that ``output`` resolves to, if a model can be written there.

    Raises InputError if the name does not end in ``.arpa`` or ``.bin``, it is not a regular file, or its
    folder does not exist.
    """
    if output.suffix not in (".arpa", ".bin"):
        raise InputError("the model's name must end in .arpa (text) or .bin (KenLM binary, loads at once)", path=output)
    target = Path(os.path.realpath(output))  # a link stays, and what it leads to is written
    if target.exists() and not target.is_file():
        raise InputError("is not a regular file: the model is written next to its place and moved there; name a file", path=output)
    if not target.parent.is_dir():
        raise InputError("its folder does not exist", path=output)
    return target


def _as_binary(arpa: Path, program: str, output: Path) -> Path:
    """Convert a model to KenLM's binary format with the ``build_binary`` next to ``program``.

    Raises InputError if the program is missing and cannot be built, or if it fails.
    """
    binary = arpa.with_name("model.bin")
    code, said = _run([str(find_program("build_binary", sibling=Path(program))), str(arpa), str(binary)])
    if code:
        raise InputError(f"build_binary failed: {gist(said)}", path=output)
    return binary


@contextlib.contextmanager
def _temporary_folder(target: Path) -> Iterator[Path]:
    """Yield a folder for the parts of a model. Folders left by killed runs, which may be large, are removed."""
    remove_left_behind(target.parent, f"{TEMPORARY}*")
    with contextlib.ExitStack() as until_then:
        try:
            folder = until_then.enter_context(own_folder(target.with_name(f"{TEMPORARY}{target.name}"), str(target)))
        except OSError as error:
            raise InputError(f"nothing can be written into this folder: {error.strerror}", path=target.parent) from None
        yield folder


def _explain(code: int, said: str) -> str:
    if code == -signal.SIGKILL:
        return "lmplz was killed; if memory ran out, give a smaller --memory"
    reason = gist(said)
    if "BadDiscountException" in said:
        return (
            f"is too small or too regular to estimate the discounts ({reason.partition(';')[0]}): give more text, one without "
            "repetitions, or --discount-fallback"
        )
    return f"lmplz failed: {reason}"


class _Sentences:
    """The lines of a text as lmplz reads them, checked and counted on their way."""

    def __init__(self, text: TextSource | Iterable[str], source: str, options: NgramOptions) -> None:
        self.text = text
        self.source = source
        self.options = options
        self.sentences = 0
        self.words = 0
        self.skipped = 0
        self.unknown = 0

    def __iter__(self) -> Iterator[bytes]:
        for number, line in enumerate(read_lines(self.text) if isinstance(self.text, TextSource) else self.text, 1):
            words = line.split()
            try:
                if self.options.unk_in_text:
                    words = self._with_placeholder(words, number)
                if not RESERVED.isdisjoint(words):
                    words = self._without_symbols(words, number)
                encoded = " ".join(words).encode("utf-8") + b"\n"
            except UnicodeEncodeError as error:  # of a program's text
                raise InputError(f"is not UTF-8 ({error.reason}, character {error.start})", path=self.source, line=number) from None
            if b"\0" in encoded:
                raise InputError("holds a NUL character, which no word can have: is this a text file?", path=self.source, line=number)
            self.sentences += 1
            self.words += len(words)
            yield encoded

    def _with_placeholder(self, words: list[str], number: int) -> list[str]:
        if PLACEHOLDER in words:
            raise InputError(f"holds the word {PLACEHOLDER!r}, which stands for {UNKNOWN} here; replace it", path=self.source, line=number)
        replaced = [PLACEHOLDER if word in UNKNOWNS else word for word in words]
        self.unknown += replaced.count(PLACEHOLDER)
        return replaced

    def _without_symbols(self, words: list[str], number: int) -> list[str]:
        kept = [word for word in words if word not in RESERVED]
        if not self.options.skip_symbols:
            found = next(word for word in words if word in RESERVED)
            count = ", count it as a word with --unk-in-text" if found in UNKNOWNS else ""
            raise InputError(
                f"found the word {found}, which an n-gram model keeps for itself; replace it in the text{count}, or leave such words out "
                "with --skip-symbols",
                path=self.source,
                line=number,
            )
        self.skipped += len(words) - len(kept)
        return kept


def _run(command: list[str], lines: Iterable[bytes] = ()) -> tuple[int, str]:
    """Run a program on the lines: its exit code and all that it said. Ends it if the lines raise an exception."""
    with tempfile.TemporaryFile() as said:
        try:
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=said)
        except OSError as error:
            raise InputError(f"cannot be run: {error.strerror}", path=command[0]) from None
        assert process.stdin is not None
        try:
            for line in lines:
                process.stdin.write(line)
        except BrokenPipeError:  # it ended before its input did, and has said why
            pass
        except BaseException:
            process.kill()
            raise
        finally:
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()
            process.wait()
        said.seek(0)
        return process.returncode, said.read().decode("utf-8", "replace")
