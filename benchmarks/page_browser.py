"""What the labelling page does in a real Chromium: size, time from key to paint, keys per label, a million points, axe.

    python benchmarks/page_browser.py --measure size speed_10k speed_100k keys million accessibility
    python benchmarks/page_browser.py           # prints the record

Times are those of this machine, with WebGL in software where it has no graphics. Commit first: records name the commit.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import numpy as np
from page_driver import Server, Tab, find_browser
from study import RECORDS, Record

RECORD = RECORDS / "page_browser.json"
EXTRA = ("starlette", "uvicorn", "wsproto", "anyio", "h11")
CLASSES = 50
KINDS = ("Arctic", "Black", "Common", "Forster", "Herring", "Little")
BIRDS = ("Auklet", "Cormorant", "Grebe", "Sparrow", "Tern")
LOOKS = {"light": {}, "dark": {"color_scheme": "dark"}, "forced": {"forced_colors": "active"}}
KEYS = 25  # labels whose times are taken

# from the key to the frame with the label, to the first news of the server, and to the full answer
CLOCK = """() => {
  window.times = {painted: [], touched: [], settled: []};
  const after = (what) => requestAnimationFrame(() => {
    const channel = new MessageChannel();
    channel.port1.onmessage = what;
    channel.port2.postMessage(0);
  });
  let since = 0, seq = 0, solving = false, waiting = new Set();
  addEventListener("keydown", (event) => {
    if (!/^[1-9]$/.test(event.key)) return;
    since = event.timeStamp;
    seq = Number(document.documentElement.dataset.seq);
    waiting = new Set(["touched", "settled"]);
    solving = false;
    after(() => window.times.painted.push(performance.now() - since));
  }, true);
  new MutationObserver(() => {
    const {dataset} = document.documentElement;
    const late = (what) => {
      waiting.delete(what);
      const start = since;
      after(() => window.times[what].push(performance.now() - start));
    };
    solving ||= dataset.settling === "true";
    if (waiting.has("touched") && Number(dataset.seq) > seq) late("touched");
    if (waiting.has("settled") && solving && dataset.settling === "false") late("settled");
  }).observe(document.documentElement, {attributes: true});
}"""


def vectors(folder: Path, n: int) -> tuple[Path, Any]:
    """Points of some classes, and what they are."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, CLASSES, n)
    points = rng.normal(size=(CLASSES, 64))[labels] + 0.9 * rng.normal(size=(n, 64))
    path = folder / f"points_{n}.npz"
    np.savez(path, features=points.astype(np.float32))
    return path, labels


@contextlib.contextmanager
def browser(**options: Any) -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=find_browser())
        yield chromium.new_context(**{"viewport": {"width": 1440, "height": 900}, **options})
        chromium.close()


def send(tab: Tab, op: str, **more: Any) -> None:
    """A command beside the page, to prepare what is measured."""
    script = """async (command) => {
        const key = document.querySelector("meta[name=a2lp-key]").content;
        const body = JSON.stringify({id: crypto.randomUUID(), ...command});
        const answer = await fetch("/api/commands", {method: "POST", headers: {"X-A2LP-Key": key}, body});
        if (!answer.ok) throw new Error(await answer.text());
    }"""
    tab.page.evaluate(script, {"op": op, **more})


def summary(times: list[float]) -> dict[str, float]:
    median, late = np.percentile(times, [50, 95])
    return {"n": len(times), "median_ms": round(float(median), 1), "p95_ms": round(float(late), 1)}


def size(folder: Path) -> dict[str, Any]:
    """Bytes of the page and of what the extra installs; fails where a request leaves the machine."""
    sent: list[int] = []
    with Server(project=folder / "size") as server, browser() as context:
        tab = Tab(context, "about:blank")
        tab.page.on("requestfinished", lambda request: sent.append(_bytes(request)))
        tab.page.goto(server.address)
        tab.ready()
        tab.press(".", "x", "Escape", "?", "Escape")
        tab.page.wait_for_timeout(2000)
        tab.check()
        requests = len(tab.requests)
    installed = {name: sum(_size(file) for file in distribution(name).files or ()) for name in EXTRA}
    return {"page_bytes": sum(sent), "requests": requests, "extra_bytes": sum(installed.values())}


def _bytes(request: Any) -> int:
    """What a file of the page weighed on its way; 0 for data and images."""
    path = request.url.split("?")[0]
    own = path.endswith((".js", ".css", ".svg")) or path.count("/") == 3
    return int(request.sizes()["responseBodySize"]) if own else 0


def _size(file: Any) -> int:
    path = Path(str(file.locate()))
    return path.stat().st_size if path.is_file() else 0


def speed(n: int) -> Callable[[Path], dict[str, Any]]:
    def measure(folder: Path) -> dict[str, Any]:
        source, labels = vectors(folder, n)
        with Server(source, project=folder / f"speed_{n}") as server, browser() as context:
            tab = Tab(context, server.address)
            tab.page.wait_for_selector("html[data-phase=ready]", timeout=1_800_000)
            for code in range(CLASSES):
                send(tab, "label", rows=np.flatnonzero(labels == code)[:5].tolist(), label=f"class {code}")
            tab.page.wait_for_timeout(1000)
            tab.page.wait_for_selector("html[data-settling=false]", timeout=600_000)
            tab.page.wait_for_selector("#map.here", timeout=1_800_000)
            tab.page.wait_for_timeout(3000)
            tab.page.locator("#facets [data-facet=open]").click()
            tab.page.wait_for_timeout(1000)
            tab.page.evaluate(CLOCK)
            for i in range(KEYS):
                settled = len(tab.page.evaluate("window.times.settled"))
                tab.press(str(i % 9 + 1))
                for _ in range(400):
                    tab.page.wait_for_timeout(50)
                    if len(tab.page.evaluate("window.times.settled")) > settled:
                        break
            times = tab.page.evaluate("window.times")
            tab.check()
        about = {"points": n, "classes": CLASSES, "load": os.getloadavg()[0]}
        return about | {name: summary(values) for name, values in times.items()}

    return measure


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
            pressed.append(_type(tab, given[row], pins[given[row]]))
        tab.saved()
        wrong = sum(tab.labels().get(row) != name for row, name in given.items())
        tab.check()
    median, mean = statistics.median(pressed), round(statistics.mean(pressed), 2)
    return {"labels": len(given), "classes": len(names), "wrong": wrong, "median_keys": median, "mean_keys": mean}


def _type(tab: Tab, name: str, pin: str | None) -> int:
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
                for opened in ((), ("x",), ("Escape", "?"), ("Escape",)):
                    tab.press(*opened)
                    count += len(Axe().run(tab.page).response["violations"])
                found[name] = count
                for text in ("left", "right"):
                    tab.name(text)
                row = tab.current()
                tab.page.wait_for_timeout(3500)  # sorted again by itself
                found[f"focus kept, {name}"] = tab.current() == row
    return found


PARTS: dict[str, Callable[[Path], dict[str, Any]]] = {
    "size": size,
    "speed_10k": speed(10_000),
    "speed_100k": speed(100_000),
    "keys": keys,
    "million": million,
    "accessibility": accessibility,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measure", nargs="*", choices=PARTS, default=[], help="parts to measure")
    chosen = parser.parse_args().measure
    record = Record(RECORD, "the labelling page in Chromium")
    for name in chosen:
        with tempfile.TemporaryDirectory() as folder:
            record.measure(name, partial(PARTS[name], Path(folder)))
    print(json.dumps({name: part["result"] for name, part in record.parts.items()}, indent=2))


if __name__ == "__main__":
    main()
