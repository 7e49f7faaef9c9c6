"""A picture of every state of the labelling page, to look at: ``python benchmarks/page_states.py FOLDER``.

The demo where it has the state; made-up answers of the server for 100,000 points, 200 classes, loading and failure.
Nothing is compared: somebody has to look.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from page_driver import Server, Tab, find_browser
from page_screenshots import label

WIDE = {"viewport": {"width": 1360, "height": 850}}
PHONE = {"viewport": {"width": 360, "height": 740}, "device_scale_factor": 2, "has_touch": True}
TABLET = {"viewport": {"width": 820, "height": 1100}}
HUGE = {"viewport": {"width": 3840, "height": 2160}}
DARK = {"color_scheme": "dark"}
BIRDS = ("Auklet", "Bunting", "Cormorant", "Flycatcher", "Gull", "Sparrow", "Tern", "Vireo", "Warbler", "Woodpecker")
KINDS = ("Arctic", "Black-throated", "Common", "Downy", "European", "Forster's", "Great Crested", "Hooded", "Indigo")


def made_up(n: int, n_classes: int, images: bool = False) -> dict[str, Any]:
    """Answers of a server with many points or classes."""
    rng = np.random.default_rng(0)
    codes = rng.integers(0, n_classes, n)
    middle = rng.uniform(0.08, 0.92, (n_classes, 2))
    places = np.clip(middle[codes] + rng.normal(size=(n, 2)) * 0.02, 0, 1)
    names = [f"{KINDS[i % len(KINDS)]} {BIRDS[i // len(KINDS) % len(BIRDS)]}" for i in range(n_classes)]
    names = [name if i < 90 else f"{name} {i // 90 + 1}" for i, name in enumerate(names)]
    flags = np.where(rng.random(n) < 0.01, 1, 0)
    counts = np.bincount(codes, minlength=n_classes)
    yours = np.bincount(codes[flags == 1], minlength=n_classes)
    classes = [
        {
            "id": i,
            "name": name,
            "pin": str(i + 1) if i < 9 else None,
            "yours": int(yours[i]),
            "accepted": 0,
            "unseen": 0,
        }
        | {"predicted": int(counts[i] - yours[i]), "gone": False}
        for i, name in enumerate(names)
    ]
    state = {"phase": "ready", "source": "birds", "n": n, "seq": 1, "classes": classes, "map": True, "images": images}
    state |= {"counts": {"yours": int(flags.sum()), "doubtful": n // 5}, "can_undo": True, "curve": _curve()}
    state |= {"accuracy": {"value": 0.87, "low": 0.83, "high": 0.9, "seq": 1}, "forecast": {"n": 20, "gain": 0.006}}
    state["suggestions"] = [
        {"row": 7 * i, "why": "typical of 40 points near it, between Gull and Tern"} for i in range(20)
    ]
    sure = rng.integers(80, 256, n)
    head = np.array([1, n], "<u4").tobytes()
    rows = head + codes.astype("<u2").tobytes() + sure.astype("u1").tobytes() + flags.astype("u1").tobytes()
    places = np.round(65535 * places).astype("<u2")
    return {"state": state, "rows": rows, "map": np.array([n], "<u4").tobytes() + places.T.tobytes()}


def _curve() -> list[list[float]]:
    return [[20 * i, 0.9 - 0.5 / i, 0.84 - 0.6 / i, min(1, 0.95 - 0.3 / i)] for i in range(1, 20)]


class Album:
    """Pictures in a folder."""

    def __init__(self, folder: Path, chromium: Any) -> None:
        self.folder, self.chromium = folder, chromium
        folder.mkdir(parents=True, exist_ok=True)

    def tab(self, address: str, **look: Any) -> Tab:
        """A page that is ready."""
        tab = Tab(self.chromium.new_context(**look), address).ready()
        tab.page.wait_for_timeout(1500)
        return tab

    def keep(self, tab: Tab, name: str) -> None:
        """A picture of what it shows now."""
        tab.page.wait_for_timeout(400)
        tab.page.screenshot(path=self.folder / f"{name}.png")
        print(name, flush=True)

    def fake(self, address: str, answers: dict[str, Any], name: str, **look: Any) -> None:
        """A picture of the page with made-up answers; a state alone is one before the grid."""
        tab = Tab(self.chromium.new_context(**look), "about:blank")
        page = tab.page
        page.route("**/api/state", lambda route: route.fulfill(json=answers["state"]))
        for what in ("rows", "map"):
            if what in answers:
                page.route(f"**/api/{what}", _sends(answers[what]))
        page.route("**/api/points*", lambda route: route.fulfill(json=[]))
        page.route_web_socket("**/ws*", lambda socket: socket.send(json.dumps({"type": "state", **answers["state"]})))
        page.goto(address)
        page.wait_for_timeout(5000)
        self.keep(tab, name)
        tab.page.close()


def _sends(body: bytes) -> Callable[[Any], None]:
    return lambda route: route.fulfill(body=body, content_type="application/octet-stream")


def demo(album: Album, server: Server) -> None:
    """The demo from the first look to the end."""
    tab = album.tab(server.address, **WIDE)
    album.keep(tab, "01-start")
    album.keep(album.tab(server.address, **WIDE, **DARK), "02-start-dark")
    album.keep(album.tab(server.address, **PHONE), "03-start-phone")
    tab.page.wait_for_selector("#map.here", timeout=60_000)
    tab.press("z")
    album.keep(tab, "04-palette-new-class")
    tab.press("Escape")
    label(tab, 25)
    album.keep(tab, "05-queue")
    tab.page.locator("#facets [data-facet=all]").click()
    tab.press("Home", "ArrowRight", "Shift+ArrowDown")
    album.keep(tab, "06-selection")
    tab.press("Escape", "Shift+Enter")
    album.keep(tab, "07-accepted")
    for key, name in (("?", "08-help"), ("Control+Enter", "09-large"), ("Control+Shift+Enter", "10-review")):
        tab.press(key)
        album.keep(tab, name)
        tab.press("Escape")
    tab.page.locator("#classes .more").first.click(force=True)
    album.keep(tab, "11-class")
    tab.press("Escape")
    tab.page.locator("#export summary").click()
    album.keep(tab, "12-export")
    tab.page.locator("#export summary").click()
    tab.page.locator("#search").fill("nothing like this")
    album.keep(tab, "13-nothing-found")
    tab.page.locator("#facets [data-facet=all]").click()
    tab.page.locator("#map-list").click()
    album.keep(tab, "14-neighbours-as-list")
    tab.page.locator("#map-list").click()
    tab.page.locator("#audit").click()
    album.keep(tab, "15-audit")
    tab.page.locator("#audit").click()


def looks(album: Album, server: Server) -> None:
    """The same state on other screens, then without a server."""
    album.keep(album.tab(server.address, **WIDE, **DARK), "20-dark")
    album.keep(album.tab(server.address, **WIDE, forced_colors="active"), "21-forced-colours")
    album.keep(album.tab(server.address, **TABLET), "22-tablet")
    album.keep(album.tab(server.address, **HUGE), "23-4k")
    phone = album.tab(server.address, **PHONE)
    for part in ("centre", "next", "right", "left"):
        phone.page.locator(f"#tabs [data-show={part}]").click()
        phone.page.wait_for_timeout(800)
        album.keep(phone, f"24-phone-{part}")
    phone.page.locator("#tabs [data-show=centre]").click()
    phone.page.locator("#grid [data-row]").nth(4).click()
    phone.page.locator("#act-label-button").click()
    album.keep(phone, "25-phone-palette")
    lost = album.tab(server.address, **WIDE)
    lost.page.context.set_offline(True)
    lost.page.locator("#grid [data-row]").nth(3).click()
    lost.name("made offline")
    lost.page.wait_for_timeout(1500)
    album.keep(lost, "26-offline")
    lost.page.context.set_offline(False)
    lost.page.wait_for_timeout(2500)
    server.kill()
    lost.page.wait_for_timeout(1500)
    album.keep(lost, "27-server-gone")


def main() -> None:
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        album = Album(Path(sys.argv[1]), playwright.chromium.launch(executable_path=find_browser()))
        with Server(project=Path(name) / "demo") as server:
            for look, suffix in ((WIDE, ""), (DARK | WIDE, "-dark"), (PHONE, "-phone")):
                album.fake(server.address, made_up(100_000, 50), f"30-100000-points{suffix}", **look)
                album.fake(server.address, made_up(6_000, 200), f"31-200-classes{suffix}", **look)
            loading = {"phase": "loading", "doing": "embedding", "done": 812, "total": 2953, "source": "birds"}
            album.fake(server.address, {"state": loading}, "32-loading", **WIDE)
            album.fake(server.address, {"state": loading}, "32-loading-phone", **PHONE)
            failed = {
                "phase": "failed",
                "message": "photos/a.jpg cannot be read (truncated). Remove it, or copy it anew.",
            }
            album.fake(server.address, {"state": failed | {"source": "birds"}}, "33-failed", **WIDE)
            demo(album, server)
            looks(album, server)


if __name__ == "__main__":
    main()
