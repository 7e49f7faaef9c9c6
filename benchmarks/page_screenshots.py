"""The pictures of docs/serve.md, taken from the demo: ``python benchmarks/page_screenshots.py``.

Digits are labelled by following the queue with their true names; nothing else than the demo's data is shown.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from page_driver import ROOT, Server, Tab, find_browser
from PIL import Image

ASSETS = ROOT / "docs" / "assets"
NAMES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
LABELS = 40


def label(tab: Tab, n: int) -> None:
    """Follow the queue for n labels."""
    from sklearn.datasets import load_digits

    truth = load_digits().target
    tab.press(".")
    for _ in range(n):
        tab.name(NAMES[truth[tab.suggested()]])
        tab.page.wait_for_timeout(1200)  # a user's pace, which the forecast shows
    tab.settled()
    tab.page.wait_for_timeout(6000)  # sorted again, accuracy estimated


def shoot(page: Any, name: str) -> None:
    path = ASSETS / f"serve-{name}.png"
    page.screenshot(path=path)
    Image.open(path).convert("RGB").save(path, optimize=True)
    print(f"{path.name}: {path.stat().st_size // 1024} kB")


def lasso(tab: Tab) -> None:
    """Draw a loop around the sixes, which lie on the right below, and keep the button down."""
    box = tab.page.locator("#over").bounding_box()
    places = ((0.61, 0.76), (0.71, 0.72), (0.81, 0.76), (0.82, 0.87), (0.71, 0.91), (0.6, 0.87))
    for k, (x, y) in enumerate(places):
        tab.page.mouse.move(box["x"] + x * box["width"], box["y"] + y * box["height"], steps=8)
        if k == 0:
            tab.page.mouse.down()
    tab.page.wait_for_timeout(300)


def main() -> None:
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_browser())
        wide = {"viewport": {"width": 1360, "height": 850}}
        with Server(project=Path(folder) / "demo") as server:
            tab = Tab(browser.new_context(**wide), server.address).ready()
            tab.page.wait_for_selector("#map.here", timeout=60_000)
            label(tab, LABELS)
            tab.page.locator("#facets [data-facet=all]").click()
            tab.press("Home", "ArrowRight", "ArrowRight", "ArrowRight")
            tab.page.wait_for_timeout(1000)
            shoot(tab.page, "page")
            lasso(tab)
            shoot(tab.page, "lasso")
            tab.page.mouse.up()
            tab.press("Escape")
            tab.page.locator("#facets [data-facet=doubtful]").click()
            tab.press("s")
            tab.page.wait_for_timeout(500)
            dark = Tab(browser.new_context(color_scheme="dark", **wide), server.address).ready()
            dark.page.wait_for_timeout(3000)
            dark.press("End", "Home", "ArrowRight", "s")
            dark.page.wait_for_timeout(500)
            shoot(dark.page, "dark")
            phone = {"viewport": {"width": 390, "height": 780}, "device_scale_factor": 1.5, "has_touch": True}
            small = Tab(browser.new_context(**phone), server.address).ready()
            small.page.wait_for_timeout(3000)
            shoot(small.page, "phone")
            for one in (tab, dark, small):
                one.check()
        browser.close()


if __name__ == "__main__":
    main()
