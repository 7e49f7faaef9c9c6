"""The tables and the figure of docs/a2lp_em.md, from the record of ``em_study.py``."""

from __future__ import annotations

from typing import Any

import numpy as np
from study import CELLS, SETS, Record, cell_name, fill, shown, table

# the forms of the method: whether base data are used, and whether equal shares are assumed
FORMS: dict[str, dict[str, Any]] = {
    "without base data, marginal estimated": {},
    "whitened, marginal estimated": {"preprocess": "whiten"},
    "without base data, marginal uniform": {"marginal": "uniform"},
    "whitened, marginal uniform": {"preprocess": "whiten", "marginal": "uniform"},
}
CURVES = {"rounds": [0, 1, 2, 3, 4, 5, 7, 10, 15, 20], "temperature": [7, 10, 14, 20, 30, 40, 50, 70, 100, 150]}

# files of public code's labels, and what to call the methods
RIVALS = {
    "without base data, marginal estimated": {
        "alpha_tim": "α-TIM",
        "alpha_am_plc": "α-AM",
        "lr_ici_step5": "LR+ICI",
        "laplacianshot_rect_l0.7": "LaplacianShot (uses the base mean)",
        "bdcspn_oveilleux": "BD-CSPN (uses the base mean)",
        "ep_l2": "EP + LP",
    },
    "whitened, marginal estimated": {
        "bavardage": "BAVARDAGE, uniform marginal on balanced tasks",
        "bavardage_unb": "BAVARDAGE, marginal always estimated",
    },
    "without base data, marginal uniform": {
        "ease_siamese_power": "EASE + SIAMESE",
        "protolp_full_res12": "protoLP, its script without powers",
        "ptmap_clamp": "PT-MAP",
        "ilpc_l2": "iLPC",
        "am_plc": "AM",
        "tim_adm": "TIM-ADM",
    },
    "whitened, marginal uniform": {"bavardage": "BAVARDAGE, uniform marginal"},
}
# the library's methods without base data that do not assume a uniform marginal, each with its number of tasks a cell
FIELD = dict.fromkeys(("prototypical", "imprinting", "soft_kmeans", "lp", "tpn", "ep", "top_k", "paddle"), 1000)
FIELD |= {"oslo": 1000, "a2lp": 300, "ici": 300, "alpha_tim": 300, "alpha_am": 100}


def heading(cell: str) -> str:
    """``cub dirichlet 1-shot`` as the head of a column."""
    name, sampler, shots = cell.split()
    return f"{SETS[name]} {shots} {'Dirichlet' if sampler == 'dirichlet' else sampler}"


def ablation_table(found: dict[str, Any] | None) -> str:
    if found is None:
        return ""
    best = max(np.mean(values) for values in found["rows"].values())
    lines = []
    for words, values in found["rows"].items():
        mean = float(np.mean(values))
        lines.append([words, *(f"{v:.1f}" for v in values), f"**{mean:.2f}**" if mean == best else f"{mean:.2f}"])
    return table(["", *map(heading, found["cells"]), "mean"], lines, "---")


def overview(found: dict[str, Any]) -> str:
    """Every form on every set."""
    columns = [(name, cell_name(*cell)) for name in found for cell in CELLS]
    lines = []
    for form in FORMS:
        entries = [found[name][form].get(cell) for name, cell in columns]
        lines.append([form, *("–" if entry is None else shown(entry) for entry in entries)])
    return table(["", *(heading(f"{name} {cell}") for name, cell in columns)], lines if columns else [], "---")


def field_summary(found: dict[str, Any]) -> str:
    """For each cell the rival that comes nearest, by the paired difference."""
    lines, above, clearly = [], 0, 0
    for cell, one in found.items():
        name, other = min(one["rivals"].items(), key=lambda item: item[1]["difference"]["mean"])
        difference = other["difference"]
        above += difference["mean"] > 0
        clearly += difference["mean"] > difference["ci95"]
        nearest = f"`{name}`{_few(one, other)}"
        theirs = f"{other['theirs']['mean']:.2f}"
        lines.append([heading(cell), shown(one["ours"]), nearest, theirs, shown(difference, sign=True)])
    if not lines:
        return ""
    count = (
        f"`a2lp_em` is more accurate than all of them in {above} of {len(found)} cells, by more than the 95 % interval "
        f"in {clearly}."
    )
    heads = ["", "`a2lp_em`", "strongest other method", "its accuracy", "difference"]
    return f"{table(heads, lines, '---')}\n\n{count}"


def field_table(found: dict[str, Any]) -> str:
    lines = []
    for rival in FIELD if found else ():
        others = [one["rivals"][rival] for one in found.values()]
        row = [f"{other['difference']['mean']:+.2f}" for other in others]
        lines.append([f"`{rival}`", str(others[0]["tasks"]), *row])
    return table(["", "tasks", *map(heading, found)], lines, "---")


def public_table(found: dict[str, Any], rivals: dict[str, str]) -> str:
    lines = [["`a2lp_em`", *(shown(one["ours"]) for one in found.values())]]
    for file, name in rivals.items():
        row = []
        for one in found.values():
            other = one["rivals"].get(file)
            text = "–" if other is None else f"{other['theirs']['mean']:.2f}{_few(one, other)}: "
            row.append(text if other is None else text + shown(other["difference"], sign=True))
        lines.append([name, *row])
    return table(["", *(heading(f"cub {cell}") for cell in found)], lines, "---")


def _few(one: dict[str, Any], other: dict[str, Any]) -> str:
    return "" if other["tasks"] == one["tasks"] else f" (first {other['tasks']})"


def speed_table(found: dict[str, Any] | None) -> str:
    lines = [[form, f"{t['wall']:.2f}", f"{t['cpu']:.2f}"] for form, t in (found or {}).items()]
    return table(["", "seconds", "seconds of all cores together"], lines, "---")


def page(text: str, record: Record) -> str:
    """The text of docs/a2lp_em.md with its generated parts."""
    field = {f"{name} {cell}": one for name, found in record.named("field").items() for cell, one in found.items()}
    public = record.result("public") or {}
    parts = {f"ablation: {form}": ablation_table(record.result(f"validation {form}")) for form in FORMS}
    parts |= {f"public: {form}": public_table(public[form], RIVALS[form]) if form in public else "" for form in FORMS}
    parts |= {"overview": overview(record.named("test")), "speed": speed_table(record.result("speed"))}
    parts |= {"field summary": field_summary(field), "field": field_table(field)}
    parts |= {"validation tasks": f"{record.tasks('validation')}.", "novel tasks": f"{record.tasks('test')}."}
    parts |= {"provenance": record.provenance()}
    return fill(text, "em_study", parts)


def figure(curves: dict[str, Any]) -> str:
    """Validation accuracy against the number of rounds and against the temperature."""
    from figures import drawing, svg  # matplotlib, which a machine that only measures need not have

    colours = ["#0072B2", "#56B4E9", "#D55E00", "#E69F00"]
    with drawing(10.2, 3.0) as picture:
        for axes, name in zip(picture.subplots(1, 2, sharey=True), CURVES, strict=True):
            for colour, (form, lines) in zip(colours, curves.items(), strict=False):
                axes.plot(lines[name]["values"], lines[name]["means"], "o-", ms=3, lw=1, color=colour, label=form)
            axes.set_xlabel(name)
            if name == "temperature":
                axes.set_xscale("log")
                axes.set_xticks([10, 20, 50, 100], ["10", "20", "50", "100"])
                axes.minorticks_off()
        picture.axes[0].set_ylabel("mean accuracy, %")
        picture.axes[0].legend(fontsize=7)
        return svg(picture)
