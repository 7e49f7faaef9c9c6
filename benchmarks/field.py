"""Every method on the saved tasks, beside what its authors' public code scored on the very same ones.

    .venv/bin/python benchmarks/field.py --data FOLDER --out RUNS                      # all methods, then the table
    .venv/bin/python benchmarks/field.py --data FOLDER --out RUNS --methods ease,lp    # those rows anew
    .venv/bin/python benchmarks/field.py                                               # the table alone

FOLDER holds features/SET_resnet12_test.npz, features of the base classes or their statistics
(features/SET_resnet12_train.npz or _base.npz), and reference/{ref,dirichlet}_SET_{1,5}shot.npz. RUNS keeps the records
of the cells, so that a run that was interrupted goes on. Meta-trained methods run where the folder of --weights has
METHOD.safetensors. Means go to records/field.json; the tables of docs/field.md are made from it and public_code.json.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import statistics
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

import a2lp
from a2lp.bench.protocol import Cell, Episodes, given_episodes, make_method
from a2lp.bench.records import Record, RecordStore, write_text
from a2lp.bench.run import run
from a2lp.environment import commit, hardware, versions
from a2lp.features import BaseStatistics, load, load_base
from a2lp.methods.base import Method
from a2lp.tasks.lists import TaskList

HERE = Path(__file__).resolve().parent
RECORD = HERE / "records" / "field.json"
PUBLIC = HERE / "public_code.json"
PAGE = HERE.parent / "docs" / "field.md"
MARKED = re.compile(r"<!-- (\w+) of benchmarks/field.py -->\n.*?<!-- end -->", re.DOTALL)

SETS = {"cub": "CUB", "mini": "miniImageNet"}
CELLS = [(sampler, n_shot) for sampler in ("balanced", "dirichlet") for n_shot in (1, 5)]
FILES = {"balanced": "ref", "dirichlet": "dirichlet"}
FIRST = (50, 60, 100, 300, 400, 1000)  # numbers of tasks that public code was run on
BATCH = 100  # tasks at a time, as the public code had where it could
TIMED_SECONDS = 10.0  # of CPU time, at most


class Row(NamedTuple):
    """A method as it is set; with the public code's row that it should be as good as, for each kind of tasks."""

    method: str
    params: dict[str, Any] = {}  # noqa: RUF012  never changed
    balanced: str | None = None
    dirichlet: str | None = None

    @property
    def label(self) -> str:
        return self.method + "".join(f", {name}={value}" for name, value in self.params.items())


def alike(method: str, key: str, **params: Any) -> Row:
    return Row(method, params, key, key)


COMPARED = [
    alike("simple_shot", "simpleshot_cl2n"),
    alike("bd_cspn", "bdcspn_oveilleux"),
    alike("laplacian_shot", "laplacianshot_rect_l0.7"),
    alike("ep", "ep_l2"),
    alike("ici", "lr_ici_step5"),
    alike("pt_map", "ptmap_clamp"),
    alike("ilpc", "ilpc_l2"),
    alike("tim_gd", "tim_gd"),
    alike("tim_adm", "tim_adm"),
    alike("alpha_tim", "alpha_tim"),
    alike("ease", "ease_siamese_power"),
    alike("proto_lp", "protolp_full_power"),
    alike("am", "am_plc"),
    alike("alpha_am", "alpha_am_plc"),
    alike("paddle", "paddle"),
    Row("bavardage", {}, "bavardage_unb", "bavardage"),
    Row("bavardage", {"marginal": "uniform"}, "bavardage", None),
]
FURTHER = [Row("lp", {"preprocess": "whiten"}), Row("a2lp_em", {"preprocess": "whiten"})]
FURTHER += [Row("a2lp_em", {"marginal": "uniform"}), Row("a2lp_em", {"preprocess": "whiten", "marginal": "uniform"})]


def rows(names: list[str] | None) -> list[Row]:
    """Every registered method in its order, each with its variants."""
    known = [*COMPARED, *FURTHER]
    plain = {row.method for row in known if not row.params}
    named = [Row(name) for name in a2lp.methods() if name not in plain] + known
    order = list(a2lp.methods())
    chosen = [row for row in named if names is None or row.method in names]
    return sorted(chosen, key=lambda row: order.index(row.method))


class Data(NamedTuple):
    """A set's tasks and its base classes."""

    episodes: dict[tuple[str, int], Episodes]
    base: BaseStatistics | None


def read(folder: Path, name: str, n_tasks: int) -> Data | None:
    """What a folder has of a set; None where it has no tasks of it."""
    found = {}
    for sampler, n_shot in CELLS:
        path = folder / "reference" / f"{FILES[sampler]}_{name}_{n_shot}shot.npz"
        if path.exists():
            features = load(folder / "features" / f"{name}_resnet12_test.npz")
            found[sampler, n_shot] = given_episodes(features, TaskList.load(path)[:n_tasks])
    bases = [folder / "features" / f"{name}_resnet12_{kind}.npz" for kind in ("base", "train")]
    base = next((load_base(path) for path in bases if path.exists()), None)
    return Data(found, base) if found else None


def measure(row: Row, data: dict[str, Data], store: RecordStore, weights: Path | None) -> dict[str, Any]:
    """Everything that the table says of a row."""
    params = dict(row.params)
    if weights is not None and (weights / f"{row.method}.safetensors").exists():
        params["weights"] = str(weights / f"{row.method}.safetensors")
    found: dict[str, Any] = {"method": row.method, "params": row.params, "cells": {}}
    for name, one in data.items():
        method = make_method(row.method, params, one.base)
        if getattr(method, "weights", "none needed") is None:
            return found | {"failed": f"no weights: a2lp meta-train {row.method} makes them"}
        found |= {"uniform": method.uniform, "uses_base": method.uses_base, "preprocess": method.preprocess}
        for (sampler, n_shot), episodes in one.episodes.items():
            [record] = run([Cell(episodes, row.method, method)], store)
            found["cells"][f"{name}_{sampler}_{n_shot}shot"] = summary(record)
        if name == "cub" and ("balanced", 1) in one.episodes:
            found |= cpu_time(method, one.episodes["balanced", 1])
    return found | {"date": datetime.now(UTC).date().isoformat(), "commit": commit()}


def summary(record: Record) -> dict[str, Any]:
    mean, ci95 = record.accuracy
    first = {str(n): round(float(np.mean(record.accuracies[:n])), 4) for n in FIRST if n <= len(record.accuracies)}
    return {"mean": round(mean, 4), "ci95": round(ci95, 4), "n": len(record.accuracies), "first": first}


def cpu_time(method: Method, episodes: Episodes) -> dict[str, Any]:
    """Milliseconds of CPU time for a task, the median batch, on one core: two cores of a processor share its caches."""
    spent: list[float] = []
    done = 0
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        method.predict(episodes.tasks[:BATCH].batch(episodes.features.features))  # compiles, loads, gets memory
        while done < len(episodes.tasks) and sum(spent) < TIMED_SECONDS:
            batch = episodes.tasks[done : done + BATCH].batch(episodes.features.features)
            start = time.process_time()
            method.predict(batch)
            spent.append(time.process_time() - start)
            done += len(batch)
    finally:
        os.sched_setaffinity(0, cores)
    return {"ms": round(1000 * statistics.median(spent) / min(BATCH, len(episodes.tasks)), 4), "timed_tasks": done}


def table_of_accuracies(found: dict[str, Any], public: dict[str, Any], name: str) -> Iterator[str]:
    """Methods of one set, without base data and with; in brackets the difference to public code on the same tasks."""
    heads = [f"{sampler}, {n_shot}-shot" for sampler, n_shot in CELLS]
    of = {row.label: row for row in rows(None)}
    for uses_base, title in ((False, "without base data"), (True, "with base data")):
        members = {label: row for label, row in found.items() if row.get("uses_base") is uses_base}
        keys = [f"{name}_{sampler}_{n_shot}shot" for sampler, n_shot in CELLS]
        members = {label: row for label, row in members.items() if set(keys) <= set(row["cells"])}
        if not members:
            continue
        yield f"| {SETS[name]}, {title} | assumes | " + " | ".join(heads) + " |"
        yield "| --- | --- |" + " ---: |" * len(CELLS)
        best = {key: max(row["cells"][key]["mean"] for row in members.values()) for key in keys}
        for label, row in members.items():
            texts = []
            for (sampler, n_shot), key in zip(CELLS, keys, strict=True):
                cell = row["cells"][key]
                text = f"{cell['mean']:.2f} ±{cell['ci95']:.2f}"
                text = f"**{text}**" if cell["mean"] == best[key] else text
                theirs = public_cell(public, of.get(label), sampler, n_shot) if name == "cub" else None
                texts.append(text + compared(cell, theirs))
            yield f"| {label} | {'uniform' if row['uniform'] else ''} | " + " | ".join(texts) + " |"
        yield ""


def public_cell(public: dict[str, Any], row: Row | None, sampler: str, n_shot: int) -> dict[str, Any] | None:
    """What public code scored on CUB's tasks of a kind, for the row that is to be compared with it."""
    key = None if row is None else getattr(row, sampler)
    return public[key]["accuracy"].get(f"{sampler}_{n_shot}shot") if key else None


def compared(cell: dict[str, Any], theirs: dict[str, Any] | None) -> str:
    """The difference to the public code's mean on the first tasks that both did, in brackets."""
    if theirs is None or str(theirs["n"]) not in cell["first"]:
        return ""
    few = f"; {theirs['n']} tasks" if theirs["n"] < 1000 else ""
    return f" ({cell['first'][str(theirs['n'])] - theirs['mean']:+.2f}{few})"


def table_of_times(found: dict[str, Any], public: dict[str, Any]) -> Iterator[str]:
    yield "| CUB, balanced, 1-shot | ms a task | public code, batched | public code, one by one | how much less |"
    yield "| --- |" + " ---: |" * 4
    of = {row.label: row for row in rows(None)}
    for label, row in found.items():
        if "ms" not in row:
            continue
        theirs = public.get(of[label].balanced or "", {}) if label in of else {}
        batched, alone = (f"{theirs[key]:g}" if key in theirs else "" for key in ("ms_batched", "ms_one_by_one"))
        ratio = f"{theirs['ms_batched'] / row['ms']:.1f} x" if batched else ""
        yield f"| {label} | {row['ms']:.3g} | {batched} | {alone} | {ratio} |"


def fill(page: str, found: dict[str, Any], public: dict[str, Any]) -> str:
    """The page with its marked parts made anew."""

    def part(match: re.Match[str]) -> str:
        lines = [*table_of_times(found, public)] if match[1] == "times" else []
        lines = lines or [*table_of_accuracies(found, public, match[1])]
        if match[1] == "cub":
            lines += [f"- {label} is missing: {row['failed']}." for label, row in found.items() if "failed" in row]
        body = "\n".join(lines).strip() or "No records yet."
        return f"<!-- {match[1]} of benchmarks/field.py -->\n\n{body}\n\n<!-- end -->"

    return MARKED.sub(part, page)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--out", type=Path, default=Path("runs") / "field")
    parser.add_argument("--methods")
    parser.add_argument("--tasks", type=int, default=1000)
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--record", type=Path, default=RECORD)
    parser.add_argument("--page", type=Path, default=PAGE)
    args = parser.parse_args()
    kept = json.loads(args.record.read_text(encoding="utf-8")) if args.record.exists() else {"rows": {}}
    if args.data is not None:
        read_sets = {name: read(args.data, name, args.tasks) for name in SETS}
        data = {name: one for name, one in read_sets.items() if one is not None}
        store = RecordStore(args.out)
        with contextlib.suppress(ImportError):  # only the meta-trained need it, and its threads are its own
            import torch

            torch.set_num_threads(1)
        with threadpool_limits(1):
            for row in rows(args.methods.split(",") if args.methods else None):
                try:
                    measured = measure(row, data, store, args.weights)
                except Exception as error:  # the others go on, and the table says so
                    measured = {"method": row.method, "params": row.params, "cells": {}, "failed": repr(error)}
                kept["rows"][row.label] = measured
                cells = {key: cell["mean"] for key, cell in measured["cells"].items()}
                print(row.label, cells, measured.get("ms"), measured.get("failed", ""), flush=True)
                order = [one.label for one in rows(None)]
                kept["rows"] = {label: kept["rows"][label] for label in order if label in kept["rows"]}
                kept |= {"hardware": hardware("cpu"), "versions": versions()}
                args.record.parent.mkdir(parents=True, exist_ok=True)
                write_text(args.record, json.dumps(kept, indent=1) + "\n")
    public = json.loads(PUBLIC.read_text(encoding="utf-8"))["rows"]
    write_text(args.page, fill(args.page.read_text(encoding="utf-8"), kept["rows"], public))


if __name__ == "__main__":
    main()
