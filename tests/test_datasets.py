"""Data sets from every kind of source, and from every kind of damaged one.

The published tables are replaced by those of a few random images here, so that files small enough for a test can be the
published ones; the real MNIST is checked where it is at hand.
"""

from __future__ import annotations

import errno
import gzip
import hashlib
import http.server
import io
import os
import pickle
import re
import struct
import tarfile
import threading
import time
import tracemalloc
import warnings
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import sklearn.datasets
import torchvision.datasets

from gelu_study import datasets
from gelu_study.datasets import Dataset, downloads
from gelu_study.errors import DataError

TINY = {"mnist": (7, 3, (28, 28)), "cifar10": (10, 4, (32, 32, 3)), "cifar100": (6, 4, (32, 32, 3))}
CIFAR = {"cifar10": torchvision.datasets.CIFAR10, "cifar100": torchvision.datasets.CIFAR100}
IDX = {
    "x_train": "train-images-idx3-ubyte",
    "y_train": "train-labels-idx1-ubyte",
    "x_test": "t10k-images-idx3-ubyte",
    "y_test": "t10k-labels-idx1-ubyte",
}
Arrays = dict[str, np.ndarray]


def tiny(name: str) -> Arrays:
    train, test, image = TINY[name]
    rng = np.random.default_rng(sum(name.encode()))

    def draw(high: int, *shape: int) -> np.ndarray:
        return rng.integers(0, high, shape).astype(np.uint8)

    return {
        "x_train": draw(256, train, *image),
        "y_train": draw(10, train),
        "x_test": draw(256, test, *image),
        "y_test": draw(10, test),
    }


@pytest.fixture
def published(monkeypatch: pytest.MonkeyPatch) -> dict[str, Arrays]:
    """The tiny arrays, which pass for the published ones during a test."""
    arrays = {name: tiny(name) for name in TINY}
    for name, content in arrays.items():
        monkeypatch.setitem(datasets.SHAPES, name, {array: values.shape for array, values in content.items()})
        digests = {array: hashlib.sha256(values.tobytes()).hexdigest() for array, values in content.items()}
        monkeypatch.setitem(datasets.SHA256, name, digests)
    return arrays


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "source").mkdir()
    return tmp_path / "source"


# files as their makers write them


def idx(values: np.ndarray) -> bytes:
    return struct.pack(f">HBB{values.ndim}I", 0, 8, values.ndim, *values.shape) + values.tobytes()


def write_idx(folder: Path, arrays: Arrays, suffix: str = "") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for array, file in IDX.items():
        content = idx(arrays[array])
        (folder / f"{file}{suffix}").write_bytes(gzip.compress(content) if suffix else content)


def python2_batch(images: np.ndarray, labels: np.ndarray, key: str) -> bytes:
    """A CIFAR batch as Python 2 and an old NumPy pickled it, opcode by opcode."""

    def text(value: str) -> bytes:
        return b"U" + bytes([len(value)]) + value.encode()

    planes = b"".join(image[:, :, channel].tobytes() for image in images for channel in range(3))
    shape = struct.pack("<cici", b"J", len(images), b"J", 3072) + b"\x86"
    dtype = b"cnumpy\ndtype\n" + text("u1") + b"K\x00K\x01\x87R(K\x03" + text("|") + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    array = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85" + text("b") + b"\x87R"
    array += b"(K\x01" + shape + dtype + b"\x89T" + struct.pack("<i", len(planes)) + planes + b"tb"
    numbers = b"](" + b"".join(b"K" + bytes([label]) for label in labels) + b"e"
    return b"\x80\x02}(" + text("data") + array + text(key) + numbers + b"u."


def batches(name: str, arrays: Arrays) -> dict[str, bytes]:
    kind, key, files = CIFAR[name], "labels" if name == "cifar10" else "fine_labels", {}
    for split, names in (("train", kind.train_list), ("test", kind.test_list)):
        x, y = (np.split(arrays[f"{axis}_{split}"], len(names)) for axis in "xy")
        files |= {file: python2_batch(x[i], y[i], key) for i, (file, _) in enumerate(names)}
    return files


def publish_md5(monkeypatch: pytest.MonkeyPatch, name: str, files: dict[str, bytes]) -> None:
    for table in ("train_list", "test_list"):
        published = [[file, hashlib.md5(files[file]).hexdigest()] for file, _ in getattr(CIFAR[name], table)]
        monkeypatch.setattr(CIFAR[name], table, published)


def write_cifar(folder: Path, name: str, files: dict[str, bytes]) -> None:
    (folder / CIFAR[name].base_folder).mkdir(parents=True)
    for file, content in files.items():
        (folder / CIFAR[name].base_folder / file).write_bytes(content)


def cifar_archive(monkeypatch: pytest.MonkeyPatch, name: str, files: dict[str, bytes]) -> bytes:
    """The .tar.gz, not in the order of the batches, whose MD5 becomes the published one."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for file in ["readme.html", *reversed(files)]:
            member = tarfile.TarInfo(f"{CIFAR[name].base_folder}/{file}")
            member.size = len(files.get(file, b""))
            archive.addfile(member, io.BytesIO(files.get(file, b"")))
    monkeypatch.setattr(CIFAR[name], "tgz_md5", hashlib.md5(buffer.getvalue()).hexdigest())
    return buffer.getvalue()


# what must hold after each


def same(dataset: Dataset, arrays: Arrays) -> None:
    for array, values in arrays.items():
        found = getattr(dataset, array)
        assert found.dtype == np.uint8
        assert found.flags.c_contiguous
        np.testing.assert_array_equal(found, values)


def refuses(message: str, cache: Path, action: Callable[[], object]) -> str:
    """Runs an action that must end in one clear line and leave the cache as it was, to the inode."""
    cache.mkdir(exist_ok=True)
    for name in TINY:
        if not (cache / f"{name}.npz").exists():
            (cache / f"{name}.npz").write_bytes(b"what was there")
    before = {path.name: (path.read_bytes(), path.stat().st_ino, path.stat().st_mtime_ns) for path in cache.iterdir()}
    with pytest.raises(DataError, match=message) as caught:
        action()
    after = {path.name: (path.read_bytes(), path.stat().st_ino, path.stat().st_mtime_ns) for path in cache.iterdir()}
    assert after == before
    assert "\n" not in str(caught.value)
    return str(caught.value)


# the real data


def test_mnist_is_the_published_one(mnist: Dataset) -> None:
    assert [mnist.x_train.shape, mnist.y_train.shape] == [(60_000, 28, 28), (60_000,)]
    assert [mnist.x_test.shape, mnist.y_test.shape] == [(10_000, 28, 28), (10_000,)]
    assert np.bincount(mnist.y_train).tolist() == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert np.bincount(mnist.y_test).tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    assert mnist.y_train[:10].tolist() == [5, 0, 4, 1, 9, 2, 1, 3, 1, 4]
    assert round(float(mnist.x_train.mean() / mnist.scale), 4) == 0.1307  # as every tutorial has it
    digests = [hashlib.sha256(getattr(mnist, array).tobytes()).hexdigest() for array in IDX]
    assert datasets.content_hash("mnist") == hashlib.sha256("\n".join(digests).encode()).hexdigest()


def test_digits_are_scikit_learns() -> None:
    digits, (images, labels) = datasets.load("digits"), sklearn.datasets.load_digits(return_X_y=True)
    x, y = np.concatenate([digits.x_train, digits.x_test]), np.concatenate([digits.y_train, digits.y_test])
    np.testing.assert_array_equal(x.reshape(-1, 64), images)
    np.testing.assert_array_equal(y, labels)
    assert (len(digits.y_train), len(digits.y_test), x.dtype, int(x.max()), digits.scale) == (
        1437,
        360,
        np.uint8,
        16,
        16,
    )
    hashes = [hashlib.sha256(getattr(digits, array).tobytes()).hexdigest() for array in IDX]
    assert datasets.content_hash("digits") == hashlib.sha256("\n".join(hashes).encode()).hexdigest()


def test_digits_need_neither_cache_nor_network(cache: Path) -> None:
    datasets.fetch("digits", cache)
    assert datasets.available("digits", cache)
    assert "verified" in datasets.describe("digits", cache)
    assert not cache.exists()


def test_other_digits_than_the_published_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    altered = sklearn.datasets.load_digits()
    altered.images[0, 0, 0] += 1
    monkeypatch.setattr(sklearn.datasets, "load_digits", lambda: altered)
    with pytest.raises(DataError, match="x_train of digits"):
        datasets.load("digits")


def test_every_name_has_its_own_hash() -> None:
    assert len({datasets.content_hash(name) for name in datasets.NAMES}) == len(datasets.NAMES)
    with pytest.raises(DataError, match="'fashion'; known are mnist, cifar10, cifar100, digits"):
        datasets.content_hash("fashion")


# imports


def fortran(folder: Path, arrays: Arrays) -> None:
    np.savez(folder / "mnist.npz", allow_pickle=False, **{array: np.asfortranarray(v) for array, v in arrays.items()})


@pytest.mark.parametrize(
    "write",
    [
        lambda folder, arrays: np.savez(folder / "mnist.npz", **arrays),
        lambda folder, arrays: np.savez_compressed(folder / "mnist.npz", more=np.array([None]), **arrays),
        fortran,
        write_idx,
        lambda folder, arrays: write_idx(folder, arrays, ".gz"),
        lambda folder, arrays: write_idx(folder / "MNIST" / "raw", arrays),
        lambda folder, arrays: [write_idx(folder / "MNIST" / "raw", arrays, suffix) for suffix in ("", ".gz")],
    ],
    ids=["npz", "npz compressed", "npz in Fortran order", "idx", "idx.gz", "torchvision", "torchvision, both"],
)
def test_import_of_mnist(write: Callable[[Path, Arrays], object], published: dict[str, Arrays], source: Path, cache: Path) -> None:
    write(source, published["mnist"])
    datasets.fetch("mnist", cache, source)
    same(datasets.load("mnist", cache), published["mnist"])
    assert os.listdir(cache) == ["mnist.npz"]


@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
@pytest.mark.parametrize("layout", ["npz", "folder", "archive"])
def test_import_of_cifar(
    layout: str, name: str, published: dict[str, Arrays], source: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = batches(name, published[name])
    publish_md5(monkeypatch, name, files)
    if layout == "npz":
        np.savez(source / f"{name}.npz", allow_pickle=False, **published[name])
    elif layout == "folder":
        write_cifar(source, name, files)
    else:
        (source / CIFAR[name].filename).write_bytes(cifar_archive(monkeypatch, name, files))
    datasets.fetch(name, cache, source)
    same(datasets.load(name, cache), published[name])
    assert os.listdir(cache) == [f"{name}.npz"]
    assert datasets.load(name, cache).classes == (100 if name == "cifar100" else 10)


def test_the_fake_batch_is_read_by_torchvision_alike(
    published: dict[str, Arrays], source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = batches("cifar10", published["cifar10"]) | {"batches.meta": pickle.dumps({"label_names": []})}
    publish_md5(monkeypatch, "cifar10", files)
    meta = dict(torchvision.datasets.CIFAR10.meta, md5=hashlib.md5(files["batches.meta"]).hexdigest())
    monkeypatch.setattr(torchvision.datasets.CIFAR10, "meta", meta)
    write_cifar(source, "cifar10", files)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some versions of NumPy remark on old pickles
        theirs = torchvision.datasets.CIFAR10(source, train=True)
    np.testing.assert_array_equal(theirs.data, published["cifar10"]["x_train"])
    assert theirs.targets == published["cifar10"]["y_train"].tolist()


def test_an_import_replaces_a_damaged_cache(published: dict[str, Arrays], source: Path, cache: Path) -> None:
    cache.mkdir()
    (cache / "mnist.npz").write_bytes(b"damaged")
    write_idx(source, published["mnist"])
    datasets.fetch("mnist", cache, source)
    same(datasets.load("mnist", cache), published["mnist"])


def test_fetching_beside_each_other(published: dict[str, Arrays], source: Path, cache: Path) -> None:
    write_idx(source, published["mnist"])
    datasets.fetch("mnist", cache, source)
    with ThreadPoolExecutor(4) as pool:
        fetches = [pool.submit(datasets.fetch, "mnist", cache, source) for _ in range(40)]
        while not all(fetch.done() for fetch in fetches):  # a half-written file would not load
            same(datasets.load("mnist", cache), published["mnist"])
    assert [fetch.result() for fetch in fetches] == [None] * 40
    assert os.listdir(cache) == ["mnist.npz"]


# damaged sources


def damage(path: Path, change: Callable[[bytes], bytes]) -> None:
    path.write_bytes(change(path.read_bytes()))


def flip(position: int) -> Callable[[bytes], bytes]:
    return lambda content: content[:position] + bytes([content[position] ^ 1]) + content[position + 1 :]


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda content: content[:-1], "truncated: it ends after 5,487 of 5,488 bytes"),
        (lambda content: content[:9], "is damaged or is not what its name says"),
        (lambda content: b"", "does not begin as an IDX file"),
        (lambda content: content + b"\0", "goes on after the 5,488 bytes"),
        (flip(2), "does not begin as an IDX file of 3-dimensional"),
        (flip(7), r"declares the shape \(6, 28, 28\); it must be \(7, 28, 28\)"),
        (flip(5000), r"x_train of mnist from .* has the SHA-256 .* not the published"),
    ],
    ids=["truncated", "short header", "empty", "too long", "another type", "another shape", "another pixel"],
)
def test_damaged_idx(
    change: Callable[[bytes], bytes], message: str, suffix: str, published: dict[str, Arrays], source: Path, cache: Path
) -> None:
    write_idx(source, published["mnist"])
    path = source / IDX["x_train"]
    damage(path, change)
    if suffix:
        (source / f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    assert str(source) in refuses(message, cache, lambda: datasets.fetch("mnist", cache, source))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda content: content[:-30], "damaged|truncated"),
        (lambda content: content[:5], "damaged"),
        (lambda content: b"<html>404</html>", "damaged"),
        (flip(400), "damaged|SHA-256"),
    ],
)
def test_damaged_gzip(
    change: Callable[[bytes], bytes], message: str, published: dict[str, Arrays], source: Path, cache: Path
) -> None:
    write_idx(source, published["mnist"], ".gz")
    damage(source / f"{IDX['x_test']}.gz", change)
    refuses(message, cache, lambda: datasets.fetch("mnist", cache, source))


class Canary:
    """Leaves a file behind when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
        return os.mkdir, (str(self.path),)


def savez(**changed: object) -> Callable[[Path, Arrays], None]:
    return lambda path, arrays: np.savez(path, allow_pickle=True, **(arrays | changed))


def other_compression(path: Path, arrays: Arrays) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_LZMA) as archive:
        for array, values in arrays.items():
            buffer = io.BytesIO()
            np.save(buffer, values)
            archive.writestr(f"{array}.npy", buffer.getvalue())


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda path, arrays: np.savez(path, x_train=arrays["x_train"]), "lacks y_train, x_test, y_test"),
        (savez(y_test=np.zeros(3)), "y_test in .* holds float64; it must hold uint8"),
        (savez(y_test=np.zeros(4, np.uint8)), r"y_test in .* declares the shape \(4,\); it must be \(3,\)"),
        (savez(y_test=np.zeros((3, 1), np.uint8)), "y_test in .* declares the shape"),
        (savez(y_train=np.zeros(7, np.uint8)), "y_train of mnist from .* has the SHA-256"),
        (other_compression, "compressed in a way that NumPy does not write"),
        (lambda path, arrays: path.write_bytes(b"PK"), "damaged"),
        (lambda path, arrays: path.mkdir(), "cannot be read"),
        (lambda path, arrays: path.symlink_to("nowhere"), "cannot be read"),
    ],
    ids=["lacking", "dtype", "shape", "dimensions", "values", "lzma", "no zip", "folder", "dangling link"],
)
def test_damaged_npz(
    write: Callable[[Path, Arrays], object], message: str, published: dict[str, Arrays], source: Path, cache: Path
) -> None:
    write(source / "mnist.npz", published["mnist"])
    write_idx(source, published["mnist"])  # in order, and yet not taken instead
    refuses(message, cache, lambda: datasets.fetch("mnist", cache, source))


def test_truncated_npz(published: dict[str, Arrays], source: Path, cache: Path) -> None:
    np.savez(source / "mnist.npz", allow_pickle=False, **published["mnist"])
    damage(source / "mnist.npz", lambda content: content[: len(content) // 2])
    refuses("damaged", cache, lambda: datasets.fetch("mnist", cache, source))


def test_objects_in_an_npz_are_not_unpickled(published: dict[str, Arrays], source: Path, cache: Path, tmp_path: Path) -> None:
    objects = np.array([Canary(tmp_path / "hatched")] * 7, dtype=object)
    savez(y_train=objects)(source / "mnist.npz", published["mnist"])
    refuses("holds object; it must hold uint8", cache, lambda: datasets.fetch("mnist", cache, source))
    assert not (tmp_path / "hatched").exists()


@pytest.mark.parametrize("right_hash", [False, True])
def test_a_pickle_that_acts_is_not_opened(
    right_hash: bool,
    published: dict[str, Arrays],
    source: Path,
    cache: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    files = batches("cifar10", published["cifar10"])
    evil = files | {"data_batch_3": pickle.dumps({"data": Canary(tmp_path / "hatched")})}
    publish_md5(monkeypatch, "cifar10", evil if right_hash else files)
    write_cifar(source, "cifar10", evil)
    message = r"data_batch_3 .*asks for \w+\.mkdir" if right_hash else "data_batch_3 has the MD5"
    refuses(message, cache, lambda: datasets.fetch("cifar10", cache, source))
    assert not (tmp_path / "hatched").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda folder: damage(folder / "data_batch_2", flip(900)), "data_batch_2 has the MD5 .* not the published"),
        (lambda folder: damage(folder / "test_batch", lambda content: content[:-9]), "test_batch has the MD5"),
        (lambda folder: (folder / "data_batch_5").unlink(), "data_batch_5 cannot be read .No such file"),
        (lambda folder: damage(folder / "data_batch_1", lambda content: content * 500), "data_batch_1 has the MD5"),
    ],
    ids=["altered", "truncated", "missing", "much too long"],
)
def test_damaged_cifar_folder(
    change: Callable[[Path], None],
    message: str,
    published: dict[str, Arrays],
    source: Path,
    cache: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    files = batches("cifar10", published["cifar10"])
    publish_md5(monkeypatch, "cifar10", files)
    write_cifar(source, "cifar10", files)
    change(source / CIFAR["cifar10"].base_folder)
    refuses(message, cache, lambda: datasets.fetch("cifar10", cache, source))


def test_batches_of_another_length_are_refused(
    published: dict[str, Arrays], source: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = batches("cifar10", published["cifar10"])
    x, y = published["cifar10"]["x_train"], published["cifar10"]["y_train"]
    files["data_batch_5"] = python2_batch(x[8:9], y[8:9], "labels")
    publish_md5(monkeypatch, "cifar10", files)
    write_cifar(source, "cifar10", files)
    refuses("holds 9 images and 9 labels for train; 10", cache, lambda: datasets.fetch("cifar10", cache, source))


@pytest.mark.parametrize("change", [lambda content: content[: len(content) // 2], flip(2000)])
def test_damaged_archive(
    change: Callable[[bytes], bytes],
    published: dict[str, Arrays],
    source: Path,
    cache: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    content = cifar_archive(monkeypatch, "cifar10", batches("cifar10", published["cifar10"]))
    (source / CIFAR["cifar10"].filename).write_bytes(change(content))
    refuses("tar.gz has the MD5", cache, lambda: datasets.fetch("cifar10", cache, source))


def test_sources_without_the_data_set(published: dict[str, Arrays], source: Path, cache: Path, tmp_path: Path) -> None:
    def fetch(name: str, folder: Path) -> Callable[[], None]:
        return lambda: datasets.fetch(name, cache, folder)

    refuses("does not hold mnist: there is no mnist.npz", cache, fetch("mnist", source))
    refuses("does not hold cifar10: there is no cifar10.npz, no cifar-10-batches-py", cache, fetch("cifar10", source))
    refuses("is not a folder", cache, fetch("mnist", tmp_path / "absent"))
    (tmp_path / "file").touch()
    refuses("is not a folder", cache, fetch("mnist", tmp_path / "file"))
    (tmp_path / "link").symlink_to(tmp_path / "absent")
    refuses("is not a folder", cache, fetch("mnist", tmp_path / "link"))
    write_idx(source, published["mnist"])
    (source / IDX["y_test"]).unlink()
    refuses(f"lacks {IDX['y_test']}", cache, fetch("mnist", source))
    (source / IDX["y_test"]).mkdir()
    refuses(f"{IDX['y_test']} cannot be read .Is a directory", cache, fetch("mnist", source))


def test_a_folder_that_may_not_be_read(
    published: dict[str, Arrays], source: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listdir = os.listdir

    def refuse(path: Path) -> list[str]:
        if Path(path) == source:
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return listdir(path)

    monkeypatch.setattr(os, "listdir", refuse)  # permissions do not bind the superuser
    refuses("source cannot be read .Permission denied", cache, lambda: datasets.fetch("mnist", cache, source))


# headers that lie


def peak_of(action: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        action()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("kind", ["idx", "idx.gz", "npz", "npz, Fortran order", "overlong"])
def test_no_memory_is_set_aside_for_a_header_that_lies(kind: str, published: dict[str, Arrays], source: Path, cache: Path) -> None:
    write_idx(source, published["mnist"])
    path, count = source / IDX["x_train"], 2**31
    if kind.startswith("idx"):
        damage(path, lambda content: content[:4] + struct.pack(">I", count) + content[8:])
    elif kind == "overlong":  # 64 MB of noughts after the images, in some 64 kB
        damage(path, lambda content: content + bytes(64_000_000))
    else:
        header = {"descr": "|u1", "fortran_order": "Fortran" in kind, "shape": (count, 28, 28)}
        with zipfile.ZipFile(source / "mnist.npz", "w") as archive:
            for array in IDX:
                buffer = io.BytesIO()
                np.lib.format.write_array_header_1_0(buffer, header)
                archive.writestr(f"{array}.npy", buffer.getvalue() + bytes(100))
    if kind in ("idx.gz", "overlong"):
        (source / f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    message = "goes on after" if kind == "overlong" else "declares the shape"
    assert peak_of(lambda: refuses(message, cache, lambda: datasets.fetch("mnist", cache, source))) < 4_000_000


def test_a_huge_header_is_not_read(published: dict[str, Arrays], source: Path, cache: Path) -> None:
    with zipfile.ZipFile(source / "mnist.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        for array in IDX:
            archive.writestr(f"{array}.npy", b"\x93NUMPY\x02\0" + struct.pack("<I", 50_000_000) + b" " * 50_000_000)
    message = r"x_train in .* is in NumPy's format \(2, 0\)"
    assert peak_of(lambda: refuses(message, cache, lambda: datasets.fetch("mnist", cache, source))) < 4_000_000


# the cache


def test_absent_data_say_how_to_get_them(published: dict[str, Arrays], cache: Path) -> None:
    assert not datasets.available("mnist", cache)
    with pytest.raises(DataError, match=r"mnist is not in .*cache; .*`gelu-study data mnist`.*--from FOLDER`"):
        datasets.load("mnist", cache)
    assert "missing" in datasets.describe("mnist", cache)


def test_a_damaged_cache_is_named_and_kept(published: dict[str, Arrays], cache: Path) -> None:
    refuses("mnist.npz is damaged", cache, lambda: datasets.load("mnist", cache))
    assert "not usable" in datasets.describe("mnist", cache)
    np.savez(cache / "mnist.npz", allow_pickle=False, **(published["mnist"] | {"y_test": np.zeros(3, np.uint8)}))
    refuses("y_test of mnist from .*mnist.npz has the SHA-256", cache, lambda: datasets.load("mnist", cache))


def test_description_of_what_is_there(published: dict[str, Arrays], source: Path, cache: Path) -> None:
    write_idx(source, published["mnist"])
    datasets.fetch("mnist", cache, source)
    line = datasets.describe("mnist", cache)
    assert "verified" in line
    assert str(cache / "mnist.npz") in line
    assert f"{(cache / 'mnist.npz').stat().st_size:,} bytes" in line


@pytest.mark.parametrize("where", ["file", "under a file", "dangling link", "folder in the way"])
def test_a_cache_that_cannot_be_written(where: str, published: dict[str, Arrays], source: Path, tmp_path: Path) -> None:
    write_idx(source, published["mnist"])
    (tmp_path / "file").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "absent" / "absent")
    (tmp_path / "folder" / "mnist.npz").mkdir(parents=True)
    root = {
        "file": tmp_path / "file",
        "under a file": tmp_path / "file" / "cache",
        "dangling link": tmp_path / "link",
        "folder in the way": tmp_path / "folder",
    }[where]
    with pytest.raises(DataError, match=r"mnist could not be put into .*GELU_STUDY_DATA"):
        datasets.fetch("mnist", root, source)
    assert (tmp_path / "file").read_text() == "mine"
    assert os.listdir(tmp_path / "folder") == ["mnist.npz"]
    assert not datasets.available("mnist", root)


def full(*arguments: object, **named: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("moment", ["writing", "finishing", "downloading"])
def test_a_full_disk(moment: str, published: dict[str, Arrays], source: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def half(file: io.BufferedWriter, **arrays: object) -> None:
        file.write(b"half")
        full()

    write_idx(source, published["mnist"])
    if moment == "writing":
        monkeypatch.setattr(np, "savez", half)
    elif moment == "finishing":
        monkeypatch.setattr(os, "fsync", full)
    else:
        monkeypatch.setattr(torchvision.datasets.utils, "download_url", full)
    chosen = None if moment == "downloading" else source
    refuses("No space left on device.* MB must be free", cache, lambda: datasets.fetch("mnist", cache, chosen))


def test_an_interruption_leaves_nothing(published: dict[str, Arrays], cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(address: str, folder: Path, *rest: object) -> None:
        (folder / "half").write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(torchvision.datasets.utils, "download_url", interrupted)
    with pytest.raises(KeyboardInterrupt):
        datasets.fetch("mnist", cache)
    assert os.listdir(cache) == []


def test_what_a_killed_process_left_is_removed_later(published: dict[str, Arrays], source: Path, cache: Path) -> None:
    write_idx(source, published["mnist"])
    for folder in (".mnist-killed", ".mnist-running", ".cifar10-killed"):
        (cache / folder).mkdir(parents=True)
    yesterday = time.time() - 100_000
    for folder in (".mnist-killed", ".cifar10-killed"):
        os.utime(cache / folder, (yesterday, yesterday))
    datasets.fetch("mnist", cache, source)
    assert sorted(os.listdir(cache)) == [".cifar10-killed", ".mnist-running", "mnist.npz"]


# downloads, from a server of our own


class Server:
    """Serves `files` by path; a path it lacks is 404, `cut` drops the connection midway, `mute` never answers."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.asked: list[str] = []
        self.cut = self.mute = False
        self.closing = threading.Event()
        server = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.asked.append(self.path)
                if server.mute:
                    server.closing.wait(10)
                    return
                content = server.files.get(self.path)
                if content is None:
                    self.send_error(404)
                    return
                self.send_response(200)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content[: len(content) // 2] if server.cut else content)

            def log_message(self, *arguments: object) -> None:
                pass

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.http.server_port}"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "*")
    server = Server()
    with server.http:
        thread = threading.Thread(target=server.http.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.closing.set()
        server.http.shutdown()
        thread.join()


@pytest.fixture
def mirrors(server: Server, published: dict[str, Arrays], monkeypatch: pytest.MonkeyPatch) -> Server:
    """MNIST lies on the server's /second/, the second of torchvision's mirrors; its /first/ lacks it."""
    contents = {f"{file}.gz": gzip.compress(idx(published["mnist"][array])) for array, file in IDX.items()}
    server.files = {f"/second/{file}": content for file, content in contents.items()}
    digests = [(file, hashlib.md5(content).hexdigest()) for file, content in contents.items()]
    monkeypatch.setattr(torchvision.datasets.MNIST, "resources", digests)
    monkeypatch.setattr(torchvision.datasets.MNIST, "mirrors", [f"{server.address}/{name}/" for name in ("first", "second")])
    return server


def test_download_of_mnist_from_the_mirror_that_has_it(mirrors: Server, published: dict[str, Arrays], cache: Path) -> None:
    datasets.fetch("mnist", cache)
    same(datasets.load("mnist", cache), published["mnist"])
    assert os.listdir(cache) == ["mnist.npz"]
    asked = len(mirrors.asked)
    assert asked >= 8
    datasets.fetch("mnist", cache)  # it is there
    assert len(mirrors.asked) == asked
    (cache / "mnist.npz").write_bytes(b"damaged")
    datasets.fetch("mnist", cache)
    same(datasets.load("mnist", cache), published["mnist"])


@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
def test_download_of_cifar(
    name: str, server: Server, published: dict[str, Arrays], cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = batches(name, published[name])
    publish_md5(monkeypatch, name, files)
    server.files["/archive"] = cifar_archive(monkeypatch, name, files)
    monkeypatch.setattr(CIFAR[name], "url", f"{server.address}/archive")
    datasets.fetch(name, cache)
    same(datasets.load(name, cache), published[name])
    assert os.listdir(cache) == [f"{name}.npz"]


def test_downloads_that_fail(mirrors: Server, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fetch() -> None:
        datasets.fetch("mnist", cache)

    mirrors.cut = True
    message = refuses("mnist could not be downloaded .*does not have the published MD5: it is truncated", cache, fetch)
    assert "HTTP Error 404" in message
    assert "--from FOLDER" in message
    mirrors.cut = False
    for path, content in mirrors.files.items():
        mirrors.files[path] = gzip.compress(gzip.decompress(content)[:-1] + b"\0")
    refuses("does not have the published MD5", cache, fetch)
    mirrors.files.clear()
    refuses("404.*404", cache, fetch)
    monkeypatch.setattr(downloads, "SILENCE", 0.1)
    mirrors.mute = True
    refuses("timed out", cache, fetch)


def test_downloads_without_a_network(
    published: dict[str, Arrays], server: Server, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = "http://127.0.0.1:1/"
    monkeypatch.setattr(torchvision.datasets.MNIST, "mirrors", [closed, "http://name.invalid/"])
    message = refuses("mnist could not be downloaded", cache, lambda: datasets.fetch("mnist", cache))
    assert re.search(r"refused.*name\.invalid", message)
    monkeypatch.setattr(CIFAR["cifar10"], "url", closed)
    refuses("cifar10 could not be downloaded .*refused", cache, lambda: datasets.fetch("cifar10", cache))
