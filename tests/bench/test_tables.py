"""How tables are written."""

from __future__ import annotations

import math

from a2lp.bench import tables


def test_minus_signs_are_minus_signs_in_latex():
    row = tables.Row("k_eff", (tables.Entry(tables.plus_minus(-1.5, 0.25, sign=True)),))
    table = tables.Table("t", (("l2", "1-shot"),), (tables.Section("difference", (row,)),))
    assert r"k\_eff & $-$1.50 $\pm$0.25 \\" in tables.to_latex(table)


def test_plus_minus():
    assert tables.plus_minus(78.934, 0.786) == "78.93 ±0.79"
    assert tables.plus_minus(4.156, 0.5, sign=True) == "+4.16 ±0.50"
    assert tables.plus_minus(50.0, math.nan) == "50.00"


def test_the_best_of_a_column_is_chosen_among_measured_and_among_published_entries():
    def row(label, *means, published=False):
        return tables.Row(label, tuple(tables.Entry(str(mean), mean) for mean in means), published)

    first = tables.Section("a", (row("x", 1.0, 5.0), row("y", 3.0, math.nan), row("x †", 9.0, 9.0, published=True)))
    second = tables.Section("b", (row("z", 2.0, 6.0), row("z †", 8.0, 9.0, published=True)))
    apart = tables.mark_best([first]) + tables.mark_best([second])
    together = tables.mark_best([first, second])
    assert bold(apart) == {("x", 1), ("y", 0), ("x †", 0), ("x †", 1), ("z", 0), ("z", 1), ("z †", 0), ("z †", 1)}
    assert bold(together) == {("y", 0), ("z", 1), ("x †", 0), ("x †", 1), ("z †", 1)}


def bold(sections):
    return {(row.label, i) for s in sections for row in s.rows for i, e in enumerate(row.entries) if e.best}
