"""Short versions of ``make soak``: a few cases of each part. Damaged files are in test_fuzz_readers.py."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("PIL")
pytest.importorskip("onnxruntime")

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))

import soak
import soak_faults
import soak_growth
import soak_numerics


def test_degenerate_tasks_are_solved_alike_alone_and_in_a_batch(tmp_path: Path) -> None:
    for case in range(30):
        soak_numerics.run(case, tmp_path)


def test_all_methods_and_engines_have_their_turn() -> None:
    names = {name for name, _ in soak_numerics.methods()}
    assert {"lp", "a2lp", "a2lp_em", "pt_map", "zero_shot"} < names
    assert {engine for name, engine in soak_numerics.methods() if name == "a2lp"} >= {
        "reference",
        "batched",
        "fused_cpu",
    }


QUICKEST = (soak_faults.killed_embed, soak_faults.killed_sort, soak_faults.full_disk, soak_faults.odd_environment)


@pytest.mark.parametrize("scenario", QUICKEST, ids=lambda scenario: scenario.__name__)
def test_one_case_of_each_fault(tmp_path: Path, scenario: Callable[..., None]) -> None:
    soak_faults.run(1, tmp_path, (scenario,))


def test_a_long_session_does_not_grow(tmp_path: Path) -> None:
    soak_growth.run(0, tmp_path, relabels=40, benches=6)


def test_growth_is_noticed() -> None:
    before = soak_growth.Use.now()
    with Path(os.devnull).open("rb"), pytest.raises(AssertionError, match="at the end"):
        soak_growth.Use.now().check(before, "a file")


def test_a_failure_is_kept_with_its_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(case: int, folder: Path) -> str:
        assert case % 2, "even"
        return "odd"

    monkeypatch.setitem(soak.PARTS, "numerics", wrong)
    monkeypatch.setattr(soak.time, "monotonic", iter(range(100)).__next__)
    found = soak.run_part("numerics", 5, 10, tmp_path)
    assert found["failed"] == [case for case in range(10, 10 + found["cases"]) if case % 2 == 0]
    assert "--part numerics --case 10" in (tmp_path / "numerics-10.json").read_text()
