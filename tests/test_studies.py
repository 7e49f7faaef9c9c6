"""The studies in benchmarks/: pages are what their records give, and records say who measured each of their parts."""

from __future__ import annotations

import json
import re
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import a2lp
from a2lp import environment

ROOT = Path(__file__).parents[1]
RECORDS = sorted((ROOT / "benchmarks" / "records").glob("*.json")) + sorted((ROOT / "results" / "records").glob("*"))

# Measured on edited files; to be measured again. An entry that is out of date fails, too.
EDITED: set[str] = set()


def script(name: str) -> Any:
    """A script of benchmarks/ as a module."""
    folder = str(ROOT / "benchmarks")
    if folder not in sys.path:
        sys.path.insert(0, folder)
    return import_module(name)


def read(page: str) -> str:
    return (ROOT / "docs" / page).read_text(encoding="utf-8")


def saved(name: str) -> Any:
    return script("study").Record(ROOT / "benchmarks" / "records" / f"{name}.json", "")


def test_docs_field() -> None:
    text = read("field.md")
    assert script("field").page(text, saved("field"), saved("public_code")) == text, "run benchmarks/field.py"


def test_docs_graph_quality() -> None:
    text = read("performance.md")
    assert script("graph_quality").page(text, saved("graph_quality")) == text, "run benchmarks/graph_quality.py"


def test_docs_cluster() -> None:
    pytest.importorskip("psutil")
    text = read("cluster.md")
    assert script("cluster").page(text, saved("cluster")) == text, "run benchmarks/cluster.py"


def test_docs_install() -> None:
    text = read("install.md")
    assert script("install_size").page(text, saved("install_size")) == text, "run benchmarks/install_size.py"


def test_a_graph_by_cells_labels_as_well_as_the_exact_one() -> None:
    """On 10,000 points; benchmarks/graph_quality.py has 50,000."""
    found = script("graph_quality").compare("cub", 10_000)
    assert found["difference"]["mean"] > -0.5 and found["edges"] > 0.97


def test_readme_is_generated_from_records() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert script("field").readme(text, saved("field")) == text, "run benchmarks/field.py"
    assert script("photos").readme(text, saved("photos")) == text, "run benchmarks/photos.py"


def test_readme_begins_with_the_photographs() -> None:
    """A result with its number of labels, the picture, and three commands, before anything else; all of the record."""
    photos, record = script("photos"), saved("photos")
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    first = text.split("\n## ")[0]
    (suggested,) = re.findall(
        r"\*\*Label 30 of about (\d+) photographs of 10 .* others with (\d+) % accuracy", first.replace("\n", " ")
    )
    found = photos.mean(record, 10)
    accuracy = found["suggested"][photos.COUNTS.index(30)]
    assert (int(suggested[0]), int(suggested[1])) == (round(float(found["images"]), -1), round(float(accuracy)))
    assert "(docs/assets/photos.svg)" in first and len(re.findall(r"^\$ ", first, re.MULTILINE)) == 3
    changed = text.replace(f"{suggested[1]} % accuracy", "99 % accuracy")
    assert photos.readme(changed, record) == text != changed
    picture = (ROOT / "docs" / "assets" / photos.FIGURE).read_text(encoding="utf-8")
    assert f"10 species, about {suggested[0]} photographs" in picture


def test_pictures_of_the_start_page() -> None:
    doors, text = script("doors"), read("index.md")
    for name in doors.DOORS:
        picture = (ROOT / "docs" / "assets" / name).read_text(encoding="utf-8")
        assert doors.figure(name) == picture, "run benchmarks/doors.py"
        assert f"(assets/{name})" in text


def test_docs_a2lp_em() -> None:
    text, tables = read("a2lp_em.md"), script("em_tables")
    assert tables.page(text, saved("em_study")) == text, "run benchmarks/em_study.py"


def test_docs_a2lp_plus() -> None:
    text = read("a2lp_plus.md")
    assert script("plus_study").page(text, saved("plus_study")) == text, "run benchmarks/plus_study.py"


def test_docs_which_method() -> None:
    text = read("which-method.md")
    assert script("which_method").page(text, saved("field")) == text, "run benchmarks/which_method.py"


def test_docs_robustness() -> None:
    text, tables = read("robustness.md"), script("robustness_tables")
    assert tables.page(text, saved("robustness")) == text, "run benchmarks/robustness.py"
    picture = (ROOT / "docs" / "assets" / "robustness.svg").read_text(encoding="utf-8")
    assert tables.figure(saved("robustness")) == picture, "run benchmarks/robustness.py"


def test_docs_names() -> None:
    text = read("names.md")
    assert script("names").page(text, saved("names")) == text, "run benchmarks/names.py"


def test_docs_tables() -> None:
    text, frontier = read("tables.md"), script("frontier")
    assert frontier.page(text, saved("frontier"), frontier.published()) == text, "run benchmarks/frontier.py"


def test_published_figures_name_their_source_and_whether_they_were_read_there() -> None:
    """The row of the paper is what the package has of it, from the paper's own source."""
    from a2lp.bench import published

    rows = script("frontier").published()["rows"]
    for row in rows:
        assert row["source"] and row["sampler"] in ("balanced", "dirichlet"), row
        assert set(row["read"]) <= set(row["accuracy"]) <= set(published.DATASETS), row
        assert all(50 < one < five < 100 for one, five in row["accuracy"].values()), row
    [paper] = [row["accuracy"] for row in rows if row["method"] == "A2LP"]
    expected = published.accuracy("a2lp", "l2")
    for dataset, pair in paper.items():
        source = published.FeatureSource(dataset, "wrn28_10")
        assert pair == [expected[source, n_shot].mean for n_shot in published.SHOTS]


def test_networks_of_docs_images_and_trained() -> None:
    networks, text = script("networks"), read("images.md")
    assert networks.page(text) == text, "run benchmarks/networks.py"
    shown = (ROOT / "trained" / "README.md").read_text(encoding="utf-8")
    assert networks.readme(shown) == shown, "run benchmarks/networks.py"
    picture = (ROOT / "docs" / "assets" / "recipes.svg").read_text(encoding="utf-8")
    assert networks.figure() == picture, "run benchmarks/networks.py"
    assert len(networks.runs()) == len(re.findall(r"\| [\d.]+ M \|", text))


def test_docs_paper_vs_code() -> None:
    text = read("paper-vs-code.md")
    found = script("reference_outputs").page(text, saved("reference_outputs"))
    assert found == text, "run benchmarks/reference_outputs.py"


@pytest.mark.parametrize(
    ("page", "studies"),
    [
        ("classify.md", ["open_set", "pool_accuracy", "estimate"]),
        ("suggest.md", ["suggest"]),
        ("serve.md", ["page_keys", "page_trial", "page_audits", "page_browser"]),
        ("images.md", ["views", "export_backbone"]),
    ],
)
def test_docs_of_pools_and_images(page: str, studies: list[str]) -> None:
    text = read(page)
    for study in studies:
        assert script(study).page(text, saved(study)) == text, f"run benchmarks/{study}.py"


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.name)
def test_records_are_of_the_features_of_the_repository(path: Path) -> None:
    """A network that is replaced makes the parts that were measured on it out of date: measure them again."""
    assert script("study").replaced(json.loads(path.read_text(encoding="utf-8"))) == []


def test_a_record_knows_its_features(tmp_path: Path) -> None:
    study = script("study")
    record = study.Record(tmp_path / "record.json", "a test")
    work = lambda: study.accuracies("prototypical", {}, study.episodes("cub", "test", "balanced", 1, 3))  # noqa: E731
    record.measure("first", work, n_tasks=3)
    record.measure("second", work, n_tasks=3)  # the tasks come from a cache
    record.measure("other", lambda: 1)
    saved = json.loads((tmp_path / "record.json").read_text(encoding="utf-8"))
    assert saved["parts"]["first"]["features"] == saved["parts"]["second"]["features"]
    assert list(saved["parts"]["first"]["features"]) == ["cub"] and "features" not in saved["parts"]["other"]
    assert study.replaced(saved) == []
    saved["parts"]["second"]["features"]["cub"] = "0" * 64
    assert study.replaced(saved) == ["second: cub"]


def test_an_estimate_joins_the_record_once_all_of_its_draws_are_there(tmp_path: Path) -> None:
    estimate, study = script("estimate"), script("study")
    record, pieces = study.Record(tmp_path / "record.json", "a test"), study.Pieces(tmp_path, "abc")
    first, second = draws = [estimate.Draw("digits", "all", "class", seed) for seed in (0, 1)]
    estimate.measure(first, tmp_path, None, pieces)
    estimate.join(record, draws, pieces)
    assert not record.parts
    estimate.measure(second, tmp_path, None, pieces)
    estimate.join(record, draws, study.Pieces(tmp_path, "def"))  # other code
    assert not record.parts
    estimate.join(record, draws, pieces)
    (part,) = json.loads((tmp_path / "record.json").read_text(encoding="utf-8"))["parts"].values()
    assert [(run["seed"], run["labels"]) for run in part["result"]] == [(s, n) for s in (0, 1) for n in estimate.SIZES]
    assert (part["commit"], part["settings"]) == ("abc", {"seeds": 2})
    assert pieces.known(first.name) and not study.Pieces(tmp_path, "abc-dirty").known(first.name)


def test_docs_performance() -> None:
    text, report = read("performance.md"), script("speed_report")
    records = [report.load(f"{name}.json") for name in report.SOURCES]
    assert report.page(text, *records) == text, "run benchmarks/speed_report.py"


@pytest.mark.parametrize(
    "page",
    [
        "field.md",
        "a2lp_em.md",
        "a2lp_plus.md",
        "robustness.md",
        "names.md",
        "performance.md",
        "classify.md",
        "suggest.md",
        "tables.md",
        "images.md",
    ],
)
def test_a_number_that_is_changed_by_hand_is_noticed(page: str) -> None:
    """That the tests above compare anything: a page with another digit is not what the records give."""
    text = read(page)
    blocks = [block.span() for block in re.finditer(r"<!-- \w+ [^\n]* -->\n.*?<!-- end -->", text, re.DOTALL)]
    numbers = [n for n in re.finditer(r"\| \d+\.\d+", text) if any(start < n.start() < end for start, end in blocks)]
    changed = text[: numbers[0].start()] + "| 0.123456" + text[numbers[0].end() :]
    made = {
        "field.md": lambda: script("field").page(changed, saved("field"), saved("public_code")),
        "a2lp_em.md": lambda: script("em_tables").page(changed, saved("em_study")),
        "a2lp_plus.md": lambda: script("plus_study").page(changed, saved("plus_study")),
        "robustness.md": lambda: script("robustness_tables").page(changed, saved("robustness")),
        "names.md": lambda: script("names").page(changed, saved("names")),
        "classify.md": lambda: script("pool_accuracy").page(changed, saved("pool_accuracy")),
        "suggest.md": lambda: script("suggest").page(changed, saved("suggest")),
        "tables.md": lambda: script("frontier").page(changed, saved("frontier"), script("frontier").published()),
        "images.md": lambda: script("views").page(changed, saved("views")),
        "performance.md": lambda: script("speed_report").page(
            changed, *(script("speed_report").load(f"{name}.json") for name in script("speed_report").SOURCES)
        ),
    }[page]()
    assert made == text != changed


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, marks=pytest.mark.xfail(strict=True, reason="measured on edited files"))
        if path.stem in EDITED
        else path
        for path in RECORDS
    ],
    ids=lambda path: path.stem[:16],
)
def test_every_part_of_a_record_names_its_machine_and_a_clean_commit(path: Path) -> None:
    found = dict(script("study").stamps(json.loads(path.read_text(encoding="utf-8"))))
    assert found
    for part, stamp in found.items():
        assert set(stamp) >= {"versions", "hardware", "commit", "date"}, part
        assert re.fullmatch("[0-9a-f]{40}", stamp["commit"]), f"{part}: {stamp['commit']}"
        assert {"python", "numpy", "a2lp"} <= set(stamp["versions"]), part
        assert {"cpu", "cores", "device"} <= set(stamp["hardware"]), part
        assert re.match(r"20\d\d-\d\d-\d\d", stamp["date"]), part


def test_a_part_that_is_measured_again_leaves_the_stamps_of_the_others(tmp_path: Path, monkeypatch: Any) -> None:
    study, path = script("study"), tmp_path / "record.json"
    commits = iter(["a" * 40, "b" * 40])

    def measure(parts: list[str], result: int) -> None:
        here = next(commits)
        monkeypatch.setattr(study, "commit", lambda: here)
        monkeypatch.setattr(study, "stamp", lambda: environment.stamp() | {"commit": here})
        record = study.Record(path, "a test")
        for part in parts:
            record.measure(part, lambda: result, n_tasks=3)

    measure(["one", "two"], 1)
    measure(["two"], 2)
    parts = json.loads(path.read_text())["parts"]
    assert {name: (part["commit"][0], part["result"]) for name, part in parts.items()} == {
        "one": ("a", 1),
        "two": ("b", 2),
    }
    shown = study.Record(path, "").provenance()
    assert f"one: commit `{'a' * 40}`" in shown and f"two: commit `{'b' * 40}`" in shown


def test_what_this_commit_has_measured_is_not_measured_again(tmp_path: Path, monkeypatch: Any) -> None:
    study = script("study")
    record = study.Record(tmp_path / "record.json", "a test")
    calls: list[int] = []
    for commit, n_tasks, measured in (
        ("a" * 40, 3, 1),
        ("a" * 40, 3, 1),
        ("a" * 40, 4, 2),
        ("a" * 40 + "-dirty", 4, 3),
    ):
        monkeypatch.setattr(study, "commit", lambda commit=commit: commit)
        monkeypatch.setattr(study, "stamp", lambda commit=commit: environment.stamp() | {"commit": commit})
        record.measure("part", lambda: calls.append(1), n_tasks=n_tasks)
        assert len(calls) == measured
    record.measure("part", lambda: calls.append(1), n_tasks=4)  # edited files may have changed since
    assert len(calls) == 4


@pytest.fixture
def small(tmp_path: Path, monkeypatch: Any) -> Path:
    """A folder for records and pages of a small run."""
    (tmp_path / "assets").mkdir()
    for name in ("field", "a2lp_em", "a2lp_plus", "robustness"):
        text = re.sub(
            r"(<!-- \w+ [^\n]* -->)\n.*?<!-- end -->", r"\1\n<!-- end -->", read(f"{name}.md"), flags=re.DOTALL
        )
        (tmp_path / f"{name}.md").write_text(text)
    return tmp_path


def test_a_small_run_of_the_field_fills_its_page(small: Path, monkeypatch: Any) -> None:
    field = script("field")
    args = ["--measure", "--tasks", "3", "--methods", "prototypical,simple_shot,sib"]
    (small / "README.md").write_text("<!-- field bench -->\n<!-- end -->\n")
    files = ["--records", str(small), "--page", str(small / "field.md"), "--readme", str(small / "README.md")]
    monkeypatch.setattr(sys, "argv", ["field.py", *args, *files])
    field.main()
    parts = json.loads((small / "field.json").read_text())["parts"]
    assert sorted(parts) == sorted(f"{kind} {m}" for kind in ("accuracy", "times") for m in args[-1].split(","))
    cells = parts["accuracy prototypical"]["result"]["cells"]
    assert len(cells) == 8 and len(parts["accuracy sib"]["result"]["cells"]) == 4  # of CUB's network alone
    page = (small / "field.md").read_text()
    assert "3 tasks a cell." in page
    without, with_base = page.split("| CUB, with base data |")
    assert f"| prototypical |  | **{cells['cub balanced 1-shot']['mean']:.2f} ±" in without
    assert "| simple_shot |" in with_base and "| sib | uniform |" in with_base
    assert "| simple_shot | " in page.split("ms per task")[1]


def test_small_runs_of_a2lp_em_and_a2lp_plus_fill_their_pages(small: Path, monkeypatch: Any) -> None:
    em, plus, study = script("em_study"), script("plus_study"), script("study")
    monkeypatch.setattr(em, "SETS", {"cub": "CUB"})
    for variants in ("PLAIN", "WHITENED", "UNIFORM"):
        monkeypatch.setattr(em, variants, {"as it is": {}, "5 rounds": {"rounds": 5}})
    monkeypatch.setattr(em, "CURVES", {"rounds": [0, 1], "temperature": [10]})
    for rivals in (em.FIELD, script("em_tables").FIELD):
        for name in list(rivals):
            if name not in ("prototypical", "lp"):
                monkeypatch.delitem(rivals, name, raising=False)
    record = study.Record(small / "em_study.json", "")
    em.measure(record, ["validation", "test", "field", "speed"], 3, None)
    page = em.page((small / "a2lp_em.md").read_text(), record)
    assert page.count("| as it is |") == 4
    assert "| CUB 1-shot balanced |" in page.split("### Comparison with other methods")[1]
    assert "more accurate than all of them in" in page

    monkeypatch.setattr(plus, "SETS", {"cub": "CUB"})
    record = study.Record(small / "plus_study.json", "")
    settings = [setting._replace(params={"steps": 2}) if setting.method != "lp" else setting for setting in plus.ROWS]
    for split in ("test", "val"):
        record.measure(f"{split} cub", lambda split=split: plus.right_answers("cub", split, settings, 2), n_tasks=2)
    page = plus.page((small / "a2lp_plus.md").read_text(), record)
    assert re.search(r"`a2lp_plus` is more accurate than `a2lp` in \d of 4 cells", page)
    assert len(re.findall(r"^\| CUB, \w+ [15]-shot \| 2 \|", page, re.MULTILINE)) == 4
    assert "| queries by softmax |" in page


def test_a_small_run_of_the_grid_fills_its_page(small: Path, monkeypatch: Any) -> None:
    grid, tables, study = script("robustness"), script("robustness_tables"), script("study")
    monkeypatch.setattr(grid, "FOLDERS", {"cub": "cub"})
    monkeypatch.setattr(grid, "KINDS", [grid.Kind(5, 1, None, 15), grid.Kind(2, 1, 0.5, 375)])
    monkeypatch.setitem(grid.RIVALS, "prototypical", 2)
    record, pieces = study.Record(small / "robustness.json", ""), study.Pieces(small, "abc")
    names = {"test": ["a2lp_em", "a2lp_plus", "lp", "prototypical"], "uniform": ["a2lp_em", "pt_map"]}
    names |= {"more": ["prototypical"]}
    monkeypatch.setitem(grid.MORE, "prototypical", 20)
    for split, methods in names.items():
        plan = grid.planned(split, methods, 3, None)
        for piece in plan[1:]:
            grid.measure(piece, None, pieces)
        grid.join(record, plan, pieces)
        assert f"{split} {methods[0]}" not in record.parts  # a cell is missing
        grid.measure(plan[0], None, pieces)
        grid.join(record, plan, pieces)
    found = record.named("test")
    assert [len(cells) for cells in found.values()] == [4] * 4
    cell = "cub resnet12 | 5-way 1-shot, 15 queries, balanced"
    ours, theirs = (tables.percents(found[name][cell]) for name in ("a2lp_em", "prototypical"))
    assert (len(ours), len(theirs)) == (3, 2)
    compared = tables.compare(record, "a2lp_em", ("prototypical",))[cell]
    assert compared.difference.mean == pytest.approx(sum(ours[:2]) / 2 - sum(theirs) / 2)
    assert all(int(name.split("shot, ")[1].split(" ")[0]) < 375 for name in found["lp"])  # classes have fewer images
    more = tables.counted(record)["prototypical"]
    assert {name: len(tables.percents(more[name])) for name in more if name.startswith("cub resnet12")} == {
        cell: 3, "cub resnet12 | 2-way 1-shot, 36 queries, Dirichlet(0.5)": 2
    }  # fmt: skip
    page = tables.page((small / "robustness.md").read_text(), record)
    assert page.count("| CUB, ResNet-12 |") == 2 and "| CUB, WideResNet, 5-shot |" in page
    assert "4 cells. The difference to the best other method is" in page
    assert tables.figure(record).startswith("<?xml")


def test_a2lp_em_is_compared_with_every_method_that_assumes_as_little() -> None:
    methods = {name: a2lp.create(name) for name in a2lp.list_methods() if name not in ("a2lp_em", "a2lp_plus")}
    others = {
        name
        for name, method in methods.items()
        if not (method.uniform or method.uses_base or method.uses_names == "required" or hasattr(method, "weights"))
    }
    assert set(script("robustness_tables").RIVALS) == set(script("em_tables").FIELD) == others


def test_differences_are_on_the_tasks_that_public_code_did() -> None:
    field = script("field")
    public = json.loads(field.PUBLIC.read_text())["rows"]
    theirs = public["ilpc_l2"]["accuracy"]["balanced_1shot"]
    cell = {"mean": 80.0, "ci95": 1.0, "first": {"100": theirs["mean"] + 0.25, "1000": 80.0}}
    ours = {"ilpc": {f"{sampler} {n_shot}-shot": cell for sampler, n_shot in field.CELLS}}
    assert theirs["n"] == 100
    assert "| ilpc | 80.00 ±1.00 (+0.25; 100 tasks) |" in field.table_beside_public_code(ours, public)
    assert "| ilpc | 100 | 1976.8 | 1909.2 | 19.8 x |" in field.table_of_times({"ilpc": {"ms": 100.0}}, public)


def test_every_row_names_public_code_that_there_is() -> None:
    field = script("field")
    named = {key for row in field.COMPARED for key in (row.balanced, row.dirichlet) if key}
    assert named == set(json.loads(field.PUBLIC.read_text())["rows"])


def test_the_table_of_pools_shows_what_was_measured() -> None:
    report = script("speed_report")
    name = {"points": 10, "dimensions": 2, "load": 1.26}
    run = name | {"run": "a2lp, auto", "peak_bytes": 2**30, "seconds": {"load": 1.0, "label": 2.0, "relabel": 0.5}}
    plain = {"pools": [run, name | {"run": "other", "failed": "Error: too large"}]}
    assert "| 10 x 2 | a2lp, auto | 3.00 | 0.500 |  |  | 1.00 |  | 1.3 |" in report.large_pools(plain)
    run["seconds"] |= {"relabel_with_estimate": 4.0, "suggest": 0.25}
    run |= {"forecast_seconds": 5.0, "forecast_bytes": 2**31}
    shown = report.large_pools(plain)
    assert "| 10 x 2 | a2lp, auto | 3.00 | 0.500 | 4.00 | 0.250 | 1.00 | 5.00 s, 2.00 GiB | 1.3 |" in shown
    assert "| 10 x 2 | other | too large |  |  |  |  |  |  |" in shown


def test_exponents_are_found() -> None:
    report = script("speed_report")
    assert report.exponent([1, 2, 4, 8], [3, 12, 48, 192]) == pytest.approx(2)
    assert [report.number(x) for x in (0.01234, 1.234, 45.67, 12345.6)] == ["0.0123", "1.23", "45.7", "12,346"]


def test_the_tables_name_the_networks_that_halve_the_image_first() -> None:
    """docs/tables.md says which of the trained networks are not as published."""
    records = {path.parent.name: json.loads(path.read_text()) for path in (ROOT / "trained").glob("*/record.json")}
    halved = {name for name, record in records.items() if record["config"]["options"].get("stem_stride", 1) == 2}
    sentence = next(part for part in read("tables.md").split("\n\n") if "stem_stride" in part)
    assert set(re.findall(r"`(\w+_wrn28_10)`", sentence)) == halved


def test_the_tables_of_trained_networks_are_their_records() -> None:
    from a2lp.bench.paper_records import select_records
    from a2lp.bench.records import read_records

    by_features: dict[str, list[Any]] = {}
    for record in read_records(ROOT / "results"):
        by_features.setdefault(record.config.get("features_sha256", ""), []).append(record)
    measured = set()
    for records in by_features.values():
        ours = select_records(records).accuracy("prototypical", "l2")
        for source in {source for source, _ in ours}:
            cells = " / ".join(f"{mean:.2f} ±{ci95:.2f}" for mean, ci95 in (ours[source, n_shot] for n_shot in (1, 5)))
            measured.add((f"{source.dataset}_{source.backbone}", cells))
    rows = re.findall(r"^\| \[(\w+)\]\(.*\) \| (.*) \|$", (ROOT / "trained" / "README.md").read_text(), re.MULTILINE)
    assert len({shown for _, shown in rows}) == len(list((ROOT / "trained").glob("*/record.json")))
    for run, shown in rows:
        network = run.replace("mini_imagenet", "mini").removesuffix("_distilled")
        assert (network, shown) in measured, run


def test_the_table_of_trained_heads_is_in_their_files() -> None:
    pytest.importorskip("torch")
    from a2lp.meta.checkpoint import read_weights, same_names

    folder = ROOT / "trained" / "meta"
    rows = re.findall(r"^\| \[(\w+)\]\(.*\) \| (.*) \|$", (folder / "README.md").read_text(), re.MULTILINE)
    assert {name for name, _ in rows} == {path.stem for path in folder.glob("*.safetensors")}
    for name, shown in rows:
        evaluations = same_names(read_weights(folder / f"{name}.safetensors").about)["evaluations"]
        best = [evaluation for evaluation in evaluations if evaluation["best"]][-1]
        assert shown == " / ".join(f"{accuracy:.2f}" for accuracy in best["accuracies"])
