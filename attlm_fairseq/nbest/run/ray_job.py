"""Rescoring as a Ray Data job: lists in many files, on the machines of a cluster. Needs ``pip install 'ray[data]'``.

    python -m attlm_fairseq.nbest.run.ray_job 'shards/*.nbest.gz' -o rescored --config attlm.toml --concurrency 8

Ray's actors load the LMs once each and take one file after the other; each output has the name of its input, appears whole or not at all,
and is left alone if it is there already: the same command continues a job that was stopped. All machines need the same paths.
"""

from __future__ import annotations

import argparse
import glob
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from attlm_fairseq.errors import InputError
from attlm_fairseq.nbest.decision.decision import decide
from attlm_fairseq.nbest.features.lm_features import differing_lms, is_lm_feature
from attlm_fairseq.nbest.formats import open_nbest, write_nbest
from attlm_fairseq.nbest.run.block_scores import BlockScorer
from attlm_fairseq.nbest.run.config_file import read_config
from attlm_fairseq.nbest.run.rescoring import Rescorer
from attlm_fairseq.nbest.run.score_cache import ScoreCache
from attlm_fairseq.nbest.run.workers import OneProcess
from attlm_fairseq.scoring.compute import PRECISIONS, DeviceConfig, parse_memory


class RescoreFiles:
    """An actor: rows of ``input`` and ``output`` in, the same with ``lists``, ``error`` and ``notes`` (lines for the user) out."""

    def __init__(self, config: Path, compute: DeviceConfig) -> None:
        self._config = read_config(config)
        names = [lm.name for lm in self._config.scored]
        features = [name for name in self._config.weights if is_lm_feature(name, names)]
        self._workers = OneProcess(BlockScorer.load(self._config, compute, features))
        self._settings = {"precision": compute.precision, "memory": compute.memory, "device": compute.device, "features": sorted(features)}

    def __call__(self, row: Mapping[str, Any]) -> dict[str, Any]:
        try:
            lists, notes = self._rescore(row["input"], row["output"])
            return {**row, "lists": lists, "error": "", "notes": "\n".join(notes)}
        except InputError as error:  # of one file: the others go on
            return {**row, "lists": 0, "error": str(error), "notes": ""}

    def _rescore(self, source: str, output: str) -> tuple[int, list[str]]:
        form, lists = open_nbest(source)
        cache = ScoreCache.of_output(output, self._settings)
        rescorer = Rescorer(self._workers, cache=cache)
        count = 0

        def rescored() -> Any:
            nonlocal count
            for nbest in rescorer.score(lists):
                count += 1
                yield decide(nbest, self._config.weights, self._config.decision)

        write_nbest(rescored(), form, output)
        cache.finish()
        return count, [*filter(None, (oov.warning() for oov in rescorer.oov.values())), *rescorer.notes.values()]


def rescore_files(files: Sequence[str], output: Path, config: Path, concurrency: int, compute: DeviceConfig) -> list[dict[str, Any]]:
    """Rescore every file into the folder ``output`` under its own name; returns a row for each with its lists, or its error.

    Raises InputError: no ray, two files of one name, weights missing, a decision that makes texts.
    """
    found = read_config(config)
    names = [lm.name for lm in found.scored]
    weighted = {*found.weights, *(lm for name in found.weights for lm in differing_lms(name, names) or ())}
    if missing := [name for name in names if name not in weighted]:
        raise InputError(f"no weight for {', '.join(missing)}; find the weights with `attlm tune`", path=config)
    if found.decision.makes_text:
        raise InputError("a consensus makes texts that are in no list: use `attlm rescore --to 1best`", path=config)
    if len({Path(file).name for file in files}) != len(files):
        raise InputError("two of the files have one name: their outputs would be one", path=output)
    try:
        import ray
    except ImportError:
        raise InputError("Ray is not installed: pip install 'ray[data]'") from None
    output.mkdir(parents=True, exist_ok=True)
    rows = [{"input": str(Path(file).absolute()), "output": str((output / Path(file).name).absolute())} for file in files]
    todo = [row for row in rows if not Path(row["output"]).exists()]
    if not todo:
        return []
    resources = {"num_gpus": 1} if compute.device == "cuda" else {"num_cpus": 1}
    data = ray.data.from_items(todo, override_num_blocks=len(todo))
    actor = {"config": config.absolute(), "compute": compute}
    return data.map(RescoreFiles, fn_constructor_kwargs=actor, concurrency=min(concurrency, len(todo)), **resources).take_all()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("files", help="the lists: a pattern in quotes, or a folder")
    parser.add_argument("-o", "--output", type=Path, required=True, help="folder for the rescored lists")
    parser.add_argument("--config", type=Path, default=Path("attlm.toml"), help="LMs, text steps and weights, as written by attlm tune")
    parser.add_argument("--concurrency", type=int, default=1, help="files at a time, each with its own LMs")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="cuda: one GPU for each")
    parser.add_argument("--precision", choices=PRECISIONS, default="float32")
    parser.add_argument("--memory", default="1G", help="what scoring may take, for each")
    options = parser.parse_args()
    try:
        files = sorted(glob.glob(f"{options.files}/*" if Path(options.files).is_dir() else options.files))  # noqa: PTH207 - may be absolute
        if not files:
            raise InputError("no such files", path=options.files)
        compute = DeviceConfig(options.device, options.precision, parse_memory(options.memory))
        rows = rescore_files(files, options.output, options.config, options.concurrency, compute)
    except InputError as error:
        print(f"attlm: error: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    failed = [row["error"] for row in rows if row["error"]]
    print(
        f"{len(rows) - len(failed)} files rescored, {sum(row['lists'] for row in rows)} lists; {len(files) - len(rows)} were there already"
    )
    for row in rows:
        for line in filter(None, row["notes"].split("\n")):
            print(f"{row['input']}: {line}", file=sys.stderr)
    for error in failed:
        print(f"attlm: error: {error}", file=sys.stderr)
    raise SystemExit(2 if failed else 0)


if __name__ == "__main__":
    main()
