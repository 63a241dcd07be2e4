"""What a person at a notebook sees while networks train: bar and curves, which nobody else gets."""

from __future__ import annotations

import re
from types import SimpleNamespace

import IPython
import pytest

from gelu_study import figures, protocols, study, sweep, training
from gelu_study.errors import StudyError
from gelu_study.ledger import Ledger
from gelu_study.sweep import live, reporter


@pytest.fixture
def displays(monkeypatch) -> list[str]:
    """The HTML that is shown in the notebook, in order."""
    shown: list[str] = []

    def display(html, display_id):
        shown.append(html.data)
        return SimpleNamespace(update=lambda new: shown.append(new.data))

    monkeypatch.setattr(live, "display", display)
    return shown


@pytest.fixture
def kernel(monkeypatch):
    """Makes this process a notebook's kernel, with a person before it or not."""

    def make(person: bool) -> None:
        shell = SimpleNamespace(kernel=SimpleNamespace(_allow_stdin=person))
        monkeypatch.setattr(IPython, "get_ipython", lambda: shell)

    return make


def test_only_a_person_watches(kernel):
    assert not reporter.watched()
    kernel(False)
    assert not reporter.watched()
    kernel(True)
    assert reporter.watched()


def test_who_watches_sees_a_bar_and_curves_that_go_at_the_end(kernel, displays, monkeypatch, tmp_path, smoke):
    kernel(True)
    monkeypatch.setattr(live, "EVERY_SECONDS", 0.0)
    monkeypatch.setattr(live, "SHARE", 1e9)
    bars = []
    monkeypatch.setattr(reporter, "_notebook_bar", lambda steps: bars.append(reporter.tqdm(total=steps, disable=True)) or bars[-1])
    sweep.complete(smoke, Ledger(tmp_path), device="cpu", stack_size=6)
    assert len(bars) == 1 and bars[0].total == sum(config.steps_per_epoch * config.epochs for config in smoke)
    assert displays[0] == displays[-1] == "" and all(shown.startswith("<img ") for shown in displays[1:-1])
    alts = [re.search('alt="([^"]*)"', shown)[1] for shown in displays[1:-1]]
    ends = [3 * smoke[0].epochs - 1] * 2  # of the two stacks: all but the first time, when a curve is no line yet
    assert len(alts) == sum(ends)
    assert alts[0].endswith("after 0.7 epochs") and alts[-1].endswith(f"after {smoke[0].epochs:.1f} epochs")


def test_an_interruption_is_a_line_that_says_what_is_there(kernel, displays, monkeypatch, tmp_path):
    train, seen = training.train, []

    def interrupted(*arguments):
        seen.append(arguments)
        if len(seen) == 2:
            raise KeyboardInterrupt
        return train(*arguments)

    monkeypatch.setattr(training, "train", interrupted)
    monkeypatch.setattr(reporter, "_notebook_bar", lambda steps: reporter.tqdm(total=steps, disable=True))
    kernel(True)
    with pytest.raises(StudyError) as caught:
        study.run("mnist-classifier", "smoke", device="cpu", stack_size=4, ledger=tmp_path)
    said = "interrupted: 4 of 12 runs have a record; run this cell again to train the rest"
    assert caught.value._render_traceback_() == [said] and len(Ledger(tmp_path).read()) == 4
    assert displays[-1] == ""  # the figure is gone
    kernel(False)  # papermill and the command line have their own ways
    del seen[1:]
    with pytest.raises(KeyboardInterrupt):
        study.run("mnist-classifier", "smoke", device="cpu", stack_size=4, ledger=tmp_path)


def test_curves_are_drawn_seldom_and_begin_anew_with_other_runs(displays, monkeypatch, smoke):
    now = [100.0]
    monkeypatch.setattr(live.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(figures, "picture", lambda figure, alt: now.__setitem__(0, now[0] + 0.2) or alt)
    curves = live.LiveCurves()
    first, second = smoke[:2], smoke[2:4]
    for epochs in (1, 2, 3, 4, 5):
        curves.add(first, epochs, {"train_loss": [1.0, 2.0]})
        now[0] += 1.0
    assert [shown[-16:] for shown in displays[1:]] == ["after 2.0 epochs"]  # drawing took 0.2 s: the next waits for 4 s
    now[0] += 4.0
    curves.add(second, 1, {"train_loss": [1.0, 2.0]})
    assert len(displays) == 2  # a point is no curve
    curves.add(second, 2, {"train_loss": [1.0, 2.0]})
    assert displays[-1].endswith("after 2.0 epochs") and len(displays) == 3


def test_each_run_has_its_line_in_its_activation_s_style_and_a_diverged_one_ends():
    configs = protocols.plan("mnist-classifier", "smoke", activations=["gelu_tanh", "relu"], seeds=[0, 1], keep_probabilities=[1.0])
    losses = [[2.0, 2.1, 2.2, 2.3], [1.0, float("nan"), 1.2, 0.0], [0.5, float("nan"), 0.7, 0.8]]
    (ax,) = live.curves(configs, [1 / 3, 2 / 3, 1.0], losses).axes
    assert [line.get_color() for line in ax.lines] == [figures.STYLES[config.activation][0] for config in configs]
    values = [list(line.get_ydata()) for line in ax.lines]
    assert values[0] == [2.0, 1.0, 0.5] and values[2] == [2.2, 1.2, 0.7]
    assert [value == value for value in values[1]] == [True, False, False]
    assert [value == value for value in values[3]] == [True, False, True]  # 0 has no place on a logarithmic axis
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["GELU (tanh)", "ReLU"]
    assert ax.get_xlim() == (0, configs[0].epochs) and "4 networks" in ax.get_title()


def test_the_autoencoder_s_losses_are_drawn_too(displays, monkeypatch):
    configs = protocols.plan("mnist-autoencoder", "smoke")[:1]
    curves = live.LiveCurves()
    for epochs in (0.5, 1.0):
        curves.add(configs, epochs, {"train_loss_epoch": [0.1]})
    assert "after 1.0 epochs" in displays[-1]
    curves.close()
    assert displays[-1] == ""
