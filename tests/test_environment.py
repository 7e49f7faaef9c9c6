"""The stamp of records: which commit, and whether its files were edited."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from a2lp import environment


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for name in ("src/a2lp/code.py", "benchmarks/study.py", "benchmarks/records/study.json", "docs/page.md"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("first\n")
    git = ["git", "-C", str(tmp_path), "-c", "user.name=x", "-c", "user.email=x@y", "-c", "commit.gpgsign=false"]
    for arguments in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "first"]):
        subprocess.run([*git, *arguments], check=True)
    return tmp_path


def test_records_and_pages_that_a_run_writes_leave_the_commit_clean(checkout: Path) -> None:
    commit = environment.checkout(checkout)
    assert re.fullmatch("[0-9a-f]{40}", commit or "")
    for name in ("benchmarks/records/study.json", "docs/page.md", "runs.txt"):
        (checkout / name).write_text("second\n")
    assert environment.checkout(checkout) == commit


@pytest.mark.parametrize("name", ["src/a2lp/code.py", "src/a2lp/new.py", "benchmarks/study.py", "trained/new.npz"])
def test_what_decides_results_marks_it_as_edited(checkout: Path, name: str) -> None:
    commit = environment.checkout(checkout)
    (checkout / name).parent.mkdir(exist_ok=True)
    (checkout / name).write_text("second\n")
    assert environment.checkout(checkout) == f"{commit}-dirty"


def test_a_folder_that_is_no_checkout_has_no_commit(tmp_path: Path) -> None:
    assert environment.checkout(tmp_path) is None
    (tmp_path / ".git").mkdir()  # damaged
    assert environment.checkout(tmp_path) is None


def test_a_stamp_is_whole() -> None:
    stamp = environment.stamp()
    assert {"versions", "hardware", "commit", "date"} == set(stamp)
    assert stamp["versions"]["a2lp"] and stamp["hardware"]["cores"] >= 1
