"""The language models in ESPnet's own beam search. ``make`` installs ESPnet without its dependencies, which the search does not need."""

from __future__ import annotations

import pytest
import torch
from lm_files import write_arpa, write_checkpoint

from attlm_fairseq.decoding.espnet import BLANK, EspnetLM
from attlm_fairseq.decoding.log_linear_lm import LogLinearLM
from attlm_fairseq.decoding.stateful_neural_lm import StatefulNeuralLM
from attlm_fairseq.scoring.ngrams.kenlm import KenLM

SUBWORDS = ["<blank>", "<unk>", "▁a", "▁b", "b", "e", "ed", "▁ca", "d", "<sos/eos>"]
LETTERS = ["<blank>", "<unk>", "<space>", *"abcde", "<sos/eos>"]
WORDS = ["a", "ab", "bed", "bee", "cab", "cad"]
BEAM, LENGTH = 4, 8

BatchBeamSearch = pytest.importorskip("espnet.nets.batch_beam_search", reason="ESPnet is not installed").BatchBeamSearch
BatchScorerInterface = pytest.importorskip("espnet.nets.scorer_interface").BatchScorerInterface


@pytest.fixture
def words(tmp_path) -> LogLinearLM:
    neural = StatefulNeuralLM.load(write_checkpoint(tmp_path / "words" / "lm.pt", WORDS, attention_score="combined"))
    return LogLinearLM([neural, KenLM(write_arpa(tmp_path / "words.arpa", WORDS[1:]))], [0.7, 0.3])


@pytest.fixture
def subwords(tmp_path) -> LogLinearLM:
    symbols = SUBWORDS[2:-2]  # "d" is not known
    neural = StatefulNeuralLM.load(write_checkpoint(tmp_path / "subwords" / "lm.pt", symbols, attention_score="combined"))
    return LogLinearLM([neural, KenLM(write_arpa(tmp_path / "subwords.arpa", symbols))], [0.7, -0.2])


class FullPrefix(BatchScorerInterface):
    """The same scores with no state at all: every prefix from its beginning, every token by itself."""

    def __init__(self, fusion) -> None:
        self.fusion = fusion

    def batch_score(self, ys, states, xs):
        rows = []
        for tokens in ys.tolist():
            state = self.fusion.start()
            for token in tokens[1:]:
                if token != BLANK:  # is no word
                    state = self.fusion.score(state, token)[1]
            rows.append([self.fusion.score(state, token)[0] for token in range(self.fusion.size)])
        return torch.tensor(rows), [None] * len(rows)


class Acoustic(BatchScorerInterface):
    """The decoder's ln p after prefixes: random, the same whenever a prefix comes again."""

    def __init__(self, size: int, seed: int) -> None:
        self.size, self.seed = size, seed

    def batch_score(self, ys, states, xs):
        seeds = [hash((self.seed, *tokens)) % 2**31 for tokens in ys.tolist()]
        rows = [torch.randn(self.size, generator=torch.Generator().manual_seed(seed)) for seed in seeds]
        return torch.log_softmax(2 * torch.stack(rows), dim=1), [None] * len(rows)


def batch_beam_search(lm, size: int, seed: int, weight: float = 0.6) -> list[tuple[list[int], float]]:
    """The hypotheses of ESPnet's search, with their scores."""
    scorers, weights = {"decoder": Acoustic(size, seed), "lm": lm}, {"decoder": 1.0, "lm": weight}
    search = BatchBeamSearch(
        scorers, weights, BEAM, vocab_size=size, sos=size - 1, eos=size - 1, token_list=[str(token) for token in range(size)]
    )
    search.to(device="cpu").eval()  # as ESPnet's programs do
    with torch.inference_mode():
        found = search(torch.zeros(5, 3), maxlenratio=-LENGTH)
    return [(hypothesis.yseq.tolist(), float(hypothesis.score)) for hypothesis in found]


@pytest.mark.parametrize("kind", ["tokens", "spelled subwords", "letters"])
def test_beam_search_is_that_of_full_prefixes(words, subwords, kind):
    lm = {
        "tokens": lambda: EspnetLM.of_tokens(subwords, SUBWORDS, unk_offset=-1.0),
        "spelled subwords": lambda: EspnetLM.of_spelling(words, SUBWORDS, unk_offset=-4.0),
        "letters": lambda: EspnetLM.of_spelling(words, LETTERS, unk_offset=-4.0),
    }[kind]()
    moved = 0
    for seed in range(4):
        found = batch_beam_search(lm, lm.fusion.size, seed)
        expected = batch_beam_search(FullPrefix(lm.fusion), lm.fusion.size, seed)
        assert [row for row, _ in found] == [row for row, _ in expected]
        assert [total for _, total in found] == pytest.approx([total for _, total in expected], abs=1e-5)
        moved += [row for row, _ in found] != [row for row, _ in batch_beam_search(lm, lm.fusion.size, seed, weight=0.0)]
    assert moved


class FromTheBeginning:
    """The LM of a transducer's search with the labels so far as its state: every score from the beginning, by itself."""

    rnn_type = "none"

    def __init__(self, fusion, starts: bool) -> None:
        """Use a fusion; ``starts``: the search gives all labels, after ``<sos/eos>``, and not the last one alone."""
        self.fusion, self.starts = fusion, starts

    def zero_state(self) -> tuple[int, ...]:
        return ()

    def score(self, y, state, x):
        labels = () if len(y) == 1 else (*(state or ()), int(y[-1]))
        return self._scores(labels), labels

    def batch_score(self, ys, states, xs):
        last = [[label for label in row[self.starts :][-1:] if label != BLANK] for row in ys.tolist()]
        after = [(*(state or ()), *label) for label, state in zip(last, states, strict=True)]
        return torch.stack([self._scores(labels) for labels in after]), after

    def _scores(self, labels):
        state = self.fusion.start()
        for token in labels:
            state = self.fusion.score(state, token)[1]
        return torch.tensor([self.fusion.score(state, token)[0] for token in range(self.fusion.size)])


def transducer_search(module: str, lm, search: str, seed: int, weight: float = 0.6) -> list[tuple[list[int], float]]:
    """The hypotheses of ESPnet's search, with their scores. Decoder and joint network have random weights."""
    name = {"asr": "asr.transducer", "asr_transducer": "asr_transducer"}[module]
    made = pytest.importorskip(f"espnet2.{name}.beam_search_transducer", reason="ESPnet or typeguard is not installed")
    from espnet2.asr.decoder.transducer_decoder import TransducerDecoder
    from espnet2.asr_transducer.decoder.rnn_decoder import RNNDecoder
    from espnet2.asr_transducer.joint_network import JointNetwork

    torch.manual_seed(seed)
    size = lm.fusion.size
    decoder = TransducerDecoder(size, hidden_size=6) if module == "asr" else RNNDecoder(size, embed_size=6, hidden_size=6)
    joint = JointNetwork(size, 5, 6, 8)
    for parameter in (*decoder.parameters(), *joint.parameters()):
        torch.nn.init.normal_(parameter, std=0.7)  # far from certain of a label: the default search would not come to the next frame
    joint.lin_out.bias.data[BLANK] += 2
    options = {"search_type": search, "nbest": BEAM, "nstep": 2, "score_norm": False}
    run = made.BeamSearchTransducer(decoder, joint, BEAM, lm=lm, lm_weight=weight, **options)
    with torch.inference_mode():
        found = run(torch.randn(6, 5))
    return [(hypothesis.yseq, float(hypothesis.score)) for hypothesis in found]


SEARCHES = [("asr", name) for name in ("default", "tsd", "alsd", "nsc", "maes")]
SEARCHES += [("asr_transducer", name) for name in ("default", "tsd", "alsd", "maes")]


@pytest.mark.parametrize(("module", "search"), SEARCHES)
def test_searches_of_transducers_are_those_of_full_prefixes(words, subwords, module, search):
    for lm in (EspnetLM.of_tokens(subwords, SUBWORDS, unk_offset=-1.0), EspnetLM.of_spelling(words, LETTERS, unk_offset=-4.0)):
        moved = 0
        for seed in range(3):
            found = transducer_search(module, lm, search, seed)
            expected = transducer_search(module, FromTheBeginning(lm.fusion, module == "asr_transducer"), search, seed)
            assert [row for row, _ in found] == [row for row, _ in expected]
            assert [total for _, total in found] == pytest.approx([total for _, total in expected], abs=1e-4)
            moved += [row for row, _ in found] != [row for row, _ in transducer_search(module, lm, search, seed, weight=0.0)]
            assert max(len(row) for row, _ in found) > 1
        assert moved


def test_one_hypothesis_at_a_time_has_the_same_scores(subwords):
    lm, x = EspnetLM.of_tokens(subwords, SUBWORDS), torch.zeros(5, 3)
    full = FullPrefix(lm.fusion)
    _, states = lm.batch_score(torch.tensor([[9, 2], [9, 5]]), [None, None], x)
    assert [lm.select_state(states, place) for place in (1, 0)] == [lm.fusion.score(lm.fusion.start(), token)[1] for token in (5, 2)]
    assert lm.select_state(None, 1) is lm.init_state(x)
    assert lm.final_score(states[0]) == 0.0
    tokens, state = [9], lm.init_state(x)
    for token in (2, 5, 8, 3):
        scores, state = lm.score(torch.tensor(tokens), state, x)
        expected, _ = full.batch_score(torch.tensor([tokens]), [None], x)
        torch.testing.assert_close(scores, expected[0], rtol=0, atol=1e-6)
        from_the_beginning, _ = lm.score(torch.tensor(tokens), None, x)  # as with a primer
        torch.testing.assert_close(from_the_beginning, scores, rtol=0, atol=1e-6)
        tokens.append(token)


def test_scores_are_those_of_the_text(subwords, words):
    """``<unk>`` and ``<blank>`` are unknown words; the last token is the sentence end."""
    lm = EspnetLM.of_tokens(subwords, SUBWORDS, unk_offset=-1.0)
    scores, _ = lm.score(torch.tensor([9, 2]), None, torch.zeros(1, 1))
    state = subwords.score(subwords.start(), "▁a")[1]
    assert scores[4].item() == pytest.approx(subwords.score(state, "b")[0], abs=1e-5)
    assert scores[[0, 1, 8]].tolist() == pytest.approx([subwords.score(state, "zzz", -1.0)[0]] * 3, abs=1e-5)
    assert scores[9].item() == pytest.approx(subwords.end(state), abs=1e-5)
    spelled = EspnetLM.of_spelling(words, LETTERS, unk_offset=-4.0)
    total, state = 0.0, None
    tokens = [8, 4, 7, 6, 2, 3, 8]  # "bed a"
    for place in range(1, len(tokens)):
        scores, state = spelled.score(torch.tensor(tokens[:place]), state, torch.zeros(1, 1))
        total += scores[tokens[place]].item()
    after_bed = words.score(words.start(), "bed", -4.0)
    after_a = words.score(after_bed[1], "a", -4.0)
    assert total == pytest.approx(after_bed[0] + after_a[0] + words.end(after_a[1]), abs=1e-4)


@pytest.mark.parametrize("tokens", [["<unk>", "a", "<sos/eos>"], ["<blank>", "<unk>", "a"], []])
def test_another_list_of_tokens_is_refused(words, tokens):
    for build in (EspnetLM.of_tokens, EspnetLM.of_spelling):
        with pytest.raises(ValueError, match="begins with <blank>, <unk> and ends with <sos/eos>"):
            build(words, tokens)


def test_language_models_alone_are_not_a_fusion(words):
    with pytest.raises(TypeError, match="not a LogLinearLM"):
        EspnetLM(words)
