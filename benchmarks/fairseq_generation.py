#!/usr/bin/env python3
"""Translating with a language model in fairseq's decoder: ``--lm-path`` against this package's cached generator, for every model family.

fairseq computes the whole prefix of every hypothesis again at every position; the cached generator keeps its state. Both decode the same
sentences in turn in this one process, with random weights and a fixed length of the hypotheses, and must find the same. Speeds are in
tokens of the best hypotheses, sentence ends included, per second of CPU time, which other work on the machine hardly changes.
The second ratio is that of the language model's part alone, without the time of the translation model and of the search.

    python benchmarks/fairseq_generation.py [--lengths 10,30,100] [--families amsrn_lm,plain_lstm_lm]
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch
from fairseq.data import Dictionary
from fairseq.models import MODEL_DATACLASS_REGISTRY, MODEL_REGISTRY
from fairseq.models.transformer import TransformerConfig, TransformerModelBase
from fairseq.tasks.translation import TranslationConfig, TranslationTask
from omegaconf import OmegaConf

from attlm_fairseq.checkpoints.reading import TrainedModel
from attlm_fairseq.checkpoints.vocabulary import Vocabulary
from attlm_fairseq.decoding.decoder_lm import DecoderLM
from attlm_fairseq.decoding.fairseq_generator import FusedGenerator
from attlm_fairseq.decoding.fairseq_lms import FusedLM
from attlm_fairseq.modules.families import FAMILIES
from attlm_fairseq.plugin import register

WEIGHT = 0.3
VARIANTS = {"attentive_lstm_lm combined": ("attentive_lstm_lm", {"attention_score": "combined"})}


def make_task(words: int) -> TranslationTask:
    dictionary = Dictionary()
    for number in range(words):
        dictionary.add_symbol(f"w{number}")
    return TranslationTask(TranslationConfig(source_lang="x", target_lang="y"), dictionary, dictionary)


@torch.no_grad()
def make_translation_model(task: TranslationTask, size: int, layers: int) -> TransformerModelBase:
    config = TransformerConfig()
    for side in (config.encoder, config.decoder):
        side.embed_dim, side.ffn_embed_dim, side.layers, side.attention_heads = size, 4 * size, layers, 4
    config.decoder.input_dim = config.decoder.output_dim = size
    model = TransformerModelBase.build_model(config, task)
    torch.nn.init.normal_(model.decoder.output_projection.weight, 0, 3 * size**-0.5)  # peaked, as a trained model's distributions are
    for layer in model.decoder.layers:  # what it reads decides what it writes, so that few hypotheses of different sentences are the same
        layer.encoder_attn.k_proj.weight.mul_(5)
        layer.encoder_attn.out_proj.weight.mul_(2)
    return model.eval()


def decode(generator: torch.nn.Module, model: torch.nn.Module, sentences: int) -> tuple[list[list[int]], float]:
    """Return the best hypothesis of each sentence, and the tokens per second."""
    random = torch.Generator().manual_seed(1)
    source = torch.randint(4, min(1000, model.encoder.embed_tokens.num_embeddings), (sentences, 20), generator=random)
    source[:, -1] = 2
    sample = {"id": torch.arange(sentences), "net_input": {"src_tokens": source, "src_lengths": torch.full((sentences,), 20)}}
    started = time.process_time()
    best = [hypotheses[0]["tokens"].tolist() for hypotheses in generator.generate([model], sample)]
    return best, sum(map(len, best)) / (time.process_time() - started)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--families", default=",".join([*FAMILIES, *VARIANTS]), help="model families, comma-separated")
    parser.add_argument("--lengths", default="10,30,100", help="words of a hypothesis, comma-separated")
    parser.add_argument("--words", type=int, default=10_000, help="vocabulary")
    parser.add_argument("--size", type=int, default=648, help="embeddings and states of the language models (divisible by 3 and 4)")
    parser.add_argument("--layers", type=int, default=2, help="LSTM layers")
    parser.add_argument("--translation-size", type=int, default=256)
    parser.add_argument("--translation-layers", type=int, default=2)
    parser.add_argument("--sentences", type=int, default=16, help="number of sentences decoded together")
    parser.add_argument("--beam", type=int, default=5)
    parser.add_argument("--runs", type=int, default=2, help="number of runs of each decoder, in turn; the fastest counts")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    register()
    torch.manual_seed(1)
    task = make_task(options.words)
    translation = make_translation_model(task, options.translation_size, options.translation_layers)
    print(
        f"V = {options.words + 4}, LMs {options.layers} x {options.size}, beam {options.beam}, {options.sentences} sentences together, ",
        end="",
    )
    print(f"{torch.get_num_threads()} threads; tokens/s")
    print(f"{'language model':28}{'length':>8}{'--lm-path':>12}{'cached':>12}{'ratio':>8}{'without LM':>14}{'ratio, LM':>11}")
    for name in options.families.split(","):
        family, own = VARIANTS.get(name, (name, {}))
        sizes = {"decoder_embed_dim": options.size, "decoder_hidden_size": options.size, "decoder_layers": options.layers}
        lm = (
            MODEL_REGISTRY[family]
            .build_model(OmegaConf.structured(replace(MODEL_DATACLASS_REGISTRY[family](), **sizes, **own)), task)
            .eval()
        )
        trained = TrainedModel(lm.decoder.model, Vocabulary(task.target_dictionary.symbols), Path(name), family, "")
        fused = FusedLM(name, DecoderLM(trained), WEIGHT)
        for length in map(int, options.lengths.split(",")):
            arguments = SimpleNamespace(beam=options.beam, max_len_b=length, min_len=length)
            generators = [
                task.build_generator([translation], arguments, extra_gen_cls_kwargs={"lm_model": lm, "lm_weight": WEIGHT}),
                task.build_generator([translation], arguments, seq_gen_cls=FusedGenerator, extra_gen_cls_kwargs={"lms": [fused]}),
                task.build_generator([translation], arguments),
            ]
            for each in generators:
                decode(each, translation, options.sentences)  # untimed: the first call of a model compiles kernels
            runs = [[decode(each, translation, options.sentences) for each in generators] for _ in range(options.runs)]
            expected, found = (hypotheses for hypotheses, _ in runs[0][:2])
            stock, cached, without = (max(speed for _, speed in of_one) for of_one in zip(*runs, strict=True))
            same = "" if found == expected else "  DIFFERENT HYPOTHESES"
            part = (1 / stock - 1 / without) / (1 / cached - 1 / without)
            print(f"{name:28}{length:8}{stock:12.1f}{cached:12.1f}{cached / stock:8.1f}{without:14.1f}{part:11.1f}{same}", flush=True)


if __name__ == "__main__":
    main()
