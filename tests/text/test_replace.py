"""The text step ``replace``: a table of words and what replaces them."""

from __future__ import annotations

import pytest

from attlm_fairseq.errors import InputError
from attlm_fairseq.nbest.metrics.edit_rates import WER
from attlm_fairseq.text import parse_steps

TABLE = "okay\tok\nuh\t\n\ncan not\tcannot\ncan not be\tmay not be\nok\tfine\n"


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "map.tsv"
    path.write_text(TABLE)
    return path


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("okay uh we can not  go", "ok we cannot go"),  # "ok", which was put in, is not replaced again
        ("it can not be ok", "it may not be fine"),  # the longest entry counts
        ("can not can", "cannot can"),
        ("uh", ""),
        ("", ""),
    ],
)
def test_the_longest_entry_at_each_word_is_replaced(table, text, expected):
    assert parse_steps([f"replace:{table}"]).words(text) == expected.split()


def test_spellings_that_the_table_maps_are_no_errors(table):
    metric = WER(text=parse_steps(["lowercase", f"replace:{table}"]))
    assert metric.statistics(["Okay we cannot go"], ["uh ok we can not go"])[0].tolist() == [1.0, 4.0]
    assert f"replace:{table} (sha256 " in metric.signature([["a"]])


@pytest.mark.parametrize(
    ("content", "line", "message"),
    [
        (b"okay ok\n", 1, "expected words, a tab, and what replaces them"),
        (b"a\tb\n\tb\n", 2, "expected words, a tab"),
        (b"a\tb\tc\n", 1, "expected words, a tab"),
        (b"a\tb\na\tc\n", 2, "'a' is replaced by 'b' in an earlier line"),
        (b"a\t\xff\n", 1, "not UTF-8"),
    ],
)
def test_a_wrong_table_is_refused(tmp_path, content, line, message):
    path = tmp_path / "map.tsv"
    path.write_bytes(content)
    with pytest.raises(InputError, match=message) as error:
        parse_steps([f"replace:{path}"]).load()
    assert str(error.value).startswith(f"{path}:{line}:" if line else f"{path}:")
    with pytest.raises(InputError, match="cannot be read"):
        parse_steps([f"replace:{path}.missing"]).load()
