"""The translation model: its equations against a loop, steps against the full pass, and fairseq's own commands."""

from __future__ import annotations

import math
from dataclasses import fields
from types import SimpleNamespace

import pytest
import torch
from fairseq import checkpoint_utils, search
from fairseq.data import Dictionary
from fairseq.sequence_generator import SequenceGenerator
from fairseq_runs import ROOT, expect_one_line, fairseq
from omegaconf import OmegaConf

from attlm_fairseq.errors import InputError
from attlm_fairseq.models.attentive_lstm import AttentiveLSTMTranslationConfig, AttentiveLSTMTranslationModel
from attlm_fairseq.modules.families import FAMILIES
from attlm_fairseq.modules.source_attention import SourceAttention

WORDS = [f"w{number}" for number in range(12)]


def make_model(**options) -> AttentiveLSTMTranslationModel:
    """A translation model with large random weights; 12 words on both sides."""
    dictionary = Dictionary()
    for word in WORDS:
        dictionary.add_symbol(word)
    sizes = {"encoder_embed_dim": 6, "encoder_hidden_size": 5, "encoder_layers": 2, "decoder_embed_dim": 6, "decoder_hidden_size": 12}
    own = {**sizes, "decoder_layers": 2, "output_layer": "untied", "dropout": 0.0, "init_range": 0.8, **options}
    config = OmegaConf.structured(AttentiveLSTMTranslationConfig(**own))
    torch.manual_seed(3)
    task = SimpleNamespace(source_dictionary=dictionary, target_dictionary=dictionary)
    return AttentiveLSTMTranslationModel.build_model(config, task).double().eval()


def batch() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Two source sentences, the second padded on the left, their lengths, and two target prefixes."""
    source = torch.tensor([[5, 9, 4, 7, 2], [1, 1, 8, 6, 2]])
    target = torch.tensor([[2, 4, 10, 10, 6, 5], [2, 11, 7, 4, 12, 9]])
    return source, torch.tensor([5, 3]), target


@torch.no_grad()
def test_source_attention_is_that_of_its_equation():
    torch.manual_seed(0)
    layer = SourceAttention(4, 3).double()
    features, source = torch.randn(2, 3, 4).double(), torch.randn(2, 5, 3).double()
    present = torch.tensor([[True] * 5, [True, True, False, False, False]])
    merged, weights = layer(features, source, present)
    for b in range(2):
        for t in range(3):
            f = features[b, t]
            scores = [torch.dot(source[b, s], layer.query.weight @ f).item() for s in range(5) if present[b, s]]
            total = math.fsum(map(math.exp, scores))
            a = [math.exp(score) / total for score in scores]
            context = sum(weight * source[b, s] for s, weight in enumerate(a))
            expected = torch.tanh(layer.merge.weight @ torch.cat((f, context)) + layer.merge.bias)
            torch.testing.assert_close(merged[b, t], expected, rtol=0, atol=1e-12)
            torch.testing.assert_close(weights[b, t, : len(a)], torch.tensor(a, dtype=torch.float64), rtol=0, atol=1e-12)
            assert not weights[b, t, len(a) :].any()


@torch.no_grad()
def test_an_average_over_words_begins_without_words():
    model = make_model(decoder_family="rwa_lm")
    torch.nn.init.uniform_(model.decoder.bridge.weight, -2, 2)
    source, lengths, _ = batch()
    state, empty = model.decoder.first_state(model.encoder(source, lengths)).recurrent, model.decoder.model.recurrence.initial(2)
    assert not torch.equal(state[0], empty[0])
    assert all(map(torch.equal, state[1:], empty[1:]))


def test_the_key_of_a_first_state_is_its_product():
    """LSTMN: ``W_h h_0``, with a gradient of ``W_h`` also if no target has more than one word."""
    model = make_model(decoder_family="lstmn_lm")
    source, lengths, target = batch()
    encoded = model.encoder(source, lengths)
    recurrence, (_, keys, values, _) = model.decoder.model.recurrence, model.decoder.first_state(encoded).recurrent
    for depth, layer in enumerate(recurrence.layers):
        expected = values[:, :, depth, : recurrence.hidden_size] @ layer.state_keys.weight.t()
        assert expected.abs().max() > 1e-4
        torch.testing.assert_close(keys[:, :, depth], expected, rtol=0, atol=1e-12)
    model.decoder(target[:, :1], encoded)[0].sum().backward()
    assert all(parameter.grad is not None for parameter in recurrence.parameters())


@pytest.mark.parametrize("family", FAMILIES)
@torch.no_grad()
def test_autocast_does_not_round_the_first_state(family):
    model = make_model(decoder_family=family).float()
    source, lengths, target = batch()
    with torch.autocast("cpu", torch.bfloat16):
        encoded = model.encoder(source, lengths)
        state, empty = model.decoder.first_state(encoded).recurrent, model.decoder.model.initial_state(2).recurrent
        assert [part.dtype for part in state] == [part.dtype for part in empty]
        assert model.decoder(target, encoded)[0].isfinite().all()


@pytest.mark.parametrize("family", FAMILIES)
@torch.no_grad()
def test_steps_are_the_full_pass_also_when_rows_move(family):
    model = make_model(decoder_family=family)
    source, lengths, target = batch()
    encoded = model.encoder(source, lengths)
    full, extra = model.decoder(target, encoded)
    assert full.shape == (2, 6, len(WORDS) + 4)
    assert extra["attn"][0].shape == (2, 6, 5)
    state: dict = {}
    for t in range(target.size(1)):
        if t == 3:  # both rows change places, as beams do
            order = torch.tensor([1, 0])
            model.decoder.reorder_incremental_state(state, order)
            encoded = model.encoder.reorder_encoder_out(encoded, order)
            target, full = target[order], full[order]
        step, attention = model.decoder(target[:, : t + 1], encoded, incremental_state=state)
        torch.testing.assert_close(step[:, 0], full[:, t], rtol=0, atol=1e-10)
        assert attention["attn"][0].shape == (2, 1, 5)


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"decoder_family": "plain_lstm_lm", "attention_score": "dot"}, "--attention-score dot"),
        ({"decoder_family": "plain_lstm_lm", "hornn_order": 9}, "--hornn-order 9"),
        ({"adaptive_cutoffs": "5"}, "--adaptive-cutoffs"),
        ({"softmaxes": "2"}, "--softmaxes 2"),
        ({"compute_dtype": "bf16"}, "--compute-dtype bf16"),
        ({"init_from": "a.pt"}, "--init-from a.pt"),
    ],
)
def test_an_option_of_another_family_is_refused(options, name):
    with pytest.raises(InputError, match=f"{name}.* has no effect"):
        make_model(**options)
    make_model(output_bias="zero")
    assert "pointer_loss" not in {option.name for option in fields(AttentiveLSTMTranslationConfig)}


def test_locked_dropout_of_the_features_that_read_the_source():
    model = make_model(decoder_family="plain_lstm_lm", dropout_out=0.5, locked_dropout=True)
    seen = []
    model.decoder.model.output.register_forward_pre_hook(lambda module, given: seen.append(given[0] == 0))
    source, lengths, target = batch()
    model.train()(source, lengths, target)
    [zero] = seen
    assert zero.any()
    assert torch.equal(zero, zero[:, :1].expand_as(zero))


@torch.no_grad()
def test_source_matters_and_padding_does_not():
    model = make_model()
    source, lengths, target = batch()
    logits = model(source, lengths, target)[0]
    alone = model(source[1:, 2:], lengths[1:], target[1:])[0]
    torch.testing.assert_close(logits[1:], alone, rtol=0, atol=1e-10)
    source[0, 1] = 8
    assert not torch.allclose(model(source, lengths, target)[0][0], logits[0])


@torch.no_grad()
def test_beam_search_gives_the_scores_of_the_full_pass():
    model = make_model()
    source, lengths, _ = batch()
    dictionary = model.decoder.dictionary
    generator = SequenceGenerator([model], dictionary, beam_size=4, max_len_b=8, search_strategy=search.BeamSearch(dictionary))
    found = generator.generate([model], {"net_input": {"src_tokens": source, "src_lengths": lengths}})
    for row, hypotheses in enumerate(found):
        for hypothesis in hypotheses:
            tokens = hypothesis["tokens"]
            before = torch.cat((tokens.new_tensor([2]), tokens[:-1])).unsqueeze(0)
            unpadded = source[row : row + 1, source.size(1) - lengths[row] :]
            log_probs = torch.log_softmax(model(unpadded, lengths[row : row + 1], before)[0][0], dim=-1)
            own = log_probs.gather(1, tokens.unsqueeze(1)).squeeze(1)
            torch.testing.assert_close(hypothesis["positional_scores"].double(), own, rtol=0, atol=1e-5)


@pytest.fixture(scope="module")
def reversed_text(tmp_path_factory):
    """A small parallel corpus whose target is the source, word for word, with one word replaced: binarised."""
    folder = tmp_path_factory.mktemp("parallel")
    generator = torch.Generator().manual_seed(1)
    for split, count in (("train", 200), ("valid", 20)):
        lines = []
        for _ in range(count):
            length = int(torch.randint(2, 6, (1,), generator=generator))
            lines.append([WORDS[int(index)] for index in torch.randint(0, len(WORDS), (length,), generator=generator)])
        (folder / f"{split}.x").write_text("".join(" ".join(line) + "\n" for line in lines))
        (folder / f"{split}.y").write_text("".join(" ".join("w0" if word == "w1" else word for word in line) + "\n" for line in lines))
    fairseq(
        "preprocess", "-s", "x", "-t", "y", "--trainpref", folder / "train", "--validpref", folder / "valid", "--destdir", folder / "bin"
    )
    return folder


COMMON = ["--user-dir", ROOT / "attlm_fairseq", "--task", "translation", "--cpu"]
SIZES = [
    "--encoder-embed-dim",
    32,
    "--encoder-hidden-size",
    32,
    "--decoder-embed-dim",
    32,
    "--decoder-hidden-size",
    32,
    "--decoder-layers",
    1,
]


def test_trained_and_used_with_fairseqs_commands(reversed_text, tmp_path):
    training = ["--arch", "attentive_lstm", "--encoder-bidirectional", *SIZES, "--criterion", "label_smoothed_cross_entropy"]
    training += ["--label-smoothing", 0.1, "--optimizer", "adam", "--lr", 0.01, "--clip-norm", 5, "--batch-size", 20, "--max-epoch", 2]
    fairseq("train", reversed_text / "bin", *COMMON, *training, "--dropout", 0.1, "--save-dir", tmp_path, "--no-epoch-checkpoints")
    ran = fairseq(
        "generate",
        reversed_text / "bin",
        *COMMON,
        "--path",
        tmp_path / "checkpoint_best.pt",
        "--required-batch-size-multiple",
        1,
        "--gen-subset",
        "valid",
        "--nbest",
        3,
        "--beam",
        3,
    )
    hypotheses = [line for line in ran.stdout.splitlines() if line.startswith("H-")]
    assert len(hypotheses) == 60
    [model], _ = checkpoint_utils.load_model_ensemble([str(tmp_path / "checkpoint_best.pt")], {"data": str(reversed_text / "bin")})
    assert type(model) is AttentiveLSTMTranslationModel
    assert model.decoder.source_attention.merge.bias.abs().sum() > 0


def test_sizes_that_do_not_go_together_are_one_line(reversed_text, tmp_path):
    options = ["--arch", "attentive_lstm", "--decoder-embed-dim", 32, "--decoder-hidden-size", 30, "--output-layer", "tied"]
    ran = fairseq(
        "train",
        reversed_text / "bin",
        *COMMON,
        *options,
        "--optimizer",
        "adam",
        "--max-epoch",
        1,
        "--batch-size",
        8,
        "--save-dir",
        tmp_path,
        check=False,
    )
    expect_one_line(ran, "--arch attentive_lstm: the output layer can only be tied")
