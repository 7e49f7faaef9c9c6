"""Methods that use class names: against their public code's labels, and against literal loops on tiny problems."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import gammaln, psi

import a2lp
from a2lp.errors import InputError, ShapeError
from a2lp.tasks.batch import TaskBatch

ENCODERS = ["clip_vit_b_32", "clip_vit_l_14", "remoteclip_vit_b_32"]
RNG = np.random.default_rng(0)


def unit(x: Any) -> Any:
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def softmax(x: Any) -> Any:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def small_problem(seed: int = 0, n: int = 40, c: int = 4, d: int = 12) -> tuple[Any, Any, Any]:
    """Unit vectors of images around class centres, their classes, and names that are off by a common gap."""
    rng = np.random.default_rng(seed)
    centres, labels, middle = 0.4 * rng.normal(size=(c, d)), rng.integers(0, c, n), rng.normal(size=d)
    images = unit(middle + centres[labels] + 0.15 * rng.normal(size=(n, d)))
    return images, labels, unit(middle + 0.5 * rng.normal(size=d) + centres + 0.1 * rng.normal(size=(c, d)))


def predict(name: str, images: Any, text: Any, shots: tuple[Any, Any] | None = None, **params: Any) -> Any:
    """Probabilities (n, c) for one task."""
    support, labels = shots if shots is not None else (images[:0], np.zeros(0, np.int64))
    batch = TaskBatch(support[None], labels[None], images[None], prototypes=text, classes=np.arange(len(text)))
    return a2lp.create(name, **params).predict(batch).probabilities[0]


# -- literal versions: one point and one class at a time --


def nearest(images: Any, k: int) -> Any:
    """Cosines of each image with its k nearest others, zero elsewhere."""
    weights = np.zeros((len(images), len(images)))
    for i, image in enumerate(images):
        order = sorted((j for j in range(len(images)) if j != i), key=lambda j: -(image @ images[j]))
        for j in order[:k]:
            weights[i, j] = image @ images[j]
    return weights


def literal_trans_clip(images: Any, text: Any, start: str, rounds: int) -> Any:
    (n, d), c = images.shape, len(text)
    y, weights = softmax(100 * images @ text.T), nearest(images, 3)
    means, variances, z = text.copy(), np.full(d, 1 / d), y.copy()
    if start == "surest":
        for k in range(c):
            best = np.argsort(-y[:, k])[:8]
            means[k] = unit(sum(y[i, k] * images[i] for i in best))
    for step in range(rounds + 1):
        for _ in range(5):
            new = np.empty_like(z)
            for i in range(n):
                energy = [-0.5 * ((images[i] - means[k]) ** 2 / variances).sum() for k in range(c)]
                graph = 50 / 6 * (weights[i] @ z + weights[:, i] @ z)
                new[i] = softmax(np.log(y[i]) + (np.array(energy) + graph) / 50)
            z = new
        if step == rounds:
            return z
        means = np.array([unit(z[:, k] @ images) for k in range(c)])
        variances = sum(z[i, k] * (images[i] - means[k]) ** 2 for i in range(n) for k in range(c)) / z.sum()
    return z


def literal_stat_a(images: Any, text: Any, rounds: int) -> Any:
    n, c = len(images), len(text)
    y, weights = softmax(100 * images @ text.T), nearest(images, 3)
    first = sum(y[i, k] * (images[i] - text[k]) ** 2 for i in range(n) for k in range(c)) / n
    means, variances, z = text.copy(), np.tile(first, (c, 1)), y.copy()
    for step in range(rounds + 1):
        for _ in range(5):
            new = np.empty_like(z)
            for i in range(n):
                squares = ((images[i] - means) ** 2 / variances).sum(axis=1) + np.log(variances).sum(axis=1)
                graph = 50 / 6 * (weights[i] @ z + weights[:, i] @ z)
                new[i] = softmax(np.log(y[i]) + (graph - 0.5 * squares) / 50)
            z = new
        if step == rounds:
            return z
        for k in range(c):
            count = sum(z[i].argmax() == k for i in range(n))
            trust = count / (1 + count)
            means[k] = unit(trust * unit(z[:, k] @ images) + (1 - trust) * text[k])
            own = sum(z[i, k] * (images[i] - means[k]) ** 2 for i in range(n)) / z[:, k].sum()
            variances[k] = trust * own + (1 - trust) * (first + (text[k] - means[k]) ** 2)
    return z


def literal_zlap(images: Any, text: Any, alpha: float) -> Any:
    n, c = len(images), len(text)
    weights = np.zeros((c + n, c + n))
    weights[c:, c:] = np.maximum(nearest(images, 4), 0)
    for i, image in enumerate(images):
        for k in np.argsort(-(text @ image))[:5]:
            weights[c + i, k] = max(image @ text[k], 0) ** 5
    weights += weights.T
    degrees = weights.sum(axis=1)
    normal = weights / np.sqrt(np.outer(degrees, degrees))
    scores = np.linalg.inv(np.eye(c + n) - alpha * normal)[c:, :c]
    return scores / scores.sum(axis=1, keepdims=True)


def literal_ecalp(images: Any, text: Any, online: bool) -> Any:
    """The whole graph built anew at every arrival."""
    n, c = len(images), len(text)
    axes, start, arrived = text.var(axis=0), np.zeros((0, c)), []
    for last in range(n):
        here = np.r_[np.arange(last + 1), last]  # the newest twice
        m = len(here)
        weights = np.zeros((c + m, c + m))
        for i in range(m):
            for k in np.argsort(-(text @ images[here[i]]))[:3]:
                weights[c + i, k] += max(images[here[i]] @ text[k], 0) ** 10
            pairs = [(images[min(here[i], j)], images[max(here[i], j)]) for j in here]
            sims = [unit(early * axes) @ late for early, late in pairs]
            for j in np.argsort(-np.array(sims), kind="stable")[:8]:
                weights[c + i, c + j] += max(sims[j], 0) ** 10
        weights += weights.T
        scale = 1 / (np.sqrt(weights.sum(axis=1)) + 1e-6)
        weights = (scale[:, None] * weights * scale)[c:]
        scores = np.concatenate([start, np.zeros((m - len(start), c))])
        for _ in range(3):
            scores = weights @ np.concatenate([np.eye(c), scores])
        arrived.append(scores[-1])
        start = np.where(scores == scores.max(axis=1, keepdims=True), scores / 5, 0)[: last + 1]
    found = np.array(arrived) if online else scores[:n]
    return found / found.sum(axis=1, keepdims=True)


def literal_em_dirichlet(images: Any, text: Any, rounds: int, steps: int) -> Any:
    """One round fits all parameters anew; lambda is zero for four names."""
    p = softmax(30 * images @ text.T)
    c, logs, u = len(text), np.log(p + 1e-15), p
    alphas = np.ones((c, c))
    for _ in range(rounds):
        for k in range(c):
            goal, a = u[:, k] @ logs / u[:, k].sum(), alphas[k]
            for _ in range(steps):
                bend = abs(2 * (psi(a + 1) * a - gammaln(a + 1)) / a**2)
                b = psi(a + 1) - psi(a.sum()) - bend * a - goal
                a = (-b + np.sqrt(b**2 + 4 * bend)) / (2 * bend)
            alphas[k] = a
        u = softmax(np.array([[(a - 1) @ row + gammaln(a.sum()) - gammaln(a).sum() for a in alphas] for row in logs]))
    return u


@pytest.mark.parametrize("start", ["surest", "text"])
def test_trans_clip_is_its_equations(start: str) -> None:
    images, _, text = small_problem()
    found = predict("trans_clip", images, text, start=start, rounds=2)
    np.testing.assert_allclose(found, literal_trans_clip(images, text, start, 2), atol=1e-9)


def test_stat_a_is_its_equations() -> None:
    images, labels, text = small_problem()
    for some in (images, images[labels < 2]):
        found = predict("stat_a", some, text, rounds=2)
        np.testing.assert_allclose(found, literal_stat_a(some, text, 2), atol=1e-9)


def test_zlap_is_its_equations() -> None:
    images, _, text = small_problem(c=7)
    np.testing.assert_allclose(predict("zlap", images, text), literal_zlap(images, text, 0.3), atol=1e-12)


@pytest.mark.parametrize("online", [False, True])
def test_ecalp_is_its_equations(online: bool) -> None:
    images, _, text = small_problem(n=25, c=5)
    found = predict("ecalp", images, text, online=online)
    np.testing.assert_allclose(found, literal_ecalp(images, text, online), atol=1e-9)


def test_em_dirichlet_is_its_equations() -> None:
    images, _, text = small_problem()
    found = predict("em_dirichlet", images, text, rounds=3, fit_steps=40, matching=False)
    np.testing.assert_allclose(found, literal_em_dirichlet(images, text, 3, 40), atol=1e-9)


def test_em_dirichlet_matches_each_cluster_to_a_name_of_its_own() -> None:
    images, _, text = small_problem(n=60, c=6)
    before = predict("em_dirichlet", images, text, matching=False).argmax(axis=1)
    after = predict("em_dirichlet", images, text).argmax(axis=1)
    pairs = set(zip(before.tolist(), after.tolist(), strict=True))
    assert len(pairs) == len({old for old, _ in pairs}) == len({new for _, new in pairs})


def test_zero_shot_is_the_largest_cosine() -> None:
    images, _, text = small_problem()
    found = predict("zero_shot", 3 * images, 2 * text)
    np.testing.assert_allclose(found, softmax(100 * images @ text.T), atol=1e-12)


NAMED = ["zero_shot", "trans_clip", "stat_a", "zlap", "ecalp", "em_dirichlet", "a2lp_em"]


@pytest.mark.parametrize("name", NAMED)
def test_the_order_of_the_names_does_not_matter(name: str) -> None:
    images, labels, text = small_problem(c=5)
    order, shots = np.random.default_rng(1).permutation(5), (images[:6], labels[:6])
    for given in (None, shots):
        found = predict(name, images[6:], text, given)
        where = None if given is None else (given[0], np.argsort(order)[given[1]])
        other = predict(name, images[6:], text[order], where)
        np.testing.assert_allclose(other, found[:, order], atol=1e-6)


def test_named_classes_that_do_not_occur_attract_nothing() -> None:
    images, labels, text = small_problem(n=200, c=10, d=32)
    some = labels < 3
    found = predict("a2lp_em", images[some], text)
    assert (found.argmax(axis=1) == labels[some]).mean() > 0.97
    assert found[:, 3:].sum() < 0.02 * some.sum()


def test_shots_and_names_together() -> None:
    """Two classes have one name between them: only shots tell them apart."""
    images, labels, text = small_problem(n=120, c=4, d=32)
    text[2] = text[3] = unit(text[2] + text[3])
    shots = np.array([np.flatnonzero(labels == k)[0] for k in range(4)])
    rest = np.setdiff1d(np.arange(120), shots)
    found = predict("a2lp_em", images[rest], text, (images[shots], labels[shots])).argmax(axis=1)
    assert (found == labels[rest]).mean() > 0.97


def test_a2lp_em_without_names_ignores_its_new_parameter() -> None:
    images, labels, _ = small_problem(n=60)
    batch = TaskBatch(images[None, :8], labels[None, :8], images[None, 8:])
    plain, other = (a2lp.create("a2lp_em", text_weight=w).predict(batch).scores for w in (1.5, 9.0))
    np.testing.assert_array_equal(plain, other)


# -- what is refused --


def test_methods_say_what_they_miss() -> None:
    images, labels, text = small_problem(c=3)
    plain = TaskBatch(images[None, :9], labels[None, :9], images[None, 9:])
    with pytest.raises(InputError, match=r"ZLaP labels by class names, and prototypes is None.*Give the batch"):
        a2lp.create("zlap").predict(plain)
    named = {"prototypes": text, "classes": ["a", "b", "c"]}
    empty = TaskBatch(images[None, :0], np.empty((1, 0)), images[None], **named)
    with pytest.raises(InputError, match=r"task 0 has no support vector of class 'a'; LP does not use names.*a2lp_em"):
        a2lp.create("lp").predict(empty)
    assert set(a2lp.create("zero_shot").predict(empty).labels[0]) <= {"a", "b", "c"}


X, T = np.eye(3)[None], np.eye(3)
BAD: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "another width": (
        {"prototypes": np.ones((3, 4))},
        ShapeError,
        r"3 dimensions and prototypes vectors have 4; embed",
    ),
    "one name too many": ({"classes": list("abcd")}, ShapeError, r"shape \(4,\) and there are 3 prototypes"),
    "named twice": ({"classes": ["a", "b", "a"]}, InputError, r"has 'a' at 0 and at 2; a class is named once"),
    "names without vectors": (
        {"prototypes": None, "support": X, "support_labels": [list("abc")]},
        InputError,
        r"classes is given and prototypes is None",
    ),
    "vectors without names": ({"classes": None}, InputError, r"support is empty and classes is None"),
    "not finite": ({"prototypes": np.full((3, 3), np.nan)}, InputError, r"prototypes\[0, 0, 0\] is nan"),
    "another label": (
        {"support": X, "support_labels": [["a", "b", "d"]]},
        InputError,
        r"\[0, 2\] is 'd', which is not",
    ),
    "no names at all": ({"prototypes": None, "classes": None}, ShapeError, r"is empty.*give names: prototypes="),
    "flat": ({"prototypes": np.ones(3)}, ShapeError, r"three axes, \(tasks, classes, d\) or \(classes, d\)"),
}


@pytest.mark.parametrize(("change", "kind", "message"), BAD.values(), ids=BAD)
def test_bad_names_are_refused_with_their_remedy(change: dict[str, Any], kind: type[Exception], message: str) -> None:
    given = {"support": X[:, :0], "support_labels": [[]], "query": X, "prototypes": T, "classes": list("abc")}
    with pytest.raises(kind, match=message):
        TaskBatch(**given | change)


def test_prototypes_without_classes_belong_to_the_sorted_labels() -> None:
    batch = TaskBatch(X, [["b", "c", "a"]], X, prototypes=T)
    assert batch.classes.tolist() == [["a", "b", "c"]]
    with pytest.raises(ShapeError, match=r"3 prototypes and the support has 2 classes"):
        TaskBatch(X, [["b", "b", "a"]], X, prototypes=T)


def test_names_go_through_the_preprocessing_of_the_points() -> None:
    """A name that is the vector of an image stays that image's vector."""
    images, _, _ = small_problem()
    base = a2lp.BaseStatistics.of(RNG.normal(size=(60, 12)), np.repeat(np.arange(6), 10))
    batch = TaskBatch(images[None, :0], [[]], 1 + images[None], prototypes=1 + images[:3], classes=[0, 1, 2])
    for preprocess in ("l2", "plc", "cl2n", "whiten", "none"):
        points = a2lp.create("zero_shot", preprocess=preprocess, base=base)._points(batch)
        np.testing.assert_allclose(points.prototypes[0], points.vectors[0, :3], atol=1e-12)


# -- against the labels of the public code --


@pytest.fixture(scope="module")
def folder(shared_data: Path) -> Path:
    if not (shared_data / "vl" / "pools_whu_rs19.npz").exists():
        pytest.skip("needs the vectors and the public codes' labels in ../shared/data/vl")
    return shared_data / "vl"


AGREE: list[tuple[str, dict[str, Any], str, list[str]]] = [
    ("zero_shot", {}, "zeroshot", ["all", "k4_s0"]),
    ("trans_clip", {}, "transclip", ["k8_s0", "k4_s1", "k2_s2", "skew_d0"]),
    ("trans_clip", {"start": "text"}, "transclip-textinit", ["k8_s1", "k2_s0", "skew_d1"]),
    ("stat_a", {}, "stata", ["k8_s2", "k4_s0", "k2_s1", "skew_d2"]),
    ("zlap", {}, "zlap", ["k8_s3", "k4_s3", "k2_s3", "skew_d0"]),
    ("ecalp", {}, "ecalp-final", ["k8_s0", "k4_s0", "fs4e5_s2", "skew_d0"]),
    ("ecalp", {"online": True}, "ecalp", ["k8_s1", "k4_s1", "skew_d2"]),
    ("em_dirichlet", {"hard": True}, "hardemdirichlet", ["k4_s4", "k2_s4", "fs4e5_s0"]),
    ("em_dirichlet", {"hard": True, "matching": False}, "hardemdirichlet-nomatch", ["k2_s2"]),
    ("em_dirichlet", {}, "emdirichlet", ["k2_s0", "fs4e5_s1"]),
]


@pytest.mark.parametrize(("name", "params", "reference", "runs"), AGREE, ids=[f"{a}-{c}" for a, _, c, _ in AGREE])
def test_labels_are_those_of_the_public_code(
    folder: Path, name: str, params: dict[str, Any], reference: str, runs: list[str]
) -> None:
    pools = np.load(folder / "pools_whu_rs19.npz")
    for encoder, run in zip(ENCODERS * 2, runs, strict=False):
        found, theirs = (np.load(folder / f"{what}whu_rs19_{encoder}.npz") for what in ("", f"{reference}_"))
        images, text = (unit(found[key].astype(np.float32)) for key in ("features", "text"))
        shots = None
        if f"{run}_support" in pools:
            support = pools[f"{run}_support"]
            shots = images[support], found["labels"][support]
        labels = predict(name, images[pools[run]], text, shots, **params).argmax(axis=1)
        assert (labels == theirs[run]).mean() >= 0.99, (encoder, run)


def test_a2lp_em_with_names_where_few_of_them_occur(folder: Path) -> None:
    pools, found = np.load(folder / "pools_whu_rs19.npz"), np.load(folder / "whu_rs19_clip_vit_l_14.npz")
    images, text = (unit(found[key].astype(np.float32)) for key in ("features", "text"))
    for run in ("k4_s0", "k2_s0", "skew_d1"):
        labels = predict("a2lp_em", images[pools[run]], text).argmax(axis=1)
        assert (labels == found["labels"][pools[run]]).mean() > 0.93, run
