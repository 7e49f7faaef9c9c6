from __future__ import annotations

import numpy as np
import pytest

from a2lp.bench import adaptation
from a2lp.bench.records import RecordStore
from a2lp.bench.run import no_progress, run


def test_the_curve_begins_at_lp_and_ends_at_a2lp(make_cells, tmp_path):
    lp, a2lp = make_cells(["lp", "a2lp"], params={"a2lp": {"steps": 40, "eps": 1e-12, "lr": 1e-3}})
    store = RecordStore(tmp_path)
    trace = adaptation.adaptation(a2lp, store, no_progress).trace
    records = run([lp, a2lp])
    assert trace["accuracy"][0] == pytest.approx(np.mean(records[0].accuracies))
    assert trace["accuracy"][-1] == pytest.approx(np.mean(records[1].accuracies))
    assert (trace["steps"][0], trace["steps"][-1]) == (0, 39)
    assert trace["shift"][0] == 0
    assert trace["loss"][-1] < 0.9 * trace["loss"][0]
    assert trace["shift"][-1] > 0.01
    assert trace["norm"][0] == pytest.approx(1, rel=1e-5)
    begun = []
    assert adaptation.adaptation(a2lp, store, lambda cell, done: begun.append(done)).trace == trace
    assert not begun  # it was kept


def test_tasks_that_stop_early_keep_their_place_on_the_curve(make_cells):
    [cell] = make_cells(["a2lp"], params={"a2lp": {"steps": 40, "loss_tol": 1.0}})
    trace = adaptation.adaptation(cell, None, no_progress).trace
    assert np.isfinite([trace[name] for name in ("accuracy", "loss", "shift", "norm")]).all()


def test_picture_shows_what_the_methods_say(make_cells):
    lp, a2lp = make_cells(["lp", "a2lp"], preprocess=("plc",), params={"a2lp": {"steps": 30, "eps": 1e-12, "lr": 1e-3}})
    before, after = run([lp, a2lp])
    index = adaptation.most_helped(a2lp, after)
    gains = np.array(after.accuracies) - np.array(before.accuracies)
    assert gains[index] == gains.max()
    picture = adaptation.task_picture(a2lp, index)
    assert 100 * picture.right_before.mean() == pytest.approx(before.accuracies[index])
    assert 100 * picture.right_after.mean() == pytest.approx(after.accuracies[index])
    assert picture.queries.shape == (30, 2)
    assert picture.anchors_before.shape == picture.anchors_after.shape == (3, 2)
    assert not np.allclose(picture.anchors_before, picture.anchors_after)
    assert 0 < picture.explained <= 1
