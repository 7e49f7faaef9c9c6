"""Every engine of every method with an inner loop: the same probabilities, and callbacks honoured or refused."""

from __future__ import annotations

from pathlib import Path
from runpy import run_path
from typing import Any

import numpy as np
import pytest
import torch

import a2lp
from a2lp import testing
from a2lp.arrays import to_numpy
from a2lp.engines.contract import Step
from a2lp.errors import InputError, UnknownNameError
from a2lp.methods.base import LoopMethod
from a2lp.methods.registry import loop_methods, method_class

CASES = run_path(str(Path(__file__).parents[1] / "methods" / "cases.py"))["CASES"]
# methods with a loop, each with parameters that make it quick and let it move
METHODS = {case.method: case.params for case in CASES.values() if issubclass(method_class(case.method), LoopMethod)}
METHODS = {name: {k: v for k, v in params.items() if k != "engine"} for name, params in METHODS.items()}
LIBRARIES: dict[str, Any] = {"numpy": np.asarray, "torch": torch.asarray}
if torch.cuda.is_available():
    LIBRARIES["torch on a GPU"] = lambda x: torch.asarray(x).cuda()
PAIRS = [(name, engine.name) for name in METHODS for engine in method_class(name).loop.engines]


def make(name: str, **params: Any) -> Any:
    known = {field: value for field, value in {"n_neighbors": 9}.items() if hasattr(method_class(name), field)}
    return a2lp.create(name, base=testing.random_base(16), **METHODS[name] | known | params)


def batch(convert: Any = np.asarray, dtype: Any = np.float64) -> a2lp.TaskBatch:
    task = testing.random_task(0, b=3, c=4, extra=5, q=20, u=4, d=16, dtype=dtype)
    return a2lp.TaskBatch(convert(task.support), task.labels, convert(task.query), convert(task.unlabelled))


@pytest.mark.parametrize(("name", "engine"), PAIRS)
@pytest.mark.parametrize("library", LIBRARIES)
def test_every_engine_gives_the_same_or_says_why_not(name: str, engine: str, library: str) -> None:
    oracle = method_class(name).loop.engines[-1].name
    expected = make(name, engine=oracle).predict(batch())
    method = make(name, engine=engine)
    try:
        found = method.predict(batch(LIBRARIES[library]))
    except InputError as refused:
        if library == "torch on a GPU":
            propagates = method.loop.name == "propagation"  # whose CUDA engine computes in float32
            assert engine == "fused_cpu" or (engine == "fused_cuda" and propagates)
            return
        takes_torch = engine in ("batched", "reference") or name == "ici"
        assert (engine == "fused_cuda") or (engine == "fused_cpu" and library == "torch" and not takes_torch)
        assert "cannot run this" in str(refused) and "engine='auto'" in str(refused)
        return
    assert found.engine == engine and found.reason == "asked for by name"
    np.testing.assert_allclose(to_numpy(found.probabilities), expected.probabilities, rtol=0, atol=1e-6)
    np.testing.assert_array_equal(to_numpy(found.labels), expected.labels)
    if found.anchors is not None:
        np.testing.assert_allclose(to_numpy(found.anchors), expected.anchors, rtol=0, atol=1e-6)
    still = a2lp.create("prototypical", preprocess=method.preprocess, base=method.base).predict(batch())
    assert np.abs(expected.probabilities - still.probabilities).max() > 1e-3, "the loop should matter"


def test_an_engine_that_a_method_does_not_have_is_refused_at_once() -> None:
    with pytest.raises(UnknownNameError, match=r"engine 'reference'.*auto, batched, fused_cpu"):
        a2lp.create("tim_gd", engine="reference")


@pytest.mark.parametrize("name", a2lp.list_methods())
def test_callbacks_are_honoured_or_refused(name: str) -> None:
    """Never ignored: a caller that draws curves must not get an empty one in silence."""
    seen: list[Step] = []
    method = make(name) if name in METHODS else a2lp.create(name, base=testing.random_base(16))
    tasks = batch()
    if method.uses_names == "required":
        names = tasks.support[:, : tasks.n_classes, :]
        tasks = a2lp.TaskBatch(tasks.support, tasks.support_labels, tasks.query, prototypes=names)
    silent = method.predict(tasks)
    try:
        found = method.predict(tasks, callback=seen.append)
    except InputError as refused:
        assert "callback" in str(refused)
        assert not seen and not method.shows_steps
        return
    assert seen and [step.number for step in seen] == list(range(method.steps))
    for step in seen:
        assert step.tasks == slice(0, 3)
        assert np.isfinite(step.z).all() and np.isfinite(step.anchors).all()
    np.testing.assert_array_equal(found.labels, silent.labels)


def test_the_table_has_every_loop_once() -> None:
    loops = [method.loop.name for method in loop_methods().values()]
    assert sorted(loops) == sorted({method_class(name).loop.name for name in METHODS})
