#!/usr/bin/env python3
"""What each kind of LM brings on n-best lists, alone and together: KenLM, an attentive LSTM, and fairseq's Transformer of the same size.

    python benchmarks/yardstick.py --train train.txt --valid valid.txt --lists dev.json --work FOLDER

All LMs are trained on the same text, both neural ones with as many updates of as many tokens; finished trainings in FOLDER are kept, and
refused with other options. The lists have their references. WER is that of 5-fold cross-validation by ``tune``. Words per second are words
of hypotheses per second of CPU time, without loading. Memory is the peak of a process that loads the LM and scores.
"""

from __future__ import annotations

import argparse
import itertools
import json
import logging
import re
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from attlm_fairseq.nbest.formats import open_nbest
from attlm_fairseq.nbest.nbest_list import NbestList
from attlm_fairseq.nbest.statistics.evaluation import Row

NAMES = {"kenlm": "KenLM", "attentive": "attentive LSTM", "transformer": "fairseq Transformer"}
COMMON = (
    "--optimizer adam --lr-scheduler polynomial_decay --warmup-updates 60 --clip-norm 5 --max-tokens 600 --dropout 0.3 --cpu "
    "--distributed-world-size 1 --num-workers 0 --no-epoch-checkpoints --log-format simple --validate-interval-updates 120"
)
MODELS = {
    "attentive": "--user-dir attlm_fairseq --task sentence_reset_lm --arch attentive_lstm_lm --decoder-embed-dim {size} "
    "--decoder-hidden-size {size} --decoder-layers 1 --init-range 0.1 --batch-order length --lr 0.009",
    "transformer": "--task language_modeling --sample-break-mode eos --tokens-per-sample 512 --arch transformer_lm --decoder-layers 2 "
    "--decoder-embed-dim {size} --decoder-input-dim {size} --decoder-output-dim {size} --decoder-ffn-embed-dim {size} "
    "--decoder-attention-heads 4 --share-decoder-input-output-embed --lr 0.003",
}
"""Two Transformer layers with feed-forward layers of SIZE have 12 SIZE^2 weights, an LSTM layer with attention 11 SIZE^2."""


class Measured(NamedTuple):
    """An LM on all hypotheses: ln p and unknown words of each, words per second, peak memory in bytes."""

    totals: list[float]
    oov: list[int]
    words_per_second: float
    memory: int


def main() -> None:
    options = parser(__doc__, updates=720).parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    logging.getLogger("attlm_fairseq").setLevel(logging.ERROR)  # tune's notes on each row
    lms = {"kenlm": ngram(options), **{name: trained(name, options) for name in MODELS}}
    print("| | parameters | CPU s of training | words/s | peak MB |\n|---|---|---|---|---|")
    measured = {}
    for name, path in lms.items():
        measured[name] = in_own_process(path, options.lists, options.work / f"{name}.scores.json")
        size = f"{parameters(options.work / f'{name}.log') / 1e6:.1f} M" if name in MODELS else f"{path.stat().st_size / 1e6:.0f} MB file"
        seconds = (options.work / f"{name}.seconds").read_text("utf-8")
        found = measured[name]
        print(f"| {NAMES[name]} | {size} | {seconds} | {found.words_per_second:,.0f} | {found.memory / 1e6:.0f} |", flush=True)
    print("\n| LMs | WER, 5-fold | 95 % interval | against input 1-best |\n|---|---|---|---|")
    lists = read(options.lists)
    for chosen in combinations(lms):
        title = " + ".join(NAMES[name] for name in chosen) or "the lists' own scores"
        print(row(title, cross_validated(lists, {name: measured[name] for name in chosen})), flush=True)


def parser(description: str, updates: int) -> argparse.ArgumentParser:
    """Return the options of a benchmark that trains LMs on a text and rescores lists with them; ``updates`` is a default."""
    found = argparse.ArgumentParser(description=description.split("\n")[0])
    found.add_argument("--train", type=Path, required=True, help="text, one sentence per line")
    found.add_argument("--valid", type=Path, required=True, help="text to choose checkpoints by, not the references of the lists")
    found.add_argument("--lists", required=True, help="n-best lists with references")
    found.add_argument("--work", type=Path, required=True, help="folder for models and logs")
    found.add_argument("--order", type=int, default=4, help="of the n-gram")
    found.add_argument("--size", type=int, default=256, help="of embeddings and states")
    found.add_argument("--updates", type=int, default=updates)
    return found


def combinations(names: Sequence[str]) -> list[tuple[str, ...]]:
    """Return none, each alone, each pair, and all."""
    return [chosen for size in range(len(names) + 1) for chosen in itertools.combinations(names, size)]


def ngram(options: argparse.Namespace) -> Path:
    """Estimate the n-gram LM."""
    path = options.work / "lm.arpa"
    keep_to(options.work / "lm.options", [options.train.resolve(), options.order], made=path.exists())
    if not path.exists():
        program = [sys.executable, "-m", "attlm_cli.main", "ngram", str(options.train), "-o", str(path), "-n", str(options.order)]
        logged(program, options.work / "kenlm.log")
    return path


def trained(name: str, options: argparse.Namespace) -> Path:
    """Train a neural LM, and return its checkpoint."""
    limits = ["--max-update", options.updates, "--total-num-update", options.updates]
    return train(name, [*MODELS[name].format(size=options.size).split(), *COMMON.split(), *limits], options)


def train(name: str, words: Sequence[object], options: argparse.Namespace) -> Path:
    """Train with these options of fairseq-train, unless that is done, and return the checkpoint."""
    data, folder = binarised(options), options.work / name
    keep_to(folder / "options", words, made=any(folder.glob("checkpoint*.pt")))
    if not (folder / "done").exists():
        for part in folder.glob("checkpoint*.pt"):  # of a killed training: the seconds are to be those of a whole one
            part.unlink()
        logged(["fairseq-train", data, *words, "--save-dir", folder], options.work / f"{name}.log")
        (folder / "done").touch()
    return folder / "checkpoint_best.pt"


def keep_to(file: Path, words: Sequence[object], made: bool) -> None:
    """Write down with which options something is made. Exit if it was made with others."""
    line = " ".join(map(str, words))
    if made and file.exists() and file.read_text("utf-8") != line:
        sys.exit(f"{file.parent} was made with other options, those in {file}: choose another --work, or remove it")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(line, "utf-8")


def logged(program: Sequence[object], log: Path) -> None:
    """Run a program, keep its output, and write its seconds of CPU time next to it. Exits if it fails."""
    before = cpu_of_children()
    with log.open("w", encoding="utf-8") as out:
        result = subprocess.run(list(map(str, program)), stdout=out, stderr=subprocess.STDOUT, check=False)
    if result.returncode:
        sys.exit(f"{program[0]} failed, see {log}")
    log.with_suffix(".seconds").write_text(f"{cpu_of_children() - before:.0f}", "utf-8")


def cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def parameters(log: Path) -> int:
    """Return the number of weights that fairseq-train tells in its log."""
    found = re.search(r"num. shared model params: ([\d,]+)", log.read_text("utf-8"))
    return int(found[1].replace(",", "")) if found else 0


def read(path: str) -> list[NbestList]:
    _, lists = open_nbest(path, None)
    return list(lists)


def binarised(options: argparse.Namespace) -> Path:
    """Binarise the texts for fairseq, and return their folder."""
    data = options.work / "data"
    texts = ["--trainpref", options.train.resolve(), "--validpref", options.valid.resolve()]
    keep_to(options.work / "data.options", texts, made=data.exists())
    if not data.exists():
        shutil.rmtree(f"{data}.part", ignore_errors=True)  # of a killed run
        logged(["fairseq-preprocess", "--only-source", *texts, "--destdir", f"{data}.part"], options.work / "data.log")
        Path(f"{data}.part").rename(data)
    return data


def in_own_process(lm: Path, lists: str, output: Path) -> Measured:
    """Score all hypotheses in a process whose peak memory is that of this LM."""
    code = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import yardstick; yardstick.measure(*sys.argv[1:])"
    subprocess.run([sys.executable, "-c", code, str(lm), lists, str(output)], check=True)
    return Measured(*json.loads(output.read_text("utf-8")))


def measure(lm: str, lists: str, output: str) -> None:
    """Score all hypotheses with one LM and write what ``Measured`` holds."""
    from attlm_fairseq.scoring.lm_files import load_lm_files

    scorer = load_lm_files([Path(lm)], "lm")
    texts = [hypothesis.text.split() for nbest in read(lists) for hypothesis in nbest.hypotheses]
    scorer.score(texts[:20])  # the first call of a model compiles kernels
    begin = time.process_time()
    scores = scorer.score(texts)
    seconds = time.process_time() - begin
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    found = Measured([score.total for score in scores], [score.oov_count for score in scores], sum(map(len, texts)) / seconds, peak)
    Path(output).write_text(json.dumps(found), "utf-8")


def row(title: str, found: Row) -> str:
    """Return a row of the table."""
    comparison = found.comparison
    against = f"{comparison.difference.score:+.2f}, p {found.p_text}" if comparison else ""
    return f"| {title} | {found.interval.score:.2f} | {found.interval.low:.2f} .. {found.interval.high:.2f} | {against} |"


def cross_validated(lists: Sequence[NbestList], lms: dict[str, Measured]) -> Row:
    """Return the error rate in cross-validation of some LMs: their scores and numbers of unknown words with the lists' own scores."""
    from attlm_fairseq import TuneOptions, tune

    places = itertools.count()
    scored = []
    for nbest in lists:
        hypotheses = []
        for hypothesis in nbest.hypotheses:
            place = next(places)
            new = {name: found.totals[place] for name, found in lms.items()}
            new |= {f"{name}_oov": float(found.oov[place]) for name, found in lms.items()}
            hypotheses.append(replace(hypothesis, scores=hypothesis.scores | new))
        scored.append(replace(nbest, hypotheses=hypotheses))
    rows = {found.label: found for found in tune(scored, options=TuneOptions(no_gain="keep")).rows}
    return next(row for label, row in rows.items() if "fold" in label)


if __name__ == "__main__":
    main()
