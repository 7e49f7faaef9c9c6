"""The checks of a2lp.testing, the entry point, and a comparison with scikit-learn."""

import numpy as np
import pytest
from a2lp_nearest_shot import NearestShot
from sklearn.neighbors import KNeighborsClassifier

import a2lp
from a2lp.testing import check_method, random_task


@pytest.mark.parametrize("k", [1, 3])
def test_it_is_a_method(k):
    check_method(NearestShot(k=k), transductive=False)


def test_its_name_is_known():
    assert a2lp.create("nearest_shot", k=2) == NearestShot(k=2)


def test_one_shot_of_each_is_the_nearest_neighbour():
    task = random_task(0, b=1, c=4, extra=6, q=20, u=0)
    found = NearestShot(k=1, preprocess="none").predict(a2lp.TaskBatch(task.support, task.labels, task.query))
    nearest = KNeighborsClassifier(1).fit(task.support[0], task.labels[0])
    np.testing.assert_array_equal(found.labels[0], nearest.predict(task.query[0]))


def test_bad_values_are_refused():
    with pytest.raises(a2lp.A2LPError, match="k=0 must be a whole number, 1 or more"):
        NearestShot(k=0)
