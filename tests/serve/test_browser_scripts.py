"""The page's modules by themselves: node's own test runner, and the linters where they are installed."""

from __future__ import annotations

import gzip
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
WEB = ROOT / "src" / "a2lp" / "serve" / "web"


def run(*command: str) -> None:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_modules_of_the_page() -> None:
    if shutil.which("node") is None:
        pytest.skip("no node: apt-get install nodejs")
    run("node", "--test", "tests/serve/web/")


def test_style_and_types() -> None:
    if not (ROOT / "node_modules" / "typescript").is_dir() or shutil.which("npm") is None:
        pytest.skip("no linters: npm install --no-package-lock")
    run("npm", "run", "--silent", "lint")


def first_files() -> list[Path]:
    """What the browser loads before the grid can be used: the page, its styles, and modules imported at once."""
    found, todo = [WEB / "index.html", WEB / "app.css", WEB / "favicon.svg"], ["app.js"]
    while todo:
        path = WEB / todo.pop()
        if path not in found:
            found.append(path)
            todo += re.findall(r'^import .* from "\./(.+)";$', path.read_text(encoding="utf-8"), re.MULTILINE)
    return found


def test_the_page_is_small_and_stands_alone() -> None:
    files = [path for path in WEB.iterdir() if path.is_file()]
    assert sum(len(gzip.compress(path.read_bytes())) for path in files) <= 75_000  # as it is sent
    assert sum(path.stat().st_size for path in first_files()) <= 150_000
    for path in files:
        text = path.read_text(encoding="utf-8").replace("http://www.w3.org/", "")
        assert "http://" not in text and "https://" not in text, f"{path.name} names another host"
        if path.suffix == ".js":
            for unsafe in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function"):
                assert unsafe not in text, f"{path.name} uses {unsafe}"
        if path.suffix == ".html":
            assert " style=" not in text and " onclick=" not in text and "<style" not in text


def test_the_documented_keys_are_those_of_the_page() -> None:
    actions = re.findall(r'key: "([^"]+)", text: "([^"]+)"', (WEB / "keys.js").read_text(encoding="utf-8"))
    assert len(actions) > 10
    shown = (ROOT / "docs" / "serve.md").read_text(encoding="utf-8")
    assert [f"| `{key}` | {text} |" for key, text in actions if f"| `{key}` | {text} |" not in shown] == []
