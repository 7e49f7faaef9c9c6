"""``a2lp classify`` as a shell sees it."""

from __future__ import annotations

import csv
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner, Result

import a2lp
from a2lp.cli.app import app
from a2lp.errors import install_command
from a2lp.features import load

SMALL = ("--backbone", "resnet12", "--weights", "weights.safetensors", "--view", "36/32", "--device", "cpu")
COLOURS = {"auk": (40, 60, 200), "tern": (230, 230, 90), "wren": (150, 40, 30)}


def write_images(folder: Path, n: int, side: int = 40) -> None:
    """n images in ``folder``, of the three colours in turn."""
    image: Any = pytest.importorskip("PIL.Image")
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    for i in range(n):
        pixels = np.clip(np.array(list(COLOURS.values())[i % 3]) + rng.normal(0, 25, (side, side, 3)), 0, 255)
        image.fromarray(pixels.astype(np.uint8)).save(folder / f"{i:03d}.png")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder: vectors of digits and labels of forty of them."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("A2LP_CACHE", str(tmp_path / "cache"))
    digits = load("digits")
    assert digits.labels is not None
    np.savez("digits.npz", features=digits.features[:300], files=[f"scan {i}" for i in range(300)])
    Path("labels.csv").write_text("id,label\n" + "".join(f"scan {i},digit {digits.labels[i]}\n" for i in range(40)))
    return tmp_path


@pytest.fixture
def photos(folder: Path, weights: Path) -> Path:
    """Thirty images in ``photos``, labels of six of them, and weights of a network."""
    assert weights.parent == folder
    write_images(folder / "photos", 30)
    names = list(COLOURS)
    Path("few.csv").write_text("path,label\n" + "".join(f"{i:03d}.png,{names[i % 3]}\n" for i in range(6)))
    return folder


def run(*arguments: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(app, ["classify", *arguments], input=stdin)


def read(path: str) -> list[dict[str, str]]:
    with Path(path).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.usefixtures("folder")
def test_vectors_are_labelled() -> None:
    truth = load("digits").labels
    assert truth is not None
    result = run("digits.npz", "--labels", "labels.csv", "--out", "out.csv")
    assert result.exit_code == 0, result.stderr
    rows = read("out.csv")
    assert [row["id"] for row in rows] == [f"scan {i}" for i in range(300)]
    columns = ["id", "label", "confidence", "second", "margin", "reached", "nearest", "given", "how", "novelty"]
    assert list(rows[0]) == columns
    right = [row["label"] == f"digit {truth[i]}" for i, row in enumerate(rows)]
    assert all(right[:40])
    assert np.mean(right[40:]) > 0.8
    assert all(row["nearest"].startswith("scan ") and int(row["nearest"][5:]) < 40 for row in rows)

    out = result.stdout
    assert "digits.npz: 300 points, 40 labelled by you, 260 by a2lp -> out.csv" in out
    assert "Expected accuracy on the 260 points without your label, estimated from your labels: " in out
    assert "95 % interval" in out
    assert "digit 7" in out
    assert "\n    a2lp suggest digits.npz --into labels.csv\n" in out

    result = run("digits.npz", "--labels", "labels.csv", "--out", "out.csv")
    assert result.exit_code == 2
    assert "--force" in result.stderr
    result = run("digits.npz", "--labels", "labels.csv", "--out", "out.csv", "--force", "--abstain", "0.9")
    assert result.exit_code == 0, result.stderr
    some = read("out.csv")
    for row, before in zip(some, rows, strict=True):
        sure = float(before["confidence"]) >= 0.9 or before["given"] == "true"
        assert row["label"] == (before["label"] if sure else "")
    (line,) = [line for line in result.stdout.splitlines() if "(left unlabelled)" in line]
    none = sum(not row["label"] for row in some)
    assert int(line.split()[-1]) == none
    assert f"300 points, 40 labelled by you, {260 - none} by a2lp, {none} left unlabelled" in result.stdout
    assert "\nNew labels that are doubtful (confidence below 0.8): 0." in result.stdout  # those below 0.9 have no label
    assert re.search(
        rf"\n{260 - none} points got a label, with a confidence of 0\.9\d or more; expected ", result.stdout
    )

    result = run("digits.npz", "--labels", "labels.csv", "--out", "out.csv", "--force", "--target", "0.97")
    assert result.exit_code == 0, result.stderr
    made = int(re.search(r"\n(\d+) points got a label for an accuracy of 97 %", result.stdout)[1])
    kept = sorted((float(row["confidence"]) for row in rows if row["given"] == "false"), reverse=True)[:made]
    assert 0 < made < 260 and np.mean(kept) >= 0.969
    assert "expected accuracy on these: 97 %" in result.stdout
    assert f"{260 - made} stay unlabelled." in result.stdout
    result = run("digits.npz", "--labels", "labels.csv", "--out", "out.csv", "--force", "--target", "1")
    assert "Nothing was labelled" in result.stdout
    for options, message in ((["--target", "0"], "target=0"), (["--target", "0.9", "--abstain", "0.5"], "Give one of")):
        result = run("digits.npz", "--labels", "labels.csv", "--out", "out.csv", "--force", *options)
        assert result.exit_code == 2 and message in " ".join(result.stderr.split())


@pytest.mark.usefixtures("folder")
def test_kinds_that_are_missing_are_mentioned() -> None:
    truth = load("digits").labels
    assert truth is not None
    rows = [0, 10, 20, 30, *np.flatnonzero(truth[:300] == 1)[:4], 2, 3]  # two of the kinds have one label
    Path("few.csv").write_text("id,label\n" + "".join(f"scan {i},digit {truth[i]}\n" for i in rows))
    result = run("digits.npz", "--labels", "few.csv", "--out", "out.csv")
    assert result.exit_code == 0, result.stderr
    share = int(re.search(r"About (\d+) % of them may belong to kinds that you have not", result.stdout)[1])
    assert 10 <= share <= 40


@pytest.mark.usefixtures("folder")
def test_a_table_that_came_out_labels_nothing_new_when_it_goes_in() -> None:
    assert run("digits.npz", "--labels", "labels.csv", "--out", "out.csv").exit_code == 0
    result = run("digits.npz", "--labels", "out.csv", "--out", "again.csv")
    assert result.exit_code == 0, result.stderr
    assert "note: out.csv: 260 of its labels are predictions of a2lp (given is false)" in result.stderr
    assert "40 labelled by you, 260 by a2lp" in result.stdout
    assert Path("again.csv").read_text() == Path("out.csv").read_text()


@pytest.mark.usefixtures("folder")
def test_the_page_and_the_labels_appear_together(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("jinja2")
    arguments = ("digits.npz", "--labels", "labels.csv", "--out", "out.csv", "--report", "page.html")

    def stopped(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("a2lp.labelling.outputs.csv.writer", stopped)
        assert run(*arguments).exit_code == 2
    assert not Path("page.html").exists() and not Path("out.csv").exists()
    assert run(*arguments).exit_code == 0  # nothing is in the way


@pytest.mark.usefixtures("folder")
def test_the_report_has_every_point() -> None:
    pytest.importorskip("jinja2")
    result = run("digits.npz", "--labels", "labels.csv", "--out", "out.csv", "--report", "page.html")
    assert result.exit_code == 0, result.stderr
    assert "Report: page.html" in result.stdout
    page = Path("page.html").read_text(encoding="utf-8")
    assert all(f'"scan {i}"' in page for i in range(300))


@pytest.mark.usefixtures("photos")
def test_images_are_labelled_from_tables_lists_and_class_folders() -> None:
    result = run("photos", "--labels", "few.csv", "--out", "out.jsonl", *SMALL)
    assert result.exit_code == 0, result.stderr
    assert "30 images, 30 of them not in the cache" in result.stderr
    rows = [json.loads(line) for line in Path("out.jsonl").read_text().splitlines()]
    assert [row["label"] for row in rows] == [list(COLOURS)[i % 3] for i in range(30)]

    # the same by folders, from a list, with class folders as labels; nothing is embedded again
    for row in rows[:6]:
        Path("examples", row["label"]).mkdir(parents=True, exist_ok=True)
        Path("examples", row["label"], row["path"]).write_bytes(Path("photos", row["path"]).read_bytes())
    paths = "".join(f"photos/{row['path']}\n" for row in rows)
    result = run("-", "--labels", "examples", "--out", "sorted", "--link", *SMALL, stdin=paths)
    assert result.exit_code == 0, result.stderr
    assert "cache" not in result.stderr
    for row in rows:
        assert Path("sorted", row["label"], row["path"]).resolve() == Path("photos", row["path"]).resolve()


@pytest.mark.usefixtures("folder")
def test_stages_are_kept_and_memory_is_limited() -> None:
    arguments = ("digits.npz", "--labels", "labels.csv", "--out", "out.csv", "--force")
    result = run(*arguments, "--memory-limit", "0.1")
    message = " ".join(result.stderr.split())
    assert result.exit_code == 2 and "memory_limit allows 0.1 GiB" in message and "Traceback" not in message
    assert not Path("out.csv").exists()
    assert run(*arguments, "--memory-limit", "4", "--folder", "stages").exit_code == 0
    first, kept = Path("out.csv").read_bytes(), sorted(Path("stages").iterdir())
    assert any(path.name.startswith("graph") for path in kept)
    assert run(*arguments, "--folder", "stages").exit_code == 0
    assert Path("out.csv").read_bytes() == first and sorted(Path("stages").iterdir()) == kept


@pytest.mark.usefixtures("photos")
def test_damaged_images() -> None:
    Path("photos/020.png").write_bytes(b"no image")
    result = run("photos", "--labels", "few.csv", "--out", "out.csv", *SMALL, "--on-corrupt", "refuse")
    assert result.exit_code == 2
    assert "photos/020.png" in result.stderr
    result = run("photos", "--labels", "few.csv", "--out", "out.csv", *SMALL)
    assert result.exit_code == 0, result.stderr
    assert "skipped: 020.png: " in result.stderr
    assert len(read("out.csv")) == 29
    for i in (0, 3):
        Path(f"photos/{i:03d}.png").write_bytes(b"no image")
    result = run("photos", "--labels", "few.csv", "--out", "new.csv", *SMALL)
    assert result.exit_code == 2
    assert "`auk`" in result.stderr


@pytest.mark.skipif(os.name != "posix", reason="kills as Unix does")
@pytest.mark.usefixtures("photos")
def test_kill_9_while_embedding() -> None:
    write_images(Path("many"), 300)
    program = "from a2lp.images import cache; cache.SHARD_SECONDS = 0\nfrom a2lp.__main__ import main; main()"
    environment = os.environ | {"PYTHONPATH": str(Path(a2lp.__file__).parents[1])}
    command = [sys.executable, "-c", program, "classify", "many", "--labels", "few.csv", "--out", "out.csv"]
    process = subprocess.Popen([*command, *SMALL], env=environment, stderr=subprocess.PIPE)
    for _ in range(6000):
        if process.poll() is not None or list(Path("cache").glob("features/*/*.npz")):
            break
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert process.stderr
    process.stderr.close()
    assert not Path("out.csv").exists()
    result = run("many", "--labels", "few.csv", "--out", "out.csv", *SMALL)
    assert result.exit_code == 0, result.stderr
    assert 0 < int(result.stderr.split()[2]) < 300  # of the 300, those that were not embedded before the kill
    assert len(read("out.csv")) == 300


QUICK = ("digits.npz", "--labels", "labels.csv")
BAD: dict[str, tuple[tuple[str, ...], str]] = {
    "no such folder": (
        ("my photos/2024", "--labels", "labels.csv", "--out", "new.csv"),
        "there is no folder 'my photos/2024'",
    ),
    "no source": (("nowhere.npz", "--labels", "labels.csv", "--out", "new.csv"), "nowhere.npz"),
    "an unknown name": (("digitz", "--labels", "labels.csv", "--out", "new.csv"), "'digits'"),
    "a source without images": (("empty", "--labels", "labels.csv", "--out", "new.csv"), "no image"),
    "a text as source": (("labels.csv", "--labels", "labels.csv", "--out", "new.csv"), ".csv"),
    "a damaged source": (("cut.npz", "--labels", "labels.csv", "--out", "new.csv"), "cut.npz"),
    "a source with nan": (("nan.npz", "--labels", "labels.csv", "--out", "new.csv"), "features[3, 1]"),
    "a point twice": (("twice.npz", "--labels", "labels.csv", "--out", "new.csv"), "same name: `scan 1`"),
    "nothing on stdin": (("-", "--labels", "labels.csv", "--out", "new.csv"), "no paths"),
    "no labels": (("digits.npz", "--labels", "nowhere.csv", "--out", "new.csv"), "nowhere.csv"),
    "an unknown point": (("digits.npz", "--labels", "unknown.csv", "--out", "new.csv"), "`scan 900`"),
    "a row that is not there": (("digits.npz", "--labels", "rows.csv", "--out", "new.csv"), "index '2000'"),
    "labels of another kind": (("digits.npz", "--labels", "digits.npz", "--out", "new.csv"), "'.npz'"),
    "contradicting labels": (("digits.npz", "--labels", "against.csv", "--out", "new.csv"), "contradict"),
    "a class without example": (("digits.npz", "--labels", "none.csv", "--out", "new.csv"), "'wren' has no example"),
    "one class": (("digits.npz", "--labels", "one.csv", "--out", "new.csv"), "two classes"),
    "other columns": (("digits.npz", "--labels", "columns.csv", "--out", "new.csv"), "`label`"),
    "folders as labels of vectors": (("digits.npz", "--labels", "empty", "--out", "new.csv"), "vectors"),
    "an unknown method": ((*QUICK, "--out", "new.csv", "--method", "autoo"), "'auto'"),
    "abstain in per cent": ((*QUICK, "--out", "new.csv", "--abstain", "80"), "abstain=80"),
    "an unset variable": (("", "--labels", "labels.csv", "--out", "new.csv"), "source is empty"),
    "a negative seed": ((*QUICK, "--out", "new.csv", "--seed", "-1"), "seed=-1"),
    "abstain below zero": ((*QUICK, "--out", "new.csv", "--abstain", "-0.1"), "abstain=-0.1"),
    "all are rejected": ((*QUICK, "--out", "new.csv", "--reject", "1"), "reject=1"),
    "OUT is the labels": ((*QUICK, "--out", "labels.csv", "--force"), "holds your labels"),
    "OUT is one of the labels": ((*QUICK, "--labels", "one.csv", "--out", "./one.csv", "--force"), "holds your labels"),
    "labels in no folder": (("digits.npz", "--labels", "examples", "--out", "new.csv"), "no folder examples"),
    "OUT is there": ((*QUICK, "--out", "there.csv"), "--force"),
    "OUT is a folder": ((*QUICK, "--out", "folder.csv", "--force"), "folder.csv is a folder"),
    "OUT of another kind": ((*QUICK, "--out", "new.xlsx"), ".parquet"),
    "OUT in no folder": ((*QUICK, "--out", "no/new.csv"), "no folder no"),
    "folders of vectors": ((*QUICK, "--out", "new"), "feature file"),
    "a report of another kind": ((*QUICK, "--out", "new.csv", "--report", "page.pdf"), ".html"),
    "a report in no folder": ((*QUICK, "--out", "new.csv", "--report", "no/page.html"), "no folder no"),
    "the report is there": ((*QUICK, "--out", "new.csv", "--report", "there.html"), "--force"),
}


@pytest.mark.parametrize("name", BAD)
@pytest.mark.usefixtures("folder")
def test_errors_are_one_paragraph(name: str, check_refused: Callable[[Result, str], None]) -> None:
    if name in ("a source without images",):
        pytest.importorskip("torch")
    Path("cut.npz").write_bytes(Path("digits.npz").read_bytes()[:200])
    Path("there.csv").write_text("mine")
    Path("there.html").write_text("mine")
    Path("empty").mkdir()
    Path("folder.csv").mkdir()
    tables = {"unknown": "900,a", "against": "1,b", "one": "2,a"}
    for table, line in tables.items():
        Path(f"{table}.csv").write_text(f"id,label\nscan 1,a\nscan {line}\n")
    Path("none.csv").write_text("id,label\nscan 1,a\nscan 2,b\n,wren\n")
    Path("columns.csv").write_text("name,kind\nscan 1,a\n")
    Path("rows.csv").write_text("index,label\n1,a\n2000,b\n")
    names = ["scan 1", "scan 2", "scan 1", "scan 3"]
    np.savez("twice.npz", features=np.eye(4), files=names)
    np.savez("nan.npz", features=np.where(np.arange(8).reshape(4, 2) == 7, np.nan, 1))
    before = set(Path().iterdir())
    arguments, part = BAD[name]
    result = run(*arguments, stdin="")
    check_refused(result, part)
    assert set(Path().iterdir()) == before
    assert Path("there.csv").read_text() == "mine"
    assert Path("labels.csv").read_text().count("scan ") == 40


WITHOUT = """
from importlib.machinery import PathFinder
find = PathFinder.find_spec
PathFinder.find_spec = lambda name, *rest: None if name == {!r} else find(name, *rest)
from a2lp.__main__ import main
main()
"""


@pytest.mark.usefixtures("folder")
def test_extras_that_are_not_installed() -> None:
    Path("photos").mkdir()
    Path("photos/000.png").touch()
    environment = os.environ | {"PYTHONPATH": str(Path(a2lp.__file__).parents[1])}
    for package, source, out, extra in (
        ("PIL", "photos", "new.csv", "images"),
        ("pyarrow", "digits.npz", "new.parquet", "label"),
    ):
        command = [sys.executable, "-c", WITHOUT.format(package), "classify", source, "--labels", "labels.csv"]
        done = subprocess.run([*command, "--out", out], env=environment, capture_output=True, text=True)
        assert done.returncode == 2
        assert install_command(extra) in done.stderr
        assert done.stderr.count("\n") == 1


@pytest.mark.usefixtures("photos")
def test_errors_of_images_come_before_anything_is_embedded() -> None:
    Path("unknown.csv").write_text("path,label\n000.png,auk\nzzz.png,wren\n")
    Path("slash.csv").write_text("path,label\n000.png,auk\n001.png,a/b\n")
    for labels, out, said in (
        ("unknown.csv", "new.csv", "`zzz.png`"),
        ("slash.csv", "sorted", "'a/b'"),
        ("few.csv", "photos/sorted", "lies in the source"),
        ("few.csv", "photos", "photos"),
        ("photos", "new.csv", "no folders"),
    ):
        result = run("photos", "--labels", labels, "--out", out, *SMALL)
        assert result.exit_code == 2
        assert result.stderr.startswith("error: ")
        assert result.stderr.count("\n") == 1
        assert said in result.stderr
    for option, value, said in (
        ("--backbone", "resnet13", "'resnet12'"),
        ("--view", "big", "RESIZE/CROP"),
        ("--device", "gpu", "'gpu'"),
        ("--on-corrupt", "skp", "'skip'"),
        ("--weights", "none.safetensors", "none.safetensors"),
    ):
        result = run("photos", "--labels", "few.csv", "--out", "new.csv", *SMALL, option, value)
        assert result.exit_code == 2
        assert said in result.stderr
    assert not list(Path("cache").glob("features/*/*.npz"))
