"""TIM, the adaptive manifold and ICI: plain float64 transcriptions, autograd, scikit-learn, and saved public labels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression, enet_path

import a2lp
from a2lp.engines.contract import Points
from a2lp.features import load
from a2lp.kernels import logistic as _logistic_kernel
from a2lp.loops import am
from a2lp.loops.ici import kernel as _ici_kernel
from a2lp.loops.tim import Objective
from a2lp.optimizers import Adam
from a2lp.preprocess import preprocess

Tensor = torch.Tensor


def real_tasks(n_tasks: int, shots: int, seed: int = 0, queries: int = 25) -> a2lp.TaskBatch:
    """Five-way tasks of bundled features whose classes have unequal numbers of queries."""
    features = load("cub")
    rng = np.random.default_rng(seed)
    support, query, labels = [], [], []
    for _ in range(n_tasks):
        classes = rng.permutation(features.labels.max() + 1)[:5]
        counts = rng.multinomial(queries - 5, rng.dirichlet(np.full(5, 2.0))) + 1
        rows = [rng.permutation(np.flatnonzero(features.labels == k)) for k in classes]
        support.append(np.concatenate([r[:shots] for r in rows]))
        query.append(np.concatenate([r[shots : shots + m] for r, m in zip(rows, counts, strict=True)]))
        labels.append(np.repeat(np.arange(5), shots))
    x = features.features.astype(np.float64)
    return a2lp.TaskBatch(x[np.stack(support)], np.stack(labels), x[np.stack(query)])


def as_torch(batch: a2lp.TaskBatch) -> a2lp.TaskBatch:
    return a2lp.TaskBatch(
        *(torch.asarray(part) for part in (batch.support, batch.support_labels, batch.query)),
        unlabelled=None if batch.unlabelled is None else torch.asarray(batch.unlabelled),
    )


def information_loss(p_s: Tensor, y: Tensor, p_q: Tensor, weights: tuple[float, float, float], order: float) -> Tensor:
    """The authors' loss, 1e-12 and all."""
    ce = -torch.log(p_s[torch.arange(len(y)), y] + 1e-12).mean()
    mean = p_q.mean(dim=0)
    if order == 1:
        marginal = -(mean * torch.log(mean)).sum()
        conditional = -(p_q * torch.log(p_q + 1e-12)).sum(dim=1).mean()
    else:
        marginal = (1 - (mean**order).sum()) / (order - 1)
        conditional = ((1 - ((p_q + 1e-12) ** order).sum(dim=1)) / (order - 1)).mean()
    return weights[0] * ce - (weights[1] * marginal - weights[2] * conditional)


def points_of(batch: a2lp.TaskBatch, i: int, name: str) -> tuple[Tensor, Tensor, Tensor]:
    """Preprocessed support, its labels and the queries of one task."""
    points = torch.asarray(preprocess(name, batch.points[i : i + 1])[0])
    s = batch.n_support
    return points[:s], torch.asarray(batch.support_labels[i]), points[s:]


def means_of(x: Tensor, y: Tensor) -> Tensor:
    return torch.stack([x[y == q].mean(dim=0) for q in range(int(y.max()) + 1)])


@pytest.mark.parametrize(
    ("method", "shots", "weights", "order"),
    [("tim_gd", 1, (0.1, 1, 0.1), 1), ("alpha_tim", 1, (1, 1, 1), 2), ("alpha_tim", 5, (1, 1, 1), 7)],
)
def test_tim_descends_as_autograd_and_adam_do(method: str, shots: int, weights: Any, order: float) -> None:
    batch = real_tasks(2, shots)
    found = a2lp.create(method, steps=100).predict(batch)
    for i in range(batch.n_tasks):
        x_s, y, x_q = points_of(batch, i, "l2")
        w = means_of(x_s, y).requires_grad_()
        adam = torch.optim.Adam([w], lr=1e-4)
        for _ in range(100):
            p_s, p_q = ((-7.5 * torch.cdist(x, w) ** 2).softmax(dim=1) for x in (x_s, x_q))
            adam.zero_grad()
            information_loss(p_s, y, p_q, weights, order).backward()
            adam.step()
        np.testing.assert_allclose(found.anchors[i], w.detach().numpy(), rtol=0, atol=1e-6)
        np.testing.assert_array_equal(found.labels[i], torch.cdist(x_q, w).argmin(dim=1).numpy())


@pytest.mark.parametrize("shots", [1, 5])
def test_tim_adm_alternates_as_its_equations_say(shots: int) -> None:
    batch = real_tasks(4, shots)
    found = a2lp.create("tim_adm").predict(batch)
    for i in range(batch.n_tasks):
        x_s, y, x_q = points_of(batch, i, "l2")
        labels = torch.eye(5, dtype=torch.float64)[y]
        w = means_of(x_s, y)
        lam, w1, w2 = 0.1, 1.0, 0.1
        c_s, c_q = lam / (1 + w2), len(x_s) / len(x_q)
        for _ in range(150):
            p_s, p_q = ((-7.5 * torch.cdist(x, w) ** 2).softmax(dim=1) for x in (x_s, x_q))
            q = p_q ** (1 + w2)
            q = q / q.sum(dim=0) ** (w1 / (1 + w1))
            q = q / q.sum(dim=1, keepdim=True)
            top = c_s * (labels.T @ x_s + w * p_s.sum(dim=0)[:, None] - p_s.T @ x_s)
            top = top + c_q * (q.T @ x_q + w * p_q.sum(dim=0)[:, None] - p_q.T @ x_q)
            w = top / (c_s * labels.sum(dim=0) + c_q * q.sum(dim=0))[:, None]
        np.testing.assert_allclose(found.anchors[i], w.numpy(), rtol=0, atol=1e-9)
        np.testing.assert_array_equal(found.labels[i], torch.cdist(x_q, w).argmin(dim=1).numpy())


def manifold_logits(x: Tensor, mu: Tensor, G: Tensor, edges: Tensor, k: int, alpha: float) -> Tensor:
    """15 Z of one task's points, for autograd; centroids stand behind the points."""
    nodes = torch.cat([x, mu])
    n, c = len(nodes), len(mu)
    distance = torch.cdist(nodes[None], nodes[None], compute_mode="donot_use_mm_for_euclid_dist")[0]
    A = torch.exp(-distance / distance.std() * G) * (1 - torch.eye(n))
    A = A * (torch.arange(n) < n - c)[:, None]
    places = torch.argsort(A, dim=1, descending=True, stable=True)[:, :k]  # with one shot a centroid is a copy
    A = A * torch.zeros_like(A).scatter(1, places, 1.0)
    W = edges * (A + A.T) / 2
    scale = (W.sum(dim=1) + 1e-12) ** -0.5
    Y = torch.cat([torch.zeros(n - c, c), torch.eye(c)]).double()
    return 15 * torch.linalg.solve(torch.eye(n) - alpha * scale[:, None] * W * scale, Y)[: n - c]


@pytest.mark.parametrize("order", [1.0, 2.0, 5.0])
def test_gradient_of_the_manifold_is_autograds(order: float) -> None:
    batch = real_tasks(2, 2)
    rng = torch.Generator().manual_seed(0)
    x = torch.stack([torch.cat([s, q]) for s, _, q in (points_of(batch, i, "plc") for i in range(2))])
    y = torch.asarray(batch.support_labels)
    b, m, s, c = 2, x.shape[1], y.shape[1], 5
    shape = (b, m + c, m + c)
    parts = [
        torch.stack([means_of(x[i, :s], y[i]) for i in range(b)]),
        1 + 0.1 * torch.rand(shape, generator=rng, dtype=torch.float64),
        0.8 + 0.1 * torch.rand(shape, generator=rng, dtype=torch.float64),
    ]
    leaves = [part.clone().requires_grad_() for part in parts]
    total = torch.zeros(())
    for i in range(b):
        p = manifold_logits(x[i], *(leaf[i] for leaf in leaves), k=7, alpha=0.8).softmax(dim=1)
        total = total + information_loss(p[:s], y[i], p[s:], (1, 10, 1), order)
    total.backward()
    labels = torch.nn.functional.one_hot(y, c).double()
    settings = am.Settings(7, 0.8, 15.0, Objective(1, 10, 1, order), 1, Adam(1e-4))
    _, found = am.value_and_gradient(x, labels, am.Manifold(*parts), settings)
    for gradient, leaf in zip(found, leaves, strict=True):
        assert leaf.grad is not None
        assert leaf.grad.abs().max() > 1e-3
        np.testing.assert_allclose(gradient.numpy(), leaf.grad.numpy(), rtol=0, atol=1e-8)


@pytest.mark.parametrize(
    ("method", "shots", "weights", "order"),
    [("am", 1, (1, 10, 1), 1), ("alpha_am", 1, (1, 1, 1), 2), ("alpha_am", 5, (1, 1, 1), 5)],
)
def test_manifold_adapts_as_autograd_and_adam_do(method: str, shots: int, weights: Any, order: float) -> None:
    alpha, k = (0.8, 20) if shots == 1 else (0.9, 10)
    batch = real_tasks(2, shots)
    found = a2lp.create(method, steps=60).predict(batch)
    for i in range(batch.n_tasks):
        x_s, y, x_q = points_of(batch, i, "plc")
        x = torch.cat([x_s, x_q])
        n = len(x) + 5
        leaves = [means_of(x_s, y), torch.ones(n, n).double(), torch.full((n, n), alpha).double()]
        leaves = [leaf.requires_grad_() for leaf in leaves]
        adam = torch.optim.Adam(leaves, lr=1e-4)
        for _ in range(60):
            z = manifold_logits(x, *leaves, k=k, alpha=alpha)
            p = z.softmax(dim=1)
            adam.zero_grad()
            information_loss(p[: len(y)], y, p[len(y) :], weights, order).backward()
            adam.step()
        z = z[len(y) :].detach().numpy()
        np.testing.assert_allclose(15 * found.scores[i], z, rtol=0, atol=1e-5)
        np.testing.assert_array_equal(found.labels[i], z.argmax(axis=1))


@pytest.mark.parametrize("method", ["tim_gd", "alpha_tim", "am", "alpha_am", "ici"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_compiled_and_plain_paths_agree(method: str, dtype: Any) -> None:
    rng = np.random.default_rng(1)
    codes = np.stack([rng.permutation(np.r_[np.arange(7), rng.integers(0, 7, 4)]) for _ in range(3)])  # unequal shots
    centres = rng.normal(size=(3, 7, 33))
    support = centres[np.arange(3)[:, None], codes] + 1.6 * rng.normal(size=(3, 11, 33))
    query = centres[np.arange(3)[:, None], rng.integers(0, 7, (3, 26))] + 1.6 * rng.normal(size=(3, 26, 33))
    unlabelled = centres + 1.6 * rng.normal(size=(3, 7, 33))
    arrays = [a.astype(dtype) for a in (support, query, unlabelled)]
    batch = a2lp.TaskBatch(arrays[0], codes, arrays[1], unlabelled=arrays[2])
    solve = a2lp.create(method, **({} if method == "ici" else {"steps": 25, "lr": 1e-3}))
    compiled, plain = solve.predict(batch), solve.predict(as_torch(batch))
    assert compiled.engine == "fused_cpu"
    assert compiled.scores.dtype == dtype
    tolerance = 1e-9 if dtype == np.float64 else 1e-3
    np.testing.assert_allclose(compiled.scores, plain.scores.numpy(), rtol=0, atol=tolerance)
    assert (compiled.labels != a2lp.create("prototypical", preprocess=solve.preprocess).predict(batch).labels).any()


def test_logistic_regression_is_scikit_learns() -> None:
    x_s, y, x_q = points_of(real_tasks(1, 5), 0, "l2")
    theirs = LogisticRegression(C=10, tol=1e-10, max_iter=10000).fit(x_s, y)
    a = np.zeros((5, len(y) + 1))
    _logistic_kernel.fit(
        (x_s @ x_s.T).numpy(), y.numpy(), 10.0, a, 1e-9, np.empty((_logistic_kernel.FIT_ARRAYS, *a.shape))
    )
    logits = (x_q @ x_s.T).numpy() @ a[:, :-1].T + a[:, -1]
    logits -= logits.mean(axis=1, keepdims=True)
    expected = theirs.decision_function(x_q)
    np.testing.assert_allclose(logits, expected - expected.mean(axis=1, keepdims=True), rtol=0, atol=1e-5)


def test_credibility_is_the_group_lassos_path() -> None:
    rng = np.random.default_rng(0)
    n, r, c = 40, 5, 4
    axes = np.linalg.qr(rng.normal(size=(n, r)))[0]
    y = np.eye(c)[rng.integers(0, c, n)]
    place, share = np.zeros(n, np.int64), np.zeros(n)
    memory = _ici_kernel.make_path_memory(r, c, n)
    _ici_kernel.credibility(axes.T.copy(), y.T.copy(), place, share, memory)
    design = np.eye(n) - axes @ axes.T
    _, corrections, _ = enet_path(design, design @ y, l1_ratio=1.0, eps=1e-3, alphas=100, tol=1e-12, max_iter=100000)
    zero = (np.abs(corrections).sum(axis=0) == 0)[:, ::-1]  # (n, 100), smallest penalty first
    # of 100 penalties, the one where a correction is about to vanish is decided by rounding
    assert np.abs(place - zero.argmax(axis=1)).max() <= 1
    assert (place == zero.argmax(axis=1)).mean() > 0.9
    assert len(np.unique(place)) > 5


def ici_labels(x_s: Any, y: Any, x_q: Any) -> Any:
    """The authors' loop with scikit-learn's solvers; of instances that enter at one penalty the best fit is first."""
    x, s = np.concatenate([x_s, x_q]), len(x_s)
    axes = np.linalg.svd(x - x.mean(axis=0), full_matrices=False)[0][:, :5]
    design = np.eye(len(x)) - axes @ axes.T
    chosen: list[int] = []
    model = LogisticRegression(C=10, tol=1e-8, max_iter=10000).fit(x_s, y)
    while len(chosen) < len(x_q):
        labels = np.concatenate([y, model.predict(x_q)])
        target = design @ np.eye(5)[labels]
        grid, path, _ = enet_path(design, target, l1_ratio=1.0, eps=1e-3, alphas=100, tol=1e-6, max_iter=100000)
        room = np.full(5, 5)
        for k in range(len(grid) - 1, -1, -1):
            gamma = path[:, :, k].T  # (n, c)
            residual = np.linalg.norm(target - design @ gamma + gamma, axis=1)
            zero = np.flatnonzero(np.abs(gamma).sum(axis=1) == 0)
            for j in sorted(zero, key=residual.__getitem__):
                if j >= s and j - s not in chosen and room[labels[j]] > 0:
                    chosen.append(int(j - s))
                    room[labels[j]] -= 1
        order = np.concatenate([np.arange(s), s + np.array(chosen)])
        model = LogisticRegression(C=10, tol=1e-8, max_iter=10000).fit(x[order], labels[order])
    return model.predict(x_q)


def test_ici_is_its_transcription() -> None:
    batch = real_tasks(3, 1, queries=30)
    found = a2lp.create("ici").predict(batch)
    same = [
        found.labels[i] == ici_labels(*(part.numpy() for part in points_of(batch, i, "l2")))
        for i in range(batch.n_tasks)
    ]
    assert np.mean(same) > 0.98


PUBLIC = {
    "tim_gd": ("tim_gd", 20, 0.999),
    "tim_adm": ("tim_adm", 50, 0.999),
    "alpha_tim": ("alpha_tim", 20, 0.999),
    "am": ("am_plc", 5, 0.99),
    "alpha_am": ("alpha_am_plc", 5, 0.99),
    "ici": ("lr_ici_step5", 40, 0.95),  # the public code takes instances at one penalty as they come
}
CELLS = [(method, *row, cell) for method, row in PUBLIC.items() for cell in ("ref_cub_1shot", "dirichlet_cub_5shot")]


@pytest.mark.parametrize(
    ("method", "key", "n_tasks", "agreement", "cell"),
    # am's public code has no setting for unequal classes
    [row for row in CELLS if (row[0], row[-1]) != ("am", "dirichlet_cub_5shot")],
)
def test_labels_are_those_of_public_code(
    shared_data: Path, method: str, key: str, n_tasks: int, agreement: float, cell: str
) -> None:
    saved = shared_data / "reference" / "public" / f"{key}_{cell}.npz"
    tasks = np.load(shared_data / "reference" / f"{cell}.npz")
    x = np.load(shared_data / "features" / "cub_resnet12_test.npz")["features"].astype(np.float32)
    few = slice(n_tasks)
    batch = a2lp.TaskBatch(x[tasks["support"][few]], tasks["support_labels"][few], x[tasks["query"][few]])
    found = a2lp.create(method).predict(batch).labels
    public = np.load(saved)["pred"][few]
    truth = tasks["query_labels"][few]
    assert (found == public).mean() >= agreement
    assert (found == truth).mean() >= (public == truth).mean() - 0.005


@pytest.mark.parametrize("method", ["tim_gd", "tim_adm", "alpha_tim", "am", "alpha_am", "ici"])
@pytest.mark.parametrize("as_library", [np.asarray, torch.asarray])
def test_degenerate_tasks_have_finite_answers(method: str, as_library: Any) -> None:
    few = {} if method == "ici" else {"steps": 5}
    solve = a2lp.create(method, **few)
    point = np.array([[1.0, 2.0, 3.0]])
    for support, query in [
        (np.repeat(point, 2, axis=0), np.repeat(point, 4, axis=0)),  # all equal
        (np.zeros((2, 3)), np.zeros((4, 3))),
        (np.eye(2, 3), np.eye(1, 3)),  # one query, which is a support vector
        (np.eye(2, 3), -np.eye(2, 3)),
    ]:
        found = solve.predict(
            a2lp.TaskBatch(*(as_library(a) for a in (support[None], np.array([[0, 1]]), query[None])))
        )
        assert np.isfinite(np.asarray(found.scores)).all()
    one_class = a2lp.TaskBatch(
        as_library(np.eye(2, 3)[None]), as_library(np.zeros((1, 2), int)), as_library(point[None])
    )
    assert (np.asarray(solve.predict(one_class).labels) == 0).all()


@pytest.mark.parametrize(
    ("method", "wrong"),
    [
        ("tim_gd", {"steps": -1}),
        ("tim_adm", {"support_weight": 0}),
        ("alpha_tim", {"order": 0.5}),
        ("am", {"alpha": 1.0}),
        ("am", {"n_neighbors": 0}),
        ("alpha_am", {"order": 0}),
        ("ici", {"per_round": 0}),
        ("ici", {"C": 0}),
    ],
)
def test_wrong_parameters_are_named(method: str, wrong: dict[str, Any]) -> None:
    with pytest.raises(a2lp.errors.InputError, match=next(iter(wrong))):
        a2lp.create(method, **wrong)


def test_orders_follow_the_shots() -> None:
    tim, manifold = a2lp.create("alpha_tim"), a2lp.create("alpha_am")
    orders = [tim._order(shots) for shots in (1, 3, 5, 10)]
    assert orders == [2, 5, 7, 7]
    points = [Points(np.zeros((1, 80, 3)), np.zeros((1, 5 * shots), int), 5, 60) for shots in (1, 5, 10)]
    settings = [manifold._settings(each) for each in points]
    assert [(each.alpha, each.n_neighbors, each.objective.order) for each in settings] == [
        (0.8, 20, 2), (0.9, 10, 5), (0.9, 10, 5),
    ]  # fmt: skip
    few = Points(np.zeros((1, 4, 3)), np.zeros((1, 2), int), 2, 2)
    assert manifold._settings(few).n_neighbors == 5  # all other nodes: four points and two centroids
