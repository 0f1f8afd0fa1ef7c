"""The Python in the READMEs runs as it stands, with what their texts say is the reader's own."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lm_files import write_arpa, write_checkpoint

import attlm_fairseq

ROOT = Path(__file__).parents[2]
READMES = ["README.md", "docs/decoders.md"]
TEXTS = [(ROOT / name).read_text(encoding="utf-8") for name in READMES]
SNIPPETS = [snippet for text in TEXTS for snippet in re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)]
WORDS = ["a", "ab", "bad", "cab", "sentence", "another", "one"]
LETTERS = ["<blank>", "|", *"abcd"]


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """The files that the snippets name, in the current folder."""
    for name in ("lm.pt", "checkpoint_best.pt"):
        write_checkpoint(tmp_path / name, WORDS)
    write_arpa(tmp_path / "lm.arpa", WORDS)
    (tmp_path / "names.txt").write_text("bad\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def flashlight_objects() -> dict[str, Any]:
    from flashlight.lib.text.decoder import CriterionType, LexiconDecoderOptions, Trie
    from flashlight.lib.text.dictionary import Dictionary

    trie = Trie(len(LETTERS), 1)
    for index, word in enumerate(["a", "ab", "bad", "cab"]):
        trie.insert([*map(LETTERS.index, word), 1], index, 0.0)
    options = LexiconDecoderOptions(10, len(LETTERS), 1e9, 0.5, 0.0, -math.inf, 0.0, False, CriterionType.CTC)
    dictionary = Dictionary(["a", "ab", "bad", "cab", "<unk>"])
    return {"word_dictionary": dictionary, "options": options, "trie": trie, "silence": 1, "blank": 0, "unknown": 4}


def huggingface_objects() -> dict[str, Any]:
    import attlm_fairseq.decoding.huggingface  # noqa: F401  # isort: skip (before transformers, see its imports)
    from tokenizers import Tokenizer, decoders, models
    from transformers import BartConfig, BartForConditionalGeneration, PreTrainedTokenizerFast

    tokens = ["<pad>", "<s>", "</s>", "▁a", "▁b", "b", "ad", "▁c", "<unk>"]
    backend = Tokenizer(models.WordLevel({token: index for index, token in enumerate(tokens)}, unk_token="<unk>"))
    backend.decoder = decoders.Metaspace()
    names = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, **names)
    sizes = {"d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2, "decoder_attention_heads": 2}
    ids = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2, "forced_eos_token_id": None}
    torch.manual_seed(1)
    model = BartForConditionalGeneration(BartConfig(vocab_size=len(tokens), max_position_embeddings=32, **sizes, **ids)).eval()
    return {"tokenizer": tokenizer, "model": model, "inputs": {"input_ids": torch.tensor([[1, 3, 5, 2]])}}


def ctc_objects() -> dict[str, Any]:
    frames = np.random.default_rng(1).normal(size=(8, 6))
    return {"labels": ["", " ", *"abcd"], "log_probs": frames - np.logaddexp.reduce(frames, axis=1, keepdims=True)}


def test_links_lead_somewhere():
    pages = [ROOT / name for name in (*READMES, "CONTRIBUTING.md", "cli/README.md", "benchmarks/README.md", "attlm_fairseq/README.md")]
    pages += (ROOT / "docs").glob("*.md")
    links = [page.parent / link for page in pages for link in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8"))]
    assert len(links) > len(pages)
    assert [link for link in links if not str(link).count("https:") and not link.exists()] == []


def test_the_api_reference_has_every_public_name():
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    assert [name for name in attlm_fairseq.__all__ if f"heading: attlm.{name}\n" not in page] == []


def test_a_decoder_of_ones_own(folder):
    found: dict[str, Any] = {}
    exec(next(snippet for snippet in SNIPPETS if "LogLinearLM.load" in snippet), found)
    batch, fusion, by_state, after = SNIPPETS[-4:]
    exec(batch, found)
    assert found["log_probs"].exp().sum(dim=1).tolist() == pytest.approx([1.0] * 5, abs=1e-4)
    assert len(found["states"].recurrent[0]) == 3
    exec(fusion, found)
    assert found["scores"].shape == (5, 5)
    assert len(found["states"]) == 3
    exec(by_state, found)
    assert found["total"] < 0
    exec(after, found)
    assert found["lms_after"].start() != found["lms"].start()
    assert found["fusion_after"].start() != found["fusion"].start()


def test_every_decoders_adapter(folder):
    found = flashlight_objects() | ctc_objects() | huggingface_objects()
    found["token_list"] = ["<blank>", "<unk>", "▁a", "b", "▁cab", "<sos/eos>"]
    for snippet in SNIPPETS[1:-4]:
        exec(snippet, found)
    assert found["fusion"].lms is found["lms"]
    assert found["lm"].fusion.lms is found["lms"]
    assert found["processor"].fusion.fusions[1] is found["phrases"]


def test_rescoring_from_python(folder, capsys):
    exec(SNIPPETS[0], {})
    text, weights = capsys.readouterr().out.strip().split(" {")
    assert text in ("a cat run", "a cat ran")
    assert "'neural'" in weights
    assert len(SNIPPETS) == 11
