#!/usr/bin/env python3
"""Words of hypotheses a second with LMs of other libraries: one by one, in padded batches, and with shared prefixes, in one run.

    python benchmarks/foreign_lms.py                # about 3 minutes
    python benchmarks/foreign_lms.py --lists 40 --vocabulary 5000

A 2-layer GPT-2 and a 2-layer fairseq ``transformer_lm`` with random weights, since speed does not depend on them, score the same 5-best
lists of ../shared/data. "One by one": one pass of the library's model for each hypothesis. "Padded batches": hypotheses sorted by
length, 64 in a pass. "Shared prefixes": what ``attlm`` does. All scores are compared. Seconds are those of the CPU, which other
programs on a busy machine change little.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor

from attlm_fairseq.nbest.formats import open_nbest
from attlm_fairseq.scoring.foreign_lms.fairseq_lm import FairseqTokenLM
from attlm_fairseq.scoring.foreign_lms.huggingface_lm import HuggingFaceTokenLM
from attlm_fairseq.scoring.foreign_lms.token_lm import TokenLM, TokenScorer
from attlm_fairseq.transformers_import import hide_broken_torchaudio

DATA = Path(__file__).parents[2] / "shared" / "data" / "nbest"
SIZE, LAYERS, HEADS, POSITIONS = 256, 2, 4, 512
BATCH = 64
PADDING = 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--nbest", default=str(DATA / "librispeech-test-clean.json.gz"), help="5-best lists")
    parser.add_argument("--lists", type=int, default=120)
    parser.add_argument("--vocabulary", type=int, default=10_000, help="vocabulary size of both models")
    options = parser.parse_args()
    if options.nbest == parser.get_default("nbest") and not DATA.is_dir():
        print(f"skipped: there is no {DATA}")
        return
    sentences = read_sentences(options.nbest, options.lists)
    words = sum(map(len, sentences))
    print(f"{len(sentences)} hypotheses, {words} words; {torch.get_num_threads()} thread(s), vocabulary {options.vocabulary}")
    known = [word for word, _ in Counter(word for words in sentences for word in words).most_common(options.vocabulary - 10)]
    with tempfile.TemporaryDirectory() as folder:
        for title, make, forward in (("GPT-2", make_gpt2, gpt2_logits), ("fairseq transformer_lm", make_fairseq, fairseq_logits)):
            measure(title, make(Path(folder), known, options.vocabulary), forward, sentences, words)


def measure(title: str, lm: TokenLM, forward: Callable[[TokenLM, Tensor], Tensor], sentences: Sequence[Sequence[str]], words: int) -> None:
    """Print the three ways' words a second, and how far their scores are from each other."""
    tokens = [[*lm.start, *sentence.tokens, lm.end] for sentence in lm.encode(sentences)]
    order = sorted(range(len(tokens)), key=lambda number: len(tokens[number]))
    batches = [order[begin : begin + BATCH] for begin in range(0, len(order), BATCH)]
    ways = {
        "one by one": lambda: padded(lm, forward, tokens, [[number] for number in range(len(tokens))]),
        f"padded batches of {BATCH}": lambda: padded(lm, forward, tokens, batches),
        "shared prefixes": lambda: [score.total for score in TokenScorer(lm).score(sentences)],
    }
    ways["shared prefixes"]()  # the first call of a model compiles kernels
    found: dict[str, list[float]] = {}
    seconds: dict[str, float] = {}
    for name, way in ways.items():
        begin = time.process_time()
        found[name] = way()
        seconds[name] = time.process_time() - begin
    exact = found["one by one"]
    print(f"\n{title}\t{'words/s':>9}\t{'times':>6}\tlargest difference (nats)")
    for name, took in seconds.items():
        difference = max(abs(a - b) for a, b in zip(exact, found[name], strict=True))
        print(f"  {name:24}\t{words / took:9.0f}\t{seconds['one by one'] / took:6.2f}\t{difference:.1e}")


@torch.inference_mode()
def padded(
    lm: TokenLM, forward: Callable[[TokenLM, Tensor], Tensor], tokens: Sequence[Sequence[int]], batches: Sequence[Sequence[int]]
) -> list[float]:
    """Return ln p of each sentence, computed in batches that are padded on the right."""
    totals = [0.0] * len(tokens)
    for batch in batches:
        longest = max(len(tokens[number]) for number in batch)
        rows = torch.tensor([[*tokens[number], *[PADDING] * (longest - len(tokens[number]))] for number in batch])
        log_probs = forward(lm, rows[:, :-1]).float().log_softmax(-1).gather(2, rows[:, 1:, None])[..., 0]
        for number, row in zip(batch, log_probs, strict=True):
            totals[number] = row[: len(tokens[number]) - 1].double().sum().item()
    return totals


def gpt2_logits(lm: TokenLM, tokens: Tensor) -> Tensor:
    return lm.model(input_ids=tokens, use_cache=False).logits


def fairseq_logits(lm: TokenLM, tokens: Tensor) -> Tensor:
    return lm.model(tokens)[0]


def make_gpt2(folder: Path, words: Sequence[str], vocabulary: int) -> TokenLM:
    """Return a GPT-2 whose tokens are words."""
    hide_broken_torchaudio()
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

    entries = {word: place for place, word in enumerate(["<|endoftext|>", "<pad>", "<unk>", *words])}
    tokenizer = Tokenizer(models.WordLevel(entries, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<|endoftext|>", eos_token="<|endoftext|>", pad_token="<pad>", unk_token="<unk>"
    )
    torch.manual_seed(1)
    config = GPT2Config(n_layer=LAYERS, n_head=HEADS, n_embd=SIZE, n_positions=POSITIONS, vocab_size=vocabulary, initializer_range=0.1)
    return HuggingFaceTokenLM(GPT2LMHeadModel(config), fast, folder)


def make_fairseq(folder: Path, words: Sequence[str], vocabulary: int) -> TokenLM:
    """Return a transformer_lm of fairseq of the same size."""
    from argparse import Namespace

    from fairseq.data import Dictionary
    from fairseq.models import ARCH_CONFIG_REGISTRY
    from fairseq.models.transformer_lm import TransformerLanguageModel, TransformerLanguageModelConfig
    from omegaconf import OmegaConf

    dictionary = Dictionary()
    for number in range(vocabulary - 4):
        dictionary.add_symbol(words[number] if number < len(words) else f"madeupword{number}")
    sizes = {"decoder_embed_dim": SIZE, "decoder_input_dim": SIZE, "decoder_output_dim": SIZE, "decoder_ffn_embed_dim": 4 * SIZE}
    sizes |= {"decoder_layers": LAYERS, "decoder_attention_heads": HEADS, "share_decoder_input_output_embed": True}
    positions = {"tokens_per_sample": POSITIONS, "max_target_positions": POSITIONS, "add_bos_token": False, "tpu": False}
    config = OmegaConf.merge(OmegaConf.structured(TransformerLanguageModelConfig()), sizes | positions)
    assert "transformer_lm" in ARCH_CONFIG_REGISTRY
    torch.manual_seed(1)
    names = ("source_dictionary", "target_dictionary", "dictionary", "output_dictionary")
    (folder / "lm.pt").touch()  # only its hash is asked for
    return FairseqTokenLM(TransformerLanguageModel.build_model(config, Namespace(**dict.fromkeys(names, dictionary))), folder / "lm.pt")


def read_sentences(path: str, lists: int) -> list[list[str]]:
    """Return the hypotheses of the first lists as words."""
    _, found = open_nbest(path, None)
    return [hypothesis.text.split() for nbest, _ in zip(found, range(lists), strict=False) for hypothesis in nbest.hypotheses]


if __name__ == "__main__":
    main()
