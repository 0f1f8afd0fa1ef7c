"""``--init-from``: what of a trained model another one begins with, and what it says of that."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from lm_files import complete_options, write_checkpoint

from attlm_fairseq.checkpoints.initialisation import initialise_from
from attlm_fairseq.checkpoints.reading import load_model
from attlm_fairseq.checkpoints.vocabulary import PAD, SPECIAL_SYMBOLS
from attlm_fairseq.errors import InputError
from attlm_fairseq.modules.families import build_language_model
from attlm_fairseq.modules.language_model import LanguageModel

WORDS = ["a", "b", "c"]


def untrained(family: str, **options: object) -> LanguageModel:
    torch.manual_seed(7)
    model = build_language_model(*complete_options(_name=family, **options), 4 + len(WORDS), PAD)
    model.initialise(0.3)
    return model


def began(model: LanguageModel, trained: Path) -> tuple[set[str], set[str]]:
    """Begin with a checkpoint -> the names said to be taken and to be new, after seeing that it is so."""
    before = {name: weight.clone() for name, weight in model.named_parameters()}
    said = initialise_from(model, [*SPECIAL_SYMBOLS, *WORDS], trained).split(": took ")[1]
    taken, new = ({name.split(" (")[0] for name in part.split(", ")} - {"nothing"} for part in said.split("; new: "))
    weights = load_model(trained).model.state_dict()
    for name, parameter in model.named_parameters():
        assert (name in new) == (name not in taken), name
        if name in taken and weights[name].shape == parameter.shape:
            assert torch.equal(parameter, weights[name]), name
        if name in new:
            assert torch.equal(parameter, before[name]), name
    return taken, new


BODY = {"embedding.weight", *(f"lstm.{kind}_l{layer}" for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh") for layer in range(2))}
OUTPUT = {"output.weight", "output.bias"}
READER = {"reader.score_vector", "reader.state_scores.weight", "reader.merge.weight", "reader.merge.bias"}
PROJECTION = {"reader.projection.weight", "reader.projection.bias"}
CASES = {
    # the checkpoint, the new model, and what it takes besides embeddings and LSTM
    "a reader of the same kind": ({}, {}, {*READER, "output.bias"}),
    "a reader that has more": ({}, {"attention_score": "combined"}, {*READER, "output.bias"}),
    "another with weights of the same name": (
        {"_name": "kvp_lstm_lm", "kvp_mode": "attention"}, {"_name": "attentive_lstm_lm", "output_layer": "untied"}, OUTPUT,
    ),
    "another, the same name once more": ({"attention_score": "combined"}, {"_name": "amsrn_lm", "selection": "none"}, set()),
    "features of another size": ({"_name": "kvp_lstm_lm"}, {"_name": "averaging_lstm_lm", "output_layer": "untied"}, set()),
    "an output layer of its own into a tied one": ({"_name": "plain_lstm_lm", "output_layer": "untied"}, {"_name": "plain_lstm_lm"}, set()),
    "a tied one into one of its own": ({"_name": "plain_lstm_lm"}, {"_name": "plain_lstm_lm", "output_layer": "untied"}, OUTPUT),
    "AMSRN's beginning": ({"_name": "plain_lstm_lm"}, {"_name": "amsrn_lm"}, OUTPUT),
    "a projection, with another reader": (
        {"_name": "plain_lstm_lm", "projection_size": 12}, {"projection_size": 12}, {"output.bias", *PROJECTION},
    ),
    "a projection and the reader of it": (
        {"projection_size": 12}, {"projection_size": 12},
        {"output.bias", *PROJECTION, *(name.replace(".", ".inner.", 1) for name in READER)},
    ),
    "a projection of another size": (
        {"_name": "plain_lstm_lm", "projection_size": 9}, {"_name": "plain_lstm_lm", "projection_size": 12}, set(),
    ),
    "a pointer that joins": ({"_name": "plain_lstm_lm"}, {"_name": "pointer_lstm_lm"}, {"output.bias"}),
    "a pointer that joins, of a projection": (
        {"_name": "plain_lstm_lm", "projection_size": 12}, {"_name": "pointer_lstm_lm", "projection_size": 12},
        {"output.bias", *PROJECTION},
    ),
    "a projection into a reader of states": ({"projection_size": 12}, {}, {"output.bias"}),
    "clusters": ({"_name": "plain_lstm_lm", "output_layer": "adaptive", "adaptive_cutoffs": "5"}, {"_name": "plain_lstm_lm"}, set()),
}  # fmt: skip


def test_weights_are_taken_from_a_model_whose_texts_begin_with_bos(tmp_path):
    path = write_checkpoint(tmp_path / "trained.pt", WORDS, _name="plain_lstm_lm")
    content = torch.load(path)
    content["cfg"]["task"] = {"_name": "language_modeling", "data": "data-bin", "add_bos_token": True}
    torch.save(content, path)
    model = untrained("plain_lstm_lm")
    initialise_from(model, [*SPECIAL_SYMBOLS, *WORDS], path)
    assert torch.equal(model.embedding.weight, content["model"]["decoder.model.embedding.weight"])


@pytest.mark.parametrize(
    ("family", "option", "values", "lost"),
    [
        ("plain_lstm_lm", "decoder_layers", (3, 1), r"its lstm\.weight_ih_l1 is 48x12, this model's is missing"),
        ("plain_lstm_lm", "decoder_layers", (1, 2), r"its lstm\.weight_ih_l1 is missing, this model's is 48x12"),
        ("mogrifier_lstm_lm", "mogrifier_rounds", (5, 2), r"its mogrifier\.layers\.0\.rounds\.2\.weight is .*, this model's is missing"),
    ],
)
def test_a_recurrence_is_taken_whole(tmp_path, family, option, values, lost):
    path = write_checkpoint(tmp_path / "trained.pt", WORDS, _name=family, **{option: values[0]})
    with pytest.raises(InputError, match=f"--init-from: {lost}"):
        initialise_from(untrained(family, **{option: values[1]}), [*SPECIAL_SYMBOLS, *WORDS], path)


@pytest.mark.parametrize("case", CASES)
def test_what_is_taken(tmp_path, case):
    trained, options, expected = CASES[case]
    path = write_checkpoint(tmp_path / "trained.pt", WORDS, **trained)
    model = untrained(options.get("_name", "attentive_lstm_lm"), **{name: value for name, value in options.items() if name != "_name"})
    taken, new = began(model, path)
    assert taken == BODY | expected
    assert "output.weight" not in new or model.output.weight is not model.embedding.weight
