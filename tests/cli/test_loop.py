"""The loop of README, word for word: suggest, label, paste what is printed, and again, for five turns."""

from __future__ import annotations

import csv
import html
import os
import re
import shlex
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from typer.testing import CliRunner

import a2lp
from a2lp.cli.app import app
from a2lp.features import load

ROOT = Path(__file__).parents[2]
N = 10  # points a turn


class Finished(NamedTuple):
    code: int
    stdout: str
    stderr: str


class User:
    """Somebody who follows README, knows what each point shows, and pastes the commands that are printed.

    After every command, what was labelled before is still in the files, unchanged.
    """

    def __init__(self, run: Callable[[str], Finished], truth: dict[str, str]) -> None:
        self.run_line, self.truth = run, truth
        self.labelled: dict[Path, dict[str, str]] = {}  # by table: what was filled in
        self.accuracies: list[float] = []

    def run(self, line: str, *, fails: bool = False) -> Finished:
        done = self.run_line(line)
        assert done.code == (2 if fails else 0), f"{line}\n{done.stderr}"
        assert "Traceback" not in done.stderr
        for path, labels in self.labelled.items():
            rows = {row["path"]: row["label"] for row in read(path)}
            assert labels.items() <= rows.items(), f"{line} has lost labels in {path}"
        return done

    def paste(self, done: Finished, which: int = 0) -> str:
        """A command that was printed as a hint."""
        hints = [line.strip() for line in done.stdout.splitlines() if line.startswith("    a2lp ")]
        return hints[which]

    def suggested(self, line: str, into: str) -> Finished:
        """Ask for suggestions, and fill in the truth."""
        before = Path(into).read_bytes() if Path(into).exists() else b""
        done = self.run(f"{line} -n {N}")
        after = Path(into).read_bytes()
        assert after.split(b"\n", 1)[1].startswith(before.partition(b"\n")[2])  # but for new columns, lines are added
        rows = read(Path(into))
        new = [row for row in rows if not row["label"]]
        assert len(new) == N and not {row["path"] for row in new} & self.known()
        for row in new:
            row["label"] = self.truth[row["path"]]
        write(Path(into), rows)
        self.labelled.setdefault(Path(into), {}).update({row["path"]: row["label"] for row in new})
        return done

    def classified(self, line: str) -> Finished:
        """Label the rest; how many are right."""
        done = self.run(line)
        words = shlex.split(line)
        rows = read(Path(words[words.index("--out") + 1]))
        assert {row["path"]: row["label"] for row in rows if row["given"] == "true"} == self.every_label()
        rest = [row for row in rows if row["given"] == "false"]
        assert len(rows) == len(self.truth) and len(rest) == len(rows) - len(self.known())
        self.accuracies.append(float(np.mean([row["label"] == self.truth[row["path"]] for row in rest])))
        return done

    def every_label(self) -> dict[str, str]:
        return {key: label for labels in self.labelled.values() for key, label in labels.items()}

    def known(self) -> set[str]:
        return set(self.every_label())


def read(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def write(path: Path, rows: list[dict[str, str]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def documented(source: str) -> list[str]:
    """README's commands of the loop, on a source of another name."""
    block = (ROOT / "README.md").read_text(encoding="utf-8").split("```console\n")[1].split("```")[0]
    lines = [line.removeprefix("$ ") for line in block.splitlines() if line.startswith("$ a2lp ")]
    return [line.replace(" photos ", f" {shlex.quote(source)} ") for line in lines]


def save_sheet(page: Path, truth: dict[str, str]) -> dict[str, str]:
    """What the sheet's button saves once every field is filled in; test_suggest.py presses it in a browser."""
    text = page.read_text(encoding="utf-8")
    fields = re.findall(r'data-key="(.*?)" data-how="(.*?)" data-why="(.*?)"', text)
    name = re.search(r'link\.download = "(.*?)";', text)
    assert name and not Path(name[1]).exists()
    rows = [dict(zip(("path", "how", "why"), map(html.unescape, field), strict=True)) for field in fields]
    write(Path(name[1]), [{"path": row["path"], "label": truth[row["path"]], **row} for row in rows])
    return {row["path"]: truth[row["path"]] for row in rows}


def follow(user: User, source: str) -> None:
    """Five turns."""
    first, second = documented(source)
    suggest, classify = user.suggested(first, "labels.csv"), second
    assert classify.startswith(user.paste(suggest))  # README's differs by its report
    done = user.classified(classify)

    # two labels for one point: both are named, and nothing is written until one is gone
    done = user.suggested(user.paste(done), "labels.csv")
    rows = read(Path("labels.csv"))
    wrong = next(row for row in rows if row["label"] != rows[0]["label"])
    write(Path("labels.csv"), [*rows, rows[0] | {"label": wrong["label"]}])
    before = Path("out.csv").read_bytes()
    error = user.run_line(user.paste(done))
    assert error.code == 2 and "contradict" in error.stderr
    assert all(f"line {line}" in error.stderr for line in (2, len(rows) + 2))
    assert Path("out.csv").read_bytes() == before
    write(Path("labels.csv"), rows)
    done = user.classified(user.paste(done))

    # a sheet: its labels are a table of their own, and the first one keeps growing
    done = user.run(f"{user.paste(done)} -n {N} --sheet 'look at.html'")
    user.labelled[Path("look at.csv")] = save_sheet(Path("look at.html"), user.truth)
    done = user.classified(user.paste(done, which=1))

    # what came out goes in: predictions do not become labels, and the hints do not write over it
    done = user.classified(f"a2lp classify {shlex.quote(source)} --labels out.csv --out again.csv")
    assert "are predictions of a2lp" in done.stderr
    done = user.suggested(user.paste(done), "labels2.csv")
    assert "--labels out.csv --labels labels2.csv --out out2.csv" in user.paste(done)
    done = user.classified(user.paste(done))
    done = user.suggested(user.paste(done), "labels2.csv")
    assert user.paste(done).endswith("--out out2.csv --force")
    user.classified(user.paste(done))
    assert len(user.known()) == 5 * N


def test_the_loop_on_vectors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For a clone without photographs."""
    pytest.importorskip("jinja2")
    monkeypatch.chdir(tmp_path)
    digits = load("digits")
    assert digits.labels is not None
    source = "Grandma's digits 2024.npz"
    names = [f"scan {row:03d}" for row in range(300)]
    np.savez(source, features=digits.features[:300], files=names)
    Path("labels.csv").write_text("path,label\n")

    def run(line: str) -> Finished:
        result = CliRunner().invoke(app, shlex.split(line)[1:])
        return Finished(result.exit_code, result.stdout, result.stderr)

    user = User(run, {name: f"digit {label}" for name, label in zip(names, digits.labels[:300], strict=True)})
    follow(user, source)
    assert 0.9 < user.accuracies[0] < user.accuracies[-1]


@pytest.mark.shared
def test_the_loop_on_photographs(shared_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """200 photographs of ten species, the default backbone, and a shell."""
    pack = shared_data / "images" / "cub_val_test.npz"
    if not pack.is_file():
        pytest.skip(f"needs {pack.relative_to(shared_data.parents[1])}, which is not part of the repository")
    for package in ("onnxruntime", "PIL", "jinja2"):
        pytest.importorskip(package)
    monkeypatch.chdir(tmp_path)
    source = "Grandma's birds 2024"
    truth = write_photographs(pack, Path(source))
    command = Path("bin/a2lp")
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m a2lp "$@"\n')
    command.chmod(0o755)
    code = str(Path(a2lp.__file__).parents[1])
    paths = {"PATH": f"{command.parent.resolve()}:{os.environ['PATH']}", "PYTHONPATH": code}
    environment = os.environ | paths | {"A2LP_CACHE": str(tmp_path / "cache")}

    def run(line: str) -> Finished:
        done = subprocess.run(line, shell=True, env=environment, capture_output=True, text=True)
        return Finished(done.returncode, done.stdout, done.stderr)

    user = User(run, truth)
    follow(user, source)
    assert 0.5 < user.accuracies[0] < user.accuracies[-1] and user.accuracies[-1] > 0.8

    # sorted into folders, where mistakes are dragged to their place: only those, and the labels from before, count
    tables = "--labels labels.csv --labels 'look at.csv' --labels labels2.csv"
    user.run(f"a2lp classify {shlex.quote(source)} {tables} --out sorted")
    wrong = [row for row in read(Path("sorted/labels.csv")) if row["label"] != truth[row["path"]]]
    assert 0 < len(wrong) < 40
    for row in wrong:
        place = Path("sorted", truth[row["path"]], row["path"])
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(f"sorted/{row['place']}", place)
    user.labelled[Path("sorted/labels.csv")] = {}
    moved = {row["path"]: truth[row["path"]] for row in wrong}
    done = user.run(f"a2lp classify {shlex.quote(source)} --labels sorted --out corrected.csv")
    given = {row["path"]: row["label"] for row in read(Path("corrected.csv")) if row["given"] == "true"}
    assert given == user.every_label() | moved
    assert "are where a2lp has put them and were not used as your labels" in done.stderr
    error = user.run(f"a2lp classify {shlex.quote(source)} {tables} --out sorted --force", fails=True)
    assert "moved since" in error.stderr  # what was dragged is not lost
    user.run(user.paste(done))
    assert shlex.split(user.paste(done))[-4:] == ["--labels", "sorted", "--into", "labels3.csv"]


def write_photographs(pack: Path, folder: Path) -> dict[str, str]:
    """Twenty photographs of each of ten species, in no order, one of them damaged; what each shows."""
    from PIL import Image

    from a2lp.images.datasets import load as load_images

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        birds = load_images(pack, "test", dataset="cub")
    assert birds.labels is not None and birds.classes is not None
    rows = np.concatenate([np.flatnonzero(birds.labels == species)[:20] for species in range(10)])
    names = {}
    for number, row in enumerate(np.random.default_rng(0).permutation(rows).tolist()):
        name = f"DSC {number:04d}.png"
        path = folder / ("more" if number % 5 == 0 else "") / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(birds.source.image(row)).save(path)
        names[path.relative_to(folder).as_posix()] = birds.classes[birds.labels[row]]
    (folder / "damaged.jpg").write_bytes(b"no image")
    return names
