"""The result of tuning."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from attlm_fairseq.errors import InputError
from attlm_fairseq.files.writing import shown_output
from attlm_fairseq.messages import note
from attlm_fairseq.nbest.decision.decision import Decision
from attlm_fairseq.nbest.metrics.metric import Metric
from attlm_fairseq.nbest.report.report import Report
from attlm_fairseq.nbest.run.config import RunConfig
from attlm_fairseq.nbest.run.config_file import write_config
from attlm_fairseq.nbest.statistics.evaluation import Row
from attlm_fairseq.nbest.statistics.table import as_table
from attlm_fairseq.nbest.tuning.tuned_system import TunedSystem
from attlm_fairseq.verbs.arguments import FilePath
from attlm_fairseq.verbs.report import row_record, write_report
from attlm_fairseq.verbs.run import Measurement

AGAINST = "against input 1-best"  # heads the column that compares each row with the input order
AGAINST_ALL = "against all scores"  # the same, of the rows without a score


@dataclass(frozen=True)
class Tuned:
    """The result of ``tune``.

    Attributes:
        config: the LMs, text steps, weights and decision to use, as ``attlm.toml`` holds them.
        metric: the metric tuned for.
        rows: the systems compared, with 95 % intervals: the input order first, the oracle last.
        system: the weights found, their influence, and the posterior scale of each rule.
        rules: the rules tried besides the maximum.
        gain: whether cross-validation speaks for a gain, which it also does for one of eight systems whose scores say nothing.
            None without cross-validation, or if the strength was given.
        record: what is needed to reproduce the result.
        ablation: with ``TuneOptions.ablation`` the cross-validated row of all scores, then one row without each, compared
            with it; else empty.
    """

    config: RunConfig
    metric: Metric
    rows: list[Row]
    system: TunedSystem = field(repr=False)
    rules: tuple[str, ...]
    gain: bool | None
    record: dict[str, Any] = field(repr=False)
    measurement: Measurement = field(repr=False)
    title: str
    notes: list[str] = field(repr=False)
    ablation: list[Row] = field(default_factory=list)

    @property
    def weights(self) -> dict[str, float]:
        return dict(self.config.weights)

    @property
    def strength(self) -> float:
        """Return how far to trust the weights: 0 keeps the input order, 1 takes the weights as found."""
        return 0.0 if self.gain is False else self.system.setting.strength

    def save(self, path: FilePath = "attlm.toml", command: str | None = None) -> None:
        """Write LMs, text steps, weights, decision and record as an ``attlm.toml``.

        Raises:
            InputError: the file cannot be written, the existing file is not an ``attlm.toml``, or the name of a file
                in it is not UTF-8.
        """
        write_config(Path(path), replace(self.config, decision=self._written_decision()), self.record, command=command)
        note(f"wrote {shown_output(path)}" + ("" if self.config.lms or self.config.candidates.anything else ": there is no LM in it"))

    def _written_decision(self) -> Decision:
        """Return the decision without an external command: a configuration file must not choose which program runs."""
        found = self.config.decision
        if not found.asks_program:
            return found
        note(f"note: attlm.toml never says what to run: `--mbr {found.rule.removeprefix('mbr-')}` applies the rule, with the scale found")
        return replace(found, rule="max", scale=1.0, scales={**found.scales, found.rule: found.scale})

    def write_report(self, path: FilePath, command: str | None = None) -> None:
        """Write the HTML report: table, weights and what changed on the tuning lists.

        Raises:
            InputError: the file cannot be written, or the LMs have to be loaded again and one cannot be loaded.
        """
        influence = self.system.result.influence if any(self.weights.values()) else None
        page = Report(
            self.title, self.rows, AGAINST, notes=self.notes, influence=influence, ablation=self.ablation, against_all=AGAINST_ALL
        )
        write_report(path, self.config, self.measurement, self.metric, page, command)

    def __str__(self) -> str:
        """Return what ``attlm tune`` prints: the tables, the weights found, and the scale of each rule tried."""
        found = self.system.result
        lines = [as_table(self.rows, self.metric, AGAINST)]
        lines += ["", as_table(self.ablation, self.metric, AGAINST_ALL), ""] if self.ablation else []
        lines.append("weights found; those to use are 0, for want of a gain" if self.gain is False else "weights")
        weights = found.weights if self.gain is False else found.weights | self.weights
        lines += [f"  {name:16} {value:10.6g}  {found.influence.get(name, 0.0):6.1%} of the decision" for name, value in weights.items()]
        if self.rules:
            lines += ["scales of the posteriors", *(f"  {name:16} {self.system.decision.scale_of(name):10.6g}" for name in self.rules)]
        return "\n".join(lines)

    def as_dict(self) -> dict[str, Any]:
        """Return the result as a JSON-serialisable dictionary."""
        influence = self.system.result.influence
        return {
            "weights": self.weights,
            "decision": {"rule": self.config.decision.rule, "scale": self.config.decision.scale},
            "gain": self.gain,
            "strength": self.strength,
            "tuned_weights": self.system.result.weights,
            "influence": {name: round(share, 6) for name, share in influence.items()},
            "scales": {rule: self.system.decision.scale_of(rule) for rule in self.rules},
            "systems": list(map(row_record, self.rows)),
            **({"ablation": list(map(row_record, self.ablation))} if self.ablation else {}),
            "record": self.record,
        }


class NoGainError(InputError):
    """Raised if cross-validation shows no gain and ``no_gain`` is ``"fail"``. ``tuned`` holds the result."""

    def __init__(self, what: str, tuned: Tuned) -> None:
        super().__init__(what)
        self.tuned = tuned

    def __reduce__(self) -> tuple[type[NoGainError], tuple[str, Tuned]]:
        """Return how it is made again in another process."""
        return type(self), (str(self), self.tuned)
