"""Scores against numbers worked out by hand, and what a rescored list looks like."""

from __future__ import annotations

import json
import math
import warnings

import pytest
from nbest_samples import (
    BY_ID,
    FAIRSEQ,
    GENERATE_BATCH,
    GENERATE_FLAT,
    GENERATE_ONE,
    HYPORADISE,
    HYPORADISE_PRETTY,
    JOSHUA,
    JSONL,
    LEGACY,
    LISTS,
    MANIFEST,
    MARIAN,
    MLM,
    MOSES,
    NEMO,
    OTHER_NAMES,
    PLAIN_BLOCKS,
    PLAIN_IDS,
    PLAIN_IN_STEP,
    REFERENCE_NBEST,
    ROW_ARRAY,
    ROWS,
    SRILM,
    SRILM_MARKED,
    UNNAMED,
    WRAPPED,
    read,
    write,
)

import attlm_fairseq as attlm
from attlm_fairseq.errors import InputError, InputWarning
from attlm_fairseq.files.reading import TextSource
from attlm_fairseq.messages import collected
from attlm_fairseq.nbest.formats import find_format, format_of, open_nbest
from attlm_fairseq.nbest.nbest_list import Hypothesis, NbestList, Sausage, WordShare


def texts(nbest: NbestList) -> list[str]:
    return [hypothesis.text for hypothesis in nbest.hypotheses]


def scores(nbest: NbestList) -> list[dict[str, float]]:
    return [hypothesis.scores for hypothesis in nbest.hypotheses]


def swapped(text: str, name: str, lm: str = "att-lm") -> str:
    """The file with the first two hypotheses of the first list exchanged and that list scored: -3.5 and -4.25, totals -1 and -2."""
    lists = read(text, name)
    hypotheses = lists[0].hypotheses
    hypotheses[0], hypotheses[1] = hypotheses[1], hypotheses[0]
    for i, hypothesis in enumerate(hypotheses):
        hypothesis.lm_scores = {lm: -3.5 - 0.75 * i}
        hypothesis.total = -1.0 - i
    return write(lists, name)


def test_moses_scores():
    first, last = read(MOSES, "moses")
    assert (first.id, last.id, first.line, last.line) == ("0", "7", 1, 4)
    assert texts(first) == ["das ist gut", "das  ist\tgut", ""]
    assert scores(first)[0] == {"LM0": -12.3, "TM0.1": -1.3, "TM0.2": -2.1, "decoder": -5.61}
    assert scores(first)[1] == {"LM0": -15.0, "TM0.1": -1.0, "TM0.2": -2.5, "decoder": -9.5e-05}


def test_moses_relatives():
    assert scores(read(MARIAN, "moses")[0]) == [{"F0": -0.6, "decoder": -0.2}, {"F0": -0.9, "decoder": -0.45}]
    assert scores(read(LEGACY, "moses")[0])[0] == {"d.1": 0.0, "d.2": -1.5, "lm": -37.2, "w": -16.0, "decoder": -5.5}
    assert scores(read(JOSHUA, "moses")[0])[0] == {"lm_0": -27.5, "tm_pt_0": -0.0, "OOVPenalty": 2.0, "decoder": -227.217}
    assert scores(read(UNNAMED, "moses")[0])[0] == {"f1": -7.158, "f2": -0.09, "f3": 0.0, "decoder": -3.25}
    assert scores(read("0 ||| a\n0 ||| b\n", "moses")[0]) == [{}, {}]
    assert scores(read("0 ||| a ||| -1.5\n", "moses")[0]) == [{"decoder": -1.5}]
    assert scores(read("0 ||| a ||| -1.5 ||| -2\n", "moses")[0]) == [{"f1": -1.5, "decoder": -2.0}]
    assert scores(read("0 ||| a ||| TM= -1 LM= -2 TM= -3 ||| -2\n", "moses")[0]) == [
        {"TM.1": -1.0, "TM.2": -3.0, "LM": -2.0, "decoder": -2.0}
    ]
    assert scores(read("0 ||| a ||| decoder= -1 ||| -2\n", "moses")[0]) == [{"decoder.1": -1.0, "decoder": -2.0}]


@pytest.mark.parametrize("line", ["0|||das ist|||LM= -1|||-2\n", "0 |||das ist||| LM= -1 ||| -2\n", "0||| das ist\t|||\tLM=-1 ||| -2"])
def test_moses_separators_without_spaces(line):
    (nbest,) = read(line, "moses")
    assert (nbest.id, texts(nbest), scores(nbest)) == ("0", ["das ist"], [{"LM": -1.0, "decoder": -2.0}])
    assert write([nbest], "moses") == line


@pytest.mark.parametrize("name", ["", "talk 1", "a|b", "[1]", "{1}", " 1"])
def test_moses_ids_that_would_not_be_recognised_are_refused(name):
    with pytest.raises(InputError, match="lines of Moses would not be recognised with it"):
        write([NbestList(name, [Hypothesis("a b", {"am": -1.0})])], "moses")


def test_moses_bars_in_the_text():
    assert texts(read("0 ||| a | b || c |||| d ||| LM= -1 ||| -2\n", "moses")[0]) == ["a | b || c |||| d"]
    assert texts(read("0||||||LM= -1 ||| -2\n", "moses")[0]) == [""]


def test_moses_output():
    assert swapped(MOSES, "moses").splitlines()[:3] == [
        "0 |||  das  ist\tgut  ||| LM0= -1.5e+01 TM0= -1.0 -2.5 attLm= -3.500000 DecoderTotal= -9.5e-05 ||| -1.000000",
        "0 ||| das ist gut ||| LM0= -12.3 TM0= -1.3 -2.1 attLm= -4.250000 DecoderTotal= -5.61 ||| -2.000000",
        "0 ||| ||| LM0= -3 TM0= -4 -5 attLm= -5.000000 DecoderTotal= -6 ||| -3.000000",
    ]
    assert swapped(LEGACY, "moses").splitlines()[0] == (
        "0||| a ||| d: 0 -1 lm: -30 w: -8 attLm= -3.500000 DecoderTotal= -6.5 ||| -1.000000 ||| 0-0"
    )
    assert swapped(MARIAN, "moses").splitlines()[0] == (
        "0 ||| a ||| 0-0 ||| WordScores= -0.4 -0.5 ||| F0= -0.9 attLm= -3.500000 DecoderTotal= -0.45 ||| -1.000000"
    )
    assert swapped("0 ||| a ||| -1\n0 ||| b ||| -2", "moses") == (
        "0 ||| b ||| attLm= -3.500000 DecoderTotal= -2 ||| -1.000000\n0 ||| a ||| attLm= -4.250000 DecoderTotal= -1 ||| -2.000000\n"
    )
    assert swapped("0 ||| a\n0 ||| b\n", "moses").splitlines()[0] == "0 ||| b ||| attLm= -3.500000 NoDecoderTotal= 1 ||| -1.000000"


@pytest.mark.parametrize("text", [MOSES, LEGACY, MARIAN, JOSHUA, UNNAMED, FAIRSEQ, "0 ||| a ||| -1\n0 ||| b ||| -2\n"])
def test_a_total_that_rescoring_wrote_is_no_score(text):
    """Read as the decoder's it would count the LMs again in a second pass, and the decoder's own would be gone."""
    name = "fairseq" if text is FAIRSEQ else "moses"
    lists = read(text, name)
    for passes in range(3):
        for nbest in lists:
            for hypothesis in nbest.hypotheses:
                hypothesis.lm_scores = {f"pass{passes}": -1.5 - passes}
                hypothesis.total = -100.0 - hypothesis.rank
        lists = read(write(lists, name), name)
        for before, after in zip(read(text, name), lists, strict=True):
            added = {f"pass{i}": -1.5 - i for i in range(passes + 1)}
            assert scores(after) == [own | added for own in scores(before)]


@pytest.mark.parametrize(
    ("name", "written"),
    [
        *(("LM", "LM"), ("att_lm", "attLm"), ("lm-3.arpa", "lm3Arpa"), ("3gram", "LM3gram"), ("LM0", "LM02"), ("TM0", "TM02")),
        *(("\u00e9", "LM"), ("DecoderTotal", "DecoderTotal2")),
    ],
)
def test_moses_names(name, written):
    assert f" {written}= -3.500000 DecoderTotal= -9.5e-05 |||" in swapped(MOSES, "moses", name)


def test_two_names_that_become_the_same_stay_apart():
    lists = read(MOSES, "moses")
    lists[1].hypotheses[0].lm_scores = {"att-lm": -1.0, "att_lm": -2.0}
    assert write(lists, "moses").splitlines()[3] == "7 ||| nur eine ||| LM0= -1 TM0= -2 -3 attLm= -1.000000 attLm2= -2.000000 ||| -4"


def test_fairseq_scores():
    good, empty = read(FAIRSEQ, "fairseq")
    assert (good.id, good.references, good.line) == ("12", ("das ist <<unk>>",), 2)
    assert (empty.id, empty.references, empty.line) == ("3", ("",), 11)
    assert texts(good) == ["das ist gut", "das gut"]
    assert texts(empty) == [""]
    assert scores(good)[0] == pytest.approx({"fairseq": -1.54 * math.log(2), "H": -0.4301 * math.log(2)})
    assert scores(good)[1]["fairseq"] == pytest.approx(-1.500095 * math.log(2))
    assert scores(empty)[0]["fairseq"] == pytest.approx(-9.5e-05 * math.log(2))


def test_fairseq_without_p_has_the_normalised_score_alone():
    (nbest,) = read("H-0\t-1\ta b\nH-0\t-2\tc\n", "fairseq")
    assert scores(nbest) == [{"H": -math.log(2)}, {"H": -2 * math.log(2)}]


def test_fairseq_output():
    lines = FAIRSEQ.splitlines()
    one, two = f"{-1 / math.log(2):.6f}", f"{-2 / math.log(2):.6f}"
    assert (one, two) == ("-1.442695", "-2.885390")
    assert swapped(FAIRSEQ, "fairseq").splitlines() == [
        *lines[:3],
        f"H-12\t{one}\tdas gut",
        f"D-12\t{one}\tDas gut.",
        lines[8],
        f"L-12\tatt-lm=-3.500000 H={-0.75 * math.log(2)}",
        f"H-12\t{two}\tdas ist gut",
        f"D-12\t{two}\tDas ist gut.",
        lines[5],
        f"L-12\tatt-lm=-4.250000 H={-0.4301 * math.log(2)}",
        *lines[9:],
    ]


def test_fairseq_scores_of_an_earlier_rescoring_stay():
    again = read(swapped(FAIRSEQ, "fairseq", "my lm=1"), "fairseq")
    assert again[0].hypotheses[0].scores["my_lm_1"] == -3.5
    again[0].hypotheses[0].lm_scores = {"my_lm_1": -7.0}
    assert f"L-12\tmy_lm_1=-3.500000 H={-0.75 * math.log(2)} my_lm_12=-7.000000\n" in write(again, "fairseq")


def test_fairseq_log_lines_inside_a_sentence_follow_their_hypothesis():
    text = "H-1\t-1\ta\nlog 1\nP-1\t-1 -1\nlog 2\nH-1\t-2\tb\nP-1\t-1 -1\nthe end\n"
    assert write(read(text, "fairseq"), "fairseq") == text
    assert swapped(text, "fairseq").splitlines() == [
        *("H-1\t-1.442695\tb", "P-1\t-1 -1", f"L-1\tatt-lm=-3.500000 H={-2 * math.log(2)}"),
        *("H-1\t-2.885390\ta", "log 1", "P-1\t-1 -1", f"L-1\tatt-lm=-4.250000 H={-math.log(2)}", "log 2", "the end"),
    ]


def test_fairseq_interactive_lines():
    text = "S-0\ta b\nW-0\t0.123\tseconds\nC-0\tx\nH-0\t-1\ta\nD-0\t-1\ta\nP-0\t-1 -1\nA-0\t0-0 1-0\nI-0\t3\nE-0_0\ta b\nE-0_1\ta\n"
    (nbest,) = read(text, "fairseq")
    assert texts(nbest) == ["a"]
    assert write([nbest], "fairseq") == text


def test_hyporadise_scores():
    first, second = read(HYPORADISE, "hyporadise")
    assert (first.id, second.id, first.line, second.line) == ("u1", "1", 1, 2)
    assert (first.references, second.references) == (("a b c",), ("",))
    assert texts(first) == ["a b", "a", ""]
    assert texts(second) == ["\u00e9t\u00e9", "\u00e9t\u00e9"]
    assert scores(first) == [{"am_score": -0.5}, {"am_score": -0.25}, {"am_score": -0.001}]
    assert read('[{"input": ["a"], "output": ["b", "c"]}]', "hyporadise")[0].references == ("b", "c")
    assert read('[{"input": ["a"]}]', "hyporadise")[0].references == ()


def test_hyporadise_output():
    assert swapped(HYPORADISE.replace(', "a", ""]', ', "a"]').replace(", -1e-3", ""), "hyporadise").splitlines()[:2] == [
        '[{"id": "u1", "input": ["a", "a b"], "output": "a b c", "am_score": [-0.25, -0.5], '
        '"att-lm_score": [-3.5, -4.25], "total_score": [-1.0, -2.0]},',
        HYPORADISE.splitlines()[1],
    ]
    assert swapped(HYPORADISE_PRETTY, "hyporadise") == (
        HYPORADISE_PRETTY.replace("one two", "one ?", 1)
        .replace("one too", "one two")
        .replace("one ?", "one too")
        .replace('"n": 2', '"n": 2,\n    "att-lm_score": [-3.5, -4.25],\n    "total_score": [-1.0, -2.0]')
    )


def test_hyporadise_lists_of_other_things_stay_where_they_are():
    text = '[{"input": ["a", "b"], "tokens": ["x", "y"], "lm_score": [-1, -2], "quality_score": [1, 2, 3], "total_score": [0, 1]}]'
    lists = read(text, "hyporadise")
    assert scores(lists[0]) == [{"lm_score": -1.0}, {"lm_score": -2.0}]
    lists[0].hypotheses.reverse()
    assert write(lists, "hyporadise") == (
        '[{"input": ["b", "a"], "tokens": ["x", "y"], "lm_score": [-2, -1], "quality_score": [1, 2, 3], "total_score": [1, 0]}]'
    )
    assert '"total_score": [-1.0, -2.0], "att-lm_score": [-3.5, -4.25]}]' in swapped(text, "hyporadise")
    again = swapped(text, "hyporadise", "lm_score")
    assert '"lm_score2": [-3.5, -4.25]' in again
    lists = read(again, "hyporadise")
    lists[0].hypotheses.reverse()
    assert '"lm_score2": [-4.25, -3.5]' in write(lists, "hyporadise")


def test_jsonl_scores():
    first, second, third = read(JSONL, "jsonl")
    assert [nbest.id for nbest in (first, second, third)] == ["u1", "7", "2"]
    assert [nbest.line for nbest in (first, second, third)] == [1, 2, 4]
    assert [nbest.references for nbest in (first, second, third)] == [("a b",), ("a", "b"), ()]
    assert scores(first) == [{"am": -1.25, "lm": -3.0}, {}]
    assert texts(second) == ["a", "a", "b\n"]


def test_jsonl_output():
    assert swapped(JSONL, "jsonl", "lm").splitlines()[0] == (
        '{"id": "u1", "ref": "a b", "hyps": [{"text": "", "scores": {"lm": -3.5}, "total": -1.0}, '
        '{"text": "a b", "scores": {"am": -1.25, "lm": -3, "lm2": -4.25}, "words": [1, 2], "total": -2.0}], "x": 1}'
    )
    again = swapped(JSONL, "jsonl")
    assert '"total": 0.1' in write(_with_totals(read(again, "jsonl"), 0.1), "jsonl")
    assert "-2.0" not in write(_with_totals(read(again, "jsonl"), 0.1), "jsonl")


def _with_totals(lists: list[NbestList], total: float) -> list[NbestList]:
    for nbest in lists:
        for hypothesis in nbest.hypotheses:
            hypothesis.total = total
    return lists


def test_jsonl_from_elsewhere_is_exact():
    (nbest, *_) = read(FAIRSEQ, "fairseq")
    nbest.hypotheses[0].lm_scores = {"lm": 0.1 + 0.2}
    (again,) = read(write([nbest], "jsonl"), "jsonl")
    assert again.hypotheses[0].scores == nbest.hypotheses[0].scores | {"lm": 0.1 + 0.2}


@pytest.mark.parametrize(
    "first",
    [
        '{"text": "cat"}',
        '{"text": "cat", "scores": {}}',
        '{"text": "cat", "scores": {"am": -1}}',
        '{"text": "cat", "score": -1}',
        '{"text": "cat"}, {"text": "hat", "score": -1}',
    ],
)
def test_scores_next_to_the_text_are_read_whichever_hypothesis_has_them_first(first):
    text = (
        f'{{"id": "a", "hyps": [{first}]}}\n'
        '{"id": "b", "hyps": [{"text": "sat", "score": -3, "rank": 1}, {"text": "mat", "score": -4, "scores": {"am": -5}}]}\n'
        '{"id": "c", "hyps": [{"text": "rat", "cost": 3, "avg_logprob": -0.5, "num_tokens": 3, "scores": {"cost": -3}}]}\n'
    )
    form = format_of(text)
    assert form is not None
    lists = read(text, form.name)
    assert scores(lists[1]) == [{"score": -3}, {"score": -4, "am": -5}]
    assert scores(lists[2]) == [{"cost": -3, "logprob": -2}]
    assert ("score" in lists[0].hypotheses[-1].scores) == ('"score"' in first)
    assert write(lists, form.name) == text
    for nbest in lists:
        nbest.hypotheses.reverse()
        for hypothesis in nbest.hypotheses:
            hypothesis.lm_scores = {"score": -0.5, "lm": -1.5}
    again = read(write(lists, form.name), form.name)
    for old, new in zip(lists, again, strict=True):
        for before, after in zip(scores(old), scores(new), strict=True):
            assert after == before | {"score2" if "score" in before else "score": -0.5, "lm": -1.5}


@pytest.mark.parametrize(
    "text",
    [
        '{"u": {"hyps": ["a", "b"], "scores": [-7, -8], "score": [-1, -2]}}',
        '[{"id": "u", "hyps": [{"text": "a", "score": -1, "scores": -7}, {"text": "b", "score": -2, "scores": -8}]}]',
        '{"u": {"hyps": [{"text": "a", "score": -1}, {"text": "b", "score": -2}], "scores": [-7, -8]}}',
    ],
)
def test_two_decoder_scores_are_refused(text, tmp_path):
    (tmp_path / "lists").write_text(text)
    with pytest.raises(InputError, match="has two scores 'score', one of them under"):
        attlm.read_nbest(tmp_path / "lists")
    (tmp_path / "lists").write_text(text.replace("-1", "-7").replace("-2", "-8"))
    assert [hypothesis.scores for hypothesis in attlm.read_nbest(tmp_path / "lists")[0].hypotheses] == [{"score": -7.0}, {"score": -8.0}]


@pytest.mark.parametrize("keys", [("token_logprobs", "logprob"), ("logprob", "token_logprobs")])
def test_log_probabilities_of_tokens_count_only_without_their_sum(keys, tmp_path):
    values = {"token_logprobs": [-0.51234, -0.71234], "logprob": -1.2}
    lists = [{"id": "u", "hyps": [{"text": "a b", **{key: values[key] for key in keys}}, {"text": "a", "logprob": -2.0}]}]
    (tmp_path / "lists.json").write_text(json.dumps(lists))
    assert attlm.read_nbest(tmp_path / "lists.json")[0].hypotheses[0].scores == {"logprob": -1.2}


def test_scores_of_jsonl_that_are_ambiguous_are_refused():
    for name in ("jsonl", "json"):
        twice = '{"id": "a", "hyps": [{"text": "cat"}, {"text": "hat", "scores": {"score": -1}, "score": -2}]}\n'
        with pytest.raises(InputError, match=r"hyps\[1\] has two scores 'score', next to its text and under scores: keep one"):
            read(twice, name)
    first, column = (
        '{"id": "a", "hyps": [{"text": "cat"}]}\n',
        '{"id": "b", "hyps": [{"text": "sat"}, {"text": "mat"}], "scores": [-1, -2]}\n',
    )
    assert [found.name for text in (first + column, column + first) if (found := format_of(text))] == ["jsonl", "json"]
    assert scores(read(column + first, "json")[0]) == [{"score": -1}, {"score": -2}]
    with pytest.raises(
        InputError,
        match=r"^FILE:2: list 1 \(id \"b\"\): scores is '\[-1, -2\]': expected the scores of a hypothesis within it, .*--format json",
    ):
        read(first + column, "jsonl")
    own = '{"id": "b", "hyps": [{"text": "a", "scores": {"am": -1}}], "confidence": [0.5]}\n'
    assert scores(read(first + own, "jsonl")[1]) == [{"am": -1}]


def test_mlm_scores():
    first, second = read(MLM, "mlm")
    assert (first.id, first.line, first.references) == ("utt1", 2, ("a b",))
    assert (second.id, second.line, second.references) == ("utt 2", 7, ("",))
    assert scores(first) == [{"score": -1.234}, {"score": -2.0, "lm": -7.5}]


def test_mlm_output():
    assert swapped(MLM, "mlm", "lm").splitlines()[2:4] == [
        '    "hyp_1": {"score": -2, "text": "", "lm": -7.5, "lm2": -3.5, "total": -1.0},',
        '    "hyp_2": {"score": -1.234, "text": "a b", "lm": -4.25, "total": -2.0},',
    ]
    assert swapped(MLM, "mlm").splitlines()[4:] == MLM.splitlines()[4:]


def test_mlm_hypotheses_go_by_the_numbers_of_their_keys():
    """mlm-scoring writes its keys sorted as text."""
    keys = sorted(f"hyp_{i}" for i in range(1, 12))
    text = json.dumps({"u": {key: {"score": -1.0, "text": f"x{key[4:]}"} for key in keys} | {"ref": "x2"}})
    (nbest,) = read(text, "mlm")
    assert keys[1] == "hyp_10"
    assert texts(nbest) == [f"x{i}" for i in range(1, 12)]
    assert [hypothesis.rank for hypothesis in nbest.hypotheses] == list(range(1, 12))
    assert write([nbest], "mlm") == text

    nbest.hypotheses = [nbest.hypotheses[i] for i in (1, 10, 0, 2, 3, 4, 5, 6, 7, 8, 9)]
    written = json.loads(write([nbest], "mlm"))["u"]
    assert list(written) == [*keys, "ref"]
    assert [written[f"hyp_{i}"]["text"] for i in range(1, 4)] == ["x2", "x11", "x1"]
    assert texts(read(write([nbest], "mlm"), "mlm")[0]) == texts(nbest)


def test_mlm_lists_cut_short_lose_the_greatest_numbers_wherever_they_stand():
    text = (
        '{"u": {"hyp_3": {"score": -3, "text": "c"}, "hyp_2":{"score": -2, "text": "b"},  "ref": "b", "hyp_1": {"score": -1, "text": "a"}}}'
    )
    (nbest,) = read(text, "mlm")
    assert texts(nbest) == ["a", "b", "c"]
    nbest.hypotheses = nbest.hypotheses[:0:-1]
    assert write([nbest], "mlm") == '{"u": {"hyp_2":{"score": -2, "text": "b"},  "ref": "b", "hyp_1": {"score": -3, "text": "c"}}}'
    del nbest.hypotheses[1]
    assert write([nbest], "mlm") == '{"u": {"ref": "b", "hyp_1": {"score": -3, "text": "c"}}}'


def test_plain_lists():
    first, second, third = read(PLAIN_BLOCKS, "plain")
    assert [nbest.id for nbest in (first, second, third)] == ["0", "1", "2"]
    assert [nbest.line for nbest in (first, second, third)] == [1, 4, 8]
    assert [texts(nbest) for nbest in (first, second, third)] == [["a b", "a"], ["c d", "c d"], [" e"]]
    assert [(nbest.id, texts(nbest)) for nbest in read(PLAIN_IDS, "plain")] == [("u1", ["a b", ""]), ("u2", ["c d", "c"])]


def test_plain_output():
    assert swapped(PLAIN_IDS, "plain") == "u1\t\nu1\ta b\nu2\tc d\nu2\tc\n"
    assert swapped("a\nb\n\nc", "plain") == "b\na\n\nc"


def test_lines_end_at_line_feeds_only():
    odd = "a\u2028b\x85c\x0bd\x0ce\x1cf\rg"
    for name, line in (("moses", "0 ||| {} ||| L= 1 ||| 2\n"), ("fairseq", "H-0\t-1\t{}\n"), ("plain", "u\t{}\n"), ("kaldi", "u-1 {}\n")):
        (nbest,) = read(line.format(odd), name)
        assert texts(nbest) == [odd]
        assert write([nbest], name) == line.format(odd)


def test_srilm_scores():
    (nbest,) = read(SRILM, "srilm")
    assert nbest.id == "FILE"
    assert texts(nbest) == ["a b c", "a b", ""]
    assert scores(nbest)[0] == {"acoustic": pytest.approx(-123.5 * math.log(10)), "lm": pytest.approx(-20.25 * math.log(10))}
    nbest.hypotheses.reverse()
    assert write([nbest], "srilm").splitlines() == SRILM.splitlines()[::-1]
    (other,) = find_format("srilm").read(TextSource("OTHER", text=SRILM))
    with pytest.raises(InputError, match="one file for each sentence"):
        write([nbest, other], "srilm")


def test_srilm_marks_of_the_sentence_are_no_words():
    (nbest,) = read(SRILM_MARKED, "srilm")
    assert texts(nbest) == ["a b c", "a b", ""]
    nbest.hypotheses.reverse()
    assert write([nbest], "srilm").splitlines() == SRILM_MARKED.splitlines()[::-1]
    for kept in ("</s> a <s>", "a <s> b </s> c", "<s>a b</s>"):  # only as the first and the last word
        assert texts(read(f"-1 -2 1 {kept}\n", "srilm")[0]) == [kept]
    for empty in ("<s>", "</s>"):
        assert texts(read(f"-1 -2 0 {empty}\n", "srilm")[0]) == [""]


def test_nemo_scores():
    first, second = read(NEMO, "nemo:2")
    assert (first.id, second.id, second.line) == ("0", "1", 3)
    assert (texts(first), texts(second)) == (["a b", "null"], ["", '"c'])
    assert scores(second) == [{"score": -9.5e-05}, {"score": -1.0}]
    assert swapped(NEMO, "nemo:2").splitlines()[:3] == [
        *("null\t-13.25\tatt-lm=-3.500000\ttotal=-1.000000", "a b\t-12.5\tatt-lm=-4.250000\ttotal=-2.000000"),
        "\t-9.5e-05",
    ]
    del first.hypotheses[1]
    with pytest.raises(InputError, match="list 0 has 1 hypotheses: NeMo's lists all have the same number, here 2"):
        write([first], "nemo:2")


def test_kaldi_ranks_go_by_the_number_in_the_key():
    text = "".join(f"a-b-{i} x{i}\n" for i in sorted(map(str, range(1, 12))))
    (nbest,) = read(text, "kaldi")
    assert nbest.id == "a-b"
    assert [(hypothesis.text, hypothesis.rank) for hypothesis in nbest.hypotheses] == [(f"x{i}", i) for i in range(1, 12)]
    assert texts(read(write([nbest], "jsonl"), "jsonl")[0]) == texts(nbest)
    for same in (text, text.replace("\n", "\r\n"), text[:-1], text + "a-c-1 y\n"):
        assert write(read(same, "kaldi"), "kaldi") == same
    nbest.hypotheses.append(nbest.hypotheses.pop(0))
    assert texts(read(write([nbest], "kaldi"), "kaldi")[0]) == texts(nbest)


def test_a_few_kaldi_hypotheses_in_the_order_of_their_keys_may_have_been_rescored():
    (nbest,) = read("u-10 good\nu-2 bad\n", "kaldi")
    assert [(hypothesis.text, hypothesis.rank) for hypothesis in nbest.hypotheses] == [("good", 1), ("bad", 2)]


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(
    ("name", "text"),
    [("moses", MOSES), ("fairseq", FAIRSEQ), ("hyporadise", HYPORADISE), ("jsonl", JSONL), ("mlm", MLM), ("nemo:2", NEMO)],
)
def test_a_score_that_is_not_finite_is_not_written(name, text, bad):
    lists = read(text, name)
    for hypothesis in lists[0].hypotheses:
        hypothesis.lm_scores = {"lm": bad}
    with pytest.raises(InputError, match=f"list {lists[0].id}: the score lm is {bad}: only finite scores can be written"):
        write(lists, name)


JSON_SCORES = [
    # what is divided by length is a sum again where the length is known
    ('{"texts": ["a b"], "sequences_scores": [-0.5], "num_tokens": [4]}', {"score": -2.0}),
    ('{"texts": ["a b"], "sequences_scores": [-0.5], "num_tokens": [4], "length_penalty": 2.0}', {"score": -8.0}),
    ('{"texts": ["a b"], "sequences_scores": [-0.5]}', {"sequences_scores": -0.5}),
    ('{"texts": ["a b"], "sequences_scores": [-0.5], "num_tokens": [4], "score": [-3]}', {"sequences_scores_sum": -2.0, "score": -3.0}),
    ('[[{"text": "a b", "avg_logprob": -0.5, "tokens": [1, 2, 3]}]]', {"logprob": -2.0}),
    ('[[{"text": "a b", "avg_logprob": -0.5, "token_logprobs": [-1, -0.5], "tokens": [1, 2, 3]}]]', {"logprob": -2.0}),
    ('[[{"text": "a b", "avg_logprob": -0.5, "tokens": 3}]]', {"logprob": -2.0}),
    ('[[{"text": "a b", "segments": [{"text": "a b", "avg_logprob": -0.5, "tokens": [1, 2, 3]}]}]]', {"logprob": -2.0}),
    (
        '[[{"text": "a b", "segments": [{"seek": 0, "text": "a", "avg_logprob": -0.5, "tokens": [1]}, {"seek": 0, "text": "b", '
        '"avg_logprob": -0.5, "tokens": [2, 3]}, {"seek": 30, "text": "", "avg_logprob": -0.5, "tokens": [4]}]}]]',
        {"logprob": -3.0},
    ),
    ('[[{"text": "a b", "score": -0.5, "tokens": 3}]]', {"score": -0.5}),
    ('[{"hypotheses": [["a", "b"]], "scores": [-0.5]}]', {"score": -1.0}),
    ('[{"hypotheses": [["a", "b"]], "scores": [-0.5], "length_penalty": 0}]', {"score": -0.5}),
    ('[{"hyps": [["a", "b"]], "scores": [-0.5]}]', {"score": -0.5}),  # CTranslate2 has another name
    # Sockeye's are negative log-probabilities
    ('{"sentence_id": 3, "translation": "a", "score": 0.5}', {"score": -0.5}),
    ('{"sentence_id": 3, "translation": "a", "score": 0.5, "translations": ["a", "b"], "scores": [[0.5, 7], [0.75, 8]]}', {"score": -0.5}),
    # names
    ('[{"hypotheses": ["a"], "scores": [-0.5]}]', {"score": -0.5}),
    ('[[{"text": "a", "cost": 2.5, "nll": -1}]]', {"cost": -2.5, "nll": 1.0}),
    ('[[{"text": "a", "am": -1, "lm": -2, "start": 3, "wer": 0.5, "rank": 1, "total": 7}]]', {"am": -1.0, "lm": -2.0}),
    ('[[{"text": "a", "scores": {"am": -1, "start": -2}}]]', {"am": -1.0, "start": -2.0}),
    ('[{"texts": ["a", "b"], "costs": [1, 2], "neg_log_probs": [3, 4]}]', {"costs": -1.0, "neg_log_probs": -3.0}),
    ('[{"texts": ["a", "b"], "am_costs": [1, 2], "AM cost": [3, 4]}]', {"am_costs": -1.0, "AM cost": -3.0}),
    *(
        (f'[[{{"text": "a", "{name}": 2}}]]', {name: -2.0})
        for name in (
            *("am_cost", "graph_cost", "am_nll", "ctc_loss", "ppl", "gpt2_ppl", "perplexity", "neg_logp", "negative_logprob"),
            *("neg_log_likelihood", "am_neg_log_prob"),
        )
    ),
    *((f'[[{{"text": "a", "{name}": 2}}]]', {name: 2.0}) for name in ("cost_score", "nllb", "closs", "log_prob", "neg_loss", "am_neg_ppl")),
    ('[{"texts": ["a", "b"], "ppls": [1, 2], "neg_logp": [3, 4]}]', {"ppls": -1.0, "neg_logp": -3.0}),
    # a number for each text is its sum, if there are no scores; a list has one for each token
    ('[{"texts": ["a", "b"], "log_probs": [-1, -2]}]', {"logprob": -1.0}),
    ('[{"texts": ["a", "b"], "logprobs": [-1, -2]}]', {"logprob": -1.0}),
    ('[{"texts": ["a", "b"], "logprobs": [-1, -2], "kenlm_score": [-3, -4]}]', {"logprob": -1.0, "kenlm_score": -3.0}),
    ('[{"texts": ["a", "b"], "logprobs": [-1, -2], "scores": [-3, -4]}]', {"score": -3.0}),
    ('[{"texts": ["a", "b"], "logprobs": [5, 5]}]', {}),
    ('[{"texts": ["a", "b"], "logprobs": [[-1, -0.5], [-2]]}]', {"logprob": -1.5}),
    ('[{"texts": ["a", "b"], "log_probs": [-1, -2, -3]}]', {}),
    ('[["a", -1.5, -2.5]]', {"f1": -1.5, "f2": -2.5}),
    ('[[["a", null, [["a", [0, 1]]], -1.5, -2.5]]]', {"logit_score": -1.5, "score": -2.5}),
    ('[{"text": "a", "ys_log_probs": [-0.5, -0.25]}]', {"logprob": -0.75}),
    ('[{"transcription": [{"text": " a", "tokens": [{"p": 0.5}, {"p": 0.0}]}]}]', {"logprob": math.log(0.5) + math.log(5e-7)}),
]


@pytest.mark.parametrize(("text", "expected"), JSON_SCORES)
def test_json_scores(text, expected):
    assert scores(read(text, "json")[0])[0] == pytest.approx(expected)


def test_a_table_with_numbers_of_tokens():
    (nbest,) = read("id,hyp,avg_logprob,num_tokens,AM cost\nu,a b,-0.5,3,2\nu,a,-0.25,,1\n", "csv")
    assert scores(nbest) == [{"logprob": -2.0, "AM cost": -2.0}, {"avg_logprob": -0.25, "AM cost": -1.0}]


REFERENCES = [
    ('[{"nbest": ["a"], "text": "b"}]', ()),  # the 1-best once more, as sherpa-onnx has it
    ('[{"nbest": ["a"], "text": "b", "pred_text": "a"}]', ("b",)),
    ('[{"nbest": ["a"], "audio_filepath": "x", "text": "b"}]', ("b",)),
    ('[{"nbest": ["a"], "text_reference": "b"}]', ("b",)),
    ('[{"nbest": ["a"], "refs": ["b", "c"]}]', ("b", "c")),
    ('[{"hyp": "a", "text": "b"}]', ("b",)),
    ('[{"text": "a", "ref": "b"}]', ("b",)),
    ('{"u": {"input": ["a"], "output": "b"}}', ("b",)),
    ('{"u": {"nbest": ["a"], "output": "b"}}', ()),
]


@pytest.mark.parametrize(("text", "expected"), REFERENCES)
def test_references_within_json(text, expected):
    (nbest,) = read(text, "json")
    assert (texts(nbest), nbest.references) == (["a"], expected)


def test_half_a_surrogate_pair_in_another_member_stays_an_escape():
    text = '{"texts": [["a", "b"], ["c", "d"]], "x": "\\ud800", "y\\udc00": [[1, 2], [3, 4]]}'
    assert swapped(text, "json").encode() == (
        b'{"texts": [["b", "a"], ["c", "d"]], "x": "\\ud800", "y\\udc00": [[1, 2], [3, 4]], '
        b'"att-lm_score": [[-3.5, -4.25], null], "total_score": [[-1.0, -2.0], null]}\n'
    )


@pytest.mark.parametrize("key", ["hypothesis", "nbest_list", "hyps_with_scores", "whisper_hyps", "model_outputs", "translations"])
@pytest.mark.parametrize("reference", ["transcription", "transcript", "sentence", "reference"])
def test_a_list_named_like_hypotheses_is_not_passed_over_for_its_reference(key, reference):
    (nbest,) = read(json.dumps({reference: "the reference", key: ["first", "second"]}), "json")
    assert ([hypothesis.text for hypothesis in nbest.hypotheses], nbest.references) == (["first", "second"], ("the reference",))


def json_lists(value: object) -> list[tuple[str, list[str], tuple[str, ...]]]:
    return [(nbest.id, texts(nbest), nbest.references) for nbest in read(json.dumps(value), "json")]


@pytest.mark.parametrize("key", ["hyp_tokens", "hyp_phones", "hyp_lang", "pred_segments", "keywords", "chunks", "words", "hyp_source"])
def test_parts_of_a_text_are_not_hypotheses(key):
    for parts in (["a", "b"], [{"text": "a"}, {"text": "b"}]):
        assert json_lists({"id": "u", "text": "a b", key: parts}) == [("u", ["a b"], ())]


def test_names_that_look_like_those_of_hypotheses_do_not_hide_what_is_sure():
    two = ["a b", "a c"]
    assert json_lists({"athens": two, "chypre": two, "hyp_001": two}) == [(name, two, ()) for name in ("athens", "chypre", "hyp_001")]
    assert json_lists({"kaldi_hyps": two, "other_hyps": two}) == [("kaldi_hyps", two, ()), ("other_hyps", two, ())]
    assert json_lists({"id": "u", "hyp": "a b", "ref": "x", "alternative_translations": ["p", "q"]}) == [("u", ["a b"], ("x",))]
    assert json_lists({"input": two, "outputs": ["x"]}) == [("0", two, ())]
    assert json_lists({"id": "u", "hyp": "a b", "transcript": ["x", "y"]}) == [("u", ["a b"], ("x", "y"))]
    rows = [{"recording_id": "r", "sentence_id": "s", "audio_filepath": f"{i}.wav", "pred_text": "a"} for i in (1, 2)]
    assert json_lists(rows) == [("1.wav", ["a"], ()), ("2.wav", ["a"], ())]
    with pytest.raises(InputError, match="has several lists of hypotheses, kaldi_hyps and whisper_hyps: give one the name hyps"):
        json_lists({"ref": "x", "kaldi_hyps": two, "whisper_hyps": two})


def test_a_score_of_sockeye_is_told_from_log_probabilities(caplog):
    value = {"sentence_id": "s", "translation": "a b", "score": -0.5, "sequences_scores": -0.25, "num_tokens": 4}
    (nbest,) = read(json.dumps(value), "json")
    assert scores(nbest) == [{"score": -0.5, "sequences_scores_sum": -1.0}]
    assert "Sockeye" not in caplog.text


def test_what_repeats_the_best_hypothesis_of_the_decoder_is_named():
    """It stays as it is, so a program that reads it gets the answer of before."""
    scored = '"scores": [[0.5, 7], [0.75, 8]]'
    of_sockeye = f'{{"sentence_id": "b", "translation": "A b.", "score": 0.5, "translations": ["a b", "a c"], {scored}}}\n'
    manifest = '{"audio_filepath": "a b", "text": "a b", "pred_text": "a b", "lang": "a b", "beams": [["a b", -1.0], ["a c", -2.0]]}\n'
    for text, named, container in ((of_sockeye, ["translation", "score"], "translations"), (manifest, ["pred_text"], "beams")):
        with pytest.warns(InputWarning) as told:
            swapped(text, "json")
        assert [str(one.message) for one in told] == [
            f"FILE: `{name}` is not changed: it repeats the decoder's best hypothesis; the new best is the first of `{container}`"
            for name in named
        ]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert write(read(text, "json"), "json") == text


def test_plain_lists_of_a_number_of_lines():
    assert [(nbest.id, nbest.line, texts(nbest)) for nbest in read(PLAIN_IN_STEP, "plain:2")] == [
        ("0", 1, ["a b", "a"]),
        ("1", 3, ["", "c d"]),
    ]
    assert swapped(PLAIN_IN_STEP, "plain:2") == "a\na b\n\nc d\n"
    made = [NbestList("u1", [Hypothesis("a"), Hypothesis("b")]), NbestList("u2", [Hypothesis("c"), Hypothesis("d")])]
    assert write(made, "plain:2") == "a\nb\nc\nd\n"
    assert swapped("a\n\ufeffb\n", "plain:2") == "\ufeff\ufeffb\na\n"  # a mark, because the first text begins with this character
    with pytest.raises(InputError, match="list u1 has 2 hypotheses: plain:3 has 3 for each list"):
        write(made, "plain:3")
    for argument in ("0", "x", "-1"):
        with pytest.raises(InputError, match=f"unknown n-best format 'plain:{argument}': expected plain:K"):
            find_format(f"plain:{argument}")


@pytest.mark.parametrize(
    "member",
    [
        '"word_confidences": [["a", 0.5], ["b", 0.5]]',
        '"word_confidence": [0.5, 0.25, 0.125]',
        '"token_logprobs": [-1, -2, -3]',
        '"frame_probs": [0.5]',
        '"scores": []',  # CTranslate2 without return_scores
        '"confidence": 0.5',
        '"scores": ["good", "bad", "good"]',
    ],
)
def test_other_lists_next_to_texts_are_kept(member):
    text = f'{{"id": "u", "texts": ["a b", "a"], "am_score": [-1, -2], {member}}}\n'
    lists = read(text, "json")
    assert scores(lists[0]) == [{"am_score": -1.0}, {"am_score": -2.0}]
    assert write(lists, "json") == text


@pytest.mark.parametrize("key", ["WER", "wer", "Rank", "numWords", "NumTokens", "Duration"])
def test_names_of_what_is_no_score_may_have_capitals(key):
    text = f'{{"id": "u", "nbest": [{{"text": "a", "am": -1, "{key}": 0.5}}, {{"text": "b", "am": -2, "{key}": 0.25}}]}}\n'
    for name in ("json", "csv"):
        source = text if name == "json" else f"id,hyp,am,{key}\nu,a,-1,0.5\nu,b,-2,0.25\n"
        assert scores(read(source, name)[0]) == [{"am": -1.0}, {"am": -2.0}]
    assert scores(read('{"id": "u", "nbest": [{"text": "a", "Cost": 1.5}]}\n', "json")[0]) == [{"Cost": -1.5}]


@pytest.mark.parametrize(("name", "container", "moving"), [("json", "texts", "lm_score"), ("hyporadise", "input", "am_score")])
def test_lists_that_may_belong_to_the_hypotheses_are_named_if_the_order_changes(name, container, moving):
    others = '"am": [-1, -2], "display": ["A", "B"], "refs": ["a", "b"], "three": [1, 2, 3]'
    text = f'[{{"id": "u", "{container}": ["a", "b"], "{moving}": [-1, -2], {others}}}]'
    for order in ("kept", "new"):
        lists = read(text, name)
        if order == "new":
            lists[0].hypotheses.reverse()
        with collected() as notes, warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            written = write(lists, name)
        told = " ".join([*notes, *(str(one.message) for one in warned)])
        assert ("am" in told and "display" in told and "may have one value per hypothesis" in told) == (order == "new")
        assert "refs" not in told
        assert "three" not in told
    assert f'"{moving}": [-2, -1], {others}' in written


@pytest.mark.parametrize(
    ("values", "told"), [(["-1.5", "NA"], "NA"), (["-1,5", "-2,5"], "-1,5"), (["\u22121", "\u22122"], "\u22121"), (["x", "y"], None)]
)
def test_a_column_with_what_is_no_number_is_told(values, told):
    table = "".join(f'u,a{place},"{value}"\n' for place, value in enumerate(values))
    with collected() as notes:
        [nbest] = read(f"id,hyp,am\n{table}", "csv")
    assert scores(nbest) == [{}, {}]
    assert len(notes) == (told is not None)
    assert told is None or f"the column 'am' is not read as a score, because it holds {told!r}, no number;" in notes[0]


@pytest.mark.parametrize(("score", "kind"), [("[-1]", "a list"), ('{"am": -1}', "an object")])
def test_a_score_that_is_no_number_is_told(score, kind):
    with collected() as notes:
        [nbest] = read(f'{{"id": "u", "nbest": [{{"text": "a", "score": {score}}}]}}\n', "json")
    assert scores(nbest) == [{}]
    assert f"'score' of a hypothesis is {kind}: it is not read as a score, which is one number" in notes[0]


def test_scores_of_hypotheses_leave_other_lists_alone():
    text = '{"hyps": [{"text": "a", "score": -1}, {"text": "b", "score": -2}], "probs": [0.5, 0.25, 0.125]}\n'
    assert scores(read(text, "json")[0]) == scores(read(text, "jsonl")[0]) == [{"score": -1.0}, {"score": -2.0}]


def test_numbers_that_are_not_finite_stay_in_other_members_of_a_batch():
    text = '{"texts": [["a", "b"], ["c", "d"]], "am_score": [[-1, -2], [-3, -4]], "snr": [NaN, -Infinity]}'
    lists = read(text, "json")
    assert write(lists, "json") == text
    written = swapped(text, "json")
    assert json.loads(written)["texts"] == [["b", "a"], ["c", "d"]]
    assert written.endswith('"snr": [NaN, -Infinity], "att-lm_score": [[-3.5, -4.25], null], "total_score": [[-1.0, -2.0], null]}\n')


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_jsonl_holds_no_score_of_a_program_that_is_not_finite(bad):
    with pytest.raises(InputError, match=f"list u: the score am is {bad}: only finite scores can be written"):
        write([NbestList("u", [Hypothesis("a", {"am": bad})])], "jsonl")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("jsonl", '{"id": "u", "hyps": [{"text": "a b", "total": -1}, {"text": "a", "total": -2}]}\n'),
        ("json", '{"utt": "u", "nbest": [{"text": "a b", "total": -1}, {"text": "a", "total": -2}]}\n'),
        ("json", '{"utt": "u", "texts": ["a b", "a"], "total_score": [-1, -2]}\n'),
        ("csv", "utt,hyp,total\nu,a b,-1\nu,a,-2\n"),
    ],
)
def test_a_total_that_may_be_the_decoders_is_told(name, text):
    """It cannot be told from that of an earlier rescoring, unless there are other scores."""
    for source, told in ((text, 1), (text.replace("total", "am"), 0), (swapped(text.replace("total", "am"), name), 0)):
        with collected() as notes:
            assert read(source, name)
        assert sum("is what rescoring calls its own total: it is not read as a score" in line for line in notes) == told


@pytest.mark.parametrize("name", ["jsonl", "json"])
@pytest.mark.parametrize(("am", "told"), [("-1.5", 1), ("0.5", 1), ("-2", 1), ("17", 0), ("high", 0), ("-", 0)])
def test_a_number_in_quotes_that_is_no_score_is_told_once(name, am, told):
    hypotheses = [{"text": "-1.5", "am": am, "start": "0.5"}, {"text": "b", "am": am}]
    line = json.dumps({"id": "u", "hyps": hypotheses}) + "\n"
    with collected() as notes:
        [nbest] = read(line, name)
    assert [h.scores for h in nbest.hypotheses] == [{}, {}]
    assert sum("'am' of a hypothesis is a number in quotes: it is not read as a score" in line for line in notes) == told
    assert len(notes) == told


def confident(text: str, name: str) -> str:
    """Return the file with confidences for the first answer of each list."""
    lists = read(text, name)
    for nbest in lists:
        words = tuple(WordShare(word, 0.5) for word in nbest.hypotheses[0].text.split())
        nbest.sausage = Sausage((), words)
    return write(lists, name)


@pytest.mark.parametrize(
    "text", [BY_ID, OTHER_NAMES, REFERENCE_NBEST, MANIFEST, WRAPPED, GENERATE_ONE, GENERATE_BATCH, GENERATE_FLAT, ROWS, ROW_ARRAY, LISTS]
)
def test_word_confidences_stand_in_lists_that_are_objects(text):
    has_objects = text not in (BY_ID, GENERATE_BATCH, GENERATE_FLAT, ROWS, ROW_ARRAY, LISTS)
    with collected() as notes:
        written = confident(text, "json")
    assert any("lists of this shape have no place for word confidences" in line for line in notes) != has_objects
    lists = read(written, "json")
    assert texts(lists[0]) == texts(read(text, "json")[0])
    assert scores(lists[0]) == scores(read(text, "json")[0])
    assert ("word_confidences" in written) == has_objects
    if has_objects:
        assert write(lists, "json") == written
        assert confident(written, "json") == written
        assert swapped(written, "json").count("word_confidences") == written.count("word_confidences") - 1


CONFIDENT = ['{"word_confidences": [["a", 0.5]], %s}\n', '{%s, "word_confidences": []}\n', '{%s, "word_confidences": [], "x": 1}\n']


@pytest.mark.parametrize("text", CONFIDENT)
def test_word_confidences_of_an_earlier_rescoring_go(text):
    text = text.replace("%s", '"id": "u", "hyps": [{"text": "a"}, {"text": "b"}]')
    assert write(read(text, "jsonl"), "jsonl") == text
    written = json.loads(swapped(text, "jsonl"))
    assert "word_confidences" not in written
    assert [hypothesis["text"] for hypothesis in written["hyps"]] == ["b", "a"]
    assert written.keys() == {*json.loads(text)} - {"word_confidences"}


def test_json_with_bars_in_its_first_text_is_not_moses():
    for text in ('{"id":"1","hyps":[{"text":"a ||| b","scores":{"am":-1}}]}\n', '["a|||b",["c",-1]]\n'):
        found = format_of(text)
        assert found is None or found.name != "moses", text
    assert format_of("0 ||| a b ||| lm= -1 ||| -1\n").name == "moses"


def test_a_measurement_in_mlm_is_no_score():
    with collected() as told:
        (nbest,) = read('{"u": {"hyp_1": {"score": -1, "text": "a", "WER": 0.5, "am": -3}}}', "mlm")
    assert scores(nbest) == [{"score": -1.0, "am": -3.0}]
    assert any("'WER' of a hypothesis is taken for a measurement" in line for line in told)
    swapped = write([NbestList("u", [Hypothesis("a", {"score": -1.0, "wer": -2.0}, 1)])], "mlm")
    assert scores(read(swapped, "mlm")[0]) == [{"score": -1.0, "wer_score": -2.0}]


def test_several_columns_without_a_name_are_no_scores():
    """As in tables of Excel that end in blank columns."""
    (nbest,) = read("id,hyp,score,,\nu1,a,-1,,7.5\nu1,b,-2,,\n", "csv")
    assert scores(nbest) == [{"score": -1.0}, {"score": -2.0}]
    nbest.hypotheses.reverse()
    assert write([nbest], "csv") == "id,hyp,score,,\nu1,b,-2,,\nu1,a,-1,,7.5\n"


def test_a_table_whose_ids_are_like_those_of_fairseq(tmp_path):
    path = tmp_path / "lists"
    path.write_text("id\thyp\tscore\nH-1\ttext one\t-1\nH-1\ttwo\t-2\n")
    form, lists = open_nbest(str(path))
    assert form.name == "tsv"
    assert [[h.text for h in nbest.hypotheses] for nbest in lists] == [["text one", "two"]]
