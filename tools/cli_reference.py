"""A hook of mkdocs: docs/cli.md gets the options of every command, grouped and described as ``--help`` does.

It writes HTML, so that ``<s>`` or ``*`` in a help text stay as they are.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from html import escape
from typing import Any

import click

MARKER = "<!-- commands -->"


def on_page_markdown(markdown: str, **unused: Any) -> str:
    """Replace the marker by the reference of all commands. mkdocs calls this for every page."""
    if MARKER not in markdown:
        return markdown
    from attlm_cli.main import main

    return markdown.replace(MARKER, "\n\n".join(reference(main, click.Context(main, info_name="attlm"))))


def reference(command: click.Command, context: click.Context) -> Iterator[str]:
    """Yield the Markdown sections of the commands of a group, and of their own commands."""
    assert isinstance(command, click.Group)
    for name in command.list_commands(context):
        found = command.get_command(context, name)
        assert found is not None
        yield from section(found, click.Context(found, info_name=name, parent=context))


def section(command: click.Command, context: click.Context) -> Iterator[str]:
    """Yield what ``--help`` says of one command."""
    yield f"### {context.command_path}"
    yield f"<pre><code>{escape(' '.join([context.command_path, *command.collect_usage_pieces(context)]))}</code></pre>"
    for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
        verbatim = paragraph.startswith("\b\n")  # click's mark of lines that are not wrapped
        yield f"<pre><code>{escape(paragraph[2:])}</code></pre>" if verbatim else f"<p>{as_html(paragraph)}</p>"
    for title, options in groups(command, context):
        records = [record for option in options if (record := option.get_help_record(context))]
        terms = "".join(f"<dt><code>{escape(names)}</code></dt><dd>{as_html(text)}</dd>" for names, text in records)
        yield f"<p><strong>{escape(title)}</strong></p>\n<dl>{terms}</dl>"
    if isinstance(command, click.Group):
        yield from reference(command, context)


def as_html(text: str) -> str:
    """Return a help text as HTML, in which only backticks mean something."""
    return re.sub("`([^`]+)`", r"<code>\1</code>", escape(text))


def groups(command: click.Command, context: click.Context) -> Iterator[tuple[str, list[click.Option]]]:
    """Yield the option groups of a command with their titles; options without a group come last."""
    grouped = [(group.title, list(group.options)) for group in getattr(command, "option_groups", ())]
    yield from grouped
    known = {option.name for _, options in grouped for option in options}
    others = [option for option in command.get_params(context) if isinstance(option, click.Option) and option.name not in known]
    yield ("Other options" if grouped else "Options"), others
