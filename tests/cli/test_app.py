"""The command as a whole: what it says first, its help, and completion."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import a2lp
from a2lp.cli.app import app
from a2lp.cli.classify import METHOD_HELP
from a2lp.pool.methods import METHODS


def test_alone_it_says_what_to_do_first() -> None:
    result = CliRunner().invoke(app, [])
    assert result.exit_code == 0
    assert result.stdout.startswith(f"a2lp {a2lp.__version__}: label a handful")
    for command in ("a2lp serve SOURCE", "a2lp suggest SOURCE --into labels.csv", "a2lp bench", "a2lp --help"):
        assert command in result.stdout


def test_help_has_the_commands_in_the_order_of_need() -> None:
    text = CliRunner().invoke(app, ["--help"]).stdout
    places = [text.index(f" {name} ") for name in ("serve", "suggest", "classify", "bench", "embed", "doctor")]
    assert places == sorted(places)


def test_help_is_text_for_the_terminal() -> None:
    """Paragraphs end where the terminal does, not where the source has a line end; flags take no value."""
    text = CliRunner().invoke(app, ["classify", "--help"], terminal_width=300, env={"COLUMNS": "300"}).stdout
    assert "reached, nearest (the most similar labelled example)" in text
    assert "<bool>" not in text and "--force" in text


def test_the_help_of_method_names_all_methods_of_a_pool() -> None:
    assert [name for name in METHODS if name not in METHOD_HELP.replace(",", " ").replace(".", " ").split()] == []


def test_completion() -> None:
    program = "import sys; sys.argv = ['a2lp']; from a2lp.__main__ import main; main()"
    words = {"_A2LP_COMPLETE": "complete_bash", "COMP_WORDS": "a2lp cl", "COMP_CWORD": "1"}
    environment = os.environ | words | {"PYTHONPATH": str(Path(a2lp.__file__).parents[1])}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    assert done.stdout.split() == ["classify"]


def test_links_are_refused_for_a_table(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", features=np.eye(4))
    (tmp_path / "labels.csv").write_text("index,label\n0,auk\n1,wren\n")
    out = tmp_path / "out.csv"
    words = ["classify", str(tmp_path / "x.npz"), "--labels", str(tmp_path / "labels.csv"), "--out", str(out), "--link"]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 2 and "is a table, and only folders" in result.stderr and not out.exists()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_behind_stdout() -> None:
    program = "import sys; sys.argv = ['a2lp', 'methods']; from a2lp.__main__ import main; main()"
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([sys.executable, "-c", program], stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 2 and done.stderr.startswith("error: ") and done.stderr.count("\n") == 1, done.stderr


@pytest.mark.parametrize("args", [["--help"], ["--version"]])
def test_ctrl_c_is_one_line_at_any_moment(args: list[str]) -> None:
    """While modules are imported, while the command works, and at its end: never a traceback, never a signal."""
    program = "from a2lp import __main__ as m; m.handle_interrupts(); print('started', flush=True); m.main()"
    for delay in (0.0, 0.1, 0.2, 0.4, 0.8):
        run = subprocess.Popen(
            [sys.executable, "-c", program, *args],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        assert run.stdout.readline() == "started\n"
        time.sleep(delay)
        run.send_signal(signal.SIGINT)
        _, stderr = run.communicate(timeout=60)
        assert (run.returncode, stderr) in ((130, "interrupted.\n"), (0, "")), delay
