"""A folder of images: embedded, shown, labelled, moved."""

from __future__ import annotations

import io
import shutil
from typing import Any

import numpy as np
import pytest

image: Any = pytest.importorskip("PIL.Image")


@pytest.fixture(scope="module")
def folder(page_client, tmp_path_factory):
    """A server on 14 images: two that are links, one of them out of the folder, and one that cannot be read."""
    place = tmp_path_factory.mktemp("images")
    (place / "photos" / "<b>sub").mkdir(parents=True)
    rng = np.random.default_rng(0)
    for i in range(12):
        pixels = np.clip(np.array([250, 60, 60] if i % 2 else [40, 60, 230]) + rng.normal(0, 20, (300, 200, 3)), 0, 255)
        image.fromarray(pixels.astype(np.uint8)).save(place / "photos" / "<b>sub" / f"{i:02d}.jpg")
    image.new("RGB", (40, 40), "green").save(place / "secret.png")
    (place / "photos" / "out.png").symlink_to(place / "secret.png")
    (place / "photos" / "broken.jpg").write_bytes(b"\xff\xd8\xff<script>")
    (place / "labels.csv").write_text("path,label\n<b>sub/01.jpg,red\n<b>sub/02.jpg,blue\n")
    (place / "names.txt").write_text("blue\nred\ngreen\n")
    return place


def started(page_client, folder, *more):
    arguments = ["--labels", folder / "labels.csv", "--names", folder / "names.txt", "--cache", folder / "cache"]
    return page_client.Server(folder / "photos", *arguments, *more, env={"OMP_NUM_THREADS": "1"})


def test_images_are_embedded_labelled_and_shown(page_client, folder):
    with started(page_client, folder) as server, page_client.Client(server) as client:
        state = client.ready()
        assert state["n"] == 13 and state["skipped"] == 1 and state["images"]
        assert [(one["name"], one["pin"], one["yours"]) for one in state["classes"]] == [
            ("blue", "1", 1),
            ("red", "2", 1),
            ("green", "3", 0),
        ]
        keys = {
            point["key"]: point["row"] for point in client.json("/api/points?rows=" + ",".join(map(str, range(13))))
        }
        client.do("label", rows=[keys["<b>sub/03.jpg"]], label="red")
        state = client.settled()
        _, classes, _, _ = client.rows()
        names = page_client.names_of(state, classes)
        assert all(names[keys[f"<b>sub/{i:02d}.jpg"]] == ("red" if i % 2 else "blue") for i in range(12))
        row = keys["<b>sub/00.jpg"]
        for path, size in (
            (f"/thumb/{row}/128", (85, 128)),
            (f"/thumb/{row}/256", (171, 256)),
            (f"/image/{row}", (200, 300)),
        ):
            status, headers, data = client.request("GET", path)
            assert (
                status == 200
                and headers["content-type"] == "image/webp"
                and headers["x-content-type-options"] == "nosniff"
            )
            assert image.open(io.BytesIO(data)).size == size
        status, _, body = client.request("GET", f"/thumb/{keys['out.png']}/128")
        assert status == 404 and b"leads out of the source" in body
        assert client.post("/api/export", {})[0] == 200
    project = folder / "photos.a2lp"
    assert {path.name for path in (project / "sorted" / "red").iterdir()} >= {f"{i:02d}.jpg" for i in range(1, 12, 2)}
    assert len(list((project / "thumbnails").rglob("*.webp"))) == 2
    assert str(folder) not in (project / "labels.jsonl").read_text() + (project / "README.txt").read_text()


def test_the_project_moves_with_its_source_and_imports_labels_once(page_client, folder, tmp_path):
    for name in ("photos", "photos.a2lp", "cache", "labels.csv", "names.txt"):
        source = folder / name
        if source.is_dir():
            shutil.copytree(source, tmp_path / name, symlinks=True)
        else:
            shutil.copy(source, tmp_path / name)
    before = (tmp_path / "photos.a2lp" / "labels.jsonl").read_text()
    with started(page_client, tmp_path) as server, page_client.Client(server) as client:
        state = client.ready()
        assert state["counts"]["yours"] == 3 and state["seq"] == len(before.splitlines())
    assert (tmp_path / "photos.a2lp" / "labels.jsonl").read_text() == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "nowhere"),
        (["photos", "--port", "70000"], "--port 70000 must be from 1 to 65535"),
        (["photos", "--names", "nothing.txt"], "nothing.txt does not exist"),
        (["photos", "--labels", "wrong.csv"], "not in the source"),
        (["photos", "--project", "photos/project"], "lies in the source"),
        (["photos", "--project", "."], "is no project"),
    ],
)
def test_what_cannot_be_served_is_refused_at_once(page_client, folder, monkeypatch, arguments, message):
    monkeypatch.chdir(folder)
    (folder / "wrong.csv").write_text("path,label\nnobody.jpg,red\n")
    with pytest.raises(RuntimeError, match="ended with 2") as caught:
        page_client.Server(*arguments)
    assert message in str(caught.value) and "Traceback" not in str(caught.value)
