"""The section on late trainings of the autoencoder's page: what is counted against made-up courses, in words and in the table."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import synthetic
from gelu_study import ledger, pages, protocols
from gelu_study.chapters import autoencoder, steadiness
from gelu_study.runs import RunConfig, RunRecord

ONE_RATE = {"learning_rates": [1e-3]}


def run(config: RunConfig, test: dict[int, float] | None = None, training: dict[int, float] | None = None) -> RunRecord:
    """Errors of 0.004 after an epoch, but for those that are given by epoch."""

    def curve(name: str, epochs: np.ndarray) -> np.ndarray:
        own = (test if name.startswith("test") else training) or {}
        return np.array([own.get(round(float(epoch), 6), 0.004) for epoch in epochs])

    return synthetic.finished(config, curve)


def plan(epochs: int = 250, **options) -> list[RunConfig]:
    return protocols.plan("mnist-autoencoder", "paper", epochs=epochs, **ONE_RATE, **options)


def test_a_course_is_read_off_the_errors_of_each_epoch():
    config = plan(5, activations=["relu"], seeds=[1])[0]
    made = steadiness.course(run(config, {1: 0.010, 2: 0.002, 3: 0.00221, 4: 0.004, 5: 0.00219}, {3: 0.0025}))
    assert (made.epoch, made.lowest, made.highest, made.end, made.since) == (2, 0.002, 0.004, 0.00219, 3)
    assert made.ratio == pytest.approx(1.095)
    assert made.above == 2, "epochs 3 and 4; epoch 1 came before"
    assert made.training == pytest.approx(0.004 / 0.0025)


def test_runs_that_rise_are_named_though_they_come_back():
    gelu, relu, elu = (plan(4, activations=[name], seeds=[2])[0] for name in ("gelu_tanh", "relu", "elu"))
    calm = steadiness.course(run(relu, {4: 0.0043}))
    back = steadiness.course(run(gelu, {2: 0.003, 3: 0.012, 4: 0.003}))
    both = steadiness.course(run(elu, {3: 0.002}, {2: 0.002}))
    assert steadiness.words([calm], 4) == "Of 1 run of 4 epochs none rose more than 10 % above its lowest test error again."
    one = steadiness.words([calm, back], 4)
    assert one.startswith("1 of 2 runs of 4 epochs rose more than 10 % above the lowest test error again:\n\n- GELU (tanh)")
    assert "at 0.001, seed 2: lowest after epoch 2, 0.00300; so far above it after 1 of the 2 epochs that followed" in one
    assert "at most 4.00 times; 1.00 times at the end, where the training error is 1.00 times its own lowest." in one
    two = steadiness.words([calm, back, both], 4)
    assert "2 of 3 runs of 4 epochs rose more" in two
    assert "at most 2.00 times; 2.00 times at the end, where the training error is 2.00 times its own lowest." in two


def test_the_longest_trainings_are_shown_whatever_the_page_is_about(shown, tmp_path, monkeypatch):
    drawn: dict[str, list[str]] = {}
    monkeypatch.setattr(pages, "figure", lambda figure, name, alt, caption, keys: drawn.update({name: list(keys)}))
    book = ledger.Ledger(tmp_path)
    for config in plan(50):
        book.write(run(config))
    page = autoencoder.runs("paper", 0, train=False, ledger=tmp_path, **ONE_RATE)
    assert steadiness.longest(page, tmp_path) is page, "there are no longer ones"
    steadiness.show(page, tmp_path)
    assert drawn == {}, "the page has these curves"
    assert shown[0].startswith("Of 9 runs of 50 epochs none")

    long = plan(250, activations=["gelu_tanh", "relu"], seeds=[0, 2])
    for config in long:
        book.write(run(config, {200: 0.003, 250: 0.009}) if config.activation == "relu" else run(config))
    shown.clear()
    page = autoencoder.runs("paper", 0, train=False, ledger=tmp_path, **ONE_RATE)
    assert page.planned[0].epochs == 50
    steadiness.show(page, tmp_path)
    assert {name: set(keys) for name, keys in drawn.items()} == {"mnist-autoencoder-long-0-001": {c.key for c in long}}
    words, table = shown[-2:]
    assert words.startswith("2 of 4 runs of 250 epochs rose") and "at most 3.00 times; 3.00 times at the end" in words
    row = next(line for line in table.splitlines() if "ReLU" in line)
    assert " 0.00300 " in row and " 200 " in row and " 3.00 " in row
    assert row.split()[-2:] == ["50", "2"], "epochs 201 to 249, a third above the lowest, and the last"

    selected = autoencoder.runs("paper", 50, train=False, ledger=tmp_path, activations=["gelu_tanh"], seeds=[2], **ONE_RATE)
    same = [c for c in long if (c.activation, c.seed) == ("gelu_tanh", 2)]
    assert [r.config for r in steadiness.longest(selected, tmp_path).records] == same


def test_runs_that_never_learnt_have_no_course_and_those_that_forgot_have(shown, tmp_path):
    book = ledger.Ledger(tmp_path)
    diverged, stuck, forgot = plan(50, activations=["elu"], seeds=[0, 1, 2])
    book.write(synthetic.diverged(diverged))
    book.write(synthetic.finished(stuck, lambda name, epochs: np.full(len(epochs), 0.0672)))

    def page():
        return autoencoder.runs("paper", 50, train=False, ledger=tmp_path, activations=["elu"], **ONE_RATE)

    steadiness.show(page(), tmp_path)
    assert shown == ["No run that learnt anything has a record yet."]

    shown.clear()
    book.write(run(forgot, {50: 0.0676}, {50: 0.0674}))
    longer = replace(diverged, epochs=250)
    book.write(synthetic.diverged(longer))
    assert steadiness.longest(page(), tmp_path).planned[0].epochs == 50, "a longer one that diverged hides nothing"
    steadiness.show(page(), tmp_path)
    assert shown[0].startswith("1 of 1 run of 50 epochs rose")
    assert "16.9 times at the end" in shown[0]
    assert shown[0].endswith("\n\nLeft out: 1 that diverged and 1 that never learnt more than the mean image.")


def test_errors_are_drawn_as_they_were_measured(tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(pages, "figure", lambda figure, *about: drawn.append(figure))
    book = ledger.Ledger(tmp_path)
    book.write(run(plan(50, activations=["gelu_tanh"], seeds=[0])[0]))
    book.write(run(plan(250, activations=["gelu_tanh"], seeds=[0])[0], {225: 0.04}))
    page = autoencoder.runs("paper", 50, train=False, ledger=tmp_path, activations=["gelu_tanh"], seeds=[0], **ONE_RATE)
    steadiness.show(page, tmp_path)
    ours = [line for line in drawn[0].axes[1].lines if line.get_gid() == "gelu_tanh test"]
    assert [max(line.get_ydata()) for line in ours] == [0.04]
