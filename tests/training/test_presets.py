"""Presets: the sizes of the papers' rows, by fairseq-train and by fairseq-hydra-train, which reads options in another way."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fairseq import options
from fairseq.data import Dictionary
from fairseq.dataclass.initialize import add_defaults
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.models import ARCH_MODEL_REGISTRY
from fairseq_runs import ROOT, fairseq
from omegaconf import DictConfig, OmegaConf
from torch import nn

from attlm_fairseq.checkpoints.reading import find_family
from attlm_fairseq.checkpoints.vocabulary import PAD
from attlm_fairseq.models.averaging_lstm_lm import AveragingLSTMLanguageModel
from attlm_fairseq.models.language_model import preset
from attlm_fairseq.modules.families import build_language_model
from attlm_fairseq.modules.language_model import LanguageModel
from attlm_fairseq.plugin import register

register()

PRESETS = {
    "attentive_lstm_lm_ptb": {"decoder_hidden_size": 650, "dropout": 0.5, "forget_bias": 0.0, "output_bias": "zero"},
    "attentive_lstm_lm_wikitext2": {"decoder_hidden_size": 1000, "decoder_layers": 2, "dropout": 0.65, "forget_bias": 0.0},
    "averaging_lstm_lm_ptb": {"decoder_hidden_size": 650, "decoder_layers": 2, "dropout": 0.5, "forget_bias": 1.0},
    "averaging_lstm_lm_wikitext2": {"decoder_embed_dim": 1000, "dropout": 0.65, "forget_bias": 1.0, "output_bias": "zero"},
    "amsrn_lm_independent": {"decoder_layers": 1, "decoder_hidden_size": 50, "selection": "independent", "output_layer": "untied"},
    "amsrn_lm_tied": {"selection": "tied", "dropout": 0.0, "forget_bias": 0.0, "output_bias": "zero", "init_biases": "zero"},
    "amsrn_lm_tied_ours": {"selection": "tied", "dropout": 0.3, "forget_bias": 1.0, "output_bias": "unigram", "decoder_hidden_size": 50},
    "kvp_lstm_lm_key_value": {"decoder_hidden_size": 560, "kvp_mode": "key-value", "attention_window": 10, "init_range": 0.1},
    "ngram_rnn_lm_2gram": {"decoder_hidden_size": 564, "decoder_embed_dim": 300, "ngram_order": 2, "dropout": 0.0},
    "ngram_rnn_lm_3gram": {"decoder_hidden_size": 786, "ngram_order": 3},
    "ngram_rnn_lm_5gram": {"decoder_hidden_size": 1120, "ngram_order": 5},
    "amsrn_lm_none": {"decoder_layers": 1, "decoder_embed_dim": 50, "selection": "none"},
    "amsrn_lm_complementary": {"decoder_layers": 1, "decoder_embed_dim": 50, "selection": "complementary"},
    "rnn_lm_daniluk2017": {"decoder_layers": 1, "decoder_hidden_size": 307, "output_layer": "untied", "init_range": 0.1},
    "hornn_lm_gated": {"decoder_layers": 1, "decoder_hidden_size": 297, "hornn_order": 3, "hornn_feedback": "gated"},
    "rm_lm_daniluk2017": {"decoder_hidden_size": 300, "rm_window": 15, "rm_composition": "gated", "rm_positions": "learned"},
    "rm_lm_rmn": {"decoder_embed_dim": 50, "decoder_layers": 1, "rm_second_lstm": False, "dropout": 0.0, "output_bias": "zero"},
    "rm_lm_rmr": {"decoder_embed_dim": 50, "decoder_layers": 1, "rm_second_lstm": True, "output_layer": "untied"},
    "rm_lm_rmr_ours": {"decoder_hidden_size": 50, "rm_second_lstm": True, "dropout": 0.3, "output_bias": "unigram"},
    "lstmn_lm_ptb": {"decoder_embed_dim": 150, "decoder_hidden_size": 300, "decoder_layers": 1, "output_layer": "untied"},
    "lstmn_lm_ptb_3layers": {"decoder_embed_dim": 150, "decoder_hidden_size": 300, "decoder_layers": 3},
    "mogrifier_lstm_lm_awd": {
        "mogrifier_rounds": 5,
        "mogrifier_rank": 84,
        "mogrifier_capped": True,
        "decoder_layers": 2,
        "weight_drop": 0.5,
    },
    "plain_lstm_lm_ptb": {"decoder_hidden_size": 650, "decoder_layers": 2, "dropout": 0.5, "forget_bias": 0.0, "output_bias": "zero"},
    "plain_lstm_lm_wikitext2": {"decoder_embed_dim": 1000, "dropout": 0.65, "forget_bias": 0.0},
    "plain_lstm_lm_daniluk2017": {"decoder_layers": 1, "decoder_hidden_size": 300, "output_layer": "untied", "init_biases": "uniform"},
    "zaremba_medium": {"decoder_hidden_size": 650, "output_layer": "untied", "init_range": 0.05, "dropout": 0.5, "init_biases": "uniform"},
    "zaremba_large": {"decoder_hidden_size": 1500, "output_layer": "untied", "init_range": 0.04, "dropout": 0.65, "forget_bias": None},
    "variational_large_tied": {"decoder_hidden_size": 1500, "output_layer": "tied", "locked_dropout": True, "dropout_words": 0.3},
    "awd_lstm_lm": {"decoder_hidden_size": 1150, "decoder_top_size": 400, "dropout_between": 0.25, "init_layers": "torch"},
    "awd_lstm_lm_wikitext2": {"decoder_embed_dim": 400, "dropout_in": 0.65, "dropout_between": 0.2, "dropout_out": 0.4, "weight_drop": 0.5},
    "awd_averaging": {"decoder_hidden_size": 650, "dropout_words": 0.1, "locked_dropout": True, "weight_drop": 0.5},
    "pointer_lstm_lm_medium": {"decoder_hidden_size": 650, "output_layer": "untied", "dropout": 0.5, "pointer_window": 100},
    "awd_mos": {"decoder_top_size": 620, "softmaxes": "15", "dropout_latent": 0.29, "dropout_between": 0.225, "dropout_out": 0.4},
    "awd_mos_wikitext2": {"decoder_embed_dim": 300, "softmaxes": "15", "dropout_in": 0.55, "dropout_between": 0.2, "weight_drop": 0.5},
    "awd_doc": {"decoder_hidden_size": 960, "softmaxes": "15,5", "dropout_latent": 0.6, "locked_dropout": True, "output_layer": "tied"},
    "awd_doc_wikitext2": {"decoder_embed_dim": 300, "softmaxes": "15,5", "dropout_latent": 0.6, "dropout_in": 0.55},
    "awd_attentive": {"decoder_hidden_size": 650, "attention_score": "single", "locked_dropout": True, "init_biases": "zero"},
}
MILLIONS = {  # at V = 10,001, and 33,278 for WikiText-2
    "attentive_lstm_lm_ptb": 14.54,
    "attentive_lstm_lm_wikitext2": 52.32,
    "averaging_lstm_lm_ptb": 14.12,
    "averaging_lstm_lm_wikitext2": 51.32,
    "plain_lstm_lm_ptb": 13.28,
    "plain_lstm_lm_wikitext2": 49.32,
    "zaremba_medium": 19.78,
    "zaremba_large": 66.03,
    "variational_large_tied": 51.02,
    "awd_lstm_lm": 24.21,  # paper: 24
    "awd_lstm_lm_wikitext2": 33.55,  # paper: 33
    "awd_averaging": 14.12,
    "awd_attentive": 14.54,
    "pointer_lstm_lm_medium": 20.20,  # paper: 21
    "awd_mos": 21.49,  # paper: 22
    "awd_mos_wikitext2": 34.90,  # paper: 35
    "awd_doc": 22.84,  # paper: 23
    "awd_doc_wikitext2": 36.63,  # paper: 37
    "mogrifier_lstm_lm_awd": 23.90,
}


def test_the_table_of_presets_has_their_sizes():
    page = (ROOT / "docs" / "models.md").read_text(encoding="utf-8")
    assert {name: float(count) for name, count in re.findall(r"^\| `(\w+)` \| (\d+\.\d+)[ (]", page, re.MULTILINE)} == MILLIONS


def of_command_line(name: str, *given: str) -> DictConfig:
    """The options with which fairseq-train builds a model; fairseq takes half a second to make them."""
    arguments = ["data", "--task", "sentence_reset_lm", "--optimizer", "sgd", "--arch", name, *given]
    return convert_namespace_to_omegaconf(options.parse_args_and_arch(options.get_training_parser(), arguments)).model


def of_hydra(name: str, **given: object) -> DictConfig:
    config = OmegaConf.create({"model": {"_name": name, **given}})
    add_defaults(config)
    return config.model


@pytest.mark.parametrize("name", PRESETS)
def test_presets_have_the_sizes_of_the_paper(name):
    config = of_hydra(name)
    assert {option: config[option] for option in PRESETS[name]} == PRESETS[name]
    assert config._name == name


@pytest.mark.parametrize("name", {find_family(name, Path(name)): name for name in PRESETS}.values())
def test_given_options_win(name):
    """By both commands, for one preset of each family; also options that are another model's default."""
    for config in (of_command_line(name, "--decoder-layers", "3", "--dropout", "0.3"), of_hydra(name, decoder_layers=3, dropout=0.3)):
        assert (config.decoder_layers, config.dropout) == (3, 0.3)
        of_preset = PRESETS[name] | {"decoder_layers": 3, "dropout": 0.3}
        assert {option: config[option] for option in of_preset} == of_preset
        assert config.decoder_embed_dim == of_hydra(name).decoder_embed_dim
        assert config._name == name


SWITCHED_ON = [(name, option) for name, given in PRESETS.items() for option in given if of_hydra(name)[option] is True]


@pytest.mark.parametrize(("name", "option"), [*SWITCHED_ON, ("attentive_lstm_lm", "locked_dropout")])
def test_an_option_that_a_preset_switches_on_can_be_given_both_ways(name, option):
    """fairseq makes of a switch that is on by default one that switches off, under the same name."""
    switch = option.replace("_", "-")
    assert of_command_line(name, f"--{switch}")[option] is True
    if of_hydra(name)[option]:
        assert of_command_line(name)[option] is True
        assert of_command_line(name, f"--no-{switch}")[option] is False


@pytest.mark.parametrize(
    "name", ["plain_lstm_lm_daniluk2017", "rnn_lm_daniluk2017", "kvp_lstm_lm_attention", "kvp_lstm_lm_key_value", "ngram_rnn_lm_4gram"]
)
def test_parameters_of_daniluk(name):
    """Table 2: 23.9 M besides the word vectors, with the paper's 77 K words. (Not so of key-value-predict: see test_language_model.)"""
    model = build_language_model(find_family(name, Path(name)), of_hydra(name), 77_000, PAD)
    assert (model.parameter_count() - 77_000 * 300) / 1e6 == pytest.approx(23.9, abs=0.1)


@pytest.mark.parametrize(("feedback", "hidden", "of_daniluk", "small"), [("fofe", 303, 23.77, 1_020_151), ("gated", 297, 23.83, 1_035_151)])
def test_parameters_of_higher_order(feedback, hidden, of_daniluk, small):
    """In millions besides the embeddings at V = 77,000, and with embeddings and states of 50 at V = 10,001."""
    model = build_language_model("hornn_lm", of_hydra(f"hornn_lm_{feedback}"), 77_000, PAD)
    assert (model.parameter_count() - 77_000 * 300) / 1e6 == pytest.approx(of_daniluk, abs=0.01)
    sizes = {"decoder_embed_dim": 50, "decoder_hidden_size": 50}
    assert build_language_model("hornn_lm", of_hydra(f"hornn_lm_{feedback}", **sizes), 10_001, PAD).parameter_count() == small


def parameters(name: str, vocabulary: int, **given: object) -> int:
    with torch.device("meta"):
        return build_language_model(find_family(name, Path(name)), of_hydra(name, **given), vocabulary, PAD).parameter_count()


def test_parameters_of_recurrent_memory_networks():
    """Daniluk et al., Table 2, print 70.6 M and with word vectors 93.7 M; the others are the rows of Liu et al."""
    large = parameters("rm_lm_daniluk2017", 77_000)
    assert (large / 1e6, large / 1e6 - 23.1) == pytest.approx((93.749, 70.649), abs=5e-4)
    assert parameters("rm_lm_rmn", 10_001) == 2_047_201
    assert parameters("rm_lm_rmr", 10_001) == 2_067_401


def test_parameters_of_lstmn():
    sizes = {"decoder_embed_dim": 50, "decoder_hidden_size": 50}
    lstm = parameters("plain_lstm_lm", 10_001, **sizes, decoder_layers=1, output_layer="untied")
    assert parameters("lstmn_lm_ptb", 10_001, **sizes) == 1_037_851 == lstm + 3 * 50 * 50 + 50


@pytest.mark.parametrize("name", MILLIONS)
def test_parameters_of_the_other_presets(name):
    with torch.device("meta"):
        model = build_language_model(find_family(name, Path(name)), of_hydra(name), 33_278 if "wikitext" in name else 10_001, PAD)
    assert round(model.parameter_count() / 1e6, 2) == MILLIONS[name]


def test_biases_of_daniluk_are_drawn_too():
    """All but the forget gates'; torch's second biases, which the models do not have, stay 0."""
    config = of_hydra("plain_lstm_lm_daniluk2017")
    model = build_language_model("plain_lstm_lm", config, 101, PAD)
    model.initialise(config.init_range, biases_too=str(config.init_biases) == "uniform")
    i, f, g, o = model.lstm.bias_ih_l0.chunk(4)
    assert bool((f == 1).all())
    for drawn in (i, g, o, model.output.bias):
        assert drawn.abs().max() <= 0.1
        assert drawn.std() > 0.03
    assert not model.lstm.bias_hh_l0.any()


def test_biases_of_zaremba_are_drawn_those_of_forget_gates_too():
    config = dict(of_hydra("zaremba_medium", decoder_hidden_size=100, decoder_embed_dim=100))
    for name in ("zaremba_medium", "lstmn_lm_ptb"):  # a fused LSTM, and one of single layers
        model = build_language_model(find_family(name, Path(name)), config, 101, PAD)
        model.initialise(config["init_range"], biases_too=True)
        bias = model.lstm.bias_ih_l0 if name == "zaremba_medium" else model.recurrence.layers[0].from_input.bias
        for drawn in bias.chunk(4):
            assert drawn.abs().max() <= 0.05
            assert drawn.std() > 0.02


@pytest.fixture(scope="module")
def awd() -> LanguageModel:
    """AWD-LSTM at a tenth of its sizes."""
    config = of_hydra("awd_lstm_lm", decoder_embed_dim=40, decoder_hidden_size=115, decoder_top_size=40)
    model = build_language_model("plain_lstm_lm", config, 101, PAD)
    model.initialise(config.init_range, layers_too=str(config.init_layers) == "range")
    return model.eval()


def test_awd_lstm_is_the_stack_of_torch_modules_that_its_authors_train(awd):
    tokens = torch.randint(4, 101, (3, 11), generator=torch.Generator().manual_seed(1))
    embedded = nn.functional.embedding(tokens, awd.embedding.weight)
    names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    parts = [[getattr(awd.lstm.lower, f"{name}_l{layer}") for name in names] for layer in (0, 1)]
    for weights in (*parts, [getattr(awd.lstm.top, f"{name}_l0") for name in names]):
        layer = nn.LSTM(weights[0].size(1), weights[1].size(1), batch_first=True)
        layer.load_state_dict({f"{name}_l0": weight for name, weight in zip(names, weights, strict=True)})
        embedded, _ = layer(embedded)
    torch.testing.assert_close(awd(tokens)[0], embedded @ awd.embedding.weight.t() + awd.output.bias)
    assert [part.shape[1] for part, *_ in parts] == [40, 115]


def test_awd_lstm_begins_with_the_weights_of_torch(awd):
    """+-0.1 for the embeddings and 0 for the output biases; the layers between +-1/sqrt(H), each with its own H."""
    assert 0.09 < awd.embedding.weight.abs().max() <= 0.1
    assert not awd.output.bias.any()
    for part, size in ((awd.lstm.lower, 115), (awd.lstm.top, 40)):
        for name, drawn in part.named_parameters():
            if name.startswith("bias_hh"):
                assert not drawn.any()
            else:
                assert 0.9 * size**-0.5 < drawn.abs().max() <= size**-0.5, name


def test_a_preset_whose_family_attlm_would_not_find_is_refused():
    with pytest.raises(ValueError, match=r"the preset my_averaging of averaging_lstm_lm needs an entry in RECIPES of modules/families\.py"):
        preset("my_averaging", AveragingLSTMLanguageModel, decoder_layers=1)


def test_hydra_trains_the_preset_that_the_checkpoint_names(data):
    """And takes what is given with it; the checkpoint has it all, and gives the same numbers again."""
    chosen = ["+task._name=sentence_reset_lm", f"+task.data={data / 'bin'}", "+model._name=amsrn_lm_independent", "+model.dropout=0"]
    chosen += ["criterion=cross_entropy", "optimizer=adam", "+optimization.lr=[0.01]", "dataset.batch_size=8", "optimization.max_epoch=1"]
    chosen += ["common.cpu=true", f"common.user_dir={ROOT / 'attlm_fairseq'}", "distributed_training.distributed_world_size=1"]
    fairseq("hydra-train", *chosen, f"checkpoint.save_dir={data / 'hydra'}", f"hydra.run.dir={data / 'hydra run'}")
    options = torch.load(data / "hydra" / "checkpoint_last.pt", weights_only=False)["cfg"]["model"]
    assert (options["_name"], options["decoder_layers"], options["decoder_hidden_size"]) == ("amsrn_lm_independent", 1, 50)
    assert (options["selection"], options["dropout"]) == ("independent", 0)
    again = fairseq(
        "validate", data / "bin", "--user-dir", ROOT / "attlm_fairseq", "--task", "sentence_reset_lm", "--batch-size", 8, "--cpu",
        "--path", data / "hydra" / "checkpoint_last.pt",
    )  # fmt: skip
    assert "ppl" in again.stdout


WITHOUT_INSTRUCTIONS = "--compute-dtype bf16: this CPU has no instructions for bfloat16: products are computed in float32, which is faster"
SLOWER = "--compute-dtype bf16: on this CPU products in bfloat16 take longer than in float32: leave it out"


@pytest.mark.parametrize(
    ("dtype", "instructions", "slow", "told"),
    [
        ("bf16", False, False, [WITHOUT_INSTRUCTIONS]),
        ("bf16", True, False, []),
        ("bf16", True, True, [SLOWER]),
        ("float32", False, True, []),
    ],
)
def test_a_warning_says_where_bfloat16_is_slower(monkeypatch, caplog, dtype, instructions, slow, told):
    for module in ("_decoder", "_refused_options"):
        monkeypatch.setattr(f"attlm_fairseq.models.{module}.has_bfloat16_instructions", lambda: instructions)
    monkeypatch.setattr("attlm_fairseq.models._refused_options.slower_in_bfloat16", lambda: slow)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    config = of_hydra("plain_lstm_lm", compute_dtype=dtype, decoder_embed_dim=4, decoder_hidden_size=4)
    model = ARCH_MODEL_REGISTRY["plain_lstm_lm"].build_model(config, SimpleNamespace(target_dictionary=Dictionary()))
    assert [record.message for record in caplog.records if "bfloat16" in record.message] == told
    tokens, lows = torch.full((1, 3), 3), []
    monkeypatch.setattr(model.decoder.model, "outputs", partial(noting_autocast, model.decoder.model.outputs, lows))
    model.decoder(tokens)
    assert lows == [dtype == "bf16" and instructions]


def noting_autocast(call: Callable[..., Any], lows: list[bool], *given: object) -> Any:
    lows.append(torch.is_autocast_enabled("cpu"))
    return call(*given)


def test_tables_of_words_of_a_reader_are_drawn_with_the_embeddings():
    torch.manual_seed(1)
    config = of_hydra("rm_lm", decoder_embed_dim=8, decoder_hidden_size=8, init_layers="torch")
    model = build_language_model("rm_lm", config, 50, PAD)
    model.initialise(config.init_range, layers_too=False)
    for table in (model.embedding, model.reader.word_keys, model.reader.word_values):
        assert 0 < table.weight.abs().max() <= config.init_range
    assert model.lstm.weight_hh_l0.abs().max() > config.init_range
