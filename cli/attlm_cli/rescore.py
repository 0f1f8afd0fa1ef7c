"""``attlm rescore``: score the hypotheses with the LMs, add up, put the best first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import click

from attlm_cli.decision_options import decision_options, warn_of_scale
from attlm_cli.options import (
    Setup,
    complete_weights,
    format_option,
    given_option,
    lm_options,
    metric_options,
    note,
    progress,
    warn_of_oov,
    warn_of_unseen,
    worth_counting,
)
from attlm_cli.overwriting import check_outputs
from attlm_fairseq.errors import InputError
from attlm_fairseq.files import is_stream
from attlm_fairseq.nbest.decision.decision import Decision, decide
from attlm_fairseq.nbest.features.combination import COMPUTED
from attlm_fairseq.nbest.formats import ONE_BEST_STYLES, find_format, open_nbest, write_nbest, write_one_best
from attlm_fairseq.nbest.metrics import Metric
from attlm_fairseq.nbest.nbest_list import NbestList
from attlm_fairseq.nbest.run.config import RunConfig
from attlm_fairseq.nbest.run.ray_engine import find_shards, rescore_shards
from attlm_fairseq.nbest.run.rescoring import Rescorer
from attlm_fairseq.nbest.run.score_cache import ScoreCache
from attlm_fairseq.scoring.compute import DeviceConfig
from attlm_fairseq.text.subwords import SubwordMarks

CONVERTIBLE = ("jsonl", "moses", "plain", "kaldi")  # the formats that can hold lists read from another one
OUTPUTS = ("same", *CONVERTIBLE, *(f"1best-{style}" if style != "text" else "1best" for style in ONE_BEST_STYLES))


@click.command("rescore")
@click.argument("nbest")
@click.option("-o", "--output", default="-", metavar="FILE", help="Where to write; - is standard output (default). .gz compresses.")
@format_option
@click.option("--to", type=click.Choice(OUTPUTS), default="same", show_default=True, help="The lists reordered, or the first texts.")
@click.option(
    "--weight", multiple=True, metavar="NAME=NUMBER", help="Weight of an LM, a score of the lists, words, rank, LM_oov, .. Repeatable."
)
@click.option(
    "--resume/--no-resume",
    default=True,
    show_default=True,
    help="Keep the scores of a run with -o in FILE.unfinished until it has finished; after an interruption the same command continues.",
)
@click.option(
    "--engine",
    type=click.Choice(["local", "ray"]),
    default="local",
    show_default=True,
    help="ray: NBEST is a pattern or folder of files, -o a folder; each of --devices is an actor of Ray Data, here or on a cluster.",
)
@decision_options
@partial(metric_options, choice=False)
@lm_options
def rescore_command(
    nbest: str,
    output: str,
    format_name: str | None,
    to: str,
    weight: tuple[str, ...],
    resume: bool,
    engine: str,
    decide_by: Callable[[Decision, Metric], Decision],
    metric: Metric,
    setup: Setup,
) -> None:
    """Put the best hypothesis of each list of NBEST (- is standard input) first.

    A hypothesis' total is the weighted sum of its LM scores (natural log, summed over words and sentence end), the
    scores it came with, its number of words and its rank. Of each LM there are two more features, LM_oov (words that it
    does not know) and LM_tokens (words or subwords that it sees), and of any two LM_minus_LM. LMs and
    weights come from attlm.toml, as written by `attlm tune`, or from options. The output has the format of the
    input, with one named score per LM added.

    With --mbr the total written is minus the expected loss, by which the list is then sorted. With --consensus the answer may be a text
    that is not in the list, so that first texts alone can be written. Losses and votes are over the text as --metric-text makes it, else as
    the steps that `attlm tune` has written to attlm.toml do: lists in subwords need join-subwords, and a consensus is written
    as after these steps, in words. With --metric-lowercase they ignore case; what is written keeps it. `attlm eval` measures
    rescored lists and writes the report.

    \b
    Examples:
      attlm rescore test.nbest > test.rescored
      attlm rescore 'shards/*.gz' -o rescored --engine ray --devices cpu:8
      attlm rescore test.json --lm lm.pt --weight lm=0.4 --weight am_score=1 --to 1best -o test.txt
    """
    weights, features = complete_weights(setup, weight)
    decision = decide_by(setup.config.decision, metric)
    if decision.rule == "max" and (option := given_option("metric_lowercase", "metric_text", "bleu_tokenize")):
        raise InputError(f"{option} is for --mbr or --consensus, none of which is given; to measure rescored lists use `attlm eval`")
    if engine == "ray":
        rescore_by_ray(nbest, output, to, replace(setup.config, weights=weights, decision=decision), setup.computes, format_name)
        return
    if decision.makes_text and not to.startswith("1best"):
        if to != "same":
            raise InputError(f"--to {to}: a consensus is a text that need not be in the list; write first texts with --to 1best")
        to = "1best"
    check_outputs({"the output": output}, {"the input": [nbest], "the configuration": [setup.config.path]}, setup.config)
    total = sum(len(found.hypotheses) for found in open_nbest(nbest, format_name)[1]) if worth_counting(nbest) else None
    fmt, lists = open_nbest(nbest, format_name)
    lm_names = [lm.name for lm in setup.config.scored]
    # in sparse lists a feature may be missing, but not from all of them
    unseen = {name for name, value in weights.items() if value} - {*lm_names, *features, *COMPUTED}
    marks = SubwordMarks(decision.text)
    counts = {"lists": 0, "hypotheses": 0, "changed": 0, "new": 0}
    target = fmt if to == "same" or to.startswith("1best") else find_format(to)
    if not target.has_scores and not to.startswith("1best"):
        note(f"note: {target.name} has no place for scores: only the order of the hypotheses changes")
    with (
        setup.workers(features, needed=not weights and decision.rule == "max") as workers,
        progress("hypotheses", total) as bar,
    ):
        cache = open_cache(output if resume else "-", setup, features)
        rescorer = Rescorer(workers, bar.update, cache)

        def counted() -> Iterator[NbestList]:
            for scored in rescorer.score(lists):
                found = decide(scored, weights, decision)
                if not counts["lists"]:
                    names = dict.fromkeys(name for hypothesis in scored.hypotheses for name in hypothesis.scores)
                    say_formula(weights, list(names), decision)
                    warn_of_scale(decision, setup.config, weights)
                marks.add(scored.hypotheses[0].text)
                unseen.difference_update(*(hypothesis.scores for hypothesis in scored.hypotheses if unseen))
                counts["lists"] += 1
                counts["hypotheses"] += len(scored.hypotheses)
                answer, first = found.hypotheses[0], scored.hypotheses[0]
                counts["changed"] += answer.rank != first.rank and answer.text != first.text  # as the report counts
                counts["new"] += answer.rank == 0
                yield found

        if to.startswith("1best"):
            write_one_best(counted(), output, style=to.removeprefix("1best").removeprefix("-") or "text")
        else:
            write_nbest(counted(), target, output)
        cache.finish()
        warn_of_oov(rescorer.oov.values(), workers.advise)
    for line in rescorer.notes.values():
        note(line)
    if decision.rule != "max" and (warning := marks.warning_of_decision(decision.rule)):
        note(warning)
    warn_of_unseen(unseen)
    said = f"{counts['changed']} changed (their first text is another), {counts['lists'] - counts['changed']} as read"
    if decision.makes_text:
        said += f"; {counts['new']} texts in no list: the words' votes made them"
    note(f"{counts['lists']} lists, {counts['hypotheses']} hypotheses; {said}")


def rescore_by_ray(pattern: str, output: str, to: str, config: RunConfig, devices: Sequence[DeviceConfig], format_name: str | None) -> None:
    """Rescore each of many files into a folder and say what became of them. Raises InputError if there is nothing to do it with."""
    if to != "same":
        raise InputError(f"--to {to}: with --engine ray lists are written in the format of their file")
    if is_stream(output) and not Path(output).is_dir():
        raise InputError("--engine ray writes a file for each shard: give a folder for the rescored shards with -o")
    files = find_shards(pattern)
    shards = rescore_shards(files, Path(output), config, devices[0], concurrency=len(devices), format_name=format_name)
    for shard in shards:
        for line in shard.notes:
            note(f"{shard.path}: {line}")
    errors = [shard.error for shard in shards if shard.error]
    there = f"{len(files) - len(shards)} were there already" if len(shards) < len(files) else ""
    done = f"{len(shards) - len(errors)} files rescored, {sum(shard.lists for shard in shards)} lists"
    note("; ".join(filter(None, [done, there])))
    for error in errors[:-1]:
        note(f"attlm: error: {error}")
    if errors:
        raise InputError(errors[-1])


def open_cache(output: str, setup: Setup, features: Iterable[str]) -> ScoreCache:
    """Return the cache of the LMs' scores and these features next to the output file; none for standard output, devices and pipes."""
    settings = {"precision": setup.compute.precision, "memory": setup.compute.memory, "device": setup.compute.device.partition(":")[0]}
    return ScoreCache.of_output(output, settings | {"features": sorted(features)}, note)


def say_formula(weights: dict[str, float], scores: list[str], decision: Decision) -> None:
    """What is added up and how it decides, and what of the list's own scores is left out."""
    terms = " + ".join(f"{value:g} {name}" for name, value in weights.items() if value)
    if decision.rule == "max":
        note(f"total = {terms}" if terms else "all weights are 0: the lists stay as they are")
    else:
        note((f"total = {terms}" if terms else "all weights are 0") + f"; decision: {decision}")
    if terms and scores and not any(weights.get(name) for name in [*scores, "rank"]):
        note(f"WARNING: none of the lists' own scores ({', '.join(scores)}) has a weight: the LMs decide alone")
