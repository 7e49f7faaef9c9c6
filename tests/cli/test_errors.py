"""What a user gets for each thing that can go wrong: one paragraph, exit code 2, no traceback."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import a2lp
from a2lp.cli.app import app

QUICK = ["bench", "--features", "digits", "--tasks", "3"]


class Malicious:
    def __reduce__(self):
        return os.system, ("echo owned > owned.txt",)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working folder with files that are not what they should be."""
    monkeypatch.chdir(tmp_path)
    x, y = np.random.default_rng(0).normal(size=(40, 4)), np.repeat(np.arange(4), 10)
    np.savez("good.npz", features=x, labels=y)
    Path("truncated.npz").write_bytes(Path("good.npz").read_bytes()[:300])
    bad = x.copy()
    bad[3, 2] = np.nan
    np.savez("nan.npz", features=bad, labels=y)
    np.savez("unlabelled.npz", features=x)
    np.savez("flat.npz", features=x[0], labels=y[:4])
    np.savez("other.npz", weights=x)
    Path("text.npz").write_text("not an archive")
    Path("evil.plk").write_bytes(pickle.dumps(Malicious()))
    Path("cut.plk").write_bytes(pickle.dumps({0: [x[0]]})[:-20])
    Path("folder").mkdir()
    Path("table.xlsx").write_text("")
    np.savez("notasks.npz", support=y)
    return tmp_path


BAD = {
    "unknown method": ([*QUICK, "--methods", "a2pl"], "Did you mean 'a2lp'"),
    "unknown parameter": ([*QUICK, "--set", "a2lp.stepz=3"], "'steps'"),
    "k = 0": ([*QUICK, "--set", "a2lp.n_neighbors=0"], "n_neighbors=0"),
    "alpha = 1": ([*QUICK, "--set", "lp.alpha=1"], "alpha=1"),
    "alpha is a word": ([*QUICK, "--set", "lp.alpha=high"], "alpha='high'"),
    "--set of nobody": ([*QUICK, "--set", "a2pl.steps=3"], "'a2lp'"),
    "--set without value": ([*QUICK, "--set", "steps"], "NAME.PARAM=VALUE"),
    "class too small": (["bench", "--features", "good.npz", "--ways", "3"], "class '0' has 10"),
    "too many ways": ([*QUICK, "--ways", "11"], "n_way=11"),
    "no shots": ([*QUICK, "--shots", "0"], "n_shot=0"),
    "shots in words": ([*QUICK, "--shots", "one"], "'one'"),
    "an empty list": ([*QUICK, "--shots", ","], "--shots"),
    "no tasks": (["bench", "--features", "digits", "--tasks", "0"], "n_tasks=0"),
    "negative seed": ([*QUICK, "--seed", "-1"], "seed=-1"),
    "unknown features": (["bench", "--features", "cubb"], "'cub'"),
    "a file that is not there": (["bench", "--features", "nowhere/x.npz"], "nowhere/x.npz"),
    "a directory": (["bench", "--features", "folder"], "folder"),
    "a truncated archive": (["bench", "--features", "truncated.npz"], "truncated.npz"),
    "no archive": (["bench", "--features", "text.npz"], "text.npz"),
    "an archive of something else": (["bench", "--features", "other.npz"], "features"),
    "another format": (["bench", "--features", "table.xlsx"], ".xlsx"),
    "NaN": (["bench", "--features", "nan.npz"], "features[3, 2]"),
    "one axis": (["bench", "--features", "flat.npz"], "(4,)"),
    "no labels": (["bench", "--features", "unlabelled.npz"], "no labels"),
    "a malicious pickle": (["bench", "--features", "evil.plk"], "evil.plk"),
    "a truncated pickle": (["bench", "--features", "cut.plk"], "cut.plk"),
    "no tasks file": ([*QUICK, "--tasks-file", "nowhere.npz"], "nowhere.npz"),
    "features as tasks file": ([*QUICK, "--tasks-file", "good.npz"], "expected a task list"),
    "half a tasks file": ([*QUICK, "--tasks-file", "notasks.npz"], "query_labels"),
    "tasks into nowhere": ([*QUICK, "--save-tasks", "nowhere/t.npz"], "nowhere"),
    "unknown sampler": ([*QUICK, "--sampler", "balancd"], "'balanced'"),
    "a sampler that needs more": ([*QUICK, "--sampler", "k_eff"], "k_eff"),
    "unknown preprocess": ([*QUICK, "--preprocess", "l3"], "'l2'"),
    "cl2n without base": ([*QUICK, "--preprocess", "cl2n"], "base is None"),
    "unknown engine": ([*QUICK, "--engine", "fast"], "engine"),
    "unknown device": ([*QUICK, "--device", "gpu"], "'gpu'"),
    "unknown format": ([*QUICK, "--format", "jsn"], "'json'"),
    "unknown baseline": ([*QUICK, "--baseline", "lpp"], "'lp'"),
    "--out is a file": ([*QUICK, "--out", "good.npz"], "good.npz"),
    "--out is below a file": ([*QUICK, "--out", "good.npz/runs"], "good.npz"),
    "empty sweep": (["sweep", "--features", "digits", "--grid", "alpha"], "PARAM=VALUE"),
    "sweep of an unknown parameter": (["sweep", "--features", "digits", "--grid", "alfa=0.5,0.6"], "'alpha'"),
    "sweep beyond the range": (["sweep", "--features", "digits", "--grid", "alpha=0.5,1.0"], "alpha=1.0"),
    "sweep on unknown classes": (
        ["sweep", "--features", "digits", "--grid", "alpha=0.5", "--classes", "val"],
        "validation",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_errors_are_one_paragraph(folder, name, check_refused):
    if name == "unknown device":
        pytest.importorskip("torch")
    args, part = BAD[name]
    result = CliRunner().invoke(app, args)
    check_refused(result, part)
    assert not (folder / "owned.txt").exists()


@pytest.mark.parametrize("args", [["bench", "--taskss", "3"], ["bench", "--tasks", "many"], ["bnch"], ["sweep"]])
def test_usage_errors(args):
    result = CliRunner().invoke(app, args)
    assert result.exit_code == 2
    assert "Usage" in result.stderr
    assert "Traceback" not in result.stderr


def test_the_program_itself(tmp_path):
    """The same through a process: what a shell sees."""
    done = subprocess.run(
        [sys.executable, "-m", "a2lp", "bench", "--features", str(tmp_path)],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(Path(a2lp.__file__).parents[1])},
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert done.stderr.count("\n") == 1


def test_bugs_keep_their_traceback(monkeypatch):
    def broken() -> dict[str, str]:
        raise RuntimeError("a bug")

    monkeypatch.setattr("a2lp.methods.registry.list_methods", broken)
    result = CliRunner().invoke(app, ["methods"])
    assert isinstance(result.exception, RuntimeError)
