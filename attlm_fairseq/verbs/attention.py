"""Show which earlier states a neural LM reads for each prediction."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from attlm_fairseq.attention.comparison import Comparison
from attlm_fairseq.attention.contributions import require_lstm
from attlm_fairseq.attention.output import AttentionOutput
from attlm_fairseq.attention.show import Shower
from attlm_fairseq.errors import InputError
from attlm_fairseq.messages import note
from attlm_fairseq.nbest.run.config import RunConfig
from attlm_fairseq.scoring.lm_spec import LMSpec
from attlm_fairseq.scoring.neural.neural_scorer import NeuralScorer
from attlm_fairseq.scoring.unknown_words.oov import warn_of_oov
from attlm_fairseq.text import remarks
from attlm_fairseq.verbs.arguments import FilePath, OnProgress, text_lines
from attlm_fairseq.verbs.configuration import LM, lm_spec, run_config


def show_attention(
    sentence: str | None,
    lms: Mapping[str, LM] | None = None,
    *,
    file: FilePath | None = None,
    against: LM | None = None,
    config: RunConfig | FilePath | None = None,
    output: AttentionOutput | None = None,
    on_progress: OnProgress = None,
) -> None:
    """Show which earlier states one neural LM reads for each prediction of a sentence, or on average over a text.

    Args:
        sentence: the sentence; None if ``file`` is given.
        lms: one neural LM with one checkpoint, by name.
        file: a text to analyse instead of a sentence, one sentence per line (``-`` is standard input). The weights are
            averaged by distance.
        against: another LM, of the same words. The sentences of ``file`` whose perplexity is lowest relative to that of
            this LM are printed, and get the heat maps.
        config: the LM and its text steps: a RunConfig or the path of an ``attlm.toml``.
        output: what to write. Default: a table on standard output.
        on_progress: called with the number of lines finished since the last call.

    Raises:
        InputError: there is not exactly one neural LM, the model has no memory (or, with contributions, no LSTM), a
            file cannot be written in this form, ``against`` is given without ``file``, or a sentence with it.
    """
    if sentence is not None and file is not None:
        raise InputError("a sentence and a file are given: expected one of them")
    output, run = output or AttentionOutput(("-",)), run_config(config, lms=lms)
    lm = _the_lm(run)
    text = (run.text if lm.text is None else lm.text).load()
    for line in remarks([text]):
        note(line)
    # none of these changes the attention of single sentences
    scorer = replace(lm, neural_cache=None, unigram_cache=None, adapt=None, context_sentences=None).load(run.device)
    if not isinstance(scorer, NeuralScorer):
        raise InputError(f"{lm.name} has no attention weights: give a neural LM of this package")
    [trained] = scorer.models
    if output.contributions:
        require_lstm(trained)
    compared = None
    if against is not None:
        if file is None:
            raise InputError("another LM to compare with is for a text: give --file TEXT, not a sentence")
        compared = Comparison(lm_spec("against", against).load(run.device), output.examples)
    files = [os.fspath(name) for name in output.files]
    shower = Shower(trained, text, files, output.threshold, output.echo, output.marked, output.contributions, compared)
    if file is not None:
        oov = shower.show_text(text_lines(file), output.examples, on_progress)
    else:
        oov = shower.show_sentence(sentence or "")
    warn_of_oov([oov])


def _the_lm(run: RunConfig) -> LMSpec:
    """Return the one neural LM with one checkpoint.

    Raises InputError if there is none, or if there are more checkpoints.
    """
    neural = [lm for lm in map(LMSpec.unpacked, run.lms) if lm.kenlm is None and not lm.mixture]
    if not neural:
        given = f"; an n-gram LM ({run.lms[0].name}) has no attention weights" if run.lms else ""
        raise InputError(f"no neural LM given: use --lm CHECKPOINT{given}")
    checkpoints = [str(checkpoint) for lm in neural for checkpoint in lm.checkpoints or (Path(lm.name),)]
    if len(checkpoints) > 1:
        raise InputError(
            f"the attention of one model is shown, {len(checkpoints)} are given: choose one with --lm, such as --lm {checkpoints[0]}"
        )
    return neural[0]
