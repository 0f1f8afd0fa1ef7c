"""Translation models as scorers: fairseq's own scores, every direction, through the commands; refused input."""

from __future__ import annotations

import json
import math
import random
import re
from pathlib import Path

import pytest
import torch
from cli_runs import refused, run
from fairseq_runs import ROOT, fairseq
from lm_files import write_arpa
from translation_files import SIZES, SOURCE_WORDS, TARGET_WORDS, write_translation_model

from attlm_fairseq import rescore, score_text
from attlm_fairseq.errors import InputError
from attlm_fairseq.scoring.compute import DeviceConfig
from attlm_fairseq.scoring.context.context_walk import with_window
from attlm_fairseq.scoring.lm_spec import LMSpec
from attlm_fairseq.scoring.mixture import MixtureScorer
from attlm_fairseq.scoring.translation.translation_scorer import TranslationScorer, load_translation_models
from attlm_fairseq.scoring.unknown_words.oov_policy import OOVPolicy, with_policy

RANDOM = random.Random(3)
SOURCES = [" ".join(RANDOM.choices(SOURCE_WORDS, k=length)) for length in (5, 3, 8, 1, 6)]
TARGETS = [" ".join(RANDOM.choices([*TARGET_WORDS, "unheard-of"], k=length)) for length in (4, 6, 1, 7, 3)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("translation")
    for arch in SIZES:
        write_translation_model(folder / arch / "mt.pt", arch)
    write_translation_model(folder / "second" / "mt.pt", seed=2, old=True)
    write_translation_model(folder / "back" / "mt.pt", pair="yx", seed=3)
    (folder / "test.x").write_text("\n".join(SOURCES) + "\n")
    (folder / "test.y").write_text("\n".join(TARGETS) + "\n")
    (folder / "backwards.x").write_text("\n".join(SOURCES) + "\n")
    (folder / "backwards.y").write_text("\n".join(" ".join(line.split()[::-1]) for line in TARGETS) + "\n")
    return folder


def of_fairseq(folder: Path, paths: list[Path], prefix: str = "test", pair: str = "xy") -> list[list[float]]:
    """What ``fairseq-generate --score-reference`` gives each target token and the end: natural log."""
    data = folder / f"data-{prefix}-{pair}"
    if not data.exists():
        dictionaries = ["--srcdict", paths[0].with_name(f"dict.{pair[0]}.txt"), "--tgtdict", paths[0].with_name(f"dict.{pair[1]}.txt")]
        fairseq("preprocess", "-s", pair[0], "-t", pair[1], "--testpref", folder / prefix, "--destdir", data, *dictionaries)
    options = ["--score-reference", "--cpu", "--batch-size", 8, "--required-batch-size-multiple", 1]
    plugin = ["--user-dir", ROOT / "attlm_fairseq"]  # which lets torch read the options of the checkpoint
    names = ["-s", pair[0], "-t", pair[1], "--path", ":".join(map(str, paths))]
    result = fairseq("generate", data, *names, *options, *plugin, check=False)
    assert result.returncode == 0, result.stdout[-2000:]
    output = result.stdout
    found = {int(number): scores for number, scores in re.findall(r"^P-(\d+)\t(.*)$", output, re.MULTILINE)}
    return [[float(score) * math.log(2) for score in found[number].split()] for number in range(len(found))]


def words(lines: list[str]) -> list[list[str]]:
    return [line.split() for line in lines]


def scored(scorer: TranslationScorer) -> list[tuple[float, ...]]:
    return [score.log_probs for score in scorer.score_translations(words(TARGETS), words(SOURCES))]


@pytest.mark.parametrize("arch", SIZES)
def test_fairseq_gives_the_same_scores(folder, arch):
    path = folder / arch / "mt.pt"
    expected = of_fairseq(folder, [path])
    scorer = load_translation_models([path])
    for found, exact in zip(scored(scorer), expected, strict=True):
        assert found == pytest.approx(exact, abs=1e-4)
    one_by_one = [
        scorer.score_translations([target], [source])[0].log_probs for target, source in zip(words(TARGETS), words(SOURCES), strict=True)
    ]
    for found, alone in zip(scored(scorer), one_by_one, strict=True):
        assert found == pytest.approx(alone, abs=1e-4)
    [score] = scorer.score_translations([["la", "unheard-of"]], [["ba"]])
    assert score.oov == (False, True)


def test_an_ensemble_averages_probabilities_as_fairseq_does(folder):
    paths = [folder / "transformer" / "mt.pt", folder / "second" / "mt.pt"]
    for found, exact in zip(scored(load_translation_models(paths)), of_fairseq(folder, paths), strict=True):
        assert found == pytest.approx(exact, abs=1e-4)
    only = scored(load_translation_models(paths, weights=[1.0, 0.0]))
    for found, exact in zip(only, of_fairseq(folder, paths[:1]), strict=True):
        assert found == pytest.approx(exact, abs=1e-4)


def test_right_to_left_scores_the_reversed_hypothesis(folder):
    path = folder / "transformer" / "mt.pt"
    for found, exact in zip(
        scored(load_translation_models([path], direction="right-to-left")), of_fairseq(folder, [path], "backwards"), strict=True
    ):
        assert found == pytest.approx([*exact[-2::-1], exact[-1]], abs=1e-4)


def test_reverse_scores_the_source_given_the_hypothesis(folder):
    path = folder / "back" / "mt.pt"
    expected = of_fairseq(folder, [path], pair="yx")
    scores = load_translation_models([path], direction="reverse").score_translations(words(TARGETS), words(SOURCES))
    for score, exact, target in zip(scores, expected, TARGETS, strict=True):
        assert score.total == pytest.approx(sum(exact), abs=1e-4 * len(exact))  # each is printed with 4 digits
        assert score.log_probs[:-1] == (0.0,) * len(target.split())
        assert score.oov == tuple(word == "unheard-of" for word in target.split())


def test_each_source_is_encoded_once_and_little_memory_changes_nothing(folder, monkeypatch):
    scorer = load_translation_models([folder / "transformer" / "mt.pt"])
    targets, sources = words(TARGETS * 4), [source for source in words(SOURCES[:2]) for _ in range(10)]
    encoded = []
    [model] = scorer.model.models
    forward = model.encoder.forward
    monkeypatch.setattr(model.encoder, "forward", lambda tokens, **lengths: encoded.append(len(tokens)) or forward(tokens, **lengths))
    expected = [score.total for score in scorer.score_translations(targets, sources)]
    assert encoded == [2]
    small = TranslationScorer(scorer.model, compute=DeviceConfig(memory=4 * 12 * scorer.model.layer_size * 40))
    assert [score.total for score in small.score_translations(targets, sources)] == pytest.approx(expected, abs=1e-5)
    assert len(encoded) > 3


def test_bfloat16_states_its_deviation(folder):
    low = load_translation_models([folder / "transformer" / "mt.pt"], "low", compute=DeviceConfig(precision="bfloat16"))
    exact = scored(load_translation_models([folder / "transformer" / "mt.pt"]))
    for found, values in zip(scored(low), exact, strict=True):
        assert sum(found) == pytest.approx(sum(values), abs=0.5)
    assert "differs from float32" in low.notes()[0]


def test_mixtures_and_policies_hand_the_sources_on(folder, tmp_path):
    forward = load_translation_models([folder / "transformer" / "mt.pt"], "forward")
    other = load_translation_models([folder / "second" / "mt.pt"], "other")
    mixture = with_policy(MixtureScorer([forward, other], [1.0, 3.0]), OOVPolicy("penalty", -7.0))
    assert mixture.uses_source
    for found, one, two, target in zip(scored(mixture), scored(forward), scored(other), TARGETS, strict=True):
        for value, first, second, word in zip(found, one, two, [*target.split(), "</s>"], strict=True):
            mixed = math.log(0.25 * math.exp(first) + 0.75 * math.exp(second))
            assert value == pytest.approx(-7.0 if word == "unheard-of" else mixed, abs=1e-5)
    right = load_translation_models([folder / "transformer" / "mt.pt"], "right", "right-to-left")
    for member in (right, with_policy(right, OOVPolicy("spread", 1000.0)), with_window(right, 0)):
        with pytest.raises(InputError, match="right is a masked LM or a translation model that does not read from left to right"):
            MixtureScorer([member], [1.0])
    with pytest.raises(InputError, match="give --source FILE"):
        forward.score([["la"]])


@pytest.fixture
def lists(folder, tmp_path, monkeypatch) -> list[dict]:
    """Lists in the current folder, the best hypothesis by the forward model last; LMs by relative names."""
    monkeypatch.chdir(tmp_path)
    for name in ("transformer", "second", "back"):
        Path(name).symlink_to(folder / name)
    Path("source").write_text("\n".join(SOURCES) + "\n")
    write_arpa(Path("lm.arpa"), TARGET_WORDS)
    found = [
        {"id": str(number), "ref": target, "hyps": [{"text": text, "scores": {"d": -0.1 * place}} for place, text in enumerate(TARGETS)]}
        for number, target in enumerate(TARGETS)
    ]
    Path("lists").write_text("".join(json.dumps(nbest) + "\n" for nbest in found))
    return found


MODELS = [
    *("--mt", "transformer/mt.pt", "--mt", "both=transformer/mt.pt:second/mt.pt", "--mt-right-to-left", "transformer/mt.pt"),
    *("--mt-reverse", "back/mt.pt"),
]


def test_lists_are_scored_with_the_source_of_each(folder, lists):
    weights = [option for name in ("mt", "both", "mt_right_to_left", "mt_reverse") for option in ("--weight", f"{name}=1")]
    run("rescore", "lists", *MODELS, *weights, "--source", "source", "-o", "out")
    written = [json.loads(line) for line in Path("out").read_text().splitlines()]
    forward = load_translation_models([folder / "transformer" / "mt.pt"])
    reverse = load_translation_models([folder / "back" / "mt.pt"], direction="reverse")
    for nbest, source in zip(written, SOURCES, strict=True):
        for hypothesis in nbest["hyps"]:
            for name, scorer in (("mt", forward), ("mt_reverse", reverse)):
                [score] = scorer.score_translations(words([hypothesis["text"]]), words([source]))
                assert hypothesis["scores"][name] == pytest.approx(score.total, abs=1e-4)
    run("rescore", "lists", *MODELS, *weights, "--source", "source", "-o", "again", "--devices", "cpu:2")
    assert Path("again").read_bytes() == Path("out").read_bytes()
    # lists that bring their own source, in fairseq's format and in jsonl
    Path("own").write_text("".join(json.dumps(nbest | {"source": source}) + "\n" for nbest, source in zip(lists, SOURCES, strict=True)))
    found = rescore("own", {"mt": LMSpec("mt", checkpoints=(folder / "transformer" / "mt.pt",), translation="forward")}, {"mt": 1.0})
    totals = {hypothesis.text: hypothesis.lm_scores["mt"] for hypothesis in found.lists[2].hypotheses}
    assert totals == pytest.approx({hypothesis["text"]: hypothesis["scores"]["mt"] for hypothesis in written[2]["hyps"]}, abs=1e-4)


def test_options_of_lms_leave_translation_models_as_they_are(lists):
    """What is for the words of the hypothesis is not for a model that scores the source, nor contexts for models without one."""
    back, source = ["--mt-reverse", "back/mt.pt"], ["--source", "source"]
    scores = []
    for options in ([], ["--oov", "penalty:-70"], ["--unigram-cache", "100:0.5"], ["--context-sentences", "0"]):
        lines = run("score", "source", "--kenlm", "lm.arpa", *back, *source, *options, "--no-header").stdout.splitlines()
        scores.append([line.split("\t")[3] for line in lines])
    assert scores[1:] == scores[:1] * 3
    assert "--oov mt_reverse=..: there is no LM" in refused("score", "source", *back, *source, "--oov", "mt_reverse=penalty:-7")
    for option, value in (("--unigram-cache", "mt=9:0.1"), ("--context-sentences", "mt=0")):
        told = refused("ppl", "source", "--mt", "transformer/mt.pt", *source, option, value)
        assert f"{option[2:].replace('-', '_')} is not for a translation model" in told
    told = refused("tune", "lists", "--mt", "transformer/mt.pt", "--mt-reverse", "transformer/mt.pt", *source)
    assert "mt and mt_reverse are one model in both directions of translation" in told
    assert "mt_reverse scores the source given the text" in refused("ppl", "source", *back, *source)
    assert "there is no LM that it is for" in refused("ppl", "source", "--kenlm", "lm.arpa", "--dict", "transformer")
    assert "there is no LM that it is for" in refused("score", "source", "--mt", "transformer/mt.pt", *source, "--dict", "lm.arpa")


def test_tune_writes_what_rescore_and_eval_read(lists):
    run("tune", "lists", *MODELS, "--source", "source", "--metric", "bleu", "--folds", "3", "--strength", "1", "-o", "attlm.toml")
    config = Path("attlm.toml").read_text()
    assert 'translation = "right-to-left"' in config
    run("rescore", "lists", "--source", "source", "-o", "out")
    run("eval", "lists", "--config", "attlm.toml", "--source", "source", "--metric", "bleu")
    assert "list '0' has no source sentence, which mt, both, mt_right_to_left, mt_reverse needs" in refused("rescore", "lists", "-o", "x")
    by_number = run("rescore", "lists", "--source", "source", "--source-by", "number")
    assert by_number.stdout == Path("out").read_text()


def test_text_is_scored_and_mixed_line_by_line(folder, lists):
    Path("text").write_text("\n".join(TARGETS) + "\n")
    found = run("score", "text", "--mt", "transformer/mt.pt", "--lm", "ngram=lm.arpa", "--source", "source", "--no-header").stdout
    column = found.splitlines()[0].count("\t") - 3  # mt and ngram, each a score and a count
    totals = {float(line.split("\t")[column]) for line in found.splitlines()}
    expected = [sum(values) for values in scored(load_translation_models([folder / "transformer" / "mt.pt"]))]
    assert len(totals) == len(expected)
    names = run("score", "text", "--mt", "transformer/mt.pt", "--source", "source").stdout.splitlines()
    assert names[0].split("\t") == ["line", "words", "mt", "mt_oov"]
    assert [float(line.split("\t")[2]) for line in names[1:]] == pytest.approx(expected, abs=1e-4)
    result = run("mix", "text", "--mt", "transformer/mt.pt", "--lm", "ngram=lm.arpa", "--source", "source", "--oov", "spread:10", "-o", "m")
    assert "mt\t" in result.stdout
    mixed = run("ppl", "text", "--config", "m", "--source", "source", "--json")
    assert json.loads(mixed.stdout)[0]["lm"] == "mix"
    assert "4 source sentences are fewer" in refused("score", "text", "--mt", "transformer/mt.pt", "--source", short("short", 4))
    assert "more than 5 source sentences" in refused("score", "text", "--mt", "transformer/mt.pt", "--source", short("long", 6))
    assert "give the source sentences with --source FILE" in refused("ppl", "text", "--mt", "transformer/mt.pt")
    assert "--source is for translation models" in refused("ppl", "text", "--lm", "lm.arpa", "--source", "source")
    lines = list(score_text(TARGETS, {"mt": load_translation_models([folder / "transformer" / "mt.pt"])}, source=SOURCES).lines)
    assert [line.scores[0].total for line in lines] == pytest.approx(expected, abs=1e-5)


def short(name: str, lines: int) -> str:
    Path(name).write_text("\n".join((SOURCES * 2)[:lines]) + "\n")
    return name


def test_languages_that_a_checkpoint_does_not_name_are_those_of_its_data_or_given(folder, lists):
    """fairseq-train finds them in the data folder if there are no -s and -t, and does not write them into the checkpoint."""
    Path("unnamed").mkdir()
    content = torch.load(folder / "transformer" / "mt.pt", weights_only=False)
    content["cfg"]["task"] |= {"source_lang": None, "target_lang": None, "data": "data-bin"}
    torch.save(content, "unnamed/mt.pt")
    arguments = ["rescore", "lists", "--mt", "unnamed/mt.pt", "--weight", "mt=1", "--source", "source"]
    assert "does not name its languages" in refused(*arguments)
    expected = run("rescore", "lists", "--mt", "transformer/mt.pt", "--weight", "mt=1", "--source", "source").stdout
    assert run(*arguments, "--languages", "mt=x:y", "--dict", "transformer").stdout == expected
    for place in ("data-bin", "unnamed"):
        Path(place).mkdir(exist_ok=True)
        for language in "xy":
            (Path(place) / f"dict.{language}.txt").write_bytes((folder / "transformer" / f"dict.{language}.txt").read_bytes())
            (Path(place) / f"train.x-y.{language}.idx").touch()
        assert run(*arguments).stdout == expected
        assert run(*arguments, "--dict", place).stdout == expected
        for file in Path(place).iterdir():
            file.rename(file.with_name(f"{file.name}.old")) if file.suffix != ".pt" else None
    told = refused("rescore", "lists", "--mt", "transformer/mt.pt", "--weight", "mt=1", "--source", "source", "--languages", "mt=y:x")
    assert "translates from x to y, --languages says y:x" in told


def test_source_sentences_have_text_steps_of_their_own(lists):
    Path("upper").write_text("\n".join(SOURCES).upper() + "\n")
    arguments = ["rescore", "lists", "--mt", "transformer/mt.pt", "--weight", "mt=1"]
    plain = run(*arguments, "--source", "source").stdout
    assert run(*arguments, "--source", "upper", "--source-text", "lowercase").stdout == plain
    assert run(*arguments, "--source", "upper", "--text", "mt=lowercase").stdout == plain  # by default those of the hypotheses
    told = run(*arguments, "--source", "upper")
    assert "WARNING: mt does not know 100.0% of the source's words" in told.stderr
    assert "there is no translation model" in refused("rescore", "lists", "--lm", "lm.arpa", "--source-text", "lowercase")


def test_what_is_no_translation_model_is_one_line(folder, lists, tmp_path):
    options = ["--source", "source", "--weight", "mt=1"]
    assert "is a translation model, not a language model; --mt takes it" in refused("score", "source", "--lm", "transformer/mt.pt")
    assert "there is no such file" in refused("rescore", "lists", "--mt", "nowhere.pt", *options)
    content = torch.load(folder / "transformer" / "mt.pt", weights_only=False)
    content["cfg"]["task"]["_name"] = "multilingual_translation"
    torch.save(content, "other.pt")
    assert "was trained with --task multilingual_translation" in refused("rescore", "lists", "--mt", "other.pt", *options)
    content["cfg"]["task"]["_name"] = "translation"
    torch.save(content, "bare.pt")
    assert "no dict.x.txt and dict.y.txt found" in refused("rescore", "lists", "--mt", "bare.pt", *options)
    run("rescore", "lists", "--mt", "bare.pt", "--dict", "transformer", *options)
    content["cfg"]["model"].encoder_layers = "__import__('pathlib').Path('mark').touch()"
    torch.save(content, "transformer-code.pt")
    assert "which fairseq could run" in refused("rescore", "lists", "--mt", "transformer-code.pt", "--dict", "transformer", *options)
    assert not Path("mark").exists()
    Path("transformer-long").write_text(" ".join(SOURCE_WORDS * 2) + "\n" + "\n".join(SOURCES[1:]) + "\n")
    long = refused("rescore", "lists", "--mt", "transformer/mt.pt", "--source", "transformer-long", "--weight", "mt=1")
    assert "on the model's source side has 41 tokens with its end, the model takes at most 30" in long
