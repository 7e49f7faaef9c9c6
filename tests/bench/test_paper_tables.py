from __future__ import annotations

import dataclasses
import html
import re

import numpy as np
import pytest

from a2lp.bench.paper_records import PaperCell, select_records
from a2lp.bench.paper_report import claims, report_page, tables_page
from a2lp.bench.paper_tables import DASH, paper_table, trace
from a2lp.bench.protocol import draw_episodes, plan
from a2lp.bench.published import METHODS, FeatureSource, feature_source
from a2lp.bench.records import RecordStore, content_key, read_records
from a2lp.bench.run import run
from a2lp.bench.tables import to_latex, to_markdown
from a2lp.errors import A2LPWarning, InputError
from a2lp.features.bundled import BUNDLED
from a2lp.methods import registry
from a2lp.methods.prototypical import Prototypical

CUB = FeatureSource("cub", "resnet12")


@pytest.fixture(scope="module")
def measure(digits):
    """Records of the paper's protocol on features that go by the name of CUB's."""

    def measure(methods=METHODS, preprocess=("l2", "plc"), shots=(1, 5), n_tasks=6, **kw):
        features = dataclasses.replace(digits, name=kw.pop("name", "cub_resnet12_test"))
        samplers, params = kw.pop("samplers", ["balanced"]), kw.pop("params", {})
        episodes = draw_episodes(features, samplers, shots, n_tasks=n_tasks, seed=0, **kw)
        return run(plan(episodes, [(name, params.get(name, {})) for name in methods], preprocess))

    return measure


@pytest.fixture(scope="module")
def records(measure):
    return measure()


@pytest.fixture(scope="module")
def ours(records):
    return select_records(records)


def numbers(table):
    for section in table.sections:
        for row in section.rows:
            for column, number in zip(table.columns, row.entries, strict=True):
                yield section.title, row.label, column, number


def at(table, section, label, column):
    [found] = [n for title, name, where, n in numbers(table) if (title, name, where) == (section, label, column)]
    return found


@pytest.mark.parametrize(("number", "traced"), [(1, 10), (2, 20), (3, 20)])
def test_every_number_of_ours_is_what_its_records_give(number, traced, ours, records):
    by_key = {record.key: record for record in records}
    found = [n for _, _, _, n in numbers(paper_table(number, ours)) if n.keys]
    assert len(found) == traced
    for n in found:
        values = [np.array(by_key[key].accuracies) for key in n.keys]
        per_task, sign = (values[0], "") if len(values) == 1 else (values[0] - values[1], "+")
        half = 1.96 * per_task.std(ddof=1) / np.sqrt(len(per_task))
        assert n.text == f"{per_task.mean():{sign}.2f} ±{half:.2f}"
    assert len(trace(paper_table(number, ours))) == traced


def test_numbers_stand_where_they_belong(ours):
    first, second, third = (paper_table(number, ours) for number in (1, 2, 3))
    for shots in (1, 5):
        for how in ("l2", "plc"):
            record = ours.records[PaperCell(CUB, shots, how, "lp")]
            assert at(second, "CUB, ResNet-12", "lp", (f"{shots}-shot", how)).keys == (record.key,)
            label = "lp" if how == "l2" else "lp, plc"
            assert at(third, "ResNet-12", label, ("CUB", f"{shots}-shot")).keys == (record.key,)
            if how == "l2":
                assert at(first, "ResNet-12", "lp", ("CUB", f"{shots}-shot")).keys == (record.key,)
    assert at(first, "ResNet-12", "a2lp †", ("CUB", "1-shot")).text == "87.15 ±0.58"
    assert at(first, "ResNet-12", "a2lp − lp †", ("CUB", "1-shot")).text == "+7.42"
    assert at(second, "miniImageNet, WideResNet-28-10", "lp †", ("5-shot", "plc")).text == "84.59 ±0.44"
    assert at(third, "ResNet-12", "LR+ICI [1] †", ("tieredImageNet", "1-shot")).text == "80.79"


def test_best_is_marked_among_ours_and_among_published(ours):
    table = paper_table(1, ours)
    best = [(label, n.text) for title, label, column, n in numbers(table) if n.best and column == ("CUB", "1-shot")]
    means = {m: ours.records[PaperCell(CUB, 1, "l2", m)].accuracy.mean for m in METHODS}
    assert ("a2lp †", "87.15 ±0.58") in best
    assert [label for label, _ in best if "†" not in label] == [m for m in METHODS if means[m] == max(means.values())]
    assert [
        (label, n.text)
        for _, label, column, n in numbers(paper_table(3, ours))
        if n.best and column[0] == "miniImageNet"
    ] == [
        ("A2LP †", "76.48 ±0.75"),
        ("A2LP+PLC †", "85.67 ±0.42"),
    ]


def test_ensembles_stand_apart(measure, records, ours):
    """Beside the single networks, whose cells they leave as they are."""
    name = "cub_resnet12+resnet12_test"
    joined = measure(name=name)
    both = select_records([*records, *joined])
    assert both.sources == [CUB, FeatureSource("cub", "resnet12+resnet12")]
    for number in (1, 3):
        alone, table = paper_table(number, ours), paper_table(number, both)
        assert [section.title for section in table.sections] == [
            *(section.title for section in alone.sections),
            "2 x ResNet-12",
        ]
        assert table.sections[:2] == alone.sections
    [lp] = [r for r in joined if (r.config["method"], r.config["n_shot"], r.config["preprocess"]) == ("lp", 1, "l2")]
    assert at(paper_table(1, both), "2 x ResNet-12", "lp", ("CUB", "1-shot")).keys == (lp.key,)
    assert paper_table(1, both).commands == paper_table(1, ours).commands
    rest = select_records([*records, *(record for record in joined if record is not lp)])
    assert dict(paper_table(1, rest).commands)["CUB, 2 x ResNet-12"].startswith(f"a2lp bench --features {name}.npz")


def test_without_records_there_are_dashes_and_commands():
    table = paper_table(1, select_records([]))
    ours = [n for _, label, _, n in numbers(table) if "†" not in label]
    assert {n.text for n in ours} == {DASH}
    assert len(ours) == 2 * 5 * 8
    commands = dict(table.commands)
    assert commands["CUB, ResNet-12"].startswith("a2lp bench --features cub --methods prototypical,imprinting,lp,a2lp")
    bundled = [name for name in BUNDLED if feature_source(name) is not None]
    assert sum("a2lp embed" in command for command in commands.values()) == 8 - len(bundled)
    assert commands["with those features"] == "a2lp reproduce --data features --out results"


def test_the_command_for_a_missing_cell_asks_for_that_cell_on_the_same_tasks(records):
    rest = [r for r in records if (r.config["method"], r.config["n_shot"], r.config["preprocess"]) != ("lp", 5, "plc")]
    table = paper_table(2, select_records(rest), "there")
    assert at(table, "CUB, ResNet-12", "lp", ("5-shot", "plc")).text == DASH
    assert at(table, "CUB, ResNet-12", "a2lp − lp", ("5-shot", "plc")).text == DASH
    assert dict(table.commands)["CUB, ResNet-12"] == (
        "a2lp bench --features cub_resnet12_test.npz --methods lp --shots 5 --preprocess plc --tasks 6 --out there"
    )


def test_the_command_names_the_preprocessing_where_it_is_l2(measure, records):
    """Without it a method would run with its own, which is not l2 for all."""
    table = paper_table(3, select_records([*records, *measure(["soft_kmeans"], ("plc",))]))
    assert dict(table.commands)["CUB, ResNet-12"] == (
        "a2lp bench --features cub_resnet12_test.npz --methods soft_kmeans --shots 1,5 --preprocess l2 --tasks 6 "
        "--out results"
    )


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"name": "cub_resnet12_val"}, "novel classes"),
        ({"name": "digits"}, "novel classes"),
        ({"params": {"lp": {"alpha": 0.5}}}, "parameters"),
        ({"n_way": 4}, "5-way"),
        ({"samplers": ["dirichlet"]}, "5-way"),
        ({"preprocess": ("none",)}, "preprocessing"),
    ],
)
def test_other_records_have_no_place(measure, options, reason):
    [record] = measure(["lp"], **({"preprocess": ("l2",)} | options), shots=(1,), n_tasks=2)
    ours = select_records([record])
    assert not ours.records
    [found] = ours.left_out
    assert reason in found


def test_lists_of_tasks_are_never_mixed(measure, records):
    longer = measure(["lp"], ("l2",), (1,), n_tasks=9)
    ours = select_records([*records, *longer])
    assert ours.records[PaperCell(CUB, 1, "l2", "lp")] == longer[0]
    assert PaperCell(CUB, 1, "l2", "a2lp") not in ours.records  # it ran on the shorter list
    assert ours.records[PaperCell(CUB, 5, "l2", "a2lp")] in records
    assert sum(ours.left_out.values()) == 8
    assert at(paper_table(1, ours), "ResNet-12", "a2lp − lp", ("CUB", "1-shot")).text == DASH


def test_a_new_method_is_a_row_of_table_3(measure, monkeypatch):
    monkeypatch.setitem(registry._TABLE, "newcomer", (f"{__name__}:Newcomer", "assumes equally many queries"))
    table = paper_table(3, select_records(measure(["newcomer"], shots=(1,), n_tasks=2)))
    labels = [row.label for row in table.sections[0].rows]
    assert labels[-6:] == ["a2lp", "a2lp, plc", "newcomer [1]", "newcomer [1], plc", "a2lp − lp", "a2lp − lp, plc"]
    assert at(table, "ResNet-12", "newcomer [1]", ("CUB", "1-shot")).keys
    assert "newcomer" not in {
        row.label for section in paper_table(1, select_records([])).sections for row in section.rows
    }


class Newcomer(Prototypical):
    assumes_uniform = True


def test_folders_of_records(records, tmp_path):
    store = RecordStore(tmp_path)
    for record in records:
        store.put(record)
    assert sorted(r.key for r in read_records(tmp_path)) == sorted(r.key for r in records)
    assert len(read_records(tmp_path / "records")) == len(records)
    lie = dataclasses.replace(records[0], config=records[0].config | {"method": "a2lp"})
    store.put(lie)  # under the key of another configuration
    (store.folder / "cut.json").write_text(records[0].to_json()[:100])
    with pytest.warns(A2LPWarning) as warned:
        assert len(read_records(tmp_path)) == len(records) - 1
    assert len(warned) == 2
    with pytest.raises(InputError, match="no folder"):
        read_records(tmp_path / "elsewhere")


@pytest.mark.parametrize("number", [1, 2, 3])
def test_markdown_and_latex_have_whole_rows(number, ours):
    table = paper_table(number, ours)
    n = len(table.columns)
    lines = [line for line in to_markdown(table).splitlines() if line.startswith("|")]
    assert {line.count("|") for line in lines} == {n + 2}
    latex = to_latex(table)
    body = [line for line in latex.splitlines() if line.endswith(r"\\") and r"\multicolumn" not in line]
    assert {line.count("&") for line in body} == {n}
    assert not re.findall(r"(?<!\\)[#_&](?=\w)", latex.split(r"\end{tabular}")[1].split("\n% ")[0])


def test_pages_carry_keys_and_run_nothing(measure, records):
    evil = measure(["lp"], ("l2",), (1,), n_tasks=2, name='cub_<script>"_test')
    ours = select_records([*records, *evil])
    tables = [paper_table(n, ours) for n in (1, 2, 3)]
    for page in (tables_page(tables, ours), report_page(ours, tables)):
        assert "<script" not in page
        assert "&lt;script&gt;" in page
        assert not re.findall(r'(?:src|href)="(?!data:)', page)
        titles = " ".join(map(html.unescape, re.findall(r'<td title="([^"]+)"', page)))
        assert all(record.key in titles for record in [*records, *evil])


def test_claims_count_what_was_measured(ours):
    above, *_, best = claims(ours)
    assert above.published == "in 16 of 16 settings"
    gains = [
        np.array(ours.records[PaperCell(CUB, k, "l2", "a2lp")].accuracies)
        - ours.records[PaperCell(CUB, k, "l2", "lp")].accuracies
        for k in (1, 5)
    ]
    assert above.measured.startswith(f"in {sum(g.mean() > 0 for g in gains)} of 2 settings")
    assert best.published == "in 4 of 4 settings"
    assert best.measured.endswith("of 2 settings")
    assert {claim.measured for claim in claims(select_records([]))} == {"not measured"}


def test_study_records_are_no_cells(records):
    config = records[0].config | {"study": "adaptation"}
    study = dataclasses.replace(records[0], key=content_key(config), config=config)
    assert not select_records([study]).records


@pytest.mark.parametrize(
    ("name", "value"),
    [("features", None), ("features_sha256", []), ("n_shot", {}), ("method", []), ("params", 5), ("preprocess", None)],
)
def test_configurations_that_are_not_those_of_cells(records, name, value):
    config = records[0].config | {name: value}
    damaged = dataclasses.replace(records[0], key=content_key(config), config=config)
    found = select_records([damaged])
    assert not found.records
    assert "a configuration that is not that of a cell" in found.left_out
