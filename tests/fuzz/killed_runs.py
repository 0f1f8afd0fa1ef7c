"""Runs of attlm that are killed at random moments and started again.

A run is a child forked from this process, which has imported what it needs: a run then takes a second instead of ten.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
import traceback
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random

from damage import spoiled
from samples import TABLE, WORDS, ngram_model

import attlm_cli.corrections
import attlm_cli.ngram
import attlm_cli.rescore
import attlm_cli.tune  # noqa: F401 - here rather than in each child
import attlm_fairseq.nbest.run.rescoring
from attlm_cli.main import main
from attlm_fairseq.errors import InputError
from attlm_fairseq.scoring.ngrams.kenlm import KenLMScorer

COMMANDS = {
    "rescore": "rescore list --kenlm lm.arpa --weight kenlm=1 -o out",
    "rescore-corrections": "rescore list --kenlm lm.arpa --weight kenlm=1 --weight corrections=1 --corrections table -o out",
    "tune": "tune short --refs refs --kenlm lm.arpa --folds 0 -o out",
    "tune-corrections": "tune short --refs refs --kenlm lm.arpa --corrections table --folds 0 -o out",
    "ngram": "ngram text -o out.arpa -n 3",
    "corrections": "corrections short --refs refs -o out",
}
LISTS = 200
SHORT = 60
BLOCK_CHARACTERS = 3000
DELAY = 0.03  # seconds for each block of scores, without which most kills would hit the start or the end
MAX_SECONDS = 900  # for a run on a busy machine


@cache
def input_files(place: Path) -> Path:
    """Write what the commands read. Returns the folder."""
    place.mkdir(parents=True, exist_ok=True)
    made = Random(5)
    sentences = [made.choices(WORDS, k=9) for _ in range(LISTS)]
    rows = [
        f"{i} ||| {' '.join(word if made.random() < 0.9 else made.choice(WORDS) for word in sentence)} ||| F= {-j} ||| {-j}\n"
        for i, sentence in enumerate(sentences)
        for j in range(10)
    ]
    (place / "list").write_text("".join(rows))
    (place / "short").write_text("".join(rows[: 10 * SHORT]))
    (place / "refs").write_text("".join(" ".join(sentence) + "\n" for sentence in sentences[:SHORT]))
    (place / "text").write_text("".join(" ".join(f"w{int(made.paretovariate(0.7))}" for _ in range(9)) + "\n" for _ in range(3000)))
    (place / "lm.arpa").write_bytes(ngram_model("arpa"))
    (place / "table").write_text(TABLE)
    return place


def start(place: Path, name: str) -> int:
    """Start a run in a folder. Returns the number of its process, which leads a group of its own."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        os.setsid()
        os.chdir(place)
        log = os.open(place.with_suffix(".log"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(log, 1)
        os.dup2(log, 2)
        sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)  # noqa: SIM115 - for as long as the process lives
        sys.argv = ["attlm", *COMMANDS[name].split()]
        attlm_fairseq.nbest.run.rescoring.BLOCK_CHARACTERS = BLOCK_CHARACTERS
        score = KenLMScorer.score
        KenLMScorer.score = lambda scorer, sentences: time.sleep(DELAY) or score(scorer, sentences)  # type: ignore[method-assign]
        main()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def ended(child: int, seconds: float) -> int | None:
    """Wait for a child for some time. Returns its exit status, or None if it goes on."""
    until = time.monotonic() + seconds
    while True:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > until:
            return None
        time.sleep(0.005)


def finish(place: Path, name: str) -> tuple[int, str]:
    """Run to the end. Returns the exit code and what was said."""
    child = start(place, name)
    status = ended(child, MAX_SECONDS)
    if status is None:
        os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)
        raise AssertionError(f"attlm {COMMANDS[name]}: no end in {MAX_SECONDS} seconds")
    return status, place.with_suffix(".log").read_text(errors="replace")


def kill_within(place: Path, name: str, seconds: float, *, alone: bool) -> bool:
    """Start a run and kill it after some time, alone or with the programs that it started. Returns False if it was faster."""
    child = start(place, name)
    if ended(child, seconds) is not None:
        return False
    (os.kill if alone else os.killpg)(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return True


def files(place: Path) -> dict[str, bytes]:
    return {str(path.relative_to(place)): path.read_bytes() for path in sorted(place.rglob("*")) if path.is_file()}


def prepared(place: Path, name: str) -> Path:
    """Return the folder of a run with its input files, and nothing of a run before."""
    folder = place / name
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(input_files(place / "inputs"), folder)
    return folder


@dataclass(frozen=True)
class Whole:
    """A run that nothing stopped: the files of its folder afterwards, and how long it took."""

    files: dict[str, bytes]
    seconds: float


@cache
def whole(place: Path, name: str) -> Whole:
    """Run once to the end."""
    folder = prepared(place, name)
    inputs = files(folder)
    started = time.monotonic()
    status, said = finish(folder, name)
    seconds = time.monotonic() - started
    assert status == 0, said
    found = files(folder)
    assert found.keys() > inputs.keys(), said
    return Whole(found, seconds)


def kills(random: Random, place: Path, name: str | None = None) -> int:
    """Kill a run up to three times: no output that is not whole, in the end the same bytes, and nothing left behind. Returns the kills."""
    name = name or random.choice(list(COMMANDS))
    wanted, folder, count = whole(place, name), prepared(place, name), 0
    for _ in range(random.randint(1, 3)):
        if not kill_within(folder, name, random.uniform(0, wanted.seconds), alone=random.random() < 0.5):
            break
        count += 1
        for output, content in files(folder).items():
            assert content == wanted.files.get(output, content), f"{name}: {output} has other bytes after a kill"
    status, said = finish(folder, name)
    assert status == 0, said
    found = files(folder)
    assert found.keys() == wanted.files.keys(), f"{name}: left behind: {found.keys() ^ wanted.files.keys()}"
    assert found == wanted.files, f"{name}: other bytes after a kill"
    return count


@cache
def resume_file_of(place: Path) -> bytes:
    """Return the resume file of a run killed in the middle."""
    wanted, random = whole(place, "rescore"), Random(1)
    for _ in range(20):
        folder = prepared(place, "rescore")
        kill_within(folder, "rescore", wanted.seconds * random.uniform(0.3, 0.9), alone=False)
        if (folder / "out.unfinished").exists():
            return (folder / "out.unfinished").read_bytes()
    raise AssertionError("no kill left a resume file")


def resume_file(random: Random, place: Path) -> None:
    """Damage the resume file of a killed run: the same bytes, or one line."""
    resumed, wanted, folder = resume_file_of(place), whole(place, "rescore"), prepared(place, "rescore")
    (folder / "out.unfinished").write_bytes(spoiled(random, resumed))
    status, said = finish(folder, "rescore")
    if status == 2:
        lines = [line for line in said.splitlines() if line.startswith("attlm: error: ")]
        assert len(lines) == 1, said
        raise InputError(lines[0])
    assert status == 0, said
    assert (folder / "out").read_bytes() == wanted.files["out"], "other bytes after damage"
