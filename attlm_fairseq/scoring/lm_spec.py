"""The specification of one LM of a run."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from attlm_fairseq.errors import InputError
from attlm_fairseq.scoring.compute import DeviceConfig
from attlm_fairseq.scoring.context.cache import CacheScorer, NeuralCache, UnigramCache
from attlm_fairseq.scoring.context.context_walk import with_window
from attlm_fairseq.scoring.foreign_lms.sentence_frame import SentenceFrame
from attlm_fairseq.scoring.lm_files import find_lm, holds_ngrams, load_lm_files
from attlm_fairseq.scoring.lm_options import ALLOWED, CALLED, DIRECTIONS, NOT_OF, OF_TRANSLATIONS, Direction, parsed
from attlm_fairseq.scoring.scorer import Scorer
from attlm_fairseq.scoring.unknown_words.oov_policy import UNK, OOVPolicy, with_policy
from attlm_fairseq.text import TextPipeline


@dataclass(frozen=True)
class LMSpec:
    """The files of an LM, or a linear mixture of other LMs of the run, with its text steps, context and unknown words.

    Attributes:
        name: the name of the LM's score.
        kenlm: an ARPA or KenLM file.
        checkpoints: files or folders of any other kind that ``lm_files`` recognises; several are an ensemble.
        ensemble_weights: weights of an ensemble; None for equal weights.
        dictionary: ``dict.txt`` of checkpoints, or the folder of a translation checkpoint's dictionaries; None to look for it.
        sentence_start: token before a sentence, for causal LMs of Hugging Face, see ``SentenceFrame``.
        sentence_end: token of the sentence end, for the same LMs.
        prompt: text before each sentence, for the same LMs.
        mixture: names and weights of the members.
        text: text steps; None for those of the run.
        oov: the score of unknown words.
        context_sentences: how many earlier sentences of a conversation the LM sees; None for all.
        temperature: divides the logits of this package's neural LMs.
        neural_cache: see ``cache``.
        unigram_cache: see ``cache``.
        adapt: file of `attlm fit` for dynamic evaluation, see ``dynamic_evaluation``.
        translation: the direction, if the checkpoints are translation models, which need source sentences.
        languages: ``SOURCE:TARGET`` of a translation model, see ``load_translation_models``.
        source_prefix: text before each sentence that a translation model of Hugging Face reads.
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
    prompt: str | None = None
    mixture: tuple[tuple[str, float], ...] = ()
    text: TextPipeline | None = None
    oov: OOVPolicy = UNK
    context_sentences: int | None = None
    temperature: float | None = None
    neural_cache: NeuralCache | None = None
    unigram_cache: UnigramCache | None = None
    adapt: Path | None = None
    translation: Direction | None = None
    languages: str | None = None
    source_prefix: str | None = None
    source_text: TextPipeline | None = None
    only_close: float | None = None
    loaded: Scorer | None = None

    def __post_init__(self) -> None:
        """Convert values to the types above.

        Raises:
            InputError: a value is wrong, or this kind of LM does not have the attribute.
        """
        given = {field.name: value for field in fields(self) if (value := getattr(self, field.name)) is not field.default}
        for name, allowed in ALLOWED.items():
            if name not in given:
                continue
            if not allowed.is_right(given[name]):
                raise InputError(f"{name} is {given[name]!r}, expected {allowed.expected}")
            object.__setattr__(self, name, allowed.convert(given[name]))
        if self.loaded is not None and not isinstance(self.loaded, Scorer):
            raise InputError(f"loaded is {self.loaded!r:.60}, expected a Scorer")
        if self.loaded is not None and self.loaded.name != self.name:
            object.__setattr__(self, "loaded", _renamed(self.loaded, self.name))
        kinds = given.keys() - ({"loaded"} if self.checkpoints or self.kenlm else {})  # which say how it was loaded
        for kind, refused in NOT_OF.items():
            if kind in kinds and (wrong := [name for name in refused if name in given]):
                raise InputError(f"{wrong[0]} is not for {CALLED[kind]}")
        if self.translates_back and self.oov != UNK:
            raise InputError("oov is not for a reverse translation model, which scores the source: leave it out, and tune again")
        if (wrong := [name for name in OF_TRANSLATIONS if name in given]) and self.translation is None and self.loaded is None:
            raise InputError(f"{wrong[0]} is for translation models: give translation, one of {', '.join(DIRECTIONS)}")
        if self.ensemble_weights is not None and len(self.ensemble_weights) != len(self.checkpoints):
            raise InputError(f"ensemble_weights needs {len(self.checkpoints)} numbers, none negative, not all zero")

    @classmethod
    def of_files(cls, name: str, files: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> LMSpec:
        """Name an LM by its file, folder or cached Hugging Face model, recognised by its content, or by several of them.

        Raises:
            InputError: no file is given, or one that is neither a path nor the name of a cached model.
        """
        several = [files] if isinstance(files, str | os.PathLike) or not isinstance(files, Sequence) else files
        if wrong := [file for file in several if not isinstance(file, str | os.PathLike)]:
            raise InputError(f"the LM {name!r} is {wrong[0]!r:.60}: expected a file, a list of checkpoints, an LMSpec or a Scorer")
        if not several:
            raise InputError(f"the LM {name!r} names no file")
        paths = tuple(find_lm(os.fspath(file)) for file in several)
        if len(paths) == 1 and holds_ngrams(paths[0]):
            return cls(name, kenlm=paths[0])
        return cls(name, checkpoints=paths)

    @classmethod
    def of(
        cls,
        files: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        *,
        text: str | Iterable[str] | TextPipeline | None = None,
        source_text: str | Iterable[str] | TextPipeline | None = None,
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
            text: text steps, joined by commas or as a list.
            source_text: text steps for source sentences.
            oov: ``unk``, ``penalty:X`` or ``spread:N``.
            dictionary: see the attributes.
            adapt: see the attributes.
            neural_cache: as ``--neural-cache`` has it after the LM's name, such as ``500:0.2:0.15``.
            unigram_cache: as ``--unigram-cache`` has it after the LM's name.
            others: further attributes by name.

        Raises:
            InputError: a file is neither a path nor the name of a cached model, or an option has another form or is for
                another kind of LM.
        """
        given = {
            "text": text,
            "source_text": source_text,
            "oov": oov,
            "dictionary": dictionary,
            "adapt": adapt,
            "neural_cache": neural_cache,
            "unigram_cache": unigram_cache,
        }
        return replace(cls.of_files("lm", files), **{name: parsed(name, value) for name, value in given.items()}, **others)

    def in_place_of(self, other: LMSpec) -> LMSpec:
        """Return this LM with the settings of another one, such as text steps, where it has none of its own.

        The dictionary and the weights of an ensemble belong to the files, and are not taken over.

        Raises:
            InputError: the other one is a mixture, or has a setting that this kind of LM does not have.
        """
        if other.mixture:
            raise InputError(f"{self.name!r} is a mixture in the configuration: give the LM another name")
        new = self.unpacked()
        own = {field.name: value for field in fields(new) if (value := getattr(new, field.name)) != field.default}
        files = {"kenlm": None, "checkpoints": (), "loaded": None, "dictionary": None, "ensemble_weights": None}
        try:
            return replace(other.unpacked(), **(files | own))
        except InputError as error:
            raise InputError(f"{self.name} in place of that of the configuration: {error}; give the LM another name") from None

    @classmethod
    def of_loaded(cls, name: str, scorer: Scorer) -> LMSpec:
        """Name a loaded LM. One of ``load_lm`` keeps the text steps of its LMSpec."""
        seen = _made_from(scorer) or cls(name)
        return cls(name, text=seen.text, source_text=seen.source_text, only_close=seen.only_close, loaded=scorer)

    def in_memory(self, device: DeviceConfig) -> LMSpec:
        """Return the spec with its LM and text steps loaded, so that their files may change or go.

        Raises:
            InputError: as in ``load``, or the file of a text step is wrong.
        """
        if self.loaded is not None:
            return self
        texts = {name: text.in_memory() for name in ("text", "source_text") if (text := getattr(self, name)) is not None}
        if self.mixture:
            return replace(self, **texts)
        paths = {name: path.absolute() for name in ("kenlm", "dictionary", "adapt") if (path := getattr(self, name)) is not None}
        checkpoints = tuple(path.absolute() for path in self.checkpoints)
        plain = replace(self, **texts, **paths, checkpoints=checkpoints, loaded=self._loaded(device))
        scorer = copy.copy(with_policy(plain.load(device), self.oov))
        scorer.signature()  # hashes the files
        scorer.spec, scorer.changed, scorer.loaded_on = plain, False, device if self.kenlm is None else None
        return self.of_loaded(self.name, scorer)

    def unpacked(self) -> LMSpec:
        """Return the spec of an LM of ``load_lm`` with its files and options, and as ``loaded`` the LM without these options."""
        if self.loaded is None or self.loaded.changed or (made := _made_from(self.loaded)) is None or made.loaded is None:
            return self
        own = {field.name: value for field in fields(self) if (value := getattr(self, field.name)) != field.default}
        return replace(made, **{**own, "loaded": _renamed(made.loaded, self.name)})

    def by_files(self) -> LMSpec:
        """Return the spec that loads the same LM from its files.

        Raises:
            InputError: the LM is an object that ``load_lm`` has not made, or has made but the program has changed.
        """
        found = replace(self.unpacked(), loaded=None)
        if self.loaded is not None and not found.files:
            raise InputError(f"{self.name} is an object of this program, which attlm.toml cannot name: give the LM as a file")
        return found

    @property
    def files(self) -> tuple[Path, ...]:
        """Return the files and folders to load the LM itself from, without its dictionary and adaptation."""
        if self.loaded is not None:
            return ()
        return self.checkpoints if self.kenlm is None else (self.kenlm,)

    @property
    def all_files(self) -> tuple[Path, ...]:
        """Return ``files`` with the dictionary and the text to adapt to, if the LM has them."""
        return (*self.files, *(path for path in (self.dictionary, self.adapt) if path is not None and self.loaded is None))

    @property
    def translates_back(self) -> bool:
        """Return whether the LM scores the source sentence given the hypothesis. Then no score belongs to a word of the hypothesis."""
        return self.translation == "reverse" or (self.loaded is not None and self.loaded.translates_back)

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
        from attlm_fairseq.scoring.neural.dynamic_evaluation import adapting_scorer

        if self.context_sentences:
            raise InputError(f"{self.name}: dynamic evaluation goes with the state of all sentences, or of none (0)")
        return adapting_scorer(scorer, path, carries=self.context_sentences is None)

    def _loaded(self, device: DeviceConfig) -> Scorer:
        if self.loaded is not None:
            return self.loaded
        if not self.files:
            raise InputError(f"the LM {self.name!r} names no file")
        if self.translation is not None:
            from attlm_fairseq.scoring.translation.translation_scorer import load_translation_models

            scorer = load_translation_models(
                self.checkpoints,
                self.name,
                self.translation,
                self.ensemble_weights,
                self.dictionary,
                self.languages,
                self.source_prefix,
                device,
            )
            if self.oov != UNK and not scorer.model.word_by_word:
                raise InputError(
                    f"{self.name}: oov is not for a translation model that cuts words into pieces: leave it out", path=self.files[0]
                )
            return scorer
        frame = SentenceFrame(self.sentence_start, self.sentence_end, self.prompt)
        return load_lm_files(self.files, self.name, self.ensemble_weights, self.dictionary, frame, device)


def _made_from(scorer: Scorer) -> LMSpec | None:
    return scorer.spec if isinstance(scorer.spec, LMSpec) else None


def _renamed(scorer: Scorer, name: str) -> Scorer:
    renamed = copy.copy(scorer)
    renamed.name, renamed.changed = name, scorer.changed
    return renamed
