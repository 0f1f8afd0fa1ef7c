"""Language models as files, for tests: untrained neural ones in the form fairseq-train saves, without running it."""

from __future__ import annotations

import random
from argparse import Namespace
from pathlib import Path

import torch

from attlm_fairseq.checkpoints.vocabulary import PAD
from attlm_fairseq.modules.families import FAMILIES, build_language_model, family_of

OPTIONS = {
    "_name": "attentive_lstm_lm",
    "decoder_embed_dim": 12,
    "decoder_hidden_size": 12,
    "decoder_layers": 2,
    "output_layer": "tied",  # where the features have the size of the embeddings: see complete_options
    "dropout": 0.3,
    "dropout_in": None,
    "dropout_between": None,
    "dropout_out": None,
    "init_range": 0.05,
}
# models that are no family of their own, by what their tests call them
VARIANTS = {
    "combined": {"_name": "attentive_lstm_lm", "attention_score": "combined"},
    "adaptive": {"_name": "averaging_lstm_lm", "output_layer": "adaptive", "adaptive_cutoffs": "7"},
    "MoS": {"_name": "averaging_lstm_lm", "softmaxes": "3"},
    "DOC": {"_name": "attentive_lstm_lm", "softmaxes": "2,2"},
    "projected": {"_name": "attentive_mogrifier_lm", "decoder_hidden_size": 14, "projection_size": 12},
    "two sizes": {"_name": "plain_lstm_lm", "decoder_layers": 3, "decoder_hidden_size": 14, "decoder_top_size": 12, "softmaxes": "2,0,1"},
}


def write_dictionary(path: Path, words: list[str]) -> Path:
    path.write_text("".join(f"{word} {100 - place}\n" for place, word in enumerate(words)), encoding="utf-8")
    return path


def complete_options(**options: object) -> tuple[str, dict[str, object]]:
    """The family of ``_name`` and all options of such a model, small; the output layer is tied if the features have its size."""
    family = family_of(str(options.get("_name", OPTIONS["_name"]))) or "attentive_lstm_lm"
    config = OPTIONS | FAMILIES[family].defaults | options
    size = config.get("projection_size") or config.get("decoder_top_size") or config["decoder_hidden_size"]
    features = FAMILIES[family].reader.from_config(size, 4, config).feature_size
    if features != config["decoder_embed_dim"] and "output_layer" not in options:
        config["output_layer"] = "untied"
    return family, config


def write_checkpoint(path: Path, words: list[str], seed: int = 1, **options: object) -> Path:
    """A checkpoint as fairseq-train saves it, with ``dict.txt`` next to it; ``_name`` is its family or preset."""
    family, config = complete_options(**options)
    torch.manual_seed(seed)
    model = build_language_model(family, config, 4 + len(words), PAD)
    model.initialise(0.7)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_dictionary(path.with_name("dict.txt"), words)
    torch.save(
        {
            "args": None,
            "cfg": {"model": config, "task": {"_name": "sentence_reset_lm", "data": "data-bin"}, "optimizer": Namespace(momentum=0.0)},
            "model": {f"decoder.model.{name}": value for name, value in model.state_dict().items()},
            "optimizer_history": [{"num_updates": 1, "optimizer_name": "FairseqNAG", "lr_scheduler_state": {}}],
            "extra_state": {"train_iterator": {"epoch": 2, "iterations_in_epoch": 0}},
        },
        path,
    )
    return path


def write_arpa(path: Path, words: list[str], seed: int = 1) -> Path:
    """A trigram model over the words with random scores; a third of the bigrams and of the trigrams they allow are seen."""
    random_ = random.Random(seed)
    bigrams = {(a, b) for a in ["<s>", *words] for b in [*words, "</s>"] if random_.random() < 1 / 3}
    trigrams = {(a, b, c) for a, b in sorted(bigrams) for c in [*words, "</s>"] if (b, c) in bigrams and random_.random() < 1 / 3}
    lines = ["\\data\\", f"ngram 1={len(words) + 3}", f"ngram 2={len(bigrams)}", f"ngram 3={len(trigrams)}", "", "\\1-grams:"]
    lines += [f"{-99 if word == '<s>' else -random_.uniform(1, 3):.4f}\t{word}\t-0.3" for word in ["<unk>", "<s>", "</s>", *words]]
    lines += ["", "\\2-grams:", *(f"{-random_.uniform(0.2, 2):.4f}\t{' '.join(ngram)}\t-0.2" for ngram in sorted(bigrams))]
    lines += ["", "\\3-grams:", *(f"{-random_.uniform(0.1, 1):.4f}\t{' '.join(ngram)}" for ngram in sorted(trigrams))]
    path.write_text("\n".join([*lines, "", "\\end\\", ""]), encoding="utf-8")
    return path
