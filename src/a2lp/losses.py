"""Losses that adapt the anchors: Z in, value and dL/dZ out.

An engine knows nothing of a loss but this: it hands over the rows of Z of the anchors and of all other points,
and takes back a value for each task and the gradient for either part (None where a loss does not look).
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple, Protocol

from array_api_compat import device

from a2lp.arrays import Array, namespace
from a2lp.errors import UnknownNameError

_LOG_OFFSET = 1e-12  # inside the authors' logarithm


class LossValue(NamedTuple):
    """A loss for each task (b,), and its gradient by the anchors' (b, s, c) and the others' (b, m, c) rows of Z."""

    value: Array
    d_anchors: Array
    d_rest: Array | None


class Loss(Protocol):
    """The contract of a loss; ``labels`` are the anchors' one-hot labels (b, s, c), ``scale`` is 1/s or 1."""

    def __call__(self, anchors: Array, rest: Array, labels: Array, *, tau: float, scale: float) -> LossValue:
        """Value and gradient at Z."""
        ...


def cross_entropy(anchors: Array, rest: Array, labels: Array, *, tau: float, scale: float) -> LossValue:
    """Eq. 6-7 without cancellation: log(1 + sum_{j != y} exp(tau (z_j - z_y))).

    At tau = 15 the probability of the right class is one to all digits, and what drives the anchors is the
    remainder. It is therefore summed up from its small parts, never obtained as 1 - p_y.
    """
    xp = namespace(anchors)
    z_true = xp.sum(labels * anchors, axis=-1, keepdims=True)
    margins = tau * (anchors - z_true)
    shift = xp.max(xp.clip(margins, min=0.0), axis=-1, keepdims=True)
    wrong = (1.0 - labels) * xp.exp(margins - shift)  # (b, s, c), zero at the right class
    rest_mass = xp.sum(wrong, axis=-1, keepdims=True)
    total = xp.exp(-shift) + rest_mass
    value = shift + xp.log1p(xp.expm1(-shift) + rest_mass)
    p_wrong = wrong / total
    gradient = p_wrong - labels * xp.sum(p_wrong, axis=-1, keepdims=True)
    return LossValue(scale * xp.sum(value[..., 0], axis=-1), (tau * scale) * gradient, None)


def cross_entropy_official(
    anchors: Array, rest: Array, labels: Array, *, tau: float, scale: float, rounding: str = "cuda"
) -> LossValue:
    """Eq. 6-7 as the authors' float32 code evaluates them: -log(softmax(tau z) + 1e-12), rounding included.

    At tau = 15 the remainder 1 - p_y is a few units in the last place of p_y, so the order of the softmax's sum
    and whether the subtraction is fused decide the gradient, and through Adam the labels. ``rounding="cuda"`` is
    what PyTorch does on a GPU, where the published numbers came from; ``"cpu"`` is what it does on a CPU.
    """
    xp = namespace(anchors)
    y = xp.astype(labels, xp.float32)
    logits = tau * xp.astype(anchors, xp.float32)
    e = xp.exp(logits - xp.max(logits, axis=-1, keepdims=True))
    p = e / (_warp_sum(e) if rounding == "cuda" else xp.sum(e, axis=-1, keepdims=True))
    value = -scale * xp.sum(xp.sum(y * xp.log(p + _LOG_OFFSET), axis=-1), axis=-1)
    dp = (-scale * y) / (p + _LOG_OFFSET)
    if rounding == "cuda":
        weighted = dp * p
        total = xp.sum(weighted, axis=-1, keepdims=True)  # one term is not zero: no rounding here
        # a fused multiply-add rounds once: float64 holds the product of two float32 exactly
        fused = xp.astype(weighted, xp.float64) - xp.astype(p, xp.float64) * xp.astype(total, xp.float64)
        dz = tau * xp.astype(fused, xp.float32)
    else:
        dz = tau * ((dp - xp.sum(dp * p, axis=-1, keepdims=True)) * p)
    return LossValue(xp.astype(value, anchors.dtype), xp.astype(dz, anchors.dtype), None)


def _warp_sum(x: Array) -> Array:
    """Sum along the last axis in the order of a CUDA warp: strided over 32 lanes, then halves onto halves."""
    xp = namespace(x)
    n = x.shape[-1]
    lanes = min(32, 1 << (n - 1).bit_length())
    padding = xp.zeros((*x.shape[:-1], -n % lanes), dtype=x.dtype, device=device(x))
    x = xp.concat([x, padding], axis=-1)
    total = x[..., :lanes]
    for start in range(lanes, x.shape[-1], lanes):
        total = total + x[..., start : start + lanes]
    while total.shape[-1] > 1:
        half = total.shape[-1] // 2
        total = total[..., :half] + total[..., half:]
    return total


_BY_NUMERICS: dict[str, Loss] = {
    "exact": cross_entropy,
    "official": partial(cross_entropy_official, rounding="cuda"),
    "official_cpu": partial(cross_entropy_official, rounding="cpu"),
}


NUMERICS = tuple(_BY_NUMERICS)  # compiled engines are told a place in this list


def by_numerics(name: str) -> Loss:
    """The anchors' cross-entropy in one of its numerics."""
    if not (isinstance(name, str) and name in _BY_NUMERICS):
        raise UnknownNameError("numerics", name, _BY_NUMERICS)
    return _BY_NUMERICS[name]
