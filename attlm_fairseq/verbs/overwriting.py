"""Check before a run that no output would replace an input or another output, and that each can be read or written."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from attlm_fairseq.errors import InputError
from attlm_fairseq.files.writing import is_stream
from attlm_fairseq.nbest.corrections.table_file import lm_of
from attlm_fairseq.nbest.run.config import RunConfig
from attlm_fairseq.scoring.context.conversations import ContextSpec, parse_context
from attlm_fairseq.text import TextPipeline, text_pipeline
from attlm_fairseq.verbs.arguments import FilePath
from attlm_fairseq.verbs.lists import Lists, is_file
from attlm_fairseq.verbs.sources import SourceFile, Sources

NO_LISTS = (".toml", ".html", ".tsv")  # what attlm itself writes next to lists, and may write again


def check_files(
    inputs: Mapping[str, Sequence[str | Path | None]],
    outputs: Mapping[str, FilePath | Sequence[str] | None] | None = None,
    config: RunConfig | None = None,
    folders: bool = False,
) -> None:
    """Raise InputError if two inputs are standard input, or if an output would replace another file or cannot be written.

    Inputs are given by description, outputs by option. The files of ``config`` and the folders of its LMs also count as
    inputs. An input may be a folder: an output in it must be a new file. With ``folders`` an output may be one, too.
    Outputs that are standard streams, devices or pipes are not checked.
    """
    if [str(file) for files in inputs.values() for file in files].count("-") > 1:
        raise InputError("standard input (-) is named more than once, and can be read once: name a file in place of one of them")
    given = ((option, [files] if isinstance(files, str | os.PathLike) else files or ()) for option, files in (outputs or {}).items())
    to_write = [(option, output) for option, files in given for output in files]
    read = [*inputs.items(), *(files_of(config) if config and to_write else ())]
    written: dict[Path, str] = {}
    for option, output in to_write:
        target = Path(os.path.realpath(output))
        if target.is_dir() and not folders:
            raise InputError(f"{option} is a folder: name a file", path=output)
        if is_stream(str(output)):
            continue
        _require_writable(target, option, output)
        if target.exists():
            _require_other_than(read, target, option, output)
        for lm in config.lms if config else ():
            if any(folder.is_dir() and target.parent.samefile(folder) for folder in lm.checkpoints):
                raise InputError(f"{option} would be a file in the folder of the LM {lm.name}; name another folder", path=output)
        if target in written:
            raise InputError(f"{option} and {written[target]} would be the same file; name another one", path=output)
        written[target] = option


def _require_writable(target: Path, option: str, output: FilePath) -> None:
    if not target.parent.is_dir():
        raise InputError(f"{option} cannot be written: there is no folder {target.parent}", path=output)
    for place in (target.parent, target):  # a file is made next to its place, and moved
        if place.exists() and not os.access(place, os.W_OK):
            raise InputError(f"{option} cannot be written: {place} is write-protected", path=output)


def _require_other_than(read: Sequence[tuple[str, Sequence[str | Path | None]]], target: Path, option: str, output: FilePath) -> None:
    for what, file in ((what, file) for what, files in read for file in files):
        if file in (None, "-") or not Path(file).exists():
            continue
        if target.samefile(file):
            raise InputError(f"{option} would overwrite {what}; name another file", path=output)
        if target.is_file() and target.suffix not in NO_LISTS and Path(os.path.realpath(file)) in target.parents:
            raise InputError(f"{option} would overwrite a file of {what}; name a new file", path=output)


def files_of(config: RunConfig) -> Iterator[tuple[str, list[str | Path | None]]]:
    """Yield the files that a configuration names, with a description; not the file it was read from."""
    for lm in config.lms:
        yield f"the LM {lm.name}", [lm.kenlm, *lm.checkpoints]
        yield f"the dictionary of {lm.name}", [lm.dictionary, *(one.with_name("dict.txt") for one in lm.checkpoints if not one.is_dir())]
        yield f"the adaptation of {lm.name}", [lm.adapt]
        yield f"a text step of {lm.name}", [*files_of_steps(lm.text), *files_of_steps(lm.source_text)]
    yield "a text step", [*files_of_steps(config.text), *files_of_steps(config.decision.text)]
    yield "the context", files_of_groups(config.context)
    table = config.candidates.table
    yield "the corrections", [table, config.candidates.phrases, config.candidates.corrector]
    yield "the LM of the corrections", [None if table is None or is_stream(str(table)) else lm_of(table)]


def files_of_lists(lists: Lists) -> list[str | Path | None]:
    """Return the file or folder of lists, if they are in one."""
    return [str(lists)] if is_file(lists) else []


def files_of_sources(source: Sources | None) -> list[str | Path | None]:
    """Return the file of source sentences, if there is one."""
    return [source.path] if isinstance(source, SourceFile) else [Path(source)] if isinstance(source, str | os.PathLike) else []


def files_of_groups(groups: str | ContextSpec | None) -> list[str | Path | None]:
    """Return the file that names the conversation or group of each list, if there is one."""
    spec = parse_context(groups) if isinstance(groups, str) else groups
    return [Path(spec.argument)] if spec is not None and spec.kind == "file" else []


def files_of_steps(text: str | TextPipeline | None) -> list[str | Path | None]:
    """Return the files that text steps read."""
    return [Path(step.argument) for step in text_pipeline(text or "").steps if step.needs_file]
