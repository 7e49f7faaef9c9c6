"""Files of weights, read without running any code in them.

- ``.safetensors``, in one file or in shards ``NAME-00001-of-00002.safetensors``;
- a pickled state dict (LR+ICI's and iLPC's ``res12_*.pth.tar``), or one under ``state_dict`` (LR+ICI's second
  version, SimpleShot, TIM) or ``state`` (S2M2's ``*.tar``).
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from a2lp.checks import listed, shown
from a2lp.errors import WeightsFileError
from a2lp.files import exists, parse_json
from a2lp.images.view import View
from a2lp.torch_files import SAFETENSORS, read_checkpoint, read_safetensors

_SHARD = re.compile(r"(.+)-(\d{5})-of-(\d{5})\.safetensors")

# LR+ICI's second version, recognised by its spelling `clasifier`, rounds odd sizes up; the first rounds down
_LR_ICI_2 = {"backbone": "resnet12_512", "options": '{"ceil_pool": true}'}


@dataclass(frozen=True, eq=False)
class Weights:
    """The content of a file of weights."""

    files: tuple[Path, ...]  # the file, or its shards in order
    digest: str  # the SHA-256 of their bytes, as ``sha256:...``
    tensors: dict[str, Tensor]  # by the keys of the file
    about: dict[str, str]  # the metadata

    def entry(self, key: str, default: Any) -> Any:
        """``options``, ``view``, ``mean`` or ``std`` from the metadata; the default if it is not there."""
        if key not in self.about:
            return default
        try:
            if key == "view":
                return View.parse(self.about[key])
            value = parse_json(self.about[key], key)
            if key == "options":
                return dict(**value)
            a, b, c = map(float, value)
            if key == "std" and min(a, b, c) <= 0:
                raise ValueError
            return a, b, c
        except (TypeError, ValueError) as error:
            raise self.unusable(key) from error

    def check_backbone(self, name: str) -> None:
        """Refuse the weights of another backbone."""
        own = self.about.get("backbone", name)
        if own != name:
            raise WeightsFileError(
                f"{self.files[0]} holds weights of backbone {shown(own)}, not of {name!r}. Ask for backbone "
                f"{shown(own)}, or give other weights."
            )

    def unusable(self, key: str) -> WeightsFileError:
        """The error for an entry of the metadata that cannot be used."""
        return WeightsFileError(
            f"{self.files[0]}: its metadata has {key} = {shown(self.about[key])}, which cannot be used. Fetch or make "
            "the file again."
        )


def read_weights(path: str | Path) -> Weights:
    """Read a file of weights or all its shards; WeightsFileError if one is absent, carries code, or is damaged."""
    files = _files(Path(path))
    tensors: dict[str, Tensor] = {}
    about: dict[str, str] = {}
    if files[0].suffix == SAFETENSORS:
        for file in files:
            shard, metadata = read_safetensors(file, f"a {SAFETENSORS} file")
            if file != files[0] and metadata != about:
                raise WeightsFileError(
                    f"{file} and {files[0].name} were not saved together. Fetch or make all {len(files)} shards again."
                )
            tensors, about = tensors | shard, metadata
    else:
        content = read_checkpoint(files[0], "a checkpoint that torch.save wrote", "Fetch or make it again.")
        for wrapper in ("state_dict", "state"):
            if isinstance(content, dict) and isinstance(content.get(wrapper), dict):
                content = content[wrapper]
        if not isinstance(content, dict) or not content or not all(isinstance(x, Tensor) for x in content.values()):
            kind = f"a dict of {listed(content)}" if isinstance(content, dict) else f"a {type(content).__name__}"
            raise WeightsFileError(
                f"{files[0]}: expected a state dict {{key: tensor}}, alone or under `state_dict` or `state`; found "
                f"{kind}."
            )
        tensors = {str(key): tensor for key, tensor in content.items()}
        about = _LR_ICI_2 if any("clasifier." in key for key in tensors) else {}
    digest = hashlib.sha256()
    for file in files:
        with file.open("rb") as content:
            hashlib.file_digest(content, lambda: digest)
    return Weights(files, f"sha256:{digest.hexdigest()}", tensors, about)


def shard_names(path: Path, total: int) -> tuple[Path, ...]:
    """The names of the shards of weights with the name ``path``."""
    stem = path.name.removesuffix(SAFETENSORS)
    return tuple(path.with_name(f"{stem}-{i + 1:05}-of-{total:05}{SAFETENSORS}") for i in range(total))


def shards_of(path: Path) -> dict[Path, int]:
    """The existing shards of weights with the name ``path``, each with the number of shards that there should be."""
    matches = {file: _SHARD.fullmatch(file.name) for file in (path.parent.iterdir() if path.parent.is_dir() else ())}
    stem = path.name.removesuffix(SAFETENSORS)
    return {file: int(match[3]) for file, match in matches.items() if match and match[1] == stem}


def _files(path: Path) -> tuple[Path, ...]:
    """The file of this name, or all its shards."""
    match = _SHARD.fullmatch(path.name)
    if match is None and exists(path) and not path.is_dir():
        return (path,)
    totals = [int(match[3])] if match else sorted(set(shards_of(path).values()))
    if len(totals) > 1:
        numbers = " and ".join(map(str, totals))
        raise WeightsFileError(f"{path} was saved in {numbers} shards. Name the first shard of those you want.")
    if not totals:
        found = "is a folder" if path.is_dir() else "does not exist"
        raise WeightsFileError(
            f"{path} {found}; expected a file of weights: {SAFETENSORS} (or the name that its shards have in common), "
            ".pth, .tar, .pt."
        )
    files = shard_names(path.with_name(match[1]) if match else path, totals[0])
    missing = [file.name for file in files if not file.exists()]
    if missing or not files:
        raise WeightsFileError(
            f"{path} has {len(files)} shards, and {listed(missing)} cannot be found in {path.parent}. Put all of them "
            "there."
        )
    return files
