"""The options that say which LMs run, what text they see and where they run. Together they become a ``RunConfig``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, count
from pathlib import Path
from typing import Any

import click
import cloup

from attlm_cli.options import Decorator, dictionary_option, given_option, in_groups
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
from attlm_fairseq.scoring.compute import DEFAULT_DEVICE, NORMALISERS, PRECISIONS, DeviceConfig, parse_device, parse_devices, parse_memory
from attlm_fairseq.scoring.conversations import ContextSpec
from attlm_fairseq.scoring.lm_files import OF_FAIRSEQ, find_lm, lm_kind
from attlm_fairseq.scoring.lm_spec import Direction, LMSpec, check_name
from attlm_fairseq.text.pipeline import usage
from attlm_fairseq.text.steps import KINDS

TRANSLATIONS: dict[str, Direction] = {"mt": "forward", "mt_right_to_left": "right-to-left", "mt_reverse": "reverse"}
"""Direction of a translation model, by the parameter of the option that gives it. That name is also the model's default name."""

CANDIDATE_FIELDS = {
    "corrections": "table",
    "phrases": "phrases",
    "corrector": "corrector",
    "corrector_languages": "corrector_languages",
    "corrector_prefix": "corrector_prefix",
    "candidates": "candidates",
}
"""The attribute of a CandidateSpec that each parameter of ``CANDIDATES`` gives."""

Named = tuple[str | None, Any]  # an option's value, for the LM of this name; None: for all LMs


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
        "in this folder, unless --lm or --kenlm is given; attlm eval reads only its metric.",
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
        "Mix LMs linearly, word by word, with these weights, as found by `attlm mix`. Repeatable.",
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
        "Score of an unknown word in all LMs (or NAME). unk: p(<unk>), the default. penalty:LOGPROB: a fixed "
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
        "How many earlier sentences all LMs (or NAME) see: a number, 0 for none, or all.  [default: all]",
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
        "Add a unigram cache to all LMs (or NAME): it mixes in the relative frequencies of the last SIZE "
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
        "--candidates", type=int, metavar="K", help=f"Maximum number of candidates added to each list.  [default: {DEFAULT_CANDIDATES}]"
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
    candidates = {name: options.pop(name, None) for name in CANDIDATE_FIELDS}
    named = bool(config or any(models.values()))
    if not (named or only_if_named) and DEFAULT_CONFIG.is_file():
        config = DEFAULT_CONFIG
        note(f"note: LMs and settings of {DEFAULT_CONFIG} in this folder")
    run = _with_models(read_config(config) if config else RunConfig(), models)
    run = replace(run, candidates=run.candidates.changed(**{CANDIDATE_FIELDS[name]: value for name, value in candidates.items()}))
    run = run if context is None else replace(run, context=context)
    about_lms = [name for name in options if not (run.candidates.anything and name == "devices")]
    if not run.lms and (option := given_option(*about_lms)):  # ignored silently, the option would seem to have an effect
        raise InputError(
            f"{option} is about LMs, and there are none: give --config {DEFAULT_CONFIG}, --lm or --kenlm; what the metric compares "
            "is changed by --metric-text"
        )
    asked = named or not only_if_named or any(value is not None for value in (context, *candidates.values()))
    run = _changed_run(run, **options)
    return run if asked else None


def _with_models(run: RunConfig, models: Mapping[str, Iterable[Named]]) -> RunConfig:
    """Return the run with the LMs that the options give added. If default names are numbered, log which file has which name.

    Raises InputError if a name is not allowed or two LMs have it, or if an LM is neither a file nor a cached model.
    """
    lms = {spec.name: spec for spec in run.lms}
    unnamed: dict[str, str] = {}  # files by default name
    for option, name, files in [(option, *given) for option, of_option in models.items() for given in of_option]:
        if name is None:
            name = next(free for free in numbered(option) if free not in lms)
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
    return replace(run, lms=tuple(lms.values()))


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
        if not any(fits := [_takes_dictionary(lm, dictionary) for lm in run.lms]):
            raise InputError(
                "--dict: there is no LM that it is for: expected a dict.txt for checkpoints of LMs, a folder for translation models",
                path=dictionary,
            )
        run = replace(run, lms=tuple(replace(lm, dictionary=dictionary) if fit else lm for lm, fit in zip(run.lms, fits, strict=True)))
    placed = tuple(replace(device, normaliser=normaliser) for device in placed)
    return replace(with_lm_changes(run, text=steps, **changes), devices=placed)


def _takes_dictionary(lm: LMSpec, dictionary: Path) -> bool:
    """Return whether ``--dict`` is for the LM: a folder is for translation models, a file for other checkpoints of fairseq."""
    if lm.translation is not None or dictionary.is_dir():
        return _is_translation(lm) and not _is_folder(lm) and dictionary.is_dir()
    return any(lm_kind(path) in OF_FAIRSEQ for path in lm.checkpoints)


@dataclass(frozen=True)
class LMChange:
    """An option that changes one attribute of LMs: ``--option NAME=VALUE`` of one LM, ``--option VALUE`` of all that it fits.

    Attributes:
        field: the attribute of LMSpec, and the option's name.
        fits: the LMs that can have the attribute.
        by_default: of these, the LMs that ``--option VALUE`` changes.
        expected: what is missing if no LM fits.
    """

    field: str
    fits: Callable[[LMSpec], bool] = lambda lm: True
    by_default: Callable[[LMSpec], bool] = lambda lm: True
    expected: str = "LM that it is for"

    def apply(self, lms: dict[str, LMSpec], name: str | None, value: Any) -> None:
        """Change the LM of this name, or all that the option is for.

        Raises:
            InputError: no LM has this name, or there is no LM that the option fits.
        """
        option = f"--{self.field.replace('_', '-')}"
        if name is not None and name not in lms:
            raise InputError(f"{option} {name}=..: no LM has this name; there are {', '.join(lms) or 'none'}")
        chosen = [lm for lm in lms.values() if name in (None, lm.name) and self.fits(lm) and (name or self.by_default(lm))]
        if not chosen:
            raise InputError(f"{option}{f' {name}=..' if name else ''}: there is no {self.expected}")
        lms |= {lm.name: replace(lm, **{self.field: value}) for lm in chosen}


def _is_plain(lm: LMSpec) -> bool:
    return not lm.mixture


def _reads_sentences(lm: LMSpec) -> bool:
    return not lm.uses_source


def _is_translation(lm: LMSpec) -> bool:
    return lm.translation is not None


def _is_folder(lm: LMSpec) -> bool:
    return lm.checkpoints[0].is_dir()


def _has_checkpoints(lm: LMSpec) -> bool:
    return bool(lm.checkpoints)


def _holds(kind: str) -> Callable[[LMSpec], bool]:
    """Return whether all checkpoints of an LM are of this kind. A translation model is of no kind."""
    return lambda lm: bool(lm.checkpoints) and not lm.translation and all(lm_kind(path) == kind for path in lm.checkpoints)


LM_CHANGES = (
    LMChange("oov", lambda lm: not lm.translates_back, _is_plain),
    LMChange("context_sentences", _is_plain, _reads_sentences),
    LMChange("neural_cache", _is_plain, _holds("attlm")),
    LMChange("unigram_cache", _is_plain, _reads_sentences),
    LMChange("temperature", _is_plain, _holds("attlm")),
    LMChange("adapt", _is_plain, _holds("attlm")),
    LMChange("sentence_start", _has_checkpoints, _holds("huggingface"), "LM of Hugging Face"),
    LMChange("sentence_end", _has_checkpoints, _holds("huggingface"), "LM of Hugging Face"),
    LMChange("source_text", _is_translation, expected="translation model"),
    LMChange("languages", _is_translation, _is_folder, "translation model of Hugging Face"),
    LMChange("source_prefix", _is_translation, _is_folder, "translation model of Hugging Face"),
    LMChange("only_close", by_default=_holds("masked"), expected="masked LM; for another LM give NAME=NUMBER"),
)


def with_lm_changes(
    run: RunConfig,
    *,
    text: Iterable[Named] = (),
    mixture: Iterable[Named] = (),
    ensemble_weights: Iterable[Named] = (),
    **changes: Iterable[Named],
) -> RunConfig:
    """Return the run with these changes of its LMs. ``changes``: by the fields of ``LM_CHANGES``.

    Raises:
        InputError: a change fits no LM, text steps are given twice, the file of an LM cannot be read, the name of a mixture is not
            allowed or is that of another LM, a member of a mixture is not an LM, or ensemble weights do not fit exactly one ensemble.
    """
    text = list(text)
    if twice := [name for place, (name, _) in enumerate(text) if name in [other for other, _ in text[:place]]]:
        raise InputError(f"--text is given twice for {twice[0] or 'all LMs'}: join the steps by commas")
    lms = {lm.name: lm for lm in run.lms}
    for name, members in mixture:
        lms |= _mixed(lms, name, members)
    for name, shares in ensemble_weights:
        lms |= _weighted(lms, name, shares)
    for name, steps in text:
        if name is None:
            run = replace(run, text=steps)
        else:
            LMChange("text").apply(lms, name, steps)
    for change in LM_CHANGES:
        for name, value in changes.get(change.field, ()):
            change.apply(lms, name, value)
    return replace(run, lms=tuple(lms.values()))


def _mixed(lms: dict[str, LMSpec], name: str | None, members: tuple[tuple[str, float], ...]) -> dict[str, LMSpec]:
    name = name or next(name for name in numbered("mix") if name not in lms)
    old = lms.get(check_name(name), LMSpec(name))
    if old.kenlm or old.checkpoints:
        raise InputError(f"--mixture {name}=..: {name!r} is one of the LMs already")
    return {name: replace(old, mixture=members)}


def _weighted(lms: dict[str, LMSpec], name: str | None, shares: tuple[float, ...]) -> dict[str, LMSpec]:
    ensembles = [lm for lm in lms.values() if len(lm.checkpoints) > 1 and name in (None, lm.name)]
    if len(ensembles) != 1:
        raise InputError(f"--ensemble-weights: there are {len(ensembles)} ensembles {name or ''}; give NAME=NUMBER:NUMBER..")
    [ensemble] = ensembles
    if len(shares) != len(ensemble.checkpoints):
        raise InputError(
            f"--ensemble-weights: {ensemble.name} has {len(ensemble.checkpoints)} checkpoints: "
            f"expected {len(ensemble.checkpoints)} numbers, not {len(shares)}"
        )
    return {ensemble.name: replace(ensemble, ensemble_weights=shares)}


def numbered(name: str) -> Iterator[str]:
    return chain([name], (f"{name}{number}" for number in count(2)))
