"""The solver: what a newer label ends, and what it leaves."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_digits

from a2lp import Pool
from a2lp.labelling.sources import Embedding, find_points
from a2lp.serve.jobs import Job
from a2lp.serve.prepared import Spec, prepare
from a2lp.serve.solver import Solver

TRUTH = load_digits().target
ROWS = np.random.default_rng(0).permutation(len(TRUTH))[:100].tolist()
NAMES = {code: f"class {code}" for code in range(10)}


class Wanted:
    """The number of the last label, which another one raises after some looks at it."""

    def __init__(self) -> None:
        self.seq, self.looks = 0, 10**9

    @property
    def value(self) -> int:
        self.looks -= 1
        return self.seq + (self.looks < 0)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    spec = Spec("digits", find_points("digits").keys, None, Embedding(), tmp_path_factory.mktemp("cache"))
    return prepare(spec, lambda *_: None), spec


def job(n: int, how: str = "suggested") -> Job:
    """The first n labels."""
    return Job(n, ROWS[:n], TRUTH[ROWS[:n]].tolist(), [how] * n, NAMES, [])


@pytest.mark.parametrize("how", ["", "suggested"])
def test_the_estimate_is_the_pools_own_and_knows_how_points_were_chosen(prepared, how):
    sent: list[dict] = []
    solver = Solver(*prepared, Wanted(), sent.append)
    solver.wanted.seq = 100
    solver.answer(job(100, how))
    solver.idle()
    found = next(one for one in sent if one["type"] == "assessed")
    pool = Pool(load_digits().data)
    pool.label(ROWS, [NAMES[code] for code in TRUTH[ROWS]], how)
    expected = pool.assessment
    assert found["accuracy"] == pytest.approx((expected.accuracy, expected.low, expected.high))


def test_a_label_ends_estimates_at_once_and_the_next_pause_begins_with_them(prepared):
    sent: list[dict] = []
    wanted = Wanted()
    solver = Solver(*prepared, wanted, sent.append)
    ended = []
    for n, looks in ((96, 10**9), (97, 3), (98, 10), (99, 10**9)):
        wanted.seq, wanted.looks = n, 10**9
        solver.answer(job(n))
        sent.clear()
        wanted.looks = looks
        assert solver.idle() == (looks > 100)
        assert wanted.looks >= -6  # folds that are computed beside each other look once more each
        ended.append([one["type"] for one in sent])
    assert ended[0] == ["suggested", "assessed"]  # the first answer is from nothing
    assert ended[1] == [] and ended[2] == ["suggested"]
    assert ended[3] == ["suggested", "assessed", "answer", "suggested", "assessed"]
    assert all(one["seq"] == 99 for one in sent)
