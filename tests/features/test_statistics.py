from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from a2lp.errors import FeatureFileError, InputError
from a2lp.features import load, load_base, statistics
from a2lp.features.statistics import BaseStatistics

ROOT = Path(__file__).resolve().parents[2]


def test_they_are_those_of_another_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """scikit-learn's discriminant analysis divides by N; small blocks must not change anything."""
    monkeypatch.setattr(statistics, "_BLOCK_BYTES", 8 * 5 * 7)
    rng = np.random.default_rng(0)
    labels = np.array([4] * 30 + [0] * 20 + [9] * 11)[rng.permutation(61)]
    # far from the origin: sums of squares minus squared sums would lose all digits of float32 here
    features = (300 + labels[:, None] + rng.normal(size=(61, 5)) @ rng.normal(size=(5, 5))).astype(np.float16)
    found = BaseStatistics.of(features, labels)

    exact = features.astype(np.float64)
    other = LinearDiscriminantAnalysis(solver="lsqr", store_covariance=True).fit(exact, labels)
    assert found.count == 61
    np.testing.assert_allclose(found.mean, exact.mean(axis=0), rtol=1e-6)
    np.testing.assert_allclose(found.class_means, other.means_, rtol=1e-6)
    np.testing.assert_allclose(found.within_cov, other.covariance_ * 61 / (61 - 3), rtol=1e-5)
    assert {found.mean.dtype, found.class_means.dtype, found.within_cov.dtype} == {np.dtype(np.float32)}


def _sphere_cov(features: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """As the definition reads, one class after the other."""
    centred = features - features.mean(axis=0)
    unit = centred / np.sqrt((centred**2).sum(axis=1, keepdims=True))
    total, norms = np.zeros((features.shape[1],) * 2), []
    for c in np.unique(labels):
        scatter = np.cov(unit[labels == c].T) * (np.sum(labels == c) - 1)
        norms.append(np.sqrt((scatter**2).sum()))
        total += scatter / norms[-1]
    return total / len(norms) * np.mean(norms)


def test_the_covariance_on_the_sphere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics, "_BLOCK_BYTES", 8 * 5 * 7)
    rng = np.random.default_rng(1)
    labels = np.array([4] * 30 + [0] * 20 + [9] * 11)[rng.permutation(61)]
    features = 3 + labels[:, None] + rng.normal(size=(61, 5)) @ rng.normal(size=(5, 5))
    found = BaseStatistics.of(features, labels)
    expected = _sphere_cov(features, labels)
    np.testing.assert_allclose(found.sphere_cov, expected, rtol=1e-5, atol=1e-6 * expected.max())
    expected *= 58.85 / (61 / 3)  # of a fixed number of vectors a class, not of as many as there are
    np.testing.assert_allclose(found.sphere_scatter, expected, rtol=1e-5, atol=1e-6 * expected.max())
    factor = found.sphere_factor.astype(np.float64)
    assert (np.triu(factor, 1) == 0).all()
    np.testing.assert_allclose(factor @ factor.T @ (expected + 1e-6 * np.eye(5)), np.eye(5), atol=1e-4)


def test_without_it_the_covariance_within_classes_stands_in() -> None:
    """Classes that are alike, with deviations that are short beside the vectors: then the two are one."""
    rng = np.random.default_rng(2)
    labels = np.repeat(np.arange(40), 50)
    centres = rng.normal(size=(40, 30))
    centres /= np.linalg.norm(centres, axis=1, keepdims=True)
    features = centres[labels] + 0.02 * rng.normal(size=(2000, 30)) * np.linspace(1, 3, 30)
    found = BaseStatistics.of(features, labels)
    stand_in = BaseStatistics(found.mean, found.class_means, found.within_cov, found.count).sphere_scatter
    assert np.linalg.norm(stand_in - found.sphere_scatter) < 0.1 * np.linalg.norm(found.sphere_scatter)


def test_one_vector_a_class_has_no_covariance() -> None:
    found = BaseStatistics.of(np.eye(3), [0, 1, 2])
    assert (found.within_cov == 0).all()
    assert (found.sphere_scatter == 0).all()
    assert np.isfinite(found.sphere_factor).all()


def test_a_file_of_them(tmp_path: Path) -> None:
    path = tmp_path / "x_base.npz"
    made = BaseStatistics.of(np.random.default_rng(0).normal(size=(9, 4)), [0, 1, 2] * 3)
    made.save(path)
    again = BaseStatistics.load(path)
    for name in ("mean", "class_means", "within_cov", "count", "sphere_cov"):
        np.testing.assert_array_equal(getattr(again, name), getattr(made, name))
    with pytest.raises(InputError, match="--force"):
        made.save(path)
    made.save(path, force=True)
    assert [file.name for file in tmp_path.iterdir()] == ["x_base.npz"]


def test_a_file_of_upper_triangles(tmp_path: Path) -> None:
    made = BaseStatistics.of(np.random.default_rng(0).normal(size=(9, 4)), [0, 1, 2] * 3)
    path = tmp_path / "x_base.npz"
    np.savez(path, mean=made.mean, class_means=made.class_means, within_cov=np.triu(made.within_cov))
    np.testing.assert_array_equal(BaseStatistics.load(path).within_cov, made.within_cov)


def test_the_bundled_ones_are_of_the_networks_base_classes() -> None:
    found = load_base("cub")
    kept = ROOT / "trained" / "cub_resnet12"
    expected = BaseStatistics.load(kept / "cub_resnet12_train_base.npz")
    for name in ("mean", "within_cov", "count"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))
    np.testing.assert_allclose(found.class_means, expected.class_means, rtol=1e-3, atol=1e-6)
    base = load(kept / "cub_resnet12_train.npz")
    assert base.labels is not None
    exact = _sphere_cov(base.features.astype(np.float64), base.labels)
    np.testing.assert_allclose(found.sphere_cov, exact, rtol=0, atol=1e-5 * exact.max())


def test_a_bundled_set_without_base_classes() -> None:
    with pytest.raises(InputError, match="'digits' has no base classes"):
        load_base("digits")


@pytest.mark.shared
def test_a_file_without_a_count(shared_data: Path) -> None:
    found = BaseStatistics.load(shared_data / "features" / "mini_resnet12_base.npz")
    assert repr(found) == "BaseStatistics(64 classes, 640 dimensions, unknown number of vectors)"


GOOD = {"mean": np.ones(2), "class_means": np.ones((3, 2)), "within_cov": np.eye(2)}


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"features": np.eye(2)}, "found `features`"),
        ({"mean": np.ones(2), "class_means": np.ones((3, 2)), "within_cov": np.ones((3, 3))}, r"within_cov \(3, 3\)"),
        ({"mean": np.ones(1), "class_means": np.ones((3, 1)), "within_cov": np.full((1, 1), np.nan)}, "finite"),
        (GOOD | {"within_cov": np.diag([1.0, -1.0])}, "within_cov is not a covariance"),
        (GOOD | {"within_cov": np.array([[1.0, 0.9], [0.1, 1.0]])}, "within_cov is not a covariance"),
        (GOOD | {"sphere_cov": -np.eye(2)}, "sphere_cov is not a covariance"),
        (GOOD | {"within_cov": np.full((2, 2), 1e300)}, "not finite in float32"),
        (GOOD | {"count": 0}, "count=0 is less than the number of classes, 3"),
        (GOOD | {"count": np.arange(2)}, "cannot be read as base statistics"),
        (GOOD | {"class_means": np.ones((0, 2))}, r"class_means \(0, 2\)"),
        (None, "cannot be read as base statistics"),
    ],
)
def test_files_that_are_none(tmp_path: Path, arrays: dict[str, np.ndarray] | None, message: str) -> None:
    path = tmp_path / "wrong.npz"
    if arrays is None:
        path.write_bytes(b"PK\x03\x04 cut short")
    else:
        np.savez(path, **arrays)
    for read in (BaseStatistics.load, load_base):
        if read is load_base and arrays is not None and "within_cov" not in arrays:
            continue  # it is read as features
        with pytest.raises(FeatureFileError, match=message) as caught:
            read(path)
        assert str(path) in str(caught.value)
