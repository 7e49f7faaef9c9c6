"""DPGN: Yang, Li, Zhang, Zhou, Zhou and Liu, "DPGN: distribution propagation graph network for few-shot learning",
CVPR 2020.

Two graphs over all points of a task refine each other: one compares vectors, the other compares how points are related
to the supports ("distributions"), and vectors are mixed along its edges. After the last round, a query's edges to the
supports are its answer. Assumes no class marginal.

Where we differ from the authors' code: the backbone is frozen, and a linear layer takes the place of the embedding that
they train with it; three rounds of 32 dimensions, theirs are six of 128. What acts on distributions is shared over
supports, where theirs is a layer with an input for each: so any number of classes and shots works, in any order.
Their tasks have one query for each class, in training and in their results; here they have any number (15 in training),
which are all linked at the start. With that many points an edge that is normalised over its row is small,
so the loss of edges is taken before they are normalised, and the cross-entropy of the answer is added to it. Layer norm
keeps vectors in size where they have batch norm and dropout. They chose the round of training on test classes; here
validation classes are for that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from a2lp.meta.base import Episode, Head, MetaMethod, Recipe

ROUNDS = 3
WIDTH = 32
HIDDEN = 32
_EARLY = 0.2  # weight of the losses of all rounds but the last; the authors', like the two that follow
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
        super().__init__(n_dims, n_way)
        self.embed = nn.Linear(n_dims, WIDTH)
        self.rounds = nn.ModuleList(_Round(last=i == ROUNDS - 1) for i in range(ROUNDS))

    def forward(self, episode: Episode) -> Tensor:
        """The log of how much of a query's edges goes to each class' supports (b, m, c)."""
        s = episode.support.shape[1]
        return log_mass(self.run(episode)[0][:, s:, :s], episode.labels)

    def loss(self, episode: Episode, targets: Tensor) -> Tensor:
        """Edges of both graphs, and nearness of vectors to supports of their class, over all rounds."""
        s = episode.support.shape[1]
        edges, rounds = self.run(episode)
        answer = log_mass(edges[:, s:, :s], episode.labels)
        codes = torch.cat([episode.labels.argmax(-1), targets], dim=1)  # (b, n)
        same = (codes[:, s:, None] == codes[:, None, :]).to(episode.rest.dtype)  # (b, m, n)
        total = episode.rest.new_zeros(())
        for i, (near, alike, distances) in enumerate(rounds):
            nodes = F.cross_entropy((-distances[:, s:, :s] @ episode.labels).flatten(0, 1), targets.flatten())
            pairs = _balanced(near[:, s:], same) + _DISTRIBUTION_LOSS * _balanced(alike[:, s:], same)
            total = total + (1.0 if i == ROUNDS - 1 else _EARLY) * (pairs + _NODE_LOSS * nodes)
        return total / ROUNDS + F.cross_entropy(answer.flatten(0, 1), targets.flatten())

    def run(self, episode: Episode) -> tuple[Tensor, list[tuple[Tensor, Tensor, Tensor]]]:
        """The last edges of the vectors' graph (b, n, n); of each round, the logits of both graphs' similarities and
        the squared distances of vectors.
        """
        s, n = episode.support.shape[1], episode.support.shape[1] + episode.rest.shape[1]
        points = F.normalize(torch.cat([episode.support, episode.rest], dim=1), dim=-1)
        # times sqrt(d): entries of the size of 1, which layers are initialised for
        vectors = _to_size(self.embed(points * points.shape[-1] ** 0.5))  # (b, n, WIDTH)
        alike = episode.labels @ episode.labels.mT  # (b, s, s)
        edges = F.pad(alike, (0, n - s, 0, n - s))
        known = F.pad(torch.ones_like(alike), (0, n - s, 0, n - s))
        edges = edges + (1 - known) / s
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
        return edges, found


def log_mass(edges: Tensor, labels: Tensor) -> Tensor:
    """The log of how much of a point's edges (b, m, s) goes to the supports of each class."""
    mass = edges @ labels / labels.sum(1, keepdim=True)  # the mean over supports: unequal shots count alike
    return torch.log(mass / mass.sum(-1, keepdim=True) + 1e-10)


def _to_size(vectors: Tensor) -> Tensor:
    return F.layer_norm(vectors, vectors.shape[-1:])


def _next_edges(logits: Tensor, edges: Tensor) -> Tensor:
    """Similarities times the edges before, with each row's sum kept, then the point itself added and rows to one."""
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
    recipe: ClassVar[Recipe] = Recipe("adamw", lr=4e-3, weight_decay=1e-5, steps=800, batch=4)
    block: ClassVar[int] = 8  # differences of all pairs of points take memory
