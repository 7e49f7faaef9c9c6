"""The files of a training run: a checkpoint, a log of the evaluations, and the record at the end."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, get_type_hints

import torch
from torch import Tensor

from a2lp.checks import shown
from a2lp.errors import InputError, WeightsFileError
from a2lp.files import TEXT_BYTES, exists, parse_json, reading, write_text
from a2lp.images.backbones.weight_files import shards_of
from a2lp.images.training.config import current_names
from a2lp.images.view import View
from a2lp.torch_files import check_like, read_checkpoint, write_checkpoint

CHECKPOINT, LOG, RECORD, WEIGHTS = "checkpoint.pt", "log.jsonl", "record.json", "weights.safetensors"

_EXPECTED = "a checkpoint of a training run"
_DELETE = "Delete it to train from the start."
_REMEDY = "Check the folder's permissions and its space; the same command then continues from the last checkpoint."


@dataclass(frozen=True)
class Evaluation:
    """One evaluation during training."""

    step: int  # so far, as are the next three
    epoch: float
    seconds: float  # of training, with evaluations
    images: int  # through the network, with rotations
    loss: float  # the mean since the previous evaluation
    lr: float
    one_shot: float | None  # accuracy in percent on validation classes, of the averaged weights; None without
    five_shot: float | None
    batch_norm: str  # its statistics: "averaged" or "recalibrated"
    best: bool  # so far
    decay: float | None = None  # of the best average of the weights; None in records of runs with one average

    def __str__(self) -> str:
        text = f"epoch {self.epoch:.1f}, {self.seconds:.0f} s, loss {self.loss:.3f}"
        if self.one_shot is not None:
            text += f", {self.one_shot:.2f} / {self.five_shot:.2f} on validation classes"
        return text + " (best)" * self.best

    @classmethod
    def of(cls, values: Any) -> Evaluation:
        """An evaluation from the values of a file; InputError for wrong ones."""
        known = {"decay": None} | values if isinstance(values, dict) else values
        check_like(known, get_type_hints(cls), "an evaluation")
        return cls(**known)


@dataclass
class RunState:
    """The progress of a run. Random numbers depend on the seed and the step alone, so no generator is kept here."""

    step: int = 0
    seconds: float = 0.0
    since: int = 0  # the step of the last evaluation
    evaluations: list[Evaluation] = field(default_factory=list)
    best_score: float | None = None
    best_state: dict[str, Tensor] | None = None


def write(out: Path, identity: dict[str, Any], state: RunState, tensors: dict[str, Any]) -> None:
    """Write a checkpoint; the previous one is replaced only once this one is complete."""
    progress = vars(state) | {"evaluations": [asdict(evaluation) for evaluation in state.evaluations]}
    content = {"identity": json.dumps(identity), "progress": progress, "tensors": tensors}
    write_checkpoint(out / CHECKPOINT, content, _REMEDY)


def read(
    out: Path, identity: dict[str, Any], weights: dict[str, Tensor], device: torch.device
) -> tuple[RunState, dict[str, Any]] | None:
    """The checkpoint of this run, or None if there is none; ``weights`` is an example of ``best_state``."""
    path = out / CHECKPOINT
    if not exists(path):
        return None
    content = read_checkpoint(path, _EXPECTED, _DELETE, device)
    with reading(path, _EXPECTED, remedy=_DELETE, error=WeightsFileError):
        check_like(content, {"identity": str, "progress": dict, "tensors": dict}, "the checkpoint")
        _same_run(path, parse_json(content["identity"], "identity"), identity)
        progress = current_names(content["progress"])
        evaluated = bool(progress.get("evaluations"))
        kinds: dict[str, Any] = {"step": int, "seconds": float, "since": int, "evaluations": list}
        kinds["best_score"] = float | None if evaluated else type(None)
        kinds["best_state"] = weights if evaluated else type(None)
        check_like(progress, kinds, "progress")
        evaluations = [Evaluation.of(evaluation) for evaluation in progress["evaluations"]]
        if not 0 <= progress["since"] <= progress["step"] or progress["seconds"] < 0:
            raise InputError("its numbers of steps and seconds do not fit together.")
        if evaluated and not any(evaluation.best for evaluation in evaluations):
            raise InputError("none of its evaluations is the best.")
        return RunState(**progress | {"evaluations": evaluations}), content["tensors"]


def finished(out: Path, identity: dict[str, Any]) -> dict[str, Any] | None:
    """The record of this run if it is finished; InputError if the folder has files of another run."""
    path, whole = out / RECORD, out / WEIGHTS
    weights = [file for file in (whole, *shards_of(whole)) if exists(file)]
    if exists(path):
        record = read_record(path)
        _same_run(path, record, identity)
        if not weights:
            raise InputError(
                f"{path} is of a finished run, but its weights are missing. Put them back, or delete {RECORD} to train "
                "again."
            )
        return record
    others = [file for file in (*weights, out / LOG) if exists(file)]
    if others and not exists(out / CHECKPOINT):
        raise InputError(
            f"{out} holds {others[0].name}, which is not of this run and would be replaced. Choose another folder, or "
            "move that file."
        )
    return None


def read_record(path: Path) -> dict[str, Any]:
    """The record of a run, by its current names."""
    expected = "the record of a training run"
    with reading(path, expected, most=TEXT_BYTES, remedy="Choose another folder.", error=InputError):
        record = current_names(parse_json(path.read_bytes(), "the file"))
        kinds = {"config": dict, "data": dict, "view": str, "views": dict, "evaluations": list, "seconds": float}
        for name, kind in kinds.items():
            check_like(record.get(name), kind, name)
        for evaluation in record["evaluations"]:
            Evaluation.of(evaluation)
        view = str(View.parse(record["view"]))
        if record["data"].get("val") is not None:
            check_like(record["views"].get(view), {"one": float, "five": float}, f"views.{view}")
    return record


def clean(out: Path) -> None:
    """Remove the checkpoint of a finished run, and incomplete ones of runs that were killed."""
    for left in (out / CHECKPOINT, *out.glob(f".{CHECKPOINT}.*.tmp")):
        left.unlink(missing_ok=True)


def write_log(out: Path, evaluations: list[Evaluation]) -> None:
    """Write the log: a line of JSON for each evaluation."""
    lines = [json.dumps(asdict(evaluation), allow_nan=False) + "\n" for evaluation in evaluations]
    write_text(out / LOG, "".join(lines), _REMEDY)


def write_record(out: Path, record: dict[str, Any]) -> None:
    """Write the record; a run with a record is finished."""
    write_text(out / RECORD, json.dumps(record, indent=1, allow_nan=False) + "\n", _REMEDY)


def _same_run(path: Path, known: Mapping[str, Any], identity: dict[str, Any]) -> None:
    """Refuse the files of another run. Settings that they lack, as in earlier versions, are ignored."""
    for part, here in identity.items():
        there = known.get(part)
        if not isinstance(there, dict):
            raise InputError(f"{path} has no {part}, so it is not of a training run. Choose another folder.")
        for name, value in sorted(current_names(there).items()):
            if value != here.get(name):
                raise InputError(
                    f"{path} is of another run: its {shown(name)[1:-1]} is {shown(value)}, and this one's is "
                    f"{shown(here.get(name))}. Choose another folder, or delete that run's files."
                )
