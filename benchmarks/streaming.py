#!/usr/bin/env python3
"""Peak memory of `attlm rescore` on a list and on one ten times larger, with KenLM and with a neural LM.

python benchmarks/streaming.py                                 # two or three minutes
python benchmarks/streaming.py --kenlm 100M,1G --neural 5M,50M   # long
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

import torch

from attlm_fairseq.checkpoints.vocabulary import PAD, SPECIAL_SYMBOLS
from attlm_fairseq.modules.families import build_language_model
from attlm_fairseq.scoring.ngrams.ngram_estimation import NgramOptions, estimate_ngram

ROOT = Path(__file__).parents[1]
WORDS = [f"w{rank}" for rank in range(1, 2001)]
OPTIONS = {
    "_name": "attentive_lstm_lm",
    "decoder_embed_dim": 128,
    "decoder_hidden_size": 128,
    "decoder_layers": 2,
    "output_layer": "tied",
    "attention_score": "single",
    **dict.fromkeys(("dropout", "dropout_in", "dropout_between", "dropout_out"), 0.0),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--kenlm", default="3M,30M", help="sizes of the lists for KenLM")
    parser.add_argument("--neural", default="2M,20M", help="sizes of the lists for a small neural LM")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        (work / "train.txt").write_text("".join(" ".join(WORDS[start::97]) + "\n" for start in range(97)), encoding="utf-8")
        estimate_ngram(str(work / "train.txt"), work / "lm.arpa", 2, NgramOptions(discount_fallback=True))
        write_checkpoint(work)
        print(f"{'':10}{'list':>8}{'peak MB':>9}{'seconds':>9}")
        for name, sizes, lm in (("KenLM", options.kenlm, ["--kenlm", "lm.arpa"]), ("neural", options.neural, ["--lm", "lm.pt"])):
            for size in sizes.split(","):
                with (work / "list").open("wb") as out:
                    generator = [sys.executable, ROOT / "tools" / "synthetic_nbest.py", "--size", size, "--words", "train.txt"]
                    subprocess.run(generator, stdout=out, check=True, cwd=work)
                peak, seconds = measured(["list", "-o", "out", *lm, "--weight", f"{lm[0][2:]}=1", "--memory", "128M"], work)
                print(f"{name:10}{size:>8}{peak / 1e6:9.0f}{seconds:9.1f}", flush=True)


# in a small process of its own: a child's peak begins with what its parent has, and torch is in this one
MEASURE = """
import resource, subprocess, sys
status = subprocess.run([sys.executable, "-m", "attlm_cli.main", "rescore", *sys.argv[1:]]).returncode
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024)
sys.exit(status)
"""


def measured(arguments: Sequence[str], work: Path) -> tuple[int, float]:
    """Peak resident bytes and wall-clock seconds of ``attlm rescore``."""
    begin = time.perf_counter()
    result = subprocess.run([sys.executable, "-c", MEASURE, *arguments], cwd=work, capture_output=True, text=True, check=False)
    if result.returncode:
        raise SystemExit(result.stderr)
    return int(result.stdout), time.perf_counter() - begin


def write_checkpoint(work: Path) -> None:
    """Write a neural LM of random weights as fairseq-train saves it."""
    torch.manual_seed(1)
    model = build_language_model("attentive_lstm_lm", OPTIONS, len(WORDS) + len(SPECIAL_SYMBOLS), PAD)
    (work / "dict.txt").write_text("".join(f"{word} 1\n" for word in WORDS), encoding="utf-8")
    weights = {f"decoder.model.{name}": value for name, value in model.state_dict().items()}
    torch.save({"args": None, "cfg": {"model": OPTIONS, "task": Namespace(data="")}, "model": weights}, work / "lm.pt")


if __name__ == "__main__":
    main()
