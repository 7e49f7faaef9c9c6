"""benchmarks/field.py: a small run, and the table that is made of it."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path

import pytest

from a2lp.bench.protocol import draw_episodes
from a2lp.features import save

FIELD = Path(__file__).parents[2] / "benchmarks" / "field.py"
PAGE = "".join(f"<!-- {part} of benchmarks/field.py -->\n<!-- end -->\n" for part in ("cub", "times"))


@pytest.fixture(scope="module")
def field():
    return runpy.run_path(str(FIELD))


@pytest.fixture
def folder(tmp_path, digits):
    """Digits under the names of CUB's files."""
    (tmp_path / "features").mkdir()
    (tmp_path / "reference").mkdir()
    for kind in ("test", "train"):
        save(digits, tmp_path / "features" / f"cub_resnet12_{kind}.npz")
    sizes = {"n_way": 5, "n_query": 15, "n_tasks": 4, "seed": 0}
    for name, sampler in (("ref", "balanced"), ("dirichlet", "dirichlet")):
        for n_shot in (1, 5):
            tasks = draw_episodes(digits, sampler=sampler, n_shot=n_shot, **sizes).tasks
            tasks.save(tmp_path / "reference" / f"{name}_cub_{n_shot}shot.npz")
    (tmp_path / "page.md").write_text(PAGE)
    return tmp_path


def test_a_small_run_fills_the_page(folder, monkeypatch, capsys):
    args = ["--data", str(folder), "--out", str(folder / "runs"), "--methods", "prototypical,simple_shot,sib"]
    args += ["--record", str(folder / "field.json"), "--page", str(folder / "page.md")]
    monkeypatch.setattr(sys, "argv", ["field.py", *args])
    runpy.run_path(str(FIELD), run_name="__main__")
    rows = json.loads((folder / "field.json").read_text())["rows"]
    assert list(rows) == ["prototypical", "simple_shot", "sib"]
    assert rows["simple_shot"]["uses_base"] and not rows["prototypical"]["uses_base"]
    assert len(rows["prototypical"]["cells"]) == 4
    assert rows["prototypical"]["ms"] > 0
    page = (folder / "page.md").read_text()
    assert "| CUB, without base data |" in page and "| CUB, with base data |" in page
    assert "- sib is missing: no weights" in page
    assert "| simple_shot | " in page.split("ms a task")[1]
    assert len(list((folder / "runs" / "records").iterdir())) == 8


def test_differences_are_on_the_tasks_that_public_code_did(field):
    public = json.loads((FIELD.parent / "public_code.json").read_text())["rows"]
    theirs = public["ilpc_l2"]["accuracy"]["balanced_1shot"]
    cell = {"mean": 80.0, "ci95": 1.0, "n": 1000, "first": {"100": theirs["mean"] + 0.25, "1000": 80.0}}
    keys = [f"cub_{sampler}_{n_shot}shot" for sampler, n_shot in field["CELLS"]]
    found = {
        "ilpc": {"uses_base": False, "uniform": True, "cells": dict.fromkeys(keys, cell), "ms": 100.0},
        "lp": {"uses_base": False, "uniform": False, "cells": dict.fromkeys(keys, cell), "ms": 1.0},
    }
    page = field["fill"](PAGE, found, public)
    assert "| ilpc | uniform | **80.00 ±1.00** (+0.25; 100 tasks) |" in page
    assert "| lp |  | **80.00 ±1.00** |" in page
    assert "| ilpc | 100 | 1976.8 | 1909.2 | 19.8 x |" in page
    assert field["fill"](page, found, public) == page


def test_every_row_names_public_code_that_there_is(field):
    public = json.loads((FIELD.parent / "public_code.json").read_text())["rows"]
    named = {key for row in field["COMPARED"] for key in (row.balanced, row.dirichlet) if key}
    assert named == set(public)
