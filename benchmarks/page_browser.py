"""What the labelling page does in a real Chromium: size, time from key to paint, keys per label, a million points, axe.

    python benchmarks/page_browser.py --measure size speed_10k speed_100k keys million accessibility hostile
    python benchmarks/page_browser.py           # prints the record, and writes its tables into docs/serve.md

Times are those of this machine, with WebGL in software where it has no graphics. Commit first: records name the commit.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from collections.abc import Callable
from functools import partial
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import numpy as np
from page_driver import HOSTILE, Server, Tab, browser, send
from page_speed import speed
from study import RECORDS, ROOT, Record, fill, table

from a2lp.files import write_text

RECORD = RECORDS / "page_browser.json"
PAGE = ROOT / "docs" / "serve.md"
EARLY = """performance.getEntriesByType("resource")
    .filter((one) => one.startTime < performance.getEntriesByName("usable")[0].startTime).map((one) => one.name)"""
WEB = ROOT / "src" / "a2lp" / "serve" / "web"
EXTRA = ("starlette", "uvicorn", "wsproto", "anyio", "h11")
KINDS = ("Arctic", "Black", "Common", "Forster", "Herring", "Little")
BIRDS = ("Auklet", "Cormorant", "Grebe", "Sparrow", "Tern")
LOOKS = {"light": {}, "dark": {"color_scheme": "dark"}, "forced": {"forced_colors": "active"}}


def size(folder: Path) -> dict[str, Any]:
    """Bytes of the page and of what the extra installs; fails where a request leaves the machine.

    Files of the page are counted as they are in the package, and as they are sent (gzip): those that it asks for before
    the grid can be used, and all of them once the map is drawn and a window was opened.
    """
    with Server(project=folder / "size") as server, browser() as context:
        tab = Tab(context, "about:blank")
        sent: dict[str, int] = {}
        tab.page.on("requestfinished", lambda request: sent.update(_file(request)))
        tab.page.goto(server.address)
        tab.ready().press(".", "x", "Escape", "?", "Escape")
        tab.page.wait_for_selector("#map.here", timeout=60_000)
        tab.page.wait_for_timeout(4000)
        early = [url.rsplit("/", 1)[1] for url in tab.page.evaluate(EARLY)]
        first = {file: size for file, size in sent.items() if file in (*early, "index.html", "favicon.svg")}
        tab.check()
        requests = len(tab.requests)
    installed = {name: sum(_size(file) for file in distribution(name).files or ()) for name in EXTRA}
    weigh = {"first": first, "all": sent}
    return {
        **{f"{name}_unpacked_bytes": sum((WEB / file).stat().st_size for file in of) for name, of in weigh.items()},
        **{f"{name}_sent_bytes": sum(of.values()) for name, of in weigh.items()},
        "requests": requests,
        "left_the_machine": 0,  # or the check above has failed
        "extra_bytes": sum(installed.values()),
    }


def _file(request: Any) -> dict[str, int]:
    """A file of the page and what it weighed on its way; nothing for data and images."""
    path = request.url.split("?")[0].rsplit("/", 1)[1] or "index.html"
    return {path: int(request.sizes()["responseBodySize"])} if (WEB / path).is_file() else {}


def _size(file: Any) -> int:
    path = Path(str(file.locate()))
    return path.stat().st_size if path.is_file() else 0


def keys(folder: Path) -> dict[str, Any]:
    """200 labels of 30 classes with the keyboard alone, by a user who types the initials of a name."""
    names = [f"{kind} {bird}" for kind in KINDS for bird in BIRDS]
    rng = np.random.default_rng(1)
    truth = rng.integers(0, len(names), 3000)
    points = 3 * rng.normal(size=(len(names), 32))[truth] + rng.normal(size=(3000, 32))
    np.savez(folder / "keys.npz", features=points.astype(np.float32))
    (folder / "names.txt").write_text("\n".join(names), encoding="utf-8")
    pressed, given = [], {}
    started = Server(folder / "keys.npz", "--names", folder / "names.txt", project=folder / "keys")
    with started as server, browser() as context:
        tab = Tab(context, server.address).ready()
        pins = {one["name"]: one["pin"] for one in tab.api("/api/state")["classes"]}
        tab.press(".")
        for _ in range(200):
            row = tab.suggested()
            given[row] = names[truth[row]]
            pressed.append(type_name(tab, given[row], pins[given[row]]))
        tab.saved()
        wrong = sum(tab.labels().get(row) != name for row, name in given.items())
        tab.check()
    median, mean = statistics.median(pressed), round(statistics.mean(pressed), 2)
    return {"labels": len(given), "classes": len(names), "wrong": wrong, "median_keys": median, "mean_keys": mean}


def type_name(tab: Tab, name: str, pin: str | None) -> int:
    """Label the current point; the number of keys: a pinned one, or initials until the name is chosen, and Enter."""
    if pin:
        tab.press(pin)
        return 1
    letters = [word[0].lower() for word in name.split()]
    chosen = tab.page.locator("#palette-list [aria-selected=true] .name")
    for count, key in enumerate([*letters, *["ArrowDown"] * 9], start=1):
        tab.press(key)
        tab.page.wait_for_selector("#palette[open]")
        if chosen.inner_text() == name:
            tab.press("Enter")
            return count + 1
    raise RuntimeError(f"the palette does not offer {name}")


def million(folder: Path) -> dict[str, Any]:
    """The page with a million points; the server's answers are made up, since only the page is measured."""
    n = 1_000_000
    rng = np.random.default_rng(0)
    counts = {"yours": 1, "accepted": 0, "unseen": 0, "predicted": n // 50, "gone": False}
    classes = [{"id": i, "name": f"class {i}", "pin": str(i + 1) if i < 9 else None, **counts} for i in range(50)]
    state = {"phase": "ready", "source": "million", "n": n, "seq": 1, "classes": classes, "map": True, "counts": counts}
    codes, sure = rng.integers(0, 50, n).astype("<u2"), rng.integers(0, 256, n).astype("u1")
    rows = np.array([1, n], "<u4").tobytes() + codes.tobytes() + sure.tobytes() + bytes(n)
    places = np.array([n], "<u4").tobytes() + rng.integers(0, 65536, 2 * n).astype("<u2").tobytes()
    with Server(project=folder / "million") as server, browser() as context:
        page = Tab(context, "about:blank").page
        page.route("**/api/state", lambda route: route.fulfill(json=state))
        page.route("**/api/rows", lambda route: route.fulfill(body=rows, content_type="application/octet-stream"))
        page.route("**/api/map", lambda route: route.fulfill(body=places, content_type="application/octet-stream"))
        page.route("**/api/points*", lambda route: route.fulfill(json=[]))
        page.route_web_socket("**/ws*", lambda socket: None)
        page.goto(server.address)
        page.wait_for_selector("#map.here", timeout=120_000)
        page.wait_for_timeout(4000)
        lasso = _lasso_time(page)
        page.locator("#grid").focus()
        last = page.evaluate("""async () => {
            const grid = document.getElementById("grid");
            grid.scrollTop = grid.scrollHeight;
            await new Promise((resolve) => setTimeout(resolve, 800));
            const cells = [...grid.querySelectorAll("[data-row]")];
            const box = grid.getBoundingClientRect();
            const seen = cells.filter((cell) => cell.getBoundingClientRect().bottom <= box.bottom + 1);
            const line = seen.at(-1).parentElement.ariaRowIndex;
            return {cells: cells.length, height: grid.firstElementChild.clientHeight, end: line === grid.ariaRowCount};
        }""")
        page.keyboard.press("End")
        page.wait_for_timeout(500)
        most = page.locator("[role=gridcell][data-row]").count()
    cells = max(most, last["cells"])
    return {"points": n, "lasso_ms": lasso, "cells": cells, "end_reached": last["end"], "scrolled_px": last["height"]}


def _lasso_time(page: Any) -> float:
    """Milliseconds from letting the button go to the selection, median of five loops."""
    box = page.locator("#over").bounding_box()
    page.evaluate("""() => {
        window.loops = [];
        let since = 0;
        const over = document.getElementById("over");
        over.addEventListener("pointerup", () => { since = performance.now(); }, true);
        document.addEventListener("pointerup", () => window.loops.push(performance.now() - since));
    }""")
    for k in range(5):
        page.mouse.move(box["x"] + 40, box["y"] + 40 + k)
        page.mouse.down()
        for x, y in ((250, 50), (300, 250), (60, 220)):
            page.mouse.move(box["x"] + x, box["y"] + y, steps=6)
        page.mouse.up()
        page.wait_for_timeout(2500)
    return round(statistics.median(page.evaluate("window.loops")), 1)


def accessibility(folder: Path) -> dict[str, Any]:
    """Violations that axe finds on the page, in palette and help; whether the focus survives a regrouping."""
    from axe_playwright_python.sync_playwright import Axe

    found = {}
    with Server(project=folder / "axe") as server:
        for name, look in LOOKS.items():
            with browser(**look) as context:
                tab = Tab(context, server.address).ready()
                count = 0
                for opened, shown in (((), "#grid"), (("x",), "#palette[open]"), (("Escape", "?"), "#help[open]")):
                    tab.press(*opened)
                    tab.page.wait_for_selector(shown)
                    count += len(Axe().run(tab.page).response["violations"])
                tab.press("Escape")
                found[name] = count
                for text in ("left", "right"):
                    tab.name(text)
                row = tab.current()
                tab.page.wait_for_timeout(3500)  # sorted again by itself
                found[f"focus kept, {name}"] = tab.current() == row
    return found


def hostile(folder: Path) -> dict[str, Any]:
    """Names that would be scripts: how many are shown as they are, as classes and in the palette; CSP reports."""
    import pandas

    vectors = pandas.DataFrame(np.random.default_rng(0).normal(size=(40, 4)), columns=[f"f{i}" for i in range(4)])
    files = [f"{HOSTILE[i % len(HOSTILE)]} {i}" for i in range(40)]
    vectors.assign(file=files).to_parquet(folder / "points.parquet")
    (folder / "names.txt").write_text("\n".join(HOSTILE), encoding="utf-8")
    started = Server(folder / "points.parquet", "--names", folder / "names.txt", project=folder / "hostile")
    with started as server, browser() as context:
        tab = Tab(context, server.address).ready()
        tab.page.on("dialog", lambda dialog: tab.problems.append(f"dialog: {dialog.message}"))
        tab.press("ArrowRight")
        for i, name in enumerate(HOSTILE):
            send(tab, "label", rows=[i], label=name)
        tab.page.wait_for_timeout(3000)
        classes = set(tab.page.locator("#classes .name").all_text_contents())
        keys = {text for text in tab.page.locator("#grid .cell .key").all_text_contents() if text}
        offered = set()
        for name in HOSTILE:
            tab.page.locator("#do-label").click()
            tab.page.wait_for_selector("#palette[open]")
            tab.page.locator("#palette-input").fill(name)
            offered.add(tab.page.locator("#palette-list [aria-selected=true] .name").inner_text())
            tab.press("Escape")
        reports = len(tab.page.evaluate("window.violations"))
        tab.check()
    shown = sum(name in classes and name in offered for name in HOSTILE)
    return {"names": len(HOSTILE), "as_text": shown, "files_as_text": len(keys & set(files)), "csp_reports": reports}


PARTS: dict[str, Callable[[Path], dict[str, Any]]] = {
    "size": size,
    "speed_10k": speed(10_000),
    "speed_100k": speed(100_000),
    "keys": keys,
    "million": million,
    "accessibility": accessibility,
    "hostile": hostile,
}


def page(text: str, record: Record) -> str:
    """The page with its generated parts."""
    sizes = [record.result(f"speed_{name}") for name in ("10k", "100k")]
    what = {
        "painted": "the label is painted",
        "touched": "the points near it change",
        "settled": "all points are labelled again",
    }
    rows, heads, load = [], [""], ""
    if all(sizes):
        small, large = (size["load"] for size in sizes)
        load = f"\n\nLoad averages at the end: {small:.1f} and {large:.1f}."
        heads += [head for size in sizes for head in (f"{size['points']:,} points", "after 1.5 s")]
        for kind, name in what.items():
            of = [size[f"{kind}{when}"] for size in sizes for when in ("", ", paused")]
            rows.append([name, *(f"{one['median_ms']:,.0f} / {one['p95_ms']:,.0f}" for one in of)])
    starts = (record.result("demo") or {"starts": []})["starts"]
    return fill(text, "speed", {"table": table(heads, rows) + load, "demo": _demo(starts)})


def _demo(starts: list[dict[str, float]]) -> str:
    if not starts:
        return ""
    first, *later = [start["first_paint_s"] for start in starts]
    pictures = [start["pictures_s"] for start in starts]
    return (
        f"In an environment with nothing else installed and no network, the page was painted {first:.1f} s after the "
        f"first such command and\n{min(later):.1f} to {max(later):.1f} s after {len(later)} more, and the grid had its "
        f"pictures after {min(pictures):.1f} to {max(pictures):.1f} s (two cores, the browser open already)."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measure", nargs="*", choices=PARTS, default=[], help="parts to measure")
    chosen = parser.parse_args().measure
    record = Record(RECORD, "the labelling page in Chromium")
    for name in chosen:
        with tempfile.TemporaryDirectory() as folder:
            record.measure(name, partial(PARTS[name], Path(folder)))
    write_text(PAGE, page(PAGE.read_text(encoding="utf-8"), record))
    print(json.dumps({name: part["result"] for name, part in record.parts.items()}, indent=2))


if __name__ == "__main__":
    main()
