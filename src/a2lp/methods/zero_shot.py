"""Zero-shot classification by class names: Radford et al., "Learning transferable visual models from natural language
supervision" (CLIP), ICML 2021.

A query belongs to the class whose name is nearest: the largest cosine between the image's vector and the text's. Labels
of the support are not used, nor are other queries. It is the baseline of all methods with names.

Prompts are the caller's business: a prototype is one vector, usually the mean of the unit vectors of several prompts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from a2lp.checks import number
from a2lp.methods._names import LOGIT_SCALE, text_logits
from a2lp.methods.base import Method, Outcome, Points, scored


@dataclass(frozen=True, kw_only=True)
class ZeroShot(Method):
    """The nearest name; probabilities are softmax(scale * cosine).

    Parameters
    ----------
    scale : float
        Of the cosines in the softmax; CLIP learns 100, SigLIP about as much.
    """

    uses_names: ClassVar[str] = "required"

    scale: float = number(LOGIT_SCALE, "positive", "CLIP's is 100.")

    def _solve(self, points: Points) -> Outcome:
        s, q = points.codes.shape[1], points.n_query
        return scored(text_logits(points, self.scale)[:, s : s + q, :] / self.tau)
