"""Small translation models of fairseq with random weights, as files."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

import torch
from lm_files import write_dictionary

SOURCE_WORDS = [f"{first}{second}" for first in "bdfgk" for second in "aeio"]
TARGET_WORDS = [f"{first}{second}" for first in "lmn" for second in "aeiou"]
SIZES = {
    "transformer": {
        f"{side}_{what}": value
        for side in ("encoder", "decoder")
        for what, value in (("embed_dim", 16), ("ffn_embed_dim", 16), ("layers", 1), ("attention_heads", 2))
    },
    "lstm": {
        "encoder_embed_dim": 12,
        "encoder_hidden_size": 12,
        "encoder_bidirectional": True,
        "decoder_embed_dim": 12,
        "decoder_hidden_size": 12,
        "decoder_out_embed_dim": 12,
    },
    "fconv": {
        "encoder_embed_dim": 12,
        "encoder_layers": "[(12, 3), (12, 3)]",
        "decoder_embed_dim": 12,
        "decoder_layers": "[(12, 3), (12, 3)]",
        "decoder_out_embed_dim": 12,
    },
}


def write_translation_model(
    path: Path, arch: str = "transformer", pair: str = "xy", seed: int = 1, old: bool = False, **task: object
) -> Path:
    """A checkpoint as fairseq-train saves it, from ``pair[0]`` to ``pair[1]``, with the dictionaries of both next to it.

    ``old``: with its options in one Namespace, as before 2021. fairseq converts them for a second at every loading.
    """
    from fairseq.data import Dictionary
    from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY

    path.parent.mkdir(parents=True, exist_ok=True)
    words = {"x": SOURCE_WORDS, "y": TARGET_WORDS}
    source, target = (Dictionary.load(str(write_dictionary(path.with_name(f"dict.{language}.txt"), words[language]))) for language in pair)
    of_task = {"source_lang": pair[0], "target_lang": pair[1], "data": "elsewhere", "left_pad_source": True, "left_pad_target": False}
    of_task |= {"max_source_positions": 30, "max_target_positions": 30, **task}
    arguments = Namespace(**of_task | SIZES[arch], arch=arch, task="translation", criterion="cross_entropy")
    ARCH_CONFIG_REGISTRY[arch](arguments)
    torch.manual_seed(seed)
    model = ARCH_MODEL_REGISTRY[arch].build_model(arguments, Namespace(source_dictionary=source, target_dictionary=target))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2.0)
    history = [{"num_updates": 1, "optimizer_name": "FairseqNAG", "lr_scheduler_state": {}}]
    extra = {"train_iterator": {"epoch": 2, "iterations_in_epoch": 0}}
    options = {
        "model": Namespace(**vars(arguments), _name=arch),
        "task": {"_name": "translation", **of_task},
        "common": {},
        "criterion": {"_name": "cross_entropy"},
    }
    saved = {"args": arguments, "cfg": None} if old else {"args": None, "cfg": options}
    torch.save({**saved, "model": model.state_dict(), "optimizer_history": history, "extra_state": extra}, path)
    return path
