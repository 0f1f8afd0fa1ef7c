"""``attlm export``: export a checkpoint as a self-contained folder."""

from __future__ import annotations

from pathlib import Path

import click
import cloup

from attlm_cli.metric_options import once
from attlm_cli.option_groups import given_option
from attlm_cli.options import device_option, dictionary_option
from attlm_cli.printing import progress
from attlm_cli.types import STEPS
from attlm_fairseq.errors import InputError
from attlm_fairseq.messages import note
from attlm_fairseq.scoring.unknown_words.oov import warn_of_oov
from attlm_fairseq.text import TextPipeline, remarks


@cloup.command("export")
@cloup.argument("checkpoint", type=click.Path(path_type=Path), help="A checkpoint of fairseq-train.")
@cloup.argument("folder", type=click.Path(path_type=Path), help="The folder to write; it must not exist yet or be empty.")
@dictionary_option
@cloup.option("--ppl", "texts", multiple=True, metavar="FILE", help="A text whose perplexity the model card states. Repeatable.")
@cloup.option(
    "--text", "pipeline", type=STEPS, multiple=True, callback=once, help="Text steps for the --ppl texts, such as tokenize:en,lowercase."
)
@cloup.option("--card-text", metavar="TEXT", help="Markdown to add to the model card: training data, licence, contact.")
@device_option
def export_command(
    checkpoint: Path,
    folder: Path,
    dictionary: Path | None,
    texts: tuple[str, ...],
    pipeline: TextPipeline,
    card_text: str | None,
    device: str,
) -> None:
    """Write CHECKPOINT as a self-contained FOLDER: weights (safetensors), configuration, vocabulary, model card.

    --lm accepts such a folder instead of a checkpoint, with the same scores. Loading the folder never runs code from
    it.

    \b
    Example:
      attlm export checkpoints/checkpoint_best.pt news-lm --ppl test.txt --card-text "Trained on News Crawl 2024."
    """
    from attlm_fairseq.verbs.export import export_model

    if not texts and (option := given_option("pipeline", "device")):
        raise InputError(f"{option} is for --ppl: give it a text, or leave {option} out")

    for line in remarks([pipeline]):
        note(line)
    with progress("lines", None) as bar:
        unknown = export_model(
            checkpoint,
            folder,
            dictionary=dictionary,
            texts=texts,
            text=pipeline,
            card_text=card_text,
            device=device,
            on_progress=bar.update,
        )
    note(f"wrote {folder}")
    warn_of_oov(unknown)
