"""``attlm cloze``: answer a cloze test with LMs."""

from __future__ import annotations

import cloup

from attlm_cli.option_groups import given_option
from attlm_cli.options import json_option, seed_option
from attlm_cli.printing import echo_json, echo_table, progress
from attlm_cli.run_options import run_options
from attlm_cli.types import WEIGHT
from attlm_fairseq.errors import InputError
from attlm_fairseq.nbest.run.config import RunConfig
from attlm_fairseq.verbs.cloze import answer_cloze


@cloup.command("cloze")
@cloup.argument("questions", help="Questions in the format of the Children's Book Test; - is standard input.")
@cloup.option(
    "--weight", "weights", multiple=True, type=WEIGHT, help="Weight of an LM. Adds a row for the weighted sum of all LMs. Repeatable."
)
@seed_option
@json_option
@run_options(own_context=True)
def cloze_command(questions: str, weights: tuple[tuple[str, float], ...], seed: int, as_json: bool, run: RunConfig) -> None:
    """Answer QUESTIONS (- is standard input) with each LM: which candidate makes the query most probable after its context?

    \b
    The format is that of the Children's Book Test:
      1 the first sentence of the context
      ..
      21 the query with XXXXX <TAB> answer <TAB><TAB> candidate|candidate|..

    The whole query is scored. LMs carry state, memory and caches over the context; --context-sentences limits it. If
    several candidates are equally probable, such as words that the LM does not know, the answer counts as 1 divided by
    their number. `attlm blank` makes questions of a text.

    \b
    Example:
      attlm cloze questions.txt --lm checkpoint_best.pt --kenlm lm.arpa --unigram-cache kenlm=500:0.1
    """
    if given_option("context"):
        raise InputError("--context is for texts and lists: each cloze question has its own context, which --context-sentences limits")
    with progress("questions", None) as bar:
        found = answer_cloze(questions, config=run, weights=dict(weights), seed=seed, on_progress=bar.update)
    if as_json:
        echo_json(found.as_dict())
    else:
        echo_table(found)
