"""From a folder of records to the places that they have in the paper's tables."""

from __future__ import annotations

import dataclasses
import json
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from a2lp.bench.published import Set, identify
from a2lp.bench.records import Record
from a2lp.errors import A2LPWarning, InputError
from a2lp.methods.registry import method_class, methods

PREPROCESS = ("l2", "plc")
PROTOCOL = {"n_way": 5, "queries_per_task": 75, "sampler": "balanced"}
N_TASKS = 1000  # the paper's
# what is asked of a configuration here
_CELL: dict[str, Any] = {"n_way": int, "queries_per_task": int, "sampler": str, "n_shot": int, "preprocess": str}
_CELL |= {"method": str, "params": dict, "features": str, "features_sha256": str, "tasks_sha256": str}


class Place(NamedTuple):
    """Where a record stands: features, shots, preprocessing, method."""

    set: Set
    n_shot: int
    preprocess: str
    method: str


@dataclasses.dataclass(frozen=True)
class Shelf:
    """Records in their places.

    Attributes
    ----------
    records : dict
        For each place its record. Those of the same features and shots are of the same tasks, so they can be paired.
    left_out : Counter
        How many records have no place, by reason.
    """

    records: Mapping[Place, Record]
    left_out: Counter[str]

    def of(self, one: Set) -> list[Record]:
        """The records of a set of features."""
        return [record for place, record in self.records.items() if place.set == one]

    @property
    def sets(self) -> list[Set]:
        """The sets of features that there are records of."""
        return list(dict.fromkeys(place.set for place in self.records))


def read_records(folder: Path) -> list[Record]:
    """The records of an earlier ``--out`` folder, or of a folder of record files; what is no record is warned of."""
    inner = folder / "records"
    where = inner if inner.is_dir() else folder
    if not where.is_dir():
        raise InputError(
            f"there is no folder {str(folder)!r}; records are read from a folder that `a2lp bench --out` or "
            "`a2lp reproduce --out` wrote. Name one, or leave --records out for the published numbers alone."
        )
    found = []
    for path in sorted(where.glob("*.json")):
        try:
            record = Record.from_json(path.read_text(encoding="utf-8"))
            if record.key != path.stem:
                raise ValueError("its name is not the hash of its configuration")
        except (OSError, ValueError, TypeError) as error:
            warnings.warn(f"{path} is left out: it is not a whole record ({error}).", A2LPWarning, stacklevel=2)
        else:
            found.append(record)
    return found


def place(records: Iterable[Record]) -> Shelf:
    """Put records where they belong.

    Where there are several lists of features or tasks for the same place, the one with the most tasks is taken, then
    the one with more records, then the latest: never a mixture, and never by accuracy.
    """
    left_out: Counter[str] = Counter()
    candidates: list[tuple[Place, Record]] = []
    for record in records:
        where = _where(record)
        if isinstance(where, Place):
            candidates.append((where, record))
        else:
            left_out[where] += 1
    candidates = _one_source(candidates, lambda p: p.set, "features_sha256", left_out)
    candidates = _one_source(candidates, lambda p: (p.set, p.n_shot), "tasks_sha256", left_out)
    placed: dict[Place, Record] = {}
    for where, record in sorted(candidates, key=lambda pair: pair[1].date):  # the latest stays
        placed[where] = record
    return Shelf(placed, left_out)


def _where(record: Record) -> Place | str:
    """The place of a record, or why it has none in the paper's tables."""
    config = record.config
    if "study" in config:
        return "a look at the steps, not a cell"
    if not all(isinstance(config.get(name), kind) for name, kind in _CELL.items()):
        return "a configuration that is not that of a cell"
    if not record.whole:
        return "a limit of time stopped it before its last task"
    if any(config[key] != value for key, value in PROTOCOL.items()):
        return "other tasks than 5-way with 15 queries of each class"
    if config["preprocess"] not in PREPROCESS:
        return f"preprocessing other than {' and '.join(PREPROCESS)}"
    if config["method"] not in methods():
        return f"a method that is not installed: {config['method']}"
    if not _has_defaults(config):
        return "parameters other than the defaults"
    one = identify(config["features"])
    if one is None:
        return f"features other than novel classes of the paper's datasets: {config['features']}"
    return Place(one, config["n_shot"], config["preprocess"], config["method"])


def _has_defaults(config: Mapping[str, Any]) -> bool:
    """Whether a method ran as it is; which engine ran it does not matter, and arrays are data."""
    defaults = _defaults(config["method"]) | {"preprocess": config["preprocess"]}
    changed = (value for name, value in config["params"].items() if name != "engine" and defaults.get(name) != value)
    return all(str(value).startswith("sha256:") for value in changed)


@cache
def _defaults(method: str) -> dict[str, Any]:
    fields = dataclasses.fields(method_class(method))
    values = {field.name: field.default for field in fields if field.default is not dataclasses.MISSING}
    defaults: dict[str, Any] = json.loads(json.dumps(values))  # as a record has them
    return defaults


def _one_source(
    candidates: Sequence[tuple[Place, Record]], group: Callable[[Place], Any], source: str, left_out: Counter[str]
) -> list[tuple[Place, Record]]:
    """Keep, of each group, the records of one value of ``source``."""
    groups: dict[Any, dict[str, list[Record]]] = {}
    for where, record in candidates:
        groups.setdefault(group(where), {}).setdefault(record.config[source], []).append(record)
    chosen = {name: max(found.items(), key=lambda pair: _rank(pair[1]))[0] for name, found in groups.items()}
    kept = [(where, record) for where, record in candidates if record.config[source] == chosen[group(where)]]
    if len(kept) < len(candidates):
        left_out[f"others of the same place have more tasks, or are later ({source})"] += len(candidates) - len(kept)
    return kept


def _rank(records: Sequence[Record]) -> tuple[int, int, str]:
    most = max(record.config["n_tasks"] for record in records)
    return most, len(records), max(record.date for record in records)
