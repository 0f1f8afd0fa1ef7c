"""The table as a file: what is written is read, and what is wrong is said in one line."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from attlm_fairseq.errors import InputError
from attlm_fairseq.nbest.corrections.alignment import align_list
from attlm_fairseq.nbest.corrections.letters import learn_letters
from attlm_fairseq.nbest.corrections.numbers import NumberChannel, learn_numbers
from attlm_fairseq.nbest.corrections.phrase_table import learn_phrases
from attlm_fairseq.nbest.corrections.table_file import MAX_TARGETS, Table, read_table, write_table
from attlm_fairseq.text.pipeline import text_pipeline

HEAD = "# attlm corrections 1\n# lm = lm.arpa\nkind\tsource\ttarget\tln_p\tcount\texamples\n"


@pytest.fixture
def table(tmp_path: Path) -> Table:
    texts = [("fly to la", "fly to l a"), ("at fourpm", "at four p m"), ("show flights", "show me flights"), ("no-one", "no one")]
    pairs = [pair for hypothesis, reference in texts for pair in align_list([hypothesis], [reference])]
    return Table(learn_phrases(pairs), learn_numbers(pairs), learn_letters(pairs), tmp_path / "lm.arpa", "en", 4)


def test_round_trip(table: Table, tmp_path: Path) -> None:
    write_table(tmp_path / "c.tsv", table, tmp_path / "lm.arpa")
    found = read_table(tmp_path / "c.tsv")
    assert {rule[:2] for rules in found.phrases.rules.values() for rule in rules} == {
        rule[:2] for rules in table.phrases.rules.values() for rule in rules
    }
    for word, log_prob in table.phrases.kept.items():
        assert found.phrases.keep(word) == pytest.approx(log_prob, abs=1e-4)
    assert found.numbers.log_probs.keys() == table.numbers.log_probs.keys()
    assert found.letters.stop == pytest.approx(table.letters.stop, abs=1e-4)
    assert found.letters.change("-")[" "] == pytest.approx(table.letters.change("-")[" "], abs=1e-4)
    assert (found.lm, found.lists) == (tmp_path / "lm.arpa", 4)
    write_table(tmp_path / "again.tsv", found, tmp_path / "lm.arpa")
    assert (tmp_path / "again.tsv").read_bytes() == (tmp_path / "c.tsv").read_bytes()


@pytest.mark.parametrize(
    ("steps", "hypothesis", "reference"),
    [
        ("unicode:nfc,uppercase", "\u0390 is", "\u0390 as"),  # its capital is three characters, which NFC would compose
        ("unicode:nfc,lowercase", "to T\u0308avfiq", "to T\u0308awfiq"),  # its small letter would be composed
        ("", "</s> fly <s>", "fly"),  # words that look like boundaries
    ],
)
def test_what_is_learned_is_read(steps: str, hypothesis: str, reference: str, tmp_path: Path) -> None:
    pipeline = text_pipeline(steps)
    pairs = align_list([hypothesis], [reference], pipeline)
    learned = Table(learn_phrases(pairs), NumberChannel(), learn_letters(pairs), tmp_path / "lm.arpa", text=pipeline)
    assert learned.phrases.rules
    write_table(tmp_path / "c.tsv", learned, tmp_path / "lm.arpa")
    assert b"\0" not in (tmp_path / "c.tsv").read_bytes()
    found = read_table(tmp_path / "c.tsv")
    assert found.phrases.rules.keys() == learned.phrases.rules.keys()
    assert found.phrases.kept.keys() == learned.phrases.kept.keys()


def test_words_that_stay_have_the_form_of_the_steps(tmp_path: Path) -> None:
    for row, told in (
        ("keep\tFoo\tFoo\t-1", "'Foo' is 'foo' after the steps"),
        ("keep\tfoo \tfoo \t-1", "expected one word in both columns"),
    ):
        (tmp_path / "c.tsv").write_text(HEAD.replace("kind", "# text = lowercase\nkind") + row + "\n")
        with pytest.raises(InputError, match=told):
            read_table(tmp_path / "c.tsv")


def test_a_table_that_is_cut_short_is_refused(table: Table, tmp_path: Path) -> None:
    """At a line, or within one; a table of before, and an edited one, has no such end or keeps it."""
    write_table(tmp_path / "c.tsv", table, tmp_path / "lm.arpa")
    lines = (tmp_path / "c.tsv").read_text().splitlines(keepends=True)
    for kept in (lines[:2], lines[:9], lines[:-1], [*lines[:-1], "# en"]):
        (tmp_path / "cut.tsv").write_text("".join(kept))
        with pytest.raises(InputError, match=r"cut.tsv: is cut short: expected a line '# end'"):
            read_table(tmp_path / "cut.tsv")
    (tmp_path / "sheet.tsv").write_text("".join(line.replace("\n", "\t" * (5 - line.count("\t")) + "\n") for line in lines))
    assert read_table(tmp_path / "sheet.tsv").phrases.rules == read_table(tmp_path / "c.tsv").phrases.rules
    (tmp_path / "edited.tsv").write_text("".join([*lines, "phrase\tkansas sitting\tkansas city\t-0.1\n"]))
    assert ("kansas", "sitting") in read_table(tmp_path / "edited.tsv").phrases.rules
    (tmp_path / "before.tsv").write_text("".join(line for line in lines if not line.startswith(("# last", "# end"))))
    assert read_table(tmp_path / "before.tsv") == read_table(tmp_path / "c.tsv")


def test_people_may_edit_it(tmp_path: Path) -> None:
    (tmp_path / "c.tsv").write_text(HEAD + "# of the call centre:\n\nphrase\tkansas sitting\tkansas city\t-0.1\n", encoding="utf-8")
    rule = read_table(tmp_path / "c.tsv").phrases.rules["kansas", "sitting"][0]
    assert (rule.target, rule.log_prob) == (("kansas", "city"), -0.1)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("phrase\ta\tb", "3 fields, expected 4 to 6"),
        ("phrase\ta\tb\t-1\t2\tx\ty", "7 fields"),
        ("number\t3\tpairs\t-1\nnumber\t3\tpairs\t-2", "a second number row of '3' -> 'pairs'"),
        ("letter\ta\tb\t-1\nletter\ta\tb\t-2", "a second letter row of 'a' -> 'b'"),
        ("keep\ta\ta\t-9", "a second keep row of 'a': leave one of the two out"),
        ("phrase\tc\td\t-1\nphrase\tc\td\t-2", "a second phrase row of 'c' -> 'd': leave one of the two out"),
        ("phrase\ta\tb\tminus one", "'minus one', expected a finite number"),
        ("phrase\ta\tb\tnan", "expected a finite number"),
        ("phrase\ta\tb\t0.5", "at most 0"),
        ("phrase\ta\tb\t-1\t-2", "at least 0"),
        ("phrase\t\tb\t-1", "no word"),
        ("phrase\t<s>\tb\t-1", "no word"),
        ("phrase\t<s> a\tb\t-1", "in source and target or in neither"),
        ("phrase\ta <s>\tb\t-1", "first word"),
        (f"phrase\t{'a ' * 17}\tb\t-1", "17 words, expected at most 16"),
        ("letter\tab\tc\t-1", "single letters"),
        ("letter\t<insert>\t<none>\t-1", "single letters"),
        ("number\t5\tpairs\t-1", "number '5' said as 'pairs', expected a number of digits and one of cardinal, plain,"),
        ("number\t4\tseventy\t-1", "number '4' said as 'seventy'"),
        ("number\t737\tpairs\t-1", "number '737' said as 'pairs'"),
        ("word\ta\tb\t-1", "kind 'word'"),
        ("\0\x1b[2J\ta\tb\t-1", r"kind '\x00\x1b[2J'"),
    ],
)
def test_a_wrong_row_is_named(row: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "c.tsv").write_text(HEAD + "keep\ta\ta\t-0.1\n" + row + "\n", encoding="utf-8")
    with pytest.raises(InputError) as error:
        read_table(tmp_path / "c.tsv")
    assert str(error.value).startswith(f"{tmp_path}/c.tsv:{4 + len(row.splitlines())}: ")
    assert said in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"some text\n", b"# attlm corrections 1\n"])
def test_other_files_are_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "c.tsv").write_bytes(content)
    with pytest.raises(InputError):
        read_table(tmp_path / "c.tsv")


def test_many_lines_for_one_source_are_bounded(tmp_path: Path) -> None:
    rows = "".join(f"phrase\ta\tb{i}\t-{i % 97 + 1}\n" for i in range(100_000))
    (tmp_path / "c.tsv").write_text(HEAD + rows, encoding="utf-8")
    began = time.monotonic()
    assert len(read_table(tmp_path / "c.tsv").phrases.rules["a",]) == MAX_TARGETS
    assert time.monotonic() - began < 60
