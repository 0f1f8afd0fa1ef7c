"""Load jinja2 templates from the folder ``templates`` of a package."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import Template


def load_template(package: str, name: str, **filters: Callable[..., Any]) -> Template:
    """Return the template ``name`` of ``package``; it may use ``filters``. Values are escaped if the name ends in .html."""
    from jinja2 import Environment, PackageLoader, select_autoescape  # here: most runs write no page

    environment = Environment(
        loader=PackageLoader(package, "templates"),
        autoescape=select_autoescape(["html"]),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= filters
    return environment.get_template(name)
