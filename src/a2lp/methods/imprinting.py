"""Imprinting + cross-entropy: after Qi, Brown and Lowe, "Low-shot learning with imprinted weights", CVPR 2018.

Class weights start as the means of the support vectors and are fine-tuned on the support by cross-entropy.
Inductive. This is the baseline of the A2LP paper as its code has it: weights are not normalised (Qi et al. do),
and the logits are -|x - w|^2 / 2 times tau where Qi et al. use a scaled cosine. By default the loss is evaluated
in the arithmetic of that code, since this method is here to be the paper's baseline; see ``a2lp``'s numerics.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from array_api_compat import device

from a2lp.arrays import Array, chunks, concat_batches, is_numpy, namespace, one_hot
from a2lp.cores import map_on_cores
from a2lp.losses import by_numerics
from a2lp.methods._maths import class_means, squared_distances
from a2lp.methods.base import Method, Outcome, Points, direct_outcome, require_adam, require_number, require_whole
from a2lp.optimizers import Adam

# Tasks whose weights and moments a core works on at a time: they should stay in its second-level cache.
_CACHE_BYTES = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Imprinting(Method):
    """Class means, fine-tuned; scores are -|x - w|^2 / 2.

    Parameters
    ----------
    steps, lr : int, float
        Steps and learning rate of Adam.
    betas, eps : (float, float), float
        Adam's own.
    numerics : {"official", "official_cpu", "exact"}
        Arithmetic of the loss, as for ``a2lp``.
    """

    steps: int = 1000
    lr: float = 1e-4
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    numerics: str = "official"

    def __post_init__(self) -> None:
        super().__post_init__()
        require_whole("steps", self.steps, 0, "0 leaves the class means as they are.")
        require_number("lr", self.lr, "positive", lambda v: v > 0, "The paper uses 1e-4.")
        require_adam(self.betas, self.eps)
        by_numerics(self.numerics)

    def _solve(self, points: Points, callback: Callable[[Any], object] | None) -> tuple[Outcome, tuple[str, str]]:
        xp = namespace(points.support)
        b, _, d = points.support.shape
        on_numpy = is_numpy(xp)
        size = max(1, _CACHE_BYTES // (16 * points.n_classes * d)) if on_numpy else b
        parts = list(chunks(b, size))

        def solve(part: slice) -> Outcome:
            return self._fine_tune(
                points.support[part, ...],
                points.codes[part, ...],
                points.rest[part, : points.n_query, :],
                points.n_classes,
            )

        outcomes = map_on_cores(solve, parts) if on_numpy else [solve(part) for part in parts]
        joined = concat_batches(outcomes, lambda arrays: xp.concat(arrays, axis=0))
        return joined, ("batched", "its gradient has a closed form on any array library")

    def _fine_tune(self, support: Array, codes: Array, query: Array, n_classes: int) -> Outcome:
        xp = namespace(support)
        b, s, _ = support.shape
        labels = one_hot(codes, n_classes, support.dtype)  # (b, s, c)
        weights = class_means(support, codes, n_classes)  # (b, c, d)
        adam = Adam(self.lr, self.betas, self.eps)
        state = adam.init(weights)
        loss_function = by_numerics(self.numerics)
        losses = []
        for _ in range(self.steps):
            logits = -0.5 * squared_distances(support, weights)  # (b, s, c)
            loss = loss_function(logits, query, labels, tau=self.tau, scale=1.0 / s)
            losses.append(loss.value)
            back = xp.matrix_transpose(loss.d_anchors)  # (b, c, s)
            gradient = back @ support - xp.sum(back, axis=2)[:, :, None] * weights
            state, move = adam.update(state, gradient)
            weights = weights + move
        return direct_outcome(
            -0.5 * squared_distances(query, weights),
            steps=xp.full((b,), self.steps, device=device(support)),
            losses=xp.stack(losses, axis=1) if losses else None,
            anchors=weights,
        )
