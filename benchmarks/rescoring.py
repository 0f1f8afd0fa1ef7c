#!/usr/bin/env python3
"""Words of hypotheses a second: fairseq-eval-lm, our models without and with shared prefixes, in bfloat16, and KenLM, in one run.

    python benchmarks/rescoring.py                 # about 10 minutes
    python benchmarks/rescoring.py --words 24000 --lists librispeech

Models of one size: 2 LSTM layers of 650, embeddings of 650 tied to the output layer, 10,000 words; random weights, since speed does
not depend on them. The lists are real 5-best lists of ../shared/data and a 50-best list that examples/quickstart's noisy channel
makes from it. All programs get the same hypotheses and as many threads as torch takes (OMP_NUM_THREADS).
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from pathlib import Path

import numpy as np
import torch

from attlm_fairseq.checkpoints.reading import TrainedModel
from attlm_fairseq.checkpoints.vocabulary import EOS, PAD, SPECIAL_SYMBOLS, Vocabulary
from attlm_fairseq.modules.families import build_language_model
from attlm_fairseq.modules.kernels.products import has_bfloat16_instructions
from attlm_fairseq.scoring.compute import DeviceConfig
from attlm_fairseq.scoring.neural.neural_scorer import NeuralScorer
from attlm_fairseq.scoring.ngrams.kenlm import KenLMScorer
from attlm_fairseq.scoring.ngrams.ngram_estimation import estimate_ngram
from attlm_fairseq.scoring.prefix_tree import build_prefix_tree

ROOT = Path(__file__).parents[1]
DATA = ROOT.parent / "shared" / "data"
SIZE, LAYERS, TYPES = 650, 2, 10_000
FAMILIES = {"plain_lstm_lm": "plain LSTM", "attentive_lstm_lm": "attentive, single"}
OPTIONS = {
    "decoder_embed_dim": SIZE,
    "decoder_hidden_size": SIZE,
    "decoder_layers": LAYERS,
    "output_layer": "tied",
    "attention_score": "single",
    **dict.fromkeys(("dropout", "dropout_in", "dropout_between", "dropout_out"), 0.0),
}
Sentences = Sequence[Sequence[str]]


@torch.no_grad()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--words", type=int, default=180_000, help="words of hypotheses of each list, at most; as many as attlm rescore scores together"
    )
    parser.add_argument("--lists", default="librispeech,atis,50-best", help="which, joined by commas")
    parser.add_argument("--bfloat16-words", type=int, help="default: as --words; 3,000 if the CPU lacks the instructions")
    options = parser.parse_args()
    if not DATA.is_dir():
        print(f"skipped: there is no {DATA}")
        return
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        vocabulary = write_corpus(work)
        models = {family: random_model(family, vocabulary) for family in FAMILIES}
        estimate_ngram(str(work / "train.txt"), work / "lm.arpa", 3)
        train_fairseq(work)
        print(f"{torch.get_num_threads()} threads, torch {torch.__version__}, {torch.backends.cpu.get_cpu_capability()}")
        for name in options.lists.split(","):
            sentences = list(first_words(LISTS[name](work), options.words))
            few = options.bfloat16_words or (options.words if has_bfloat16_instructions() else 3_000)
            measure(name, sentences, first_words(sentences, few), models, work)


def measure(name: str, sentences: Sentences, few: Iterable[Sequence[str]], models: dict[str, TrainedModel], work: Path) -> None:
    """Print the table of one list."""
    words, few = sum(map(len, sentences)), list(few)
    vocabulary = models["plain_lstm_lm"].vocabulary
    distinct = sorted({tuple(vocabulary.ids(sentence)) for sentence in sentences})
    nodes = build_prefix_tree(distinct).size
    print(f"\n{name}: {len(sentences)} hypotheses, {words} words, {nodes} distinct prefixes: {words / nodes:.2f} words each")
    print(f"{'':44}{'words/s':>10}{'ratio':>8}{'of matmul':>11}")
    batchings = ([], ["--max-tokens", "4096"])
    seconds = {" ".join(option) or "its defaults": eval_lm(sentences, work, option) for option in batchings}
    base = words / min(seconds.values())
    for batching, taken in seconds.items():
        print(f"{f'fairseq-eval-lm, lstm_lm, {batching}':44}{words / taken:10.0f}{words / taken / base:8.2f}")
    for family, label in FAMILIES.items():
        model = models[family]
        scorer = NeuralScorer([model])
        scorer.score(sentences[:50])
        before = matmul_rate()
        unshared = timed(lambda model=model: score_unshared(model, sentences))
        between = matmul_rate()
        shared = timed(lambda scorer=scorer: scorer.score(sentences))
        rate = (between + matmul_rate()) / 2
        done = work_of(model, nodes, len({word for sentence in distinct for word in sentence}) + 1)
        all_done = work_of(model, words + len(sentences), words + len(sentences))
        share, all_share = done / shared / rate, all_done / unshared / ((before + between) / 2)
        print(f"{f'{label}: no shared prefixes':44}{words / unshared:10.0f}{words / unshared / base:8.2f}{all_share:10.0%}")
        print(f"{f'{label}: shared prefixes':44}{words / shared:10.0f}{words / shared / base:8.2f}{share:10.0%}")
        rounded = NeuralScorer([model], compute=DeviceConfig(precision="bfloat16"))
        rounded.score(few[:50])
        seconds = timed(lambda rounded=rounded: rounded.score(few))
        few_words = sum(map(len, few))
        print(f"{f'{label}: bfloat16 ({few_words} words)':44}{few_words / seconds:10.0f}{few_words / seconds / base:8.2f}")
    ngram = KenLMScorer(work / "lm.arpa")
    seconds = timed(lambda: ngram.score(sentences))
    print(f"{'KenLM, 3-gram':44}{words / seconds:10.0f}{words / seconds / base:8.2f}", flush=True)


def timed(call: Callable[[], object]) -> float:
    """Wall-clock seconds."""
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def matmul_rate() -> float:
    """Return the machine's floating-point operations a second on products of the models' own shapes, the best that it reaches now."""
    rows, best = torch.randn(512, SIZE), 0.0
    weights = [torch.randn(4 * SIZE, SIZE), torch.randn(TYPES, SIZE)]
    for _ in range(15):
        for weight in weights:
            out = torch.empty(512, len(weight))
            best = max(best, 2 * out.numel() * SIZE / timed(lambda out=out, weight=weight: torch.mm(rows, weight.t(), out=out)))
    return best


def work_of(model: TrainedModel, nodes: int, words: int) -> float:
    """Floating-point operations of the matrix products for so many prefixes, of so many distinct words."""
    recurrent = (2 * LAYERS - 1) * 4 * SIZE * SIZE  # the first layer's product with a word is done once a distinct word
    reader = sum(module.weight.numel() for module in model.model.reader.modules() if isinstance(module, torch.nn.Linear))
    return 2.0 * (nodes * (recurrent + reader + TYPES * SIZE) + words * 4 * SIZE * SIZE)


def score_unshared(model: TrainedModel, sentences: Sentences) -> None:
    """Every hypothesis from its beginning to its end: whole padded sequences with the fused LSTM, sorted by length, 64 at a time."""
    ids = sorted((model.vocabulary.ids(sentence) for sentence in sentences), key=len)
    for begin in range(0, len(ids), 64):
        batch = ids[begin : begin + 64]
        longest = max(map(len, batch)) + 1
        tokens = torch.tensor([[EOS, *sentence, *[PAD] * (longest - 1 - len(sentence))] for sentence in batch])
        features, _ = model.model.extract_features(tokens)
        places = np.concatenate([row * longest + np.arange(len(sentence) + 1) for row, sentence in enumerate(batch)])
        targets = torch.tensor([token for sentence in batch for token in (*sentence, EOS)])
        model.model.output.events()(features.flatten(0, 1)[torch.from_numpy(places)], torch.arange(len(places)), targets)


def eval_lm(sentences: Sentences, work: Path, options: list[str]) -> float:
    """Return the seconds that fairseq-eval-lm itself says its scoring took, start-up and reading apart."""
    (work / "test.txt").write_text("".join(" ".join(sentence) + "\n" for sentence in sentences), encoding="utf-8")
    data = work / "test-bin"
    fairseq("preprocess", "--only-source", "--srcdict", work / "dict.txt", "--testpref", work / "test.txt", "--destdir", data)
    result = fairseq(
        "eval-lm", data, "--user-dir", ROOT / "attlm_fairseq", "--path", work / "fairseq" / "checkpoint_last.pt",
        "--gen-subset", "test", "--sample-break-mode", "eos", "--cpu", "--distributed-world-size", "1", *options,
    )  # fmt: skip
    tokens, rate = re.search(r"Evaluated ([\d,]+) tokens in .*?\(([\d.]+) tokens/s\)", result).groups()
    return int(tokens.replace(",", "")) / float(rate)


def train_fairseq(work: Path) -> None:
    """Write a checkpoint of fairseq's own lstm_lm after one update."""
    fairseq("preprocess", "--only-source", "--srcdict", work / "dict.txt", "--trainpref", work / "tiny.txt", "--destdir", work / "tiny-bin")
    fairseq(
        "train", work / "tiny-bin", "--task", "language_modeling", "--arch", "lstm_lm", "--decoder-embed-dim", SIZE,
        "--decoder-hidden-size", SIZE, "--decoder-out-embed-dim", SIZE, "--decoder-layers", LAYERS, "--share-decoder-input-output-embed",
        "--optimizer", "sgd", "--lr", "0.1", "--max-update", "1", "--max-tokens", "500", "--sample-break-mode", "eos",
        "--tokens-per-sample", "100", "--cpu", "--distributed-world-size", "1", "--disable-validation", "--save-dir", work / "fairseq",
    )  # fmt: skip


def fairseq(command: str, *arguments: object) -> str:
    program = Path(sys.executable).with_name(f"fairseq-{command}")
    result = subprocess.run([program, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if result.returncode:
        raise SystemExit(result.stdout[-3000:])
    return result.stdout


def random_model(family: str, vocabulary: Vocabulary) -> TrainedModel:
    torch.manual_seed(1)
    model = build_language_model(family, OPTIONS, len(vocabulary), PAD)
    model.initialise(0.05)
    return TrainedModel(model.eval(), vocabulary, Path("random"), family, "")


def write_corpus(work: Path) -> Vocabulary:
    """Write a training text, and return the dictionary of its most frequent words."""
    with gzip.open(DATA / "books" / "train.txt.gz", "rt", encoding="utf-8") as file:
        lines = list(islice(file, 60_000))
    (work / "train.txt").write_text("".join(lines), encoding="utf-8")
    (work / "tiny.txt").write_text("".join(lines[:200]), encoding="utf-8")
    common = Counter(word for line in lines for word in line.split()).most_common(TYPES - len(SPECIAL_SYMBOLS))
    (work / "dict.txt").write_text("".join(f"{word} {times}\n" for word, times in common), encoding="utf-8")
    return Vocabulary.read(work / "dict.txt")


def hyporadise(name: str) -> list[list[str]]:
    with gzip.open(DATA / "nbest" / name, "rt", encoding="utf-8") as file:
        return [text.split() for utterance in json.load(file) for text in utterance["input"]]


def fifty_best(work: Path) -> list[list[str]]:
    """Typing errors in lines of a novel, and what examples/quickstart's decoder makes of them."""
    channel = [sys.executable, ROOT / "examples" / "quickstart" / "noisy_channel.py"]
    with gzip.open(DATA / "books" / "valid.txt.gz", "rt", encoding="utf-8") as file:
        (work / "intended.txt").write_text("".join(islice(file, 60)), encoding="utf-8")
    typed = subprocess.run([*channel, "corrupt", work / "intended.txt", "--seed", "1"], capture_output=True, check=True).stdout
    (work / "typed.txt").write_bytes(typed)
    decode = [*channel, "decode", work / "typed.txt", "--train", work / "train.txt", "-n", "50"]
    lists = subprocess.run(decode, capture_output=True, check=True, text=True).stdout
    return [hypothesis["text"].split() for line in lists.splitlines() for hypothesis in json.loads(line)["hyps"]]


LISTS: dict[str, Callable[[Path], list[list[str]]]] = {
    "librispeech": lambda work: hyporadise("librispeech-test-clean.json.gz"),
    "atis": lambda work: hyporadise("atis-train.json.gz"),
    "50-best": fifty_best,
}


def first_words(sentences: Iterable[Sequence[str]], words: int) -> Iterable[Sequence[str]]:
    """Yield the first sentences with so many words."""
    for sentence in sentences:
        yield sentence
        words -= len(sentence)
        if words <= 0:
            return


if __name__ == "__main__":
    main()
