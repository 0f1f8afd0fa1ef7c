"""Loading of language models for fairseq's decoder. The kind of each model is recognised from its files.

Shapes: N hypotheses, V vocabulary.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from fairseq import checkpoint_utils
from fairseq.models import FairseqIncrementalDecoder, FairseqLanguageModel
from torch import Tensor

from attlm_fairseq.checkpoints.dictionary_files import find_dictionary
from attlm_fairseq.checkpoints.plain_data import is_checkpoint, read_plain_data
from attlm_fairseq.checkpoints.reading import load_model
from attlm_fairseq.checkpoints.vocabulary import BOS, EOS, UNK, Vocabulary
from attlm_fairseq.checkpoints.weight_checks import check_finite
from attlm_fairseq.decoding.decoder_lm import DecoderLM
from attlm_fairseq.decoding.fusion_lm import FusionLM
from attlm_fairseq.decoding.incremental_lm import IncrementalLM
from attlm_fairseq.decoding.log_linear_lm import load_stateful_lm, require_unknown
from attlm_fairseq.decoding.look_ahead_word_lm import UNK_OFFSET
from attlm_fairseq.decoding.ngram_tokens import NgramTokens
from attlm_fairseq.decoding.stateful_lm import StatefulLM
from attlm_fairseq.decoding.vocabulary_map import SAME_UNITS, fit_vocabulary
from attlm_fairseq.errors import InputError, NoDictionaryError
from attlm_fairseq.modules.families import family_of
from attlm_fairseq.modules.kernels.torch_settings import full_float32
from attlm_fairseq.scoring.ngrams.kenlm import KenLM


@dataclass(frozen=True)
class FusedLM:
    """A language model over the decoder's vocabulary, with its weight."""

    name: str
    lm: IncrementalLM
    weight: float = 1.0
    missing: int = 0
    """The number of symbols of the decoder's vocabulary that the LM lacks."""
    ngram: NgramTokens | None = None
    """The same LM for single tokens, if these are cheaper than a whole distribution; else None."""

    by_history: StatefulLM | None = None
    """The same LM, or the LM of words that it looks ahead with, if its scores are computed by history; else None."""

    def weighted(self, weight: float) -> FusedLM:
        """Return the LM with this weight. Raises InputError for an n-gram LM without ``<unk>`` if the weight is negative."""
        require_unknown(self.by_history, weight)
        return replace(self, weight=weight)


class FairseqLM:
    """One of fairseq's own language models (``transformer_lm``, ``lstm_lm``, ..) as an ``IncrementalLM``.

    fairseq changes its incremental states in place. So do not use a state again after passing it to ``step`` or ``select``.
    With ``add_bos`` a sentence begins with ``<s> </s>``, as ``--add-bos-token`` trains it, else with ``</s>``.
    """

    def __init__(self, model: FairseqLanguageModel, *, add_bos: bool = False, name: str = "the LM") -> None:
        self.model = model.eval()
        self.name = name
        longest = model.max_positions()
        self.longest = longest if isinstance(longest, int) else None
        self.add_bos = add_bos
        self.vocabulary = Vocabulary(model.decoder.dictionary.symbols)
        self.eos = EOS
        self.incremental = isinstance(model.decoder, FairseqIncrementalDecoder)

    def start(self, rows: int = 1) -> tuple[Tensor, dict]:
        return torch.empty(rows, 0, dtype=torch.long), {}

    @torch.inference_mode()
    @full_float32()
    def step(self, states: tuple[Tensor, dict], tokens: Tensor) -> tuple[Tensor, tuple[Tensor, dict]]:
        prefix, incremental = states
        device = next(self.model.parameters()).device
        prefix, taken = prefix.to(device), tokens.to(device).unsqueeze(1)
        if self.add_bos and not prefix.size(1):
            prefix = torch.full_like(taken, BOS)
            if self.incremental:  # which takes one token at a time
                self.model.decoder(prefix, incremental_state=incremental)
        prefix = torch.cat((prefix, taken), dim=1)
        if self.longest is not None and prefix.size(1) > self.longest:
            raise InputError(
                f"{self.name}: a hypothesis has more than the {self.longest} tokens that this LM reads: give a smaller --max-len-b"
            )
        output = self.model.decoder(prefix, incremental_state=incremental) if self.incremental else self.model(prefix)
        log_probs = self.model.get_normalized_probs(output, log_probs=True)[:, -1].float()
        return log_probs.to(tokens.device), (prefix, incremental)

    def select(self, states: tuple[Tensor, dict], rows: Tensor) -> tuple[Tensor, dict]:
        prefix, incremental = states
        rows = rows.to(prefix.device)
        if self.incremental:
            self.model.decoder.reorder_incremental_state_scripting(incremental, rows)
        return prefix[rows], incremental


def parse_lms(text: str, option: str = "--lms") -> list[tuple[Path, float]]:
    """Parse ``PATH=WEIGHT:PATH=WEIGHT..`` into files and weights. ``option`` is named in messages.

    Raises:
        InputError: a part is not PATH=WEIGHT, or a weight is not a finite number.
    """
    lms = []
    for part in text.split(":"):
        path, equals, weight = part.rpartition("=")
        try:
            lms.append((Path(path), float(weight)))
        except ValueError:
            equals = ""
        if not equals or not path or not math.isfinite(lms[-1][1]):
            raise InputError(f"{option}: found {part!r}, expected PATH=WEIGHT, such as lm.pt=0.3, several joined by ':'")
    return lms


@dataclass(frozen=True)
class LoadOptions:
    """Options for loading language models for a decoder."""

    dictionary: Path | None = None
    """The ``dict.txt`` of a checkpoint. None: the file next to the checkpoint or in its data folder."""
    fallback: Path | None = None
    """The ``dict.txt`` to use if there is none next to the checkpoint or in its data folder."""
    by_symbol: bool = False
    """Map an LM of another dictionary symbol by symbol, see ``MappedLM``."""
    unk_offset: float = UNK_OFFSET
    """Added to ln p(``<unk>``) for a word that a word LM does not know."""
    device: str = "cpu"
    precision: str = "float32"
    """The precision of the weights of this package's neural models, see ``DecoderLM.load``."""


def load_lm(path: Path, vocabulary: Vocabulary, options: LoadOptions = LoadOptions()) -> FusedLM:
    """Load a language model over the decoder's own symbols.

    Args:
        path: a checkpoint or exported folder of this package, a checkpoint of fairseq's own LMs, or a KenLM file.
        vocabulary: the decoder's vocabulary.
        options: how to load it.

    Returns:
        The LM with weight 1.

    Raises:
        InputError: a file is missing or invalid, or the LM's dictionary differs from the decoder's and mapping is off.
    """
    if not path.is_dir() and not is_checkpoint(path):
        kenlm = KenLM(path)
        ngram = NgramTokens(kenlm, vocabulary)
        if ngram.missing == len(vocabulary.symbols[UNK + 1 :]):
            raise InputError(f"has none of the decoder's {ngram.missing} symbols: {SAME_UNITS}", path=path)
        return FusedLM(str(path), FusionLM.of_tokens(kenlm, vocabulary), missing=ngram.missing, ngram=ngram, by_history=kenlm)
    lm = load_folder_or_checkpoint(path, options)
    fitted = fit_vocabulary(lm, vocabulary, path, options.by_symbol)
    return FusedLM(str(path), fitted, missing=lm.vocabulary.symbol_ids(vocabulary.symbols[UNK + 1 :]).count(UNK))


def load_folder_or_checkpoint(path: Path, options: LoadOptions) -> DecoderLM | FairseqLM:
    """Load a neural model of this package or of fairseq.

    Raises:
        InputError: a file is missing or invalid, it is not a language model, or its dictionary is missing or does not
            fit. For fairseq's own models also: a precision other than float32, or a dictionary that is not called
            ``dict.txt``.
        ValueError: the precision is unknown, or it is int8 and the device is not a CPU.
    """
    if path.is_dir():
        return DecoderLM.load(path, options.dictionary, options.device, options.precision)
    content = read_plain_data(path)
    config = content.get("cfg") or {"task": content.get("args"), "model": content.get("args")}  # before 2021 fairseq saved one Namespace
    dictionary = options.dictionary
    if dictionary is None:
        try:
            dictionary = find_dictionary(path, config)
        except NoDictionaryError:
            if options.fallback is None or not options.fallback.is_file():
                raise
            dictionary = options.fallback
    model = config.get("model")
    if family_of(str(model.get("_name") if isinstance(model, dict) else None)) is not None:
        return DecoderLM(load_model(path, dictionary, options.device, content), options.precision)
    if options.precision != "float32":
        raise InputError("is not a model of this package, which alone can be loaded with --lm-precision", path=path)
    if dictionary.name != "dict.txt":
        raise InputError("fairseq's own language models read a file of the name dict.txt; rename it", path=dictionary)
    [model], saved = checkpoint_utils.load_model_ensemble([str(path)], {"data": str(dictionary.parent)})
    if not isinstance(model, FairseqLanguageModel):
        raise InputError(f"holds a {type(model).__name__}, not a language model", path=path)
    check_finite(model, path)
    return FairseqLM(model.to(options.device), add_bos=bool(getattr(saved.task, "add_bos_token", False)), name=str(path))


def load_phrases(path: Path, vocabulary: Vocabulary, options: LoadOptions = LoadOptions()) -> FusedLM:
    """Load a list of phrases for a decoder. Raises InputError as ``FusionLM.of_phrases``."""
    return FusedLM(f"the score of phrases in {path}", FusionLM.of_phrases(path, vocabulary))


def load_word_lm(path: Path, vocabulary: Vocabulary, options: LoadOptions = LoadOptions()) -> FusedLM:
    """Load a word LM for a decoder with a vocabulary of subwords.

    Args:
        path: a checkpoint or folder of this package with its own ``dict.txt``, or a KenLM ARPA file.
        vocabulary: the decoder's vocabulary.
        options: how to load it. ``unk_offset`` must be finite: with -inf, a hypothesis could have no continuation left.

    Raises:
        InputError: a file is missing or invalid, the vocabulary is not of subwords, or the offset is not finite.
    """
    if not math.isfinite(options.unk_offset):
        raise InputError(f"--word-lm-unk-offset {options.unk_offset}: expected a finite number; -1000 forbids unknown words")
    lm = load_stateful_lm(path, options.device, precision=options.precision)
    try:
        return FusedLM(str(path), FusionLM.of_words(lm, vocabulary, options.unk_offset), by_history=lm)
    except ValueError as error:
        raise InputError(f"is to guide subwords, but {error}; give an LM of the decoder's own units with --lms", path=path) from None
