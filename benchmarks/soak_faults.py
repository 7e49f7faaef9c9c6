"""Kills at random moments, two processes at once, full disks and odd environments: nothing of the user's is lost.

Each case runs commands as processes of their own. What a command would have made without the fault is computed once and
compared with.
"""

from __future__ import annotations

import csv
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

import a2lp

ROOT = Path(__file__).resolve().parents[1]
A2LP = [sys.executable, "-m", "a2lp"]
ENVIRONMENT = os.environ | {"PYTHONPATH": str(Path(a2lp.__file__).parents[1]), "A2LP_CORES": "1"}
BENCH = ["bench", "--features", "digits", "--methods", "prototypical,lp,a2lp_em", "--tasks", "60", "--out", "out"]
EMBED = ["embed", "photos", "--view", "64/64", "--cache", "cache", "--out", "out.npz"]
SORT = ["classify", "photos", "--labels", "labels.csv", "--view", "64/64", "--cache", "cache", "--out", "sorted"]
TABLE = [*SORT[:-1], "out.csv"]
SECONDS = 300


def prepare(folder: Path) -> None:
    """A folder of small pictures of three colours, and labels for six of them."""
    rng = np.random.default_rng(0)
    (folder / "photos").mkdir()
    lines = ["path,label"]
    for i in range(36):
        pixels = rng.integers(0, 60, (64, 72, 3))
        pixels[..., i % 3] += 150
        Image.fromarray(pixels.astype(np.uint8)).save(folder / "photos" / f"{i:02}.png")
        if i < 6:
            lines.append(f"{i:02}.png,{('red', 'green', 'blue')[i % 3]}")
    (folder / "labels.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")


def call(folder: Path, command: list[str], **more: Any) -> subprocess.CompletedProcess[str]:
    """Run a command to its end; it must end well, or with one of our errors."""
    settings = {"capture_output": True, "text": True, "timeout": SECONDS, "env": ENVIRONMENT} | more
    done = subprocess.run([*A2LP, *command], cwd=folder, check=False, **settings)
    errors = done.stderr or ""
    assert "Traceback" not in errors and done.returncode in (0, 2), f"{command}: {done.returncode}: {errors[-2000:]}"
    return done


def outcome(folder: Path) -> dict[str, Any]:
    """What a command made: vectors, labels, accuracies."""
    found: dict[str, Any] = {}
    if (folder / "out.npz").exists():
        with np.load(folder / "out.npz") as made:
            found["vectors"] = made["features"].tolist()
    for table in (folder / "out.csv", folder / "sorted" / "labels.csv"):
        if table.exists():
            with table.open(encoding="utf-8", newline="") as file:
                found[table.name] = [(row["path"], row["label"]) for row in csv.DictReader(file)]
    for record in sorted((folder / "out").glob("records/*.json")):
        content = json.loads(record.read_text(encoding="utf-8"))
        found[record.name] = content["accuracies"]
    found["pictures"] = sorted(path.relative_to(folder).as_posix() for path in (folder / "sorted").rglob("*.png"))
    return found


@cache
def unbroken(command: tuple[str, ...]) -> str:
    """What a command makes if nothing happens, as JSON."""
    with tempfile.TemporaryDirectory() as place:
        prepare(Path(place))
        assert call(Path(place), list(command)).returncode == 0
        found = outcome(Path(place))
        assert any(found.values())
        return json.dumps(found)


@cache
def duration(command: tuple[str, ...]) -> float:
    with tempfile.TemporaryDirectory() as place:
        prepare(Path(place))
        start = time.monotonic()
        call(Path(place), list(command))
        return time.monotonic() - start


def kill(rng: np.random.Generator, folder: Path, command: list[str]) -> None:
    """Kill a command up to three times; the same command then ends as if nothing had happened."""
    mine = (folder / "labels.csv").read_bytes()
    longest = duration(tuple(command))
    for _ in range(int(rng.integers(1, 4))):
        process = subprocess.Popen(
            [*A2LP, *command], cwd=folder, env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            process.wait(float(rng.uniform(0.2, 1)) * longest)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
    call(folder, command)
    assert (folder / "labels.csv").read_bytes() == mine
    assert json.dumps(outcome(folder)) == unbroken(tuple(command)), f"{command} made something else after a kill"


def killed_bench(rng: np.random.Generator, folder: Path) -> None:
    kill(rng, folder, BENCH)


def killed_embed(rng: np.random.Generator, folder: Path) -> None:
    kill(rng, folder, EMBED)


def killed_sort(rng: np.random.Generator, folder: Path) -> None:
    kill(rng, folder, SORT)


def killed_table(rng: np.random.Generator, folder: Path) -> None:
    kill(rng, folder, TABLE)


def killed_page(rng: np.random.Generator, folder: Path) -> None:
    """The page and training have tests of their own, at moments that differ from run to run."""
    _tests("tests/serve/test_kill.py")


def killed_training(rng: np.random.Generator, folder: Path) -> None:
    _tests("tests/images/test_train.py", "-k", "kill")


def _tests(*arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", *arguments],
        cwd=ROOT,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-3000:]


def two_at_once(rng: np.random.Generator, folder: Path) -> None:
    """Two processes with one cache and one output: one of them writes it, or both write the same."""
    command = [EMBED, TABLE, BENCH][int(rng.integers(3))]
    both = []
    for _ in range(2):
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        both.append(subprocess.Popen([*A2LP, *command], cwd=folder, env=ENVIRONMENT, **pipes))
        time.sleep(float(rng.uniform(0, 1)))
    ends = [(process.communicate(timeout=SECONDS)[1], process.returncode) for process in both]
    assert all("Traceback" not in errors and code in (0, 2) for errors, code in ends), ends
    assert any(code == 0 for _, code in ends), ends
    assert json.dumps(outcome(folder)) == unbroken(tuple(command)), f"two of {command} made something else"


def full_disk(rng: np.random.Generator, folder: Path) -> None:
    """No file may grow beyond some size, as on a full disk; afterwards there is room again."""
    command = [EMBED, SORT, TABLE, BENCH][int(rng.integers(4))]
    room = int(rng.integers(0, 20_000))

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))

    done = call(folder, command, preexec_fn=limit)
    if done.returncode:
        assert "cannot be written" in done.stderr or "No space" in done.stderr or "too large" in done.stderr, (
            done.stderr
        )
    call(folder, command)
    assert json.dumps(outcome(folder)) == unbroken(tuple(command)), f"{command} made something else after a full disk"


def odd_environment(rng: np.random.Generator, folder: Path) -> None:
    """No HOME, another language, a closed or full output, no folder to write to."""
    command = [EMBED, SORT, TABLE][int(rng.integers(3))]
    bare = {"PATH": os.environ["PATH"], "PYTHONPATH": ENVIRONMENT["PYTHONPATH"], "A2LP_CORES": "1"}
    change = int(rng.integers(5))
    if change == 0:
        call(folder, command, env=bare)
    elif change == 1:
        call(folder, command, env=bare | {"LANG": "C", "LC_ALL": "C", "HOME": "/nonexistent", "PYTHONUTF8": "0"})
    elif change == 2:
        command = [word if word != "cache" else "/proc/cache" for word in command]
        assert call(folder, command).returncode == 2
        return
    elif change == 3:
        words = " ".join(f"'{word}'" for word in [*A2LP, *command])
        done = subprocess.run(
            ["sh", "-c", f"{words} >&-"], cwd=folder, env=ENVIRONMENT, stderr=subprocess.PIPE, text=True
        )
        assert "Traceback" not in done.stderr, done.stderr[-2000:]
    else:
        words = " ".join(f"'{word}'" for word in [*A2LP, *command])
        done = subprocess.run(
            ["sh", "-c", f"{words} | head -c 1"], cwd=folder, env=ENVIRONMENT, stderr=subprocess.PIPE, text=True
        )
        assert "Traceback" not in done.stderr, done.stderr[-2000:]
    assert json.dumps(outcome(folder)) == unbroken(tuple(command)), f"{command} made something else, change {change}"


QUICK: tuple[Callable[[np.random.Generator, Path], None], ...] = (
    killed_embed,
    killed_table,
    killed_sort,
    killed_bench,
    two_at_once,
    full_disk,
    odd_environment,
)
LONG = (killed_page, killed_training)  # a minute each


def run(case: int, folder: Path, scenarios: tuple[Callable[..., None], ...] = 3 * QUICK + LONG) -> str:
    """One scenario in a folder of its own."""
    rng = np.random.default_rng(case)
    scenario = scenarios[case % len(scenarios)]
    prepare(folder)
    try:
        scenario(rng, folder)
    except AssertionError:
        kept = Path(tempfile.gettempdir()) / f"a2lp-soak-{case}"
        shutil.copytree(folder, kept, dirs_exist_ok=True, symlinks=True)
        raise
    return scenario.__name__
