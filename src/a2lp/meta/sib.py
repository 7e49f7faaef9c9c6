"""SIB: Hu, Moreno, Xiao, Shen, Obozinski, Lawrence and Damianou, "Empirical Bayes transductive meta-learning with
synthetic gradients", ICLR 2020; and its ensemble: Liu, Schiele and Sun, "An ensemble of epoch-wise empirical Bayes for
few-shot learning", ECCV 2020 (E3BM).

Class weights start at the support means and take three gradient steps on the queries, whose labels are unknown: a small
network that was trained on base classes predicts the gradient of the loss with respect to the logits. In E3BM, the size
of each step depends on the task, and the predictions of the weights of all steps are summed.

Assumes a uniform class marginal, softly: the network's batch norm is over all queries of a task, and it is trained on
balanced tasks. Differences from the authors' code: the backbone is frozen; training is AdamW on batches of episodes, 1
and 5 shots in turn, instead of SGD on 50 000 single episodes. The network has an input for each class, so it takes only
one number of classes, and the authors' predictions depend on the order of the classes: here they are ordered by their
mean score. The gradient of the logits with respect to the weights is in closed form. E3BM's own layers have the
learning rate of the others (the authors': 1e-6, which hardly changes them).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from a2lp.meta.base import Episode, Head, MetaMethod

STEPS = 3  # of the class weights, as in the authors' code
STEP_SIZE = 1e-3
_E3BM_SCALE = 1e-4  # of the task-dependent part of step sizes and votes, as in the authors' code


class _TaskNorm(nn.Module):  # type: ignore[misc]
    """Batch norm over the points of each task alone: the authors keep it in training mode, one task at a time."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:  # (b, m, width)
        variance, mean = torch.var_mean(x, dim=1, correction=0, keepdim=True)
        return (x - mean) / torch.sqrt(variance + 1e-5) * self.weight + self.bias


class SIBHead(Head):
    """The first class weights, the scale of the logits, and the network of synthetic gradients."""

    fixed_way = True

    def __init__(self, n_dims: int, n_way: int) -> None:
        super().__init__()
        self.diagonal = nn.Parameter(torch.ones(n_dims))
        self.scale = nn.Parameter(torch.tensor(10.0))
        self.bias = nn.Parameter(torch.tensor(0.0))
        hidden = 8 * n_way
        self.gradient = nn.Sequential(
            nn.Linear(n_way, hidden), nn.ReLU(), _TaskNorm(hidden),
            nn.Linear(hidden, hidden), nn.ReLU(), _TaskNorm(hidden),
            nn.Linear(hidden, n_way),
        )  # fmt: skip

    def forward(self, episode: Episode) -> Tensor:
        """Logits of the weights after the last step."""
        weights, rest, rank = self.start(episode)
        for _ in range(STEPS):
            weights = weights - STEP_SIZE * self.slope(weights, rest)
        return self.logits(weights, rest).take_along_dim(rank, dim=-1)

    def start(self, episode: Episode) -> tuple[Tensor, Tensor, Tensor]:
        """Class weights (b, c, d) in the order of their mean score, unit vectors, and the rank of classes (b, 1, c)."""
        support, rest = F.normalize(episode.support, dim=-1), F.normalize(episode.rest, dim=-1)
        means = episode.labels.mT @ support / episode.labels.sum(1)[..., None]
        weights = self.diagonal * means
        order = self.logits(weights, rest).detach().mean(1).argsort(dim=-1, stable=True)  # (b, c)
        return weights.take_along_dim(order[..., None], dim=1), rest, order.argsort(dim=-1)[:, None, :]

    def logits(self, weights: Tensor, rest: Tensor) -> Tensor:
        """Scaled cosines (b, m, c)."""
        return self.scale * (rest @ F.normalize(weights, dim=-1).mT + self.bias)

    def slope(self, weights: Tensor, rest: Tensor) -> Tensor:
        """The synthetic gradient of the logits, propagated to the weights (b, c, d)."""
        length = weights.norm(dim=-1, keepdim=True).clamp_min(1e-12)
        unit = weights / length  # (b, c, d)
        cosines = rest @ unit.mT  # (b, m, c)
        synthetic = self.gradient(self.scale * (cosines + self.bias))  # (b, m, c)
        # d cos(x, w) / dw = (x - cos u) / |w|, summed over points with the synthetic gradient
        along = (synthetic * cosines).sum(1)[..., None] * unit
        return self.scale / length * (synthetic.mT @ rest - along)


class E3BMHead(SIBHead):
    """SIB with step sizes and votes that depend on the task."""

    def __init__(self, n_dims: int, n_way: int) -> None:
        super().__init__(n_dims, n_way)
        self.step_sizes = nn.ModuleList(nn.Linear(2 * n_dims, 1) for _ in range(STEPS))
        self.votes = nn.ModuleList(nn.Linear(2 * n_dims, 1) for _ in range(STEPS))

    def forward(self, episode: Episode) -> Tensor:
        """The sum of the votes of all steps; before training, almost the vote of the last step alone."""
        weights, rest, rank = self.start(episode)
        mean = F.normalize(episode.support, dim=-1).mean(1)  # (b, d)
        total = torch.zeros_like(rest[..., :1])
        for step, (size, vote) in enumerate(zip(self.step_sizes, self.votes, strict=True)):
            slope = self.slope(weights, rest)
            task = torch.cat([mean, slope.mean(1)], dim=-1)  # (b, 2 d)
            weights = weights - (STEP_SIZE + _E3BM_SCALE * size(task))[..., None] * slope
            share = float(step == STEPS - 1) + _E3BM_SCALE * vote(task)
            total = total + share[..., None] * self.logits(weights, rest)
        return total.take_along_dim(rank, dim=-1)


@dataclass(frozen=True, kw_only=True)
class SIB(MetaMethod):
    """Class weights that follow synthetic gradients; untrained, these are noise, and it is almost nearest mean."""

    assumes_uniform: ClassVar[bool] = True
    head: ClassVar[type[Head]] = SIBHead
    recipe: ClassVar[dict[str, Any]] = {"lr": 1e-3, "weight_decay": 5e-4, "steps": 1000, "batch": 16}


@dataclass(frozen=True, kw_only=True)
class SIBE3BM(SIB):
    """SIB with an ensemble of its steps; untrained, it differs from untrained SIB in the fourth digit."""

    head: ClassVar[type[Head]] = E3BMHead
