"""The specification of one LM of a run."""

from __future__ import annotations

import copy
import math
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal

from attlm_fairseq.errors import InputError
from attlm_fairseq.numeric import is_number
from attlm_fairseq.scoring.cache import CacheScorer, NeuralCache, UnigramCache, parse_neural_cache, parse_unigram_cache
from attlm_fairseq.scoring.compute import DeviceConfig
from attlm_fairseq.scoring.context import with_window
from attlm_fairseq.scoring.lm_files import find_lm, holds_ngrams, load_lm_files
from attlm_fairseq.scoring.oov_policy import UNK, OOVPolicy, parse_policy, with_policy
from attlm_fairseq.scoring.scorer import Scorer
from attlm_fairseq.text import TextPipeline, parse_steps

RESERVED_NAMES = ("words", "rank", "total")

Direction = Literal["forward", "right-to-left", "reverse"]
"""The score of a translation model: ln p(hypothesis | source), the same right to left, or ln p(source | hypothesis)."""
DIRECTIONS: tuple[Direction, ...] = ("forward", "right-to-left", "reverse")


@dataclass(frozen=True)
class LMSpec:
    """The files of an LM, or a linear mixture of other LMs of the run, with its text steps, context and unknown words.

    Attributes:
        name: the name of the LM's score.
        kenlm: a KenLM file.
        checkpoints: files or folders of any other kind that ``lm_files`` recognises; several are an ensemble.
        ensemble_weights: weights of an ensemble; None for equal weights.
        dictionary: ``dict.txt`` of checkpoints, or the folder of a translation model's dictionaries; None to look for it.
        sentence_start: token before a sentence, for Hugging Face LMs (see ``HuggingFaceTokenLM``).
        sentence_end: token of the sentence end, for the same LMs.
        mixture: names and weights of the members.
        text: text steps; None for those of the run.
        oov: the score of unknown words.
        context_sentences: how many earlier sentences of a conversation the LM sees; None for all.
        temperature: divides the logits of this package's neural LMs.
        neural_cache: see ``cache``.
        unigram_cache: see ``cache``.
        adapt: file of `attlm fit` for dynamic evaluation, see ``dynamic_evaluation``.
        translation: the direction, if the checkpoints are fairseq's translation models, which need source sentences.
        source_text: text steps for source sentences; None for those of hypotheses.
        only_close: score only hypotheses whose decoder score is at most this far (natural log) below the best of the list.
        loaded: an LM object of the program instead of files. Other processes cannot load it. ``attlm.toml`` can name it only if
            ``load_lm`` made it, from files.
    """

    name: str
    kenlm: Path | None = None
    checkpoints: tuple[Path, ...] = ()
    ensemble_weights: tuple[float, ...] | None = None
    dictionary: Path | None = None
    sentence_start: str | None = None
    sentence_end: str | None = None
    mixture: tuple[tuple[str, float], ...] = ()
    text: TextPipeline | None = None
    oov: OOVPolicy = UNK
    context_sentences: int | None = None
    temperature: float | None = None
    neural_cache: NeuralCache | None = None
    unigram_cache: UnigramCache | None = None
    adapt: Path | None = None
    translation: Direction | None = None
    source_text: TextPipeline | None = None
    only_close: float | None = None
    loaded: Scorer | None = None

    @classmethod
    def of_files(cls, name: str, files: Sequence[str]) -> LMSpec:
        """Name an LM by its files, folders or cached Hugging Face models, recognised by their content.

        Raises:
            InputError: a name is neither a path nor that of a cached model.
        """
        paths = tuple(find_lm(file) for file in files)
        if len(paths) == 1 and holds_ngrams(paths[0]):
            return cls(name, kenlm=paths[0])
        return cls(name, checkpoints=paths)

    @classmethod
    def of(
        cls,
        files: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        *,
        text: str | TextPipeline | None = None,
        source_text: str | TextPipeline | None = None,
        oov: str | OOVPolicy = UNK,
        dictionary: str | os.PathLike[str] | None = None,
        adapt: str | os.PathLike[str] | None = None,
        neural_cache: str | NeuralCache | None = None,
        unigram_cache: str | UnigramCache | None = None,
        **others: Any,
    ) -> LMSpec:
        """Describe an LM as the options of the command line do: ``LMSpec.of("lm.arpa", text="lowercase", oov="penalty:-12")``.

        Args:
            files: a file or folder, or several for an ensemble.
            text: text steps, joined by commas.
            source_text: text steps for source sentences.
            oov: ``unk``, ``penalty:X`` or ``spread:N``.
            dictionary: see the attributes.
            adapt: see the attributes.
            neural_cache: as ``--neural-cache`` has it after the LM's name, such as ``500:0.2:0.15``.
            unigram_cache: as ``--unigram-cache`` has it after the LM's name.
            others: further attributes by name.

        Raises:
            InputError: a file is neither a path nor the name of a cached model, or an option has another form.
        """
        spec = cls.of_files("lm", [os.fspath(file) for file in ([files] if isinstance(files, str | os.PathLike) else files)])
        return replace(
            spec,
            text=_steps(text),
            source_text=_steps(source_text),
            oov=parse_policy(oov) if isinstance(oov, str) else oov,
            dictionary=None if dictionary is None else Path(dictionary),
            adapt=None if adapt is None else Path(adapt),
            neural_cache=parse_neural_cache(neural_cache) if isinstance(neural_cache, str) else neural_cache,
            unigram_cache=parse_unigram_cache(unigram_cache) if isinstance(unigram_cache, str) else unigram_cache,
            **others,
        )

    @classmethod
    def of_loaded(cls, name: str, scorer: Scorer) -> LMSpec:
        """Name a loaded LM. One of ``load_lm`` keeps the text steps of its LMSpec."""
        renamed = copy.copy(scorer)
        renamed.name = name
        seen = cls(name) if scorer.spec is None else scorer.spec
        return cls(name, text=seen.text, source_text=seen.source_text, only_close=seen.only_close, loaded=renamed)

    def in_memory(self, device: DeviceConfig) -> LMSpec:
        """Return the spec with its LM loaded; itself if it is a mixture or already loaded. Raises InputError as ``load`` does."""
        if self.loaded is not None or self.mixture:
            return self
        scorer = with_policy(self.load(device), self.oov)
        scorer.spec = self
        return self.of_loaded(self.name, scorer)

    def by_files(self) -> LMSpec:
        """Return the spec that loads the same LM from its files.

        Raises:
            InputError: the LM is an object that ``load_lm`` has not made.
        """
        if self.loaded is None:
            return self
        if self.loaded.spec is None:
            raise InputError(f"{self.name} is an object of this program, which attlm.toml cannot name: give the LM as a file")
        own = {field.name: value for field in fields(self) if (value := getattr(self, field.name)) != field.default}
        return replace(self.loaded.spec, **{**own, "loaded": None})

    @property
    def files(self) -> tuple[Path, ...]:
        """Return the files and folders of the LM itself, without its dictionary and adaptation."""
        return self.checkpoints if self.kenlm is None else (self.kenlm,)

    @property
    def uses_source(self) -> bool:
        """Return whether the LM needs the source sentences of the n-best lists."""
        return self.translation is not None or (self.loaded is not None and self.loaded.uses_source)

    def load(self, device: DeviceConfig) -> Scorer:
        """Return the LM without its OOV policy, ready to score; torch is imported for a neural LM.

        Raises:
            InputError: a file cannot be used, or an option does not fit the LM or another option, such as a
                temperature for an n-gram LM.
        """
        if self.adapt is not None and device.normaliser != "exact":
            raise InputError(f"{self.name}: dynamic evaluation needs exact normalisers: leave --normaliser or --adapt out")
        scorer = self._loaded(device)
        if self.temperature is not None:
            scorer = scorer.with_temperature(self.temperature)
        scorer = with_window(scorer, self.context_sentences) if self.adapt is None else self._adapting(scorer, self.adapt)
        for cache in (self.neural_cache, self.unigram_cache):
            if cache is not None:
                scorer = CacheScorer(scorer, cache)
        return scorer

    def _adapting(self, scorer: Scorer, path: Path) -> Scorer:
        from attlm_fairseq.scoring.dynamic_evaluation import adapting_scorer

        if self.context_sentences:
            raise InputError(f"{self.name}: dynamic evaluation goes with the state of all sentences, or of none (0)")
        return adapting_scorer(scorer, path, carries=self.context_sentences is None)

    def _loaded(self, device: DeviceConfig) -> Scorer:
        if self.loaded is not None:
            return self.loaded
        if self.translation is not None:
            from attlm_fairseq.scoring.translation import load_translation_models

            return load_translation_models(self.checkpoints, self.name, self.translation, self.ensemble_weights, self.dictionary, device)
        return load_lm_files(self.files, self.name, self.ensemble_weights, self.dictionary, self.sentence_start, self.sentence_end, device)


def _steps(text: str | TextPipeline | None) -> TextPipeline | None:
    return parse_steps(filter(None, text.split(","))) if isinstance(text, str) else text


def check_name(name: str, where: Path | None = None) -> str:
    """Return the name if every output format can contain it. Raises InputError otherwise."""
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]*", name) or name in RESERVED_NAMES:
        raise InputError(
            f"{name!r} cannot be the name of an LM: a letter, then letters, digits, _ and -; not {', '.join(RESERVED_NAMES)}", path=where
        )
    return name


def are_shares(weights: list, count: int) -> bool:
    """Return whether ``weights`` are ``count`` numbers that can be normalised: none is negative, and not all are 0."""
    return len(weights) == count and all(is_number(weight) and weight >= 0 for weight in weights) and 0 < sum(weights) < math.inf
