"""Measure the words per second of rescoring and of text with and without context, on artificial conversations, in one run.

python benchmarks/context.py --conversations 64 --lists 4
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Iterator
from pathlib import Path

import torch

from attlm_fairseq.checkpoints.reading import TrainedModel
from attlm_fairseq.checkpoints.vocabulary import PAD, SPECIAL_SYMBOLS, Vocabulary
from attlm_fairseq.modules.families import FAMILIES, build_language_model
from attlm_fairseq.nbest.nbest_list import Hypothesis, NbestList
from attlm_fairseq.nbest.run.block_scores import BlockScorer
from attlm_fairseq.nbest.run.config import RunConfig
from attlm_fairseq.nbest.run.rescoring import Context, Rescorer
from attlm_fairseq.nbest.run.workers import OneProcess
from attlm_fairseq.scoring.context.context_walk import SentenceWindow
from attlm_fairseq.scoring.context.conversations import ContextSpec
from attlm_fairseq.scoring.neural.neural_scorer import NeuralScorer
from attlm_fairseq.scoring.scorer import Scorer
from attlm_fairseq.scoring.text_file import score_text
from attlm_fairseq.text import TextPipeline

WORDS = [f"w{number}" for number in range(9_996)]


def neural(family: str, size: int, layers: int) -> NeuralScorer:
    """Return an LM with random weights, which is as fast as a trained one."""
    torch.manual_seed(1)
    options = {"decoder_embed_dim": size, "decoder_hidden_size": size, "decoder_layers": layers, "output_layer": "tied", "dropout": 0.0}
    options |= {"dropout_in": None, "dropout_between": None, "dropout_out": None}
    model = build_language_model(family, FAMILIES[family].defaults | options, 10_000, PAD).eval()
    return NeuralScorer([TrainedModel(model, Vocabulary([*SPECIAL_SYMBOLS, *WORDS]), Path(__file__), family, "")], "lm")


def lists_of(conversations: int, lists: int, hypotheses: int, length: int) -> Iterator[NbestList]:
    """Yield n-best lists whose hypotheses differ in a few words, as those of a recogniser do."""
    random_ = random.Random(1)
    for place in range(lists):
        for conversation in range(conversations):
            words = random_.choices(WORDS, k=length)
            texts = [" ".join(random_.choice(WORDS) if random_.random() < 0.1 else word for word in words) for _ in range(hypotheses)]
            yield NbestList(f"{conversation}-{place}", [Hypothesis(text, rank=rank) for rank, text in enumerate(texts, 1)])


def seconds(lm: Scorer, lists: list[NbestList], context: Context | None) -> float:
    """Return the seconds that rescoring takes."""
    rescorer = Rescorer(OneProcess(BlockScorer([lm], [TextPipeline()])), RunConfig(), context=context)
    begin = time.process_time()
    assert len(list(rescorer.score(lists))) == len(lists)
    return time.process_time() - begin


def seconds_of_text(lm: Scorer, lines: list[str], context: ContextSpec | None) -> float:
    """Return the seconds that scoring a text takes."""
    begin = time.process_time()
    assert len(list(score_text(lines, [lm], [TextPipeline()], context=context).lines)) == sum(map(bool, lines))
    return time.process_time() - begin


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--conversations", type=int, default=64)
    parser.add_argument("--lists", type=int, default=4, help="lists per conversation")
    parser.add_argument("--hypotheses", type=int, default=10)
    parser.add_argument("--length", type=int, default=15, help="words of a hypothesis")
    parser.add_argument("--size", type=int, default=200)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--families", default="plain_lstm_lm,attentive_lstm_lm,averaging_lstm_lm")
    given = parser.parse_args()
    lists = list(lists_of(given.conversations, given.lists, given.hypotheses, given.length))
    words = sum(len(hypothesis.text.split()) for nbest in lists for hypothesis in nbest.hypotheses)
    context = Context(ContextSpec("id", "^[0-9]+"))
    print("family\twords/s without\twith context\tratio\twith the last 2 sentences\tratio")
    for family in given.families.split(","):
        lm = neural(family, given.size, given.layers)
        seconds(lm, lists[:10], None)  # the first products are slow
        alone, told = seconds(lm, lists, None), seconds(lm, lists, context)
        window = seconds(SentenceWindow(lm, 2), lists, context)
        rates = [words / alone, words / told, alone / told, words / window, alone / window]
        print(family, *(f"{rate:,.0f}" if rate > 100 else f"{rate:.2f}" for rate in rates), sep="\t")

    print(f"\nfamily\ttext, words/s without\t{given.conversations} documents\tratio\tone document\tratio")
    documents = [[nbest.hypotheses[0].text for nbest in lists[place :: given.conversations]] for place in range(given.conversations)]
    text = [line for document in documents for line in document]
    words = sum(len(line.split()) for line in text)
    separated = [line for document in documents for line in (*document, "")]
    for family in given.families.split(","):
        lm = neural(family, given.size, given.layers)
        seconds_of_text(lm, text[:10], None)
        alone = seconds_of_text(lm, text, None)
        told, one = seconds_of_text(lm, separated, ContextSpec("blank")), seconds_of_text(lm, text, ContextSpec("all"))
        rates = [words / alone, words / told, alone / told, words / one, alone / one]
        print(family, *(f"{rate:,.0f}" if rate > 100 else f"{rate:.2f}" for rate in rates), sep="\t")


if __name__ == "__main__":
    main()
