"""The language models in torchaudio's CTC decoder, which is flashlight-text's behind another door."""

from __future__ import annotations

import importlib.util
import math
import sys
from importlib.metadata import PackageNotFoundError, distribution
from types import ModuleType

import numpy as np
import pytest
import torch
from flashlight.lib.text.dictionary import create_word_dict, load_words
from lm_files import write_checkpoint
from toy_lms import write_arpa

from attlm_fairseq.decoding.flashlight import FlashlightLM
from attlm_fairseq.decoding.log_linear_lm import LogLinearLM
from attlm_fairseq.scoring.ngrams.kenlm import KenLM

TOKENS = ["-", "|", *"abcde"]
WORDS = ["dad", "a", "ab", "abe", "bad", "bed", "bee", "cab", "dace", "ebb"]  # not in the order of the alphabet
LN_10 = math.log(10.0)


@pytest.fixture(scope="module")
def torchaudio_decoder() -> ModuleType:
    """torchaudio's decoder; its file alone if torchaudio's own library does not load with this torch."""
    try:
        import torchaudio.models.decoder as decoder
    except (ImportError, OSError):
        try:
            path = distribution("torchaudio").locate_file("torchaudio/models/decoder/_ctc_decoder.py")
        except PackageNotFoundError:
            pytest.skip("torchaudio is not installed")
        utilities = ModuleType("torchaudio.utils")
        utilities._download_asset = None
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(sys.modules, "torchaudio", ModuleType("torchaudio"))
            patch.setitem(sys.modules, "torchaudio.utils", utilities)
            spec = importlib.util.spec_from_file_location("torchaudio_ctc_decoder", path)
            decoder = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(decoder)
    return decoder


@pytest.fixture(scope="module")
def lexicon(tmp_path_factory) -> str:
    path = tmp_path_factory.mktemp("lexicon") / "lexicon.txt"
    path.write_text("".join(f"{word} {' '.join(word)} |\n" for word in [*WORDS, "<unk>"]), encoding="utf-8")
    return str(path)


def emissions(seed: int, frames: int = 16) -> torch.Tensor:
    """Log-probabilities (1, T, N)."""
    values = np.random.default_rng(seed).normal(size=(frames, len(TOKENS))) * 1.5
    return torch.log_softmax(torch.from_numpy(values).float(), dim=-1).unsqueeze(0)


def decode(module: ModuleType, lexicon: str | None, lm, weight: float, seed: int):
    options = {"nbest": 5, "beam_size": 50, "lm_weight": weight, "word_score": 0.3}
    decoder = module.ctc_decoder(lexicon=lexicon, tokens=TOKENS, lm=lm, **options)
    return [(found.words, found.tokens.tolist(), found.timesteps.tolist(), found.score) for found in decoder(emissions(seed))[0]]


def close(found):
    return [(words, tokens, steps, pytest.approx(score, abs=1e-3)) for words, tokens, steps, score in found]


def test_kenlm_is_torchaudios_own(torchaudio_decoder, lexicon, tmp_path):
    """Words, tokens, times and scores. The order of the words is torchaudio's, from its lexicon."""
    arpa = write_arpa(tmp_path / "lm.arpa", WORDS)
    words = create_word_dict(load_words(lexicon))
    for seed in range(4):
        own = decode(torchaudio_decoder, lexicon, str(arpa), 1.5 * LN_10, seed)
        lm = FlashlightLM.of_words(LogLinearLM([KenLM(arpa)]), words)
        assert decode(torchaudio_decoder, lexicon, lm, 1.5, seed) == close(own)
        assert any(found[0] for found in own)


def test_hypotheses_have_the_scores_of_their_words(torchaudio_decoder, lexicon, tmp_path):
    """Those of a neural LM, which would be other words' if the order of the words were another."""
    lms = LogLinearLM.load(write_checkpoint(tmp_path / "lm.pt", WORDS, attention_score="combined"))
    lm = FlashlightLM.of_words(lms, create_word_dict(load_words(lexicon)))
    for seed in range(2):
        none = {tuple(tokens): score for _, tokens, _, score in decode(torchaudio_decoder, lexicon, None, 0.0, seed)}
        shared = 0
        for words, tokens, _, score in decode(torchaudio_decoder, lexicon, lm, 1.0, seed):
            total, state = 0.0, lms.start()
            for word in words:
                value, state = lms.score(state, word)
                total += value
            if tuple(tokens) in none and words:
                shared += 1
                assert score - none[tuple(tokens)] == pytest.approx(total + lms.end(state), abs=2e-2)
        assert shared or seed
