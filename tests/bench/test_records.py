from __future__ import annotations

import json
import os
from dataclasses import replace

import pytest

from a2lp.bench.records import Record, RecordStore, content_key
from a2lp.errors import A2LPWarning, InputError

CONFIG = {"n_tasks": 3, "seed": 7, "method": "lp"}
RECORD = Record(
    key=content_key(CONFIG),
    config=CONFIG,
    accuracies=[100 / 3, 60.0, 20.0],
    seconds=0.25,
    engine="batched",
    versions={"numpy": "2"},
    hardware={"cores": 2},
    commit=None,
    date="2024-01-01T00:00:00+00:00",
)


def test_a_record_comes_back_and_leaves_nothing_else(tmp_path):
    store = RecordStore(tmp_path / "new" / "out")
    assert RECORD.key not in store
    assert store.get(RECORD.key) is None
    store.put(RECORD)
    assert RECORD.key in store
    assert store.get(RECORD.key) == RECORD
    assert [path.name for path in store.folder.iterdir()] == [f"{RECORD.key}.json"]
    data = json.loads((store.folder / f"{RECORD.key}.json").read_text())
    assert data["mean"] == pytest.approx(340 / 9)
    assert data["seed"] == 7


def test_a_single_task_is_valid_json(tmp_path):
    store = RecordStore(tmp_path)
    config = {"n_tasks": 1, "seed": None}
    one = replace(RECORD, key=content_key(config), accuracies=[50.0], config=config)
    store.put(one)
    assert store.get(one.key) == one


@pytest.mark.parametrize("share", [0, 0.3, 0.9, 0.999])
def test_a_truncated_record_is_no_record_and_is_mentioned(tmp_path, share):
    store = RecordStore(tmp_path)
    store.put(RECORD)
    path = store.folder / f"{RECORD.key}.json"
    text = path.read_text()
    path.write_text(text[: int(share * (len(text) - 2))])
    with pytest.warns(A2LPWarning, match="is not a whole record .* run again"):
        assert store.get(RECORD.key) is None


@pytest.mark.parametrize(
    "change",
    [
        {"accuracies": [1.0, 2.0]},
        {"accuracies": None},
        {"accuracies": [1.0, 2.0, "a"]},
        {"accuracies": [1.0, 2.0, float("nan")]},
        {"accuracies": [1.0, 2.0, 1e6]},
        {"config": {}},
        {"config": {"n_tasks": "x"}},
        {"config": CONFIG | {"method": "a2lp"}},
        {"seconds": float("nan")},
        {"limit": "x"},
        {"uniform": []},
        {"failed": 5},
        {"date": None},
        {"hardware": None},
        {"versions": 3},
    ],
)
def test_a_record_that_lacks_something_is_no_record(tmp_path, change):
    store = RecordStore(tmp_path)
    store.put(RECORD)
    path = store.folder / f"{RECORD.key}.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.warns(A2LPWarning, match="is not a whole record"):
        assert store.get(RECORD.key) is None


@pytest.mark.parametrize(
    "text", ["[" * 10**5, '{"key": ' + "9" * 10**5 + "}", "null", "[]", '{"seconds": 1e999}', "\udcff"], ids=range(6)
)
def test_hostile_text_is_no_record(tmp_path, text):
    store = RecordStore(tmp_path)
    path = store.folder / f"{RECORD.key}.json"
    path.write_text(text, errors="surrogateescape")
    with pytest.warns(A2LPWarning, match="is not a whole record") as caught:
        assert store.get(RECORD.key) is None
    assert len(str(caught[0].message)) < 1000


def test_a_number_without_end_in_a_record(tmp_path):
    store = RecordStore(tmp_path)
    store.put(RECORD)
    path = store.folder / f"{RECORD.key}.json"
    path.write_text(path.read_text().replace("0.25", "9" * 400))
    with pytest.warns(A2LPWarning, match="a number of 400 digits"):
        assert store.get(RECORD.key) is None


def test_what_is_no_file_is_an_error(tmp_path):
    store = RecordStore(tmp_path)
    os.mkfifo(store.folder / f"{RECORD.key}.json")
    with pytest.raises(InputError, match="is not a regular file"):
        store.get(RECORD.key)


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
def test_missing_permission_is_an_error(tmp_path, as_nobody):
    store = RecordStore(tmp_path)
    store.put(RECORD)
    path = store.folder / f"{RECORD.key}.json"
    imports = "from pathlib import Path\nfrom a2lp.bench.records import RecordStore\nfrom a2lp.errors import A2LPError"
    code = """
store = object.__new__(RecordStore)
store.folder = Path(sys.argv[1]).parent
try:
    print(store.get(Path(sys.argv[1]).stem))
except A2LPError as error:
    print(error)
"""
    for closed in (path, store.folder):
        mode = closed.stat().st_mode
        closed.chmod(0)
        assert f"{path} cannot be read: Permission denied. Check" in as_nobody(imports, code, path)
        closed.chmod(mode)


def test_a_record_that_a_limit_stopped_is_one(tmp_path):
    store = RecordStore(tmp_path)
    part = replace(RECORD, accuracies=[10.0], limit=3.0)
    store.put(part)
    assert store.get(part.key) == part
    assert not part.whole


def test_records_of_earlier_versions_are_read(tmp_path):
    data = json.loads(RECORD.to_json())
    for name in ("uniform", "uses_base", "limit", "failed"):
        del data[name]
    assert Record.from_json(json.dumps(data)) == RECORD


def test_out_must_be_a_folder(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"file cannot be written .* Name a new one"):
        RecordStore(tmp_path / "file")


def test_files_of_others_are_not_replaced(tmp_path):
    (tmp_path / "tables.md").write_text("mine")
    RecordStore(tmp_path, ["table.md"])
    (tmp_path / "records" / "a.json").write_text("[1]")
    with pytest.raises(InputError, match=r"holds tables\.md and no records"):
        RecordStore(tmp_path, ["tables.md"])
    RecordStore(tmp_path).put(RECORD)  # of an earlier run, whose tables they are
    RecordStore(tmp_path, ["tables.md"])


def test_what_cannot_be_written_is_named(tmp_path):
    store = RecordStore(tmp_path)
    (store.folder / f"{RECORD.key}.json").mkdir()
    with pytest.raises(InputError, match=r"\.json cannot be written"):
        store.put(RECORD)
