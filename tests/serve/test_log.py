"""The log on disk: what was acknowledged is there, what was torn is not, and one process writes."""

from __future__ import annotations

import os
import stat
import subprocess
import sys

import pytest

from a2lp.errors import InputError
from a2lp.serve.log import Lock, Log


def test_lines_come_back_and_are_for_their_owner_alone(tmp_path):
    log = Log(tmp_path / "labels.jsonl")
    made = [log.append({"id": f"a{i}", "op": "label", "keys": ["ä"] * 3}) for i in range(4)]
    log.close()
    assert [line["seq"] for line in made] == [1, 2, 3, 4]
    assert Log(tmp_path / "labels.jsonl").lines == made
    assert stat.S_IMODE((tmp_path / "labels.jsonl").stat().st_mode) == 0o600


def test_a_repeated_command_is_written_once(tmp_path):
    log = Log(tmp_path / "labels.jsonl")
    first = log.append({"id": "a", "op": "label"})
    log.append({"id": "b", "op": "label"})
    assert log.append({"id": "a", "op": "clear"}) == first and len(log.lines) == 2
    log.close()
    again = Log(tmp_path / "labels.jsonl")
    assert again.append({"id": "a", "op": "label"}) == first and len(again.lines) == 2


@pytest.mark.parametrize("torn", [b'{"seq":3,"id":"c"', b"{", b'{"seq":3,"id":"c","op":"label"}', b"\xff\xfe"])
def test_a_torn_last_line_is_dropped_and_the_next_one_is_whole(tmp_path, torn):
    path = tmp_path / "labels.jsonl"
    log = Log(path)
    kept = [log.append({"id": name, "op": "label"}) for name in "ab"]
    log.close()
    path.write_bytes(path.read_bytes() + torn)
    log = Log(path)
    assert log.lines == kept
    more = log.append({"id": "d", "op": "label"})
    log.close()
    assert Log(path).lines == [*kept, more]


@pytest.mark.parametrize("damage", [b"nonsense\n", b'{"seq":7,"id":"x","op":"label"}\n', b'{"seq":1}\n', b"[1]\n"])
def test_damage_in_the_middle_is_refused_with_its_line(tmp_path, damage):
    path = tmp_path / "labels.jsonl"
    path.write_bytes(damage + b'{"seq":2,"id":"b","op":"label"}\n')
    with pytest.raises(InputError, match=r"line 1.*Restore the file from a copy"):
        Log(path)
    assert path.read_bytes().startswith(damage)


def test_a_full_disk_leaves_no_half_line(tmp_path, monkeypatch):
    log = Log(tmp_path / "labels.jsonl")
    log.append({"id": "a", "op": "label"})
    whole = log.path.read_bytes()
    write = os.write
    monkeypatch.setattr(os, "write", lambda file, data: write(file, data[:5]))
    with pytest.raises(InputError, match=r"No space left on device.*not saved"):
        log.append({"id": "b", "op": "label"})
    monkeypatch.undo()
    assert log.path.read_bytes() == whole and len(log.lines) == 1
    assert log.append({"id": "b", "op": "label"})["seq"] == 2


def test_a_killed_process_leaves_the_lock_free(tmp_path):
    code = "import sys, time\nfrom pathlib import Path\nfrom a2lp.serve.log import Lock\n"
    code += "lock = Lock(Path(sys.argv[1]), 'the other one')\nprint('held', flush=True)\ntime.sleep(60)"
    other = subprocess.Popen([sys.executable, "-c", code, tmp_path / "lock"], stdout=subprocess.PIPE, text=True)
    assert other.stdout is not None
    try:
        assert other.stdout.readline() == "held\n"
        with pytest.raises(InputError, match=r"in use by another server \(the other one\).*--project"):
            Lock(tmp_path / "lock", "this one")
    finally:
        other.kill()
        other.wait()
        other.stdout.close()
    Lock(tmp_path / "lock", "this one").release()
