"""The documentation's tables of options: every option that the plugin adds to fairseq's, with its default, and no other."""

from __future__ import annotations

import importlib
import re
from dataclasses import Field, fields

import click
import pytest
from fairseq.criterions import CRITERION_DATACLASS_REGISTRY
from fairseq.models import MODEL_DATACLASS_REGISTRY
from fairseq.tasks import TASK_DATACLASS_REGISTRY
from fairseq_runs import ROOT

from attlm_cli.main import COMMANDS, main
from attlm_fairseq.modules.families import FAMILIES
from attlm_fairseq.plugin import register

register()

CONFIGS = {name: MODEL_DATACLASS_REGISTRY[name] for name in FAMILIES}  # presets have other defaults alone
for registry in (TASK_DATACLASS_REGISTRY, CRITERION_DATACLASS_REGISTRY):
    CONFIGS |= {name: config for name, config in registry.items() if config.__module__.startswith("attlm_fairseq.")}
PAGES = [(ROOT / page).read_text(encoding="utf-8") for page in ("docs/training.md", "docs/decoders.md")]
ROWS = dict(row for readme in PAGES for row in re.findall(r"^\| `--([a-z-]+)` \| (.+?) \| .+ \|$", readme, re.MULTILINE))


def own_options(config: type) -> dict[str, Field]:
    """The options of a config that are not fairseq's: by name, as on the command line. The data folder is no option."""
    fairseqs = {field.name for base in config.__mro__ if base.__module__.startswith("fairseq.") for field in fields(base)}
    own = (field for field in fields(config) if field.name not in {*fairseqs, "data"} and not str(field.default).startswith("${"))
    return {field.name.replace("_", "-"): field for field in own}


def stated(name: str, cell: str) -> str:
    """The default that a cell states for one of the configs: of all, and after each semicolon another of those named there."""
    of_all, *of_some = cell.split("; ")
    return next((some.rpartition("` ")[2] for some in of_some if f"`{name}`" in some), of_all)


@pytest.mark.parametrize("name", CONFIGS)
def test_every_option_has_a_row_with_its_default(name):
    for option, field in own_options(CONFIGS[name]).items():
        assert option in ROWS, f"docs/training.md has no row for --{option}, nor has docs/decoders.md"
        default = stated(name, ROWS[option])
        if field.default in (None, ""):
            assert default.startswith(("none", "as `--")), option
        else:
            assert default == ("off" if field.default is False else str(field.default)), option


def test_every_row_is_of_an_option():
    assert ROWS.keys() == {option for config in CONFIGS.values() for option in own_options(config)}


def test_the_reference_has_every_option_of_every_command(monkeypatch):
    """The page that a hook of mkdocs makes of the commands. `<s>` in a help text is text there, not HTML."""
    monkeypatch.syspath_prepend(ROOT / "tools")
    page = importlib.import_module("cli_reference").on_page_markdown((ROOT / "docs" / "cli.md").read_text(encoding="utf-8"))
    sections = {part.partition("\n")[0]: part for part in page.split("### attlm ")[1:]}
    assert {name.split()[0] for name in sections} == set(COMMANDS)
    assert "corrections eval" in sections
    for name, text in sections.items():
        group, _, own = name.partition(" ")
        command = main.get_command(None, group)
        command = command.commands[own] if own else command
        for option in command.params:
            assert not isinstance(option, click.Option) or f"{option.opts[-1]}" in text
    assert "&lt;s&gt;" in sections["attention"]
    assert not re.search(r"<s>|<dd></dd>", page)
