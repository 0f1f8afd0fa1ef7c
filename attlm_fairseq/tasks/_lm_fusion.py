"""Language models in the beam search of a fairseq task: the options, and the generator that they need."""

# no "from __future__ import annotations" here: fairseq reads the types of config fields at run time

import atexit
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Optional

from fairseq import utils
from fairseq.data import FairseqDataset
from fairseq.data.iterators import EpochBatchIterator
from fairseq.dataclass import FairseqDataclass
from fairseq.sequence_generator import SequenceGenerator
from fairseq.tasks import FairseqTask

from attlm_fairseq.checkpoints.vocabulary import SPECIAL_SYMBOLS, Vocabulary
from attlm_fairseq.decoding.fairseq_generator import FusedGenerator, FusedGeneratorWithAlignment
from attlm_fairseq.decoding.fairseq_lms import FairseqLM, FusedLM, LoadOptions, load_lm, load_phrases, load_word_lm, parse_lms
from attlm_fairseq.decoding.fusion_lm import FusionLM
from attlm_fairseq.decoding.log_linear_lm import LogLinearLM
from attlm_fairseq.decoding.look_ahead_word_lm import UNK_OFFSET
from attlm_fairseq.decoding.stateful_neural_lm import StatefulNeuralLM
from attlm_fairseq.decoding.vocabulary_map import SAME_UNITS, fit_vocabulary
from attlm_fairseq.errors import InputError, NoDictionaryError
from attlm_fairseq.models._choices import ChoiceOptions

PROGRAMS = {"fairseq_cli.generate", "fairseq_cli.interactive"}
"""The modules of the programs that decode: they tell no task when they have come to their end."""


@dataclass
class LMFusionOptions(ChoiceOptions):
    """The options of the tasks that decode with language models."""

    lms: Optional[str] = field(
        default=None,
        metadata={
            "help": "language models to add in decoding, as PATH=WEIGHT joined by ':'. A path is a checkpoint, a folder of attlm "
            "export, or a KenLM file over the target's symbols. A negative weight subtracts a model (density ratio). --lm-path "
            "can be given too, also in fairseq-interactive"
        },
    )
    word_lms: Optional[str] = field(
        default=None,
        metadata={
            "help": "word language models for a subword target (marked by @@, \u2581, \u0120, </w>, ## or | between characters), as "
            "PATH=WEIGHT like --lms: checkpoints and folders with their own dict.txt, or KenLM ARPA files. Each subword is scored by "
            "its change of the probability of the words that it can begin; the scores sum to the word's exact log-probability"
        },
    )
    word_lm_unk_offset: float = field(
        default=UNK_OFFSET, metadata={"help": "added to ln p(<unk>) for a word that a model of --word-lms does not know"}
    )
    phrases: Optional[str] = field(
        default=None,
        metadata={
            "help": "files of phrases to prefer (names, terms; one per line), as PATH=WEIGHT joined by ':'. The weight is the score of "
            "each word inside a phrase (natural log): try 2, 4, 8, 12"
        },
    )
    lm_dict: Optional[str] = field(
        default=None,
        metadata={
            "help": "dict.txt of the language models of --lms, and in fairseq-interactive of --lm-path (default: next to each, in its data "
            "folder, or the translation data's dict.txt). fairseq-generate itself reads that of --lm-path from the translation data"
        },
    )
    lm_map_symbols: bool = field(
        default=False,
        metadata={
            "help": "accept neural language models with another dictionary than the target's, and map them symbol by symbol: symbols "
            "that a model lacks share its p(<unk>) equally. Without this option such a model is refused"
        },
    )
    lm_precision: str = field(
        default="float32",
        metadata={
            "choices": ["float32", "bfloat16", "int8"],
            "help": "precision of the weights of this package's neural language models. int8 makes their steps 1.5 to 3 times "
            "as fast on CPUs and changes their perplexity by less than 0.1 %",
        },
    )
    lm_compare: bool = field(
        default=False, metadata={"help": "also decode without the language models, and report how many sentences they changed"}
    )


class LMFusionTask(FairseqTask):
    """What a task with language models in its decoder adds to a task of fairseq.

    Name it after the fairseq task among the bases, ``class Task(SpeechToTextTask, LMFusionTask)``. The task's own options of the
    generator then arrive in ``build_generator`` here.
    """

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.lms: dict[tuple, FusedLM] = {}  # loaded so far, with weight 1

    @property
    def decoding(self) -> Any:
        """Return the task's options, among them those of ``LMFusionOptions``."""
        raise NotImplementedError

    def build_generator(
        self,
        models: list,
        args: FairseqDataclass,
        seq_gen_cls: Optional[type] = None,
        extra_gen_cls_kwargs: Optional[dict] = None,
        prefix_allowed_tokens_fn: Optional[Callable] = None,
    ) -> SequenceGenerator:
        options = dict(extra_gen_cls_kwargs or {})
        given = options.pop("lm_model", None)  # what fairseq-generate loaded for --lm-path; loaded again here, with its own dictionary
        weight = finite(options.pop("lm_weight", 0.0))
        lms = self.load_lms(args, str(next(models[0].parameters()).device))
        own = given is not None and not getattr(args, "lm_path", None)  # a program's
        for option in self.unused(lms, own):
            say(f"{option} has no effect: no language model with a weight can use it")
        if own:
            lms.append(
                FusedLM("lm", fit_vocabulary(FairseqLM(given), self.target_vocabulary(), "lm", self.decoding.lm_map_symbols), weight)
            )
        lms = [fused for fused in lms if fused.weight]
        plain = super().build_generator(models, args, seq_gen_cls, options, prefix_allowed_tokens_fn)
        if not lms:
            if self.decoding.lm_compare:
                say("--lm-compare has nothing to compare: no language model has a weight")
            given_any = self.decoding.lms or self.decoding.word_lms or self.decoding.phrases or getattr(args, "lm_path", None)
            if not given_any and PROGRAMS & sys.modules.keys():
                say("decoding without language models: --lms, --word-lms, --lm-path and --phrases are not given")
            return plain
        if not isinstance(plain, SequenceGenerator):
            say("--score-reference scores with the translation model alone; the language models are not used")
            return plain
        if seq_gen_cls is not None:
            raise InputError(f"language models cannot be added to a {seq_gen_cls.__name__}; leave --lms and --lm-path out")
        alignment = getattr(args, "print_alignment", None)
        kind, aligned = (FusedGeneratorWithAlignment, {"print_alignment": alignment}) if alignment else (FusedGenerator, {})
        generator = super().build_generator(models, args, kind, {**options, **aligned, "lms": lms}, prefix_allowed_tokens_fn)
        if self.decoding.lm_compare:
            if getattr(args, "sampling", False):
                raise InputError("--lm-compare compares best hypotheses, which --sampling does not look for; leave one of the two out")
            generator.without_lms = plain
        if PROGRAMS & sys.modules.keys():  # only there: a Python program asks for the report when it wants it
            atexit.register(lambda: say(str(generator.report)))
        return generator

    def get_batch_iterator(self, dataset: FairseqDataset, *arguments: Any, **options: Any) -> EpochBatchIterator:
        """Return fairseq's iterator, but outside training keep the last batch complete, even if it is not a multiple of 8."""
        return super().get_batch_iterator(dataset, *arguments, **self.whole_batches(dataset, options))

    def whole_batches(self, dataset: FairseqDataset, options: dict[str, Any]) -> dict[str, Any]:
        """Return the options of ``get_batch_iterator`` with which no sentence of a data set to decode is left out."""
        training = getattr(self.decoding, "train_subset", None)  # fairseq-generate gives argparse's tasks no such option
        return options if dataset is self.datasets.get(training) else {**options, "required_batch_size_multiple": 1}

    def target_vocabulary(self) -> Vocabulary:
        """Return the target dictionary. Raises InputError if its special symbols are not fairseq's usual ones."""
        symbols = self.target_dictionary.symbols
        if tuple(symbols[: len(SPECIAL_SYMBOLS)]) != SPECIAL_SYMBOLS:
            raise InputError(f"the target dictionary begins with {' '.join(symbols[:4])}, expected {' '.join(SPECIAL_SYMBOLS)}")
        return Vocabulary(symbols)

    def load_lms(self, args: FairseqDataclass, device: str) -> list:
        """Load the language models of ``--lms``, ``--lm-path`` and ``--word-lms``, and the phrases of ``--phrases``.

        Raises:
            InputError: an option is not PATH=WEIGHT, a weight is not finite, an LM or its dictionary is missing or
                invalid or does not fit the target dictionary, or the target dictionary has unusual special symbols.
        """
        given = self.decoding
        if given.lm_dict and not Path(given.lm_dict).is_file():
            raise InputError("there is no such file; correct --lm-dict, or leave it out", path=given.lm_dict)
        wanted = parse_lms(given.lms) if given.lms else []
        if path := getattr(args, "lm_path", None):
            weight = getattr(args, "lm_weight", 0.0)
            wanted.append((Path(path), finite(weight)))
            if not weight:
                say(f"{path} is not used: --lm-weight is 0")
        vocabulary = self.target_vocabulary()
        options = LoadOptions(
            dictionary=Path(given.lm_dict) if given.lm_dict else None,
            fallback=self.target_dictionary_file(),
            by_symbol=given.lm_map_symbols,
            unk_offset=given.word_lm_unk_offset,
            device=device,
            precision=str(given.lm_precision),
        )
        lms = []
        for path, weight in wanted:
            if not weight:
                continue
            try:
                fused = self.loaded(load_lm, path, vocabulary, options)
            except NoDictionaryError as error:
                raise InputError(f"{error} or name it with --lm-dict") from None
            if fused.missing:
                few = f". WARNING: {SAME_UNITS}" if 2 * fused.missing > len(vocabulary) else ""
                say(f"{path} lacks {fused.missing} of the {len(vocabulary)} target symbols; they are its <unk>{few}")
            lms.append(fused.weighted(weight))
        for path, weight in parse_lms(given.word_lms, "--word-lms") if given.word_lms else []:
            if weight:
                of_sign = replace(options, unk_offset=LogLinearLM.unknown_offset(weight, options.unk_offset))
                lms.append(self.loaded(load_word_lm, path, vocabulary, of_sign).weighted(weight))
        for path, weight in parse_lms(given.phrases, "--phrases") if given.phrases else []:
            if weight:
                lms.append(self.loaded(load_phrases, path, vocabulary, options).weighted(weight))
        return lms

    def unused(self, lms: list[FusedLM], own: bool) -> list[str]:
        """Return the options that are given but for which there is no language model. ``own``: a program gives one of fairseq's."""
        given = self.decoding
        words = [fused for fused in lms if isinstance(fused.by_history, StatefulNeuralLM)]
        of_symbols = [fused for fused in lms if not isinstance(fused.lm, FusionLM)]  # neural LMs of the target's symbols
        without = {
            "--word-lm-unk-offset": given.word_lm_unk_offset != UNK_OFFSET and not given.word_lms,
            "--lm-dict": given.lm_dict and not of_symbols,
            "--lm-map-symbols": given.lm_map_symbols and not of_symbols and not own,
            "--lm-precision": str(given.lm_precision) != "float32" and not of_symbols and not words,
        }
        return [option for option, is_unused in without.items() if is_unused]

    def target_dictionary_file(self) -> Path | None:
        """Return the file with the target's symbols that the dictionary of an LM may be, if the LM has none of its own."""
        return Path(utils.split_paths(self.decoding.data)[0]) / "dict.txt" if self.decoding.data else None

    def loaded(self, load: Callable[..., FusedLM], path: Path, vocabulary: Vocabulary, options: LoadOptions) -> FusedLM:
        """Return what ``load`` returns, kept on the task: a program that builds generators again and again loads its LMs once."""
        key = (load, path, options)
        if key not in self.lms:
            try:
                self.lms[key] = load(path, vocabulary, options)
            except ValueError as error:  # int8 on a GPU
                raise InputError(str(error), path=path) from None
        return self.lms[key]


def finite(weight: float) -> float:
    """Return the weight of ``--lm-path``. Raises InputError if it is nan or infinite."""
    if not math.isfinite(weight):
        raise InputError(f"--lm-weight {weight}: expected a finite number, such as 0.3")
    return weight


def say(text: str) -> None:
    """Print a note to the user on standard error, separate from fairseq's output."""
    print("\n".join(f"attlm: {line}" for line in text.split("\n")), file=sys.stderr, flush=True)
