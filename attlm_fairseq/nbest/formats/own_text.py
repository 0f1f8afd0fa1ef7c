"""The text that a list and its hypotheses have in the file that they were read from."""

from __future__ import annotations

from attlm_fairseq.nbest.nbest_list import Hypothesis, NbestList
from attlm_fairseq.nbest.verbatim import HypothesisText, ListText


def text_of(nbest: NbestList, format_name: str) -> ListText | None:
    """Return the list's verbatim text if it was read in this format."""
    verbatim = nbest.verbatim
    return verbatim if verbatim is not None and verbatim.file.format == format_name else None


def own_text(nbest: NbestList, format_name: str) -> ListText:
    """Return the list's verbatim text, for formats that write only what they have read.

    Raises:
        InputError: the list was not read from this format.
    """
    text = text_of(nbest, format_name)
    if text is None:
        message = f"only a list that was read from {format_name}, with its id, texts and scores unchanged, can be written as {format_name}"
        raise nbest.error(f"list {nbest.id}: {message}; write jsonl instead")
    return text


def text_of_hypothesis(nbest: NbestList, hypothesis: Hypothesis) -> HypothesisText:
    """Return the hypothesis' verbatim text, for the formats that write only what they have read."""
    if hypothesis.verbatim is None:
        raise nbest.error(f"list {nbest.id}: hypothesis {hypothesis.rank} was not read from this file; write jsonl instead")
    return hypothesis.verbatim


def place_of(nbest: NbestList, hypothesis: Hypothesis) -> int:
    """Return the place of a hypothesis among those of its list as read, from 0."""
    return text_of_hypothesis(nbest, hypothesis).place


def is_own(hypothesis: Hypothesis) -> bool:
    """Return whether a hypothesis was read with its list. Of an expanded list, some were not."""
    return hypothesis.verbatim is not None


def is_as_read(nbest: NbestList, text: ListText) -> bool:
    """Return whether a list is still what its text says."""
    hypotheses = nbest.hypotheses
    in_order = all(is_own(hypothesis) and place_of(nbest, hypothesis) == place for place, hypothesis in enumerate(hypotheses))
    return in_order and len(hypotheses) == text.size and not any(is_rescored(one) or added_scores(one) for one in hypotheses)


def added_scores(hypothesis: Hypothesis) -> dict[str, float]:
    """Return the scores that a hypothesis has got since it was read; a new hypothesis has got all."""
    known = () if hypothesis.verbatim is None else hypothesis.verbatim.names
    if len(known) == len(hypothesis.scores):
        return {}
    return {name: score for name, score in hypothesis.scores.items() if name not in known}


def is_rescored(hypothesis: Hypothesis) -> bool:
    """Return whether there is anything to write that was not read."""
    return bool(hypothesis.lm_scores) or hypothesis.total is not None
