"""``a2lp_em``: its constants on validation classes, and beside others on tasks of novel ones.

    .venv/bin/python benchmarks/em_study.py --data FOLDER      # runs everything, keeps records/em_study.json
    .venv/bin/python benchmarks/em_study.py --data FOLDER --only speed
    .venv/bin/python benchmarks/em_study.py                    # docs/a2lp_em.md and its figure from the record

FOLDER holds ``features/`` and ``reference/`` (saved tasks, and in ``reference/public`` the labels that others' public
code gave on them); CIFAR-FS, of which there are no saved tasks, is in ``trained/``. Constants are varied one at a time
on tasks drawn from validation classes; the novel classes are looked at with the defaults alone. ``field`` is the
library's own methods that neither use base data nor assume a uniform marginal, each with its own preprocessing and
defaults.
"""

from __future__ import annotations

import argparse
import io
import json
import re
import time
from pathlib import Path
from typing import Any

import numpy as np

import a2lp
from a2lp.bench.records import write_text
from a2lp.bench.statistics import estimate, paired_difference
from a2lp.environment import stamp
from a2lp.features import load, load_base
from a2lp.preprocess import whiten
from a2lp.tasks import samplers

ROOT = Path(__file__).resolve().parents[1]
RECORD = ROOT / "benchmarks" / "records" / "em_study.json"
PAGE = ROOT / "docs" / "a2lp_em.md"
FIGURE = ROOT / "docs" / "assets" / "a2lp_em.svg"
Array = np.ndarray[Any, Any]

SETS = {
    "CUB": ("cub_resnet12", "cub_resnet12_train"),
    "CIFAR-FS": ("cifar_fs_resnet12", "cifar_fs_resnet12_train_base"),
    "miniImageNet": ("mini_resnet12", "mini_resnet12_base"),
}
SAVED = {"CUB": "cub", "miniImageNet": "mini"}
CIFAR_FS = ROOT / "trained" / "cifar_fs_resnet12"
FORMS = ("without base data", "whitened")
CELLS = [("balanced", 1), ("dirichlet", 1), ("balanced", 5), ("dirichlet", 5)]
FILES = {"balanced": "ref", "dirichlet": "dirichlet"}
VALIDATION_TASKS = 300
NOVEL_TASKS = 1000

COMMON: dict[str, dict[str, Any]] = {
    "as it is": {},
    "no rounds: label propagation": {"rounds": 0},
    "5 rounds": {"rounds": 5},
    "20 rounds": {"rounds": 20},
    "k = 10": {"n_neighbors": 10},
    "k = 30": {"n_neighbors": 30},
    "gamma = 2": {"gamma": 2},
    "gamma = 5": {"gamma": 5},
}
ESTIMATED = COMMON | {
    "no graph (alpha = 0)": {"alpha": 0.0},
    "alpha = 0.4": {"alpha": 0.4},
    "alpha = 0.6": {"alpha": 0.6},
    "alpha = 0.8": {"alpha": 0.8},
    "temperature 25": {"temperature": 25.0},
    "temperature 100": {"temperature": 100.0},
    "prior 0.5": {"prior": 0.5},
    "prior 30": {"prior": 30.0},
    "shares of no weight (0)": {"share_weight": 0.0},
    "shares of weight 1": {"share_weight": 1.0},
    "shares of weight 2": {"share_weight": 2.0},
    "shares of weight 3": {"share_weight": 3.0},
}
UNIFORM = COMMON | {
    "no graph (alpha = 0)": {"alpha": 0.0},
    "alpha = 0.6": {"alpha": 0.6},
    "alpha = 0.8": {"alpha": 0.8},
    "temperature 10": {"temperature": 10.0},
    "temperature 40": {"temperature": 40.0},
}
OTHER_FEATURES = {
    "L2 alone": {"preprocess": "l2"},
    "signed roots in the place of rectified ones (plc)": {"preprocess": "plc"},
}
# they come whitened, which the method is not told then
OTHER_SPREAD = {
    "estimated": {"whitened by the base classes alone": {"local_whitening": False, "alpha": 0.8, "share_weight": 1.0}},
    "uniform": {"whitened by the base classes alone": {"local_whitening": False}},
}
CURVES = {"rounds": [0, 1, 2, 3, 4, 5, 7, 10, 15, 20], "temperature": [10, 15, 20, 30, 40, 50, 70, 100, 150, 200]}

# public code's labels: name of the file, what to call it
RIVALS = {
    "without base data, marginal estimated": {
        "alpha_tim": "α-TIM",
        "alpha_am_plc": "α-AM",
        "lr_ici_step5": "LR+ICI",
        "laplacianshot_rect_l0.7": "LaplacianShot (uses the base mean)",
        "bdcspn_oveilleux": "BD-CSPN (uses the base mean)",
        "ep_l2": "EP + LP",
    },
    "without base data, marginal uniform": {
        "ease_siamese_power": "EASE + SIAMESE",
        "protolp_full_res12": "protoLP, its script without powers",
        "ptmap_clamp": "PT-MAP",
        "ilpc_l2": "iLPC",
        "am_plc": "AM",
        "tim_adm": "TIM-ADM",
    },
    "whitened, marginal estimated": {
        "bavardage": "BAVARDAGE, told when tasks are balanced",
        "bavardage_unb": "BAVARDAGE, never told",
    },
    "whitened, marginal uniform": {"bavardage": "BAVARDAGE, told that tasks are balanced"},
}


# the library's methods without base data that do not assume a uniform marginal, and of how many tasks a cell
FIELD = {
    "prototypical": 1000,
    "imprinting": 1000,
    "soft_kmeans": 1000,
    "lp": 1000,
    "tpn": 1000,
    "ep": 1000,
    "top_k": 1000,
    "paddle": 1000,
    "a2lp": 300,
    "ici": 300,
    "alpha_tim": 300,
    "alpha_am": 100,
}


class Features:
    """The vectors of one split, raw and whitened."""

    def __init__(self, folder: Path, name: str, split: str) -> None:
        stem, base_name = SETS[name]
        place = CIFAR_FS if name == "CIFAR-FS" else folder / "features"
        found = load(place / f"{stem}_{split}.npz")
        self.base = base = load_base(place / f"{base_name}.npz")
        assert found.labels is not None
        self.name, self.labels = name, found.labels
        self.raw = found.features.astype(np.float32)
        self.whitened = whiten(self.raw, base.mean, base.whitening)

    def drawn(self, sampler: str, n_shot: int, n_tasks: int = VALIDATION_TASKS) -> tuple[Array, Array, Array, Array]:
        """Rows of support and queries of tasks, and their labels."""
        n_query = 15 if sampler == "balanced" else 75
        draw = getattr(samplers, sampler)
        rng = np.random.default_rng(2026)
        tasks = draw(self.labels, n_way=5, n_shot=n_shot, n_query=n_query, n_tasks=n_tasks, rng=rng)
        return tasks.support, self.labels[tasks.support], tasks.query, self.labels[tasks.query]

    def saved(self, folder: Path, sampler: str, n_shot: int) -> tuple[Array, Array, Array, Array]:
        """The same of saved tasks; drawn where there are none."""
        if self.name not in SAVED:
            return self.drawn(sampler, n_shot, NOVEL_TASKS)
        with np.load(folder / "reference" / f"{FILES[sampler]}_{SAVED[self.name]}_{n_shot}shot.npz") as tasks:
            return tasks["support"], tasks["support_labels"], tasks["query"], tasks["query_labels"]


def accuracies(features: Features, tasks: tuple[Array, Array, Array, Array], form: str, **params: Any) -> list[float]:
    """Percent right in each task; form: "without base data" or "whitened"."""
    x = features.whitened if form == "whitened" else features.raw
    if form == "whitened":
        params = {"preprocess": "l2", "local_whitening": True} | params  # they are of unit length already
    return right(a2lp.create("a2lp_em", **params), x, tasks, len(tasks[0]))


def right(method: a2lp.Method, x: Array, tasks: tuple[Array, Array, Array, Array], n: int) -> list[float]:
    """Percent right in each of the first n tasks."""
    support, support_labels, query, query_labels = (a[:n] for a in tasks)
    found = []
    for start in range(0, n, 100):
        part = slice(start, start + 100)
        batch = a2lp.TaskBatch(x[support[part]], support_labels[part], x[query[part]])
        found += (100 * (method.predict(batch).labels == query_labels[part]).mean(axis=1)).tolist()
    return found


def ablate(folder: Path) -> dict[str, Any]:
    """Mean accuracies on validation classes: each constant by itself, and curves."""
    tables: dict[str, Any] = {}
    curves: dict[str, Any] = {}
    splits = [Features(folder, name, "val") for name in SETS]
    for form in FORMS:
        for marginal in ("estimated", "uniform"):
            cells = [c for c in CELLS if marginal == "estimated" or c[0] == "balanced"]
            tasks = [(split, split.drawn(*cell)) for split in splits for cell in cells]

            def row(tasks: Any = tasks, form: str = form, **params: Any) -> list[float]:
                return [float(np.mean(accuracies(split, drawn, form, **params))) for split, drawn in tasks]

            key = f"{form}, marginal {marginal}"
            variants = ESTIMATED if marginal == "estimated" else UNIFORM
            variants = variants | (OTHER_FEATURES if form == "without base data" else OTHER_SPREAD[marginal])
            tables[key] = {
                "cells": [f"{split.name} {sampler} {shot}-shot" for split in splits for sampler, shot in cells],
                "rows": {name: row(marginal=marginal, **params) for name, params in variants.items()},
            }
            curves[key] = {
                name: {"values": values, "means": [float(np.mean(row(marginal=marginal, **{name: v}))) for v in values]}
                for name, values in CURVES.items()
            }
            print(
                key,
                {name: round(float(np.mean(values)), 2) for name, values in tables[key]["rows"].items()},
                flush=True,
            )
    return {"tables": tables, "curves": curves}


def compare(folder: Path) -> dict[str, Any]:
    """The defaults on the novel classes, and paired differences to others where their labels are saved."""
    found: dict[str, Any] = {}
    for name in SETS:
        split = Features(folder, name, "test")
        for key, rivals in RIVALS.items():
            form, marginal = key.split(", marginal ")
            for sampler, n_shot in CELLS:
                if marginal == "uniform" and sampler != "balanced":
                    continue
                tasks = split.saved(folder, sampler, n_shot)
                ours = accuracies(split, tasks, form, marginal=marginal)
                cell: dict[str, Any] = {"ours": estimate(ours)._asdict(), "tasks": len(ours), "rivals": {}}
                for file in rivals if name == "CUB" else ():
                    path = folder / "reference" / "public" / f"{file}_{FILES[sampler]}_cub_{n_shot}shot.npz"
                    if path.exists():
                        labels = np.load(path)["pred"]
                        theirs = (100 * (labels == tasks[3][: len(labels)]).mean(axis=1)).tolist()
                        cell["rivals"][file] = {
                            "tasks": len(theirs),
                            "theirs": estimate(theirs)._asdict(),
                            "difference": paired_difference(ours[: len(theirs)], theirs)._asdict(),
                        }
                found.setdefault(key, {})[f"{name} {sampler} {n_shot}-shot"] = cell
                print(key, name, sampler, n_shot, cell["ours"], flush=True)
    return found


def field(folder: Path) -> dict[str, Any]:
    """The defaults beside the library's own methods of the same kind, on the same tasks of novel classes."""
    found: dict[str, Any] = {}
    for name in SETS:
        split = Features(folder, name, "test")
        for sampler, n_shot in CELLS:
            tasks = split.saved(folder, sampler, n_shot)
            ours = accuracies(split, tasks, FORMS[0])
            cell: dict[str, Any] = {"ours": estimate(ours)._asdict(), "tasks": len(ours), "rivals": {}}
            for rival, n in FIELD.items():
                theirs = right(a2lp.create(rival), split.raw, tasks, n)
                cell["rivals"][rival] = {
                    "tasks": n,
                    "theirs": estimate(theirs)._asdict(),
                    "difference": paired_difference(ours[:n], theirs)._asdict(),
                }
            found[f"{name} {sampler} {n_shot}-shot"] = cell
            print(name, sampler, n_shot, {r: round(v["difference"]["mean"], 2) for r, v in cell["rivals"].items()})
    return found


def measure(folder: Path) -> dict[str, Any]:
    """Seconds of 1000 one-shot tasks: the best of five, of the wall and of all cores together."""
    split = Features(folder, "CUB", "test")
    support, labels, query, _ = split.saved(folder, "balanced", 1)
    found = {}
    forms: dict[str, tuple[Array, dict[str, Any]]] = {
        "without base data": (split.raw, {"preprocess": "none"}),
        "whitened before": (split.whitened, {"preprocess": "l2", "local_whitening": True}),
        "whitened by the method": (split.raw, {"preprocess": "whiten", "base": split.base}),
    }
    for form, (x, params) in forms.items():
        batch = a2lp.TaskBatch(x[support], labels, x[query])
        for marginal in ("estimated", "uniform"):
            method = a2lp.create("a2lp_em", marginal=marginal, **params)
            method.predict(batch[:2])
            times = []
            for _ in range(5):
                began, cpu = time.perf_counter(), time.process_time()
                method.predict(batch)
                times.append((time.perf_counter() - began, time.process_time() - cpu))
            found[f"{form}, marginal {marginal}"] = {"wall": min(t[0] for t in times), "cpu": min(t[1] for t in times)}
    print(found)
    return found


def heading(cell: str) -> str:
    name, sampler, shot = cell.split(" ")
    return f"{name} {shot} {'Dirichlet' if sampler == 'dirichlet' else 'balanced'}"


def ablation_table(table: dict[str, Any]) -> str:
    lines = ["| | " + " | ".join(heading(cell) for cell in table["cells"]) + " | mean |"]
    lines.append("| --- |" + " --- |" * (len(table["cells"]) + 1))
    best = max(np.mean(values) for values in table["rows"].values())
    for name, values in table["rows"].items():
        mean = float(np.mean(values))
        shown = f"**{mean:.2f}**" if mean == best else f"{mean:.2f}"
        lines.append(f"| {name} | " + " | ".join(f"{v:.1f}" for v in values) + f" | {shown} |")
    return "\n".join(lines)


def comparison_table(cells: dict[str, Any], rivals: dict[str, str]) -> str:
    mine = {cell: found for cell, found in cells.items() if cell.startswith("CUB")}
    lines = ["| | " + " | ".join(heading(cell) for cell in mine) + " |", "| --- |" + " --- |" * len(mine)]
    ours = [f"{found['ours']['mean']:.2f} ±{found['ours']['ci95']:.2f}" for found in mine.values()]
    lines.append("| `a2lp_em` | " + " | ".join(ours) + " |")
    for file, name in rivals.items():
        row = []
        for found in mine.values():
            other = found["rivals"].get(file)
            if other is None:
                row.append("–")
                continue
            few = "" if other["tasks"] == found["tasks"] else f" (first {other['tasks']})"
            d = other["difference"]
            row.append(f"{other['theirs']['mean']:.2f}{few}: {d['mean']:+.2f} ±{d['ci95']:.2f}")
        lines.append(f"| {name} | " + " | ".join(row) + " |")
    return "\n".join(lines)


def field_summary(cells: dict[str, Any]) -> str:
    """For each cell the rival that comes nearest, by the paired difference."""
    lines = ["| | `a2lp_em` | nearest of the others | its accuracy | difference |", "| --- | --- | --- | --- | --- |"]
    above = clearly = 0
    for cell, found in cells.items():
        name, other = min(found["rivals"].items(), key=lambda item: item[1]["difference"]["mean"])
        d = other["difference"]
        above += d["mean"] > 0
        clearly += d["mean"] > d["ci95"]
        few = "" if other["tasks"] == found["tasks"] else f" (first {other['tasks']})"
        ours = f"{found['ours']['mean']:.2f} ±{found['ours']['ci95']:.2f}"
        shown = f"{d['mean']:+.2f} ±{d['ci95']:.2f}"
        lines.append(f"| {heading(cell)} | {ours} | `{name}`{few} | {other['theirs']['mean']:.2f} | {shown} |")
    count = f"Above every one of them in {above} of {len(cells)} cells, by more than the 95 % interval in {clearly}."
    return "\n".join(lines) + "\n\n" + count


def field_table(cells: dict[str, Any]) -> str:
    lines = [
        "| | tasks | " + " | ".join(heading(cell) for cell in cells) + " |",
        "| --- |" + " --- |" * (len(cells) + 1),
    ]
    for rival in FIELD:
        others = [found["rivals"][rival] for found in cells.values()]
        row = " | ".join(f"{other['difference']['mean']:+.2f}" for other in others)
        lines.append(f"| `{rival}` | {others[0]['tasks']} | {row} |")
    return "\n".join(lines)


def overview(found: dict[str, Any]) -> str:
    cells = list(next(iter(found.values())))
    lines = ["| | " + " | ".join(heading(cell) for cell in cells) + " |", "| --- |" + " --- |" * len(cells)]
    for key, values in found.items():
        row = [
            f"{values[c]['ours']['mean']:.2f} ±{values[c]['ours']['ci95']:.2f}" if c in values else "–" for c in cells
        ]
        lines.append(f"| {key} | " + " | ".join(row) + " |")
    return "\n".join(lines)


def speed(record: dict[str, Any]) -> str:
    lines = ["| | seconds | seconds of all cores together |", "| --- | --- | --- |"]
    lines += [f"| {key} | {t['wall']:.2f} | {t['cpu']:.2f} |" for key, t in record["speed"].items()]
    machine = record["hardware"]
    return "\n".join(lines) + f"\n\n({machine['cpu']}, {machine['cores']} cores.)"


def figure(curves: dict[str, Any]) -> str:
    """Validation accuracy against the number of rounds and against the temperature."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    style = {"font.size": 9, "axes.spines.top": False, "axes.spines.right": False}
    style |= {"svg.hashsalt": "a2lp", "svg.fonttype": "none"}
    colours = ["#0072B2", "#56B4E9", "#D55E00", "#E69F00"]
    text = io.StringIO()
    with mpl.rc_context(style):
        picture = Figure(figsize=(10.2, 3.0), layout="constrained")
        for axes, name in zip(picture.subplots(1, 2, sharey=True), CURVES, strict=True):
            for colour, (key, lines) in zip(colours, curves.items(), strict=True):
                axes.plot(lines[name]["values"], lines[name]["means"], "o-", ms=3, lw=1, color=colour, label=key)
            axes.set_xlabel(name)
            if name == "temperature":
                axes.set_xscale("log")
                axes.set_xticks([10, 20, 50, 100, 200], ["10", "20", "50", "100", "200"])
                axes.minorticks_off()
        picture.axes[0].set_ylabel("mean accuracy, %")
        picture.axes[0].legend(fontsize=7, frameon=False)
        picture.savefig(text, format="svg", metadata={"Date": None})
    return text.getvalue()


def fill(text: str, record: dict[str, Any]) -> str:
    """The text of the page with its marked parts as the record has them."""
    parts = {f"ablation: {key}": ablation_table(table) for key, table in record["validation"]["tables"].items()}
    parts |= {f"test: {key}": comparison_table(cells, RIVALS[key]) for key, cells in record["test"].items()}
    parts |= {"overview": overview(record["test"]), "speed": speed(record)}
    parts |= {"field summary": field_summary(record["field"]), "field": field_table(record["field"])}
    marked = re.compile(r"<!-- em_study (.*?) -->\n.*?<!-- end -->", re.DOTALL)
    return marked.sub(lambda match: f"<!-- em_study {match[1]} -->\n\n{parts[match[1]]}\n\n<!-- end -->", text)


def main() -> None:
    parts = {"validation": ablate, "test": compare, "field": field, "speed": measure}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="run again with this folder of features and saved tasks")
    parser.add_argument("--only", nargs="+", choices=parts, default=list(parts), help="these parts alone")
    args = parser.parse_args()
    record = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {}
    if args.data is not None:
        record |= {name: parts[name](args.data) for name in args.only}
        record |= {
            "what": __doc__.splitlines()[0],
            "validation_tasks": VALIDATION_TASKS,
        } | stamp()
        write_text(RECORD, json.dumps(record, indent=1) + "\n")
    write_text(PAGE, fill(PAGE.read_text(encoding="utf-8"), record))
    write_text(FIGURE, figure(record["validation"]["curves"]))


if __name__ == "__main__":
    main()
