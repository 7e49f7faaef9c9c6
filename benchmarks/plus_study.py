"""The parts of ``a2lp_plus`` and what each brings: the tables of docs/a2lp_plus.md.

    .venv/bin/python benchmarks/plus_study.py --measure        # both parts
    .venv/bin/python benchmarks/plus_study.py --measure test   # one of them again
    .venv/bin/python benchmarks/plus_study.py                  # the page from the record

Features are those of the repository: the bundled CUB set, and ``trained/``. Settings are compared on tasks of
validation classes; on novel classes only ``a2lp_plus`` as it is, ``a2lp`` and ``lp`` run. All see the same tasks, so
that differences are paired; the record has the number of right answers of every task.
"""

from __future__ import annotations

import argparse
from typing import Any, NamedTuple

import numpy as np
from study import CELLS, RECORDS, ROOT, SETS, Record, accuracies, cell_name, episodes, fill, shown, table

from a2lp.bench.statistics import estimate, paired_difference
from a2lp.files import write_text
from a2lp.methods.propagation import A2LP, PLUS, A2LPPlus

PAGE = ROOT / "docs" / "a2lp_plus.md"
QUERIES = 75
SEEDS = {"val": 1, "test": 0}


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


def right_answers(name: str, split: str, settings: list[Setting], n_tasks: int) -> dict[str, dict[str, str]]:
    """How many of its queries each task has right, by cell and setting."""
    found: dict[str, dict[str, str]] = {}
    for cell in CELLS:
        tasks = episodes(name, split, *cell, n_tasks, SEEDS[split])
        found[cell_name(*cell)] = {
            setting.words: " ".join(
                str(round(percent * QUERIES / 100)) for percent in accuracies(setting.method, setting.params, tasks)
            )
            for setting in settings
        }
    return found


def percents(found: dict[str, str], setting: Setting) -> list[float]:
    return [100 * int(count) / QUERIES for count in found[setting.words].split()]


def test_table(found: dict[str, Any]) -> tuple[str, str]:
    """The table, and a sentence that counts its cells."""
    lines, gains = [], []
    for name, cells in found.items():
        for cell, counts in cells.items():
            lp, paper, plus = (percents(counts, setting) for setting in TEST_ROWS)
            gains.append(paired_difference(plus, paper))
            means = [shown(estimate(values)) for values in (lp, paper, plus)]
            lines.append([f"{SETS[name]}, {cell}", str(len(lp)), *means, shown(gains[-1], sign=True)])
    above, clearly = sum(g.mean > 0 for g in gains), sum(g.mean > g.ci95 for g in gains)
    count = (
        f"`a2lp_plus` is more accurate than `a2lp` in {above} of {len(gains)} cells, by more than the 95 % interval in "
        f"{clearly}."
    )
    heads = ["novel classes", "tasks", "`lp`", "`a2lp`", "`a2lp_plus`", "difference to `a2lp`"]
    return table(heads, lines), count if gains else ""


def validation_table(found: dict[str, Any]) -> str:
    columns = [(name, n_shot) for name in found for n_shot in (1, 5)]
    lines = []
    for setting in ROWS if found else ():
        means = {
            (name, cell): estimate(percents(counts, setting)).mean
            for name, cells in found.items()
            for cell, counts in cells.items()
        }
        pairs = [
            " / ".join(f"{means[name, cell_name(sampler, n_shot)]:.1f}" for sampler in ("balanced", "dirichlet"))
            for name, n_shot in columns
        ]
        lines.append([setting.words, *pairs, f"{np.mean(list(means.values())):.2f}"])
    return table(["", *(f"{SETS[name]} {n_shot}-shot" for name, n_shot in columns), "mean"], lines, "---")


def page(text: str, record: Record) -> str:
    """The text of docs/a2lp_plus.md with its generated parts."""
    test, count = test_table(record.named("test"))
    parts = {"summary": count, "test": test, "validation": validation_table(record.named("val"))}
    return fill(text, "plus_study", parts | {"tasks": f"{record.tasks('val')}.", "provenance": record.provenance()})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measure", nargs="*", choices=("test", "val"), help="both by default")
    parser.add_argument("--tasks", type=int, default=1000)
    args = parser.parse_args()
    record = Record(RECORDS / "plus_study.json", "a2lp_plus: its terms on validation classes, and beside a2lp and lp")
    for split in ("test", "val") if args.measure == [] else args.measure or ():
        settings, n = (TEST_ROWS, args.tasks) if split == "test" else (ROWS, min(300, args.tasks))
        for name in SETS:
            work = (name, split, settings, n)
            record.measure(f"{split} {name}", lambda work=work: right_answers(*work), n_tasks=n)
    write_text(PAGE, page(PAGE.read_text(encoding="utf-8"), record))


if __name__ == "__main__":
    main()
