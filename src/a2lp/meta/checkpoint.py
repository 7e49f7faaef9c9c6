"""The files of a head: its weights (safetensors, with a description of the training), and a checkpoint beside them."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import save
from torch import Tensor

from a2lp.checks import shown
from a2lp.errors import InputError, WeightsFileError
from a2lp.files import exists, parse_json, reading, replacing, writing
from a2lp.torch_files import check_like, read_checkpoint, read_safetensors, restore_optimizer, write_checkpoint

if TYPE_CHECKING:
    from a2lp.meta.base import Head

_WEIGHTS = "a trained head (.safetensors that `a2lp meta-train` wrote)"
_EXPECTED = "a checkpoint of a2lp meta-train"
_REMEDY = "Delete it to train from the start."


@dataclass(frozen=True, eq=False)
class HeadWeights:
    """The content of a file of weights."""

    path: Path
    tensors: dict[str, Tensor]  # the state of the head
    n_dims: int  # of the vectors that it was trained on
    n_way: int  # classes of the tasks that it was trained on
    about: dict[str, Any]  # the method, base features, settings, validation, versions and date


def write_weights(path: Path, head: Head, n_dims: int, n_way: int, about: dict[str, Any]) -> None:
    """Write a head; a half-written file is never visible."""
    metadata = {"head": type(head).__name__, "n_dims": str(n_dims), "n_way": str(n_way), "about": json.dumps(about)}
    tensors = {name: tensor.contiguous() for name, tensor in head.state_dict().items()}
    with writing(path, error=WeightsFileError), replacing(path) as temporary:
        temporary.write_bytes(save(tensors, metadata))


def read_weights(path: str | Path, head: type[Head] | None = None) -> HeadWeights:
    """Read a file of weights; WeightsFileError unless they are of this kind of head."""
    path = Path(path)
    tensors, known = read_safetensors(path, _WEIGHTS)
    with reading(path, _WEIGHTS, error=WeightsFileError):
        missing = [name for name in ("head", "n_dims", "n_way", "about") if name not in known]
        if missing:
            raise InputError(f"its metadata has no {missing[0]}; expected {_WEIGHTS}.")
        sizes = [parse_json(known[name], name) for name in ("n_dims", "n_way")]
        if not all(type(size) is int and 0 < size < 10**6 for size in sizes):
            raise InputError(f"n_dims and n_way are {shown(sizes)}; expected whole numbers, 1 or more.")
        about = parse_json(known["about"], "about")
        check_like(about, dict, "about")
    if head is not None and known["head"] != head.__name__:
        raise WeightsFileError(
            f"{path} holds the head of {shown(about.get('method', known['head']))} ({known['head'][:80]}); this "
            f"method's is {head.__name__}. Give the weights of this method, or train some: a2lp meta-train."
        )
    if head is not None:
        with torch.device("meta"):  # takes up no memory
            expected = dict(head(*sizes).state_dict())
        try:
            check_like(tensors, expected, "the head")
        except InputError as error:
            raise WeightsFileError(
                f"{path} does not fit the network of {head.__name__}: {error} It is damaged, or was written by another "
                "version of a2lp. Train it again: a2lp meta-train."
            ) from error
    return HeadWeights(path, tensors, sizes[0], sizes[1], about)


@dataclass(frozen=True)
class Evaluation:
    """One evaluation during training."""

    step: int  # so far
    loss: float  # the mean since the previous evaluation
    accuracies: tuple[float, ...] | None  # percent on validation classes, for each number of shots; None without
    best: bool  # so far

    def __str__(self) -> str:
        text = f"step {self.step}, loss {self.loss:.4f}"
        if self.accuracies is not None:
            text += f", {' / '.join(f'{value:.2f}' for value in self.accuracies)} on validation classes"
        return text + " (best)" * self.best

    @classmethod
    def of(cls, values: Any) -> Evaluation:
        """An evaluation from the values of a file; InputError for wrong ones."""
        check_like(values, {"step": int, "loss": float, "accuracies": list | tuple | None, "best": bool}, "evaluation")
        if (accuracies := values["accuracies"]) is not None:
            check_like(list(accuracies), [float] * len(accuracies), "accuracies")
        return cls(**values | {"accuracies": None if accuracies is None else tuple(accuracies)})


@dataclass
class RunState:
    """The progress of a run; ``loss`` is the sum since the last evaluation."""

    step: int = 0
    evaluations: list[Evaluation] = field(default_factory=list)
    best: float = -math.inf
    best_head: dict[str, Tensor] = field(default_factory=dict)
    loss: float = 0.0


def write(path: Path, identity: Any, state: RunState, head: Head, optimizer: torch.optim.Optimizer) -> None:
    """Write a checkpoint; the previous one is replaced only once this one is complete."""
    progress = vars(state) | {"evaluations": [asdict(evaluation) for evaluation in state.evaluations]}
    content = {"head": head.state_dict(), "optimizer": optimizer.state_dict(), "state": progress}
    write_checkpoint(path, content | {"identity": json.dumps(identity)})


def restore(path: Path, identity: Any, head: Head, optimizer: torch.optim.Optimizer) -> RunState:
    """The state of a run from its checkpoint, which is loaded into head and optimizer; a new one if there is none."""
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
    """The entries of a file by their current names: in earlier versions, evaluations were ``looks``."""
    if not isinstance(values, dict):
        return values
    return {"evaluations" if name == "looks" else name: same_names(value) for name, value in values.items()}
