from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from a2lp.errors import InputError
from a2lp.label.labels import read_given, read_labels
from a2lp.label.sources import Points, find_points

KEYS = ("a.jpg", "b.jpg", "more/c.jpg", "d, e.jpg")


def table(name: str, text: str) -> Path:
    path = Path(name)
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    "text",
    [
        "path,label\nmore/c.jpg,wren\na.jpg,auk\n",
        "\ufeffLabel;Path\nwren;more/c.jpg\nauk;a.jpg\n",
        "label\tid\twho\nwren\tmore/c.jpg\tme\n auk \ta.jpg\tyou\n\tb.jpg\t\n",
        'file,label\na.jpg,auk\nmore/c.jpg,wren\n"d, e.jpg",\n\nb.jpg,-1\n',
        "index,label\n2,wren\n0,auk\n",
        "path,index,label\na.jpg,2,auk\nmore/c.jpg,0,wren\n",
    ],
)
def test_tables(here: Path, text: str) -> None:
    assert read_labels(table("labels.csv", text), KEYS).tolist() == ["auk", None, "wren", None]


@pytest.mark.usefixtures("here")
def test_a_parquet_table() -> None:
    parquet, pyarrow = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("pyarrow")
    columns = {"id": ["more/c.jpg", "b.jpg", "a.jpg"], "label": [3.0, float("nan"), 1.0]}
    parquet.write_table(pyarrow.table(columns), "labels.parquet")
    assert read_labels("labels.parquet", KEYS).tolist() == ["1", None, "3", None]
    columns = {"index": [1, 0], "label": pyarrow.array(["auk", "wren"]).dictionary_encode()}
    parquet.write_table(pyarrow.table(columns), "labels.parquet")
    assert read_labels("labels.parquet", KEYS).tolist() == ["wren", "auk", None, None]


BAD = {
    "unknown": ("path,label\na.jpg,auk\nB.jpg,wren\nzz,wren\n", ["`B.jpg`, `zz`", "'b.jpg'"]),
    "another folder": ("path,label\na.jpg,auk\nx/c.jpg,wren\n", ["`x/c.jpg`", "'more/c.jpg'"]),
    "twice": ("path,label\na.jpg,auk\nb.jpg,wren\na.jpg,auk\n", ["'a.jpg'", "'auk' twice", "line 2 and line 4"]),
    "contradiction": ("path,label\na.jpg,auk\na.jpg,wren\n", ["'a.jpg'", "'auk' (line 2)", "'wren' (line 3)"]),
    "no example": ("path,label\na.jpg,auk\n,tern\nb.jpg,wren\n", ["'tern'", "line 3"]),
    "one class": ("path,label\na.jpg,auk\nb.jpg,auk\n", ["'auk'", "two classes"]),
    "no label": ("path,label\na.jpg,\n", ["no point", "two classes"]),
    "no such row": ("index,label\n0,auk\n4,wren\n", ["'4'", "0 to 3"]),
    "negative row": ("index,label\n0,auk\n-1,wren\n", ["'-1'", "line 3"]),
    "no column": ("name,class\na.jpg,auk\n", ["`name`, `class`", "`label`"]),
    "no header": ("a.jpg,auk\nb.jpg,wren\n", ["`a.jpg`", "`path`"]),
    "empty": ("", ["nothing", "`label`"]),
    "ragged": ("path,label\na.jpg,auk\nb, c.jpg,wren\n", ["line 3", "3 cells"]),
    "a quote": ('path,label\n"a.jpg,auk\n', ["cannot be read"]),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_wrong_is_named(here: Path, name: str) -> None:
    text, parts = BAD[name]
    with pytest.raises(InputError) as error:
        read_labels(table("labels.csv", text), KEYS)
    assert "labels.csv" in str(error.value)
    for part in parts:
        assert part in str(error.value), error.value


@pytest.mark.usefixtures("here")
def test_files_that_are_no_table() -> None:
    Path("latin.csv").write_bytes("path,label\na.jpg,Möwe\n".encode("latin-1"))
    Path("no.parquet").write_text("path,label")
    table("labels.xlsx", "")
    for name, said in {
        "latin.csv": "UnicodeDecodeError",
        "no.parquet": "cannot be read as a table",
        "labels.xlsx": "'.xlsx'",
        "nowhere.csv": "do not exist",
    }.items():
        with pytest.raises(InputError, match=said):
            read_labels(name, KEYS)


@pytest.mark.usefixtures("photos")
def test_paths_may_be_written_in_any_way_that_leads_there() -> None:
    points = find_points("photos")
    Path("tables").mkdir()
    lines = ["000.png,auk", "photos/001.png,tern", f"{Path.cwd()}/photos/002.png,wren", "../photos/004.png,tern"]
    table("tables/labels.csv", "\n".join(["path,label", *lines]))
    given = read_given("tables/labels.csv", points)
    assert given.labels[:5].tolist() == ["auk", "tern", "wren", None, "tern"]
    assert given.key == "path"
    table("tables/labels.csv", "path,label\n000.png,auk\n./photos/000.png,wren\n")
    with pytest.raises(InputError, match="contradict"):
        read_given("tables/labels.csv", points)


@pytest.mark.usefixtures("photos")
def test_class_folders_in_the_source() -> None:
    for name, files in {"auk": ("000", "003"), "wren": ("002",), "unlabelled": ("001", "004")}.items():
        Path("photos", name).mkdir()
        for file in files:
            Path("photos", f"{file}.png").rename(Path("photos", name, f"{file}.png"))
    given = read_given("photos", find_points("photos"))
    labels = {key: label for key, label in zip(given.points.keys, given.labels, strict=True) if label}
    assert labels == {"auk/000.png": "auk", "auk/003.png": "auk", "wren/002.png": "wren"}
    assert len(given.labels) == 12


@pytest.mark.usefixtures("photos")
def test_class_folders_of_links_copies_and_others() -> None:
    for name in ("auk", "tern", "wren"):
        Path("examples", name).mkdir(parents=True)
    Path("examples/auk/link.png").symlink_to(Path("photos/000.png").absolute())
    shutil.copy("photos/001.png", "examples/tern/copy.png")
    Path("examples/wren/other.png").write_bytes(Path("photos/002.png").read_bytes() + b"another")
    given = read_given("examples", find_points("photos"))
    assert given.labels.tolist() == ["auk", "tern", *[None] * 10, "wren"]
    assert given.points.keys[12:] == ("examples/wren/other.png",)
    assert (given.points.paths or ())[12:] == (Path("examples/wren/other.png"),)

    shutil.copy("examples/wren/other.png", "examples/auk/again.png")
    with pytest.raises(InputError, match=r"examples/auk/again\.png"):
        read_given("examples", find_points("photos"))
    Path("examples/auk/again.png").unlink()
    shutil.copy("photos/001.png", "examples/auk/again.png")
    with pytest.raises(InputError, match=r"'001\.png' is labelled 'auk'.*'tern'"):
        read_given("examples", find_points("photos"))
    Path("examples/auk/again.png").unlink()
    Path("examples/gull").mkdir()
    with pytest.raises(InputError, match="`gull`"):
        read_given("examples", find_points("photos"))


@pytest.mark.usefixtures("photos")
def test_folders_that_are_no_labels() -> None:
    with pytest.raises(InputError, match="no folders"):
        read_given("photos", find_points("photos"))
    with pytest.raises(InputError, match="vectors"):
        read_given("photos", Points(("0", "1"), features=np.eye(2)))
