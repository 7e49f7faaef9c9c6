"""One JSON file for each finished cell, so that an interrupted run goes on where it stopped."""

from __future__ import annotations

import hashlib
import json
import math
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from a2lp.bench.statistics import Estimate, estimate
from a2lp.errors import A2LPWarning, InputError
from a2lp.features.common import replacing

_NAME = re.compile(r"[0-9a-f]{64}\.json")
_KINDS: dict[str, Any] = {"key": str, "config": dict, "accuracies": list, "seconds": int | float, "engine": str}
_KINDS |= {"trace": dict | None, "versions": dict, "hardware": dict, "commit": str | None, "date": str}
_KINDS |= {"uniform": bool, "uses_base": bool, "limit": int | float | None, "failed": str | None}


@dataclass(frozen=True)
class Record:
    """What one cell gave.

    Attributes
    ----------
    key : str
        The hash of ``config``; also the name of the record's file.
    config : dict
        Everything that decides the numbers: tasks, features, method and all of its parameters.
    accuracies : list of float
        Percent of queries that were right, one for each task; of the first tasks only where a limit stopped the cell.
    seconds : float
        Time spent in ``predict``, all tasks together.
    engine : str
        Which engine the method ran on.
    trace : dict or None
        For methods that take steps: the mean loss along the way, and how far the anchors moved.
    versions, hardware, commit, date
        Where and when.
    uniform, uses_base : bool
        What the method assumed: equally many queries of every class; base classes, as statistics or as weights that
        were trained on them.
    limit : float or None
        The seconds after which the cell was stopped, where it was.
    failed : str or None
        What went wrong, where the method raised an error; such a record has no accuracies and is never kept.
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
    limit: float | None = None
    failed: str | None = None

    @property
    def whole(self) -> bool:
        """Whether every task was done."""
        return len(self.accuracies) == int(self.config["n_tasks"])

    @property
    def accuracy(self) -> Estimate:
        """Mean accuracy in percent, with its interval."""
        return estimate(self.accuracies)

    def to_json(self) -> str:
        """The record as the text of its file; ``mean`` and ``ci95`` are there for readers of the file."""
        mean, ci95 = self.accuracy
        derived = {"mean": mean, "ci95": ci95 if len(self.accuracies) > 1 else None, "seed": self.config["seed"]}
        return json.dumps(asdict(self) | derived, indent=1, allow_nan=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Record:
        """Read a record; ValueError if the text is not a whole one."""
        data = json.loads(text)
        later = {"uniform", "uses_base", "limit", "failed"}  # records of earlier versions have none
        try:
            record = cls(**{f.name: data[f.name] for f in fields(cls) if f.name not in later or f.name in data})
        except (KeyError, TypeError) as error:
            raise ValueError(f"a field is missing: {error}") from error
        for name, kind in _KINDS.items():
            if not isinstance(getattr(record, name), kind):
                raise ValueError(f"{name} is {getattr(record, name)!r}")
        if record.key != content_key(record.config):
            raise ValueError("its key is not the hash of its configuration")
        if not math.isfinite(record.seconds):
            raise ValueError(f"seconds is {record.seconds}")
        wrong = [x for x in record.accuracies if not (isinstance(x, int | float) and 0 <= x <= 100 + 1e-9)]
        if wrong:
            raise ValueError(f"an accuracy is {wrong[0]!r}, which is no percentage")
        n_tasks = record.config.get("n_tasks")
        if not isinstance(n_tasks, int) or not record.accuracies or not (record.whole or record.limit):
            raise ValueError(f"{len(record.accuracies)} accuracies for {n_tasks} tasks")
        return record


def content_key(config: Mapping[str, Any]) -> str:
    """A hash of a configuration that does not depend on the order of its entries."""
    text = json.dumps(config, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


class RecordStore:
    """A folder of records, ``OUT/records/<key>.json``.

    Parameters
    ----------
    out : path
        The folder that ``records`` is made in.
    writes : sequence of str
        Names of files that will be written into ``out``. Where one is there already and no record is, it is somebody's
        own, and the folder is refused.
    """

    def __init__(self, out: str | Path, writes: Sequence[str] = ()) -> None:
        self.folder = Path(out) / "records"
        theirs = [name for name in writes if (Path(out) / name).exists()]
        if theirs and not any(_NAME.fullmatch(path.name) for path in self.folder.glob("*.json")):
            raise InputError(
                f"--out {str(out)!r} holds {theirs[0]} and no records, so it is not of an earlier run, and that file "
                "would be replaced. Name another folder, or move the file."
            )
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(
                f"--out {str(out)!r} cannot be made a folder ({error.strerror}); records are written into a folder. "
                "Name a new folder, or one of an earlier run."
            ) from error

    def __contains__(self, key: str) -> bool:
        return (self.folder / f"{key}.json").exists()

    def get(self, key: str) -> Record | None:
        """The record of a cell, or None if there is none that can be used."""
        path = self.folder / f"{key}.json"
        try:
            record = Record.from_json(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            warnings.warn(f"{path} is not a whole record ({error}); its cell is run again.", A2LPWarning, stacklevel=2)
            return None
        return record if record.key == key else None

    def put(self, record: Record) -> None:
        """Write a record; a reader sees all of it or nothing."""
        write_text(self.folder / f"{record.key}.json", record.to_json())


def write_text(path: Path, text: str) -> None:
    """Write a file; a reader sees all of it or nothing."""
    try:
        with replacing(path) as temporary:
            temporary.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(
            f"{path} cannot be written ({error.strerror}). Check the folder's permissions and its space; the same "
            "command then goes on from there."
        ) from error
