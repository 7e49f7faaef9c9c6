"""The page about labels: whole, bounded, and safe from what users call their files."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import make_blobs

from a2lp.errors import InputError
from a2lp.features import load
from a2lp.labelling import report_parts
from a2lp.labelling.classify import Labelled, label
from a2lp.labelling.report import check_report, write_report
from a2lp.labelling.sources import Embedding
from a2lp.labelling.tool import classify_files
from a2lp.pool.layout import layout
from a2lp.pool.session import whitened_graph

pytest.importorskip("jinja2")
EVIL = "\"><script>alert(1)</script>'&<b>"
VOID = {"meta", "img", "br", "rect", "circle", "line", "link"}


class _Page(HTMLParser):
    """Counts tags, checks that they are closed, and keeps addresses."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data

    def of(self, name: str, tag: str | None = None) -> list[dict[str, str | None]]:
        """Attributes of the elements of a class."""
        return [a for t, a in self.tags if name in (a.get("class") or "").split() and tag in (None, t)]


@pytest.fixture(scope="module")
def result() -> Labelled:
    digits = load("digits")
    assert digits.labels is not None
    few = {f"scan {i}": f"digit {digits.labels[i]}" for i in range(50)}
    few["scan 7"] = "digit 1"  # it shows a 7
    return label(digits.features[:400], few, keys=[f"scan {i}" for i in range(400)])


def test_the_page(result: Labelled, tmp_path: Path) -> None:
    write_report(result, tmp_path / "page.html", title="digits")
    page = _Page((tmp_path / "page.html").read_text(encoding="utf-8"))
    worth = result.assessment
    assert f"{100 * worth.accuracy:.0f} %expected accuracy" in page.text.replace("\n", "")
    assert f"95 % interval {100 * worth.low:.0f} % to {100 * worth.high:.0f} %" in page.text
    dots = page.of("dot")
    assert sorted(str(dot["data-key"]) for dot in dots) == sorted(f"scan {i}" for i in range(400))
    assert len(page.of("yours", "rect")) == 50
    labels = dict(zip(result.table["key"], result.table["label"], strict=True))
    assert all(dot["data-label"] == labels[dot["data-key"]] for dot in dots)
    assert "yours: digit 1" in page.text  # the planted mistake
    assert "rather: digit 7" in page.text
    # nothing is fetched from anywhere
    assert not [a for _, a in page.tags if re.match(r"\w+:", a.get("src") or a.get("href") or "data:") is None]
    assert not re.search(r"(src|href)=\"(?!data:)", (tmp_path / "page.html").read_text(encoding="utf-8"))


def test_most_doubtful_first(result: Labelled) -> None:
    shown = report_parts.parts(result, None, 0)
    assert sum(shown["histogram"]) == 350
    new = ~result.table["given"]
    codes = np.searchsorted(result.classes, result.answer.labels)
    for part in shown["classes"]:
        sure = [example.confidence for example in part.examples if not example.given]
        assert sure == sorted(sure)
        of = new & (result.classes[codes] == part.name)
        assert part.labelled == of.sum()
        assert not sure or sure[0] == result.table["confidence"][of].min()
    # expected confusions, counted one by one
    for pair in shown["pairs"]:
        a, b = (result.classes.tolist().index(name) for name in (pair.label, pair.other))
        rows = [i for i in range(400) if new[i] and codes[i] == a]
        assert pair.expected == pytest.approx(sum(result.probabilities[i, b] for i in rows))
    assert [pair.expected for pair in shown["pairs"]] == sorted((p.expected for p in shown["pairs"]), reverse=True)


def test_reliability_is_of_calibrated_confidences(result: Labelled) -> None:
    shown = report_parts.parts(result, None, 0)
    bins, held_out = shown["reliability"], result.assessment.held_out_probabilities
    assert sum(one.labels for one in bins) == shown["held_out"] == len(held_out) > 40
    mean = sum(one.labels * one.confidence for one in bins) / len(held_out)
    assert mean == pytest.approx(held_out.max(axis=1).mean())
    right = held_out.argmax(axis=1) == result.answer.task.codes[result.assessment.held_out_rows]
    assert sum(one.labels * one.right for one in bins) == pytest.approx(right.sum())
    assert all(0 <= one.low <= one.right <= one.high <= 1 for one in bins)


@pytest.mark.parametrize("option", [{"abstain": 0.9}, {"reject": 0.3}])
def test_points_that_were_left_unlabelled_are_not_counted_as_labelled(option: dict[str, float], tmp_path: Path) -> None:
    digits = load("digits")
    assert digits.labels is not None
    made = label(digits.features[:300], dict(enumerate(digits.labels[:40].tolist())), **option)
    none = int(made.unlabelled.sum())
    assert 20 < none < 250
    shown = report_parts.parts(made, None, 0)
    assert (shown["labelled"], shown["n_unlabelled"]) == (260 - none, none)
    assert sum(part.labelled for part in shown["classes"]) == sum(shown["histogram"]) == 260 - none
    assert sum(dot.hue is None and dot.label == "" for dot in shown["dots"]) == none
    write_report(made, tmp_path / "page.html")
    page = _Page((tmp_path / "page.html").read_text(encoding="utf-8"))
    assert f"40 labelled by you, {260 - none} by a2lp" in page.text
    assert f"{none} left unlabelled" in page.text


def test_a_graph_without_edges(tmp_path: Path) -> None:
    write_report(label(np.ones((10, 4)), {0: "a", 1: "b"}), tmp_path / "equal.html")
    write_report(label(np.eye(10), {0: "a", 1: "b"}), tmp_path / "apart.html")
    for name in ("equal", "apart"):
        assert len(_Page((tmp_path / f"{name}.html").read_text(encoding="utf-8")).of("dot")) == 10


def test_what_users_write_is_escaped(tmp_path: Path) -> None:
    x, y = make_blobs(40, 4, centers=2, random_state=0)
    names = [f"{EVIL}{i}" for i in range(40)]
    few = {names[i]: f"{EVIL}{y[i]}" for i in range(12)}
    write_report(label(x, few, keys=names), tmp_path / "page.html", title=EVIL)
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "<script>alert" not in text
    assert "&lt;script&gt;alert" in text
    page = _Page(text)
    assert sum(tag == "script" for tag, _ in page.tags) == 1
    assert {str(dot["data-key"]) for dot in page.of("dot")} == set(names)


def test_images_are_small_and_few(photos: list[str], weights: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("few.csv").write_text("path,label\n" + "".join(f"{i:03d}.png,{photos[i]}\n" for i in range(6)))
    how = Embedding("resnet12", weights, view="36/32", device="cpu")
    classify_files("photos", "few.csv", "out.csv", how, report="page.html")
    page = _Page(Path("page.html").read_text(encoding="utf-8"))
    assert len(page.of("card", "li")) == 12
    pictures = [a["src"] or "" for tag, a in page.tags if tag == "img"]
    assert len(pictures) >= 12
    assert all(src.startswith("data:image/jpeg;base64,") and len(src) < 8000 for src in pictures)

    monkeypatch.setattr(report_parts, "_PER_CLASS", (1, 2))
    monkeypatch.setattr(report_parts, "_ON_MAP", 8)
    Path("photos/011.png").unlink()  # gone meanwhile: shown by its key
    result = label(np.eye(12)[:, :5] + 0.1, [*photos[:6], *[None] * 6])
    write_report(result, "small.html", paths=[*sorted(Path("photos").iterdir()), Path("photos/011.png")])
    page = _Page(Path("small.html").read_text(encoding="utf-8"))
    assert len(page.of("card", "li")) <= 6
    assert len(page.of("dot")) == 8
    assert len(page.of("yours", "rect")) == 6  # labelled ones are always on the map


def test_one_label_for_each_class_and_none_left(tmp_path: Path) -> None:
    x, y = make_blobs(30, 4, centers=3, random_state=0)
    ones = {int(np.flatnonzero(y == code)[0]): int(code) for code in range(3)}
    write_report(label(x, ones), tmp_path / "one.html")
    assert "none can be held out" in (tmp_path / "one.html").read_text(encoding="utf-8")
    write_report(label(x, y), tmp_path / "all.html")
    page = _Page((tmp_path / "all.html").read_text(encoding="utf-8"))
    assert "expected accuracy<" not in page.text
    assert len(page.of("yours", "rect")) == 30


def test_layout_keeps_clusters_together() -> None:
    x, y = make_blobs(300, 8, centers=5, random_state=1)
    *_, graph = whitened_graph(x)
    places = layout(graph)
    assert places.min() >= 0
    assert places.max() <= 1
    distance = np.square(places[:, None] - places).sum(axis=2) + 9 * np.eye(300)
    assert (y[distance.argmin(axis=1)] == y).mean() > 0.97
    np.testing.assert_array_equal(places, layout(graph))


def test_what_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "there.html").write_text("mine")
    (tmp_path / "folder.html").mkdir()
    for name, words in (
        ("page.txt", ".html"),
        ("no/page.html", "no folder"),
        ("there.html", "--force"),
        ("folder.html", "is a folder"),
    ):
        with pytest.raises(InputError, match=words):
            check_report(tmp_path / name)
    check_report(tmp_path / "there.html", force=True)
