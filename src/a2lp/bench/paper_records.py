"""Records that belong to cells of the paper's tables."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from a2lp.bench.published import PAIR, SHOTS, FeatureSource, Settings, feature_source
from a2lp.bench.records import Record
from a2lp.bench.statistics import paired_difference
from a2lp.methods.registry import list_methods, method_class

PREPROCESS = ("l2", "plc")
PROTOCOL = {"n_way": 5, "queries_per_task": 75, "sampler": "balanced"}
N_TASKS = 1000  # the paper's
# the entries of a configuration that are used here, and their types
_CONFIG: dict[str, Any] = {"n_way": int, "queries_per_task": int, "sampler": str, "n_shot": int, "preprocess": str}
_CONFIG |= {"method": str, "params": dict, "features": str, "features_sha256": str, "tasks_sha256": str}


class PaperCell(NamedTuple):
    """One cell of the paper's tables."""

    source: FeatureSource
    n_shot: int
    preprocess: str
    method: str


Candidates = list[tuple[PaperCell, Record]]


@dataclasses.dataclass(frozen=True)
class PaperRecords:
    """Our record for each cell of the paper's tables that has one."""

    records: Mapping[PaperCell, Record]  # of the same tasks for the same features and shots, so that they can be paired
    left_out: Counter[str]  # how many records belong to no cell, by reason

    def of(self, source: FeatureSource) -> list[Record]:
        """The records of one dataset and network."""
        return [record for cell, record in self.records.items() if cell.source == source]

    @property
    def sources(self) -> list[FeatureSource]:
        """The datasets and networks that have records."""
        return list(dict.fromkeys(cell.source for cell in self.records))

    def accuracy(self, method: str, preprocess: str) -> Settings:
        """The accuracies of a method."""
        return {setting: record.accuracy for setting, record in self._settings(method, preprocess).items()}

    def gains(self, preprocess: str) -> Settings:
        """The paired differences of A2LP to LP, where both have a record."""
        one, other = (self._settings(method, preprocess) for method in PAIR)
        shared = [setting for setting in one if setting in other and setting[1] in SHOTS]
        return {setting: paired_difference(one[setting].accuracies, other[setting].accuracies) for setting in shared}

    def _settings(self, method: str, preprocess: str) -> dict[tuple[FeatureSource, int], Record]:
        return {cell[:2]: record for cell, record in self.records.items() if cell[2:] == (preprocess, method)}


def select_records(records: Iterable[Record]) -> PaperRecords:
    """The records that belong to cells of the paper's tables.

    If the same cells have records of several feature files or lists of tasks, the one with the most tasks is taken,
    then the one with more records, then the latest: never a mixture, and never by accuracy.
    """
    left_out: Counter[str] = Counter()
    candidates: Candidates = []
    for record in records:
        cell = _paper_cell(record)
        if isinstance(cell, PaperCell):
            candidates.append((cell, record))
        else:
            left_out[cell] += 1
    candidates = _one_origin(candidates, lambda cell: cell.source, "features_sha256", left_out)
    candidates = _one_origin(candidates, lambda cell: (cell.source, cell.n_shot), "tasks_sha256", left_out)
    return PaperRecords(dict(sorted(candidates, key=lambda pair: pair[1].date)), left_out)  # the latest wins


def _paper_cell(record: Record) -> PaperCell | str:
    """The cell that a record belongs to, or why it belongs to none."""
    config = record.config
    if "study" in config:
        return "curves of the report, not a cell"
    if not all(isinstance(config.get(name), kind) for name, kind in _CONFIG.items()):
        return "a configuration that is not that of a cell"
    if not record.whole:
        return "a time limit stopped it before its last task"
    if any(config[key] != value for key, value in PROTOCOL.items()):
        return "tasks other than 5-way with 15 queries of each class"
    if config["preprocess"] not in PREPROCESS:
        return f"preprocessing other than {' and '.join(PREPROCESS)}"
    if config["method"] not in list_methods():
        return f"a method that is not installed: {config['method']}"
    if not _has_defaults(config):
        return "parameters other than the defaults"
    source = feature_source(config["features"])
    if source is None:
        return f"features other than novel classes of the paper's datasets: {config['features']}"
    return PaperCell(source, config["n_shot"], config["preprocess"], config["method"])


def _has_defaults(config: Mapping[str, Any]) -> bool:
    """Whether a method ran with its default parameters; its engine and hashes of arrays do not count."""
    fields = dataclasses.fields(method_class(config["method"]))
    values = {field.name: field.default for field in fields if field.default is not dataclasses.MISSING}
    defaults = json.loads(json.dumps(values)) | {"preprocess": config["preprocess"]}  # tuples are lists in a record
    changed = (value for name, value in config["params"].items() if name != "engine" and defaults.get(name) != value)
    return all(str(value).startswith("sha256:") for value in changed)


def _one_origin(
    candidates: Candidates, group: Callable[[PaperCell], Any], origin: str, left_out: Counter[str]
) -> Candidates:
    """Keep, for each group of cells, the records of one origin: one feature file, or one list of tasks."""
    groups: dict[Any, dict[str, list[Record]]] = {}
    for cell, record in candidates:
        groups.setdefault(group(cell), {}).setdefault(record.config[origin], []).append(record)

    def precedence(records: Sequence[Record]) -> tuple[int, int, str]:
        return max(r.config["n_tasks"] for r in records), len(records), max(r.date for r in records)

    chosen = {name: max(found, key=lambda each: precedence(found[each])) for name, found in groups.items()}
    kept = [(cell, record) for cell, record in candidates if record.config[origin] == chosen[group(cell)]]
    dropped = len(candidates) - len(kept)
    if dropped:
        left_out[f"other records of the same cells have more tasks or are later ({origin})"] += dropped
    return kept
