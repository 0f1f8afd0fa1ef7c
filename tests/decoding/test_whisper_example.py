"""The worked example for Whisper: random weights, noise, and language models that decide what is heard."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from lm_files import write_arpa

ROOT = Path(__file__).parents[2]
WORDS = ["the", "cat", "sat", "on", "mat", "dog", "a", "ran"]


def test_language_models_decide_what_noise_says(tmp_path):
    arguments = ["--lm", f"{write_arpa(tmp_path / 'lm.arpa', WORDS)}=3", "--max-tokens", "14"]
    result = subprocess.run(
        [sys.executable, ROOT / "examples" / "decoding" / "whisper" / "decode.py", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert result.returncode == 0, result.stderr[-3000:]
    lines = [line.split("\t") for line in result.stdout.splitlines()]
    assert [name for name, _ in lines] == ["alone", "alone", "with language models", "with language models"]
    for _, text in lines[2:]:
        *whole, last = text.split()  # the last one may be cut short
        assert whole
        assert set(whole) <= set(WORDS)
        assert any(word.startswith(last) for word in WORDS)
    assert any(not set(text.split()) <= set(WORDS) for _, text in lines[:2])
