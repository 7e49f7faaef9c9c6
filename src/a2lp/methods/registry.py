"""The table of methods: names, modules, and a line on each. Modules are imported when they are needed."""

from __future__ import annotations

import dataclasses
import fnmatch
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from a2lp.checks import require_name
from a2lp.errors import InputError, UnknownNameError
from a2lp.methods.base import LoopMethod, Method

ENTRY_POINT_GROUP = "a2lp.methods"

_TABLE: dict[str, tuple[str, str]] = {
    "prototypical": ("a2lp.methods.prototypical:Prototypical", "nearest class mean (Snell et al. 2017)"),
    "imprinting": ("a2lp.methods.imprinting:Imprinting", "class means fine-tuned by cross-entropy (Qi et al. 2018)"),
    "lp": ("a2lp.methods.propagation:LP", "label propagation on the nearest-neighbour graph (Zhou et al. 2003)"),
    "a2lp": ("a2lp.methods.propagation:A2LP", "label propagation with adapted anchors (Lazarou et al. 2023)"),
    "a2lp_plus": ("a2lp.methods.propagation:A2LPPlus", "adapted anchors, with losses on the queries too (ours)"),
    "a2lp_em": ("a2lp.methods.a2lp_em:A2LPEM", "anchors by expectation-maximisation on the graph (ours)"),
    "simple_shot": ("a2lp.methods.prototypical:SimpleShot", "nearest class mean after CL2N (Wang et al. 2019)"),
    "soft_kmeans": ("a2lp.methods.soft_kmeans:SoftKMeans", "class means refined by soft k-means (Ren et al. 2018)"),
    "bd_cspn": ("a2lp.methods.bd_cspn:BDCSPN", "class means rectified by pseudo-labels (Liu et al. 2020)"),
    "laplacian_shot": (
        "a2lp.methods.laplacian_shot:LaplacianShot",
        "nearest means, smoothed on the queries' graph (Ziko et al. 2020)",
    ),
    "ep": ("a2lp.methods.ep:EP", "embedding propagation, then label propagation (Rodriguez et al. 2020)"),
    "ici": ("a2lp.methods.ici:ICI", "logistic regression with credible pseudo-labels (Wang et al. 2020)"),
    "top_k": (
        "a2lp.methods.top_k:TopK",
        "class means with the surest queries, CAN's transductive step (Hou et al. 2019)",
    ),
    "tpn": ("a2lp.methods.tpn:TPN", "transductive propagation with a fixed width (Liu et al. 2019)"),
    "pt_map": ("a2lp.methods.pt_map:PTMAP", "power transform and optimal transport (Hu et al. 2021)"),
    "bms": ("a2lp.methods.bms:BMS", "unit class means, each class at least as large as the smallest (Hu et al. 2021)"),
    "ilpc": ("a2lp.methods.ilpc:ILPC", "iterative label propagation and cleaning (Lazarou et al. 2021)"),
    "tim_gd": ("a2lp.methods.tim:TIMGD", "mutual information by gradient descent (Boudiaf et al. 2020)"),
    "tim_adm": ("a2lp.methods.tim:TIMADM", "mutual information by alternating directions (Boudiaf et al. 2020)"),
    "alpha_tim": ("a2lp.methods.tim:AlphaTIM", "TIM with alpha-entropies (Veilleux et al. 2021)"),
    "ease": ("a2lp.methods.ease:EASE", "subspace projection and Siamese transport (Zhu and Koniusz 2022)"),
    "proto_lp": ("a2lp.methods.proto_lp:ProtoLP", "prototype-based label propagation (Zhu and Koniusz 2023)"),
    "am": ("a2lp.methods.am:AM", "adaptive manifold (Lazarou et al. 2024)"),
    "alpha_am": ("a2lp.methods.am:AlphaAM", "adaptive manifold with alpha-entropies (Lazarou et al. 2024)"),
    "paddle": ("a2lp.methods.paddle:PADDLE", "minimum description length over few classes (Martin et al. 2022)"),
    "bavardage": ("a2lp.methods.bavardage:BAVARDAGE", "variational Bayes with base covariance (Hu et al. 2023)"),
    "oslo": ("a2lp.methods.oslo:OSLO", "class means of likely inliers, for open-set queries (Boudiaf et al. 2023)"),
    "zero_shot": ("a2lp.methods.zero_shot:ZeroShot", "the nearest class name, with CLIP (Radford et al. 2021)"),
    "trans_clip": ("a2lp.methods.trans_clip:TransCLIP", "Gaussians with names and a graph (Zanella et al. 2024)"),
    "stat_a": ("a2lp.methods.stat_a:StatA", "Gaussians anchored to class names (Zanella et al. 2025)"),
    "zlap": ("a2lp.methods.zlap:ZLaP", "label propagation from class names (Stojnic et al. 2024)"),
    "em_dirichlet": ("a2lp.methods.em_dirichlet:EMDirichlet", "Dirichlet mixture of names (Martin et al. 2024)"),
    "ecalp": ("a2lp.methods.ecalp:ECALP", "propagation from names on a growing graph (Li et al. 2025)"),
    "sib": ("a2lp.meta.sib:SIB", "synthetic gradients on the queries, meta-trained (Hu et al. 2020)"),
    "sib_e3bm": ("a2lp.meta.sib:SIBE3BM", "SIB with an ensemble of its steps, meta-trained (Liu et al. 2020)"),
    "dpgn": ("a2lp.meta.dpgn:DPGN", "dual graph network on frozen features, meta-trained (Yang et al. 2020)"),
    "tpn_learned": ("a2lp.meta.tpn:TPNLearned", "TPN with learned widths, meta-trained (Liu et al. 2019)"),
    "can": ("a2lp.meta.can:CAN", "cross attention on vectors, meta-trained, with its top-k step (Hou et al. 2019)"),
}


def list_methods(pattern: str = "*") -> dict[str, str]:
    """List the methods whose names match a pattern, including installed plug-ins.

    Parameters
    ----------
    pattern : str
        With wildcards as in file names, such as ``"a2lp*"``.

    Returns
    -------
    dict of str to str
        A one-line description of each method, by name.

    Examples
    --------
    >>> import a2lp
    >>> list(a2lp.list_methods("tim*"))
    ['tim_gd', 'tim_adm']
    """
    lines = {name: line for name, (_, line) in _TABLE.items()}
    lines |= {name: f"plug-in: {point.value}" for name, point in _plug_ins().items() if name not in lines}
    return {name: line for name, line in lines.items() if fnmatch.fnmatchcase(name, pattern)}


def loop_methods() -> dict[str, type[LoopMethod]]:
    """One method of this package for each inner loop; ``a2lp``, which has steps, for that of ``lp``."""
    names = [name for name, (where, _) in _TABLE.items() if where.startswith("a2lp.methods.") and name != "lp"]
    found: dict[str, tuple[str, type[LoopMethod]]] = {}
    for name, method in ((name, method_class(name)) for name in names):
        if issubclass(method, LoopMethod):
            found.setdefault(method.loop.name, (name, method))
    return dict(found.values())


def create(name: str, **params: Any) -> Method:
    """Create a method by its name.

    Parameters
    ----------
    name : str
        One of ``a2lp.list_methods()``.
    **params
        The method's own parameters; the defaults are the paper's.

    Returns
    -------
    Method
        Its ``predict`` labels the queries of a ``TaskBatch``.

    Examples
    --------
    >>> import a2lp
    >>> a2lp.create("lp", alpha=0.5).alpha
    0.5
    """
    method = method_class(name)
    known = [f.name for f in dataclasses.fields(method)]
    for param in params:
        require_name(f"parameter of method {name!r}:", param, known)
    return method(**params)


def method_class(name: str) -> type[Method]:
    """The class behind a name."""
    if name in _TABLE:
        module, attribute = _TABLE[name][0].split(":")
        found: Any = getattr(import_module(module), attribute)
    elif name in _plug_ins():
        point = _plug_ins()[name]
        try:
            found = point.load()
        except Exception as error:
            raise InputError(
                f"plug-in {name!r} ({point.value}) cannot be loaded: {type(error).__name__}: {error}. Mend or "
                "uninstall the package that brings it."
            ) from error
    else:
        raise UnknownNameError("method", name, list_methods())
    if not (isinstance(found, type) and issubclass(found, Method)):
        raise InputError(f"plug-in {name!r} gives {found!r}; it must be a subclass of a2lp.Method.")
    return found


@cache
def _plug_ins() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=ENTRY_POINT_GROUP)}
