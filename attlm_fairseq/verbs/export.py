"""Export a checkpoint as a self-contained folder: weights (safetensors), configuration, vocabulary and model card."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from attlm_fairseq.checkpoints.export import write_checkpoint_folder
from attlm_fairseq.checkpoints.reading import load_model, read_checkpoint
from attlm_fairseq.errors import InputError
from attlm_fairseq.files.folders import refuse_filled
from attlm_fairseq.scoring.neural.neural_scorer import NeuralScorer
from attlm_fairseq.scoring.perplexity import PerplexityCounter
from attlm_fairseq.scoring.text_file import ScoredText, score_text
from attlm_fairseq.scoring.unknown_words.oov import OOVCount
from attlm_fairseq.text import TextPipeline, text_pipeline
from attlm_fairseq.verbs.arguments import FilePath, text_lines


def export_model(
    checkpoint: FilePath,
    folder: FilePath,
    *,
    dictionary: FilePath | None = None,
    texts: Sequence[FilePath] = (),
    text: str | TextPipeline = "",
    card_text: str | None = None,
    device: str = "cpu",
    on_progress: Callable[[int], object] | None = None,
) -> list[OOVCount]:
    """Export a checkpoint of fairseq-train as a self-contained folder.

    The folder appears complete or not at all. Equal inputs give equal bytes.

    Args:
        checkpoint: a checkpoint of fairseq-train.
        folder: the folder to write; it must be empty or not exist.
        dictionary: ``dict.txt``; None to look next to the checkpoint and in its data folder.
        texts: files with one sentence per line; the card states the perplexity on each.
        text: text steps applied to ``texts``.
        card_text: Markdown to include in the card.
        device: ``cpu``, ``cuda`` or ``cuda:N``.
        on_progress: called with the number of lines scored since the last call.

    Returns:
        The unknown words of each text.

    Raises:
        InputError: a file cannot be used, or the folder is not empty.
    """
    checkpoint, folder = Path(checkpoint), Path(folder)
    dictionary = None if dictionary is None else Path(dictionary)
    if checkpoint.is_dir():
        raise InputError("is a folder; give a checkpoint of fairseq-train", path=checkpoint)
    if isinstance(texts, str | os.PathLike):
        raise InputError(f"the texts are {os.fspath(texts)!r}: expected a list of files")
    refuse_filled(str(folder))  # before the texts are scored
    content = read_checkpoint(checkpoint)
    trained = load_model(checkpoint, dictionary, content=content)
    steps = text_pipeline(text).load()
    scorers = [NeuralScorer([load_model(checkpoint, dictionary, device, content)], "the model")] if texts else []
    scored = [(Path(file).name, score_text(text_lines(file), scorers, [steps], on_progress)) for file in texts]
    measured = [(name, _counted(found)) for name, found in scored]
    write_checkpoint_folder(folder, trained, content, checkpoint, measured=measured, steps=steps.signature(), text=card_text)
    return [count for _, found in scored for count in found.oov]


def _counted(text: ScoredText) -> PerplexityCounter:
    """Return the perplexities of a text, whose lines are scored as they are read."""
    counter = PerplexityCounter()
    for line in text.lines:
        counter.add(line.scores[0])
    return counter
