#!/usr/bin/env python3
"""Words of hypotheses a second under a translation model of Hugging Face: one by one, in padded batches, and with attlm, in one run.

    python benchmarks/translation_scores.py         # about 2 minutes
    python benchmarks/translation_scores.py --lists 20 --vocabulary 8000

A Marian model of the usual size (6 + 6 layers of 512) with random weights, since speed does not depend on them, scores the hypotheses
of ../shared/data/nbest/bn-en.hiero.nbest.gz. Source sentences are made up: the first reference, word by word in reverse. "One by one":
one pass of the model for each hypothesis. "Padded batches": the hypotheses of a list in one pass. "attlm": each source is encoded once,
and equal prefixes of a list's hypotheses share one softmax. All scores are compared. Seconds are those of the CPU, which other programs
on a busy machine change little.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from attlm_fairseq.nbest.formats import open_nbest
from attlm_fairseq.scoring.translation.huggingface_translation import HuggingFaceTranslation
from attlm_fairseq.scoring.translation.translation_scorer import TranslationScorer
from attlm_fairseq.transformers_import import hide_broken_torchaudio

DATA = Path(__file__).parents[2] / "shared" / "data" / "nbest"
SIZE, LAYERS, HEADS, POSITIONS = 512, 6, 8, 512
PADDING, UNKNOWN, END = 0, 1, 2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--lists", type=int, default=40)
    parser.add_argument("--vocabulary", type=int, default=58_101, help="vocabulary size of the model; the usual one of opus-mt")
    options = parser.parse_args()
    if not DATA.is_dir():
        print(f"skipped: there is no {DATA}")
        return
    _, found = open_nbest(str(DATA / "bn-en.hiero.nbest.gz"))
    lists = [[hypothesis.text.split() for hypothesis in nbest.hypotheses] for nbest, _ in zip(found, range(options.lists), strict=False)]
    sources = [line.split()[::-1] for line in (DATA / "bn-en.ref.0").read_text().splitlines()[: len(lists)]]
    words = sum(len(hypothesis) for hypotheses in lists for hypothesis in hypotheses)
    count = sum(map(len, lists))
    print(f"{len(lists)} lists, {count} hypotheses, {words} words; {torch.get_num_threads()} thread(s), vocabulary {options.vocabulary}")
    with tempfile.TemporaryDirectory() as folder:
        model = make_marian(Path(folder), {word for words in [*sources, *(h for hyps in lists for h in hyps)] for word in words}, options)
        measure(model, lists, sources, words)


def measure(model: HuggingFaceTranslation, lists: Sequence[Sequence[list[str]]], sources: Sequence[list[str]], words: int) -> None:
    """Print the three ways' words a second, and how far their scores are from each other."""
    scorer = TranslationScorer(model)
    pairs = [(hypothesis, source) for hypotheses, source in zip(lists, sources, strict=True) for hypothesis in hypotheses]
    ways = {
        "one by one": lambda: [padded(model, [hypothesis], source)[0] for hypothesis, source in pairs],
        "padded batches": lambda: [t for hyps, source in zip(lists, sources, strict=True) for t in padded(model, hyps, source)],
        "attlm": lambda: [score.total for score in scorer.score_translations(*map(list, zip(*pairs, strict=True)))],
    }
    padded(model, lists[0], sources[0])  # the first call of a model compiles kernels
    totals: dict[str, list[float]] = {}
    seconds: dict[str, float] = {}
    for name, way in ways.items():
        begin = time.process_time()
        totals[name] = way()
        seconds[name] = time.process_time() - begin
    print(f"{'':16}\t{'words/s':>9}\t{'times':>6}\tlargest difference (nats)")
    for name, took in seconds.items():
        difference = max(abs(a - b) for a, b in zip(totals["one by one"], totals[name], strict=True))
        print(f"{name:16}\t{words / took:9.0f}\t{seconds['one by one'] / took:6.2f}\t{difference:.1e}")


@torch.inference_mode()
def padded(model: HuggingFaceTranslation, hypotheses: Sequence[list[str]], source: list[str]) -> list[float]:
    """Return ln p of the hypotheses of one source sentence, in one pass that reads the source for each of them."""
    targets = [model.written_ids(words) for words in hypotheses]
    longest = max(map(len, targets))
    labels = torch.tensor([[*ids, *[-100] * (longest - len(ids))] for ids in targets])
    read = torch.tensor([model.read_ids(source)]).expand(len(targets), -1)
    before = torch.tensor([[PADDING, *ids[:-1], *[PADDING] * (longest - len(ids))] for ids in targets])
    log_probs = model.model(input_ids=read, attention_mask=torch.ones_like(read), decoder_input_ids=before).logits.log_softmax(-1)
    values = log_probs.gather(2, labels.clamp(min=0).unsqueeze(2)).squeeze(2).masked_fill(labels < 0, 0.0)
    return values.double().sum(dim=1).tolist()


def make_marian(folder: Path, words: set[str], options: argparse.Namespace) -> HuggingFaceTranslation:
    """Return a Marian model whose tokens are words."""
    hide_broken_torchaudio()
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import MarianConfig, MarianMTModel, PreTrainedTokenizerFast

    entries = {word: place for place, word in enumerate(["<pad>", "<unk>", "</s>", *sorted(words)][: options.vocabulary])}
    tokenizer = Tokenizer(models.WordLevel(entries, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", END)])
    fast: Any = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="</s>", pad_token="<pad>", unk_token="<unk>")
    sizes = {f"{side}_{what}": value for side in ("encoder", "decoder") for what, value in SIDE.items()}
    torch.manual_seed(1)
    ends = {"pad_token_id": PADDING, "decoder_start_token_id": PADDING, "eos_token_id": END}
    config = MarianConfig(vocab_size=options.vocabulary, d_model=SIZE, max_position_embeddings=POSITIONS, **sizes, **ends)
    return HuggingFaceTranslation(MarianMTModel(config), fast, folder)


SIDE = {"layers": LAYERS, "ffn_dim": 4 * SIZE, "attention_heads": HEADS}


if __name__ == "__main__":
    main()
