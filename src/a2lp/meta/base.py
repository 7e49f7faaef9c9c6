"""The base of trained methods: a head (a small torch network on frozen features), its weights, and the conversion from
any array library to torch and back.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from a2lp.arrays import Array, chunks, is_torch, like, namespace, one_hot, to_numpy
from a2lp.checks import require_whole, shown
from a2lp.errors import InputError, ShapeError
from a2lp.meta.weights import HeadWeights, read_weights
from a2lp.methods.base import Method, Outcome, Points, scored
from a2lp.tasks.batch import TaskBatch


class Episode(NamedTuple):
    """A block of preprocessed tasks as torch tensors."""

    support: Tensor  # (b, s, d)
    labels: Tensor  # (b, s, c)  one-hot
    rest: Tensor  # (b, m, d)  queries first


class Head(nn.Module, ABC):  # type: ignore[misc]
    """The part of a method that is trained: tasks in, logits of all unlabelled points out.

    A head is made for vectors of ``n_dims`` dimensions and, if ``fixed_way`` is set, for ``n_way`` classes. It must not
    mix the tasks of a batch: with batch norm over tasks, the answer to a task would depend on the others.
    """

    fixed_way: ClassVar[bool] = False

    @abstractmethod
    def __init__(self, n_dims: int, n_way: int) -> None:
        super().__init__()

    @abstractmethod
    def forward(self, episode: Episode) -> Tensor:
        """Logits (b, m, c)."""

    def loss(self, episode: Episode, targets: Tensor) -> Tensor:
        """The training loss; cross-entropy of the queries (b, m) unless a head has its own."""
        return nn.functional.cross_entropy(self(episode).flatten(0, 1), targets.flatten())


@dataclass(frozen=True)
class Recipe:
    """The default settings of a head's training.

    Attributes
    ----------
    optimizer : {"sgd", "adamw"}
        SGD has Nesterov's momentum 0.9.
    lr, weight_decay : float
    steps, batch : int
        Steps, and episodes of a step.
    """

    optimizer: str
    lr: float
    weight_decay: float
    steps: int
    batch: int


@dataclass(frozen=True, kw_only=True)
class MetaMethod(Method):
    """A method with a head.

    Parameters
    ----------
    weights : str or Path, optional
        A file that ``a2lp meta-train`` wrote. None: the untrained head.
    seed : int
        Of the untrained head, where it is random.
    """

    head: ClassVar[type[Head]]
    recipe: ClassVar[Recipe]
    block: ClassVar[int] = 256  # tasks that the head sees at a time

    weights: str | Path | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        require_whole("seed", self.seed, 0, "It decides the untrained head only.")
        trained = None if self.weights is None else self._read(self.weights)
        object.__setattr__(self, "_trained", trained)  # not a field: the file's name stands for it

    @property
    def trained(self) -> HeadWeights | None:
        """The content of the file of weights; None without one."""
        found: HeadWeights | None = getattr(self, "_trained", None)
        return found

    @property
    def uses_base(self) -> bool:
        """Weights were trained on base classes."""
        return self.reads_statistics or self.weights is not None

    def answer(self, head: Head, episode: Episode, n_query: int) -> Tensor:
        """Logits of the queries (b, q, c)."""
        return head(episode)[:, :n_query]

    def new_head(self, n_dims: int, n_way: int) -> Head:
        """The untrained head."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            return self.head(n_dims, n_way)

    def _read(self, path: str | Path) -> HeadWeights:
        if not isinstance(path, str | Path):
            raise InputError(f"weights={shown(path)} must be the name of a file that `a2lp meta-train` wrote, or None.")
        found = read_weights(path, self.head.__name__)
        found.check_fits(self.head)  # here, not at the first task
        return found

    def _check(self, batch: TaskBatch) -> None:
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
        head = self._head_like(episode.rest, points.n_classes)
        with torch.no_grad():
            parts = [
                self.answer(head, Episode(*(x[part] for x in episode)), points.n_query)
                for part in chunks(len(episode.rest), self.block)
            ]
            scores = torch.cat(parts) / self.tau
        return scored(_back(scores, points.support), engine="torch", reason="its network is torch's")

    def _head_like(self, vectors: Tensor, n_way: int) -> Head:
        """The head in the dtype and on the device of some vectors."""
        head = self.new_head(vectors.shape[-1], n_way)
        if self.trained is not None:
            head.load_state_dict(self.trained.tensors)
        head.to(vectors.device, vectors.dtype)
        return head


def as_episode(points: Points) -> Episode:
    """A block of tasks of any array library as torch tensors; torch's own stay where they are."""
    arrays: list[Any] = [points.support, points.rest, points.codes]
    if not is_torch(namespace(points.support)):
        arrays = [torch.from_numpy(np.array(to_numpy(x))) for x in arrays]  # a copy: torch wants writable memory
    support, rest, codes = arrays
    return Episode(support, one_hot(codes, points.n_classes, support.dtype), rest)


def _back(scores: Tensor, reference: Array) -> Array:
    return scores if is_torch(namespace(reference)) else like(scores.numpy(), reference)
