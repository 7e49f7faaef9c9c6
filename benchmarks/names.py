"""Methods that use class names, on pools of WHU-RS19 vectors: accuracy, and agreement with their public code.

    .venv/bin/python benchmarks/names.py --data FOLDER                      # measures, then fills docs/names.md
    .venv/bin/python benchmarks/names.py --data FOLDER --methods zlap       # some of the rows only
    .venv/bin/python benchmarks/names.py                                    # the page from the record

FOLDER holds the vectors of images and names of three encoders, the pools, and the labels that the public code of each
method gave; it is not part of the repository.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from study import RECORDS, ROOT, Record, fill, table

import a2lp
from a2lp.files import write_text
from a2lp.preprocess import l2

PAGE = ROOT / "docs" / "names.md"
ENCODERS = ("clip_vit_b_32", "clip_vit_l_14", "remoteclip_vit_b_32")
KINDS = {
    "all": "all 19", "k8": "8 of 19", "k4": "4 of 19", "k2": "2 of 19", "skew": "skewed",
    "fs1": "1 shot", "fs4": "4 shots", "fs4e5": "4 shots, 5 occur",
}  # fmt: skip
NO_SHOTS = ("all", "k8", "k4", "k2", "skew")
GAMMAS = (0.002, 0.01, 0.02, 0.2)  # of TransCLIP with shots, chosen on further labelled images

POOL = "pool"  # the default of a2lp.label and a2lp classify, which is no method of tasks

# row of the tables: method, parameters, the file of the public code's labels
ROWS: dict[str, tuple[str, dict[str, Any], str | None]] = {
    "zero_shot": ("zero_shot", {}, "zeroshot"),
    "trans_clip": ("trans_clip", {}, "transclip"),
    "trans_clip, start text": ("trans_clip", {"start": "text"}, "transclip-textinit"),
    "stat_a": ("stat_a", {}, "stata"),
    "zlap": ("zlap", {}, "zlap"),
    "ecalp": ("ecalp", {}, "ecalp-final"),
    "ecalp, online": ("ecalp", {"online": True}, "ecalp"),
    "em_dirichlet": ("em_dirichlet", {}, "emdirichlet"),
    "em_dirichlet, hard": ("em_dirichlet", {"hard": True}, "hardemdirichlet"),
    "a2lp_em": ("a2lp_em", {}, None),
    "a2lp_em, names alone": ("a2lp_em", {}, None),
    "a2lp_em, shots alone": ("a2lp_em", {}, None),
    "a2lp classify": (POOL, {}, None),
    "a2lp classify, names alone": (POOL, {}, None),
    "a2lp classify, labels alone": (POOL, {}, None),
}


class Pools:
    """The pools with the vectors of one encoder."""

    def __init__(self, folder: Path, encoder: str) -> None:
        found, self.rows = np.load(folder / f"whu_rs19_{encoder}.npz"), np.load(folder / "pools_whu_rs19.npz")
        self.vectors, self.text = (l2(found[name].astype(np.float32)) for name in ("features", "text"))
        self.labels = found["labels"].astype(np.int64)
        self.runs = [name for name in self.rows if name != "labels" and not name.endswith(("_support", "_val"))]

    def task(self, run: str, *, named: bool = True, labelled: bool = True) -> a2lp.TaskBatch:
        """One pool as a task; without shots the support is empty."""
        support = self.rows[f"{run}_support"] if has_shots(run) and labelled else np.zeros(0, np.int64)
        names = {"prototypes": self.text, "classes": np.arange(len(self.text))} if named else {}
        arrays = self.vectors[support][None], self.labels[support][None], self.vectors[self.rows[run]][None]
        return a2lp.TaskBatch(*arrays, **names)

    def truth(self, run: str) -> Any:
        return self.labels[self.rows[run]]


def has_shots(run: str) -> bool:
    return run.startswith("fs")


def labels_of(row: str, pools: Pools, run: str) -> Any:
    """The labels of one row of the tables for one pool."""
    name, params, _ = ROWS[row]
    if name == POOL:
        return pool_labels(row, pools, run)
    if name == "em_dirichlet" and has_shots(run):  # as its authors do, although nobody would know
        params = params | {"k_eff": len(np.unique(pools.truth(run)))}
    task = pools.task(run, named=not row.endswith("shots alone"), labelled=not row.endswith("names alone"))
    if name != "trans_clip" or not has_shots(run):
        return a2lp.create(name, **params).predict(task).labels[0]
    extra = pools.rows[f"{run}_val"]
    nearest = (pools.vectors[extra] @ pools.vectors[pools.rows[run]].T).argmax(axis=1)
    tried = [a2lp.create(name, gamma=gamma, **params).predict(task).labels[0] for gamma in GAMMAS]
    return max(tried, key=lambda found: float((found[nearest] == pools.labels[extra]).mean()))  # the first of the best


def pool_labels(row: str, pools: Pools, run: str) -> Any:
    """The labels that a pool of the queries and the shots gives the queries."""
    support = pools.rows[f"{run}_support"] if has_shots(run) else np.zeros(0, np.int64)
    rows = np.concatenate([support, pools.rows[run]])
    labels = np.where(np.arange(len(rows)) < len(support), pools.labels[rows], -1)
    if row.endswith("names alone"):
        labels[:] = -1
    names = {} if row.endswith("labels alone") else {"prototypes": pools.text, "classes": np.arange(len(pools.text))}
    return a2lp.Pool(pools.vectors[rows], labels, **names).answer.labels[len(support) :]


def measure(folder: Path, row: str, encoder: str) -> dict[str, Any]:
    """Accuracy and agreement for every pool, in percent."""
    pools, reference = Pools(folder, encoder), ROWS[row][2]
    theirs = None if reference is None else np.load(folder / f"{reference}_whu_rs19_{encoder}.npz")
    runs = [run for run in pools.runs if theirs is None or run in theirs]
    if row.endswith(" alone"):
        runs = [run for run in runs if has_shots(run)]
    found: dict[str, Any] = {"accuracy": {}, "agreement": {}, "their accuracy": {}}
    for run in runs:
        labels, truth = labels_of(row, pools, run), pools.truth(run)
        found["accuracy"][run] = percent(labels == truth)
        if theirs is not None:
            found["agreement"][run] = percent(labels == theirs[run])
            found["their accuracy"][run] = percent(theirs[run] == truth)
    return found


def percent(right: Any) -> float:
    return round(100 * float(np.mean(right)), 3)


def by_kind(record: Record, row: str, what: str) -> dict[str, list[float]]:
    """The values of all encoders and pools of each kind."""
    kinds: dict[str, list[float]] = {}
    for encoder in ENCODERS:
        values = (record.result(f"{row}: {encoder}") or {what: {}})[what]
        for run, value in values.items():
            kinds.setdefault(run.split("_")[0], []).append(value)
    return kinds


def page(text: str, record: Record) -> str:
    """The text of docs/names.md with its tables."""

    def rows(what: str, shown: Callable[[list[float]], str]) -> list[list[str]]:
        found = {row: by_kind(record, row, what) for row in ROWS}
        return [[row, *(shown(kinds[k]) if k in kinds else "" for k in KINDS)] for row, kinds in found.items() if kinds]

    accuracy = rows("accuracy", lambda values: f"{np.mean(values):.1f}")
    for line, row in zip(accuracy, (line[0] for line in accuracy), strict=True):
        kinds = by_kind(record, row, "accuracy")
        line.append(f"{np.mean([np.mean(kinds[k]) for k in NO_SHOTS]):.1f}" if set(NO_SHOTS) <= set(kinds) else "")
    agreement = rows("agreement", lambda values: f"{np.mean(values):.2f} ({np.min(values):.1f})")
    theirs = rows("their accuracy", lambda values: f"{np.mean(values):.1f}")
    encoders = []
    for encoder in ENCODERS:
        found = (record.result(f"a2lp_em: {encoder}") or {"accuracy": {}})["accuracy"]
        means = {k: np.mean([v for run, v in found.items() if run.split("_")[0] == k]) for k in KINDS if found}
        encoders += [[encoder, *(f"{means[k]:.1f}" for k in KINDS)]] if means else []
    heads = list(KINDS.values())
    parts = {
        "accuracy": table(["accuracy, %", *heads, "mean without shots"], accuracy),
        "agreement": table(["same labels, %", *heads], agreement),
        "theirs": table(["accuracy of the public code, %", *heads], theirs),
        "encoders": table(["a2lp_em, accuracy, %", *heads], encoders),
        "provenance": record.provenance() if record.parts else "",
    }
    return fill(text, "names", parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="vectors, pools and the public code's labels")
    parser.add_argument("--methods", help="rows to measure, separated by semicolons; all by default")
    args = parser.parse_args()
    record = Record(RECORDS / "names.json", "methods with class names on pools of WHU-RS19, beside their public code")
    chosen = list(ROWS) if args.methods is None else [row.strip() for row in args.methods.split(";")]
    for row in chosen if args.data is not None else ():
        for encoder in ENCODERS:
            record.measure(f"{row}: {encoder}", lambda row=row, encoder=encoder: measure(args.data, row, encoder))
    write_text(PAGE, page(PAGE.read_text(encoding="utf-8"), record))


if __name__ == "__main__":
    main()
