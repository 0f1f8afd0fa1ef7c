"""CPU time of each model family, in training and in scoring, as ratios to the plain LSTM of the same run.

One process and one thread, untrained models of one layer of 300, tied output layers, V = 10,000. Training is forward pass, loss and
backward pass over 16 sentences of 25 words; scoring is float32 over 6 lists of 25 hypotheses that differ from their first in
one word. All models take a turn, round after round, and the median counts. Each CPU time is the process's own, so other work on the
machine hardly changes the ratios.

    python benchmarks/model_families.py [--rounds 4]
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
SIZE, VOCABULARY, SENTENCES, WORDS = 300, 10_000, 16, 25
MODELS: dict[str, tuple[str, int, dict[str, Any]]] = {
    "plain": ("plain_lstm_lm", SIZE, {}),
    "single": ("attentive_lstm_lm", SIZE, {}),
    "single, skip 5": ("attentive_lstm_lm", SIZE, {"attention_skip": 5}),
    "dot": ("attentive_lstm_lm", SIZE, {"attention_score": "dot"}),
    "RM": ("rm_lm", SIZE, {}),
    "RMR": ("rm_lm", SIZE, {"rm_second_lstm": True}),
    "LSTMN": ("lstmn_lm", SIZE, {}),
    "Mogrifier": ("mogrifier_lstm_lm", SIZE, {}),
    "RWA": ("rwa_lm", SIZE, {}),
    "HORNN": ("hornn_lm", SIZE, {}),
}


def make_models() -> dict[str, Any]:
    """Build the models without dropout."""
    from attlm_fairseq.modules.families import build_language_model

    dropout = {"dropout": 0.0, "dropout_in": None, "dropout_between": None, "dropout_out": None}
    models = {}
    for name, (family, size, own) in MODELS.items():
        sizes = {"decoder_embed_dim": size, "decoder_hidden_size": size, "decoder_layers": 1, "output_layer": "tied"}
        models[name] = build_language_model(family, {**sizes, **dropout, **own}, VOCABULARY, 1).eval()
        models[name].initialise(0.05)
    return models


def measured(models: dict[str, Any], rounds: int) -> dict[str, dict[str, tuple[float, float]]]:
    """Return, by task and model, words per second of CPU time and the time as a ratio to the plain LSTM's."""
    import torch

    from attlm_fairseq.checkpoints.reading import TrainedModel
    from attlm_fairseq.checkpoints.vocabulary import SPECIAL_SYMBOLS, Vocabulary
    from attlm_fairseq.scoring.neural.neural_scorer import NeuralScorer

    drawn = random.Random(1)
    words = [f"w{number}" for number in range(VOCABULARY - len(SPECIAL_SYMBOLS))]
    vocabulary = Vocabulary([*SPECIAL_SYMBOLS, *words])
    tokens = torch.randint(4, VOCABULARY, (SENTENCES, WORDS))
    hypotheses = []
    for _ in range(6):
        first = drawn.choices(words, k=20)
        for place in drawn.choices(range(20), k=25):
            hypotheses.append([*first[:place], drawn.choice(words), *first[place + 1 :]])
    scorers = {name: NeuralScorer([TrainedModel(model, vocabulary, Path(name), name, "")]) for name, model in models.items()}

    def train(name: str) -> None:
        models[name].zero_grad()
        features, _ = models[name].extract_features(tokens)
        models[name].output.nll(features.flatten(0, 1), tokens.flatten()).backward()

    def score(name: str) -> None:
        scorers[name].score(hypotheses)

    tasks: dict[str, tuple[Callable[[str], None], int]] = {
        "training": (train, tokens.numel()),
        "scoring": (score, sum(len(hypothesis) + 1 for hypothesis in hypotheses)),
    }
    found = {}
    for task, (run, count) in tasks.items():
        seconds: dict[str, list[float]] = {name: [] for name in models}
        for number in range(rounds + 1):
            for name in models:
                begin = time.process_time()
                run(name)
                if number:  # the first round warms up
                    seconds[name].append(time.process_time() - begin)
        medians = {name: statistics.median(values) for name, values in seconds.items()}
        found[task] = {name: (count / median, median / medians["plain"]) for name, median in medians.items()}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=4, help="rounds that count")
    options = parser.parse_args()
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(1)
    found = measured(make_models(), options.rounds)
    print(f"{'':16}{'training, words/s':>20}{'time':>8}{'scoring, words/s':>20}{'time':>8}")
    for name in MODELS:
        (train, train_ratio), (score, score_ratio) = found["training"][name], found["scoring"][name]
        print(f"{name:16}{train:>20,.0f}{train_ratio:>8.2f}{score:>20,.0f}{score_ratio:>8.2f}")


if __name__ == "__main__":
    main()
