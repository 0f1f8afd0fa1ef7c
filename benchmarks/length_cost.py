"""Cost of training against the length of the sentences, for every reader: time a word, and the reader's share of it.

A step of 8 sentences, forward and backward, in three parts timed apart: the LSTM (2 x 650), the reader on its states, the loss over the
output layer (V = 10,000). On a CPU, CPU time is measured, which other work on the machine hardly changes; the least of some
repetitions counts. A reader dominates where its share is above one half.

    python benchmarks/length_cost.py [--models single,combined] [--lengths 16,64,256] [--device cuda] [--plot cost.png]
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch

from attlm_fairseq.checkpoints.vocabulary import PAD
from attlm_fairseq.modules.families import build_language_model
from attlm_fairseq.modules.language_model import LanguageModel
from attlm_fairseq.modules.memory import PlainReader

SENTENCES, SIZE, VOCABULARY = 8, 650, 10_000
LENGTHS = (16, 32, 64, 128, 256, 512, 1024)
WORDS_PER_MEASUREMENT = 2048  # a step of more words than this is measured only once
MODELS = {
    "plain": ("plain_lstm_lm", SIZE, {}),
    "single": ("attentive_lstm_lm", SIZE, {"attention_score": "single"}),
    "combined": ("attentive_lstm_lm", SIZE, {"attention_score": "combined"}),
    "averaging": ("averaging_lstm_lm", SIZE, {}),
    "selection": ("amsrn_lm", SIZE, {"selection": "tied", "output_layer": "untied"}),
    "attention": ("kvp_lstm_lm", SIZE, {"kvp_mode": "attention", "attention_window": 5}),
    "key-value-predict": ("kvp_lstm_lm", 651, {"kvp_mode": "key-value-predict", "attention_window": 5, "output_layer": "untied"}),
    "4-gram": ("ngram_rnn_lm", 652, {"ngram_order": 4, "output_layer": "untied"}),
}


def make_model(name: str, device: str) -> LanguageModel:
    family, hidden, own = MODELS[name]
    config = {"decoder_embed_dim": SIZE, "decoder_hidden_size": hidden, "decoder_layers": 2, "output_layer": "tied", "dropout": 0.0}
    config |= {"dropout_in": None, "dropout_between": None, "dropout_out": None} | own
    torch.manual_seed(1)
    model = build_language_model(family, config, VOCABULARY, PAD)
    model.initialise(0.05)
    return model.to(device).train()


def seconds(step: Callable[[], None], words: int, device: str) -> float:
    """Return the least time of a step. The first step is not counted, except for a long one on a CPU, which is measured once.

    On a GPU the first step also loads kernels and chooses algorithms.
    """

    def clock() -> float:
        if device == "cpu":
            return time.process_time()
        torch.cuda.synchronize()
        return time.perf_counter()

    times = []
    repetitions = max(0 if device == "cpu" else 1, min(10, WORDS_PER_MEASUREMENT // words))
    for _ in range(1 + repetitions):
        begin = clock()
        step()
        times.append(clock() - begin)
    return min(times[1:] or times)


def parts(model: LanguageModel, length: int, device: str, base: dict[tuple[int, int, int], float]) -> tuple[float, float]:
    """Seconds of LSTM and output layer together, and of the reader, for a step. What models share is measured once, in ``base``."""
    words = SENTENCES * length
    embedded = torch.randn(SENTENCES, length, model.embedding.embedding_dim, device=device, requires_grad=True)
    tokens, before = torch.randint(4, VOCABULARY, (SENTENCES, length), device=device), model.recurrence.initial(SENTENCES)
    with torch.no_grad():
        states, _ = model.recurrence.read(embedded, before)
        features, _ = model.reader(states, tokens)
    states, features = states.requires_grad_(), features.flatten(0, 1).requires_grad_()
    grad_states, grad_features = torch.randn_like(states), torch.randn(*states.shape[:2], features.size(-1), device=device)
    alike = (length, states.size(-1), features.size(-1))
    if alike not in base:
        recurrence = seconds(lambda: model.recurrence.read(embedded, before)[0].backward(grad_states), words, device)
        base[alike] = recurrence + seconds(lambda: model.output.nll(features, tokens.flatten()).backward(), words, device)
    if isinstance(model.reader, PlainReader):
        return base[alike], 0.0
    return base[alike], seconds(lambda: model.reader(states, tokens)[0].backward(grad_features), words, device)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(MODELS), help="joined by commas: %(default)s")
    parser.add_argument("--lengths", default=",".join(map(str, LENGTHS)), help="joined by commas: %(default)s")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--plot", metavar="FILE", help="a picture of it, such as cost.png")
    options = parser.parse_args()
    lengths = [int(length) for length in options.lengths.split(",")]
    print(f"microseconds a word (share of the reader), training, {SENTENCES} sentences, 2 x {SIZE}, V = {VOCABULARY:,}, {options.device}")
    print(f"{'sentence length':20}" + "".join(f"{length:>14}" for length in lengths))
    base_of: dict[tuple[int, int, int], float] = {}
    costs: dict[str, list[tuple[float, float]]] = {}
    for name in options.models.split(","):
        model = make_model(name, options.device)
        print(f"{name:20}", end="", flush=True)
        for length in lengths:
            base, reader = parts(model, length, options.device, base_of)
            per_word = 1e6 / (SENTENCES * length)
            costs.setdefault(name, []).append(((base + reader) * per_word, reader / (base + reader)))
            print(f"{costs[name][-1][0]:8.0f} ({reader / (base + reader):3.0%})", end="", flush=True)
        print()
        dominates = [length for length, (_, share) in zip(lengths, costs[name], strict=True) if share > 0.5]
        if dominates:
            print(f"{'':20}the reader takes more than half from {dominates[0]} words on")
    if options.plot:
        draw(costs, lengths, options.plot)


def draw(costs: dict[str, list[tuple[float, float]]], lengths: list[int], path: str) -> None:
    """Time a word, and the reader's share, against the length."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.6), layout="constrained")
    time_axes, share_axes = figure.subplots(1, 2)
    for name, of_model in costs.items():
        time_axes.plot(lengths, [cost for cost, _ in of_model], "o-", label=name, markersize=3)
        share_axes.plot(lengths, [share for _, share in of_model], "o-", label=name, markersize=3)
    for axes, label in ((time_axes, "microseconds a word"), (share_axes, "share of the reader")):
        axes.set_xscale("log", base=2)
        axes.set_xticks(lengths, map(str, lengths))
        axes.set_xlabel("words in a sentence")
        axes.set_ylabel(label)
        axes.set_ylim(bottom=0)
    share_axes.axhline(0.5, color="grey", linewidth=0.8, linestyle=":")
    time_axes.legend(fontsize=7)
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    main()
