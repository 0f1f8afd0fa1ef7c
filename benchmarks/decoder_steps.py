#!/usr/bin/env python3
"""Measure the cost of a language model's step in a decoder, for every adapter, with float32, bfloat16 and int8 weights.

Microseconds of CPU time for each hypothesis and step, the lower quartile of the steps. Each step reads N histories that no one
has asked for before, as a beam does; flashlight-text and pyctcdecode ask for them one by one. With ``--lm``
and ``--text`` it also tells what the precision does to the perplexity; without them the weights are random.

    python benchmarks/decoder_steps.py [--hypotheses 1,5,20,100] [--lm checkpoint_best.pt --text valid.txt]
"""

from __future__ import annotations

import argparse
import math
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch

from attlm_fairseq.checkpoints.reading import TrainedModel, load_model
from attlm_fairseq.checkpoints.vocabulary import PAD, SPECIAL_SYMBOLS, Vocabulary
from attlm_fairseq.decoding.decoder_lm import DecoderLM
from attlm_fairseq.decoding.espnet import EspnetLM
from attlm_fairseq.decoding.fusion_lm import FusionLM
from attlm_fairseq.decoding.huggingface import FusionLogitsProcessor
from attlm_fairseq.decoding.log_linear_lm import LogLinearLM
from attlm_fairseq.decoding.look_ahead_word_lm import LookAheadWordLM
from attlm_fairseq.decoding.stateful_neural_lm import StatefulNeuralLM
from attlm_fairseq.decoding.token_fusion import TokenFusion
from attlm_fairseq.modules.families import build_language_model
from attlm_fairseq.modules.kernels.low_precision_steps import PRECISIONS

Step = Callable[[int], None]
"""One step of the beam, whose hypotheses take the words that the number of the step says."""


def random_model(words: int, size: int) -> TrainedModel:
    torch.manual_seed(1)
    sizes = {"decoder_embed_dim": size, "decoder_hidden_size": size, "decoder_layers": 2, "output_layer": "tied"}
    dropout = {"dropout": 0.0, "dropout_in": None, "dropout_between": None, "dropout_out": None}
    model = build_language_model("attentive_lstm_lm", {**sizes, **dropout, "attention_score": "single", "forget_bias": 1.0}, 4 + words, PAD)
    for weights in model.parameters():
        torch.nn.init.uniform_(weights, -0.1, 0.1)
    letters = [chr(ord("a") + number) for number in range(26)]
    spellings = ["".join(random.Random(number).choices(letters, k=3)) + f"{number}" for number in range(words)]
    return TrainedModel(model.eval(), Vocabulary([*SPECIAL_SYMBOLS, *spellings]), Path("random"), "attentive_lstm_lm", "")


def batched(lm: DecoderLM | FusionLM, count: int, tokens: Callable[[int], torch.Tensor]) -> Step:
    """Return a decoder that keeps its hypotheses as a batch, and moves them."""
    states = [lm.step(lm.start(count), torch.full((count,), lm.eos))[1]]
    rows = torch.arange(count - 1, -1, -1)

    def step(number: int) -> None:
        states[0] = lm.step(lm.select(states[0], rows), tokens(number))[1]

    return step


def one_by_one(lm: DecoderLM, count: int, tokens: Callable[[int], torch.Tensor]) -> Step:
    """flashlight-text and pyctcdecode: score after score of single histories."""
    by_history = StatefulNeuralLM(lm)
    histories = [by_history.start()] * count

    def step(number: int) -> None:
        for place, token in enumerate(tokens(number).tolist()):
            histories[place] = by_history.score(histories[place], token)[1]

    return step


def by_prefix(lm: EspnetLM, count: int, tokens: Callable[[int], torch.Tensor]) -> Step:
    """ESPnet's beam search."""
    states: list = [None] * count
    rows, x = torch.full((count, 1), lm.fusion.size - 1), torch.zeros(1)

    def step(number: int) -> None:
        nonlocal states, rows
        _, states = lm.batch_score(rows, states, x)
        rows = torch.cat((rows, tokens(number).unsqueeze(1)), dim=1)

    return step


def by_processor(fusion: TokenFusion, count: int, tokens: Callable[[int], torch.Tensor]) -> Step:
    """Return the logits processor of Hugging Face's generate; every row begins with one token that is not text."""
    processor = FusionLogitsProcessor(fusion, prompt_length=1)
    rows, scores = torch.zeros((count, 1), dtype=torch.int64), torch.zeros(count, fusion.size)

    def step(number: int) -> None:
        nonlocal rows
        processor(rows, scores)
        rows = torch.cat((rows, tokens(number).unsqueeze(1)), dim=1)

    return step


def measure(step: Step, count: int, steps: int) -> float:
    """Return the microseconds per hypothesis and step."""
    for number in range(2):
        step(number)
    took = []
    for number in range(2, 2 + steps):
        began = time.process_time()
        step(number)
        took.append(time.process_time() - began)
    return sorted(took)[len(took) // 4] / count * 1e6


def perplexities(trained: TrainedModel, text: Path) -> None:
    sentences = [trained.vocabulary.ids(line.split()) for line in text.read_text("utf-8").splitlines()]
    distinct = list(dict.fromkeys(map(tuple, sentences)))
    exact = None
    for precision in PRECISIONS:
        lm = DecoderLM(trained, precision)
        found: dict = {}
        for begin in range(0, len(distinct), 50):
            found |= lm.sentence_log_probs(distinct[begin : begin + 50])
        sums = [math.fsum(found[tuple(ids)]) for ids in sentences]
        exact = exact or sums
        events = sum(len(ids) + 1 for ids in sentences)
        largest = max(abs(one - other) for one, other in zip(sums, exact, strict=True))
        print(f"{precision:10} perplexity {math.exp(-math.fsum(sums) / events):10.4f}, a sentence's ln p moved by {largest:.4f} at most")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hypotheses", default="1,5,20,100", help="numbers of hypotheses in a step, comma-separated")
    parser.add_argument("--steps", type=int, default=20, help="number of steps that are measured")
    parser.add_argument("--words", type=int, default=10_000, help="vocabulary of the random model")
    parser.add_argument("--size", type=int, default=650, help="embeddings and states of the random model, which has two layers")
    parser.add_argument("--lm", type=Path, help="checkpoint or folder to use instead of the random model")
    parser.add_argument("--text", type=Path, help="text, one sentence per line, whose perplexity is reported in each precision")
    options = parser.parse_args()
    trained = load_model(options.lm) if options.lm else random_model(options.words, options.size)
    vocabulary = trained.vocabulary
    if options.text:
        perplexities(trained, options.text)
    words = [*vocabulary.symbols[4:]]
    tokens_of_words = [None, *words]
    texts = [f" {word}".encode() for word in words[: len(words) // 2]] + [
        bytes([letter]) for letter in b"abcdefghijklmnopqrstuvwxyz0123456789"
    ]
    print(f"{torch.get_num_threads()} threads; microseconds for each hypothesis and step")
    print(f"{'adapter':34}{'N':>5}" + "".join(f"{precision:>11}" for precision in PRECISIONS) + f"{'int8 times':>12}")
    adapters: dict[str, Callable[[DecoderLM, int, Callable], Step]] = {
        "DecoderLM (a batch)": batched,
        "flashlight-text, pyctcdecode": one_by_one,
        "ESPnet; tokens": lambda lm, *rest: by_prefix(
            EspnetLM(TokenFusion(LogLinearLM([StatefulNeuralLM(lm)]), tokens_of_words, ends=[0])), *rest
        ),
        "Hugging Face; tokens": lambda lm, *rest: by_processor(
            TokenFusion(LogLinearLM([StatefulNeuralLM(lm)]), tokens_of_words, ends=[0]), *rest
        ),
        "ESPnet; LM of words": lambda lm, *rest: by_prefix(
            EspnetLM(LookAheadWordLM(LogLinearLM([StatefulNeuralLM(lm)]), [*texts, b""], ends=[len(texts)])), *rest
        ),
    }
    for name, build in adapters.items():
        for count in map(int, options.hypotheses.split(",")) if build is not one_by_one else [1]:

            def tokens(number: int, count: int = count) -> torch.Tensor:
                generator = torch.Generator().manual_seed(1000 * number + count)
                return torch.randint(4, len(words) // 2, (count,), generator=generator)

            took = [measure(build(DecoderLM(trained, precision), count, tokens), count, options.steps) for precision in PRECISIONS]
            print(f"{name:34}{count:5}" + "".join(f"{value:11.0f}" for value in took) + f"{took[0] / took[-1]:12.1f}", flush=True)


if __name__ == "__main__":
    main()
