"""What a run of rescoring, tuning or evaluation needs besides its n-best lists. ``config_file`` reads and writes it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from attlm_fairseq.errors import InputError
from attlm_fairseq.nbest.corrections.spec import CandidateSpec
from attlm_fairseq.nbest.decision.confidence import Confidence
from attlm_fairseq.nbest.decision.decision import Decision
from attlm_fairseq.nbest.fingerprints import known_share
from attlm_fairseq.scoring.compute import DEFAULT_DEVICE, DeviceConfig
from attlm_fairseq.scoring.conversations import ContextSpec
from attlm_fairseq.scoring.lm_spec import LMSpec
from attlm_fairseq.scoring.oov_policy import with_policy
from attlm_fairseq.scoring.scorer import Scorer
from attlm_fairseq.text import TextPipeline, describe_pipelines


@dataclass(frozen=True)
class RunConfig:
    """What a run needs to know besides its lists."""

    lms: tuple[LMSpec, ...] = ()
    text: TextPipeline = field(default_factory=TextPipeline)
    weights: dict[str, float] = field(default_factory=dict)
    decision: Decision = field(default_factory=Decision)
    path: Path | None = field(default=None, compare=False)  # of the file that it was read from
    tuned_on: str = field(default="", compare=False)  # a sketch of the references that the weights were tuned on
    devices: tuple[DeviceConfig, ...] = field(default=(DEFAULT_DEVICE,), compare=False)  # one for each process; not in attlm.toml
    candidates: CandidateSpec = field(default_factory=CandidateSpec)  # hypotheses that join the lists
    confidence: Confidence | None = None  # how posteriors become word confidences, if that was fitted for these weights
    context: ContextSpec | None = None  # which lists or lines are one conversation; None: each by itself

    def __post_init__(self) -> None:
        plain = {lm.name for lm in self.lms if not lm.mixture}
        for lm in self.lms:
            for member, _ in lm.mixture:
                if member not in plain:
                    raise InputError(
                        f"[lm.{lm.name}] mixes {member!r}, which is not an LM of this run; there are {', '.join(sorted(plain))}"
                    )
        if self.context is not None and (names := [lm.name for lm in self.lms if lm.uses_source or lm.only_close is not None]):
            raise InputError(f"{', '.join(names)}: translation models and --only-close do not go with --context; leave one of them out")

    @property
    def scored(self) -> tuple[LMSpec, ...]:
        """The LMs that give hypotheses a score of their own: all but the members of mixtures."""
        members = {member for lm in self.lms for member, _ in lm.mixture}
        return tuple(lm for lm in self.lms if lm.name not in members)

    @property
    def texts(self) -> dict[str, TextPipeline]:
        """What each scored LM sees, by name. Raises InputError where the members of a mixture cannot be mixed word by word."""
        return {lm.name: self._text_of_mixture(lm) if lm.mixture else lm.text or self.text for lm in self.scored}

    @property
    def source_texts(self) -> dict[str, TextPipeline]:
        """What each scored LM sees of a source sentence, by name; it matters to translation models alone."""
        texts = self.texts
        return {lm.name: self._source_text(lm, texts[lm.name]) for lm in self.scored}

    @property
    def feature_texts(self) -> dict[str, TextPipeline]:
        """Those of ``texts`` whose LMs have further features, such as their unknown words: LMs that score every hypothesis."""
        texts = self.texts
        return {lm.name: texts[lm.name] for lm in self.scored if lm.only_close is None}

    def with_weights(self, weights: Mapping[str, float]) -> RunConfig:
        """Return the run with these weights added.

        It forgets what it was tuned on unless one of the tuned weights is still in use, and the confidences unless all are.
        """
        changed = self.weights | dict(weights)
        in_use = any(value and changed[name] == value for name, value in self.weights.items())
        confidence = self.confidence if changed == self.weights else None
        return replace(self, weights=changed, tuned_on=self.tuned_on if in_use else "", confidence=confidence)

    def tuned_on_these(self, weights: Mapping[str, float], references: Iterable[Sequence[str]]) -> bool:
        """Whether most of the lists with these references are among those that ``weights``, or some of them, were tuned on."""
        in_use = any(value and weights.get(name) == value for name, value in self.weights.items())
        return in_use and known_share(references, self.tuned_on) > 0.5

    @property
    def adds_candidates(self) -> bool:
        """Whether hypotheses join the lists: weights that are all 0 leave them as they are."""
        return self.candidates.anything and (not self.weights or any(self.weights.values()))

    @property
    def device(self) -> DeviceConfig:
        """The device of a command that runs as one process. Raises InputError if there are several."""
        if len(self.devices) > 1:
            raise InputError("this command runs as one process: expected one device")
        return self.devices[0]

    def load(self, compute: DeviceConfig = DEFAULT_DEVICE) -> list[Scorer]:
        """The scored LMs, ready to score the words of ``texts``. Raises InputError."""
        texts = self.texts  # before the files, which may take long
        return [self._mixture(lm, texts[lm.name], compute) if lm.mixture else with_policy(lm.load(compute), lm.oov) for lm in self.scored]

    def _members(self, mixture: LMSpec) -> list[tuple[LMSpec, TextPipeline]]:
        """The LMs of a mixture and what they see: their own steps, or the mixture's, or the run's."""
        members = [next(lm for lm in self.lms if lm.name == name) for name, _ in mixture.mixture]
        default = self.text if mixture.text is None else mixture.text
        return [(lm, default if lm.text is None else lm.text) for lm in members]

    def _source_text(self, lm: LMSpec, default: TextPipeline) -> TextPipeline:
        """The steps of a translation model, or of the one among the members of a mixture. Raises InputError if members differ."""
        own = {member.source_text or text for member, text in self._members(lm) if member.uses_source}
        if len(own) > 1:
            raise InputError(f"[lm.{lm.name}] mixes translation models that see different source words: give them the same source_text")
        return next(iter(own), None) or lm.source_text or default

    def _text_of_mixture(self, mixture: LMSpec) -> TextPipeline:
        """What all members see; words, where only some of them cut these into subwords, or each in its own way."""
        texts = {lm.name: text for lm, text in self._members(mixture)}
        alike = set(texts.values())
        if len(alike) > 1:
            alike = {text.of_words() for text in alike}
        if len(alike) > 1:
            raise InputError(
                f"[lm.{mixture.name}] mixes LMs that see different words ({'; '.join(describe_pipelines(texts))}): word by word "
                "they need the same text steps, but for a last one that cuts into subwords"
            )
        return alike.pop()

    def _mixture(self, mixture: LMSpec, words: TextPipeline, compute: DeviceConfig) -> Scorer:
        from attlm_fairseq.scoring.mixture import MixtureScorer
        from attlm_fairseq.scoring.segmented import SegmentedScorer

        scorers: list[Scorer] = []
        for lm, text in self._members(mixture):
            scorer = with_policy(lm.load(compute), lm.oov)
            if text != words and text.segmentation is not None:
                pieces = TextPipeline((text.segmentation,)).load()
                scorer = SegmentedScorer(scorer, pieces.words, pieces.signature()[0])
            scorers.append(scorer)
        return with_policy(MixtureScorer(scorers, [weight for _, weight in mixture.mixture], mixture.name), mixture.oov)
