"""``a2lp_em``: its constants on validation classes, and beside other methods on novel ones; docs/a2lp_em.md.

    .venv/bin/python benchmarks/em_study.py --measure                        # all parts but the last
    .venv/bin/python benchmarks/em_study.py --measure speed                  # one part again
    .venv/bin/python benchmarks/em_study.py --measure public --data FOLDER   # beside public code's saved labels
    .venv/bin/python benchmarks/em_study.py                                  # the page and its figure from the record

Features are those of the repository: the bundled CUB set, and ``trained/``. Constants are varied one at a time on tasks
of validation classes; on novel classes the defaults alone are run. ``field`` compares with the library's methods that
neither use base data nor assume a uniform marginal, each with its own preprocessing and defaults. ``public`` is on
earlier CUB features that are not part of the repository, for which the labels of public code were saved.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
from em_tables import CURVES, FIELD, FORMS, RIVALS, figure, page
from study import CELLS, RECORDS, ROOT, SETS, Record, accuracies, base, cell_name, episodes

import a2lp
from a2lp.bench.protocol import Episodes, saved_episodes
from a2lp.bench.statistics import estimate, paired_difference
from a2lp.features import load_base
from a2lp.files import write_text
from a2lp.preprocess import whiten

PAGE = ROOT / "docs" / "a2lp_em.md"
FIGURE = ROOT / "docs" / "assets" / "a2lp_em.svg"
PARTS = ("validation", "test", "field", "speed", "public")
VALIDATION_SEED = 2026

VARIED: dict[str, dict[str, Any]] = {
    "as it is": {},
    "no rounds: label propagation": {"rounds": 0},
    "5 rounds": {"rounds": 5},
    "20 rounds": {"rounds": 20},
    "k = 10": {"n_neighbors": 10},
    "k = 30": {"n_neighbors": 30},
    "no graph (alpha = 0)": {"alpha": 0.0},
    "alpha = 0.8": {"alpha": 0.8},
}
PLAIN = VARIED | {
    "alpha = 0.4": {"alpha": 0.4},
    "gamma = 3": {"gamma": 3},
    "gamma = 24": {"gamma": 24},
    "temperature 10": {"temperature": 10.0},
    "temperature 20": {"temperature": 20.0},
    "temperature 50": {"temperature": 50.0},
    "prior 0.5 for all tasks": {"prior": 0.5},
    "prior 2 for all tasks": {"prior": 2.0},
    "prior 30 for all tasks": {"prior": 30.0},
    "shares of no weight (0)": {"share_weight": 0.0},
    "shares of weight 1.5": {"share_weight": 1.5},
}
WHITENED = VARIED | {
    "gamma = 2": {"gamma": 2},
    "gamma = 5": {"gamma": 5},
    "alpha = 0.6": {"alpha": 0.6},
    "temperature 25": {"temperature": 25.0},
    "temperature 100": {"temperature": 100.0},
    "prior 0.5": {"prior": 0.5},
    "prior 30": {"prior": 30.0},
    "shares of no weight (0)": {"share_weight": 0.0},
    "shares of weight 2": {"share_weight": 2.0},
}
UNIFORM = VARIED | {
    "gamma = 2": {"gamma": 2},
    "gamma = 5": {"gamma": 5},
    "alpha = 0.6": {"alpha": 0.6},
    "temperature 10": {"temperature": 10.0},
    "temperature 40": {"temperature": 40.0},
}
OTHER_FEATURES: dict[str, dict[str, Any]] = {
    "L2 alone": {"preprocess": "l2"},
    "signed roots in the place of rectified ones (plc)": {"preprocess": "plc"},
}
BASE_ALONE: dict[str, dict[str, Any]] = {"whitened by the base classes alone": {"local_whitening": False}}


def cells(form: str) -> list[tuple[str, int]]:
    """The kinds of tasks that a form is run on: a uniform marginal on balanced ones alone."""
    return [cell for cell in CELLS if not form.endswith("uniform") or cell[0] == "balanced"]


def right(form: str, tasks: Episodes, name: str, params: dict[str, Any] | None = None) -> list[float]:
    """Percent right of a form, with other parameters where they are given."""
    return accuracies("a2lp_em", FORMS[form] | (params or {}), tasks, base(name))


def ablate(form: str, n_tasks: int) -> dict[str, Any]:
    """Mean accuracies on validation classes: each constant by itself, and curves."""
    tasks = {
        f"{name} {cell_name(*cell)}": (name, episodes(name, "val", *cell, n_tasks, VALIDATION_SEED))
        for name in SETS
        for cell in cells(form)
    }

    def means(params: dict[str, Any]) -> list[float]:
        return [float(np.mean(right(form, drawn, name, params))) for name, drawn in tasks.values()]

    variants = UNIFORM if form.endswith("uniform") else WHITENED if form.startswith("whitened") else PLAIN
    variants = variants | (BASE_ALONE if form.startswith("whitened") else OTHER_FEATURES)
    return {
        "cells": list(tasks),
        "rows": {words: means(params) for words, params in variants.items()},
        "curves": {
            name: {"values": values, "means": [float(np.mean(means({name: value}))) for value in values]}
            for name, values in CURVES.items()
        },
    }


def on_novel_classes(name: str, n_tasks: int) -> dict[str, Any]:
    """The defaults of every form on the tasks of a set's novel classes."""
    return {
        form: {
            cell_name(*cell): estimate(right(form, episodes(name, "test", *cell, n_tasks), name))._asdict()
            for cell in cells(form)
        }
        for form in FORMS
    }


def beside_the_field(name: str, n_tasks: int) -> dict[str, Any]:
    """The defaults without base data beside the library's methods of the same kind, on the same tasks."""
    found: dict[str, Any] = {}
    for cell in CELLS:
        tasks = episodes(name, "test", *cell, n_tasks)
        ours = right(next(iter(FORMS)), tasks, name)
        found[cell_name(*cell)] = {"ours": estimate(ours)._asdict(), "tasks": n_tasks, "rivals": {}}
        for rival, most in FIELD.items():
            theirs = accuracies(rival, {}, Episodes(tasks.features, tasks.tasks[: min(most, n_tasks)]))
            found[cell_name(*cell)]["rivals"][rival] = against(ours, theirs)
    return found


def against(ours: list[float], theirs: list[float]) -> dict[str, Any]:
    """A rival's accuracy and our paired difference to it, on the first tasks that both did."""
    difference = paired_difference(ours[: len(theirs)], theirs)
    return {"tasks": len(theirs), "theirs": estimate(theirs)._asdict(), "difference": difference._asdict()}


def speed(n_tasks: int) -> dict[str, Any]:
    """Seconds for one-shot tasks: the best of five, of the wall and of all cores together."""
    tasks, statistics = episodes("cub", "test", "balanced", 1, n_tasks), base("cub")
    vectors = tasks.features.features.astype(np.float32)
    whitened = whiten(vectors, statistics.mean, statistics.whitening)
    forms: dict[str, tuple[Any, dict[str, Any]]] = {
        "without base data": (vectors, {"preprocess": "none"}),
        "whitened before": (whitened, {"preprocess": "l2", "local_whitening": True}),
        "whitened by the method": (vectors, {"preprocess": "whiten", "base": statistics}),
    }
    found = {}
    for form, (x, params) in forms.items():
        batch = tasks.tasks.batch(x)
        for marginal in ("estimated", "uniform"):
            method = a2lp.create("a2lp_em", marginal=marginal, **params)
            method.predict(batch[:2])
            times = []
            for _ in range(5):
                began, cpu = time.perf_counter(), time.process_time()
                method.predict(batch)
                times.append((time.perf_counter() - began, time.process_time() - cpu))
            found[f"{form}, marginal {marginal}"] = {"wall": min(t[0] for t in times), "cpu": min(t[1] for t in times)}
    return found


def beside_public_code(folder: Path) -> dict[str, Any]:
    """The defaults on the tasks of earlier CUB features, and paired differences to public code's labels on them."""
    vectors = a2lp.load(folder / "features" / "cub_resnet12_test.npz")
    statistics = load_base(folder / "features" / "cub_resnet12_train.npz")
    found: dict[str, Any] = {}
    for form, rivals in RIVALS.items():
        for sampler, n_shot in cells(form):
            name = f"{'ref' if sampler == 'balanced' else sampler}_cub_{n_shot}shot.npz"
            tasks = saved_episodes(vectors, a2lp.TaskList.load(folder / "reference" / name))
            ours = accuracies("a2lp_em", FORMS[form], tasks, statistics)
            cell: dict[str, Any] = {"ours": estimate(ours)._asdict(), "tasks": len(ours), "rivals": {}}
            for rival in rivals:
                path = folder / "reference" / "public" / f"{rival}_{name}"
                if path.exists():
                    labels = np.load(path)["pred"]
                    theirs = (100 * (labels == tasks.tasks.query_labels[: len(labels)]).mean(axis=1)).tolist()
                    cell["rivals"][rival] = against(ours, theirs)
            found.setdefault(form, {})[cell_name(sampler, n_shot)] = cell
    return found


def measure(record: Record, parts: list[str], n_tasks: int, data: Path | None) -> None:
    few = min(300, n_tasks)
    for form in FORMS if "validation" in parts else ():
        record.measure(f"validation {form}", lambda form=form: ablate(form, few), n_tasks=few)
    for name in SETS:
        if "test" in parts:
            record.measure(f"test {name}", lambda name=name: on_novel_classes(name, n_tasks), n_tasks=n_tasks)
        if "field" in parts:
            record.measure(f"field {name}", lambda name=name: beside_the_field(name, n_tasks), n_tasks=n_tasks)
    if "speed" in parts:
        record.measure("speed", lambda: speed(n_tasks), n_tasks=n_tasks)
    if "public" in parts:
        if data is None:
            raise SystemExit("public needs --data FOLDER, with the earlier CUB features and the saved labels.")
        record.measure("public", lambda: beside_public_code(data))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measure", nargs="*", choices=PARTS, help="all but public by default")
    parser.add_argument("--tasks", type=int, default=1000)
    parser.add_argument("--data", type=Path, help="the folder of earlier features, tasks and labels, for public")
    parser.add_argument("--commit", metavar="HASH", help="the commit of the code, on a machine without a checkout")
    parser.add_argument("--record", type=Path, default=RECORDS / "em_study.json")
    args = parser.parse_args()
    record = Record(args.record, "a2lp_em: constants on validation classes, and beside others", args.commit)
    if args.measure is not None:
        measure(record, args.measure or list(PARTS[:-1]), args.tasks, args.data)
    if args.record == RECORDS / "em_study.json":
        write_text(PAGE, page(PAGE.read_text(encoding="utf-8"), record))
        curves = {form: found["curves"] for form, found in record.named("validation").items()}
        if curves:
            write_text(FIGURE, figure(curves))


if __name__ == "__main__":
    main()
