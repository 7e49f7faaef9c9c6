"""``a2lp suggest`` as a shell sees it."""

from __future__ import annotations

import csv
import html
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from a2lp.cli.app import app
from a2lp.features import load
from a2lp.labelling import classify_files, read_labels


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder: vectors of digits and labels of twenty of them."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("A2LP_CACHE", str(tmp_path / "cache"))
    digits = load("digits")
    assert digits.labels is not None
    np.savez("digits.npz", features=digits.features[:300], files=[f"scan {i}" for i in range(300)])
    np.savez("plain.npz", features=digits.features[:300])
    Path("labels.csv").write_text("id,label\n" + "".join(f"scan {i},digit {digits.labels[i]}\n" for i in range(20)))
    return tmp_path


def run(*arguments: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(app, ["suggest", *arguments], input=stdin)


def read(path: str) -> list[dict[str, str]]:
    with Path(path).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def filled(path: str, rows: list[dict[str, str]], key: str) -> None:
    """Fill in the labels, as a user would."""
    truth = load("digits").labels
    assert truth is not None
    with Path(path).open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(row | {"label": f"digit {truth[int(row[key].split()[-1])]}"} for row in rows)


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(("source", "key", "first"), [("digits.npz", "id", "scan "), ("plain.npz", "index", "")])
def test_from_no_label_on(source: str, key: str, first: str) -> None:
    result = run(source, "-n", "12", "--out", "next.csv")
    assert result.exit_code == 0, result.stderr
    rows = read("next.csv")
    assert list(rows[0]) == [key, "label", "how", "why"]
    assert len({row[key] for row in rows}) == 12
    assert all(row[key].startswith(first) and not row["label"] and "typical of" in row["why"] for row in rows)
    assert f"{rows[0][key]}\t{rows[0]['why']}" in result.stdout
    assert "no forecast of the gain yet" in result.stdout

    filled("mine.csv", rows, key)  # what came out goes in
    result = run(source, "--labels", "mine.csv", "--out", "more.csv")
    assert result.exit_code == 0, result.stderr
    more = read("more.csv")
    assert len(more) == 20
    assert not {row[key] for row in rows} & {row[key] for row in more}
    assert "should raise the accuracy on the rest by about " in result.stdout


@pytest.mark.usefixtures("folder")
def test_labels_of_one_class_and_of_none() -> None:
    Path("one.csv").write_text("id,label\nscan 0,zero\n")
    Path("none.csv").write_text("id,label\nscan 0,\n")
    for labels in ("one.csv", "none.csv"):
        result = run("digits.npz", "--labels", labels, "-n", "5", "--out", f"next of {labels}")
        assert result.exit_code == 0, result.stderr
        assert len(read(f"next of {labels}")) == 5
    assert "scan 0" not in {row["id"] for row in read("next of one.csv")}


@pytest.mark.usefixtures("folder", "weights")
def test_images_to_label_next() -> None:
    image: Any = pytest.importorskip("PIL.Image")
    Path("photos").mkdir()
    rng = np.random.default_rng(0)
    colours = np.array([[40, 60, 200], [230, 230, 90], [150, 40, 30]])
    for i in range(15):
        pixels = np.clip(colours[i % 3] + rng.normal(0, 25, (40, 40, 3)), 0, 255)
        image.fromarray(pixels.astype(np.uint8)).save(f"photos/{i:03d}.png")
    Path("photos/009.png").write_bytes(b"no image")
    small = ("--backbone", "resnet12", "--weights", "weights.safetensors", "--view", "36/32", "--device", "cpu")
    result = run("photos", "-n", "3", "--out", "next.csv", *small, "--on-corrupt", "refuse")
    assert result.exit_code == 2
    assert "009.png" in result.stderr
    result = run("photos", "-n", "3", "--out", "next.csv", *small)
    assert result.exit_code == 0, result.stderr
    assert "skipped: 009.png: " in result.stderr and "add --sheet sheet.html" in result.stdout
    rows = read("next.csv")
    assert sorted(int(row["path"][:3]) % 3 for row in rows) == [0, 1, 2]


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
def test_lines_are_added_to_the_labels_and_nothing_in_them_changes(encoding: str) -> None:
    text = "label;Id;note\r\ndigit 0;scan 0;Grüße\r\ndigit 1;scan 1;\r\n;scan 2;not sure"  # no end of line
    Path("mine.csv").write_bytes(text.encode(encoding))
    result = run("digits.npz", "--into", "mine.csv", "-n", "5")
    assert result.exit_code == 0, result.stderr
    after = Path("mine.csv").read_bytes().decode(encoding)
    lines = after.split("\r\n")
    assert lines[0] == "label;Id;note;how;why" and "\r\n".join(lines[1:4]) == text.split("\r\n", 1)[1]
    assert len(lines) == 4 + 5 + 1 and all(line.startswith(";scan ") for line in lines[4:9])
    assert all(";suggested;" in line and "typical of" in line for line in lines[4:9])
    assert "a2lp classify digits.npz --labels mine.csv --out out.csv" in result.stdout
    # once more, with none of them filled in: none is listed twice
    assert run("digits.npz", "--into", "mine.csv", "-n", "8").exit_code == 0
    keys = [line.split(";")[1] for line in Path("mine.csv").read_bytes().decode(encoding).split("\r\n")[1:-1]]
    assert len(keys) == len(set(keys)) == 3 + 8
    # and a new file
    assert run("digits.npz", "--into", "new.tsv", "-n", "3").exit_code == 0
    assert Path("new.tsv").read_text().splitlines()[0] == "id\tlabel\thow\twhy"


@pytest.mark.usefixtures("folder")
def test_audits_are_marked_and_known_to_classify() -> None:
    result = run("digits.npz", "--into", "labels.csv", "-n", "40", "--audits", "0.25")
    assert result.exit_code == 0, result.stderr
    assert "10 of them were drawn at random" in result.stdout
    rows = read("labels.csv")
    assert not any(row["how"] for row in rows[:20])
    audits = [place for place, row in enumerate(rows[20:]) if row["how"] == "audit"]
    assert len(audits) == 10 and audits[-1] - audits[0] > 10  # not in one block
    assert {row["how"] for row in rows[20:]} == {"audit", "suggested"}
    filled("labels.csv", rows, "id")
    task, _ = classify_files("digits.npz", "labels.csv", "out.csv")
    assert task.how.tolist().count("audit") == 10 and task.how.tolist().count("suggested") == 30

    def stated(how: str) -> str:
        changed = [row | {"how": how} if row["how"] else row for row in read("labels.csv")]
        filled("changed.csv", changed, "id")
        _, result = classify_files("digits.npz", "changed.csv", "out.csv", force=True)
        return f"{result.assessment.accuracy:.6f}"

    assert stated("") == stated("whatever") != stated("suggested")


@pytest.mark.usefixtures("folder")
def test_a_list_that_was_filled_in_is_not_replaced() -> None:
    assert run("digits.npz", "--out", "next.csv").exit_code == 0
    assert run("digits.npz", "--out", "next.csv", "--force").exit_code == 0  # still empty
    filled("next.csv", read("next.csv"), "id")
    before = Path("next.csv").read_bytes()
    result = run("digits.npz", "--out", "next.csv", "--force")
    assert result.exit_code == 2
    assert "next.csv holds your labels and is never replaced" in result.stderr
    assert Path("next.csv").read_bytes() == before


@pytest.mark.usefixtures("folder")
def test_the_sheet() -> None:
    pytest.importorskip("jinja2")
    result = run("digits.npz", "--labels", "labels.csv", "-n", "6", "--sheet", "look at.html")
    assert result.exit_code == 0, result.stderr
    page = Path("look at.html").read_text(encoding="utf-8")
    assert page.count("<li>") == 6 and '<option value="digit 3">' in page
    assert "a2lp classify digits.npz --labels labels.csv --labels &#39;look at.csv&#39; --out out.csv" in page
    assert "a2lp classify digits.npz --labels labels.csv --labels 'look at.csv' --out out.csv" in result.stdout


PROBE = """<script>
  URL.createObjectURL = (blob) => {
    const show = (text) => document.body.append(Object.assign(document.createElement("pre"), { textContent: text }));
    blob.text().then(show);
    return "#";
  };
  HTMLAnchorElement.prototype.click = function () { document.title = this.download; };
  const typed = ['auk, "great"', "=tern", " wren "];
  document.querySelectorAll("input").forEach((input, i) => {
    input.value = typed[i] || "";
    input.dispatchEvent(new Event("input"));
  });
  document.getElementById("save").dispatchEvent(new MouseEvent("click"));
</script></body>"""


@pytest.mark.usefixtures("folder")
def test_the_sheet_in_a_browser() -> None:
    """What its button saves is read as labels."""
    pytest.importorskip("jinja2")
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("needs Chromium")
    assert run("digits.npz", "-n", "5", "--sheet", "look at.html").exit_code == 0
    page = Path("look at.html").read_text(encoding="utf-8")
    keys = [html.unescape(key) for key in re.findall('data-key="(.*?)"', page)]
    Path("probe.html").write_text(page.replace("</body>", PROBE), encoding="utf-8")
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=3000", "--dump-dom"]
    address = Path("probe.html").resolve().as_uri()
    command = [browser, *options, f"--user-data-dir={Path('profile').resolve()}", address]
    shown = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
    assert "<title>look at.csv</title>" in shown and "3 of 5 labelled" in shown
    saved = re.search("<pre>(.*?)</pre>", shown, re.DOTALL)
    assert saved
    Path("look at.csv").write_text(html.unescape(saved[1]), encoding="utf-8")
    rows = read("look at.csv")
    assert [row["id"] for row in rows] == keys[:3] and {row["how"] for row in rows} == {"suggested"}
    labels = read_labels("look at.csv", [f"scan {i}" for i in range(300)])
    assert [labels[int(key.split()[1])] for key in keys[:3]] == ['auk, "great"', "=tern", "wren"]


BAD: dict[str, tuple[tuple[str, ...], str]] = {
    "no source": (("nowhere.npz", "--out", "new.csv"), "nowhere.npz"),
    "no such folder": (("my photos/2024", "--out", "new.csv"), "there is no folder 'my photos/2024'"),
    "an unknown name": (("digitz", "--out", "new.csv"), "'digits'"),
    "a source without images": (("empty", "--out", "new.csv"), "no image"),
    "a damaged source": (("cut.npz", "--out", "new.csv"), "cut.npz"),
    "nothing on stdin": (("-", "--out", "new.csv"), "no paths"),
    "no labels": (("digits.npz", "--labels", "nowhere.csv", "--out", "new.csv"), "nowhere.csv"),
    "an unknown point": (("digits.npz", "--labels", "unknown.csv", "--out", "new.csv"), "`scan 900`"),
    "contradicting labels": (("digits.npz", "--labels", "against.csv", "--out", "new.csv"), "contradict"),
    "folders as labels of vectors": (("digits.npz", "--labels", "empty", "--out", "new.csv"), "vectors"),
    "all are labelled": (("digits.npz", "--labels", "all.csv", "--out", "new.csv"), "nothing to suggest"),
    "a negative seed": (("digits.npz", "--seed", "-2", "--out", "new.csv"), "seed=-2"),
    "labels of an unset variable": (("digits.npz", "--labels", "", "--out", "new.csv"), "empty name"),
    "no points": (("digits.npz", "-n", "0", "--out", "new.csv"), "n=0"),
    "OUT is there": (("digits.npz", "--out", "there.csv"), "--force"),
    "OUT is the labels": (
        ("digits.npz", "--labels", "labels.csv", "--out", "labels.csv", "--force"),
        "holds your labels",
    ),
    "OUT is a folder": (("digits.npz", "--out", "folder.csv", "--force"), "folder.csv is a folder"),
    "OUT of another kind": (("digits.npz", "--out", "new.parquet"), ".csv"),
    "nothing to write": (("digits.npz",), "Add --into labels.csv"),
    "INTO of another kind": (("digits.npz", "--into", "new.parquet"), ".csv"),
    "INTO is an output": (("digits.npz", "--into", "output.csv"), "output.csv is an output of a2lp"),
    "INTO is no table": (("digits.npz", "--into", "there.csv"), "there.csv"),
    "the sheet is there": (("digits.npz", "--sheet", "there.html"), "--force"),
    "OUT in no folder": (("digits.npz", "--out", "no/new.csv"), "no folder no"),
}


@pytest.mark.parametrize("name", BAD)
@pytest.mark.usefixtures("folder")
def test_errors_are_one_paragraph(name: str, check_refused: Callable[[Result, str], None]) -> None:
    if name == "a source without images":
        pytest.importorskip("torch")
    Path("cut.npz").write_bytes(Path("digits.npz").read_bytes()[:200])
    Path("there.csv").write_text("mine")
    Path("there.html").write_text("mine")
    Path("output.csv").write_text("id,label,given\nscan 1,a,true\nscan 2,b,false\n")
    Path("empty").mkdir()
    Path("folder.csv").mkdir()
    Path("unknown.csv").write_text("id,label\nscan 1,a\nscan 900,a\n")
    Path("against.csv").write_text("id,label\nscan 1,a\nscan 1,b\n")
    Path("all.csv").write_text("id,label\n" + "".join(f"scan {i},{i % 3}\n" for i in range(300)))
    before = set(Path().iterdir())
    arguments, part = BAD[name]
    result = run(*arguments, stdin="")
    check_refused(result, part)
    assert set(Path().iterdir()) == before
    assert Path("there.csv").read_text() == "mine"
