"""Where and how neural LMs compute: device, precision, memory. No torch here: a run with KenLM alone does not wait for it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from attlm_fairseq.errors import InputError

PRECISIONS = ("float32", "bfloat16")
DEFAULT_MEMORY = 1 << 30
SMALLEST_MEMORY = 128 << 20  # below, matrix products would be too narrow to be worth it
UNITS = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}


@dataclass(frozen=True)
class Compute:
    """``device`` as torch names it; ``memory``: bytes for scoring, beside the models and the lists."""

    device: str = "cpu"
    precision: str = "float32"
    memory: int = DEFAULT_MEMORY


DEFAULT_COMPUTE = Compute()


def parse_memory(text: str) -> int:
    """Bytes from ``500M``, ``2G``. Raises InputError."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([KMGT]?)(?:i?B)?", text.strip(), re.IGNORECASE)
    if not found:
        raise InputError(f"--memory {text!r}: expected a size such as 500M or 2G")
    size = int(float(found[1]) * (1 << UNITS[found[2].upper()]))
    if size < SMALLEST_MEMORY:
        raise InputError(f"--memory {text}: at least {SMALLEST_MEMORY >> 20}M are needed")
    return size
