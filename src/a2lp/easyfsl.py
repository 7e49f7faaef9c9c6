"""Methods as torch modules with the interface of the easyfsl package: support set in, query scores out.

Code that evaluates easyfsl classifiers can evaluate these, too. Nothing is trained, and there are no gradients.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from a2lp.errors import InputError, ShapeError
from a2lp.methods.registry import create
from a2lp.tasks.batch import Prediction, TaskBatch

Tensor = Any


class FewShotClassifier(nn.Module):  # type: ignore[misc]
    """A method as a torch module, for one task at a time.

    Parameters
    ----------
    method : str
        One of ``a2lp.list_methods()``.
    backbone : torch.nn.Module, optional
        Maps images to vectors (n, d); call its ``eval()`` first. Without one, the images must be vectors.
    **params
        The method's own parameters.

    Attributes
    ----------
    prediction : Prediction or None
        The last prediction, as a batch of one task.

    Examples
    --------
    >>> import torch
    >>> from a2lp.easyfsl import FewShotClassifier
    >>> classifier = FewShotClassifier("prototypical")
    >>> classifier.process_support_set(torch.eye(2), torch.tensor([0, 1]))
    >>> classifier(torch.tensor([[0.1, 0.9]])).argmax(dim=1).tolist()
    [1]
    """

    def __init__(self, method: str = "a2lp", backbone: Any = None, **params: Any) -> None:
        super().__init__()
        self.method = create(method, **params)
        self.backbone = nn.Identity() if backbone is None else backbone
        self.prediction: Prediction | None = None
        self._support: tuple[Tensor, Tensor] | None = None

    @staticmethod
    def is_transductive() -> bool:
        """Whether all queries of a task must be passed together; always True."""
        return True

    def process_support_set(self, support_images: Tensor, support_labels: Tensor) -> None:
        """Set the labelled examples (s, ...) and (s,) of a task."""
        self._support = (self._embed("support", support_images), support_labels)

    def forward(self, query_images: Tensor) -> Tensor:
        """Probabilities (q, c) of all queries (q, ...) of the task; columns are the support's labels, sorted.

        A query that no label reaches has a uniform row, whose argmax is meaningless; ``prediction`` has its label.
        """
        if self._support is None:
            raise InputError("there is no support set yet. Call process_support_set(images, labels) first.")
        support, labels = self._support
        query = self._embed("query", query_images)
        self.prediction = self.method.predict(TaskBatch(support[None], labels[None], query[None]))
        return self.prediction.probabilities[0]

    def _embed(self, name: str, images: Tensor) -> Tensor:
        with torch.no_grad():
            vectors = self.backbone(images)
        if vectors.ndim != 2:
            raise ShapeError(
                f"{name} images of shape {tuple(images.shape)} became {tuple(vectors.shape)}, and vectors "
                "(n, d) are needed. Pass a backbone that ends in them, e.g. with torch.nn.Flatten()."
            )
        return vectors
