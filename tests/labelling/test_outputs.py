from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import a2lp
from a2lp.errors import A2LPWarning, InputError
from a2lp.labelling.classify import Labelled, label
from a2lp.labelling.labels import read_labels
from a2lp.labelling.outputs import check_output, write_output

COLUMNS = ["path", "label", "confidence", "second", "margin", "reached", "nearest", "given", "how", "novelty"]


@pytest.fixture(scope="module")
def result() -> Labelled:
    """Twelve points around three directions; the last is doubtful."""
    rng = np.random.default_rng(0)
    x = np.repeat(np.eye(3), 4, axis=0) + rng.normal(0, 0.05, (12, 3))
    x[11] = [0.5, 0.52, 0.54]
    keys = [f"{i:03d}.png" for i in range(12)]
    given = {keys[0]: "auk", keys[4]: "tern, common", keys[8]: "wren"}
    made = label(x, given, keys=keys, key="path", method="lp")
    made.table["confidence"][11] = 0.4
    made.table["label"][11] = None
    return made


def read(path: str) -> list[dict[str, str]]:
    with Path(path).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.usefixtures("here")
def test_tables_have_every_column_and_point(result: Labelled) -> None:
    pyarrow = pytest.importorskip("pyarrow.parquet")
    for name in ("out.csv", "out.jsonl", "out.parquet"):
        write_output(result, name)
    rows = read("out.csv")
    assert list(rows[0]) == COLUMNS
    assert [row["path"] for row in rows] == list(result.table["path"])
    assert rows[4]["label"] == rows[5]["label"] == "tern, common"
    assert rows[4]["given"] == "true"
    assert rows[5]["given"] == "false"
    assert rows[5]["nearest"] == "004.png"
    assert rows[11]["label"] == ""
    np.testing.assert_allclose([float(row["confidence"]) for row in rows], result.table["confidence"], atol=5e-5)

    lines = [json.loads(line) for line in Path("out.jsonl").read_text("utf-8").splitlines()]
    assert lines == list(result.rows()) == pyarrow.read_table("out.parquet").to_pylist()
    assert list(lines[0]) == COLUMNS
    assert lines[11]["label"] is None


@pytest.mark.usefixtures("here")
def test_label_studio(result: Labelled) -> None:
    write_output(result, "out.json")
    tasks = json.loads(Path("out.json").read_text("utf-8"))
    assert len(tasks) == 12
    assert tasks[4]["data"]["image"] == "/data/local-files/?d=004.png"
    choice = {"from_name": "choice", "to_name": "image", "type": "choices", "value": {"choices": ["tern, common"]}}
    assert tasks[4]["annotations"] == [{"result": [choice]}]
    assert tasks[4]["predictions"] == []
    (prediction,) = tasks[5]["predictions"]
    assert prediction["result"] == [choice]
    assert prediction["score"] == result.table["confidence"][5]
    assert tasks[5]["annotations"] == []
    assert tasks[11]["predictions"] == tasks[11]["annotations"] == []


@pytest.mark.usefixtures("here")
def test_cells_that_a_spreadsheet_would_run_are_escaped_and_read_back() -> None:
    keys = ["=cmd|'/c calc'!A0", "@x.jpg", "-1.5", "+y", "'quoted", "plain"]
    x = np.repeat(np.eye(2), 3, axis=0) + 0.1 * np.random.default_rng(0).normal(size=(6, 2))
    made = label(x, {keys[0]: "-evil", keys[5]: "good"}, keys=keys, key="path", method="lp")
    write_output(made, "out.csv")
    rows = read("out.csv")
    assert [row["path"] for row in rows] == ["'=cmd|'/c calc'!A0", "'@x.jpg", "-1.5", "'+y", "'quoted", "plain"]
    assert rows[0]["label"] == "'-evil" and rows[5]["label"] == "good"
    write_output(made, "out.jsonl")
    assert json.loads(Path("out.jsonl").read_text().splitlines()[0])["path"] == keys[0]
    with pytest.warns(A2LPWarning, match="4 of its labels are predictions"):
        back = read_labels("out.csv", keys)
    assert back.tolist() == ["-evil", *[None] * 4, "good"]


def tree(folder: str) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in Path(folder).rglob("*") if not path.is_dir()}


def images() -> list[Path]:
    return [Path("photos", f"{i:03d}.png") for i in range(12)]


@pytest.mark.usefixtures("photos")
@pytest.mark.parametrize("link", [False, True])
def test_folders_are_named_by_class(result: Labelled, link: bool) -> None:
    Path(".sorted.partial/wren").mkdir(parents=True)  # of a killed run, which had other labels
    Path(".sorted.partial/wren/000.png").write_text("half an im")
    write_output(result, "sorted", link=link, paths=images(), source=Path("photos"))
    expected = {
        f"{result.table['label'][i] or 'unlabelled'}/{i:03d}.png": path.read_bytes() for i, path in enumerate(images())
    }
    assert tree("sorted") == {*expected, "labels.csv"}
    for file, content in expected.items():
        assert Path("sorted", file).read_bytes() == content
        assert Path("sorted", file).is_symlink() == link
    rows = read("sorted/labels.csv")
    assert list(rows[0]) == [*COLUMNS, "place"]
    assert {row["place"] for row in rows} == set(expected)

    # replaced only when asked for, and only as long as nothing of the user's is in it
    with pytest.raises(InputError, match="--force"):
        write_output(result, "sorted", paths=images())
    write_output(result, "sorted", force=True, paths=images())
    assert not Path("sorted/auk/000.png").is_symlink()
    Path("sorted/auk/000.png").rename("sorted/wren/000.png")
    with pytest.raises(InputError, match=r"`wren/000\.png`"):
        write_output(result, "sorted", force=True, paths=images())
    assert len(tree("photos")) == 12
    assert sorted(path.name for path in Path().iterdir()) == ["photos", "sorted"]


@pytest.mark.usefixtures("photos")
def test_images_of_the_same_name_keep_their_folders(result: Labelled) -> None:
    Path("photos/more").mkdir()
    Path("photos/001.png").rename("photos/more/000.png")
    paths = images()
    paths[1] = Path("photos/../photos/more/000.png")
    write_output(result, "sorted/", paths=paths)
    assert {"auk/000.png", "auk/more/000.png"} < tree("sorted")
    assert len(tree("sorted")) == 13


@pytest.mark.usefixtures("photos")
def test_what_is_refused() -> None:
    Path("there.csv").write_text("mine")
    Path("folder.csv").mkdir()
    Path("mine").mkdir()
    Path("mine/thesis.txt").write_text("mine")
    Path("latin").mkdir()
    Path("latin/labels.csv").write_bytes("path,label\na.jpg,Möwe\n".encode("latin-1"))
    images_ = {"paths": images(), "source": Path("photos")}
    bad: list[tuple[str, str, dict[str, Any]]] = [
        ("there.csv", "--force", {}),
        ("folder.csv", "is a folder", {"force": True}),
        ("no/out.csv", "no folder no", {}),
        ("out.xlsx", r"'\.xlsx'.*\.parquet", {}),
        ("sorted", "feature file", {}),
        ("mine", "--force", images_),
        ("mine", "thesis", {**images_, "force": True}),
        ("photos", "photos", {**images_, "force": True}),
        ("photos/sorted", "lies in the source", images_),
        (".", "Name a new one", {**images_, "force": True}),
        ("../" + Path.cwd().name, "holds images", {**images_, "force": True}),
        ("there.csv/", "is a file", {**images_, "force": True}),
        ("sorted", "'a/b'", {**images_, "classes": ["auk", "a/b"]}),
        ("sorted", "'..'", {**images_, "classes": ["auk", ".."]}),
        ("sorted", "'unlabelled'", {**images_, "classes": ["auk", "unlabelled"]}),
        ("sorted", "'labels.csv'", {**images_, "classes": ["auk", "labels.csv"]}),
        ("sorted", "at most 200 bytes", {**images_, "classes": ["auk", 300 * "a"]}),
        ("latin", "UnicodeDecodeError", {**images_, "force": True}),
    ]
    for out, words, options in bad:
        with pytest.raises(InputError, match=words):
            check_output(out, **options)
    check_output("there.csv", force=True)
    Path("mine/thesis.txt").unlink()
    check_output("mine", **images_)  # nothing is in it
    assert Path("there.csv").read_text() == "mine"


PROGRAM = """
import pickle, sys
from pathlib import Path
from a2lp.labelling.outputs import write_output

result, out = pickle.loads(Path("result.pickle").read_bytes()), sys.argv[1]
paths = [Path("photos", key) for key in result.table["path"]]
while True:
    write_output(result, out, force=True, paths=paths)
    print("written", flush=True)
    if len(sys.argv) > 2:
        break
"""


def start(*arguments: str) -> subprocess.Popen[str]:
    environment = os.environ | {"PYTHONPATH": str(Path(a2lp.__file__).parents[1])}
    return subprocess.Popen(
        [sys.executable, "program.py", *arguments], env=environment, stdout=subprocess.PIPE, text=True
    )


def many(n: int) -> Labelled:
    """n points, with an image each."""
    import pickle

    rng = np.random.default_rng(0)
    made = label(rng.normal(size=(60, 3)), {0: "auk", 1: "wren"}, method="lp")
    rows = np.arange(n) % 60
    table = {"path": np.array([f"{i}.jpg" for i in range(n)], dtype=object)}
    table |= {name: made.table[name][rows] for name in COLUMNS[1:]}
    made = replace(made, table=table)
    Path("result.pickle").write_bytes(pickle.dumps(made))
    Path("program.py").write_text(PROGRAM)
    Path("photos").mkdir()
    for key in made.table["path"]:
        Path("photos", key).write_text(f"the picture {key}")
    return made


@pytest.mark.skipif(os.name != "posix", reason="kills as Unix does")
def test_kill_9_while_a_table_is_written(here: Path) -> None:
    made = many(4000)
    rng = np.random.default_rng(0)
    for _ in range(3):
        process = start("out.csv")
        assert process.stdout
        assert process.stdout.readline() == "written\n"
        time.sleep(rng.uniform(0, 0.2))
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        assert len(read("out.csv")) == 4000  # the old one or the new one, and never half of one
    write_output(made, "out.csv", force=True)
    assert sorted(path.name for path in Path().iterdir()) == ["out.csv", "photos", "program.py", "result.pickle"]


@pytest.mark.skipif(os.name != "posix", reason="kills as Unix does")
def test_kill_9_while_folders_are_written(here: Path) -> None:
    made = many(4000)
    process = start("sorted", "once")
    for _ in range(6000):
        if process.poll() is not None or (Path(".sorted.partial").exists() and len(tree(".sorted.partial")) > 100):
            break
        time.sleep(0.01)
    assert process.poll() is None, "it was done before it could be killed"
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert process.stdout
    process.stdout.close()
    assert not Path("sorted").exists()
    assert len(tree("photos")) == 4000
    done = {path: path.stat().st_ino for path in Path(".sorted.partial").glob("*/[0-9]*.jpg")}
    assert 100 <= len(done) < 4000

    write_output(made, "sorted", paths=[Path("photos", key) for key in made.table["path"]])
    assert len(tree("sorted")) == 4001
    for path, inode in done.items():  # what was copied before is not copied again
        assert Path("sorted", *path.parts[1:]).stat().st_ino == inode
    for key, name in zip(made.table["path"], made.table["label"], strict=True):
        assert Path("sorted", name, key).read_text() == f"the picture {key}"
    assert not Path(".sorted.partial").exists()
