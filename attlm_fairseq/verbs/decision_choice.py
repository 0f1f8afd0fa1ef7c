"""Another rule, scale or weights than a configuration has: what was tuned for them stays."""

from __future__ import annotations

from dataclasses import dataclass, replace

from attlm_fairseq.errors import InputError
from attlm_fairseq.messages import note
from attlm_fairseq.nbest.decision.decision import EXTERNAL_RULE, compared_text, loss_spaces, loss_tokenizer, option_of
from attlm_fairseq.nbest.metrics.metric import Metric
from attlm_fairseq.nbest.run.config import RunConfig


@dataclass(frozen=True)
class DecisionChoice:
    """The weights, rule and scale that the user gave. None means: as in the configuration."""

    weights: dict[str, float]
    rule: str | None = None
    scale: float | None = None

    def apply(self, run: RunConfig, metric: Metric, as_metric: bool = False, of_words: bool = False) -> RunConfig:
        """Return the run with these weights and this decision.

        The rule of the configuration keeps its text steps unless the metric has some, and its tokenizer and spaces; another rule has the
        metric's.
        Logs a note if the scale was not tuned for the rule and the weights.

        Args:
            run: the configuration.
            metric: the metric that the user gave, or that of the configuration.
            as_metric: the rule of the configuration gets the metric's tokenizer and spaces, too.
            of_words: words get confidences, at this scale if the configuration has none for them.

        Raises:
            InputError: there is no such rule, a scale is given but nothing has it, or a text step lacks a file or a package.
        """
        configured, changed, weighted = run.decision, run.weights | self.weights, run.with_weights(self.weights)
        rule = configured.rule if self.rule is None else self.rule
        if self.scale is not None and rule == "max" and not (of_words and weighted.confidence is None):
            if of_words:
                raise InputError("--scale has no effect: confidences have the scale in [confidence] of the configuration")
            raise InputError(
                "--scale is of the posteriors that --mbr, --consensus and the confidences of rescore --to ctm use; the maximum has none"
            )
        if rule == "max" and self.rule is None and (external := [name for name in configured.scales if name.startswith(EXTERNAL_RULE)]):
            ways = ", ".join(f"`--mbr {name.removeprefix('mbr-')}`" for name in external)
            note(f"note: the greatest total decides: {ways} was tuned, too, and a file never says what to run; --max leaves this note out")
        tuned = configured.scale_of(rule)
        scale = self.scale if self.scale is not None else 1.0 if tuned is None else tuned
        same = rule == configured.rule
        own = metric.text if metric.text.steps else configured.text
        decision = replace(
            configured,
            rule=rule,
            scale=scale,
            scales={**configured.scales, **({} if configured.rule == "max" else {configured.rule: configured.scale})},
            text=(own if same and not metric.text.steps else compared_text(metric, own)).load(),
            tokenize=configured.tokenize if same and not as_metric else loss_tokenizer(metric, configured.tokenize),
            spaces=configured.spaces if same and not as_metric else loss_spaces(metric, configured.spaces),
        )
        if rule != "max" and self.scale is None and (changed or not run.lms):  # LMs without weights are refused later
            if changed and not any(changed.values()):
                note("note: all weights are 0: posteriors go by rank, as with rank=-1; --scale 0 makes all hypotheses equally likely")
            elif tuned is None or changed != run.weights:
                note(f"note: scale {scale:g} was not tuned for these weights: `attlm tune {option_of(rule)}` finds one, --scale sets it")
        return replace(weighted, decision=decision)
