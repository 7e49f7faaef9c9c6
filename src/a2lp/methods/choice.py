"""Which method to use for which data; ``a2lp methods`` and docs/which-method.md show it."""

from __future__ import annotations

from typing import NamedTuple


class Choice(NamedTuple):
    """A kind of data, the method for it, and why."""

    data: str
    method: str
    why: str


CHOICES = (
    Choice(
        "one set of points (photos, texts, vectors) and a few labels",
        "a2lp classify, a2lp.label or PoolClassifier",
        "made for thousands of points; estimates its own accuracy",
    ),
    Choice(
        "small tasks, nothing else known",
        "a2lp_em",
        "estimates how frequent the classes are",
    ),
    Choice(
        "small tasks, all classes equally frequent among the queries",
        "a2lp_em with marginal=uniform, or proto_lp",
        "assuming equal classes helps much where they are equal, and costs more where they are not",
    ),
    Choice(
        "small tasks, and base classes: their features, or statistics of these",
        "a2lp_em with preprocess=whiten",
        "the covariance within base classes shows which directions matter; add marginal=uniform for equal classes",
    ),
    Choice(
        "vectors of the class names, with or without labels",
        "a2lp_em",
        "pulls class means towards the names; zero_shot is the baseline",
    ),
    Choice(
        "no unlabelled points, since queries come one at a time",
        "prototypical, or simple_shot with base classes",
        "each query is labelled by itself; the fastest methods",
    ),
    Choice(
        "a paper to compare with",
        "that of the paper, with a2lp bench --methods",
        "all methods run on the same features and tasks; a2lp is the method of Lazarou et al. 2023",
    ),
)


def guide() -> str:
    """The choices as text for a terminal."""
    lines = ["Which method? If you have ..."]
    for choice in CHOICES:
        lines += [f"- {choice.data}:", f"    {choice.method} ({choice.why})"]
    return "\n".join(lines)
