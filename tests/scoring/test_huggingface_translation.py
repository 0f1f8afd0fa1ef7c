"""Encoder-decoder models of Hugging Face as scorers and correctors: transformers' own loss, all directions, commands, refused input."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

import pytest
import torch
from cli_runs import refused, run
from foreign_lms import write_bert, write_gpt2, write_marian, write_nllb, write_t5
from translation_files import SOURCE_WORDS, TARGET_WORDS

from attlm_fairseq import LMSpec, rescore
from attlm_fairseq.errors import InputError
from attlm_fairseq.nbest.corrections.corrector import BEAM, Corrector
from attlm_fairseq.scoring.compute import DeviceConfig
from attlm_fairseq.scoring.mixture import MixtureScorer
from attlm_fairseq.scoring.translation.translation_scorer import TranslationScorer, load_translation_models

pytest.importorskip("transformers")
RANDOM = random.Random(5)
SOURCES = [" ".join(RANDOM.choices(SOURCE_WORDS, k=length)) for length in (5, 3, 8, 1, 6)]
TARGETS = [" ".join(RANDOM.choices(TARGET_WORDS, k=length)) for length in (4, 6, 1, 7, 3)]
LANGUAGES = ("aaa_Latn", "bbb_Latn")
OPTIONS = {"marian": {}, "nllb": {"languages": "aaa_Latn:bbb_Latn"}, "t5": {"source_prefix": "translate x to y:"}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("huggingface-translation")
    write_marian(folder / "marian", [*SOURCES, *TARGETS])
    write_nllb(folder / "nllb", [*SOURCE_WORDS, *TARGET_WORDS], LANGUAGES)
    write_t5(folder / "t5", [*SOURCE_WORDS, *TARGET_WORDS])
    return folder


def of_transformers(path: Path, sources: list[str], targets: list[str]) -> list[float]:
    """ln p of each target by transformers' own loss, one sentence at a time; without what NLLB's mark of the language costs."""
    import transformers

    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(path).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(path)
    marks = 0
    if path.name == "nllb":
        tokenizer.src_lang, tokenizer.tgt_lang = LANGUAGES
        marks = 1
    found = []
    for source, target in zip(sources, targets, strict=True):
        read = tokenizer(f"{OPTIONS[path.name].get('source_prefix', '')} {source}".strip(), return_tensors="pt")
        labels = tokenizer(text_target=target, return_tensors="pt")["input_ids"]
        labels[:, :marks] = -100  # what transformers' loss leaves out
        start = torch.tensor([[model.generation_config.decoder_start_token_id]])
        before = torch.cat([start, tokenizer(text_target=target, return_tensors="pt")["input_ids"][:, :-1]], dim=1)
        with torch.inference_mode():
            loss = model(**read, labels=labels, decoder_input_ids=before).loss
        found.append(-float(loss) * (labels.numel() - marks))
    return found


def words(lines: list[str]) -> list[list[str]]:
    return [line.split() for line in lines]


def totals(scorer: TranslationScorer, sources: list[str] = SOURCES, targets: list[str] = TARGETS) -> list[float]:
    return [score.total for score in scorer.score_translations(words(targets), words(sources))]


@pytest.mark.parametrize("kind", OPTIONS)
def test_transformers_gives_the_same_scores(folder, kind):
    path = folder / kind
    expected = of_transformers(path, SOURCES, TARGETS)
    assert max(expected) - min(expected) > 1
    load = load_translation_models
    assert totals(load([path], **OPTIONS[kind])) == pytest.approx(expected, abs=1e-4)
    small = DeviceConfig(memory=4 * 3 * 60 * 200)
    assert totals(load([path], **OPTIONS[kind], compute=small)) == pytest.approx(expected, abs=1e-4)
    backwards = of_transformers(path, SOURCES, [" ".join(target.split()[::-1]) for target in TARGETS])
    assert totals(load([path], direction="right-to-left", **OPTIONS[kind])) == pytest.approx(backwards, abs=1e-4)
    reverse = load([path], direction="reverse", **OPTIONS[kind])
    assert totals(reverse, sources=TARGETS, targets=SOURCES) == pytest.approx(expected, abs=1e-4)


def test_words_with_unknown_pieces_are_counted_and_scores_stand_at_the_end(folder):
    scorer = load_translation_models([folder / "marian"])
    [score] = scorer.score_translations([["la", "ΩΩ", "me"]], [["ba"]])
    assert score.oov == (False, True, False)
    assert score.log_probs[:-1] == (0.0, 0.0, 0.0)
    with pytest.raises(InputError, match="does not read from left to right"):
        MixtureScorer([scorer], [1.0])
    totals(scorer, sources=["Ω Ω"] * 5)
    assert "WARNING: mt does not know" in scorer.notes()[0]
    low = load_translation_models([folder / "marian"], "low", compute=DeviceConfig(precision="bfloat16"))
    assert totals(low) == pytest.approx(totals(scorer), abs=1.0)
    assert "differs from float32" in low.notes()[0]


def test_a_word_that_looks_like_a_mark_of_a_language_is_scored(folder):
    """Only the mark that the tokenizer adds is given: the same token within a hypothesis costs what the model gives it."""
    scorer = load_translation_models([folder / "nllb"], **OPTIONS["nllb"])
    with_mark = "la bbb_Latn me"
    [expected] = of_transformers(folder / "nllb", SOURCES[:1], [with_mark])
    assert totals(scorer, sources=SOURCES[:1], targets=[with_mark]) == pytest.approx([expected], abs=1e-4)


def test_each_source_is_encoded_once(folder, monkeypatch):
    scorer = load_translation_models([folder / "marian"])
    encoder = scorer.model.model.get_encoder()
    encoded, forward = [], encoder.forward
    monkeypatch.setattr(encoder, "forward", lambda **read: encoded.append(len(read["input_ids"])) or forward(**read))
    totals(scorer, sources=[SOURCES[0]] * 3 + [SOURCES[1]] * 2)
    assert encoded == [2]


@pytest.fixture
def lists(folder, tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for kind in OPTIONS:
        Path(kind).symlink_to(folder / kind)
    Path("source").write_text("\n".join(SOURCES) + "\n")
    found = [
        {"id": str(number), "ref": target, "hyps": [{"text": text, "scores": {"d": -0.1 * place}} for place, text in enumerate(TARGETS)]}
        for number, target in enumerate(TARGETS)
    ]
    Path("lists").write_text("".join(json.dumps(nbest) + "\n" for nbest in found))
    return Path("lists")


MODELS = [
    *("--mt", "opus=marian", "--mt-reverse", "back=nllb", "--languages", "back=bbb_Latn:aaa_Latn"),
    *("--mt", "t5", "--source-prefix", "mt=translate x to y:", "--source", "source"),
]


def test_the_commands_take_folders_and_keep_their_options(folder, lists):
    run("tune", lists, *MODELS, "--metric", "bleu", "--folds", "3", "--strength", "1", "-o", "attlm.toml")
    config = Path("attlm.toml").read_text()
    assert 'languages = "bbb_Latn:aaa_Latn"' in config
    assert 'source_prefix = "translate x to y:"' in config
    run("rescore", lists, "--source", "source", "-o", "out")
    written = [json.loads(line) for line in Path("out").read_text().splitlines()]
    for nbest, source in zip(written, SOURCES, strict=True):
        texts = [hypothesis["text"] for hypothesis in nbest["hyps"]]
        for name, kind in (("opus", "marian"), ("mt", "t5")):
            found = [hypothesis["scores"][name] for hypothesis in nbest["hyps"]]
            assert found == pytest.approx(of_transformers(folder / kind, [source] * len(texts), texts), abs=1e-3)
    run("rescore", lists, "--source", "source", "-o", "again", "--devices", "cpu:2")
    assert Path("again").read_bytes() == Path("out").read_bytes()
    spec = LMSpec("opus", checkpoints=(folder / "marian",), translation="forward")
    lines = [json.loads(line) | {"source": source} for line, source in zip(lists.read_text().splitlines(), SOURCES, strict=True)]
    Path("own").write_text("".join(json.dumps(line) + "\n" for line in lines))
    scores = {hyp.text: hyp.lm_scores["opus"] for hyp in rescore("own", {"opus": spec}, {"opus": 1.0}).lists[0].hypotheses}
    assert scores == pytest.approx({hyp["text"]: hyp["scores"]["opus"] for hyp in written[0]["hyps"]}, abs=1e-3)


def test_a_corrector_may_be_a_model_of_hugging_face(folder, lists, monkeypatch):
    import transformers

    corrector = Corrector.load(folder / "marian")
    found = corrector.candidates(SOURCES)
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder / "marian").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder / "marian")
    own = model.generate(**tokenizer(SOURCES[0], return_tensors="pt"), num_beams=BEAM, num_return_sequences=BEAM, max_new_tokens=63)
    expected = [text.strip() for text in tokenizer.batch_decode(own, skip_special_tokens=True)]
    searched = corrector.scorer.candidates(words(SOURCES[:1]), BEAM, 200)[0]
    assert searched == [text for text, ids in zip(expected, own.tolist(), strict=True) if 1 not in ids]
    assert any(found)
    assert found == [corrector.candidates([source])[0] for source in SOURCES]
    run("tune", lists, "--corrector", "marian", "--folds", "3", "-o", "attlm.toml")
    assert 'corrector = "marian"' in Path("attlm.toml").read_text()
    monkeypatch.setattr(corrector.scorer.model, "searched", lambda *arguments: [["la", "la me " * 40]])
    assert corrector.scorer.candidates([["ba"]], BEAM, 200) == [["la"]]  # the other is too long to be scored


def test_a_beam_that_has_not_ended_is_no_candidate(folder):
    scorer = load_translation_models([folder / "marian"])
    model, bias = scorer.model.model, scorer.model.model.final_logits_bias
    assert any(scorer.candidates([["ba"]], BEAM, 3))
    short, long = ["ba"], ["ba"] * 14
    assert scorer.candidates([long, short], BEAM, 3)[1] == scorer.candidates([short], BEAM, 3)[0]
    with torch.no_grad():
        bias[0, scorer.model.tokenizer.eos_token_id] = -1e4  # no text ends
    assert model.generation_config.forced_eos_token_id == 0  # which would end all of them
    assert scorer.candidates([["ba"]], BEAM, 3) == [[]]


def test_half_a_surrogate_pair_is_an_unknown_character(folder):
    scorer = load_translation_models([folder / "marian"])
    [found] = scorer.score_translations([["la", "\ud83d"]], [["ba", "\ud83d"]])
    [other] = scorer.score_translations([["la", "\ufffd"]], [["ba", "\ufffd"]])
    assert found == other


@pytest.mark.parametrize(("kind", "option"), [("nllb", "languages"), ("t5", "prefix")])
def test_a_corrector_has_languages_or_a_prefix(folder, lists, kind, option):
    [value] = OPTIONS[kind].values()
    given = ["--corrector", folder / kind, f"--corrector-{option}", value]
    run("rescore", lists, *given, "--weight", "corrector=1", "-o", "out")
    for line, before in zip(Path("out").read_text().splitlines(), lists.read_text().splitlines(), strict=True):
        first = json.loads(before)["hyps"][0]["text"]
        found = {hypothesis["text"]: hypothesis["scores"]["corrector"] for hypothesis in json.loads(line)["hyps"]}
        assert list(found.values()) == pytest.approx(of_transformers(folder / kind, [first] * len(found), list(found)), abs=1e-3)
    run("tune", lists, *given, "--folds", "3", "-o", "attlm.toml")
    assert f'corrector_{option} = "{value}"' in Path("attlm.toml").read_text()
    run("rescore", lists, "--corrector", folder / "marian", "-o", "out")  # which those options of attlm.toml are not for
    Path("attlm.toml").unlink()
    assert f"corrector_{option} is for a corrector" in refused("rescore", lists, *given[2:])


def test_several_target_languages_need_a_prefix(lists):
    write_marian(Path("many"), [*SOURCES, *TARGETS], targets=("fra", "ita"))
    weight = ["--weight", "mt=1", "--source", "source"]
    assert "WARNING: mt translates into several languages (>>fra<<, >>ita<<)" in run("rescore", lists, "--mt", "many", *weight).stderr
    chosen = run("rescore", lists, "--mt", "many", *weight, "--source-prefix", ">>ita<<")
    assert "several languages" not in chosen.stderr
    assert chosen.stdout != run("rescore", lists, "--mt", "many", *weight, "--source-prefix", ">>fra<<").stdout


def test_what_does_not_fit_is_one_line(folder, lists):
    write_gpt2(Path("gpt2"))
    write_bert(Path("bert"))
    options = ["--source", "source", "--weight", "mt=1"]

    def told(*given: str) -> str:
        return refused("rescore", lists, *given, *options)

    assert "is GPT2LMHeadModel, expected an encoder-decoder model" in told("--mt", "gpt2")
    assert "is BertForMaskedLM, expected an encoder-decoder model" in told("--mt", "bert")
    assert "is MarianMTModel, expected an LM; --mt takes translation models" in refused("score", "source", "--lm", "marian")
    assert "give --languages SOURCE:TARGET" in told("--mt", "nllb")
    piece = "does not know the language 'l'"  # a piece of words
    assert piece in told("--mt", "nllb", "--languages", "aaa_Latn:l")
    assert "does not know the language 'ccc_Latn'" in told("--mt", "nllb", "--languages", "aaa_Latn:ccc_Latn")
    assert "languages is 'aaa', expected SOURCE:TARGET" in told("--mt", "nllb", "--languages", "aaa")
    assert "its tokenizer has no languages" in told("--mt", "marian", "--languages", "x:y")
    assert "nowhere.pt: there is no such file" in told("--mt", "nowhere.pt", "--languages", "x:y")
    assert "there is no translation model of Hugging Face" in told("--lm", "mt=gpt2", "--source-prefix", "a")
    Path("file.pt").write_bytes(b"PK")
    assert "there is no translation model of Hugging Face" in told("--mt", "file.pt", "--languages", "x:y")
    assert "source_prefix is for translation models of Hugging Face" in told("--mt", "file.pt", "--source-prefix", "mt=x")
    assert "an ensemble takes checkpoints of fairseq" in told("--mt", "marian:t5")
    assert "oov is not for a translation model that cuts words into pieces" in told("--mt", "marian", "--oov", "mt=penalty:-9")
    assert "takes at most 64" in refused("score", long_lines(), "--mt", "marian", "--source", "source", "--text", "")
    Path("pickled").mkdir()
    for name in ("config.json", "vocab.json", "source.spm", "target.spm", "tokenizer_config.json"):
        shutil.copy(folder / "marian" / name, Path("pickled") / name)
    Path("pickled/pytorch_model.bin").write_bytes(b"\x80")
    assert "its weights are pickled" in told("--mt", "pickled")


def long_lines() -> str:
    Path("long").write_text((" ".join(TARGET_WORDS * 9) + "\n") * len(SOURCES))
    return "long"
