from __future__ import annotations

import csv
import io
import json
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
from a2lp.errors import install_command
from a2lp.features import load, save
from a2lp.methods.registry import _TABLE, method_class
from a2lp.tasks.authors import authors_tasks
from a2lp.tasks.lists import TaskList

SMALL = ["bench", "--features", "digits", "--tasks", "10"]
FEW_STEPS = ["--set", "a2lp.steps=10"]
ALL_METHODS = [*SMALL, *FEW_STEPS, "--set", "imprinting.steps=10"]


def call(*args: str) -> tuple[str, str]:
    result = CliRunner().invoke(app, list(args))
    assert result.exit_code == 0, result.stderr
    return result.stdout, result.stderr


def process(args: list[str], **options) -> subprocess.Popen[str]:
    paths = [str(Path(a2lp.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    return subprocess.Popen([sys.executable, "-m", "a2lp", *args], text=True, env=environment, **options)


def records(out: Path) -> dict[str, dict]:
    return {path.name: json.loads(path.read_text()) for path in (out / "records").glob("*.json")}


def test_json_is_the_document_alone_and_has_every_cell():
    stdout, _ = call(*ALL_METHODS, "--preprocess", "l2,plc", "--format", "json")
    cells = json.loads(stdout)
    found = [(c["method"], c["n_shot"], c["preprocess"]) for c in cells]
    assert found == [
        (m, k, p) for p in ("l2", "plc") for k in (1, 5) for m in ("prototypical", "imprinting", "lp", "a2lp")
    ]
    for cell in cells:
        assert (cell["n_way"], cell["sampler"], cell["features"], cell["n_tasks"]) == (5, "balanced", "digits", 10)
        assert 20 < cell["mean_accuracy"] <= 100
        assert cell["ci95"] > 0
        assert cell["seconds"] > 0
        assert cell["baseline"] == "lp"


def test_csv_says_the_same_as_json():
    args = [*SMALL, "--methods", "prototypical,lp", "--shots", "1"]
    from_json = json.loads(call(*args, "--format", "json")[0])
    from_csv = list(csv.DictReader(io.StringIO(call(*args, "--format", "csv")[0])))
    assert [row["method"] for row in from_csv] == ["prototypical", "lp"]
    assert [float(row["mean_accuracy"]) for row in from_csv] == [row["mean_accuracy"] for row in from_json]


@pytest.mark.parametrize("shots", ["1,5", "1,2,3,4"])
def test_table_fits_eighty_columns(shots):
    stdout, _ = call(*ALL_METHODS, "--preprocess", "l2,plc", "--shots", shots, "--baseline", "prototypical")
    lines = stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert "digits: 5-way, 75 queries a task, 10 tasks, balanced, seed 0" in lines[0]
    rows = [line.split() for line in lines if line.strip().startswith("a2lp")]
    assert len(rows) % 5 == 0  # accuracy, two differences, rank, seconds: in as many pieces as the width asks for
    accuracies = [entry for row in rows[::5] for entry in row if not entry.startswith(("a2lp", "±"))]
    assert len(accuracies) == 2 * len(shots.split(","))


def test_saved_tasks_give_the_same_numbers(tmp_path):
    args = ["bench", "--features", "digits", "--methods", "lp", "--format", "json"]
    drawn, _ = call(*args, "--shots", "1,2", "--tasks", "10", "--seed", "3", "--save-tasks", str(tmp_path / "t.npz"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["t_1shot.npz", "t_2shot.npz"]
    again, notes = call(*args, "--tasks-file", str(tmp_path / "t_2shot.npz"))
    assert "do not apply" in notes
    assert json.loads(again)[0]["mean_accuracy"] == json.loads(drawn)[1]["mean_accuracy"]
    assert TaskList.load(tmp_path / "t_2shot.npz").about["seed"] == 3


def test_tasks_of_several_samplers_are_saved_apart(tmp_path):
    args = ["bench", "--features", "digits", "--methods", "lp", "--tasks", "3", "--sampler", "balanced,dirichlet"]
    call(*args, "--save-tasks", str(tmp_path / "t.npz"))
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        f"t_{sampler}_{k}shot.npz" for sampler in ("balanced", "dirichlet") for k in (1, 5)
    ]


def test_sampler_parameters_are_set_too(tmp_path):
    args = ["bench", "--features", "digits", "--methods", "lp", "--shots", "1", "--tasks", "4", "--sampler", "k_eff"]
    call(*args, "--set", "k_eff.k_eff=2", "--save-tasks", str(tmp_path / "t.npz"))
    tasks = TaskList.load(tmp_path / "t.npz")
    assert tasks.query.shape[1] == 75
    assert all(len(np.unique(row)) == 2 for row in tasks.query_labels)


def test_the_authors_tasks_of_a_dataset(tmp_path):
    args = ["bench", "--methods", "lp", "--shots", "1,5", "--tasks", "4", "--sampler", "authors"]
    call(*args, "--set", "authors.dataset=cub", "--save-tasks", str(tmp_path / "t.npz"))
    for shots in (1, 5):
        saved = TaskList.load(tmp_path / f"t_{shots}shot.npz")
        expected = authors_tasks(load("cub").labels, "cub", n_shot=shots, n_tasks=4)
        np.testing.assert_array_equal(saved.query, expected.query)
        assert saved.about["seed"] == 48
    result = CliRunner().invoke(app, [*args, "--set", "authors.dataset=cub", "--seed", "3"])
    assert (result.exit_code, "Give exactly one of the two" in result.stderr) == (2, True)


@pytest.fixture
def base(tmp_path):
    """A file that can pass for base classes."""
    save(load("digits"), tmp_path / "base.npz")
    return str(tmp_path / "base.npz")


def test_cl2n_with_base_features(base):
    stdout, _ = call(*SMALL, "--methods", "lp", "--preprocess", "l2,cl2n", "--base", base, "--format", "json")
    assert len(json.loads(stdout)) == 4


@pytest.fixture
def four(monkeypatch):
    """As if these were all the methods there are."""
    names = ("prototypical", "lp", "simple_shot", "sib")
    monkeypatch.setattr("a2lp.methods.registry._TABLE", {name: _TABLE[name] for name in names})


def test_all_methods_that_can_run_here(four, base):
    args = [*SMALL, "--methods", "all", "--shots", "1", "--sampler", "balanced,dirichlet", "--format", "json"]
    stdout, notes = call(*args)
    cells = [(c["sampler"], c["method"]) for c in json.loads(stdout)]
    assert cells == [(s, m) for s in ("balanced", "dirichlet") for m in ("prototypical", "lp")]
    assert "simple_shot is left out: it uses statistics of the base classes. Give them by --base FILE." in notes
    assert "`a2lp meta-train sib --features BASE --out FILE`" in notes
    stdout, notes = call(*args, "--base", base)
    rows = json.loads(stdout)
    assert [row["method"] for row in rows[:3]] == ["prototypical", "lp", "simple_shot"]
    assert [row["uses_base"] for row in rows[:3]] == [False, False, True]
    assert all(row["baseline"] is None for row in rows)


def test_weights_bring_in_the_meta_trained_and_count_as_base_data(four, base, tmp_path):
    weights = str(tmp_path / "sib.safetensors")
    train = ["meta-train", "sib", "--features", base, "--out", weights, "--evaluations", "1", "--batch", "2"]
    args = [*SMALL, "--methods", "all", "--shots", "1", "--set", f"sib.weights={weights}", "--format", "json"]
    keys = []
    for steps in ("1", "2"):
        call(*train, "--steps", steps, "--force")
        stdout, notes = call(*args, "--out", str(tmp_path / "out"))
        assert [(row["method"], row["uses_base"]) for row in json.loads(stdout)][-1] == ("sib", True)
        assert "sib is left out" not in notes
        keys.append(len(records(tmp_path / "out")))
    assert keys == [3, 4]  # other weights under the same name are another cell


def test_bundled_features_bring_their_base_classes(four):
    args = ["bench", "--methods", "all", "--shots", "1", "--tasks", "3", "--format", "json"]
    stdout, notes = call(*args)
    assert [row["method"] for row in json.loads(stdout)] == ["prototypical", "lp", "simple_shot"]
    assert "simple_shot" not in notes.replace("simple_shot, 1-shot, cl2n", "")


def test_a_mistake_in_the_parameters_of_one_of_all_is_an_error(four):
    result = CliRunner().invoke(app, [*SMALL, "--methods", "all", "--set", "lp.alhpa=1"])
    assert result.exit_code == 2
    assert "Did you mean 'alpha'" in result.stderr


def test_one_failing_method_is_a_note(monkeypatch, tmp_path):
    def fail(self, points):
        raise RuntimeError("out of luck")

    monkeypatch.setattr(method_class("tpn"), "_solve", fail)
    stdout, _ = call(*SMALL, "--methods", "prototypical,tpn", "--shots", "1", "--out", str(tmp_path))
    assert "tpn (balanced, own, 1-shot) failed: RuntimeError: out of luck" in " ".join(stdout.split())
    assert len(records(tmp_path)) == 1
    for name in ("table.md", "table.csv", "report.html"):
        assert "out of luck" in (tmp_path / name).read_text()


def test_a_slow_method_is_bounded(tmp_path):
    args = ["bench", "--features", "digits", "--tasks", "300", "--shots", "1", "--methods", "prototypical,imprinting"]
    args += ["--set", "imprinting.steps=3000", "--limit-seconds", "0.2", "--out", str(tmp_path)]
    stdout, _ = call(*args, "--format", "json")
    quick, slow = json.loads(stdout)
    assert (quick["n_tasks"], quick["best"]) == (300, "prototypical")
    assert 0 < slow["n_tasks"] < 300
    assert slow["best"] == "prototypical" and slow["rank"] is None
    assert "stopped by the limit of 0.2 s" in (tmp_path / "table.md").read_text()


def test_out_has_records_table_and_report(tmp_path):
    call(*SMALL, *FEW_STEPS, "--methods", "lp,a2lp", "--shots", "1", "--out", str(tmp_path))
    assert (tmp_path / "report.html").stat().st_size > 10_000
    assert "**" in (tmp_path / "table.md").read_text()
    found = list(records(tmp_path).values())
    assert len(found) == 3  # two cells, and the report's look at the steps
    for record in found:
        assert len(record["accuracies"]) == 10
        assert {"config", "mean", "ci95", "seconds", "versions", "hardware", "commit", "date", "seed"} <= set(record)


def test_without_the_report_extra_the_rest_is_written(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    _, notes = call(*SMALL, "--methods", "lp", "--out", str(tmp_path))
    assert install_command("report") in notes
    assert (tmp_path / "table.md").is_file()
    assert len(records(tmp_path)) == 2


def test_a_killed_run_goes_on_where_it_stopped(tmp_path):
    out = tmp_path / "out"
    args = ["bench", "--features", "digits", "--methods", "prototypical,lp,imprinting", "--shots", "1", "--tasks", "40"]
    args += ["--set", "imprinting.steps=30000", "--out", str(out), "--format", "json"]
    run = process(args, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while len(list(out.glob("records/*.json"))) < 2 and time.monotonic() < deadline:
        time.sleep(0.005)
    run.send_signal(signal.SIGKILL)
    assert run.wait() == -signal.SIGKILL
    before = {path: path.stat().st_mtime_ns for path in out.glob("records/*.json")}
    assert len(before) == 2
    done = process(args, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    stdout, stderr = done.communicate(timeout=120)
    assert done.returncode == 0, stderr
    assert "2 of 3 cells" in stderr
    assert len(json.loads(stdout)) == 3
    assert all(path.stat().st_mtime_ns == written for path, written in before.items())
    assert len(records(out)) == 3


def test_interrupting_says_that_it_can_go_on(tmp_path):
    args = ["bench", "--features", "digits", "--methods", "prototypical,imprinting", "--shots", "1"]
    args += ["--set", "imprinting.steps=20000", "--out", str(tmp_path)]
    # a shell starts what runs in its background deaf to Ctrl-C, and its children inherit that
    hearing = {"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)}
    run = process(args, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, **hearing)
    while not list(tmp_path.glob("records/*.json")):
        time.sleep(0.005)
    time.sleep(0.3)
    run.send_signal(signal.SIGINT)
    _, stderr = run.communicate(timeout=120)
    assert run.returncode == 130
    assert "the same command continues from there" in stderr
    assert "Traceback" not in stderr


def test_a_broken_record_is_run_again(tmp_path):
    args = [*SMALL, "--methods", "lp", "--shots", "1", "--out", str(tmp_path), "--format", "json"]
    first, _ = call(*args)
    [path] = (tmp_path / "records").glob("*.json")
    path.write_text(path.read_text()[:200])
    second, notes = call(*args)
    assert "is not a whole record" in notes
    assert json.loads(second)[0]["mean_accuracy"] == json.loads(first)[0]["mean_accuracy"]
    assert len(records(tmp_path)) == 1


def test_sweep_ranks_and_says_which_classes(tmp_path):
    args = ["sweep", "--method", "lp", "--features", "digits", "--grid", "alpha=0.5,0.9", "--grid", "n_neighbors=3,10"]
    args += ["--tasks", "10", "--out", str(tmp_path)]
    stdout, notes = call(*args, "--format", "json")
    rows = json.loads(stdout)
    assert len(rows) == 8
    assert [row["rank"] for row in rows] == [1, 1, 2, 2, 3, 3, 4, 4]
    means = [row["mean_over_shots"] for row in rows]
    assert means == sorted(means, reverse=True)
    assert {(row["alpha"], row["n_neighbors"]) for row in rows} == {(a, k) for a in (0.5, 0.9) for k in (3, 10)}
    assert "5 of 10" in notes
    table, notes = call(*args)
    assert "8 of 8 cells" in notes
    assert max(map(len, table.splitlines())) <= 80
    assert "5 of 10" in (tmp_path / "sweep.md").read_text()


def test_sweep_over_words():
    args = ["sweep", "--method", "lp", "--features", "digits", "--grid", "preprocess=l2,plc", "--tasks", "5"]
    rows = json.loads(call(*args, "--classes", "all", "--format", "json")[0])
    assert {row["preprocess"] for row in rows} == {"l2", "plc"}


def test_methods_and_version():
    stdout, _ = call("methods")
    listed, _, guide = stdout.partition("\n\n")
    lines = {line.split()[0]: line for line in listed.splitlines()}
    assert list(lines) == list(a2lp.list_methods())
    assert guide.startswith("Which method? If you have ...") and "a2lp_em with preprocess=whiten" in guide
    assert "[" not in lines["lp"]
    assert "[assumes or prefers equally many queries of each class]" in lines["pt_map"]
    assert "[uses statistics of base classes]" in lines["simple_shot"]
    assert "a2lp meta-train" in lines["sib"]
    assert "MissingExtraError" not in stdout
    assert call("--version")[0].strip() == a2lp.__version__


def test_help_loads_nothing_heavy():
    code = (
        "import sys, a2lp.cli.app as a; print([m for m in ('numpy', 'sklearn', 'numba', 'torch') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONPATH": str(Path(a2lp.__file__).parents[1])},
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.shared
def test_the_reference_tasks_give_the_reference_accuracies(shared_data):
    tasks = str(shared_data / "reference" / "ref_cub_1shot.npz")
    vectors = str(shared_data / "features" / "cub_resnet12_test.npz")
    stdout, _ = call(
        "bench", "--features", vectors, "--methods", "prototypical,lp", "--preprocess", "l2,plc", "--tasks-file", tasks,
        "--format", "json",
    )  # fmt: skip
    found = [(round(cell["mean_accuracy"], 1), round(cell["ci95"], 2)) for cell in json.loads(stdout)]
    assert found == [(68.1, 0.67), (74.8, 0.72), (69.5, 0.63), (78.1, 0.70)]
