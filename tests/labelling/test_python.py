"""From Python: what people have goes in, and what comes out can be looked at, saved and continued."""

from __future__ import annotations

import pydoc
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import a2lp
from a2lp.errors import A2LPWarning, InputError
from a2lp.labelling import Embedding, Labelled
from a2lp.labelling.labels import read_task
from a2lp.labelling.sources import Points, find_points

EVIL = "<img src=x onerror=alert(1)>&\"'"


@pytest.fixture(scope="module")
def digits() -> tuple[np.ndarray, np.ndarray]:
    found = a2lp.load("digits")
    assert found.labels is not None
    return found.features[:400], found.labels[:400]


@pytest.fixture(scope="module")
def result(digits: Any) -> Labelled:
    x, y = digits
    return a2lp.label(x, {f"scan {i}": int(y[i]) for i in range(40)}, keys=[f"scan {i}" for i in range(400)], key="id")


def test_help_shows_functions() -> None:
    for function in (a2lp.label, a2lp.suggest):
        text = pydoc.render_doc(function, renderer=pydoc.plaintext)
        assert text.startswith("Python Library Documentation: function")
        assert "Parameters\n" in text and ">>> import a2lp" in text
    assert pydoc.locate("a2lp.label") is a2lp.label


def test_columns_and_rows(result: Labelled) -> None:
    assert result.labels is result.table["label"] and result.confidence is result.table["confidence"]
    row = result["scan 250"]
    assert row == list(result.rows())[250]
    assert {type(value) for value in row.values()} <= {str, int, float, bool}
    assert list(result)[:2] == ["scan 0", "scan 1"] and len(list(result)) == len(result)
    assert "scan 3" in result and "scan 400" not in result
    for unknown in ("scan 400", ["scan 1"]):
        with pytest.raises(KeyError, match=r"scan .* is no key of the 400 points, which are called like 'scan 0'"):
            _ = result[unknown]


def test_to_pandas(result: Labelled) -> None:
    pytest.importorskip("pandas")
    frame = result.to_pandas()
    assert frame.index.name == "id" and frame.index.tolist() == list(result)
    assert frame.loc["scan 7"].to_dict() == {k: v for k, v in result["scan 7"].items() if k != "id"}
    found = result.suggest(3).to_pandas()
    assert list(found.columns) == ["label", "how", "why"] and found["label"].isna().all()


def test_saved_labels_and_suggestions_are_read_again(result: Labelled, tmp_path: Path) -> None:
    for name in ("out.csv", "out.jsonl", "out.json"):
        result.save(tmp_path / name)
        assert (tmp_path / name).stat().st_size > 1000
    with pytest.raises(InputError, match="force"):
        result.save(tmp_path / "out.csv")
    result.save(tmp_path / "out.csv", force=True)

    how = np.where(np.arange(400) % 3 == 0, "suggested", "audit")
    chosen = a2lp.label(result.pool.points, result.labels[:40].tolist() + [None] * 360, how=how)
    chosen.save(tmp_path / "chosen.csv")
    with pytest.warns(A2LPWarning, match="360 of its labels are predictions"):
        again = a2lp.label(result.pool.points, tmp_path / "chosen.csv")
    assert again.table["how"].tolist() == [*how[:40], *[""] * 360]

    found = result.suggest(5)
    assert list(found) == [f"scan {row}" for row in found.rows] == found.keys
    assert not result.table["given"][found.rows].any()
    found.save(tmp_path / "next.csv")
    text = (tmp_path / "next.csv").read_text(encoding="utf-8").splitlines()
    assert text[0] == "id,label,how,why"
    (tmp_path / "next.csv").write_text("\n".join([text[0], text[1].replace(",,", ",5,", 1)]), encoding="utf-8")
    task = read_task(tmp_path / "next.csv", Points(tuple(result)), need_choice=False)
    assert {task.points.keys[row]: task.how[row] for row in np.flatnonzero(task.labels)} == {found.keys[0]: "suggested"}
    with pytest.raises(InputError, match="holds your labels"):
        found.save(tmp_path / "next.csv", force=True)
    with pytest.raises(InputError, match="holds your labels"):
        result.save(tmp_path / "next.csv", force=True)


def test_suggest_is_the_pools(digits: Any) -> None:
    x, y = digits
    found = a2lp.suggest(x, n=6, seed=3)
    np.testing.assert_array_equal(found.rows, a2lp.Pool(x, seed=3).suggest(6).rows)
    assert found.keys == found.rows.tolist() and found.expected is None
    few = {row: int(y[row]) for row in found}
    more = a2lp.suggest(a2lp.Pool(x), few, n=4)
    np.testing.assert_array_equal(more.rows, a2lp.label(x, few).suggest(4).rows)
    assert more.expected is not None
    with pytest.raises(InputError, match="n=0"):
        a2lp.suggest(x, n=0)


def test_a_series_of_some_labels(digits: Any) -> None:
    """Aligned by its index: with the frame's, with the keys, or with the rows."""
    pandas = pytest.importorskip("pandas")
    x, y = digits
    expected = a2lp.label(x, dict(enumerate(y[:40].tolist()))).labels
    rows = np.random.default_rng(0).permutation(40)
    some = pandas.Series(y[rows], index=rows)
    np.testing.assert_array_equal(a2lp.label(x, some).labels, expected)
    names = [f"n{i}" for i in range(400)]
    frame = pandas.DataFrame(x, index=names)
    by_name = pandas.Series(y[rows], index=[names[row] for row in rows])
    np.testing.assert_array_equal(a2lp.label(frame, by_name).labels, expected)
    np.testing.assert_array_equal(a2lp.label(x, by_name, keys=names).labels, expected)
    # all labels in another order, and a frame whose index is a shuffled range: the index decides, as in pandas
    order = np.random.default_rng(1).permutation(400)
    whole = pandas.Series(np.where(np.arange(400) < 40, y, -1)).iloc[order]
    np.testing.assert_array_equal(a2lp.label(x, whole).labels, expected)
    shuffled = a2lp.label(pandas.DataFrame(x).iloc[order], whole.sort_index())
    assert shuffled[7]["label"] == y[7] and shuffled[7]["given"]
    for bad, words in (
        (pandas.Series(["a", "b"], index=["n1", "m1"]), "`m1`"),
        (pandas.Series(["a", "b", "c"], index=["n1", "n1", "n2"]), "both 'a' and 'b' for 'n1'"),
    ):
        with pytest.raises(InputError, match=words):
            a2lp.label(frame, bad)
    twice = pandas.DataFrame(x, index=[*names[:-1], "n0"])
    with pytest.raises(InputError, match="same key"):
        a2lp.label(twice, {"n1": "a", "n2": "b"})


def test_a_file_of_labels_for_vectors(digits: Any, tmp_path: Path) -> None:
    x, y = digits
    (tmp_path / "few.csv").write_text("index,label\n" + "".join(f"{i},d{y[i]}\n" for i in range(40)))
    made = a2lp.label(x, tmp_path / "few.csv")
    assert made.labels.tolist() == a2lp.label(x, {i: f"d{y[i]}" for i in range(40)}).labels.tolist()
    np.savez(tmp_path / "vectors.npz", features=x)
    again = a2lp.label(str(tmp_path / "vectors.npz"), [tmp_path / "few.csv"])
    assert again.labels.tolist() == made.labels.tolist() and again[3]["label"] == "d3"
    assert len(a2lp.suggest(tmp_path / "vectors.npz", tmp_path / "few.csv", n=3)) == 3
    with pytest.raises(InputError, match="names of their own"):
        a2lp.label(tmp_path / "vectors.npz", tmp_path / "few.csv", keys=range(400))


def test_a_folder_of_images(photos: list[str], weights: Path) -> None:
    how = Embedding("resnet12", weights, view="36/32", device="cpu")
    Path("few.csv").write_text("path,label\n" + "".join(f"{i:03d}.png,{photos[i]}\n" for i in range(6)))
    made = a2lp.label("photos", "few.csv", embedding=how)
    assert made["000.png"]["label"] == "auk" and made[Path("000.png")]["given"]
    by_key = a2lp.label(Path("photos"), {f"{i:03d}.png": photos[i] for i in range(6)}, embedding=how)
    assert by_key.labels.tolist() == made.labels.tolist() and by_key.key == "path"
    html = made._repr_html_()
    assert html.count('<img src="data:image/jpeg') == 6 and "12 images, 6 labelled by you" in html
    found = made.suggest(2)
    assert found._repr_html_().count('<img src="data:image/jpeg') == 2
    assert a2lp.suggest("photos", "few.csv", 2, embedding=how).keys == found.keys
    made.save("sorted/")
    assert len(list(Path("sorted").glob("*/*.png"))) == 12
    made.report("page.html")
    assert "photos" in Path("page.html").read_text(encoding="utf-8")

    Path("photos/011.png").write_bytes(b"no image")
    with pytest.warns(A2LPWarning, match=r"1 image skipped: 011\.png"):
        assert len(a2lp.label("photos", "few.csv", embedding=how)) == 11
    with pytest.raises(InputError, match="only the class 'auk'"):
        a2lp.label("photos", {"000.png": "auk", "001.png": None}, embedding=how)


def test_short_reprs(result: Labelled, photos: list[str]) -> None:
    frozen = [
        result,
        result.suggest(20),
        result.pool,
        result.pool.suggest(20),
        result.pool.graph,
        result.pool.whitening,
        result.assessment,
        result.answer,
        result.answer.task,
        find_points("photos"),
        read_task([], find_points("photos"), need_choice=False),
    ]
    for thing in frozen:
        text = repr(thing)
        assert len(text) < 200 and "array(" not in text and "np." not in text and "\n" not in text, text
        assert re.match(rf"{type(thing).__name__}\(\d+|{type(thing).__name__}\([A-Z]|Assessment\(accuracy", text), text
    assert "12 images" in repr(find_points("photos"))
    assert "0 labelled" in repr(frozen[-1])


def test_names_are_escaped_in_a_notebook(digits: Any) -> None:
    x, y = digits
    names = [f"{EVIL}{i}" for i in range(400)]
    made = a2lp.label(x, {names[i]: f"{EVIL}{y[i]}" for i in range(40)}, keys=names, key=EVIL)
    for html in (made._repr_html_(), made.suggest(3)._repr_html_()):
        assert "<img" not in html
        assert "&lt;img src=x onerror=alert(1)&gt;&amp;&quot;&#x27;" in html
    assert made._repr_html_().count("<tr>") == 11
    assert a2lp.label(x, y)._repr_html_() == "<p>400 points, 400 labelled by you, 10 classes</p>"
