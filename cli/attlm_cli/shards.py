"""``attlm rescore --engine ray``: rescore many files into a folder, on one machine or a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from attlm_fairseq.errors import InputError
from attlm_fairseq.files.writing import is_stream
from attlm_fairseq.messages import note
from attlm_fairseq.nbest.run.config import RunConfig
from attlm_fairseq.verbs.rescore import RescoreOutput
from attlm_fairseq.verbs.shards import Shard, find_shards, rescore_shards


def rescore_by_ray(pattern: str, output: RescoreOutput, run: RunConfig, format_name: str | None) -> None:
    """Rescore each of many files into a folder, and report the result of each.

    Raises:
        InputError: an option does not go with Ray, there are no files, an LM has no weight, two files have one name,
            Ray is not installed, or a file could not be rescored.
    """
    if output.to != "same":
        raise InputError(f"--to {output.to}: with --engine ray lists are written in the format of their file")
    folder = Path(output.path)
    if is_stream(str(output.path)) and not folder.is_dir():
        raise InputError("--engine ray writes a file for each shard: give a folder for the rescored shards with -o")
    files = find_shards(pattern, folder)
    shards = rescore_shards(files, folder, config=run, format=format_name, resume=output.resume)
    for line, paths in by_line(shards).items():
        more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
        note(f"{paths[0]}{more}: {line}")
    errors = [shard.error for shard in shards if shard.error]
    there = f"{len(files) - len(shards)} were there already" if len(shards) < len(files) else ""
    done = f"{len(shards) - len(errors)} files rescored, {sum(shard.lists for shard in shards)} lists"
    note("; ".join(filter(None, [done, there])))
    for error in errors[:-1]:
        note(f"attlm: error: {error}")
    if errors:
        raise InputError(errors[-1])


def by_line(shards: Sequence[Shard]) -> dict[str, list[str]]:
    """Return the distinct notes of the shards, each with the files it is about, so that each note is printed once."""
    found: dict[str, list[str]] = {}
    for shard in shards:
        for line in shard.notes:
            found.setdefault(line, []).append(shard.path)
    return found
