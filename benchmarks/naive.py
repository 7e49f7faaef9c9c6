"""A2LP as its authors run it, written by us: batched, autograd through ``torch.inverse``, Adam on every point.

The engines are timed against it. It does all the work that they avoid: the whole Gram matrix, an inverse, and the
backward pass of both, each step; then the gradient of the points that stay is set to zero.
"""

from __future__ import annotations

from typing import Any

import torch

K, GAMMA, ALPHA, TAU, LR = 20, 3, 0.8, 15.0, 1e-4  # the paper's


class Naive:
    """Tasks under adaptation, all at once.

    Parameters
    ----------
    points : tensor (b, n, d)
        Unit vectors, the anchors first.
    codes : tensor (b, s)
        Each anchor's class.
    n_classes : int
    """

    def __init__(self, points: Any, codes: Any, n_classes: int) -> None:
        b, n, _ = points.shape
        self.s = codes.shape[1]
        self.points = points.clone().requires_grad_()
        self.optimizer = torch.optim.Adam([self.points], lr=LR)
        self.labels = torch.zeros(b, n, n_classes, dtype=points.dtype, device=points.device)  # Y
        self.labels[:, : self.s].scatter_(2, codes[:, :, None], 1.0)
        self.eye = torch.eye(n, dtype=points.dtype, device=points.device)

    def step(self) -> Any:
        """One round of propagation and adaptation; the tau Z (b, n, c) that it started from."""
        z = self.propagate()
        p = torch.softmax(z[:, : self.s], dim=2)
        chosen = self.labels[:, : self.s] * torch.log(p + 1e-12)
        loss = -chosen.sum(dim=2).mean(dim=1).sum()
        self.optimizer.zero_grad()
        loss.backward()
        self.points.grad[:, self.s :] = 0
        self.optimizer.step()
        return z.detach()

    def propagate(self) -> Any:
        """Tau Z of the points as they are."""
        similarity = torch.relu((self.points @ self.points.transpose(1, 2)) ** GAMMA) * (1 - self.eye)
        nearest = similarity.topk(K, dim=2).indices
        affinity = similarity * torch.zeros_like(similarity).scatter_(2, nearest, 1.0)
        weights = (affinity + affinity.transpose(1, 2)) / 2
        scale = (weights.sum(dim=2) + 1e-12).rsqrt()
        normalised = scale[:, :, None] * weights * scale[:, None, :]
        return TAU * torch.inverse(self.eye - ALPHA * normalised) @ self.labels
