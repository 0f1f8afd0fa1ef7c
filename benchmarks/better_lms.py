#!/usr/bin/env python3
"""Does an LM with a lower perplexity remove more errors? LSTM LMs with one training technique more in each row, on n-best lists.

    python benchmarks/better_lms.py --train train.txt --valid valid.txt --lists lists.json --work FOLDER

All LMs are trained on the same text for as many updates; finished trainings in FOLDER are kept, and refused with other options. The lists
have their references. Perplexity is that of the references. WER is that of 5-fold cross-validation by ``tune``, with the lists' own scores
and unknown words as features. The correlation at the end is over all single LMs.
"""

from __future__ import annotations

import argparse
import logging
import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from yardstick import Measured, cross_validated, ngram, read, row, train
from yardstick import parser as lm_parser

from attlm_fairseq.nbest.nbest_list import NbestList
from attlm_fairseq.scoring.lm_files import load_lm_files

COMMON = (
    "--user-dir attlm_fairseq --task sentence_reset_lm --criterion lm_cross_entropy --batch-order length --max-tokens 600 "
    "--decoder-layers 1 --decoder-embed-dim {size} --decoder-hidden-size {size} --optimizer adam --lr 0.003 --lr-scheduler cosine "
    "--warmup-updates 60 --clip-norm 1 --distributed-world-size 1 --num-workers 0 --no-epoch-checkpoints --log-format simple "
    "--best-checkpoint-metric ppl"
)
STEPS = {
    "plain LSTM": "--arch plain_lstm_lm --output-layer untied --dropout 0",
    "tied output layer": "--output-layer tied",
    "dropout": "--dropout 0.5",
    "locked dropout, words dropped": "--locked-dropout --dropout-words 0.1",
    "weight drop": "--weight-drop 0.3",
    "AR and TAR": "--activation-reg 2 --temporal-activation-reg 1",
    "average of weights": "--average ema",
    "attention to past states": "--arch attentive_lstm_lm --attention-score combined",
}
"""The options of each row, added to those of the rows before it."""


class Found(NamedTuple):
    """An LM, or an ensemble of LMs, on the lists: perplexity of the references, WER, and the row of the table."""

    ppl: float
    wer: float
    text: str


def main() -> None:
    parser = lm_parser(__doc__, updates=2000)
    parser.add_argument("--seeds", type=int, default=2, help="LMs for each row")
    parser.add_argument("--ensemble", type=int, default=5, help="LMs of the last row, averaged")
    parser.add_argument("--train-options", default="--cpu", help="options of fairseq-train for all LMs")
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    logging.getLogger("attlm_fairseq").setLevel(logging.ERROR)  # tune's notes on each row
    lists = read(options.lists)
    print("| LM | seed | perplexity | WER, 5-fold | 95 % interval | against input 1-best |\n|---|---|---|---|---|---|")
    print(row("the lists' own scores | |", cross_validated(lists, {})), flush=True)
    print(measured("KenLM |", lists, [ngram(options)]).text, flush=True)
    found = []
    techniques: list[str] = []
    for number, (title, technique) in enumerate(STEPS.items()):
        techniques += technique.split()
        for seed in range(1, options.seeds + 1):
            found.append(measured(f"{'+ ' if number else ''}{title} | {seed}", lists, [trained(number, techniques, seed, options)]))
            print(found[-1].text, flush=True)
    for count in sorted({2, options.ensemble} - {0, 1}):
        files = [trained(len(STEPS) - 1, techniques, seed, options) for seed in range(1, count + 1)]
        print(measured(f"+ ensemble of {count} |", lists, files).text, flush=True)
    correlation = np.corrcoef(np.log([each.ppl for each in found]), [each.wer for each in found])[0, 1]
    print(f"\ncorrelation of ln perplexity and WER over {len(found)} single LMs: {correlation:+.2f}")


def trained(number: int, techniques: Sequence[str], seed: int, options: argparse.Namespace) -> Path:
    """Train the LM of a row, and return its checkpoint."""
    own = ["--seed", seed, "--max-update", options.updates, *options.train_options.split()]
    return train(f"{number}-{seed}", [*COMMON.format(size=options.size).split(), *techniques, *own], options)


def measured(title: str, lists: Sequence[NbestList], files: Sequence[Path]) -> Found:
    """Score references and hypotheses with one LM, or an ensemble of several, and tune its weight."""
    scorer = load_lm_files(files, "lm")
    of_references = scorer.score([nbest.references[0].split() for nbest in lists])
    ppl = math.exp(-math.fsum(score.total for score in of_references) / sum(len(score.log_probs) for score in of_references))
    scores = scorer.score([hypothesis.text.split() for nbest in lists for hypothesis in nbest.hypotheses])
    found = Measured([score.total for score in scores], [score.oov_count for score in scores], 0.0, 0)
    tuned = cross_validated(lists, {"lm": found})
    return Found(ppl, tuned.interval.score, row(f"{title} | {ppl:.2f}", tuned))


if __name__ == "__main__":
    main()
