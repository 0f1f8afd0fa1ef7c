"""Rescoring and a decoder's steps on a device, each precision, single and combined attention (2 x 650, V = 10,000, random weights).

Rescoring: lists of 50 hypotheses that share prefixes as real ones do; words a second after one list that warms up, and peak memory.
Decoding: microseconds for a step of a batch of hypotheses.

    python benchmarks/gpu_scoring.py [--device cuda] [--lists 20] [--precisions float32,bfloat16]
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable
from pathlib import Path

import torch

from attlm_fairseq.checkpoints.reading import TrainedModel
from attlm_fairseq.checkpoints.vocabulary import PAD, SPECIAL_SYMBOLS, Vocabulary
from attlm_fairseq.decoding.decoder_lm import DecoderLM
from attlm_fairseq.modules.families import build_language_model
from attlm_fairseq.scoring.compute import DeviceConfig
from attlm_fairseq.scoring.neural.neural_scorer import NeuralScorer

VOCABULARY, SIZE, WORDS, HYPOTHESES = 10_000, 650, 25, 50


def random_model(score: str, device: str) -> TrainedModel:
    torch.manual_seed(1)
    sizes = {"decoder_embed_dim": SIZE, "decoder_hidden_size": SIZE, "decoder_layers": 2, "output_layer": "tied"}
    options = {
        "dropout": 0.0,
        "dropout_in": None,
        "dropout_between": None,
        "dropout_out": None,
        "attention_score": score,
        "forget_bias": 1.0,
    }
    model = build_language_model("attentive_lstm_lm", {**sizes, **options}, 4 + VOCABULARY, PAD)
    model.initialise(0.05)
    symbols = [*SPECIAL_SYMBOLS, *(f"w{number}" for number in range(VOCABULARY))]
    return TrainedModel(model.to(device).eval(), Vocabulary(symbols), Path("random"), "attentive_lstm_lm", "")


def nbest_list(seed: int) -> list[list[str]]:
    """Return hypotheses that differ from one sentence in one to three words each."""
    draw = random.Random(seed)
    sentence = [f"w{draw.randrange(VOCABULARY)}" for _ in range(WORDS)]
    hypotheses = []
    for _ in range(HYPOTHESES):
        hypotheses.append(list(sentence))
        for place in draw.sample(range(WORDS), draw.randint(1, 3)):
            hypotheses[-1][place] = f"w{draw.randrange(VOCABULARY)}"
    return hypotheses


def seconds(call: Callable[[], object], device: str) -> float:
    """Return the seconds of wall time until the device has finished. ``peak`` is then the memory of this call."""
    if device.startswith("cuda"):
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
    began = time.perf_counter()
    call()
    if device.startswith("cuda"):
        torch.cuda.synchronize()
    return time.perf_counter() - began


def peak(device: str) -> str:
    return f"{torch.cuda.max_memory_allocated() / 2**20:,.0f} MiB at most" if device.startswith("cuda") else ""


def decoder_step(lm: DecoderLM, count: int, steps: int, device: str) -> float:
    """Return the median microseconds of a step of ``count`` hypotheses."""
    state = lm.step(lm.start(count), torch.full((count,), lm.eos))[1]
    rows, took = torch.arange(count - 1, -1, -1), []
    for number in range(steps):
        tokens = torch.randint(4, VOCABULARY, (count,), generator=torch.Generator().manual_seed(number))
        before = state
        took.append(seconds(lambda before=before, tokens=tokens: lm.step(lm.select(before, rows), tokens), device))
        state = lm.step(lm.select(before, rows), tokens)[1]
    return sorted(took)[steps // 2] * 1e6


@torch.no_grad()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", help="default %(default)s")
    parser.add_argument("--lists", type=int, default=20)
    parser.add_argument("--steps", type=int, default=20, help="number of decoder steps")
    parser.add_argument("--precisions", default="float32,bfloat16")
    options = parser.parse_args()
    sentences = [hypothesis for number in range(options.lists) for hypothesis in nbest_list(number)]
    words = sum(map(len, sentences))
    for score in ("single", "combined"):
        model = random_model(score, options.device)
        for precision in options.precisions.split(","):
            scorer = NeuralScorer([model], compute=DeviceConfig(device=options.device, precision=precision))
            scorer.score(nbest_list(-1))
            taken = seconds(lambda scorer=scorer: scorer.score(sentences), options.device)
            print(f"rescoring, {score}, {precision}: {words / taken:,.0f} words/s {peak(options.device)}", flush=True)
            lm = DecoderLM(model, precision)
            for count in (1, 20, 100):
                taken = decoder_step(lm, count, options.steps, options.device)
                print(f"decoding, {score}, {precision}, {count} hypotheses: {taken:,.0f} microseconds a step", flush=True)


if __name__ == "__main__":
    main()
