"""The options that say which LMs run, what text they see and where they run. Together they become a ``RunConfig``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import click
import cloup

from attlm_cli.option_groups import Decorator, given_option, in_groups
from attlm_cli.options import dictionary_option
from attlm_cli.types import (
    CONTEXT,
    ENSEMBLE_WEIGHTS,
    FILE_OF_LM,
    FILES_OF_LM,
    LANGUAGES_OF_LM,
    MARGIN_OF_LM,
    MIXTURE,
    NEURAL_CACHE_OF_LM,
    OOV_OF_LM,
    PREFIX_OF_LM,
    SENTENCES_OF_LM,
    TEMPERATURE_OF_LM,
    TEXT_OF_LM,
    TOKEN_OF_LM,
    UNIGRAM_CACHE_OF_LM,
    Precision,
)
from attlm_fairseq.errors import InputError
from attlm_fairseq.messages import note
from attlm_fairseq.nbest.corrections.expansion import CANDIDATES as DEFAULT_CANDIDATES
from attlm_fairseq.nbest.run.config import RunConfig
from attlm_fairseq.nbest.run.config_file import DEFAULT_CONFIG, read_config
from attlm_fairseq.nbest.run.lm_changes import Named, numbered, with_dictionary, with_lm_changes
from attlm_fairseq.scoring.compute import DEFAULT_DEVICE, NORMALISERS, PRECISIONS, DeviceConfig, parse_device, parse_devices, parse_memory
from attlm_fairseq.scoring.context.conversations import ContextSpec
from attlm_fairseq.scoring.lm_files import find_lm
from attlm_fairseq.scoring.lm_options import Direction, check_name
from attlm_fairseq.scoring.lm_spec import LMSpec
from attlm_fairseq.text.pipeline import usage
from attlm_fairseq.text.steps import KINDS
from attlm_fairseq.verbs.configuration import run_config

TRANSLATIONS: dict[str, Direction] = {"mt": "forward", "mt_right_to_left": "right-to-left", "mt_reverse": "reverse"}
"""Direction of a translation model, by the parameter of the option that gives it. That name is also the model's default name."""

CANDIDATE_OPTIONS = ("corrections", "phrases", "corrector", "corrector_languages", "corrector_prefix", "candidates")
"""The parameters of ``CANDIDATES``, and of ``run_config``."""


def for_lms(name: str, kind: click.ParamType, told: str) -> Decorator:
    """Return an option that may be given several times, with values such as ``NAME=VALUE``, and its help."""
    return cloup.option(name, multiple=True, type=kind, help=told)


def file_option(name: str, told: str) -> Decorator:
    return cloup.option(name, type=click.Path(path_type=Path), metavar="FILE", help=told)


MODELS = (
    for_lms(
        "--lm",
        FILES_OF_LM,
        "An LM, recognised by its content: a checkpoint of fairseq-train (models of this package or of "
        "fairseq), a folder of attlm export, a folder or cached name of a Hugging Face causal LM, an ARPA or "
        "KenLM file. Several checkpoints joined by colons are an ensemble that averages their probabilities. "
        "Repeatable.",
    ),
    for_lms("--kenlm", FILES_OF_LM, "The same as --lm, but the default NAME is kenlm. Repeatable."),
    dictionary_option,
    cloup.option(
        "--config",
        type=click.Path(path_type=Path),
        help=f"Configuration with LMs, text steps and weights, as written by attlm tune. Default: {DEFAULT_CONFIG} "
        "in this folder, unless an LM or a translation model is given; attlm eval takes only its metric, and whether it was tuned on "
        "these lists. An LM that is also given as an option, under its NAME, is replaced and keeps its settings.",
    ),
)
TRANSLATION_MODELS = (
    for_lms(
        "--mt",
        FILES_OF_LM,
        "A translation model: a checkpoint of fairseq (--task translation) or a folder or cached name of an encoder-decoder model of "
        "Hugging Face. It adds the score ln p(hypothesis | source) and needs --source. Several checkpoints joined by colons are an "
        "ensemble. Repeatable.",
    ),
    for_lms(
        "--mt-right-to-left",
        FILES_OF_LM,
        "Like --mt, for a model that was trained on target sentences with reversed word order. Repeatable.",
    ),
    for_lms(
        "--mt-reverse",
        FILES_OF_LM,
        "Like --mt, for a model of the opposite translation direction (noisy channel). It adds ln p(source | hypothesis). Repeatable.",
    ),
    for_lms(
        "--source-text",
        TEXT_OF_LM,
        "Text steps for source sentences, for all translation models (or NAME). Default: the steps for hypotheses, see --text.",
    ),
    for_lms(
        "--languages",
        LANGUAGES_OF_LM,
        "Source and target language of multilingual translation models of Hugging Face (or NAME), as the tokenizer calls them; or of the "
        "fairseq model NAME, if it was trained without -s and -t.",
    ),
    for_lms(
        "--source-prefix",
        PREFIX_OF_LM,
        "Text before each sentence that translation models of Hugging Face (or NAME) read, such as '>>fra<<'.",
    ),
)
ONLY_CLOSE = (
    for_lms(
        "--only-close",
        MARGIN_OF_LM,
        "Let all masked LMs (or NAME, any LM) score only hypotheses whose decoder score is at most NUMBER (natural "
        "log) below the best of the list. The others get the lowest score found, so that they gain nothing.",
    ),
)
COMBINED_MODELS = (
    for_lms(
        "--ensemble-weights",
        ENSEMBLE_WEIGHTS,
        "Weights of the checkpoints of an ensemble. NAME is needed if there are several ensembles. Default: equal weights.",
    ),
    for_lms(
        "--mixture",
        MIXTURE,
        "Mix LMs linearly, word by word, with these weights, such as `mix=a:0.6,b:0.4`, as found by `attlm mix`. Repeatable.",
    ),
)
TEXT = (
    cloup.option(
        "--text",
        "steps",
        multiple=True,
        type=TEXT_OF_LM,
        help=f"Text steps before all LMs (or NAME), applied in this order: {', '.join(map(usage, KINDS))}. "
        "Only LMs see the result: what is written has the text of the input.",
    ),
)
UNKNOWN_WORDS = (
    for_lms(
        "--oov",
        OOV_OF_LM,
        "Score of an unknown word in all LMs but mixtures (or in NAME). unk: p(<unk>), the default. penalty:LOGPROB: a fixed "
        "natural log. spread:TYPES: p(<unk>) divided by this number of unseen words.",
    ),
)
REFUSED_CONTEXT = cloup.option("--context", type=CONTEXT, hidden=True)  # the command says what to give instead
CONTEXT_OF_LISTS = cloup.option(
    "--context",
    type=CONTEXT,
    help="Score each sentence after the earlier sentences of its conversation. all: the file is one conversation, in its order. "
    "id:REGEX: lists whose ids match with the same groups form one. file:FILE: lines of `list-id conversation [time]`.",
)
CONTEXT_OF_TEXT = cloup.option(
    "--context",
    type=CONTEXT,
    help="Score each sentence after the earlier sentences of its document. all: the text is one document. blank: blank lines "
    "separate documents.",
)
CONTEXT_OPTIONS = (
    for_lms(
        "--context-sentences",
        SENTENCES_OF_LM,
        "How many earlier sentences all LMs but mixtures (or NAME) see: a number, 0 for none, or all.  [default: all]",
    ),
    for_lms(
        "--neural-cache",
        NEURAL_CACHE_OF_LM,
        "Add a neural cache to this package's neural LMs (or NAME): it mixes in the last SIZE words, each "
        "weighted by exp(THETA h_i . h_t). `attlm fit` finds the values.",
    ),
    for_lms(
        "--unigram-cache",
        UNIGRAM_CACHE_OF_LM,
        "Add a unigram cache to all LMs but mixtures (or to NAME): it mixes in the relative frequencies of the last SIZE "
        "words, weighted by DECAY^age. `attlm fit` finds the values.",
    ),
    for_lms(
        "--adapt",
        FILE_OF_LM,
        "Use dynamic evaluation in this package's neural LMs (or NAME): they learn from each sentence after "
        "it is scored. FILE holds the settings, as written by `attlm fit`.",
    ),
    for_lms(
        "--temperature",
        TEMPERATURE_OF_LM,
        "Divide the logits of this package's neural LMs (or NAME) by this. `attlm fit` finds the value. [default: 1]",
    ),
)
CANDIDATES = (
    file_option(
        "--corrections",
        "Table of corrections learned by `attlm corrections`. It adds candidates that are in no list. `attlm "
        "tune` writes it to attlm.toml.",
    ),
    file_option(
        "--phrases",
        "Names and terms, one per line (optionally: tab, weight, tab, other spellings joined by |). Each "
        "becomes a candidate if a part of a hypothesis is spelled like it.",
    ),
    file_option(
        "--corrector",
        "A translation model of fairseq-train or Hugging Face from hypothesis to reference. Its corrections of the 1-best "
        "join the lists, and its ln p of every text is the score `corrector`.",
    ),
    cloup.option(
        "--corrector-languages",
        metavar="SOURCE:TARGET",
        help="Languages that a multilingual corrector reads and writes, often the same one, as its tokenizer calls them: en_XX:en_XX.",
    ),
    cloup.option("--corrector-prefix", metavar="TEXT", help="Text before each text that a corrector of Hugging Face reads: 'correct:'."),
    cloup.option(
        "--candidates",
        type=int,
        metavar="K",
        help="Maximum number of candidates that corrections and phrases add to each list; those of --corrector come on top.  "
        f"[default: {DEFAULT_CANDIDATES}]",
    ),
)
SENTENCE_TOKENS = (
    for_lms(
        "--sentence-start",
        TOKEN_OF_LM,
        "Token before each sentence, for all Hugging Face LMs (or NAME). Default: the bos token, or else the eos token.",
    ),
    for_lms(
        "--sentence-end",
        TOKEN_OF_LM,
        "Token that ends a sentence, for all Hugging Face LMs (or NAME). none: the sentence end is not scored. Default: the eos token.",
    ),
    for_lms(
        "--prompt",
        PREFIX_OF_LM,
        "Text that causal LMs of Hugging Face (or NAME) read before each sentence, or before the first one of a context. It is not "
        "scored. A line end follows it, unless it ends with one or with a special token.",
    ),
)
ONE_DEVICE = cloup.option(
    "--device", "--devices", "device", default="cpu", show_default=True, help="Device that runs the LMs: cpu, cuda, cuda:1."
)
SEVERAL_DEVICES = cloup.option(
    "--devices",
    "--device",
    default="cpu",
    show_default=True,
    help="Devices that run the LMs: cpu, cuda:1. Several share the work: cpu:4 (four processes), cuda:0,cuda:1.",
)
NORMALISER = cloup.option(
    "--normaliser",
    type=click.Choice(NORMALISERS),
    default=DEFAULT_DEVICE.normaliser,
    show_default=True,
    help="Normaliser of neural LMs that were trained with --self-normalisation: none takes ln Z for 0, sampled estimates it from "
    "2,048 words. The deviation is measured and printed; rescore scores lists exactly if it could change their decision.",
)
MEMORY = f"{DEFAULT_DEVICE.memory >> 30}G"
ARITHMETIC = (
    cloup.option(
        "--precision",
        type=Precision(PRECISIONS, case_sensitive=False),
        default=DEFAULT_DEVICE.precision,
        show_default=True,
        help="Precision of the matrix products in neural LMs. With bfloat16 (bf16), the deviation of the scores is measured and printed.",
    ),
    cloup.option(
        "--memory",
        default=MEMORY,
        show_default=True,
        help="Memory for the scoring of neural LMs, in addition to the models and the lists: 500M, 4G; at least 128M.",
    ),
)


def run_options(
    several_devices: bool = False,
    only_if_named: bool = False,
    scores: bool = True,
    candidates: bool = False,
    lists: bool = False,
    own_context: bool = False,
) -> Decorator:
    """Add the options for LMs, their text and their devices, passed to the command as ``run``.

    Args:
        several_devices: whether the command can share its work among devices.
        only_if_named: ``run`` is None unless LMs or a configuration are named; the current folder's ``attlm.toml`` is
            not read.
        scores: whether the command scores. If not, OOV policies, precision, memory and combinations of LMs are left
            out.
        candidates: whether the command can add candidates to lists.
        lists: whether the command reads n-best lists.
        own_context: whether the input says what the context is, so that the command refuses ``--context``.
    """
    context = REFUSED_CONTEXT if own_context else CONTEXT_OF_LISTS if lists else CONTEXT_OF_TEXT
    groups = {
        "Models": MODELS + (COMBINED_MODELS if scores else ()) + (ONLY_CLOSE if lists else ()),
        "Translation models": TRANSLATION_MODELS if scores else (),
        "Candidates": CANDIDATES if candidates else (),
        "Text": TEXT + (UNKNOWN_WORDS + SENTENCE_TOKENS if scores else ()),
        "Context": (context, *CONTEXT_OPTIONS) if scores else (),
        "Device": (
            SEVERAL_DEVICES if several_devices else ONE_DEVICE,
            *(ARITHMETIC if scores else ()),
            *((NORMALISER,) if scores and lists else ()),
        ),
    }
    return in_groups({title: options for title, options in groups.items() if options}, "run", partial(_run, only_if_named))


def _run(only_if_named: bool, *, config: Path | None, context: ContextSpec | None = None, **options: Any) -> RunConfig | None:
    """Return the run of these options.

    Raises InputError if a file or an option is wrong, or if an option about LMs is given and there are no LMs.
    """
    models = {name: options.pop(name, ()) for name in ("lm", "kenlm", *TRANSLATIONS)}
    candidates = {name: options.pop(name, None) for name in CANDIDATE_OPTIONS}
    named = bool(config or any(models.values()))
    if not (named or only_if_named) and DEFAULT_CONFIG.is_file():
        config = DEFAULT_CONFIG
        note(f"note: LMs and settings of {DEFAULT_CONFIG} in this folder")
    base = read_config(config) if config else RunConfig()
    run = run_config(base, lms=_named_lms(base, models), context=context, **candidates)
    about_lms = [name for name in options if not (run.candidates.anything and name == "devices")]
    if not run.lms and (option := given_option(*about_lms)):  # ignored silently, the option would seem to have an effect
        raise InputError(
            f"{option} is about LMs, and there are none: give --config {DEFAULT_CONFIG}, --lm or --kenlm; what the metric compares "
            "is changed by --metric-text"
        )
    asked = named or not only_if_named or any(value is not None for value in (context, *candidates.values()))
    run = _changed_run(run, **options)
    return run if asked else None


def _named_lms(run: RunConfig, models: Mapping[str, Iterable[Named]]) -> dict[str, LMSpec]:
    """Return the LMs of the options, by name. If default names are numbered, log which file has which name.

    Raises InputError if a name is not allowed or two LMs have it, or if an LM is neither a file nor a cached model.
    """
    taken = {spec.name for spec in run.lms}
    lms: dict[str, LMSpec] = {}
    unnamed: dict[str, str] = {}  # files by default name
    for option, name, files in [(option, *given) for option, of_option in models.items() for given in of_option]:
        if name is None:
            name = next(free for free in numbered(option) if free not in taken | lms.keys())
            unnamed[name] = ":".join(map(str, files))
        elif check_name(name) in lms:
            raise InputError(f"two LMs are called {name!r}; name them apart: --{option.replace('_', '-')} NAME=FILE")
        direction = TRANSLATIONS.get(option)
        lms[name] = (
            LMSpec.of_files(name, files)
            if direction is None
            else LMSpec(name, checkpoints=tuple(find_lm(str(file)) for file in files), translation=direction)
        )
    if unnamed.keys() - models.keys():
        note(f"note: {', '.join(f'{name} is {files}' for name, files in unnamed.items())}; NAME=FILE gives another name")
    return lms


def _changed_run(
    run: RunConfig,
    *,
    dictionary: Path | None = None,
    device: str | None = None,
    devices: str = "cpu",
    precision: str = DEFAULT_DEVICE.precision,
    normaliser: str = DEFAULT_DEVICE.normaliser,
    memory: str = MEMORY,
    steps: tuple[Named, ...] = (),
    **changes: tuple[Named, ...],
) -> RunConfig:
    """Return the run changed by the other options. ``changes`` are those of ``with_lm_changes``.

    Raises InputError if device, devices or memory are wrong, or as in ``with_lm_changes``.
    """
    if device is not None:
        placed: tuple[DeviceConfig, ...] = (DeviceConfig(parse_device(device), precision, parse_memory(memory)),)
    else:
        placed = parse_devices(devices, precision, parse_memory(memory))
    if dictionary is not None:
        run = with_dictionary(run, dictionary)
    placed = tuple(replace(device, normaliser=normaliser) for device in placed)
    return replace(with_lm_changes(run, text=steps, **changes), devices=placed)
