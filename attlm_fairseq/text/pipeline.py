"""Apply text steps in order, then split at white space: from raw text to the words of an LM."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from attlm_fairseq.errors import InputError
from attlm_fairseq.files.hashes import sha256
from attlm_fairseq.messages import note
from attlm_fairseq.text.steps import KINDS, StepKind, TextFunction, tokenized_languages

_MISTAKEN = {"cn": "zh", "cz": "cs", "gr": "el", "jp": "ja", "kr": "ko"}  # countries, for their languages


@dataclass(frozen=True)
class Step:
    """One text step: its name in ``steps.KINDS`` and its argument, written ``name`` or ``name:argument``. See ``parse_step``."""

    name: str
    argument: str = ""

    @property
    def kind(self) -> StepKind:
        return KINDS[self.name]

    @property
    def needs_file(self) -> bool:
        return self.kind.argument == "FILE"

    @cached_property
    def function(self) -> TextFunction:
        """Return the function of the step, built when it is first needed. Raises InputError for a bad file or a missing package."""
        return self.kind.build(self.argument)

    @cached_property
    def signature(self) -> str:
        """Return the step, with the SHA-256 of its file if it has one. The file is hashed once."""
        return f"{self} (sha256 {sha256(Path(self.argument))})" if self.needs_file else str(self)

    def absolute(self) -> Step:
        """Return the step with the absolute path of its file, if it has one."""
        return Step(self.name, str(Path(self.argument).absolute())) if self.needs_file else self

    def __reduce__(self) -> tuple:
        return Step, (self.name, self.argument)  # another process builds the function itself: most cannot be pickled

    def __str__(self) -> str:
        return f"{self.name}:{self.argument}" if self.argument else self.name


@dataclass(frozen=True)
class TextPipeline:
    """The text steps before an LM, in order. After the last, the text is split at white space.

    The hypothesis itself is never changed. Text that is already tokenised needs no steps. Equal pipelines give equal
    words. White space is any Unicode white space, including no-break spaces: an ARPA word that contains one is never
    looked up.
    """

    steps: tuple[Step, ...] = ()

    def load(self) -> TextPipeline:
        """Read the files of the steps now instead of at the first text. Raises InputError for a bad file or a missing package."""
        for step in self.steps:
            _ = step.function
        return self

    def in_memory(self) -> TextPipeline:
        """Return the pipeline with its files read and hashed, so that they may change or go. Raises InputError as ``load`` does."""
        found = self.absolute().load()
        found.signature()
        return found

    def absolute(self) -> TextPipeline:
        """Return the pipeline with absolute paths of files."""
        return TextPipeline(tuple(step.absolute() for step in self.steps))

    def words(self, text: str) -> list[str]:
        """Return the words of a text; none is empty."""
        for step in self.steps:
            text = step.function(text)
        return text.split()

    def prepared(self, text: str) -> str:
        """Return the words of a text joined by single spaces; without steps, the text unchanged."""
        return " ".join(self.words(text)) if self.steps else text

    @property
    def segmentation(self) -> Step | None:
        """Return the last step if it cuts words into the LM's subwords, else None."""
        return self.steps[-1] if self.steps and self.steps[-1].kind.segments else None

    def of_words(self) -> TextPipeline:
        """Return the pipeline without a last step that cuts words into subwords."""
        return TextPipeline(self.steps[:-1]) if self.segmentation else self

    def signature(self) -> list[str]:
        """Return the steps, with the SHA-256 of their files, so that results can be reproduced."""
        return [step.signature for step in self.steps]

    def __str__(self) -> str:
        return " -> ".join([*map(str, self.steps), "split at white space"])


NO_STEPS = TextPipeline()


def parse_steps(texts: Iterable[str], folder: Path | None = None) -> TextPipeline:
    """Parse a pipeline from the text of each step.

    Raises:
        InputError: a step is unknown or has a wrong argument, or another step follows one that cuts into subwords.
            The message names the step.
    """
    steps = tuple(parse_step(text, folder) for text in texts)
    for step in steps[:-1]:
        if step.kind.segments:
            raise InputError(f"text step {step}: cutting into subwords comes last, but {steps[-1]} follows")
    return TextPipeline(steps)


def text_pipeline(text: str | Iterable[str] | TextPipeline) -> TextPipeline:
    """Return a pipeline itself, or parse it from its steps: joined by commas, or one by one.

    Raises:
        InputError: as in ``parse_steps``, or the value is neither of these.
    """
    if isinstance(text, TextPipeline):
        return text
    steps = text.split(",") if isinstance(text, str) else list(text) if isinstance(text, Iterable) else [text]
    if wrong := [step for step in steps if not isinstance(step, str)]:
        raise InputError(f"found the text step {wrong[0]!r}: expected steps such as 'unicode:nfc,lowercase'")
    return parse_steps(filter(None, steps))


def parse_step(text: str, folder: Path | None = None) -> Step:
    """Parse a step written ``name`` or ``name:argument``. Files are relative to ``folder``.

    Raises:
        InputError: the name is unknown, or the argument is missing, not expected or not one that the step takes.
    """
    name, _, argument = text.strip().partition(":")
    kind = KINDS.get(name)
    if kind is None:
        raise InputError(f"{name!r} is not a text step; known are {', '.join(map(usage, KINDS))}")
    if bool(argument) != bool(kind.argument) and not (kind.optional and not argument):
        raise InputError(f"text step {text!r}: expected {usage(name)}")
    if argument and kind.choices and argument not in kind.choices:
        expected = usage(name) if kind.optional else f"{name}: and one of {', '.join(kind.choices)}"
        raise InputError(f"text step {text!r}: expected {expected}")
    if argument and kind.argument == "LANG" and not re.fullmatch("[a-z]{2,3}", argument):  # Moses' rules go by such codes
        raise InputError(f"text step {text!r}: {argument!r} is not a language code of two or three letters such as en or yue")
    if kind.argument == "FILE" and folder is not None:
        argument = str(folder / argument)
    return Step(name, argument)


def describe_pipelines(pipelines: Mapping[str, TextPipeline]) -> list[str]:
    """Return one line per distinct pipeline, with its LMs: ``text for lm, kenlm: lowercase -> split at white space``."""
    lms: dict[TextPipeline, list[str]] = {}
    for name, pipeline in pipelines.items():
        lms.setdefault(pipeline, []).append(name)
    return [f"text for {', '.join(names)}: {pipeline}" for pipeline, names in lms.items()]


def remarks(pipelines: Iterable[TextPipeline]) -> list[str]:
    """Return one line per distinct tokenisation step whose library has no rules for the language."""
    found = []
    for step in dict.fromkeys(step for pipeline in pipelines for step in pipeline.steps if step.name == "tokenize"):
        if step.argument not in tokenized_languages():
            meant = f"; did you mean {step.name}:{_MISTAKEN[step.argument]}?" if step.argument in _MISTAKEN else ""
            found.append(f"note: {step}: sacremoses has no rules of its own for {step.argument!r} and takes general ones{meant}")
    return found


def note_texts(pipelines: Mapping[str, TextPipeline]) -> None:
    """Log the text steps of each LM, and doubts about them."""
    for line in (*describe_pipelines(pipelines), *remarks(pipelines.values())):
        note(line)


def split_texts(pipelines: Sequence[TextPipeline], texts: Sequence[str]) -> list[list[list[str]]]:
    """Return the words of each text for each LM, as ``[lm][text]``. LMs with the same pipeline share the work."""
    done: dict[TextPipeline, list[list[str]]] = {}
    for pipeline in pipelines:
        if pipeline not in done:
            words = {text: pipeline.words(text) for text in dict.fromkeys(texts)} if pipeline.steps else None
            done[pipeline] = [words[text] for text in texts] if words is not None else [text.split() for text in texts]
    return [done[pipeline] for pipeline in pipelines]


def usage(name: str) -> str:
    """Return how a step is written: ``characters``, ``tokenize:LANG``, ``lowercase[:tr|az]``."""
    kind = KINDS[name]
    if kind.optional:
        return f"{name}[:{'|'.join(kind.choices)}]"
    return f"{name}:{kind.argument}" if kind.argument else name
