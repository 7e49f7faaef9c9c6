"""TPN: Liu, Lee, Park, Kim, Yang, Hwang and Yang, "Learning to propagate labels: transductive propagation network for
few-shot learning", ICLR 2019, with widths that are learned.

Labels are propagated on a graph of all points, as in ``tpn``; the width of each point's Gaussian comes from a network
that was trained on base classes. Assumes no class marginal.

Differences from the authors' code: they train a backbone with the widths; here only a weight of each channel is
learned. The network of widths has two layers on vectors, instead of two convolutions and two layers on feature maps; a
width is positive, sigma = exp(network), and starts at that of ``tpn`` for all points. On unit vectors, their mean over
dimensions is a sum (the width absorbs the factor). The weight alpha of the neighbours' labels is learned too, an option
in their code, starting at their 0.99. Their constant 2e-16 in every entry of the system is left out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from a2lp.meta.base import Episode, Head, MetaMethod
from a2lp.methods.tpn import TPN

HIDDEN = 64


class TPNHead(Head):
    """Weights of channels, the network of widths, and alpha."""

    def __init__(self, n_dims: int, n_way: int) -> None:
        super().__init__()
        self.channels = nn.Parameter(torch.ones(n_dims))
        self.hidden = nn.Linear(n_dims, HIDDEN)
        self.log_width = nn.Linear(HIDDEN, 1)
        nn.init.zeros_(self.log_width.weight)
        nn.init.constant_(self.log_width.bias, math.log(TPN.sigma))
        self.alpha = nn.Parameter(torch.tensor(math.log(TPN.alpha / (1 - TPN.alpha))))

    def forward(self, episode: Episode) -> Tensor:
        """Propagated labels of the unlabelled points."""
        return self.propagated(episode)[:, episode.support.shape[1] :]

    def loss(self, episode: Episode, targets: Tensor) -> Tensor:
        """Cross-entropy of the propagated labels, over support and queries."""
        targets = torch.cat([episode.labels.argmax(-1), targets], dim=1)
        return F.cross_entropy(self.propagated(episode).flatten(0, 1), targets.flatten())

    def propagated(self, episode: Episode) -> Tensor:
        """(I - alpha S)^-1 Y of all points (b, n, c)."""
        points = torch.cat([episode.support, episode.rest], dim=1)  # (b, n, d)
        graph = self.graph(points)
        system = torch.eye(points.shape[1], dtype=points.dtype, device=points.device) - self.alpha.sigmoid() * graph
        given = F.pad(episode.labels, (0, 0, 0, episode.rest.shape[1]))  # (b, n, c)
        return torch.linalg.solve(system, given)

    def graph(self, points: Tensor) -> Tensor:
        """Gaussian affinities of nearest neighbours, made symmetric and normalised by degrees (b, n, n)."""
        scaled = self.channels * points / self.log_width(F.relu(self.hidden(points))).exp()
        squares = scaled.square().sum(-1)
        distances = squares[:, :, None] + squares[:, None, :] - 2 * scaled @ scaled.mT
        affinity = torch.exp(-0.5 * distances.clamp_min(0))
        kept = affinity >= affinity.topk(min(TPN.n_neighbors, points.shape[1]), dim=-1).values[..., -1:]
        affinity = torch.where(kept | kept.mT, affinity, 0)
        root = affinity.sum(-1).rsqrt()  # a point is its own neighbour, so no degree is zero
        return root[:, :, None] * affinity * root[:, None, :]


@dataclass(frozen=True, kw_only=True)
class TPNLearned(MetaMethod):
    """Label propagation with a learned width for each point; untrained, all widths are equal, and it is ``tpn``."""

    head: ClassVar[type[Head]] = TPNHead
    recipe: ClassVar[dict[str, Any]] = {"lr": 1e-2, "weight_decay": 5e-4, "steps": 300, "batch": 16}
