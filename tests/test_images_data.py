"""Images as runs see them against loops over single images, NumPy and SciPy."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import scipy.linalg
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gelu_study import paths, protocols
from gelu_study.datasets import Dataset
from gelu_study.errors import ConfigurationError
from gelu_study.runs import RunConfig
from gelu_study.training.images_data import Images, Whitening

CPU = torch.device("cpu")
SIDE, TRAIN, HELD_OUT, TEST = 8, 30, 6, 9
BASE = dataclasses.replace(
    protocols.plan("cifar100-wrn", "smoke", activations=["relu"], seeds=[0])[0],
    dataset="cifar10",
    train_examples=TRAIN,
    validation_examples=HELD_OUT,
    batch_size=5,
)


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "RAW", tmp_path)


def pictures(n: int, seed: int) -> np.ndarray:
    """Bytes in which neighbours and colours are alike."""
    rng = np.random.default_rng(seed)
    smooth = rng.normal(size=(n, SIDE, SIDE, 3)).cumsum(1).cumsum(2) + rng.normal(size=(n, SIDE, SIDE, 1))
    return np.clip(128 + 12 * smooth, 0, 255).astype(np.uint8)


def dataset(name: str = "cifar10", train: int = TRAIN + HELD_OUT + 4, seed: int = 0) -> Dataset:
    labels = np.random.default_rng(seed + 1).integers(0, 10, train + TEST).astype(np.uint8)
    x = pictures(train + TEST, seed)
    return Dataset(name, x[:train], labels[:train], x[train:], labels[train:])


def configured(augmentation: str, preprocessing: str = "pixel-mean", **fields) -> RunConfig:
    return dataclasses.replace(BASE, augmentation=augmentation, preprocessing=preprocessing, **fields)


def plain_normalised(data: Dataset, images: np.ndarray, preprocessing: str) -> np.ndarray:
    """[n, side, side, 3] float64, by the training part alone."""
    train = data.x_train[:TRAIN].astype(float)
    if preprocessing == "pixel-mean":
        return images / 255 - train.mean(0) / 255
    return (images / 255 - train.mean((0, 1, 2)) / 255) / (train.std((0, 1, 2)) / 255)


def numbered(images: Images, config: RunConfig, epoch: int) -> tuple[np.ndarray, ...]:
    drawn = images.epoch(config, epoch)
    return tuple(values.numpy() for values in (drawn.chosen, drawn.rows, drawn.columns, drawn.mirrored))


# ---------------------------------------------------------------------------------------------------- augmentation


@pytest.mark.parametrize("preprocessing", ["pixel-mean", "channels", "zca"])
@pytest.mark.parametrize("augmentation", ["none", "mirrors-and-crops", "flips-and-shifts"])
def test_minibatches_against_a_loop_over_images(augmentation, preprocessing):
    data, config = dataset(), configured(augmentation, preprocessing)
    images = Images(data, config, CPU)
    shift = {"none": 0, "mirrors-and-crops": 4, "flips-and-shifts": 2}[augmentation]
    if preprocessing == "zca":
        whitening = Whitening.fit(data.x_train[:TRAIN])
        ready = whitening.apply(data.x_train[:TRAIN], CPU).double().numpy()
    else:
        ready = plain_normalised(data, data.x_train[:TRAIN], preprocessing)
    drawn = images.epoch(config, 1)
    assert all(values.shape == (config.steps_per_epoch, 5) for values in vars(drawn).values())
    seen = set()
    for step in range(config.steps_per_epoch):
        places = [values[step] for values in vars(drawn).values()]
        batch = images.batch(*places)
        assert batch.shape == (5, 3, SIDE, SIDE) and batch.dtype == torch.float32
        assert batch.is_contiguous(memory_format=torch.channels_last)
        for x, (chosen, row, column, mirrored) in zip(batch, zip(*(p.tolist() for p in places), strict=True), strict=True):
            # the paper's code: an image or its mirror image, the mean subtracted, then zeros around it, then a window of them
            image = ready[chosen][:, ::-1] if mirrored else ready[chosen]
            around = [(shift, shift), (shift, shift), (0, 0)]
            padded = np.pad(image, around, mode="reflect" if augmentation == "flips-and-shifts" else "constant")
            begin = 2 * shift - column if mirrored else column
            window = padded[row : row + SIDE, begin : begin + SIDE]
            np.testing.assert_allclose(x.permute(1, 2, 0).numpy(), window, atol=2e-5 if preprocessing != "zca" else 1e-4)
            seen.add((row, column))
    assert len(seen) > 1 or augmentation == "none"


def test_without_augmentation_an_epoch_is_a_permutation():
    config = configured("none")
    images = Images(dataset(), config, CPU)
    chosen, rows, columns, mirrored = numbered(images, config, 0)
    assert sorted(chosen.ravel()) == list(range(TRAIN)) and chosen.ravel().tolist() != list(range(TRAIN))
    assert not rows.any() and not columns.any() and not mirrored.any()


def test_mirrored_copies_double_the_epoch():
    config = configured("mirrors-and-crops")
    images = Images(dataset(), config, CPU)
    chosen, rows, columns, mirrored = (values.ravel() for values in numbered(images, config, 0))
    assert len(chosen) == 2 * TRAIN
    assert sorted(zip(chosen.tolist(), mirrored.tolist(), strict=True)) == [(n, m) for n in range(TRAIN) for m in (False, True)]
    assert set(rows) | set(columns) <= set(range(9)) and len(set(rows)) > 6 and (rows != columns).any()


def test_what_does_not_fill_a_minibatch_is_left_out():
    config = configured("mirrors-and-crops", batch_size=7)
    images = Images(dataset(), config, CPU)
    chosen, *_, mirrored = numbered(images, config, 0)
    assert chosen.shape == (8, 7) and len(set(zip(chosen.ravel(), mirrored.ravel(), strict=True))) == 56


def test_alternating_flips():
    config = configured("flips-and-shifts")
    images = Images(dataset(), config, CPU)
    epochs = []
    for epoch in range(4):
        chosen, rows, columns, mirrored = (values.ravel() for values in numbered(images, config, epoch))
        assert sorted(chosen) == list(range(TRAIN)) and set(rows) | set(columns) <= set(range(5))
        epochs.append(mirrored[np.argsort(chosen)])
    first = epochs[0]
    assert 0 < first.sum() < TRAIN
    np.testing.assert_array_equal(np.stack(epochs), [first, ~first, first, ~first])


@pytest.mark.parametrize("augmentation", ["none", "mirrors-and-crops", "flips-and-shifts"])
def test_order_and_shifts_depend_on_seed_and_epoch_alone(augmentation):
    config = configured(augmentation)
    images = Images(dataset(), config, CPU)
    same = dataclasses.replace(config, activation="gelu_tanh", learning_rate=0.7, keep_probability=0.5, epochs=9)
    torch.manual_seed(5)
    state = torch.get_rng_state()
    reference = numbered(images, config, 3)
    assert torch.equal(torch.get_rng_state(), state)
    numbered(images, config, 8)
    for values, again in zip(reference, numbered(Images(dataset(), same, CPU), same, 3), strict=True):
        np.testing.assert_array_equal(values, again)
    for other in (numbered(images, config, 4), numbered(images, dataclasses.replace(config, seed=1), 3)):
        assert (reference[0] != other[0]).any()
        assert augmentation == "none" or (reference[1] != other[1]).any()


# --------------------------------------------------------------------------------------------------- preprocessing


@pytest.mark.parametrize("preprocessing", ["pixel-mean", "channels"])
def test_parts_against_numpy(preprocessing):
    data, config = dataset(), configured("none", preprocessing)
    images = Images(data, config, CPU)
    assert images.side == SIDE and images.classes == 10
    whole = len(data.x_train)
    for name, x, y in (
        ("train", data.x_train[:TRAIN], data.y_train[:TRAIN]),
        ("validation", data.x_train[whole - HELD_OUT :], data.y_train[whole - HELD_OUT :]),
        ("test", data.x_test, data.y_test),
    ):
        pieces = list(images.part(name, 4))
        assert [len(piece) for piece, _ in pieces[:-1]] == [4] * (len(pieces) - 1)
        found = torch.cat([piece for piece, _ in pieces]).permute(0, 2, 3, 1).numpy()
        np.testing.assert_allclose(found, plain_normalised(data, x, preprocessing), atol=1e-5)
        labels = torch.cat([labels for _, labels in pieces])
        assert labels.dtype == torch.int64 and labels.tolist() == y.tolist()
        assert images._pixels[name].dtype == torch.uint8


def test_standardised_colours_have_mean_0_and_variance_1():
    images = Images(dataset(), configured("none", "channels"), CPU)
    x = next(images.part("train", TRAIN))[0].double()
    torch.testing.assert_close(x.mean((0, 2, 3)), torch.zeros(3, dtype=torch.float64), atol=1e-5, rtol=0)
    torch.testing.assert_close(x.var((0, 2, 3), correction=0), torch.ones(3, dtype=torch.float64), atol=1e-5, rtol=0)


@pytest.mark.parametrize("preprocessing", ["pixel-mean", "channels", "zca"])
def test_preprocessing_is_fitted_on_the_training_part_alone(preprocessing):
    data = dataset()
    other = dataclasses.replace(data, x_train=data.x_train.copy(), x_test=255 - data.x_test)
    other.x_train[TRAIN:] = 255 - other.x_train[TRAIN:]
    first = Images(data, configured("none", preprocessing), CPU)
    for path in (paths.RAW / "derived").glob("*"):
        path.unlink()
    second = Images(other, configured("none", preprocessing), CPU)
    for part in ("train", "validation", "test"):
        (x, _), (z, _) = (next(images.part(part, 100)) for images in (first, second))
        assert torch.equal(x, z) == (part == "train")


def test_no_validation_part():
    images = Images(dataset(), configured("none", "zca", validation_examples=0), CPU)
    assert list(images.part("validation", 4)) == [] and len(images.labels["validation"]) == 0
    assert len(images.labels["train"]) == TRAIN


def test_mirrored_shifts_reach_no_further_than_the_border():
    data = dataset()
    images = Images(data, configured("flips-and-shifts", "channels"), CPU)
    np.testing.assert_array_equal(
        images._padded.numpy(), np.pad(data.x_train[:TRAIN], [(0, 0), (2, 2), (2, 2), (0, 0)], mode="reflect")
    )


def test_digits_are_enlarged_and_coloured(digits):
    config = protocols.plan("cifar10-fast", "smoke", activations=["relu"], seeds=[0])[0]
    images = Images(digits, dataclasses.replace(config, preprocessing="pixel-mean"), CPU)
    assert images.side == 16
    x = next(images.part("test", 2))[0]
    levels = np.rint(digits.x_test[:2] / 16 * 255)
    mean = np.rint(digits.x_train[: config.train_examples] / 16 * 255).mean(0)
    expected = np.kron((levels - mean) / 255, np.ones((1, 2, 2)))
    for colour in range(3):
        np.testing.assert_allclose(x[:, colour].numpy(), expected, atol=1e-6)


def test_what_does_not_fit_is_refused():
    data = dataset()
    with pytest.raises(ConfigurationError, match="37 training and 6 validation examples asked for, and cifar10 has 40"):
        Images(data, configured("none", train_examples=37), CPU)
    grey = Dataset("mnist", data.x_train[..., 0], data.y_train, data.x_test[..., 0], data.y_test)
    with pytest.raises(ConfigurationError, match="images in colour, and mnist has none"):
        Images(grey, configured("none"), CPU)


# -------------------------------------------------------------------------------------------------------- whitening


def scaled(images: np.ndarray) -> np.ndarray:
    return (images.reshape(len(images), -1).astype(float) - 127.5) / 128


def test_whitening_against_numpys_singular_values():
    train, test = pictures(400, 3), pictures(20, 4)
    whitening = Whitening.fit(train)
    x = scaled(train)
    _, values, vectors = np.linalg.svd(x - x.mean(0), full_matrices=False)
    matrix = vectors.T @ np.diag(1 / np.sqrt(values**2 / len(x) + 1e-5)) @ vectors
    np.testing.assert_allclose(whitening.matrix.numpy(), matrix, rtol=1e-4, atol=1e-4 * np.abs(matrix).max())
    found = whitening.apply(test, CPU)
    assert found.shape == test.shape and found.dtype == torch.float32
    np.testing.assert_allclose(found.reshape(20, -1).numpy(), (scaled(test) - x.mean(0)) @ matrix, rtol=1e-3, atol=1e-3)


def test_whitened_data_have_unit_covariance_up_to_the_regulariser():
    train = pictures(400, 3)
    whitening = Whitening.fit(train)
    done = whitening.apply(train, CPU).reshape(400, -1).double().numpy()
    covariance = np.cov(scaled(train), rowvar=False, bias=True)
    expected = covariance @ np.linalg.inv(covariance + 1e-5 * np.eye(len(covariance)))
    np.testing.assert_allclose(np.cov(done, rowvar=False, bias=True), expected, atol=2e-3)
    root = scipy.linalg.sqrtm(covariance + 1e-5 * np.eye(len(covariance)))
    np.testing.assert_allclose(whitening.matrix.numpy() @ root, np.eye(len(root)), atol=2e-3)  # symmetric root: ZCA, not PCA


def test_fewer_images_than_pixels_can_be_whitened():
    train = pictures(20, 3)
    done = Whitening.fit(train).apply(train, CPU)
    assert done.isfinite().all() and done.square().mean() < 1


@pytest.fixture
def fits(monkeypatch) -> list[int]:
    """How many images each fit was from."""
    counted: list[int] = []
    fit = Whitening.fit

    def counting(images: np.ndarray) -> Whitening:
        counted.append(len(images))
        return fit(images)

    monkeypatch.setattr(Whitening, "fit", staticmethod(counting))
    return counted


def same(a: Whitening, b: Whitening) -> bool:
    return torch.equal(a.mean, b.mean) and torch.equal(a.matrix, b.matrix)


def test_a_fit_is_kept_and_read_again(fits, tmp_path):
    train = pictures(30, 3)
    first = Whitening.of(train, "a", tmp_path / "kept")
    assert same(first, Whitening.of(train, "a", tmp_path / "kept")) and fits == [30]
    other = Whitening.of(pictures(31, 5), "b", tmp_path / "kept")
    assert fits == [30, 31] and not same(first, other) and len(list((tmp_path / "kept").iterdir())) == 2
    assert same(first, Whitening.of(train, "a", tmp_path / "kept")) and fits == [30, 31]


def test_runs_of_the_same_training_images_share_a_fit(fits):
    data = dataset()
    for activation in ("relu", "gelu_tanh"):
        Images(data, configured("none", "zca", activation=activation), CPU)
    assert fits == [TRAIN]
    Images(data, configured("none", "zca", train_examples=25), CPU)
    assert fits == [TRAIN, 25]
    Images(data, configured("none", "zca", dataset_sha256="0" * 64), CPU)
    assert fits == [TRAIN, 25, TRAIN]
    assert len(list((paths.RAW / "derived").iterdir())) == 3


def test_a_fit_of_other_images_under_that_name_is_ignored(fits, tmp_path):
    Whitening.of(pictures(30, 3)[:, :4], "a", tmp_path)
    whole = Whitening.of(pictures(30, 3), "a", tmp_path)
    assert fits == [30, 30] and whole.matrix.shape == (192, 192)


def test_a_folder_that_cannot_be_written_is_no_error(fits, tmp_path):
    (tmp_path / "file").write_text("")
    train = pictures(30, 3)
    first, again = (Whitening.of(train, "a", tmp_path / "file" / "below") for _ in range(2))
    assert same(first, again) and fits == [30, 30]


@pytest.fixture(scope="module")
def kept_fit(tmp_path_factory):
    """Images, their whitening, its file and the file's bytes."""
    folder = tmp_path_factory.mktemp("whitening")
    train = pictures(8, 3)[:, :2, :2]
    fitted = Whitening.of(train, "a", folder)
    (path,) = folder.iterdir()
    return train, fitted, path, path.read_bytes()


@given(data=st.data())
@settings(deadline=None, max_examples=100)
def test_a_damaged_file_is_fitted_anew(kept_fit, data):
    train, fitted, path, content = kept_fit
    damage = data.draw(st.sampled_from(["cut", "altered", "other"]))
    place = data.draw(st.integers(0, len(content) - 1))
    if damage == "cut":
        damaged = content[:place]
    elif damage == "altered":
        damaged = content[:place] + bytes([content[place] ^ data.draw(st.integers(1, 255))]) + content[place + 1 :]
    else:
        damaged = data.draw(st.binary(max_size=40))
    path.write_bytes(damaged)
    assert same(Whitening.of(train, "a", path.parent), fitted)
    assert path.read_bytes() == content  # it was replaced by a whole one
