"""Attention as one HTML file, without scripts, fonts or other files, for light and dark screens."""

from __future__ import annotations

from collections.abc import Sequence

from attlm_fairseq.attention.distance import DistanceProfile
from attlm_fairseq.attention.figures import cell_text, summary
from attlm_fairseq.attention.highlight import highlights, printable
from attlm_fairseq.attention.weights import SentenceAttention
from attlm_fairseq.templates import load_template


def page(
    lm: str,
    sentences: Sequence[tuple[str, SentenceAttention]],
    threshold: float | None = None,
    profile: DistanceProfile | None = None,
    chosen: str = "the first",
) -> str:
    """Return the page.

    Args:
        lm: the name of the model.
        sentences: a heading, possibly empty, and the attention of each sentence, which is shown as a heat map.
        threshold: also show the text with the words highlighted that a prediction reads with at least this weight.
        profile: attention by distance, shown first.
        chosen: how the sentences were chosen.
    """
    template = load_template(
        "attlm_fairseq.attention",
        "attention.html",
        cell=cell_text,
        highlights=highlights,
        printable=printable,
        strength=lambda weight: max(0.0, weight) ** 0.5,  # the square root, as in the pictures
        summary=summary,
    )
    return template.render(
        lm=lm,
        sentences=sentences,
        threshold=threshold,
        profile=profile,
        chosen=chosen,
        largest=max((max(row.mean, row.equal) for row in profile.rows()), default=1.0) if profile else 1.0,
        any_unknown=any(any(attention.oov) for _, attention in sentences),
    )
