"""Which method to take, by what one knows; ``a2lp methods`` and docs/which-method.md show it."""

from __future__ import annotations

from typing import NamedTuple


class Choice(NamedTuple):
    """A situation, what to take there, and why."""

    known: str
    take: str
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
        "transport to equal classes gains much where they are equal, and loses more where they are not",
    ),
    Choice(
        "base classes: features, or their statistics",
        "a2lp_em with preprocess=whiten",
        "covariance within base classes tells which directions matter; add marginal=uniform for equal classes",
    ),
    Choice(
        "names of the classes as vectors, with or without labels",
        "a2lp_em",
        "draws class means to the names; zero_shot is the baseline",
    ),
    Choice(
        "no unlabelled points: queries come one at a time",
        "prototypical, or simple_shot with base classes",
        "they label each query by itself, and are the fastest",
    ),
    Choice(
        "a paper to compare with",
        "its own method, by a2lp bench --methods",
        "same features, tasks and intervals for all; a2lp is the method of Lazarou et al. 2023",
    ),
)


def guide() -> str:
    """The choices as text for a terminal."""
    lines = ["Which one? By what you know:"]
    for choice in CHOICES:
        lines += [f"- {choice.known}:", f"    {choice.take} ({choice.why})"]
    return "\n".join(lines)
