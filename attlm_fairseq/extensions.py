"""What other installed packages add to this one: they name it by an entry point."""

from __future__ import annotations

import contextlib
import sys
from functools import cache
from importlib.metadata import entry_points
from typing import Any

from attlm_fairseq.errors import InputError

MODELS = "attlm_fairseq.models"
"""The group of entry points of modules that add to ``modules.families.FAMILIES`` or ``modules.output.OUTPUT_LAYERS``."""

FORMATS = "attlm_fairseq.formats"
"""The group of entry points of subclasses of ``NbestFormat`` or ``NbestFolderFormat``."""


@cache
def load(group: str) -> tuple[Any, ...]:
    """Import what the entry points of a group name, and return it; of a class, an instance. Nothing if no installed package has any.

    Raises:
        InputError: one of them cannot be loaded.
    """
    return tuple(_loaded(point) for point in entry_points(group=group))


def _loaded(point: Any) -> Any:
    try:
        with contextlib.redirect_stdout(sys.stderr):  # where lists are written, nothing else may be
            found = point.load()
        return found() if isinstance(found, type) else found
    except (Exception, SystemExit) as error:
        package = point.dist.name if point.dist is not None else "an installed package"
        raise InputError(
            f"{package} has the entry point {point.name} = {point.value} ({point.group}), which cannot be loaded: "
            f"{type(error).__name__}: {error}; mend or uninstall it"
        ) from error
