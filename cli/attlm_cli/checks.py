"""What commands check of their options before the work begins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from attlm_fairseq.errors import InputError
from attlm_fairseq.files.writing import STANDARD_OUTPUT
from attlm_fairseq.messages import note
from attlm_fairseq.nbest.decision.decision import EXTERNAL_RULE
from attlm_fairseq.nbest.metrics.external import PREFIX
from attlm_fairseq.nbest.metrics.metric import Metric
from attlm_fairseq.nbest.run.config import RunConfig
from attlm_fairseq.nbest.run.config_file import unused


def check_standard_output(outputs: Mapping[str, object]) -> None:
    """Raise InputError if two outputs, by what they are called, go to standard output."""
    there = [name for name, path in outputs.items() if str(path) in STANDARD_OUTPUT]
    if len(there) > 1:
        raise InputError(f"{' and '.join(there)} both go to standard output: name a file for one of them")


def check_source(source: str | None, run: RunConfig | None, metric: Metric | None, rules: Sequence[str] = ()) -> None:
    """Raise InputError if source sentences are given but no translation model, external metric or external loss uses them.

    ``rules``: the decision rules that are tried.
    """
    if not source or (metric is not None and metric.name == "external") or any(rule.startswith(EXTERNAL_RULE) for rule in rules):
        return
    if not (run and (run.decision.asks_program or any(lm.uses_source for lm in run.lms))):
        options = f"--mbr {PREFIX}COMMAND" if metric is None else f"--metric and --mbr {PREFIX}COMMAND"
        raise InputError(f"--source is for translation models (--mt) and for {options}, and there is none of them")


def warn_of_unused(output: Path, run: RunConfig, found: tuple[str, ...] = (), of_lms: tuple[str, ...] = ()) -> None:
    """Warn, before the work begins, of what the existing output file holds that this run does not use and would remove.

    Args:
        output: the file to be written.
        run: the run.
        found: the tables of the file that this run will fill.
        of_lms: the settings of LMs that this run will find.

    Raises:
        InputError: the file is not an ``attlm.toml``.
    """
    if gone := [table for table in unused(output, run, of_lms) if table not in found]:
        note(
            f"WARNING: {output} holds what this run does not use, and will be without it: {', '.join(gone)}; "
            f"--config {output} uses and keeps it, -o writes elsewhere"
        )
