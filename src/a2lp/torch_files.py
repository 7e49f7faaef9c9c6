"""Files of torch tensors: safetensors and checkpoints, read without running any code in them."""

from __future__ import annotations

import io
import math
import pickle
import re
import zipfile
from pathlib import Path
from typing import Any, get_args

import torch
from safetensors import safe_open
from torch import Tensor

from a2lp.checks import listed, shown
from a2lp.errors import InputError, WeightsFileError
from a2lp.features.unpickle import DType, RestrictedUnpickler, check_structure, scalar
from a2lp.files import reading, replacing, writing
from a2lp.npz import zip_members

SAFETENSORS = ".safetensors"

# Accuracies that training wrote beside the weights are NumPy's numbers. Stand-ins: NumPy's own dtype could ask for a
# number of 2 GiB.
_NUMBERS = [
    (scalar, "numpy.core.multiarray.scalar"),
    (scalar, "numpy._core.multiarray.scalar"),
    (DType, "numpy.dtype"),
]
_OPTIMIZER_STATE: dict[type, tuple[str, ...]] = {
    torch.optim.SGD: ("momentum_buffer",),
    torch.optim.AdamW: ("step", "exp_avg", "exp_avg_sq"),
}
_LEGACY_PICKLES = 5  # before torch 1.6: magic number, version, system, content, keys of the storages that follow
_CHECKPOINT_BYTES = 4 << 30  # the networks of this field have less than 1 GiB
_PICKLE_BYTES = 256 << 20  # of the names and shapes in a checkpoint


def read_safetensors(path: Path, expected: str) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors and the metadata of a safetensors file."""
    with reading(path, expected, error=WeightsFileError), safe_open(path, framework="pt") as content:
        return {key: content.get_tensor(key) for key in content.keys()}, content.metadata() or {}  # noqa: SIM118


def read_checkpoint(path: Path, expected: str, remedy: str, device: torch.device | str = "cpu") -> Any:
    """What ``torch.save`` wrote: tensors, numbers, text and containers of these; anything else is refused.

    Parameters
    ----------
    path : Path
    expected, remedy : str
        What the file should be and what to do where it is not, for messages.
    device : torch.device or str
        Where the tensors go.
    """
    with reading(path, expected, most=_CHECKPOINT_BYTES, remedy=remedy, error=WeightsFileError) as size:
        _check_pickle(path, size)
        try:
            with torch.serialization.safe_globals(_NUMBERS):
                return torch.load(path, map_location=device, weights_only=True)
        except pickle.UnpicklingError as error:
            if asked := re.search(r"GLOBAL (\w+\.[\w.]+)", str(error)):
                raise WeightsFileError(
                    f"{path} is refused: it asks for {asked[1][:80]}, and a checkpoint that carries code could do "
                    "anything on this computer. If you trust where it comes from, open it yourself and save its "
                    f"tensors as {SAFETENSORS}."
                ) from error
            # torch puts advice before and after the error itself
            text = re.sub(
                r".*WeightsUnpickler error: |Please (file|use).*|Check the doc.*", "", " ".join(str(error).split())
            )
            raise pickle.UnpicklingError(text) from error


def write_checkpoint(path: Path, content: Any, remedy: str = "") -> None:
    """Write what ``read_checkpoint`` reads; the file that is there stays whole until this one is."""
    with writing(path, remedy), replacing(path) as temporary:
        try:
            torch.save(content, temporary)
        except RuntimeError as error:  # torch's own for a full disk
            raise OSError(" ".join(str(error).split())[:120]) from error


def check_like(found: Any, expected: Any, name: str) -> None:
    """Refuse values of a file that are not of the kind that this program writes there.

    Parameters
    ----------
    found : object
        What the file has.
    expected : object
        An example, or types in its place. Tensors must have the example's shape and dtype and finite values, dicts its
        keys, and lists its length; anything else must be of its type.
    name : str
        What ``found`` is called in the message.
    """
    if isinstance(expected, Tensor):
        shape, dtype = tuple(expected.shape), expected.dtype
        if not isinstance(found, Tensor) or (tuple(found.shape), found.dtype) != (shape, dtype):
            raise InputError(f"{name} is not a tensor of shape {shape} and {dtype}.")
        if not bool(found.isfinite().all()):
            raise InputError(f"{name} has values that are not finite.")
    elif isinstance(expected, dict):
        if not isinstance(found, dict) or found.keys() != expected.keys():
            raise InputError(f"{name} does not have the entries {listed(expected)}.")
        for key, value in expected.items():
            check_like(found[key], value, f"{name}.{key}")
    elif isinstance(expected, list):
        if not isinstance(found, list) or len(found) != len(expected):
            raise InputError(f"{name} is not a list of {len(expected)}.")
        for i, value in enumerate(expected):
            check_like(found[i], value, f"{name}[{i}]")
    else:
        kinds = set(get_args(expected) or [expected])
        kinds |= {int} if float in kinds else set()
        if type(found) not in kinds or (isinstance(found, float) and not math.isfinite(found)):
            names = " or ".join(sorted(kind.__name__ for kind in kinds))
            raise InputError(
                f"{name} is {shown(found) if isinstance(found, str | int | float) else type(found).__name__}; "
                f"expected {names}."
            )


def restore_optimizer(optimizer: torch.optim.Optimizer, found: Any) -> None:
    """Load the state of an optimizer; its settings stay those of the run."""
    check_like(found, {"state": dict, "param_groups": list}, "optimizer")
    own = optimizer.state_dict()
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    for i, entries in found["state"].items():
        if type(i) is not int or not 0 <= i < len(parameters):
            raise InputError(f"optimizer has no parameter {shown(i)}.")
        names = _OPTIMIZER_STATE[type(optimizer)]
        like = {name: torch.zeros(()) if name == "step" else parameters[i].detach() for name in names}
        check_like(entries, like, f"optimizer.state[{i}]")
        if any(name in entries and bool((entries[name] < 0).any()) for name in ("step", "exp_avg_sq")):
            raise InputError(f"optimizer.state[{i}] has a negative number of steps, or negative squares.")
    optimizer.load_state_dict({"state": found["state"], "param_groups": own["param_groups"]})


def _check_pickle(path: Path, size: int) -> None:
    """Refuse a checkpoint that would take all memory or end the interpreter where torch reads it."""
    with path.open("rb") as file:
        if file.read(2) == b"PK":
            with zipfile.ZipFile(path) as archive:
                members = zip_members(archive, size)
                for name, member in members.items():
                    if name.endswith("data.pkl"):
                        if member.file_size > _PICKLE_BYTES:
                            raise InputError(
                                f"its list of tensors has {member.file_size} bytes. It is damaged or forged."
                            )
                        check_structure(_Scan(io.BytesIO(archive.read(member))).load(), member.file_size)
            return
        file.seek(0)
        for _ in range(_LEGACY_PICKLES):
            check_structure(_Scan(file).load(), size)
            if not file.peek(1):  # a plain pickle, which torch may refuse itself
                break


class _Anything:
    """Stands for everything that a checkpoint names while its structure is checked; torch decides what it may name."""

    __slots__ = ()

    def __new__(cls, *_arguments: Any) -> Any:
        return object.__new__(cls)

    def __setstate__(self, state: Any) -> None:
        pass

    def __setitem__(self, key: Any, value: Any) -> None:
        pass


class _Scan(RestrictedUnpickler):
    """Reads the structure of a pickle without building the objects that it names."""

    def find_class(self, module: str, name: str, /) -> Any:
        return _Anything

    def persistent_load(self, pid: Any) -> Any:
        return None
