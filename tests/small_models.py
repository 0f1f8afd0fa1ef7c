"""Small models of every family, and what the reference loops say of them."""

from __future__ import annotations

from typing import Any

import pytest
import reference
import torch

from attlm_fairseq.checkpoints.vocabulary import EOS, PAD
from attlm_fairseq.modules.families import build_language_model
from attlm_fairseq.modules.kernels.limits import LIMITS
from attlm_fairseq.modules.language_model import LanguageModel
from attlm_fairseq.modules.memory import ProjectedReader, Read
from attlm_fairseq.modules.output import Mixture
from attlm_fairseq.modules.recurrence import TwoSizes

V, SIZE, LAYERS = 19, 6, 2
SMALLER = SIZE - 2


VARIANTS = {
    "single": ("attentive_lstm_lm", {"attention_score": "single"}),
    "combined": ("attentive_lstm_lm", {"attention_score": "combined"}),
    "single, current too": ("attentive_lstm_lm", {"attention_score": "single", "attention_memory": "current"}),
    "combined, current too": ("attentive_lstm_lm", {"attention_score": "combined", "attention_memory": "current"}),
    "dot, context": ("attentive_lstm_lm", {"attention_score": "dot", "attention_merge": "context"}),
    "single, feedforward, skip 3": ("attentive_lstm_lm", {"attention_merge": "feedforward", "attention_skip": 3}),
    "combined, current too, product, skip 1": (
        "attentive_lstm_lm",
        {"attention_score": "combined", "attention_memory": "current", "attention_merge": "product", "attention_skip": 1},
    ),
    "single, sum": ("attentive_lstm_lm", {"attention_merge": "sum"}),
    "combined, smaller top": ("attentive_lstm_lm", {"attention_score": "combined", "decoder_top_size": SMALLER, "output_layer": "untied"}),
    "averaging": ("averaging_lstm_lm", {}),
    "selection none": ("amsrn_lm", {"selection": "none", "output_layer": "untied"}),
    "selection independent": ("amsrn_lm", {"selection": "independent", "output_layer": "untied"}),
    "selection tied": ("amsrn_lm", {"selection": "tied", "output_layer": "untied"}),
    "selection complementary": ("amsrn_lm", {"selection": "complementary", "output_layer": "untied"}),
    "selection tied, skip 2": ("amsrn_lm", {"selection": "tied", "output_layer": "untied", "attention_skip": 2}),
    "attention, skip 2": ("kvp_lstm_lm", {"kvp_mode": "attention", "attention_window": 4, "attention_skip": 2}),
    "attention": ("kvp_lstm_lm", {"kvp_mode": "attention", "attention_window": 4}),
    "key-value": ("kvp_lstm_lm", {"kvp_mode": "key-value", "attention_window": 4, "output_layer": "untied"}),
    "key-value-predict": ("kvp_lstm_lm", {"kvp_mode": "key-value-predict", "attention_window": 4, "output_layer": "untied"}),
    "2-gram": ("ngram_rnn_lm", {"ngram_order": 2, "output_layer": "untied"}),
    "3-gram": ("ngram_rnn_lm", {"ngram_order": 3, "output_layer": "untied"}),
    "RM gated": ("rm_lm", {"rm_window": 4}),
    "RM linear, skip 2": ("rm_lm", {"rm_window": 4, "rm_composition": "linear", "attention_skip": 2}),
    "RM linear, one word, no positions": ("rm_lm", {"rm_window": 1, "rm_composition": "linear", "rm_positions": "none"}),
    "RMR": ("rm_lm", {"rm_window": 4, "rm_second_lstm": True}),
    "plain": ("plain_lstm_lm", {}),
    "plain, projection": ("plain_lstm_lm", {"projection_size": 16, "output_layer": "untied"}),
    "combined, skip 1, projection": (
        "attentive_lstm_lm",
        {"attention_score": "combined", "attention_skip": 1, "projection_size": 16, "output_layer": "untied"},
    ),
    "key-value-predict, projection": (
        "kvp_lstm_lm",
        {"kvp_mode": "key-value-predict", "attention_window": 4, "projection_size": 48, "output_layer": "untied"},
    ),
    "RM gated, projection": ("rm_lm", {"rm_window": 4, "projection_size": 16, "output_layer": "untied"}),
    "attentive Mogrifier, projection": (
        "attentive_mogrifier_lm",
        {"mogrifier_rounds": 3, "projection_size": 16, "output_layer": "untied"},
    ),
    "pointer": ("pointer_lstm_lm", {"pointer_window": 4}),
    "pointer Mogrifier, projection": (
        "pointer_mogrifier_lm",
        {"pointer_window": 4, "mogrifier_rounds": 3, "projection_size": 16, "output_layer": "untied"},
    ),
    "rnn": ("rnn_lm", {}),
    "HORNN fofe": ("hornn_lm", {"hornn_feedback": "fofe"}),
    "RWA": ("rwa_lm", {}),
    "LSTMN": ("lstmn_lm", {}),
    "Mogrifier": ("mogrifier_lstm_lm", {"mogrifier_rounds": 3}),
    "Mogrifier, low rank": ("mogrifier_lstm_lm", {"mogrifier_rounds": 2, "mogrifier_rank": 2, "mogrifier_capped": True}),
    "HORNN gated": ("hornn_lm", {"hornn_feedback": "gated", "hornn_order": 2}),
}


POINTERS = ("pointer", "pointer Mogrifier, projection")  # the output layer reads the memory; no adaptive softmax, no mixture
# families that read nothing but the state
WITHOUT_MEMORY = ("plain_lstm_lm", "rnn_lm", "hornn_lm", "lstmn_lm", "mogrifier_lstm_lm", "rwa_lm")
# whose memory holds words, not states
OF_WORDS = [variant for variant in VARIANTS if variant in POINTERS or VARIANTS[variant][0] == "rm_lm"]
WITHOUT_READ = (
    *("2-gram", "3-gram", "plain", "plain, projection", "rnn", "HORNN fofe", "HORNN gated"),
    *("LSTMN", "Mogrifier", "Mogrifier, low rank", "RWA"),
)
WITHOUT_WEIGHTS = [variant for variant in WITHOUT_READ if variant != "LSTMN"]  # whose recurrence attends


def make_model(variant: str, dtype: torch.dtype = torch.float64, size: int = SIZE, vocabulary: int = V, **options) -> LanguageModel:
    family, own = VARIANTS[variant]
    config = {
        "decoder_embed_dim": size,
        "decoder_hidden_size": size,
        "decoder_layers": LAYERS,
        "output_layer": "tied",
        "dropout": 0.0,
        "forget_bias": 1.0,
        "dropout_in": None,
        "dropout_between": None,
        "dropout_out": None,
        **own,
        **options,
    }
    if own.get("decoder_top_size"):
        config["decoder_top_size"] = size - SIZE + SMALLER
    torch.manual_seed(7)
    model = build_language_model(family, config, vocabulary, PAD).to(dtype)
    model.initialise(0.8)  # large weights, so that the tanh and the attention are far from linear
    with torch.no_grad():  # biases other than zero, so that a forgotten one is seen
        for name, parameter in model.named_parameters():
            if "bias" in name and parameter.requires_grad:
                parameter.uniform_(-0.5, 0.5)
    return model.eval()


@pytest.fixture(params=VARIANTS)
def variant(request) -> str:
    return request.param


def nll_of(model: LanguageModel, features: torch.Tensor, read: Read | None, targets: torch.Tensor, counted: torch.Tensor) -> torch.Tensor:
    """The loss of the targets (B, T) that count, given features (B, T, F) and what was read."""
    return model.output.nll(features[counted], targets[counted], read and read.at(counted))


def sentences(count: int = 5, longest: int = 40) -> torch.Tensor:
    generator = torch.Generator().manual_seed(3)
    tokens = torch.randint(4, V, (count, longest), generator=generator)
    tokens[:, 0] = EOS
    return tokens


def reference_log_probs(model: LanguageModel, tokens: list[int], variant: str) -> tuple[torch.Tensor, list]:
    h, own_weights = reference_states(model, tokens)
    features, weights = reference_features(h, tokens, model.reader, *VARIANTS[variant])
    if variant in POINTERS:
        log_probs, alpha, _ = reference_pointer(model, tokens)
        return log_probs, [[torch.zeros((), dtype=torch.float64)] * (t + 1 - len(a)) + a for t, a in enumerate(alpha)]
    if isinstance(model.output, Mixture):
        return reference_mixture(model, tokens, features), weights or own_weights
    return reference.next_token_log_probs(features, model.output.weight, model.output.bias), weights or own_weights


def reference_pointer(model: LanguageModel, tokens: list[int]) -> tuple[torch.Tensor, list, torch.Tensor]:
    reader, output, (h, _) = model.reader, model.output, reference_states(model, tokens)
    if isinstance(reader, ProjectedReader):
        h, reader = reference.projected_states(h, reader.projection.weight, reader.projection.bias), reader.inner
    weights = reader.query.weight, reader.query.bias, reader.sentinel, output.weight, output.bias
    return reference.pointer_log_probs(h, tokens, reader.window, *weights)


def reference_mixture(model: LanguageModel, tokens: list[int], features: list[torch.Tensor]) -> torch.Tensor:
    output = model.output
    layers = [features, *(reference_states(model, tokens, layer + 1)[0] for layer in model.recurrence.below)]
    sources, L, c = [], [], []
    for of_layer, linear in zip(layers, output.latents, strict=True):
        for weight, bias in zip(linear.weight.split(output.vector_size), linear.bias.split(output.vector_size), strict=True):
            sources.append(of_layer)
            L.append(weight)
            c.append(bias)
    return reference.mixture_log_probs(sources, L, c, output.prior.weight, output.weight, output.bias)


def reference_states(model: LanguageModel, tokens: list[int], depth: int | None = None) -> tuple[list[torch.Tensor], list]:
    """The outputs of the recurrence, or of its first ``depth`` layers, and its own weights, by its loop."""
    embedded = [model.embedding.weight[token] for token in tokens]
    return reference_outputs(model.recurrence, embedded, layers_of(model.recurrence)[:depth])


def layers_of(cells: torch.nn.Module) -> list[dict[str, torch.Tensor]]:
    """The weights of each layer by the names of the loops."""
    if isinstance(cells, TwoSizes):
        return [*layers_of(cells.lower), *layers_of(cells.top)]
    if cells.name == "hornn":
        return [dict(layer.named_parameters()) for layer in cells.layers]
    if cells.name in ("lstm", "rnn"):
        names = {"W_x": "weight_ih", "W_h": "weight_hh", "b": "bias_ih"}
        return [{short: getattr(cells, f"{name}_l{k}") for short, name in names.items()} for k in range(cells.num_layers)]
    layers = [{"W_x": one.from_input.weight, "W_h": one.from_state.weight, "b": one.from_input.bias} for one in cells.layers]
    if cells.name == "rwa":
        for layer, one in zip(layers, cells.layers, strict=True):
            layer |= {"W_a": one.score_input.weight, "s_0": one.first_state}
    if cells.name == "lstmn":
        for layer, one in zip(layers, cells.layers, strict=True):
            layer |= {"W_key": one.state_keys.weight, "W_query": one.input_query.weight}
            layer |= {"W_read": one.read_query.weight, "v": one.score_vector}
    return layers


def reference_outputs(cells: torch.nn.Module, embedded: list[torch.Tensor], layers: list[dict]) -> tuple[list[torch.Tensor], list]:
    """The loop of a recurrence with the weights of its layers: outputs and, if it attends, weights."""
    if isinstance(cells, TwoSizes):
        lower = len(layers_of(cells.lower))
        between, _ = reference_outputs(cells.lower, embedded, layers[:lower])
        return reference_outputs(cells.top, between, layers[lower:]) if layers[lower:] else (between, [])
    if cells.name == "hornn":
        return reference.higher_order_states(embedded, layers, cells.layers[0].order), []
    if cells.name == "lstmn":
        return reference.lstmn_states(embedded, layers)
    if cells.name == "rwa":
        return reference.weighted_average_states(embedded, layers), []
    if cells.name == "mogrifier":
        rounds = [[matrix_of(gate) for gate in layer.rounds] for layer in cells.layers]
        return reference.mogrifier_states(embedded, layers, rounds[: len(layers)], cells.layers[0].capped), []
    return (reference.rnn_states if cells.name == "rnn" else reference.lstm_states)(embedded, layers), []


def matrix_of(gate: torch.nn.Module) -> torch.Tensor:
    """A full matrix, or the product of two."""
    return gate.weight if isinstance(gate, torch.nn.Linear) else gate[1].weight @ gate[0].weight


def recurrent_memory(h: list[torch.Tensor], tokens: list[int], reader: torch.nn.Module, options: dict) -> tuple[list, list]:
    """The loop over the words, and over the second LSTM."""
    tables = {"A": reader.word_keys.weight, "B": reader.word_values.weight}
    if reader.position_keys is not None:
        tables |= {"A_T": reader.position_keys.weight, "B_T": reader.position_values.weight.t()}
    parts = reader.composition
    if options.get("rm_composition") == "linear":
        compose = {"C": parts.from_state.weight}
    else:
        compose = {}
        for kind, name in (("W", "weight"), ("b", "bias")):
            from_read, gates = getattr(parts.from_read, name).chunk(3), getattr(parts.gates, name).chunk(2)
            in_order = [from_read[0], gates[0], from_read[1], gates[1], from_read[2], getattr(parts.candidate, name)]
            compose |= {f"{kind}_{k}": value for k, value in enumerate(in_order, 1)}
    window, skip = options["rm_window"], options.get("attention_skip", 0)
    features, weights = reference.recurrent_memory_features(h, tokens, window, tables, compose, skip)
    zero = torch.zeros((), dtype=torch.float64)
    weights = [[zero] * (t + 1 - skip - len(p)) + p for t, p in enumerate(weights)]
    if reader.second is not None:
        layer = reader.second
        cells = {"W_x": layer.from_input.weight, "W_h": layer.from_state.weight, "b": layer.from_input.bias}
        features = reference.lstm_states(features, [cells])
    return features, weights


def reference_features(h: list[torch.Tensor], tokens: list[int], reader: torch.nn.Module, family: str, options: dict) -> tuple[list, list]:
    if options.get("projection_size"):
        h, reader = reference.projected_states(h, reader.projection.weight, reader.projection.bias), reader.inner
    skip = options.get("attention_skip", 0)
    if family in ("attentive_lstm_lm", "attentive_mogrifier_lm"):
        names = {
            "W_s": "state_scores.weight",
            "v_s": "score_vector",
            "W_q": "query.weight",
            "W_c": "merge.weight",
            "b_c": "merge.bias",
            "W_f": "second_merge.weight",
            "W_a": "of_context.weight",
            "b_f": "second_merge.bias",
        }
        given = dict(reader.named_parameters())
        weights = {short: given[name] for short, name in names.items() if name in given}
        current = options.get("attention_memory") == "current"
        return reference.attentive_features(h, weights, current, skip, options.get("attention_merge", "concat"))
    if family == "averaging_lstm_lm":
        uniform = [[torch.tensor(1 / (t + 2), dtype=torch.float64)] * (t + 2) for t in range(len(h))]  # h_0 first
        return reference.averaging_features(h, reader.merge.weight, reader.merge.bias), uniform
    if family == "amsrn_lm":
        gates = [None if gate is None else (gate.weight, gate.bias) for gate in (reader.key_gate, reader.value_gate)]
        return reference.selection_features(h, options["selection"], reader.query.weight, reader.query.bias, *gates, skip)
    if family == "kvp_lstm_lm":
        parts = {"attention": 1, "key-value": 2, "key-value-predict": 3}[options["kvp_mode"]]
        matrices = [reader.memory_keys.weight, reader.current_key.weight, reader.score_vector]
        matrices += [reader.read_value.weight, reader.current_prediction.weight]
        features, weights = reference.key_value_predict_features(h, parts, options["attention_window"], *matrices, skip)
        zero = torch.zeros((), dtype=torch.float64)
        return features, [[zero] * (t - skip - len(alpha)) + alpha for t, alpha in enumerate(weights)]
    if family == "rm_lm":
        return recurrent_memory(h, tokens, reader, options)
    if family == "ngram_rnn_lm":
        return reference.ngram_features(h, options["ngram_order"], reader.merge.weight), []
    return h, []


def set_limits(monkeypatch: pytest.MonkeyPatch, device: str = "cpu", **sizes: Any) -> None:
    """Compute so much at once on a kind of device: small sizes cut small models into pieces. A loss's element-wise part has two rows."""
    monkeypatch.setitem(LIMITS, device, LIMITS[device]._replace(**{"loss_rows": 1, "loss_numbers": 2 * V, **sizes}))
