"""The probability that a prediction is right, from labels that were held out."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit, log_expit
from scipy.stats import norm

from a2lp.pool.calibrate import calibrate, evidence, scale


def draw(n, seed, a=0.0, b=1.0):
    rng = np.random.default_rng(seed)
    x = rng.normal(2, 1.5, n)
    return x, (rng.random(n) < expit(a + b * x)).astype(float)


def test_it_is_the_most_probable():
    """The same maximum by another path: a general optimiser on the log posterior, written down anew."""
    x, right = draw(80, 0, -0.5, 1.4)
    suggested = np.arange(80) % 3 == 0
    counts = np.where(suggested, 0.25, 0.6)

    def loss(m):
        t = m[0] + m[1] * x - m[2] * 0.6 * suggested
        prior = norm.logpdf(m, [-0.15 - 0.4 / 5, 1.2, 0.9], [0.3, 0.2, 0.2]).sum()
        return -(counts * (right * log_expit(t) + (1 - right) * log_expit(-t))).sum() - prior

    found = calibrate(x, suggested, right, 5)
    np.testing.assert_allclose(found.mean, minimize(loss, [0, 1, 1], tol=1e-10).x, atol=1e-4)
    step = 1e-3
    curvature = [
        [(loss(found.mean + i + j) - loss(found.mean + i - j) - loss(found.mean - i + j) + loss(found.mean - i - j))
         / (4 * step**2) for j in np.eye(3) * step]
        for i in np.eye(3) * step
    ]  # fmt: skip
    np.testing.assert_allclose(found.covariance, np.linalg.inv(curvature) + np.diag([0.08**2, 0, 0]), atol=1e-4)


def test_difficult_points_do_not_stand_for_all():
    x, right = draw(4000, 1)
    hard = np.argsort(x)[:200]  # what is labelled
    assert right[hard].mean() < right.mean() - 0.4
    found = calibrate(x[hard], np.zeros(200), right[hard], 5)
    assert found.right(x).mean() == pytest.approx(right.mean(), abs=0.03)


def test_no_labels_leave_what_was_believed():
    none = np.zeros(0)
    found = calibrate(none, none, none, 1e6)
    assert found.right(np.zeros(1)) == pytest.approx([expit(-0.15)], abs=1e-5)
    x = np.linspace(0, 3, 50)
    learned, right = draw(500, 2)
    many = calibrate(learned, np.zeros(500), right, 1e6)
    assert many.variance(x, np.ones(50)) < found.variance(x, np.ones(50)) / 4


def test_many_labels_of_as_many_classes_tell_little():
    """The models that were tried lack labels that the whole one has; a may differ by 0.4 / 1.2."""
    learned, right = draw(4000, 2)
    few, many = (calibrate(learned, np.zeros(4000), right, per_class) for per_class in (1.2, 1e6))
    assert np.sqrt(many.covariance[0, 0]) < 0.15 < 0.33 < np.sqrt(few.covariance[0, 0])


def test_suggested_labels_count_less():
    x, right = draw(2000, 3)
    one, other = (calibrate(x, np.full(2000, suggested), right, 1.0) for suggested in (True, False))
    assert one.covariance[1, 1] > 1.3 * other.covariance[1, 1]


def test_evidence_grows_with_both():
    low, high = np.array([0.5]), np.array([0.9])
    assert evidence(low, low) == pytest.approx([0])
    assert 0 < evidence(low, high)[0] < evidence(high, low)[0] < evidence(high, high)[0]
    assert np.isfinite(evidence(np.array([1.0]), np.array([0.0]))).all()


def test_evidence_leaves_out_a_part_of_what_the_weights_did():
    """Weights times k multiply the logit of two classes by k; two thirds of it are left in logarithms."""
    first, half = np.array([0.5, 0.5, 1.0]), np.array([0.5])
    before = evidence(expit(np.array([2.0])), half, scale(first, first))
    after = evidence(expit(np.array([1.0])), half, scale(first / 2, first))
    np.testing.assert_allclose(after / before, 0.5 ** (2 / 3), rtol=1e-12)
