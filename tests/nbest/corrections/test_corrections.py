"""Corrections from lists: learned, saved, loaded, applied; on real lists where these are at hand."""

from __future__ import annotations

import gc
import gzip
import json
import pickle
from collections.abc import Sequence
from pathlib import Path

import pytest

from attlm_fairseq.errors import InputError
from attlm_fairseq.nbest.corrections import Corrections, learn_corrections
from attlm_fairseq.nbest.features.combination import feature_names
from attlm_fairseq.nbest.metrics.making import make_metric
from attlm_fairseq.nbest.metrics.metric import corpus_score
from attlm_fairseq.nbest.nbest_list import Hypothesis, NbestList
from attlm_fairseq.nbest.tuning.oracle import oracle

ATIS = Path(__file__).parents[4] / "shared/data/nbest/atis-train.json.gz"


def list_of(texts: Sequence[str], reference: str | None = None, name: str = "0") -> NbestList:
    hypotheses = [Hypothesis(text, {"am": -float(rank)}, rank) for rank, text in enumerate(texts, 1)]
    return NbestList(name, hypotheses, () if reference is None else (reference,))


LISTS = [
    list_of(["fly to la today", "fly to la to day"], "fly to l a today"),
    list_of(["flights to la", "flight to la"], "flights to l a"),
    list_of(["la to boston", "la two boston"], "l a to boston"),
    list_of(["flights to boston today"], "flights to boston today"),
]


@pytest.fixture(scope="module")
def corrections() -> Corrections:
    return learn_corrections(LISTS)


def test_candidates_join_behind_the_lists_as_read(corrections: Corrections) -> None:
    nbest = list_of(["flight from la", "flight from la", "", "fly from la"])
    expanded = corrections.expand(nbest, size=5)
    as_read = expanded.hypotheses[:4]
    assert [(hypothesis.text, hypothesis.rank, hypothesis.scores["am"]) for hypothesis in as_read] == [
        (hypothesis.text, hypothesis.rank, hypothesis.scores["am"]) for hypothesis in nbest.hypotheses
    ]
    assert nbest.hypotheses[0].scores == {"am": -1.0}
    new = {hypothesis.text: hypothesis for hypothesis in expanded.hypotheses[4:]}
    assert {"flight from l a", "fly from l a"} <= set(new)
    assert [hypothesis.rank for hypothesis in new.values()] == list(range(5, 5 + len(new)))
    found = new["fly from l a"]
    assert found.scores["am"] == -4.0
    assert found.scores["source_rank"] == 3.0
    assert found.scores["rewrites"] == 3.0  # from-l, l-a, a-</s>
    assert found.scores["corrections"] < 0
    assert {"corrections", "rewrites", "source_rank", "am"} <= set(feature_names(expanded))
    assert len(corrections.expand(nbest, size=1).hypotheses) == 5
    assert corrections.expand(NbestList("none", [])) == NbestList("none", [])
    for size in (-1, 1.5, "x", None):
        with pytest.raises(InputError, match="size"):
            corrections.expand(nbest, size=size)
    assert corrections.expand(nbest, size=0).hypotheses == expanded.hypotheses[:4]


def test_a_score_of_the_lists_is_never_replaced(corrections: Corrections) -> None:
    nbest = NbestList("7", [Hypothesis("fly to la", {"channel": -1.0, "search_lm": -2.0}, 1)])
    with pytest.raises(InputError, match="list '7' already has a score 'search_lm', which corrections would replace"):
        corrections.expand(nbest)
    with pytest.raises(InputError, match="'corrections'"):
        corrections.expand(corrections.expand(list_of(["fly to la"])))
    own = NbestList("7", [Hypothesis("fly to la", {"phrases": -1.0}, 1)])  # without a phrase list, nothing makes this score
    assert corrections.expand(own).hypotheses[0].scores["phrases"] == -1.0


def test_used_corrections_can_be_pickled(corrections: Corrections) -> None:
    nbest = list_of(["fly frm la to day"])
    expected = corrections.expand(nbest).hypotheses
    assert pickle.loads(pickle.dumps(corrections)).expand(nbest).hypotheses == expected
    with pytest.raises(InputError, match=r"\['a', 'b'\]: expected an attlm.NbestList"):
        corrections.expand(["a", "b"])


def test_the_folder_of_an_lm_goes_with_the_corrections_without_a_warning(recwarn: pytest.WarningsRecorder) -> None:
    gc.collect()
    recwarn.clear()  # of what other tests have left
    learned = learn_corrections(LISTS)
    copied = pickle.loads(pickle.dumps(learned))
    folders = [Path(str(made.lm)).parent for made in (learned, copied)]
    assert all(folder.is_dir() for folder in folders)
    del learned, copied
    gc.collect()
    assert not any(folder.exists() for folder in folders)
    assert not recwarn.list


def test_saved_corrections_do_the_same(corrections: Corrections, tmp_path: Path) -> None:
    corrections.save(tmp_path / "c.tsv")
    assert (tmp_path / "c.arpa").is_file()
    loaded = Corrections.load(tmp_path / "c.tsv")
    nbest = list_of(["fly to la to day"])
    texts = [[hypothesis.text for hypothesis in made.expand(nbest).hypotheses] for made in (corrections, loaded)]
    assert texts[0] == texts[1]
    assert loaded.lists == len(LISTS)
    (tmp_path / "c.arpa").unlink()
    for name in ("c.arpa", "long" * 100):
        (tmp_path / "c.tsv").write_text((tmp_path / "c.tsv").read_text().replace("c.arpa", name))
        with pytest.raises(InputError, match=rf"{name} is not there"):
            Corrections.load(tmp_path / "c.tsv")


def test_an_lm_of_the_user_is_never_replaced(corrections: Corrections, tmp_path: Path) -> None:
    (tmp_path / "taken.arpa").write_text("the user's own")
    with pytest.raises(InputError, match="would be replaced by the LM of the references"):
        corrections.save(tmp_path / "taken.tsv")
    assert (tmp_path / "taken.arpa").read_text() == "the user's own"


def test_a_given_lm_is_named_and_left_where_it_is(corrections: Corrections, tmp_path: Path) -> None:
    corrections.save(tmp_path / "c.tsv")
    lm = (tmp_path / "c.arpa").rename(tmp_path / "lm.arpa")
    given = learn_corrections(LISTS, lm=lm)
    (tmp_path / "deeper").mkdir()
    given.save(tmp_path / "deeper/c.tsv")
    assert "# lm = ../lm.arpa" in (tmp_path / "deeper/c.tsv").read_text()
    assert Corrections.load(tmp_path / "deeper/c.tsv").vocabulary == {"fly", "to", "l", "a", "today", "flights", "boston"}
    (tmp_path / "far/away").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "far/away")
    given.save(tmp_path / "link/c.tsv")  # whose .. is far
    assert Corrections.load(tmp_path / "link/c.tsv").lm.resolve() == lm.resolve()
    assert Corrections.load(tmp_path / "far/away/c.tsv").lm.resolve() == lm.resolve()


def test_an_input_hypothesis_keeps_its_words_even_if_no_beam_holds_it(corrections: Corrections) -> None:
    noise = [f"zq{i}" for i in range(20)]
    second = corrections.expand(list_of(["flights to la", f"la {' '.join(noise)}"]), size=1).hypotheses[1].scores
    assert second["corrections"] == pytest.approx(sum(map(corrections.phrases.keep, ["la", *noise])))
    assert second["source_rank"] == 1.0
    long = corrections.expand(list_of(["la " * 5000])).hypotheses[0]
    assert long.scores["corrections"] == pytest.approx(5000 * corrections.phrases.keep("la"))


@pytest.mark.parametrize("text", ["", "<s> la </s>", "la \0 la", "la \ud800 la", "飛行機 で", "\u202ela", "la " * 5000])
def test_hostile_hypotheses_stay_as_read(text: str, corrections: Corrections) -> None:
    expanded = corrections.expand(list_of([text]))
    assert expanded.hypotheses[0].text == text
    assert all("\0" not in hypothesis.text or "\0" in text for hypothesis in expanded.hypotheses[1:])


def test_lists_without_references_teach_nothing() -> None:
    with pytest.raises(InputError, match="no reference"):
        learn_corrections([list_of(["a"])])
    with pytest.raises(InputError, match="no lists"):
        learn_corrections([])


@pytest.mark.skipif(not ATIS.exists(), reason="needs ../shared/data")
def test_oracle_of_real_lists_falls_below_half() -> None:
    items = json.loads(gzip.decompress(ATIS.read_bytes()))
    lists = [
        NbestList(str(i), [Hypothesis(text, rank=rank) for rank, text in enumerate(item["input"], 1)], (item["output"],))
        for i, item in enumerate(items[:1500])
    ]
    corrections = learn_corrections([nbest for i, nbest in enumerate(lists) if i % 10])
    wer = make_metric("wer")

    def oracle_wer(found: Sequence[NbestList]) -> float:
        return corpus_score(wer, oracle([wer.statistics([h.text for h in nbest.hypotheses], nbest.references) for nbest in found], wer))

    held_out = lists[::10]
    assert oracle_wer([corrections.expand(nbest) for nbest in held_out]) < 0.5 * oracle_wer(held_out)
