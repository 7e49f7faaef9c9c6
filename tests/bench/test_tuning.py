from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from a2lp.bench.tuning import sweep, tuning_set
from a2lp.errors import InputError, UnknownNameError
from a2lp.features import FeatureSet, load, save


def test_half_of_the_classes_is_fixed_and_said():
    half, sentence = tuning_set("digits")
    again, _ = tuning_set("digits")
    assert half.n_classes == 5
    np.testing.assert_array_equal(half.labels, again.labels)
    assert "5 of 10" in sentence
    assert "not a clean test result" in sentence
    digits = load("digits")
    rows = np.isin(digits.labels, np.unique(half.labels))
    np.testing.assert_array_equal(half.features, digits.features[rows])


def test_all_classes_come_with_a_warning():
    features, sentence = tuning_set("digits", "all")
    assert features.n_classes == 10
    assert "must not be reported" in sentence


def test_validation_classes_are_used_where_they_are(tmp_path):
    digits = load("digits")
    save(dataclasses.replace(digits, about={"split": "validation"}), tmp_path / "a.npz")
    features, sentence = tuning_set(str(tmp_path / "a.npz"))
    assert features.n_classes == 10
    assert "10 validation classes" in sentence


def test_the_file_beside_is_found(tmp_path):
    digits = load("digits")
    save(digits, tmp_path / "x_test.npz")
    save(FeatureSet(digits.features[:100], digits.labels[:100]), tmp_path / "x_val.npz")
    features, sentence = tuning_set(str(tmp_path / "x_test.npz"))
    assert len(features) == 100
    assert "x_val.npz" in sentence


def test_bad_choices():
    with pytest.raises(UnknownNameError, match="'validation'"):
        tuning_set("digits", "valdation")


def test_too_few_classes_to_halve(tmp_path):
    save(FeatureSet(np.eye(6), np.repeat([0, 1, 2], 2)), tmp_path / "few.npz")
    with pytest.raises(InputError, match="3 classes, too few"):
        tuning_set(str(tmp_path / "few.npz"))


def test_a_sweep_tries_the_whole_grid_and_ranks_by_the_mean_over_shots():
    grid = {"alpha": [0.5, 0.9], "n_neighbors": [1, 5, 15]}
    params = {"lp": {"preprocess": "plc"}}
    found = sweep("lp", grid, "digits", n_shot=(1, 3), n_way=3, n_query=10, n_tasks=20, params=params)
    tried = [(r.config["params"]["alpha"], r.config["params"]["n_neighbors"]) for r in found.records]
    assert sorted(tried) == sorted((a, k) for a in (0.5, 0.9) for k in (1, 5, 15) for _ in (1, 3))
    assert {r.config["preprocess"] for r in found.records} == {"plc"}
    means = {
        pair: np.mean([np.mean(r.accuracies) for r, one in zip(found.records, tried, strict=True) if one == pair])
        for pair in tried
    }
    order = sorted(means, key=lambda pair: -means[pair])
    assert [(row["alpha"], row["n_neighbors"]) for row in found.rows[::2]] == order
    assert [row["rank"] for row in found.rows] == [rank for rank in range(1, 7) for _ in (1, 3)]
    assert [name for _, name in found.table.columns] == ["1-shot", "3-shot", "mean"]
    assert [row.label for row in found.table.sections[0].rows] == [f"alpha={a} n_neighbors={k}" for a, k in order]
    assert all(e.best for e in found.table.sections[0].rows[0].entries)


def test_a_sweep_needs_something_to_vary():
    with pytest.raises(InputError, match="grid is empty"):
        sweep("lp", {}, "digits")
