"""Options of the weight search."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from itertools import product
from numbers import Real
from typing import Literal

from attlm_fairseq.errors import InputError, require_several, require_type, require_utf8, require_whole_number
from attlm_fairseq.nbest.tuning.folds import FOLDS, MIN_FOLDS
from attlm_fairseq.nbest.tuning.search_options import SearchOptions
from attlm_fairseq.scoring.context.conversations import ContextSpec


@dataclass(frozen=True)
class TuneOptions:
    """Options of the weight search.

    Attributes:
        rules: decision rules to try besides the maximum: ``mbr-wer``, ``mbr-bleu``, .., ``consensus``.
        without: features to leave out; the pattern ``pp_*`` leaves out all that match.
        features: further LM features: ``NAME_tokens``, ``A_minus_B``.
        intervals: bounds of weights, both included; equal bounds fix a weight.
        objective: ``metric`` optimises the metric of the best totals; ``risk`` optimises the expected loss, which is
            smooth.
        folds: number of cross-validation folds, at least 3; 0 for none. Cross-validation estimates the score on other lists and
            chooses the strength.
        folds_by: which lists stay in one fold and count as one sample, such as those of a document: ``id:REGEX`` or
            ``file:FILE``, as for ``--context``. None: those of one utterance, or of one conversation with a context.
        strength: how far to trust the weights, from 0 (input order) to 1 (weights as found). None: chosen by
            cross-validation, or 1 without it.
        no_gain: if no strength has a cross-validated gain, ``keep`` the input order (all weights 0), or ``fail``.
        restarts: number of random starting points.
        seed: random seed for the search, intervals and p-values.
        confidence: also fit word confidences, which ``rescore`` can then write; needs the metric ``wer``.
        ablation: also tune without each LM and each score of the lists, and compare the cross-validated answers with those
            of all.

    Raises:
        InputError: a value is of another kind than described; intervals are given with ``risk``; a strength other than 0 or 1 with
            a bound of the rank, or without the rank; ``ablation`` without folds; ``"fail"`` without folds or with a strength.
    """

    rules: Sequence[str] = ()
    without: Sequence[str] = ()
    features: Sequence[str] = ()
    intervals: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    objective: Literal["metric", "risk"] = "metric"
    folds: int = FOLDS
    folds_by: str | ContextSpec | None = None
    strength: float | None = None
    no_gain: Literal["keep", "fail"] = "keep"
    restarts: int = 10
    seed: int = 1
    confidence: bool = False
    ablation: bool = False

    def __post_init__(self) -> None:
        for name in ("folds", "restarts", "seed"):
            value = getattr(self, name)
            require_whole_number(name, value)
            object.__setattr__(self, name, int(value))  # numpy's numbers cannot be written to attlm.toml
        for name in ("rules", "without", "features"):
            require_several(name, getattr(self, name), "a list of names")
        for rule in self.rules:
            require_utf8(rule, "the name of a decision rule, which attlm.toml holds,")
        for name, pattern in product(self.features, self.without):
            if name == pattern or fnmatchcase(name, pattern):
                raise InputError(f"--feature {name}: --without {pattern} leaves it out; leave one of the two out, or narrow the pattern")
        for name, values in (("objective", ("metric", "risk")), ("no_gain", ("keep", "fail"))):
            if getattr(self, name) not in values:
                raise InputError(f"the value of {name} is {getattr(self, name)!r}: expected {' or '.join(map(repr, values))}")
        for name, bounds in self.intervals.items():
            try:
                SearchOptions(intervals={name: bounds})
            except (TypeError, ValueError):
                raise InputError(f"the interval of {name} is {bounds!r}: expected the lowest and the highest weight") from None
        if self.objective == "risk" and self.intervals:
            raise InputError("--interval and --fix are of the line search: they do not go with --objective risk")
        if self.folds and self.folds < MIN_FOLDS:
            raise InputError(f"--folds {self.folds}: expected at least {MIN_FOLDS}, or 0 for no cross-validation")
        if self.strength is not None:
            require_type("value of strength", self.strength, Real, "a number from 0 to 1")
            if not 0 <= self.strength <= 1:
                raise InputError(f"--strength {self.strength:g}: expected a number from 0 to 1")
            object.__setattr__(self, "strength", float(self.strength))
        given = "rank" in self.intervals or any(fnmatchcase("rank", pattern) for pattern in self.without)
        if given and self.strength not in (None, 0.0, 1.0):
            raise InputError(
                f"--strength {self.strength:g} changes the weight of the rank, which --without, --fix or --interval takes away: give "
                "--strength 0 or 1, or leave the rank free"
            )
        if self.ablation and not self.folds:
            raise InputError("--ablation compares cross-validated answers: leave out --folds 0")
        if self.no_gain == "fail" and (self.strength is not None or not self.folds):
            other = f"--strength {self.strength:g}" if self.strength is not None else "--folds 0"
            raise InputError(f"--no-gain fail needs cross-validation to choose the strength: leave out {other}")
