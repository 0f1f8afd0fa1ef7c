"""The real n-best lists of ../shared/data/nbest."""

from __future__ import annotations

import gzip
import io
from pathlib import Path

import pytest

from attlm_fairseq.nbest.formats import FORMATS, open_nbest, write_nbest

FOLDER = Path(__file__).parents[4] / "shared" / "data" / "nbest"
LISTS = {
    "atis-train.json.gz": ("hyporadise", 3964, 19820),
    "librispeech-test-clean.json.gz": ("hyporadise", 2620, 13100),
    "commonvoice-test.json.gz": ("hyporadise", 2000, 10000),
    "bn-en.hiero.nbest.gz": ("moses", 100, 805),
}


@pytest.mark.parametrize("file", LISTS)
def test_round_trip(file, tmp_path):
    path = FOLDER / file
    if not path.exists():
        pytest.skip(f"{path} is not there: the development data is not part of the project")
    name, count, hypotheses = LISTS[file]
    form, lists = open_nbest(str(path))
    lists = list(lists)
    assert (form.name, len(lists), sum(len(nbest.hypotheses) for nbest in lists)) == (name, count, hypotheses)
    original = gzip.decompress(path.read_bytes()).decode()
    out = io.StringIO()
    form.write(lists, out)
    assert out.getvalue() == original
    again = tmp_path / "again.jsonl.gz"
    write_nbest(lists, FORMATS["jsonl"], str(again))
    form, found = open_nbest(str(again))
    assert form.name == "jsonl"
    for old, new in zip(lists, found, strict=True):
        assert (new.id, new.references) == (old.id, old.references)
        assert [(h.text, h.scores) for h in new.hypotheses] == [(h.text, h.scores) for h in old.hypotheses]


def test_the_scores_are_those_of_the_files():
    path = FOLDER / "bn-en.hiero.nbest.gz"
    if not path.exists():
        pytest.skip(f"{path} is not there: the development data is not part of the project")
    first = next(open_nbest(str(path))[1])
    assert (first.id, len(first.hypotheses[0].scores)) == ("0", 22)
    assert first.hypotheses[1].scores["lm_0"] == -28.078
    assert first.hypotheses[1].scores["OOVPenalty"] == 2.0
    assert first.hypotheses[1].scores["decoder"] == -228.133
    atis = next(open_nbest(str(FOLDER / "atis-train.json.gz"))[1])
    assert atis.hypotheses[4].scores == {"am_score": -0.5753417015075684}
    assert atis.references == ("like i would like a list of flights from pittsburgh to dallas",)
