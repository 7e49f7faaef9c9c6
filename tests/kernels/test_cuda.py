"""Compiled kernels are found again by later processes, whole or not at all."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from a2lp.kernels import cuda


class Compiler:
    """Counts how often it is asked."""

    def __init__(self, code: bytes) -> None:
        self.code, self.calls = code, 0

    def __call__(self) -> bytes:
        self.calls += 1
        return self.code


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("A2LP_CACHE", str(tmp_path))
    cuda._folder.cache_clear()
    yield tmp_path / "cuda"
    cuda._folder.cache_clear()


def test_a_kernel_is_compiled_once_and_kept_in_private(folder: Path) -> None:
    first, second, other = Compiler(b"first"), Compiler(b"second"), Compiler(b"other")
    assert [cuda.kept("a", first), cuda.kept("a", second), cuda.kept("b", other)] == [b"first", b"first", b"other"]
    assert (first.calls, second.calls, other.calls) == (1, 0, 1)
    assert folder.stat().st_mode & 0o077 == 0
    assert {file.name for file in folder.iterdir()} == {"a.cubin", "b.cubin"}


@pytest.mark.parametrize("damage", ["cut", "emptied", "changed"])
def test_a_damaged_file_is_made_again(folder: Path, damage: str) -> None:
    code = bytes(range(256)) * 20
    cuda.kept("a", Compiler(code))
    file = folder / "a.cubin"
    content = file.read_bytes()
    changed = content[:1000] + bytes([content[1000] ^ 1]) + content[1001:]
    file.write_bytes({"cut": content[:-1], "emptied": b"", "changed": changed}[damage])
    again = Compiler(code)
    assert (cuda.kept("a", again), again.calls) == (code, 1)
    assert file.read_bytes() == content


def test_what_was_not_used_for_a_month_leaves(folder: Path) -> None:
    for key in ("forgotten", "old", "recent"):
        cuda.kept(key, Compiler(b"code"))
    for key, days in (("forgotten", 400), ("old", 40), ("recent", 3)):
        used = time.time() - days * 86400
        os.utime(folder / f"{key}.cubin", (used, used))
    cuda.kept("old", Compiler(b"code"))  # a use
    cuda.kept("new", Compiler(b"code"))
    assert {file.stem for file in folder.iterdir()} == {"old", "recent", "new"}


def test_a_folder_that_others_can_write_to_is_not_used(folder: Path) -> None:
    cuda.kept("a", Compiler(b"code"))
    folder.chmod(0o777)
    cuda._folder.cache_clear()
    anew = Compiler(b"mine")
    assert (cuda.kept("a", anew), anew.calls) == (b"mine", 1)
