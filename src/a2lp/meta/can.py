"""CAN: Hou, Chang, Ma, Shan and Chen, "Cross attention network for few-shot classification", NeurIPS 2019.

Each pair of a class and a point is compared with an attention of its own, computed by a small network from the product
of the two. Then the most confident queries join the support with their predicted labels, twice, and all are scored
again (the authors' transductive step, ``top_k`` here). Assumes no class marginal.

Differences from the authors' code: pooled vectors have no positions, so the attention is over channels, from the
products of the two unit vectors, instead of over the 36 positions of a feature map, from correlations. A product is
symmetric, so class and query share one attention. It is 1 + d softmax (theirs: 1 + softmax(. / 0.025) over positions),
so that its mean does not depend on d. Only the comparison is trained, by cross-entropy on episodes: their second loss,
over all base classes, is for the backbone, which is frozen here. Logits are 15 cos, not 7 cos: with fixed vectors, a
small scale rewards attention that separates cosines without ranking them better. There is no batch norm.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor, nn
from torch.nn import functional as F

from a2lp.checks import number
from a2lp.meta.base import Episode, Head, MetaMethod

SCALE = 15.0  # of the cosines
HIDDEN = 32


class CANHead(Head):
    """The attention to channels for a class and a point; before training, it is uniform."""

    def __init__(self, n_dims: int, n_way: int) -> None:
        super().__init__()
        self.hidden = nn.Linear(n_dims, HIDDEN)
        self.attention = nn.Linear(HIDDEN, n_dims)
        nn.init.zeros_(self.attention.weight)
        nn.init.zeros_(self.attention.bias)

    def forward(self, episode: Episode) -> Tensor:
        """Logits without the transductive step."""
        sums, counts = class_sums(episode.labels, episode.support)
        return self.compare(sums / counts, episode.rest)

    def compare(self, means: Tensor, points: Tensor) -> Tensor:
        """Scaled cosines under the attention of each pair (b, m, c)."""
        classes = F.normalize(means, dim=-1)[:, None]  # (b, 1, c, d)
        points = F.normalize(points, dim=-1)[:, :, None]  # (b, m, 1, d)
        agreement = classes * points  # (b, m, c, d)
        n_dims = agreement.shape[-1]
        # times d: products of unit vectors have the order of 1 / d
        found = self.attention(F.relu(self.hidden(n_dims * agreement)))
        weights = (1 + n_dims * found.softmax(-1)).square()
        cross = (weights * agreement).sum(-1)
        norms = (weights * classes.square()).sum(-1) * (weights * points.square()).sum(-1)
        return SCALE * cross * norms.clamp_min(1e-24).rsqrt()


def class_sums(labels: Tensor, points: Tensor) -> tuple[Tensor, Tensor]:
    """Sums (b, c, d) and numbers (b, c, 1) of the points of each class."""
    return labels.mT @ points, labels.sum(1)[..., None]


@dataclass(frozen=True, kw_only=True)
class CAN(MetaMethod):
    """Cross attention over channels, with the transductive step; untrained, it is ``top_k``.

    Parameters
    ----------
    share : float
        The part of the queries that joins the support in each round; there are 1 / share rounds, rounded down.
    """

    head: ClassVar[type[Head]] = CANHead
    recipe: ClassVar[dict[str, Any]] = {"lr": 1e-4, "weight_decay": 0.1, "steps": 200, "batch": 16}
    block: ClassVar[int] = 16  # an attention for each class and point takes memory

    preprocess: str = "none"
    share: float = number(35 / 75, "above 0 and at most 1", "The authors use 35/75.")

    def answer(self, head: Head, episode: Episode, n_query: int) -> Tensor:
        """Logits after the most confident queries have joined."""
        assert isinstance(head, CANHead)
        rest = episode.rest
        sums, counts = class_sums(episode.labels, episode.support)
        logits = head.compare(sums / counts, rest)
        each = max(1, int(self.share * rest.shape[1] + 1e-6))  # 35/75 of 75 is 35
        for i in range(rest.shape[1] // each):
            best, label = logits.max(-1)
            sure = best >= best.topk(each * (i + 1), dim=-1).values[:, -1:]
            joined = F.one_hot(label, logits.shape[-1]).to(rest.dtype) * sure[..., None]
            more, number = class_sums(joined, rest)
            logits = head.compare((sums + more) / (counts + number), rest)
        return logits[:, :n_query]
