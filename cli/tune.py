"""``attlm tune``: find the weights on lists with references and write them to attlm.toml."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import click

from attlm_cli.options import (
    AddReferences,
    Setup,
    format_option,
    lm_options,
    metric_options,
    note,
    on_terminal,
    progress,
    reference_options,
    warn_of_oov,
)
from attlm_fairseq import __version__
from attlm_fairseq.config import DEFAULT_CONFIG, write_config
from attlm_fairseq.errors import InputError
from attlm_fairseq.nbest.bootstrap import Interval, confidence_interval, paired_bootstrap
from attlm_fairseq.nbest.evaluation import measure_lists
from attlm_fairseq.nbest.formats import open_nbest
from attlm_fairseq.nbest.lm_features import default_features, differing_lms, is_lm_feature
from attlm_fairseq.nbest.metrics import Metric
from attlm_fairseq.nbest.rescoring import Rescorer
from attlm_fairseq.nbest.tuning import cross_validate, oracle, selection, tune


@click.command("tune")
@click.argument("nbest")
@reference_options
@format_option
@metric_options
@click.option("--without", multiple=True, metavar="NAME", help="Leave this score, or words or rank, out. Repeatable.")
@click.option(
    "--feature",
    "extra",
    multiple=True,
    metavar="NAME",
    help="One more feature: LM_tokens, or LM_minus_LM in place of the two LMs. Repeatable.",
)
@click.option("--folds", default=5, show_default=True, help="Folds of the cross-validation that tells the score to expect; 0: none.")
@click.option("--restarts", default=10, show_default=True, help="Random starting points of the search.")
@click.option("--seed", default=1, show_default=True, help="Of the restarts and of the bootstrap.")
@click.option("-o", "--output", type=click.Path(path_type=Path), default=DEFAULT_CONFIG, show_default=True, help="Where they go.")
@lm_options
def tune_command(
    nbest: str,
    format_name: str | None,
    metric: Metric,
    with_references: AddReferences,
    without: tuple[str, ...],
    extra: tuple[str, ...],
    folds: int,
    restarts: int,
    seed: int,
    output: Path,
    setup: Setup,
) -> None:
    """Find the weights that make the first hypotheses of NBEST (- is standard input) best, and write them to attlm.toml.

    The hypotheses are scored once. Then an exact line search on the corpus metric (Och 2003) looks for the weights of each LM,
    of the number of words that it does not know (NAME_oov), of the scores that came with the lists, of the number of
    words and of the rank. The table shows the score before and after, what to expect on other lists
    (cross-validation), and the best that the lists hold (oracle).

    \b
    Examples:
      attlm tune dev.json --lm checkpoint_best.pt --kenlm lm.arpa
      attlm tune dev.nbest --refs dev.en --metric bleu --lm news=lm.pt -o news.toml
    """
    scorers = setup.load(needed=False)  # the lists' own scores can be tuned too
    lists = open_nbest(nbest, format_name)[1]
    lists = list(with_references(lists))
    with progress("hypotheses", sum(len(found.hypotheses) for found in lists) if on_terminal() else None) as bar:
        rescorer = Rescorer(scorers, setup.texts, bar.update, lm_feature_names(setup, extra))
        measured = measure_lists(rescorer.score(lists), metric)
    for name in without:
        if name not in [*measured.names, *measured.left_out]:
            raise InputError(f"--without {name}: the features are {', '.join(measured.names)}")
    if measured.left_out:
        note(f"note: left out, because some hypotheses lack them: {', '.join(measured.left_out)}")
    unneeded = {*without, *(lm for name in extra for lm in differing_lms(name, setup.config.texts) or ())}
    unneeded |= set(measured.redundant([name for name in rescorer.features if name not in extra]))
    kept = [place for place, name in enumerate(measured.names) if name not in unneeded]
    names = [measured.names[place] for place in kept]
    features = [of_list[:, kept] for of_list in measured.features]

    result = tune(features, measured.statistics, metric, names=names, restarts=restarts, seed=seed)
    tuned = selection(features, measured.statistics, result.weights, names=names)
    rows = [("first as read", measured.first), ("tuned", tuned)]
    if folds:
        folds = min(folds, len(lists))
        if folds > 1:
            held_out = cross_validate(features, measured.statistics, metric, names=names, folds=folds, restarts=restarts, seed=seed)
            rows.append((f"tuned, {folds}-fold", held_out.statistics))
    rows.append(("oracle", oracle(measured.statistics, metric)))
    intervals = {label: confidence_interval(statistics, metric, seed=seed) for label, statistics in rows}
    comparison = paired_bootstrap(rows[-2][1], measured.first, metric, seed=seed)

    click.echo(f"{'':16}{metric.name.upper():>7}  95 % interval")
    for label, interval in intervals.items():
        click.echo(f"{label:16}{interval.score:7.2f}  {interval.low:.2f} .. {interval.high:.2f}")
    click.echo(f"{rows[-2][0]} against first as read: {comparison.difference.score:+.2f}, p = {comparison.p_value:.3f} (paired bootstrap)")
    click.echo("weights")
    for name, value in result.weights.items():
        click.echo(f"  {name:16} {value:10.6g}  {result.influence[name]:6.1%} of the decision")
    warn_of_oov(rescorer.oov, scorers, setup.texts)

    record = {
        "command": "attlm " + " ".join(sys.argv[1:]),
        "lists": len(lists),
        "hypotheses": sum(map(len, measured.features)),
        "metric": metric.signature(measured.references),
        **{label.replace(" ", "_").replace(",", ""): rounded(interval) for label, interval in intervals.items()},
        "seed": seed,
        "attlm": __version__,
        "lm": {scorer.name: scorer.signature() | {"text": text.signature()} for scorer, text in zip(scorers, setup.texts, strict=True)},
    }
    write_config(output, replace(setup.config, weights=result.weights), record)
    note(f"wrote {output}")


def lm_feature_names(setup: Setup, extra: tuple[str, ...]) -> list[str]:
    """What the LMs say besides their scores: the usual and what the user asks for. Raises InputError."""
    texts = setup.config.texts
    for name in extra:
        if not is_lm_feature(name, texts):
            raise InputError(f"--feature {name}: expected LM_oov, LM_tokens or LM_minus_LM; the LMs are {', '.join(texts) or 'none'}")
    return list(dict.fromkeys([*default_features(texts), *extra]))


def rounded(interval: Interval) -> list[float]:
    """Score and the ends of its interval, as written to the record."""
    return [round(value, 4) for value in (interval.score, interval.low, interval.high)]
