"""The CTC example: its channel, its decoders on a small text, and its run.sh with stand-ins for the programs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from lm_files import write_checkpoint
from toy_lms import write_arpa

from attlm_fairseq.decoding.log_linear_lm import LogLinearLM

FOLDER = Path(__file__).parents[2] / "examples" / "decoding" / "ctc"
WORDS = ["a", "cat", "dog", "it's", "sat", "sees", "the"]
SENTENCES = ["the cat sees a dog", "it's the dog", "a cat sat", "sees"]


@pytest.fixture(scope="module", autouse=True)
def modules():
    """Its scripts import each other by their bare names."""
    sys.path.insert(0, str(FOLDER))
    import decode
    import emissions

    yield emissions, decode
    sys.path.remove(str(FOLDER))
    del sys.modules["decode"], sys.modules["emissions"]


def test_emissions_are_seeded_probabilities(modules, tmp_path):
    emissions, _ = modules
    found = [emissions.emit(text, 0.26, np.random.default_rng(1)) for text in SENTENCES]
    for utterance, text in zip(found, SENTENCES, strict=True):
        assert utterance.log_probs.shape[1] == len(emissions.LABELS)
        assert len(utterance.log_probs) > len(text)
        np.testing.assert_allclose(np.exp(utterance.log_probs).sum(1), 1, atol=1e-5)
    assert np.array_equal(found[0].log_probs, emissions.emit(SENTENCES[0], 0.26, np.random.default_rng(1)).log_probs)
    assert not np.array_equal(found[0].log_probs[:20], emissions.emit(SENTENCES[0], 0.26, np.random.default_rng(2)).log_probs[:20])
    emissions.write(tmp_path / "e.npz", found)
    for utterance, read in zip(found, emissions.read(tmp_path / "e.npz"), strict=True):
        assert read.text == utterance.text
        assert np.array_equal(read.log_probs, utterance.log_probs)


def test_without_noise_every_decoder_finds_the_text(modules, tmp_path):
    emissions, decode = modules
    lms = LogLinearLM.load({write_checkpoint(tmp_path / "lm.pt", WORDS): 0.5, write_arpa(tmp_path / "lm.arpa", WORDS): 0.5})
    (tmp_path / "names.txt").write_text("it's\ncat sees\n")
    random = np.random.default_rng(3)
    utterances = [emissions.emit(text, 0.05, random) for text in SENTENCES]
    for found in (
        decode.greedy,
        decode.with_lexicon(LogLinearLM([]), WORDS, 0.0, 0.0),
        decode.with_lexicon(lms, WORDS, 0.3, 0.0),
        decode.without_lexicon(lms, WORDS, 0.3, 0.0),
        decode.without_lexicon(lms, WORDS, 0.3, 0.0, tmp_path / "names.txt"),
    ):
        hypotheses = [found(utterance.log_probs) for utterance in utterances]
        assert hypotheses == SENTENCES
        assert decode.error_rate(hypotheses, utterances) == 0.0
    assert decode.error_rate(["the cat sees", "", "a cat sat", "sees"], utterances) == pytest.approx(100 * 5 / 12)


STAND_IN = f"""#!/bin/sh
[ "$1" = -c ] && exec "{sys.executable}" "$@"
echo "$(basename "$0") $*" >> "$CALLS"
echo "what it found"
for file in train.txt test.txt dev.npz test.npz lm.arpa; do : > "$file"; done
mkdir -p data model
"""


def test_run_does_each_step_once(tmp_path):
    for name in ("python", "fairseq-preprocess", "fairseq-train", "attlm"):
        program = tmp_path / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(STAND_IN)
        program.chmod(0o755)
    (tmp_path / "decoding" / "ctc").mkdir(parents=True)
    shutil.copy(FOLDER / "run.sh", tmp_path / "decoding" / "ctc")
    shutil.copy(FOLDER.parents[1] / "steps.sh", tmp_path)
    calls = tmp_path / "calls"
    environment = os.environ | {"PATH": f"{tmp_path}/bin:/usr/bin:/bin", "CALLS": str(calls)}
    command = [shutil.which("bash"), str(tmp_path / "decoding" / "ctc" / "run.sh")]
    first, again = (subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout for _ in range(2))
    made = calls.read_text().splitlines()
    assert len(made) == 7
    assert all(call.removeprefix("python ") in first for call in made)
    assert "what it found" in first
    assert again.count("done before") == 8  # awk is the real one
    without = subprocess.run(command, env=environment | {"PATH": "/usr/bin:/bin"}, capture_output=True, text=True, check=False)
    assert without.returncode == 2
    assert "make install" in without.stderr
