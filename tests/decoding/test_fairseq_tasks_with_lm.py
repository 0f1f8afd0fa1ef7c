"""Language models in fairseq's ``speech_to_text`` and ``translation_multi_simple_epoch``; language tags are not part of the text."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from fairseq_runs import ROOT, fairseq
from lm_files import write_arpa, write_checkpoint
from translation_models import BEAM, WORDS, make_model, make_sample, make_task

from attlm_fairseq.decoding.fairseq_lms import load_lm
from attlm_fairseq.errors import InputError
from attlm_fairseq.scoring.lm_files import load_lm_files
from attlm_fairseq.tasks import _lm_fusion

USER_DIR = ["--user-dir", ROOT / "attlm_fairseq"]
TRAINING = [
    "--optimizer", "adam", "--lr", 0.01, "--criterion", "label_smoothed_cross_entropy", "--max-epoch", 2, "--batch-size", 4, "--cpu",
    "--valid-subset", "test", "--num-workers", 0, "--no-epoch-checkpoints", "--encoder-layers", 1, "--decoder-layers", 1,
    "--encoder-embed-dim", 16, "--decoder-embed-dim", 16, "--encoder-ffn-embed-dim", 16, "--decoder-ffn-embed-dim", 16,
    "--encoder-attention-heads", 2, "--decoder-attention-heads", 2, "--disable-validation",
]  # fmt: skip
DECODING = ["--gen-subset", "test", "--beam", 3, "--max-len-b", 9, "--cpu", "--num-workers", 0, *USER_DIR]
SENTENCES = 17  # not a multiple of 8, which fairseq's batches are


def hypotheses(output: str) -> dict[int, tuple[str, float]]:
    """Text and score of each H-line by sentence."""
    return {int(number): (text, float(score)) for number, score, text in re.findall(r"^H-(\d+)\t(\S+)\t(.*)$", output, re.MULTILINE)}


def assert_same(found: dict[int, tuple[str, float]], expected: dict[int, tuple[str, float]]) -> None:
    """Compare with fairseq's own decoder, which may leave out the last sentence."""
    assert len(found) == SENTENCES
    assert len(expected) >= SENTENCES - 1
    for number, (text, score) in expected.items():
        assert found[number] == (text, pytest.approx(score, abs=1e-4))


def lm_part(output: str, name: str) -> float:
    """The mean ln p of a token that the report tells of a language model."""
    return float(re.search(rf"{re.escape(name)} \(weight [\d.]+\) (-[\d.]+)", output)[1])


def scored(path: Path, texts: list[str], tags: int = 0) -> float:
    """The mean ln p of a token, sentence ends included; ``tags`` further tokens of each sentence cost nothing."""
    scores = load_lm_files([path], "lm").score([text.split() for text in texts])
    return sum(score.total for score in scores) / sum(len(text.split()) + 1 + tags for text in texts)


@pytest.fixture(scope="module")
def lines() -> list[str]:
    random_ = random.Random(1)
    return [" ".join(random_.choices(WORDS, k=random_.randint(2, 7))) for _ in range(SENTENCES - 1)] + [" ".join(WORDS)]


# --- speech ---


def speech_data(folder: Path, lines: list[str], symbols: list[str], config: str = "") -> Path:
    """Features, manifests and configuration of ``speech_to_text``, and a dictionary."""
    folder.mkdir()
    generator = np.random.default_rng(1)
    rows = ["id\taudio\tn_frames\ttgt_text\tspeaker\ttgt_lang"]
    for number, line in enumerate(lines):
        np.save(folder / f"{number}.npy", generator.normal(size=(20 + number, 8)).astype(np.float32))
        rows.append(f"{number}\t{folder / f'{number}.npy'}\t{20 + number}\t{line}\tx\tde")
    for split in ("train", "test"):
        (folder / f"{split}.tsv").write_text("\n".join(rows) + "\n")
    (folder / "dict.txt").write_text("".join(f"{symbol} 1\n" for symbol in symbols))
    (folder / "config.yaml").write_text(f"vocab_filename: dict.txt\ninput_channels: 1\ninput_feat_per_channel: 8\n{config}")
    return folder


def train_speech(data: Path, *options: object) -> Path:
    arguments = ["--arch", "s2t_transformer_s", "--conv-channels", 8, "--max-tokens", 400, "--train-subset", "train", *TRAINING, *options]
    fairseq("train", data, "--task", "speech_to_text", "--save-dir", data / "asr", *arguments)
    return data / "asr" / "checkpoint_last.pt"


@pytest.fixture(scope="module")
def speech(tmp_path_factory, lines) -> Path:
    data = speech_data(tmp_path_factory.mktemp("speech") / "data", lines, WORDS)
    train_speech(data)
    write_checkpoint(data / "lm.pt", WORDS)
    (data / "dict.txt").write_text("".join(f"{word} 1\n" for word in WORDS))  # the LM's own is the same
    write_arpa(data / "lm.arpa", WORDS)
    return data


def decode_speech(data: Path, *options: object, task: str = "speech_to_text_with_lm", check: bool = True) -> str:
    # one at a time: padding changes what the convolutions of the model see at the end of an utterance
    path = data / "asr" / "checkpoint_last.pt"
    return fairseq("generate", data, "--task", task, "--path", path, *DECODING, "--batch-size", 1, *options, check=check).stdout


def test_speech_is_decoded_as_with_lm_path(speech):
    expected = hypotheses(decode_speech(speech, "--lm-path", speech / "lm.pt", "--lm-weight", 0.6, task="speech_to_text"))
    output = decode_speech(speech, "--lms", f"{speech / 'lm.pt'}=0.6", "--lm-compare")
    assert_same(hypotheses(output), expected)
    assert "the best one differs from decoding without them in" in output
    without = hypotheses(decode_speech(speech))
    assert_same(without, hypotheses(decode_speech(speech, task="speech_to_text")))
    assert without != hypotheses(output)


def test_speech_with_an_lm_of_another_dictionary_is_one_line(speech, tmp_path):
    other = write_checkpoint(tmp_path / "lm.pt", WORDS[::-1])
    output = decode_speech(speech, "--lms", f"{other}=0.6", check=False)
    [line] = [line for line in output.splitlines() if line.startswith("attlm: error:")]
    assert "its dictionary has" in line


def test_language_tags_of_speech_are_not_shown_to_the_lms(tmp_path, lines):
    data = speech_data(tmp_path / "data", lines, [*WORDS, "<lang:de>", "<lang:fr>"], "prepend_tgt_lang_tag: true\n")
    train_speech(data, "--ignore-prefix-size", 1)
    neural, ngram = write_checkpoint(tmp_path / "lm.pt", WORDS), write_arpa(tmp_path / "lm.arpa", WORDS)
    output = decode_speech(data, "--prefix-size", 1, "--lms", f"{neural}=0.6:{ngram}=0.3", "--lm-map-symbols")
    texts = [text for text, _ in hypotheses(output).values()]
    assert len(texts) == SENTENCES
    for path in (neural, ngram):
        assert lm_part(output, str(path)) == pytest.approx(scored(path, texts, tags=1), abs=1e-3)


# --- several languages ---


@pytest.fixture(scope="module")
def languages(tmp_path_factory, lines) -> Path:
    folder = tmp_path_factory.mktemp("languages")
    for language in "xy":
        (folder / f"test.{language}").write_text("\n".join(lines) + "\n")
    (folder / "dict.txt").write_text("".join(f"{word} 1\n" for word in WORDS))
    test, dictionary = folder / "test", folder / "dict.txt"
    preprocess = ["--trainpref", test, "--testpref", test, "--srcdict", dictionary, "--tgtdict", dictionary, "--destdir", folder / "data"]
    fairseq("preprocess", "-s", "x", "-t", "y", *preprocess)
    task = ["--task", "translation_multi_simple_epoch", "--lang-pairs", "x-y", "--decoder-langtok"]
    fairseq("train", folder / "data", *task, "--arch", "transformer", "--save-dir", folder / "mt", *TRAINING)
    write_checkpoint(folder / "lm" / "lm.pt", WORDS)
    write_arpa(folder / "lm.arpa", WORDS)
    return folder


def decode_languages(folder: Path, *options: object, task: str = "translation_multi_simple_epoch_with_lm") -> str:
    own = ["--task", task, "--lang-pairs", "x-y", "-s", "x", "-t", "y", "--decoder-langtok", "--path", folder / "mt" / "checkpoint_last.pt"]
    return fairseq("generate", folder / "data", *own, *DECODING, *options).stdout


def test_without_lms_languages_are_decoded_as_by_fairseq(languages):
    found = hypotheses(decode_languages(languages))
    assert_same(found, hypotheses(decode_languages(languages, task="translation_multi_simple_epoch")))


def test_the_language_token_is_not_shown_to_the_lms(languages):
    neural, ngram = languages / "lm" / "lm.pt", languages / "lm.arpa"
    output = decode_languages(languages, "--lms", f"{neural}=0.6:{ngram}=0.3", "--lm-map-symbols", "--lm-compare")
    texts = [text for text, _ in hypotheses(output).values()]
    assert len(texts) == SENTENCES
    assert texts != [text for text, _ in hypotheses(decode_languages(languages)).values()]
    for path in (neural, ngram):
        assert lm_part(output, str(path)) == pytest.approx(scored(path, texts, tags=1), abs=1e-3)
    assert re.search(r"differs from decoding without them in [1-9]\d* of 17", output)


# --- the generator ---


def decode_tagged(lms: str, tags: set[int] | None, first: int, seed: int) -> list[list[dict]]:
    """Hypotheses that begin with a forced symbol, which is a language tag if it is one of ``tags``."""
    task = make_task(lms=lms)
    extra = {"symbols_to_strip_from_output": tags}
    model = make_model(seed)
    generator = task.build_generator([model], SimpleNamespace(beam=BEAM, max_len_b=12), extra_gen_cls_kwargs=extra)
    prefix = torch.full((6, 1), first)
    return task.inference_step(generator, [model], make_sample(seed=seed), prefix_tokens=prefix)


@pytest.mark.parametrize("seed", range(2))
def test_scores_after_a_forced_tag_are_those_of_the_text_alone(tmp_path, seed):
    """The tag costs nothing, the words after it what they cost at the beginning of a sentence."""
    paths = [write_checkpoint(tmp_path / "lm.pt", WORDS), write_arpa(tmp_path / "lm.arpa", WORDS)]
    lms = f"{paths[0]}=0.6:{paths[1]}=0.3"
    symbols = make_task().target_dictionary
    for of_sentence in decode_tagged(lms, {5}, 5, seed):
        for hypothesis in of_sentence:
            tag, *words, end = hypothesis["tokens"].tolist()
            assert (tag, end) == (5, 2)
            for path, scores in zip(paths, hypothesis["lm_scores"].tolist(), strict=True):
                [expected] = load_lm_files([path], "lm").score([[symbols[word] for word in words]])
                assert scores == pytest.approx([0.0, *expected.log_probs], abs=1e-4)
    shown = decode_tagged(lms, None, 5, seed)  # the same symbol as a word
    assert all(hypothesis["lm_scores"][0][0] < 0 for of_sentence in shown for hypothesis in of_sentence)


@pytest.mark.parametrize("seed", range(2))
def test_few_tokens_of_kenlm_are_as_good_as_all_after_a_forced_tag(tmp_path, monkeypatch, seed):
    lms = f"{write_arpa(tmp_path / 'lm.arpa', WORDS)}=2"
    few = decode_tagged(lms, {5}, 5, seed)
    monkeypatch.setattr(_lm_fusion, "load_lm", lambda *given: replace(load_lm(*given), ngram=None))
    for found, expected in zip(few, decode_tagged(lms, {5}, 5, seed), strict=True):
        assert [row["tokens"].tolist() for row in found] == [row["tokens"].tolist() for row in expected]
        assert [row["score"].item() for row in found] == pytest.approx([row["score"].item() for row in expected], abs=1e-4)


def test_a_decoder_with_its_own_sentence_end_is_refused(tmp_path):
    task, path = make_task(lms=f"{write_arpa(tmp_path / 'lm.arpa', WORDS)}=0.3"), SimpleNamespace(beam=BEAM)
    with pytest.raises(InputError, match="the model ends its sentences with w3, language models with </s>"):
        task.build_generator([make_model()], path, extra_gen_cls_kwargs={"eos": 7})
