"""What `import a2lp` costs, and what it offers."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

import a2lp

PUBLIC = {
    "A2LPClassifier",
    "A2LPError",
    "A2LPWarning",
    "BaseStatistics",
    "ImprintingClassifier",
    "LabelPropagationClassifier",
    "Method",
    "Pool",
    "PoolClassifier",
    "Prediction",
    "PrototypicalClassifier",
    "TaskBatch",
    "TaskList",
    "__version__",
    "bench",
    "create",
    "draw",
    "label",
    "list_methods",
    "load",
    "suggest",
}
HEAVY = {"torch", "numba", "sklearn", "matplotlib", "typer", "rich", "jinja2", "pyarrow", "safetensors", "pandas"}


def fresh(code: str) -> str:
    """What a new interpreter prints."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_import_loads_nothing_heavy_and_is_quick() -> None:
    code = (
        "import sys, time; start = time.perf_counter(); import a2lp; print(time.perf_counter() - start); "
        "print(' '.join(sys.modules))"
    )
    runs = [fresh(code).splitlines() for _ in range(3)]
    assert not HEAVY & set(runs[0][1].split())
    assert min(float(seconds) for seconds, _ in runs) < 1


def test_solving_numpy_tasks_loads_no_torch_and_propagating_compiles_nothing() -> None:
    code = """
import sys
import numpy as np
import a2lp
rng = np.random.default_rng(0)
batch = a2lp.TaskBatch(rng.random((1, 2, 3)), [[0, 1]], rng.random((1, 4, 3)))
for name in ("prototypical", "lp"):
    a2lp.create(name, **({"n_neighbors": 2} if name == "lp" else {})).predict(batch)
print(" ".join(sys.modules))
"""
    assert not (HEAVY | {"llvmlite"}) & set(fresh(code).split())


def test_exported_names_are_these_and_each_loads() -> None:
    assert set(a2lp.__all__) == set(dir(a2lp)) == PUBLIC
    assert len(a2lp.__all__) == len(PUBLIC)
    for name in PUBLIC - {"__version__", "bench"}:
        value = getattr(a2lp, name)
        assert inspect.isclass(value) or inspect.isfunction(value), name
        assert value.__name__ == name
        assert inspect.getdoc(value), name
    assert a2lp.__version__[0].isdigit()


def test_a_name_that_is_not_there() -> None:
    with pytest.raises(AttributeError, match="'a2lp' has no attribute 'nothing'"):
        _ = a2lp.nothing
