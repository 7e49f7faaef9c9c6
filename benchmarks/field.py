"""Every method on the same tasks, its time, and the authors' public code beside it: the tables of docs/field.md.

    .venv/bin/python benchmarks/field.py --measure                           # accuracy and times, all methods
    .venv/bin/python benchmarks/field.py --measure accuracy --methods lp     # some rows again
    .venv/bin/python benchmarks/field.py --measure public --data FOLDER      # beside public code
    .venv/bin/python benchmarks/field.py                                     # the page from the records

Accuracy and times are on features of this repository: the bundled CUB set, and miniImageNet in ``trained/``. Public
code was run before, on tasks of features that are not part of the repository; ``public`` runs our methods on the same
tasks. FOLDER then holds features/cub_resnet12_{test,train}.npz and reference/{ref,dirichlet}_cub_{1,5}shot.npz.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from field_figure import figure
from study import CELLS, RECORDS, ROOT, SETS, Record, base, cell_name, episodes, fill, shown, table
from threadpoolctl import threadpool_limits

import a2lp
from a2lp.bench.protocol import Cell, make_method, saved_episodes
from a2lp.bench.run import run
from a2lp.bench.statistics import estimate
from a2lp.features import load_base
from a2lp.files import write_text
from a2lp.methods.base import Method

PUBLIC = ROOT / "benchmarks" / "public_code.json"
PAGE = ROOT / "docs" / "field.md"
README = ROOT / "README.md"
FIGURE = "field.svg"  # in docs/assets, and README's picture
WEIGHTS = ROOT / "trained" / "meta"  # heads for the network of the bundled CUB features
PARTS = ("accuracy", "times", "public")
FIRST = (50, 60, 100, 300, 400, 1000)  # numbers of tasks that public code was run on
BATCH = 100  # tasks at a time, as the public code had where it could
TIMED_SECONDS = 10.0  # of CPU time, at most


class Row(NamedTuple):
    """A method as it is set, and the row of the public code that it should agree with, for each sampler."""

    method: str
    params: dict[str, Any] = {}  # noqa: RUF012  never changed
    balanced: str | None = None
    dirichlet: str | None = None

    @property
    def label(self) -> str:
        return self.method + "".join(f", {name}={value}" for name, value in self.params.items())


COMPARED = [
    Row(method, {}, key, key)
    for method, key in {
        "simple_shot": "simpleshot_cl2n",
        "bd_cspn": "bdcspn_oveilleux",
        "laplacian_shot": "laplacianshot_rect_l0.7",
        "ep": "ep_l2",
        "ici": "lr_ici_step5",
        "pt_map": "ptmap_clamp",
        "ilpc": "ilpc_l2",
        "tim_gd": "tim_gd",
        "tim_adm": "tim_adm",
        "alpha_tim": "alpha_tim",
        "ease": "ease_siamese_power",
        "proto_lp": "protolp_full_power",
        "am": "am_plc",
        "alpha_am": "alpha_am_plc",
        "paddle": "paddle",
    }.items()
]
COMPARED += [
    Row("bavardage", {}, "bavardage_unb", "bavardage"),
    Row("bavardage", {"marginal": "uniform"}, "bavardage", None),
]
FURTHER = [
    Row("pt_map", {"preprocess": "bpa"}),
    Row("lp", {"preprocess": "whiten"}),
    Row("a2lp_em", {"preprocess": "whiten"}),
]
FURTHER += [Row("a2lp_em", {"marginal": "uniform"}), Row("a2lp_em", {"preprocess": "whiten", "marginal": "uniform"})]


def rows(names: list[str] | None = None) -> list[Row]:
    """Every registered method in its order, each with its variants."""
    known = [*COMPARED, *FURTHER]
    plain = {row.method for row in known if not row.params}
    order = list(a2lp.list_methods())
    every = [Row(name) for name in order if name not in plain] + known
    return sorted((r for r in every if names is None or r.method in names), key=lambda row: order.index(row.method))


def create(row: Row, name: str) -> Method | None:
    """The method of a row for a set; None where it is meta-trained for features of another network."""
    params = dict(row.params)
    if name == "cub" and (WEIGHTS / f"{row.method}.safetensors").exists():
        params["weights"] = str(WEIGHTS / f"{row.method}.safetensors")
    method = make_method(row.method, params, base(name))
    return None if getattr(method, "weights", "none needed") is None else method


def accuracy(row: Row, n_tasks: int) -> dict[str, Any]:
    """Mean accuracies of a row, and what the method assumes."""
    found: dict[str, Any] = {"cells": {}}
    for name in ("cub", "mini"):
        method = create(row, name)
        if method is None:
            continue
        found |= {"uniform": method.uniform, "uses_base": method.uses_base}
        for sampler, n_shot in CELLS:
            [record] = run([Cell(episodes(name, "test", sampler, n_shot, n_tasks), row.method, method)])
            found["cells"][f"{name} {cell_name(sampler, n_shot)}"] = record.accuracy._asdict()
    return found


def cpu_time(row: Row, n_tasks: int) -> dict[str, Any] | None:
    """Milliseconds of CPU time for a task, the median batch, on one core: two cores of a processor share its caches."""
    method, tasks = create(row, "cub"), episodes("cub", "test", "balanced", 1, n_tasks)
    if method is None:
        return None
    spent: list[float] = []
    done = 0
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        method.predict(tasks.tasks[:BATCH].batch(tasks.features.features))  # compiles, loads, gets memory
        while done < len(tasks.tasks) and sum(spent) < TIMED_SECONDS:
            batch = tasks.tasks[done : done + BATCH].batch(tasks.features.features)
            start = time.process_time()
            method.predict(batch)
            spent.append(time.process_time() - start)
            done += len(batch)
    finally:
        os.sched_setaffinity(0, cores)
    return {"ms": round(1000 * statistics.median(spent) / min(BATCH, len(tasks.tasks)), 4), "timed_tasks": done}


def beside_public_code(row: Row, folder: Path) -> dict[str, Any]:
    """Mean accuracies on the tasks that public code was run on, also over their first ones."""
    vectors = a2lp.load(folder / "features" / "cub_resnet12_test.npz")
    method = make_method(row.method, row.params, load_base(folder / "features" / "cub_resnet12_train.npz"))
    found: dict[str, Any] = {}
    for sampler, n_shot in CELLS:
        name = {"balanced": "ref", "dirichlet": "dirichlet"}[sampler]
        tasks = a2lp.TaskList.load(folder / "reference" / f"{name}_cub_{n_shot}shot.npz")
        [record] = run([Cell(saved_episodes(vectors, tasks), row.method, method)])
        first = {str(n): round(float(np.mean(record.accuracies[:n])), 4) for n in FIRST if n <= len(record.accuracies)}
        found[cell_name(sampler, n_shot)] = estimate(record.accuracies)._asdict() | {"first": first}
    return found


def table_of_accuracies(found: dict[str, Any], name: str) -> str:
    """The methods of one set, without base data and with; the highest mean of a column is bold."""
    keys = [f"{name} {cell_name(*cell)}" for cell in CELLS]
    parts = []
    for uses_base, title in ((False, "without base data"), (True, "with base data")):
        members = {label: row for label, row in found.items() if row.get("uses_base") is uses_base}
        members = {label: row for label, row in members.items() if set(keys) <= set(row["cells"])}
        best = {key: max((row["cells"][key]["mean"] for row in members.values()), default=0) for key in keys}

        def entry(cell: dict[str, float], highest: float) -> str:
            return f"**{shown(cell)}**" if cell["mean"] == highest else shown(cell)

        heads = [f"{SETS[name]}, {title}", "assumes", *(f"{sampler}, {n_shot}-shot" for sampler, n_shot in CELLS)]
        lines = [
            [label, "uniform" if row["uniform"] else "", *(entry(row["cells"][key], best[key]) for key in keys)]
            for label, row in members.items()
        ]
        parts.append(table(heads, lines, n_left=2))
    return "\n\n".join(filter(None, parts))


def readme(text: str, record: Record) -> str:
    """README with its small table: the methods of the paper on balanced tasks of the bundled CUB features."""
    found = record.named("accuracy")
    keys = ["cub balanced 1-shot", "cub balanced 5-shot"]
    rows = []
    for name in ("prototypical", "imprinting", "lp", "a2lp"):
        if name in found:
            cells = [shown(found[name]["cells"][key]) for key in keys]
            rows.append([f"**{name}**", *(f"**{cell}**" for cell in cells)] if name == "a2lp" else [name, *cells])
    return fill(text, "field", {"bench": table(["accuracy, %", "1-shot", "5-shot"], rows)})


def table_beside_public_code(ours: dict[str, Any], public: dict[str, Any]) -> str:
    """Ours on the tasks that public code was run on; in brackets the difference to it."""
    heads = ["earlier CUB features", *(f"{sampler}, {n_shot}-shot" for sampler, n_shot in CELLS)]
    lines = []
    for row in (row for row in rows() if row.label in ours):
        texts = []
        for sampler, n_shot in CELLS:
            cell = ours[row.label][cell_name(sampler, n_shot)]
            theirs = public.get(getattr(row, sampler), {}).get("accuracy", {}).get(f"{sampler}_{n_shot}shot")
            texts.append(shown(cell) + _difference(cell, theirs))
        lines.append([row.label, *texts])
    return table(heads, lines)


def _difference(cell: dict[str, Any], theirs: dict[str, Any] | None) -> str:
    """The difference to the public code's mean on the first tasks that both did, in brackets."""
    if theirs is None or str(theirs["n"]) not in cell["first"]:
        return ""
    few = f"; {theirs['n']} tasks" if theirs["n"] < 1000 else ""
    return f" ({cell['first'][str(theirs['n'])] - theirs['mean']:+.2f}{few})"


def table_of_times(times: dict[str, Any], public: dict[str, Any]) -> str:
    heads = ["CUB, balanced, 1-shot", "ms per task", "public code, batched", "public code, one by one", "speed-up"]
    lines = []
    for row in rows():
        ours, theirs = times.get(row.label), public.get(row.balanced or "", {})
        if ours is not None:
            batched, alone = (f"{theirs[key]:g}" if key in theirs else "" for key in ("ms_batched", "ms_one_by_one"))
            ratio = f"{theirs['ms_batched'] / ours['ms']:.1f} x" if batched else ""
            lines.append([row.label, f"{ours['ms']:.3g}", batched, alone, ratio])
    return table(heads, lines)


def page(text: str, record: Record, beside: Record) -> str:
    """The text of docs/field.md with its generated parts."""
    found = {row.label: record.result(f"accuracy {row.label}") for row in rows()}
    found = {label: row for label, row in found.items() if row is not None}
    public = json.loads(PUBLIC.read_text(encoding="utf-8"))["rows"]
    parts = {
        "tasks": f"{record.tasks('accuracy')}.",
        "cub": table_of_accuracies(found, "cub"),
        "mini": table_of_accuracies(found, "mini"),
        "public": table_beside_public_code(beside.named("public"), public),
        "times": table_of_times(record.named("times"), public),
        "provenance": record.provenance() if record.parts else "",
        "public provenance": beside.provenance() if beside.parts else "",
    }
    return fill(text, "field", parts)


def measure(record: Record, beside: Record, args: argparse.Namespace) -> Iterator[None]:
    for row in rows(args.methods.split(",") if args.methods else None):
        if "accuracy" in args.measure:
            record.measure(f"accuracy {row.label}", lambda row=row: accuracy(row, args.tasks), n_tasks=args.tasks)
        if "times" in args.measure:
            record.measure(f"times {row.label}", lambda row=row: cpu_time(row, args.tasks), n_tasks=args.tasks)
        if "public" in args.measure and row in COMPARED:
            beside.measure(f"public {row.label}", lambda row=row: beside_public_code(row, args.data))
        yield


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measure", nargs="*", choices=PARTS, help="accuracy and times by default")
    parser.add_argument("--methods", help="these alone, separated by commas")
    parser.add_argument("--tasks", type=int, default=1000)
    parser.add_argument("--data", type=Path, help="the folder of the tasks that public code was run on")
    parser.add_argument("--records", type=Path, default=RECORDS)
    parser.add_argument("--page", type=Path, default=PAGE)
    parser.add_argument("--readme", type=Path, default=README)
    args = parser.parse_args()
    record = Record(args.records / "field.json", "every method on tasks of the repository's features")
    beside = Record(args.records / "public_code.json", "our methods on the tasks that public code was run on")
    if args.measure is not None:
        args.measure = args.measure or ["accuracy", "times"]
        with contextlib.suppress(ImportError):  # only the meta-trained need it, and its threads are its own
            import torch

            torch.set_num_threads(1)
        with threadpool_limits(1):
            for _ in measure(record, beside, args):
                pass
    write_text(args.page, page(args.page.read_text(encoding="utf-8"), record, beside))
    write_text(args.readme, readme(args.readme.read_text(encoding="utf-8"), record))
    accuracies, times = record.named("accuracy"), record.named("times")
    if accuracies and times:  # without one of them, there is nothing to draw
        write_text(args.page.parent / "assets" / FIGURE, figure(accuracies, times))


if __name__ == "__main__":
    main()
