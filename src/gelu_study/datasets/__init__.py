"""Data sets as arrays whose identity is the SHA-256 of their bytes, whatever they came from.

`fetch` downloads or imports, `load` reads the cache (one NAME.npz each); both hand on nothing but the published arrays.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from shutil import rmtree

import numpy as np

from gelu_study import paths
from gelu_study.datasets import downloads, readers
from gelu_study.errors import DataError

ARRAYS = ("x_train", "y_train", "x_test", "y_test")


@dataclass(frozen=True)
class Published:
    """What is known of a data set whether or not it is at hand."""

    title: str  #: what a reader calls it
    image: tuple[int, ...]  #: shape of an image, [height, width] or [height, width, 3]
    train: int  #: images
    test: int  #: images
    sha256: tuple[str, str, str, str]  #: of the bytes of each of `ARRAYS`, uint8 in C order
    classes: int = 10  #: labels are 0 to classes - 1
    scale: float = 255.0  #: what pixels are divided by to lie in [0, 1]


KNOWN = {
    "mnist": Published(
        "MNIST",
        image=(28, 28),
        train=60_000,
        test=10_000,
        sha256=(
            "741c988805d008ac6e4c904b69001ba184c24b2c540a4ef403f4c71b676cf757",
            "1feba77c54802fa5339a11837ea4b2866434b83314ec45192930f1df69120c13",
            "6d87418db22cc8025d05968bec9bd5c3932904b23485740db143a061a2c9d161",
            "ddeff807876a9661a1110d45c266c86239a3a1b7d37da0c3716a7a683c852ff5",
        ),
    ),
    "cifar10": Published(
        "CIFAR-10",
        image=(32, 32, 3),
        train=50_000,
        test=10_000,
        sha256=(
            "47af8b02cfcfb6cdf3dbbd1969ad7f1b70f4413f6f80f437b020ee4e5bc8304a",
            "2b7cd2f24487317614016b72ffd53071c3062f592f0eb300c18a770d41ae1253",
            "f9b1e2130bab680db56eb06d886f7f1ad0f1183907ceff4659d1735c890f5b04",
            "cec8a24a1e92aa2ecaa0bbd3dbfa86bf6cd8759fbd209a832824c8cf0afca9d5",
        ),
    ),
    "cifar100": Published(
        "CIFAR-100",
        image=(32, 32, 3),
        train=50_000,
        test=10_000,
        sha256=(
            "4e457917601a66aed021f5fa37957b56c6319557c0a8ed5484de3c390af45430",
            "9f11b9f97aad759ba6df0a33e3218b01d8deaf4ed3a14aa1185d69b9ad7ebcb3",
            "4cb8e5d9309da489bf6b19cc10cd96c3ae6f8daf225380b605aaee4c0d6aee19",
            "4dad7d09c7c97d33f6cb928d705cf4196221316fd6e31bdd978a08ed9103ee0b",
        ),
        classes=100,
    ),
    "digits": Published(
        "scikit-learn's digits",
        image=(8, 8),
        train=1_437,
        test=360,  # there is no official split; the last 360 test
        sha256=(
            "b284d50d1ff250076877f9fa076dc54f7a48937f997c4571de6cae27017f4f99",
            "00d355536cfe54c3c5aaa1bbc756008bcc5ba7030407f225954ebda1d1ca46c9",
            "cfff6ae4478611800cb91b9d2c5ae329e83dec33ba4d539ec56620f0182f6b56",
            "7a7a9acee298b8862700d7c2a0341a0ee3744e1369c9107a26149f5d0e61b304",
        ),
        scale=16.0,
    ),
}
"""The data sets by name. One that `downloads` has no address of is imported, as NAME.npz with `ARRAYS`."""

NAMES = tuple(KNOWN)
SHAPES: dict[str, dict[str, tuple[int, ...]]] = {
    name: {"x_train": (it.train, *it.image), "y_train": (it.train,), "x_test": (it.test, *it.image), "y_test": (it.test,)}
    for name, it in KNOWN.items()
}
SHA256 = {name: dict(zip(ARRAYS, it.sha256, strict=True)) for name, it in KNOWN.items()}


@dataclass(frozen=True)
class Dataset:
    """Images [n, height, width] or [n, height, width, 3] and labels [n], uint8, in the official order."""

    name: str
    x_train: np.ndarray
    y_train: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray

    @property
    def scale(self) -> float:
        """What pixels are divided by to lie in [0, 1]."""
        return KNOWN[self.name].scale

    @property
    def classes(self) -> int:
        """The number of labels."""
        return KNOWN[self.name].classes


def content_hash(name: str) -> str:
    """SHA-256 that names the data set: of its arrays' digests in the order of `ARRAYS`, a line each; needs no data."""
    if name not in SHA256:
        raise DataError(f"unknown data set {name!r}; known are {', '.join(NAMES)}")
    return hashlib.sha256("\n".join(SHA256[name][array] for array in ARRAYS).encode()).hexdigest()


def available(name: str, root: str | Path | None = None) -> bool:
    """Whether the cache holds a file for the data set, which `load` then verifies; digits always are at hand."""
    return name == "digits" or os.path.isfile(_cached(name, root))


def load(name: str, root: str | Path | None = None) -> Dataset:
    """The verified data set from the cache: `root`, else the folder GELU_STUDY_DATA, else data/raw.

    Raises `DataError` when it is absent, damaged or not the published one.
    """
    content_hash(name)
    if name == "digits":
        return Dataset(name, **_verified(name, _digits(), "scikit-learn's package"))
    path = _cached(name, root)
    with readers.reading(path):
        if not path.is_file():
            raise DataError(
                f"{name} is not in {path.parent}; download it with `gelu-study data {name}` or import it from a folder "
                f"with `gelu-study data {name} --from FOLDER`"
            )
    return Dataset(name, **_verified(name, readers.read_npz(path, SHAPES[name]), str(path)))


def fetch(name: str, root: str | Path | None = None, source: str | Path | None = None) -> None:
    """Put the verified data set into the cache: download it, or import it from the folder `source`.

    A download is spared when the cache is in order already. `source` holds NAME.npz, files as torchvision lays them
    out, or MNIST's IDX files, plain or gzipped. The cached file is replaced in one step, and only by the published
    arrays: after a `DataError`, and beside another process that fetches, it is what it was or what it should be.
    """
    content_hash(name)
    if name == "digits" or (source is None and _in_order(name, root)):
        return
    arrays = None if source is None else _import(name, Path(source))
    target = _cached(name, root)
    with _workspace(name, target.parent) as workspace:
        if arrays is None:
            downloads.download(name, workspace)
            arrays = _import(name, workspace)
        with (workspace / target.name).open("wb") as file:
            np.savez(file, allow_pickle=False, **arrays)
            file.flush()
            os.fsync(file.fileno())
        os.replace(workspace / target.name, target)


def describe(name: str, root: str | Path | None = None) -> str:
    """One line: what is at hand of the data set, where, how many bytes, and whether it is verified."""
    path = _cached(name, root)
    if not available(name, root):
        return f"{name}: missing, not in {path.parent}"
    try:
        load(name, root)
    except DataError as error:
        return f"{name}: not usable, {error}"
    where = "ships with scikit-learn" if name == "digits" else f"{path}, {path.stat().st_size:,} bytes"
    return f"{name}: verified, {where}"


def _cached(name: str, root: str | Path | None) -> Path:
    return Path(root or paths.RAW) / f"{name}.npz"


def _in_order(name: str, root: str | Path | None) -> bool:
    try:
        load(name, root)
    except DataError:
        return False
    return True


def _digits() -> readers.Arrays:
    from sklearn.datasets import load_digits  # here: it takes a second

    digits, train = load_digits(), SHAPES["digits"]["y_train"][0]
    x, y = digits.images.astype(np.uint8), digits.target.astype(np.uint8)
    return {"x_train": x[:train], "y_train": y[:train], "x_test": x[train:], "y_test": y[train:]}


def _import(name: str, source: Path) -> readers.Arrays:
    return _verified(name, readers.read_folder(name, source, SHAPES[name]), str(source))


def _verified(name: str, arrays: readers.Arrays, where: str) -> readers.Arrays:
    for array, published in SHA256[name].items():
        found = hashlib.sha256(arrays[array].data).hexdigest()
        if found != published:
            raise DataError(
                f"{array} of {name} from {where} has the SHA-256 {found[:9]}..., not the published {published[:9]}...: "
                f"the data are damaged or altered; get them anew with `gelu-study data {name}`, or import a good copy "
                "with `--from FOLDER`"
            )
    return arrays


@contextmanager
def _workspace(name: str, folder: Path) -> Iterator[Path]:
    """A temporary folder inside the cache, so that what is finished there can be moved into place in one step."""
    prefix = f".{name}-"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for abandoned in folder.glob(f"{prefix}*"):  # by a process that was killed; a download of a day is none
            with suppress(OSError):  # its owner may be removing it
                if time.time() - abandoned.stat().st_mtime > 86_400:
                    rmtree(abandoned)
        with tempfile.TemporaryDirectory(prefix=prefix, dir=folder) as workspace:
            yield Path(workspace)
    except OSError as error:
        needed = 2 * sum(int(np.prod(shape)) for shape in SHAPES[name].values()) // 1_000_000
        raise DataError(
            f"{name} could not be put into {folder} ({error.strerror or error}), and nothing there was changed; about "
            f"{needed} MB must be free, or name another folder in GELU_STUDY_DATA"
        ) from error
