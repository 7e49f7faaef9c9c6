"""Files of trained heads: safetensors, with what they were trained for and how in the metadata."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from a2lp.errors import WeightsFileError
from a2lp.features.common import replacing

if TYPE_CHECKING:
    from a2lp.meta.base import Head

SUFFIX = ".safetensors"


@dataclass(frozen=True, eq=False)
class HeadWeights:
    """What a file holds.

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

    def load_into(self, head: Head) -> None:
        """Put the weights into a head."""
        try:
            head.load_state_dict(self.tensors)
        except RuntimeError as error:
            raise WeightsFileError(
                f"{self.path} does not fit the network of {type(head).__name__}: {' '.join(str(error).split())[:300]} "
                "It was written by another version of a2lp. Train it again: a2lp meta-train."
            ) from error


def write_weights(path: Path, head: Head, n_dims: int, n_way: int, about: dict[str, Any]) -> None:
    """Write a head; no half-written file is ever seen."""
    metadata = {"head": type(head).__name__, "n_dims": str(n_dims), "n_way": str(n_way), "about": json.dumps(about)}
    tensors = {name: tensor.contiguous() for name, tensor in head.state_dict().items()}
    try:
        with replacing(path) as temporary:
            temporary.write_bytes(save(tensors, metadata))
    except (OSError, SafetensorError) as error:
        raise WeightsFileError(f"{path} cannot be written ({error}). Check the directory and its space.") from error


def read_weights(path: str | Path, head: str | None = None) -> HeadWeights:
    """What a file of weights holds.

    Parameters
    ----------
    path : path
    head : str, optional
        The head that it must be of.
    """
    path = Path(path)
    if not path.is_file():
        fault = "is a directory" if path.is_dir() else "does not exist"
        raise WeightsFileError(f"weights: {path} {fault}; expected a file that `a2lp meta-train` wrote ({SUFFIX}).")
    try:
        with safe_open(path, framework="pt") as content:
            known = content.metadata() or {}
            tensors = {key: content.get_tensor(key) for key in content.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise WeightsFileError(
            f"weights: {path} cannot be read: expected a {SUFFIX} file, found something else or one that is cut short "
            f"({error}). Fetch or make it again."
        ) from error
    try:
        found = HeadWeights(path, tensors, int(known["n_dims"]), int(known["n_way"]), json.loads(known["about"]))
        of = str(known["head"])
    except (KeyError, ValueError) as error:
        raise WeightsFileError(
            f"weights: {path} does not say which head it is of; expected a file that `a2lp meta-train` wrote."
        ) from error
    if head is not None and of != head:
        raise WeightsFileError(
            f"weights: {path} holds the head of {found.about.get('method', of)!r} ({of}); this method's is {head}. "
            "Give the weights of this method, or train some: a2lp meta-train."
        )
    return found
