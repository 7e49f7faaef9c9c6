"""How long the first run on a folder of photographs takes: embedding, on a quiet machine and beside a busy process.

    .venv/bin/python benchmarks/first_run.py --pack cub_val_test.npz

Embeds CUB's 2,953 test images with an empty cache, by the default backbone of ``a2lp classify``, and prints the seconds
on the clock and those of processors. Other programs must rest meanwhile: the load of the last minute is printed, too.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def busy(n: int) -> Iterator[None]:
    """So many processes that do nothing but compute."""
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(n)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def embed(pack: Path) -> tuple[float, float]:
    """Seconds on the clock and of the processor, of the whole command."""
    with tempfile.TemporaryDirectory() as folder:
        images = [str(pack), "--dataset", "cub", "--split", "test"]
        files = ["--out", f"{folder}/out.npz", "--cache", f"{folder}/cache"]
        before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        subprocess.run([sys.executable, "-m", "a2lp", "embed", *images, *files], check=True, capture_output=True)
        wall, after = time.monotonic() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pack", type=Path, required=True, help="images of CUB, as a pack")
    parser.add_argument("--times", type=int, default=3)
    args = parser.parse_args()
    print(f"{os.cpu_count()} cores")
    for _ in range(args.times):
        for n in (0, 1):
            load = os.getloadavg()[0]
            with busy(n):
                wall, processor = embed(args.pack)
            print(f"beside {n} busy: {wall:.0f} s, {processor:.0f} s of processors, load before {load:.1f}", flush=True)


if __name__ == "__main__":
    main()
