"""Rescoring by Ray Data: one Ray for all of these tests, with two cores, shut down at their end."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import threading
import time
from pathlib import Path

import pytest
from cli_runs import run
from lm_files import write_checkpoint

import attlm_fairseq as attlm
from attlm_cli.shards import by_line
from attlm_fairseq.errors import InputError
from attlm_fairseq.files.folders import own_folder
from attlm_fairseq.nbest.run import rescoring
from attlm_fairseq.nbest.run.config import RunConfig
from attlm_fairseq.nbest.run.config_file import read_config
from attlm_fairseq.nbest.run.score_cache import ScoreCache
from attlm_fairseq.verbs import shards as verb
from attlm_fairseq.verbs.shards import Shard, ShardRescorer, _require_settings, _settings_of, find_shards, rescore_shards

WORDS = [f"w{number}" for number in range(40)]
SMALL = 3000  # characters of a block


@pytest.fixture(scope="module")
def ray():
    ray = pytest.importorskip("ray", reason="ray is not installed")

    small = SMALL  # a global would be looked up in this module, which workers cannot import

    def small_blocks() -> None:  # in each worker: many blocks in a small shard
        from attlm_fairseq.nbest.run import rescoring

        rescoring.BLOCK_CHARACTERS = small

    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, runtime_env={"worker_process_setup_hook": small_blocks})
    yield ray
    ray.shutdown()


@pytest.fixture
def shards(tmp_path, monkeypatch) -> Path:
    """Two shards, one that is broken in line 6, and an LM; in the folder where the test runs."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(rescoring, "BLOCK_CHARACTERS", SMALL)
    write_checkpoint(tmp_path / "lm.pt", WORDS)
    (tmp_path / "attlm.toml").write_text('[lm.lm]\ncheckpoint = "lm.pt"\n[weights]\nlm = 1.0\nTM0 = 0.5\n')
    (tmp_path / "in").mkdir()
    generator = random.Random(1)
    for name, lines in (("one", 3000), ("two", 5), ("bad", 5)):
        text = "".join(
            f"{number // 5} ||| {' '.join(generator.choices(WORDS, k=number % 9))} ||| TM0= -{number} ||| -1\n" for number in range(lines)
        )
        (tmp_path / "in" / name).write_text(text + ("x\n" if name == "bad" else ""))
    return tmp_path


def expected(name: str) -> bytes:
    run("rescore", f"in/{name}", "-o", "expected")
    return Path("expected").read_bytes()


def test_the_command_writes_the_bytes_of_one_process_and_continues(ray, shards):
    result = run("rescore", "in/*", "-o", "out", "--engine", "ray", code=2)
    assert "bad:6: found 'x'" in result.stderr
    assert "2 files rescored, 601 lists" in result.stderr
    assert sorted(path.name for path in (shards / "out").iterdir()) == [".attlm-settings.json", "one", "two"]
    for name in ("one", "two"):
        assert (shards / "out" / name).read_bytes() == expected(name)
    (shards / "in" / "bad").unlink()
    assert "0 files rescored, 0 lists; 2 were there already" in run("rescore", "in", "-o", "out", "--engine", "ray").stderr
    (shards / "out").rename(shards / "in" / "out")
    assert "0 files rescored, 0 lists; 2 were there already" in run("rescore", "in", "-o", "in/out", "--engine", "ray").stderr


def test_outputs_of_other_settings_are_not_taken_for_those_of_a_run(shards, monkeypatch):
    """Without ray: what is compared before it begins."""
    out = shards / "out"
    out.mkdir()

    def settings_of(path="attlm.toml"):
        return _settings_of(read_config(Path(path)), None)

    settings = settings_of()
    _require_settings(out, {"weights": {"lm": 2.0}})  # of a run that was interrupted in its first file
    (out / "one.unfinished").write_text("")
    _require_settings(out, settings)
    (out / "one").write_text("0 ||| a ||| lm= -1 ||| -1\n")
    _require_settings(out, settings)
    (shards / "lm.pt").touch()
    monkeypatch.chdir(out)  # the same files, by other names
    _require_settings(out, settings_of("../attlm.toml"))
    monkeypatch.chdir(shards)
    Path("attlm.toml").write_text(Path("attlm.toml").read_text().replace("TM0 = 0.5", "TM0 = 0.25"))
    with pytest.raises(
        InputError, match=r"out: has outputs of a run with other settings \(weights\): name another folder for the output, or"
    ):
        _require_settings(out, settings_of())
    write_checkpoint(shards / "lm.pt", WORDS, seed=2)
    with pytest.raises(InputError, match=r"a run with other settings \(LM lm, weights\): name another"):
        _require_settings(out, settings_of())
    Path("attlm.toml").write_text(Path("attlm.toml").read_text() + '[corrections]\nphrases = "phrases"\ncandidates = 3\n')
    found = []
    for text in ("a b\n", "a c\n"):
        Path("phrases").write_text(text)
        found.append(settings_of())
    assert found[0] != found[1]
    (out / ".attlm-settings.json").write_text("[1]")
    with pytest.raises(InputError, match="is not what an earlier run has written: delete it"):
        _require_settings(out, settings)
    (out / ".attlm-settings.json").unlink()
    _require_settings(out, settings)  # outputs of older versions have none


def test_outputs_within_the_folder_of_the_files_are_not_rescored(shards):
    (shards / "in" / "out").mkdir()
    (shards / "link").symlink_to("in")
    (shards / "in" / "one").rename(shards / "two-links")
    (shards / "in" / "one").symlink_to("one")  # leads to itself
    for files in ("in", "in/*", f"../{shards.name}/in", "link"):
        for output in ("in/out", f"../{shards.name}/in/out", "in/out/first", "link/out"):
            assert [Path(file).name for file in find_shards(files, Path(output))] == ["bad", "one", "two"]


def test_the_folder_of_the_files_is_no_output(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("in").mkdir()
    Path("in/one").write_text("0 ||| a ||| am= -1\n")
    for output in (tmp_path / "in", Path("./in")):
        with pytest.raises(InputError, match="in: is the folder of the files to rescore: name another folder for the output"):
            rescore_shards(["in/one"], output, config=RunConfig())


def test_the_decoders_own_score_has_weight_1_as_in_one_process(shards):
    """Without ray: what its workers run, and how their notes are printed."""
    (shards / "attlm.toml").write_text('[lm.lm]\ncheckpoint = "lm.pt"\n[weights]\nlm = 1.0\n')
    (shards / "in" / "bad").write_bytes((shards / "in" / "two").read_bytes())  # a shard of the same kind
    (shards / "out").mkdir()
    actor = ShardRescorer(read_config(Path("attlm.toml")), str(shards))
    done = [actor({"path": f"in/{name}", "output": f"out/{name}"}) for name in ("bad", "two")]
    notes = by_line([Shard(row["path"], row["output"], row["lists"], row["error"], tuple(row["notes"].split("\n"))) for row in done])
    [(paths, _)] = [
        (paths, line) for line, paths in notes.items() if line.startswith("note: decoder, the decoder's own score, has weight 1")
    ]
    assert paths == ["in/bad", "in/two"]
    assert [row["notes"].count("has weight 1") for row in done] == [1, 1]
    assert (shards / "out" / "two").read_bytes() == expected("two")
    run("rescore", "in/two", "-o", "alone", "--weight", "decoder=0")
    assert (shards / "out" / "two").read_bytes() != Path("alone").read_bytes()


def test_shards_of_every_json_shape_have_confidences_and_the_warnings_of_one_process(tmp_path, monkeypatch):
    """Without ray: what its workers run."""
    monkeypatch.chdir(tmp_path)
    write_checkpoint(tmp_path / "lm.pt", ["a", "b"])
    write_checkpoint(tmp_path / "other.pt", ["a", "b"], seed=2)
    lists = [
        {"id": f"u{n}", "hypotheses": [{"text": "a b", "score": -1.0 - n % 3}, {"text": "b", "score": -2.0}], "ref": "b"} for n in range(8)
    ]
    Path("lists").write_text("".join(json.dumps(line) + "\n" for line in lists))
    run("tune", "lists", "--lm", "lm.pt", "--confidence", "--folds", 0, "-o", "attlm.toml")
    write_checkpoint(tmp_path / "lm.pt", ["a", "b"], seed=3)
    told = run("rescore", "lists", "-o", "expected").stderr
    warning = "lm is not the LM that its weight of attlm.toml was tuned with"
    assert warning in told
    done = ShardRescorer(read_config(Path("attlm.toml")), str(tmp_path))({"path": "lists", "output": str(tmp_path / "out")})
    assert (done["error"], warning in done["notes"]) == ("", True)
    assert Path("out").read_bytes() == Path("expected").read_bytes()
    assert "word_confidences" in Path("out").read_text()


def test_an_lm_that_is_an_object_cannot_go_to_other_processes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_checkpoint(tmp_path / "lm.pt", ["a"])
    config = attlm.run_config(lms={"lm": attlm.load_lm("lm.pt")}, weights={"lm": 1.0})
    with pytest.raises(InputError, match="lm: an LM that is an object lives in this process"):
        attlm.rescore_shards(["a"], "out", config=config)
    for nothing, message in (([], "there are no files to rescore"), (Path("none"), "none: no such files")):
        with pytest.raises(InputError, match=message):
            attlm.rescore_shards(nothing, "out", config=attlm.run_config(lms={"lm": "lm.pt"}, weights={"lm": 1.0}))


def holder(place: Path) -> int | None:
    """Return the process, not this one, that has a file open."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if int(process.name) != os.getpid() and any(str(fd.readlink()) == str(place) for fd in (process / "fd").iterdir()):
                return int(process.name)
        except OSError:  # of another user, or it has just ended
            continue
    return None


def test_a_killed_worker_is_replaced_and_the_bytes_are_the_same(ray, shards):
    """SIGKILL for the process that has the shard's score cache open, once it is in the middle."""
    place, killed, ended = shards / "out" / "one.unfinished", [], threading.Event()

    def kill() -> None:
        while not killed and not ended.is_set():
            if place.exists() and place.stat().st_size > 4096 * 8 and (pid := holder(place)):
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)
            time.sleep(0.002)

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        [shard] = rescore_shards(["in/one"], shards / "out", config="attlm.toml")
    finally:
        ended.set()
    killer.join()
    assert len(killed) == 1
    assert (shard.lists, shard.error) == (600, "")
    assert any(line.startswith("continued: the scores of ") for line in shard.notes)
    assert (shards / "out" / "one").read_bytes() == expected("one")
    assert [Path(path).name for path in find_shards("out")] == ["one"]


def test_a_second_run_into_the_folder_is_refused(shards, monkeypatch):
    monkeypatch.setattr(verb, "_import_ray", lambda: None)
    Path("out").mkdir()
    with (
        own_folder(Path("out") / verb.RUNNING, "out"),
        pytest.raises(InputError, match="out: another attlm is writing this: wait for it, or name another"),
    ):
        rescore_shards("in/*", "out", config="attlm.toml")
    assert list(Path("out").iterdir()) == []


def test_without_ray_it_says_so_and_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InputError, match=r"Ray is not installed: pip install 'attlm-fairseq\[ray\]'"):
        rescore_shards(["a"], tmp_path / "out", config=RunConfig())
    assert not (tmp_path / "out").exists()


def test_what_a_run_cannot_do_is_said_before_it_starts(shards):
    for options, message in (
        (("in/*", "-o", "out", "--consensus"), "makes texts that are in no list"),
        (("in/*", "-o", "out", "--to", "jsonl"), "--to jsonl: with --engine ray"),
        (("in/*",), "give a folder for the rescored shards with -o"),
        (("none/*", "-o", "out"), "none/*: no such files"),
        (("in/*", "-o", "out", "--context-sentences", "5"), "no effect without a context: --context-sentences"),
    ):
        result = run("rescore", *options, "--engine", "ray", code=2)
        assert message in result.stderr
    assert not (shards / "out").exists()
    with pytest.raises(InputError, match="two of the files have one name"):
        rescore_shards(["a/x", "b/x"], shards / "out", config=RunConfig())
    assert find_shards("in") == ["in/bad", "in/one", "in/two"]


def test_an_actor_does_what_the_command_does(tmp_path, monkeypatch):
    """Without ray: what its workers run. The weights are as `tune --feature` writes them, of a difference of two LMs alone."""
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b"):
        write_checkpoint(tmp_path / f"{name}.pt", ["a", "b"], seed=ord(name))
    Path("attlm.toml").write_text('[lm.a]\ncheckpoint = "a.pt"\n[lm.b]\ncheckpoint = "b.pt"\n[weights]\na_minus_b = 1.0\nTM0 = 0.5\n')
    text = "".join(f"{number // 5} ||| {'a unheard ' * (number % 5)} ||| TM0= -{number} ||| -1\n" for number in range(30))
    Path("lists").write_text(text)
    row = {"path": "lists", "output": str(tmp_path / "out")}
    actor = ShardRescorer(read_config(Path("attlm.toml")), str(tmp_path))
    done = actor(row)
    assert (done["lists"], done["error"]) == (6, "")
    assert "are unknown to a" in done["notes"]
    run("rescore", "lists", "-o", "expected")
    assert Path("out").read_bytes() == Path("expected").read_bytes()
    monkeypatch.setattr(ScoreCache, "of_output", None)  # with --no-resume nothing is kept
    Path("out").unlink()
    ShardRescorer(read_config(Path("attlm.toml")), str(tmp_path), resume=False)(row)
    assert Path("out").read_bytes() == Path("expected").read_bytes()
    assert actor({**row, "path": "nowhere"})["error"].startswith("nowhere: ")


def test_several_devices_are_as_many_actors(ray, shards):
    (shards / "in" / "bad").unlink()
    run("rescore", "in/*", "-o", "out", "--engine", "ray", "--devices", "cpu:2")
    for name in ("one", "two"):
        assert (shards / "out" / name).read_bytes() == expected(name)


def test_an_actor_tells_warnings_of_the_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_checkpoint(tmp_path / "lm.pt", ["a", "b"])
    Path("attlm.toml").write_text('[lm.lm]\ncheckpoint = "lm.pt"\n[weights]\nlm = 1.0\nTM0 = 0.5\n')
    Path("lists").write_text("0 ||| a ||| TM0= -1 ||| -1\n0 ||| b ||| TM0= -2 ||| -1")
    done = ShardRescorer(read_config(Path("attlm.toml")), str(tmp_path))({"path": "lists", "output": str(tmp_path / "out")})
    assert "WARNING: lists:2: the last line has no line end" in done["notes"]
