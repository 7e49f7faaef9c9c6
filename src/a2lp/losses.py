"""Losses that adapt the anchors: the anchors' and all other rows of Z in, value and dL/dZ out."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from numbers import Real
from typing import Any, NamedTuple

from a2lp.arrays import Array, device, namespace, softmax
from a2lp.checks import require_name
from a2lp.errors import InputError

_LOG_OFFSET = 1e-12  # inside the authors' logarithm


class Terms(NamedTuple):
    """The loss as a sum of terms; by default the paper's cross-entropy only.

    weight * cross-entropy of the anchors + entropy * mean entropy of the other points' distributions
    - marginal * entropy of the mean of these distributions.

    Attributes
    ----------
    anchors : {"soft", "others"}
        The distribution of an anchor with row z and label y: softmax(tau z), which is saturated at tau = 15, so that
        the term has no effect beside others; or softmax(tau (z - y)), without the anchor's own label.
    weight : float
        Of the anchors' cross-entropy.
    queries : {"norm2", "soft"}
        The distribution of queries and unlabelled points: z^2 / sum(z^2), or softmax(tau z).
    entropy : float
        Weight of their mean entropy: each should belong to one class.
    marginal : float
        Weight of the entropy of their mean: together they should belong to all classes.

    Examples
    --------
    >>> from a2lp.losses import Terms
    >>> Terms().on_queries, Terms(entropy=1.0).on_queries
    (False, True)
    """

    anchors: str = "soft"
    weight: float = 1.0
    queries: str = "norm2"
    entropy: float = 0.0
    marginal: float = 0.0

    @property
    def on_queries(self) -> bool:
        """Whether there are terms of points other than the anchors."""
        return self.entropy != 0 or self.marginal != 0


CROSS_ENTROPY = Terms()
ANCHOR_TERMS = ("soft", "others")
QUERY_TERMS = ("norm2", "soft")  # compiled engines use the index


def make_terms(given: Any) -> Terms:
    """Check ``Terms`` or a mapping of some of their entries, and return ``Terms``."""
    if isinstance(given, Mapping):
        for name in given:
            require_name("term of loss:", name, Terms._fields)
        given = Terms(**given)
    if not isinstance(given, Terms):
        raise InputError(
            f"loss={given!r} must be losses.Terms, or a mapping such as {{'entropy': 0.1, 'marginal': 0.07}}. "
            "Leave it out for the paper's cross-entropy."
        )
    for name, known in (("anchors", ANCHOR_TERMS), ("queries", QUERY_TERMS)):
        require_name(f"{name} of loss:", getattr(given, name), known)
    weights: dict[str, Any] = {name: getattr(given, name) for name in ("weight", "entropy", "marginal")}
    for name, value in weights.items():
        if not (isinstance(value, Real) and 0 <= float(value) < math.inf):
            raise InputError(f"{name}={value!r} of loss must be a number, 0 or more. 0 leaves the term out.")
        weights[name] = float(value)
    return given._replace(**weights)


class LossValue(NamedTuple):
    """A loss for each task (b,), and its gradient by the rows of Z of the anchors (b, s, c) and others (b, m, c).

    Examples
    --------
    >>> from a2lp.losses import LossValue
    >>> LossValue._fields
    ('value', 'd_anchors', 'd_rest')
    """

    value: Array
    d_anchors: Array
    d_rest: Array | None


def cross_entropy(anchors: Array, labels: Array, *, tau: float, scale: float) -> LossValue:
    """Eq. 6-7 without cancellation: log(1 + sum_{j != y} exp(tau (z_j - z_y))); ``scale`` is 1/s or 1.

    At tau = 15 the probability of the true class is rounded to 1, and the gradient is the remainder 1 - p_y. It is
    therefore a sum of its small parts, never a difference.

    Examples
    --------
    >>> import numpy as np
    >>> from a2lp.losses import cross_entropy
    >>> z = np.zeros((1, 1, 2))  # one anchor, two classes, equally likely
    >>> found = cross_entropy(z, np.array([[[1.0, 0.0]]]), tau=1, scale=1)
    >>> found.value.round(4).tolist(), found.d_anchors.tolist()
    ([0.6931], [[[-0.5, 0.5]]])
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


def cross_entropy_official(anchors: Array, labels: Array, *, tau: float, scale: float, rounding: str) -> LossValue:
    """Eq. 6-7 as the authors' float32 code evaluates them: -log(softmax(tau z) + 1e-12), rounding included.

    At tau = 15 the remainder 1 - p_y is a few units in the last place of p_y, so the order of the softmax's sum
    and whether the subtraction is fused decide the gradient, and through Adam the labels. ``rounding="cuda"`` is
    that of PyTorch on a GPU, where the published numbers came from; ``"cpu"`` that on a CPU.

    Examples
    --------
    >>> import numpy as np
    >>> from a2lp.losses import cross_entropy_official
    >>> z = np.zeros((1, 1, 2))
    >>> cross_entropy_official(z, np.array([[[1.0, 0.0]]]), tau=1, scale=1, rounding="cpu").value.round(4).tolist()
    [0.6931]
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
        total = xp.sum(weighted, axis=-1, keepdims=True)  # only one term is not zero: no rounding
        # a fused multiply-add rounds once: float64 holds the product of two float32 exactly
        fused = xp.astype(weighted, xp.float64) - xp.astype(p, xp.float64) * xp.astype(total, xp.float64)
        dz = tau * xp.astype(fused, xp.float32)
    else:
        dz = tau * ((dp - xp.sum(dp * p, axis=-1, keepdims=True)) * p)
    return LossValue(xp.astype(value, anchors.dtype), xp.astype(dz, anchors.dtype), None)


def query_terms(rest: Array, terms: Terms, tau: float) -> tuple[Array, Array]:
    """The terms on points that are not anchors (b,), and their gradient (b, m, c)."""
    xp = namespace(rest)
    m = rest.shape[-2]
    p, slope = (_softmax if terms.queries == "soft" else _squared_shares)(rest, tau)
    mean = xp.sum(p, axis=-2, keepdims=True) / m  # (b, 1, c)
    log_p, log_mean = _log(p), _log(mean)
    spread = -xp.sum(p * log_p, axis=-1)  # (b, m)
    balance = -xp.sum(mean * log_mean, axis=-1)[..., 0]  # (b,)
    value = (terms.entropy / m) * xp.sum(spread, axis=-1) - terms.marginal * balance
    d_p = (terms.marginal / m) * log_mean - (terms.entropy / m) * log_p  # up to a constant per row
    return value, slope * (d_p - xp.sum(p * d_p, axis=-1, keepdims=True))


def _softmax(z: Array, tau: float) -> tuple[Array, Array]:
    """Distributions p, and slopes f with dL/dz = f (dL/dp - p . dL/dp)."""
    p = softmax(tau * z)
    return p, tau * p


def _squared_shares(z: Array, tau: float) -> tuple[Array, Array]:
    """As ``_softmax``, for z^2 / sum(z^2); zero for a point that no label reaches."""
    xp = namespace(z)
    top = xp.max(z, axis=-1, keepdims=True)
    reached = top > 0
    top = xp.where(reached, top, xp.ones_like(top))
    z = xp.where(reached, z / top, xp.zeros_like(z))  # squares of small numbers would underflow
    total = xp.sum(z * z, axis=-1, keepdims=True)
    total = xp.where(reached, total, xp.ones_like(total))
    return z * z / total, 2.0 * z / (total * top)


def _log(p: Array) -> Array:
    """log(p), and 0 at 0, where it is multiplied by 0."""
    xp = namespace(p)
    return xp.log(xp.where(p > 0, p, xp.ones_like(p)))


def _warp_sum(x: Array) -> Array:
    """Sum along the last axis in the order of a CUDA warp: strided over 32 lanes, then by halving."""
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


# the anchors' cross-entropy from their rows of Z and their one-hot labels (b, s, c); compiled engines use the index
BY_NUMERICS: dict[str, Callable[..., LossValue]] = {
    "exact": cross_entropy,
    "official": partial(cross_entropy_official, rounding="cuda"),
    "official_cpu": partial(cross_entropy_official, rounding="cpu"),
}
NUMERICS = tuple(BY_NUMERICS)


def evaluate(
    terms: Terms, numerics: str, anchors: Array, rest: Array, labels: Array, *, tau: float, scale: float
) -> LossValue:
    """All terms at Z; ``numerics`` are those of the anchors' softmax."""
    if terms.anchors == "others":  # Z - Y = alpha S Z
        found = cross_entropy(anchors - labels, labels, tau=tau, scale=terms.weight * scale)
    else:
        found = BY_NUMERICS[numerics](anchors, labels, tau=tau, scale=terms.weight * scale)
    if not terms.on_queries:
        return found
    value, d_rest = query_terms(rest, terms, tau)
    return LossValue(found.value + value, found.d_anchors, d_rest)
