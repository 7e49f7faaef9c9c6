"""Files of trained heads: safetensors, with a description of the training in the metadata."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import save
from torch import Tensor

from a2lp.checks import shown
from a2lp.errors import InputError, WeightsFileError
from a2lp.files import parse_json, reading, replacing, writing
from a2lp.torch_files import check_like, read_safetensors

if TYPE_CHECKING:
    from a2lp.meta.base import Head

_EXPECTED = "a trained head (.safetensors that `a2lp meta-train` wrote)"


@dataclass(frozen=True, eq=False)
class HeadWeights:
    """The content of a file of weights.

    Attributes
    ----------
    path : Path
    tensors : dict
        The head's state.
    n_dims, n_way : int
        Dimensions of the vectors, and classes of the tasks that it was trained on.
    about : dict
        The method, base features, settings, validation, versions and date.
    """

    path: Path
    tensors: dict[str, Tensor]
    n_dims: int
    n_way: int
    about: dict[str, Any] = field(default_factory=dict)

    def check_fits(self, kind: type[Head]) -> None:
        """Refuse weights that are not of a kind of head; no memory is taken up for one."""
        with torch.device("meta"):
            expected = dict(kind(self.n_dims, self.n_way).state_dict())
        try:
            check_like(self.tensors, expected, "the head")
        except InputError as error:
            raise WeightsFileError(
                f"{self.path} does not fit the network of {kind.__name__}: {error} It is damaged, or was written by "
                "another version of a2lp. Train it again: a2lp meta-train."
            ) from error


def write_weights(path: Path, head: Head, n_dims: int, n_way: int, about: dict[str, Any]) -> None:
    """Write a head; no half-written file is ever seen."""
    metadata = {"head": type(head).__name__, "n_dims": str(n_dims), "n_way": str(n_way), "about": json.dumps(about)}
    tensors = {name: tensor.contiguous() for name, tensor in head.state_dict().items()}
    with writing(path, error=WeightsFileError), replacing(path) as temporary:
        temporary.write_bytes(save(tensors, metadata))


def read_weights(path: str | Path, head: str | None = None) -> HeadWeights:
    """Read a file of weights.

    Parameters
    ----------
    path : path
    head : str, optional
        The head that it must be of.
    """
    path = Path(path)
    tensors, known = read_safetensors(path, _EXPECTED)
    with reading(path, _EXPECTED, error=WeightsFileError):
        missing = [name for name in ("head", "n_dims", "n_way", "about") if name not in known]
        if missing:
            raise InputError(f"its metadata has no {missing[0]}; expected {_EXPECTED}.")
        sizes = [parse_json(known[name], name) for name in ("n_dims", "n_way")]
        if not all(type(size) is int and 0 < size < 10**6 for size in sizes):
            raise InputError(f"n_dims and n_way are {shown(sizes)}; expected whole numbers, 1 or more.")
        about = parse_json(known["about"], "about")
        check_like(about, dict, "about")
    if head is not None and known["head"] != head:
        raise WeightsFileError(
            f"{path} holds the head of {shown(about.get('method', known['head']))} ({known['head'][:80]}); this "
            f"method's is {head}. Give the weights of this method, or train some: a2lp meta-train."
        )
    return HeadWeights(path, tensors, sizes[0], sizes[1], about)
