from __future__ import annotations

import os
import pickle
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from a2lp.cli.app import app
from a2lp.features import load


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["convert", *map(str, arguments)])


def test_a_pickle_becomes_every_other_format(tmp_path: Path) -> None:
    vectors = {7: np.eye(3, 4), 2: np.ones((2, 4))}
    source = tmp_path / "output.plk"
    source.write_bytes(pickle.dumps(vectors))
    for suffix in (".npz", ".npy", ".safetensors", ".parquet"):
        target = tmp_path / f"[red]{suffix}"
        result = run(source, target)
        assert result.exit_code == 0
        assert result.stdout == f"{source}: 5 vectors of 4 dimensions (float64), 2 classes -> {target}\n"
        assert np.array_equal(load(target).features, np.concatenate(list(vectors.values())))
        assert load(target).classes == ("7", "2")


def test_a_bundled_set(tmp_path: Path) -> None:
    result = run("digits", tmp_path / "digits.npz")
    assert "1797 vectors of 64 dimensions (float32), 10 classes" in result.stdout


class Malicious:
    def __reduce__(self) -> object:
        return os.system, ("touch it-ran",)


def write_bad_files() -> None:
    Path("good.npz").touch()
    np.savez("good.npz", features=np.eye(2))
    np.savez("exists.npz", features=np.eye(2))
    np.savez("nan.npz", features=[[0, np.nan]])
    Path("forged.plk").write_bytes(pickle.dumps({1: Malicious()}))
    Path("cut.npz").write_bytes(Path("good.npz").read_bytes()[:60])
    Path("text.parquet").write_text("a,b\n1,2\n")
    Path("folder.npz").mkdir()


@pytest.mark.parametrize(
    ("source", "target", "said"),
    [
        ("nothing.npz", "new.npz", "nothing.npz does not exist"),
        ("cubb", "new.npz", "Did you mean 'cub'?"),
        ("folder.npz", "new.npz", "is a folder"),
        ("nan.npz", "new.npy", "nan.npz: features[0, 1]"),
        ("forged.plk", "new.npz", "system, which is forbidden"),
        ("cut.npz", "new.npz", "cut short or damaged"),
        ("text.parquet", "new.npz", "expected a Parquet table"),
        ("good.npz", "exists.npz", "--force"),
        ("good.npz", "new.plk", "never written"),
        ("good.npz", "new.txt", "is written as .npz"),
        ("good.npz", "no/new.npz", "no folder no"),
    ],
)
def test_what_cannot_be_converted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, target: str, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    write_bad_files()
    result = run(source, target)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("error: ")
    assert said in result.stderr
    assert "Traceback" not in result.stderr
    assert not Path("it-ran").exists()
    assert target == "exists.npz" or not Path(target).exists()


def test_force_replaces(tmp_path: Path) -> None:
    target = tmp_path / "x.npz"
    np.savez(target, features=np.zeros((1, 1)))
    assert run("digits", target, "--force").exit_code == 0
    assert len(load(target)) == 1797
