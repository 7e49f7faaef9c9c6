"""The tables of docs/which-method.md: the choices of ``a2lp methods``, and what they are worth in the field's record.

.venv/bin/python benchmarks/which_method.py
"""

from __future__ import annotations

from study import RECORDS, ROOT, Record, fill, shown, table

from a2lp.files import write_text
from a2lp.methods.choice import CHOICES

PAGE = ROOT / "docs" / "which-method.md"
CELLS = {"balanced": "classes equally frequent", "dirichlet": "classes of random sizes"}
COMPARED = (
    "prototypical",
    "lp",
    "a2lp",
    "proto_lp",
    "a2lp_em",
    "a2lp_em, marginal=uniform",
    "a2lp_em, preprocess=whiten",
    "a2lp_em, preprocess=whiten, marginal=uniform",
)


def page(text: str, field: Record) -> str:
    """The page with its generated parts."""
    rows = []
    for method in COMPARED:
        result = field.result(f"accuracy {method}")
        if result:
            rows.append([method, *(shown(result["cells"][f"cub {cell} {n}-shot"]) for n in (1, 5) for cell in CELLS)])
    heads = ["accuracy, %", *(f"{n}-shot, {words}" for n in (1, 5) for words in CELLS.values())]
    choices = table(["if you have", "use", "because"], [list(choice) for choice in CHOICES], align="---")
    return fill(text, "which_method", {"choices": choices, "worth": table(heads, rows)})


def main() -> None:
    write_text(PAGE, page(PAGE.read_text(encoding="utf-8"), Record(RECORDS / "field.json", "")))


if __name__ == "__main__":
    main()
