"""What a release states about itself is true."""

from __future__ import annotations

import re
import runpy
import tomllib
from pathlib import Path

import a2lp

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_every_dependency_has_a_lower_bound_that_is_tested() -> None:
    lowest = runpy.run_path(str(ROOT / ".ci" / "lowest.py"))["lowest"]()
    extras = PROJECT["optional-dependencies"]
    lines = [*PROJECT["dependencies"], *(line for name in extras if name != "dev" for line in extras[name])]
    for line in lines:
        if line.startswith("a2lp[") or line == "torchvision":  # torchvision belongs to a torch of its own
            continue
        name, bound = line.split(">=")
        assert [int(part) for part in lowest[name].split(".")] >= [int(part) for part in bound.split(".")]
    assert lowest["torch"] == "2.6"  # the larger of two bounds


def test_licences_and_versions() -> None:
    assert all((ROOT / file).is_file() for file in PROJECT["license-files"])
    cited = re.search(r"^version: (.*)$", (ROOT / "CITATION.cff").read_text(encoding="utf-8"), re.MULTILINE)
    assert cited and cited[1] == a2lp.__version__
    assert f"## {a2lp.__version__}\n" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert (ROOT / "src" / "a2lp" / "py.typed").is_file()


def test_the_pythons_of_the_workflows_are_those_of_the_classifiers() -> None:
    stated = re.findall(r"Python :: (3\.\d+)", " ".join(PROJECT["classifiers"]))
    for name in ("ci.yml", "package.yml"):
        text = (ROOT / ".github" / "workflows" / name).read_text(encoding="utf-8")
        [versions] = re.findall(r"python: \[(.*)\]", text)
        assert [version.strip(' "') for version in versions.split(",")] == stated, name
    assert PROJECT["requires-python"] == f">={stated[0]}"


def test_the_commands_of_the_workflows_exist() -> None:
    """Scripts of .ci and targets of the Makefile."""
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    for path in (ROOT / ".github" / "workflows").iterdir():
        text = path.read_text(encoding="utf-8")
        assert all((ROOT / script).is_file() for script in re.findall(r"run: bash (\S+)", text)), path.name
        assert set(re.findall(r"run: make (\w+)", text)) <= targets, path.name


def test_the_extra_for_images_brings_no_torch() -> None:
    assert not any("torch" in line for line in PROJECT["optional-dependencies"]["images"])
