"""``a2lp_em`` and ``bavardage``: their equations written plainly, one task at a time, and answers of public code."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import digamma, gammaln, softmax

import a2lp
from a2lp.arrays import digamma as our_digamma
from a2lp.arrays import namespace
from a2lp.errors import InputError, UnknownNameError
from a2lp.features import BaseStatistics, load, load_base
from a2lp.loops.em import products, shares
from a2lp.tasks.samplers import draw

Array = np.ndarray[Any, Any]


@pytest.fixture(scope="module")
def base() -> BaseStatistics:
    return load_base("cub")


def tasks(n: int, n_shot: int, sampler: str = "dirichlet") -> tuple[a2lp.TaskBatch, Array]:
    """Tasks of the bundled features in float64, and the queries' labels."""
    cub = load("cub")
    assert cub.labels is not None
    drawn = draw(sampler, cub.labels, seed=3, n_way=5, n_shot=n_shot, n_query=15, n_tasks=n)
    x = cub.features.astype(np.float64)
    return a2lp.TaskBatch(x[drawn.support], cub.labels[drawn.support], x[drawn.query]), cub.labels[drawn.query]


def unit(x: Array) -> Array:
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def propagation(x: Array, k: int, gamma: float, alpha: float) -> Array:
    """(I - alpha S)^-1, row by row."""
    n = len(x)
    weights = np.zeros((n, n))
    for i in range(n):
        cosines = x @ x[i]
        cosines[i] = -np.inf
        for j in np.argsort(-cosines)[:k]:
            weights[i, j] = max(cosines[j], 0) ** gamma
    weights = (weights + weights.T) / 2
    degrees = weights.sum(axis=1)
    return np.asarray(np.linalg.inv(np.eye(n) - alpha * weights / np.sqrt(np.outer(degrees, degrees))))


def locally_whitened(x: Array) -> Array:
    """Vectors in the space of d dimensions, where the method has inner products alone."""
    residuals = np.array([v - np.mean(x[np.argsort(((x - v) ** 2).sum(axis=1))[1:13]], axis=0) for v in x])
    values, vectors = np.linalg.eigh(residuals.T @ residuals)
    ridge = 6 * (residuals**2).sum() / len(x)
    return unit(x @ vectors / np.sqrt(np.maximum(values, 0) + ridge))


def centred(x: Array, codes: Array, trust: float) -> Array:
    """Unit vectors less a centre between their mean and that of the classes' support, made unit."""
    of_classes = np.mean([x[: len(codes)][codes == q].mean(axis=0) for q in range(codes.max() + 1)], axis=0)
    return unit(x - trust * of_classes - (1 - trust) * x.mean(axis=0))


class Plain:
    """The equations of docs/a2lp_em.md for one task of unit vectors x (n, d), the support first."""

    def __init__(self, x: Array, codes: Array, uniform: bool, whitened: bool, k: int = 20) -> None:
        self.x, self.codes, self.uniform = x, codes, uniform
        self.s, self.c, self.labels = len(codes), codes.max() + 1, np.eye(codes.max() + 1)[codes]
        h = 1 - self.c / self.s
        self.temperature, alpha, gamma, self.mean_prior, self.pull, self.start_weight, self.support_weight = (
            (20, 0.4, 3, 0, 0, 0, 0) if whitened and uniform
            else (50, 0.8, 3, 0, 0, 0, 0) if whitened
            else (20 - 12.5 * h, 0.4, 3 + 2.5 * h, 0, 0, 0, 2.5 * h) if uniform
            else (14, 0.6, 12, 2, 2, 0.3, 5 * h)
        )  # fmt: skip
        if uniform and not whitened:
            self.x = centred(x, codes, 0)
        self.smooth = propagation(self.x, k, gamma, alpha)
        self.start = self.spread(np.zeros((len(x) - self.s, self.c)))
        if uniform or whitened:
            self.shares = self.rounds(self.x, 10, 2.0, self.pull)
            return
        common = centred(x, codes, self.s / (self.s + self.c))
        found, evidence = [], []
        for believed, a in ((0.25, 0.5), (0.25, 2.0), (0.5, np.inf)):
            self.uniform = np.isinf(a)
            if self.uniform and len(x) - self.s < self.c:
                continue
            unequal = (self.c - 1) / (self.c * a + 1) * self.s / self.c
            found.append(self.rounds(centred(x, codes, unequal**2 / (unequal**2 + 0.15**2)), 10, a, self.pull))
            fit = (found[-1] * (self.logits(common, found[-1]) - np.log(found[-1] + 1e-30))).sum()
            evidence.append(np.log(believed) + fit / 2 + self.probability(found[-1].sum(axis=0), a))
        self.weights = softmax(evidence)
        self.shares = sum(w * one for w, one in zip(self.weights, found, strict=True))

    def probability(self, mass: Array, a: float) -> float:
        """The logarithm of a Dirichlet-multinomial probability, without its coefficient."""
        if np.isinf(a):
            return float(-mass.sum() * np.log(self.c))
        total = gammaln(self.c * a) - gammaln(self.c * a + mass.sum())
        return float(total + (gammaln(mass + a) - gammaln(a)).sum())

    def spread(self, rows: Array) -> Array:
        found = (self.smooth @ np.concatenate([self.labels, rows]))[self.s :]
        found /= found.sum(axis=1, keepdims=True)
        for _ in range(10 if self.uniform else 0):
            found *= len(found) / self.c / found.sum(axis=0)
            found /= found.sum(axis=1, keepdims=True)
        return np.asarray(found)

    def logits(self, x: Array, rest: Array) -> Array:
        """Those of the queries under the means of soft labels, without what the classes' shares add."""
        s = self.s
        ridge = x[s:] @ x[:s].T @ np.linalg.inv(x[:s] @ x[:s].T + 0.2 * np.eye(s)) @ (self.labels - 1 / self.c)
        shares = np.concatenate([self.labels, rest])
        logits = self.start_weight * np.log(self.start) + self.support_weight * ridge
        for q in range(self.c):
            mean = (shares[:, q, None] * x).sum(axis=0) / (shares[:, q].sum() + self.mean_prior)
            logits[:, q] -= self.temperature * ((x[s:] - mean) ** 2).sum(axis=1)
        return np.asarray(logits)

    def rounds(self, x: Array, rounds: int, a: float, pull: float) -> Array:
        rest = self.start
        for _ in range(rounds):
            logits = self.logits(x, rest)
            if not self.uniform:
                mass = rest.sum(axis=0)
                expected = (mass + a) * mass.sum() / (mass.sum() + self.c * a)
                logits += digamma(mass + a) + pull * np.log((expected + 1) / (mass + 1))
            rest = self.spread(softmax(logits, axis=1))
        return rest


@pytest.mark.parametrize("n_shot", [1, 5])
@pytest.mark.parametrize("preprocess", ["none", "whiten"])
@pytest.mark.parametrize("marginal", ["estimated", "uniform"])
def test_a2lp_em_is_its_equations(base: BaseStatistics, marginal: str, preprocess: str, n_shot: int) -> None:
    batch, _ = tasks(12, n_shot)
    found = a2lp.create("a2lp_em", marginal=marginal, preprocess=preprocess, base=base).predict(batch)
    for i in range(batch.n_tasks):
        x = np.concatenate([batch.support[i], batch.query[i]])
        if preprocess == "whiten":
            x = locally_whitened(unit((x - base.mean) @ base.whitening.astype(np.float64)))
        else:
            x = unit((np.maximum(x, 0) + 1e-6) ** 0.625)
        expected = Plain(x, batch.codes[i], marginal == "uniform", preprocess == "whiten").shares
        np.testing.assert_allclose(found.probabilities[i], expected, rtol=0, atol=1e-8)


def test_features_that_are_signed_keep_their_signs() -> None:
    """Each task for itself: in one batch, one of features after a ReLU and one of signed ones."""
    rng = np.random.default_rng(0)
    support, query = rng.normal(size=(2, 6, 20)), rng.normal(size=(2, 30, 20))
    support[0], query[0] = np.abs(support[0]), np.abs(query[0])
    support[0, :, 0] -= 0.1
    codes = np.tile([0, 1, 2], (2, 2))
    found = a2lp.create("a2lp_em", n_neighbors=8).predict(a2lp.TaskBatch(support, codes, query))
    for i, rectify in enumerate((True, False)):
        x = np.concatenate([support[i], query[i]])
        x = np.maximum(x, 0) if rectify else x
        x = unit(np.where(x < 0, -1, 1) * (np.abs(x) + 1e-6) ** 0.625)
        expected = Plain(x, codes[i], uniform=False, whitened=False, k=8).shares
        np.testing.assert_allclose(found.probabilities[i], expected, rtol=0, atol=1e-6)  # degrees have an offset


@pytest.mark.parametrize(
    ("preprocess", "marginal"), [("whiten", "estimated"), ("whiten", "uniform"), ("none", "estimated")]
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_compiled_and_batched_agree(base: BaseStatistics, dtype: torch.dtype, preprocess: str, marginal: str) -> None:
    batch, _ = tasks(20, 1)
    given = [torch.asarray(a, dtype=dtype) for a in (batch.support, batch.query)]
    method = a2lp.create("a2lp_em", preprocess=preprocess, base=base, marginal=marginal)
    other = method.predict(a2lp.TaskBatch(given[0], torch.asarray(batch.codes), given[1]))
    ours = method.predict(a2lp.TaskBatch(given[0].numpy(), batch.codes, given[1].numpy()))
    assert (ours.engine, other.engine) == ("fused_cpu", "batched")
    assert other.scores.dtype == dtype
    np.testing.assert_allclose(
        ours.probabilities, other.probabilities, rtol=0, atol=1e-9 if dtype.itemsize == 8 else 2e-3
    )


def spread_points(kind: str, n: int, dtype: type) -> Array:
    """Inner products (3, n, n) of unit points."""
    rng = np.random.default_rng(n)
    x = unit(rng.normal(size=(3, n, 3 if kind == "opposite" else 24)))
    if kind == "equal":
        x[:] = x[:, :1]
    elif kind == "tied":
        x = x[:, np.arange(n) // 3]
    elif kind == "opposite":  # most neighbours are at obtuse angles
        x[:, 1::2] = -x[:, ::2][:, : n // 2]
    gram = (x @ x.swapaxes(1, 2)).astype(dtype)
    return np.maximum(gram, gram.swapaxes(1, 2))


@pytest.mark.parametrize("n", [2, 3, 13, 14, 30, 80])
@pytest.mark.parametrize("kind", ["any", "equal", "tied", "opposite"])
def test_compiled_local_whitening_is_the_array_one(kind: str, n: int) -> None:
    gram = spread_points(kind, n, np.float64)
    expected = products.locally_whitened(torch.asarray(gram.copy())).numpy()
    np.testing.assert_allclose(products.locally_whitened(gram), expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("n", [2, 6, 40, 80, 200])
def test_points_that_are_all_equal_have_nothing_to_whiten(n: int) -> None:
    """What is left of their spread is the rounding of inner products, here of any sign."""
    noise = np.random.default_rng(n).integers(-3, 4, size=(50, n, n)) * np.finfo(np.float32).eps
    gram = (1 + noise + noise.swapaxes(1, 2)).astype(np.float32)
    for form in (gram.copy(), torch.asarray(gram)):
        np.testing.assert_allclose(products.locally_whitened(form), 1, rtol=0, atol=1e-5)


def test_unlabelled_points_help() -> None:
    """More points of the same classes: better means."""
    cub = load("cub")
    assert cub.labels is not None
    drawn = draw("balanced", cub.labels, seed=5, n_way=5, n_shot=1, n_query=35, n_tasks=60)
    x = cub.features.astype(np.float32)
    few, many = drawn.query[:, :25], drawn.query[:, 25:]
    method = a2lp.create("a2lp_em")
    without = method.predict(a2lp.TaskBatch(x[drawn.support], cub.labels[drawn.support], x[few]))
    with_them = method.predict(a2lp.TaskBatch(x[drawn.support], cub.labels[drawn.support], x[few], x[many]))
    truth = cub.labels[few]
    assert (with_them.labels == truth).mean() > (without.labels == truth).mean() + 0.02


def test_the_centre_has_every_class_alike_whatever_its_shots() -> None:
    """A class's second and third shot count for it, not against the others."""
    rng = np.random.default_rng(1)
    x, codes = np.abs(rng.normal(size=(1, 30, 12))), np.array([[0, 0, 0, 1, 2, 2]])
    found = a2lp.create("a2lp_em", n_neighbors=8).predict(a2lp.TaskBatch(x[:, :6], codes, x[:, 6:]))
    expected = Plain(unit((x[0] + 1e-6) ** 0.625), codes[0], uniform=False, whitened=False, k=8).shares
    np.testing.assert_allclose(found.probabilities[0], expected, rtol=0, atol=1e-9)


def test_how_unequal_classes_are_is_inferred() -> None:
    """Each hypothesis explains the masses of its own kind best, where all explain the points alike."""
    masses = np.array([[15.0, 15, 15, 15, 15], [40, 15, 10, 6, 4], [71, 1, 1, 1, 1]])
    labels = np.repeat(masses[:, :, None] / 75, 75, axis=2)  # (3, c, m), of points that say nothing
    each = [shares.evidence(np.log(labels), labels, a) for a in shares.CONCENTRATIONS]
    assert np.argmax(each, axis=0).tolist() == [2, 1, 0]


def test_fewer_points_than_classes_are_not_equal_classes() -> None:
    x = np.abs(np.random.default_rng(3).normal(size=(9, 12)))
    codes = np.arange(6)
    found = a2lp.create("a2lp_em", n_neighbors=4).predict(a2lp.TaskBatch(x[None, :6], codes[None], x[None, 6:]))
    expected = Plain(unit((x + 1e-6) ** 0.625), codes, uniform=False, whitened=False, k=4)
    assert len(expected.weights) == 2
    np.testing.assert_allclose(found.probabilities[0], expected.shares, rtol=0, atol=1e-9)


def test_it_gains_on_a_fixed_concentration_for_both_kinds_of_tasks() -> None:
    for sampler, other in (("balanced", 0.5), ("dirichlet", 100.0)):
        batch, truth = tasks(150, 1, sampler)
        own, fixed = (a2lp.create("a2lp_em", **p).predict(batch).labels for p in ({}, {"prior": other}))
        assert (own == truth).mean() > (fixed == truth).mean() + 0.002, sampler


def test_points_that_are_nearly_at_right_angles_still_have_neighbours() -> None:
    """The twelfth power of their cosines is below any offset of a degree."""
    rng = np.random.default_rng(4)
    centres = 0.3 * rng.normal(size=(3, 400))
    truth = np.repeat([0, 1, 2], 12)
    x = rng.normal(size=(36, 400)) + centres[truth]
    batch = a2lp.TaskBatch(x[None, ::12], np.array([[0, 1, 2]]), np.delete(x, [0, 12, 24], axis=0)[None])
    assert np.abs(unit(x) @ unit(x).T - np.eye(36)).max() < 0.25
    found = a2lp.create("a2lp_em", n_neighbors=5).predict(batch)
    assert (found.labels[0] == np.delete(truth, [0, 12, 24])).mean() > 0.6


def test_a_uniform_marginal_fills_the_classes() -> None:
    batch, _ = tasks(10, 1, "balanced")
    found = a2lp.create("a2lp_em", marginal="uniform").predict(batch)
    np.testing.assert_allclose(found.probabilities.sum(axis=1), 15, rtol=0.1)
    assert a2lp.create("a2lp_em", marginal="uniform").uniform
    assert not a2lp.create("a2lp_em").uniform


@pytest.mark.parametrize(
    ("params", "error"),
    [
        ({"marginal": "equal"}, UnknownNameError),
        ({"alpha": 1.0}, InputError),
        ({"temperature": 0}, InputError),
        ({"rounds": -1}, InputError),
        ({"prior": 0}, InputError),
        ({"share_weight": float("nan")}, InputError),
    ],
)
def test_parameters_are_checked(params: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error, match=next(iter(params))):
        a2lp.create("a2lp_em", **params)


def test_digamma() -> None:
    x = np.concatenate([np.linspace(0.01, 3, 50), np.linspace(3, 200, 50)])
    np.testing.assert_allclose(our_digamma(x), digamma(x), rtol=0, atol=1e-9)
    assert namespace(our_digamma(torch.asarray(x))) is namespace(torch.asarray(x))


def plain_bavardage(x: Array, codes: Array, scatter: Array, uniform: bool) -> Array:
    """Responsibilities of the queries (q, c), with vectors, rotation and projection as in the paper."""
    s, c = len(codes), codes.max() + 1
    labels = np.eye(c)[codes]
    basis = np.linalg.svd(x.T, full_matrices=False)[0]
    y = x @ basis
    means = labels.T @ y[:s] / labels.sum(axis=0)[:, None]
    for _ in range(5):
        shares = softmax(-10 * ((y[:, None] - means) ** 2).sum(axis=2), axis=1)
        shares[:s] = labels
        means = shares.T @ y / shares.sum(axis=0)[:, None]
    inverse = np.linalg.inv(scatter + 1e-6 * np.eye(len(scatter)))
    values, vectors = np.linalg.eigh(np.linalg.inv(basis.T @ inverse @ basis))
    y = y @ vectors * np.minimum(values**-0.5, 5)
    for _ in range(5):
        counts = 10 + shares.sum(axis=0)
        means = shares.T @ y / counts[:, None]
        projection = np.linalg.qr((means[1:] - means[0]).T)[0]
        squares = ((y[:, None] @ projection - means @ projection) ** 2).sum(axis=2)
        logits = -2 * squares - (c - 1) / 2 * np.log(2 * np.pi) - (c - 1) / (2 * counts)
        if not uniform:
            alpha = 2 + shares[s:].sum(axis=0)
            logits += digamma(alpha) - digamma(alpha.sum())
        shares = softmax(logits, axis=1)
        shares[:s] = labels
    return np.asarray(shares[s:])


@pytest.mark.parametrize("n_shot", [1, 5])
@pytest.mark.parametrize("marginal", ["estimated", "uniform"])
def test_bavardage_is_its_equations(base: BaseStatistics, marginal: str, n_shot: int) -> None:
    batch, _ = tasks(25, n_shot)
    found = a2lp.create("bavardage", marginal=marginal, base=base).predict(batch)
    for i in range(batch.n_tasks):
        x = unit(np.concatenate([batch.support[i], batch.query[i]]) - base.mean)
        expected = plain_bavardage(x, batch.codes[i], base.sphere_scatter.astype(np.float64), marginal == "uniform")
        # eigenvalues at the edge of the clamp are taken with an error of 6e-4 of their size
        np.testing.assert_allclose(found.probabilities[i], expected, rtol=0, atol=0.02)
        # so that labels may differ only where two classes are level
        best = np.sort(expected, axis=1)
        sure = best[:, -1] - best[:, -2] > 0.01
        np.testing.assert_array_equal(found.probabilities[i].argmax(axis=1)[sure], expected.argmax(axis=1)[sure])
        assert sure.mean() > 0.95


@pytest.mark.parametrize("marginal", ["estimated", "uniform"])
@pytest.mark.parametrize(("s", "q", "d"), [(5, 75, 640), (3, 61, 203)])  # the latter fill neither vectors nor blocks
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_bavardage_compiled_and_batched_agree(
    base: BaseStatistics, dtype: torch.dtype, s: int, q: int, d: int, marginal: str
) -> None:
    batch, _ = tasks(20, 1)
    support, query = (torch.asarray(a[..., :d], dtype=dtype) for a in (batch.support[:, :s], batch.query[:, :q]))
    codes = np.tile([2, 0, 1, 1, 0][:s], (20, 1))
    part = BaseStatistics(base.mean[:d], base.class_means[:, :d], base.within_cov[:d, :d])
    method = a2lp.create("bavardage", base=part, marginal=marginal)
    other = method.predict(a2lp.TaskBatch(support, torch.asarray(codes), query))
    ours = method.predict(a2lp.TaskBatch(support.numpy(), codes, query.numpy()))
    assert (ours.engine, other.engine) == ("fused_cpu", "batched")
    atol = 1e-9 if dtype.itemsize == 8 else 2e-3
    np.testing.assert_allclose(ours.probabilities, other.probabilities, rtol=0, atol=atol)
    np.testing.assert_allclose(ours.anchors, other.anchors, rtol=0, atol=atol)


def test_bavardage_without_its_own_covariance(base: BaseStatistics) -> None:
    """The stand-in from the covariance within classes labels nearly alike."""
    batch, truth = tasks(40, 1)
    plain = BaseStatistics(base.mean, base.class_means, base.within_cov, base.count)
    own, other = (a2lp.create("bavardage", base=b).predict(batch).labels for b in (base, plain))
    assert (own == other).mean() > 0.9
    assert abs((own == truth).mean() - (other == truth).mean()) < 0.02


def test_a_vector_in_many_tasks_counts_as_one(base: BaseStatistics) -> None:
    """Shared rows are multiplied once: the same numbers as for rows that differ."""
    batch, _ = tasks(6, 1)
    method = a2lp.create("bavardage", base=base)
    once = method.predict(batch)
    again = a2lp.TaskBatch(
        np.tile(batch.support, (4, 1, 1)), np.tile(batch.codes, (4, 1)), np.tile(batch.query, (4, 1, 1))
    )
    np.testing.assert_allclose(method.predict(again).scores[18:], once.scores, rtol=0, atol=1e-9)


def test_bavardage_reads_any_memory_layout(base: BaseStatistics) -> None:
    """Compiled code steps through memory, and arrays may lie in it column by column."""
    batch, _ = tasks(2, 1)
    method = a2lp.create("bavardage", base=base)
    turned = a2lp.TaskBatch(np.asfortranarray(batch.support), batch.codes, np.asfortranarray(batch.query))
    assert not turned.points.flags.c_contiguous
    np.testing.assert_allclose(method.predict(turned).scores, method.predict(batch).scores, rtol=0, atol=1e-9)


@pytest.mark.shared
@pytest.mark.parametrize(("tasks_of", "marginal"), [("ref_cub_1shot", "uniform"), ("dirichlet_cub_5shot", "estimated")])
def test_bavardage_answers_as_its_public_code(shared_data: Path, tasks_of: str, marginal: str) -> None:
    n = 50
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        x = np.load(shared_data / "features" / "cub_resnet12_test.npz")["features"].astype(np.float32)
    drawn = np.load(shared_data / "reference" / f"{tasks_of}.npz")
    batch = a2lp.TaskBatch(x[drawn["support"][:n]], drawn["support_labels"][:n], x[drawn["query"][:n]])
    statistics = load_base(shared_data / "features" / "cub_resnet12_train.npz")
    found = a2lp.create("bavardage", marginal=marginal, base=statistics).predict(batch)
    public = np.load(shared_data / "reference" / "public" / f"bavardage_{tasks_of}.npz")["pred"][:n]
    assert (found.labels == public).mean() > 0.999
