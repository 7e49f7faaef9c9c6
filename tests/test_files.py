from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from a2lp.errors import A2LPError, DatasetError, FeatureFileError, InputError
from a2lp.files import (
    check_file,
    check_target,
    exists,
    parse_json,
    read_json,
    read_text,
    reading,
    replacing,
    write_text,
    writing,
)

# ---- writing ------------------------------------------------------------------------------------------------------


def test_threads_can_write_the_same_file(tmp_path: Path) -> None:
    path, failures = tmp_path / "x.txt", []
    barrier = threading.Barrier(8)

    def write(i: int) -> None:
        try:
            barrier.wait()
            for _ in range(30):
                write_text(path, f"{i}" * 5000)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=write, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    content = path.read_text()
    assert len(content) == 5000
    assert len(set(content)) == 1  # of one of them, whole
    assert list(tmp_path.iterdir()) == [path]


def test_a_failure_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    path.write_text("before")
    with pytest.raises(RuntimeError), replacing(path) as temporary:
        temporary.write_text("half")
        raise RuntimeError
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.skipif(os.name != "posix", reason="leftovers are removed on POSIX systems")
def test_leftovers_of_dead_processes_are_removed_and_those_of_live_ones_kept(tmp_path: Path) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    names = {
        "dead": f".x.txt.{dead.pid}-0123abcd.tmp",
        "live": f".x.txt.{os.getppid()}-0123abcd.tmp",
        "of another file": f".y.txt.{dead.pid}-0123abcd.tmp",
        "of another program": ".x.txt.mine.tmp",
        "no process": f".x.txt.{10**30}-0123abcd.tmp",
    }
    for name in names.values():
        (tmp_path / name).touch()
    write_text(tmp_path / "x.txt", "content")
    kept = {names["live"], names["of another file"], names["of another program"], "x.txt"}
    assert {path.name for path in tmp_path.iterdir()} == kept


def test_files_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"x\.txt cannot be written \(No such file or directory\)\. Check the folder"):
        write_text(tmp_path / "none" / "x.txt", "")
    with (
        pytest.raises(DatasetError, match=r"x cannot be written \(no space\)\. Buy a disk\."),
        writing("x", "Buy a disk.", DatasetError),
    ):
        raise OSError("no space")
    with pytest.raises(InputError, match="as it is"), writing("x"):
        raise InputError("as it is")


@pytest.mark.parametrize(
    ("name", "force", "message"),
    [
        ("x.txt", False, r"x\.txt has the extension '\.txt'; a table is written as \.csv or \.json\. Rename it"),
        ("x", False, r"x has no extension; a table is written as \.csv or \.json"),
        ("none/x.csv", False, r"there is no folder .*none\. Create it"),
        ("folder.csv", True, r"folder\.csv is a folder; expected the name of a file"),
        ("old.csv", False, r"old\.csv exists already\. Choose another name, or replace it with --force"),
        ("n" * 300 + ".csv", False, r"cannot be written \(File name too long\)"),
    ],
)
def test_targets_that_are_refused(tmp_path: Path, name: str, force: bool, message: str) -> None:
    (tmp_path / "folder.csv").mkdir()
    (tmp_path / "old.csv").touch()
    with pytest.raises(InputError, match=message):
        check_target(tmp_path / name, (".csv", ".json"), "a table", force=force)
    check_target(tmp_path / "new.CSV", (".csv", ".json"), "a table")
    check_target(tmp_path / "old.csv", (".csv", ".json"), "a table", force=True)
    check_target(tmp_path / "anything.xyz", (), "a table")


# ---- reading ------------------------------------------------------------------------------------------------------


def test_only_regular_files_are_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "large").touch()
    os.truncate(tmp_path / "large", 20 << 30)  # takes up nothing
    for path, message in {
        tmp_path / "pipe": "is not a regular file",
        tmp_path / "link": "is not a regular file",
        Path("/dev/zero"): "is not a regular file",
        Path("/dev/full"): "is not a regular file",
        tmp_path: "is a folder",
        tmp_path / "none": "does not exist",
        tmp_path / "large" / "x": "does not exist",
        tmp_path / "nul\0": "does not exist",
        tmp_path / "loop": "cannot be read: Too many levels of symbolic links",
        tmp_path / ("n" * 300): "cannot be read: File name too long",
        tmp_path / "large": "has 21474836480 bytes, which is more than the 268435456 that a text may have",
    }.items():
        for read in (read_text, read_json):
            with pytest.raises(FeatureFileError) as caught:
                read(path, "a text")
            assert str(path) in str(caught.value)
            assert message in str(caught.value)
    assert check_file(tmp_path / "large", "a text") == 20 << 30


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
def test_missing_permission_is_an_error_of_the_library(tmp_path: Path, as_nobody: Callable[..., str]) -> None:
    (tmp_path / "x.json").write_text("{}")
    (tmp_path / "x.json").chmod(0)
    (tmp_path / "closed").mkdir(mode=0)
    imports = "from a2lp.errors import A2LPError\nfrom a2lp.files import exists, read_json"
    code = """
for act in (lambda: read_json(sys.argv[1], "x"), lambda: read_json(sys.argv[2], "x"), lambda: exists(sys.argv[2])):
    try:
        print(act())
    except A2LPError as error:
        print(error)
"""
    lines = as_nobody(imports, code, tmp_path / "x.json", tmp_path / "closed" / "x.json").splitlines()
    assert len(lines) == 3
    assert all("cannot be read: Permission denied. Check" in line for line in lines), lines
    (tmp_path / "closed").chmod(0o700)


def test_any_exception_of_a_parser_becomes_one_error(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text("content")

    def fails(error: BaseException) -> str:
        with pytest.raises(FeatureFileError) as caught, reading(path, "a thing", remedy="Try again.") as size:
            assert size == 7
            raise error
        assert str(path) in str(caught.value)
        return str(caught.value)

    assert "cannot be read as a thing; it is something else" in fails(KeyError("k"))
    assert "(KeyError: 'k'). Try again." in fails(KeyError("k"))
    assert "(RecursionError)" in fails(RecursionError())
    assert "x: the rule" in fails(InputError("the rule"))
    assert "cannot be read: Input/output error" in fails(OSError(5, "Input/output error"))
    assert len(fails(ValueError("x" * 10**6))) < 400 + len(str(path))
    with pytest.raises(KeyboardInterrupt), reading(path, "a thing"):
        raise KeyboardInterrupt
    with pytest.raises(DatasetError, match=r"^as it is$"), reading(path, "a thing"):
        raise DatasetError("as it is")


GOOD: list[Any] = [
    None,
    [],
    {},
    1.5,
    "ä",
    -(10**90),
    [[[]]],
    {"a": [1, 2, {"b": None}]},
    json.loads("[" * 64 + "]" * 64),
]


@pytest.mark.parametrize("value", GOOD)
def test_json_round_trip(tmp_path: Path, value: Any) -> None:
    (tmp_path / "x.json").write_text(json.dumps(value))
    assert read_json(tmp_path / "x.json", "x") == parse_json(json.dumps(value), "x") == value


BAD: dict[str, tuple[Any, str]] = {
    "nothing": ("", "must be JSON, found ''"),
    "cut": ('{"a": 1', "must be JSON"),
    "deep": ("[" * 65 + "]" * 65, "more than 64 levels deep"),
    "deeper": ("[" * 10**6, "more than 64 levels deep"),
    "deep objects": ('{"a":' * 10**5, "more than 64 levels deep"),
    "many digits": ("9" * 101, "a number of 101 digits; at most 100"),
    "more digits than Python converts": ("[" + "9" * 10**6 + "]", "a number of 1000000 digits"),
    "infinite": ("1e999", "'1e999' is not finite"),
    "a word for it": ("-Infinity", "'-Infinity' is not finite"),
    "not a number": ("NaN", "'NaN' is not finite"),
    "no text": (b"\xff\xfe\xff", "must be JSON"),
    "no bytes": (3.5, "must be JSON, found a float"),
    "long": ("x" * 10**7, "must be JSON, found 'xxx"),
}


@pytest.mark.parametrize("name", BAD)
def test_json_that_is_refused(name: str) -> None:
    text, message = BAD[name]
    began = time.monotonic()
    with pytest.raises(InputError, match=message) as caught:
        parse_json(text, "the list")
    assert str(caught.value).startswith("the list ")
    assert len(str(caught.value)) < 500
    assert time.monotonic() - began < 10


def test_text_with_and_without_a_byte_order_mark(tmp_path: Path) -> None:
    for content in (b"a\r\nb", b"\xef\xbb\xbfa\r\nb"):
        (tmp_path / "x.txt").write_bytes(content)
        assert read_text(tmp_path / "x.txt", "a text") == "a\r\nb"
    (tmp_path / "x.txt").write_bytes(b"\xff")
    with pytest.raises(FeatureFileError, match=r"cannot be read as a text.*UnicodeDecodeError"):
        read_text(tmp_path / "x.txt", "a text")


def test_a_name_that_no_file_can_have_does_not_exist(tmp_path: Path) -> None:
    assert exists(tmp_path)
    assert not exists(tmp_path / "x")
    assert not exists("a\0b")
    with pytest.raises(InputError, match="File name too long"):
        exists(tmp_path / ("n" * 300))


READERS: list[Callable[[Path], Any]] = [lambda path: read_text(path, "x"), lambda path: read_json(path, "x")]


@pytest.mark.parametrize("read", READERS)
def test_errors_are_of_the_library(tmp_path: Path, read: Callable[[Path], Any]) -> None:
    with pytest.raises(A2LPError):
        read(tmp_path / "x")
