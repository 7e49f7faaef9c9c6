"""One JSON file for each finished cell, so that an interrupted run continues where it stopped."""

from __future__ import annotations

import hashlib
import json
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from a2lp.bench.statistics import Estimate, estimate
from a2lp.checks import shown
from a2lp.errors import A2LPWarning, InputError
from a2lp.files import TEXT_BYTES, check_file, exists, parse_json, write_text, writing

_NAME = re.compile(r"[0-9a-f]{64}\.json")
_KINDS: dict[str, Any] = {"key": str, "config": dict, "accuracies": list, "seconds": int | float, "engine": str}
_KINDS |= {"trace": dict | None, "versions": dict, "hardware": dict, "commit": str | None, "date": str}
_KINDS |= {"uniform": bool, "uses_base": bool, "uses_names": bool, "limit": int | float | None, "failed": str | None}


@dataclass(frozen=True)
class Record:
    """The result of one cell.

    Attributes
    ----------
    key : str
        The hash of ``config``; also the name of the record's file.
    config : dict
        Everything that decides the numbers: tasks, features, method and all of its parameters.
    accuracies : list of float
        Accuracy of each task in percent; of the first tasks only if a limit stopped the cell.
    seconds : float
        Time spent in ``predict``, all tasks together.
    engine : str
        The engine that the method ran on.
    trace : dict or None
        Curves along the steps, for the report; see ``adaptation``.
    versions, hardware, commit, date
        The software, the machine and the time; see ``a2lp.environment.stamp``.
    uniform, uses_base, uses_names : bool
        Whether the method assumes or prefers equally many queries of every class; whether it uses base classes, as
        statistics or as weights trained on them; whether it used the vectors of class names.
    limit : float or None
        The limit in seconds, if it stopped the cell.
    failed : str or None
        The error, if the method raised one; such a record has no accuracies and is never stored.

    Examples
    --------
    >>> import a2lp
    >>> record = a2lp.bench.compare("digits", ["lp"], n_shot=5, n_tasks=20).records[0]
    >>> record.config["method"], len(record.accuracies)
    ('lp', 20)
    """

    key: str
    config: dict[str, Any]
    accuracies: list[float]
    seconds: float
    engine: str
    trace: dict[str, Any] | None = None
    versions: dict[str, str] = field(default_factory=dict)
    hardware: dict[str, Any] = field(default_factory=dict)
    commit: str | None = None
    date: str = ""
    uniform: bool = False
    uses_base: bool = False
    uses_names: bool = False
    limit: float | None = None
    failed: str | None = None

    @property
    def whole(self) -> bool:
        """Whether every task was done."""
        return len(self.accuracies) == int(self.config["n_tasks"])

    @property
    def on_cluster(self) -> bool:
        """Whether workers of a cluster computed it; they share machines, so its seconds do not measure speed."""
        return "workers" in self.hardware

    @property
    def accuracy(self) -> Estimate:
        """Mean accuracy in percent, with its interval."""
        return estimate(self.accuracies)

    def to_json(self) -> str:
        """The record as JSON, with ``mean``, ``ci95`` and ``seed`` for people who read the file."""
        mean, ci95 = self.accuracy
        derived = {"mean": mean, "ci95": ci95 if len(self.accuracies) > 1 else None, "seed": self.config["seed"]}
        return json.dumps(asdict(self) | derived, indent=1, allow_nan=False) + "\n"

    @classmethod
    def from_json(cls, text: str | bytes) -> Record:
        """Read a record; InputError if the text is not a whole one."""
        data = parse_json(text, "a record")
        later = {"uniform", "uses_base", "uses_names", "limit", "failed"}  # not in records of earlier versions
        if not isinstance(data, dict) or not _KINDS.keys() - later <= data.keys():
            raise InputError("a field is missing")
        record = cls(**{name: data[name] for name in _KINDS if name in data})
        for name, kind in _KINDS.items():
            if not isinstance(getattr(record, name), kind):
                raise InputError(f"{name} is {shown(getattr(record, name))}")
        if record.key != content_key(record.config):
            raise InputError("its key is not the hash of its configuration")
        wrong = [x for x in record.accuracies if not (isinstance(x, int | float) and 0 <= x <= 100 + 1e-9)]
        if wrong:
            raise InputError(f"an accuracy is {shown(wrong[0])}, which is no percentage")
        n_tasks = record.config.get("n_tasks")
        if not isinstance(n_tasks, int) or not record.accuracies or not (record.whole or record.limit):
            raise InputError(f"{len(record.accuracies)} accuracies for {shown(n_tasks)} tasks")
        return record


def content_key(config: Mapping[str, Any]) -> str:
    """A hash of a configuration that does not depend on the order of its entries."""
    text = json.dumps(config, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


class RecordStore:
    """A folder of records, ``OUT/records/<key>.json``.

    ``writes`` are the names of files that will be written into ``out``. If one of them exists there without any record,
    an earlier run did not write it, and the folder is refused.
    """

    def __init__(self, out: str | Path, writes: Sequence[str] = ()) -> None:
        self.folder = Path(out) / "records"
        existing = [name for name in writes if (Path(out) / name).exists()]
        if existing and not any(_NAME.fullmatch(path.name) for path in self.folder.glob("*.json")):
            raise InputError(
                f"the output folder {str(out)!r} holds {existing[0]} and no records, so no earlier run wrote it, and "
                "the file would be replaced. Name another folder, or move the file."
            )
        with writing(out, "Records are written into a folder. Name a new one, or one of an earlier run."):
            self.folder.mkdir(parents=True, exist_ok=True)

    def __contains__(self, key: str) -> bool:
        return exists(self.folder / f"{key}.json")

    def get(self, key: str) -> Record | None:
        """The record of a cell, or None if there is none that can be used."""
        path = self.folder / f"{key}.json"
        if key not in self:
            return None
        check_file(path, "a record (JSON)", most=TEXT_BYTES, error=InputError)
        try:
            record = Record.from_json(path.read_bytes())
        except InputError as error:
            warnings.warn(f"{path} is not a whole record ({error}); its cell is run again.", A2LPWarning, stacklevel=2)
            return None
        return record if record.key == key else None

    def put(self, record: Record) -> None:
        """Write a record, all of it or nothing."""
        remedy = "Check the folder's permissions and its space; the same command then continues from there."
        write_text(self.folder / f"{record.key}.json", record.to_json(), remedy)


def read_records(folder: str | Path) -> list[Record]:
    """The records of an earlier ``out`` folder, or of a folder of record files; warns about other files."""
    inner = Path(folder) / "records"
    where = inner if inner.is_dir() else Path(folder)
    if not where.is_dir():
        raise InputError(
            f"there is no folder {str(folder)!r}; records are read from a folder that `a2lp bench --out` or "
            "`a2lp reproduce --out` wrote. Name one, or leave --records out for the published numbers alone."
        )
    records = []
    for path in sorted(where.glob("*.json")):
        try:
            check_file(path, "a record (JSON)", most=TEXT_BYTES, error=InputError)
            record = Record.from_json(path.read_bytes())
            if record.key != path.stem:
                raise InputError("its name is not the hash of its configuration")
            records.append(record)
        except InputError as error:
            warnings.warn(f"{path} is left out: it is not a whole record ({error}).", A2LPWarning, stacklevel=2)
    return records
