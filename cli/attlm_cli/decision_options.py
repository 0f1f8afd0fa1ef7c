"""The decision options ``--mbr``, ``--consensus`` and ``--scale``, for the commands that tune, apply and measure rules."""

from __future__ import annotations

from dataclasses import dataclass, replace

import cloup

from attlm_cli.options import given_option, grouped
from attlm_cli.types import LOSS, WEIGHT, FiniteRange
from attlm_fairseq.errors import InputError
from attlm_fairseq.messages import note
from attlm_fairseq.nbest.decision.decision import EXTERNAL_RULE, Decision, compared_text, loss_tokenizer
from attlm_fairseq.nbest.metrics import Metric
from attlm_fairseq.nbest.run.config import RunConfig

BLEU_LOSS = "BLEU is sacreBLEU's sentence BLEU, with its exponential smoothing, tokenised as --bleu-tokenize says, else at white space"
EXTERNAL_LOSS = (
    "external:COMMAND asks a program how good each hypothesis is if another one is right (see --metric); attlm.toml keeps its "
    "scale, but never the command: a file does not say which program to run"
)


def _rules(mbr: tuple[str, ...], consensus: bool) -> tuple[str, ...]:
    return (*(f"mbr-{loss}" for loss in mbr), *(["consensus"] if consensus else []))


rule_options = grouped(
    "Decision rules",
    "rules",
    _rules,
    cloup.option(
        "--mbr",
        type=LOSS,
        multiple=True,
        help="Also try minimum Bayes risk with this loss, on the text after the steps of --metric-text. "
        f"{BLEU_LOSS}. {EXTERNAL_LOSS}. Repeatable.",
    ),
    cloup.option(
        "--consensus",
        "--rover",
        "consensus",
        is_flag=True,
        help="Also try combining the hypotheses word by word (ROVER), after the steps of --metric-text. The output "
        "can be a sentence that is in no list.",
    ),
)


@dataclass(frozen=True)
class DecisionChoice:
    """The weights, rule and scale that the user gave. None means: as in ``attlm.toml``."""

    weights: dict[str, float]
    rule: str | None
    scale: float | None

    def apply(self, run: RunConfig, metric: Metric) -> RunConfig:
        """Return the run with these weights and this decision.

        The rule of ``attlm.toml`` keeps its text steps and its tokenizer unless options give others; another rule has the metric's.
        Logs a note if the scale was not tuned for the rule and the weights.

        Raises:
            InputError: a scale is given but the rule is ``max``, or a text step lacks a file or a package.
        """
        configured, changed = run.decision, run.weights | self.weights
        rule = self.rule or configured.rule
        if self.scale is not None and rule == "max":
            raise InputError("--scale is of the posteriors that --mbr and --consensus use; the maximum has none")
        if rule == "max" and self.rule is None and (external := [name for name in configured.scales if name.startswith(EXTERNAL_RULE)]):
            ways = ", ".join(f"`--mbr {name.removeprefix('mbr-')}`" for name in external)
            note(f"note: the greatest total decides: {ways} was tuned, too, and a file never says what to run; --max leaves this note out")
        tuned = configured.scale_of(rule)
        scale = self.scale if self.scale is not None else 1.0 if tuned is None else tuned
        own, of_metric = metric.text if metric.text.steps else configured.text, loss_tokenizer(metric, configured.tokenize)
        same = rule == configured.rule
        text = (own if same and not metric.text.steps else compared_text(metric, own)).load()
        tokenize = configured.tokenize if same and not given_option("bleu_tokenize") else of_metric
        if rule != "max" and self.scale is None and (changed or not run.lms):  # LMs without weights are refused later
            if changed and not any(changed.values()):
                note("note: all weights are 0: posteriors go by rank, as with rank=-1; --scale 0 makes all hypotheses equally likely")
            elif tuned is None or changed != run.weights:
                option = "--consensus" if rule == "consensus" else f"--mbr {rule.removeprefix('mbr-')}"
                note(f"note: scale {scale:g} was not tuned for these weights: `attlm tune {option}` finds one, --scale sets it")
        decision = Decision(rule, scale, text, tokenize=tokenize)
        return replace(run.with_weights(self.weights), decision=decision)


def _choice(weights: tuple, mbr: str | None, consensus: bool, max_: bool, scale: float | None) -> DecisionChoice:
    rules = [*([f"mbr-{mbr}"] if mbr else []), *(["consensus"] if consensus else []), *(["max"] if max_ else [])]
    if len(rules) > 1:
        raise InputError(f"one rule can decide: {', '.join(rules)} exclude each other")
    return DecisionChoice(dict(weights), rules[0] if rules else None, scale)


decision_options = grouped(
    "Decision",
    "choice",
    _choice,
    cloup.option(
        "--weight",
        "weights",
        multiple=True,
        type=WEIGHT,
        help="Weight of an LM, a score of the lists, words, rank, LM_oov, LM_tokens or LM_minus_LM. Repeatable.",
    ),
    cloup.option(
        "--mbr",
        type=LOSS,
        help="Choose the hypothesis with the least expected loss of this kind (minimum Bayes risk), on the text "
        f"after the steps of --metric-text. {BLEU_LOSS}. {EXTERNAL_LOSS}.",
    ),
    cloup.option(
        "--consensus",
        "--rover",
        "consensus",
        is_flag=True,
        help="Combine the hypotheses word by word (ROVER), after the steps of --metric-text. The output can be a "
        "sentence that is in no list; it is written as 1-best text.",
    ),
    cloup.option("--max", "max_", is_flag=True, help="Choose the hypothesis with the greatest total, even if attlm.toml has another rule."),
    cloup.option(
        "--scale",
        type=FiniteRange(min=0),
        help="Scale of the posteriors softmax(scale * total); 0 makes all hypotheses equally likely. Default: the "
        "scale that `attlm tune` found for the rule, else 1.",
    ),
)
