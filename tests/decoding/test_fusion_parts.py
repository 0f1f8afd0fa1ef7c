"""What decoders fuse: KenLM token by token, an LM in another vocabulary."""

from __future__ import annotations

import itertools
import math
import random

import numpy as np
import pytest
import torch
from lm_files import write_arpa, write_checkpoint
from toy_lms import random_lm

from attlm_fairseq.checkpoints.vocabulary import EOS, SPECIAL_SYMBOLS, UNK, Vocabulary
from attlm_fairseq.decoding.decoder_lm import DecoderLM
from attlm_fairseq.decoding.fairseq_lms import load_lm
from attlm_fairseq.decoding.fusion_lm import FusionLM
from attlm_fairseq.decoding.log_linear_lm import LogLinearLM
from attlm_fairseq.decoding.look_ahead_word_lm import LookAheadWordLM
from attlm_fairseq.decoding.ngram_tokens import NgramTokens
from attlm_fairseq.decoding.stateful_neural_lm import StatefulNeuralLM
from attlm_fairseq.decoding.token_fusion import TokenFusion
from attlm_fairseq.decoding.vocabulary_map import MappedLM, fit_vocabulary
from attlm_fairseq.errors import InputError
from attlm_fairseq.scoring.ngrams.kenlm import KenLM, KenLMScorer

WORDS = [f"w{number}" for number in range(12)]
VOCABULARY = Vocabulary([*SPECIAL_SYMBOLS, *WORDS, "two words", "unseen"])


@pytest.fixture
def kenlm(tmp_path) -> KenLM:
    return KenLM(write_arpa(tmp_path / "lm.arpa", WORDS))


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


def test_kenlm_steps_are_kenlms_own_scores(kenlm):
    steps, ngram, scorer = FusionLM.of_tokens(kenlm, VOCABULARY), NgramTokens(kenlm, VOCABULARY), KenLMScorer(kenlm.path)
    for tokens in sentences(60):
        words = [VOCABULARY.symbols[token].replace(" ", "_") for token in tokens]
        [expected] = scorer.score([words])
        assert by_steps(steps, tokens) == pytest.approx(expected.log_probs, abs=1e-5)
        assert ngram.sequence([*tokens, EOS]) == pytest.approx(expected.log_probs, abs=1e-9)
    assert ngram.missing == 2
    scores, states = steps.step((), torch.empty(0, dtype=torch.long))
    assert (scores.shape, states) == ((0, len(VOCABULARY)), ())
    assert kenlm.log_probs([], ["a", "b"]).shape == (0, 2)


def test_scores_of_all_tokens_are_those_of_each(kenlm, neural):
    """With tokens that one LM, both or neither knows, tokens without text, sentence ends, and states after the end."""
    lms = LogLinearLM([StatefulNeuralLM(neural), kenlm, random_lm(["new", *WORDS[:3]])], [0.5, 0.3, -0.2])
    tokens = [None, "</s>", None, *WORDS, "new", "unseen"]
    fusion = TokenFusion(lms, tokens, ends=[1, 4], unk_offset=-3.0)
    states, random_ = [fusion.start()], random.Random(2)
    for _ in range(30):
        token = random_.randrange(len(tokens))
        states.append(fusion.score(random_.choice(states), token)[1])
    assert any(state.lms is None for state in states)
    expected = [[fusion.score(state, token)[0] for token in range(len(tokens))] for state in states]
    assert fusion.scores(states) == pytest.approx(np.array(expected), abs=1e-5)
    assert [row[1] for row in expected] == [row[4] for row in expected] == [fusion.end(state) for state in states]
    lost = fusion.start()
    assert fusion.score(lost, len(tokens) - 1)[0] == pytest.approx(lms.score(lost.lms, "unseen", -3.0)[0])
    for token in (-1, len(tokens)):
        with pytest.raises(IndexError, match=f"token {token}: expected 0 to {len(tokens) - 1}"):
            fusion.score(lost, token)


def test_an_ngram_lm_of_other_words_is_refused(kenlm):
    vocabulary = Vocabulary([*SPECIAL_SYMBOLS, "other", "words"])
    with pytest.raises(InputError, match=r"lm.arpa: has none of the decoder's 2 symbols: train the LM"):
        load_lm(kenlm.path, vocabulary)
    assert load_lm(kenlm.path, Vocabulary([*SPECIAL_SYMBOLS, "other", "w3"])).missing == 1


def test_kenlm_rows_follow_the_decoder(kenlm):
    steps, ngram = FusionLM.of_tokens(kenlm, VOCABULARY), NgramTokens(kenlm, VOCABULARY)
    first, states = steps.step(steps.start(2), torch.tensor([EOS, EOS]))
    assert torch.equal(first[0], first[1])
    _, states = steps.step(states, torch.tensor([4, 5]))
    swapped, _ = steps.step(steps.select(states, torch.tensor([1, 0, 1])), torch.tensor([6, 6, 7]))
    assert swapped[0, 8].item() == pytest.approx(ngram.sequence([5, 6, 8])[-1], abs=1e-5)
    assert swapped[1, 8].item() == pytest.approx(ngram.sequence([4, 6, 8])[-1], abs=1e-5)
    assert swapped[2, EOS].item() == pytest.approx(ngram.sequence([5, 7, EOS])[-1], abs=1e-5)


def test_what_kenlm_keeps_of_its_scores_is_bounded(tmp_path):
    """About 18 MB: a long decoding run asks for a million different ones, with 278 MB."""
    words = [f"w{number}" for number in range(300)]
    lm = NgramTokens(KenLM(write_arpa(tmp_path / "lm.arpa", words[:60])), Vocabulary([*SPECIAL_SYMBOLS, *words]))
    for before, token in itertools.islice(itertools.product(range(4, 304), repeat=2), 70_000):
        lm.score(lm.context([before, before]), token)
    assert lm.score.cache_info().currsize == 65_536


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


BPE = ["w@@", "x@@", "y", "w1", "z", "w2"]
PIECES = ["\u2581w", "\u2581x", "y", "w1", "z", "0"]


@pytest.mark.parametrize(("own", "others"), [(WORDS, BPE), (WORDS, PIECES), (BPE, WORDS), (BPE, PIECES)])
def test_an_lm_of_words_is_not_to_be_mapped_to_subwords(tmp_path, own, others):
    lm = DecoderLM.load(write_checkpoint(tmp_path / "lm.pt", own))
    kinds = {id(WORDS): "words, without marks", id(BPE): "subwords marked by @@", id(PIECES): "subwords marked by \u2581"}
    told = rf"lm.pt: its symbols are {kinds[id(own)]}.* the decoder's {kinds[id(others)]}.*LookAheadWordLM"
    with pytest.raises(InputError, match=told) as error:
        fit_vocabulary(lm, Vocabulary([*SPECIAL_SYMBOLS, *others]), "lm.pt")
    assert "--lm-map-symbols" not in str(error.value)


def test_a_mapped_lm_has_some_of_the_symbols(neural):
    filling = ["madeupword0000", "madeupword0001"]
    neural.vocabulary = Vocabulary([*neural.vocabulary.symbols[:-2], *filling])
    with pytest.raises(InputError, match=r"lm.pt: has none of the decoder's 3 symbols: train the LM"):
        fit_vocabulary(neural, Vocabulary([*SPECIAL_SYMBOLS, "a", "b", "c", *filling]), "lm.pt", by_symbol=True)
    mapped = fit_vocabulary(neural, Vocabulary([*SPECIAL_SYMBOLS, "a", "b", "w3", *filling]), "lm.pt", by_symbol=True)
    assert mapped.missing == 2


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


@pytest.mark.parametrize("kind", ["look ahead", "tokens"])
def test_a_call_that_needs_more_than_the_cache_computes_nothing_twice(tmp_path, kind):
    words = ["".join(letters) for letters in itertools.product("abcd", repeat=3)]
    path = write_checkpoint(tmp_path / "lm.pt", words)
    found = []
    for rows in (40, 2000):  # that caches have room for
        neural = StatefulNeuralLM.load(path, cache_bytes=rows * 16 * len(words))  # with the states
        if kind == "tokens":
            fusion = TokenFusion(LogLinearLM([neural]), [None] * 4 + words + [None], ends=[4 + len(words)])
        else:
            texts = [*(letter.encode() for letter in "abcd"), *(f" {word}".encode() for word in words), None]
            fusion = LookAheadWordLM(LogLinearLM([neural]), texts, ends=[len(texts) - 1], cache_bytes=rows * 8 * len(words))
        states = [fusion.score(fusion.score(fusion.start(), 4 + i % 60)[1], 4 + (7 * i) % 60)[1] for i in range(100)]
        before = neural.computed
        found.append(fusion.scores(states))
        assert neural.computed - before <= len(states) * (1 if kind == "tokens" else 2)
    np.testing.assert_allclose(*found, rtol=0, atol=1e-6)
