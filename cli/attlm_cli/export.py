"""``attlm export``: a checkpoint as a self-contained folder."""

from __future__ import annotations

from pathlib import Path

import click

from attlm_cli.options import note, progress, warn_of_oov
from attlm_fairseq.export import export_model
from attlm_fairseq.scoring.compute import parse_device
from attlm_fairseq.text import parse_steps, remarks


@click.command("export")
@click.argument("checkpoint", type=click.Path(path_type=Path))
@click.argument("folder", type=click.Path(path_type=Path))
@click.option(
    "--dict",
    "dictionary",
    type=click.Path(path_type=Path),
    help="dict.txt of the model. Default: beside the checkpoint, then its data folder.",
)
@click.option("--ppl", "texts", multiple=True, metavar="FILE", help="State the perplexity on this text in the card. Repeatable.")
@click.option(
    "--text", "steps", metavar="STEP,..", help="What those texts go through first, as in attlm ppl: tokenize:en,lowercase and others."
)
@click.option("--card-text", metavar="TEXT", help="What else the card should say: training data, licence, whom to ask. Markdown.")
@click.option("--device", default="cpu", show_default=True, help="Where the perplexities are computed: cpu, cuda, cuda:1.")
def export_command(
    checkpoint: Path,
    folder: Path,
    dictionary: Path | None,
    texts: tuple[str, ...],
    steps: str | None,
    card_text: str | None,
    device: str,
) -> None:
    """Write CHECKPOINT as a FOLDER that needs nothing else: weights (safetensors), configuration, vocabulary, card.

    FOLDER must not exist yet or be empty. Wherever --lm takes a checkpoint it takes such a folder, with the same scores; loading it
    runs no code.

    \b
    Example:
      attlm export checkpoints/checkpoint_best.pt news-lm --ppl test.txt --card-text "Trained on News Crawl 2024."
    """
    device = parse_device(device)
    pipeline = parse_steps(steps.split(",") if steps else ())
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
