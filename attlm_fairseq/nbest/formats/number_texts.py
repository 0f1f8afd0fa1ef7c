"""Numbers as they are written in files."""

from __future__ import annotations

import math

from attlm_fairseq.errors import InputError, quoted, shortened
from attlm_fairseq.nbest.nbest_list import NbestList


def number(found: str, what: str, path: object, line: int) -> float:
    """Return a finite number.

    Raises:
        InputError: ``found`` is not a number, or is not finite.
    """
    if not is_written_number(found) or "_" in found:  # float() takes 1_000
        raise InputError(f"{shortened(what)} is {quoted(found)}: expected a number", path=path, line=line)
    value = float(found)
    if not math.isfinite(value):
        raise InputError(f"{shortened(what)} is {shortened(found.strip())}: expected a finite number", path=path, line=line)
    return value


def is_written_number(found: str) -> bool:
    """Return whether ``found`` is written as a number; nan and inf count, so that ``number`` can refuse them by name."""
    try:
        float(found)
    except ValueError:
        return False
    return True


def written(value: float, name: str, nbest: NbestList) -> str:
    """Return a score as ``decimal`` does. Raises InputError if it is not finite, since no reader would take it back."""
    if not math.isfinite(value):
        raise InputError(f"list {nbest.id}: the score {name} is {value}: only finite scores can be written")
    return decimal(value)


def decimal(value: float) -> str:
    """Return a number with 6 decimals, or 7 digits if it is so small that these would lose some of them."""
    text = f"{value:.6f}"
    if abs(value) < 0.1 and not math.isclose(float(text), value, rel_tol=1e-6):
        return f"{value:.7g}"
    return "0.000000" if text == "-0.000000" else text
