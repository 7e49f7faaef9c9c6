from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from a2lp import doctor
from a2lp.cli.app import app


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["doctor", *arguments], env={"COLUMNS": "80"})


def test_every_engine_that_can_run_here_passes() -> None:
    result = run("--format", "json")
    found = json.loads(result.stdout)
    assert result.exit_code == 0, result.stdout
    assert found["passed"]
    by_engine = {(c["engine"], c["arrays"], c["precision"]): c for c in found["checks"]}
    for key in (("fused_cpu", "NumPy", "float64"), ("fused_cpu", "NumPy", "float32"), ("batched", "NumPy", "float64")):
        # zero would mean that the reference was compared with itself
        assert 0 < by_engine[key]["difference"] < doctor.TOLERANCES[key[2]]
    assert {choice["arrays"]: choice["engine"] for choice in found["choices"]}["NumPy"] == "fused_cpu"
    assert found["kernel"]["float32"].startswith("compiled")


def test_the_table_fits_a_terminal_and_names_the_shape() -> None:
    result = run("--ways", "7", "--shots", "3", "--queries", "4", "--dims", "12")
    assert result.exit_code == 0, result.stdout
    assert "7-way 3-shot, 4 queries a class, 12 dimensions" in result.stdout
    assert "passed" in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 80


def test_a_difference_beyond_the_tolerance_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(doctor.TOLERANCES, "float32", 0.0)
    result = run()
    assert result.exit_code == 1
    assert "FAILED" in result.stdout
    assert "failed" in result.stdout.splitlines()[-1]


def test_an_engine_that_breaks_is_a_failure_with_its_message(monkeypatch: pytest.MonkeyPatch) -> None:
    from a2lp.engines.batched import Batched

    def broken(*_: Any) -> None:
        raise RuntimeError("no such instruction")

    monkeypatch.setattr(Batched, "run", broken)
    result = run("--format", "json")
    assert result.exit_code == 1
    notes = {check["engine"]: check["note"] for check in json.loads(result.stdout)["checks"][:4]}
    assert notes["batched"] == "RuntimeError: no such instruction"
    assert notes["fused_cpu"] == ""


@pytest.mark.parametrize(("arguments", "said"), [(("--ways", "0"), "ways=0"), (("--format", "csv"), "'csv'")])
def test_bad_options(arguments: tuple[str, str], said: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert result.stderr.startswith("error: ")
    assert said in result.stderr


def test_it_works_where_torch_cannot_be_imported() -> None:
    code = """
import sys

class NoTorch:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "torch":
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, NoTorch())
from a2lp.cli.app import app
app(["doctor", "--format", "json"])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert [choice["engine"] for choice in found["choices"]] == ["fused_cpu", None, None]
    assert {check["passed"] for check in found["checks"] if check["arrays"] == "NumPy"} == {True}
