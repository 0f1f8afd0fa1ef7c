"""The configuration of rescoring, tuning or evaluation. ``config_file`` reads and writes it as ``attlm.toml``."""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from attlm_fairseq.errors import InputError, require_several, require_type
from attlm_fairseq.messages import note
from attlm_fairseq.nbest.corrections.spec import CandidateSpec
from attlm_fairseq.nbest.decision.confidence import Confidence
from attlm_fairseq.nbest.decision.decision import Decision
from attlm_fairseq.nbest.fingerprints import known_share
from attlm_fairseq.nbest.metrics.spec import MetricSpec
from attlm_fairseq.nbest.nbest_list import NbestList
from attlm_fairseq.scoring.compute import DEFAULT_DEVICE, DeviceConfig
from attlm_fairseq.scoring.context.conversations import ContextSpec
from attlm_fairseq.scoring.lm_spec import LMSpec
from attlm_fairseq.scoring.scorer import Scorer
from attlm_fairseq.scoring.unknown_words.oov_policy import with_policy
from attlm_fairseq.text import TextPipeline, describe_pipelines

SUM_TOLERANCE = 0.005  # of the weights of a mixture: those that `attlm mix` writes are rounded


@dataclass(frozen=True)
class RunConfig:
    """The configuration of a run: everything except its n-best lists.

    Attributes:
        lms: the LMs, including mixtures and their members.
        text: text steps for LMs that have none of their own.
        weights: weights of LMs, scores of the lists and computed features, by name.
        decision: the rule that chooses the answer of a list.
        path: the file that the configuration was read from; None if there is none.
        tuned_on: fingerprint of the references that the weights were tuned on.
        tuned_with: signatures of the LMs that the weights were tuned with, by name.
        candidates_tuned_with: SHA-256 of the sources of candidates that the weights were tuned with, see ``CandidateSpec.digests``.
        devices: one device per process; not stored in ``attlm.toml``.
        candidates: sources of hypotheses that join the lists.
        confidence: scale and coverage of word confidences, if fitted for these weights.
        context: which lists or lines form one conversation; None scores each by itself.
        context_of_file: the context in the file that the configuration was read from, whatever ``context`` has become.
        metric: what tuning and evaluation measure, if they are not told otherwise.
    """

    lms: tuple[LMSpec, ...] = ()
    text: TextPipeline = field(default_factory=TextPipeline)
    weights: dict[str, float] = field(default_factory=dict)
    decision: Decision = field(default_factory=Decision)
    path: Path | None = field(default=None, compare=False)  # the file it was read from
    tuned_on: str = field(default="", compare=False, repr=False)  # fingerprint of the references
    tuned_with: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)
    candidates_tuned_with: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)
    devices: tuple[DeviceConfig, ...] = field(default=(DEFAULT_DEVICE,), compare=False)  # one per process; not in attlm.toml
    candidates: CandidateSpec = field(default_factory=CandidateSpec)  # hypotheses that join the lists
    confidence: Confidence | None = None  # None if not fitted for these weights
    context: ContextSpec | None = None  # None: each list or line by itself
    context_of_file: ContextSpec | None = field(default=None, compare=False, repr=False)
    metric: MetricSpec = field(default_factory=MetricSpec)

    def __post_init__(self) -> None:
        plain = {lm.name: lm for lm in self.lms if not lm.mixture}
        for lm in self.lms:
            for member, _ in lm.mixture:
                if member not in plain:
                    raise InputError(
                        f"[lm.{lm.name}] mixes {member!r}, which is not an LM of this run; there are {', '.join(sorted(plain))}"
                    )
                if plain[member].only_close is not None:
                    raise InputError(f"only_close of {member} has no effect in the mixture {lm.name}: give it to the mixture")
        if self.context is not None and any(device.normaliser != "exact" for device in self.devices):
            raise InputError("--normaliser does not go with --context: leave one of them out")
        if self.context is not None and (names := [lm.name for lm in self.lms if lm.uses_source or lm.only_close is not None]):
            raise InputError(f"{', '.join(names)}: translation models and --only-close do not go with --context; leave one of them out")

    @property
    def scored(self) -> tuple[LMSpec, ...]:
        """Return the LMs that score hypotheses by themselves: all except the members of mixtures."""
        members = {member for lm in self.lms for member, _ in lm.mixture}
        return tuple(lm for lm in self.lms if lm.name not in members)

    @property
    def texts(self) -> dict[str, TextPipeline]:
        """Return the text steps of each scored LM, by name.

        Raises:
            InputError: the members of a mixture see different words.
        """
        return {lm.name: self._text_of_mixture(lm) if lm.mixture else lm.text or self.text for lm in self.scored}

    @property
    def source_texts(self) -> dict[str, TextPipeline]:
        """Return the text steps of each scored LM for source sentences, by name. Only translation models use them."""
        texts = self.texts
        return {lm.name: self._source_text(lm, texts[lm.name]) for lm in self.scored}

    @property
    def feature_texts(self) -> dict[str, TextPipeline]:
        """Return ``texts`` without the LMs that score only some hypotheses: features such as unknown words need all of them."""
        texts = self.texts
        return {lm.name: texts[lm.name] for lm in self.scored if lm.only_close is None}

    @property
    def never_negative(self) -> tuple[str, ...]:
        """Return the LMs whose weight must not be negative: hypotheses that ``only_close`` leaves unscored would win by their score."""
        return tuple(lm.name for lm in self.scored if lm.only_close is not None)

    def with_weights(self, weights: Mapping[str, float]) -> RunConfig:
        """Return the run with these weights added or replaced.

        What the weights were tuned on and with is kept if at least one tuned weight is still in use or all are unchanged, ``confidence``
        only if all weights are unchanged.
        """
        return self._with_all_weights(self.weights | dict(weights))

    def without_weights(self, names: Collection[str]) -> RunConfig:
        """Return the run without the weights of these names. What belongs to the weights is kept as by ``with_weights``."""
        return self._with_all_weights({name: value for name, value in self.weights.items() if name not in names})

    def _with_all_weights(self, changed: dict[str, float]) -> RunConfig:
        in_use = changed == self.weights or any(value and changed.get(name) == value for name, value in self.weights.items())
        confidence = self.confidence if changed == self.weights else None
        forgotten: dict[str, Any] = {} if in_use else {"tuned_on": "", "tuned_with": {}, "candidates_tuned_with": {}}
        return replace(self, weights=changed, confidence=confidence, **forgotten)

    def share_tuned_on(self, weights: Mapping[str, float], references: Iterable[Sequence[str]]) -> float:
        """Return on which share of the lists with these references ``weights`` were tuned, at least in part; see ``known_share``."""
        in_use = any(value and weights.get(name) == value for name, value in self.weights.items())
        return known_share(references, self.tuned_on) if in_use else 0.0

    def groups(self, lists: Iterable[NbestList]) -> np.ndarray | None:
        """Return the conversation number (N,) of each list; None unless there are several conversations.

        Raises:
            InputError: the context is ``blank``, which is for text, its expression does not match the id of a list,
                or its file is wrong or has no line for a list.
        """
        numbers = None if self.context is None else self.context.numbers([nbest.id for nbest in lists])
        return numbers if numbers is not None and numbers.any() else None

    @property
    def adds_candidates(self) -> bool:
        """Return whether candidates join the lists. They do not if all weights are 0, which keeps the lists as they are."""
        return self.candidates.anything and (not self.weights or any(self.weights.values()))

    @property
    def device(self) -> DeviceConfig:
        """Return the one device of a command that runs as one process.

        Raises:
            InputError: there are several devices.
        """
        if len(self.devices) > 1:
            raise InputError("this command runs as one process: expected one device")
        return self.devices[0]

    def load(self, compute: DeviceConfig = DEFAULT_DEVICE) -> list[Scorer]:
        """Load the scored LMs, ready to score the words of ``texts``.

        Raises:
            InputError: an LM cannot be loaded, an option does not fit its LM, the members of a mixture see different
                words or cannot be mixed, one translation model is for both directions, or ``compute.normaliser`` has no effect on any LM.
        """
        texts = self.texts  # checked first: loading the files may take long
        self._require_directions()
        found = [self._mixture(lm, texts[lm.name], compute) if lm.mixture else with_policy(lm.load(compute), lm.oov) for lm in self.scored]
        if compute.normaliser != "exact" and all(scorer.exact() is scorer for scorer in found):
            raise InputError(f"--normaliser {compute.normaliser} has no effect: it is for this package's neural LMs, and there is none")
        return found

    def in_memory(self) -> RunConfig:
        """Return the run with its LMs loaded on its device, for a program that rescores again and again.

        The files of LMs, text steps and candidates are read now. That of the context is read by each call.

        Raises:
            InputError: as in ``load``, there are several devices, or the file of a text step is wrong.
        """
        return replace(
            self,
            lms=tuple(lm.in_memory(self.device) for lm in self.lms),
            text=self.text.in_memory(),
            decision=replace(self.decision, text=self.decision.text.in_memory()),
            metric=replace(self.metric, text=self.metric.text.in_memory()),
            candidates=self.candidates.in_memory(),
        )

    def after(self, sentences: Iterable[str]) -> RunConfig:
        """Return the run with its LMs after these sentences, for a conversation whose sentences arrive one by one.

        LMs that read single sentences, such as n-gram LMs, stay as they are.

        Args:
            sentences: texts as those of lists, to which the text steps of each LM are applied. Those without words leave no trace.

        Returns:
            The run. Each list that it scores has these sentences before it. Its outputs are not continued after an interruption.

        Raises:
            InputError: an LM is not loaded (see ``in_memory``), an argument is of another type, or the run leaves out the normaliser.
        """
        require_several("sentences", sentences, "a list of texts")
        sentences = list(sentences)
        for sentence in sentences:
            require_type("sentence", sentence, str, "a text")
        if any(device.normaliser != "exact" for device in self.devices):
            raise InputError("--normaliser does not go with sentences before: leave it out")
        texts = {member.name: text for mixture in self.lms if mixture.mixture for member, text in self._members(mixture)} | self.texts
        changed = []
        for lm in self.lms:
            if lm.mixture:
                changed.append(lm)
                continue
            if lm.loaded is None:
                raise InputError(f"{lm.name} is not loaded, so it can be after no sentence: take the configuration's in_memory()")
            words = [texts[lm.name].words(sentence) for sentence in sentences]
            later = lm.loaded.after([*filter(None, words)])
            changed.append(replace(lm, loaded=later if later is lm.loaded else copy.copy(later)))  # a copy is known to be changed
        return replace(self, lms=tuple(changed))

    def _require_directions(self) -> None:
        """Raise InputError if one model is to score the target given the source and the source given the target."""
        first: dict[tuple[Any, ...], LMSpec] = {}
        for lm in self.lms:
            if lm.translation is not None:
                other = first.setdefault((lm.checkpoints, lm.languages, lm.source_prefix), lm)
                if other.translates_back != lm.translates_back:
                    raise InputError(
                        f"{other.name} and {lm.name} are one model in both directions of translation: give --mt-reverse the model from "
                        "target to source; a multilingual one needs its languages (--languages NAME=SOURCE:TARGET)"
                    )

    def _members(self, mixture: LMSpec) -> list[tuple[LMSpec, TextPipeline]]:
        """Return the LMs of a mixture with their text steps: their own, else the mixture's, else the run's."""
        members = [next(lm for lm in self.lms if lm.name == name) for name, _ in mixture.mixture]
        default = self.text if mixture.text is None else mixture.text
        return [(lm, default if lm.text is None else lm.text) for lm in members]

    def _source_text(self, lm: LMSpec, default: TextPipeline) -> TextPipeline:
        """Return the source text steps of a translation model, or of the ones in a mixture. Raises InputError if these differ."""
        texts = [member.source_text or text for member, text in self._members(lm) if member.uses_source]
        own = {text.absolute(): text for text in texts}
        if len(own) > 1:
            raise InputError(f"[lm.{lm.name}] mixes translation models that see different source words: give them the same source_text")
        return next(iter(own.values()), None) or lm.source_text or default

    def _text_of_mixture(self, mixture: LMSpec) -> TextPipeline:
        """Return the text steps common to all members. If members cut words into subwords differently, return the steps before that."""
        texts = {lm.name: text for lm, text in self._members(mixture)}
        alike = {text.absolute(): text for text in texts.values()}
        if len(alike) > 1:
            alike = {text.of_words().absolute(): text.of_words() for text in texts.values()}
        if len(alike) > 1:
            raise InputError(
                f"[lm.{mixture.name}] mixes LMs that see different words ({'; '.join(describe_pipelines(texts))}): word by word "
                "they need the same text steps, but for a last one that cuts into subwords"
            )
        return alike.popitem()[1]

    def _mixture(self, mixture: LMSpec, words: TextPipeline, compute: DeviceConfig) -> Scorer:
        from attlm_fairseq.scoring.foreign_lms.segmented import SegmentedScorer
        from attlm_fairseq.scoring.mixture import MixtureScorer

        scorers: list[Scorer] = []
        for lm, text in self._members(mixture):
            scorer = with_policy(lm.load(compute), lm.oov)
            if text.absolute() != words.absolute() and text.segmentation is not None:
                pieces = TextPipeline((text.segmentation,)).load()
                scorer = SegmentedScorer(scorer, pieces.words, pieces.signature()[0])
            scorers.append(scorer)
        weights = [weight for _, weight in mixture.mixture]
        if abs(sum(weights) - 1.0) > SUM_TOLERANCE:
            shares = ", ".join(f"{name} {weight / sum(weights):.3g}" for name, weight in mixture.mixture)
            note(f"note: the weights of the mixture {mixture.name} sum to {sum(weights):g}: taken as {shares}")
        return with_policy(MixtureScorer(scorers, weights, mixture.name), mixture.oov)
