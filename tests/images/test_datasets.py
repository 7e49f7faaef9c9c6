"""Each dataset from each layout that people have on disk, as small copies which the tests write."""

from __future__ import annotations

import csv
import hashlib
import io
import os
import pickle
import struct
import tracemalloc
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from a2lp.errors import A2LPWarning, CorruptImageError, DatasetError, InputError, UnknownNameError
from a2lp.images import View
from a2lp.images.datasets import ImageSet, load, sources, standard
from a2lp.images.datasets import decode as decode_module
from a2lp.images.datasets.decode import decode
from a2lp.images.datasets.folders import image_files

SPLITS = ("train", "val", "test")
Pictures = dict[str, dict[str, list[np.ndarray]]]  # split -> class -> images


def pictures(dataset: str, side: int = 8) -> Pictures:
    """Two images for each class of each split, no two alike."""
    rng = np.random.default_rng(0)
    return {
        split: {name: list(rng.integers(0, 256, (2, side, side, 3), dtype=np.uint8)) for name in names}
        for split, names in standard(dataset).classes.items()
    }


def every(images: Pictures) -> dict[str, list[np.ndarray]]:
    return {name: pair for split in SPLITS for name, pair in images[split].items()}


def png(pixels: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()


def write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


class Python2(pickle._Pickler):
    """Writes what Python 2 wrote: bytes and text are both strings."""

    def save_string(self, value: str | bytes) -> None:
        data = value.encode("latin1") if isinstance(value, str) else value
        short = len(data) < 256
        self.write((b"U" + bytes([len(data)]) if short else b"T" + struct.pack("<i", len(data))) + data)
        self.memoize(value)

    dispatch = pickle._Pickler.dispatch | {str: save_string, bytes: save_string}


def python2(value: Any) -> bytes:
    buffer = io.BytesIO()
    Python2(buffer, 2).dump(value)
    return buffer.getvalue()


# --- writers: each lays one dataset out under a root -----------------------------------------------------------


def class_folders(root: Path, images: Pictures) -> None:
    for split in SPLITS:
        for name, pair in images[split].items():
            for i, image in enumerate(pair):
                write(root / split / name / f"{i}.png", png(image))


def plain_folders(root: Path, images: Pictures) -> None:
    for name, pair in every(images).items():
        for i, image in enumerate(pair):
            write(root / name / f"{name}_{i}.png", png(image))


def csv_tables(root: Path, images: Pictures) -> None:
    for split in SPLITS:
        root.mkdir(exist_ok=True)
        with (root / f"{split}.csv").open("w", newline="") as file:
            table = csv.writer(file)
            table.writerow(["filename", "label"])
            for name, pair in images[split].items():
                for i, image in enumerate(pair):
                    table.writerow([f"{name}{i:08d}.png", name])
                    write(root / "images" / f"{name}{i:08d}.png", png(image))


def csv_tables_in_split(root: Path, images: Pictures) -> None:
    """As CUB is often kept: tables in ``split``, and a folder for each class in ``images``."""
    csv_tables(root, images)
    (root / "split").mkdir()
    for split in SPLITS:
        (root / f"{split}.csv").rename(root / "split" / f"{split}.csv")
        for name, pair in images[split].items():
            (root / "images" / name).mkdir()
            for i in range(len(pair)):
                (root / "images" / f"{name}{i:08d}.png").rename(root / "images" / name / f"{name}{i:08d}.png")


def stacked(images: dict[str, list[np.ndarray]]) -> np.ndarray:
    return np.stack([image for pair in images.values() for image in pair])


def caches(root: Path, images: Pictures) -> None:
    for split in SPLITS:
        rows = {name: [2 * i, 2 * i + 1] for i, name in enumerate(images[split])}
        content = {"image_data": stacked(images[split]), "class_dict": rows}
        write(root / f"mini-imagenet-cache-{split}.pkl", pickle.dumps(content, 4))


def category_splits(root: Path, images: Pictures) -> None:
    for split, first in zip(SPLITS, (0, 64, 80), strict=True):
        number = {name: first + i for i, name in enumerate(images[split])}
        content = {
            "data": stacked(images[split]),
            "labels": [n for n in number.values() for _ in range(2)],
            "catname2label": number,
        }
        part = "train_phase_train" if split == "train" else split
        write(root / f"miniImageNet_category_split_{part}.pickle", python2(content))


def tiered_pickles(root: Path, images: Pictures) -> None:
    words = standard("tiered_imagenet").names
    for split in SPLITS:
        blobs = [np.frombuffer(png(image), np.uint8)[:, None] for pair in images[split].values() for image in pair]
        labels = {
            "label_specific": np.repeat(np.arange(len(images[split]), dtype=np.int32), 2),
            "label_specific_str": [words[name] for name in images[split]],
        }
        write(root / f"{split}_images_png.pkl", python2(blobs))
        write(root / f"{split}_labels.pkl", python2(labels))


def cub_archive(root: Path, images: Pictures) -> None:
    plain_folders(root / "CUB_200_2011" / "images", images)
    write(root / "CUB_200_2011" / "parts" / "parts.txt", b"1 back\n")
    write(root / "CUB_200_2011" / "segmentations" / next(iter(images["test"])) / "mask.png", png(images_of_zeros()))
    write(root / "CUB_200_2011" / "classes.txt", b"1 001.Black_footed_Albatross\n")


def images_of_zeros() -> np.ndarray:
    return np.zeros((8, 8, 3), dtype=np.uint8)


def cifar_folders(root: Path, images: Pictures) -> None:
    plain_folders(root / "cifar100" / "data", images)
    for split, names in standard("cifar_fs").classes.items():
        write(root / "cifar100" / "splits" / "bertinetto" / f"{split}.txt", "\n".join(names).encode() + b"\n")


def numbered_pickles(stem: str) -> Callable[[Path, Pictures], None]:
    def write_them(root: Path, images: Pictures) -> None:
        numbers = {name: n for n, name in enumerate(sorted(every(images)))}
        for split in SPLITS:
            labels = [numbers[name] for name in images[split] for _ in range(2)]
            write(root / f"{stem}_{split}.pickle", python2({"data": stacked(images[split]), "labels": labels}))

    return write_them


def cifar_python(root: Path, images: Pictures) -> None:
    """The first image of each class in ``train``, the second in ``test``; planes, not pixels."""
    names = sorted(every(images))
    write(root / "cifar-100-python" / "meta", python2({"fine_label_names": names}))
    for i, file in enumerate(("train", "test")):
        data = np.stack([every(images)[name][i].transpose(2, 0, 1).reshape(-1) for name in names])
        filenames = [f"{name}_s_000001.png" for name in names]
        content = {"filenames": filenames, "fine_labels": list(range(len(names))), "data": data}
        write(root / "cifar-100-python" / file, python2(content))


def save_pack(path: Path, images: Pictures, splits: tuple[str, ...], encode: Callable[..., bytes] = png) -> None:
    classes = sorted(every(images))[::-1]  # any order: labels only index it
    rows = [(split, name, image) for split in splits for name, pair in images[split].items() for image in pair]
    blobs = [encode(image) for _, _, image in rows]
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(
        path,
        data=np.frombuffer(b"".join(blobs), np.uint8),
        offsets=np.cumsum([0, *map(len, blobs)]),
        labels=np.array([classes.index(name) for _, name, _ in rows], dtype=np.int16),
        classes=np.array([name.encode() for name in classes]),
        names=np.array([f"{name}_{i}.png".encode() for i, (_, name, _) in enumerate(rows)]),
        split=np.array([split.encode() for split, _, _ in rows]),
    )


def packs(root: Path, images: Pictures) -> None:
    save_pack(root / "this_train.npz", images, ("train",))
    save_pack(root / "this_val_test.npz", images, ("val", "test"))


def mosaic_pack(root: Path, images: Pictures) -> None:
    """A mosaic of 1 x 2 tiles for each class; two pixels around each image are not part of it."""
    root.mkdir(exist_ok=True)
    names = [(split, name) for split in SPLITS for name in images[split]]
    blobs = []
    for split, name in names:
        wide = [np.pad(image, ((0, 2), (0, 2), (0, 0)), constant_values=7) for image in images[split][name]]
        blobs.append(png(np.concatenate(wide, axis=1)))
    side = images["train"][names[0][1]][0].shape[0]
    np.savez(
        root / "mosaics.npz",
        data=np.frombuffer(b"".join(blobs), np.uint8),
        offsets=np.cumsum([0, *map(len, blobs)]),
        grid=[1, 2],
        tile=[side + 2, side + 2],
        crop=[side, side],
        labels=np.repeat(np.arange(len(names)), 2),
        classes=np.array([name for _, name in names]),
        split=np.repeat([split for split, _ in names], 2),
    )


LAYOUTS = [
    ("mini_imagenet", csv_tables),
    ("mini_imagenet", class_folders),
    ("mini_imagenet", caches),
    ("mini_imagenet", category_splits),
    ("mini_imagenet", mosaic_pack),
    ("tiered_imagenet", tiered_pickles),
    ("tiered_imagenet", class_folders),
    ("tiered_imagenet", plain_folders),
    ("cub", cub_archive),
    ("cub", plain_folders),
    ("cub", csv_tables_in_split),
    ("cub", packs),
    ("cub_easyfsl", cub_archive),
    ("cifar_fs", cifar_folders),
    ("cifar_fs", numbered_pickles("CIFAR_FS")),
    ("cifar_fs", cifar_python),
    ("cifar_fs", class_folders),
    ("fc100", numbered_pickles("FC100")),
    ("fc100", cifar_folders),
    ("fc100", cifar_python),
    ("fc100", packs),
]


@pytest.mark.parametrize(
    ("dataset", "lay_out"), LAYOUTS, ids=[f"{d}-{w.__qualname__.split('.')[0]}" for d, w in LAYOUTS]
)
def test_every_layout_gives_the_images_of_the_standard_split(
    tmp_path: Path, dataset: str, lay_out: Callable[[Path, Pictures], None]
) -> None:
    images = pictures(dataset, 32 if lay_out is cifar_python else 8)
    lay_out(tmp_path / "data", images)
    for split in SPLITS:
        found = load(tmp_path / "data", split, dataset=dataset)
        assert found.name == f"{dataset}_{split}"
        assert found.classes == tuple(sorted(images[split]))
        assert found.labels is not None
        assert found.labels.dtype == np.int64
        assert len(found) == 2 * len(images[split])
        pixels = [found.source.image(row) for row in range(len(found))]
        for label, name in enumerate(found.classes):
            mine = [pixels[row].tobytes() for row in np.flatnonzero(found.labels == label)]
            assert sorted(mine) == sorted(image.tobytes() for image in images[split][name])
    assert len(load(tmp_path / "data", dataset=dataset)) == 2 * len(every(images))


@pytest.mark.parametrize("lay_out", [class_folders, csv_tables, packs, mosaic_pack, caches])
def test_layouts_with_their_own_splits_need_no_dataset(tmp_path: Path, lay_out: Any) -> None:
    images = pictures("mini_imagenet")
    lay_out(tmp_path / "mine", images)
    found = load(tmp_path / "mine", "val")
    assert found.name == "mine_val"
    assert found.classes == tuple(sorted(images["val"]))


def test_packs_by_file_by_list_and_by_pattern(tmp_path: Path) -> None:
    images = pictures("cub")
    packs(tmp_path, images)
    whole = load(tmp_path)
    by_pattern = load(str(tmp_path / "this_*.npz"))
    by_list = load([tmp_path / "this_train.npz", tmp_path / "this_val_test.npz"])
    assert by_pattern.name == by_list.name == "this"
    assert whole.files == by_pattern.files == by_list.files
    assert len(load(tmp_path / "this_val_test.npz")) == 200
    save_pack(tmp_path / "other.npz", pictures("fc100"), ("train",))
    with pytest.raises(DatasetError, match=r"this_train\.npz hold different classes.*Name the dataset"):
        load(tmp_path)
    assert load(tmp_path, dataset="cub").files == whole.files
    with pytest.raises(DatasetError, match=r"no file matches .*nothing"):
        load(str(tmp_path / "nothing*.npz"))


def test_a_named_dataset_replaces_the_splits_of_packs(tmp_path: Path) -> None:
    packs(tmp_path, pictures("cifar_fs"))
    assert load(tmp_path, "test").classes == standard("cifar_fs").classes["test"]
    assert load(tmp_path, "test", dataset="fc100").classes == standard("fc100").classes["test"]


def test_keys_are_paths_under_the_root_and_digests_are_of_the_content(tmp_path: Path) -> None:
    images = pictures("cub")
    cub_archive(tmp_path, images)
    found = load(tmp_path, "test", dataset="cub")
    assert found.files[0] == "CUB_200_2011/images/004.Groove_billed_Ani/004.Groove_billed_Ani_0.png"
    assert found.digest(0) == hashlib.sha256((tmp_path / found.files[0]).read_bytes()).hexdigest()
    chosen = found.select([5, 0])
    assert chosen.files == (found.files[5], found.files[0])
    assert chosen.labels is not None
    assert chosen.labels.tolist() == [2, 0]
    assert chosen.digest(1) == found.digest(0)
    assert np.array_equal(chosen.source.image(1), images["test"]["004.Groove_billed_Ani"][0])


@pytest.mark.parametrize("lay_out", [caches, packs, mosaic_pack, tiered_pickles])
def test_digests_are_distinct_and_stable(tmp_path: Path, lay_out: Any) -> None:
    images = pictures("tiered_imagenet" if lay_out is tiered_pickles else "mini_imagenet")
    lay_out(tmp_path, images)
    digests = [[load(tmp_path, "test").digest(row) for row in range(6)] for _ in range(2)]
    assert digests[0] == digests[1]
    assert len(set(digests[0])) == 6


def test_any_class_folders_and_flat_folders(tmp_path: Path) -> None:
    for file in ("b/2.png", "b/deep/1.JPG", "a/1.jpeg", "a/.hidden.png", "a/notes.txt", ".trash/x.png", "readme.md"):
        write(tmp_path / "set" / file, png(images_of_zeros()))
    os.mkfifo(tmp_path / "set" / "a" / "pipe.png")  # opening it would wait for ever
    (tmp_path / "set" / "a" / "loop").symlink_to(tmp_path / "set", target_is_directory=True)
    write(tmp_path / "elsewhere" / "linked.png", png(images_of_zeros()))
    (tmp_path / "set" / "c").symlink_to(tmp_path / "elsewhere", target_is_directory=True)
    with pytest.warns(A2LPWarning, match=r"set: 1 link to folders that are listed already, left out: `a/loop`"):
        found = load(tmp_path / "set")
    assert found.files == ("a/1.jpeg", "b/2.png", "b/deep/1.JPG", "c/linked.png")
    assert found.classes == ("a", "b", "c")
    assert found.labels is not None
    assert found.labels.tolist() == [0, 1, 1, 2]


def test_links_that_fan_out_are_followed_once(tmp_path: Path) -> None:
    """Each of thirty folders has two links to the next one: a billion ways to the last."""
    for i in range(30):
        write(tmp_path / "set" / f"{i:02d}" / "image.png", png(images_of_zeros()))
        for name in "ab":
            if i < 29:
                (tmp_path / "set" / f"{i:02d}" / name).symlink_to(f"../{i + 1:02d}", target_is_directory=True)
    with pytest.warns(A2LPWarning, match="set: 58 links to folders that are listed already"):
        found = load(tmp_path / "set")
    assert found.files == tuple(f"{i:02d}/image.png" for i in range(30))


def test_a_folder_is_listed_under_its_own_name_before_a_link_to_it(tmp_path: Path) -> None:
    write(tmp_path / "set" / "b" / "1.png", png(images_of_zeros()))
    write(tmp_path / "elsewhere" / "deep" / "2.png", png(images_of_zeros()))
    (tmp_path / "set" / "a").symlink_to("b", target_is_directory=True)
    (tmp_path / "set" / "c").symlink_to(tmp_path / "elsewhere", target_is_directory=True)
    (tmp_path / "set" / "d").symlink_to(tmp_path / "elsewhere" / "deep", target_is_directory=True)
    (tmp_path / "set" / "itself.png").symlink_to("itself.png")
    (tmp_path / "set" / "b" / "itself").symlink_to("itself")
    listing = image_files(tmp_path / "set", tmp_path / "set")
    assert listing.images == ["b/1.png", "c/deep/2.png", "itself.png"]  # the last is named when it cannot be read
    assert listing.repeated == ["a", "d"]


def test_a_flat_folder_has_no_labels(tmp_path: Path) -> None:
    for name in ("2.png", "1.png"):
        write(tmp_path / "images" / name, png(images_of_zeros()))
    for path in (tmp_path, tmp_path / "images"):
        found = load(path)
        assert [Path(file).name for file in found.files] == ["1.png", "2.png"]
        assert found.labels is None
        assert found.classes is None


# --- what is wrong with a layout -------------------------------------------------------------------------------


def wrong(root: Path, *parts: str, split: str | None = None, dataset: str | None = None) -> None:
    with pytest.raises(DatasetError) as caught:
        load(root, split, dataset=dataset)
    for part in (str(root), *parts):
        assert part in str(caught.value), str(caught.value)


def test_a_wrong_layout_shows_the_expected_and_the_actual_tree(tmp_path: Path) -> None:
    write(tmp_path / "birds" / "lists" / "a.txt", b"")
    found = "birds/  (1 inside: lists/)"
    wrong(tmp_path, "no images were found", "CUB_200_2011/images/001.Black", found, dataset="cub")
    wrong(tmp_path, "no images", "mini-imagenet-cache-{train,val,test}.pkl", "train.csv", found, dataset="miniImageNet")
    wrong(tmp_path, "no images", "{train,val,test}_images_png.pkl", found, dataset="tieredImageNet")
    wrong(tmp_path, "no images", "splits/bertinetto/{train,val,test}.txt", found, dataset="CIFAR-FS")
    wrong(tmp_path, "no images", "FC100_{train,val,test}.pickle", found, dataset="FC100")
    wrong(tmp_path, "no images", "CLASS/*.jpg", "mini_imagenet", found)
    wrong(tmp_path / "birds" / "nowhere", "no such folder", "CLASS/*.jpg", "nothing of that name")
    wrong(Path("cub"), "no such folder", "CUB_200_2011/images/001.Black")
    wrong(tmp_path / "birds" / "lists" / "a.txt", "it is a file", "CLASS/*.jpg")


def test_folders_that_can_be_read_in_two_ways_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "a" / "1.png", png(images_of_zeros()))
    wrong(tmp_path, "no splits of its own", "Name the dataset", split="test")
    wrong(tmp_path, "none of its classes (such as 'a')", split="test", dataset="cub")
    write(tmp_path / "2.png", png(images_of_zeros()))
    wrong(tmp_path, "Images that lie beside folders with images: 1.", "CLASS/*.jpg")
    (tmp_path / "2.png").unlink()
    write(tmp_path / "test" / "b" / "1.png", png(images_of_zeros()))
    wrong(tmp_path, "lie in train, val or test beside other folders")
    assert load(tmp_path, "test").classes == ("b",)
    wrong(tmp_path / "test" / "b", "in no class folders", dataset="cub")


def test_splits_that_are_not_the_standard_ones_are_refused(tmp_path: Path) -> None:
    images = pictures("mini_imagenet")
    moved, _ = images["test"].popitem()
    images["val"][moved] = images["train"]["n01532829"]
    class_folders(tmp_path, images)
    wrong(tmp_path, f"class '{moved}' is in val here and is a test class", split="val", dataset="mini_imagenet")
    with pytest.warns(A2LPWarning, match=rf"has 19 of the 20 test classes of miniImageNet: {moved} missing"):
        assert len(load(tmp_path, "test", dataset="mini_imagenet")) == 38
    assert moved in (load(tmp_path, "val").classes or ())


def test_missing_files_are_named(tmp_path: Path) -> None:
    images = pictures("mini_imagenet")
    csv_tables(tmp_path / "csv", images)
    (tmp_path / "csv" / "images" / "n0193011200000001.png").unlink()
    wrong(tmp_path / "csv", "test.csv, line 3", "images/n0193011200000001.png", split="test")
    (tmp_path / "csv" / "val.csv").unlink()
    wrong(tmp_path / "csv", "train.csv, test.csv, but no val.csv", "columns filename,label", split="val")
    write(tmp_path / "secret.png", png(images_of_zeros()))
    (tmp_path / "csv" / "val.csv").write_text("filename,label\n../../secret.png,n01855672\n")
    wrong(tmp_path / "csv", "val.csv, line 2", split="val")
    caches(tmp_path / "pkl", images)
    (tmp_path / "pkl" / "mini-imagenet-cache-val.pkl").unlink()
    wrong(tmp_path / "pkl", "nothing of the split 'val'", "mini-imagenet-cache-train.pkl", split="val")
    cifar_folders(tmp_path / "cifar", pictures("cifar_fs"))
    (tmp_path / "cifar" / "cifar100" / "splits" / "bertinetto" / "val.txt").write_bytes(b"caf\xe9\n")
    wrong(tmp_path / "cifar", "val.txt cannot be read as a list of class names", split="train")


def test_names_and_splits_that_do_not_exist(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="mini_imagenet"):
        load(tmp_path, dataset="minimagenet")
    with pytest.raises(InputError, match="split='novel' must be one of train, val, test"):
        load(tmp_path, "novel")


def test_pickles_do_not_run_and_damaged_ones_are_refused(tmp_path: Path) -> None:
    class Calls:
        def __reduce__(self) -> Any:
            return os.system, (f"touch {tmp_path / 'it-ran'}",)

    path = tmp_path / "mini-imagenet-cache-train.pkl"
    path.write_bytes(pickle.dumps({"image_data": Calls(), "class_dict": {}}))
    wrong(tmp_path, path.name, "which is forbidden")
    assert not (tmp_path / "it-ran").exists()
    good = pickle.dumps({"image_data": images_of_zeros()[None], "class_dict": {"n01532829": [0]}})
    path.write_bytes(good)
    assert len(load(tmp_path)) == 1
    forged = {
        b"": "cannot be read as a pickle of images",
        good[:-30]: "cannot be read as a pickle",
        pickle.dumps([1]): "expected a pickled dict",
        pickle.dumps({"other": 1}): "expected image_data and class_dict",
        pickle.dumps({"image_data": np.zeros((1, 8, 8, 3)), "class_dict": {}}): "expected an array of bytes",
        pickle.dumps({"image_data": images_of_zeros(), "class_dict": {}}): "expected (N, height, width, 3)",
        pickle.dumps({"image_data": images_of_zeros()[None], "class_dict": {"a": [1]}}): "image 1 of class 'a'",
        pickle.dumps({"image_data": images_of_zeros()[None], "class_dict": {}}): "image 0 is in no class",
        pickle.dumps({"image_data": images_of_zeros()[None], "class_dict": 3}): "expected a dict from classes to rows",
        pickle.dumps({"data": images_of_zeros()[None], "labels": [0, 1]}): "expected 1 integers",
    }
    for content, message in forged.items():
        path.write_bytes(content)
        wrong(tmp_path, path.name, message)
    tiered_pickles(tmp_path / "tiered", pictures("tiered_imagenet"))
    write(tmp_path / "tiered" / "val_labels.pkl", b"\x80\x02")
    wrong(tmp_path / "tiered", "val_labels.pkl cannot be read as a pickle", split="val")


def protocol5(content: Any) -> bytes:
    """As Python 3.14 writes by default: arrays are byte arrays."""
    return pickle.dumps(content, 5)


@pytest.mark.parametrize("dump", [python2, pickle.dumps, protocol5])
def test_large_pickles_stay_on_disk(tmp_path: Path, dump: Callable[[Any], bytes]) -> None:
    images = np.zeros((1000, 84, 84, 3), dtype=np.uint8)
    content = {"image_data": images, "class_dict": {"n01532829": list(range(1000))}}
    (tmp_path / "mini-imagenet-cache-train.pkl").write_bytes(dump(content))
    tracemalloc.start()
    found = load(tmp_path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < images.nbytes / 10
    assert found.source.image(999).shape == (84, 84, 3)


def test_damaged_packs_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "pack.npz"
    save_pack(path, pictures("cub"), ("val",))
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    wrong(path, "cannot be read as a pack of images (.npz)")
    path.write_bytes(whole)
    with np.load(path) as content:
        pack = dict(content)
    for key, value, rule in (
        ("labels", pack["labels"] + 1000, "labels must index classes"),
        ("offsets", pack["offsets"][:-1], "an image for each label"),
        ("offsets", pack["offsets"][::-1], "offsets must rise"),
        ("names", pack["names"][1:], "names must be one for each label"),
        ("data", pack["data"].astype(np.int64), "bytes"),
        ("labels", np.array([{}]), "`labels` holds 'object' values"),  # NumPy would unpickle it
        ("classes", pack["classes"].astype(object), "`classes` holds 'object' values"),
        ("labels", pack["labels"].astype(float), "offsets and labels must be one axis of whole numbers"),
        ("labels", pack["labels"][:0], "offsets and labels must be one axis of whole numbers"),
        ("grid", np.array([0, 2]), "grid is [0, 2]; expected two whole numbers"),
        ("names", np.arange(len(pack["labels"])), "expected one axis of text"),
        ("classes", np.array([b"\xe9t\xe9"]), "cannot be read as a pack"),
    ):
        np.savez(path, **(pack | {key: value}))
        wrong(path, rule)
    np.savez(path, features=np.zeros(3))
    wrong(path, "is no pack")


# --- decoding --------------------------------------------------------------------------------------------------

RAMP = np.arange(0, 240, 10, dtype=np.uint8).reshape(4, 6)


def saved(image: Image.Image, kind: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def test_every_kind_of_image_becomes_rgb() -> None:
    grey = np.repeat(RAMP[:, :, None], 3, axis=2)
    assert np.array_equal(decode(saved(Image.fromarray(RAMP), "PNG"), "x"), grey)
    assert np.array_equal(decode(saved(Image.fromarray(RAMP.astype(np.uint16) * 257), "PNG"), "x"), grey)
    assert np.array_equal(decode(saved(Image.fromarray(RAMP.astype(np.uint16) * 257), "TIFF"), "x"), grey)
    assert np.array_equal(decode(saved(Image.fromarray(RAMP).convert("LA"), "PNG"), "x"), grey)
    assert np.array_equal(decode(saved(Image.fromarray(grey).convert("RGBA"), "WEBP", lossless=True), "x"), grey)
    assert np.array_equal(decode(saved(Image.fromarray(grey), "BMP"), "x"), grey)
    palette = Image.fromarray(RAMP).convert("P")
    assert np.array_equal(decode(saved(palette, "GIF"), "x"), grey)
    assert np.array_equal(decode(saved(palette, "PNG", transparency=bytes(range(256))), "x"), grey)
    black = decode(saved(Image.fromarray(RAMP > 100), "PNG"), "x")
    assert np.array_equal(black, np.where(grey > 100, 255, 0))
    red = np.zeros((8, 8, 3), dtype=np.uint8) + np.uint8([200, 30, 30])
    assert np.abs(decode(saved(Image.fromarray(red).convert("CMYK"), "JPEG"), "x") - red.astype(int)).max() < 6
    assert decode(saved(Image.fromarray(red), "MPO", save_all=True, append_images=[]), "x").shape == (8, 8, 3)


def test_images_are_rotated_by_their_exif_orientation() -> None:
    image = np.repeat(RAMP[:, :, None], 3, axis=2)
    turned = {1: image, 2: image[:, ::-1], 3: image[::-1, ::-1], 4: image[::-1]}
    turned |= {
        5: image.swapaxes(0, 1),
        6: np.rot90(image, -1),
        7: np.rot90(image, 2).swapaxes(0, 1),
        8: np.rot90(image),
    }
    for orientation, expected in turned.items():
        exif = Image.Exif()
        exif[0x0112] = orientation
        assert np.array_equal(decode(saved(Image.fromarray(image), "PNG", exif=exif), "x"), expected)


def claims(width: int, height: int) -> bytes:
    """A PNG of a few bytes that claims to be large."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


NOISE = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (saved(Image.fromarray(NOISE), "JPEG")[:2000], "truncated"),
        (png(NOISE)[:2000], "truncated"),
        (b"", "none of JPEG"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "none of JPEG"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "none of JPEG"),  # Pillow would start Ghostscript
        (claims(10_000, 10_000), "10000 x 10000 pixels, and at most"),
        (claims(60_000, 60_000), "60000 x 60000 pixels, and at most"),
        (saved(Image.fromarray(np.ones((4, 4), np.float32)), "TIFF"), "floating point"),
    ],
)
def test_a_corrupt_image_is_named_and_refused_or_skipped(tmp_path: Path, content: bytes, reason: str) -> None:
    for i in range(5):
        write(tmp_path / "a" / f"{i}.png", content if i == 3 else png(NOISE[:, i:]))
    found = load(tmp_path)
    with pytest.raises(CorruptImageError, match=reason) as caught:
        found.read(range(5), View(8, 8), workers=2, on_corrupt="refuse")
    assert caught.value.file == "a/3.png"
    assert "a/3.png" in str(caught.value)
    pixels, kept = found.read([4, 3, 0], View(8, 8), workers=2, on_corrupt="skip")
    assert kept.tolist() == [4, 0]
    assert np.array_equal(pixels, found.read([4, 0], View(8, 8), workers=1, on_corrupt="refuse")[0])


def test_large_photographs_are_read_at_a_reduced_size() -> None:
    """A JPEG of 100 megapixels, which Pillow warns about, and of 200, which it refuses."""
    for width, height in ((12_000, 8_400), (16_000, 12_500)):
        large = Image.new("RGB", (width, height), (200, 30, 30))
        large.paste((20, 30, 200), (0, 0, width // 2, height))
        pixels = decode(saved(large, "JPEG"), "x")
        assert pixels.shape == (height // 2, width // 2, 3)
        assert pixels[10, 10, 2] > 150 > pixels[10, -10, 2]
    assert Image.MAX_IMAGE_PIXELS is not None  # for others it is as before


def test_photographs_of_telephones() -> None:
    heif = pytest.importorskip("pillow_heif")
    image = np.kron(np.arange(12, dtype=np.uint8).reshape(3, 4, 1) * 20, np.ones((32, 32, 3), np.uint8))
    with io.BytesIO() as made:
        heif.from_pillow(Image.fromarray(image)).save(made, quality=95)
        heic = made.getvalue()
    for encoded in (heic, saved(Image.fromarray(image), "AVIF", quality=95)):
        assert np.abs(decode(encoded, "x").astype(int) - image).mean() < 4


def test_heic_without_its_package_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode_module, "_formats", lambda: ("JPEG", "PNG"))
    with pytest.raises(CorruptImageError, match="HEIC images need a package: pip install pillow-heif"):
        decode(bytes(4) + b"ftypheic" + bytes(100), "x")


def test_a_file_that_was_deleted_is_named(tmp_path: Path) -> None:
    write(tmp_path / "a" / "1.png", png(NOISE))
    found = load(tmp_path)
    (tmp_path / "a" / "1.png").unlink()
    with pytest.raises(CorruptImageError, match=r"a/1\.png cannot be used: .*does not exist"):
        found.source.image(0)


# --- sizes -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("view", [View(32, 32), View(40, 28), View(96, 84), View(64, 50), View(32, 28, 36)], ids=str)
@pytest.mark.parametrize("shape", [(64, 64), (48, 91), (150, 37), (32, 32)])
def test_views_resize_the_whole_image_and_cut_its_centre(view: View, shape: tuple[int, int]) -> None:
    height, width = shape
    smooth = np.add.outer(np.arange(height) * 2, np.arange(width) * 3)[:, :, None] * np.array([1, 2, 3]) % 256
    image = Image.fromarray(smooth.astype(np.uint8))
    shorter = min(shape)
    whole = image.resize((width * view.resize // shorter, height * view.resize // shorter), Image.Resampling.BILINEAR)
    left, top = round((whole.width - view.crop) / 2), round((whole.height - view.crop) / 2)
    expected = whole.crop((left, top, left + view.crop, top + view.crop))
    if view.size is not None:
        expected = expected.resize((view.size, view.size), Image.Resampling.BILINEAR)
    found = ImageSet("one", None, None, ("x",), sources.Arrays(np.asarray(image)[None]))
    pixels, _ = found.read([0], view, workers=1, on_corrupt="refuse")
    assert np.abs(pixels[0].astype(int) - np.asarray(expected)).max() <= 1


def test_threads_and_the_order_of_rows_change_nothing(tmp_path: Path) -> None:
    plain_folders(tmp_path, pictures("cub", 24))
    found = load(tmp_path)
    rows = np.random.default_rng(0).permutation(len(found))[:150]
    one, _ = found.read(rows, View(16, 12), workers=1, on_corrupt="refuse")
    many, kept = found.read(rows, View(16, 12), workers=5, on_corrupt="refuse")
    assert np.array_equal(one, many)
    assert np.array_equal(kept, rows)
    calls: list[tuple[int, int]] = []
    every_one = found.pixels(View(16, 12), workers=2, progress=lambda done, total: calls.append((done, total)))
    assert np.array_equal(every_one[rows], one)
    assert calls[-1] == (400, 400)
    with pytest.raises(InputError, match="workers=0"):
        found.pixels(View(16, 12), workers=0)


def test_a_strip_does_not_fill_memory() -> None:
    strip = ImageSet("strip", None, None, ("x",), sources.Arrays(np.full((1, 1, 5_000_000, 3), 9, np.uint8)))
    assert np.array_equal(strip.pixels(View(224, 224)), np.full((1, 224, 224, 3), 9))


def test_more_images_than_memory_holds_are_refused_before_they_are_read() -> None:
    files = tuple(str(i) for i in range(100_000))
    many = ImageSet("many", None, None, files, sources.Arrays(images_of_zeros()[None]))
    with pytest.raises(InputError, match=r"100000 images of 'many' at 30000 x 30000 pixels need 251457\.1 GiB"):
        many.pixels(View(30_000, 30_000))


def test_a_mosaic_is_decoded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mosaic_pack(tmp_path, pictures("mini_imagenet"))
    found = load(tmp_path)
    decoded = []
    monkeypatch.setattr(sources, "decode", lambda blob, file: decoded.append(file) or decode(blob, file))
    found.pixels(View(8, 8), workers=4)
    assert len(decoded) == len(set(decoded)) == 100
    monkeypatch.setattr(sources, "MOSAIC_CACHE_BYTES", 4 * 10 * 20 * 3)  # four of the hundred
    again = load(tmp_path)
    again.pixels(View(8, 8), workers=1)
    assert len(decoded) == 200
    for row in [0, 199, 1, 198] * 50:
        again.source.image(row)
    assert len(decoded) == 201  # 0 had gone, 198 and 199 were still there
    (mosaics,) = again.source.sources
    assert len(mosaics._kept) == 4


def test_a_damaged_mosaic_is_named(tmp_path: Path) -> None:
    mosaic_pack(tmp_path, pictures("mini_imagenet"))
    with np.load(tmp_path / "mosaics.npz") as content:
        pack = dict(content) | {"tile": np.array([11, 10])}
    np.savez(tmp_path / "mosaics.npz", **pack)
    with pytest.raises(CorruptImageError, match=r"mosaics\.npz, mosaic 3.*\(10, 20, 3\); expected \(11, 20, 3\)"):
        load(tmp_path).source.image(7)


# --- the lists -------------------------------------------------------------------------------------------------


def test_the_standard_splits() -> None:
    sizes = {
        "mini_imagenet": (64, 16, 20), "tiered_imagenet": (351, 97, 160), "cub": (100, 50, 50),
        "cub_easyfsl": (140, 30, 30), "cifar_fs": (64, 16, 20), "fc100": (60, 20, 20),
    }  # fmt: skip
    for name, expected in sizes.items():
        found = standard(name)
        assert tuple(len(found.classes[split]) for split in SPLITS) == expected
        assert len(found.split_of()) == sum(expected)  # no class in two splits
    assert standard("Mini-ImageNet") is standard("mini_imagenet")
    assert set(standard("cifar_fs").split_of()) == set(standard("fc100").split_of())
    numbers = [int(name[:3]) - 1 for name in standard("cub").classes["test"]]
    assert all(number % 4 == 3 for number in numbers)


@pytest.mark.shared
@pytest.mark.parametrize(
    ("dataset", "split", "size", "total"),
    [
        ("cub", "test", 96, 2953),
        ("mini_imagenet", "test", 84, 12000),
        ("cifar_fs", "val", 32, 9600),
        ("fc100", "test", 32, 12000),
    ],
)
def test_the_packs_beside_the_repository(shared_data: Path, dataset: str, split: str, size: int, total: int) -> None:
    found = load(shared_data / "images", split, dataset=dataset)
    assert len(found) == total
    assert found.classes == standard(dataset).classes[split]
    assert all(found.source.image(row).shape == (size, size, 3) for row in (0, 601, total - 1))
