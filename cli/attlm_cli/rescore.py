"""``attlm rescore``: score the hypotheses with LMs, combine the scores, and put the best first."""

from __future__ import annotations

from dataclasses import replace

import click
import cloup

from attlm_cli.checks import check_source
from attlm_cli.decision_options import decision_options
from attlm_cli.metric_options import MetricChoice, metric_options
from attlm_cli.option_groups import given_option, grouped
from attlm_cli.options import format_option, list_source_options
from attlm_cli.printing import hypotheses_bar
from attlm_cli.run_options import run_options
from attlm_cli.shards import rescore_by_ray
from attlm_fairseq.errors import InputError
from attlm_fairseq.messages import note
from attlm_fairseq.nbest.run.config import RunConfig
from attlm_fairseq.verbs.decision_choice import DecisionChoice
from attlm_fairseq.verbs.lists import NbestFile
from attlm_fairseq.verbs.rescore import OF_WORDS, OUTPUTS, RescoreOutput, rescore
from attlm_fairseq.verbs.sources import SourceFile

output_options = grouped(
    "Output",
    "output",
    lambda output, to, resume: RescoreOutput(output, to, resume),
    cloup.option("-o", "--output", default="-", metavar="FILE", help="File to write; - is standard output (default). .gz compresses."),
    cloup.option(
        "--to",
        type=click.Choice(OUTPUTS, case_sensitive=False),
        default="same",
        show_default=True,
        help="What to write: the reordered lists in the same or another format, the 1-best texts, or words with "
        "confidences. espnet and srilm are folders, kaldi if FILE ends in / or the lists come from a folder. ctm is one file; sausage is "
        "a folder of confusion networks for SRILM.",
    ),
    cloup.option(
        "--resume/--no-resume",
        default=True,
        show_default=True,
        help="With -o FILE, keep the scores in FILE.unfinished until the run has finished. After an interruption "
        "the same command continues.",
    ),
)


@cloup.command("rescore")
@cloup.argument("nbest", help="N-best lists; - is standard input.")
@format_option
@output_options
@cloup.option(
    "--engine",
    type=click.Choice(["local", "ray"], case_sensitive=False),
    default="local",
    show_default=True,
    help="ray rescores many files: NBEST is a pattern or folder of files and -o a folder. Each of --devices "
    "becomes an actor of Ray Data, on this machine or a cluster.",
)
@list_source_options
@run_options(several_devices=True, candidates=True, lists=True)
@decision_options
@cloup.option(
    "--keep-incomplete",
    is_flag=True,
    help="Leave a list in its order, before any candidates, if one of its hypotheses lacks a score that has a weight. Without it, such "
    "a list ends the run.",
)
@metric_options(choice=False)
def rescore_command(
    nbest: str,
    format_name: str | None,
    output: RescoreOutput,
    engine: str,
    choice: DecisionChoice,
    keep_incomplete: bool,
    measured: MetricChoice,
    source: SourceFile | None,
    run: RunConfig,
) -> None:
    """Put the best hypothesis of each list of NBEST (- is standard input) first.

    The total of a hypothesis is a weighted sum of its LM scores (natural log, summed over words and sentence end), the
    scores in the list, its number of words and its rank. Each LM adds two features: LM_oov (number of words that it
    does not know) and LM_tokens (number of words or subwords that it sees). Any two LMs add LM_minus_LM. LMs and
    weights come from attlm.toml, as written by `attlm tune`, or from options. If an LM has a weight, and neither a
    score of the lists nor rank is given one (0 counts as given), the decoder's own score gets weight 1: the only score,
    or the one called decoder, score, total or systems_vote. With candidates it does not. The output has the format of
    the input plus one named score per LM.

    With --mbr, lists are sorted by expected loss, and the total written is minus this loss. With --consensus, the
    answer may be in no list, and has no scores: 1-best texts are written, or with --to lists of one hypothesis.

    Losses and votes compare texts after the steps of --metric-text. Its default is the steps that `attlm tune` has
    written to attlm.toml. Lists in subwords need join-subwords. With --metric-text lowercase, case is ignored but kept
    in the output. To measure rescored lists and write a report, use `attlm eval`.

    \b
    Examples:
      attlm rescore test.nbest > test.rescored
      attlm rescore 'shards/*.gz' -o rescored --engine ray --devices cpu:8
      attlm rescore test.json --lm lm.pt --weight lm=0.4 --weight am_score=1 --to 1best -o test.txt
    """
    metric = measured.of_decisions(run if choice.rule else RunConfig())
    run = choice.apply(run, metric, as_metric=given_option("bleu_tokenize") is not None, of_words=output.to in OF_WORDS)
    run = replace(run, decision=replace(run.decision, keep_incomplete=keep_incomplete))
    if run.decision.rule == "max" and (option := given_option("metric_text", "bleu_tokenize")):
        raise InputError(f"{option} is for --mbr or --consensus, none of which is given; to measure rescored lists use `attlm eval`")
    if run.decision.rule != "mbr-bleu" and (option := given_option("bleu_tokenize")):
        raise InputError(f"{option} is for --mbr bleu")
    if not run.lms and (option := given_option("context")):
        raise InputError(f"{option} is for LMs, and there are none: give --lm, --kenlm or --config")
    check_source(source.path if source else None, run, None)
    if engine == "ray":
        if source:
            raise InputError("--source is one file, --engine ray reads many: give lists that have their source sentences")
        rescore_by_ray(nbest, output, run, format_name)
        return
    with hypotheses_bar(nbest, format_name) as bar:
        found = rescore(NbestFile(nbest, format_name), config=run, source=source, output=output, on_progress=bar.update)
    note(found.summary)
