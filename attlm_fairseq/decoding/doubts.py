"""Warnings of language models that a decoder's tokens do not fit: other units, another case, another alphabet."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice

from attlm_fairseq.decoding.stateful_lm import StatefulLM
from attlm_fairseq.errors import InputError
from attlm_fairseq.messages import note
from attlm_fairseq.scoring.ngrams.kenlm import KenLM
from attlm_fairseq.scoring.ngrams.kenlm_files import read_ngram_counts
from attlm_fairseq.text.subwords import SUBWORD_STYLES, recognise_style

FITTING_SHARE = 0.1  # of the decoder's entries: a lexicon may be much larger than an LM
OWN_SHARE = 0.25  # of the LM's words: a lexicon may be much smaller than an LM


def name_of(lm: StatefulLM) -> str:
    """Return the file of an LM, or what it is."""
    return str(getattr(lm, "path", type(lm).__name__))


def words_of(lm: StatefulLM) -> Sequence[str] | None:
    """Return the words of an LM; None if it cannot list them, or only by reading a file."""
    if isinstance(lm, KenLM):
        return None
    try:
        return lm.words()
    except InputError:
        return None


def warn_of_unknown(lm: StatefulLM, symbols: Sequence[str], known: int) -> None:
    """Warn if an LM knows few of the ``symbols`` that a decoder looks up. ``known`` is how many it knows.

    If these are many of the LM's own words, there is no warning: the lexicon is larger than the LM.
    """
    if not symbols or known >= FITTING_SHARE * len(symbols):
        return
    if isinstance(lm, KenLM):
        size = read_ngram_counts(lm.path)[0]
    else:
        size = len(words) if (words := words_of(lm)) is not None else 0
    if known and known >= OWN_SHARE * size:
        return
    shown = ", ".join(repr(symbol) for symbol in islice((symbol for symbol in symbols if not lm.knows(symbol)), 5))
    note(
        f"WARNING: {name_of(lm)} knows {known} of the decoder's {len(symbols)} entries, and not {shown}: do units (words, subwords, "
        "letters) and case match its training text?"
    )


def warn_of_subword_lm(lm: StatefulLM, words: Sequence[str]) -> None:
    """Warn if an LM that is used as one of words has ``words`` with the marks of subwords."""
    if (style := recognise_style(words)) is not None:
        marked = next(word for word in words if SUBWORD_STYLES[style].marks(word))
        note(
            f"WARNING: {name_of(lm)} is used as an LM of words, but its words are subwords, such as {marked!r}: give LogLinearLM(.., "
            "segment=[..]), which splits words as its training text was, or use its tokens as the decoder's"
        )


def warn_of_spelling(lm: StatefulLM, words: Sequence[str], texts: Iterable[bytes | None]) -> None:
    """Warn if the texts of a decoder's tokens can spell few of an LM's words, given in UTF-8."""
    alphabet = {byte for text in texts if text is not None for byte in text}
    unspelled = [word for word in words if not alphabet.issuperset(word.encode("utf-8", "surrogateescape"))]
    spelled = len(words) - len(unspelled)
    if words and spelled < FITTING_SHARE * len(words):
        shown = ", ".join(map(repr, unspelled[:5]))
        note(
            f"WARNING: the decoder's tokens can spell {spelled} of the {len(words)} words of {name_of(lm)}, and not {shown}: "
            "do case and script match (token_texts(.., lowercase=True))?"
        )
