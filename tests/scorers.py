"""One Scorer of every kind, small and made in the test."""

from __future__ import annotations

from pathlib import Path

from foreign_lms import FAIRSEQ, WORDS, write_bert, write_fairseq_lm, write_gpt2
from lm_files import write_arpa, write_checkpoint

from attlm_fairseq.scoring.compute import DeviceConfig
from attlm_fairseq.scoring.context.cache import CacheScorer, NeuralCache, UnigramCache
from attlm_fairseq.scoring.foreign_lms.fairseq_lm import load_fairseq_lm
from attlm_fairseq.scoring.foreign_lms.huggingface_lm import load_huggingface_lm
from attlm_fairseq.scoring.foreign_lms.masked_lm import load_masked_lm
from attlm_fairseq.scoring.foreign_lms.segmented import SegmentedScorer
from attlm_fairseq.scoring.foreign_lms.sentence_frame import SentenceFrame
from attlm_fairseq.scoring.lm_files import load_lm_files
from attlm_fairseq.scoring.mixture import MixtureScorer
from attlm_fairseq.scoring.neural.neural_scorer import NeuralScorer
from attlm_fairseq.scoring.ngrams.kenlm import KenLMScorer
from attlm_fairseq.scoring.scorer import Scorer
from attlm_fairseq.scoring.unknown_words.oov_policy import OOVPolicy, with_policy


def neural(folder: Path, **options: object) -> NeuralScorer:
    return NeuralScorer.load([write_checkpoint(folder / "lm.pt", WORDS, **options)], "neural")


def in_bfloat16(folder: Path) -> Scorer:
    return NeuralScorer.load([write_checkpoint(folder / "lm.pt", WORDS)], "low", compute=DeviceConfig(precision="bfloat16"))


def ensemble(folder: Path) -> Scorer:
    paths = [write_checkpoint(folder / f"{seed}.pt", WORDS, seed) for seed in (1, 2)]
    return NeuralScorer.load(paths, "ensemble", [1.0, 3.0])


def kenlm(folder: Path) -> Scorer:
    return KenLMScorer(write_arpa(folder / "lm.arpa", WORDS), "ngram")


def segmented(folder: Path) -> Scorer:
    letters = sorted(set("".join(WORDS)))
    inner = NeuralScorer.load([write_checkpoint(folder / "letters.pt", letters)], "letters")
    return SegmentedScorer(inner, list, "letters")


def mixture(folder: Path) -> Scorer:
    members = [kenlm(folder), with_policy(neural(folder), OOVPolicy("spread", 100.0))]
    return with_policy(MixtureScorer(members, [1.0, 2.0], "mix"), OOVPolicy("penalty", -9.0))


def gpt2(folder: Path) -> Scorer:
    return load_huggingface_lm(write_gpt2(folder / "gpt2"), "gpt2")


def gpt2_without_end(folder: Path) -> Scorer:
    return load_huggingface_lm(write_gpt2(folder / "gpt2"), "gpt2", SentenceFrame("a", "none", "the dog"))


def gpt2_in_bfloat16(folder: Path) -> Scorer:
    return load_huggingface_lm(write_gpt2(folder / "gpt2"), "gpt2", compute=DeviceConfig(precision="bfloat16"))


def foreign_ensemble(folder: Path) -> Scorer:
    return load_lm_files([write_gpt2(folder / "gpt2"), write_fairseq_lm(folder / "lm.pt", "lstm_lm")], "both", [1.0, 3.0])


def bert(folder: Path) -> Scorer:
    return load_masked_lm(write_bert(folder / "bert"), "bert")


MAKERS = {
    "neural": neural,
    "neural, adaptive": lambda folder: neural(folder, _name="averaging_lstm_lm", output_layer="adaptive", adaptive_cutoffs="7"),
    "key-value-predict": lambda folder: neural(folder, _name="kvp_lstm_lm"),
    "bfloat16": in_bfloat16,
    "ensemble": ensemble,
    "n-gram": kenlm,
    "pieces": segmented,
    "mixture under a policy": mixture,
    "GPT-2": gpt2,
    "GPT-2 without sentence end": gpt2_without_end,
    "GPT-2 in bfloat16": gpt2_in_bfloat16,
    **{f"fairseq's {kind}": lambda folder, kind=kind: load_fairseq_lm(write_fairseq_lm(folder / "lm.pt", kind), kind) for kind in FAIRSEQ},
    "foreign ensemble": foreign_ensemble,
    "BERT": bert,
    "neural and unigram cache": lambda folder: CacheScorer(CacheScorer(neural(folder), NeuralCache(50, 0.3, 0.2)), UnigramCache(50, 0.1)),
}
KINDS = list(MAKERS)


def make_scorer(kind: str, folder: Path) -> Scorer:
    """A scorer of a kind, its files written to the folder."""
    return MAKERS[kind](folder)
