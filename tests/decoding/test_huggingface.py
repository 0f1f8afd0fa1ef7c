"""The language models in Hugging Face's own generation, with small models of random weights."""

from __future__ import annotations

import copy
import pickle
import random

import numpy
import pytest
import torch
from lm_files import write_checkpoint
from toy_lms import biased_lm, random_lm, write_arpa, zero_lm

from attlm_fairseq.decoding.stateful_neural_lm import StatefulNeuralLM
from attlm_fairseq.scoring.ngrams.kenlm import KenLM

from attlm_fairseq.decoding.huggingface import FusionLogitsProcessor, tokenizer_texts, tokenizer_tokens  # isort: skip (see its imports)
from tokenizers import Tokenizer, decoders, models
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    GPT2Config,
    GPT2LMHeadModel,
    LogitsProcessorList,
    PreTrainedTokenizerFast,
    WhisperConfig,
    WhisperForConditionalGeneration,
)

from attlm_fairseq.decoding.log_linear_lm import LogLinearLM
from attlm_fairseq.decoding.look_ahead_word_lm import LookAheadWordLM
from attlm_fairseq.decoding.token_fusion import TokenFusion
from attlm_fairseq.decoding.token_texts import token_texts

PAD, START, EOS, TIME = 0, 1, 2, 3
TOKENS = ["<pad>", "<s>", "</s>", "<|0.00|>", "▁a", "▁b", "▁ca", "▁da", "▁", "b", "e", "ed", "d", "ce", "bb", "ad"]
SPECIAL = [PAD, START, EOS, TIME]
V = 18  # the model has more tokens than the tokenizer
WORDS = ["a", "ab", "abe", "bad", "bed", "bee", "cab", "dace", "dad", "ebb"]
SMALL = {"d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2, "decoder_attention_heads": 2}
SMALL |= {"encoder_ffn_dim": 16, "decoder_ffn_dim": 16, "vocab_size": V, "pad_token_id": PAD, "bos_token_id": START, "eos_token_id": EOS}


def gpt2():
    torch.manual_seed(1)
    sizes = {"vocab_size": V, "n_positions": 64, "n_embd": 16, "n_layer": 1, "n_head": 2, "initializer_range": 0.5}
    config = GPT2Config(**sizes, pad_token_id=PAD, bos_token_id=START, eos_token_id=EOS)
    return GPT2LMHeadModel(config).eval(), {"input_ids": torch.tensor([[START, 7, 4], [START, 9, 4], [PAD, START, 5]])}, 3


def bart():
    torch.manual_seed(2)
    model = BartForConditionalGeneration(BartConfig(**SMALL, decoder_start_token_id=EOS, forced_eos_token_id=None, init_std=1.0)).eval()
    return model, {"input_ids": torch.tensor([[START, 7, 4, EOS], [START, 9, EOS, PAD]])}, 1


def whisper():
    torch.manual_seed(3)
    config = WhisperConfig(
        **SMALL,
        num_mel_bins=4,
        max_source_positions=10,
        max_target_positions=40,
        decoder_start_token_id=START,
        init_std=0.5,
        suppress_tokens=None,
        begin_suppress_tokens=None,
    )
    return WhisperForConditionalGeneration(config).eval(), {"input_features": torch.randn(2, 4, 20)}, 1


MODELS = [gpt2, bart, whisper]


@pytest.fixture(scope="module")
def neural(tmp_path_factory) -> StatefulNeuralLM:
    return StatefulNeuralLM.load(write_checkpoint(tmp_path_factory.mktemp("lm") / "lm.pt", WORDS, attention_score="combined"))


@pytest.fixture(scope="module")
def lms(neural, tmp_path_factory) -> LogLinearLM:
    arpa = write_arpa(tmp_path_factory.mktemp("arpa") / "lm.arpa", WORDS[2:])
    return LogLinearLM([neural, KenLM(arpa), random_lm(WORDS)], [0.6, 0.5, -0.3])


def spelling(lms: LogLinearLM, **options) -> LookAheadWordLM:
    return LookAheadWordLM(lms, token_texts(TOKENS, special=SPECIAL), ends=[EOS], unk_offset=-4.0, **options)


def generate(model, inputs, processor, **options):
    options = {"max_new_tokens": 12, "length_penalty": 0.0, "output_scores": True, "return_dict_in_generate": True} | options
    processors = LogitsProcessorList([] if processor is None else [processor])
    return model.generate(**inputs, logits_processor=processors, **options)


def beams(model, inputs, processor, **options):
    found = generate(model, inputs, processor, num_beams=4, num_return_sequences=4, **options)
    return found.sequences.tolist(), found.sequences_scores.tolist()


class FullPrefix:
    """The same as a logits processor with no memory at all: every prefix from its beginning, every unit by itself."""

    def __init__(self, fusion, prompt_length):
        self.fusion, self.prompt_length = fusion, prompt_length

    def __call__(self, input_ids, scores):
        fused = scores.clone()
        for row, ids in enumerate(input_ids[:, self.prompt_length :].tolist()):
            state = self.fusion.start()
            for unit in ids:
                if unit < self.fusion.size:
                    state = self.fusion.score(state, unit)[1]
            for unit in range(self.fusion.size):
                fused[row, unit] += self.fusion.score(state, unit)[0]
        return fused


@pytest.mark.parametrize("build", MODELS)
@pytest.mark.parametrize("look_ahead", [True, False])
def test_beam_search_is_that_of_the_full_prefix(build, lms, look_ahead):
    model, inputs, prompt_length = build()
    fusion = spelling(lms, look_ahead=look_ahead)
    sequences, scores = beams(model, inputs, FusionLogitsProcessor(fusion, prompt_length=prompt_length))
    uncached = LogLinearLM([StatefulNeuralLM(lms.lms[0].lm, cache_bytes=0), *lms.lms[1:]], lms.weights)
    expected, expected_scores = beams(model, inputs, FullPrefix(spelling(uncached, look_ahead=look_ahead, cache_bytes=0), prompt_length))
    assert sequences == expected
    assert scores == pytest.approx(expected_scores, abs=1e-4)
    assert sequences != beams(model, inputs, None)[0]


def text(ids: list[int]) -> list[str]:
    units = token_texts(TOKENS, special=SPECIAL)
    return b"".join(units[index] or b"" for index in ids if index < len(TOKENS)).decode().split()


def test_scores_of_beams_are_the_models_plus_those_of_their_words(lms):
    """Of whole hypotheses that have ended: what shallow fusion means, computed without any of it."""
    model, inputs, prompt_length = bart()
    sequences, scores = beams(model, inputs, FusionLogitsProcessor(spelling(lms), prompt_length=prompt_length), max_new_tokens=25)
    ended = 0
    for row, (ids, score) in enumerate(zip(sequences, scores, strict=True)):
        if EOS not in ids[1:] or any(index >= len(TOKENS) for index in ids):
            continue
        ids = ids[: ids.index(EOS, 1) + 1]
        with torch.inference_mode():
            encoder = {name: value[row // 4 : row // 4 + 1] for name, value in inputs.items()}
            encoder["attention_mask"] = (encoder["input_ids"] != PAD).long()
            log_probs = torch.log_softmax(model(**encoder, decoder_input_ids=torch.tensor([ids[:-1]])).logits[0], dim=-1)
        expected = log_probs.gather(1, torch.tensor(ids[1:])[:, None]).sum().item()
        state = lms.start()
        for word in text(ids[1:]):
            value, state = lms.score(state, word, -4.0)
            expected += value
        assert score == pytest.approx(expected + lms.end(state), abs=1e-3)
        ended += 1
    assert ended >= 2


@pytest.mark.parametrize("build", MODELS)
def test_no_lm_weight_zero_and_a_zero_lm_are_the_same(build, neural):
    model, inputs, prompt_length = build()
    sequences, scores = beams(model, inputs, None)
    nothing = [LogLinearLM([neural], [0.0]), LogLinearLM([neural, neural], [0.7, -0.7])]
    units = token_texts(TOKENS, special=SPECIAL)
    fusions = [
        *map(spelling, nothing),
        LookAheadWordLM(LogLinearLM([zero_lm(WORDS)]), units, [EOS], unk_offset=0.0, look_ahead=False),
        TokenFusion(nothing[0], [*[None] * 4, *TOKENS[4:]], [EOS]),
        TokenFusion(LogLinearLM([zero_lm(TOKENS)]), TOKENS, [EOS]),
    ]
    for fusion in fusions:
        found = beams(model, inputs, FusionLogitsProcessor(fusion, prompt_length=prompt_length))
        assert found[0] == sequences
        assert found[1] == pytest.approx(scores, abs=1e-4)


@pytest.mark.parametrize("sampled", [True, False])
@pytest.mark.parametrize("num_beams", [1, 4])
@pytest.mark.parametrize("build", [gpt2, bart])
@pytest.mark.parametrize("sentence", [["bad", "cab"], ["a", "dad", "a"]])
def test_a_biased_lm_forces_its_words(build, sampled, num_beams, sentence):
    model, inputs, prompt_length = build()
    units = token_texts(TOKENS, special=[PAD, START, TIME])
    fusion = LookAheadWordLM(LogLinearLM([biased_lm(WORDS, sentence)]), units, ends=[EOS], unk_offset=-1000.0)
    never = [PAD, START, TIME, TOKENS.index("▁"), *range(len(TOKENS), V)]  # what the LM has no say in
    processor = FusionLogitsProcessor(fusion, prompt_length=prompt_length)
    found = generate(model, inputs, processor, suppress_tokens=never, num_beams=num_beams, do_sample=sampled)
    for ids in found.sequences.tolist():
        assert text(ids[prompt_length:]) == sentence
        assert EOS in ids[prompt_length:]


def test_two_halves_of_an_lm_are_the_lm(neural):
    model, inputs, prompt_length = gpt2()
    one = beams(model, inputs, FusionLogitsProcessor(spelling(LogLinearLM([neural], [0.8])), prompt_length=prompt_length))
    two = beams(model, inputs, FusionLogitsProcessor(spelling(LogLinearLM([neural, neural], [0.4, 0.4])), prompt_length=prompt_length))
    assert one[0] == two[0]
    assert one[1] == pytest.approx(two[1], abs=1e-4)


def test_sampling_is_seeded_and_of_the_product_of_the_distributions(lms):
    model, inputs, prompt_length = gpt2()

    def sample(processor):
        torch.manual_seed(5)
        return generate(model, inputs, processor, do_sample=True, num_return_sequences=6)

    fusion = spelling(lms)
    first, again = (sample(FusionLogitsProcessor(fusion, prompt_length=prompt_length)) for _ in range(2))
    assert torch.equal(first.sequences, again.sequences)
    full = sample(FullPrefix(fusion, prompt_length))
    assert torch.equal(first.sequences, full.sequences)
    for ours, expected in zip(first.scores, full.scores, strict=True):
        torch.testing.assert_close(ours.softmax(-1), expected.softmax(-1), rtol=0, atol=1e-4)


def test_special_and_time_tokens_and_those_that_the_tokenizer_lacks_are_left_alone(lms):
    processor = FusionLogitsProcessor(spelling(lms), prompt_length=1)
    scores = torch.randn(2, V)
    ids = torch.tensor([[START, TIME, 4, TIME, 9], [START, 4, 9, TIME, TIME]])
    fused = processor(ids, scores)
    assert torch.equal(fused[:, [PAD, START, TIME]], scores[:, [PAD, START, TIME]])
    assert torch.equal(fused[:, len(TOKENS) :], scores[:, len(TOKENS) :])
    assert (fused[:, 4 : len(TOKENS)] != scores[:, 4 : len(TOKENS)]).all()
    difference = fused - scores
    torch.testing.assert_close(difference[0], difference[1])  # the same text, with other time tokens
    torch.testing.assert_close(processor(torch.tensor([[START, 4, 9]]), scores[:1]) - scores[:1], difference[:1])
    assert scores.isfinite().all()


def test_a_hypothesis_that_has_ended_is_left_alone(lms):
    scores = torch.randn(2, V)
    fused = FusionLogitsProcessor(spelling(lms), prompt_length=1)(torch.tensor([[START, 4, EOS, PAD], [START, 4, 9, 4]]), scores)
    assert torch.equal(fused[0], scores[0])
    assert not torch.equal(fused[1], scores[1])


def test_what_the_model_forbids_stays_forbidden(lms):
    scores = torch.full((1, V), -torch.inf)
    scores[0, 5] = 0.0
    fused = FusionLogitsProcessor(spelling(lms), prompt_length=0)(torch.tensor([[4]]), scores)
    assert fused.isfinite().tolist() == scores.isfinite().tolist()
    assert not fused.isnan().any()


def test_a_prompt_is_left_out_or_read_before(neural):
    fusion = spelling(LogLinearLM([neural]))
    zeros = torch.zeros(1, V)
    prompt, ids = [5, 15, 8], [4, 9]  # "bad ", " ab"
    left_out = FusionLogitsProcessor(fusion, prompt_length=3)(torch.tensor([prompt + ids]), zeros)
    read = FusionLogitsProcessor(fusion, prompt_length=0)(torch.tensor([prompt + ids]), zeros)
    torch.testing.assert_close(left_out, FusionLogitsProcessor(fusion, prompt_length=0)(torch.tensor([ids]), zeros))
    history = neural.score(neural.start(), neural.token("bad"))[1]
    below = torch.tensor([neural.score(history, neural.token(word))[0] for word in ("ab", "abe")]).logsumexp(0)
    expected = neural.score(history, neural.token("abe"))[0] - below.item()
    assert read[0, TOKENS.index("e")].item() == pytest.approx(expected, abs=1e-5)


def test_states_follow_the_beams_and_only_these_are_kept(neural):
    neural = StatefulNeuralLM(neural.lm)
    processor = FusionLogitsProcessor(TokenFusion(LogLinearLM([neural]), [None] * 4 + WORDS, ends=[EOS]), prompt_length=0)
    random_ = random.Random(1)
    rows = [[], [], []]
    for length in range(1, 8):
        rows = [[*row, random_.randrange(4, 4 + len(WORDS))] for row in random_.choices(rows, k=6)]
        before = neural.computed
        fused = processor(torch.tensor(rows), torch.zeros(6, V))
        distinct = {tuple(row) for row in rows}
        assert set(processor._states) == distinct
        assert neural.computed - before <= len(distinct) + (length == 1)
        for row, values in zip(rows, fused, strict=True):
            with torch.inference_mode():
                logits, _ = neural.lm.model(torch.tensor([[neural.end, *row]]))
            torch.testing.assert_close(values[4 : 4 + len(WORDS)], torch.log_softmax(logits[0, -1], -1)[4:], rtol=0, atol=1e-5)
            assert values[EOS].item() == pytest.approx(torch.log_softmax(logits[0, -1], -1)[EOS].item(), abs=1e-5)


def test_the_tokenizer_of_another_model_is_refused(lms):
    with pytest.raises(ValueError, match="16 tokens, the model 15"):
        FusionLogitsProcessor(spelling(lms), prompt_length=0)(torch.tensor([[4]]), torch.zeros(1, 15))


@pytest.mark.parametrize("length", [-1, None, "1", True, 1.0])
def test_the_length_of_a_prompt_is_a_number(lms, length):
    with pytest.raises(ValueError, match=f"not {length!r}"):
        FusionLogitsProcessor(spelling(lms), prompt_length=length)


def test_a_prompt_longer_than_the_rows_is_refused(lms):
    """Otherwise the LMs would be at the sentence start for ever."""
    processor = FusionLogitsProcessor(spelling(lms), prompt_length=3)
    with pytest.raises(ValueError, match="prompt_length is 3, but generate was given rows of 2 ids"):
        processor(torch.tensor([[4, 5]]), torch.zeros(1, V))
    assert processor(torch.tensor([[4, 5, 6]]), torch.zeros(1, V)).any()


def test_language_models_alone_are_not_a_fusion(lms, neural):
    for given in (lms, neural, None):
        with pytest.raises(TypeError, match=f"LookAheadWordLM or TokenFusion over the language models, not a {type(given).__name__}"):
            FusionLogitsProcessor(given, prompt_length=0)


@pytest.mark.parametrize("copied", [copy.deepcopy, copy.copy, lambda processor: pickle.loads(pickle.dumps(processor))])
def test_a_processor_can_be_copied_and_pickled(neural, tmp_path, copied):
    lms = LogLinearLM([neural, KenLM(write_arpa(tmp_path / "lm.arpa", WORDS[2:]))], [0.6, -0.3])
    ids, zeros = torch.tensor([[4, 9], [5, 15]]), torch.zeros(2, V)
    for fusion in (spelling(lms), TokenFusion(lms, [None] * 4 + WORDS, ends=[EOS], unk_offset=-3.0)):
        processor = FusionLogitsProcessor(fusion, prompt_length=0)
        expected = processor(ids, zeros)
        torch.testing.assert_close(copied(processor)(ids, zeros), expected, rtol=0, atol=1e-6)
        assert copied(processor).fusion.lms.lms[0].computed >= 0
    shared = copy.deepcopy(processor).fusion.lms.lms[0]
    assert shared is neural


def tokenizer(vocabulary: list[str], decoder) -> PreTrainedTokenizerFast:
    built = Tokenizer(models.BPE({unit: index for index, unit in enumerate(vocabulary)}, [], unk_token=vocabulary[0]))
    built.decoder = decoder
    made = PreTrainedTokenizerFast(tokenizer_object=built, pad_token="<pad>", bos_token="<s>", eos_token="</s>")
    made.add_tokens(["<|0.00|>", "<|0.02|>"])  # as Whisper's: no special tokens, and no text
    return made


@pytest.mark.parametrize(
    ("vocabulary", "decoder"),
    [
        (["<pad>", "<s>", "</s>", "ĠThe", "re", "Ġ", ",", "ÃĤ"], decoders.ByteLevel()),
        (["<pad>", "<s>", "</s>", "▁The", "re", "▁", ",", "Â"], decoders.Metaspace()),
    ],
)
def test_units_and_texts_of_a_tokenizer(vocabulary, decoder):
    made = tokenizer(vocabulary, decoder)
    assert tokenizer_tokens(made) == [None, None, None, *vocabulary[3:], None, None]
    written = tokenizer_texts(made)
    assert written == [None, None, None, b" The", b"re", b" ", b",", "Â".encode(), None, None]
    assert tokenizer_texts(made, lowercase=True, ignore=",")[3:8] == [b" the", b"re", b" ", b"", "â".encode()]
    ids = [3, 4, 6, 3, 7]
    assert b"".join(written[index] for index in ids).decode().strip() == made.decode(ids, clean_up_tokenization_spaces=False).strip()


def test_the_unknown_token_is_a_word_that_no_lm_knows(lms):
    """With a score of 0 a beam search that is given an LM would run into it. GPT-2's is the sentence end, too."""
    ids = {"<pad>": 0, "<s>": 1, "</s>": 2, "<unk>": 3, "\u2581a": 4, "\u2581b": 5}
    made = {
        unknown: PreTrainedTokenizerFast(
            tokenizer_object=Tokenizer(models.WordLevel(ids, unk_token=unknown)), pad_token="<pad>", eos_token="</s>", unk_token=unknown
        )
        for unknown in ("<unk>", "</s>")
    }
    assert tokenizer_tokens(made["<unk>"])[2:4] == [None, "<unk>"]
    fusion = LookAheadWordLM(lms, tokenizer_texts(made["<unk>"]), ends=[2])
    scores = fusion.scores([fusion.start()])[0]
    expected = lms.score(lms.start(), "unheard-of", fusion.unk_offset)[0]
    score, after = fusion.score(fusion.start(), 3)
    assert score == pytest.approx(scores[3]) == pytest.approx(expected)
    assert fusion.score(after, 4)[0] != pytest.approx(fusion.score(fusion.start(), 4)[0])
    assert tokenizer_texts(made["</s>"])[2] is None


def test_ids_that_no_token_has_are_no_units():
    """As where tokens were taken out of a vocabulary, or added behind the model's last one."""
    ids = {"<pad>": 0, "<s>": 1, "</s>": 2, "\u2581the": 3, "\u2581dog": 7, "s": 9}
    made = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel(ids, unk_token="<pad>")), pad_token="<pad>", bos_token="<s>", eos_token="</s>"
    )
    assert tokenizer_tokens(made) == [None] * 3 + ["\u2581the"] + [None] * 3 + ["\u2581dog", None, "s"]
    assert tokenizer_texts(made) == [None] * 3 + [b" the"] + [None] * 3 + [b" dog", None, b"s"]


def test_end_tokens_that_pad_or_begin_a_prompt_do_not_end_it(lms):
    for fusion, word in ((spelling(lms), 4), (TokenFusion(lms, [None] * 4 + WORDS, ends=[EOS]), 5)):
        scores = torch.zeros(2, fusion.size)
        added = FusionLogitsProcessor(fusion, prompt_length=0)(torch.tensor([[EOS, EOS, word], [EOS, word, word]]), scores)
        alone = FusionLogitsProcessor(fusion, prompt_length=0)(torch.tensor([[word]]), scores[:1])
        assert alone.abs().sum() > 0
        assert torch.equal(added[0], alone[0])
        assert FusionLogitsProcessor(fusion, prompt_length=0)(torch.tensor([[word, EOS]]), scores[:1]).abs().sum() == 0, "ended"


def test_rows_with_more_padding_than_the_prompt(lms):
    """A decoder whose rows have texts of other lengths before, padded with the end token, as Whisper's with the text before."""
    processor, zeros = FusionLogitsProcessor(spelling(lms), prompt_length=2), torch.zeros(1, V)
    padded = processor(torch.tensor([[EOS, EOS, EOS, 4]]), zeros)
    assert padded.abs().sum() > 0
    assert torch.equal(padded, processor(torch.tensor([[START, 5, 4]]), zeros))


def test_a_model_may_lack_added_tokens(lms):
    """``tokenizer.add_special_tokens({"pad_token": "[PAD]"})`` without new embeddings."""
    fusion = LookAheadWordLM(lms, [*token_texts(TOKENS, special=SPECIAL), None], ends=[EOS], unk_offset=-4.0)
    size = fusion.size - 1
    fused = FusionLogitsProcessor(fusion, prompt_length=numpy.int64(0))(torch.tensor([[4]]), torch.zeros(1, size))
    expected = FusionLogitsProcessor(spelling(lms), prompt_length=0)(torch.tensor([[4]]), torch.zeros(1, size))
    assert torch.equal(fused, expected)
    assert fused.any()
