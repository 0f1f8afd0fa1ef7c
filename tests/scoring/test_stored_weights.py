"""LMs of Hugging Face stored in bfloat16: with ``--precision bfloat16`` they take half the memory and give the same scores."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from foreign_lms import write_gpt2
from torch import nn

from attlm_fairseq.errors import InputError
from attlm_fairseq.scoring.compute import DeviceConfig
from attlm_fairseq.scoring.foreign_lms import huggingface_files
from attlm_fairseq.scoring.foreign_lms.huggingface_lm import load_huggingface_lm
from attlm_fairseq.scoring.foreign_lms.stored_weights import StoredEmbedding, StoredLinear, compute_in_float32, names_in_bfloat16
from attlm_fairseq.scoring.foreign_lms.token_lm import TokenScorer
from attlm_fairseq.scoring.scorer import SentenceScore

SENTENCES = [["the", "cat", "sat"], ["a", "dog", "ran", "on", "the", "mat"], ["the", "zoo"], []]
LOW = DeviceConfig(precision="bfloat16")


def write_llama(folder: Path, tied: bool) -> Path:
    """A 2-layer Llama with the tokenizer of ``write_gpt2``."""
    from transformers import LlamaConfig, LlamaForCausalLM

    write_gpt2(folder)
    torch.manual_seed(3)
    sizes = {"hidden_size": 64, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1}
    config = LlamaConfig(vocab_size=275, bos_token_id=0, eos_token_id=0, initializer_range=0.3, tie_word_embeddings=tied, **sizes)
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder


def write_opt(folder: Path) -> Path:
    """An OPT whose embeddings of positions are a class of their own."""
    from transformers import OPTConfig, OPTForCausalLM

    write_gpt2(folder)
    torch.manual_seed(4)
    sizes = {"hidden_size": 16, "ffn_dim": 24, "num_hidden_layers": 2, "num_attention_heads": 2, "max_position_embeddings": 64}
    OPTForCausalLM(OPTConfig(vocab_size=275, bos_token_id=0, eos_token_id=0, pad_token_id=1, init_std=0.4, **sizes)).save_pretrained(folder)
    return folder


def write_gemma(folder: Path) -> Path:
    """A Gemma, whose embeddings compute a constant in the type in which they are loaded."""
    from transformers import Gemma3ForCausalLM, Gemma3TextConfig

    write_gpt2(folder)
    torch.manual_seed(5)
    sizes = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1}
    config = Gemma3TextConfig(vocab_size=275, head_dim=8, bos_token_id=0, eos_token_id=0, pad_token_id=1, initializer_range=0.4, **sizes)
    Gemma3ForCausalLM(config).save_pretrained(folder)
    return folder


MODELS = {
    "llama": lambda folder: write_llama(folder, tied=False),
    "tied llama": lambda folder: write_llama(folder, tied=True),
    "gpt2": write_gpt2,
    "opt": write_opt,
    "gemma": write_gemma,
}


def stored_as(folder: Path, dtype: torch.dtype) -> Path:
    """Store the model of a folder again, in another type."""
    from transformers import AutoModelForCausalLM

    AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).to(dtype).save_pretrained(folder)
    return folder


def scores(lm: TokenScorer) -> tuple[list[SentenceScore], list[str]]:
    found = lm.score(SENTENCES)
    return [*found, *lm.after([["the", "dog"]]).score(SENTENCES)], lm.notes()


@pytest.mark.parametrize("kind", MODELS)
def test_the_scores_are_those_of_the_model_in_float32(tmp_path, monkeypatch, kind):
    folder = stored_as(MODELS[kind](tmp_path / "lm"), torch.bfloat16)
    kept = load_huggingface_lm(folder, compute=LOW)
    monkeypatch.setattr(huggingface_files, "names_in_bfloat16", lambda folder: frozenset())
    converted = load_huggingface_lm(folder, compute=LOW)
    assert scores(kept) == scores(converted)
    assert {value.dtype for value in converted.lm.model.parameters()} == {torch.float32}
    matrices = {id(layer.weight) for layer in kept.lm.model.modules() if isinstance(layer, StoredLinear | StoredEmbedding)}
    assert bool(matrices) == (kind != "gemma")
    for value in kept.lm.model.parameters():
        assert value.dtype == (torch.bfloat16 if id(value) in matrices else torch.float32)
    for copied in (pickle.loads(pickle.dumps(kept)), copy.deepcopy(kept)):
        assert scores(copied) == scores(kept)


@pytest.mark.parametrize(("dtype", "compute"), [(torch.bfloat16, DeviceConfig()), (torch.float16, LOW)])
def test_other_types_and_precisions_become_float32(tmp_path, dtype, compute):
    """Weights in float16 would be converted at each step."""
    folder = stored_as(write_llama(tmp_path / "lm", tied=True), dtype)
    assert {value.dtype for value in load_huggingface_lm(folder, compute=compute).lm.model.parameters()} == {torch.float32}


def test_weights_of_several_types_are_converted(tmp_path):
    from safetensors.torch import load_file, save_file

    folder = stored_as(write_llama(tmp_path / "lm", tied=False), torch.bfloat16)
    weights = load_file(folder / "model.safetensors")
    weights["model.norm.weight"] = weights["model.norm.weight"].float() + 1e-4
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    assert not names_in_bfloat16(folder)
    assert load_huggingface_lm(folder, compute=LOW).lm.model.model.norm.weight[0] == weights["model.norm.weight"][0]
    (folder / "model.safetensors").write_bytes(b"broken")
    assert not names_in_bfloat16(folder)
    with pytest.raises(InputError, match="cannot be loaded by transformers"):
        load_huggingface_lm(folder, compute=LOW)


def test_constants_computed_in_half_precision_are_not_kept(tmp_path, monkeypatch):
    """An LM may compute constants when it is made, such as sinusoids, in the type in which it is loaded."""
    from transformers.models.llama.modeling_llama import LlamaMLP, LlamaPreTrainedModel

    folder = stored_as(write_llama(tmp_path / "lm", tied=False), torch.bfloat16)

    def with_constant(self, config, made=LlamaMLP.__init__):
        made(self, config)
        self.register_buffer("third", torch.ones(1) / 3, persistent=False)

    def compute_constant(self, module, before=LlamaPreTrainedModel._init_weights):
        """Buffers that are not stored are unset memory until the model's class writes them here."""
        before(self, module)
        if isinstance(module, LlamaMLP):
            module.third.copy_(torch.ones(1) / 3)

    monkeypatch.setattr(LlamaPreTrainedModel, "_init_weights", compute_constant)
    monkeypatch.setattr(LlamaMLP, "__init__", with_constant)
    monkeypatch.setattr(LlamaMLP, "forward", lambda self, x: self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x) * self.third))
    lm = load_huggingface_lm(folder, compute=LOW)
    assert {value.dtype for value in (*lm.lm.model.parameters(), *lm.lm.model.buffers())} == {torch.float32}
    assert {layer.mlp.third.item() for layer in lm.lm.model.model.layers} == {(torch.ones(1) / 3).item()}


def test_a_matrix_that_another_kind_of_layer_shares_is_converted():
    class Doubled(nn.Embedding):
        def forward(self, tokens):
            return super().forward(tokens) * 2

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.norm, self.inner, self.out = Doubled(5, 3), nn.LayerNorm(3), nn.Linear(3, 3), nn.Linear(3, 5, bias=False)
            self.out.weight = self.embed.weight

        def forward(self, input_ids):
            return SimpleNamespace(logits=self.out(self.inner(self.norm(self.embed(input_ids)))))

    model = Model().to(torch.bfloat16)
    expected = copy.deepcopy(model).float()(torch.tensor([[1, 2]])).logits
    assert compute_in_float32(model, frozenset(f"model.{name}" for name in model.state_dict()))
    assert torch.equal(model(torch.tensor([[1, 2]])).logits, expected)
    assert {name: value.dtype for name, value in model.named_parameters() if value.dtype != torch.float32} == {
        "inner.weight": torch.bfloat16
    }


def without_its_layer(self, x):
    return self.down_proj(self.act_fn(nn.functional.linear(x, self.gate_proj.weight)) * self.up_proj(x))


def test_a_model_that_uses_weights_without_their_layer_is_converted(tmp_path, monkeypatch):
    from transformers.models.llama.modeling_llama import LlamaMLP

    folder = stored_as(write_llama(tmp_path / "lm", tied=False), torch.bfloat16)
    expected = scores(load_huggingface_lm(folder, compute=LOW))
    monkeypatch.setattr(LlamaMLP, "forward", without_its_layer)
    converted = load_huggingface_lm(folder, compute=LOW)
    assert {value.dtype for value in converted.lm.model.parameters()} == {torch.float32}
    assert scores(converted) == expected


def test_a_model_whose_logits_are_in_half_precision_is_converted(tmp_path, monkeypatch):
    from transformers import LlamaForCausalLM

    folder = stored_as(write_llama(tmp_path / "lm", tied=False), torch.bfloat16)
    expected = scores(load_huggingface_lm(folder, compute=LOW))

    def forward(self, *args, before=LlamaForCausalLM.forward, **options):
        found = before(self, *args, **options)
        found.logits = found.logits.to(self.lm_head.weight.dtype)
        return found

    monkeypatch.setattr(LlamaForCausalLM, "forward", forward)
    converted = load_huggingface_lm(folder, compute=LOW)
    assert {value.dtype for value in converted.lm.model.parameters()} == {torch.float32}
    assert scores(converted) == expected
