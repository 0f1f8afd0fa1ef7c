"""``attlm mix``: the weights of a linear mixture of LMs, by EM on a text, written to attlm.toml."""

from __future__ import annotations

import math
from array import array
from dataclasses import replace
from pathlib import Path

import click
import numpy as np

from attlm_cli.options import (
    Setup,
    config_output_option,
    lm_options,
    note,
    progress,
    say_notes,
    this_command,
    warn_of_oov,
    warn_of_penalties,
    warn_of_unused,
    worth_counting,
)
from attlm_cli.overwriting import check_outputs
from attlm_fairseq import __version__
from attlm_fairseq.errors import InputError
from attlm_fairseq.nbest.run.block_scores import BlockScorer
from attlm_fairseq.nbest.run.config import RunConfig
from attlm_fairseq.nbest.run.config_file import write_config
from attlm_fairseq.scoring.lm_spec import LMSpec, check_name
from attlm_fairseq.scoring.mixture import ENOUGH, em_weights, mix
from attlm_fairseq.scoring.oov_policy import UNK
from attlm_fairseq.scoring.perplexity import perplexity
from attlm_fairseq.scoring.text_file import count_lines, score_text


@click.command("mix")
@click.argument("text")
@click.option("--name", default="mix", show_default=True, help="Of the mixture.")
@config_output_option
@lm_options
def mix_command(text: str, name: str, output: Path, setup: Setup) -> None:
    """Find the weights of a linear mixture of the LMs, p(w | h) = sum of weight * p_lm(w | h), and write them to attlm.toml.

    The weights are those under which TEXT (- is standard input; a sentence a line, not one of those that the LMs were
    trained on) is most probable: EM, until no weights could be better by a millionth of the perplexity. Printed are the
    perplexity of each LM, then perplexity and weights of iterations 0, 1, 2, 4, 8 and so on and of the last. From then on
    the mixture takes the place of its LMs in attlm.toml.

    Words unknown to all LMs do not count for the weights where an LM has the OOV policy unk: what one LM gives to all
    unknown words together and another to each is not comparable. Nor do they for the perplexities of the iterations, which
    therefore never rise; all others are of all words.

    \b
    Example:
      attlm mix valid.txt --lm neural=checkpoint_best.pt --kenlm ngram=lm.arpa
    """
    check_outputs({"the output": output}, {"the text": [text]}, setup.config)
    warn_of_unused(output, setup.config, found=(f"[lm.{name}]",))
    mixture, config = with_mixture(setup.config, check_name(name))
    estimated = replace(mixture, oov=UNK)  # the mixture's own policy has no effect on the weights
    mixed = replace(setup, config=RunConfig((*(lm for lm in config.lms if not lm.mixture), estimated), config.text))
    (scorer,) = mixed.load()
    members = scorer.members
    log_probs = [array("d") for _ in members]
    unknown = array("b")  # of each event, whether no LM knows it
    disputed = words = 0
    with progress("lines", count_lines(text) if worth_counting(text) else None) as bar:
        result = score_text(text, members, mixed.texts * len(members), bar.update)
        for line in result.lines:
            for values, score in zip(log_probs, line.scores, strict=True):
                values.extend(score.log_probs)
            words += line.scores[0].words
            flags_of_words = list(zip(*(score.oov for score in line.scores), strict=True))
            disputed += sum(any(flags) and not all(flags) for flags in flags_of_words)
            unknown.extend([*map(all, flags_of_words), False])
    matrix = np.array(log_probs)
    infinite = next((member.name for member, values in zip(members, matrix, strict=True) if not np.isfinite(values).all()), None)
    if infinite:
        raise InputError(f"{infinite} gives a word of the text probability 0: it cannot be mixed", path=text)

    alone = {member.name: perplexity(float(values.sum()), len(values)) for member, values in zip(members, matrix, strict=True)}
    click.echo("lm\tppl")
    for member, ppl in alone.items():
        click.echo(f"{member}\t{ppl:.4f}")
    click.echo("\t".join(["iteration", "ppl", *alone]))
    as_unk = any(lm.oov.kind == "unk" for lm in config.lms if lm.name in alone)
    counted = ~np.array(unknown, dtype=bool) if as_unk else np.ones(matrix.shape[1], dtype=bool)
    steps = list(em_weights(matrix[:, counted]))
    step, last = steps[-1], len(steps) - 1
    for number in sorted({0, last, *(1 << k for k in range(last.bit_length()))}):
        click.echo("\t".join([str(number), f"{steps[number].ppl:.4f}", *(f"{weight:.6f}" for weight in steps[number].weights)]))
    of_mixture = perplexity(float(mix(matrix, step.weights).sum()), matrix.shape[1])
    say_notes(members)
    warn_of_oov(result.oov, BlockScorer(members, mixed.texts * len(members)).advise)
    warn_of_penalties(setup)
    if step.gap >= ENOUGH:
        note(
            f"WARNING: EM ended after {last} iterations and before it found the best weights: their perplexity may be lower by up to "
            f"{-100 * math.expm1(-step.gap):.2g} %"
        )
    left_out = int((~counted).sum())
    if left_out:
        note(
            f"note: {left_out} of {words} words are unknown to all LMs: they count neither for the weights nor for the iterations' "
            f"perplexities, but for those of the LMs and of {name}, {of_mixture:.4f}. With --oov spread:TYPES for all LMs they would count"
        )
    if disputed and as_unk:
        note(
            f"WARNING: {disputed} of {words} words are unknown to some of the LMs only: there p(<unk>), which stands for many words, is "
            "mixed with the probability of one. --oov spread:TYPES shares it among the unseen words"
        )

    weights = tuple((member, round(float(weight), 6)) for member, weight in zip(alone, step.weights, strict=True))
    record = {
        "command": this_command(),
        "text": text,
        "words and sentence ends": matrix.shape[1],
        **({"unknown to all LMs, left out of the estimation": left_out} if left_out else {}),
        "ppl": {member: round(ppl, 4) for member, ppl in alone.items()} | {name: round(of_mixture, 4)},
        "iterations": last,
        "attlm": __version__,
        "lm": {member.name: member.signature() for member in members},
    }
    lms = tuple(replace(lm, mixture=weights) if lm.name == name else lm for lm in config.lms)
    write_config(output, replace(config, lms=lms), record, "mixing")
    note(f"wrote {output}; a mixture takes the place of its LMs: tune its weight with `attlm tune`")


def with_mixture(config: RunConfig, name: str) -> tuple[LMSpec, RunConfig]:
    """The mixture of all LMs, equal weights, and the configuration with it and without its members' weights. Raises InputError."""
    members = [lm for lm in config.lms if not lm.mixture]
    if len(members) < 2:
        raise InputError(f"a mixture needs two LMs or more, there are {len(members)}: use --lm and --kenlm, each as often as needed")
    old = next((lm for lm in config.lms if lm.name == name), LMSpec(name))
    if old in members:
        raise InputError(f"{name!r} is one of the LMs already: name the mixture with --name")
    mixture = replace(old, mixture=tuple((lm.name, 1.0) for lm in members))
    others = tuple(lm for lm in config.lms if lm.name != name)
    kept = {key: value for key, value in config.weights.items() if key not in {lm.name for lm in members}}
    return mixture, replace(config, lms=(*others, mixture), weights=kept)
