"""docs/performance.md is what its records give."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def test_the_page_is_generated_from_the_records() -> None:
    report = runpy.run_path(str(ROOT / "benchmarks" / "speed_report.py"))
    record = report["load"]("speed.json")
    text = report["page"](record, report["load"]("speed_cuda.json"), report["load"]("pool.json"))
    assert text == (ROOT / "docs" / "performance.md").read_text(encoding="utf-8"), "run benchmarks/speed_report.py"
    assert ("scaling" in record) == (ROOT / "docs" / "assets" / "scaling.svg").exists()


def test_exponents_are_found() -> None:
    report = runpy.run_path(str(ROOT / "benchmarks" / "speed_report.py"))
    assert report["exponent"]([1, 2, 4, 8], [3, 12, 48, 192]) == pytest.approx(2)
    assert [report["number"](x) for x in (0.01234, 1.234, 45.67, 12345.6)] == ["0.0123", "1.23", "45.7", "12,346"]
