"""Images for convolutional networks: prepared once, kept on the device as bytes where they can, put together a minibatch at a time.

Preprocessing: `zca`, whitening; `pixel-mean`, pixels in [0, 1] less the mean training image; `channels`, pixels
standardised by the mean and standard deviation of each colour. All are fitted on the training examples alone.

Augmentation: `mirrors-and-crops`, the images and their mirror images, shifted by up to 4 pixels into zeros, as the paper's code for
CIFAR-100 does; `flips-and-shifts`, an image mirrored in every other epoch, beginning by chance, and shifted by up to 2 pixels, its
border mirrored (Jordan 2024, arXiv:2404.00498). Chance comes from the run's seed, drawn for a whole epoch, the same on any device.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from gelu_study import files, paths
from gelu_study.datasets import Dataset
from gelu_study.errors import ConfigurationError
from gelu_study.random_streams import generator
from gelu_study.runs import RunConfig

ZCA_REGULARISER = 1e-5
"""Added to the eigenvalues of the covariance, as in the paper's code."""
_SHIFTS = {"none": 0, "mirrors-and-crops": 4, "flips-and-shifts": 2}
"""Pixels by which an image is shifted at most."""
_KEPT = np.dtype("<f4")
"""Numbers in the file of a fitted whitening."""


@dataclass(frozen=True)
class Epoch:
    """What an epoch looks like, drawn beforehand: [steps, batch] each, on the device."""

    chosen: Tensor  #: the training examples, int64
    rows: Tensor  #: where the window begins in the padded image, int64
    columns: Tensor
    mirrored: Tensor  #: bool


class Images:
    """The parts of a data set as a run wants them, on the device: labels int64, images as float32 [n, 3, side, side] channels last.

    Digits, which are grey and 8 x 8, are enlarged to 16 x 16 and given three equal colours. Raises `ConfigurationError` when the
    data set is smaller than the run asks for or of another kind.
    """

    def __init__(self, dataset: Dataset, config: RunConfig, device: torch.device) -> None:
        train, held_out = config.train_examples, config.validation_examples
        if train + held_out > len(dataset.x_train):
            raise ConfigurationError(
                f"{train} training and {held_out} validation examples asked for, and {dataset.name} has {len(dataset.x_train)}"
            )
        x_train, x_test = _in_colour(dataset, dataset.x_train), _in_colour(dataset, dataset.x_test)
        self._device, self._augmentation, self.classes = device, config.augmentation, dataset.classes
        self.side = x_train.shape[1]
        self._shift = _SHIFTS[config.augmentation]
        self._window = torch.arange(self.side, device=device)
        first, last = slice(0, train), slice(len(x_train) - held_out, None)
        parts = {
            "train": (x_train[first], dataset.y_train[first]),
            "validation": (x_train[last], dataset.y_train[last]),
            "test": (x_test, dataset.y_test),
        }
        self.labels = {name: torch.from_numpy(y).to(device, torch.int64) for name, (_, y) in parts.items()}
        if config.preprocessing == "zca":
            whitening = Whitening.of(parts["train"][0], f"{dataset.name} {config.dataset_sha256} {train}")
            self._pixels = {name: whitening.apply(x, device) for name, (x, _) in parts.items()}
            self._mean, self._deviation = torch.zeros(1, 1, 3, device=device), torch.ones(3, device=device)
        else:
            self._pixels = {name: torch.from_numpy(x).to(device) for name, (x, _) in parts.items()}
            mean, deviation = _moments(parts["train"][0], config.preprocessing)
            self._mean, self._deviation = mean.to(device), deviation.to(device)
        self._padded = self._pad(self._pixels["train"])
        self._padded_mean = self._pad(self._mean.expand(1, self.side, self.side, 3))

    def _pad(self, pixels: Tensor) -> Tensor:
        """Images [n, side, side, 3] with a border as wide as the greatest shift."""
        if not self._shift:
            return pixels
        if self._augmentation == "mirrors-and-crops":
            return functional.pad(pixels, (0, 0, *[self._shift] * 4))
        around = torch.arange(-self._shift, self.side + self._shift, device=pixels.device).abs()
        around = torch.where(around < self.side, around, 2 * (self.side - 1) - around)  # mirrored at the edge pixels
        return pixels[:, around][:, :, around]

    def epoch(self, config: RunConfig, epoch: int) -> Epoch:
        """The minibatches of an epoch, counted from 0: runs of one seed see the same ones."""
        examples, seen = config.train_examples, config.examples_per_epoch
        order = torch.randperm(seen, generator=generator(config.seed, "order", epoch))
        order = order[: config.steps_per_epoch * config.batch_size]
        chosen = order % examples
        shifts = torch.randint(2 * self._shift + 1, (2, seen), generator=generator(config.seed, "shifts", epoch))[:, order]
        if self._augmentation == "flips-and-shifts":
            first = torch.rand(examples, generator=generator(config.seed, "mirrors")) < 0.5
            mirrored = first[chosen] ^ (epoch % 2 == 1)
        else:
            mirrored = order >= examples
        shape = (config.steps_per_epoch, config.batch_size)
        return Epoch(*(values.view(shape).to(self._device) for values in (chosen, shifts[0], shifts[1], mirrored)))

    def batch(self, chosen: Tensor, rows: Tensor, columns: Tensor, mirrored: Tensor) -> Tensor:
        """Training images of a minibatch, [batch] each of an `Epoch`."""
        if not self._shift and self._augmentation == "none":
            return self._ready(self._pixels["train"].index_select(0, chosen), self._mean)
        across = torch.where(mirrored[:, None], self._window.flip(0), self._window) + columns[:, None]
        place = (rows[:, None] + self._window)[:, :, None] * self._padded.shape[2] + across[:, None, :]  # in the padded image
        size = self._padded.shape[1] * self._padded.shape[2]
        pixels = self._padded.view(-1, 3)[chosen[:, None, None] * size + place]
        return self._ready(pixels, self._padded_mean.reshape(-1, 3)[place])

    def part(self, name: str, batch: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Images and labels of "train", "validation" or "test" in order, as they are."""
        pixels, labels = self._pixels[name], self.labels[name]
        for start in range(0, len(labels), batch):
            yield self._ready(pixels[start : start + batch], self._mean), labels[start : start + batch]

    def _ready(self, pixels: Tensor, mean: Tensor) -> Tensor:
        return ((pixels - mean) / self._deviation).permute(0, 3, 1, 2)


def _in_colour(dataset: Dataset, images: np.ndarray) -> np.ndarray:
    if images.ndim == 4:
        return images
    if dataset.name != "digits":
        raise ConfigurationError(f"convolutional networks are for images in colour, and {dataset.name} has none")
    levels = (images.astype(np.float32) * (255 / dataset.scale)).round().astype(np.uint8)
    return np.repeat(levels.repeat(2, 1).repeat(2, 2)[..., None], 3, -1)


def _moments(images: np.ndarray, preprocessing: str) -> tuple[Tensor, Tensor]:
    """What is subtracted from pixels [n, side, side, 3], and what they are divided by then."""
    pixels = torch.from_numpy(images)
    if preprocessing == "pixel-mean":
        total = sum(piece.double().sum(0) for piece in pixels.split(5_000))
        mean = (torch.as_tensor(total) / len(pixels)).float()
        return mean, torch.full((3,), 255.0)
    counts = torch.stack([torch.bincount(pixels[..., colour].reshape(-1), minlength=256) for colour in range(3)]).double()
    values = torch.arange(256, dtype=torch.float64)
    mean = counts @ values / counts.sum(1)
    variance = counts @ values.square() / counts.sum(1) - mean.square()
    return mean.float().view(1, 1, 3), variance.sqrt().float()


@dataclass(frozen=True)
class Whitening:
    """ZCA whitening of images as vectors: (x - mean) W with W the inverse root of their covariance plus `ZCA_REGULARISER`.

    Pixels are (x - 127.5) / 128 beforehand, as in the paper's code. `mean` [features], `matrix` [features, features], float32.
    """

    mean: Tensor
    matrix: Tensor

    @classmethod
    def fit(cls, images: np.ndarray) -> Whitening:
        """From training images [n, ...] in bytes, in float64."""
        features = images[0].size
        total, products = torch.zeros(features, dtype=torch.float64), torch.zeros(features, features, dtype=torch.float64)
        for piece in torch.from_numpy(images).flatten(1).split(5_000):
            scaled = _scaled(piece).double()
            total += scaled.sum(0)
            products.addmm_(scaled.T, scaled)
        mean = total / len(images)
        values, vectors = torch.linalg.eigh(products / len(images) - mean[:, None] * mean)
        matrix = (vectors / (values.clamp_min(0) + ZCA_REGULARISER).sqrt()) @ vectors.T
        return cls(mean.float(), matrix.float())

    @classmethod
    def of(cls, images: np.ndarray, identity: str, folder: Path | None = None) -> Whitening:
        """`fit`, or what an earlier fit to the data of that identity left in `folder` (default: `derived` beside the
        project's own data sets)."""
        name = hashlib.sha256(f"{identity} {ZCA_REGULARISER}".encode()).hexdigest()
        path = (folder or paths.RAW / "derived") / f"zca-{name[:16]}.bin"
        kept = _kept(path, images[0].size)
        if kept is not None:
            return kept
        fitted = cls.fit(images)
        values = torch.cat([fitted.mean[None], fitted.matrix]).numpy().astype(_KEPT).tobytes()
        with contextlib.suppress(OSError):  # a copy saves a minute the next time, no more
            files.write_atomically(path, hashlib.sha256(values).digest() + values)
        return fitted

    def apply(self, images: np.ndarray, device: torch.device) -> Tensor:
        """Whitened images, float32 of their shape, on the device."""
        mean, matrix = self.mean.to(device), self.matrix.to(device)
        pieces = torch.from_numpy(images).flatten(1).split(5_000)
        done = [(_scaled(piece.to(device)) - mean) @ matrix for piece in pieces] or [torch.empty(0, images[0].size, device=device)]
        return torch.cat(done).view(images.shape)


def _scaled(pixels: Tensor) -> Tensor:
    return (pixels.float() - 127.5) / 128


def _kept(path: Path, features: int) -> Whitening | None:
    """The whitening in a file, if it is there and whole: its SHA-256, the mean, the rows of the matrix."""
    try:
        content = path.read_bytes()
    except OSError:
        return None
    digest, values = content[:32], content[32:]
    if digest != hashlib.sha256(values).digest() or len(values) != (features + 1) * features * _KEPT.itemsize:
        return None
    rows = torch.from_numpy(np.frombuffer(values, _KEPT).reshape(features + 1, features).astype(np.float32))
    return Whitening(rows[0], rows[1:])
