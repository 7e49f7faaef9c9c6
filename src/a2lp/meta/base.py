"""The base of methods with a head: a small torch network on frozen features, trained on base classes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from a2lp.arrays import chunks, is_torch, like, namespace, one_hot, to_numpy
from a2lp.checks import shown, whole
from a2lp.errors import InputError, ShapeError
from a2lp.meta.checkpoint import HeadWeights, read_weights
from a2lp.methods.base import Method, Outcome, Points, scored
from a2lp.tasks.batch import TaskBatch


class Episode(NamedTuple):
    """A block of preprocessed tasks as torch tensors."""

    support: Tensor  # (b, s, d)
    labels: Tensor  # (b, s, c)  one-hot
    rest: Tensor  # (b, m, d)  queries first


class Head(nn.Module, ABC):  # type: ignore[misc]
    """The part of a method that is trained: from tasks to logits of all unlabelled points.

    A head is made for vectors of ``n_dims`` dimensions and, if ``fixed_way`` is set, for ``n_way`` classes. It must not
    mix the tasks of a batch, as batch norm over tasks would.
    """

    fixed_way: ClassVar[bool] = False

    @abstractmethod
    def forward(self, episode: Episode) -> Tensor:
        """Logits (b, m, c)."""

    def loss(self, episode: Episode, targets: Tensor) -> Tensor:
        """The training loss: by default, the cross-entropy of the queries (b, m)."""
        return nn.functional.cross_entropy(self(episode).flatten(0, 1), targets.flatten())


@dataclass(frozen=True, kw_only=True)
class MetaMethod(Method):
    """A method with a head.

    Parameters
    ----------
    weights : str or Path, optional
        A file that ``a2lp meta-train`` wrote. None: the untrained head.
    seed : int
        Of the untrained head, if it is random.
    """

    head: ClassVar[type[Head]]
    recipe: ClassVar[dict[str, Any]]  # settings of its training, as in ``MetaConfig``
    block: ClassVar[int] = 256  # tasks that go through the head at a time
    trained: ClassVar[HeadWeights | None] = None  # the content of the file ``weights``; set for each instance

    weights: str | Path | None = None
    seed: int = whole(0, 0, "It seeds the untrained head only.")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.weights is not None:
            if not isinstance(self.weights, str | Path):
                raise InputError(f"weights={shown(self.weights)} must be the name of a file of `a2lp meta-train`.")
            object.__setattr__(self, "trained", read_weights(self.weights, self.head))

    @property
    def uses_base(self) -> bool:
        """Whether it uses base classes: weights were trained on them."""
        return self.reads_statistics or self.weights is not None

    def answer(self, head: Head, episode: Episode, n_query: int) -> Tensor:
        """Logits of the queries (b, q, c)."""
        return head(episode)[:, :n_query]

    def new_head(self, n_dims: int, n_way: int) -> Head:
        """The untrained head."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            return self.head(n_dims, n_way)

    def _check(self, batch: TaskBatch) -> None:
        super()._check(batch)
        trained = self.trained
        if trained is None:
            return
        if batch.n_dims != trained.n_dims:
            raise ShapeError(
                f"{trained.path} was trained on vectors of {trained.n_dims} dimensions and these have {batch.n_dims}; "
                "a head fits the features that it was trained on. Train it on base classes of the same backbone: "
                "a2lp meta-train."
            )
        if self.head.fixed_way and batch.n_classes != trained.n_way:
            raise ShapeError(
                f"{trained.path} was trained on tasks of n_way={trained.n_way} classes and these have "
                f"{batch.n_classes}; its network has one input for each class. Train another: "
                f"a2lp meta-train --ways {batch.n_classes}."
            )

    def _solve(self, points: Points) -> Outcome:
        episode = as_episode(points)
        head = self.new_head(episode.rest.shape[-1], points.n_classes)
        if self.trained is not None:
            head.load_state_dict(self.trained.tensors)
        head.to(episode.rest.device, episode.rest.dtype)
        with torch.no_grad():
            parts = [
                self.answer(head, Episode(*(x[part] for x in episode)), points.n_query)
                for part in chunks(len(episode.rest), self.block)
            ]
            scores = torch.cat(parts) / self.tau
        if not is_torch(namespace(points.support)):
            scores = like(scores.numpy(), points.support)
        return scored(scores, engine="torch", reason="its network is torch's")


def as_episode(points: Points) -> Episode:
    """A block of tasks of any array library as torch tensors; torch tensors stay on their device."""
    arrays: list[Any] = [points.support, points.rest, points.codes]
    if not is_torch(namespace(points.support)):
        arrays = [torch.from_numpy(np.array(to_numpy(x))) for x in arrays]  # a copy: torch needs writable memory
    support, rest, codes = arrays
    return Episode(support, one_hot(codes, points.n_classes, support.dtype), rest)
