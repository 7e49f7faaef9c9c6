"""The demo, ``a2lp serve`` without a source, in a slim install without a network: seconds until something is painted.

    python3 -m venv slim && slim/bin/pip install '.[serve]'
    unshare -rn sh -c 'ip link set lo up; exec .venv/bin/python benchmarks/page_demo.py slim/bin/python'

A browser is open already. The first start is the one after the installation, which compiles nothing before it shows
something; then five more. Kept in the record of ``page_browser.py``.
"""

from __future__ import annotations

import argparse
import json
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from page_browser import RECORD
from page_driver import Server, Tab, browser
from study import Record

STARTS = 6  # the first one, and five more


def start(context: Any, folder: Path, python: str) -> dict[str, float]:
    """Seconds from the command to the first paint, to the grid with pictures, and to the first answer to two labels."""
    began = time.time()
    with Server(project=folder, python=python) as server:
        tab = Tab(context, server.address).ready()
        tab.page.wait_for_selector("#grid .picture.here")
        pictures = time.time() - began
        script = "performance.timeOrigin + performance.getEntriesByName('first-contentful-paint')[0].startTime"
        painted = tab.page.evaluate(script) / 1000 - began
        tab.press(".")
        for name in ("left", "right"):
            tab.suggested()
            tab.name(name)
        tab.settled()
        tab.check()
        return {"first_paint_s": round(painted, 2), "pictures_s": round(pictures, 2)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("python", help="of an environment with a2lp[serve] alone")
    python = parser.parse_args().python
    devices = [name for _, name in socket.if_nameindex()]
    listed = subprocess.run([python, "-m", "pip", "list", "--format=json"], capture_output=True, check=True).stdout
    packages = {one["name"]: one["version"] for one in json.loads(listed)}

    def measure() -> dict[str, Any]:
        with tempfile.TemporaryDirectory() as folder, browser() as context:
            starts = [start(context, Path(folder) / str(i), python) for i in range(STARTS)]
        return {"network": devices, "packages": packages, "starts": starts}

    record = Record(RECORD, "the labelling page in Chromium")
    record.measure("demo", measure)
    print(json.dumps(record.result("demo"), indent=1))


if __name__ == "__main__":
    main()
