"""Random faults for as long as one likes: damaged files, degenerate tasks, kills, hostile environments, long runs.

    make soak                                                  # an hour, and a record
    .venv/bin/python benchmarks/soak.py --minutes 5            # all parts, a quarter each
    .venv/bin/python benchmarks/soak.py --part numerics --case 17    # one case again

Every case has a number, which is its seed, and is printed when it fails. What failed is kept in ``soak-failures/``, a
file for each case, with the command that runs it again. Cases of one number are the same on every machine, up to the
moment at which a process is killed.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import soak_faults
import soak_growth
import soak_numerics
import soak_readers
from study import RECORDS, Record

FAILURES = Path("soak-failures")

# a part runs one case in an empty folder, and returns what kind of case it was; it raises where something is wrong
PARTS: dict[str, Callable[[int, Path], str]] = {
    "readers": soak_readers.run,
    "numerics": soak_numerics.run,
    "faults": soak_faults.run,
    "growth": soak_growth.run,
}


def run_part(name: str, seconds: float, first: int, failures: Path) -> dict[str, Any]:
    """Run cases of a part until the time is over, at least one."""
    until, case, start = time.monotonic() + seconds, first, time.monotonic()
    kinds: Counter[str] = Counter()
    failed: list[int] = []
    while case == first or time.monotonic() < until:
        with tempfile.TemporaryDirectory() as folder:
            try:
                kinds[PARTS[name](case, Path(folder))] += 1
            except Exception as error:
                failed.append(case)
                keep(failures, name, case, error)
        case += 1
    took = round(time.monotonic() - start)
    return {
        "cases": case - first,
        "seconds": took,
        "first": first,
        "kinds": dict(sorted(kinds.items())),
        "failed": failed,
    }


def keep(failures: Path, part: str, case: int, error: Exception) -> None:
    """A file for a case that failed."""
    failures.mkdir(parents=True, exist_ok=True)
    again = f"{sys.executable} benchmarks/soak.py --part {part} --case {case}"
    content = {"part": part, "case": case, "again": again, "error": "".join(traceback.format_exception(error))}
    (failures / f"{part}-{case}.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    print(f"FAILED {part} {case}: {type(error).__name__}: {str(error)[:500]}\n  again: {again}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--part", choices=list(PARTS), help="only this one")
    parser.add_argument("--case", type=int, help="only this case of the part")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="the number of the first case")
    parser.add_argument("--record", action="store_true", help="keep the figures in benchmarks/records")
    args = parser.parse_args()
    if args.case is not None:
        with tempfile.TemporaryDirectory() as folder:
            print(PARTS[args.part or "numerics"](args.case, Path(folder)))
        return 0
    chosen = [args.part] if args.part else list(PARTS)
    record = Record(RECORDS / "soak.json", "Random faults: cases of each part, and those that failed")
    failed = 0
    for name in chosen:
        print(f"{name}: cases from {args.seed} on", flush=True)
        found = run_part(name, 60 * args.minutes / len(chosen), args.seed, FAILURES)
        failed += len(found["failed"])
        print(f"{name}: {found['cases']} cases in {found['seconds']} s, {len(found['failed'])} failed", flush=True)
        if args.record:
            record.measure(name, lambda found=found: found, minutes=args.minutes / len(chosen), seed=args.seed)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
