"""Several processes and interrupted runs: whatever happens on the way, the output has the same bytes."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import multiprocessing
import os
import pty
import random
import shutil
import signal
import sqlite3
import struct
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from cli_runs import run
from lm_files import write_checkpoint

import attlm_fairseq as attlm
from attlm_fairseq.batching import batch_by_size
from attlm_fairseq.errors import InputError
from attlm_fairseq.files.writing import whole_file
from attlm_fairseq.messages import collected
from attlm_fairseq.nbest.decision.decision import decide
from attlm_fairseq.nbest.nbest_list import NbestList
from attlm_fairseq.nbest.run import rescoring
from attlm_fairseq.nbest.run.block import Block
from attlm_fairseq.nbest.run.block_scores import BlockScorer, BlockScores
from attlm_fairseq.nbest.run.config import RunConfig
from attlm_fairseq.nbest.run.rescoring import growing_limits
from attlm_fairseq.nbest.run.score_cache import ScoreCache
from attlm_fairseq.nbest.run.score_database import JOURNAL_MAGIC
from attlm_fairseq.nbest.run.workers import OneProcess, Processes
from attlm_fairseq.scoring.compute import DeviceConfig, parse_devices, parse_memory
from attlm_fairseq.scoring.lm_spec import LMSpec
from attlm_fairseq.scoring.ngrams.ngram_estimation import NgramOptions, estimate_ngram
from attlm_fairseq.scoring.unknown_words.oov_policy import OOVPolicy

WORDS = [f"w{number}" for number in range(40)]


def block_of(texts: list[str]) -> Block:
    """The hypotheses of one list."""
    return Block(tuple(texts), (len(texts),), (None,))


def blocks_of(blocks: list[list[str]]) -> list[Block]:
    return list(map(block_of, blocks))


ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
BLOCK_CHARACTERS = 3000
SMALL_BLOCKS = f"""
from attlm_cli.main import main
from attlm_fairseq.nbest.run import rescoring

rescoring.BLOCK_CHARACTERS = {BLOCK_CHARACTERS}
main()
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Two LMs and a list of 500 utterances, in about 40 blocks."""
    folder = tmp_path_factory.mktemp("work")
    generator = random.Random(5)

    def sentence() -> str:
        return " ".join(generator.choices([*WORDS, "unheard-of"], k=generator.randint(0, 12)))

    (folder / "text").write_text("".join(sentence() + "\n" for _ in range(400)))
    estimate_ngram(str(folder / "text"), folder / "lm.arpa", 2, NgramOptions(discount_fallback=True))
    write_checkpoint(folder / "lm.pt", WORDS)
    with (folder / "list").open("w") as out:
        for number in range(500):
            for _ in range(4):
                out.write(f"{number} ||| {sentence()} ||| TM0= {generator.uniform(-9, 0):.3f} ||| -1\n")
    return folder


def command(folder: Path, output: str, *options: str) -> list[str]:
    lms = ["--lm", folder / "lm.pt", "--kenlm", folder / "lm.arpa", "--weight", "lm=1", "--weight", "kenlm=0.5", "--weight", "TM0=1"]
    return [sys.executable, "-c", SMALL_BLOCKS, "rescore", *map(str, [folder / "list", "-o", folder / output, *lms, *options])]


def test_blocks_grow_to_their_full_size():
    """The first one is small, so that the bar moves early; the same lists are always cut in the same places."""
    cut = list(batch_by_size(range(100), growing_limits(4, 30), lambda item: 1))
    assert [len(block) for block in cut] == [4, 8, 16, 30, 30, 12]
    assert [item for block in cut for item in block] == list(range(100))
    assert [len(block) for block in batch_by_size(range(7), growing_limits(50, 3), lambda item: 1)] == [3, 3, 1]


@pytest.fixture(autouse=True, scope="module")
def small_blocks():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rescoring, "BLOCK_CHARACTERS", BLOCK_CHARACTERS)
        yield


def finish(arguments: list[str], code: int = 0) -> str:
    """Run to the end, in this process, which has imported everything. Returns what was said."""
    return run(*arguments[arguments.index("rescore") :], code=code).stderr


@pytest.fixture(scope="module")
def expected(folder) -> bytes:
    finish(command(folder, "expected"))
    return (folder / "expected").read_bytes()


def kill_in_the_middle(arguments: list[str], cache: Path) -> None:
    process = subprocess.Popen(arguments, env=ENVIRONMENT, stderr=subprocess.DEVNULL, start_new_session=True)
    deadline = time.monotonic() + 100
    while not cache.exists() or cache.stat().st_size < 4096 * 8:
        assert process.poll() is None, "finished before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.002)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@pytest.mark.parametrize("output", ["out", "out.gz"])
def test_a_killed_run_continues_and_ends_with_the_same_bytes(folder, expected, output):
    cache = folder / f"{output}.unfinished"
    kill_in_the_middle(command(folder, output), cache)
    assert not (folder / output).exists()
    told = finish(command(folder, output))
    assert "continued: the scores of " in told
    content = (folder / output).read_bytes()
    assert (gzip.decompress(content) if output.endswith(".gz") else content) == expected
    assert "500 lists, 2000 hypotheses" in told
    assert not cache.exists()
    assert not (folder / f".{output}.part").exists()


def test_several_processes_write_the_bytes_of_one(folder, expected):
    told = finish(command(folder, "several", "--devices", "cpu:2"))
    assert (folder / "several").read_bytes() == expected
    assert "unknown to kenlm" in told or "500 lists, 2000 hypotheses" in told


@pytest.mark.parametrize(("how", "status"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGKILL, -signal.SIGKILL)])
def test_processes_end_with_the_one_that_started_them(folder, how, status):
    """Their standard error is a pipe that stays open as long as one of them lives."""
    # a shell's background jobs ignore SIGINT, those of nohup SIGHUP, and their children inherit this
    arguments = ["env", "--default-signal=HUP", *command(folder, "left-alone", "--devices", "cpu:2", "--no-resume")]
    process = subprocess.Popen(arguments, env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    deadline = time.monotonic() + 100
    while not (folder / ".left-alone.part").exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    time.sleep(1.0)  # the processes are being started, or have the LMs
    process.send_signal(how)
    _, said = process.communicate(timeout=60)
    assert process.returncode == status
    assert (folder / ".left-alone.part").exists() == (how == signal.SIGKILL)
    assert b"resource_tracker" not in said


def test_the_end_of_its_terminal_ends_a_run(folder):
    """Its messages can no longer be written then."""
    arguments = ["env", "--default-signal=HUP", *map(str, command(folder, "in-a-terminal", "--no-resume"))]
    process, terminal = pty.fork()
    if process == 0:
        os.execvpe(arguments[0], arguments, ENVIRONMENT)
    deadline = time.monotonic() + 100
    while not (folder / ".in-a-terminal.part").exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.close(terminal)
    _, status = os.waitpid(process, 0)
    assert os.waitstatus_to_exitcode(status) == 129
    assert not (folder / ".in-a-terminal.part").exists()


def test_an_interrupt_ends_the_processes_at_once(folder):
    """Ctrl-C in a terminal reaches the whole group."""
    arguments = command(folder, "interrupted", "--devices", "cpu:2")
    process = subprocess.Popen(
        arguments,
        env=ENVIRONMENT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell lets what it starts in the background ignore it
    )
    cache = folder / "interrupted.unfinished"
    deadline = time.monotonic() + 100
    while not cache.exists() or cache.stat().st_size < 4096 * 8:
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.002)
    os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert b"attlm: interrupted; the same command continues" in said
    assert b"Traceback" not in said


def test_a_dead_process_is_one_line(folder):
    config = RunConfig((LMSpec("kenlm", kenlm=folder / "lm.arpa"),))
    with Processes(config, [DeviceConfig()]) as workers:
        assert workers.signatures()
        for process in multiprocessing.active_children():
            process.kill()
            process.join()
        for _ in range(100):  # until the pool has seen it
            with pytest.raises(InputError, match="a scoring process has died"):
                workers.signatures()


def test_a_failed_run_whose_exception_is_kept_goes_on_in_the_same_program(folder, monkeypatch):
    options = {"lms": {"kenlm": folder / "lm.arpa"}, "weights": {"kenlm": 1.0, "TM0": 1.0}, "output": folder / "kept"}

    def refused(*_: object) -> NbestList:
        raise InputError("refused")

    with monkeypatch.context() as patch:
        patch.setattr("attlm_fairseq.nbest.run.deciding.decide", refused)
        with pytest.raises(InputError, match="refused") as kept:
            attlm.rescore(folder / "list", **options)
    assert kept.value.__traceback__ is not None
    attlm.rescore(folder / "list", **options)
    assert (folder / "kept").exists()


def test_bad_input_in_a_process_is_one_line(folder):
    config = RunConfig((LMSpec("lm", checkpoints=(folder / "text",)),))
    with Processes(config, [DeviceConfig()]) as workers, pytest.raises(InputError, match=r"text: .*checkpoint"):
        next(workers.score(blocks_of([["w1"]])))


def test_an_lm_that_is_replaced_while_processes_load_it_is_refused(folder, tmp_path):
    path = tmp_path / "lm.arpa"
    shutil.copy(folder / "lm.arpa", path)
    with Processes(RunConfig((LMSpec("kenlm", kenlm=path),)), [DeviceConfig()]) as workers:
        path.write_text(path.read_text() + "\n")  # before the first work starts the process
        with pytest.raises(InputError, match=r"lm\.arpa: has changed while the processes loaded it"):
            next(workers.score(blocks_of([["w1"]])))


def test_blocks_come_back_in_order_and_are_not_read_far_ahead(folder):
    config = RunConfig((LMSpec("kenlm", kenlm=folder / "lm.arpa"),))
    taken = []
    blocks = (block_of([f"w{number % 40}"] * (1 + number % 7)) for number in range(60) if taken.append(number) or True)
    with Processes(config, [DeviceConfig(), DeviceConfig()], ["kenlm_oov"]) as workers:
        scores = workers.score(blocks)
        sizes = [len(next(scores).values["kenlm"]) for _ in range(10)]
        assert len(taken) <= 10 + 2 * 2 + 1
        sizes += [len(block.values["kenlm_oov"]) for block in scores]
    assert sizes == [1 + number % 7 for number in range(60)]


class Counting(BlockScorer):
    def __init__(self, lms: BlockScorer, features: tuple[str, ...] = ("kenlm_oov",)) -> None:
        super().__init__(lms.scorers, lms.texts, features)
        self.scored = 0

    def score(self, block: Block, margin: float | None = None) -> BlockScores:
        self.scored += 1
        return super().score(block, margin)


def kenlm(folder: Path, features: tuple[str, ...] = ("kenlm_oov",)) -> Counting:
    return Counting(BlockScorer.load(RunConfig((LMSpec("kenlm", kenlm=folder / "lm.arpa"),)), DeviceConfig()), features)


def contents(scored: list[BlockScores]) -> list[object]:
    return [
        (block.values, block.oov["kenlm"].words, block.oov["kenlm"].unknown, block.oov["kenlm"].examples, block.notes) for block in scored
    ]


def test_a_cache_gives_back_what_it_was_given(folder, tmp_path):
    lms = kenlm(folder)
    blocks = blocks_of([["w1 w2", "unheard-of \u00e9"], ["w3"], [""], ["w4 w5"], ["w6"]])
    place = tmp_path / "out.unfinished"
    cache = ScoreCache(place)
    assert len(list(cache.score(OneProcess(lms), blocks[:1]))) == 1
    assert not place.exists()  # one block alone leaves no file
    whole = list(cache.score(OneProcess(lms), blocks))
    place.unlink()
    for count in (1, 2, 4, 5):
        stopped = ScoreCache(place).score(OneProcess(lms), blocks)
        assert len([next(stopped) for _ in range(count)]) == count
        stopped.close()
        before = lms.scored
        with collected() as told:
            again = list(ScoreCache(place).score(OneProcess(lms), blocks))
        assert lms.scored == before + len(blocks) - count
        assert contents(again) == contents(whole)
        assert told == [f"continued: the scores of {sum(map(len, blocks[:count]))} hypotheses were in out.unfinished already"]
        cache.finish()
        assert not list(tmp_path.iterdir())


def test_a_damaged_cache_is_scored_again_in_one_line(folder, tmp_path):
    """Bits that flip, files cut short, and rows of another shape with the right checksum: never a traceback, always the same scores."""
    lms = kenlm(folder)
    blocks = blocks_of([["w1 w2"], ["w3"], ["w4 w5", "unheard-of"], ["w6"]])
    place = tmp_path / "out.unfinished"
    whole = contents(list(ScoreCache(place).score(OneProcess(lms), blocks)))
    content = place.read_bytes()
    generator = random.Random(3)
    damaged = [content[:size] for size in (0, 50, 100, 4096, len(content) - 1)]
    for _ in range(150):
        where = generator.choice([generator.randrange(100), generator.randrange(len(content))])
        if not 68 <= where < 72:  # whose file it is
            damaged.append(content[:where] + bytes([content[where] ^ 1 << generator.randrange(8)]) + content[where + 1 :])
    for one in damaged:
        place.write_bytes(one)
        with collected() as told:
            assert contents(list(ScoreCache(place).score(OneProcess(lms), blocks))) == whole
        assert len(told) <= 2
        assert all(line.startswith(("note: out.unfinished is damaged", "continued: ")) for line in told), told
    for text in (
        "{",
        "[" * 100_000,
        "[]",
        '{"values": {"kenlm": [1, 2, 3, 4]}, "oov": {}, "notes": {}}',
        '{"values": {"kenlm": [1e999]}}',
        b"\xff",
        3,
    ):
        place.write_bytes(content)
        check = hashlib.sha256(text.encode() if isinstance(text, str) else b"").hexdigest()
        with contextlib.closing(sqlite3.connect(place)) as database, database:
            database.execute('UPDATE scores SET scores = ?, "check" = ?', (text, check))
        with collected() as told:
            assert contents(list(ScoreCache(place).score(OneProcess(lms), blocks))) == whole
        assert told == ["note: out.unfinished is damaged: everything after 0 hypotheses is scored again"]
    with contextlib.closing(sqlite3.connect(place)) as database, database:  # a view that would never end
        database.execute("DROP TABLE scores")
        database.execute(
            "CREATE VIEW scores AS WITH RECURSIVE r(block) AS (SELECT 1 UNION ALL SELECT block + 1 FROM r) SELECT block FROM r"
        )
    with collected() as told:
        assert contents(list(ScoreCache(place).score(OneProcess(lms), blocks))) == whole
    assert told == ["note: out.unfinished is damaged: its lists are scored again"]


def test_a_journal_that_names_another_file_does_not_delete_it(folder, tmp_path):
    """SQLite would: the name stands where that of a journal of several databases does."""
    lms, place, precious = kenlm(folder), tmp_path / "out.unfinished", tmp_path / "precious"
    blocks = blocks_of([["w1 w2"], ["w3"]])
    whole = contents(list(ScoreCache(place).score(OneProcess(lms), blocks)))
    precious.write_text("of the user")
    name, pages = os.fsencode(precious), place.stat().st_size // 4096
    header = (JOURNAL_MAGIC + struct.pack(">5I", 0, 0, pages, 512, 4096)).ljust(512, b"\0")
    end = struct.pack(">I", 1) + name + struct.pack(">II", len(name), sum(name)) + JOURNAL_MAGIC
    (tmp_path / "out.unfinished-journal").write_bytes(header + end)
    with collected() as told:
        assert contents(list(ScoreCache(place).score(OneProcess(lms), blocks))) == whole
    assert told == ["note: out.unfinished is damaged: its lists are scored again"]
    assert precious.read_text() == "of the user"
    assert not (tmp_path / "out.unfinished-journal").exists()


def test_a_cache_is_of_one_run_at_a_time(folder, tmp_path):
    lms, place = kenlm(folder), tmp_path / "out.unfinished"
    first = ScoreCache(place).score(OneProcess(lms), blocks_of([["w1"], ["w2"]]))
    next(first)
    with (
        collected() as told,
        pytest.raises(InputError, match=r"out\.unfinished: another attlm is using this file"),
        ScoreCache(place).telling_how_to_continue(),
    ):
        next(ScoreCache(place).score(OneProcess(lms), blocks_of([["w1"], ["w2"]])))
    assert told == []  # the scores there are the other's
    assert len(list(first)) == 1
    assert len(list(ScoreCache(place).score(OneProcess(lms), blocks_of([["w1"], ["w2"]])))) == 2


def test_a_file_of_an_older_attlm_is_one_line(folder, tmp_path):
    place = tmp_path / "out.unfinished"
    place.write_bytes(b'{"attlm": "0.1.0", "scores of": "x", "check": "y"}\n{"block": ')
    with collected() as told:
        assert len(list(ScoreCache(place).score(OneProcess(kenlm(folder)), blocks_of([["w1"], ["w2"]])))) == 2
    assert told == ["note: out.unfinished is of an older attlm: its lists are scored again"]


def test_a_cache_of_other_lms_settings_or_hypotheses_is_not_continued(folder, tmp_path):
    config = RunConfig((LMSpec("kenlm", kenlm=folder / "lm.arpa"),))
    renamed = RunConfig((LMSpec("other", kenlm=folder / "lm.arpa"),))
    lms, other_lms = (Counting(BlockScorer.load(each, DeviceConfig()), ()) for each in (config, renamed))
    blocks = [["w1 w2"], ["w3"], ["w4 w5"]]
    place = tmp_path / "out.unfinished"

    def scored_again(scorer: Counting, settings: object, blocks: list[list[str]]) -> int:
        place.unlink(missing_ok=True)
        list(ScoreCache(place, "float32").score(OneProcess(lms), blocks_of([["w1 w2"], ["w3"], ["w4 w5"]])))
        before = scorer.scored
        assert len(list(ScoreCache(place, settings).score(OneProcess(scorer), blocks_of(blocks)))) == len(blocks)
        return scorer.scored - before

    assert scored_again(lms, "float32", blocks) == 0
    assert scored_again(lms, "bfloat16", blocks) == 3
    assert scored_again(other_lms, "float32", blocks) == 3
    assert scored_again(lms, "float32", [blocks[0], ["w3 "], blocks[2]]) == 2
    assert scored_again(lms, "float32", [["w1", "w2"], *blocks[1:]]) == 3
    assert scored_again(lms, "float32", blocks[:2]) == 0
    assert scored_again(lms, "float32", [*blocks, ["w6"]]) == 1


def test_two_runs_do_not_write_one_file(tmp_path):
    place = str(tmp_path / "out")
    with whole_file(place) as out:
        out.write("first")
        with pytest.raises(InputError, match="another attlm is writing this file"), whole_file(place):
            pass
    assert Path(place).read_text() == "first"
    (tmp_path / ".out.part").write_text("left by a killed run, and longer than what follows")
    with whole_file(place) as out:
        out.write("second")
    assert Path(place).read_text() == "second"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_devices_and_memory():
    assert [compute.device for compute in parse_devices("cpu:3", "float32", 1 << 30)] == ["cpu"] * 3
    for wrong in ("cpu:0", "gpu", "cpu,", "cuda:99", "cuda:0,cuda:0", "cpu:x"):
        with pytest.raises(InputError, match="--devices"):
            parse_devices(wrong, "float32", 1 << 30)
    assert parse_memory(f"{'9' * 400}G") == 1 << 62
    assert (parse_memory("500M"), parse_memory("1.5G"), parse_memory("2gib")) == (500 << 20, 3 << 29, 2 << 30)
    for wrong in ("", "many", "10M", "-1G", "1P"):
        with pytest.raises(InputError, match="--memory"):
            parse_memory(wrong)


def test_a_run_with_other_features_is_not_continued(folder, monkeypatch):
    more = ["--weight", "kenlm_oov=-50"]
    finish(command(folder, "more", *more))
    decided = []

    def interrupted(*arguments: object) -> NbestList:
        decided.append(arguments)
        if len(decided) == 300:
            raise KeyboardInterrupt
        return decide(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr("attlm_fairseq.nbest.run.deciding.decide", interrupted)
        finish(command(folder, "again"), code=130)
    assert (folder / "again.unfinished").stat().st_size > 4096 * 8
    told = finish(command(folder, "again", *more))
    assert "continued" not in told
    assert (folder / "again").read_bytes() == (folder / "more").read_bytes()


def test_a_file_of_the_users_in_the_place_of_the_cache_stays(folder):
    place = folder / "mine.unfinished"
    place.write_bytes((folder / "list").read_bytes())
    for source in ("list", "mine.unfinished"):
        arguments = command(folder, "mine")
        arguments[arguments.index(str(folder / "list"))] = str(folder / source)
        told = finish(arguments, code=2)
        assert "mine.unfinished: is in the way" in told.splitlines()[-1]
        assert "goes on from there" not in told
        assert place.read_bytes() == (folder / "list").read_bytes()
    place.write_bytes(b"")  # of a run that was killed before it wrote
    finish(command(folder, "mine"))
    assert not place.exists()


def test_a_folder_in_the_place_of_the_cache_is_one_line(folder):
    place = folder / "other.unfinished"
    place.mkdir()
    assert "other.unfinished: is in the way" in finish(command(folder, "other"), code=2).splitlines()[-1]
    place.rmdir()
    os.mkfifo(place)
    assert "other.unfinished: is in the way" in finish(command(folder, "other"), code=2).splitlines()[-1]


@pytest.mark.parametrize("options", [{}, {"oov": OOVPolicy("penalty", -12.0)}, {"context_sentences": 2}])
def test_scores_after_other_sentences_are_not_kept(folder, tmp_path, options):
    """No key of a cache tells them from others. A folder that is there and empty has a cache, too."""
    write_checkpoint(tmp_path / "lm.pt", WORDS)
    config = RunConfig(lms=(replace(LMSpec("lm", checkpoints=(tmp_path / "lm.pt",)), **options),), weights={"lm": 1.0}).in_memory()
    (tmp_path / "empty").mkdir()
    for configured in (config, config.after([])):
        for output in ("out", "empty"):
            assert ScoreCache.of_output(str(tmp_path / output), configured, config.device, []).path == tmp_path / f"{output}.unfinished"
    assert ScoreCache.of_output(str(tmp_path / "out"), config.after(["w1 w2"]), config.device, []).path is None
