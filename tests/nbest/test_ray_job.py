"""The Ray Data job, where ray is installed: pip install '.[ray]'."""

from __future__ import annotations

import sys

import pytest
from click.testing import CliRunner
from lm_files import write_checkpoint

from attlm_cli.main import main
from attlm_fairseq.errors import InputError
from attlm_fairseq.nbest.run.ray_job import RescoreFiles, rescore_files
from attlm_fairseq.scoring.compute import DeviceConfig


def test_files_come_out_as_from_the_command(tmp_path):
    pytest.importorskip("ray.data", reason="ray is not installed")
    write_checkpoint(tmp_path / "lm.pt", ["a", "b"])
    config = tmp_path / "attlm.toml"
    config.write_text('[lm.lm]\ncheckpoint = "lm.pt"\n[weights]\nlm = 1.0\nTM0 = 0.5\n')
    for name, lines in (("one", 30), ("two", 5), ("bad", 5)):
        text = "".join(f"{number // 5} ||| {'a b ' * (number % 5)} ||| TM0= -{number} ||| -1\n" for number in range(lines))
        (tmp_path / name).write_text(text + ("x\n" if name == "bad" else ""))
    files = [str(tmp_path / name) for name in ("one", "two", "bad")]
    rows = rescore_files(files, tmp_path / "out", config, 2, DeviceConfig())
    assert sorted(row["lists"] for row in rows) == [0, 1, 6]
    assert "bad:6: found 'x'" in next(row["error"] for row in rows if row["error"])
    for name in ("one", "two"):
        result = CliRunner().invoke(main, ["rescore", str(tmp_path / name), "--config", str(config), "-o", str(tmp_path / "expected")])
        assert result.exit_code == 0, result.output
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "expected").read_bytes()
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["one", "two"]
    assert rescore_files(files[:2], tmp_path / "out", config, 2, DeviceConfig()) == []


def test_without_ray_it_says_so_and_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    (tmp_path / "attlm.toml").write_text("[weights]\nTM0 = 0.5\n")
    with pytest.raises(InputError, match=r"Ray is not installed: pip install 'ray\[data\]'"):
        rescore_files(["a"], tmp_path / "out", tmp_path / "attlm.toml", 1, DeviceConfig())
    assert not (tmp_path / "out").exists()


def test_what_a_job_cannot_do_is_said_before_it_starts(tmp_path):
    config = tmp_path / "attlm.toml"
    config.write_text('[lm.lm]\ncheckpoint = "lm.pt"\n')
    with pytest.raises(InputError, match="no weight for lm"):
        rescore_files(["a"], tmp_path / "out", config, 1, DeviceConfig())


def test_an_actor_does_what_the_command_does(tmp_path):
    """Without ray: what its workers run. The weights are as `tune --feature` writes them, of a difference of two LMs alone."""
    for name in ("a", "b"):
        write_checkpoint(tmp_path / f"{name}.pt", ["a", "b"], seed=ord(name))
    config = tmp_path / "attlm.toml"
    config.write_text('[lm.a]\ncheckpoint = "a.pt"\n[lm.b]\ncheckpoint = "b.pt"\n[weights]\na_minus_b = 1.0\nTM0 = 0.5\n')
    text = "".join(f"{number // 5} ||| {'a unheard ' * (number % 5)} ||| TM0= -{number} ||| -1\n" for number in range(30))
    (tmp_path / "lists").write_text(text)
    row = {"input": str(tmp_path / "lists"), "output": str(tmp_path / "out")}
    done = RescoreFiles(config, DeviceConfig())(row)
    assert (done["lists"], done["error"]) == (6, "")
    assert "are unknown to a" in done["notes"]
    result = CliRunner().invoke(main, ["rescore", row["input"], "--config", str(config), "-o", str(tmp_path / "expected")])
    assert result.exit_code == 0, result.output
    assert (tmp_path / "out").read_bytes() == (tmp_path / "expected").read_bytes()
    assert RescoreFiles(config, DeviceConfig())({**row, "input": "nowhere"})["error"].startswith("nowhere: ")
