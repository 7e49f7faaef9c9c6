"""DPGN: Yang, Li, Zhang, Zhou, Zhou and Liu, "DPGN: distribution propagation graph network for few-shot learning",
CVPR 2020.

Two graphs over all points of a task refine each other: one compares vectors, the other compares the relations of points
to the supports ("distributions"), and vectors are mixed along its edges. After the last round, the edges of a query to
the supports are its prediction. Assumes no class marginal.

Differences from the authors' code: the backbone is frozen, and a linear layer replaces the embedding that they train
with it; there are three rounds of 32 dimensions instead of six of 128. The layers on distributions are shared over
supports, instead of having an input for each, so any number and order of classes and shots works. Their tasks have one
query for each class; here they have any number (15 in training), all linked at the start. With that many points,
normalised edges are small, so their loss is taken before they are normalised, and the cross-entropy of the prediction
is added. Layer norm replaces batch norm and dropout. Training is stopped on validation classes, theirs on test classes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from a2lp.meta.base import Episode, Head, MetaMethod

ROUNDS = 3
WIDTH = 32
HIDDEN = 32
_EARLY = 0.2  # weight of the losses of all rounds but the last, as in the authors' code, like the next two
_DISTRIBUTION_LOSS = 0.1
_NODE_LOSS = 0.1


class _Round(nn.Module):  # type: ignore[misc]
    """The layers of one round; no vectors are mixed after the last."""

    def __init__(self, last: bool) -> None:
        super().__init__()
        self.vector_edge = _perceptron(WIDTH, HIDDEN, 1)
        self.relation = _perceptron(2, HIDDEN, 1)
        self.relation_edge = _perceptron(1, HIDDEN, 1)
        self.mix = None if last else _perceptron(2 * WIDTH, WIDTH, WIDTH)


class DPGNHead(Head):
    """The two graphs."""

    def __init__(self, n_dims: int, n_way: int) -> None:
        super().__init__()
        self.embed = nn.Linear(n_dims, WIDTH)
        self.rounds = nn.ModuleList(_Round(last=i == ROUNDS - 1) for i in range(ROUNDS))

    def forward(self, episode: Episode) -> Tensor:
        """The log of the part of a query's edges to the supports of each class (b, m, c)."""
        return self.run(episode)[0]

    def loss(self, episode: Episode, targets: Tensor) -> Tensor:
        """The losses of the edges of both graphs and of distances to supports, over all rounds."""
        s = episode.support.shape[1]
        logits, rounds = self.run(episode)
        codes = torch.cat([episode.labels.argmax(-1), targets], dim=1)  # (b, n)
        same = (codes[:, s:, None] == codes[:, None, :]).to(episode.rest.dtype)  # (b, m, n)
        total = episode.rest.new_zeros(())
        for i, (near, alike, distances) in enumerate(rounds):
            nodes = F.cross_entropy((-distances[:, s:, :s] @ episode.labels).flatten(0, 1), targets.flatten())
            pairs = _balanced(near[:, s:], same) + _DISTRIBUTION_LOSS * _balanced(alike[:, s:], same)
            total = total + (1.0 if i == ROUNDS - 1 else _EARLY) * (pairs + _NODE_LOSS * nodes)
        return total / ROUNDS + F.cross_entropy(logits.flatten(0, 1), targets.flatten())

    def run(self, episode: Episode) -> tuple[Tensor, list[tuple[Tensor, Tensor, Tensor]]]:
        """Logits (b, m, c), and for each round, logits of the edges of both graphs and squared distances (b, n, n)."""
        s, n = episode.support.shape[1], episode.support.shape[1] + episode.rest.shape[1]
        points = F.normalize(torch.cat([episode.support, episode.rest], dim=1), dim=-1)
        # times sqrt(d): entries have the order of 1, as the initialisation of layers assumes
        vectors = _to_size(self.embed(points * points.shape[-1] ** 0.5))  # (b, n, WIDTH)
        edges = vectors.new_full((len(vectors), n, n), 1 / s)
        edges[:, :s, :s] = episode.labels @ episode.labels.mT
        relations, relation_edges = edges[..., :s], edges  # (b, n, s), (b, n, n)
        found = []
        for one in self.rounds:
            differences = (vectors[:, :, None] - vectors[:, None, :]).square()  # (b, n, n, WIDTH)
            near = one.vector_edge(differences)[..., 0]
            edges = _next_edges(near, edges)
            relations = F.leaky_relu(one.relation(torch.stack([s * edges[..., :s], relations], dim=-1))[..., 0])
            spread = (relations[:, :, None] - relations[:, None, :]).square().mean(-1)  # (b, n, n)
            alike = one.relation_edge(spread[..., None])[..., 0]
            relation_edges = _next_edges(alike, relation_edges)
            found.append((near, alike, differences.sum(-1)))
            if one.mix is not None:
                others = F.normalize(_without_self(relation_edges), p=1, dim=-1) @ vectors
                vectors = _to_size(one.mix(torch.cat([vectors, others], dim=-1)))
        # the mean over supports, so that classes of unequal shots count alike
        mass = edges[:, s:, :s] @ episode.labels / episode.labels.sum(1, keepdim=True)
        return torch.log(mass / mass.sum(-1, keepdim=True) + 1e-10), found


def _to_size(vectors: Tensor) -> Tensor:
    return F.layer_norm(vectors, vectors.shape[-1:])


def _next_edges(logits: Tensor, edges: Tensor) -> Tensor:
    """Similarities times the previous edges, with the same row sums; then the diagonal is added and rows sum to one."""
    before = _without_self(edges)
    after = F.normalize(logits.sigmoid() * before, p=1, dim=-1) * before.sum(-1, keepdim=True)
    after = after + torch.eye(edges.shape[-1], dtype=edges.dtype, device=edges.device) + 1e-6
    return after / after.sum(-1, keepdim=True)


def _without_self(edges: Tensor) -> Tensor:
    return edges * (1 - torch.eye(edges.shape[-1], dtype=edges.dtype, device=edges.device))


def _balanced(logits: Tensor, same: Tensor) -> Tensor:
    """Binary cross-entropy with equal weight for pairs of one class and of two."""
    each = F.binary_cross_entropy_with_logits(logits, same, reduction="none")
    return (each * same).sum() / same.sum() + (each * (1 - same)).sum() / (1 - same).sum()


def _perceptron(given: int, hidden: int, out: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(given, hidden), nn.LeakyReLU(), nn.Linear(hidden, out))


@dataclass(frozen=True, kw_only=True)
class DPGN(MetaMethod):
    """A graph of vectors and one of distributions; untrained, all its layers are random."""

    head: ClassVar[type[Head]] = DPGNHead
    recipe: ClassVar[dict[str, Any]] = {"lr": 4e-3, "weight_decay": 1e-5, "steps": 800, "batch": 4}
    block: ClassVar[int] = 8  # differences of all pairs of points take memory
