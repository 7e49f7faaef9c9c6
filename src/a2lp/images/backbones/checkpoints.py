"""Loading weights into a network, and saving them."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import safetensors.torch
import torch
from torch import Tensor

from a2lp.checks import listed, shown
from a2lp.errors import InputError, WeightsFileError
from a2lp.files import replacing, writing
from a2lp.images.backbones.base import Network
from a2lp.images.backbones.weight_files import Weights, read_weights, shard_names, shards_of
from a2lp.images.normalisation import Triple
from a2lp.images.view import View
from a2lp.torch_files import SAFETENSORS

MAX_BYTES = 15 << 20

# added by DataParallel, by LR+ICI's second version, and by the first stage of S2M2
_WRAPPERS = re.compile(r"(module\.|base\.|feature\.)+")
_CLASSIFIERS = ("fc.", "_fc.", "linear.", "classifier.", "clasifier.", "rotate", "head.")


def load_weights(net: Network, path: str | Path) -> None:
    """Load the weights of a network; those of a classifier are dropped.

    Parameters
    ----------
    net : Network
        It also gets the view and the normalisation of the file, if it has them.
    path : str or Path
        A .safetensors file, its first shard, the common name of its shards, or a published checkpoint. A file that
        carries code, is damaged, or is of another network raises WeightsFileError.
    """
    weights = read_weights(path)
    weights.check_backbone(net.name)
    for option, value in weights.entry("options", {}).items():
        if not option.startswith("drop") and net.options.get(option) != value:
            raise WeightsFileError(
                f"{path} holds weights of a {net.name} with {option[:80]}={shown(value)}; this one was made with "
                f"{net.options.get(option)!r}. Make the network with that option."
            )
    fill(net, weights)


def fill(net: Network, weights: Weights) -> None:
    """Copy weights into a network; WeightsFileError if they do not fit it."""
    own = net.core.state_dict()
    found: dict[str, Tensor] = {}
    for key, tensor in weights.tensors.items():
        wrapped = None if key in own else _WRAPPERS.match(key)
        name = key[wrapped.end() :] if wrapped else key
        if name not in own and name.startswith(_CLASSIFIERS):
            continue
        if name in found:
            raise WeightsFileError(
                f"{weights.files[0]} has two tensors for {shown(name)}: it holds more than one network."
            )
        found[name] = tensor
    # old checkpoints do not have the counters of batch norm, which are not used
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
        lists = "; ".join(f"{len(keys)} {problem}: {listed(keys, 4)}" for problem, keys in problems.items() if keys)
        raise WeightsFileError(
            f"{weights.files[0]} does not hold the weights of backbone {net.name!r}: {lists}. Ask for the backbone of "
            "these weights, or give others."
        )
    entries = {key: weights.entry(key, getattr(net, key)) for key in ("view", "mean", "std")}
    net.core.load_state_dict(own | found)
    net.view, net.mean, net.std, net.weights = *entries.values(), weights.digest


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
    """Write weights as safetensors, with the metadata for ``create`` to restore the backbone; return the files.

    Parameters
    ----------
    net : Network
    path : str or Path
        Ends in .safetensors. A file or shards that were saved under this name before are replaced.
    about : dict of str
        Further metadata, such as the recipe and the data.
    view, mean, std : optional
        The view and the normalisation, if they differ from the network's own.
    half, max_bytes : bool, int
        Whether convolutions are stored as float16 (normalisations never are), and the approximate size of a shard.
    """
    path = Path(path)
    if path.suffix != SAFETENSORS:
        raise WeightsFileError(f"{path} must end in {SAFETENSORS}, the only format of weights that is written.")
    tensors = {}
    for key, value in net.core.state_dict().items():
        if value.is_floating_point():
            kind = torch.float16 if half and value.ndim > 1 else torch.float32
            tensors[key] = value.detach().to("cpu", kind).contiguous()  # training may have used another memory format
    own = {
        "backbone": net.name,
        "options": json.dumps(net.options),
        "view": str(view or net.view),
        "mean": json.dumps(mean or net.mean),
        "std": json.dumps(std or net.std),
        "content": content_digest(tensors),  # so that shards of two files are never mixed
    }
    if clash := own.keys() & about.keys():
        raise InputError(f"about has {listed(sorted(clash))}, which save_weights writes itself. Leave that out of it.")
    shards: list[dict[str, Tensor]] = [{}]
    for key, value in tensors.items():
        if shards[-1] and sum(each.nbytes for each in shards[-1].values()) + value.nbytes > max_bytes:
            shards.append({})
        shards[-1][key] = value
    files = (path,) if len(shards) == 1 else shard_names(path, len(shards))
    with writing(path, error=WeightsFileError):
        for file, shard in zip(files, shards, strict=True):
            with replacing(file) as temporary:
                temporary.write_bytes(_serialised(shard, own | about))
        for old in {path, *shards_of(path)}.difference(files):
            old.unlink(missing_ok=True)
    return files


def _serialised(tensors: dict[str, Tensor], metadata: dict[str, str]) -> bytes:
    """The bytes of a safetensors file with sorted metadata; the library shuffles it."""
    content: bytes = safetensors.torch.save(tensors, metadata=metadata)
    start = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:start]) | {"__metadata__": dict(sorted(metadata.items()))}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # tensors begin at a multiple of 8
    return len(text).to_bytes(8, "little") + text + content[start:]


def content_digest(tensors: dict[str, Tensor]) -> str:
    """The SHA-256 of tensors and their keys."""
    digest = hashlib.sha256()
    for key, value in tensors.items():
        digest.update(key.encode() + value.cpu().numpy().tobytes())
    return f"sha256:{digest.hexdigest()}"
