"""The labelling page as a new user meets it: 2,953 photographs of 50 kinds of birds, labelled with keys in Chromium.

    .venv/bin/python benchmarks/page_trial.py --measure --pack cub_val_test.npz   # then docs/serve.md
    .venv/bin/python benchmarks/page_trial.py                                     # docs/serve.md from the record

The photographs of the pack's test split are written to a folder and served by ``a2lp serve photos --names names.txt``.
A script that knows the truth presses keys in a real browser and follows the queue: Enter where the prediction is right,
the key beside the right class where it is the second or third guess, else a digit or letters in the palette. At some
numbers of labels, the exported table is compared with the truth, and with ``a2lp classify`` on as many labels that were
drawn at random and would have been typed one by one.
"""

from __future__ import annotations

import argparse
import csv
import io
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from folder_trial import Pack
from page_browser import type_name
from page_driver import Server, Tab, browser
from page_keys import Hand
from study import RECORDS, ROOT, Record, fill, table

from a2lp.files import write_text

RECORD = RECORDS / "page_trial.json"
PAGE = ROOT / "docs" / "serve.md"
STOPS = (20, 50, 100, 200)  # labels
DRAWS = 2  # of random labels


def write_photos(pack: Pack, folder: Path) -> dict[str, str]:
    """A flat folder of photographs; the name of each."""
    folder.mkdir()
    truth = {}
    for row in pack.rows.tolist():
        name = f"{row:05}.jpg"
        (folder / name).write_bytes(pack.encoded(row))
        truth[name] = re.sub(r"^\d+\.", "", pack.labels[row]).replace("_", " ").lower()
    return truth


def label_one(tab: Tab, truth: dict[str, str], pins: dict[str, str], guessing: bool) -> int:
    """Label the current suggestion by what the page shows; the number of keys."""
    tab.suggested()
    shown, key = tab.page.locator("#focus-top li"), tab.page.locator("#focus-key")
    end = time.monotonic() + 5
    while (key.inner_text() not in truth or (guessing and shown.count() == 0)) and time.monotonic() < end:
        tab.page.wait_for_timeout(10)
    name = truth[key.inner_text()]
    guesses = tab.page.evaluate("""() => [...document.querySelectorAll("#focus-top li")].map(
        (item) => [item.querySelector(".name").textContent, item.querySelector("kbd").textContent])""")
    if pressed := dict(guesses).get(name):
        tab.press(pressed)
        return 1
    return type_name(tab, name, pins.get(name))


def exported(tab: Tab, truth: dict[str, str]) -> float:
    """The share of right labels in the table that the page exports."""
    text = tab.page.evaluate("fetch('/api/export?format=csv').then((answer) => answer.text())")
    rows = list(csv.DictReader(io.StringIO(text)))
    assert len(rows) == len(truth)
    return float(np.mean([row["label"] == truth[row["path"]] for row in rows]))


def follow(root: Path, truth: dict[str, str]) -> dict[str, Any]:
    """Keys and accuracy of the export at each stop, in the browser."""
    names = sorted(set(truth.values()))
    (root / "names.txt").write_text("\n".join(names), encoding="utf-8")
    keys, curve = 0, []
    with (
        Server(root / "photos", "--names", root / "names.txt", project=root / "project") as server,
        browser() as context,
    ):
        began = time.monotonic()
        tab = Tab(context, server.address)
        tab.page.wait_for_selector("html[data-phase=ready]", timeout=1_800_000)
        tab.page.wait_for_selector("#queue [role=option]", timeout=600_000)
        waited = round(time.monotonic() - began, 1)
        pins = {one["name"]: one["pin"] for one in tab.api("/api/state")["classes"] if one["pin"]}
        tab.ready().press(".")
        for count in range(1, STOPS[-1] + 1):
            keys += label_one(tab, truth, pins, guessing=count > 20)
            if count in STOPS:
                tab.settled()
                curve.append({"labels": count, "keys": keys, "right": round(exported(tab, truth), 4)})
                print(curve[-1], flush=True)
        tab.check()
    return {"photos": len(truth), "classes": len(names), "embedded_s": waited, "curve": curve}


def by_chance(root: Path, truth: dict[str, str]) -> list[dict[str, Any]]:
    """Accuracy of ``a2lp classify`` on random labels, and the keys of typing these one by one; means over draws."""
    found = []
    for count in STOPS:
        right, keys = [], []
        for seed in range(DRAWS):
            files = np.random.default_rng([seed, count]).permutation(sorted(truth))[:count].tolist()
            hand = Hand(sorted(set(truth.values())))
            keys.append(sum(hand.label(truth[file]) for file in files))
            with (root / "labels.csv").open("w", newline="", encoding="utf-8") as file:
                csv.writer(file).writerows([("path", "label"), *((name, truth[name]) for name in files)])
            command = [sys.executable, "-m", "a2lp", "classify", "photos", "--labels", "labels.csv", "--out", "out.csv"]
            subprocess.run([*command, "--force"], cwd=root, check=True, capture_output=True)
            rows = csv.DictReader(io.StringIO((root / "out.csv").read_text(encoding="utf-8")))
            right.append(np.mean([row["label"] == truth[row["path"]] for row in rows]))
        found.append({"labels": count, "keys": round(float(np.mean(keys))), "right": round(float(np.mean(right)), 4)})
        print(found[-1], flush=True)
    return found


def trial(pack: Path) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        truth = write_photos(Pack(pack, "test"), root / "photos")
        return follow(root, truth) | {"random": by_chance(root, truth)}


def page(text: str, record: Record) -> str:
    """The page with its generated table."""
    found = record.result("photos")
    rows = []
    for one, other in zip(found["curve"], found["random"], strict=True) if found else ():
        cells = (one["keys"], f"{100 * one['right']:.1f} %", other["keys"], f"{100 * other['right']:.1f} %")
        rows.append([str(one["labels"]), *map(str, cells)])
    heads = ["labels", "keys on the page", "right in the export", "keys one by one", "right with random labels"]
    return fill(text, "trial", {"table": table(heads, rows)})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measure", action="store_true")
    parser.add_argument("--pack", type=Path, help="cub_val_test.npz")
    options = parser.parse_args()
    record = Record(RECORD, "Photographs labelled on the page with keys, in Chromium")
    if options.measure:
        record.measure("photos", lambda: trial(options.pack), stops=STOPS, draws=DRAWS)
    write_text(PAGE, page(PAGE.read_text(encoding="utf-8"), record))


if __name__ == "__main__":
    main()
