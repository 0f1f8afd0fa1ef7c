"""Links of the documentation: ``make docs`` stops at one that leads nowhere, and is not a part of ``make test``."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs").glob("*.md"))
OTHERS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "examples").glob("**/README.md"))]
MADE = {"cli.md"}  # by hooks of mkdocs
LINK = re.compile(r"(?<!`)\]\(([^)\s]+)\)")


def links(page: Path) -> list[str]:
    return [link for link in LINK.findall(page.read_text("utf-8")) if "://" not in link]


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives headings."""
    headings = re.findall(r"(?m)^#+ (.*)$", page.read_text("utf-8"))
    names = (re.sub(r"[^\w\- ]", "", re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower()) for heading in headings)
    return {name.replace(" ", "-") for name in names}


@pytest.mark.parametrize("page", [*PAGES, *OTHERS], ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    for link in links(page):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert page.parent != ROOT / "docs" or target.parent.is_relative_to(ROOT / "docs"), f"{link} is outside of the site"
        assert not anchor or target.name in MADE or anchor in anchors(target), link


def test_links_are_found():
    assert sum(len(links(page)) for page in PAGES) > 100
