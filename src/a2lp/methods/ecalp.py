"""ECALP: Li, Su, Goodge, Jia and Xu, "Efficient and context-aware label propagation for zero-/few-shot training-free
adaptation of vision-language model", ICLR 2025.

Label propagation on a graph of names, shots and images that grows as images arrive: each is linked to its nearest
names, shots and earlier images, a few steps propagate labels on the graph so far, and each image carries a fifth of its
largest score to the next arrival. Axes are weighted between images by the variance of the names along them, and between
images and shots by the inverse variance of the shots. No class shares, no base data.

It is a method of streams, so the order of the queries matters; unlabelled points arrive last. The authors report the
label that an image has when it arrives (``online=True``). By default labels are those of the last graph, when all
images have arrived: tasks here are given as a whole. As in the authors' code the newest image is in the graph twice,
and of two images the earlier one's axes are weighted. They keep ten candidates for neighbours of each image, we keep
all; negative cosines have no weight here. The loop is compiled, and arrays of other libraries are copied.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from a2lp.arrays import like, to_numpy
from a2lp.checks import flag, number, whole
from a2lp.loops import stream
from a2lp.methods._maths import log_scores
from a2lp.methods.base import Method, Outcome, Points, scored
from a2lp.preprocess import l2

_LEAST_VARIANCE = 1e-12  # of the shots along an axis; one shot alone has none


@dataclass(frozen=True, kw_only=True)
class ECALP(Method):
    """Label propagation on a growing graph; probabilities are the propagated scores, divided by their sum.

    Parameters
    ----------
    online : bool
        Whether a query is labelled when it arrives, or at the end.
    n_names, n_neighbors, n_shots : int
        Nearest names, images and shots that each image is linked to.
    gamma : float
        Power of the similarities.
    steps : int
        Steps of propagation at each arrival.
    """

    uses_names: ClassVar[str] = "required"

    online: bool = flag(False, "The authors label at arrival.")
    n_names: int = whole(3, 1, "The authors use 3.")
    n_neighbors: int = whole(8, 1, "The authors use 8.")
    n_shots: int = whole(8, 1, "The authors use 8.")
    gamma: float = number(10.0, "positive", "The authors use 10.")
    steps: int = whole(3, 1, "The authors use 3.")

    def _solve(self, points: Points) -> Outcome:
        vectors, names, codes = (to_numpy(x) for x in (points.vectors, points.prototypes, points.codes))
        tasks = zip(l2(vectors), l2(names), codes, strict=True)
        scores = np.stack([self._stream(*task) for task in tasks])[:, : points.n_query, :]
        total = scores.sum(axis=-1, keepdims=True)
        shares = np.where(total > 0, scores / np.where(total > 0, total, 1), 1 / points.n_classes)
        return scored(log_scores(like(shares.astype(vectors.dtype), points.vectors), self.tau))

    def _stream(self, vectors: Any, names: Any, codes: Any) -> Any:
        """Scores (n, c) of one task's points without a label."""
        s, c = len(codes), len(names)
        shots, images = vectors[:s], vectors[s:]
        spread = names.var(axis=0) if c > 1 else np.ones_like(names[0])
        similarity = l2(images * spread) @ images.T  # rows are weighted
        nodes, weights = self._nearest(images @ names.T, self.n_names, 0)
        if s:
            inverse = 1 / np.maximum(shots.var(axis=0), _LEAST_VARIANCE) if s > 1 else np.ones_like(names[0])
            found = self._nearest(l2(images * inverse) @ shots.T, self.n_shots, c)
            nodes, weights = (np.concatenate(pair, axis=1) for pair in zip((nodes, weights), found, strict=True))
        labels = np.concatenate([np.eye(c), np.eye(c)[codes]])
        settings: dict[str, Any] = {"n_neighbors": self.n_neighbors, "gamma": self.gamma, "steps": self.steps}
        arrival, final = stream.run(similarity, nodes, weights, labels, **settings)
        return arrival if self.online else final

    def _nearest(self, cosines: Any, k: int, first: int) -> tuple[Any, Any]:
        """The nearest nodes of each image (n, k), numbered from ``first``, and the weights of their edges."""
        order = np.argsort(-cosines, axis=1, kind="stable")[:, :k]
        near = np.maximum(np.take_along_axis(cosines, order, axis=1), 0)
        return order + first, near**self.gamma
