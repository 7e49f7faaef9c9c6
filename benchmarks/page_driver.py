"""The labelling page in a real browser: a server of one's own, Chromium, and what must never happen on the page.

Shared by the browser tests, the screenshots and the measurements. Needs playwright from PyPI and the system's Chromium
(``apt-get install chromium``), or its path in ``A2LP_BROWSER``.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

ROOT = Path(__file__).resolve().parents[1]
BROWSERS = ("chromium", "chromium-headless-shell", "google-chrome")
REPORTS = """
window.violations = [];
document.addEventListener("securitypolicyviolation", (event) => window.violations.push(event.violatedDirective));
"""
# names of files and classes that would do harm if they were read as anything but text
HOSTILE = (
    "<img src=x onerror=alert(1)>",
    "<script>alert(1)</script>",
    '"><svg onload=alert(1)>',
    "'; alert(1); //",
    "{{constructor.constructor('alert(1)')()}}",
    "javascript:alert(1)",
    "</style><script>alert(1)</script>",
    "=cmd|' /C calc'!A0",
    "a&amp;b &lt;i&gt;",
    "\u202eevil\u202c",
    "<iframe srcdoc='<script>alert(1)</script>'>",
    "${alert(1)}",
    "</textarea><b>bold</b>",
    "<a href='data:text/html,alert(1)'>go</a>",
    "__proto__",
    "constructor",
    "url(javascript:alert(1))",
    "<math><mi xlink:href='javascript:alert(1)'>x</mi></math>",
    "' onmouseover='alert(1)",
    "%3Cscript%3Ealert(1)%3C/script%3E",
)


def find_browser() -> str | None:
    """The path of a Chromium, or None."""
    return os.environ.get("A2LP_BROWSER") or next(filter(None, map(shutil.which, BROWSERS)), None)


class Server:
    """``a2lp serve`` in a process of its own."""

    def __init__(self, *arguments: str | Path, project: Path, port: int = 0, python: str = "") -> None:
        self.arguments, self.project, self.port, self.python = arguments, project, port, python

    def __enter__(self) -> Self:
        # a file, since a pipe that nobody reads would stop the server
        self._output = tempfile.NamedTemporaryFile("w+", suffix=".log")
        command = [self.python or sys.executable, "-m", "a2lp", "serve", *map(str, self.arguments), "--no-browser"]
        command += ["--port", str(self.port), "--project", str(self.project)]
        path = os.pathsep.join(filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH")]))
        own = {"PYTHONPATH": "" if self.python else path}  # another environment has an a2lp of its own
        self.process = subprocess.Popen(
            command, stdout=self._output, stderr=subprocess.STDOUT, env={**os.environ, **own}
        )
        while not (found := re.search(r"^Open (http://127\.0\.0\.1:(\d+)/\S*)$", self.said(), re.MULTILINE)):
            if self.process.poll() is not None:
                raise RuntimeError(f"the server did not start:\n{self.said()}")
            try:
                self.process.wait(0.05)
            except subprocess.TimeoutExpired:
                continue
        self.address, self.port = found[1], int(found[2])
        return self

    def said(self) -> str:
        """What the command has printed."""
        return Path(self._output.name).read_text(encoding="utf-8")

    def kill(self) -> None:
        """End it as a power cut would."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self._output.close()


class Tab:
    """A page in the browser, with the keys of the labelling page; remembers what must never happen."""

    def __init__(self, context: Any, address: str) -> None:
        self.page = context.new_page()
        self.problems: list[str] = []
        self.requests: list[str] = []
        self.page.add_init_script(REPORTS)
        self.page.on("pageerror", lambda error: self.problems.append(f"error: {error}"))
        self.page.on("console", self._heard)
        self.page.on("request", lambda request: self._asked(request.url))
        self.page.goto(address)

    def _heard(self, message: Any) -> None:
        lost = "net::ERR_" in message.text or "WebSocket connection" in message.text  # a server that is gone
        if message.type == "error" and not lost:
            self.problems.append(f"console: {message.text} {message.location.get('url', '')}")

    def _asked(self, url: str) -> None:
        self.requests.append(url)
        if not re.match(r"(https?|wss?)://127\.0\.0\.1:|blob:|data:", url):
            self.problems.append(f"left the machine: {url}")

    def ready(self) -> Self:
        """Wait for the grid."""
        self.page.wait_for_selector("html[data-phase=ready]", timeout=60_000)
        self.page.wait_for_selector("[role=gridcell][data-row]")
        return self

    def press(self, *keys: str) -> None:
        """Press keys one after the other."""
        for key in keys:
            self.page.keyboard.press(key)

    def name(self, text: str) -> None:
        """Label the current point or the selection through the palette."""
        self.page.keyboard.press(text[0])
        self.page.wait_for_selector("#palette[open]")
        self.page.keyboard.type(text[1:])
        self.page.keyboard.press("Enter")
        self.page.wait_for_selector("#palette[open]", state="detached")

    def saved(self) -> None:
        """Wait until the server has everything."""
        self.page.wait_for_selector("#saved:text-is('Saved')")

    def settled(self) -> None:
        """Wait for the full answer."""
        self.saved()
        self.page.wait_for_timeout(250)  # the server waits for the next key before it asks the solver
        self.page.wait_for_selector("html[data-settling=false]", timeout=60_000)

    def current(self) -> int:
        """The row that has the keyboard."""
        return int(self.page.evaluate("document.activeElement.dataset.row ?? -1"))

    def suggested(self) -> int:
        """The suggestion that has the keyboard; waits while the next ones are being chosen."""
        self.page.wait_for_selector("#queue [aria-selected=true]", timeout=60_000)
        return self.current()

    def api(self, path: str) -> Any:
        """What the server answers to the page."""
        return self.page.evaluate("(path) => fetch(path).then((answer) => answer.json())", path)

    def labels(self) -> dict[int, str]:
        """The class of each row that the user labelled, by the server's own account."""
        script = """async () => {
            const state = await (await fetch("/api/state")).json();
            const buffer = await (await fetch("/api/rows")).arrayBuffer();
            const n = new Uint32Array(buffer, 0, 2)[1];
            const cls = new Uint16Array(buffer, 8, n), flags = new Uint8Array(buffer, 8 + 3 * n, n);
            const out = {};
            for (let i = 0; i < n; i++) if (flags[i] & 1) out[i] = state.classes[cls[i]].name;
            return out;
        }"""
        return {int(row): name for row, name in self.page.evaluate(script).items()}

    def check(self) -> None:
        """Fail where the page has complained, left the machine or broken its policy."""
        self.problems += [f"policy: {one}" for one in self.page.evaluate("window.violations")]
        assert not self.problems, self.problems


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
