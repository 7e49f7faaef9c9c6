"""Put the paper's tables into README and docs: the output of the marked commands, from the records in results/.

.venv/bin/python benchmarks/tables_in_docs.py
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

from a2lp.files import write_text

ROOT = Path(__file__).resolve().parents[1]
MARKED = re.compile(r"<!-- (a2lp tables[^\n]*) -->\n.*?<!-- end -->", re.DOTALL)


def printed(command: str) -> str:
    args = [sys.executable, "-m", "a2lp", *shlex.split(command)[1:]]
    return subprocess.run(args, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def fill(text: str) -> str:
    """The text of a page with the output of its marked commands."""
    return MARKED.sub(lambda match: f"<!-- {match[1]} -->\n\n{printed(match[1])}\n\n<!-- end -->", text)


def main() -> None:
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        text = page.read_text(encoding="utf-8")
        if fill(text) != text:
            write_text(page, fill(text))
            print(page.relative_to(ROOT))


if __name__ == "__main__":
    main()
