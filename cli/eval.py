"""``attlm eval``: the first hypotheses of lists, and what the lists hold, against references."""

from __future__ import annotations

import click

from attlm_cli.options import AddReferences, format_option, metric_options, reference_options
from attlm_fairseq.errors import InputError
from attlm_fairseq.nbest.bootstrap import confidence_interval, paired_bootstrap
from attlm_fairseq.nbest.evaluation import measure_lists
from attlm_fairseq.nbest.formats import open_nbest
from attlm_fairseq.nbest.metrics import Metric
from attlm_fairseq.nbest.tuning import oracle


@click.command("eval")
@click.argument("nbest", nargs=-1, required=True)
@reference_options
@format_option
@metric_options
@click.option("--seed", default=1, show_default=True, help="Of the bootstrap.")
def eval_command(nbest: tuple[str, ...], format_name: str | None, metric: Metric, with_references: AddReferences, seed: int) -> None:
    """Score the first hypotheses of one or several NBEST files of the same utterances, with 95 % bootstrap intervals.

    Each further file is compared with the first one: difference and p-value (paired bootstrap). The last row is the best that
    the first file's lists hold.

    \b
    Example:
      attlm eval test.json test.rescored.json --metric wer
    """
    rows, references = [], None
    for path in nbest:
        lists = open_nbest(path, format_name)[1]
        measured = measure_lists(with_references(lists), metric)
        if references is not None and measured.references != references:
            raise InputError(
                f"the references are not those of {nbest[0]}; compare lists of the same utterances in the same order", path=path
            )
        references = measured.references
        rows.append((path, measured.first))
        if len(rows) == 1:
            best = oracle(measured.statistics, metric)
    width = max(map(len, [*nbest, "oracle"])) + 2
    click.echo(f"{'':{width}}{metric.name.upper():>7}  95 % interval   against the first")
    for path, statistics in [*rows, ("oracle", best)]:
        interval = confidence_interval(statistics, metric, seed=seed)
        line = f"{path:{width}}{interval.score:7.2f}  {interval.low:.2f} .. {interval.high:.2f}"
        if path not in (nbest[0], "oracle"):
            comparison = paired_bootstrap(statistics, rows[0][1], metric, seed=seed)
            line += f"   {comparison.difference.score:+.2f}, p = {comparison.p_value:.3f}"
        click.echo(line)
    click.echo(f"{len(references)} lists; {metric.signature(references)}")
