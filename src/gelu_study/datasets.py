"""Data sets as arrays whose identity is the SHA-256 of their bytes, whatever they came from."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gelu_study import paths
from gelu_study.errors import DataError

NAMES = ("mnist", "cifar10", "cifar100", "digits")
ARRAYS = ("x_train", "y_train", "x_test", "y_test")
DIGITS_TRAIN = 1_437
"""scikit-learn's digits have no official split; the last 360 test."""


@dataclass(frozen=True)
class Dataset:
    """Images [n, height, width(, 3)] and labels [n], uint8, in the official order."""

    name: str
    x_train: np.ndarray
    y_train: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray

    @property
    def scale(self) -> float:
        """What pixels are divided by to lie in [0, 1]."""
        return 16.0 if self.name == "digits" else 255.0

    @property
    def classes(self) -> int:
        """The number of labels."""
        return 100 if self.name == "cifar100" else 10


# SHA-256 of each array's bytes in C order
SHA256: dict[str, dict[str, str]] = {
    "mnist": {
        "x_train": "741c988805d008ac6e4c904b69001ba184c24b2c540a4ef403f4c71b676cf757",
        "y_train": "1feba77c54802fa5339a11837ea4b2866434b83314ec45192930f1df69120c13",
        "x_test": "6d87418db22cc8025d05968bec9bd5c3932904b23485740db143a061a2c9d161",
        "y_test": "ddeff807876a9661a1110d45c266c86239a3a1b7d37da0c3716a7a683c852ff5",
    },
    "cifar10": {
        "x_train": "47af8b02cfcfb6cdf3dbbd1969ad7f1b70f4413f6f80f437b020ee4e5bc8304a",
        "y_train": "2b7cd2f24487317614016b72ffd53071c3062f592f0eb300c18a770d41ae1253",
        "x_test": "f9b1e2130bab680db56eb06d886f7f1ad0f1183907ceff4659d1735c890f5b04",
        "y_test": "cec8a24a1e92aa2ecaa0bbd3dbfa86bf6cd8759fbd209a832824c8cf0afca9d5",
    },
    "cifar100": {
        "x_train": "4e457917601a66aed021f5fa37957b56c6319557c0a8ed5484de3c390af45430",
        "y_train": "9f11b9f97aad759ba6df0a33e3218b01d8deaf4ed3a14aa1185d69b9ad7ebcb3",
        "x_test": "4cb8e5d9309da489bf6b19cc10cd96c3ae6f8daf225380b605aaee4c0d6aee19",
        "y_test": "4dad7d09c7c97d33f6cb928d705cf4196221316fd6e31bdd978a08ed9103ee0b",
    },
    "digits": {
        "x_train": "b284d50d1ff250076877f9fa076dc54f7a48937f997c4571de6cae27017f4f99",
        "y_train": "00d355536cfe54c3c5aaa1bbc756008bcc5ba7030407f225954ebda1d1ca46c9",
        "x_test": "cfff6ae4478611800cb91b9d2c5ae329e83dec33ba4d539ec56620f0182f6b56",
        "y_test": "7a7a9acee298b8862700d7c2a0341a0ee3744e1369c9107a26149f5d0e61b304",
    },
}


def content_hash(name: str) -> str:
    """SHA-256 that names the data set: of its four arrays' digests in the order of `ARRAYS`, a line each. Needs no data at hand."""
    if name not in SHA256:
        raise DataError(f"unknown data set {name!r}; known are {', '.join(NAMES)}")
    return hashlib.sha256("\n".join(SHA256[name][array] for array in ARRAYS).encode()).hexdigest()


def available(name: str, root: Path | None = None) -> bool:
    """Whether the cache holds the data set (digits always are at hand)."""
    return name == "digits" or ((root or paths.RAW) / f"{name}.npz").is_file()


def load(name: str, root: Path | None = None) -> Dataset:
    """The verified data set from the cache. Raises `DataError` when it is absent or not what its name says."""
    content_hash(name)
    path = (root or paths.RAW) / f"{name}.npz"
    if name == "digits":
        from sklearn.datasets import load_digits

        digits = load_digits()
        x, y = digits.images.astype(np.uint8), digits.target.astype(np.uint8)
        arrays = {"x_train": x[:DIGITS_TRAIN], "y_train": y[:DIGITS_TRAIN], "x_test": x[DIGITS_TRAIN:], "y_test": y[DIGITS_TRAIN:]}
    elif not path.is_file():
        raise DataError(
            f"{name} is not in {path.parent}; download it with `gelu-study data {name}` or import it with `--from FOLDER`"
        )
    else:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {array: archive[array] for array in ARRAYS}
    for array, values in arrays.items():
        if hashlib.sha256(np.ascontiguousarray(values)).hexdigest() != SHA256[name][array]:
            raise DataError(f"{array} of {name} in {path} is not the published array; remove that file and fetch it again")
    return Dataset(name, **arrays)
