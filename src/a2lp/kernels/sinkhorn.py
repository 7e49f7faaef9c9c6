"""Sinkhorn's scaling of one task after another as compiled code; see ``methods._maths.sinkhorn``."""

from __future__ import annotations

import numpy as np

from a2lp.kernels.compiler import compiled


@compiled(_nrt=True)
def scale(kernel, columns, rows, fixed, has_fixed, tolerance, rounds, plan):
    """Fill the plan (b, c, n); kernel (b, c, n), columns and fixed (b, c), rows (b, n)."""
    b, c, n = kernel.shape
    one = kernel.dtype.type(1)
    by_class = np.empty(c, kernel.dtype)
    by_point, before, masses = np.empty(n, kernel.dtype), np.empty(n, kernel.dtype), np.empty(n, kernel.dtype)
    for t in range(b):
        by_class[:] = one
        masses[:] = 0
        before[:] = 0
        for q in range(c):
            for j in range(n):
                before[j] += kernel[t, q, j]
        for _ in range(rounds):
            for j in range(n):
                by_point[j] = rows[t, j] / before[j]
                before[j] = 0
            for q in range(c):
                filled = kernel.dtype.type(0)
                for j in range(n):
                    filled += by_point[j] * kernel[t, q, j]
                if has_fixed:
                    by_class[q] *= columns[t, q] / (fixed[t, q] + by_class[q] * filled)
                else:
                    by_class[q] = columns[t, q] / filled
                for j in range(n):
                    before[j] += by_class[q] * kernel[t, q, j]
            change = kernel.dtype.type(0)
            for j in range(n):
                mass = before[j] * by_point[j]
                change = max(change, abs(mass - masses[j]))
                masses[j] = mass
            if change <= tolerance:
                break
        for q in range(c):
            for j in range(n):
                plan[t, q, j] = by_class[q] * (kernel[t, q, j] * by_point[j])
