from __future__ import annotations

import base64
import dataclasses
import re
import sys
import xml.etree.ElementTree as ET

import pytest

from a2lp.bench.comparison import Comparison
from a2lp.bench.records import RecordStore
from a2lp.bench.report import write_report
from a2lp.bench.run import run
from a2lp.bench.standings import rank_methods
from a2lp.errors import MissingExtraError

STEPS = {"a2lp": {"steps": 10}}


def write(cells, baseline, folder, records=None):
    store = RecordStore(folder)
    records = records or run(cells, store)
    found = Comparison(cells, records, rank_methods(cells, records), baseline)
    return write_report(found, store).read_text(encoding="utf-8")


def figures(page):
    sources = re.findall(r'<img src="data:image/svg\+xml;base64,([^"]+)"', page)
    return [ET.fromstring(base64.b64decode(source)) for source in sources]


def test_report_is_whole_and_refers_to_nothing_outside(make_cells, digits, tmp_path):
    evil = dataclasses.replace(digits, name="<script>alert(1)</script>")
    cells = make_cells(["prototypical", "lp", "a2lp"], shots=(1, 2), features=evil, params=STEPS)
    page = write(cells, "lp", tmp_path)
    assert len(figures(page)) == 7
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert not re.findall(r'(?:src|href)="(?!data:)', page)
    assert "difference to lp" in page
    for title in ("Ranks of methods without base data", "Accuracy against time"):
        assert f"<h2>{title}</h2>" in page


def test_report_without_adaptation(make_cells, tmp_path):
    cells = make_cells(["prototypical", "lp"], preprocess=("l2", "plc"), shots=(1, 2, 3))
    assert len(figures(write(cells, "prototypical", tmp_path / "two"))) == 3
    assert len(figures(write(make_cells(["lp"], n_tasks=1), "lp", tmp_path / "one"))) == 1


def test_equal_methods_have_a_histogram_too(make_cells, tmp_path):
    cells = make_cells(["lp", "a2lp"], params={"a2lp": {"steps": 0}})
    assert len(figures(write(cells, "lp", tmp_path))) == 3


def test_report_of_cells_that_failed_or_were_stopped(make_cells, tmp_path):
    cells = make_cells(["prototypical", "lp", "a2lp", "imprinting"], shots=(1, 2), params={"imprinting": {"steps": 3}})
    records = run(cells)
    records[2] = dataclasses.replace(records[2], accuracies=[], failed="MemoryError: <b>too large</b>")
    records[6] = dataclasses.replace(records[6], accuracies=records[6].accuracies[:5], limit=1.0)
    page = write(cells, None, tmp_path, records)
    assert len(figures(page)) == 4  # accuracy, ranks of the three others, time, differences
    assert "MemoryError: &lt;b&gt;too large" in page
    assert "(5)" in page


@pytest.mark.parametrize("package", ["jinja2", "matplotlib"])
def test_the_extra_is_named(make_cells, tmp_path, monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=rf"{package}.*\[report\]"):
        write(make_cells(["lp"]), "lp", tmp_path)
