"""The commands that fill the missing cells of the paper's tables."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from a2lp.bench.placing import N_TASKS, Place, Shelf
from a2lp.bench.published import DATASETS, Set, bundled_set
from a2lp.features.bundled import BUNDLED


def commands(missing: Sequence[Place], shelf: Shelf, out: str) -> Iterator[tuple[str, str]]:
    """For each set of features with missing cells, what fills them."""
    by_set: dict[Set, list[Place]] = {}
    for place in missing:
        by_set.setdefault(place.set, []).append(place)
    without_features = []
    for one, places in by_set.items():
        records = shelf.of(one)
        name = records[0].config["features"] if records else bundled_set(one)
        if name is None:
            without_features.append(one)
        else:
            yield one.title, _bench(name, places, records[0].config if records else {}, out)
    for one in without_features:
        yield f"{one.title}, has no features yet", _embed(one)
    if without_features:
        yield "with those features", shlex.join(["a2lp", "reproduce", "--data", "features", "--out", out])


def _bench(name: str, places: Sequence[Place], config: Mapping[str, Any], out: str) -> str:
    parts = {
        "--features": name if name in BUNDLED else f"{name}.npz",
        "--methods": ",".join(dict.fromkeys(place.method for place in places)),
        "--shots": ",".join(dict.fromkeys(str(place.n_shot) for place in places)),
        "--preprocess": ",".join(dict.fromkeys(place.preprocess for place in places)),
        "--tasks": config.get("n_tasks", N_TASKS),
        "--seed": config.get("seed", 0),
        "--out": out,
    }
    usual = {"--preprocess": "l2", "--tasks": N_TASKS, "--seed": 0}
    return shlex.join(["a2lp", "bench", *(str(x) for k, v in parts.items() if usual.get(k) != v for x in (k, v))])


def _embed(one: Set) -> str:
    return (
        f"a2lp embed IMAGES --dataset {DATASETS[one.dataset]} --split test --backbone {one.backbone} --weights FILE "
        f"--out features/{one.dataset}_{one.backbone}_test.npz"
    )
