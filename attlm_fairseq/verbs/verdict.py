"""What tuned weights are worth on other lists, in words."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from attlm_fairseq.messages import note
from attlm_fairseq.nbest.corrections.spec import CandidateSpec
from attlm_fairseq.nbest.decision.decision import Decision
from attlm_fairseq.nbest.statistics.evaluation import signed
from attlm_fairseq.nbest.tuning.folds import MIN_FOLDS
from attlm_fairseq.verbs.tune_options import TuneOptions
from attlm_fairseq.verbs.tuned import NoGainError, Tuned

UNSURE = 0.3  # the p-value of the cross-validated row from which a gain that is accepted is warned of


def verdict(tuned: Tuned, options: TuneOptions, candidates: CandidateSpec) -> str:
    """Log what the weights are worth on other lists, and return that line for the report. Raises NoGainError if so configured."""
    system = tuned.system
    if system.gain is None:
        kind = "WARNING" if options.folds else "note"
        note(
            f"{kind}: without cross-validation ({MIN_FOLDS} different lists and --folds {MIN_FOLDS} at least) nothing tells what the "
            "weights are worth elsewhere"
        )
    if tuned.gain and system.gain is not None and (p_value := system.gain.p_value or 0.0) > UNSURE:
        note(
            f"WARNING: the gain may be chance ({system.label}: {signed(system.gain.difference.score)} {tuned.metric.name}, "
            f"p = {p_value:.2f}): measure the weights on other lists before you rely on them"
        )
    if tuned.gain is not False:
        if tuned.gain and tuned.strength < 1:
            note(f"note: strength {tuned.strength:g}: cross-validation bears the weights out in part, so the rank has more weight")
        if tuned.rules:
            note(f"decision: {tuned.config.decision}")
        return (
            "The changes below are on the lists that the weights were tuned on, and flatter them: elsewhere expect the cross-validated row."
        )
    gain = system.gain
    assert gain is not None, "a gain that is not there was cross-validated"
    difference = f"{system.label}: {signed(gain.difference.score)} {tuned.metric.name}"
    found = f"cross-validation shows no gain over the input order to rely on ({difference})"
    if options.no_gain == "fail":
        raise NoGainError(f"{found}; nothing is written", tuned)
    warning = f"{found}: the weights written are 0 and leave the lists as they are"
    if any(system.result.weights.values()):
        ways = as_options(system.result.weights, system.decision, candidates)
        warning += f". To use the best ones found all the same, add to `attlm rescore`: {ways}"
    note(f"WARNING: {warning}")
    return warning


def as_options(weights: Mapping[str, float], decision: Decision, candidates: CandidateSpec) -> str:
    """Return the options of ``attlm rescore`` that apply these weights and this decision with the same candidates, for a shell."""
    sources = {
        "--corrections": candidates.table,
        "--phrases": candidates.phrases,
        "--corrector": candidates.corrector,
        "--corrector-languages": candidates.corrector_languages,
        "--corrector-prefix": candidates.corrector_prefix,
    }
    parts = [part for option, value in sources.items() if value for part in (option, str(value))]
    if candidates.anything and candidates.candidates != CandidateSpec.candidates:
        parts += ["--candidates", str(candidates.candidates)]
    if decision.rule != "max":
        parts += ["--consensus"] if decision.rule == "consensus" else ["--mbr", decision.rule.removeprefix("mbr-")]
        parts += ["--scale", _digits(decision.scale)]
    return shlex.join([*parts, *(part for name, weight in weights.items() if weight for part in ("--weight", f"{name}={_digits(weight)}"))])


def _digits(number: float) -> str:
    """Return the shortest text that is read as this number."""
    return f"{number:g}" if float(f"{number:g}") == number else repr(number)
