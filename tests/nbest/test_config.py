"""attlm.toml: read, written, and every wrong entry named."""

from __future__ import annotations

import os
import re
import threading
from dataclasses import replace
from pathlib import Path

import pytest
import tomlkit

from attlm_fairseq.errors import InputError
from attlm_fairseq.nbest.decision.decision import Decision
from attlm_fairseq.nbest.fingerprints import fingerprint
from attlm_fairseq.nbest.metrics.making import METRICS, make_metric
from attlm_fairseq.nbest.metrics.spec import MetricSpec, options_of, spec_of
from attlm_fairseq.nbest.run.config import RunConfig
from attlm_fairseq.nbest.run.config_file import read_config, unused, write_config
from attlm_fairseq.scoring.context.cache import UnigramCache
from attlm_fairseq.scoring.lm_spec import LMSpec
from attlm_fairseq.text import Step, TextPipeline, parse_steps
from attlm_fairseq.text.pipeline import NO_STEPS

EXAMPLE = """\
# by hand
[lm.attentive]
checkpoint = ["a.pt", "/elsewhere/b.pt"]
ensemble_weights = [1, 3]
dict = "data-bin/dict.txt"

[lm.ngram]
kenlm = "lm.arpa"

[text]
steps = ["tokenize:en", "lowercase"]

[weights]
attentive = 0.25
rank = -1
"""


def test_reading(tmp_path):
    path = tmp_path / "attlm.toml"
    path.write_text(EXAMPLE)
    assert read_config(path) == RunConfig(
        lms=(
            LMSpec(
                "attentive",
                checkpoints=(tmp_path / "a.pt", Path("/elsewhere/b.pt")),
                ensemble_weights=(1.0, 3.0),
                dictionary=tmp_path / "data-bin" / "dict.txt",
            ),
            LMSpec("ngram", kenlm=tmp_path / "lm.arpa"),
        ),
        text=TextPipeline((Step("tokenize", "en"), Step("lowercase"))),
        weights={"attentive": 0.25, "rank": -1.0},
    )


@pytest.mark.parametrize("name", METRICS)
def test_a_metric_comes_back_with_all_its_options(name, tmp_path):
    path, text = tmp_path / "attlm.toml", parse_steps(["remove-punctuation", "lowercase"])
    defaults = options_of(METRICS[name])
    others = {option: not value if isinstance(value, bool) else "zh" if value == "13a" else value + 1 for option, value in defaults.items()}
    for options in ({}, others, *({option: value} for option, value in others.items())):
        for steps in (NO_STEPS, text):
            metric = make_metric(name, text=steps, **options)
            spec = spec_of(metric)
            assert spec == MetricSpec(name, steps, options)
            write_config(path, RunConfig(metric=spec), {})
            assert ("[metric]" in path.read_text()) == (spec != MetricSpec())
            again = read_config(path).metric
            assert again == spec
            assert again.make().signature([["a"]]) == metric.signature([["a"]])


def test_a_metric_of_the_users_is_not_named(tmp_path):
    path = tmp_path / "attlm.toml"
    write_config(path, RunConfig(metric=spec_of(make_metric("external:python comet.py", text=parse_steps(["lowercase"])))), {})
    assert "comet" not in path.read_text()
    with pytest.raises(InputError, match="a file never says what to run"):
        read_config(path).metric.make()


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ('name = "rouge"', "unknown metric 'rouge'"),
        ("name = 3", "name = 3, expected the name of a metric"),
        ('name = "wer"\ntokenize = "zh"', "metric 'wer' has no option 'tokenize'"),
        ('name = "bleu"\ntokenize = 3', "tokenize is 3, expected a value such as '13a'"),
        ('name = "bleu"\ntokenize = "no"', "unknown BLEU tokenizer 'no'"),
        ('name = "external:rm -r x"', "a file never says what to run"),
        ('name = "wer"\nlowercase = 1', "lowercase is 1, expected a value such as False"),
        ('text = { steps = ["no"] }', "[metric.text] 'no' is not a text step"),
    ],
)
def test_a_wrong_metric_is_named(table, message, tmp_path):
    path = tmp_path / "attlm.toml"
    path.write_text(f"[metric]\n{table}\n")
    with pytest.raises(InputError, match=re.escape(message)):
        read_config(path)


def test_writing_keeps_comments_and_gives_the_same_back(tmp_path):
    path = tmp_path / "attlm.toml"
    path.write_text(EXAMPLE)
    config = read_config(path)
    write_config(path, config, {"metric": "WER", "lm": {"ngram": {"order": 3}}})
    assert read_config(path) == config
    assert path.read_text().startswith("# by hand\n")
    assert [file.name for file in tmp_path.iterdir()] == ["attlm.toml"]
    once = path.read_bytes()
    write_config(path, config, {"metric": "WER", "lm": {"ngram": {"order": 3}}})
    assert path.read_bytes() == once


def test_writing_to_another_folder_keeps_the_files_found(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sub").mkdir()
    for name in ("lm.arpa", "sub/lm.arpa"):
        Path(name).touch()
    config = RunConfig((LMSpec("a", kenlm=Path("lm.arpa")), LMSpec("b", kenlm=Path("sub/lm.arpa"))))
    write_config(Path("sub/attlm.toml"), config, {})
    read = read_config(Path("sub/attlm.toml"))
    assert [lm.kenlm.resolve() for lm in read.lms] == [tmp_path / "lm.arpa", tmp_path / "sub" / "lm.arpa"]


COMMENTED = """\
# by hand
[lm.big]  # from the cluster
checkpoint = "big.pt"  # seed 3

[lm.ngram]
kenlm = "./lm.arpa"  # 4-gram

[text]  # as trained
steps = ["lowercase"]

[weights]
# tuned in March
big = 0.5  # was 0.4
rank = -1

[decision]
rule = "mbr-wer"
scale = 2

[mixing]
text = "valid"
"""


def test_what_stays_the_same_stays_as_it_was_written(tmp_path):
    path = tmp_path / "attlm.toml"
    path.write_text(COMMENTED)
    config = read_config(path)
    write_config(path, replace(config, weights={"big": 0.75, "rank": -1.0}), {"metric": "WER"})
    assert path.read_text() == COMMENTED.replace("big = 0.5", "big = 0.75") + '\n[tuning]\nmetric = "WER"\n'


def test_what_a_run_from_elsewhere_does_not_use_is_named_and_goes(tmp_path):
    path = tmp_path / "attlm.toml"
    path.write_text(COMMENTED)
    assert unused(path, read_config(path)) == []
    assert unused(path, replace(read_config(path), text=TextPipeline())) == []  # the user's own change to what was read
    assert unused(tmp_path / "absent", RunConfig()) == []
    run = RunConfig((LMSpec("ngram", kenlm=tmp_path / "lm.arpa"), LMSpec("new", kenlm=tmp_path / "new.arpa")))
    assert unused(path, run) == ["[lm.big]", "[text]", "[weights]", "[decision]"]
    assert unused(path, replace(run, text=TextPipeline((Step("lowercase"),)), weights={"new": 1.0})) == [
        "[lm.big]",
        "[weights]",
        "[decision]",
    ]
    other = RunConfig((LMSpec("ngram", kenlm=tmp_path / "other.arpa"),), weights={"ngram": 1.0})
    assert unused(path, other)[:2] == ["[lm.big]", "[lm.ngram]"]
    write_config(path, run, {})
    assert read_config(path) == run
    assert path.read_text().startswith('# by hand\n[lm.ngram]\nkenlm = "./lm.arpa"  # 4-gram\n')


def test_tables_in_any_order_are_rewritten(tmp_path):
    path = tmp_path / "attlm.toml"
    path.write_text("[lm.a]\nkenlm = 'a'\n[text]\nsteps = ['lowercase']\n[lm.b]\nkenlm = 'b'\n[weights]\na = 1\n[lm.c]\nkenlm = 'c'\n")
    config = read_config(path)
    write_config(path, replace(config, weights={"a": 2.0}), {})
    assert read_config(path) == replace(config, weights={"a": 2.0})
    config = replace(config, lms=(config.lms[1], LMSpec("d", kenlm=tmp_path / "d")))
    write_config(path, config, {})
    assert read_config(path) == config


def test_weights_that_are_no_numbers_are_not_written(tmp_path):
    with pytest.raises(InputError, match=r"attlm\.toml: weights that are not finite are not written"):
        write_config(tmp_path / "attlm.toml", RunConfig(weights={"a": float("nan")}), {})
    assert not list(tmp_path.iterdir())


def test_a_byte_order_mark_is_no_entry(tmp_path):
    path = tmp_path / "attlm.toml"
    path.write_text("\ufeff[weights]\nrank = -1\n", encoding="utf-8")
    assert read_config(path).weights == {"rank": -1.0}


def test_a_link_stays_a_link_and_a_pipe_is_not_read_first(tmp_path):
    real, link, pipe = tmp_path / "real.toml", tmp_path / "link.toml", tmp_path / "pipe"
    real.write_text(EXAMPLE)
    link.symlink_to(real)
    config = RunConfig((LMSpec("a", kenlm=tmp_path / "lm.arpa"),), weights={"a": 1.0})
    write_config(link, config, {})
    assert link.is_symlink()
    assert read_config(real) == read_config(link) == config
    os.mkfifo(pipe)
    found: list[str] = []
    reader = threading.Thread(target=lambda: found.append(pipe.read_text()))
    reader.start()
    write_config(pipe, config, {})
    reader.join()
    assert "[weights]\na = 1.0\n" in found[0]
    assert pipe.is_fifo()
    assert sorted(file.name for file in tmp_path.iterdir()) == ["link.toml", "pipe", "real.toml"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[weights]\na = 'x'", r"\[weights\] a = 'x', expected a finite number"),
        ("[weights]\na = nan", r"\[weights\] a = nan"),
        ("[weights]\na = true", r"\[weights\] a = True"),
        ("[weigths]\na = 1", r"'weigths' is not a table; known are confidence, context, corrections, decision, fitting, lm"),
        ("weights = 3", r"`weights` is 3, expected a table"),
        ("[tuning]\nlm = 5", r"`lm` is 5, expected a table \[tuning.lm\]"),
        ("[tuning]\ncandidates = 5", r"`candidates` is 5, expected a table \[tuning.candidates\]"),
        ("[lm.x]", r"\[lm.x\] needs either `kenlm`, `checkpoint` or `mixture`"),
        ("[lm.x]\nkenlm = 'a'\ncheckpoint = 'b'", r"\[lm.x\] needs either"),
        ("[lm.x]\nkenlm = ['a', 'b']", r"\[lm.x\] kenlm = \['a', 'b'\], expected a file name"),
        ("[lm.x]\nkenlm = 'a'\ndict = 'd'", r"'dict' is not an entry of \[lm.x\]"),
        ("[lm.x]\ncheckpoint = ['a', 'b']\nensemble_weights = [1]", r"ensemble_weights needs 2 numbers"),
        ("[lm.'a b']\nkenlm = 'a'", r"'a b' cannot be the name of an LM"),
        ("[lm.rank]\nkenlm = 'a'", r"'rank' cannot be the name of an LM"),
        ("[text]\nsteps = ['tokenize:english']", r"\[text\] text step 'tokenize:english': 'english' is not a language code of two"),
        ("[text]\nlowercase = true", r"'lowercase' is not an entry of \[text\]; known are steps"),
        ("[text]\nsteps = 'lowercase'", r"\[text\] steps = 'lowercase', expected a list"),
        ("[decision]\ntext = { steps = ['shout'] }", r"\[decision.text\] 'shout' is not a text step; known are unicode:FORM, "),
        ("[decision]\ntext = 'lowercase'", r"`text` is 'lowercase', expected a table \[decision.text\]"),
        ("[tuning]\nreference_sketch = 3", r"\[tuning\] reference_sketch = 3, expected a text, as `attlm tune` writes it"),
        ("[decision]\nscales = { vote = 1 }", r"'vote' is not a rule with a scale; known are consensus, mbr-bleu, "),
        ("[decision]\nscales = { consensus = -1 }", r"\[decision.scales\] consensus = -1, expected a finite number that is not negative"),
        ("[text]\nsteps = ['shout']", r"\[text\] 'shout' is not a text step; known are unicode:FORM, "),
        ("[lm.x]\nkenlm = 'a'\ntext = { step = [] }", r"'step' is not an entry of \[lm.x.text\]"),
        ("[lm.x]\nkenlm = 'a'\ntext = 'lowercase'", r"`text` is 'lowercase', expected a table \[lm.x.text\]"),
        ("[lm.x]\nkenlm = 'a'\noov = 'spread'", r"\[lm.x\] oov: 'spread' is not an OOV policy; expected unk, penalty:"),
        ("[lm.x]\nkenlm = 'a'\noov = 3", r"\[lm.x\] oov = 3, expected a policy"),
        ("[lm.x]\nmixture = {}", r"\[lm.x\] mixture = \{\}, expected \{NAME = WEIGHT, ..\}: names of two or more LMs"),
        ("[lm.x]\nmixture = { y = 0.6 }", r"\[lm.x\] mixture = .*, expected \{NAME = WEIGHT, ..\}: names of two or more LMs"),
        ("[lm.x]\nmixture = { y = 0.5, z = 0.5 }", r"attlm.toml: \[lm.x\] mixes 'y', which is not an LM of this run"),
        ("[lm.x]\nmixture = { x = 0.5, z = 0.5 }", r"attlm.toml: \[lm.x\] mixes 'x', which is not an LM of this run"),
        ("[lm.x\n", r"attlm.toml:1: is not TOML"),
        ("[weights]\nx = 1\ny = [\n1]\nx = 2\nz = 3\n", r'attlm.toml:5: is not TOML: Key "x" already exists'),
    ],
)
def test_wrong_entries_are_named(tmp_path, text, message):
    path = tmp_path / "attlm.toml"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        read_config(path)


MIXED = """\
[lm.ngram]
kenlm = "ngram.arpa"
oov = "spread:1000"

[lm.pieces]
checkpoint = "pieces.pt"
[lm.pieces.text]
steps = ["lowercase", "bpe:codes"]

[lm.mix]
mixture = { ngram = 0.25, pieces = 0.75 }
oov = "penalty:-12.5"

[text]
steps = ["lowercase"]
"""


def test_mixtures_policies_and_steps_of_one_lm(tmp_path):
    path = tmp_path / "attlm.toml"
    path.write_text(MIXED)
    config = read_config(path)
    lowercase = Step("lowercase")
    assert [(lm.name, lm.oov.kind, lm.oov.value) for lm in config.lms] == [
        ("ngram", "spread", 1000.0),
        ("pieces", "unk", 0.0),
        ("mix", "penalty", -12.5),
    ]
    assert config.lms[1].text == TextPipeline((lowercase, Step("bpe", str(tmp_path / "codes"))))
    assert config.texts == {"mix": TextPipeline((lowercase,))}  # its members have no score of their own
    for written in (path, tmp_path / "new.toml"):
        write_config(written, config, {})
        assert read_config(written) == config
    assert "mixture = {ngram = 0.25, pieces = 0.75}" in written.read_text()


@pytest.mark.parametrize(
    ("words", "pieces", "expected"),
    [
        ([], [], []),
        (["bpe:codes"], ["bpe:codes"], ["bpe:codes"]),
        (["bpe:codes"], ["bpe:other"], []),
        (["lowercase"], ["lowercase", "bpe:codes"], ["lowercase"]),
        (["lowercase"], ["bpe:codes"], None),
        (["tokenize:en"], ["tokenize:de"], None),
    ],
)
def test_the_words_of_a_mixture(words, pieces, expected):
    specs = [LMSpec(name, kenlm=Path(name), text=parse_steps(steps)) for name, steps in (("words", words), ("pieces", pieces))]
    config = RunConfig((*specs, LMSpec("mix", mixture=(("words", 1.0), ("pieces", 1.0)))))
    if expected is not None:
        assert config.texts == {"mix": parse_steps(expected)}
        return
    with pytest.raises(InputError, match=r"\[lm.mix\] mixes LMs that see different words \(text for words: .*; text for pieces: .*\)"):
        _ = config.texts


def test_the_text_of_a_decision_comes_back(tmp_path):
    path = tmp_path / "attlm.toml"
    config = RunConfig(decision=Decision("mbr-wer", 2.0, parse_steps(["join-subwords:bpe", f"truecase:{tmp_path}/model"])))
    write_config(path, config, {})
    assert '"truecase:model"' in path.read_text()
    assert read_config(path) == config
    write_config(path, RunConfig(decision=Decision("mbr-wer")), {})
    assert read_config(path).decision == Decision("mbr-wer")


def test_the_record_of_tuning_goes_with_its_weights(tmp_path):
    path = tmp_path / "attlm.toml"
    config = RunConfig((LMSpec("a", kenlm=tmp_path / "a"),), weights={"a": 1.0})
    references = [("the cat",), ("a mat",)]
    write_config(path, config, {"reference_sketch": fingerprint(references)})
    read = read_config(path)
    assert read.share_tuned_on({"a": 1.0, "rank": 0.5}, references) == 1
    assert read.share_tuned_on({"a": 0.5}, references) == 0  # others than those tuned
    assert read.share_tuned_on({"a": 1.0}, [*references, ("x",), ("y",)]) == 0.5
    write_config(path, config, {}, "mixing")
    assert read_config(path).tuned_on == read.tuned_on
    write_config(path, replace(config, weights={}), {}, "mixing")
    assert read_config(path).tuned_on == ""
    assert "[tuning]" not in path.read_text()


def test_weights_written_to_another_file_bring_the_record_of_their_tuning(tmp_path):
    """Without it `eval` would not know the lists that the weights have seen."""
    tuned, fitted = tmp_path / "tuned.toml", tmp_path / "fitted.toml"
    references = [("the cat",), ("a mat",)]
    config = RunConfig((LMSpec("a", kenlm=tmp_path / "a"),), weights={"a": 0.5})
    write_config(tuned, config, {"reference_sketch": fingerprint(references), "metric": "WER"})
    write_config(fitted, read_config(tuned), {}, "fitting")
    assert read_config(fitted).share_tuned_on({"a": 0.5}, references) == 1
    assert tomlkit.parse(fitted.read_text())["tuning"]["metric"] == "WER"
    two = replace(config, weights={"a": 0.5, "b": 1.0})
    write_config(tuned, two, {"reference_sketch": fingerprint(references)})
    fitted.unlink()
    write_config(fitted, replace(read_config(tuned), weights={"a": 0.5}), {}, "mixing")  # a mixture takes the place of b
    assert read_config(fitted).share_tuned_on({"a": 0.5}, references) == 1
    write_config(fitted, replace(read_config(tuned), weights={"a": 2.0}), {}, "fitting")
    assert read_config(fitted).tuned_on == ""  # nothing tuned these weights


def test_the_record_of_fitting_goes_with_its_lms(tmp_path):
    path = tmp_path / "attlm.toml"
    fitted = LMSpec("a", kenlm=tmp_path / "a", unigram_cache=UnigramCache(100, 0.1, 0.99))
    other = LMSpec("b", kenlm=tmp_path / "b")
    write_config(path, RunConfig((fitted,)), {"lines": 3}, "fitting")
    write_config(path, RunConfig((fitted, other), weights={"a": 1.0, "b": 1.0}), {})
    assert "[fitting]" in path.read_text()
    write_config(path, RunConfig((other,), weights={"b": 1.0}), {})
    assert "[fitting]" not in path.read_text()


def test_the_scales_of_other_rules_come_back(tmp_path):
    path = tmp_path / "attlm.toml"
    for decision in (
        Decision(scales={"mbr-wer": 1.5}),
        Decision("consensus", 2.0, scales={"mbr-wer": 1.5, "mbr-cer": 0.0}),
        Decision("mbr-bleu", 0.5, tokenize="zh"),
        Decision(),
    ):
        write_config(path, RunConfig(decision=decision), {})
        assert read_config(path).decision == decision
    assert Decision("consensus", 2.0, scales={"mbr-wer": 1.5}).scale_of("mbr-wer") == 1.5
    assert [Decision("consensus", 2.0).scale_of(rule) for rule in ("consensus", "mbr-wer")] == [2.0, None]


def test_file_names_that_are_not_utf8(tmp_path):
    path, odd = tmp_path / "attlm.toml", tmp_path / "caf\udce9.arpa"
    with pytest.raises(InputError, match=r"caf.*arpa: attlm.toml, which is UTF-8, cannot hold this name"):
        unused(path, RunConfig(lms=(LMSpec("ngram", kenlm=odd),)))  # before the work
    config = RunConfig(lms=(LMSpec("ngram", kenlm=tmp_path / "lm.arpa"),), weights={"ngram": 1.0})
    write_config(path, config, {"command": "attlm tune caf\udce9.nbest", "lm": {"ngram": {"checkpoints": ["a\udcff", 3]}}})
    record = tomlkit.parse(path.read_text())["tuning"]
    assert record == {"command": "attlm tune caf\\udce9.nbest", "lm": {"ngram": {"checkpoints": ["a\\udcff", 3]}}}
