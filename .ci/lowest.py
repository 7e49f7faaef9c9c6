"""Prints the oldest versions that pyproject.toml allows, as constraints for pip.

python .ci/lowest.py > lowest.txt
pip install --constraint lowest.txt --editable '.[images,label,pandas,report,serve]' pytest ...
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
TOOLS = ("dev",)  # what checks and builds a2lp may be of any version


def lowest() -> dict[str, str]:
    """The oldest version of each package; the newest of these where extras differ."""
    extras = PROJECT["optional-dependencies"]
    lines = [*PROJECT["dependencies"], *(line for name in extras if name not in TOOLS for line in extras[name])]
    found: dict[str, str] = {}
    for line in lines:
        match = re.fullmatch(r"([\w.-]+)>=([\d.]+)", line)
        if match:
            key = lambda version: [int(part) for part in version.split(".")]  # noqa: E731
            found[match[1]] = max(found.get(match[1], "0"), match[2], key=key)
    return found


if __name__ == "__main__":
    for name, version in sorted(lowest().items()):
        print(f"{name}=={version}")
