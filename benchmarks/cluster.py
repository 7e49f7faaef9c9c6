"""What workers bring: two against one, columns of many classes over processes, and a worker that is killed.

    .venv/bin/python benchmarks/cluster.py --measure bench neighbours columns   # two quiet cores, some minutes
    .venv/bin/python benchmarks/cluster.py --measure embedding --images DIR --backbone onnx:FILE   # many small images
    .venv/bin/python benchmarks/cluster.py                                      # docs/cluster.md from the record

Workers are processes of this machine with one core each. ``bench`` times blocks of 100 tasks of A2LP; ``neighbours``
the search for neighbours of made-up points, whose graph must be that of one process, bit for bit; ``columns`` solves
for 1,000 classes with two threads, and with two processes of one thread each, which have half of the classes each;
``embedding`` kills one of two workers (SIGKILL) after 40 % of the images, and compares the vectors with those of one
process. What starts processes and compiles code comes before the clock.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from study import RECORDS, ROOT, Record, fill, table

from a2lp.bench import compare
from a2lp.features import load
from a2lp.files import write_text
from a2lp.pool.graph import PoolGraph, neighbour_graph
from a2lp.pool.propagate import propagate
from a2lp.pool.stages import Stages
from a2lp.scale import Cluster
from pool import make_file

RECORD = RECORDS / "cluster.json"
PAGE = ROOT / "docs" / "cluster.md"
TASKS = 1000  # of bench: ten blocks
POINTS, DIMENSIONS = 400_000, 256
COLUMN_POINTS, CLASSES, LABELS = 50_000, 1000, 5
KILLED_AT = 0.4
Array = np.ndarray[Any, Any]


@contextmanager
def cores(count: int) -> Iterator[None]:
    """Let this process and the workers that it starts use so many cores together."""
    before = os.environ.get("A2LP_CORES")
    os.environ["A2LP_CORES"] = str(count)
    try:
        yield
    finally:
        os.environ.pop("A2LP_CORES")
        os.environ.update({} if before is None else {"A2LP_CORES": before})


def workers(pid: int | None = None) -> list[psutil.Process]:
    """The workers that a process has started."""
    found = psutil.Process(pid).children(recursive=True)
    return [each for each in found if "spawn_main" in " ".join(each.cmdline())]


def timed(work: Callable[[], Any]) -> dict[str, float]:
    """Seconds on the clock, the CPU time of the worker that worked most, and the most memory that one has had."""
    before = {each.pid: sum(each.cpu_times()[:2]) for each in workers()}
    start = time.perf_counter()
    work()
    seconds = time.perf_counter() - start
    used = [sum(each.cpu_times()[:2]) - before[each.pid] for each in workers() if each.pid in before]
    peaks = [_peak(each.pid) for each in workers()]
    return {"seconds": seconds, "cpu_seconds": max(used, default=0.0), "peak_bytes": max(peaks, default=0)}


def bench() -> dict[str, Any]:
    """Blocks of A2LP, five labels per class, by one worker and by two."""

    def run(n_tasks: int, cluster: Cluster | None) -> Any:
        return compare("cub", ["a2lp"], n_shot=5, n_tasks=n_tasks, cluster=cluster, seed=n_tasks)

    found: dict[str, Any] = {"tasks": TASKS}
    for count in (1, 2):
        with cores(count), Cluster(f"local:{count}") as cluster:
            run(100 * count, cluster)
            found[str(count)] = timed(lambda cluster=cluster: run(TASKS, cluster))
    return found


def neighbours() -> dict[str, Any]:
    """The graph of many points by one process on one core, by one worker and by two."""
    found: dict[str, Any] = {"points": POINTS, "dimensions": DIMENSIONS}
    with tempfile.TemporaryDirectory() as top:
        make_file(Path(top) / "points.npy", POINTS, DIMENSIONS)
        make_file(Path(top) / "few.npy", 30_000, 16)

        def make(name: str, folder: str, cluster: Cluster | None) -> PoolGraph:
            x = np.load(Path(top) / f"{name}.npy", mmap_mode="r")
            return neighbour_graph(x, stages=Stages(Path(top) / folder, x), cluster=cluster, method="cells")

        def files(folder: str) -> dict[str, bytes]:
            return {path.name: path.read_bytes() for path in sorted((Path(top) / folder).glob("graph*"))}

        with cores(1):
            make("few", "few", None)
            found["0"] = timed(lambda: make("points", "alone", None))
        for count in (1, 2):
            with cores(1), Cluster(f"local:{count}") as cluster:
                make("few", f"few on {count}", cluster)
                found[str(count)] = timed(lambda c=cluster, n=count: make("points", f"on {n}", c))
            if files(f"on {count}") != files("alone"):
                raise SystemExit(f"the graph of {count} workers is another one")
    return found


def _halves(folder: str, part: slice, start: Any, ready: Any) -> None:
    """A process with some of the columns."""
    graph, y = _columns(folder)
    propagate(graph, y[:, :8], tolerance=1e-3)  # compiled, and the order of the points found
    ready.release()
    start.wait()
    propagate(graph, y[:, part], tolerance=1e-3)
    ready.release()


def _columns(folder: str) -> tuple[PoolGraph, Array]:
    x = np.load(Path(folder) / "points.npy", mmap_mode="r")
    rows = np.arange(CLASSES * LABELS)
    y = np.zeros((len(x), CLASSES), np.float32)
    y[rows, rows % CLASSES] = 1
    return neighbour_graph(x, stages=Stages(folder, x)), y


def columns() -> dict[str, Any]:
    """Label propagation for many classes, by threads and by processes."""
    found: dict[str, Any] = {"points": COLUMN_POINTS, "classes": CLASSES, "threads": [], "processes": []}
    with tempfile.TemporaryDirectory() as top:
        make_file(Path(top) / "points.npy", COLUMN_POINTS, 64)
        with cores(2):
            graph, y = _columns(top)
            propagate(graph, y[:, :8], tolerance=1e-3)
        spawn = multiprocessing.get_context("spawn")
        for _ in range(3):
            with cores(2):
                found["threads"].append(timed(lambda: propagate(graph, y, tolerance=1e-3))["seconds"])
            with cores(1):
                start, ready = spawn.Event(), spawn.Semaphore(0)
                parts = slice(0, CLASSES // 2), slice(CLASSES // 2, CLASSES)
                halves = [spawn.Process(target=_halves, args=(top, part, start, ready)) for part in parts]
                for each in halves:
                    each.start()

                for _ in halves:
                    ready.acquire()
                begun = time.perf_counter()
                start.set()
                for _ in halves:
                    ready.acquire()
                found["processes"].append(time.perf_counter() - begun)
                for each in halves:
                    each.join()
    return found


def embedding(images: Path, backbone: str) -> dict[str, Any]:
    """Many small images on two workers, one of which is killed, and by one process."""
    command = [sys.executable, "-m", "a2lp", "embed", str(images), "--backbone", backbone, "--view", "32/32"]
    with tempfile.TemporaryDirectory() as top, cores(2):
        alone, cluster = Path(top) / "alone", Path(top) / "cluster"
        start = time.perf_counter()
        subprocess.run([*command, "--out", str(alone)], check=True)
        found: dict[str, Any] = {"one_process_seconds": time.perf_counter() - start}
        n_parts = len(_parts(alone))
        start = time.perf_counter()
        run = subprocess.Popen([*command, "--out", str(cluster), "--scheduler", "local:2"])
        peaks: dict[int, int] = {}
        kept: dict[str, int] = {}
        while run.poll() is None:
            there = workers(run.pid)
            for each in there:
                peaks[each.pid] = max(peaks.get(each.pid, 0), _peak(each.pid))
            if not kept and len(_parts(cluster)) >= KILLED_AT * n_parts:
                os.kill(there[0].pid, signal.SIGKILL)
                kept = _parts(cluster)
            time.sleep(0.2)
        found["seconds"] = time.perf_counter() - start
        if run.returncode:
            raise SystemExit("the run on two workers failed")
        again = [name for name, node in kept.items() if _parts(cluster)[name] != node]
        one, other = load(alone), load(cluster)
        if one.files != other.files or not np.array_equal(one.features, other.features):
            raise SystemExit("the vectors of two workers are others")
        found |= {"images": len(one.features), "parts": n_parts, "killed_after": len(kept)}
        return found | {"finished_parts_made_again": len(again), "peak_bytes": max(peaks.values())}


def _parts(folder: Path) -> dict[str, int]:
    """The finished parts, and the nodes of their files."""
    return {path.name: path.stat().st_ino for path in folder.glob("*.npy")}


def _peak(pid: int) -> int:
    """The most memory that a process has had."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:  # it has ended
        return 0
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM")), 0)


def page(text: str, record: Record) -> str:
    """The page with the measured figures."""
    parts = {"workers": _workers_table(record), "columns": _columns_text(record), "embedding": _embedding_text(record)}
    return fill(text, "cluster", parts)


def _columns_text(record: Record) -> str:
    found = record.result("columns")
    if not found:
        return ""
    threads, processes = (", ".join(f"{seconds:.1f}" for seconds in found[name]) for name in ("threads", "processes"))
    return (
        f"Label propagation for {found['classes']:,} classes among {found['points']:,} points: {threads} s with two "
        f"threads of one process, {processes} s with two processes of one thread, each of which solves for half of the "
        "classes."
    )


def _embedding_text(record: Record) -> str:
    found = record.result("embedding")
    if not found:
        return ""
    return (
        f"{found['images']:,} images of 32 × 32 pixels, a small network, two workers of one core, one of them killed "
        f"(SIGKILL) when {found['killed_after']} of {found['parts']} parts were there: the vectors are those of one "
        f"process, {found['finished_parts_made_again'] or 'no'} finished part was made again, and no worker had more "
        f"than {found['peak_bytes'] / 1e9:.2f} GB at any time."
    )


def _workers_table(record: Record) -> str:
    rows = []
    if found := record.result("bench"):
        rows.append([f"`bench`, {found['tasks'] // 100} blocks of A2LP", *_row(found)])
    if found := record.result("neighbours"):
        rows.append([f"neighbours of {found['points']:,} × {found['dimensions']} points", *_row(found)])
    heads = [
        "",
        "no worker",
        "one worker",
        "two workers",
        "ratio",
        "CPU time, one worker",
        "each of two",
        "ratio",
        "most CPU / clock",
    ]
    loads = [record.result(part)["load"] for part in ("bench", "neighbours") if record.result(part)]
    busy = (
        f"Other programs ran on this machine of two cores meanwhile, so the clock says less than the CPU times: the "
        f"load average was {' and '.join(f'{load:.0f}' for load in loads)} before the measurements."
    )
    text = [table(heads, rows), *([busy] if max(loads, default=0) > 1 else []), record.provenance()]
    return "\n\n".join(text) if rows else ""


def _row(found: dict[str, Any]) -> list[str]:
    one, two = found["1"], found["2"]
    row = [f"{found['0']['seconds']:.1f} s" if "0" in found else ""]
    for what in ("seconds", "cpu_seconds"):
        row += [f"{one[what]:.1f} s", f"{two[what]:.1f} s", f"{one[what] / two[what]:.2f}"]
    return [*row, f"{max(run['cpu_seconds'] / run['seconds'] for run in (one, two)):.2f}"]


PARTS: dict[str, Callable[..., dict[str, Any]]] = {
    "bench": bench,
    "neighbours": neighbours,
    "columns": columns,
    "embedding": embedding,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--measure", nargs="+", choices=PARTS, default=[])
    parser.add_argument("--images", type=Path)
    parser.add_argument("--backbone", default="efficientnet_lite0")
    options = parser.parse_args()
    record = Record(RECORD, "workers of a Dask cluster on one machine")
    for part in options.measure:
        given = (options.images, options.backbone) if part == "embedding" else ()
        before = os.getloadavg()[0]
        record.measure(part, lambda part=part, given=given, load=before: PARTS[part](*given) | {"load": load})
        print(part, record.result(part), flush=True)
    write_text(PAGE, page(PAGE.read_text(encoding="utf-8"), record))


if __name__ == "__main__":
    main()
