"""``attlm ngram``: estimate an n-gram LM from text, with KenLM's lmplz."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import cloup

from attlm_fairseq.messages import note
from attlm_fairseq.scoring.ngrams.ngram_estimation import NgramOptions
from attlm_fairseq.verbs.ngram import estimate_ngram
from attlm_fairseq.verbs.overwriting import check_files


@cloup.command("ngram")
@cloup.argument("text", help="A text, one sentence per line; - is standard input.")
@cloup.option(
    "-o", "--output", required=True, type=click.Path(path_type=Path), help="Model file to write: .arpa, or .bin for KenLM's binary format."
)
@cloup.option("-n", "--order", default=3, show_default=True, help="Order of the model: length of its longest n-grams.")
@cloup.option("--discount-fallback", is_flag=True, help="Use fixed discounts if TEXT is too small to estimate them.")
@cloup.option(
    "--vocabulary-pad", type=click.IntRange(1), help="Divide p(<unk>) as if the vocabulary had this many types (lmplz --vocab_pad)."
)
@cloup.option("--skip-symbols", is_flag=True, help="Remove <s>, </s>, <unk> and <UNK> from TEXT instead of refusing it.")
@cloup.option(
    "--unk-in-text", is_flag=True, help="Count <unk> in TEXT as a word, as neural LMs do. Unknown words then get its probability."
)
@cloup.option("--memory", default=NgramOptions.memory, show_default=True, help="Memory that lmplz may use: 4G, 80%.")
def ngram_command(
    text: str,
    output: Path,
    order: int,
    **options: Any,
) -> None:
    """Estimate an n-gram LM with modified Kneser-Ney smoothing from TEXT, one sentence per line (- is standard input).

    KenLM's lmplz does the work. If it is not on PATH or next to Python, it is built once in the user's cache folder, which
    needs g++, cmake, make, pip and the network.

    \b
    Example:
      attlm ngram train.txt -o lm.arpa -n 4
    """
    check_files({"the text": [text]}, {"the output": output})
    report = estimate_ngram(text, output, order, NgramOptions(**options))
    note(f"wrote {output}: {report}")
