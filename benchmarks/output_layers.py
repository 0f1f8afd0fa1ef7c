#!/usr/bin/env python3
"""Words a second with other output layers and normalisers, as ratios to the exact full softmax of the same vocabulary, in one run.

    python benchmarks/output_layers.py                        # about 5 minutes
    python benchmarks/output_layers.py --vocabularies 10000 --precision bfloat16

Models of one size: plain LSTM, 2 layers of 650, embeddings of 650 tied to the output layer; random weights, since speed does not depend on
them. Sentences of random words, all of one length, so that each step has as many rows as there are sentences. CPU time of one process.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import torch

from attlm_fairseq.checkpoints.reading import TrainedModel
from attlm_fairseq.checkpoints.vocabulary import PAD, SPECIAL_SYMBOLS, Vocabulary
from attlm_fairseq.modules.families import build_language_model
from attlm_fairseq.scoring.compute import DeviceConfig
from attlm_fairseq.scoring.neural.neural_scorer import NeuralScorer

SIZE, LAYERS = 650, 2
FULL = "full softmax"
MODELS: dict[str, tuple[str, int, dict[str, str]]] = {
    FULL: ("plain_lstm_lm", SIZE, {}),
    "MoS, 2 softmaxes": ("plain_lstm_lm", SIZE, {"softmaxes": "2"}),
    "MoS, 15 softmaxes": ("plain_lstm_lm", SIZE, {"softmaxes": "15"}),
    "DOC, 15 + 5 softmaxes": ("plain_lstm_lm", SIZE, {"softmaxes": "15,5"}),
    "pointer, window 100": ("pointer_lstm_lm", SIZE, {}),
}
NORMALISERS = ("exact", "sampled", "none")


@torch.inference_mode()
def main() -> None:
    """Print a table for each vocabulary."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--vocabularies", default="10000,33278,100000", help="numbers of words, joined by commas")
    parser.add_argument("--mixtures", type=int, default=10_000, help="largest vocabulary for which mixtures and pointers are measured")
    parser.add_argument("--sentences", type=int, default=512, help="number of sentences")
    parser.add_argument("--length", type=int, default=3, help="words of a sentence")
    parser.add_argument("--runs", type=int, default=2, help="number of runs, of which the fastest counts")
    parser.add_argument("--precision", default="float32", help="float32 or bfloat16")
    options = parser.parse_args()
    torch.set_num_threads(1)
    for size in map(int, options.vocabularies.split(",")):
        words = [f"w{number}" for number in range(size - len(SPECIAL_SYMBOLS))]
        random_ = torch.Generator().manual_seed(1)
        drawn = torch.randint(len(words), (options.sentences, options.length), generator=random_).tolist()
        sentences = [[words[word] for word in sentence] for sentence in drawn]
        scorers: dict[str, NeuralScorer] = {}
        for name, model in MODELS.items():
            if name == FULL or size <= options.mixtures:
                trained = random_model(model, words)
                for normaliser in NORMALISERS if name == FULL else NORMALISERS[:1]:
                    scorer = NeuralScorer([trained], compute=DeviceConfig(precision=options.precision, normaliser=normaliser))
                    scorer.score([words[:1]])  # what is measured once is done
                    scorers[f"{name}, {normaliser}" if name == FULL else name] = scorer
        seconds = dict.fromkeys(scorers, float("inf"))
        for _ in range(options.runs):
            for name, scorer in scorers.items():
                begin = time.process_time()
                scorer.score(sentences)
                seconds[name] = min(seconds[name], time.process_time() - begin)
        base = seconds[f"{FULL}, exact"]
        print(f"\nV = {size}, {options.precision}: {options.sentences} sentences of {options.length} words")
        for name, taken in seconds.items():
            print(f"{name:28}{options.sentences * options.length / taken:10.0f} words/s{base / taken:8.2f}", flush=True)


def random_model(model: tuple[str, int, dict[str, str]], words: list[str]) -> TrainedModel:
    """Return a model with random weights: family, size and options of its own."""
    family, size, own = model
    config = {
        "decoder_embed_dim": size,
        "decoder_hidden_size": size,
        "decoder_layers": LAYERS,
        "output_layer": "tied",
        **dict.fromkeys(("dropout", "dropout_in", "dropout_between", "dropout_out"), 0.0),
        **own,
    }
    vocabulary = Vocabulary([*SPECIAL_SYMBOLS, *words])
    torch.manual_seed(1)
    built = build_language_model(family, config, len(vocabulary), PAD)
    built.initialise(0.05)
    return TrainedModel(built.eval(), vocabulary, Path("random"), family, "")


if __name__ == "__main__":
    main()
