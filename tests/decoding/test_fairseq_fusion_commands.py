"""fairseq-generate and fairseq-interactive with language models, as a user runs them."""

from __future__ import annotations

import random
import re
import subprocess
from argparse import Namespace
from pathlib import Path

import pytest
import torch
from fairseq_programs import programs
from lm_files import write_arpa, write_checkpoint

ROOT = Path(__file__).parents[2]
USER_DIR = ["--user-dir", str(ROOT / "attlm_fairseq")]
WORDS = [f"w{number}" for number in range(20)]
DECODING = ["--beam", "3", "--nbest", "3", "--max-len-b", "9", "--cpu", "--path", "mt.pt", "-s", "x", "-t", "y"]


def fairseq(folder: Path, command: str, *arguments: object, stdin: str | None = None, code: int = 0) -> str:
    """What the command prints on both outputs."""
    program = programs() / f"fairseq-{command}"
    result = subprocess.run(
        [program, *map(str, arguments)],
        cwd=folder,
        input=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=300,
    )
    assert result.returncode == code, result.stdout[-5000:]
    return result.stdout


def hypotheses(output: str) -> dict[str, list[tuple[str, float]]]:
    """Texts and scores of the H-lines by sentence."""
    found: dict[str, list[tuple[str, float]]] = {}
    for number, score, text in re.findall(r"^H-(\d+)\t(\S+)\t(.*)$", output, re.MULTILINE):
        found.setdefault(number, []).append((text, float(score)))
    return found


def assert_same(found: str, expected: str) -> None:
    """Sentence for sentence; fairseq's own output lacks the last of 17, in a batch that is not a multiple of 8."""
    found, expected = hypotheses(found), hypotheses(expected)
    assert len(found) == 17
    assert len(expected) == 16
    assert found.keys() > expected.keys()
    for number, of_sentence in expected.items():
        assert [text for text, _ in found[number]] == [text for text, _ in of_sentence]
        assert [score for _, score in found[number]] == pytest.approx([score for _, score in of_sentence], abs=1e-4)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Parallel data of 17 sentences, a random translation model as fairseq-train saves it, and LMs with the target's dictionary."""
    from fairseq.data import Dictionary
    from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY

    folder = tmp_path_factory.mktemp("fusion")
    random_ = random.Random(1)
    lines = [" ".join(random_.choices(WORDS, k=random_.randint(2, 7))) for _ in range(16)] + [" ".join(WORDS)]
    for language in "xy":
        (folder / f"test.{language}").write_text("\n".join(lines) + "\n")
    fairseq(folder, "preprocess", "-s", "x", "-t", "y", "--testpref", "test", "--trainpref", "test", "--destdir", "data")
    dictionary = Dictionary.load(str(folder / "data" / "dict.y.txt"))
    sizes = {
        f"{side}_{what}": 16 for side in ("encoder", "decoder") for what in ("embed_dim", "ffn_embed_dim", "layers", "attention_heads")
    }
    sizes |= {name: 1 for name in sizes if name.endswith("layers")} | {name: 2 for name in sizes if name.endswith("heads")}
    arguments = Namespace(arch="transformer", task="translation", data="data", source_lang="x", target_lang="y", **sizes)
    arguments.max_source_positions = arguments.max_target_positions = 100
    ARCH_CONFIG_REGISTRY["transformer"](arguments)
    task = Namespace(source_dictionary=dictionary, target_dictionary=dictionary)
    torch.manual_seed(1)
    model = ARCH_MODEL_REGISTRY["transformer"].build_model(arguments, task)
    with torch.no_grad():
        model.decoder.output_projection.weight.normal_(0, 0.7)
    history = [{"num_updates": 1, "optimizer_name": "FairseqNAG", "lr_scheduler_state": {}}]
    extra = {"train_iterator": {"epoch": 2, "iterations_in_epoch": 0}}
    content = {"args": arguments, "model": model.state_dict(), "optimizer_history": history, "extra_state": extra}
    torch.save(content, folder / "mt.pt")
    words = dictionary.symbols[4:]
    write_checkpoint(folder / "lm" / "lm.pt", words, _name="attentive_lstm_lm", attention_score="combined")
    write_checkpoint(folder / "shuffled" / "lm.pt", words[::-1])
    write_arpa(folder / "lm.arpa", words)
    return folder


@pytest.fixture(scope="module")
def with_lm_path(folder) -> str:
    """What fairseq itself decodes with --lm-path: it wants the LM's dictionary in the translation data."""
    dictionary = folder / "data" / "dict.txt"
    dictionary.write_bytes((folder / "lm" / "dict.txt").read_bytes())
    try:
        return fairseq(
            folder, "generate", "data", "--task", "translation", *USER_DIR, *DECODING, "--lm-path", "lm/lm.pt", "--lm-weight", 0.6
        )
    finally:
        dictionary.unlink()


def test_generate_gives_the_output_of_lm_path(folder, with_lm_path):
    """Without a dict.txt in the translation data: the LM's own is used."""
    output = fairseq(
        folder, "generate", "data", "--task", "translation_with_lm", *USER_DIR, *DECODING, "--lms", "lm/lm.pt=0.6", "--lm-compare"
    )
    assert_same(output, with_lm_path)
    report = [line for line in output.splitlines() if line.startswith("attlm: language models:")]
    assert len(report) == 2
    assert "lm.pt (weight 0.6) -" in report[0]
    assert re.search(r"first in \d+ of 17 sentences \(.*%\); the best one differs from decoding without them in \d+ of 17", report[1])


def test_generate_prefers_phrases(folder):
    (folder / "names.txt").write_text("W3 w1\nunheard of\n")
    command = ["generate", "data", "--task", "translation_with_lm", *USER_DIR, *DECODING, "--lm-compare"]
    output, plain = fairseq(folder, *command, "--phrases", "names.txt=40"), fairseq(folder, *command)
    with_phrase, without = (sum(f"{of[0][0]} ".count("w3 w1 ") for of in hypotheses(text).values()) for text in (output, plain))
    assert with_phrase >= 17 > without
    assert "WARNING: names.txt: the decoder's tokens cannot spell 1 of 2 phrases: unheard of" in output
    report = [line for line in output.splitlines() if line.startswith("attlm: language models:")]
    assert re.search(r"the score of phrases in names.txt \(weight 40\) 0\.\d", report[0])
    assert re.search(r"the best one differs from decoding without them in \d+ of 17", report[1])


def test_interactive_follows_lm_path(folder, with_lm_path):
    text = (folder / "test.x").read_text()
    options = ["--lm-path", "lm/lm.pt", "--lm-weight", 0.6, "--buffer-size", 20, "--batch-size", 20]
    output = fairseq(folder, "interactive", "data", "--task", "translation_with_lm", *USER_DIR, *DECODING, *options, stdin=text)
    assert_same(output, with_lm_path)
    assert re.search(r"first in \d+ of 17 sentences", output)


def test_an_lm_of_another_dictionary_is_one_line(folder):
    output = fairseq(
        folder, "interactive", "data", "--task", "translation_with_lm", *USER_DIR, *DECODING, "--lms", "lm.arpa=0.2:shuffled/lm.pt=0.6",
        stdin="w1 w2\n", code=2,
    )  # fmt: skip
    [line] = [line for line in output.splitlines() if line.startswith("attlm: error:")]
    assert "shuffled/lm.pt: its dictionary has" in line
    assert "--lm-map-symbols" in line
    assert "Traceback" not in output


def test_a_model_trained_with_bleu_is_resumed_and_decoded(folder):
    """fairseq keeps the counts of BLEU in the checkpoint, as numpy's arrays."""
    sizes = [f"--{side}-{what}=8" for side in ("encoder", "decoder") for what in ("embed-dim", "hidden-size")]
    training = [
        "--arch", "lstm", *sizes, "--decoder-out-embed-dim=8", "--optimizer", "sgd", "--lr", 0.1, "--batch-size", 8, "--cpu",
        "--distributed-world-size", 1, "--num-workers", 0, "--valid-subset", "test", "--no-epoch-checkpoints", "--save-dir", "bleu",
        "--eval-bleu", "--eval-bleu-args", '{"beam": 1, "max_len_b": 5}',
    ]  # fmt: skip
    task = ["--task", "translation_with_lm", *USER_DIR, "-s", "x", "-t", "y"]
    fairseq(folder, "train", "data", *task, *training, "--max-epoch", 1)
    content = torch.load(folder / "bleu" / "checkpoint_last.pt", weights_only=False)
    meters = {name: state for _, name, _, state in content["extra_state"]["metrics"]["valid"]}
    assert len(meters["_bleu_counts"]["sum"]) == 4
    resumed = fairseq(folder, "train", "data", *task, *training, "--max-epoch", 2)
    assert "Loaded checkpoint bleu/checkpoint_last.pt (epoch 2 @ " in resumed
    decoding = [*task, "--path", "bleu/checkpoint_last.pt", "--max-len-b", 9, "--cpu", "--lms", "lm/lm.pt=0.6"]
    assert len(hypotheses(fairseq(folder, "generate", "data", *decoding))) == 17
