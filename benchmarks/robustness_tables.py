"""The tables and the figure of docs/robustness.md, from the record of robustness.py."""

from __future__ import annotations

from study import Record

# methods that neither assume a uniform marginal nor use base data or names
RIVALS = ("lp", "tpn", "alpha_tim", "top_k", "soft_kmeans", "ep", "paddle", "prototypical", "imprinting", "ici", "a2lp", "alpha_am")  # fmt: skip
UNIFORM_RIVALS = ("pt_map", "ease", "proto_lp", "ilpc")


def page(text: str, record: Record) -> str:
    return text


def figure(record: Record) -> str:
    return ""
