"""What an installation takes, package by package: the table of docs/install.md.

    .venv/bin/python benchmarks/install_size.py --measure     # needs the network, about 200 MB of it
    .venv/bin/python benchmarks/install_size.py               # the page from the record

Makes an empty environment, downloads what ``pip install '.[images]'`` would, installs it, and adds up the files of each
package. Bytecode (``.pyc``) is what pip compiles at once, and Python otherwise at the first import.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from study import RECORDS, ROOT, Record, fill, table

from a2lp.files import write_text

PAGE = ROOT / "docs" / "install.md"
RECORD = RECORDS / "install_size.json"
EXTRA = "images"
PURPOSES = {
    "llvmlite": "LLVM, which compiles the loops at their first use",
    "numba": "the loops' way to LLVM",
    "scipy": "sparse graphs, linear solvers",
    "numpy": "arrays",
    "onnxruntime": "runs the default backbone, in place of torch",
    "scikit-learn": "estimators, neighbours, logistic regression",
    "pillow": "reads JPEG, PNG, WebP, AVIF and others",
    "pillow-heif": "reads HEIC, the photos of many phones",
    "a2lp": "its code, the default backbone (8 MB), the bundled features",
}
# without these, there are no arrays, graphs, estimators and networks; what they need in turn is counted with them
FLOOR = ("numpy", "scipy", "scikit-learn", "onnxruntime")
# run in the new environment: the size of each package without and with its bytecode, and the packages that it needs
LIST = """
import json, re
from importlib.metadata import distributions
found = {}
for one in distributions():
    sizes = [(str(file), file.locate().stat().st_size) for file in one.files or () if file.locate().exists()]
    lines = [line for line in one.requires or () if "extra ==" not in line]
    found[one.name.lower().replace("_", "-")] = {
        "code": sum(size for name, size in sizes if not name.endswith(".pyc")),
        "bytecode": sum(size for name, size in sizes if name.endswith(".pyc")),
        "needs": sorted(re.match("[A-Za-z0-9._-]+", line)[0].lower().replace("_", "-") for line in lines),
    }
print(json.dumps(found))
"""


def measure() -> dict[str, Any]:
    """Bytes of each package of a new environment, and of the archives that were downloaded."""
    with tempfile.TemporaryDirectory() as folder:
        python, wheels = Path(folder) / "venv" / "bin" / "python", Path(folder) / "wheels"
        subprocess.run([sys.executable, "-m", "venv", python.parents[1]], check=True)
        pip = [python, "-m", "pip", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "wheel", "--no-deps", "--wheel-dir", wheels, ROOT], check=True)
        [own] = wheels.iterdir()
        subprocess.run([*pip, "download", "--dest", wheels, f"{own}[{EXTRA}]"], check=True)
        downloaded = sum(file.stat().st_size for file in wheels.iterdir())
        subprocess.run([*pip, "install", "--no-index", "--find-links", wheels, f"{own}[{EXTRA}]"], check=True)
        packages = json.loads(subprocess.run([python, "-c", LIST], check=True, capture_output=True, text=True).stdout)
    del packages["pip"]  # of every environment
    return {"python": sys.version.split()[0], "downloaded": downloaded, "packages": packages}


def closure(packages: Mapping[str, Any], names: tuple[str, ...]) -> set[str]:
    """Packages and what they need in turn, of those that are installed."""
    found: set[str] = set()
    waiting = [name for name in names if name in packages]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += [each for each in packages[name]["needs"] if each in packages]
    return found


def megabytes(packages: Mapping[str, Any], *kinds: str) -> str:
    return f"{sum(one[kind] for one in packages.values() for kind in kinds) / 1e6:.0f}"


def sizes(found: Mapping[str, Any]) -> str:
    """The table: packages of 20 MB or more by size, the rest together, and the sum."""
    packages = found["packages"]
    ordered = sorted(packages, key=lambda name: -packages[name]["code"])
    large = [name for name in ordered if packages[name]["code"] >= 20e6]
    small = {name: packages[name] for name in ordered if name not in large}
    rows = [
        (name, megabytes({name: packages[name]}, "code"), megabytes({name: packages[name]}, "bytecode"), PURPOSES[name])
        for name in large
    ]
    rows.append((f"{len(small)} others", megabytes(small, "code"), megabytes(small, "bytecode"), ""))
    rows.append(("**all**", f"**{megabytes(packages, 'code')}**", megabytes(packages, "bytecode"), ""))
    lines = table(("package", "MB", "and bytecode", "what for"), rows).split("\n")
    lines[1] = "| --- | ---: | ---: | --- |"
    floor = closure(packages, FLOOR)
    least = megabytes({name: packages[name] for name in floor}, "code")
    lines += [
        "",
        f"Python {found['python']} on Linux, x86-64; {found['downloaded'] / 1e6:.0f} MB to download. NumPy, SciPy, "
        f"scikit-learn and onnxruntime alone, with what they need, take {least} MB without bytecode.",
    ]
    return "\n".join(lines)


def page(text: str, record: Record) -> str:
    found = record.result(EXTRA)
    return fill(text, "install_size", {EXTRA: "" if found is None else sizes(found)})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measure", action="store_true")
    args = parser.parse_args()
    record = Record(RECORD, "the size of an installation, package by package")
    if args.measure:
        record.measure(EXTRA, measure)
    write_text(PAGE, page(PAGE.read_text(encoding="utf-8"), record))


if __name__ == "__main__":
    main()
