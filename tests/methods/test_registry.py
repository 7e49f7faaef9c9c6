"""Methods by name: what is refused, with which words, and plug-ins."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import a2lp
from a2lp.errors import InputError, UnknownNameError
from a2lp.methods.registry import method_class


@pytest.mark.parametrize(
    ("asked", "near"),
    [
        ("lpp", ["'lp'", "'zlap'", "'ilpc'"]),
        ("prototype", ["'prototypical'", "'proto_lp'"]),
        ("imprint", ["'imprinting'"]),
        ("a2pl", ["'a2lp'", "'a2lp_plus'", "'a2lp_em'"]),
    ],
)
def test_an_unknown_method_lists_the_nearest(asked: str, near: list[str]) -> None:
    with pytest.raises(UnknownNameError) as raised:
        a2lp.create(asked)
    message = str(raised.value)
    assert f"unknown method {asked!r}. Did you mean {' or '.join(near)}?" in message
    assert message.endswith(f"There are: {', '.join(sorted(a2lp.list_methods()))}.")


@pytest.mark.parametrize("asked", ["", "zzz", None, 3])
def test_an_unknown_method_that_is_near_to_nothing(asked: Any) -> None:
    with pytest.raises(UnknownNameError) as raised:
        a2lp.create(asked)
    assert str(raised.value).startswith(f"unknown method {asked!r}. There are: a2lp, a2lp_em, ")


def test_an_unknown_parameter_lists_the_nearest_of_that_method() -> None:
    with pytest.raises(UnknownNameError, match=r"method 'lp': 'alhpa'\. Did you mean 'alpha'\?.*n_neighbors"):
        a2lp.create("lp", alhpa=0.5)
    with pytest.raises(UnknownNameError, match=r"method 'lp': 'steps'.*There are"):  # a2lp has it, lp does not
        a2lp.create("lp", steps=3)


INF, NAN = float("inf"), float("nan")
# values to refuse, and the words of rule and remedy that the message must have
BAD: dict[str, tuple[list[Any], list[str]]] = {
    "preprocess": (["l3", "L2", None, 2], ["There are: bpa, cl2n, l2, none, plc"]),
    "tau": ([0, -1, NAN, INF, "15", None, 1j], ["positive", "The paper uses 15"]),
    "n_neighbors": ([0, -3, 2.0, 2.5, NAN, INF, "20", None], ["whole number, 1 or more", "The paper uses 20"]),
    "gamma": ([0, -1, NAN, INF, "3", None], ["positive", "The paper uses 3"]),
    "alpha": ([1, 1.5, -0.1, NAN, INF, "0.8", None], ["at least 0 and below 1", "the paper uses 0.8"]),
    "engine": (["fast", "Batched", None, 1], ["There are: auto, batched"]),
    "steps": ([-1, 1.5, 10.0, NAN, INF, "10", None], ["whole number, 0 or more", "0 "]),
    "lr": ([0, -1e-4, NAN, INF, "1e-4", None], ["positive", "The paper uses 1e-4"]),
    "loss": (["nonsense", None, 3], ["losses.Terms", "Leave it out"]),
    "numerics": (["exakt", "float32", None, 0], ["There are: exact, official, official_cpu"]),
    "optimizer": (["sgd", "Adam", None], ["There are: adam, gd"]),
    "betas": (
        [(0.9,), (0.9, 0.99, 0.999), 0.9, None, "ab", (1.0, 0.9), (0.9, -0.1), (0.9, NAN), (0.9, None)],
        ["(0.9, 0.999)"],
    ),
    "eps": ([-1e-8, NAN, INF, "0", None], ["0 or more", "1e-8"]),
    "reduction": (["average", "Mean", None], ["There are: mean, sum"]),
    "renormalize": (["no", None, 2], ["True or False"]),
    "final_forward": (["no", None, 2], ["True or False"]),
    "loss_tol": ([-1, NAN, INF, "1"], ["0 or more", "None never stops early"]),
    "grad_tol": ([-1, NAN, INF, "1"], ["0 or more", "None never stops early"]),
}
LISTED = ("prototypical", "imprinting", "lp", "a2lp")  # whose parameters this table is about
CASES = [
    (method, name, value, BAD[name][1])
    for method in LISTED
    for name in (f.name for f in dataclasses.fields(method_class(method)))
    for value in (BAD[name][0] if name in BAD else [])
]


def test_the_table_has_every_parameter_of_the_listed() -> None:
    fields = {f.name for method in LISTED for f in dataclasses.fields(method_class(method))}
    assert fields == set(BAD) | {"base"}  # that one is checked where it meets the points; see test_preprocess


# what no parameter of a kind can be, whatever the method
NEVER: dict[str, list[Any]] = {
    "float": [NAN, INF, "0.5", None, 1j],
    "int": [NAN, INF, 2.5, "3", None],
    "bool": ["no", None, 2],
    "str": ["nonsense", None, 3],
}


@pytest.mark.parametrize("method", a2lp.list_methods())
def test_no_method_takes_a_value_of_the_wrong_kind(method: str) -> None:
    for f in dataclasses.fields(method_class(method)):
        for value in NEVER.get(str(f.type), []) + ([0, -1] if f.name == "tau" else []):
            with pytest.raises(InputError) as raised:
                a2lp.create(method, **{f.name: value})
            message = str(raised.value)
            assert f.name in message and repr(value) in message, f"{f.name}={value!r}: {message}"


@pytest.mark.parametrize("method", a2lp.list_methods())
def test_every_method_says_what_it_is(method: str) -> None:
    """The module's docstring has the reference; what the class assumes is a flag of it."""
    found = method_class(method)
    doc = sys.modules[found.__module__].__doc__ or ""
    assert len(doc) > 200, f"{found.__module__} should tell the idea, its reference and what it assumes"
    assert isinstance(found.assumes_uniform, bool) and isinstance(found.needs_base, bool)
    assert found.__doc__ and "Method(" not in found.__doc__, "a dataclass without a docstring of its own"


@pytest.mark.parametrize(("method", "name", "value", "words"), CASES)
def test_bad_values_are_named_with_rule_and_remedy(method: str, name: str, value: Any, words: list[str]) -> None:
    with pytest.raises(InputError) as raised:
        a2lp.create(method, **{name: value})
    message = str(raised.value)
    shown = "betas=" if name == "betas" else repr(value)  # of two betas, the bad one is named
    for word in [name, shown, *words]:
        assert word in message


GOOD: dict[str, list[Any]] = {
    "tau": [1, 0.5, np.float32(3)],
    "n_neighbors": [1, np.int64(7)],
    "alpha": [0, 0.999, np.float64(0.5)],
    "steps": [0, np.int32(5)],
    "betas": [(0, 0), [0.5, 0.5]],
    "eps": [0],
    "loss_tol": [None, 0, 1e-3],
    "renormalize": [True, np.True_],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in GOOD.items() for value in values])
def test_values_at_the_edge_are_taken(name: str, value: Any) -> None:
    method = a2lp.create("a2lp", **{"steps": 3, "n_neighbors": 4, name: value})
    generator = np.random.default_rng(0)
    batch = a2lp.TaskBatch(generator.random((1, 3, 5)), [[0, 1, 1]], generator.random((1, 6, 5)))
    assert np.isfinite(method.predict(batch).scores).all()


def test_parameters_are_kept_and_cannot_be_changed() -> None:
    method = a2lp.create("a2lp", alpha=0.5, n_neighbors=7)
    assert (method.alpha, method.n_neighbors, method.gamma, method.tau, method.steps, method.lr) == (
        0.5, 7, 3, 15, 1000, 1e-4,
    )  # fmt: skip
    assert method == a2lp.create("a2lp", alpha=0.5, n_neighbors=7) != a2lp.create("a2lp", alpha=0.5)
    with pytest.raises(dataclasses.FrozenInstanceError):
        method.alpha = 0.6


def test_predict_takes_a_batch_and_says_so() -> None:
    with pytest.raises(InputError, match=r"ndarray.*TaskBatch\(support, support_labels, query\)"):
        a2lp.create("lp").predict(np.zeros((1, 2, 3)))


PLUG_IN = '''
from dataclasses import dataclass

from a2lp import Method
from a2lp.methods.base import scored


@dataclass(frozen=True, kw_only=True)
class Louder(Method):
    """The similarity to the first support vector of each class, times a volume."""

    volume: float = 2.0

    def _solve(self, points):
        first = [[row.tolist().index(c) for c in range(points.n_classes)] for row in points.codes]
        chosen = points.support[[[i] for i in range(len(first))], first]
        scores = self.volume * points.query @ chosen.transpose(0, 2, 1)
        return scored(scores, engine="louder", reason="it is a plug-in")


class NotAMethod:
    pass
'''

ENTRY_POINTS = """
[a2lp.methods]
louder = louder_methods:Louder
broken = louder_methods:NotAMethod
lp = louder_methods:Louder
"""

USE = """
import numpy as np
import a2lp
from a2lp.errors import InputError, UnknownNameError

assert list(a2lp.list_methods())[-2:] == ["louder", "broken"], a2lp.list_methods()
assert list(a2lp.list_methods())[:4] == ["prototypical", "imprinting", "lp", "a2lp"]
assert "louder_methods:Louder" in a2lp.list_methods()["louder"]
batch = a2lp.TaskBatch(np.array([[[0.0, 2.0], [3.0, 0.0]]]), [["up", "right"]], np.array([[[5.0, 1.0], [1.0, 5.0]]]))
found = a2lp.create("louder", volume=10).predict(batch)
cosine = 5 / np.sqrt(26)
np.testing.assert_allclose(found.scores[0], 10 * np.array([[cosine, cosine / 5], [cosine / 5, cosine]]))
assert found.labels.tolist() == [["right", "up"]], found.labels
assert (found.engine, found.reason) == ("louder", "it is a plug-in")
assert type(a2lp.create("lp")).__module__ == "a2lp.methods.propagation"  # a plug-in cannot take a name of ours
for call, kind, words in [
    (lambda: a2lp.create("louder", volum=1), UnknownNameError, "Did you mean 'volume'"),
    (lambda: a2lp.create("louder", tau=0), InputError, "tau=0 must be positive"),
    (lambda: a2lp.create("loudr"), UnknownNameError, "Did you mean 'louder'"),
    (lambda: a2lp.create("broken"), InputError, "subclass of a2lp.Method"),
]:
    try:
        call()
    except kind as error:
        assert words in str(error), error
    else:
        raise AssertionError(words)
print("used")
"""


def test_a_plug_in_joins_by_entry_point(tmp_path: Path) -> None:
    (tmp_path / "louder_methods.py").write_text(PLUG_IN)
    info = tmp_path / "louder_methods-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: louder-methods\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", USE],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert (done.returncode, done.stdout.strip()) == (0, "used"), done.stderr
