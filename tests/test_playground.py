"""The playground without a browser: what may be set, what is trained, and what its buttons do."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

from gelu_study import activations, datasets, paths, playground, training
from gelu_study.errors import ConfigurationError, DataError
from gelu_study.playground import Playground, Settings, Training

SMALL = Settings(activations=("gelu_tanh", "relu"), depth=2, width=16, seed_count=2, epochs=2)


def trained(settings: Settings) -> Training:
    found = Training(settings)
    found.start()
    found.join(60)
    return found


def ended(shown: Playground) -> None:
    assert shown._training is not None
    shown._training.join(60)
    assert shown._training.state != "running"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"activations": ()}, "activations is empty; choose one at least, of gelu, gelu_tanh, gelu_sigmoid, relu"),
        ({"activations": ["soi"]}, "activations has 'soi' in it; the playground has gelu, gelu_tanh, gelu_sigmoid, relu"),
        ({"dataset": "cifar10"}, "dataset is 'cifar10'; the playground has digits and mnist"),
        ({"depth": 0}, "depth is 0; in the playground it must be from 1 to 16"),
        ({"width": 513}, "width is 513; in the playground it must be from 8 to 512"),
        ({"learning_rate": 2.0}, "learning_rate is 2; in the playground it must be from 1e-05 to 1"),
        ({"dropout": 0.95}, "dropout is 0.95; in the playground it must be from 0 to 0.9"),
        ({"seed_count": 11}, "seed_count is 11; in the playground it must be from 1 to 10"),
        ({"epochs": 51}, "epochs is 51; in the playground it must be from 1 to 50"),
        (
            {"activations": ["relu", "elu", "silu", "gelu", "mish"], "depth": 16, "width": 512, "seed_count": 10, "dataset": "mnist"},
            "50 networks of 16 layers of 512 units have 217 million weights; the playground trains 200 million",
        ),
    ],
)
def test_what_cannot_be_set_is_refused_in_a_line(given, said):
    with pytest.raises(ConfigurationError) as caught:
        Settings(**given)
    assert str(caught.value).startswith(said)


@pytest.mark.parametrize(
    ("depth", "width", "dropout", "dataset"), [(1, 8, 0.9, "digits"), (16, 512, 0.05, "digits"), (3, 24, 0.35, "mnist")]
)
def test_what_can_be_set_makes_runs_that_fit_in_one_stack(depth, width, dropout, dataset):
    settings = Settings(activations=playground.offered(), depth=depth, width=width, dropout=dropout, dataset=dataset, seed_count=2)
    configs = settings.configs
    assert len(configs) == 2 * len(playground.offered()) and len({training.stacks.stack_shape(config) for config in configs}) == 1
    first = configs[0]
    assert (first.hidden, first.keep_probability, first.dataset) == ((width,) * depth, pytest.approx(1 - dropout), dataset)
    assert all(config.batch_size * width % 8 == 0 and config.steps_per_epoch >= 3 for config in configs)


def test_the_curves_are_those_that_the_engine_records():
    found = trained(SMALL)
    assert found.state == "finished" and found.epochs == pytest.approx([1 / 3, 2 / 3, 1, 4 / 3, 5 / 3, 2], abs=0.2)
    records = list(training.train(SMALL.configs, datasets.load("digits"), training.resolve_device("cpu")))
    for name in SMALL.activations:
        curves = np.array([record.curves["validation_error"] for record in records if record.config.activation == name])
        assert found.values("validation_error", name) == pytest.approx(curves.T, rel=1e-6)  # records have seven digits
    table = playground.comparison(found)
    medians = {name: float(np.median(found.values("validation_error", name)[-1])) for name in SMALL.activations}
    titles = [activations.title(name) for name in sorted(medians, key=medians.__getitem__)]
    assert table.index(f"<th>{titles[0]}</th>") < table.index(f"<th>{titles[1]}</th>")
    figure = playground.draw(found)
    assert [ax.get_title() for ax in figure.axes] == ["training loss", "validation error, %"]
    for ax, measure in zip(figure.axes, playground.MEASURES, strict=True):
        lines = {line.get_gid(): line.get_ydata() for line in ax.lines}
        for name in SMALL.activations:
            assert lines[f"{measure}-{name}"] == pytest.approx(np.median(found.values(measure, name), axis=1))


def test_nothing_is_recorded():
    folders = (paths.OWN, paths.LEDGER)
    before = [set(folder.rglob("*")) for folder in folders]
    trained(SMALL)
    assert [set(folder.rglob("*")) for folder in folders] == before


def test_networks_that_diverge_end_early_and_are_drawn():
    found = trained(Settings(activations=["squared_relu"], depth=6, width=64, learning_rate=1.0, seed_count=2, epochs=5))
    assert found.state == "diverged" and found.epochs[-1] < 5
    assert np.isinf(found.values("train_loss", "squared_relu")[-1]).all()
    assert "∞ [∞ to ∞]" in playground.comparison(found)
    assert len(playground.draw(found).axes) == 2


def test_the_sentence_says_no_more_than_the_seeds():
    def said(**errors: list[float]) -> str:
        return playground._said({name: np.array(values) for name, values in errors.items()})

    assert said(relu=[3.0]).startswith("One seed shows no spread")
    assert said(relu=[3.0, 4.0]) == "In brackets: the least and the greatest of the seeds."
    assert said(relu=[3.0, 4.0], elu=[4.5, 5.0], gelu=[3.5, 6.0]) == (
        "ReLU has the least median validation error; each of its 2 seeds is below each of ELU."
    )
    assert "overlap with those of every other" in said(relu=[3.0, 4.0], elu=[4.0, 5.0])
    assert "below each of ELU." in said(relu=[3.0, 4.0], elu=[5.0, np.inf])


def test_an_end_with_an_error_is_said_and_the_buttons_come_back(monkeypatch):
    def absent(name):
        raise DataError("no MNIST & no network")

    shown = Playground(SMALL)
    monkeypatch.setattr(datasets, "load", absent)
    shown._train.click()
    ended(shown)
    assert shown._status.value == "no MNIST &amp; no network"
    assert not shown._train.disabled and shown._stop.disabled
    monkeypatch.setattr(datasets, "load", lambda name: 1 / 0)
    shown._train.click()
    ended(shown)
    assert shown._status.value == "ZeroDivisionError: division by zero" and not shown._train.disabled


def test_a_figure_that_cannot_be_drawn_does_not_keep_the_buttons(monkeypatch):
    monkeypatch.setattr(playground, "draw", lambda trained: 1 / 0)
    monkeypatch.setattr(threading, "excepthook", lambda error: None)
    shown = Playground(SMALL)
    shown._train.click()
    ended(shown)
    assert shown._status.value == "ZeroDivisionError: division by zero"
    assert not shown._train.disabled and shown._stop.disabled


def test_a_second_click_begins_no_second_training_and_stop_ends_the_first():
    shown = Playground(Settings(activations=["relu"], depth=16, width=256, epochs=50))
    shown.stop()  # nothing runs
    shown._train.click()
    first = shown._training
    shown._train.click()
    assert shown._training is first and shown._train.disabled and not shown._stop.disabled
    while not first.epochs:
        time.sleep(0.01)
    shown._stop.click()
    assert shown._stop.disabled
    ended(shown)
    assert first.state == "stopped" and shown._status.value.startswith("Stopped after ")
    assert shown._past.value.count("<details>") == 1
    assert 'alt="Training loss and validation error of ReLU over ' in shown._picture.value
    assert not shown._train.disabled and 0 < shown._bar.value < 1


def test_what_is_chosen_is_trained_and_what_cannot_be_is_said():
    shown = Playground(SMALL)
    shown._controls["activations"].value = ()
    shown._train.click()
    assert shown._training is None and shown._status.value.startswith("activations is empty; choose one at least")
    shown._controls["activations"].value = ("silu",)
    shown._controls["seed_count"].value = 1
    shown._controls["learning_rate"].value = 0.01
    shown._train.click()
    ended(shown)
    assert {(c.activation, c.seed, c.learning_rate, c.epochs) for c in shown._training.settings.configs} == {("silu", 0, 0.01, 2)}
    assert shown._status.value == (
        "Finished after 2.0 epochs: SiLU; 2 layers of 16 units, learning rate 0.01, dropout 0, 1 seed, 2 epochs of digits."
    )
    assert shown._bar.value == 1


def test_controls_begin_with_the_settings_and_offer_no_more_than_they_allow():
    begun = Settings(
        activations=["elu"], depth=7, width=40, learning_rate=0.02, dropout=0.15, seed_count=4, dataset="mnist", epochs=9
    )
    controls = Playground(begun)._controls
    assert Settings(**{name: control.value for name, control in controls.items()}) == Settings(
        **{**{name: getattr(begun, name) for name in controls}, "activations": ("elu",)}
    )
    for name, control in playground.CONTROLS.items():
        low, high = controls[name].min, controls[name].max
        bounds = (10**low, 10**high) if name == "learning_rate" else (low, high)
        assert bounds == pytest.approx((control.low, control.high))


def test_a_playground_that_is_shown_anew_ends_the_one_before(monkeypatch):
    bundles = []
    monkeypatch.setattr(playground, "display", lambda bundle, raw: bundles.append(bundle))
    playground.show(Settings(activations=["relu"], depth=16, width=256, epochs=50))
    before = playground._shown
    before._train.click()
    playground.show(SMALL)
    ended(before)
    assert before._training.state == "stopped"
    assert bundles[-1]["text/plain"] == f"The playground: {SMALL.described}"
    assert "application/vnd.jupyter.widget-view+json" in bundles[-1]
