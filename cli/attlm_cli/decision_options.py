"""The decision options ``--mbr``, ``--consensus`` and ``--scale``, for the commands that tune, apply and measure rules."""

from __future__ import annotations

import cloup

from attlm_cli.option_groups import grouped
from attlm_cli.types import LOSS, WEIGHT, FiniteRange
from attlm_fairseq.errors import InputError
from attlm_fairseq.verbs.decision_choice import DecisionChoice

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
        "sentence that is in no list; it is written as 1-best text, or in a format of --to that needs no scores.",
    ),
    cloup.option("--max", "max_", is_flag=True, help="Choose the hypothesis with the greatest total, even if attlm.toml has another rule."),
    cloup.option(
        "--scale",
        type=FiniteRange(min=0),
        help="Scale of the posteriors softmax(scale * total), of --mbr, --consensus and confidences; 0 makes all hypotheses "
        "equally likely. Default: the scale that `attlm tune` found for the rule, else 1.",
    ),
)
