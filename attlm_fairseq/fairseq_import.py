"""Import fairseq in a program that is not one of its commands."""

from __future__ import annotations

import logging
import sys
import warnings


def import_fairseq() -> None:
    """Import fairseq, and leave the root logger and standard error as they are.

    One of fairseq's modules calls ``logging.basicConfig``, which does nothing where there is a handler. Others use
    ``torch.jit.script``, of which torch 2.14 warns.
    """
    handler = logging.NullHandler()
    logging.root.addHandler(handler)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=r"`torch\.jit\.script` is deprecated")
            import fairseq  # noqa: F401
    finally:
        logging.root.removeHandler(handler)


def is_command() -> bool:
    """Return whether this process runs one of fairseq's commands, such as fairseq-train."""
    return "fairseq_cli" in sys.modules
