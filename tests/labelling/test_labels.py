from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from a2lp.errors import A2LPWarning, InputError
from a2lp.labelling.labels import read_labels, read_task
from a2lp.labelling.sources import Points, find_points

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
        "filename;class\na.jpg;auk\nmore/c.jpg;wren\n",
        "sep=;\nImage;Category\na.jpg;auk\nmore/c.jpg;wren\n",
        "path,label\na.jpg,auk,\nmore/c.jpg,wren,,,\na.jpg,auk\n",
        "path,label,given\na.jpg,auk,true\nmore/c.jpg,wren,true\n",
        "path,label,how,why\na.jpg,auk\nb.jpg\nmore/c.jpg,wren,suggested,typical\n",
        "path,index,label\na.jpg,2,auk\nmore/c.jpg,0,wren\n",
    ],
)
def test_tables_with_any_column_encoding_and_separator(here: Path, text: str) -> None:
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
    "contradiction": (
        "path,label\na.jpg,auk\na.jpg,wren\n",
        ["'a.jpg'", "'auk' (labels.csv, line 2)", "'wren' (labels.csv, line 3)"],
    ),
    "no example": ("path,label\na.jpg,auk\n,tern\nb.jpg,wren\n", ["'tern'", "line 3"]),
    "one class": ("path,label\na.jpg,auk\nb.jpg,auk\n", ["'auk'", "two classes"]),
    "no label": ("path,label\na.jpg,\n", ["no point", "two classes"]),
    "no such row": ("index,label\n0,auk\n4,wren\n", ["'4'", "0 to 3"]),
    "a huge row": (f"index,label\n0,auk\n{5000 * '9'},wren\n", ["9999", "0 to 3"]),
    "a NUL": ("path,label\na.jpg,auk\nb\0.jpg,wren\n", ["labels.csv"]),
    "negative row": ("index,label\n0,auk\n-1,wren\n", ["'-1'", "line 3"]),
    "no column": ("name,kind\na.jpg,auk\n", ["`name`, `kind`", "`label`"]),
    "no header": ("a.jpg,auk\nb.jpg,wren\n", ["`a.jpg`", "`path`"]),
    "empty": ("", ["nothing", "`label`"]),
    "an unquoted comma in a name": ("path,label\na.jpg,auk\nb, c.jpg,wren\n", ["line 3 has 3 cells", "quotes"]),
    "an unquoted comma in a label": ("path,label\na.jpg,auk, young\nb.jpg,wren\n", ["line 2 has 3 cells", "2 columns"]),
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
    Path("no.parquet").write_text("path,label")
    table("labels.xlsx", "")
    Path("renamed.csv").write_bytes(b"PK\3\4\0\x81\x8d")
    Path("zeros.csv").write_bytes(b"path,label\0")
    for name, words in {
        "no.parquet": "cannot be read as a table",
        "labels.xlsx": "'.xlsx'.*Save it as CSV",
        "renamed.csv": "found binary data, such as a spreadsheet",
        "zeros.csv": "found binary data",
        "nowhere.csv": "does not exist",
        "nowhere": "there is no folder nowhere",
    }.items():
        with pytest.raises(InputError, match=words):
            read_labels(name, KEYS)


@pytest.mark.usefixtures("photos")
def test_paths_may_be_written_in_any_way_that_leads_there() -> None:
    points = find_points("photos")
    Path("tables").mkdir()
    lines = ["000.png,auk", "photos/001.png,tern", f"{Path.cwd()}/photos/002.png,wren", "../photos/004.png,tern"]
    table("tables/labels.csv", "\n".join(["path,label", *lines]))
    given = read_task("tables/labels.csv", points)
    assert given.labels[:5].tolist() == ["auk", "tern", "wren", None, "tern"]
    assert given.key == "path"
    table("tables/labels.csv", "path,label\n000.png,auk\n./photos/000.png,wren\n")
    with pytest.raises(InputError, match="contradict"):
        read_task("tables/labels.csv", points)


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("encoding", ["cp1252", "utf-16", "utf-8-sig"])
def test_encodings_of_spreadsheets(encoding: str) -> None:
    Path("labels.csv").write_bytes("path,label\r\na.jpg,Möwe\r\nb.jpg,Käuzchen – klein\r\n".encode(encoding))
    assert read_labels("labels.csv", KEYS).tolist() == ["Möwe", "Käuzchen – klein", None, None]


@pytest.mark.usefixtures("here")
def test_several_tables_are_merged() -> None:
    table("one.csv", "path,label\na.jpg,auk\nb.jpg,wren\n")
    table("two.csv", "path,label,why\na.jpg,auk,\nmore/c.jpg,wren,typical of 3 points\nb.jpg,,\n")
    assert read_labels(["one.csv", Path("two.csv")], KEYS).tolist() == ["auk", "wren", "wren", None]
    table("three.csv", "path,label\nb.jpg,auk\n")
    with pytest.raises(InputError, match=r"'wren' \(one.csv, line 3\) and 'auk' \(three.csv, line 2\)"):
        read_labels(["one.csv", "two.csv", "three.csv"], KEYS)


@pytest.mark.usefixtures("here")
def test_predictions_are_not_the_users_labels() -> None:
    table("out.csv", "path,label,given\na.jpg,auk,true\nb.jpg,wren,true\nmore/c.jpg,wren,false\n")
    with pytest.warns(A2LPWarning, match=r"out.csv: 1 of its labels are predictions of a2lp \(given is false\)"):
        assert read_labels("out.csv", KEYS).tolist() == ["auk", "wren", None, None]


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("names", [("Auk", "auk"), ("great  auk", "great auk"), ("Great Auk", "greatauk")])
def test_classes_that_look_the_same_are_reported(names: tuple[str, str]) -> None:
    table("labels.csv", f"path,label\na.jpg,{names[0]}\nb.jpg,{names[1]}\nmore/c.jpg,wren\n")
    with pytest.warns(A2LPWarning, match=f"'{names[0]}' and '{names[1]}' differ by case or blanks only"):
        assert read_labels("labels.csv", KEYS).tolist() == [*names, "wren", None]


@pytest.mark.usefixtures("photos")
def test_paths_of_another_computer() -> None:
    Path("photos/more").mkdir()
    Path("photos/005.png").rename("photos/more/005.png")
    lines = [
        r".\000.png,auk",
        r"C:\Users\me\photos\001.png,tern",
        r"D:\photos\more\005.png,wren",
        "/home/you/photos/002.png,wren",
        r"photos\003.png,auk",
    ]
    table("labels.csv", "\n".join(["path,label", *lines]))
    found = read_task("labels.csv", find_points("photos"))
    labels = {key: label for key, label in zip(found.points.keys, found.labels, strict=True) if label}
    assert labels == {
        "000.png": "auk",
        "001.png": "tern",
        "002.png": "wren",
        "003.png": "auk",
        "more/005.png": "wren",
    }
    table("labels.csv", "path,label\n000.png,auk\nC:\\no\\such.png,wren\n")
    with pytest.raises(InputError, match=r"such\.png"):
        read_task("labels.csv", find_points("photos"))


@pytest.mark.usefixtures("photos")
def test_sorted_folders_come_back_with_corrections() -> None:
    """What a2lp has sorted and nobody has moved is not the user's label."""
    for name in ("auk", "tern", "wren"):
        Path("sorted", name).mkdir(parents=True)
    places = ["auk/000.png", "tern/001.png", "wren/002.png", "auk/003.png", "auk/004.png"]
    for place in places:
        shutil.copy(Path("photos", Path(place).name), Path("sorted", place))
    given = ["true", "true", "false", "false", "false"]
    rows = [f"{Path(p).name},{p.split('/')[0]},{g},{p}" for p, g in zip(places, given, strict=True)]
    table("sorted/labels.csv", "\n".join(["path,label,given,place", *rows]))
    Path("sorted/auk/004.png").rename("sorted/tern/004.png")  # a mistake that the user saw
    with pytest.warns(A2LPWarning, match="2 images are where a2lp has put them"):
        found = read_task("sorted", find_points("photos"))
    assert {k: v for k, v in zip(found.points.keys, found.labels, strict=True) if v} == {
        "000.png": "auk",
        "001.png": "tern",
        "004.png": "tern",
    }


@pytest.mark.usefixtures("photos")
def test_class_folders_in_the_source() -> None:
    for name, files in {"auk": ("000", "003"), "wren": ("002",), "unlabelled": ("001", "004")}.items():
        Path("photos", name).mkdir()
        for file in files:
            Path("photos", f"{file}.png").rename(Path("photos", name, f"{file}.png"))
    given = read_task("photos", find_points("photos"))
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
    given = read_task("examples", find_points("photos"))
    assert given.labels.tolist() == ["auk", "tern", *[None] * 10, "wren"]
    assert given.points.keys[12:] == ("examples/wren/other.png",)
    assert (given.points.paths or ())[12:] == (Path("examples/wren/other.png"),)

    shutil.copy("examples/wren/other.png", "examples/auk/again.png")
    with pytest.raises(InputError, match=r"examples/auk/again\.png"):
        read_task("examples", find_points("photos"))
    Path("examples/auk/again.png").unlink()
    shutil.copy("photos/001.png", "examples/auk/again.png")
    with pytest.raises(InputError, match=r"'001\.png' is labelled 'auk'.*'tern'"):
        read_task("examples", find_points("photos"))
    Path("examples/auk/again.png").unlink()
    Path("examples/gull").mkdir()
    with pytest.raises(InputError, match="`gull`"):
        read_task("examples", find_points("photos"))


@pytest.mark.usefixtures("photos")
def test_folders_that_are_no_labels() -> None:
    with pytest.raises(InputError, match="no folders"):
        read_task("photos", find_points("photos"))
    with pytest.raises(InputError, match="vectors"):
        read_task("photos", Points(("0", "1"), features=np.eye(2)))
