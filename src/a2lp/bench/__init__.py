"""The bench: methods compared on the same tasks, with intervals, records that resume, tables and a report.

``compare``, ``sweep`` and ``reproduce`` are what the commands of the same names call.
"""

from __future__ import annotations

from a2lp.bench.comparison import Comparison, compare
from a2lp.bench.reproduction import reproduce
from a2lp.bench.tuning import Sweep, sweep

__all__ = ["Comparison", "Sweep", "compare", "reproduce", "sweep"]
