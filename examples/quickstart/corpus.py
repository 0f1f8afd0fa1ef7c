#!/usr/bin/env python3
"""Make a small English corpus from what every Python carries: its manual (``pydoc_data.topics``) and its docstrings.

The text is the prose of the help topics and of the docstrings in the standard library's source files, which are parsed and never
imported. Code, doctests, grammar rules, signatures, tables and headings are left out. A sentence is normalised as if it were read
aloud to a typist:

- lower case; words are made of the letters a-z and apostrophes; all other punctuation is dropped;
- names are broken into their words (``str.format()`` -> ``str format``, ``__init__`` -> ``init``), and so are hyphenated words;
- numbers are read digit by digit (``3.10`` -> ``three point one zero``);
- a sentence with anything else in it (formulas, brackets, letters beyond ASCII) is left out, not mended, as is one with fewer than 3 or
  more than 60 words.

Whole topics and modules go to ``train``, ``dev`` or ``test``, by a hash of their name. A sentence is written once, in the first of these
three where it occurs, and a dev or test sentence that shares 8 consecutive words with an earlier split is left out.

    python corpus.py OUTPUT_FOLDER        # writes train.txt, dev.txt, test.txt: one sentence a line
"""

from __future__ import annotations

import ast
import hashlib
import re
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path

SPLITS = ("train", "dev", "test")
HELD_OUT_SHARE = {"dev": 0.08, "test": 0.10}  # of the topics and modules; the rest is train
SHORTEST, LONGEST = 3, 60  # words in a sentence
OVERLAP = 8  # consecutive words that no two splits may share

NOT_THE_LIBRARY = {"site-packages", "dist-packages", "test", "tests", "idle_test", "pydoc_data"}
DIGITS = dict(zip("0123456789.", "zero one two three four five six seven eight nine point".split(), strict=True))  # noqa: SIM905
SPOKEN = {"e.g.": "for example", "i.e.": "that is", "vs.": "versus", "cf.": "compare", "w.r.t.": "with respect to"}
ABBREVIATION = re.compile(r"(?<![\w.])(?:e\.\s?g\.|i\.\s?e\.|vs\.|cf\.|w\.r\.t\.)", re.IGNORECASE)
QUOTES = str.maketrans({"\u2018": "'", "\u2019": "'", "\u201c": '"', "\u201d": '"', "\u2013": " - ", "\u2014": " - ", "\u2026": " "})
FUNCTION_WORDS = frozenset(
    # what nearly every English sentence has one of, and a list of names, options or colours has not
    """a an and are as at be but by can for from has have if in is it its may must no not of on only or should that the them then there
    these they this to use used was when which will with without you your""".split()  # noqa: SIM905
)

DECORATION = "\"'`*(),;:.!?[]"
PLAIN_WORD = re.compile(r"[A-Za-z]+(?:'[A-Za-z]+)?(?:[-/][A-Za-z]+)*")
NAME = re.compile(r"(?=[\w.]*[A-Za-z])[A-Za-z0-9_]+(?:\.[A-Za-z0-9_]+)*", re.ASCII)
NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)*", re.ASCII)
NAME_PART = re.compile(r"[A-Za-z]+|[0-9]")
LIST_MARK = re.compile(r"^(?:[-*+•]|\(?(?:\d+|[a-z])[.)])\s+")
FIELD_MARK = re.compile(r"^:\w+[^:]*:\s+")  # Sphinx field lists, ":param name: text"
SENTENCE_END = re.compile(r"""(?<=[.!?:])["')*`]*\s+(?=["'(*`]*[A-Z_])""")  # white space before what can begin another one


def paragraphs(text: str) -> Iterator[str]:
    """Yield the paragraphs and list items of a docstring or help topic, each on one line; doctests and literal blocks are skipped."""
    block: list[str] = []
    indents: list[int] = []
    literal_within: int | None = None  # indentation of the paragraph that announced a literal block with "::"
    doctest = False
    for line in [*text.expandtabs().splitlines(), ""]:
        stripped = line.strip()
        indent = len(line) - len(line.lstrip())
        item = LIST_MARK.match(stripped) is not None or FIELD_MARK.match(stripped) is not None
        # A paragraph's later lines may hang below its first; any other change of indentation begins a new paragraph.
        hangs = len(indents) == 1 and indent > indents[0]
        if block and (not stripped or item or stripped.startswith(">>>") or (indent != indents[-1] and not hangs)):
            yield " ".join(block)
            literal_within = indents[0] if block[-1].endswith("::") else literal_within
            block, indents = [], []
        doctest = bool(stripped) and (doctest or stripped.startswith(">>>"))
        if not stripped or doctest:
            continue
        if literal_within is not None and indent > literal_within:
            continue
        literal_within = None
        block.append(FIELD_MARK.sub("", LIST_MARK.sub("", stripped, count=1), count=1))
        indents.append(indent)


def normalise(sentence: str) -> list[str] | None:
    """Return the words of one sentence as they would be read aloud, or None where it is not prose."""
    tokens = (
        ABBREVIATION.sub(lambda match: SPOKEN["".join(match[0].lower().split())], sentence)
        .translate(QUOTES)
        .replace("--", " ")
        .replace(" - ", " ")
        .split()
    )
    words: list[str] = []
    plain = 0
    for token in tokens:
        core = token.strip(DECORATION)
        if not core:
            if token.strip(".,;:!?-\"'"):
                return None  # a bracket, an asterisk or a back-quote on its own is code
            continue
        if PLAIN_WORD.fullmatch(core):
            plain += 1
            words += re.split(r"[-/]", core.lower())
        elif NUMBER.fullmatch(core):
            words += [DIGITS[character] for character in core]
        elif NAME.fullmatch(core):
            words += [DIGITS.get(part, part.lower()) for part in NAME_PART.findall(core)]
        else:
            return None
    if not SHORTEST <= len(words) <= LONGEST or plain < 0.7 * len(tokens) or FUNCTION_WORDS.isdisjoint(words):
        return None
    return words


def sentences(text: str) -> Iterator[str]:
    """Yield the normalised prose sentences of a docstring or help topic in order, words separated by single spaces."""
    for number, paragraph in enumerate(paragraphs(text)):
        spoken = ABBREVIATION.sub(lambda match: SPOKEN["".join(match[0].lower().split())], paragraph)
        for sentence in SENTENCE_END.split(spoken):
            # Headings and table cells have no full stop; the first line of a docstring often lacks it and is prose all the same.
            if (number == 0 or sentence.rstrip(DECORATION[:4] + ")").endswith((".", "!", "?", ":"))) and (words := normalise(sentence)):
                yield " ".join(words)


def docstrings(node: ast.AST) -> Iterator[str]:
    """Yield the docstrings of a syntax tree in the order of the source: modules, classes and functions, nested ones too."""
    if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) and (text := ast.get_docstring(node)):
        yield text
    for block in ("body", "handlers", "orelse", "finalbody"):  # no definition hides inside an expression
        for child in getattr(node, block, ()):
            yield from docstrings(child)


def python_files(folder: Path) -> Iterator[Path]:
    """Yield the source files under ``folder`` in the order of their names, those of tests and of installed packages excepted."""
    for path in sorted(folder.iterdir()):
        if path.is_dir() and path.name not in NOT_THE_LIBRARY:
            yield from python_files(path)
        elif path.suffix == ".py":
            yield path


def documents(library: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield (name, texts) for each help topic and for each standard library module in ``library``, in the order of their names."""
    topics = library / "pydoc_data" / "topics.py"
    for node in ast.walk(ast.parse(topics.read_bytes())):
        if isinstance(node, ast.Dict):
            for name, text in sorted(ast.literal_eval(node).items()):
                yield f"topic {name}", [text]
    for path in python_files(library):
        try:
            tree = ast.parse(path.read_bytes())
        except (SyntaxError, ValueError):
            continue  # lib2to3 and the like carry deliberately broken sources
        yield f"module {'.'.join(path.relative_to(library).with_suffix('').parts)}", list(docstrings(tree))


def split_of(name: str) -> str:
    """Return the split that a topic or module belongs to: a fixed choice by the SHA-256 of its name."""
    share = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big") / 2**64
    for split, held_out in HELD_OUT_SHARE.items():
        if share < held_out:
            return split
        share -= held_out
    return "train"


def distinct(splits: dict[str, Iterable[str]]) -> tuple[dict[str, list[str]], dict[str, int]]:
    """Keep each sentence once and no held-out sentence that shares OVERLAP consecutive words with an earlier split.

    Returns the sentences that are kept, in order, and how many were left out for each of the two reasons.
    """
    seen: set[str] = set()
    earlier: set[str] = set()
    kept: dict[str, list[str]] = {}
    left_out = {"repeated": 0, "overlapping": 0}
    for split, candidates in splits.items():
        kept[split] = []
        own: set[str] = set()
        for sentence in candidates:
            words = sentence.split()
            runs = {" ".join(words[start : start + OVERLAP]) for start in range(len(words) - OVERLAP + 1)}
            if sentence in seen:
                left_out["repeated"] += 1
            elif not runs.isdisjoint(earlier):
                left_out["overlapping"] += 1
            else:
                seen.add(sentence)
                own |= runs
                kept[split].append(sentence)
        earlier |= own
    return kept, left_out


def main(folder: Path) -> None:
    """Write the three files into ``folder`` and print what they hold."""
    library = Path(sysconfig.get_path("stdlib"))
    if not (library / "pydoc_data" / "topics.py").is_file():
        sys.exit(f"{library}/pydoc_data/topics.py is missing: this Python comes without its help topics; install the full standard library")
    found: dict[str, list[str]] = {split: [] for split in SPLITS}
    counted = dict.fromkeys(SPLITS, 0)
    for name, texts in documents(library):
        counted[split_of(name)] += 1
        found[split_of(name)] += [sentence for text in texts for sentence in sentences(text)]
    kept, left_out = distinct(found)
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = {word for sentence in kept["train"] for word in sentence.split()}
    for split in SPLITS:
        (folder / f"{split}.txt").write_text("".join(f"{sentence}\n" for sentence in kept[split]), encoding="ascii")
        words = [word for sentence in kept[split] for word in sentence.split()]
        unknown = sum(word not in vocabulary for word in words)
        print(
            f"{split:5}  {counted[split]:4} topics and modules  {len(kept[split]):6,} sentences  {len(words):8,} words  "
            + (f"{len(vocabulary):,} distinct words" if split == "train" else f"{unknown / max(len(words), 1):.1%} of them not in train")
        )
    print(
        f"left out: {left_out['repeated']:,} repeated sentences, {left_out['overlapping']:,} that share {OVERLAP} words with another split"
    )


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python corpus.py OUTPUT_FOLDER")
    main(Path(sys.argv[1]))
