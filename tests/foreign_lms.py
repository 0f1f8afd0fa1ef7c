"""Small language models of other libraries with random weights, as files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from attlm_fairseq.transformers_import import hide_broken_torchaudio

WORDS = ["the", "cat", "sat", "on", "mat", "dog", "a", "ran"]


def write_gpt2(folder: Path, seed: int = 1, words: list[str] = WORDS, **options: Any) -> Path:
    """A 2-layer GPT-2 with a byte-level BPE tokenizer that knows the words but for some that it cuts."""
    hide_broken_torchaudio()
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=275, special_tokens=["<|endoftext|>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator([" ".join(words)] * 4, trainer)
    end = {"bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>"}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **end).save_pretrained(folder)
    torch.manual_seed(seed)
    config = {
        "n_layer": 2,
        "n_head": 2,
        "n_embd": 16,
        "n_positions": 64,
        "vocab_size": tokenizer.get_vocab_size(),
        "initializer_range": 0.5,
    }
    GPT2LMHeadModel(GPT2Config(**config | {"bos_token_id": 0, "eos_token_id": 0} | options)).save_pretrained(folder)
    return folder


TRANSFORMER = {
    "_name": "transformer_lm",
    "decoder_layers": 2,
    "decoder_embed_dim": 16,
    "decoder_input_dim": 16,
    "decoder_output_dim": 16,
    "decoder_ffn_embed_dim": 32,
    "decoder_attention_heads": 2,
}
FAIRSEQ = {
    "transformer_lm": TRANSFORMER,
    "adaptive": {
        **TRANSFORMER,
        "adaptive_input": True,
        "adaptive_input_cutoff": "6,9",
        "adaptive_input_factor": 2.0,
        "adaptive_softmax_cutoff": "6,9",
        "adaptive_softmax_factor": 2.0,
        "tie_adaptive_weights": True,
    },
    "lstm_lm": {"decoder_embed_dim": 12, "decoder_hidden_size": 12, "decoder_out_embed_dim": 12, "decoder_layers": 2},
    "fconv_lm": {
        "decoder_embed_dim": 12,
        "decoder_layers": "[(12, 3), (12, 2)]",
        "decoder_attention": "False",
        "adaptive_softmax_cutoff": None,
    },
}


def write_fairseq_lm(path: Path, kind: str, words: list[str] = WORDS, seed: int = 1, **task: Any) -> Path:
    """A checkpoint of one of fairseq's language models as fairseq-train saves it, with ``dict.txt`` next to it."""
    from argparse import Namespace

    from fairseq.data import Dictionary
    from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY, MODEL_DATACLASS_REGISTRY
    from lm_files import write_dictionary
    from omegaconf import OmegaConf

    path.parent.mkdir(parents=True, exist_ok=True)
    dictionary = Dictionary.load(str(write_dictionary(path.with_name("dict.txt"), words)))
    options = dict(FAIRSEQ[kind])
    name = options.pop("_name", kind)
    model_class = ARCH_MODEL_REGISTRY[name]
    positions = {"tokens_per_sample": 64, "max_target_positions": 64, "add_bos_token": False, "tpu": False}
    if name in MODEL_DATACLASS_REGISTRY:
        config = OmegaConf.merge(OmegaConf.structured(MODEL_DATACLASS_REGISTRY[name]()), options | positions)
        OmegaConf.set_struct(config, False)
    else:
        config = Namespace(**options, **positions, criterion="cross_entropy")
        ARCH_CONFIG_REGISTRY[name](config)
    torch.manual_seed(seed)
    names = ("source_dictionary", "target_dictionary", "dictionary", "output_dictionary")
    model = model_class.build_model(config, Namespace(**dict.fromkeys(names, dictionary)))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2.0)
    plain = OmegaConf.to_container(config, enum_to_str=True) if not isinstance(config, Namespace) else vars(config)
    task_options = {"_name": "language_modeling", "data": str(path.parent), "sample_break_mode": "eos", **positions, **task}
    content = {
        "args": None,
        "cfg": {"model": plain | {"_name": name}, "task": task_options, "common": {}, "criterion": {"_name": "cross_entropy"}},
        "model": model.state_dict(),
        "optimizer_history": [{"num_updates": 1, "optimizer_name": "FairseqNAG", "lr_scheduler_state": {}}],
        "extra_state": {"train_iterator": {"epoch": 2, "iterations_in_epoch": 0}},
    }
    torch.save(content, path)
    return path


def write_bert(folder: Path, seed: int = 1, words: list[str] = WORDS, kind: str = "Bert", padding: int = 0) -> Path:
    """A 2-layer BERT (or ``Roberta``) with a WordPiece tokenizer that knows the words and their letters."""
    hide_broken_torchaudio()
    import transformers
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    letters = [chr(code) for code in range(ord("a"), ord("z") + 1)]
    entries = list(dict.fromkeys([*special, *words, *letters, *(f"##{letter}" for letter in letters)]))
    tokenizer = Tokenizer(models.WordPiece({entry: place for place, entry in enumerate(entries)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    names = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")}
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names).save_pretrained(folder)
    torch.manual_seed(seed)
    sizes = {"num_hidden_layers": 2, "num_attention_heads": 2, "hidden_size": 16, "intermediate_size": 32, "max_position_embeddings": 64}
    config = getattr(transformers, f"{kind}Config")(vocab_size=len(entries), initializer_range=0.5, pad_token_id=padding, **sizes)
    getattr(transformers, f"{kind}ForMaskedLM")(config).save_pretrained(folder)
    return folder


def write_marian(folder: Path, sentences: list[str], seed: int = 1, targets: tuple[str, ...] = ()) -> Path:
    """A 1-layer Marian model with sentencepiece models of these sentences, and ``>>targets<<`` if it translates into several languages."""
    hide_broken_torchaudio()
    import json
    import shutil

    import sentencepiece
    from transformers import MarianConfig, MarianMTModel, MarianTokenizer

    folder.mkdir(parents=True)
    options = {"vocab_size": 60, "hard_vocab_limit": False, "minloglevel": 2}
    spm = folder / "source.spm"
    with spm.open("wb") as written:
        sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(sentences * 4), model_writer=written, **options)
    shutil.copy(spm, folder / "target.spm")
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(spm))
    entries = dict.fromkeys(["</s>", "<unk>", *(pieces.id_to_piece(place) for place in range(3, pieces.get_piece_size()))])
    entries |= dict.fromkeys([*(f">>{target}<<" for target in targets), "<pad>"])
    vocabulary = {entry: place for place, entry in enumerate(entries)}
    (folder / "vocab.json").write_text(json.dumps(vocabulary))
    files = {"source_spm": str(spm), "target_spm": str(folder / "target.spm"), "vocab": str(folder / "vocab.json")}
    MarianTokenizer(**files, source_lang="x", target_lang="y").save_pretrained(folder)
    sizes = {f"{side}_{what}": value for side in ("encoder", "decoder") for what, value in SIDE.items()}
    ends = {"pad_token_id": vocabulary["<pad>"], "decoder_start_token_id": vocabulary["<pad>"], "eos_token_id": 0, "forced_eos_token_id": 0}
    torch.manual_seed(seed)
    config = MarianConfig(vocab_size=len(vocabulary), d_model=16, max_position_embeddings=64, init_std=0.5, **sizes, **ends)
    model = MarianMTModel(config)
    with torch.no_grad():
        model.final_logits_bias.normal_()
        model.final_logits_bias[0, 0] += 8  # its texts end
    model.save_pretrained(folder)
    return folder


SIDE = {"layers": 1, "ffn_dim": 16, "attention_heads": 2}


def write_nllb(folder: Path, words: list[str], languages: tuple[str, ...], seed: int = 1) -> Path:
    """A 1-layer M2M100 model with NLLB's tokenizer, which knows the words as pieces of one letter and these languages."""
    hide_broken_torchaudio()
    from transformers import M2M100Config, M2M100ForConditionalGeneration, NllbTokenizer

    letters = sorted({"\u2581", *"".join(words)})
    vocabulary = {entry: place for place, entry in enumerate(["<s>", "<pad>", "</s>", "<unk>", *letters])}
    tokenizer = NllbTokenizer(vocab=vocabulary, merges=[], additional_special_tokens=list(languages), src_lang=languages[0])
    tokenizer.save_pretrained(folder)
    sizes = {f"{side}_{what}": value for side in ("encoder", "decoder") for what, value in SIDE.items()}
    torch.manual_seed(seed)
    config = M2M100Config(vocab_size=len(tokenizer), d_model=16, max_position_embeddings=64, init_std=0.5, **sizes)
    M2M100ForConditionalGeneration(config).save_pretrained(folder)
    return folder


def write_t5(folder: Path, words: list[str], seed: int = 1) -> Path:
    """A 1-layer T5 with a tokenizer of whole words and letters."""
    hide_broken_torchaudio()
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast, T5Config, T5ForConditionalGeneration

    entries = ["<pad>", "</s>", "<unk>", "translate", "x", "to", "y:", *words]
    tokenizer = Tokenizer(models.WordLevel({entry: place for place, entry in enumerate(entries)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    names = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names).save_pretrained(folder)
    torch.manual_seed(seed)
    sizes = {"d_model": 16, "d_kv": 8, "d_ff": 16, "num_layers": 1, "num_heads": 2, "initializer_factor": 2.0}
    T5ForConditionalGeneration(T5Config(vocab_size=len(entries), decoder_start_token_id=0, **sizes)).save_pretrained(folder)
    return folder
