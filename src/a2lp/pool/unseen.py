"""How many of the unlabelled points belong to classes that nobody has labelled yet.

Good and Turing's estimate: among labels drawn at random, the share of those whose class has no other label is about the
share of points whose class has no label at all. What it means depends on how a label was chosen:

- "random" and "audit": as it stands. Each label counts as 0.3 of one, since the estimate is less certain than a
  binomial share: it varies with the classes that were met twice as well.
- "suggested": suggestions look for what is not covered yet, so they meet new classes far more often than random points.
  If a share s of them are alone in their class, 0.5 s³ of the points are expected to be of unknown classes. This counts
  as much as a quarter as many labels.
- "" (the user's own choice): counts that differ by at most one between classes show that the user went from class to
  class; such labels say nothing about other classes. Counts that differ more are treated as random. Classes with one
  and with two labels can come about in both ways. A choice by class is four times as probable at first, and the more so
  the less likely it is that random draws from classes of equal size would have met no class three times.

0.15 of a label is added to those of unknown classes: that none is alone in its class does not prove that there is
no other class.

Points without a path to any label belong to an unknown class whatever the labels say (``spread``).
"""

from __future__ import annotations

import numpy as np
from scipy.special import lambertw, pdtrc

from a2lp.pool.neighbours import NdArray

HOW = ("", "random", "suggested", "audit")

_COUNTS = 0.3  # of a label, for a random one
_SUGGESTED_COUNTS = 0.25  # of a label, for a suggested one
_HIDDEN = 0.15  # labels of unknown classes beside those that were met
_UNKNOWN, _UNKNOWN_POWER = 0.5, 3  # share of points of unknown classes, from that of suggestions alone in their class
_RANDOM_ODDS = 0.25  # of a choice at random against one by class, before counts are looked at
_STEEPNESS = 2  # the probability of an unknown class grows with this power of novelty; 4 and 8 calibrate worse
UNREACHED = 0.95  # the probability of an unknown class where no path leads to a label, and the largest elsewhere


def unseen_mass(codes: NdArray, how: NdArray) -> tuple[float, float]:
    """The expected share of unlabelled points whose class has no label, and its variance.

    Parameters
    ----------
    codes : array (n,)
        Each point's class from 0 on, -1 where it has no label.
    how : array (n,)
        How each label was chosen, one of ``HOW``.
    """
    given = codes >= 0
    codes, how = codes[given], how[given]
    alone = np.bincount(codes)[codes] == 1
    own = how == ""
    random = _probably_random(codes[own])
    drawn = (how == "random") | (how == "audit") | (own & (random == 1))
    unknown, known = _COUNTS * float((drawn & alone).sum()), _COUNTS * float((drawn & ~alone).sum())
    if (suggested := how == "suggested").any():
        labels = _SUGGESTED_COUNTS * float(suggested.sum())
        share = _UNKNOWN * float(alone[suggested].mean()) ** _UNKNOWN_POWER
        unknown, known = unknown + labels * share, known + labels * (1 - share)
    if unknown + known:
        unknown += _HIDDEN
    total = unknown + known
    mean = unknown / total if total else 0.0
    variance = mean * (1 - mean) / (total + 1)
    if 0 < random < 1:
        share = float(alone[own].mean())
        mean, variance = mean + (1 - mean) * random * share, variance + random * (1 - random) * share**2
    return mean, variance


def _probably_random(codes: NdArray) -> float:
    """The probability that the user drew these labels at random, not class by class."""
    counts = np.bincount(codes)
    counts = counts[counts > 0]
    if not len(counts) or counts.max() == counts.min():
        return 0.0
    if counts.max() - counts.min() > 1:
        return 1.0
    if counts.min() > 1:
        return 0.0
    # the labels of a class that has any: a Poisson number, and not 0
    mean = float(counts.mean())
    rate = mean + float(lambertw(-mean * np.exp(-mean)).real)
    three = pdtrc(2, rate) / pdtrc(0, rate)  # the probability of three or more
    odds = _RANDOM_ODDS * float((1 - three) ** len(counts))
    return odds / (1 + odds)


def spread(mass: float, novelty: NdArray, reached: NdArray) -> NdArray:
    """The probability that each unlabelled point belongs to a class without a label (m,), with this mean or more.

    Parameters
    ----------
    mass : float
        The expected share of such points.
    novelty : array (m,)
        Ranks from 0 to 1.
    reached : array (m,)
        False where no path leads to a label.
    """
    least = np.where(reached, 0.0, UNREACHED)
    shape = novelty**_STEEPNESS
    low, high = -20.0, 20.0
    for _ in range(50):
        middle = (low + high) / 2
        if np.maximum(least, np.minimum(np.exp(middle) * shape, UNREACHED)).mean() < mass:
            low = middle
        else:
            high = middle
    return np.maximum(least, np.minimum(np.exp(low) * shape, UNREACHED)) if mass > least.mean() else least
