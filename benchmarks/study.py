"""What the studies share: features and tasks of the repository, records with a stamp for each part, generated pages.

A record is ``{"what": ..., "parts": {NAME: {"settings": ..., "result": ..., "commit": ..., ...}}}``. A part is measured
as a whole and stamped by the code and machine that measured it, so that parts which are measured again do not lend
their stamp to the others. ``features`` has the hashes of the features that a part was measured on, where its tasks went
through ``episodes`` or ``accuracies``; ``replaced`` compares them with those of the repository.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

from a2lp.bench.protocol import Cell, Episodes, Params, draw_episodes, make_method
from a2lp.bench.run import run
from a2lp.bench.statistics import Estimate
from a2lp.environment import commit, stamp
from a2lp.features import BaseStatistics, FeatureSet, load, load_base
from a2lp.features.bundled import BUNDLED
from a2lp.files import write_text

ROOT = Path(__file__).resolve().parents[1]
RECORDS = ROOT / "benchmarks" / "records"
SETS = {"cub": "CUB", "mini": "miniImageNet", "cifar_fs": "CIFAR-FS"}
CELLS = [(sampler, n_shot) for n_shot in (1, 5) for sampler in ("balanced", "dirichlet")]
STAMP = ("versions", "hardware", "commit", "date")

_used: dict[str, str] = {}  # features of the part that is being measured: their hashes by name
_FOLDERS = {"cub": "cub_resnet12", "mini": "mini_imagenet_resnet12", "cifar_fs": "cifar_fs_resnet12"}


@cache
def features(name: str, split: str) -> FeatureSet:
    """Features of the ResNet-12 that this repository trained on a set's base classes; ``split`` is val or test."""
    if (name, split) == ("cub", "test"):
        return load("cub")
    return load(ROOT / "trained" / _FOLDERS[name] / f"{_FOLDERS[name]}_{split}.npz")


@cache
def base(name: str) -> BaseStatistics:
    """Statistics of a set's base classes, of the same network."""
    return load_base("cub" if name == "cub" else ROOT / "trained" / _FOLDERS[name] / f"{_FOLDERS[name]}_train_base.npz")


def episodes(name: str, split: str, sampler: str, n_shot: int, n_tasks: int, seed: int = 0) -> Episodes:
    """5-way tasks with 75 queries, drawn from a set."""
    return _note_features(_drawn(name, split, sampler, n_shot, n_tasks, seed))


@cache
def _drawn(name: str, split: str, sampler: str, n_shot: int, n_tasks: int, seed: int) -> Episodes:
    return draw_episodes(features(name, split), [sampler], [n_shot], n_tasks=n_tasks, seed=seed)[0]


def _note_features(tasks: Episodes) -> Episodes:
    _used[tasks.config["features"]] = tasks.config["features_sha256"]
    return tasks


def accuracies(method: str, params: Params, tasks: Episodes, statistics: BaseStatistics | None = None) -> list[float]:
    """Percent right in each task."""
    _note_features(tasks)
    return run([Cell(tasks, method, make_method(method, params, statistics))])[0].accuracies


def cell_name(sampler: str, n_shot: int) -> str:
    return f"{sampler} {n_shot}-shot"


class Record:
    """The record of a study, written after every part; ``code`` is its commit on a machine without a checkout."""

    def __init__(self, path: Path, what: str, code: str | None = None) -> None:
        self.path, self.what, self.code = path, what, code
        self.parts: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))["parts"] if path.exists() else {}

    def measure(self, part: str, work: Callable[[], Any], **settings: Any) -> None:
        """Measure a part, unless this very code has measured it already with the same settings."""
        known, here = self.parts.get(part), self.code or commit() or "unknown-dirty"
        same = known is not None and (known["commit"], known["settings"]) == (here, settings)
        if same and not here.endswith("-dirty"):
            return
        _used.clear()
        result = work()
        self.keep(part, result, stamp() if self.code is None else stamp() | {"commit": self.code}, **settings)
        print(f"measured: {part}", flush=True)

    def keep(self, part: str, result: Any, origin: Mapping[str, Any], **settings: Any) -> None:
        """Write a part, with the stamp of its measurement."""
        used = {"features": dict(_used)} if _used else {}
        self.parts[part] = {"settings": settings, "result": result} | used | origin
        write_text(self.path, json.dumps({"what": self.what, "parts": self.parts}, indent=1) + "\n")

    def result(self, part: str) -> Any:
        """The result of a part; None where it has not been measured."""
        return self.parts.get(part, {}).get("result")

    def named(self, kind: str) -> dict[str, Any]:
        """The results of all parts called ``KIND NAME``, by name."""
        return {
            name.removeprefix(f"{kind} "): part["result"]
            for name, part in self.parts.items()
            if name.startswith(f"{kind} ")
        }

    def tasks(self, kind: str) -> str:
        """How many tasks a cell of the parts called ``KIND NAME`` has."""
        counts = {part["settings"]["n_tasks"] for name, part in self.parts.items() if name.startswith(f"{kind} ")}
        return f"{' or '.join(map(str, sorted(counts)))} tasks a cell" if counts else ""

    def provenance(self) -> str:
        """A line for each code and machine: which parts it measured."""
        origins: dict[str, list[str]] = {}
        for name, part in self.parts.items():
            versions = ", ".join(f"{package} {version}" for package, version in part["versions"].items())
            machine = f"{part['hardware']['cpu']}, {part['hardware']['cores']} cores"
            origin = f"commit `{part['commit'] or 'unknown'}`, {part['date'][:10]}, {machine}; {versions}"
            origins.setdefault(origin, []).append(name)
        if len(origins) == 1:
            return f"All parts: {next(iter(origins))}."
        return "\n".join(f"- {', '.join(names)}: {origin}." for origin, names in origins.items())


class Pieces(NamedTuple):
    """A file for each piece of a part, so that a run which was killed goes on where it was."""

    folder: Path
    code: str

    def path(self, name: str) -> Path:
        return self.folder / f"{re.sub(r'[^A-Za-z0-9_.]+', '-', name)}.json"

    def known(self, name: str) -> dict[str, Any] | None:
        """What this code found in a piece, unless files were edited."""
        path = self.path(name)
        found = json.loads(path.read_text(encoding="utf-8")) if path.exists() else None
        return found if found and found["commit"] == self.code and not self.code.endswith("-dirty") else None

    def keep(self, name: str, result: Any) -> None:
        """Write what was found in a piece, with its stamp."""
        write_text(self.path(name), json.dumps({"result": result} | stamp() | {"commit": self.code}) + "\n")


def over_cores(work: Callable[..., None], given: Sequence[tuple[Any, ...]], n_cores: int) -> None:
    """Call ``work`` with each of these arguments, over cores with one thread each."""
    for name in ("A2LP_CORES", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
        os.environ[name] = "1"  # before the processes start
    with ProcessPoolExecutor(n_cores, mp_context=get_context("spawn")) as run:
        waiting = [run.submit(work, *arguments) for arguments in given]
        for number, done in enumerate(as_completed(waiting), 1):
            done.result()
            if number % 50 == 0 or number == len(given):
                print(f"{number} of {len(given)} pieces", flush=True)


def stamps(record: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The stamp of each part of any record in this folder; of the whole where it was measured as one."""
    yield from record["parts"].items() if "parts" in record else [("all of it", record)]


def replaced(record: Mapping[str, Any]) -> list[str]:
    """The parts of a record that were measured on features which are not those of the repository any more."""
    found = []
    for name, part in record.get("parts", {}).items():
        for features_name, known in part.get("features", {}).items():
            now = _sha256_now(features_name)
            if now is not None and now != known:
                found.append(f"{name}: {features_name}")
    return found


@cache
def _sha256_now(name: str) -> str | None:
    """The hash of a bundled set, or of a file of trained/; None of files that are elsewhere."""
    files = list((ROOT / "trained").glob(f"*/{name}.npz"))
    if name not in BUNDLED and not files:
        return None
    found = load(name if name in BUNDLED else files[0])
    [tasks] = draw_episodes(found, ["balanced"], [1], n_tasks=1, seed=0)
    return str(tasks.config["features_sha256"])


def fill(text: str, study: str, parts: Mapping[str, str]) -> str:
    """A page with the generated parts between its marks, ``<!-- STUDY PART -->`` and ``<!-- end -->``."""

    def part(match: re.Match[str]) -> str:
        return f"<!-- {study} {match[1]} -->\n\n{parts[match[1]].strip() or 'Not measured yet.'}\n\n<!-- end -->"

    return re.sub(rf"<!-- {study} (.*?) -->\n.*?<!-- end -->", part, text, flags=re.DOTALL)


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], align: str = "---:", n_left: int = 1) -> str:
    """A Markdown table whose first ``n_left`` columns are text; nothing where there are no rows."""
    rows = list(rows)
    lines = [heads, ["---"] * n_left + [align] * (len(heads) - n_left), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) if rows else ""


def shown(value: Estimate | Mapping[str, float], *, sign: bool = False) -> str:
    """A mean and its interval, as ``78.93 ±0.79``."""
    mean, ci95 = (value["mean"], value["ci95"]) if isinstance(value, Mapping) else value
    return f"{mean:+.2f} ±{ci95:.2f}" if sign else f"{mean:.2f} ±{ci95:.2f}"
