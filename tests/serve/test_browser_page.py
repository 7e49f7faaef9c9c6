"""The page in a real browser, driven by its keys; skipped in one line where there is no browser."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest


@pytest.fixture(scope="module")
def browser(driver: ModuleType) -> Iterator[Any]:
    """Debian's Chromium, or the one in ``A2LP_BROWSER``."""
    path = driver.find_browser()
    if path is None:
        missing = "no browser: apt-get install chromium, or set A2LP_BROWSER"
        (pytest.fail if os.environ.get("A2LP_NEED_BROWSER") else pytest.skip)(missing)
    playwright = pytest.importorskip("playwright.sync_api", reason="no playwright: pip install playwright")
    with playwright.sync_playwright() as started:
        chromium = started.chromium.launch(executable_path=path)
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def server(driver: ModuleType, browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The demo; one server for the tests that can live with each other's labels."""
    with driver.Server(project=tmp_path_factory.mktemp("page") / "demo.a2lp") as running:
        yield running


@pytest.fixture
def visit(driver: ModuleType, browser: Any) -> Iterator[Callable[..., Any]]:
    """Open an address; at the end, the pages must have behaved."""
    contexts, tabs = [], []

    def open_tab(address: str, *, context: Any = None, **options: Any) -> Any:
        if context is None:
            context = browser.new_context(**{"viewport": {"width": 1280, "height": 800}, **options})
            contexts.append(context)
        tabs.append(driver.Tab(context, address))
        return tabs[-1]

    yield open_tab
    try:
        for tab in tabs:
            tab.check()
    finally:
        for context in contexts:
            context.close()


def digits() -> Any:
    from sklearn.datasets import load_digits

    return load_digits().target


def label_queue(tab: Any, truth: Any, n: int) -> list[int]:
    """Follow the queue for n labels with the keyboard alone; the rows."""
    rows = []
    tab.press(".")
    for _ in range(n):
        row = tab.suggested()
        tab.name(f"digit {truth[row]}")
        rows.append(row)
    tab.settled()
    return rows


def test_label_by_keys_and_see_everything_relabelled(
    driver: ModuleType, browser: Any, visit: Callable[..., Any], tmp_path: Path
) -> None:
    truth = digits()
    with driver.Server(project=tmp_path / "p") as server:
        tab = visit(server.address).ready()
        assert tab.page.locator("#hint").is_visible()
        rows = label_queue(tab, truth, 15)
        assert tab.labels() == {row: f"digit {truth[row]}" for row in rows}
        state = tab.api("/api/state")
        assert sum(one["predicted"] for one in state["classes"]) == len(truth) - 15  # everything else has a prediction
        row = tab.suggested()
        second = tab.page.locator("#focus-top li:has(kbd:text-is(',')) .name").inner_text()
        tab.press(",")  # the second most likely class has one, too
        tab.saved()
        assert tab.labels()[row] == second
        row = tab.suggested()
        tab.press("1")  # and so has the first class
        first = next(one["name"] for one in state["classes"] if one["pin"] == "1")
        tab.saved()
        assert tab.labels()[row] == first
        tab.press("Control+z")
        tab.page.wait_for_selector("#redo:enabled")
        assert row not in tab.labels()
        tab.press("Control+Shift+Z")
        tab.page.wait_for_selector("#redo:disabled")
        assert tab.labels()[row] == first
        other = visit(server.address, context=tab.page.context).ready()
        assert other.labels() == tab.labels()
        tab.suggested()
        tab.name("brand new")
        other.page.wait_for_selector("#classes >> text=brand new")  # tabs agree without a reload
        before = tab.labels()
        tab.page.reload()
        assert tab.ready().labels() == before
        for one in (tab, other):
            one.page.goto("about:blank")  # the next server has the same port, and would refuse them
        server.kill()
    with driver.Server(project=tmp_path / "p") as server:  # what was saved is there after a power cut
        assert visit(server.address).ready().labels() == before


def test_nothing_moves_while_keys_come(server: Any, visit: Callable[..., Any]) -> None:
    tab = visit(server.address).ready()
    tab.page.locator("#grid [data-row]").first.focus()
    order = "[...document.querySelectorAll('#grid [data-row]')].slice(0, 12).map((cell) => cell.dataset.row).join()"
    before = tab.page.evaluate(order)
    for name in ("left", "right", "left", "right"):
        tab.name(name)
    tab.saved()
    assert tab.page.evaluate(order) == before
    row = tab.current()
    assert row == int(before.split(",")[4])  # one further with each label
    tab.press("=")
    assert tab.page.evaluate(order) != before
    assert tab.current() == row  # the keyboard is still at the same point
    tab.press("Shift+ArrowRight", "Shift+ArrowRight")
    assert tab.page.locator("#grid .selected").count() == 3
    tab.press("Escape", "-")
    tab.saved()
    assert tab.api("/api/state")["counts"]["rejected"] == 1
    tab.press("Control+z")


def test_lasso_and_group_accept(server: Any, visit: Callable[..., Any]) -> None:
    tab = visit(server.address).ready()
    tab.page.wait_for_selector("#map.here", timeout=30_000)
    box = tab.page.locator("#over").bounding_box()
    corners = [(0.02, 0.02), (0.98, 0.02), (0.98, 0.5), (0.02, 0.5), (0.02, 0.03)]
    tab.page.mouse.move(*[box["x"] + box["width"] * 0.02, box["y"] + box["height"] * 0.02])
    tab.page.mouse.down()
    for x, y in corners:
        tab.page.mouse.move(box["x"] + box["width"] * x, box["y"] + box["height"] * y, steps=4)
    tab.page.mouse.up()
    tab.page.wait_for_selector("#focus-count:text-matches('selected')")
    chosen = int(tab.page.locator("#focus-count").inner_text().split()[0])
    assert 0 < chosen < len(digits())
    tab.name("upper half")
    tab.saved()
    assert sum(name == "upper half" for name in tab.labels().values()) == chosen
    tab.press("Control+z")
    tab.page.wait_for_selector("#redo:enabled")
    tab.settled()
    # what was seen of a group becomes examples; the rest is accepted unseen, after a look at twelve of it
    tab.page.locator("#facets [data-facet=all]").click()
    tab.page.wait_for_selector("[data-do=accept-all]")
    group = tab.page.locator("[data-do=accept-all]").first
    group.click()
    tab.page.wait_for_selector("#review[open]")
    assert tab.page.locator("#review-cards button").count() == 12
    tab.page.locator("#review-ok").click()
    tab.saved()
    counts = tab.api("/api/state")["counts"]
    assert counts["accepted"] >= 12 and counts["unseen"] > 0
    tab.page.keyboard.press("Tab")
    for _ in range(2):
        tab.page.locator("#undo").click()
        tab.saved()


def test_audit_hides_the_prediction(server: Any, visit: Callable[..., Any]) -> None:
    tab = visit(server.address).ready()
    label_queue(tab, digits(), 4)
    tab.page.locator("#audit").click()
    tab.page.wait_for_selector("#what:text-is('Audit')")
    assert tab.page.locator("#grid [data-row]").count() == 30
    row = tab.current()
    assert tab.page.locator(f"#cell-{row}").get_attribute("aria-label").endswith("not labelled yet")
    assert tab.page.locator("#focus-top button").count() == 0
    tab.name(f"digit {digits()[row]}")
    tab.saved()
    tab.page.wait_for_selector("#audited:text-matches('of 1 right')")
    tab.page.locator("#audit").click()
    tab.page.wait_for_selector("#what:text-is('Everything')")


def test_labels_survive_a_lost_connection(server: Any, visit: Callable[..., Any]) -> None:
    tab = visit(server.address).ready()
    tab.page.locator("#grid [data-row]").nth(3).click()
    tab.page.context.set_offline(True)
    row = tab.current()
    tab.name("made offline")
    tab.page.wait_for_selector("html[data-phase=offline]")
    assert tab.page.locator("#banner").is_visible()
    assert "yours" in tab.page.locator(f"#cell-{row}").get_attribute("class").split()
    tab.page.context.set_offline(False)
    tab.page.wait_for_selector("html[data-phase=ready]", timeout=15_000)
    tab.saved()
    assert tab.page.locator("#banner").is_hidden()
    assert tab.labels()[row] == "made offline"


def test_labels_survive_the_end_of_the_server(
    driver: ModuleType, browser: Any, visit: Callable[..., Any], tmp_path: Path
) -> None:
    with driver.Server(project=tmp_path / "p") as server:
        tab = visit(server.address).ready()
        server.kill()
        tab.page.wait_for_selector("html[data-phase=offline]")
        row = tab.current()
        tab.name("made meanwhile")
    with driver.Server(project=tmp_path / "p", port=server.port) as again:
        tab.page.goto(again.address)  # the same tab: what was not sent goes with it
        tab.ready().page.wait_for_selector("#classes >> text=made meanwhile")
        assert tab.labels() == {row: "made meanwhile"}


@pytest.mark.parametrize(
    "look", [{}, {"color_scheme": "dark"}, {"forced_colors": "active"}], ids=["light", "dark", "forced"]
)
def test_accessibility(server: Any, visit: Callable[..., Any], look: dict[str, str]) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    tab = visit(server.address, **look).ready()
    tab.page.wait_for_timeout(300)
    for keys, shown in (((), "#grid"), (("x",), "#palette[open]"), (("Escape", "?"), "#help[open]")):
        tab.press(*keys)
        tab.page.wait_for_selector(shown)
        found = axe.run(tab.page).response["violations"]
        assert [(one["id"], one["nodes"][0]["html"]) for one in found] == []


def test_hostile_names_are_text(driver: ModuleType, browser: Any, visit: Callable[..., Any], tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    vectors = np.random.default_rng(0).normal(size=(40, 4))
    table = pandas.DataFrame(vectors, columns=[f"f{i}" for i in range(4)])
    hostile = driver.HOSTILE
    table.assign(file=[f"{hostile[i % 20]} {i}" for i in range(40)]).to_parquet(tmp_path / "points.parquet")
    (tmp_path / "names.txt").write_text("\n".join(hostile), encoding="utf-8")
    with driver.Server(
        tmp_path / "points.parquet", "--names", tmp_path / "names.txt", project=tmp_path / "p"
    ) as server:
        tab = visit(server.address).ready()
        tab.page.on("dialog", lambda dialog: pytest.fail(dialog.message))
        tab.page.wait_for_selector("#grid .key:text-matches('onerror')")
        shown = tab.page.locator("#classes .name").all_text_contents()
        assert sorted(shown) == sorted(hostile)
        tab.press("ArrowRight")
        tab.press("1")
        tab.page.wait_for_selector("#cell-0, #grid .yours")
        tab.press("<")
        tab.page.wait_for_selector("#palette[open] [role=option]")
        tab.press("Enter")
        tab.saved()
        assert tab.page.locator("main script, main svg[onload], img[src=x]").count() == 0
