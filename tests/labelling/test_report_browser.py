"""The page in a real browser: pictures, the map by keyboard, corrections that are kept, saved, and read again."""

from __future__ import annotations

import csv
import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from a2lp.features import load
from a2lp.labelling.classify import Labelled, label
from a2lp.labelling.labels import read_task
from a2lp.labelling.report_parts import parts
from a2lp.labelling.sources import Points

pytest.importorskip("jinja2")
EVIL = "\"><script>document.title='owned'</script>'&<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api")
    program = os.environ.get("A2LP_BROWSER") or shutil.which("chromium")
    if program is None:
        pytest.skip("no browser: apt-get install chromium, or set A2LP_BROWSER")
    with playwright.sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    """A page that fails the test on any message of the console, any error, and any request to elsewhere."""
    context = browser.new_context(viewport={"width": 1200, "height": 900})
    found = context.new_page()
    complaints: list[str] = []
    found.on("console", lambda message: complaints.append(message.text))
    found.on("pageerror", lambda error: complaints.append(str(error)))
    found.on("request", lambda r: None if r.url.startswith(("file:", "data:", "blob:")) else complaints.append(r.url))
    yield found
    context.close()
    assert not complaints


@pytest.fixture(scope="module")
def hostile() -> Labelled:
    """Digits under names that try to become part of the page, of the table, or of the script."""
    digits = load("digits")
    assert digits.labels is not None
    names = {3: "=1+1", 4: "</script><b>", 5: 'five, "5"\nand more'}
    keys = [f"{EVIL}{i}" for i in range(200)]
    keys[100:103] = ["__proto__", "@sum", 'a,"b"']
    few = {keys[i]: names.get(int(digits.labels[i]), f"{EVIL}{digits.labels[i]}") for i in range(40)}
    return replace(label(digits.features[:200], few, keys=keys, key="path"), source=EVIL)


def opened(page: Any, result: Labelled, path: Path) -> Any:
    if not path.exists():
        result.report(path)
    page.goto(path.as_uri())
    page.wait_for_selector("html[data-ready]")
    return page


def test_corrections_are_kept_saved_and_read_again(page: Any, hostile: Labelled, tmp_path: Path) -> None:
    opened(page, hostile, tmp_path / "page.html")
    assert page.title() == f"a2lp: {EVIL}"
    assert not page.locator("#bar").is_visible()
    new = np.flatnonzero(~hostile.table["given"])
    places = {key: place for place, key in enumerate(hostile)}
    doubtful = [int(row) for row in new[np.argsort(hostile.confidence[new])]]

    # by keyboard: the most doubtful point of the map gets its second class
    page.focus("#map")
    page.keyboard.press("Home")
    first = list(hostile)[doubtful[0]]
    assert page.locator("#tip b").text_content() == first
    page.keyboard.press("Enter")
    assert page.locator("#point-key").text_content() == first
    page.locator("#point-choices button").nth(1).click()
    # by a card: a class of a new name
    card = page.locator(f'details[open] .card[data-row="{doubtful[1]}"] button').first
    card.click()
    page.fill("#point-class", '  -new, "class"  ')
    page.keyboard.press("Enter")
    expected = {first: hostile[first]["second"], list(hostile)[doubtful[1]]: '-new, "class"'}
    # and one that is taken back
    page.locator("#novel .card button").first.click()
    page.locator("#point-choices button").first.click()
    assert page.locator("#counted").text_content() == "3 labels corrected or confirmed"
    page.locator("#novel .card button").first.click()
    page.click("#point-undo")

    page.reload()
    page.wait_for_selector("html[data-ready]")
    assert page.locator("#counted").text_content() == "2 labels corrected or confirmed"
    with page.expect_download() as download:
        page.click("#save")
    download.value.save_as(tmp_path / "corrections.csv")
    task = read_task(tmp_path / "corrections.csv", Points(tuple(hostile)))
    assert {key: task.labels[places[key]] for key in expected} == expected
    assert task.key == "path"
    with (tmp_path / "corrections.csv").open(encoding="utf-8", newline="") as file:
        assert {row["how"] for row in csv.DictReader(file)} == {"report"}
    assert sum(name is not None for name in task.labels) == 2


def test_every_hostile_key_survives_the_table(page: Any, hostile: Labelled, tmp_path: Path) -> None:
    opened(page, hostile, tmp_path / "page.html")
    wanted = ["__proto__", "@sum", 'a,"b"', *[key for key in hostile if not hostile[key]["given"]][:3]]
    kept = [[key, hostile[key]["label"]] for key in wanted]
    store = f"a2lp report {parts(hostile, None, 0)['data']['store']}"
    page.evaluate("([store, kept]) => localStorage.setItem(store, JSON.stringify(kept))", [store, kept])
    page.reload()
    page.wait_for_selector("html[data-ready]")
    with page.expect_download() as download:
        page.click("#save")
    download.value.save_as(tmp_path / "corrections.csv")
    assert "\n'@sum," in (tmp_path / "corrections.csv").read_text(encoding="utf-8")  # no spreadsheet runs it
    task = read_task(tmp_path / "corrections.csv", Points(tuple(hostile)), need_choice=False)
    assert [[key, name] for key, name in zip(hostile, task.labels, strict=True) if name is not None] == sorted(
        kept, key=lambda pair: list(hostile).index(pair[0])
    )


def test_slider_names_and_class_filter(page: Any, hostile: Labelled, tmp_path: Path) -> None:
    opened(page, hostile, tmp_path / "page.html")
    new = np.flatnonzero(~hostile.table["given"])
    rank = {int(row): place for place, row in enumerate(new[np.argsort(-hostile.table["novelty"][new], kind="stable")])}
    cards = {int(card.get_attribute("data-row")): card for card in page.locator("#novel .card").all()}
    # a share whose first point that stays is among those shown
    percent, count = next((p, round(p * 1.6)) for p in range(20, 50) if round(p * 1.6) in {rank[row] for row in cards})
    page.locator("#reject").fill(str(percent))
    assert page.locator("#rejected").text_content() == f"--reject {percent / 100:.2f} leaves out {count} of 160"
    for row, card in cards.items():
        assert ("out" in card.get_attribute("class").split()) == (rank[row] < count)
    assert page.get_attribute("#map", "data-names") == f"{len(hostile.classes)} of {len(hostile.classes)}"
    page.locator("#legend button").first.click()
    assert page.get_attribute("#map", "data-names") == "1 of 1"
    assert page.locator("#legend button").first.get_attribute("aria-pressed") == "true"
    page.set_viewport_size({"width": 360, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
