from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from a2lp.bench.classes import tuning_set
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
