"""What survives a kill: a checkpoint of the whole run, a log with a line for each look, and the record at the end."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from a2lp.errors import A2LPError, InputError
from a2lp.features.common import replacing
from a2lp.images.backbones.weight_files import shards_of

CHECKPOINT, LOG, RECORD, WEIGHTS = "checkpoint.pt", "log.jsonl", "record.json", "weights.safetensors"


@dataclass(frozen=True)
class Look:
    """What was seen at one look.

    Attributes
    ----------
    step : int
        Steps until then.
    epoch, seconds : float
        Epochs and seconds of training until then, looks included.
    images : int
        Images that went through the network, rotated copies counted.
    loss : float
        Mean loss since the look before.
    lr : float
        The learning rate at that step.
    one_shot, five_shot : float or None
        Few-shot accuracy in percent on validation classes, of the averaged weights; None without validation.
    batch_norm : str
        Which statistics that accuracy is of: ``averaged`` or ``recalibrated``.
    best : bool
        Whether this is the best until then.
    decay : float or None
        Decay of the average of the weights that was the best of all; None in records of runs that had but one.
    """

    step: int
    epoch: float
    seconds: float
    images: int
    loss: float
    lr: float
    one_shot: float | None
    five_shot: float | None
    batch_norm: str
    best: bool
    decay: float | None = None


@dataclass
class Progress:
    """Where a run stands; randomness is a function of the seed and the step, so there is none of it here."""

    step: int = 0
    seconds: float = 0.0
    since: int = 0  # the step of the last look
    looks: list[Look] = field(default_factory=list)
    best_score: float | None = None
    best_state: dict[str, Tensor] | None = None


def write(out: Path, identity: dict[str, Any], progress: Progress, tensors: dict[str, Any]) -> None:
    """Write a checkpoint; the one before stays whole until this one is."""
    known = vars(progress) | {"looks": [asdict(look) for look in progress.looks]}
    with _writing(out / CHECKPOINT), replacing(out / CHECKPOINT) as temporary:
        torch.save({"identity": json.dumps(identity), "progress": known, "tensors": tensors}, temporary)


def read(out: Path, identity: dict[str, Any], device: torch.device) -> tuple[Progress, dict[str, Any]] | None:
    """The checkpoint of this very run, or None where there is none."""
    path = out / CHECKPOINT
    if not path.exists():
        return None
    try:
        found = torch.load(path, map_location=device, weights_only=True)
        known = json.loads(found["identity"])
        progress = Progress(**found["progress"])
        progress.looks = [Look(**look) for look in found["progress"]["looks"]]
    except Exception as error:  # torch raises whatever it stumbles over
        raise InputError(
            f"{path} cannot be read as a checkpoint ({type(error).__name__}). Delete it to train from the start."
        ) from error
    _same_run(path, known, identity)
    return progress, found["tensors"]


def finished(out: Path, identity: dict[str, Any]) -> dict[str, Any] | None:
    """The record of this very run, if it is finished; an error where it is another's, or its weights are gone."""
    path = out / RECORD
    if not path.exists():
        return None
    try:
        record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        _same_run(path, record, identity)
        if missing := {"view", "views", "looks", "seconds"} - record.keys():
            raise KeyError(min(missing))
    except InputError:
        raise
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path} is not the record of a run ({error}). Choose another folder.") from error
    if not _weights(out):
        raise InputError(
            f"{path} says that this run is finished, but its weights are not there. Put them back, or delete {RECORD} "
            "to train again."
        )
    return record


def claim(out: Path) -> None:
    """Refuse a folder with weights or a log that no checkpoint here led to: they are somebody's, and would be lost."""
    if (out / CHECKPOINT).exists():
        return
    theirs = [path.name for path in _weights(out)]
    if (out / LOG).exists() and not _is_log(out / LOG):  # a run that was killed before its first checkpoint left one
        theirs.append(LOG)
    if theirs:
        raise InputError(
            f"{out} holds {theirs[0]}, which is not of this run and would be replaced. Choose another folder, or move "
            "that file."
        )


def clean(out: Path) -> None:
    """Remove what a finished run does not need: its checkpoint, and parts of others that kills left."""
    for left in (out / CHECKPOINT, *out.glob(f".{CHECKPOINT}.*.tmp")):
        left.unlink(missing_ok=True)


def _is_log(path: Path) -> bool:
    """Whether a file holds looks; of the last one a kill may have left a part."""
    try:
        *lines, last = path.read_text(encoding="utf-8").split("\n")
        for line in lines:
            Look(**json.loads(line))
    except (OSError, ValueError, TypeError):
        return False
    begins = '{"step": '
    return last.startswith(begins) or begins.startswith(last)


def write_log(out: Path, looks: list[Look]) -> None:
    """Write the log anew, without what a run that was killed said after its last checkpoint."""
    with _writing(out / LOG), replacing(out / LOG) as temporary:
        temporary.write_text("".join(map(_line, looks)), encoding="utf-8")


def append_log(out: Path, look: Look) -> None:
    """Add a look to the log."""
    with _writing(out / LOG), (out / LOG).open("a", encoding="utf-8") as file:
        file.write(_line(look))


def write_record(out: Path, record: dict[str, Any]) -> None:
    """Write the record; its presence says that the run is finished."""
    with _writing(out / RECORD), replacing(out / RECORD) as temporary:
        temporary.write_text(json.dumps(record, indent=1, allow_nan=False) + "\n", encoding="utf-8")


def _line(look: Look) -> str:
    return json.dumps(asdict(look), allow_nan=False) + "\n"


def _weights(out: Path) -> list[Path]:
    whole = out / WEIGHTS
    return [
        path for path in (whole, *(shard for found in shards_of(whole).values() for shard in found)) if path.exists()
    ]


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Say what cannot be written, and what is left."""
    try:
        yield
    except (OSError, RuntimeError) as error:  # torch raises the latter for a full disk
        reason = (isinstance(error, OSError) and error.strerror) or " ".join(str(error).split())[:120]
        raise A2LPError(
            f"{path} cannot be written ({reason}). Check the folder's permissions and its space; the same command then "
            "goes on from the last checkpoint."
        ) from error


def _same_run(path: Path, known: dict[str, Any], identity: dict[str, Any]) -> None:
    """Refuse what another run left. A setting that it does not have is younger than it, and is not compared."""
    for part, here in identity.items():
        for name, there in sorted(known[part].items()):
            if there != here.get(name):
                raise InputError(
                    f"{path} is of another run: its {name} is {there!r}, and this one's is {here.get(name)!r}. Choose "
                    "another folder, or delete that one's files."
                )
