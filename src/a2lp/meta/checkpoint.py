"""The checkpoint of a head's training, a file beside the weights while it runs."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from a2lp.errors import InputError, WeightsFileError
from a2lp.files import exists, parse_json, reading
from a2lp.meta.base import Head
from a2lp.torch_files import check_like, read_checkpoint, restore_optimizer, write_checkpoint

_EXPECTED = "a checkpoint of a2lp meta-train"
_REMEDY = "Delete it to train from the start."


@dataclass(frozen=True)
class Evaluation:
    """The result of one evaluation during training.

    Attributes
    ----------
    step : int
        Steps until then.
    loss : float
        Mean loss since the previous evaluation.
    accuracies : tuple of float or None
        Percent on validation classes, for each number of shots; None without validation.
    best : bool
        Whether it is the best so far.
    """

    step: int
    loss: float
    accuracies: tuple[float, ...] | None
    best: bool

    def __str__(self) -> str:
        numbers = "" if self.accuracies is None else f", {' / '.join(f'{value:.2f}' for value in self.accuracies)}"
        accuracies = f"{numbers} on validation classes" if numbers else ""
        return f"step {self.step}, loss {self.loss:.4f}{accuracies}{' (best)' if self.best else ''}"

    @classmethod
    def of(cls, values: Any) -> Evaluation:
        """An evaluation from the values of a file; InputError where these are others."""
        check_like(values, {"step": int, "loss": float, "accuracies": list | tuple | None, "best": bool}, "evaluation")
        accuracies = values["accuracies"]
        for accuracy in accuracies or ():
            check_like(accuracy, float, "an accuracy")
        return cls(**values | {"accuracies": None if accuracies is None else tuple(accuracies)})


@dataclass
class RunState:
    """How far a run is; ``loss`` is the sum since the last evaluation."""

    step: int = 0
    evaluations: list[Evaluation] = field(default_factory=list)
    best: float = -math.inf
    best_head: dict[str, Tensor] = field(default_factory=dict)
    loss: float = 0.0


def path_of(out: Path) -> Path:
    """The checkpoint of a run that writes ``out``."""
    return out.with_suffix(".checkpoint.pt")


def write(out: Path, identity: Any, state: RunState, head: Head, optimizer: torch.optim.Optimizer) -> None:
    """Write a checkpoint; the previous one stays whole until this one is."""
    progress = vars(state) | {"evaluations": [asdict(evaluation) for evaluation in state.evaluations]}
    content = {"head": head.state_dict(), "optimizer": optimizer.state_dict(), "state": progress}
    write_checkpoint(path_of(out), content | {"identity": json.dumps(identity)})


def restore(out: Path, identity: Any, head: Head, optimizer: torch.optim.Optimizer) -> RunState:
    """Continue from the checkpoint of a run that was killed; the start, where there is none."""
    path = path_of(out)
    if not exists(path):
        return RunState()
    content = read_checkpoint(path, _EXPECTED, _REMEDY)
    with reading(path, _EXPECTED, remedy=_REMEDY, error=WeightsFileError):
        check_like(content.get("identity") if isinstance(content, dict) else None, str, "identity")
        if same_names(parse_json(content["identity"], "identity")) != identity:
            raise WeightsFileError(
                f"{path} is of a run with other settings or features that was not finished. Finish that run, choose "
                "another name, or delete it."
            )
        weights = dict(head.state_dict())
        kinds = {"step": int, "evaluations": list, "best": float, "best_head": weights, "loss": float}
        check_like(content, {"head": weights, "optimizer": dict, "state": dict, "identity": str}, "the checkpoint")
        progress = same_names(content["state"])
        check_like(progress, kinds, "state")
        evaluations = [Evaluation.of(values) for values in progress["evaluations"]]
        if not evaluations or evaluations[-1].step != progress["step"] or not any(one.best for one in evaluations):
            raise InputError("its evaluations do not fit its step.")  # checkpoints are written after evaluations
        restore_optimizer(optimizer, content["optimizer"])
        head.load_state_dict(content["head"])
        return RunState(**progress | {"evaluations": evaluations})


def same_names(values: Any) -> Any:
    """Entries of a file under their current names: files of earlier versions call evaluations looks."""
    if not isinstance(values, dict):
        return values
    return {"evaluations" if name == "looks" else name: same_names(value) for name, value in values.items()}
