"""What decoders fuse: KenLM token by token, an LM in another vocabulary, weighted sums."""

from __future__ import annotations

import math
import random

import pytest
import torch
from lm_files import write_arpa, write_checkpoint

from attlm_fairseq.decoding.decoder_lm import DecoderLM
from attlm_fairseq.decoding.kenlm_lm import KenLMDecoderLM
from attlm_fairseq.decoding.vocabulary_map import MappedLM, fit_vocabulary
from attlm_fairseq.decoding.weighted_lms import WeightedLMs
from attlm_fairseq.errors import InputError
from attlm_fairseq.scoring.kenlm import KenLMScorer
from attlm_fairseq.vocabulary import EOS, SPECIAL_SYMBOLS, UNK, Vocabulary

WORDS = [f"w{number}" for number in range(12)]
VOCABULARY = Vocabulary([*SPECIAL_SYMBOLS, *WORDS, "two words", "unseen"])


@pytest.fixture
def ngram(tmp_path) -> KenLMDecoderLM:
    return KenLMDecoderLM(write_arpa(tmp_path / "lm.arpa", WORDS), VOCABULARY)


@pytest.fixture
def neural(tmp_path) -> DecoderLM:
    return DecoderLM.load(write_checkpoint(tmp_path / "lm" / "lm.pt", WORDS))


def sentences(count: int, vocabulary: Vocabulary = VOCABULARY) -> list[list[int]]:
    random_ = random.Random(4)
    return [random_.choices(range(UNK, len(vocabulary)), k=random_.randint(0, 9)) for _ in range(count)]


def by_steps(lm, tokens: list[int]) -> list[float]:
    """ln p of each token and of the end."""
    states, found, before = lm.start(), [], lm.eos
    for token in [*tokens, EOS]:
        log_probs, states = lm.step(states, torch.tensor([before]))
        found.append(log_probs[0, token].item())
        before = token
    return found


def test_kenlm_steps_are_kenlms_own_scores(ngram):
    scorer = KenLMScorer(ngram.path)
    for tokens in sentences(60):
        words = [VOCABULARY.symbols[token].replace(" ", "_") for token in tokens]
        [expected] = scorer.score([words])
        assert by_steps(ngram, tokens) == pytest.approx(expected.log_probs, abs=1e-5)
        assert ngram.sequence([*tokens, EOS]) == pytest.approx(expected.log_probs, abs=1e-9)
    assert ngram.missing == 2


def test_kenlm_rows_follow_the_decoder(ngram):
    first, states = ngram.step(ngram.start(2), torch.tensor([EOS, EOS]))
    assert torch.equal(first[0], first[1])
    _, states = ngram.step(states, torch.tensor([4, 5]))
    swapped, _ = ngram.step(ngram.select(states, torch.tensor([1, 0, 1])), torch.tensor([6, 6, 7]))
    assert swapped[0, 8].item() == pytest.approx(ngram.sequence([5, 6, 8])[-1], abs=1e-5)
    assert swapped[1, 8].item() == pytest.approx(ngram.sequence([4, 6, 8])[-1], abs=1e-5)
    assert swapped[2, EOS].item() == pytest.approx(ngram.sequence([5, 7, EOS])[-1], abs=1e-5)


def test_an_lm_of_shuffled_rows_is_refused_and_mapped_on_request(neural):
    shuffled = Vocabulary([*SPECIAL_SYMBOLS, *WORDS[::-1]])
    with pytest.raises(InputError, match=r"lm.pt: .* first difference is row 4, 'w0' in the LM and 'w11' in the decoder"):
        fit_vocabulary(neural, shuffled, "lm.pt")
    mapped = fit_vocabulary(neural, shuffled, "lm.pt", by_symbol=True)
    assert mapped.missing == 0
    for tokens in sentences(20, shuffled):
        own = [UNK if token == UNK else neural.vocabulary.ids([shuffled.symbols[token]])[0] for token in tokens]
        assert by_steps(mapped, tokens) == pytest.approx(by_steps(neural, own), abs=1e-6)
    assert fit_vocabulary(neural, Vocabulary([*SPECIAL_SYMBOLS, *WORDS]), "lm.pt") is neural
    with pytest.raises(InputError, match="row 15, 'w11' in the LM and missing in the decoder"):
        fit_vocabulary(neural, Vocabulary([*SPECIAL_SYMBOLS, *WORDS[:-1]]), "lm.pt")


def test_symbols_the_lm_lacks_share_its_unknown_word(neural):
    larger = Vocabulary([*SPECIAL_SYMBOLS, "new", *WORDS, "newer"])
    mapped = fit_vocabulary(neural, larger, "lm.pt", by_symbol=True)
    assert isinstance(mapped, MappedLM)
    assert mapped.missing == 2
    start, states = mapped.step(mapped.start(), torch.tensor([EOS]))
    assert start.exp().sum().item() == pytest.approx(1.0, abs=1e-5)
    own, own_states = neural.step(neural.start(), torch.tensor([EOS]))
    for token in (UNK, 4, len(larger) - 1):
        assert start[0, token].item() == pytest.approx(own[0, UNK].item() - math.log(3), abs=1e-5)
    after, _ = mapped.step(states, torch.tensor([4]))  # read as <unk>
    expected, _ = neural.step(own_states, torch.tensor([UNK]))
    torch.testing.assert_close(after[:, 5:-1], expected[:, 4:])


def test_two_halves_of_an_lm_are_the_whole_and_negative_weights_subtract(neural, ngram):
    own = Vocabulary([*SPECIAL_SYMBOLS, *WORDS])
    ngram = KenLMDecoderLM(ngram.path, own)
    for tokens in sentences(20, own):
        one = by_steps(WeightedLMs([neural], [0.6]), tokens)
        assert by_steps(WeightedLMs([neural, neural], [0.3, 0.3]), tokens) == pytest.approx(one, abs=1e-5)
        assert by_steps(WeightedLMs([neural, ngram, neural], [0.9, 0.0, -0.3]), tokens) == pytest.approx(one, abs=1e-5)
        assert by_steps(WeightedLMs([neural, ngram], [0.0, 0.0]), tokens) == [0.0] * (len(tokens) + 1)
        ratio = [a - b for a, b in zip(by_steps(neural, tokens), by_steps(ngram, tokens), strict=True)]
        assert by_steps(WeightedLMs([neural, ngram], [0.5, -0.5]), tokens) == pytest.approx([value / 2 for value in ratio], abs=1e-5)
    with pytest.raises(ValueError, match="need as many weights"):
        WeightedLMs([neural], [0.5, 0.5])
    with pytest.raises(ValueError, match="vocabularies differ"):
        WeightedLMs([neural, KenLMDecoderLM(ngram.path, VOCABULARY)], [0.5, 0.5])


def test_rows_of_a_sum_move_together(neural, ngram):
    both = WeightedLMs([neural, KenLMDecoderLM(ngram.path, neural.vocabulary)], [0.4, 0.6])
    _, states = both.step(both.start(3), torch.tensor([EOS] * 3))
    _, states = both.step(states, torch.tensor([4, 5, 6]))
    log_probs, _ = both.step(both.select(states, torch.tensor([2, 2, 0])), torch.tensor([7, 8, 9]))
    for row, tokens in zip(log_probs, ([6, 7], [6, 8], [4, 9]), strict=True):
        assert row[10].item() == pytest.approx(by_steps(both, [*tokens, 10])[2], abs=1e-5)
