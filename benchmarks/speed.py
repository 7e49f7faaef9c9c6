"""Every engine against ``naive``, in one interleaved run on the same tasks.

    make speed                                     # this machine's cores; then docs/performance.md
    .venv/bin/python benchmarks/speed.py --quick   # two rounds of 20 tasks, printed and not kept
    .venv/bin/python benchmarks/speed.py --device cuda

Tasks are drawn from the bundled features: 5-way, 1- and 5-shot, 75 queries, 640 dimensions. Seconds are for the
paper's 1000 steps. ``naive`` and ``batched`` are timed as a slope over some steps after a warm-up, since 1000 would
take hours; compiled engines run all 1000, and their time is that of the whole call. A round times every engine once,
in an order that is reversed with every round; ratios are taken within a round.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import costs
import numpy as np
import torch
from naive import Naive

import a2lp
from a2lp import features
from a2lp.doctor import vector_instructions
from a2lp.environment import commit, stamp
from a2lp.files import write_text
from a2lp.preprocess import l2
from a2lp.tasks.samplers import draw

RECORDS = Path(__file__).parent / "records"
STEPS = 1000
WARM_UP = 3
CORES = os.cpu_count() or 1
SMALL = 100  # tasks up to which one thread may be as fast for naive as all
REFERENCE_TASKS = 20  # it solves one task after another: more tasks show nothing new
WAYS, QUERIES = 5, 15
DISTURBED = 0.03  # share of all cores that other processes may take during a measurement


class Seconds(NamedTuple):
    """What 1000 steps take."""

    wall: float
    cpu: float


class Timed(NamedTuple):
    """An engine on a batch: a call of ``measure`` is one measurement."""

    name: str
    how: str
    measure: Callable[[], Seconds]


class Clock:
    """Wall and CPU time of a call, waiting for a device that works on its own."""

    def __init__(self, device: str) -> None:
        self.wait: Callable[[], object] = torch.cuda.synchronize if device == "cuda" else lambda: None

    def __call__(self, work: Callable[[], object]) -> Seconds:
        self.wait()
        wall, cpu = time.perf_counter(), time.process_time()
        work()
        self.wait()
        return Seconds(time.perf_counter() - wall, time.process_time() - cpu)


def enough_steps(seconds_each: float) -> int:
    """So many that they take half a second; at least 5, at most 100."""
    return int(np.clip(0.5 / seconds_each, 5, 100))


def naive(batch: a2lp.TaskBatch, clock: Clock, threads: int) -> Timed:
    points, codes = torch.asarray(l2(batch.points)), torch.asarray(batch.codes)
    run = Naive(points, codes, batch.n_classes)
    torch.set_num_threads(threads)
    count = enough_steps(min(clock(run.step).wall for _ in range(WARM_UP)))

    def measure() -> Seconds:
        torch.set_num_threads(threads)
        run.step()  # the others have used the caches since
        found = clock(lambda: [run.step() for _ in range(count)])
        torch.set_num_threads(CORES)
        return Seconds(*(STEPS / count * x for x in found))

    name = "naive" if threads == CORES else "naive (1 thread)"
    return Timed(name, f"slope over {count} steps after {WARM_UP + 1}", measure)


def predict(batch: a2lp.TaskBatch, engine: str, steps: int) -> Callable[[], a2lp.Prediction]:
    method = a2lp.create("a2lp", engine=engine, steps=steps)
    return lambda: method.predict(batch)


def by_slope(name: str, batch: a2lp.TaskBatch, engine: str, clock: Clock) -> Timed:
    """Steps alone: what a longer run takes more than a shorter one."""
    short = predict(batch, engine, WARM_UP)
    short()
    count = enough_steps(clock(predict(batch, engine, 2 * WARM_UP)).wall / (2 * WARM_UP))
    long = predict(batch, engine, WARM_UP + count)

    def measure() -> Seconds:
        return Seconds(*(STEPS / count * (b - a) for a, b in zip(clock(short), clock(long), strict=True)))

    return Timed(name, f"slope over {count} steps after {WARM_UP}", measure)


def whole(name: str, batch: a2lp.TaskBatch, engine: str, clock: Clock) -> Timed:
    """All steps, with all that a call of ``predict`` does besides."""
    predict(batch[:1], engine, 2)()  # compiles
    predict(batch, engine, 2)()
    work = predict(batch, engine, STEPS)
    return Timed(name, f"all {STEPS} steps, the whole call", lambda: clock(work))


def timed_engines(batch: a2lp.TaskBatch, device: str, clock: Clock) -> list[Timed]:
    as_torch = a2lp.TaskBatch(
        torch.asarray(batch.support).to(device), batch.support_labels, torch.asarray(batch.query).to(device)
    )
    makers = [lambda: naive(as_torch, clock, CORES)]
    if device == "cuda":
        makers.append(lambda: by_slope("batched", as_torch, "batched", clock))
        makers.append(lambda: whole("fused_cuda", as_torch, "fused_cuda", clock))
    else:
        if len(batch) <= SMALL:
            makers.append(lambda: naive(as_torch, clock, 1))
        if len(batch) <= REFERENCE_TASKS:
            makers.append(lambda: by_slope("reference", batch, "reference", clock))
        makers.append(lambda: by_slope("batched (torch)", as_torch, "batched", clock))
        makers.append(lambda: by_slope("batched", batch, "batched", clock))
        makers.append(lambda: whole("fused_cpu", batch, "fused_cpu", clock))
    found = []
    for make in makers:
        try:
            found.append(make())
        except (a2lp.A2LPError, RuntimeError) as error:  # the rest can still be timed
            print(f"left out: {type(error).__name__}: {error}")
    return found


def undisturbed(measure: Callable[[], Seconds]) -> tuple[Seconds, float]:
    """A measurement, repeated once if other processes took much of the machine; with the share that they took.

    Threads that wait for each other suffer most from other work: beside one busy process, naive takes many times as
    long.
    """
    for _ in range(2):
        wall, own, all_ = time.perf_counter(), time.process_time(), costs.busy_seconds()
        seconds = measure()
        others = costs.busy_seconds() - all_ - (time.process_time() - own)
        share = max(0.0, others / (time.perf_counter() - wall) / CORES)
        if share < DISTURBED:
            break
    return seconds, share


def cell(n_shot: int, n_tasks: int, device: str, rounds: int) -> dict[str, Any]:
    """All engines on the same tasks."""
    cub = features.load("cub")
    tasks = draw("balanced", cub.labels, seed=0, n_way=WAYS, n_shot=n_shot, n_query=QUERIES, n_tasks=n_tasks)
    batch = tasks.batch(cub.features)
    clock = Clock(device)
    engines = timed_engines(batch, device, clock)
    times: dict[str, list[Seconds]] = {one.name: [] for one in engines}
    peaks, disturbance = [], []
    for turn in range(rounds):
        peaks.append(costs.peak_flops(device))
        for one in engines[:: -1 if turn % 2 else 1]:
            seconds, others = undisturbed(one.measure)
            times[one.name].append(seconds)
            disturbance.append(others)
    operations = costs.multiply_adds(batch.n_support, batch.n_query, batch.n_dims, batch.n_classes)
    return {
        "n_shot": n_shot,
        "n_tasks": n_tasks,
        "n_dims": batch.n_dims,
        "flops": 2.0 * operations * n_tasks * STEPS,
        "peak_flops": peaks,
        "disturbance": round(max(disturbance), 4),
        "times": {
            one.name: {
                "how": one.how,
                "wall": [round(t.wall, 6) for t in times[one.name]],
                "cpu": [round(t.cpu, 6) for t in times[one.name]],
            }
            for one in engines
        },
    }


def show(found: dict[str, Any]) -> None:
    print(f"\n{found['n_shot']}-shot, {found['n_tasks']} tasks: seconds for {STEPS} steps, median (least to most)")
    slow = found["times"]["naive"]["wall"]
    peak = max(found["peak_flops"])
    for name, times in found["times"].items():
        wall = statistics.median(times["wall"])
        print(
            f"  {name:16}{spread(times['wall'], '.4g'):32}"
            f"CPU {statistics.median(times['cpu']):<9.4g}"
            f"naive/it {spread([a / b for a, b in zip(slow, times['wall'], strict=True)], '.1f'):24}"
            f"{100 * found['flops'] / wall / peak:5.1f} % of peak   {times['how']}",
            flush=True,
        )


def spread(values: Sequence[float], style: str) -> str:
    return f"{statistics.median(values):{style}} ({min(values):{style}} to {max(values):{style}})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--quick", action="store_true", help="two rounds of 20 tasks; keeps no record without --out")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, help="where the record goes")
    parser.add_argument("--commit", metavar="HASH", help="the commit of the code, on a machine without a checkout")
    options = parser.parse_args()
    device, quick = options.device, options.quick
    torch.set_num_threads(CORES)
    torch.backends.cuda.matmul.allow_tf32 = False
    commit()  # remembered from here on: the tree may be edited while it runs
    start = time.perf_counter()
    cells = []
    for n_tasks in (20,) if quick else (1, 20, 100, 1000):
        for n_shot in (1, 5):
            cells.append(cell(n_shot, n_tasks, device, rounds=2 if quick else options.rounds))
            show(cells[-1])
    record: dict[str, Any] = {"device": device, "steps": STEPS, "cells": cells}
    if not quick:
        record["memory"] = costs.memory(device)
        record["first_use"] = costs.first_use(device)
        if device == "cpu":
            record["vectors"] = vector_instructions()
            record["scaling"] = costs.scaling()
    record |= {
        "threads": CORES,
        "seconds": round(time.perf_counter() - start, 1),
    } | stamp(device)
    if options.commit is not None:
        record["commit"] = options.commit
    path = options.out or (None if quick else RECORDS / ("speed_cuda.json" if device == "cuda" else "speed.json"))
    print(f"\n{record['seconds']:.0f} s in all")
    worst = max(found["disturbance"] for found in cells)
    if worst > DISTURBED:
        print(f"note: other processes took up to {100 * worst:.0f} % of the machine; measure again when it is quiet.")
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, json.dumps(record, indent=1) + "\n")
        print(f"record: {path}")


if __name__ == "__main__":
    main()
