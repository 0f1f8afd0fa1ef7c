"""What other installed packages add to this one: they name it by an entry point."""

from __future__ import annotations

import contextlib
import sys
import traceback
from collections.abc import Iterator
from functools import cache
from importlib.metadata import entry_points
from typing import Any, TypeVar

from attlm_fairseq.errors import InputError

T = TypeVar("T")

MODELS = "attlm_fairseq.models"
"""The group of entry points of modules that add to ``modules.families.FAMILIES`` or ``modules.output.OUTPUT_LAYERS``."""

FORMATS = "attlm_fairseq.formats"
"""The group of entry points of subclasses of ``NbestFormat`` or ``NbestFolderFormat``."""


class Registry(dict[str, T]):
    """Parts by name. A name cannot be taken twice: what a package adds must not change the models of another."""

    def __setitem__(self, name: str, part: T) -> None:
        if self.get(name, part) is not part:
            raise ValueError(f"the name {name!r} is taken: choose another one")
        super().__setitem__(name, part)


@contextlib.contextmanager
def failures_named(part: object, action: str, advice: str) -> Iterator[None]:
    """Turn an error in a part of another package into one line, with the package and the place. Errors of this package stay as they are.

    Raises:
        InputError: the part is of another package, and fails otherwise than by an InputError.
    """
    try:
        yield
    except Exception as error:
        package = _package(type(part).__module__)
        if isinstance(error, InputError) or package == __package__:
            raise
        frames = [frame for frame in traceback.walk_tb(error.__traceback__) if _package(frame[0].f_globals.get("__name__", "")) == package]
        place = "".join(f" in {frame.f_code.co_filename}, line {line}" for frame, line in frames[-1:])
        what = f"{type(error).__name__}: {error}{place}"
        raise InputError(f"{getattr(part, 'name', part)!r} of the package {package} fails to {action} ({what}): {advice}") from error


def _package(module: str) -> str:
    return module.partition(".")[0]


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
