"""What files of weights hold: safetensors, and the checkpoints that papers published.

They are read without running anything that a file says:

- ``.safetensors``, in one file or in shards ``NAME-00001-of-00002.safetensors``;
- a pickled state dict (LR+ICI's and iLPC's ``res12_*.pth.tar``), or one under ``state_dict`` (LR+ICI's second
  version, SimpleShot, TIM) or ``state`` (S2M2's ``*.tar``).
"""

from __future__ import annotations

import hashlib
import json
import pickle
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from a2lp.errors import InputError, WeightsFileError
from a2lp.features.common import listed
from a2lp.images.backbones.network import Triple
from a2lp.images.view import View

SUFFIX = ".safetensors"
_SHARD = re.compile(r"(.+)-(\d{5})-of-(\d{5})\.safetensors")

# LR+ICI's second version, known by how it spells its classifier, rounds odd sizes up where the first rounds down
_LR_ICI_2 = {"backbone": "resnet12_512", "options": '{"ceil_pool": true}'}

# accuracies that training wrote beside the weights are NumPy's numbers
_SCALAR = np.float64(0).__reduce__()[0]
_NUMBERS = [
    (_SCALAR, "numpy.core.multiarray.scalar"),
    (_SCALAR, "numpy._core.multiarray.scalar"),
    np.dtype,
    *(type(np.dtype(kind)) for kind in ("float64", "float32", "int64")),
]


@dataclass(frozen=True, eq=False)
class Weights:
    """What a file holds.

    Attributes
    ----------
    files : tuple of Path
        The file, or its shards in order.
    digest : str
        The SHA-256 of their bytes, as ``sha256:...``.
    tensors : dict
        Under the keys of the file.
    about : dict
        What the file says about itself.
    """

    files: tuple[Path, ...]
    digest: str
    tensors: dict[str, Tensor]
    about: dict[str, str] = field(default_factory=dict)

    @property
    def options(self) -> dict[str, Any]:
        """The options that the network was made with; none where the file does not say."""
        options = self._said("options", {})
        if not isinstance(options, dict):
            raise self._unusable("options")
        return options

    @property
    def view(self) -> View | None:
        """The view, where the file says which."""
        try:
            return View.parse(self.about["view"]) if "view" in self.about else None
        except InputError as error:
            raise self._unusable("view") from error

    def triple(self, key: str, default: Triple) -> Triple:
        """``mean`` or ``std``; the default where the file does not say."""
        try:
            a, b, c = map(float, self._said(key, default))
        except (TypeError, ValueError) as error:
            raise self._unusable(key) from error
        return a, b, c

    def check_backbone(self, name: str) -> None:
        """Refuse the weights of another backbone."""
        said = self.about.get("backbone", name)
        if said != name:
            raise WeightsFileError(
                f"{self.files[0]} holds weights of backbone {said!r}, not of {name!r}. Ask for backbone {said!r}, or "
                "give other weights."
            )

    def _said(self, key: str, default: Any) -> Any:
        try:
            return json.loads(self.about[key]) if key in self.about else default
        except ValueError as error:
            raise self._unusable(key) from error

    def _unusable(self, key: str) -> WeightsFileError:
        return WeightsFileError(
            f"{self.files[0]}: its metadata says {key} = {self.about[key]!r}, which cannot be used. Fetch or make the "
            "file again."
        )


def read_weights(path: str | Path) -> Weights:
    """What a file of weights holds; all shards, where it comes in shards.

    Raises
    ------
    WeightsFileError
        For a file that is absent, carries code, or is damaged.
    """
    files = _files(Path(path))
    try:
        digest = _digest(files)
        if files[0].suffix == SUFFIX:
            tensors, about = _read_safetensors(files)
        else:
            tensors = _read_checkpoint(files[0])
            about = dict(_LR_ICI_2) if any("clasifier." in key for key in tensors) else {}
    except WeightsFileError:
        raise
    except OSError as error:
        raise WeightsFileError(f"{path} cannot be read: {error.strerror or error}. Check its permissions.") from error
    return Weights(files, digest, tensors, about)


def shard_names(path: Path, total: int) -> tuple[Path, ...]:
    """The names of the shards of weights that are saved as ``path``."""
    stem = path.name.removesuffix(SUFFIX)
    return tuple(path.with_name(f"{stem}-{i + 1:05}-of-{total:05}{SUFFIX}") for i in range(total))


def shards_of(path: Path) -> dict[int, set[Path]]:
    """The shards that are there of weights that are saved as ``path``, by how many there should be."""
    found: dict[int, set[Path]] = {}
    for file in path.parent.iterdir() if path.parent.is_dir() else ():
        match = _SHARD.fullmatch(file.name)
        if match and match[1] == path.name.removesuffix(SUFFIX):
            found.setdefault(int(match[3]), set()).add(file)
    return found


def _files(path: Path) -> tuple[Path, ...]:
    """The file that a path names, or all its shards."""
    if match := _SHARD.fullmatch(path.name):
        files = shard_names(path.with_name(match[1]), int(match[3]))
    elif path.is_file():
        return (path,)
    elif totals := sorted(shards_of(path)):
        if len(totals) > 1:
            said = " and ".join(map(str, totals))
            raise WeightsFileError(f"{path} was saved in {said} shards. Name the first shard of those that you mean.")
        files = shard_names(path, totals[0])
    else:
        found = "is a directory" if path.is_dir() else "does not exist"
        raise WeightsFileError(
            f"{path} {found}; expected a file of weights: {SUFFIX} (or the name that its shards have in common), "
            ".pth, .tar, .pt."
        )
    missing = [file.name for file in files if not file.is_file()]
    if missing or not files:
        raise WeightsFileError(
            f"{path} has {len(files)} shards, and {listed(missing)} cannot be found in {path.parent}. Put all of them "
            "there."
        )
    return files


def _digest(files: tuple[Path, ...]) -> str:
    digest = hashlib.sha256()
    for file in files:
        with file.open("rb") as content:
            while block := content.read(1 << 20):
                digest.update(block)
    return f"sha256:{digest.hexdigest()}"


def _read_safetensors(files: tuple[Path, ...]) -> tuple[dict[str, Tensor], dict[str, str]]:
    tensors: dict[str, Tensor] = {}
    about: dict[str, str] = {}
    for file in files:
        try:
            with safe_open(file, framework="pt") as content:
                known = content.metadata() or {}
                tensors |= {key: content.get_tensor(key) for key in content.keys()}  # noqa: SIM118
        except SafetensorError as error:
            raise _damaged(file, f"a {SUFFIX} file", error) from error
        if file != files[0] and known != about:
            raise WeightsFileError(
                f"{file} and {files[0].name} were not saved together. Fetch or make all {len(files)} shards again."
            )
        about = known
    return tensors, about


def _read_checkpoint(path: Path) -> dict[str, Tensor]:
    """The state dict of a pickled checkpoint."""
    try:
        with torch.serialization.safe_globals(_NUMBERS):
            content = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        if asked := re.search(r"GLOBAL (\w+\.[\w.]+)", str(error)):
            raise WeightsFileError(
                f"{path} is refused: it asks for {asked[1]}, and a checkpoint that carries code could do anything on "
                f"this computer. If you trust where it comes from, open it yourself and save its tensors as {SUFFIX}."
            ) from error
        raise _damaged(path, "a checkpoint that torch.save wrote", error) from error
    except OSError:
        raise
    except Exception as error:  # on a damaged file, torch raises whatever it stumbles over
        raise _damaged(path, "a checkpoint that torch.save wrote", error) from error
    for wrapper in ("state_dict", "state"):
        if isinstance(content, dict) and isinstance(content.get(wrapper), dict):
            content = content[wrapper]
    if not isinstance(content, dict) or not content or not all(isinstance(value, Tensor) for value in content.values()):
        found = f"a dict of {listed(map(str, content))}" if isinstance(content, dict) else f"a {type(content).__name__}"
        raise WeightsFileError(
            f"{path}: expected a state dict {{key: tensor}}, alone or under `state_dict` or `state`; found {found}."
        )
    return {str(key): tensor for key, tensor in content.items()}


def _damaged(path: Path, expected: str, error: Exception) -> WeightsFileError:
    # torch puts advice before and after what it stumbled over
    reason = re.sub(r".*WeightsUnpickler error: |Please (file|use).*|Check the doc.*", "", " ".join(str(error).split()))
    return WeightsFileError(
        f"{path} cannot be read: expected {expected}, found something else or one that is cut short "
        f"({type(error).__name__}: {reason[:200].strip()}). Fetch or make it again."
    )
