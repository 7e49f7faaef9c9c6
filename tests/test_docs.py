"""What README and docs show is run: Python blocks print what is shown, commands parse, links lead somewhere."""

from __future__ import annotations

import contextlib
import doctest
import importlib
import io
import math
import re
import shlex
import tomllib
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import a2lp

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]

# A block marked `python` is run; a `text` block after it is what it prints, unless a comment says that it varies.
PYTHON = re.compile(
    r"^```python\n(?P<code>.*?)^```\n(?:\n(?P<varies><!-- varies.*?-->\n\n)?```text\n(?P<shown>.*?)^```\n)?",
    re.DOTALL | re.MULTILINE,
)
CONSOLE = re.compile(r"^```console\n(.*?)^```\n", re.DOTALL | re.MULTILINE)
NUMBER = re.compile(r"\d+(?:\.\d*)?(?:e[+-]?\d+)?")

# what docs/api.md shows: an object a line, or a module with its members
API = re.findall(
    r"^::: (\S+)\n(?:    options:\n      members: \[(.*)\])?", (ROOT / "docs/api.md").read_text(), re.MULTILINE
)


class Block(NamedTuple):
    line: int
    code: str
    shown: str | None


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    found = []
    for match in PYTHON.finditer(text):
        shown = None if match["varies"] else match["shown"]
        found.append(Block(text.count("\n", 0, match.start("code")), match["code"], shown))
    return found


def assert_same(printed: str, shown: str) -> None:
    """Word for word; numbers to two percent, since the last digits depend on the processor."""
    assert NUMBER.sub("#", printed) == NUMBER.sub("#", shown), f"printed:\n{printed}\nshown:\n{shown}"
    for one, other in zip(NUMBER.findall(printed), NUMBER.findall(shown), strict=True):
        assert math.isclose(float(one), float(other), rel_tol=0.02), f"printed:\n{printed}\nshown:\n{shown}"


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)], ids=lambda page: page.stem)
def test_python_blocks_print_what_is_shown(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The blocks of a page are one script."""
    monkeypatch.chdir(tmp_path)
    variables: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks(page):
        if "import torch" in block.code:
            pytest.importorskip("torch")
        padding = "\n" * block.line  # so that a traceback names the line of the page
        code = compile(padding + block.code, str(page), "exec", dont_inherit=True)
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            exec(code, variables)
        if block.shown is not None:
            assert_same(output.getvalue(), block.shown)


def public_objects() -> dict[str, Any]:
    """The objects of docs/api.md and of ``a2lp.__all__``, by the module that defines them and their name."""
    found = [getattr(a2lp, name) for name in a2lp.__all__ if name not in ("__version__", "bench")]
    for name, members in API:
        module, _, last = name.rpartition(".")
        if members:
            found += [getattr(importlib.import_module(name), member) for member in members.split(", ")]
        elif name == "a2lp.errors":
            found.append(a2lp.errors.install_command)
        else:
            found.append(getattr(importlib.import_module(module), last))
    return {f"{each.__module__}.{each.__qualname__}": each for each in found}


def test_the_api_page_has_every_public_name() -> None:
    shown = {name.rpartition(".")[2] for name, _ in API}
    missing = set(a2lp.__all__) - shown - {"__version__", "bench", "A2LPError", "A2LPWarning"}
    assert not missing, f"docs/api.md lacks {missing}"


@pytest.mark.parametrize("name", sorted(public_objects()))
def test_public_objects_have_examples_that_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A2LP_CACHE", str(tmp_path))
    if name.startswith("a2lp.easyfsl"):
        pytest.importorskip("torch")
    found = public_objects()[name]
    examples = [test for test in doctest.DocTestFinder(recurse=False).find(found, name, globs={}) if test.examples]
    assert examples, f"{name} has no example"
    runner = doctest.DocTestRunner()
    for test in examples:
        output = io.StringIO()
        with warnings.catch_warnings():
            runner.run(test, out=output.write)
        assert runner.failures == 0, output.getvalue()


def commands() -> list[str]:
    texts = [body for page in PAGES for body in CONSOLE.findall(page.read_text(encoding="utf-8"))]
    lines = [line.removeprefix("$ ") for text in texts for line in text.splitlines() if line.startswith("$ a2lp ")]
    return sorted(set(lines))


@pytest.mark.parametrize("line", commands())
def test_commands_parse(line: str) -> None:
    """Commands and options that are shown exist; nothing is run."""
    from typer.main import get_command

    from a2lp.cli.app import app

    _, name, *arguments = shlex.split(line)
    group: Any = get_command(app)
    group.commands[name].make_context(name, arguments)


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_links_of_pages_outside_the_site(page: str) -> None:
    """Those inside it are checked where it is built."""
    targets = re.findall(r"\]\((?!https?:)([^)#]+)", (ROOT / page).read_text(encoding="utf-8"))
    assert targets
    assert [target for target in targets if not (ROOT / target).exists()] == []


def test_contributing_has_the_layers_of_the_linter() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    layers = next(contract["layers"] for contract in contracts if contract["type"] == "layers")
    expected = [name.strip().removeprefix("a2lp.") for layer in layers for name in layer.split("|")]
    table = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("| layer | |")[2].partition("\n\n")[0]
    found = [name for row in table.splitlines() for name in re.findall(r"`(\w+)`", row.split("|")[1] if row else "")]
    assert found == expected
