"""``--mbr --consensus --scale``: the rules that decide, for the commands that tune, apply and measure them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import click

from attlm_cli.options import note, wrapped
from attlm_fairseq.errors import InputError
from attlm_fairseq.nbest.decision.decision import Decision, compared_text, loss_tokenizer
from attlm_fairseq.nbest.decision.mbr import LOSSES
from attlm_fairseq.nbest.metrics import Metric
from attlm_fairseq.nbest.run.config import RunConfig

BLEU_LOSS = "BLEU is sacreBLEU's sentence BLEU, with its exponential smoothing, tokenised as --metric bleu is, else at white space"


def rule_options(command: Callable) -> Callable:
    """``--mbr --consensus`` of a command that tries several rules, handed to it as ``rules``."""

    def wrapper(mbr: tuple[str, ...], consensus: bool, **rest: Any) -> Any:
        return command(rules=(*(f"mbr-{loss}" for loss in mbr), *(["consensus"] if consensus else [])), **rest)

    return wrapped(
        wrapper,
        command,
        click.option(
            "--mbr",
            type=click.Choice(LOSSES),
            multiple=True,
            help=f"Try minimum Bayes risk with this loss as well. {BLEU_LOSS}; text as --metric-text makes it. Repeatable.",
        ),
        click.option(
            "--consensus",
            is_flag=True,
            help="Try the combination of the list's words, as --metric-text makes them, as well; its text may be new.",
        ),
    )


def decision_options(command: Callable) -> Callable:
    """``--mbr --consensus --max --scale`` of a command that applies one rule, handed to it as ``decide_by``.

    That is a function from the decision of attlm.toml and the metric to the decision to apply: the metric's text steps and BLEU's tokenizer
    replace those of attlm.toml where there are any. Raises InputError for options that exclude each other.
    """

    def wrapper(mbr: str | None, consensus: bool, max_: bool, scale: float | None, **rest: Any) -> Any:
        rules = [*([f"mbr-{mbr}"] if mbr else []), *(["consensus"] if consensus else []), *(["max"] if max_ else [])]
        if len(rules) > 1:
            raise InputError(f"one rule can decide: {', '.join(rules)} exclude each other")

        def decide_by(configured: Decision, metric: Metric) -> Decision:
            rule = rules[0] if rules else configured.rule
            text = compared_text(metric, metric.text if metric.text.steps else configured.text).load()
            tokenize = loss_tokenizer(metric, configured.tokenize)
            if scale is not None:
                if rule == "max":
                    raise InputError("--scale is of the posteriors that --mbr and --consensus use; the maximum has none")
                if not math.isfinite(scale):
                    raise InputError(f"--scale {scale}: expected a finite number")
                return Decision(rule, scale, text, tokenize=tokenize)
            tuned = configured.scale_of(rule)
            return Decision(rule, 1.0 if tuned is None else tuned, text, tokenize=tokenize)

        return command(decide_by=decide_by, **rest)

    return wrapped(
        wrapper,
        command,
        click.option(
            "--mbr",
            type=click.Choice(LOSSES),
            help=f"Choose the hypothesis with the least expected loss of this kind, of text as --metric-text makes it. {BLEU_LOSS}.",
        ),
        click.option(
            "--consensus",
            is_flag=True,
            help="Combine the words of the list, as --metric-text makes them, by votes; the text may be new: first texts only.",
        ),
        click.option("--max", "max_", is_flag=True, help="Choose the greatest total, whatever attlm.toml says."),
        click.option(
            "--scale",
            type=click.FloatRange(min=0),
            help="Of the posteriors, softmax(scale * total); 0 makes all equally likely. Default: what `attlm tune` found for the rule, "
            "else 1.",
        ),
    )


def warn_of_scale(decision: Decision, config: RunConfig, weights: Mapping[str, float]) -> None:
    """A line where posteriors go by a scale that nobody has chosen: it was not tuned, or with other weights than these."""
    by_user = click.get_current_context().get_parameter_source("scale") == click.core.ParameterSource.COMMANDLINE
    if decision.rule == "max" or by_user:
        return
    if not any(weights.values()):
        note("note: all weights are 0: posteriors go by rank, as with rank=-1; --scale 0 makes all hypotheses equally likely")
        return
    if config.decision.scale_of(decision.rule) is None or weights != config.weights:
        option = "--consensus" if decision.makes_text else f"--mbr {decision.rule.removeprefix('mbr-')}"
        note(f"note: scale {decision.scale:g} was not tuned for these weights: `attlm tune {option}` finds one, --scale sets it")
