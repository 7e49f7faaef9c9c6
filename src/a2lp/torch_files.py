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

# Checkpoints may hold accuracies as NumPy scalars. These are stand-ins: NumPy's own dtype could allocate 2 GiB for one.
_NUMBERS = [(scalar, f"numpy.{core}.multiarray.scalar") for core in ("core", "_core")] + [(DType, "numpy.dtype")]
_OPTIMIZER_STATE: dict[type, tuple[str, ...]] = {
    torch.optim.SGD: ("momentum_buffer",),
    torch.optim.AdamW: ("step", "exp_avg", "exp_avg_sq"),
}
_LEGACY_PICKLES = 5  # before torch 1.6: magic number, version, system, content, keys of the storages that follow
_CHECKPOINT_BYTES = 4 << 30  # the networks of this field have less than 1 GiB
_PICKLE_BYTES = 256 << 20  # of the list of tensors in a checkpoint


def read_safetensors(path: Path, expected: str) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors and the metadata of a safetensors file."""
    with reading(path, expected, error=WeightsFileError), safe_open(path, framework="pt") as content:
        names = content.keys()
        return {name: content.get_tensor(name) for name in names}, content.metadata() or {}


def read_checkpoint(path: Path, expected: str, remedy: str, device: torch.device | str = "cpu") -> Any:
    """A file that ``torch.save`` wrote: tensors, numbers, text and containers of these; anything else is refused.

    Messages name what the file is ``expected`` to be, and the ``remedy`` if it is not.
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
            advice = r".*WeightsUnpickler error: |Please (file|use).*|Check the doc.*"  # torch adds it to the error
            raise pickle.UnpicklingError(re.sub(advice, "", " ".join(str(error).split()))) from error


def write_checkpoint(path: Path, content: Any, remedy: str = "") -> None:
    """Write a file for ``read_checkpoint``; an existing file is replaced only once the new one is complete."""
    with writing(path, remedy), replacing(path) as temporary:
        try:
            torch.save(content, temporary)
        except RuntimeError as error:  # a full disk, for one
            raise OSError(" ".join(str(error).split())[:120]) from error


def check_like(found: Any, expected: Any, name: str) -> None:
    """Refuse values of a file that do not have the structure of an example; ``name`` is theirs in messages.

    Tensors must have the shape and dtype of those in the example and finite values, dicts its keys, and lists its
    length; where it has a type or a union of types, there must be a value of that type.
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
        types = set(get_args(expected) or [expected])
        types |= {int} if float in types else set()
        if type(found) not in types or (isinstance(found, float) and not math.isfinite(found)):
            value = shown(found) if isinstance(found, str | int | float) else type(found).__name__
            raise InputError(f"{name} is {value}; expected {' or '.join(sorted(each.__name__ for each in types))}.")


def restore_optimizer(optimizer: torch.optim.Optimizer, found: Any) -> None:
    """Load the state of an optimizer from a file; its settings stay as they are."""
    check_like(found, {"state": dict, "param_groups": list}, "optimizer")
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    names = _OPTIMIZER_STATE[type(optimizer)]
    for i, entries in found["state"].items():
        if type(i) is not int or not 0 <= i < len(parameters):
            raise InputError(f"optimizer has no parameter {shown(i)}.")
        like = {name: torch.zeros(()) if name == "step" else parameters[i].detach() for name in names}
        check_like(entries, like, f"optimizer.state[{i}]")
        if any(name in entries and bool((entries[name] < 0).any()) for name in ("step", "exp_avg_sq")):
            raise InputError(f"optimizer.state[{i}] has a negative number of steps, or negative squares.")
    optimizer.load_state_dict(optimizer.state_dict() | {"state": found["state"]})


def _check_pickle(path: Path, size: int) -> None:
    """Refuse a checkpoint that would fill the memory or crash the interpreter when torch reads it."""
    with path.open("rb") as file:
        if file.peek(2)[:2] == b"PK":
            with zipfile.ZipFile(file) as archive:
                for name, member in zip_members(archive, size).items():
                    if name.endswith("data.pkl"):
                        if (n_bytes := member.file_size) > _PICKLE_BYTES:
                            raise InputError(f"its list of tensors has {n_bytes} bytes. It is damaged or forged.")
                        check_structure(_StructureUnpickler(io.BytesIO(archive.read(member))).load(), n_bytes)
            return
        for _ in range(_LEGACY_PICKLES):
            check_structure(_StructureUnpickler(file).load(), size)
            if not file.peek(1):  # a plain pickle, which torch may refuse itself
                break


class _Anything:
    """Stands for every object that a checkpoint names while its structure is checked; torch checks the names."""

    __slots__ = ()

    def __init__(self, *_arguments: Any) -> None:
        pass

    __setstate__ = __setitem__ = __init__


class _StructureUnpickler(RestrictedUnpickler):
    """Reads the structure of a pickle without building the objects that it names."""

    def find_class(self, module: str, name: str, /) -> Any:
        return _Anything

    def persistent_load(self, pid: Any) -> Any:
        return None
