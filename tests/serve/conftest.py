"""Servers of the page in processes of their own."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

pytest.importorskip("uvicorn", reason="needs the extra serve")


def _benchmark(name: str) -> ModuleType:
    """A script of ``benchmarks`` as a module."""
    path = Path(__file__).resolve().parents[2] / "benchmarks" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def page_client() -> ModuleType:
    """``benchmarks/page_client.py``, which starts servers and talks to them."""
    return _benchmark("page_client")


@pytest.fixture(scope="session")
def driver() -> ModuleType:
    """``benchmarks/page_driver.py``, which drives a browser."""
    return _benchmark("page_driver")


@pytest.fixture(scope="module")
def demo(page_client: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A client of a server with the demo, ready; one for all tests of a module."""
    folder = tmp_path_factory.mktemp("demo")
    with page_client.Server("--project", folder / "demo.a2lp") as server, page_client.Client(server) as client:
        client.project = folder / "demo.a2lp"
        client.server = server
        client.ready()
        yield client
