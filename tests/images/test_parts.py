"""Folders of parts: the same vectors from files, tar archives and Parquet tables, whoever is killed meanwhile."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest
from PIL import Image
from pyarrow import parquet
from typer.testing import CliRunner

import a2lp
from a2lp.cli.app import app
from a2lp.errors import DatasetError, FeatureFileError, InputError
from a2lp.features import load
from a2lp.images import View
from a2lp.images.backbones import create
from a2lp.images.datasets import load as load_images
from a2lp.images.embed import embed_images
from a2lp.images.parts import embed_parts

VIEW = "32/32"


@pytest.fixture(scope="module")
def pictures() -> dict[str, bytes]:
    """Encoded images by name; two are equal."""
    rng = np.random.default_rng(0)
    found = {}
    for i in range(23):
        file = io.BytesIO()
        Image.fromarray(rng.integers(0, 256, (40, 36, 3), dtype=np.uint8)).save(file, "PNG")
        found[f"{'ab'[i % 2]}/{i:03d}.png"] = file.getvalue()
    return found | {"b/900.png": found["a/000.png"]}


@pytest.fixture
def folder(tmp_path: Path, pictures: dict[str, bytes]) -> Path:
    for name, content in pictures.items():
        (tmp_path / "photos" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "photos" / name).write_bytes(content)
    return tmp_path / "photos"


def options(weights: Path, **more: Any) -> dict[str, Any]:
    return {"backbone": "resnet12", "weights": weights, "view": VIEW, "part_size": 5, "device": "cpu"} | more


def vectors_of(features: a2lp.features.FeatureSet) -> dict[str, bytes]:
    return dict(zip(features.files, map(bytes, features.features), strict=True))


def test_files_tars_and_tables_give_the_vectors_of_embed(
    folder: Path, weights: Path, pictures: dict[str, bytes], tmp_path: Path
) -> None:
    names = sorted(pictures)
    shards, tables = tmp_path / "shards", tmp_path / "tables"
    shards.mkdir(), tables.mkdir()
    for number, part in enumerate((names[:10], names[10:])):
        with tarfile.open(shards / f"s{number}.tar", "w") as archive:
            for name in part:
                for end, content in ((".json", b"{}"), (".png", pictures[name])):
                    member = tarfile.TarInfo(name.removesuffix(".png") + end)
                    member.size = len(content)
                    archive.addfile(member, io.BytesIO(content))
        records = [{"bytes": pictures[name], "path": name} for name in part]
        parquet.write_table(pyarrow.table({"n": range(len(part)), "image": records}), tables / f"s{number}.parquet", 4)
    network = create("resnet12", weights, view=View.parse(VIEW))
    plain = embed_images(load_images(folder), network, device="cpu", cache=tmp_path / "cache")
    expected = vectors_of(plain)
    for source in (folder, shards, f"{shards}/s*.tar", tables, tables / "s0.parquet"):
        out = tmp_path / "parts" / hashlib.sha256(str(source).encode()).hexdigest()
        assert embed_parts(source, out, **options(weights)) == {}
        found = load(out)
        keys = {re.sub(r"^s[01]/", "", name): vector for name, vector in vectors_of(found).items()}
        assert keys == {name: expected[name] for name in keys}
        assert len(keys) == (10 if "s0.parquet" in str(source) else 24)
        table = parquet.read_table(out / "part-00001.parquet").to_pylist()
        for row in table:
            assert row["sha256"] == hashlib.sha256(pictures[re.sub(r"^s[01]/", "", row["name"])]).hexdigest()
    found = load(tmp_path / "parts" / hashlib.sha256(str(folder).encode()).hexdigest())
    assert found.features.dtype == np.float16 and isinstance(found.features.base, np.memmap)
    assert found.classes == plain.classes and found.label_values == plain.label_values


def test_images_that_cannot_be_read_are_skipped_even_if_they_are_a_whole_part(folder: Path, weights: Path) -> None:
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.png"))
    for name in (names[1], *names[20:]):  # the last four are a part
        (folder / name).write_bytes(b"no image")
    out = folder.parent / "out"
    with pytest.raises(DatasetError, match=re.escape(names[1])):
        embed_parts(folder, out, **options(weights))
    with pytest.raises(InputError, match="differs in on_corrupt"):
        embed_parts(folder, out, **options(weights, on_corrupt="skip"))
    with pytest.raises(FeatureFileError, match="has 0 of its 5 parts"):
        load(out)
    out = folder.parent / "skipped"
    skipped = embed_parts(folder, out, **options(weights, on_corrupt="skip"))
    assert sorted(skipped) == [names[1], *names[20:]] and "it is none of" in skipped[names[1]]
    assert load(out).files == (names[0], *names[2:20])


def test_folders_that_hold_something_else_are_refused(folder: Path, weights: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no parts"):
        embed_parts(folder, folder, **options(weights))
    (tmp_path / "x.tar").write_bytes(b"\x1f\x8b no archive")
    with pytest.raises(DatasetError, match="Decompress"):
        load_images(tmp_path / "x.tar")
    parquet.write_table(pyarrow.table({"text": ["a"]}), tmp_path / "x.parquet")
    with pytest.raises(DatasetError, match="no column of encoded images"):
        load_images(tmp_path / "x.parquet")


def test_killed_workers_and_a_killed_command_repeat_no_finished_part(folder: Path, weights: Path) -> None:
    pytest.importorskip("distributed")
    out, alone = folder.parent / "out", folder.parent / "alone"
    how = ["--backbone", "resnet12", "--weights", str(weights), "--view", VIEW, "--part-size", "2"]
    environment = os.environ | {"PYTHONPATH": str(Path(a2lp.__file__).parents[1]), "A2LP_CORES": "1"}

    def start(target: Path) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "a2lp", "embed", str(folder), *how, "--scheduler", "local:1"]
        return subprocess.Popen([*command, "--out", str(target)], env=environment, text=True, stderr=subprocess.PIPE)

    def finished() -> dict[str, list[int]]:
        ends = (".parquet", ".npy")
        return {each.stem: [each.with_suffix(end).stat().st_mtime_ns for end in ends] for each in out.glob("*.parquet")}

    run, earlier = start(out), {}
    for victim in ("worker", "command"):
        while len(finished()) < len(earlier) + 2:
            assert run.poll() is None, run.communicate()
            time.sleep(0.005)
        if victim == "worker":
            os.kill(worker_of(run.pid), signal.SIGKILL)
        else:
            run.kill()
        earlier = finished()
    run.communicate()
    assert len(earlier) < 12
    run = start(out)
    _, err = run.communicate(timeout=60)
    assert run.returncode == 0, err
    assert {name: finished()[name] for name in earlier} == earlier
    embed_parts(folder, alone, **options(weights, part_size=2))
    assert vectors_of(load(out)) == vectors_of(load(alone))


def worker_of(command: int) -> int:
    """The process of the only worker: the child that runs what multiprocessing spawns, not its tracker."""
    children = [pid for path in Path(f"/proc/{command}/task").glob("*/children") for pid in path.read_text().split()]
    workers = [int(pid) for pid in children if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    assert len(workers) == 1
    return workers[0]


def test_classify_takes_a_folder_of_parts(folder: Path, weights: Path, tmp_path: Path) -> None:
    out, labels, given = tmp_path / "parts", tmp_path / "labels.csv", tmp_path / "given.csv"
    embed_parts(folder, out, **options(weights))
    given.write_text("path,label\na/000.png,x\na/002.png,x\nb/001.png,y\nb/003.png,y\n")
    arguments = ["classify", str(out), "--labels", str(given), "--out", str(labels)]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.stderr
    assert len(labels.read_text().splitlines()) == 25
    assert json.loads((out / "plan.json").read_text())["n_parts"] == 5
