"""Arrays out of files that others made: npz, IDX and CIFAR's batches.

A file is taken for nothing but bytes: what its header declares is compared with the published shape before memory is
set aside, and a pickle is opened only after its published MD5 was found. Every failure is a `DataError`.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import math
import os
import pickle
import struct
import tarfile
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from numpy.lib import format as npy

from gelu_study.errors import DataError

if TYPE_CHECKING:
    from torchvision.datasets import CIFAR10

Arrays = dict[str, np.ndarray]
Shapes = Mapping[str, tuple[int, ...]]

IDX_FILES = {
    "x_train": "train-images-idx3-ubyte",
    "y_train": "train-labels-idx1-ubyte",
    "x_test": "t10k-images-idx3-ubyte",
    "y_test": "t10k-labels-idx1-ubyte",
}
_CHUNK = 1 << 20  # bytes; a compressed stream hands over a copy of what is asked of it


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turns what the format libraries raise on an unreadable or damaged file into a `DataError` that names `path`."""
    try:
        yield
    except (
        gzip.BadGzipFile,
        zipfile.BadZipFile,
        zlib.error,
        tarfile.TarError,
        pickle.UnpicklingError,
        struct.error,
        EOFError,
        ValueError,
        RuntimeError,  # zipfile: an encrypted member, an unknown compression
        LookupError,
        TypeError,
        AttributeError,
        OverflowError,
    ) as error:
        raise DataError(
            f"{path} is damaged or is not what its name says ({str(error) or type(error).__name__}); put a good copy in its place"
        ) from error
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror or error}); make it readable or give another folder") from error


def read_npz(path: Path, shapes: Shapes) -> Arrays:
    """The uint8 arrays of `shapes` from a NumPy archive, in C order; other arrays in it are left alone."""
    with reading(path), zipfile.ZipFile(path) as archive:
        members = set(archive.namelist())
        missing = [array for array in shapes if f"{array}.npy" not in members]
        if missing:
            raise DataError(f"{path} lacks {', '.join(missing)}; it must hold the arrays {', '.join(shapes)}")
        arrays = {}
        for array, shape in shapes.items():
            if archive.getinfo(f"{array}.npy").compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise DataError(f"{array} in {path} is compressed in a way that NumPy does not write; save it with numpy.savez")
            with archive.open(f"{array}.npy") as stream:
                arrays[array] = _read_npy(stream, shape, f"{array} in {path}")
        return arrays


def _read_npy(stream: IO[bytes], shape: tuple[int, ...], where: str) -> np.ndarray:
    # not numpy.load: it sets aside whatever a header declares
    version = npy.read_magic(stream)
    if version != (1, 0):  # as NumPy writes plain arrays; a later one's header may claim 4 GB, and would be read whole
        raise DataError(f"{where} is in NumPy's format {version}; version (1, 0) is read, save it with numpy.savez")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # remarks on old or damaged headers
        try:
            # as long as that of any plain array; Python's parser takes up to a thousand times a header's length
            declared, fortran, dtype = npy.read_array_header_1_0(stream, max_header_size=1_000)
        except Exception as error:  # Python's own tokeniser and parser work on it, and raise a dozen kinds
            raise DataError(f"{where} has a damaged header ({type(error).__name__}); get it again") from error
    if dtype != np.uint8:
        raise DataError(f"{where} holds {dtype}; it must hold uint8")
    if declared != shape:
        raise DataError(f"{where} declares the shape {_short(declared)}; it must be {shape}")
    if fortran:
        return np.ascontiguousarray(_fill(stream, shape[::-1], where).T)
    return _fill(stream, shape, where)


def read_idx(path: Path, shape: tuple[int, ...]) -> np.ndarray:
    """The uint8 array of an IDX file, plain or gzipped by its name, whose header must declare `shape`."""
    with reading(path), path.open("rb") as file:
        stream: IO[bytes] = gzip.GzipFile(fileobj=file) if path.suffix == ".gz" else file  # type: ignore[assignment]
        magic = stream.read(4)
        if magic != bytes([0, 0, 8, len(shape)]):
            raise DataError(f"{path} does not begin as an IDX file of {len(shape)}-dimensional unsigned bytes; get it again")
        declared = struct.unpack(f">{len(shape)}I", stream.read(4 * len(shape)))
        if declared != shape:
            raise DataError(f"{path} declares the shape {declared}; it must be {shape}")
        values = _fill(stream, shape, str(path))
        if stream.read(1):
            raise DataError(f"{path} goes on after the {values.nbytes:,} bytes that it declares; get it again")
        return values


def _fill(stream: IO[bytes], shape: tuple[int, ...], where: str) -> np.ndarray:
    values = np.empty(shape, np.uint8)
    view, filled = values.data.cast("B"), 0
    while filled < len(view):
        count = stream.readinto(view[filled : filled + _CHUNK])  # type: ignore[attr-defined]
        if not count:
            raise DataError(f"{where} is truncated: it ends after {filled:,} of {len(view):,} bytes; get it again")
        filled += count
    return values


def read_folder(name: str, folder: Path, shapes: Shapes) -> Arrays:
    """The arrays of a data set from a folder: NAME.npz, else files as torchvision lays them out, else IDX files.

    The first of these that is there is taken; when it is damaged, no other is tried in its place.
    """
    with reading(folder):
        if not folder.is_dir():
            raise DataError(f"{folder}, to import {name} from, is not a folder; give one that exists")
        os.listdir(folder)
        if os.path.lexists(folder / f"{name}.npz"):
            return read_npz(folder / f"{name}.npz", shapes)
        if name == "mnist":
            return _read_mnist(folder, shapes)
        if name.startswith("cifar"):
            return _read_cifar(name, folder, shapes)
        raise DataError(f"{folder} does not hold {name}: there is no {name}.npz; give another folder")


def _read_mnist(source: Path, shapes: Shapes) -> Arrays:
    for folder in (source / "MNIST" / "raw", source):
        found: dict[str, Path] = {}
        for array, file in IDX_FILES.items():
            for path in (folder / f"{file}.gz", folder / file):  # both: the plain one, which is quicker
                if os.path.lexists(path):
                    found[array] = path
        missing = [file for array, file in IDX_FILES.items() if array not in found]
        if found and missing:
            raise DataError(f"{folder} lacks {', '.join(missing)} (plain or .gz); mnist needs all four files")
        if found:
            return {array: read_idx(found[array], shape) for array, shape in shapes.items()}
    raise DataError(
        f"{source} does not hold mnist: there is no mnist.npz, no MNIST/raw and no {IDX_FILES['x_train']}[.gz]; give another folder"
    )


def cifar(name: str) -> type[CIFAR10]:
    """torchvision's class for the data set, which carries its address, file names and published MD5 sums."""
    from torchvision.datasets import CIFAR10, CIFAR100  # here: it takes seconds

    classes: dict[str, type[CIFAR10]] = {"cifar10": CIFAR10, "cifar100": CIFAR100}
    return classes[name]


def _read_cifar(name: str, source: Path, shapes: Shapes) -> Arrays:
    published = cifar(name)
    batches, archive = source / published.base_folder, source / published.filename
    # a batch holds a little more than its images; a longer file is not read whole only to be refused
    limit = 2 * math.prod(shapes["x_train"]) + _CHUNK
    if batches.is_dir():
        return _decode(published, lambda file: _read_bytes(batches / file, limit), shapes, batches)
    if archive.is_file():
        contents = _read_archive(published, archive)
        return _decode(published, lambda file: contents.pop(file, b""), shapes, archive)
    raise DataError(
        f"{source} does not hold {name}: there is no {name}.npz, no {published.base_folder} and no "
        f"{published.filename}; give another folder"
    )


def _read_bytes(path: Path, limit: int) -> bytes:
    with reading(path), path.open("rb") as file:
        return file.read(limit)


def _read_archive(published: type[CIFAR10], path: Path) -> dict[str, bytes]:
    """The batches of a .tar.gz by their names, read in one pass and without unpacking to the disk."""
    with reading(path), path.open("rb") as file:
        _check_md5(hashlib.file_digest(file, _md5).hexdigest(), published.tgz_md5, path)
        file.seek(0)
        wanted = {f"{published.base_folder}/{batch}": batch for batch, _ in published.train_list + published.test_list}
        contents = {}
        with tarfile.open(fileobj=file, mode="r|gz") as archive:
            for member in archive:
                if member.name in wanted and member.isfile() and (stream := archive.extractfile(member)):
                    contents[wanted[member.name]] = stream.read()
        return contents


def _decode(published: type[CIFAR10], read: Callable[[str], bytes], shapes: Shapes, where: Path) -> Arrays:
    arrays: Arrays = {}
    for split, files in (("train", published.train_list), ("test", published.test_list)):
        images, labels, filled = np.empty(shapes[f"x_{split}"], np.uint8), [], 0
        for file, md5 in files:
            batch = _unpickle(read(file), md5, where / file)
            with reading(where / file):
                planes = batch["data"].reshape(-1, 3, *images.shape[1:3])
                images[filled : filled + len(planes)] = planes.transpose(0, 2, 3, 1)
                labels += batch["fine_labels"] if "fine_labels" in batch else batch["labels"]
                filled += len(planes)
        if not filled == len(labels) == len(images):
            raise DataError(
                f"{where} holds {filled:,} images and {len(labels):,} labels for {split}; {len(images):,} are published"
            )
        with reading(where):  # a label may be no number, or none that a byte holds
            arrays |= {f"x_{split}": images, f"y_{split}": np.array(labels, np.uint8)}
    return arrays


class _ArraysOnly(pickle.Unpickler):
    """Loads containers, text, numbers and NumPy arrays, and nothing that could act."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("numpy", "ndarray"):
            return np.ndarray
        if (module, name) == ("numpy", "dtype"):  # old pickles hold numbers where NumPy now wants truth values
            return lambda code, align, copy: np.dtype(code, align=bool(align), copy=bool(copy))
        if module in ("numpy.core.multiarray", "numpy._core.multiarray") and name == "_reconstruct":
            return np.empty(0).__reduce__()[0]  # its public way out of a private module
        raise pickle.UnpicklingError(f"it asks for {module}.{name}")


def _unpickle(data: bytes, md5: str, path: Path) -> dict[str, Any]:
    _check_md5(_md5(data).hexdigest(), md5, path)
    with reading(path):
        batch: dict[str, Any] = _ArraysOnly(io.BytesIO(data), encoding="latin1").load()
        return batch


def _md5(data: bytes = b"") -> hashlib._Hash:
    return hashlib.md5(data, usedforsecurity=False)  # the one that is published; FIPS builds refuse it otherwise


def _check_md5(found: str, published: str, path: Path) -> None:
    if found != published:
        raise DataError(
            f"{path} has the MD5 {found}, not the published {published}: it is truncated or another file; put a good "
            "copy in its place"
        )


def _short(shape: tuple[int, ...]) -> str:
    return str(shape) if len(str(shape)) < 80 else f"{str(shape)[:60]}..."
