"""``compare``: one call that runs methods and compares them, for Python and for the command."""

from __future__ import annotations

import dataclasses
import json

import pytest
from typer.testing import CliRunner

import a2lp
from a2lp.bench import comparison_table, run, standings
from a2lp.cli.app import app
from a2lp.errors import A2LPWarning, InputError, UnknownNameError
from a2lp.features import BaseStatistics

SMALL = {"n_shot": 1, "n_tasks": 10}
METHODS = ["prototypical", "lp"]


def without_seconds(rows):
    return [{name: value for name, value in row.items() if not name.startswith("seconds")} for row in rows]


def test_it_is_what_its_parts_give(make_cells):
    """The façade against the same steps by hand."""
    found = a2lp.bench.compare("digits", METHODS, n_shot=(1, 2), n_way=3, n_query=10, n_tasks=12, preprocess=["l2"])
    cells = make_cells(METHODS, ("l2",), (1, 2), 12)
    assert [cell.key for cell in found.cells] == [cell.key for cell in cells]
    records = run.run(cells)
    assert [record.accuracies for record in found.records] == [record.accuracies for record in records]
    by_hand = standings.rank_methods(cells, records)
    assert without_seconds(found.rows) == without_seconds(comparison_table.comparison_rows(by_hand, "lp"))
    assert [section.title for section in found.table.sections][:2] == ["accuracy, %", "difference to lp"]
    assert "| prototypical |" in str(found)


def test_the_command_prints_what_it_gives():
    found = a2lp.bench.compare(
        "digits", METHODS, **SMALL, sampler=["balanced", "k_eff"], params={"k_eff": {"k_eff": 2}}
    )
    args = ["bench", "--features", "digits", "--methods", "prototypical,lp", "--shots", "1", "--tasks", "10"]
    args += ["--sampler", "balanced,k_eff", "--set", "k_eff.k_eff=2", "--format", "json"]
    printed = CliRunner().invoke(app, args)
    assert printed.exit_code == 0, printed.stderr
    expected = json.loads(a2lp.bench.tables.to_json(found.rows))
    assert without_seconds(json.loads(printed.stdout)) == without_seconds(expected)


def test_standings_are_computed_once(tmp_path, monkeypatch):
    corrections = []
    holm = standings.holm
    monkeypatch.setattr(standings, "holm", lambda p: corrections.append(len(p)) or holm(p))
    args = ["bench", "--features", "digits", "--methods", "prototypical,lp,soft_kmeans", "--tasks", "4"]
    assert CliRunner().invoke(app, [*args, "--out", str(tmp_path)]).exit_code == 0
    assert corrections == [3, 3]  # the pairs of the methods, for one shot and for five


def test_records_are_kept_and_not_run_again(tmp_path):
    begun = []
    first = a2lp.bench.compare("digits", METHODS, **SMALL, out=tmp_path)
    assert first.report == tmp_path / "report.html"
    assert {path.name for path in tmp_path.iterdir()} == {"records", "table.md", "table.csv", "report.html"}
    again = a2lp.bench.compare(
        "digits", [*METHODS, "soft_kmeans"], **SMALL, out=tmp_path, progress=lambda cell, done: begun.append(cell.name)
    )
    assert set(begun) == {"soft_kmeans"}
    assert again.records[:2] == first.records


def test_features_base_classes_and_tasks_may_be_objects(digits, tmp_path):
    base = BaseStatistics.of(digits.features, digits.labels)
    params = {"preprocess": "whiten", "baseline": "prototypical"}
    drawn = a2lp.bench.compare(digits, METHODS, **SMALL, **params, base=base, save_tasks=tmp_path / "t.npz")
    tasks = a2lp.TaskList.load(tmp_path / "t.npz")
    saved = a2lp.bench.compare(digits, METHODS, tasks=tasks, **params, base=base)
    assert [r.accuracies for r in saved.records] == [r.accuracies for r in drawn.records]
    assert [r.uses_base for r in saved.records] == [True, True]
    assert (drawn.baseline, a2lp.bench.compare(digits, METHODS, **SMALL).baseline) == ("prototypical", "lp")


def test_tasks_saved_before_n_query_was_per_class_give_what_they_gave(digits, tmp_path):
    """Their ``about`` has the number of queries of a whole task; the arrays are what counts."""
    new = a2lp.draw("dirichlet", digits.labels, seed=3, n_tasks=10)
    dataclasses.replace(new, about=new.about | {"n_query": 75}).save(tmp_path / "old.npz")
    old = a2lp.TaskList.load(tmp_path / "old.npz")
    assert old.about["n_query"] == 75
    found = [a2lp.bench.compare(digits, METHODS, tasks=tasks).cells for tasks in (old, new)]
    assert [cell.key for cell in found[0]] == [cell.key for cell in found[1]]


def test_all_methods_that_can_run_and_no_baseline(monkeypatch):
    from a2lp.methods import registry

    names = ("prototypical", "lp", "simple_shot")
    monkeypatch.setattr(registry, "_TABLE", {name: registry._TABLE[name] for name in names})
    with pytest.warns(A2LPWarning, match="simple_shot is left out: it uses statistics"):
        found = a2lp.bench.compare("digits", "all", **SMALL)
    assert [record.config["method"] for record in found.records] == ["prototypical", "lp"]
    assert found.baseline is None


@pytest.mark.parametrize(
    ("change", "kind", "words"),
    [
        ({"methods": ["lpp"]}, UnknownNameError, "Did you mean 'lp'"),
        ({"params": {"a2lp": {"steps": 3}}}, UnknownNameError, "There are: balanced, lp, prototypical"),
        ({"baseline": "a2lp"}, UnknownNameError, "unknown baseline 'a2lp'"),
        ({"limit": 0}, InputError, "limit=0 must be a positive number of seconds"),
        ({"methods": []}, InputError, r"methods=\[\] is empty"),
        ({"n_shot": ()}, InputError, r"n_shot=\(\) is empty"),
        ({"sampler": "balancd"}, UnknownNameError, "Did you mean 'balanced'"),
    ],
)
def test_mistakes(change, kind, words):
    with pytest.raises(kind, match=words):
        a2lp.bench.compare("digits", **{"methods": METHODS} | SMALL | change)
