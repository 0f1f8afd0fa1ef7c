"""Import fairseq in a program that is not one of its commands."""

from __future__ import annotations

import logging
import sys


def import_fairseq() -> None:
    """Import fairseq and leave the root logger as it is.

    One of fairseq's modules calls ``logging.basicConfig``, which does nothing where there is a handler.
    """
    handler = logging.NullHandler()
    logging.root.addHandler(handler)
    try:
        import fairseq  # noqa: F401
    finally:
        logging.root.removeHandler(handler)


def is_command() -> bool:
    """Return whether this process runs one of fairseq's commands, such as fairseq-train."""
    return "fairseq_cli" in sys.modules
