"""What ``a2lp_plus`` is made of and what it brings: the tables of docs/a2lp_plus.md.

    .venv/bin/python benchmarks/plus_study.py --data FOLDER   # run what the record does not have yet, fill the page
    .venv/bin/python benchmarks/plus_study.py                 # fill the page from the record

FOLDER/features has {cub,mini}_resnet12_{val,test}.npz, FOLDER/reference the saved tasks on their test classes. CIFAR-FS
is in ``trained/``, its test tasks are drawn. Settings are compared on tasks drawn from the validation classes; on the
test tasks only ``a2lp_plus`` as it is, ``a2lp`` and ``lp`` run. All see the same tasks, so that differences are paired.
A record counts right answers task by task.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import a2lp
from a2lp import features
from a2lp.bench.records import write_text
from a2lp.bench.statistics import Estimate, estimate, paired_difference
from a2lp.environment import stamp
from a2lp.methods.propagation import A2LP, PLUS, A2LPPlus
from a2lp.tasks.lists import TaskList
from a2lp.tasks.samplers import draw

ROOT = Path(__file__).resolve().parents[1]
RECORD, PAGE = ROOT / "benchmarks" / "records" / "plus_study.json", ROOT / "docs" / "a2lp_plus.md"
SETS = {"cub": "CUB", "mini": "miniImageNet", "cifar_fs": "CIFAR-FS"}
CIFAR_FS = ROOT / "trained" / "cifar_fs_resnet12"
SAMPLERS = {"balanced": ("ref", 15), "dirichlet": ("dirichlet", 75)}  # name of the saved tasks; queries to ask for
DRAWN = {"val": 300, "test": 1000}  # tasks a cell
SEED = 1


class Setting(NamedTuple):
    """A row of the table: what is changed, and the method with its parameters."""

    words: str
    method: str = "a2lp_plus"
    params: dict[str, Any] = {}  # noqa: RUF012  never changed


def changed(words: str, **terms: Any) -> Setting:
    return Setting(words, params={"loss": PLUS._replace(**terms)._asdict()})


GRAPH = {"n_neighbors": A2LPPlus.n_neighbors, "gamma": A2LPPlus.gamma}
ROWS = [
    Setting("`lp`", "lp"),
    Setting("`a2lp`, the paper's 1000 steps", "a2lp"),
    Setting("**`a2lp_plus`**"),
    Setting("on the graph of `a2lp`", params={name: getattr(A2LP, name) for name in GRAPH}),
    changed("no term of the anchors", weight=0.0),
    changed("eq. 7 as the anchors' term", anchors="soft"),
    changed("no entropy of queries", entropy=0.0),
    changed("no entropy of the mean", marginal=0.0),
    changed("queries by softmax", queries="soft"),
    Setting("`a2lp` on the graph of `a2lp_plus`", "a2lp", GRAPH),
]
TEST_ROWS = ROWS[:3]


def cells(folder: Path, split: str) -> Iterator[tuple[str, Any, TaskList]]:
    """Name, vectors and tasks of each of the twelve cells of a split."""
    for name in SETS:
        home = CIFAR_FS if name == "cifar_fs" else folder / "features"
        data = features.load(home / f"{name}_resnet12_{split}.npz")
        for shot in (1, 5):
            for sampler, (saved, n_query) in SAMPLERS.items():
                if split == "test" and name != "cifar_fs":
                    arrays = np.load(folder / "reference" / f"{saved}_{name}_{shot}shot.npz")
                    parts = ("support", "support_labels", "query", "query_labels")
                    tasks = TaskList(**{part: arrays[part].astype(np.int64) for part in parts})
                else:
                    tasks = draw(
                        sampler,
                        np.asarray(data.labels),
                        seed=SEED,
                        n_way=5,
                        n_shot=shot,
                        n_query=n_query,
                        n_tasks=DRAWN[split],
                    )
                yield f"{split} {name} {shot} {sampler}", data.features.astype(np.float32), tasks


def key(setting: Setting) -> str:
    """The method with every parameter that can change its answers."""
    method = a2lp.create(setting.method, **setting.params)
    kept = {name: value for name, value in vars(method).items() if name not in ("base", "engine")}
    return f"{setting.method} {json.dumps(kept, sort_keys=True)}"


def right_answers(setting: Setting, vectors: Any, tasks: TaskList) -> list[int]:
    method = a2lp.create(setting.method, **setting.params)
    found: list[int] = []
    for start in range(0, len(tasks), 100):
        part = tasks[start : start + 100]
        found += (method.predict(part.batch(vectors)).labels == part.query_labels).sum(axis=1).tolist()
    return found


def run(folder: Path, only: str | None) -> None:
    """Run what the record has not; it is written after every cell, so that a run can be interrupted."""
    record = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {"right": {}}
    for split, rows in (("test", TEST_ROWS), ("val", ROWS)):
        for cell, vectors, tasks in cells(folder, split):
            known = record["right"].setdefault(cell, {})
            for setting in rows:
                if key(setting) in known or only not in (None, f"{split} {setting.method}"):
                    continue
                known[key(setting)] = " ".join(map(str, right_answers(setting, vectors, tasks)))
                record |= stamp()
                write_text(RECORD, json.dumps(record, indent=1) + "\n")
                print(cell, setting.words, flush=True)


def accuracies(record: dict[str, Any], cell: str, setting: Setting) -> list[float]:
    right = [int(count) for count in record["right"][cell][key(setting)].split()]
    return [100 * count / 75 for count in right]


def names(split: str) -> list[str]:
    return [f"{split} {name} {shot} {sampler}" for name in SETS for shot in (1, 5) for sampler in SAMPLERS]


def shown(value: Estimate, signed: bool = False) -> str:
    return f"{value.mean:+.2f} ± {value.ci95:.2f}" if signed else f"{value.mean:.2f} ± {value.ci95:.2f}"


def test_table(record: dict[str, Any]) -> str:
    lines = ["| features | shots | tasks | `lp` | `a2lp` | `a2lp_plus` | difference to `a2lp` |", "|" + " --- |" * 7]
    for cell in names("test"):
        _, name, shot, sampler = cell.split()
        lp, paper, plus = (accuracies(record, cell, setting) for setting in TEST_ROWS)
        means = " | ".join(shown(estimate(values)) for values in (lp, paper, plus))
        lines.append(f"| {SETS[name]} | {shot} | {sampler} | {means} | {shown(paired_difference(plus, paper), True)} |")
    return "\n".join(lines)


def validation_table(record: dict[str, Any]) -> str:
    heads = [f"{SETS[name]} {shot}-shot" for name in SETS for shot in (1, 5)]
    lines = [f"| | {' | '.join(heads)} | mean |", "|" + " --- |" * (len(heads) + 2)]
    for setting in ROWS:
        means = [estimate(accuracies(record, cell, setting)).mean for cell in names("val")]
        pairs = [f"{a:.1f} / {b:.1f}" for a, b in zip(means[::2], means[1::2], strict=True)]
        lines.append(f"| {setting.words} | {' | '.join(pairs)} | {np.mean(means):.2f} |")
    return "\n".join(lines)


def fill(page: str, mark: str, table: str) -> str:
    """The page with a table between its marks."""
    start, end = f"<!-- plus_study {mark} -->", "<!-- end -->"
    before, _, after = page.partition(start)
    return f"{before}{start}\n\n{table}\n\n{end}{after.partition(end)[2]}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="the folder of feature files and saved tasks")
    parser.add_argument("--only", metavar="'SPLIT METHOD'", help="such as 'test a2lp'; the page stays as it is")
    args = parser.parse_args()
    if args.data is not None:
        run(args.data, args.only)
    if args.only is None:
        record = json.loads(RECORD.read_text(encoding="utf-8"))
        page = fill(PAGE.read_text(encoding="utf-8"), "test", test_table(record))
        write_text(PAGE, fill(page, "validation", validation_table(record)))


if __name__ == "__main__":
    main()
