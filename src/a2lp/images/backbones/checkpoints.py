"""From files of weights to networks and back."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import safetensors.torch
import torch
from torch import Tensor

from a2lp.errors import InputError, WeightsFileError
from a2lp.features.common import listed, replacing
from a2lp.images.backbones.network import Network, Triple
from a2lp.images.backbones.weight_files import SUFFIX, Weights, read_weights, shard_names, shards_of
from a2lp.images.view import View

MAX_BYTES = 15 << 20

# added by DataParallel, by LR+ICI's second version, and by the first stage of S2M2
_WRAPPERS = re.compile(r"(module\.|base\.|feature\.)+")
_HEADS = ("fc.", "_fc.", "linear.", "classifier.", "clasifier.", "rotate", "head.")


@dataclass(frozen=True)
class LoadReport:
    """What was loaded.

    Attributes
    ----------
    files : tuple of Path
        The file, or its shards in order.
    weights : str
        The SHA-256 of their bytes, as ``sha256:...``.
    loaded : int
        How many tensors the network took.
    dropped : tuple of str
        Keys that belong to a classifier, which an embedding does without.
    about : dict
        What the file says about itself.
    """

    files: tuple[Path, ...]
    weights: str
    loaded: int
    dropped: tuple[str, ...]
    about: dict[str, str]


def load_weights(net: Network, path: str | Path) -> LoadReport:
    """Load the weights of a network; those of a classifier are dropped.

    Parameters
    ----------
    net : Network
        What ``network`` gave. It takes over the view and the normalisation that the file names, if it does.
    path : str or Path
        A .safetensors file, its first shard, the name that its shards have in common, or a published checkpoint.

    Raises
    ------
    WeightsFileError
        For a file that carries code, is damaged, or is not of this network: the message names the keys.
    """
    weights = read_weights(path)
    weights.check_backbone(net.name)
    for option, value in weights.options.items():
        if not option.startswith("drop") and net.options.get(option) != value:
            raise WeightsFileError(
                f"{path} holds weights of a {net.name} with {option}={value!r}; this one was made with "
                f"{net.options.get(option)!r}. Make the network with {option}={value!r}."
            )
    return fill(net, weights)


def fill(net: Network, weights: Weights) -> LoadReport:
    """Put weights that were read into the network that they are for."""
    own = net.core.state_dict()
    found, dropped = _under_own_keys(weights, own)
    # batch normalisation's counters matter to nobody, and old checkpoints do without
    needed = {key: value for key, value in own.items() if not key.endswith("num_batches_tracked")}
    problems = {
        "missing": sorted(needed.keys() - found.keys()),
        "unexpected": sorted(found.keys() - own.keys()),
        "of another shape": [
            f"{key}: {tuple(found[key].shape)}, not {tuple(value.shape)}"
            for key, value in needed.items()
            if key in found and found[key].shape != value.shape
        ],
    }
    if any(problems.values()):
        said = "; ".join(f"{len(keys)} {problem}: {listed(keys, 4)}" for problem, keys in problems.items() if keys)
        raise WeightsFileError(
            f"{weights.files[0]} does not hold the weights of backbone {net.name!r}: {said}. Ask for the backbone that "
            "they are of, or give other weights."
        )
    net.core.load_state_dict(own | found)
    net.view = weights.view or net.view
    net.mean = weights.triple("mean", net.mean)
    net.std = weights.triple("std", net.std)
    net.weights = weights.digest
    return LoadReport(weights.files, weights.digest, len(found), dropped, weights.about)


def _under_own_keys(weights: Weights, own: dict[str, Tensor]) -> tuple[dict[str, Tensor], tuple[str, ...]]:
    """The tensors under the network's keys, and the keys of a classifier, dropped."""
    found: dict[str, Tensor] = {}
    dropped = []
    for key, tensor in weights.tensors.items():
        wrapped = None if key in own else _WRAPPERS.match(key)
        name = key[wrapped.end() :] if wrapped else key
        if name not in own and name.startswith(_HEADS):
            dropped.append(key)
        elif name in found:
            raise WeightsFileError(f"{weights.files[0]} has two tensors for {name!r}: it holds more than one network.")
        else:
            found[name] = tensor
    return found, tuple(dropped)


def save_weights(
    net: Network,
    path: str | Path,
    *,
    about: dict[str, str],
    view: View | None = None,
    mean: Triple | None = None,
    std: Triple | None = None,
    half: bool = True,
    max_bytes: int = MAX_BYTES,
) -> tuple[Path, ...]:
    """Write weights as safetensors, with what ``create`` needs to restore the backbone.

    Parameters
    ----------
    net : Network
        What ``network`` gave.
    path : str or Path
        Ends in .safetensors. What was saved under this name before, in one file or in shards, is replaced.
    about : dict of str
        What else the file should say about itself, such as the recipe and the data.
    view, mean, std : optional
        The part of an image to see, and the normalisation; left out, the network's own.
    half : bool
        Convolutions in float16, half the size; normalisations always stay in float32.
    max_bytes : int
        More than this goes into several shards, each about as large at most.

    Returns
    -------
    tuple of Path
        The files that were written.
    """
    path = Path(path)
    if path.suffix != SUFFIX:
        raise WeightsFileError(f"{path} must end in {SUFFIX}, the only format of weights that is written.")
    tensors = {key: _stored(value, half) for key, value in net.core.state_dict().items() if value.is_floating_point()}
    own = {
        "backbone": net.name,
        "options": json.dumps(net.options),
        "view": str(view or net.view),
        "mean": json.dumps(mean or net.mean),
        "std": json.dumps(std or net.std),
        "content": content_digest(tensors),  # so that shards of two savings are never mixed
    }
    if clash := own.keys() & about.keys():
        raise InputError(f"about has {listed(sorted(clash))}, which save_weights writes itself. Leave that out of it.")
    shards = _shards(tensors, max_bytes)
    files = (path,) if len(shards) == 1 else shard_names(path, len(shards))
    try:
        for file, shard in zip(files, shards, strict=True):
            with replacing(file) as temporary:
                temporary.write_bytes(_serialised(shard, own | about))
        for old in {path, *chain.from_iterable(shards_of(path).values())}.difference(files):
            old.unlink(missing_ok=True)
    except OSError as error:
        raise WeightsFileError(
            f"{path} cannot be written: {error.strerror or error}. Check the directory, its permissions and its space."
        ) from error
    return files


def _serialised(tensors: dict[str, Tensor], metadata: dict[str, str]) -> bytes:
    """The bytes of a safetensors file, the same for the same content: the library itself shuffles the metadata."""
    content: bytes = safetensors.torch.save(tensors, metadata=metadata)
    start = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:start]) | {"__metadata__": dict(sorted(metadata.items()))}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # tensors begin at a multiple of 8
    return len(text).to_bytes(8, "little") + text + content[start:]


def _stored(value: Tensor, half: bool) -> Tensor:
    kind = torch.float16 if half and value.ndim > 1 else torch.float32
    # written in the usual order of memory, wherever and however training kept it
    return value.detach().to("cpu", kind).contiguous()


def content_digest(tensors: dict[str, Tensor]) -> str:
    """The SHA-256 of tensors and their keys."""
    digest = hashlib.sha256()
    for key, value in tensors.items():
        digest.update(key.encode() + value.cpu().numpy().tobytes())
    return f"sha256:{digest.hexdigest()}"


def _shards(tensors: dict[str, Tensor], max_bytes: int) -> list[dict[str, Tensor]]:
    """The tensors in order, cut where a shard would grow too large."""
    shards: list[dict[str, Tensor]] = [{}]
    size = 0
    for key, value in tensors.items():
        if shards[-1] and size + value.nbytes > max_bytes:
            shards.append({})
            size = 0
        shards[-1][key] = value
        size += value.nbytes
    return shards
