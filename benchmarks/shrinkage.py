#!/usr/bin/env python3
"""Two ways to use tuned weights of few lists: accept or refuse them by a test, or shrink them towards the input order as `tune` does.

    python benchmarks/shrinkage.py                # about 3 minutes
    python benchmarks/shrinkage.py --lists 60 --trials 20

Made-up lists of 5 hypotheses: the errors are binomial, the decoder's score falls by 0.5 per error, the LM's score by SLOPE per error, both
with noise of standard deviation 1. Weights are tuned on few lists and answer 1,500 others. "As found" takes the weights, "accept or refuse"
takes them if the gain of 5-fold cross-validation has p <= 0.05, else it keeps the input order. "Shrunk" is `tune`'s default. The table has
the mean change of WER in points and, in brackets, the worst of the trials; below 0 is better.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import numpy as np

from attlm_fairseq import TuneOptions, rescore, tune
from attlm_fairseq.messages import collected
from attlm_fairseq.nbest.metrics.making import make_metric
from attlm_fairseq.nbest.metrics.metric import corpus_score
from attlm_fairseq.nbest.nbest_list import Hypothesis, NbestList

HYPOTHESES = 5
ERROR_RATE = 0.15
DECODER_SLOPE = 0.5
TEST_LISTS = 1500
SIGNIFICANT = 0.05
WAYS = ("as found", "accept or refuse", "shrunk")
METRIC = make_metric("wer")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--slopes", default="0,0.1,0.25,0.5", help="what an error costs in the LM's score: 0 is an LM that knows nothing")
    parser.add_argument("--lists", default="20,100,500", help="numbers of lists to tune on")
    parser.add_argument("--trials", type=int, default=8)
    options = parser.parse_args()
    print(f"| slope of the LM | lists | input WER | {' | '.join(WAYS)} |\n|{'---|' * (3 + len(WAYS))}")
    for slope in map(float, options.slopes.split(",")):
        for count in map(int, options.lists.split(",")):
            with collected():  # tune's notes on each trial
                found = np.array([trial(slope, count, seed) for seed in range(options.trials)])
            changes = [f"{mean:+.2f} ({worst:+.2f})" for mean, worst in zip(found[:, 1:].mean(0), found[:, 1:].max(0), strict=True)]
            print(f"| {slope:g} | {count} | {found[:, 0].mean():.2f} | {' | '.join(changes)} |", flush=True)


def trial(slope: float, count: int, seed: int) -> list[float]:
    """Return the WER of the input order on the test lists, and how each of ``WAYS`` changes it."""
    random = np.random.default_rng([seed, count, round(1000 * slope)])
    lists = make_lists(count + TEST_LISTS, slope, random)
    tuning, test = lists[:count], lists[count:]
    quick = {"restarts": 2, "seed": seed}
    as_found = tune(tuning, options=TuneOptions(strength=1.0, **quick))
    [held_out] = [row for row in as_found.rows if row.folds]
    comparison = held_out.comparison
    accepted = comparison is not None and comparison.difference.score < 0 and comparison.p_value <= SIGNIFICANT
    shrunk = tune(tuning, options=TuneOptions(**quick))
    before = word_error_rate(test)
    changes = [word_error_rate(rescore(test, config=tuned.config).lists) - before for tuned in (as_found, shrunk)]
    return [before, changes[0], changes[0] if accepted else 0.0, changes[1]]


def make_lists(count: int, slope: float, random: np.random.Generator) -> list[NbestList]:
    """Return lists sorted by the decoder's score, with references."""
    made = []
    for number in range(count):
        words = int(random.integers(5, 20))
        errors = random.binomial(words, ERROR_RATE, size=HYPOTHESES)
        decoder = random.normal(size=HYPOTHESES) - DECODER_SLOPE * errors
        lm = random.normal(size=HYPOTHESES) - slope * errors
        hypotheses = [
            Hypothesis(text(words, int(errors[place])), {"am": float(decoder[place]), "lm": float(lm[place])}, rank)
            for rank, place in enumerate(np.argsort(-decoder), 1)
        ]
        made.append(NbestList(str(number), hypotheses, (text(words, 0),)))
    return made


def text(words: int, errors: int) -> str:
    """Return as many words, of which the first are wrong."""
    return " ".join(["wrong"] * errors + ["right"] * (words - errors))


def word_error_rate(lists: Sequence[NbestList]) -> float:
    """Return the WER of the first hypotheses in percent."""
    counts = [METRIC.statistics([nbest.hypotheses[0].text], nbest.references)[0] for nbest in lists]
    return corpus_score(METRIC, np.array(counts))


if __name__ == "__main__":
    main()
