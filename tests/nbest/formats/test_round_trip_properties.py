"""Generated files of every format, odd spacing and all: what is read is what was meant, what is written is what was read."""

from __future__ import annotations

import csv
import io
import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nbest_samples import ALL_SAMPLES, read, write

from attlm_fairseq.errors import InputError

FAST = settings(max_examples=40, deadline=None)
SETTINGS = {"blacklist_categories": ["Cs"]}
WORDS = st.text(st.characters(**SETTINGS, blacklist_characters="\n\r\t|\ufeff"), max_size=12)
CELLS = st.text(st.characters(**SETTINGS, blacklist_characters="\0"), max_size=12)
ANYTHING = st.text(st.characters(**SETTINGS), max_size=12)
SCORES = st.floats(allow_nan=False, allow_infinity=False)
ENDS = st.sampled_from(["\n", "\r\n"])
SPACES = st.sampled_from(["", " ", "  ", "\t"])
BOM = st.sampled_from(["", "\ufeff"])
DAMAGE = st.sampled_from(["", "\n", "\r", "|||", "\t", '"', "{", "]", ",", "=", "nan", "\0", "-1 "])
SIZES = st.lists(st.integers(1, 4), min_size=1, max_size=5)


def number_text(draw: st.DrawFn, value: float) -> str:
    return draw(st.sampled_from([repr(value), f"{value:e}"]))


def finished(draw: st.DrawFn, lines: list[str]) -> str:
    """The lines with their ends, the last perhaps without, after a byte order mark perhaps."""
    text = draw(BOM) + "".join(line + draw(ENDS) for line in lines)
    return text.rstrip("\r\n") if draw(st.booleans()) and lines[-1].strip() else text


@st.composite
def moses_files(draw: st.DrawFn) -> tuple[str, list]:
    lines, meant = [], []
    for name, size in enumerate(draw(SIZES)):
        for _ in range(size):
            words, values, total = draw(WORDS), draw(st.lists(SCORES, min_size=2, max_size=2)), draw(SCORES)
            pad = [draw(SPACES) for _ in range(6)]
            first, second = (number_text(draw, value) for value in values)
            feature = f"A= {first} {second}" if draw(st.booleans()) else f"A={first}{draw(SPACES.filter(bool))}{second}"
            lines.append(f"{name}{pad[0]}|||{pad[1]}{words}{pad[2]}|||{pad[3]}{feature}{pad[4]}|||{pad[5]}{number_text(draw, total)}")
            exact = [float(number) for number in (first, second, lines[-1].rpartition("|||")[2])]
            meant.append((str(name), words.strip(" "), {"A.1": exact[0], "A.2": exact[1], "decoder": exact[2]}))
    return finished(draw, lines), meant


@st.composite
def fairseq_files(draw: st.DrawFn) -> tuple[str, list]:
    lines, meant = [], []
    names = draw(st.permutations(range(5)))
    for name, size in zip(names, draw(SIZES), strict=False):
        lines += draw(st.lists(st.sampled_from(["a | INFO | log", "", "=" * 9]), max_size=2))
        lines += draw(st.sampled_from([[], [f"S-{name}\tx y"], [f"S-{name}\t", f"T-{name}\t<<unk>>"]]))
        for _ in range(size):
            words, score = draw(WORDS), draw(SCORES.filter(lambda x: abs(x) < 1e300))
            values = draw(st.lists(st.floats(-1e6, 0), min_size=len(words.split(" ")) + 1, max_size=20))
            lines += [f"H-{name}\t{score!r}\t{words}", *([f"D-{name}\t{score!r}\t{words}."] if draw(st.booleans()) else [])]
            lines.append(f"P-{name}\t{' '.join(map(repr, values))}")
            lines += draw(st.sampled_from([[], [f"A-{name}\t0-0"], [f"L-{name}\tlm=-1.5"]]))
            meant.append((str(name), words, {"H": score * math.log(2), "fairseq": sum(values) * math.log(2)}))
            if lines[-1].startswith("L-"):
                meant[-1][2]["lm"] = -1.5
    return finished(draw, lines + draw(st.sampled_from([[], ["Generate test with beam=5: BLEU4 = 1"]]))), meant


@st.composite
def hyporadise_files(draw: st.DrawFn) -> tuple[str, list]:
    meant, items = [], []
    for number, size in enumerate(draw(SIZES)):
        hypotheses = draw(st.lists(ANYTHING, min_size=size, max_size=size))
        values = draw(st.lists(SCORES, min_size=size, max_size=size))
        others = {"y": draw(st.none() | SCORES), "z": draw(ANYTHING)}
        items.append({"x": draw(ANYTHING), "input": hypotheses, "output": draw(ANYTHING), "am_score": values} | others)
        meant += [(str(number), text, {"am_score": value}) for text, value in zip(hypotheses, values, strict=True)]
    layout = {"ensure_ascii": draw(st.booleans()), "indent": draw(st.sampled_from([None, 1, "\t"]))}
    return draw(BOM) + json.dumps(items, **layout) + draw(st.sampled_from(["", "\n", " \r\n"])), meant


@st.composite
def mlm_files(draw: st.DrawFn) -> tuple[str, list]:
    meant, items = [], {}
    names = draw(st.lists(ANYTHING, unique=True, min_size=1, max_size=4))
    for name, size in zip(names, draw(SIZES), strict=False):
        items[name] = {"ref": draw(ANYTHING)} if draw(st.booleans()) else {}
        for rank in range(1, size + 1):
            text, score = draw(ANYTHING), draw(SCORES)
            items[name][f"hyp_{rank}"] = {"score": score, "text": text}
            meant.append((name, text, {"score": score}))
    layout = {"ensure_ascii": draw(st.booleans()), "indent": draw(st.sampled_from([None, 2]))}
    return draw(BOM) + json.dumps(items, **layout) + draw(st.sampled_from(["", "\n"])), meant


@st.composite
def jsonl_files(draw: st.DrawFn) -> tuple[str, list]:
    lines, meant = [], []
    for number, size in enumerate(draw(SIZES)):
        hypotheses = []
        for _ in range(size):
            hypotheses.append({"text": draw(ANYTHING), "scores": draw(st.dictionaries(ANYTHING, SCORES, max_size=2)), "z": draw(ANYTHING)})
            meant.append((str(number), hypotheses[-1]["text"], hypotheses[-1]["scores"]))
        line = json.dumps({"id": number, "ref": draw(ANYTHING), "hyps": hypotheses}, ensure_ascii=draw(st.booleans()))
        lines += [draw(SPACES) + line, *[""] * draw(st.integers(0, 1))]
    return finished(draw, lines), meant


@st.composite
def plain_files(draw: st.DrawFn) -> tuple[str, list]:
    lines, meant = [], []
    with_ids = draw(st.booleans())
    for number, size in enumerate(draw(SIZES)):
        for _ in range(size):
            words = draw(WORDS.filter(lambda text: with_ids or text.strip(" ")))
            lines.append(f"u{number}\t{words}" if with_ids else words)
            meant.append((f"u{number}" if with_ids else str(number), words, {}))
        lines += [draw(st.sampled_from(["", "  "])) for _ in range(draw(st.integers(0 if with_ids else 1, 2)))]
    while not lines[-1].strip(" "):  # a form feed is a word, not a blank line
        lines.pop()
    return finished(draw, lines), meant


@st.composite
def kaldi_files(draw: st.DrawFn) -> tuple[str, list]:
    lines, meant = [], []
    for number, size in enumerate(draw(SIZES)):
        for rank in range(1, size + 1):
            words = draw(WORDS)
            lines.append(f"s-{number}-{rank}" + (f" {words}" if words or draw(st.booleans()) else ""))
            meant.append((f"s-{number}", words, {}))
    return finished(draw, lines), meant


@st.composite
def nemo_files(draw: st.DrawFn) -> tuple[str, list]:
    lines, meant = [], []
    for number in range(2 * draw(st.integers(1, 4))):
        words, score = draw(WORDS), draw(SCORES)
        lines.append(f"{words}\t{score!r}")
        meant.append((str(number // 2), words, {"score": score}))
    return finished(draw, lines), meant


@st.composite
def srilm_files(draw: st.DrawFn) -> tuple[str, list]:
    lines, meant = [], []
    for _ in range(draw(st.integers(1, 5))):
        words = " ".join(draw(st.lists(st.text("ab<>'\u00e9", min_size=1, max_size=5), max_size=4)))
        first, second = draw(SCORES.filter(lambda x: abs(x) < 1e300)), draw(SCORES.filter(lambda x: abs(x) < 1e300))
        gap = draw(SPACES.filter(bool))
        lines.append(f"{first!r}{gap}{second!r} {len(words.split())}{gap}{words}".rstrip(" \t"))
        meant.append(("FILE", words, {"acoustic": first * math.log(10), "lm": second * math.log(10)}))
    return finished(draw, lines), meant


@st.composite
def json_files(draw: st.DrawFn) -> tuple[str, list]:
    shape = draw(st.sampled_from(["by id", "columns", "rows", "items"]))
    ids = ANYTHING.map("u:{}".format)  # an id that is a known key, such as "hypotheses", would be read as that
    names = draw(st.lists(ids, unique=True, min_size=1, max_size=4)) if shape == "by id" else [f"u{i}" for i in range(4)]
    meant, values = [], {}
    for name, size in zip(names, draw(SIZES), strict=False):
        values[name] = [{"text": draw(ANYTHING), "am_score": draw(SCORES), "z": draw(ANYTHING)} for _ in range(size)]
        meant += [(name, value["text"], {"am_score": value["am_score"]}) for value in values[name]]
    layout = {"ensure_ascii": draw(st.booleans()), "indent": draw(st.sampled_from([None, 1]))}
    if shape == "by id":
        return draw(BOM) + json.dumps(values, **layout) + draw(st.sampled_from(["", "\n"])), meant
    if shape == "rows":
        lines = [json.dumps({"id": name} | row, ensure_ascii=layout["ensure_ascii"]) for name, rows in values.items() for row in rows]
        return finished(draw, lines), meant
    if shape == "items":
        return draw(BOM) + json.dumps([{"utt": name, "nbest": rows} for name, rows in values.items()], **layout), meant
    columns = [{key: [row[key] for row in rows] for key in ("text", "am_score")} | {"id": name} for name, rows in values.items()]
    return draw(BOM) + json.dumps(columns, **layout), meant


@st.composite
def csv_files(draw: st.DrawFn) -> tuple[str, list]:
    out, meant = io.StringIO(newline=""), []
    table = csv.writer(out, quoting=draw(st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL])))
    table.writerow(["id", "hyp", "score", "note"])
    for number, size in enumerate(draw(SIZES)):
        for _ in range(size):
            text, score, note = draw(CELLS), draw(SCORES), draw(CELLS)
            table.writerow([f"u{number}", text, repr(score), f"x{note}"])
            meant.append((f"u{number}", text, {"score": score}))
    return draw(BOM) + out.getvalue(), meant


FILES = {
    "json": json_files(),
    "csv": csv_files(),
    "moses": moses_files(),
    "fairseq": fairseq_files(),
    "hyporadise": hyporadise_files(),
    "mlm": mlm_files(),
    "jsonl": jsonl_files(),
    "plain": plain_files(),
    "kaldi": kaldi_files(),
    "nemo:2": nemo_files(),
    "srilm": srilm_files(),
}


@pytest.mark.parametrize("name", FILES)
@FAST
@given(data=st.data())
def test_read_and_write(name, data):
    text, meant = data.draw(FILES[name])
    lists = read(text, name, piece=data.draw(st.integers(1, 40)))
    found = [(nbest.id, hypothesis.text, hypothesis.scores) for nbest in lists for hypothesis in nbest.hypotheses]
    assert [(name, words) for name, words, _ in found] == [(name, words) for name, words, _ in meant]
    for (_, _, got), (_, _, wanted) in zip(found, meant, strict=True):
        assert got == pytest.approx(wanted, rel=1e-12)
    assert write(lists, name) == text


@pytest.mark.parametrize("name", FILES)
@FAST
@given(data=st.data())
def test_rescored_lists_are_read_back(name, data):
    text, _ = data.draw(FILES[name])
    lists = read(text, name)
    for nbest in lists:
        nbest.hypotheses = data.draw(st.permutations(nbest.hypotheses))
        for hypothesis in nbest.hypotheses:
            hypothesis.lm_scores = {"new": -0.5 * hypothesis.rank}
            hypothesis.total = -1.0 * hypothesis.rank
    again = read(write(lists, name), name)
    for old, new in zip(lists, again, strict=True):
        assert (new.id, new.references) == (old.id, old.references)
        assert [hypothesis.text for hypothesis in new.hypotheses] == [hypothesis.text for hypothesis in old.hypotheses]
        for before, after in zip(old.hypotheses, new.hypotheses, strict=True):
            assert {key: after.scores[key] for key in before.scores} == before.scores
            if name not in ("plain", "kaldi", "srilm"):
                assert -0.5 * before.rank in [after.scores[key] for key in after.scores if key not in before.scores]


@pytest.mark.parametrize(("name", "sample"), ALL_SAMPLES)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_damaged_file_is_an_input_error_or_comes_back_byte_for_byte(name, sample, data):
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(sample)))
        end = start + data.draw(st.sampled_from([0, 1, 2, 10, 1000]))
        sample = (
            sample[:start]
            + data.draw(st.sampled_from(["", "\n", "\r", "|||", "\t", '"', "{", "]", ",", "=", "nan", "\0", "-1 "]))
            + sample[end:]
        )
    try:
        lists = read(sample, name)
    except InputError:
        return
    assert write(lists, name) == sample
    for nbest in lists:
        for hypothesis in nbest.hypotheses:
            hypothesis.total = -1.0
            hypothesis.lm_scores = {"lm": -2.0}
    write(lists, name)
