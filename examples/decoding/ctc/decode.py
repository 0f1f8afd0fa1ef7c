#!/usr/bin/env python3
"""Decode CTC emissions greedily and with language models; print word error rate and time of each.

    python decode.py test.npz --train train.txt --kenlm lm.arpa --lm model/checkpoint_best.pt
    python decode.py test.npz --train train.txt --kenlm lm.arpa --lm model/checkpoint_best.pt --phrases names.txt

The decoders are flashlight-text's. One has the words of the training text as a lexicon. The other works letter by letter
without a lexicon: the word LM looks ahead within words (``LookAheadWordLM``), and new words can be written. There,
``--phrases`` also decodes with a preference for the names and terms of a file (``PhraseFusion``). The time is
CPU time for one utterance after the other. OMP_NUM_THREADS=1 keeps torch's threads from waiting for each other.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable
from itertools import product
from pathlib import Path

import numpy as np
from emissions import BLANK, LABELS, SILENCE, Utterance, read
from flashlight.lib.text.decoder import (
    CriterionType,
    LexiconDecoder,
    LexiconDecoderOptions,
    LexiconFreeDecoder,
    LexiconFreeDecoderOptions,
    SmearingMode,
    Trie,
)
from flashlight.lib.text.dictionary import Dictionary

from attlm_fairseq.decoding.flashlight import FlashlightLM
from attlm_fairseq.decoding.fusion_sum import FusionSum
from attlm_fairseq.decoding.log_linear_lm import LogLinearLM
from attlm_fairseq.decoding.look_ahead_word_lm import LookAheadWordLM
from attlm_fairseq.decoding.phrase_fusion import PhraseFusion
from attlm_fairseq.decoding.token_texts import token_texts
from attlm_fairseq.nbest.metrics.edit_rates import WER
from attlm_fairseq.nbest.metrics.metric import corpus_score

BEAM, BEAM_TOKENS, BEAM_THRESHOLD = 40, 12, 15.0
LETTER_BEAM_TOKENS, LETTER_BEAM_THRESHOLD = 6, 10.0  # without a lexicon nearly every letter is possible everywhere
PHRASE_WEIGHT = 12.0  # of a word inside a phrase
LM_WEIGHTS, WORD_SCORES = (0.4, 0.7, 1.0), (0.0, 1.0)  # what --try-weights tries
WEIGHTS = {  # of the LM and of each word (without a lexicon, of each silence), see README.md
    "lexicon, KenLM": (0.7, 0.0),
    "lexicon, attentive LM": (0.7, 0.0),
    "lexicon, half of each": (0.7, 0.0),
    "letters, attentive LM": (0.7, 4.0),
}

Decode = Callable[[np.ndarray], str]  # log-probabilities (T, labels) -> words


def greedy(log_probs: np.ndarray) -> str:
    return written(log_probs.argmax(axis=1).tolist())


def written(labels: list[int]) -> str:
    """Return the text of a CTC path: repeated labels merged, blanks left out."""
    merged = [label for place, label in enumerate(labels) if place == 0 or label != labels[place - 1]]
    return " ".join("".join(LABELS[label] for label in merged if label != BLANK).replace("|", " ").split())


def with_lexicon(lms: LogLinearLM, words: list[str], lm_weight: float, word_score: float) -> Decode:
    """flashlight's lexicon decoder: nothing but words of the lexicon, each scored by the LMs as it ends."""
    dictionary = Dictionary([*words, "<unk>"])
    lm = FlashlightLM.of_words(lms, dictionary)
    trie = Trie(len(LABELS), SILENCE)
    start = lm.start(False)
    for index, word in enumerate(words):
        _, score = lm.score(start, index)
        trie.insert([*map(LABELS.index, word), SILENCE], index, score)
    trie.smear(SmearingMode.MAX)  # a partial word has the score of the best word that it can become
    options = LexiconDecoderOptions(BEAM, BEAM_TOKENS, BEAM_THRESHOLD, lm_weight, word_score, -math.inf, 0.0, False, CriterionType.CTC)
    decoder = LexiconDecoder(options, trie, lm, SILENCE, BLANK, len(words), [], False)

    def decode(log_probs: np.ndarray) -> str:
        best = decoder.decode(log_probs.ctypes.data, *log_probs.shape)[0]
        return " ".join(words[word] for word in best.words if word >= 0)

    decode.lm = lm  # the decoder does not keep it
    return decode


def without_lexicon(lms: LogLinearLM, words: list[str], lm_weight: float, word_score: float, phrases: Path | None = None) -> Decode:
    """flashlight's lexicon-free decoder: any letters; each letter and each word end is scored by the LMs of words, and by the phrases."""
    texts = token_texts(LABELS, special=[BLANK])
    fusions = [LookAheadWordLM(lms, texts)]
    if phrases is not None:
        fusions.append(PhraseFusion.load(phrases, texts, PHRASE_WEIGHT / lm_weight))  # the decoder multiplies all by the LM weight
    lm = FlashlightLM(FusionSum(*fusions))
    options = LexiconFreeDecoderOptions(BEAM, LETTER_BEAM_TOKENS, LETTER_BEAM_THRESHOLD, lm_weight, word_score, False, CriterionType.CTC)
    decoder = LexiconFreeDecoder(options, lm, SILENCE, BLANK, [])

    def decode(log_probs: np.ndarray) -> str:
        return written(decoder.decode(log_probs.ctypes.data, *log_probs.shape)[0].tokens)

    decode.lm = lm
    return decode


def error_rate(hypotheses: list[str], utterances: list[Utterance]) -> float:
    metric = WER()
    return corpus_score(
        metric, np.concatenate([metric.statistics([text], [found.text]) for text, found in zip(hypotheses, utterances, strict=True)])
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("emissions", type=Path, help="as emissions.py writes them")
    parser.add_argument("--train", type=Path, required=True, help="text whose words are the lexicon")
    parser.add_argument("--kenlm", type=Path, required=True)
    parser.add_argument("--lm", type=Path, required=True, help="a checkpoint")
    parser.add_argument("--phrases", type=Path, help="names and terms to prefer, one per line")
    parser.add_argument("--try-weights", action="store_true", help="decode with each of several weights instead: for choosing on dev")
    options = parser.parse_args()
    utterances = read(options.emissions)
    speech = sum(found.seconds for found in utterances)
    words = sorted(set(options.train.read_text("utf-8").split()))
    print(f"{'system':<26}{'LM weight':>10}{'word score':>11}{'WER':>8}{'s/sentence':>12}{'s/s speech':>12}")

    def report(name: str, decode: Decode, weights: str = "") -> None:
        began = time.process_time()
        hypotheses = [decode(found.log_probs) for found in utterances]
        took = time.process_time() - began
        rate = error_rate(hypotheses, utterances)
        print(f"{name:<26}{weights:>21}{rate:>8.2f}{took / len(utterances):>12.4f}{took / speech:>12.4f}", flush=True)

    neural, ngram = LogLinearLM.load({options.lm: 1.0}), LogLinearLM.load({options.kenlm: 1.0})
    halves = LogLinearLM([*neural.lms, *ngram.lms], [0.5, 0.5])
    report("greedy", greedy)
    report("lexicon, no LM", with_lexicon(LogLinearLM([]), words, 0.0, 0.0))
    for name, build, lms in (
        ("lexicon, KenLM", with_lexicon, ngram),
        ("lexicon, attentive LM", with_lexicon, neural),
        ("lexicon, half of each", with_lexicon, halves),
        ("letters, attentive LM", without_lexicon, neural),
    ):
        for lm_weight, word_score in product(LM_WEIGHTS, WORD_SCORES) if options.try_weights else [WEIGHTS[name]]:
            report(name, build(lms, words, lm_weight, word_score), f"{lm_weight:.1f}{word_score:>11.1f}")
    if options.phrases:
        lm_weight, word_score = WEIGHTS["letters, attentive LM"]
        report(
            "letters, LM and phrases",
            without_lexicon(neural, words, lm_weight, word_score, options.phrases),
            f"{lm_weight:.1f}{word_score:>11.1f}",
        )


if __name__ == "__main__":
    main()
