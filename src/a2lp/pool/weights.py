"""The weights with which the models of ``auto`` are combined."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.optimize import minimize

from a2lp.arrays import like, namespace, softmax
from a2lp.pool.neighbours import NdArray


def mix(models: Any, weights: NdArray) -> Any:
    """Distributions (n, c) from log-probabilities (n, q, c): their weighted sum, normalised."""
    xp = namespace(models)
    return softmax(xp.einsum("nqc,q->nc", models, like(weights, models, models.dtype)))


def fit_weights(models: NdArray, codes: NdArray, start: NdArray) -> NdArray:
    """Positive weights (q,) under which log-probabilities (s, q, c) make the codes (s,) likely, near ``start``."""
    chosen = models[np.arange(len(codes)), :, codes].sum(axis=0, dtype=np.float64)  # (q,)

    def loss(step: NdArray) -> tuple[float, NdArray]:
        weights = start * np.exp(step)
        total = np.einsum("sqc,q->sc", models, weights)
        top = total.max(axis=1, keepdims=True)
        p = np.exp(total - top)
        norm = p.sum(axis=1, keepdims=True)
        value = (top + np.log(norm)).sum() - chosen @ weights
        gradient = (np.einsum("sqc,sc->q", models, p / norm) - chosen) * weights
        return float(value + 0.5 * step @ step), gradient + step

    weights: NdArray = start * np.exp(minimize(loss, np.zeros(len(start)), jac=True, method="L-BFGS-B").x)
    return weights
