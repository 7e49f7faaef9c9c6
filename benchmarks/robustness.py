"""``a2lp_em`` and ``a2lp_plus`` beside methods that assume nothing, over a wide range of tasks: docs/robustness.md.

    .venv/bin/python benchmarks/robustness.py --measure test                    # novel classes, all methods
    .venv/bin/python benchmarks/robustness.py --measure test --methods a2lp_em  # some methods again
    .venv/bin/python benchmarks/robustness.py --measure more                    # slow methods again, on more tasks
    .venv/bin/python benchmarks/robustness.py --measure uniform                 # with a uniform marginal
    .venv/bin/python benchmarks/robustness.py                                   # page and figure from the record
    .venv/bin/python benchmarks/robustness.py --measure val --record FILE       # validation classes, where to choose

Features are those of the repository: three datasets, two networks each. With ``--data FOLDER``, ``val`` also has CLIP
features that are not part of the repository. All methods see the same tasks, slow ones the first of them, and more in
cells where they are fast; the record has the number of right answers of every task.

Each core takes a cell of a method at a time. What it finds is kept in a file of its own in PIECES, so a run that was
killed goes on where it was. A method joins the record once all of its cells are there.
"""

from __future__ import annotations

import argparse
import tempfile
import warnings
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from robustness_tables import MORE, RIVALS, UNIFORM_RIVALS, figure, page
from study import RECORDS, ROOT, STAMP, Pieces, Record, accuracies, over_cores

import a2lp
from a2lp import cores
from a2lp.bench.protocol import Episodes
from a2lp.environment import commit
from a2lp.errors import A2LPWarning
from a2lp.features import FeatureSet
from a2lp.files import write_text

PAGE = ROOT / "docs" / "robustness.md"
FIGURE = ROOT / "docs" / "assets" / "robustness.svg"
PIECES = Path(tempfile.gettempdir()) / "a2lp-robustness"
FOLDERS = {"cub": "cub", "mini": "mini_imagenet", "cifar_fs": "cifar_fs"}
NETWORKS = ("resnet12", "wrn28_10")
CLIP = "clip_vitb_dtd_val"
SEEDS = {"val": 11, "test": 12, "more": 12, "uniform": 13}
OURS = ("a2lp_em", "a2lp_plus")


class Kind(NamedTuple):
    """A kind of tasks; shares of the classes are from Dirichlet(alpha), or equal where alpha is None."""

    n_way: int
    n_shot: int
    alpha: float | None
    queries: int  # in all

    @property
    def points(self) -> int:
        return self.n_way * self.n_shot + self.queries

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


@cache
def cells(split: str, data: Path | None) -> dict[str, tuple[Kind, FeatureSet]]:
    """Kinds of tasks and their features, by name."""
    kinds = [Kind(5, 1, None, 75), Kind(5, 5, None, 75)] if split == "uniform" else KINDS
    found = {}
    for name, path in sets("val" if split == "val" else "test", data).items():
        source = features(path)
        for kind in kinds:
            fits = fitted(kind, source)
            found[f"{name} | {fits.label}"] = (fits, source)
    return found


class Piece(NamedTuple):
    """A method in a cell."""

    split: str
    method: str
    cell: str
    n_tasks: int

    @property
    def part(self) -> str:
        return f"{self.split} {self.method}"

    @property
    def name(self) -> str:
        return f"{self.part} {self.cell} {self.n_tasks}"


def measure(piece: Piece, data: Path | None, pieces: Pieces) -> None:
    """Keep how many queries of each task are right; the number of queries comes first."""
    kind, source = cells(piece.split, data)[piece.cell]
    params = {"marginal": "uniform"} if (piece.split, piece.method) == ("uniform", "a2lp_em") else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", A2LPWarning)  # more neighbours than points
        percents = accuracies(piece.method, params, episodes(kind, source, piece.n_tasks, SEEDS[piece.split]))
    counts = [round(percent * kind.queries / 100) for percent in percents]
    pieces.keep(piece.name, f"{kind.queries}: {' '.join(map(str, counts))}")


def planned(split: str, names: list[str], n_tasks: int, data: Path | None) -> list[Piece]:
    """The cells of these methods."""
    return [
        Piece(split, name, cell, n_tasks if split == "more" else min(n_tasks, RIVALS.get(name, n_tasks)))
        for name in names
        for cell, (kind, _) in cells(split, data).items()
        if split != "more" or kind.points <= MORE[name]
    ]


def join(record: Record, plan: list[Piece], pieces: Pieces) -> None:
    """Put the methods of which every cell is there into the record, each with the stamp of its last cell."""
    for part in dict.fromkeys(piece.part for piece in plan):
        asked = [piece for piece in plan if piece.part == part]
        found = {piece.cell: pieces.known(piece.name) for piece in asked}
        kept = {cell: one for cell, one in found.items() if one is not None}
        if len(kept) < len(found):
            print(f"incomplete: {part}, {len(kept)} of {len(found)} cells")
            continue
        last = max(kept.values(), key=lambda one: str(one["date"]))
        result = {cell: one["result"] for cell, one in kept.items()}
        record.keep(part, result, {key: last[key] for key in STAMP}, n_tasks=asked[0].n_tasks)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measure", choices=tuple(SEEDS))
    parser.add_argument("--methods", help="these alone, separated by commas")
    parser.add_argument("--tasks", type=int, default=300)
    parser.add_argument("--data", type=Path, help="a folder whose features/ has CLIP features")
    parser.add_argument("--cores", type=int, default=cores.count())
    parser.add_argument("--commit", metavar="HASH", help="the commit of the code, on a machine without a checkout")
    parser.add_argument("--pieces", type=Path, default=PIECES, help="the folder in which cells are kept")
    parser.add_argument("--record", type=Path, default=RECORDS / "robustness.json")
    args = parser.parse_args()
    record = Record(args.record, "right answers over a wide range of tasks")
    if args.measure is not None:
        every = {"uniform": ["a2lp_em", *UNIFORM_RIVALS], "more": list(MORE)}.get(args.measure, [*OURS, *RIVALS])
        plan = planned(args.measure, args.methods.split(",") if args.methods else every, args.tasks, args.data)
        pieces = Pieces(args.pieces, args.commit or commit() or "unknown-dirty")
        args.pieces.mkdir(parents=True, exist_ok=True)
        missing = [(piece, args.data, pieces) for piece in plan if pieces.known(piece.name) is None]
        sizes = {name: kind.n_way * kind.queries for name, (kind, _) in cells(args.measure, args.data).items()}
        over_cores(measure, sorted(missing, key=lambda given: -sizes[given[0].cell]), args.cores)
        join(record, plan, pieces)
    if args.record == RECORDS / "robustness.json":
        write_text(PAGE, page(PAGE.read_text(encoding="utf-8"), record))
        write_text(FIGURE, figure(record))


if __name__ == "__main__":
    main()
