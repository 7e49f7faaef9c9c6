"""ZLaP: Stojnic, Kalantidis and Tolias, "Label propagation for zero-shot classification with vision-language models",
CVPR 2024.

Label propagation on one graph of images and class names. Images are linked to their nearest images by cosines, and to
their nearest names by cosines to a power, since images are nearer to each other than to any text; names are not linked
to each other. Labels start at the names. No class shares, no base data.

As in the authors' code, an image is among its own neighbours, and its own edge is then removed. They solve by at most
50 steps of conjugate gradients, we solve exactly. Their method has no shots; here shots are images with known labels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from a2lp.arrays import device, kth_largest, namespace
from a2lp.checks import number, whole
from a2lp.engines.contract import NO_SOLUTION
from a2lp.methods._maths import log_scores
from a2lp.methods._names import neighbour_graph, text_logits
from a2lp.methods.base import Method, Outcome, Points, scored
from a2lp.preprocess import l2


@dataclass(frozen=True, kw_only=True)
class ZLaP(Method):
    """Label propagation from names to images; probabilities are the propagated scores, divided by their sum.

    Parameters
    ----------
    n_neighbors : int
        Neighbours of each image, among the images, with itself, and among the names.
    gamma : float
        Power of the cosines between images and names.
    alpha : float
        How far labels propagate, from 0 (nowhere) to below 1.
    """

    uses_names: ClassVar[str] = "required"

    n_neighbors: int = whole(5, 1, "The authors use 5.")
    gamma: float = number(5.0, "positive", "The authors use 5.")
    alpha: float = number(0.3, "at least 0 and below 1", f"{NO_SOLUTION} the authors use 0.3.")

    def _solve(self, points: Points) -> Outcome:
        assert points.prototypes is not None
        # cosines, whatever the preprocessing
        points = points._replace(vectors=l2(points.vectors), prototypes=l2(points.prototypes))
        vectors, names, s = points.vectors, points.prototypes, points.codes.shape[1]
        xp, c, n = namespace(vectors), points.n_classes, vectors.shape[1]
        images = xp.zeros_like(vectors @ xp.matrix_transpose(vectors))
        if self.n_neighbors > 1:
            images = xp.clip(neighbour_graph(vectors, self.n_neighbors - 1), min=0.0)
        cosines = vectors @ xp.matrix_transpose(names)  # (b, n, c)
        near = cosines >= kth_largest(cosines, min(self.n_neighbors, c))
        across = xp.where(near, xp.clip(cosines, min=0.0) ** self.gamma, xp.zeros_like(cosines))
        images = images + xp.matrix_transpose(images)
        by_image = xp.sum(images, axis=2) + xp.sum(across, axis=2)  # degrees
        by_name = xp.sum(across, axis=1)
        image_scale, name_scale = (1.0 / xp.sqrt(xp.where(x > 0, x, xp.ones_like(x))) for x in (by_image, by_name))
        images = image_scale[:, :, None] * images * image_scale[:, None, :]
        across = image_scale[:, :, None] * across * name_scale[:, None, :]
        # names have no edges among themselves, so their scores follow from those of the images
        eye = xp.eye(n, dtype=vectors.dtype, device=device(vectors))
        system = eye - self.alpha * images - self.alpha**2 * (across @ xp.matrix_transpose(across))
        right = self.alpha * across + points.all_labels
        scores = xp.linalg.solve(system, right)[:, s : s + points.n_query, :]
        total = xp.sum(scores, axis=-1, keepdims=True)
        # an image with no positive cosine is reached by nothing: the names alone decide
        reached = total > 0
        shares = xp.where(reached, scores / xp.where(reached, total, xp.ones_like(total)), 0 * scores)
        shares = xp.where(reached, shares, xp.exp(text_logits(points)[:, s : s + points.n_query, :]))
        return scored(log_scores(shares, self.tau))
