"""Lists from what decoders return: the texts, and scores that are sums again."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pytest
import torch
from foreign_lms import write_gpt2

import attlm_fairseq as attlm
from attlm_fairseq.errors import InputError
from attlm_fairseq.messages import collected


@pytest.mark.parametrize("penalty", [1.0, 0.6, 0.0])
@pytest.mark.parametrize("with_beam_indices", [True, False])
def test_generate_scores_are_the_sums_of_the_models_own_log_probabilities(tmp_path, penalty, with_beam_indices):
    write_gpt2(tmp_path / "gpt2")
    from transformers import AutoTokenizer, GPT2LMHeadModel

    model, tokenizer = GPT2LMHeadModel.from_pretrained(tmp_path / "gpt2"), AutoTokenizer.from_pretrained(tmp_path / "gpt2")
    prompts = torch.tensor([tokenizer.encode("the cat")[:2], tokenizer.encode("a dog")[:2]])
    options = {"num_beams": 3, "num_return_sequences": 3, "max_new_tokens": 8, "length_penalty": penalty, "pad_token_id": 0}
    with torch.no_grad():
        outputs = model.generate(
            prompts, attention_mask=torch.ones_like(prompts), return_dict_in_generate=True, output_scores=True, **options
        )
    if not with_beam_indices:
        outputs.beam_indices = None
    lists = attlm.from_generate(outputs, tokenizer, num_return_sequences=3, prompt_length=2, length_penalty=penalty, ids=["x", "y"])
    assert [(nbest.id, len(nbest.hypotheses)) for nbest in lists] == [("x", 3), ("y", 3)]
    found = [hypothesis for nbest in lists for hypothesis in nbest.hypotheses]
    lengths = set()
    for row, hypothesis in zip(outputs.sequences, found, strict=True):
        tokens = row[2:].tolist()
        length = tokens.index(0) + 1 if 0 in tokens else len(tokens)
        lengths.add(length)
        with torch.no_grad():
            logs = model(row[None, : 2 + length]).logits[0].log_softmax(-1)
        expected = sum(logs[1 + i, token].item() for i, token in enumerate(tokens[:length]))
        assert hypothesis.scores["score"] == pytest.approx(expected, abs=1e-4)
        assert hypothesis.text == tokenizer.decode(row[2:], skip_special_tokens=True)
    assert len(lengths) > 1 or penalty == 0.0 or lengths == {8}
    with pytest.raises(InputError, match="6 sequences are not 4 for each utterance"):
        attlm.from_generate(outputs, tokenizer, num_return_sequences=4)
    with pytest.raises(InputError, match="1 ids, but there are 2 lists"):
        attlm.from_generate(outputs, tokenizer, num_return_sequences=3, ids=["x"])


def test_whisper_as_the_docs_have_it(caplog):
    """A small model with random weights: the beams differ, and their scores are sums of its log-probabilities. Its own generate copies."""
    from transformers import GenerationMixin, WhisperConfig, WhisperForConditionalGeneration

    torch.manual_seed(0)
    size = {"encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2, "decoder_attention_heads": 2, "d_model": 16}
    size |= {"encoder_ffn_dim": 16, "decoder_ffn_dim": 16, "max_source_positions": 50, "max_target_positions": 40, "num_mel_bins": 8}
    tokens = {"vocab_size": 60, "pad_token_id": 50, "bos_token_id": 50, "eos_token_id": 50, "decoder_start_token_id": 51}
    model = WhisperForConditionalGeneration(WhisperConfig(**size, **tokens, init_std=0.6)).eval()
    for name in ("suppress_tokens", "begin_suppress_tokens"):
        setattr(model.generation_config, name, None)
    model.generation_config.no_timestamps_token_id = 52
    features, prompt = torch.randn(2, 8, 100), torch.tensor([[51, 52]] * 2)
    decode = SimpleNamespace(batch_decode=lambda rows, skip_special_tokens: [" ".join(map(str, row)) for row in rows])
    wanted = {"num_beams": 4, "num_return_sequences": 3, "return_dict_in_generate": True, "output_scores": True, "max_new_tokens": 8}
    output = GenerationMixin.generate(model, features, decoder_input_ids=prompt, **wanted)
    lists = attlm.from_generate(output, decode, num_return_sequences=3, prompt_length=2)
    assert [len({one.text for one in nbest.hypotheses}) for nbest in lists] == [3, 3]
    assert "from_generate" not in caplog.text
    for i, (row, found) in enumerate(zip(output.sequences, [one for nbest in lists for one in nbest.hypotheses], strict=True)):
        with torch.no_grad():
            logs = model(input_features=features[i // 3 : i // 3 + 1], decoder_input_ids=row[None, :-1]).logits[0].log_softmax(-1)
        length = int((output.beam_indices[i] >= 0).sum())
        assert found.scores["score"] == pytest.approx(sum(logs[1 + j, row[2 + j]].item() for j in range(length)), abs=1e-3)
    copies = model.generate(features, **wanted)
    attlm.from_generate(copies, decode, num_return_sequences=3)
    assert "WARNING: from_generate: the sequences of each utterance are all the same, as Whisper's own generate" in caplog.text


def test_beams_of_pyctcdecode():
    pyctcdecode = pytest.importorskip("pyctcdecode")
    decoder = pyctcdecode.build_ctcdecoder(["", " ", "a", "b"])
    logits = np.log(np.random.default_rng(1).dirichlet(np.ones(4), size=12).astype(np.float32))
    beams = decoder.decode_beams(logits, beam_width=5)
    (nbest,) = attlm.from_beams(beams)
    assert [hypothesis.text for hypothesis in nbest.hypotheses] == [beam[0] for beam in beams]
    assert [hypothesis.scores for hypothesis in nbest.hypotheses] == [
        {"logit_score": float(beam[-2]), "score": float(beam[-1])} for beam in beams
    ]
    assert [one.hypotheses for one in attlm.from_beams([beams, beams], ids=["u1", "u2"])] == [nbest.hypotheses] * 2


def test_beams_of_transformers_processor():
    """transformers' own class around pyctcdecode, for one utterance and for several."""
    pytest.importorskip("pyctcdecode")
    from pyctcdecode import build_ctcdecoder
    from transformers import Wav2Vec2CTCTokenizer, Wav2Vec2FeatureExtractor, Wav2Vec2ProcessorWithLM

    with tempfile.TemporaryDirectory() as folder:
        vocabulary = Path(folder) / "vocab.json"
        vocabulary.write_text(json.dumps({"<pad>": 0, "<s>": 1, "</s>": 2, "<unk>": 3, "|": 4, "a": 5, "b": 6}))
        tokenizer = Wav2Vec2CTCTokenizer(str(vocabulary))
    processor = Wav2Vec2ProcessorWithLM(
        Wav2Vec2FeatureExtractor(), tokenizer, build_ctcdecoder(["", "<s>", "</s>", "\u2047", " ", "a", "b"])
    )
    logits = np.log(np.random.default_rng(1).dirichlet(np.ones(7), size=(2, 12)).astype(np.float32))
    several = processor.batch_decode(logits, n_best=3)
    found = attlm.from_beams(several, ids=["u1", "u2"])
    assert [[one.text for one in nbest.hypotheses] for nbest in found] == several.text
    assert [[one.scores for one in nbest.hypotheses] for nbest in found] == [
        [{"logit_score": logit, "score": score} for logit, score in zip(*scores, strict=True)]
        for scores in zip(several.logit_score, several.lm_score, strict=True)
    ]
    (first,) = attlm.from_beams(processor.decode(logits[0], n_best=3), ids=["u1"])
    assert first.hypotheses == found[0].hypotheses
    with pytest.raises(InputError, match="from_beams: the output has one text: expected several"):
        attlm.from_beams(processor.decode(logits[0]))
    texts, totals = ["a", "b", "ab"], [-3.0, -2.0, -4.0]
    with pytest.raises(InputError, match="from_beams: the output has one text for each utterance: expected several"):
        attlm.from_beams(SimpleNamespace(text=texts, logit_score=totals, lm_score=totals))
    with pytest.raises(InputError, match="from_nemo: found a Wav2Vec2DecoderWithLMOutput: expected a list with one result per utterance"):
        attlm.from_nemo(several)


class CTCHypothesis(NamedTuple):
    """As torchaudio has it."""

    tokens: torch.Tensor
    words: list[str]
    score: float
    timesteps: torch.Tensor


def test_hypotheses_of_flashlight():
    one = CTCHypothesis(torch.tensor([1, 2]), ["a", "b"], -1.5, torch.tensor([0, 3]))
    (nbest,) = attlm.from_beams([[one, one._replace(words=["a"], score=-2.0)]])
    assert [(h.text, h.scores) for h in nbest.hypotheses] == [("a b", {"score": -1.5}), ("a", {"score": -2.0})]
    (again,) = attlm.from_beams([one, one._replace(words=["a"], score=-2.0)])  # of one utterance
    assert again.hypotheses == nbest.hypotheses


def test_silence_of_a_lexicon_decoder_is_an_empty_text():
    one = CTCHypothesis(torch.tensor([1, 1]), [], -1.5, torch.tensor([0, 3]))
    with collected() as told:
        silent, heard = attlm.from_beams([[one], [one._replace(words=["a"]), one]])
    assert [[(h.text, h.scores) for h in nbest.hypotheses] for nbest in (silent, heard)] == [
        [("", {"score": -1.5})],
        [("a", {"score": -1.5}), ("", {"score": -1.5})],
    ]
    assert told == ["note: from_beams: words of a hypothesis is an empty list, read as silence (a decoder without a lexicon has no words)"]
    assert [h.text for h in attlm.from_beams([one])[0].hypotheses] == [""]
    no_beams, heard = attlm.from_beams([[], [one._replace(words=["a"])]], ids=["u1", "u2"])
    assert [[h.text for h in nbest.hypotheses] for nbest in (no_beams, heard)] == [[""], ["a"]]


def test_a_decoder_without_a_lexicon_is_refused_instead_of_read_as_silence():
    one = CTCHypothesis(torch.tensor([1, 5, 7, 1]), [], -1.5, torch.tensor([0, 1, 2, 3]))
    with pytest.raises(InputError, match="no hypothesis has words, all have tokens"):
        attlm.from_beams([[one], [one, one]])
    with collected():
        assert len(attlm.from_beams([[one], [one._replace(words=["a"]), one]])) == 2


@pytest.mark.parametrize(
    ("texts", "told"), [(["show me flights", "show me fights"], False), (["show me flights", "a dog ran"], True), (["four", "for"], False)]
)
def test_texts_of_one_list_may_be_of_several_utterances(texts, told):
    with collected() as notes:
        attlm.from_beams(SimpleNamespace(text=texts, logit_score=[-1.0, -2.0], lm_score=[-1.0, -2.0]))
    assert any("have hardly a word in common: for several utterances" in line for line in notes) == told


def test_results_of_ctranslate2():
    translated = SimpleNamespace(hypotheses=[["\u2581a", "\u2581b"], ["\u2581a"]], scores=[-0.5, -0.75])
    (nbest,) = attlm.from_ctranslate2([translated], length_penalty=0.5)
    assert [(h.text, h.scores) for h in nbest.hypotheses] == [
        ("\u2581a \u2581b", {"score": pytest.approx(-0.5 * 2**0.5)}),
        ("\u2581a", {"score": pytest.approx(-0.75)}),
    ]
    heard = SimpleNamespace(sequences=[["A", "B"]], sequences_ids=[[7, 9]], scores=[])
    (nbest,) = attlm.from_ctranslate2([heard], decode=lambda tokens: "/".join(map(str, tokens)))
    assert [(h.text, h.scores) for h in nbest.hypotheses] == [("7/9", {})]


def test_results_of_sherpa_and_nemo():
    hypotheses = [
        SimpleNamespace(text="A B", tokens=["A", " B"], ys_log_probs=[-0.5, -0.25], score=-0.75),
        SimpleNamespace(text="A", tokens=["A"], ys_log_probs=[-0.5], score=-1.5),
    ]
    several, one = attlm.from_sherpa([SimpleNamespace(text="A B", hypotheses=hypotheses), SimpleNamespace(text="C", hypotheses=[])])
    assert [(h.text, h.scores, h.rank) for h in several.hypotheses] == [
        ("A B", {"logprob": -0.75, "score": -0.75}, 1),
        ("A", {"logprob": -0.5, "score": -1.5}, 2),
    ]
    assert [h.text for h in one.hypotheses] == ["C"]
    nemo = [
        SimpleNamespace(text="a b", score=torch.tensor(-3.5), y_sequence=torch.tensor([1, 2]), length=7),
        SimpleNamespace(text="a", score=-4.5),
    ]
    for given in ([nemo], [SimpleNamespace(n_best_hypotheses=nemo)]):
        (nbest,) = attlm.from_nemo(given, ids=["u1"])
        assert [(nbest.id, h.text, h.scores) for h in nbest.hypotheses] == [("u1", "a b", {"score": -3.5}), ("u1", "a", {"score": -4.5})]
    for function in (attlm.from_sherpa, attlm.from_nemo):
        with pytest.raises(InputError, match="found a SimpleNamespace: expected a list with one result per utterance"):
            function(nemo[0])
    with pytest.raises(InputError, match="from_ctranslate2: found a SimpleNamespace: expected a result of CTranslate2"):
        attlm.from_ctranslate2([SimpleNamespace(hypotheses=[], scores=[])])
    with pytest.raises(InputError, match="from_beams: list 0: "):
        attlm.from_beams([[3]])
