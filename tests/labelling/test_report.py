"""The page about labels: whole, bounded, and safe from what users call their files."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import make_blobs

from a2lp.errors import InputError
from a2lp.features import load
from a2lp.labelling import report_map, report_parts, report_pictures
from a2lp.labelling.classify import Labelled, label
from a2lp.labelling.report import check_report, render_report, write_report
from a2lp.labelling.sources import Embedding
from a2lp.labelling.tool import classify_files

pytest.importorskip("jinja2")
EVIL = "\"><script>alert(1)</script>'&<b>"
VOID = {"meta", "img", "br", "rect", "circle", "line", "link", "input", "wbr"}


class _Page(HTMLParser):
    """Counts tags, checks that they are closed, and keeps addresses and the data of the script."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.data: dict[str, Any] = {}
        self.feed(path.read_text(encoding="utf-8").replace("\N{NO-BREAK SPACE}", " "))
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] == ["script"] and self.tags[-1][1].get("id") == "data":
            self.data = json.loads(data)
        else:
            self.text += data

    def cards(self, of: str = "card") -> list[dict[str, str | None]]:
        """Attributes of the elements of a class."""
        return [attributes for _, attributes in self.tags if of in (attributes.get("class") or "").split()]


@pytest.fixture(scope="module")
def result() -> Labelled:
    digits = load("digits")
    assert digits.labels is not None
    few = {f"scan {i}": f"digit {digits.labels[i]}" for i in range(50)}
    few["scan 7"] = "digit 1"  # it shows a 7
    return label(digits.features[:400], few, keys=[f"scan {i}" for i in range(400)])


def test_the_page(result: Labelled, tmp_path: Path) -> None:
    result.report(tmp_path / "page.html")
    page = _Page(tmp_path / "page.html")
    worth = result.assessment
    assert f"{100 * worth.accuracy:.0f} %expected accuracy" in page.text.replace("\n", "")
    assert f"95 % interval {100 * worth.low:.0f} % to {100 * worth.high:.0f} %" in page.text
    assert "yours: digit 1" in page.text  # the planted mistake
    assert "rather: digit 7" in page.text
    for words in ("Most doubtful", "Random sample", "None of the classes?", "Close classes"):
        assert words in page.text

    data = page.data
    assert sorted(data["keys"][place] for place in data["map"]) == sorted(f"scan {i}" for i in range(400))
    for key, code, given in zip(data["keys"], data["labels"], data["given"], strict=True):
        assert data["classes"][code] == result[key]["label"] and given == result[key]["given"]
    assert len(data["x"]) == len(data["y"]) == 400
    assert {name[3] for name in data["names"]} == set(range(10))  # each has a mark of its own
    # no point is on the page that the script does not know, and no two elements have one name
    assert {int(card["data-row"] or -1) for card in page.cards()} <= set(data["rows"])
    names = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(names) == len(set(names))


def test_the_page_fetches_nothing_and_runs_only_its_own_script(result: Labelled, tmp_path: Path) -> None:
    result.report(tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    page = _Page(tmp_path / "page.html")
    assert not re.search(r"""(src|href)=["'](?!data:|#)|url\(|@import|https?://(?!www\.w3\.org/2000/svg)""", text)
    attributes = {name for _, found in page.tags for name in found}
    assert not {name for name in attributes if name.startswith("on") or name == "style"}
    (policy,) = (a["content"] for _, a in page.tags if a.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None and "unsafe" not in policy and policy.startswith("default-src 'none'; img-src data:;")
    for tag in ("style", "script"):
        (body,) = re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(body.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy  # what the browser will compare


def test_doubtful_and_random_points_of_each_class(result: Labelled) -> None:
    shown = report_parts.parts(result, None, 0)
    assert sum(shown["histogram"]) == 350
    new = ~result.table["given"]
    codes = np.searchsorted(result.classes, result.answer.labels)
    confidence = result.confidence
    for part in shown["classes"]:
        of = np.flatnonzero(new & (result.classes[codes] == part.name))
        assert part.labelled == len(of)
        assert confidence[part.doubtful].tolist() == sorted(confidence[of])[: len(part.doubtful)]
        assert len(set(part.random)) == len(part.random) and set(part.random) <= set(of)
        assert result.table["given"][part.given].all()
    sampled = [row for part in shown["classes"] for row in part.random]
    assert len(sampled) > 80
    assert confidence[sampled].mean() == pytest.approx(confidence[new].mean(), abs=0.1)  # as the class, not its worst
    assert report_parts.parts(result, None, 0)["classes"] == shown["classes"]
    # expected confusions, counted one by one
    for pair in shown["pairs"]:
        a, b = (result.classes.tolist().index(name) for name in (pair.label, pair.other))
        rows = [i for i in range(400) if new[i] and codes[i] == a]
        assert pair.expected == pytest.approx(sum(result.probabilities[i, b] for i in rows))
    assert [pair.expected for pair in shown["pairs"]] == sorted((p.expected for p in shown["pairs"]), reverse=True)


def test_novelty_ranks_are_those_that_reject_goes_by(result: Labelled) -> None:
    shown = report_parts.parts(result, None, 0)
    novelty = result.table["novelty"]
    assert novelty[shown["novel"]].tolist() == sorted(novelty[shown["novel"]], reverse=True)
    data = shown["data"]
    rank = dict(zip(data["keys"], data["rank"], strict=True))
    few = {key: name for key, name, given in zip(result, result.labels, result.table["given"], strict=True) if given}
    digits = load("digits").features[:400]
    for share in (0.05, 0.3):
        rejected = label(digits, few, keys=list(result), reject=share).unlabelled
        count = round(share * data["n_new"])
        assert rejected.sum() == count
        assert {key for key, out in zip(result, rejected, strict=True) if out} == {
            key for key in rank if rank[key] < count and not result[key]["given"]
        }


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
    assert shown["data"]["labels"].count(-1) == none
    write_report(made, tmp_path / "page.html")
    page = _Page(tmp_path / "page.html")
    assert f"40 labelled by you, {260 - none} by a2lp" in page.text
    assert f"{none} left unlabelled" in page.text


def test_a_graph_without_edges(tmp_path: Path) -> None:
    write_report(label(np.ones((10, 4)), {0: "a", 1: "b"}), tmp_path / "equal.html")
    write_report(label(np.eye(10), {0: "a", 1: "b"}), tmp_path / "apart.html")
    for name in ("equal", "apart"):
        assert len(_Page(tmp_path / f"{name}.html").data["map"]) == 10


def test_what_users_write_is_escaped(tmp_path: Path) -> None:
    x, y = make_blobs(40, 4, centers=2, random_state=0)
    names = [f"{EVIL}{i}" for i in range(40)]
    few = {names[i]: f"{EVIL}{y[i]}" for i in range(12)}
    write_report(label(x, few, keys=names), tmp_path / "page.html", title=EVIL)
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "<script>alert" not in text
    assert "&lt;script&gt;alert" in text
    page = _Page(tmp_path / "page.html")
    assert sum(tag == "script" for tag, _ in page.tags) == 2  # the data and the script
    assert set(page.data["keys"]) == set(names)
    assert set(page.data["classes"]) == {f"{EVIL}{code}" for code in (0, 1)}


def test_pictures_are_small_and_few(photos: list[str], weights: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("few.csv").write_text("path,label\n" + "".join(f"{i:03d}.png,{photos[i]}\n" for i in range(6)))
    how = Embedding("resnet12", weights, view="36/32", device="cpu")
    _, made = classify_files("photos", "few.csv", "out.csv", how, report="page.html")
    page = _Page(Path("page.html"))
    assert len(page.data["pictures"]) == 12
    assert all(one.startswith("data:image/jpeg;base64,") and len(one) < 8000 for one in page.data["pictures"].values())
    shown = [a["data-picture"] for tag, a in page.tags if tag == "img" and "data-picture" in a]
    assert len(shown) >= 12 and set(shown) <= set(page.data["pictures"])
    assert "no picture in it" not in page.text

    Path("photos/011.png").unlink()  # gone meanwhile: shown by its key
    made.report("gone.html")
    assert len(_Page(Path("gone.html")).data["pictures"]) == 11
    monkeypatch.setattr(report_pictures, "_BYTES", (1, 1))
    monkeypatch.setattr(report_pictures, "_AT_ONCE", 4)
    made.report("few.html")
    page = _Page(Path("few.html"))
    assert 3 <= len(page.data["pictures"]) <= 4 and "8 of the points shown have no picture in it" in page.text

    monkeypatch.setattr(report_map, "_ON_MAP", 8)
    made.report("small.html")
    page = _Page(Path("small.html"))
    assert len(page.data["map"]) == 8
    assert sum(page.data["given"][place] for place in page.data["map"]) == 6  # labelled ones are always on the map
    assert "8 of 12 points are shown" in page.text


def test_plots_that_few_labels_cannot_fill(tmp_path: Path) -> None:
    x, y = make_blobs(60, 4, centers=3, random_state=0)
    ones = {int(np.flatnonzero(y == code)[0]): int(code) for code in range(3)}
    twos = {int(row): int(code) for code in range(3) for row in np.flatnonzero(y == code)[:2]}
    for name, few, words in (("one", ones, "none can be held out"), ("two", twos, "Only 6 labels could be held out")):
        write_report(label(x, few), tmp_path / f"{name}.html")
        page = _Page(tmp_path / f"{name}.html")
        assert words in page.text and len(page.cards("plot")) == 1
    write_report(label(x[:20], {0: "a", 1: "b"}), tmp_path / "few.html")
    assert not _Page(tmp_path / "few.html").cards("plot")
    write_report(label(x, y), tmp_path / "all.html")
    page = _Page(tmp_path / "all.html")
    assert "expected accuracy<" not in page.text
    assert sum(page.data["given"]) == 60


def test_colours_are_as_many_as_can_be_told_apart(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(30), [12] * 29 + [4])
    x = rng.normal(size=(30, 16))[y] + 0.2 * rng.normal(size=(len(y), 16))
    few = {int(row): f"kind {code}" for code in range(30) for row in np.flatnonzero(y == code)[:2]}
    found = report_parts.parts(label(x, few), None, 0)["data"]
    marks = [name[3] for name in found["names"]]
    assert marks == [*range(24), *[None] * 6]
    assert found["classes"][found["names"][-1][0]] == "kind 29"  # the smallest is grey
    assert "6 smaller classes are grey" in render_report(label(x, few), title="many")


def test_corrections_can_be_read_again(result: Labelled) -> None:
    """The column of keys is one that tables of labels may have, and rows are numbers only where keys are rows."""
    x = load("digits").features[:20]
    for made, column in (
        (result, "id"),  # "key" is no name of such a column
        (label(x, {0: "a", 1: "b"}), "index"),
        (label(x, {"p0": "a", "p1": "b"}, keys=[f"p{i}" for i in range(20)], key="index"), "id"),
        (label(x, {"p0": "a", "p1": "b"}, keys=[f"p{i}" for i in range(20)], key="path"), "path"),
    ):
        assert report_parts.parts(made, None, 0)["data"]["column"] == column


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
