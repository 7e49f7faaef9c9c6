"""The best published results and ours, balanced and imbalanced, with and without base data: a part of docs/tables.md.

    .venv/bin/python benchmarks/frontier.py --measure                 # the networks of trained/
    .venv/bin/python benchmarks/frontier.py --measure --data FOLDER   # joined features, NAME_test.npz, as well
    .venv/bin/python benchmarks/frontier.py                           # the page from figures and record

Published figures are in ``frontier.json``, each with its source and whether it was read there.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from study import CELLS, RECORDS, ROOT, Record, accuracies, fill, shown, table

from a2lp.bench.protocol import draw_episodes
from a2lp.bench.published import DATASETS, SHOTS, FeatureSource, feature_source
from a2lp.bench.statistics import Estimate, estimate
from a2lp.features import BaseStatistics, FeatureSet, load, load_base
from a2lp.files import write_text
from a2lp.methods.registry import create

PUBLISHED = ROOT / "benchmarks" / "frontier.json"
PAGE = ROOT / "docs" / "tables.md"
COLUMNS = [(name, n_shot) for name in ("mini", "cub", "cifar_fs") for n_shot in SHOTS]
MEMORY = " ‡"  # after figures that were not read in their source


class Ours(NamedTuple):
    """A method that is measured."""

    method: str
    params: dict[str, Any]
    uses_base: bool

    @property
    def label(self) -> str:
        return f"{self.method}, uniform" if "marginal" in self.params else self.method

    @property
    def uniform(self) -> bool:
        """Whether it assumes equally many queries of every class."""
        return create(self.method, **self.params).uniform


METHODS = [
    Ours("a2lp_em", {}, False),
    Ours("a2lp_em", {"marginal": "uniform"}, False),
    Ours("proto_lp", {}, False),
    Ours("a2lp_em", {"preprocess": "whiten"}, True),
    Ours("a2lp_em", {"preprocess": "whiten", "marginal": "uniform"}, True),
    Ours("bavardage", {}, True),
]


def published() -> dict[str, Any]:
    """The published figures."""
    found: dict[str, Any] = json.loads(PUBLISHED.read_text(encoding="utf-8"))
    return found


class Line(NamedTuple):
    """A line of a table."""

    label: str
    network: str
    uniform: bool
    accuracy: dict[tuple[str, int], Estimate]  # by dataset and shots; published ones have no interval here
    unread: frozenset[str] = frozenset()  # datasets whose figures are from memory


def find(data: Path | None) -> dict[FeatureSource, tuple[FeatureSet, BaseStatistics | None]]:
    """Features of novel classes with the statistics of their base classes, which joined features may lack."""
    files = [*(ROOT / "trained").glob("*/*_test.npz"), *(data.glob("*_test.npz") if data else ())]
    sets = {path: load(path) for path in sorted(files)}
    found: dict[FeatureSource, tuple[FeatureSet, BaseStatistics | None]] = {}
    for path, features in sets.items():
        source = feature_source(features.name, features.about)
        assert source is not None, f"{path} is of no dataset of the paper"
        base = path.with_name(path.name.replace("_test.npz", "_train_base.npz"))
        found[source] = (features, load_base(base) if base.exists() else None)
    return found


def measure(features: FeatureSet, base: BaseStatistics | None, n_tasks: int) -> dict[str, Any]:
    """The accuracy of each method, and the side of the network's input."""
    view = features.about.get("view") or features.about["joined"][0]["view"]
    cells: dict[str, dict[str, Any]] = {}
    for sampler, n_shot in CELLS:
        [tasks] = draw_episodes(features, [sampler], [n_shot], n_tasks=n_tasks, seed=0)
        for row in METHODS:
            if (row.uses_base and base is None) or (row.uniform and sampler == "dirichlet"):
                continue
            found = estimate(accuracies(row.method, row.params, tasks, base if row.uses_base else None))
            cells.setdefault(part(sampler, row.uses_base), {}).setdefault(row.label, {})[str(n_shot)] = found._asdict()
    return {"pixels": view["size"] or view["crop"], "cells": cells}


def part(sampler: str, uses_base: bool) -> str:
    """The name of a table."""
    return f"{sampler}, {'with' if uses_base else 'without'} base data"


def published_lines(rows: Sequence[dict[str, Any]], sampler: str, uses_base: bool) -> list[Line]:
    """What others published, in the order of the file; numbers in brackets are those of the sources."""
    lines = []
    sources = distinct_sources(rows)
    for row in rows:
        if (row["sampler"], row["base"]) == (sampler, uses_base):
            accuracy = {
                (name, n_shot): Estimate(mean, math.nan)
                for name, pair in row["accuracy"].items()
                for n_shot, mean in zip(SHOTS, pair, strict=True)
            }
            network = with_pixels(row["network"], row["pixels"])
            unread = frozenset(row["accuracy"]) - frozenset(row["read"])
            lines.append(
                Line(
                    f"{row['method']} ({row['year']}) [{sources.index(row['source']) + 1}]",
                    network,
                    row["uniform"],
                    accuracy,
                    unread,
                )
            )
    return lines


def distinct_sources(rows: Sequence[dict[str, Any]]) -> list[str]:
    """The sources of published figures, each once; a number in brackets is a place in this list."""
    return list(dict.fromkeys(row["source"] for row in rows))


def our_lines(record: Record, name: str) -> list[Line]:
    """What was measured for a table: each method on each network."""
    networks: dict[str, list[FeatureSource]] = {}
    sources = {FeatureSource(*key.split(" ")): part["result"] for key, part in record.parts.items()}
    for source in sorted(sources, key=lambda source: (source.joined, source.backbone)):
        networks.setdefault(source.network, []).append(source)
    lines = []
    for row in METHODS:
        for network, of_network in networks.items():
            cells = {source: sources[source]["cells"].get(name, {}).get(row.label, {}) for source in of_network}
            accuracy = {
                (s.dataset, int(n)): Estimate(**found) for s, by_shots in cells.items() for n, found in by_shots.items()
            }
            if accuracy and part(name.partition(",")[0], row.uses_base) == name:
                pixels = max(sources[source]["pixels"] for source in of_network)
                lines.append(Line(row.label, with_pixels(network, pixels), row.uniform, accuracy))
    return lines


def with_pixels(network: str, pixels: int | None) -> str:
    return network if pixels is None else f"{network}, {pixels} px"


def lines_table(*groups: list[Line]) -> str:
    """A table; the highest figure of a column in each group is bold."""
    heads = ["method", "network", "uniform", *(f"{DATASETS[name]}, {n_shot}-shot" for name, n_shot in COLUMNS)]
    rows = []
    for lines in groups:
        best = {
            cell: max(line.accuracy[cell].mean for line in lines if cell in line.accuracy) for cell in filled(lines)
        }
        for line in lines:
            row = [line.label, line.network, "yes" if line.uniform else ""]
            for cell in COLUMNS:
                found = line.accuracy.get(cell)
                text = "" if found is None else f"{found.mean:.2f}" if math.isnan(found.ci95) else shown(found)
                bold = found is not None and found.mean == best[cell]
                mark = MEMORY if found is not None and cell[0] in line.unread else ""
                row.append((f"**{text}**" if bold else text) + mark)
            rows.append(row)
    return table(heads, rows, n_left=3)


def filled(lines: list[Line]) -> set[tuple[str, int]]:
    """The columns that some line has."""
    return {cell for line in lines for cell in line.accuracy}


def page(text: str, record: Record, figures: dict[str, Any]) -> str:
    """The page with its four tables and their sources."""
    rows = figures["rows"]
    parts = {
        part(sampler, base): lines_table(published_lines(rows, sampler, base), our_lines(record, part(sampler, base)))
        for sampler in ("balanced", "dirichlet")
        for base in (False, True)
    }
    sources = "\n".join(f"- [{number}] {source}" for number, source in enumerate(distinct_sources(rows), start=1))
    return fill(text, "frontier", parts | {"sources": sources, "provenance": record.provenance()})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measure", action="store_true")
    parser.add_argument("--data", type=Path, help="a folder of joined features")
    parser.add_argument("--tasks", type=int, default=1000)
    args = parser.parse_args()
    record = Record(RECORDS / "frontier.json", "methods of the frontier on novel classes of every network")
    if args.measure:
        for source, (features, base) in find(args.data).items():
            record.measure(" ".join(source), lambda f=features, b=base: measure(f, b, args.tasks), n_tasks=args.tasks)
    write_text(PAGE, page(PAGE.read_text(encoding="utf-8"), record, published()))


if __name__ == "__main__":
    main()
