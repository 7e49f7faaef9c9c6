"""Names of classes as vectors, by the text encoder of a vision-language backbone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from a2lp.checks import shown
from a2lp.errors import InputError
from a2lp.images.backbones.clip import OpenClip
from a2lp.images.backbones.networks import torch_backbone
from a2lp.images.backbones.torch_backbone import choose_device

PROMPTS = (
    "a photo of a {}.",
    "a photo of the {}.",
    "a photo of many {}.",
    "a close-up photo of a {}.",
    "a photo of a small {}.",
    "a photo of a large {}.",
    "{}",
)
_TEXTS = 256  # that are encoded at a time


def encode_names(
    names: Sequence[str],
    backbone: str,
    weights: str | Path | None = None,
    device: str = "auto",
    prompts: Sequence[str] = (),
) -> np.ndarray[Any, Any]:
    """One vector for each name (c, d), float32: the mean of the unit vectors of its prompts, made unit.

    Parameters
    ----------
    names : sequence of str
        Underscores count as blanks.
    backbone : str
        One with a text encoder, ``open_clip:NAME``.
    weights : str or Path
        The file of its weights.
    device : str
        As for images.
    prompts : sequence of str
        Texts with ``{}`` in the place of the name; ``PROMPTS`` if there are none.
    """
    chosen = tuple(prompts) or PROMPTS
    check_prompts(chosen)
    network = torch_backbone(backbone, weights).module
    if not isinstance(network, OpenClip):
        raise InputError(f"backbone {backbone!r} has no text encoder. Use open_clip:NAME.")
    where = choose_device(device)
    network.to(where)
    texts = [prompt.replace("{}", str(name).replace("_", " ")) for name in names for prompt in chosen]
    parts = []
    with torch.inference_mode():
        for start in range(0, len(texts), _TEXTS):
            tokens = network.tokenizer(texts[start : start + _TEXTS]).to(where)
            parts.append(functional.normalize(network.body.encode_text(tokens), dim=-1).float().cpu())
    each = torch.cat(parts).reshape(len(names), len(chosen), -1)
    found: np.ndarray[Any, Any] = functional.normalize(each.mean(dim=1), dim=-1).numpy()
    return found


def check_prompts(prompts: Sequence[str]) -> None:
    """Refuse prompts that do not say where the name goes."""
    for prompt in prompts:
        if "{}" not in prompt:
            raise InputError(f"the prompt {shown(prompt)} has no {{}} for the name. Write it as 'a photo of a {{}}.'.")
