#!/usr/bin/env python3
"""Transcribe with Whisper, without and with language models in its beam search.

    decode.py --lm lm.arpa=0.3 --lm checkpoint_best.pt=0.3 --model FOLDER recording.wav ..

Without ``--model``, a small Whisper with random weights reads noise: nothing is downloaded, and the steps are the same.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import torch

from attlm_fairseq.decoding.huggingface import FusionLogitsProcessor, tokenizer_texts  # before transformers
from attlm_fairseq.decoding.log_linear_lm import LogLinearLM
from attlm_fairseq.decoding.look_ahead_word_lm import LookAheadWordLM

RATE = 16_000  # Whisper's samples per second
LONGEST = 30  # seconds
BEAM = 5


def random_whisper() -> tuple[Any, Any, dict[str, torch.Tensor]]:
    """Make a small Whisper that writes words letter by letter, its tokenizer, and its input for two recordings of noise."""
    from tokenizers import Tokenizer, decoders, models
    from transformers import PreTrainedTokenizerFast, WhisperConfig, WhisperForConditionalGeneration

    letters = [chr(code) for code in range(ord("a"), ord("z") + 1)]
    symbols = ["<|endoftext|>", "<|startoftranscript|>", *letters, *(f"Ġ{letter}" for letter in letters)]  # Ġ begins a word
    made = Tokenizer(models.WordLevel({symbol: place for place, symbol in enumerate(symbols)}, unk_token="<|endoftext|>"))
    made.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=made, eos_token=symbols[0], bos_token=symbols[1])
    torch.manual_seed(1)
    sizes = {f"{side}_{what}": value for side in ("encoder", "decoder") for what, value in (("layers", 1), ("ffn_dim", 32))}
    sizes |= {"encoder_attention_heads": 2, "decoder_attention_heads": 2, "d_model": 32, "num_mel_bins": 8, "init_std": 0.3}
    tokens = {"pad_token_id": 0, "eos_token_id": 0, "bos_token_id": 1, "decoder_start_token_id": 1}
    config = WhisperConfig(
        **sizes, **tokens, vocab_size=len(symbols), max_source_positions=50, suppress_tokens=[1], begin_suppress_tokens=None
    )
    return WhisperForConditionalGeneration(config).eval(), tokenizer, {"input_features": torch.randn(2, 8, 100)}


def loaded_whisper(folder: str, recordings: list[str]) -> tuple[Any, Any, dict[str, torch.Tensor]]:
    """Load a Whisper from a folder, its tokenizer, and its input for recordings of 16 kHz."""
    import soundfile
    from transformers import WhisperForConditionalGeneration, WhisperProcessor

    audio = []
    for recording in recordings:
        samples, rate = soundfile.read(recording)
        if rate != RATE or samples.ndim > 1:
            channels = "mono" if samples.ndim == 1 else f"{samples.shape[1]} channels"
            sys.exit(f"decode.py: {recording} has {rate} Hz, {channels}; Whisper reads 16000 Hz, mono: convert it")
        if len(samples) > LONGEST * RATE:
            sys.exit(f"decode.py: {recording} has {len(samples) / RATE:.1f} s; Whisper reads {LONGEST} s at once: cut it into shorter ones")
        audio.append(samples)
    processor = WhisperProcessor.from_pretrained(folder)
    features = processor(audio, sampling_rate=RATE, return_tensors="pt")
    model = WhisperForConditionalGeneration.from_pretrained(folder, use_safetensors=True).eval()
    return model, processor.tokenizer, {"input_features": features.input_features}


def weighted(text: str) -> tuple[str, float]:
    """Return file and weight of FILE=WEIGHT, for argparse, which makes an error one line."""
    path, _, weight = text.rpartition("=")
    try:
        if path and Path(path).exists():
            return path, float(weight)
    except ValueError:
        pass
    raise argparse.ArgumentTypeError(f"found {text!r}, expected FILE=WEIGHT with a file that is there, such as lm.arpa=0.3")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lm", action="append", required=True, metavar="FILE=WEIGHT", type=weighted, help="an LM of words; repeatable")
    parser.add_argument("--model", help="folder of a Whisper")
    parser.add_argument("--max-tokens", type=int, metavar="N", help="of a transcript; default: Whisper's own limit, 30 if it reads noise")
    parser.add_argument("recordings", nargs="*", help="mono files of 16 kHz")
    options = parser.parse_args()
    if bool(options.model) != bool(options.recordings):
        parser.error("--model and recordings go together; without both, a random Whisper reads noise")
    if len(dict(options.lm)) < len(options.lm):
        parser.error("--lm: a file is given twice; give it once, with its whole weight")
    most = options.max_tokens or (None if options.model else 30)
    limit = {"max_new_tokens": most} if most else {}
    model, tokenizer, inputs = loaded_whisper(options.model, options.recordings) if options.model else random_whisper()
    lms = LogLinearLM.load(dict(options.lm))
    # Whisper writes capitals and punctuation, which the language models have not seen
    fusion = LookAheadWordLM(lms, tokenizer_texts(tokenizer, lowercase=True, ignore=",.?!"), ends=[tokenizer.eos_token_id])
    prompt = len(getattr(tokenizer, "prefix_tokens", [])) or 1  # start, language, task and time tokens are not text
    for name, processors in (("alone", []), ("with language models", [FusionLogitsProcessor(fusion, prompt_length=prompt)])):
        with torch.inference_mode():
            found = model.generate(**inputs, num_beams=BEAM, **limit, logits_processor=processors)
        for text in tokenizer.batch_decode(found, skip_special_tokens=True):
            print(f"{name}\t{text.strip()}")


if __name__ == "__main__":
    main()
