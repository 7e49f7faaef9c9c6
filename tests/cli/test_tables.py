"""``a2lp tables`` and ``a2lp reproduce``, on real small cells."""

from __future__ import annotations

import dataclasses
import re
import shlex
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from a2lp.bench.paper_records import select_records
from a2lp.bench.paper_report import report_page
from a2lp.bench.paper_tables import paper_table
from a2lp.bench.published import FeatureSource, feature_source
from a2lp.bench.records import read_records
from a2lp.bench.tables import to_latex, to_markdown
from a2lp.cli.app import app
from a2lp.errors import install_command
from a2lp.features import FeatureSet, load, save
from a2lp.features.bundled import BUNDLED

ROOT = Path(__file__).resolve().parents[2]
# those of the files that the tests write, and bundled ones
SOURCES = {
    FeatureSource("cub", "resnet12"),
    FeatureSource("cifar_fs", "wrn28_10"),
    *filter(None, map(feature_source, BUNDLED)),
}
MARKED = re.compile(r"<!-- (a2lp tables[^\n]*) -->\n\n(.*?)\n\n<!-- end -->", re.DOTALL)


def call(*args: str) -> tuple[str, str]:
    result = CliRunner().invoke(app, list(args))
    assert result.exit_code == 0, result.stderr
    return result.stdout, result.stderr


def of_classes(n: int) -> FeatureSet:
    """Digits' vectors with classes that mean nothing."""
    return FeatureSet(load("digits").features, np.arange(1797) % n)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with features that go by the names of CUB's and CIFAR-FS', and what ``reproduce`` made of them."""
    folder = tmp_path_factory.mktemp("made")
    (folder / "data").mkdir()
    save(of_classes(50), folder / "data" / "cub_resnet12_test.npz")
    about = {"dataset": "CIFAR-FS", "backbone": "wrn28_10", "split": "test"}
    save(dataclasses.replace(of_classes(20), about=about), folder / "data" / "mine.npz")
    digits = of_classes(10)
    save(digits, folder / "data" / "cub_wrn28_10_test.npz")  # too few for CUB's novel classes
    save(digits, folder / "data" / "mini_resnet12_val.npz")
    save(digits, folder / "data" / "pets.npz")
    (folder / "data" / "mini_resnet12_test.npz").write_text("damaged")
    (folder / "data" / "weights.safetensors").write_text("of a network")
    (folder / "more").mkdir()
    (folder / "data" / "mine.npz").rename(folder / "more" / "mine.npz")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        stdout, stderr = call("reproduce", "--data", "data", "--data", "more", "--tasks", "4")
    return folder, stdout, stderr


def test_reproduce_runs_what_the_data_allow(made):
    folder, stdout, stderr = made
    cells = 16 * len(SOURCES)
    assert f"{cells} cells are in results" in stdout
    assert "CUB, ResNet-12: cub_resnet12_test, 1797 vectors" in stderr  # the file, not the bundled set
    assert "CIFAR-FS, WideResNet-28-10: cifar_fs_wrn28_10_test" in stderr
    passed_over = [line for line in stderr.splitlines() if "passed over" in line]
    assert len(passed_over) == 3
    assert "has 10 classes; CUB, WideResNet-28-10 has 50" in passed_over[0]
    assert "mini_resnet12_test" in passed_over[1]
    assert "pets" in passed_over[2]
    assert sorted(path.name for path in (folder / "results").iterdir()) == [
        "records",
        "reproduction.html",
        "tables.md",
        "tables.tex",
    ]
    assert len(list((folder / "results" / "records").iterdir())) == cells


def test_reproduce_goes_on_where_it_stopped(made, monkeypatch):
    folder, _, _ = made
    monkeypatch.chdir(folder)
    records = {path: path.stat().st_mtime_ns for path in (folder / "results" / "records").iterdir()}
    lost = next(iter(records))
    lost.unlink()
    _, stderr = call("reproduce", "--data", "data", "--data", "more", "--tasks", "4")
    assert "47 of 48 cells" in stderr
    after = {path: path.stat().st_mtime_ns for path in (folder / "results" / "records").iterdir()}
    assert after.keys() == records.keys()
    assert {path for path in after if after[path] != records[path]} == {lost}


def test_tables_are_what_reproduce_wrote(made, monkeypatch):
    folder, _, _ = made
    monkeypatch.chdir(folder)
    assert call("tables", "--format", "markdown")[0] == (folder / "results" / "tables.md").read_text()
    assert (
        call("tables", "--format", "latex", "--records", "results")[0]
        == (folder / "results" / "tables.tex").read_text()
    )
    assert "<table>" in call("tables", "--format", "html", "--table", "2")[0]
    stdout, _ = call("tables", "--trace")
    for line in stdout.splitlines():
        keys = line.split(" <- ")[1].split(" and ")
        assert all((folder / "results" / "records" / f"{key}.json").is_file() for key in keys)
    assert len(stdout.splitlines()) == len(SOURCES) * (10 + 20 + 20)


def test_the_command_under_a_table_fills_its_cell(made, tmp_path, monkeypatch):
    folder, _, _ = made
    monkeypatch.chdir(tmp_path)
    save(load(folder / "data" / "cub_resnet12_test.npz"), "cub_resnet12_test.npz")
    call("reproduce", "--data", ".", "--tasks", "3")
    whole, _ = call("tables", "--table", "1", "--format", "markdown")
    trace = call("tables", "--table", "1", "--trace")[0]
    [key] = re.findall(r"CUB 5-shot, lp: .* <- (\w+)", trace)
    (Path("results") / "records" / f"{key}.json").unlink()
    stdout, _ = call("tables", "--table", "1", "--format", "markdown")
    assert stdout != whole
    [command] = re.findall(r"- – CUB, ResNet-12: `a2lp (bench .*)`", stdout)
    call(*shlex.split(command))
    assert call("tables", "--table", "1", "--format", "markdown")[0] == whole


def test_terminal_fits_eighty_columns(made, monkeypatch):
    folder, _, _ = made
    monkeypatch.chdir(folder)
    lines = call("tables", "--table", "1")[0].split("\n† ")[0].splitlines()
    assert max(map(len, lines)) <= 80
    assert not any("…" in line for line in lines)
    assert sum(line.strip().startswith("a2lp †") for line in lines) == 4


def test_without_records_published_numbers_are_shown(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    stdout, _ = call("tables", "--format", "markdown")
    assert "| lp † | 59.15 ±0.66 |" in stdout
    assert "a2lp bench --features cub" in stdout


def test_without_the_report_extra_the_rest_is_written(made, monkeypatch):
    folder, _, _ = made
    monkeypatch.chdir(folder)
    monkeypatch.setitem(sys.modules, "jinja2", None)
    (folder / "results" / "tables.md").unlink()
    assert install_command("report") in call("reproduce", "--data", "data", "--tasks", "4")[1]
    assert (folder / "results" / "tables.md").is_file()


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["tables", "--table", "4"], "'4'"),
        (["tables", "--format", "pdf"], "'pdf'"),
        (["tables", "--records", "nowhere"], "no folder 'nowhere'"),
        (["reproduce", "--data", "nowhere"], "'nowhere'"),
        (["reproduce", "--tasks", "0"], "n_tasks=0"),
    ],
)
def test_mistakes(args, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, args)
    assert result.exit_code == 2
    assert message in result.stderr
    assert "Traceback" not in result.stderr


def marked() -> list[tuple[str, str, str]]:
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    return [(page.name, *match) for page in pages for match in MARKED.findall(page.read_text(encoding="utf-8"))]


@pytest.mark.parametrize(("page", "command", "shown"), marked(), ids=lambda value: value[:40])
def test_pages_show_what_the_command_prints(page, command, shown, monkeypatch):
    monkeypatch.chdir(ROOT)
    assert call(*shlex.split(command)[1:])[0] == shown + "\n", f"{page}: run benchmarks/tables_in_docs.py"


def test_the_files_in_results_are_what_their_records_give(monkeypatch):
    monkeypatch.chdir(ROOT)
    ours = select_records(read_records("results"))
    tables = [paper_table(number, ours, "results") for number in (1, 2, 3)]
    for name, written in (("tables.md", to_markdown), ("tables.tex", to_latex)):
        assert Path("results", name).read_text(encoding="utf-8") == "\n\n".join(map(written, tables)) + "\n", name
    page, kept = report_page(ours, tables), Path("results", "reproduction.html").read_text(encoding="utf-8")
    figure = re.compile(r'<img src="[^"]*"')  # matplotlib's versions draw a little differently
    assert figure.sub("", page) == figure.sub("", kept), "run make tables"
