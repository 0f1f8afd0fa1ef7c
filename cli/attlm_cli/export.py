"""``attlm export``: a checkpoint as a self-contained folder."""

from __future__ import annotations

from pathlib import Path

import click
import cloup

from attlm_cli.options import device_option, dictionary_option
from attlm_cli.printing import progress
from attlm_cli.types import STEPS
from attlm_fairseq.messages import note, warn_of_oov
from attlm_fairseq.text import TextPipeline, remarks


@cloup.command("export")
@cloup.argument("checkpoint", type=click.Path(path_type=Path), help="A checkpoint of fairseq-train.")
@cloup.argument("folder", type=click.Path(path_type=Path), help="The folder to write; it must not exist yet or be empty.")
@dictionary_option
@cloup.option("--ppl", "texts", multiple=True, metavar="FILE", help="State the perplexity on this text in the card. Repeatable.")
@cloup.option(
    "--text", "pipeline", type=STEPS, default=TextPipeline(), help="What those texts go through first: tokenize:en,lowercase and others."
)
@cloup.option("--card-text", metavar="TEXT", help="What else the card should say: training data, licence, whom to ask. Markdown.")
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
    """Write CHECKPOINT as a FOLDER that needs nothing else: weights (safetensors), configuration, vocabulary, card.

    FOLDER must not exist yet or be empty. Wherever --lm takes a checkpoint it takes such a folder, with the same
    scores; loading it runs no code.

    \b
    Example:
      attlm export checkpoints/checkpoint_best.pt news-lm --ppl test.txt --card-text "Trained on News Crawl 2024."
    """
    from attlm_fairseq.verbs.export import export_model

    for line in remarks([pipeline]):
        note(line)
    with progress("lines", None) as bar:
        unknown = export_model(
            checkpoint,
            folder,
            dictionary=dictionary,
            texts=texts,
            pipeline=pipeline,
            card_text=card_text,
            device=device,
            on_progress=bar.update,
        )
    note(f"wrote {folder}")
    warn_of_oov(unknown)
