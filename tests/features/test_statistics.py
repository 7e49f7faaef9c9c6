from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from a2lp.errors import FeatureFileError
from a2lp.features import statistics
from a2lp.features.statistics import BaseStatistics


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


def test_one_vector_a_class_has_no_covariance() -> None:
    assert (BaseStatistics.of(np.eye(3), [0, 1, 2]).within_cov == 0).all()


def test_a_file_of_them(tmp_path: Path) -> None:
    path = tmp_path / "x_base.npz"
    made = BaseStatistics.of(np.random.default_rng(0).normal(size=(9, 4)), [0, 1, 2] * 3)
    made.save(path)
    again = BaseStatistics.load(path)
    for name in ("mean", "class_means", "within_cov", "count"):
        np.testing.assert_array_equal(getattr(again, name), getattr(made, name))
    with pytest.raises(FeatureFileError, match="--force"):
        made.save(path)
    made.save(path, force=True)
    assert [file.name for file in tmp_path.iterdir()] == ["x_base.npz"]


@pytest.mark.shared
def test_a_file_without_a_count(shared_data: Path) -> None:
    found = BaseStatistics.load(shared_data / "features" / "mini_resnet12_base.npz")
    assert repr(found) == "BaseStatistics(64 classes, 640 dimensions, unknown number of vectors)"


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"features": np.eye(2)}, "found `features`"),
        ({"mean": np.ones(2), "class_means": np.ones((3, 2)), "within_cov": np.ones((3, 3))}, r"within_cov \(3, 3\)"),
        ({"mean": np.ones(1), "class_means": np.ones((3, 1)), "within_cov": np.full((1, 1), np.nan)}, "finite"),
        (None, "cannot be read"),
    ],
)
def test_files_that_are_none(tmp_path: Path, arrays: dict[str, np.ndarray] | None, said: str) -> None:
    path = tmp_path / "wrong.npz"
    if arrays is None:
        path.write_bytes(b"PK\x03\x04 cut short")
    else:
        np.savez(path, **arrays)
    with pytest.raises(FeatureFileError, match=said) as caught:
        BaseStatistics.load(path)
    assert str(path) in str(caught.value)
