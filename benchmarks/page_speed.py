"""Milliseconds from a key to what it shows on the labelling page, in Chromium; ``page_browser.py`` runs it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from page_driver import Server, Tab, browser, send

CLASSES = 50
KEYS = 25  # labels whose times are taken
PAUSE = 1500  # ms between an answer and the next key, after which the solver is busy with estimates and suggestions

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


def summary(times: list[float]) -> dict[str, float]:
    median, late = np.percentile(times, [50, 95])
    return {"n": len(times), "median_ms": round(float(median), 1), "p95_ms": round(float(late), 1)}


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
            times = press_keys(tab, 0)
            paused = press_keys(tab, PAUSE)
            tab.check()
        about = {"points": n, "classes": CLASSES, "load": os.getloadavg()[0]}
        at_once = {name: summary(values) for name, values in times.items()}
        return about | at_once | {f"{name}, paused": summary(values) for name, values in paused.items()}

    return measure


def press_keys(tab: Tab, pause: int) -> dict[str, list[float]]:
    """Times of some labels, each given a while after the answer to the one before."""
    tab.page.evaluate("for (const list of Object.values(window.times)) list.length = 0")
    for i in range(KEYS):
        tab.page.wait_for_timeout(pause)
        tab.press(str(i % 9 + 1))
        for _ in range(400):
            tab.page.wait_for_timeout(50)
            if len(tab.page.evaluate("window.times.settled")) > i:
                break
    return dict(tab.page.evaluate("window.times"))
