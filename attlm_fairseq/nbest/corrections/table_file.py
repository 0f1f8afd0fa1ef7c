r"""The table of corrections as a text file, for people to read, edit and compare.

Tab-separated UTF-8 lines ``kind source target ln_p count examples``, after lines that begin with ``#``:

    phrase   twenty-twond   twenty second   -0.105   14.2   on may twenty-twond in the morning
    keep     flights        flights         -0.012   2731.4
    written  boston         Boston          -0.002   310
    number   3              pairs           -0.437   42.4
    letter   y              i               -4.1

``phrase``: words, ``<s>`` and ``</s>`` for the sentence boundaries, ``<s><nul>`` for the word ``<s>`` of a text. ``keep``: a word
stays. ``written``: how a word is written that corrections compare after the steps of ``# text =``. ``number``: numbers of a shape (see
``numbers``) are said in this way. ``letter``: of the edit transducer (see ``letters``); a space is ``<space>``, nothing ``<none>``.
``ln_p`` is a natural logarithm, at most 0. A phrase of ``ln_p`` 0 that a person adds is as good as certain; the LM still has its say.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from os.path import relpath
from pathlib import Path

from attlm_fairseq.errors import InputError
from attlm_fairseq.files.reading import TextSource, head_of
from attlm_fairseq.files.writing import is_stream, whole_file
from attlm_fairseq.nbest.corrections.alignment import BEGIN, END, MARK
from attlm_fairseq.nbest.corrections.letters import LetterChannel
from attlm_fairseq.nbest.corrections.numbers import LANGUAGE, WAYS, NumberChannel, check_language, is_row, number_words
from attlm_fairseq.nbest.corrections.phrase_table import PhraseTable, Rule, Words
from attlm_fairseq.nbest.corrections.written import UsualForm, check_steps
from attlm_fairseq.nbest.fingerprints import known_share
from attlm_fairseq.text.pipeline import NO_STEPS, TextPipeline, text_pipeline

TITLE = "# attlm corrections 1"
LAST = "# end"  # without it, a file that says that it ends so was cut short
COLUMNS = ("kind", "source", "target", "ln_p", "count", "examples")
MAX_WORDS = 16  # of a phrase
MAX_TARGETS = 50  # of one source: the best are used
EXAMPLES = " | "
MIN_LOG_PROB = math.log(1e-4)  # letters that change with less are not written
NUL = "<nul>"  # also after a word of a text that looks like a boundary, see ``bounded``
NAMED = {" ": "<space>", "": "<none>", "\0": NUL}
LETTERS = {name: letter for letter, name in NAMED.items()}
INSERT, STOP = "<insert>", "<stop>"


@dataclass(frozen=True)
class Table:
    """What the file holds, learned from so many ``lists``.

    ``learned_from`` is the fingerprint of their references. ``own_lm`` is the SHA-256 of the LM if that was estimated from these
    references, too, "no" if it was given, and empty if a table of an earlier version does not say. ``text``: the steps after which
    words are compared; the table and its LM have the words after them. ``usual``: how new words are written.
    """

    phrases: PhraseTable
    numbers: NumberChannel
    letters: LetterChannel
    lm: Path | None
    language: str = LANGUAGE
    lists: int = 0
    learned_from: str = ""
    own_lm: str = ""
    text: TextPipeline = NO_STEPS
    usual: Mapping[str, UsualForm] = field(default_factory=dict)

    def share_of(self, references: Iterable[Sequence[str]]) -> float:
        """Return the share of the distinct references that the table was learned from, see ``known_share``."""
        return known_share(references, self.learned_from) if self.learned_from else 0.0


def write_table(path: Path, table: Table, lm: Path) -> None:
    """Write the table, phrases first, the most used on top; ``lm`` relative to the file's folder, absolute if that is a stream.

    Raises:
        InputError: the file cannot be written.
    """
    with whole_file(str(path)) as out:
        out.write(f"{TITLE}\n# last line = {LAST}\n# lm = {_name_of(lm, path)}\n")
        if table.own_lm:
            out.write(f"# lm of the references = {table.own_lm}\n")
        if table.text.steps:
            out.write(f"# text = {','.join(map(str, table.text.steps))}\n")
        out.write(f"# language = {table.language}\n# lists = {table.lists}\n# references = {table.learned_from}\n")
        for row in (COLUMNS, *_rows(table)):
            out.write("\t".join(row).replace(MARK, NUL) + "\n")
        out.write(f"{LAST}\n")


def _name_of(lm: Path, path: Path) -> Path | str:
    """Return the name of an LM in the file ``path``."""
    if is_stream(str(path)):
        return lm.absolute()
    return relpath(lm.absolute().parent.resolve() / lm.name, path.absolute().parent.resolve())  # a link's .. is that of its target


def _rows(table: Table) -> Iterator[tuple[str, ...]]:
    rules = [rule for of_source in table.phrases.rules.values() for rule in of_source]
    for rule in sorted(rules, key=lambda rule: (-rule.lists, rule.source, rule.target)):
        source, target = " ".join(rule.source), " ".join(rule.target)
        yield "phrase", source, target, f"{rule.log_prob:.4f}", f"{rule.lists:.4g}", EXAMPLES.join(rule.examples)
    for word, log_prob in sorted(table.phrases.kept.items()):
        yield "keep", word, word, f"{log_prob:.4f}", "", ""
    for word, usual in table.usual.items():
        yield "written", word, usual.form, f"{usual.log_prob:.4f}", f"{usual.lists:.4g}", ""
    for shape, ways in sorted(table.numbers.log_probs.items()):
        for way, log_prob in sorted(ways.items()):
            yield "number", shape, way, f"{log_prob:.4f}", f"{table.numbers.counts.get(shape, {}).get(way, 0):.4g}", ""
    for a, targets in sorted(table.letters.changes.items()):
        for b, cost in sorted(targets.items()):
            if -cost >= MIN_LOG_PROB:
                yield "letter", NAMED.get(a, a), NAMED.get(b, b), f"{-cost:.4f}", "", ""
    for b, cost in sorted(table.letters.inserts.items()):
        if -cost >= MIN_LOG_PROB:
            yield "letter", INSERT, NAMED.get(b, b), f"{-cost:.4f}", "", ""
    if table.letters.changes:
        yield "letter", INSERT, STOP, f"{-table.letters.stop:.4f}", "", ""


class _Reader:
    """Collects the rows of a file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rules: dict[Words, list[Rule]] = {}
        self.kept: dict[str, float] = {}
        self.ways: dict[str, dict[str, float]] = {}
        self.counts: dict[str, dict[str, float]] = {}
        self.changes: dict[str, dict[str, float]] = {}
        self.inserts: dict[str, float] = {}
        self.stop = 0.0
        self.line = 0
        self.text = NO_STEPS
        self.usual: dict[str, UsualForm] = {}
        self.rows: set[tuple[str, ...]] = set()

    def error(self, message: str) -> InputError:
        return InputError(message, path=self.path, line=self.line)

    def add(self, fields: list[str]) -> None:
        """Add one row.

        Raises InputError for a wrong number of fields, an unknown kind, or a wrong number, phrase or letter.
        """
        if not 4 <= len(fields) <= len(COLUMNS):
            raise self.error(f"{len(fields)} fields, expected 4 to {len(COLUMNS)} separated by tabs: {', '.join(COLUMNS)}")
        kind, source, target, number, count, examples = (*fields, "", "")[: len(COLUMNS)]
        log_prob = self._number(number, "ln_p", -math.inf)
        if log_prob > 0:
            raise self.error(f"ln_p is {number}, expected the natural logarithm of a probability: at most 0")
        if kind == "phrase":
            shown = tuple(filter(None, examples.split(EXAMPLES)))
            self._add_phrase(tuple(source.split()), tuple(target.split()), log_prob, self._number(count or "0", "count", 0.0), shown)
        elif kind == "keep":
            if source != target or source.split() != [source]:
                raise self.error(f"found {source!r} that stays {target!r}, expected one word in both columns")
            self._require_form(source)
            self._once("keep", source)
            self.kept[source] = log_prob
        elif kind == "written":
            if not self.text.steps or self.text.words(target) != [source]:
                raise self.error(f"{source!r} written {target!r}, expected a word after the steps of '# text =', and how it is written")
            self._once("written", source)
            self.usual[source] = UsualForm(target, log_prob, self._number(count or "0", "count", 0.0))
        elif kind == "number":
            if not is_row(source, target):
                raise self.error(
                    f"number {source!r} said as {target!r}, expected a number of digits and one of {', '.join(WAYS)}, with what sticks to "
                    "the number, such as '4+pm' and 'pairs+pm'"
                )
            self._once("number", source, target)
            self.ways.setdefault(source, {})[target] = log_prob
            self.counts.setdefault(source, {})[target] = self._number(count or "0", "count", 0.0)
        elif kind == "letter":
            self._add_letter(source, target, -log_prob)
        else:
            raise self.error(f"kind {kind!r}, expected phrase, keep, written, number or letter")

    def _once(self, *row: str) -> None:
        """Raise InputError if there was such a row before: one of two probabilities would be lost."""
        if row in self.rows:
            raise self.error(f"a second {row[0]} row of {' -> '.join(map(repr, row[1:]))}: leave one of the two out")
        self.rows.add(row)

    def _number(self, text: str, name: str, least: float) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not math.isfinite(value) or value < least:
            raise self.error(f"{name} is {text!r}, expected a finite number{'' if least == -math.inf else f' of at least {least:g}'}")
        return value

    def _add_phrase(self, source: Words, target: Words, log_prob: float, count: float, examples: Words) -> None:
        if not {*source} - {BEGIN, END}:
            raise self.error("the source has no word: what is inserted needs a word of context on one side, in source and target")
        for word in (*source, *target):
            if word not in (BEGIN, END):
                self._require_form(word)
        if max(len(source), len(target)) > MAX_WORDS:
            raise self.error(f"a phrase of {max(len(source), len(target))} words, expected at most {MAX_WORDS}")
        for phrase in (source, target):
            if BEGIN in phrase[1:] or END in phrase[:-1]:
                raise self.error(f"{BEGIN} is the first word of a phrase and {END} the last, or they are not in it")
        if (source[:1] == (BEGIN,)) != (target[:1] == (BEGIN,)) or (source[-1:] == (END,)) != (target[-1:] == (END,)):
            raise self.error(f"{BEGIN} and {END} must be in source and target or in neither")
        self._once("phrase", " ".join(source), " ".join(target))
        self.rules.setdefault(source, []).append(Rule(source, target, log_prob, count, examples))

    def _require_form(self, word: str) -> None:
        """Raise InputError if the text steps make this word of no text.

        Of their own output they may make another word: a capital of Greek has fewer composed forms than its small letter.
        """
        some = word.rstrip(MARK)
        if self.text.steps and not any(self.text.words(cased) == [some] for cased in (some, some.upper(), some.lower())):
            compared = " ".join(self.text.words(some))
            raise self.error(f"{some!r} is {compared!r} after the steps of '# text =': write that")

    def _add_letter(self, source: str, target: str, cost: float) -> None:
        self._once("letter", source, target)
        if source == INSERT and target == STOP:
            self.stop = cost
            return
        a, b = LETTERS.get(source, source), LETTERS.get(target, target)
        if len(b) > 1 or (source != INSERT and len(a) != 1) or (source == INSERT and not b):
            raise self.error(f"letter {source!r} to {target!r}, expected single letters, {', '.join(LETTERS)} or {INSERT}")
        if source == INSERT:
            self.inserts[b] = cost
        else:
            self.changes.setdefault(a, {})[b] = cost


def lm_of(path: Path) -> Path | None:
    """Return the LM that a table names; None if the file is not a table or cannot be read."""
    try:
        lines = itertools.takewhile(lambda line: line.startswith("#"), head_of(path).splitlines())
    except InputError:
        return None
    found = [line.partition("=")[2].strip() for line in lines if re.match(r"#\s*lm\s*=", line)]
    return path.absolute().parent.resolve() / found[-1] if found else None


def read_table(path: Path) -> Table:
    """Read a table.

    Raises:
        InputError: the file cannot be read, is not a table of corrections or names no LM, or a line is wrong. The
            message names the line.
    """
    source = TextSource(str(path), "a table of corrections")
    if source.head.partition("\n")[0].rstrip() != TITLE:
        source.close()
        raise InputError(f"is not a table of corrections: expected {TITLE!r} as the first line", path=path)
    reader, whole = _Reader(path), False
    about: dict[str, str] = {}
    for number, line in enumerate(source.lines(), 1):
        reader.line = number
        text = line.rstrip("\r\n")
        for boundary in (BEGIN, END):
            text = text.replace(f"{boundary}{NUL}", f"{boundary}{MARK}")
        if text.rstrip() == LAST:
            whole = True
        elif text.startswith("#"):
            name, sign, value = text.removeprefix("#").partition("=")
            if sign:
                about[name.strip()] = value.strip()
            if sign and name.strip() == "text":
                reader.text = _steps(value, path)
        elif text.strip() and tuple(text.split("\t")) != COLUMNS:
            reader.add(text.split("\t"))
    reader.line = 0
    if about.get("last line") == LAST and not whole:
        raise InputError(f"is cut short: expected a line {LAST!r} after its rows; copy it again, or learn again", path=path)
    if not about.get("lm"):
        raise InputError("names no LM: expected a line '# lm = FILE.arpa'", path=path)
    language = about.get("language", LANGUAGE)
    if reader.ways:
        try:
            check_language(language)
        except InputError as error:
            raise InputError(f"the line '# language =': {error}", path=path) from None
    best = {source: sorted(rules, key=lambda rule: -rule.log_prob)[:MAX_TARGETS] for source, rules in reader.rules.items()}
    return Table(
        PhraseTable(best, reader.kept),
        NumberChannel(reader.ways, reader.counts, number_words(language) if reader.ways else None),
        LetterChannel(reader.changes, reader.inserts, reader.stop),
        path.absolute().parent.resolve() / about["lm"],
        language,
        int(about["lists"][:18]) if about.get("lists", "").isdecimal() else 0,
        about.get("references", ""),
        about.get("lm of the references", ""),
        reader.text,
        reader.usual,
    )


def _steps(text: str, path: Path) -> TextPipeline:
    try:
        return check_steps(text_pipeline(text.strip()), of_table=True)
    except InputError as error:
        raise InputError(f"the line '# text =': {error}", path=path) from None
