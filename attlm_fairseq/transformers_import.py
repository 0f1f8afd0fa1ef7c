"""Let transformers be imported next to a torchaudio that cannot be imported."""

from __future__ import annotations

import sys


def hide_broken_torchaudio() -> None:
    """Make a torchaudio that fails to load count as not installed: transformers imports it if it is found.

    fairseq-fixed brings torchaudio from PyPI, which needs CUDA libraries and fails next to a torch for CPUs.
    """
    try:
        import torchaudio  # noqa: F401
    except ImportError:
        pass
    except OSError:
        sys.modules["torchaudio"] = None  # type: ignore[assignment]  # None makes Python's import fail
