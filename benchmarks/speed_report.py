"""The tables of docs/performance.md and its figure, from the records of ``speed.py``, ``gpu_methods.py``, ``field.py``
and ``pool.py``.

.venv/bin/python benchmarks/speed_report.py
"""

from __future__ import annotations

import json
import math
import statistics
from typing import Any

import numpy as np
from figures import GREY, drawing, svg
from study import RECORDS, ROOT, fill, table

from a2lp.files import write_text

PAGE = ROOT / "docs" / "performance.md"
FIGURE = ROOT / "docs" / "assets" / "scaling.svg"
SOURCES = ("speed", "speed_cuda", "gpu_methods", "field", "pool", "pool_cuda")


def load(name: str) -> dict[str, Any]:
    """A record; nothing if it was not measured yet."""
    path = RECORDS / name
    record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return record


def number(value: float) -> str:
    """Three digits, without an exponent; at most four places."""
    places = min(4, max(0, 2 - math.floor(math.log10(abs(value))))) if value else 0
    return f"{value:,.{places}f}"


def spread(values: list[float]) -> str:
    return f"{number(statistics.median(values))} ({number(min(values))} to {number(max(values))})"


def ratios(cell: dict[str, Any], name: str, what: str) -> list[float]:
    times = cell["times"]
    return [a / b for a, b in zip(times["naive"][what], times[name][what], strict=True)]


def provenance(record: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {value}" for name, value in record["versions"].items())
    hardware = record["hardware"]
    device = "" if record.get("device", "cpu") == "cpu" else f" and {hardware['device']}"
    vectors = f" ({record['vectors']})" if "vectors" in record else ""
    commit = record["commit"] or "not recorded"
    where = f"{hardware['cpu']}, {hardware['cores']} cores{vectors}{device}"
    return f"{where}; {versions}; commit `{commit}`; {record['date'][:10]}."


def peak(record: dict[str, Any]) -> float:
    """The fastest matrix product of the run: a slower one was disturbed."""
    return float(max(value for cell in record["cells"] for value in cell["peak_flops"]))


def headline(record: dict[str, Any], engine: str) -> str:
    """One line of ratios for each number of shots and tasks."""
    rows = [["", "seconds", "`naive`, seconds", "ratio", "ratio of CPU time", "share of peak"]]
    for cell in sorted(record["cells"], key=lambda cell: (cell["n_shot"], cell["n_tasks"])):
        if engine not in cell["times"]:
            continue
        times = cell["times"]
        share = 100 * cell["flops"] / statistics.median(times[engine]["wall"]) / peak(record)
        rows.append(
            [
                f"{cell['n_shot']}-shot, {cell['n_tasks']:,} task{'s' if cell['n_tasks'] > 1 else ''}",
                spread(times[engine]["wall"]),
                number(statistics.median(times["naive"]["wall"])),
                f"**{number(statistics.median(ratios(cell, engine, 'wall')))}** "
                + spread(ratios(cell, engine, "wall")).partition(" ")[2],
                number(statistics.median(ratios(cell, engine, "cpu"))),
                f"{share:.0f} %",
            ]
        )
    if record["device"] == "cuda":  # a host that waits for a device spends no time that means anything
        rows = [row[:4] + row[5:] for row in rows]
    return table(rows[0], rows[1:])


def all_engines(record: dict[str, Any]) -> str:
    """Seconds of all engines; a column for each number of tasks."""
    sizes = sorted({cell["n_tasks"] for cell in record["cells"]})
    names = list(dict.fromkeys(name for cell in record["cells"] for name in cell["times"]))
    parts = []
    for shot in (1, 5):
        cells = {cell["n_tasks"]: cell for cell in record["cells"] if cell["n_shot"] == shot}
        rows = [[f"{shot}-shot", *(f"{size:,} task{'s' if size > 1 else ''}" for size in sizes)]]
        for name in names:
            found = [cells[size]["times"].get(name) if size in cells else None for size in sizes]
            rows.append([f"`{name}`", *(spread(times["wall"]) if times else "" for times in found)])
        parts.append(table(rows[0], rows[1:]))
    return "\n\n".join(parts)


def exponent(values: list[float], costs: list[float]) -> float:
    """The slope of a line through logarithms."""
    return float(np.polyfit(np.log(values), np.log(costs), 1)[0])


SIZES = {
    "n": "points of a task",
    "d": "dimensions",
    "s": "anchors",
    "T": "steps",
    "b": "tasks",
}


def growth(record: dict[str, Any]) -> str:
    rows = [["varied", "from", "to", "held", "fitted exponent", "of the operations"]]
    for line in record["scaling"]:
        seconds = [statistics.median(times) for times in line["seconds"]]
        held = ", ".join(f"{name} = {value}" for name, value in line["fixed"].items())
        rows.append(
            [
                f"{line['varied']}, {SIZES[line['varied']]}",
                str(line["values"][0]),
                str(line["values"][-1]),
                held,
                f"{exponent(line['values'], seconds):.2f}",
                f"{exponent(line['values'], line['operations']):.2f}",
            ]
        )
    return table(rows[0], rows[1:])


def figure(record: dict[str, Any]) -> str:
    """Seconds against each size, with the line that the counted operations would give from the middle point."""
    with drawing(10.2, 2.5) as picture:
        panels = picture.subplots(1, len(record["scaling"]), squeeze=False)[0]
        for axes, line in zip(panels, record["scaling"], strict=True):
            values, operations = line["values"], np.array(line["operations"])
            seconds = np.array([statistics.median(times) for times in line["seconds"]])
            axes.loglog(values, operations / operations[2] * seconds[2], color=GREY, ls="--", lw=1)
            axes.loglog(values, seconds, "o-", color="#0072B2", ms=4)
            axes.set_xticks(values, [str(value) for value in values], fontsize=7)
            axes.minorticks_off()
            fitted, counted = exponent(values, seconds.tolist()), exponent(values, line["operations"])
            axes.set(
                title=f"{SIZES[line['varied']]}, {line['varied']}", xlabel=f"{fitted:.2f}, operations {counted:.2f}"
            )
        panels[0].set_ylabel("seconds")
        return svg(picture)


def first_use(record: dict[str, Any]) -> str:
    found = record.get("first_use")
    if not found:
        return ""
    new, cached = found["new"], found["cached"]
    more = cached["to_first_result"] - cached["again"]
    how = "numba compiles" if record["device"] == "cpu" else "NVRTC compiles"
    return (
        f"{how} the engine at its first use. From before Python starts to the labels of one task, a new process took "
        f"{new['to_first_result']:.1f} s with nothing compiled, {cached['to_first_result']:.1f} s in the next process; "
        f"the same call again took {number(cached['again'])} s, so a process costs {more:.1f} s beside the work."
    )


def memory(record: dict[str, Any]) -> str:
    found = record.get("memory")
    if not found:
        return ""
    lines = [
        f"{line['peak'] / 1e6:,.0f} MB for {line['n_tasks']:,} tasks (the answer: {line['result'] / 1e6:,.0f} MB of it)"
        for line in found
    ]
    more = found[1]["n_tasks"] / found[0]["n_tasks"]
    growth, beside = (
        (found[1]["peak"] - part * found[1]["result"]) / (found[0]["peak"] - part * found[0]["result"])
        for part in (0, 1)
    )
    verdict = "bounded" if beside < more / 2 else "not yet bounded at these numbers"
    return (
        f"Tasks are solved in blocks. Beyond the input, 1-shot tasks took at most {' and '.join(lines)}: "
        f"{growth:.1f} times the memory for {more:.0f} times the tasks; without the answers {beside:.1f} times, "
        f"{verdict}."
    )


def conditions(record: dict[str, Any]) -> str:
    rounds = len(record["cells"][0]["peak_flops"])
    disturbance = 100 * max(cell["disturbance"] for cell in record["cells"])
    return (
        f"{rounds} rounds; torch with {record['threads']} threads. The machine's measured peak is "
        f"{peak(record) / 1e9:.0f} GFLOP/s, all cores together. Other processes took at most {disturbance:.1f} % of "
        "the machine during a measurement."
    )


def large_pools(record: dict[str, Any]) -> str:
    """Seconds and memory of each run on each pool, and what was forecast."""
    heads = ["points", "", "first answer, s", "one more label, s", "with its estimate, s", "suggest, s", "peak, GiB"]
    heads += ["forecast", "load"]
    rows = []
    for found in record["pools"]:
        name = [f"{found['points']:,} x {found['dimensions']}", found["run"]]
        if "failed" in found:
            rows.append([*name, found["failed"].split(": ", 1)[-1], *[""] * (len(heads) - 3)])
            continue
        seconds = found["seconds"]
        first = sum(value for key, value in seconds.items() if key in ("load", "label", "graph", "propagate", "fit"))
        later = [seconds.get(key) for key in ("relabel", "relabel_with_estimate", "suggest")]
        more = ["" if value is None else number(value) for value in later]
        told = ""
        if "forecast_bytes" in found:
            duration = f"{number(found['forecast_seconds'])} s, " if "forecast_seconds" in found else ""
            told = f"{duration}{number(found['forecast_bytes'] / 2**30)} GiB"
        rows.append([*name, number(first), *more, number(found["peak_bytes"] / 2**30), told, f"{found['load']:.1f}"])
    return table(heads, rows)


def methods_on_gpu(record: dict[str, Any], field: dict[str, Any]) -> str:
    """Seconds of each method for 1- and 5-shot tasks, those of one core beside them, and what its labels differ by."""
    if not record:
        return ""
    heads = ["", "engine", "1-shot", "5-shot", "one core, 1-shot", "ratio", "equal labels", "difference in accuracy"]
    rows = []
    for name in dict.fromkeys(cell.rpartition(", ")[0] for cell in record["cells"]):
        cells = [record["cells"].get(f"{name}, {n_shot}-shot", {}) for n_shot in (1, 5)]
        measured = [cell for cell in cells if "seconds" in cell]
        if not measured:
            rows.append([f"`{name}`", cells[0].get("failed", "").partition(":")[0], *[""] * (len(heads) - 2)])
            continue
        seconds = [statistics.median(cell["seconds"]) if "seconds" in cell else None for cell in cells]
        core = field["parts"].get(f"times {name}", {}).get("result", {}).get("ms")
        core = None if core is None else core * record["n_tasks"] / 1000
        ratio = None if core is None or seconds[0] is None else core / seconds[0]
        equal = 100 * min(cell["equal"] for cell in measured)
        mean, error = max((cell["difference"] for cell in measured), key=lambda pair: abs(pair[0]))
        figures = ["not measured" if value is None else number(value) for value in seconds]
        figures += ["" if value is None else number(value) for value in (core, ratio)]
        engine = f"`{measured[0]['engine']}`"
        rows.append([f"`{name}`", engine, *figures, f"{equal:.2f} %", f"{mean:+.3f} ±{error:.3f}"])
    compared = max(cell.get("compared", 0) for cell in record["cells"].values())
    note = f"Labels and accuracies are compared on the first {compared:,} of {record['n_tasks']:,} tasks."
    later: dict[str, list[str]] = {}
    for cell, found in record["cells"].items():
        if "commit" in found:
            later.setdefault(f"commit `{found['commit']}`, {found['date'][:10]}", []).append(cell)
    note += "".join(f" Measured later, {when}: {'; '.join(cells)}." for when, cells in later.items())
    return f"{provenance(record)} {note}\n\n{table(heads, rows)}"


def page(
    text: str,
    cpu: dict[str, Any],
    cuda: dict[str, Any],
    methods: dict[str, Any],
    field: dict[str, Any],
    pool: dict[str, Any],
    pool_cuda: dict[str, Any],
) -> str:
    """The text of docs/performance.md with its generated parts."""
    parts = {
        "cpu": f"{provenance(cpu)}\n\n{headline(cpu, 'fused_cpu')}",
        "cpu engines": all_engines(cpu),
        "conditions": conditions(cpu),
        "first use": f"{first_use(cpu)}\n\n{memory(cpu)}",
        "growth": growth(cpu),
        "cuda": f"{provenance(cuda)}\n\n{headline(cuda, 'fused_cuda')}",
        "cuda engines": all_engines(cuda),
        "cuda first use": f"{first_use(cuda)}\n\n{memory(cuda)}",
        "methods": methods_on_gpu(methods, field),
        "pools": f"{provenance(pool)}\n\n{large_pools(pool)}",
        "pools cuda": f"{provenance(pool_cuda)}\n\n{large_pools(pool_cuda)}",
    }
    return fill(text, "speed_report", parts)


def main() -> None:
    records = [load(f"{name}.json") for name in SOURCES]
    write_text(PAGE, page(PAGE.read_text(encoding="utf-8"), *records))
    write_text(FIGURE, figure(records[0]))


if __name__ == "__main__":
    main()
