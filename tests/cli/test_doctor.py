from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from a2lp import doctor
from a2lp.cli.app import app
from a2lp.methods.propagation import A2LP, LP
from a2lp.methods.registry import loop_methods


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["doctor", *arguments], env={"COLUMNS": "80"})


def test_every_engine_that_can_run_here_passes() -> None:
    result = run("--format", "json")
    found = json.loads(result.stdout)
    assert result.exit_code == 0, result.stdout
    assert found["passed"]
    checks = {(c["method"], c["engine"], c["arrays"], c["precision"]): c for c in found["checks"]}
    for method, found_loop in loop_methods().items():
        for precision in ("float64", "float32"):
            key = (method, "fused_cpu", "NumPy", precision)
            if len(found_loop.loop.engines) > 1 or precision == "float32":
                # zero would mean that an engine was compared with itself
                assert 0 < checks[key]["difference"] < doctor.TOLERANCES[precision], key
    assert {choice["arrays"]: choice["engine"] for choice in found["choices"]}["NumPy"] == "fused_cpu"
    assert Path(found["kernels"]["folder"]).is_dir()


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
    def broken(*_: Any) -> None:
        raise RuntimeError("no such instruction")

    fused, *others = LP.loop.engines
    monkeypatch.setattr(A2LP, "loop", LP.loop._replace(engines=(fused._replace(run=broken), *others)))
    result = run("--format", "json")
    assert result.exit_code == 1
    notes = {(check["method"], check["engine"]): check["note"] for check in json.loads(result.stdout)["checks"]}
    assert notes.pop(("a2lp", "fused_cpu")) == "RuntimeError: no such instruction"
    assert set(notes.values()) == {""}


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
