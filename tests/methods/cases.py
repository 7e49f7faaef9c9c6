"""Every method with parameters that make it quick: one line each, and the common suite runs it.

A new method needs a line here and nothing else; a test fails where a registered method has none.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class Case(NamedTuple):
    """What the suite should know of a method; whether it uses base classes it says itself."""

    method: str
    params: dict[str, Any] = {}  # noqa: RUF012  never changed
    transductive: bool = True
    class_order: bool = False  # whether the order of the classes may matter
    libraries: tuple[str, ...] = ("torch", "array_api_strict")  # that it runs on beside NumPy
    atol: float = 1e-9  # in float64, where things should be equal
    named: bool = False  # whether tasks have vectors of class names
    point_order: bool = False  # whether the order of the queries may matter


TUNED = {"steps": 15, "lr": 1e-3, "tau": 5.0}  # enough for the anchors to move and for labels to change

CASES: dict[str, Case] = {
    "prototypical": Case("prototypical", transductive=False),
    "imprinting": Case("imprinting", TUNED | {"numerics": "exact"}, transductive=False),
    "lp-batched": Case("lp", {"engine": "batched"}),
    "lp-fused_cpu": Case("lp", {"engine": "fused_cpu"}, libraries=()),
    "a2lp-batched": Case("a2lp", TUNED | {"engine": "batched"}),
    "a2lp-fused_cpu": Case("a2lp", TUNED | {"engine": "fused_cpu"}, libraries=()),
    # Adam divides gradients by their size: where one is next to nothing, rounding decides its direction
    "a2lp_plus": Case("a2lp_plus", {"steps": 5}, atol=1e-7),
    # its own preprocessing clips negative entries, which makes random points of three dimensions equal: ties
    "a2lp_em": Case("a2lp_em", {"preprocess": "l2"}),
    "simple_shot": Case("simple_shot", transductive=False),
    "soft_kmeans": Case("soft_kmeans"),
    "bd_cspn": Case("bd_cspn"),
    "laplacian_shot": Case("laplacian_shot"),
    "ep": Case("ep"),
    "ici": Case("ici", atol=1e-6),  # its solver stops where the gradient is small enough
    "top_k": Case("top_k"),
    "tpn": Case("tpn"),
    "pt_map": Case("pt_map", {"power": "sign"}),
    "bms": Case("bms", {"power": "sign", "steps": 5}, atol=1e-7),
    "ilpc": Case("ilpc", {"steps": 20}),
    "tim_gd": Case("tim_gd", {"steps": 10, "lr": 1e-2}, atol=1e-7),
    "tim_adm": Case("tim_adm", {"steps": 20}, atol=1e-6),  # rounds amplify rounding
    "alpha_tim": Case("alpha_tim", {"steps": 10, "lr": 1e-2}, atol=1e-7),
    "ease": Case("ease", {"power": "sign"}),
    "proto_lp": Case("proto_lp", {"power": "sign"}),
    "am": Case("am", {"steps": 5, "lr": 1e-2}, atol=1e-7),
    "alpha_am": Case("alpha_am", {"steps": 5, "lr": 1e-2}, atol=1e-7),
    "paddle": Case("paddle"),
    "bavardage": Case("bavardage", atol=1e-6),  # polynomials of a matrix, in another order of sums
    "oslo": Case("oslo"),
    "prototypical-bpa": Case("prototypical", {"preprocess": "bpa"}, atol=1e-8),
    "a2lp_em-names": Case("a2lp_em", named=True, atol=1e-8),
    "zero_shot": Case("zero_shot", transductive=False, named=True),
    # likelihoods are divided by variances, which a few random points leave next to nothing
    "trans_clip": Case("trans_clip", {"rounds": 3}, named=True, atol=1e-6),
    "trans_clip-text": Case("trans_clip", {"start": "text", "rounds": 3}, named=True, atol=1e-6),
    "stat_a": Case("stat_a", {"rounds": 3}, named=True, atol=1e-6),
    "zlap": Case("zlap", named=True),
    "em_dirichlet": Case("em_dirichlet", {"rounds": 2, "fit_steps": 60}, named=True, atol=1e-7),
    "em_dirichlet-hard": Case("em_dirichlet", {"hard": True, "rounds": 2, "fit_steps": 60}, named=True, atol=1e-7),
    "ecalp": Case("ecalp", named=True, point_order=True),
    "sib": Case("sib"),
    "sib_e3bm": Case("sib_e3bm"),
    "dpgn": Case("dpgn"),
    "tpn_learned": Case("tpn_learned"),
    "can": Case("can"),
}
