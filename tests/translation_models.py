"""Translation models and samples for fairseq's search."""

from __future__ import annotations

from types import SimpleNamespace

import torch
from fairseq.data import Dictionary
from fairseq.models.transformer import TransformerConfig, TransformerModelBase

from attlm_fairseq.tasks.translation_with_lm import TranslationWithLMConfig, TranslationWithLMTask

WORDS = [f"w{number}" for number in range(25)]


BEAM = 4


def make_dictionary(words: list[str]) -> Dictionary:
    dictionary = Dictionary()
    for word in words:
        dictionary.add_symbol(word)
    return dictionary


def make_task(words: list[str] = WORDS, **options) -> TranslationWithLMTask:
    config = TranslationWithLMConfig(source_lang="x", target_lang="y", **options)
    return TranslationWithLMTask(config, make_dictionary(WORDS), make_dictionary(words))


def make_model(seed: int = 0) -> TransformerModelBase:
    """A translation model with random weights, whose hypotheses end soon or late and whose beams move a lot."""
    torch.manual_seed(seed)
    config = TransformerConfig()
    for side in (config.encoder, config.decoder):
        side.embed_dim, side.ffn_embed_dim, side.layers, side.attention_heads = 16, 16, 1, 2
    config.decoder.input_dim = config.decoder.output_dim = 16
    model = TransformerModelBase.build_model(config, make_task())
    with torch.no_grad():
        model.decoder.output_projection.weight.normal_(0, 0.7)
        model.decoder.output_projection.weight[2] *= 2.5  # the end: now likely, now not
    return model.eval()


def make_sample(sentences: int = 6, seed: int = 0) -> dict:
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(4, 4 + len(WORDS), (sentences, 7), generator=generator)
    tokens[:, -1] = 2
    return {"id": torch.arange(sentences), "net_input": {"src_tokens": tokens, "src_lengths": torch.full((sentences,), 7)}}


def decode(task, model, sample=None, lm_model=None, lm_weight=0.0, prefix_tokens=None, **options) -> list[list[dict]]:
    arguments = SimpleNamespace(beam=BEAM, max_len_b=12, lm_weight=lm_weight, **options)
    extra = {"lm_model": lm_model, "lm_weight": lm_weight} if lm_model else None
    generator = task.build_generator([model], arguments, extra_gen_cls_kwargs=extra)
    hypotheses = task.inference_step(generator, [model], sample or make_sample(), prefix_tokens=prefix_tokens)
    task.last_generator = generator
    return hypotheses


def texts(hypotheses) -> list[list[list[int]]]:
    return [[hypothesis["tokens"].tolist() for hypothesis in of_sentence] for of_sentence in hypotheses]
