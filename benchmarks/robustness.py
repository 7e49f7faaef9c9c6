"""``a2lp_em`` and ``a2lp_plus`` beside methods that assume nothing, over a wide range of tasks: docs/robustness.md.

    .venv/bin/python benchmarks/robustness.py --measure test                    # novel classes, all methods
    .venv/bin/python benchmarks/robustness.py --measure test --methods a2lp_em  # some methods again
    .venv/bin/python benchmarks/robustness.py --measure uniform                 # with a uniform marginal
    .venv/bin/python benchmarks/robustness.py                                   # page and figure from the record
    .venv/bin/python benchmarks/robustness.py --measure val --record FILE       # validation classes, where to choose

Features are those of the repository: three datasets, two networks each. With ``--data FOLDER``, ``val`` also has CLIP
features that are not part of the repository. All methods see the same tasks, slow ones the first of them; the record
has the number of right answers of every task.
"""

from __future__ import annotations

import argparse
import warnings
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from robustness_tables import RIVALS, UNIFORM_RIVALS, figure, page
from study import RECORDS, ROOT, Record, accuracies

import a2lp
from a2lp.bench.protocol import Episodes
from a2lp.errors import A2LPWarning
from a2lp.features import FeatureSet
from a2lp.files import write_text

PAGE = ROOT / "docs" / "robustness.md"
FIGURE = ROOT / "docs" / "assets" / "robustness.svg"
FOLDERS = {"cub": "cub", "mini": "mini_imagenet", "cifar_fs": "cifar_fs"}
NETWORKS = ("resnet12", "wrn28_10")
CLIP = "clip_vitb_dtd_val"
SEEDS = {"val": 11, "test": 12, "uniform": 13}
OURS = ("a2lp_em", "a2lp_plus")


class Kind(NamedTuple):
    """A kind of tasks; shares of the classes are from Dirichlet(alpha), or equal where alpha is None."""

    n_way: int
    n_shot: int
    alpha: float | None
    queries: int  # in all

    @property
    def label(self) -> str:
        shares = "balanced" if self.alpha is None else f"Dirichlet({self.alpha:g})"
        return f"{self.n_way}-way {self.n_shot}-shot, {self.queries} queries, {shares}"


KINDS = [
    *(Kind(5, 1, alpha, 75) for alpha in (0.5, 1, 2, 5, None)),
    *(Kind(5, 5, alpha, 75) for alpha in (1, None)),
    Kind(5, 10, 2, 75),
    Kind(5, 1, None, 15),
    Kind(5, 1, 2, 375),
    Kind(2, 1, 1, 30),
    Kind(20, 1, 2, 300),
]


def sets(split: str, data: Path | None) -> dict[str, Path]:
    """Feature files by name."""
    found = {
        f"{name} {network}": ROOT / "trained" / f"{folder}_{network}" / f"{folder}_{network}_{split}.npz"
        for name, folder in FOLDERS.items()
        for network in NETWORKS
    }
    if split == "val" and data is not None:
        found[CLIP] = data / "features" / f"{CLIP}.npz"
    return found


@cache
def features(path: Path) -> FeatureSet:
    """A feature file; the novel classes of CUB are bundled."""
    return a2lp.load(path if path.exists() else "cub")


def fitted(kind: Kind, source: FeatureSet) -> Kind:
    """The same kind with as many ways as there are classes, and as many queries as these have images for."""
    assert source.labels is not None
    sizes = [int((source.labels == label).sum()) for label in set(source.labels.tolist())]
    n_way = min(kind.n_way, len(sizes))
    room = min(sizes) - kind.n_shot
    # with unequal shares, the largest class should rarely lack images
    each = min(kind.queries // kind.n_way, room if kind.alpha is None else 2 * room // 5)
    return kind._replace(n_way=n_way, queries=n_way * each)


def episodes(kind: Kind, source: FeatureSet, n_tasks: int, seed: int) -> Episodes:
    sizes: dict[str, Any] = {"n_way": kind.n_way, "n_shot": kind.n_shot, "n_query": kind.queries // kind.n_way}
    own = {} if kind.alpha is None else {"alpha": kind.alpha}
    sampler = "balanced" if kind.alpha is None else "dirichlet"
    return Episodes(source, a2lp.draw(sampler, source.labels, seed=seed, n_tasks=n_tasks, **sizes, **own))


def cells(split: str, data: Path | None) -> dict[str, tuple[Kind, FeatureSet]]:
    """Kinds of tasks and their features, by name."""
    if split == "uniform":
        kinds = [Kind(5, 1, None, 75), Kind(5, 5, None, 75)]
        split = "test"
    else:
        kinds = KINDS
    found = {}
    for name, path in sets(split, data).items():
        source = features(path)
        for kind in kinds:
            fits = fitted(kind, source)
            found[f"{name} | {fits.label}"] = (fits, source)
    return found


def right_answers(split: str, data: Path | None, method: str, params: dict[str, Any], n_tasks: int) -> dict[str, str]:
    """How many queries of each task are right, by cell; the number of queries comes first."""
    found = {}
    for name, (kind, source) in cells(split, data).items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", A2LPWarning)  # more neighbours than points
            percents = accuracies(method, params, episodes(kind, source, n_tasks, SEEDS[split]))
        counts = [round(percent * kind.queries / 100) for percent in percents]
        found[name] = f"{kind.queries}: {' '.join(map(str, counts))}"
    return found


def measure(record: Record, split: str, names: list[str], n_tasks: int, data: Path | None) -> None:
    for name in names:
        params = {"marginal": "uniform"} if split == "uniform" and name == "a2lp_em" else {}
        most = min(n_tasks, RIVALS.get(name, n_tasks))
        work = (split, data, name, params, most)
        record.measure(f"{split} {name}", lambda work=work: right_answers(*work), n_tasks=most)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measure", choices=("val", "test", "uniform"))
    parser.add_argument("--methods", help="these alone, separated by commas")
    parser.add_argument("--tasks", type=int, default=300)
    parser.add_argument("--data", type=Path, help="a folder whose features/ has CLIP features")
    parser.add_argument("--record", type=Path, default=RECORDS / "robustness.json")
    args = parser.parse_args()
    record = Record(args.record, "right answers over a wide range of tasks")
    if args.measure is not None:
        every = ["a2lp_em", *UNIFORM_RIVALS] if args.measure == "uniform" else [*OURS, *RIVALS]
        names = args.methods.split(",") if args.methods else every
        measure(record, args.measure, names, args.tasks, args.data)
    if args.record == RECORDS / "robustness.json":
        write_text(PAGE, page(PAGE.read_text(encoding="utf-8"), record))
        write_text(FIGURE, figure(record))


if __name__ == "__main__":
    main()
