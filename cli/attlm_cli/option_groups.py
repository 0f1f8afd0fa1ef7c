"""Groups of options with a title, each of which becomes one value; and what the user has given."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any

import click
import cloup

Decorator = Callable[[Callable], Callable]


def grouped(title: str, name: str, build: Callable[..., Any], *options: Decorator) -> Decorator:
    """Return a decorator that adds a titled group of options to a command, as ``in_groups`` does."""
    return in_groups({title: options}, name, build)


def in_groups(groups: Mapping[str, Sequence[Decorator]], name: str, build: Callable[..., Any]) -> Decorator:
    """Return a decorator that adds groups of options, by title, to a command.

    The command receives them as one argument ``name``: the result of ``build`` called with the options.
    """

    def decorate(command: Callable) -> Callable:
        @wraps(command)
        def wrapper(**given: Any) -> Any:
            return command(**{name: build(**{own: given.pop(own) for own in names})}, **given)

        before = _parameters(command)
        decorated: Any = wrapper
        for title, options in reversed(list(groups.items())):
            decorated = cloup.option_group(title, *options)(decorated)
        names = [own for own in _parameters(decorated) if own not in before]
        return decorated

    return decorate


def _parameters(command: Callable) -> list[str]:
    """Return the names of the options that decorators have attached to a function so far, as click stores them."""
    return [parameter.name for parameter in getattr(command, "__click_params__", [])]


def given_option(*names: str) -> str | None:
    """Return the first option among the parameters ``names`` that the user gave, as it is written; None if there is none."""
    context = click.get_current_context()
    for parameter in context.command.params:
        if parameter.name in names and context.get_parameter_source(parameter.name) == click.core.ParameterSource.COMMANDLINE:
            return "/".join([*parameter.opts[:1], *parameter.secondary_opts[:1]])
    return None
