"""``a2lp classify --names`` and ``a2lp suggest --names`` as a shell sees them: labels are optional."""

from __future__ import annotations

import csv
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from a2lp.cli.app import app
from a2lp.errors import install_command
from a2lp.features import FeatureSet, save

NAMES = ["auk", "gull", "tern", "wren", "owl", "swan"]
PRESENT = 4  # of the named classes occur


def vectors(n: int = 240, d: int = 32, seed: int = 0) -> tuple[Any, Any, Any]:
    """Points around class centres, their classes, and names that lie across a gap common to all of them."""
    rng = np.random.default_rng(seed)
    centres, labels = rng.normal(size=(len(NAMES), d)), rng.integers(0, PRESENT, n)
    points = 2 + centres[labels] + 0.9 * rng.normal(size=(n, d))
    text = 2 + rng.normal(size=d) + centres + 0.7 * rng.normal(size=(len(NAMES), d))
    return points.astype(np.float32), labels, text.astype(np.float32)


@pytest.fixture
def truth(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The current folder with points, names, and their vectors; what the points are."""
    monkeypatch.chdir(tmp_path)
    points, labels, text = vectors()
    np.savez("points.npz", features=points)
    np.save("text.npy", text)
    Path("names.txt").write_text("\n".join(NAMES) + "\n")
    return [NAMES[label] for label in labels]


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def read(path: str) -> list[dict[str, str]]:
    with Path(path).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def accuracy(path: str, truth: list[str]) -> float:
    return float(np.mean([row["label"] == true for row, true in zip(read(path), truth, strict=True)]))


def test_no_label_then_a_random_sample_then_both(truth: list[str]) -> None:
    named = ("points.npz", "--names", "names.txt", "--text", "text.npy")
    result = run("classify", *named, "--out", "out.csv", "--report", "page.html")
    assert result.exit_code == 0, result.stderr
    assert accuracy("out.csv", truth) > 0.97
    rows = read("out.csv")
    assert {row["given"] for row in rows} == {"false"}
    assert {row["nearest"] for row in rows} == {""}
    assert "0 labelled by you, 240 by a2lp" in result.stdout
    assert "Nothing was checked: there is no label." in result.stdout
    assert "interval" not in result.stdout
    page = Path("page.html").read_text()
    assert "not checked by any label" in page
    assert "95 % interval" not in page

    command = shlex.split(result.stdout.strip().splitlines()[-1])  # the hint is a command that works
    assert command[:2] == ["a2lp", "suggest"]
    suggested = run(*command[1:])
    assert suggested.exit_code == 0, suggested.stderr
    lines = read("labels.csv")
    assert len(lines) == 50
    assert {line["how"] for line in lines} == {"audit"}
    text = "index,label,how,why\n"
    text += "".join(f"{line['index']},{truth[int(line['index'])]},audit,\n" for line in lines)
    Path("labels.csv").write_text(text)

    again = shlex.split(next(line for line in suggested.stdout.splitlines() if line.startswith("    a2lp classify")))
    both = run(*again[1:])
    assert both.exit_code == 0, both.stderr
    written = again[again.index("--out") + 1]
    assert accuracy(written, truth) >= accuracy("out.csv", truth)
    low, high = re.search(r"95 % interval (\d+) to (\d+) %", both.stdout).groups()  # type: ignore[union-attr]
    new = [i for i, row in enumerate(read(written)) if row["given"] == "false"]
    right = 100 * float(np.mean([read(written)[i]["label"] == truth[i] for i in new]))
    assert int(low) <= right <= int(high)
    assert int(high) - int(low) < 30


@pytest.mark.parametrize("kind", ["npz", "npy", "safetensors"])
def test_a_source_that_brings_its_names(truth: list[str], kind: str) -> None:
    if kind == "safetensors":
        pytest.importorskip("safetensors")
    points, _, text = vectors()
    save(FeatureSet(points, classes=NAMES, text=text), f"own.{kind}")
    result = run("classify", f"own.{kind}", "--out", "own.csv")
    assert result.exit_code == 0, result.stderr
    assert accuracy("own.csv", truth) > 0.97
    Path("four.txt").write_text("\n".join(reversed(NAMES[:PRESENT])))
    assert run("classify", f"own.{kind}", "--names", "four.txt", "--out", "four.csv").exit_code == 0
    assert accuracy("four.csv", truth) > 0.97
    assert {row["second"] for row in read("four.csv")} <= set(NAMES[:PRESENT])


@pytest.mark.usefixtures("truth")
def test_vectors_that_bring_their_names_are_matched_by_name() -> None:
    text = np.load("text.npy")
    order = [3, 0, 5, 2, 1, 4]
    np.savez("text.npz", text=text[order], classes=[NAMES[i] for i in order])
    for out, vectors_file in (("a.csv", "text.npy"), ("b.csv", "text.npz")):
        result = run("classify", "points.npz", "--names", "names.txt", "--text", vectors_file, "--out", out)
        assert result.exit_code == 0, result.stderr
    assert read("a.csv") == read("b.csv")


def test_labels_of_some_classes_only(truth: list[str]) -> None:
    of = [next(i for i, name in enumerate(truth) if name == wanted) for wanted in ("auk", "gull")]
    Path("two.csv").write_text("index,label\n" + "".join(f"{i},{truth[i]}\n" for i in of))
    result = run(
        "classify", "points.npz", "--labels", "two.csv", "--names", "names.txt", "--text", "text.npy", "--out", "o.csv"
    )
    assert result.exit_code == 0, result.stderr
    assert accuracy("o.csv", truth) > 0.97
    assert {row["label"] for row in read("o.csv")} == set(NAMES[:PRESENT])


def test_the_options_that_leave_points_out(truth: list[str]) -> None:
    named = ("points.npz", "--names", "names.txt", "--text", "text.npy")
    for option, value in (("--reject", "0.25"), ("--abstain", "0.9"), ("--target", "0.995")):
        result = run("classify", *named, option, value, "--out", "o.csv", "--force")
        assert result.exit_code == 0, result.stderr
        left = [row["label"] == "" for row in read("o.csv")]
        assert sum(left) == 60 or option != "--reject"
        assert "not checked" in result.stdout or not any(left)
    # what belongs to no named class is rejected first: the names of two of four classes
    Path("two.txt").write_text("auk\ngull\n")
    np.save("two.npy", np.load("text.npy")[:2])
    share = str(np.mean([name in ("tern", "wren") for name in truth]))
    two = ("points.npz", "--names", "two.txt", "--text", "two.npy", "--reject", share, "--out", "two.csv")
    result = run("classify", *two)
    assert result.exit_code == 0, result.stderr
    rejected = [true in ("tern", "wren") for row, true in zip(read("two.csv"), truth, strict=True) if not row["label"]]
    assert np.mean(rejected) > 0.8


@pytest.mark.usefixtures("truth")
@pytest.mark.parametrize(
    ("arguments", "files", "message"),
    [
        ((), {}, "neither labels nor names of classes. Give a few labels with --labels FILE"),
        (("--names", "names.txt"), {}, "the source has no vectors of their names. Give the vectors of the names with"),
        (("--text", "text.npy"), {}, "text.npy has 6 vectors without names. Give the names in the same order"),
        (("--names", "n.txt", "--text", "text.npy"), {"n.txt": "auk\ngull\n\n"}, "2 names and text.npy has 6 vectors"),
        (("--names", "n.txt", "--text", "text.npy"), {"n.txt": "auk\n gull\nauk"}, "'auk' in line 1 and in line 3"),
        (("--names", "n.txt", "--text", "text.npy"), {"n.txt": "auk"}, "a choice needs two"),
        (("--names", "n.txt", "--text", "text.npy"), {"n.txt": "auk\n-1"}, "'-1' means unlabelled"),
        (("--names", "names.txt", "--text", "narrow.npy"), {}, "has 16 dimensions and the points have 32"),
        (("--names", "n.txt", "--text", "named.npz"), {"n.txt": "auk\nemu\n"}, "no vector of the name `emu`; it has"),
        (
            ("--names", "names.txt", "--text", "text.npy", "--labels", "l.csv"),
            {"l.csv": "index,label\n0,emu\n"},
            "the labels `emu` are none of the 6 named classes",
        ),
        (("--names", "names.txt", "--text", "text.npy", "--method", "knn"), {}, "'knn' learns from labels"),
        (("--labels", "l.csv", "--method", "names"), {"l.csv": "index,label\n0,a\n1,b\n"}, "needs class names"),
    ],
)  # fmt: skip
def test_bad_input_says_what_is_wrong_and_what_to_do(
    arguments: tuple[str, ...], files: dict[str, str], message: str
) -> None:
    np.save("narrow.npy", np.load("text.npy")[:, :16])
    np.savez("named.npz", text=np.load("text.npy"), classes=NAMES)
    for name, text in files.items():
        Path(name).write_text(text)
    result = run("classify", "points.npz", *arguments, "--out", "out.csv")
    assert result.exit_code == 2, result.output
    assert message in " ".join(result.stderr.split())
    assert "Traceback" not in result.output
    assert not Path("out.csv").exists()


@pytest.mark.usefixtures("truth")
def test_images_without_a_text_encoder() -> None:
    image: Any = pytest.importorskip("PIL.Image")
    Path("photos").mkdir()
    for i in range(3):
        image.fromarray(np.full((40, 40, 3), 40 * i, np.uint8)).save(f"photos/{i}.png")
    result = run("classify", "photos", "--names", "names.txt", "--out", "out.csv")
    assert result.exit_code == 2
    said = " ".join(result.stderr.split())
    assert "backbone 'efficientnet_lite0' has no text encoder" in said
    assert f"{install_command('clip')}, then --backbone open_clip:" in said
    assert "--text FILE" in said


@pytest.mark.usefixtures("truth")
def test_labels_of_other_classes_than_those_of_the_source() -> None:
    points, _, text = vectors()
    save(FeatureSet(points, classes=NAMES, text=text), "own.npz")
    Path("l.csv").write_text("index,label\n0,big\n1,small\n2,big\n3,small\n")
    result = run("classify", "own.npz", "--labels", "l.csv", "--out", "out.csv")
    assert result.exit_code == 0, result.stderr
    assert "its names are not used" in " ".join(result.stderr.split())
    assert {row["label"] for row in read("out.csv")} == {"big", "small"}


@pytest.mark.shared
def test_pools_of_aerial_images_without_a_label(
    shared_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Means over three encoders and all draws; the names of all 19 classes are given everywhere."""
    folder = shared_data / "vl"
    if not folder.is_dir():
        pytest.skip("needs the vectors in ../shared/data/vl")
    monkeypatch.chdir(tmp_path)
    pools = np.load(folder / "pools_whu_rs19.npz")
    found: dict[str, list[float]] = {}
    for encoder in ("clip_vit_b_32", "clip_vit_l_14", "remoteclip_vit_b_32"):
        file = np.load(folder / f"whu_rs19_{encoder}.npz")
        classes = [name.decode() if isinstance(name, bytes) else str(name) for name in file["classes"].tolist()]
        Path("names.txt").write_text("\n".join(classes))
        np.savez("vectors.npz", text=file["text"], classes=classes)
        for pool in (name for name in pools if re.match("all|k|skew", name)):
            np.save("pool.npy", file["features"][pools[pool]])
            result = run(
                "classify", "pool.npy", "--text", "vectors.npz", "--names", "names.txt", "--out", "o.csv", "--force"
            )
            assert result.exit_code == 0, result.stderr
            truth = [classes[label] for label in file["labels"][pools[pool]]]
            found.setdefault(pool.split("_")[0], []).append(100 * accuracy("o.csv", truth))
    means = {kind: float(np.mean(values)) for kind, values in found.items()}
    least = {"all": 97, "k8": 94, "k4": 94, "k2": 93.5, "skew": 95}
    assert {kind for kind, mean in means.items() if mean < least[kind]} == set(), means
