"""What explains it, the runs and the page: choices against brute force, made-up records with known effects, and trained ones."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from gelu_study import notebooks, pages, paths, protocols, study
from gelu_study.chapters import explanation
from gelu_study.chapters.explanation import factorial, opening, settings, shown_changes, shown_factorial, shown_signal, words
from gelu_study.errors import ConfigurationError
from gelu_study.runs import RunConfig, RunRecord

TRAIN, VALIDATION, ERROR = (settings.RESPONSES[name] for name in ("train_loss", "best_validation_loss", "best_test_error"))
ACTIVATION = {"gelu_tanh": math.log(0.8), "relu": 0.0, "elu": math.log(1.25), "gelu": math.log(0.8)}
WEIGHTS = {"unit-norm": math.log(3), "he": 0.0, "variance-matched": -math.log(3)}


def known_loss(config: RunConfig) -> float:
    """Activations in the ratio 0.8 : 1 : 1.25 whatever the recipe, initialisations 3 : 1 : 1/3; the middle rate is the best."""
    middle = sorted(protocols.RATES[config.optimiser])[1]
    away = 0.0 if config.learning_rate == middle else 0.5
    return 0.1 * math.exp(ACTIVATION[config.activation] + WEIGHTS[config.initialisation] + away + 0.01 * config.seed)


def record(config: RunConfig, loss: float | None) -> RunRecord:
    """A record with what the run table reads; None diverged."""
    where = {"device": "cpu", "device_name": "made up", "started": "2026-11-30T12:00:00+00:00"}
    if loss is None:
        return RunRecord(config, "diverged", {"step": 1, "epoch": 1}, environment=where)
    values = {
        "train_loss": loss,
        "validation_loss": 2 * loss,
        "validation_error": 20 * loss,
        "test_loss": loss,
        "test_error": 10 * loss,
    }
    final = {**values, "train_loss_full": loss, "train_error_full": loss}
    return RunRecord(config, "finished", final=final, best={**values, "epoch": 1, "step": 1}, environment=where)


def made_up(
    loss: Callable[[RunConfig], float | None], kept: Callable[[RunConfig], bool] = lambda _: True, scale: str = "paper"
) -> study.Study:
    planned = tuple(protocols.plan("mnist-recipe", scale))
    return study.Study("mnist-recipe", scale, planned, tuple(record(c, loss(c)) for c in planned if kept(c)), {}, False)


@pytest.fixture(scope="module")
def known() -> settings.Recipes:
    return settings.recipes(made_up(known_loss))


@pytest.fixture
def said(monkeypatch) -> list[str]:
    """What the page shows: texts, captions and tables, in order."""
    shown: list[str] = []
    monkeypatch.setattr(pages, "text", shown.append)
    monkeypatch.setattr(pages, "figure", lambda drawn, name, alt, caption, keys: shown.append(f"{name}: {caption}"))
    monkeypatch.setattr(pages, "table", lambda frame, name, caption, keys: shown.append(f"{name}: {frame.to_string()} {caption}"))
    return shown


def whole_page(chapter: settings.Recipes, response: str = "train_loss") -> None:
    """Everything that the notebook shows of runs."""
    explanation.answer(chapter, response)
    explanation.design(chapter)
    for show in (explanation.interactions, explanation.shares, explanation.effects, explanation.terms):
        show(chapter, response)
    for show in (explanation.gaps, explanation.shapes, explanation.forms, explanation.momentum):
        show(chapter, response)
    explanation.best(chapter)


# The choice of a learning rate in each cell


def test_the_rate_of_each_cell_is_the_one_that_brute_force_finds():
    rng = np.random.default_rng(0)
    losses = {config.key: rng.lognormal() if rng.random() > 0.1 else None for config in protocols.plan("mnist-recipe", "paper")}
    found = made_up(lambda config: losses[config.key])
    by_cell: dict[tuple, dict[float, list[float]]] = defaultdict(lambda: defaultdict(list))
    for config in found.planned:
        loss = losses[config.key]
        by_cell[tuple(getattr(config, name) for name in settings.SETTING)][config.learning_rate].append(
            math.inf if loss is None else 2 * loss
        )
    expected = {}
    for cell, rates in by_cell.items():
        middle = {rate: sorted(values)[1] for rate, values in rates.items()}
        expected[cell] = min(sorted(middle), key=lambda rate: middle[rate])
    chapter = settings.recipes(found)
    columns = [*settings.SETTING, "learning_rate"]
    assert {tuple(row[:-1]): row[-1] for row in chapter.choices[columns].itertuples(index=False)} == expected
    assert len(chapter.runs) == 3 * len(expected) == 3 * (81 + 30 + 1)
    assert all(expected[tuple(row[:-1])] == row[-1] for row in chapter.runs[columns].itertuples(index=False))
    edge = [rate in (min(by_cell[cell]), max(by_cell[cell])) for cell, rate in expected.items()]
    assert int(chapter.choices["at_edge"].sum()) == sum(edge)


def test_a_cell_counts_once_all_its_runs_are_there():
    absent = next(c for c in protocols.plan("mnist-recipe", "paper") if (c.optimiser, c.seed, c.learning_rate) == ("sgd", 2, 0.1))
    chapter = settings.recipes(made_up(known_loss, lambda config: config != absent))
    assert len(chapter.factorial_choices) == 80
    assert not chapter.complete
    assert chapter.at(**{name: getattr(absent, name) for name in settings.SETTING}).empty


def test_runs_of_two_scales_are_refused():
    paper, quick = (made_up(known_loss, scale=scale) for scale in ("paper", "quick"))
    both = study.Study("mnist-recipe", "paper", paper.planned, (*paper.records, *quick.records), {}, False)
    with pytest.raises(ConfigurationError, match="differ in epochs: 5, 10"):
        settings.recipes(both)


# What runs are compared by


def test_a_diverged_run_counts_with_the_worst_of_its_optimiser_or_with_guessing():
    def loss(config: RunConfig) -> float | None:
        bad = config.activation == "elu" and config.initialisation == "he" and config.normalisation == "none"
        return None if bad else 5.0 if config.optimiser == "sgd" and config.initialisation == "he" else 0.1

    chapter = settings.recipes(made_up(loss))
    frame = settings.outcomes(chapter.factorial, TRAIN)
    filled = frame[frame["filled"]].set_index("optimiser")["value"]
    assert len(filled) == 9
    assert set(filled["sgd"]) == {5.0}
    assert set(filled["momentum"]) == set(filled["adam-tensorflow"]) == {math.log(10)}
    np.testing.assert_allclose(frame["y"], np.log(frame["value"]))
    errors = settings.outcomes(chapter.factorial, ERROR)
    assert set(errors[errors["filled"]]["y"]) == {90.0}
    assert len(settings.stuck(chapter.factorial)) == 24  # 5 nats in 9 cells of SGD and He, less the diverged one
    said = shown_factorial.unlearned(chapter)
    assert "Of 243 runs at these rates 9 diverged and 24 did not learn" in said
    assert "ELU 15" in said and "GELU 9" in said
    winners = settings.wins(chapter.factorial, TRAIN, chapter.activations)
    assert not winners["lowest"].any()
    assert (winners["lead"] == 0).all()  # all finite losses of a recipe are equal


def test_wins_are_counted_by_median_and_by_seed(known):
    losses = {"gelu_tanh": (1.0, 2.0, 3.0), "relu": (1.5, 2.5, 2.9), "elu": (9.0, 9.0, math.inf)}

    def loss(config: RunConfig) -> float | None:
        value = losses[config.activation if config.activation != "gelu" else "gelu_tanh"][config.seed]
        return None if math.isinf(value) else value

    chapter = settings.recipes(made_up(loss))
    found = settings.wins(chapter.factorial, TRAIN, chapter.activations)
    assert len(found) == 27
    assert set(found["best_rival"]) == {"relu"}
    assert found["lowest"].all() and not found["every_seed"].any()
    np.testing.assert_allclose(found["lead"], math.log(2.0 / 2.5))
    other = settings.wins(known.factorial, ERROR, known.activations)
    assert other["every_seed"].all()
    np.testing.assert_allclose(sorted(other["lead"])[0], 10 * 0.1 * 3 * (0.8 - 1) * math.exp(0.01))  # median over seeds 0, 1, 2


def test_a_pair_has_the_paired_t_interval_of_scipy():
    rng = np.random.default_rng(1)
    a, b = (pd.DataFrame({"seed": [0, 1, 2, 4], "status": "finished", "train_loss": rng.lognormal(size=4)}) for _ in range(2))
    a.loc[3, "seed"] = 3
    found = settings.pair(a, b, TRAIN)
    limits = stats.ttest_rel(np.log(a["train_loss"][:3]), np.log(b["train_loss"][:3])).confidence_interval()
    assert found.n == 3
    assert (found.gap.low, found.gap.high) == pytest.approx((limits.low, limits.high))
    lost = settings.pair(a, b.assign(status=["finished", "diverged", "finished", "finished"]), TRAIN)
    assert (lost.n, lost.diverged) == (3, 1)
    assert math.isnan(lost.gap.middle)
    one = settings.pair(a[:1], b[:1], ERROR if "best_test_error" in a else TRAIN)
    assert math.isnan(one.gap.low) and not math.isnan(one.gap.middle)


# The page


def test_known_effects_come_out_of_made_up_records(known):
    assert known.complete
    fitted = factorial.fit(settings.outcomes(known.factorial, TRAIN), settings.FACTORS, "y")
    ratio = fitted.interval(fitted.mean(activation="gelu_tanh") - fitted.mean(activation="relu")).exp()
    assert (ratio.middle, ratio.low, ratio.high) == pytest.approx((0.8, 0.8, 0.8))
    shares = factorial.split(fitted, "activation")
    activation, weights = (2 * math.log(x) ** 2 / 3 for x in (1.25, 3))
    total = activation + weights + 0.0001 * 2 / 3
    assert shares.subject == pytest.approx(activation / total)
    assert shares.others == pytest.approx(weights / total)
    assert shares.together == pytest.approx(0, abs=1e-12)
    within, over = shown_factorial.spans(known, TRAIN, settings.PAPER)
    assert math.exp(within) == pytest.approx(1.25 / 0.8)
    assert math.exp(over["gelu_tanh"]) == pytest.approx(9)


def test_the_answer_says_what_was_put_into_the_records(known, said):
    whole_page(known)
    told = "\n".join(said)
    assert said[0].startswith(
        "**More the recipe than the activation.** Of the variance of the logarithm of the final training loss over 243 runs"
    )
    assert "the recipe (initialisation, optimiser, normalisation) explains 96 %, the activation 4.0 %" in said[0]
    assert "the activations' final training loss differs by a factor of 1.6 and GELU's own differs by a factor of 9.0" in said[0]
    assert "GELU's final training loss is 20 % lower than ReLU's (95 % interval 20 % lower) and 36 % lower than ELU's" in said[0]
    assert "GELU has the lowest final training loss in 27 of 27 recipes (median over seeds; in 27 of them in every seed)" in said[0]
    assert "by lot it would be about 9.0. Against the best rival of each recipe it is 20 % lower." in said[0]
    assert "81 of the 81 cells of the design have all their runs" in told
    assert "12,800 images, 10 epochs; scale: paper; device: cpu; date: 2026-11-30" in told
    assert "In 0 of 81 the chosen one is the least or the greatest" in told
    assert "against ReLU 20 % lower at depth 2 and 20 % lower at depth 16" in told
    assert "the exact form's final training loss is the same as the tanh form's" in told
    assert "They are the same within 5 %." in told
    assert "Whether it gains more than ReLU these runs do not show." in told
    assert "variance-matched, Adam, no normalisation" in told  # of equal recipes the first of the plan
    names = [text.split(":")[0] for text in said if text.startswith("explanation-")]
    assert len(names) == len(set(names)) == 10


@pytest.mark.parametrize("response", ["best_validation_loss", "best_test_error"])
def test_the_page_explains_other_responses(known, said, response):
    whole_page(known, response)
    assert f"Of the variance of {'the logarithm of ' * (response != 'best_test_error')}the" in said[0]
    if response == "best_test_error":
        assert "the activations' test error differs by 1.36 points" in said[0]  # 10 x 0.1 x 3 x (1.25 - 0.8), mean over seeds
    with pytest.raises(ConfigurationError, match="unknown response"):
        explanation.answer(known, "accuracy")


@pytest.mark.parametrize(
    ("shares", "words"),
    [
        ((0.1, 0.6, 0.2, 0.0, 0.1), "More the recipe than the activation"),
        ((0.6, 0.1, 0.2, 0.0, 0.1), "More the activation than the recipe"),
        ((0.2, 0.1, 0.6, 0.0, 0.1), "depends on its recipe"),
        ((0.1, 0.1, 0.2, 0.3, 0.3), "Mostly chance"),
        ((math.nan,) * 5, "Nothing varies"),
    ],
)
def test_the_headline_goes_to_the_greatest_share(shares, words):
    assert words in opening.headline(factorial.Split(*shares), TRAIN, 243)


def test_momentum_is_told_apart_where_activations_differ_in_it(said):
    rng = np.random.default_rng(2)

    def loss(config: RunConfig) -> float:
        gain = (
            {"gelu_tanh": 0.5, "gelu": 0.5, "relu": 0.8, "elu": 0.5}[config.activation] if config.optimiser == "momentum" else 1.0
        )
        return gain * float(rng.lognormal(sigma=0.01))

    chapter = settings.recipes(made_up(loss))
    shown_changes.momentum(chapter, "train_loss")
    assert "With momentum GELU's final training loss is 50 % lower than without" in said[0]
    assert "It gains more than ReLU: the two effects differ by a factor of 1.6" in said[0]
    assert "Whether it gains more than ELU these runs do not show." in said[0]
    for optimiser in ("momentum", "sgd"):  # as the page says: the same grids, once a step of 0.9 in ten is counted
        scale = 0.1 if optimiser == "momentum" else 1
        assert sorted(protocols.RATES[optimiser]) == pytest.approx([scale * rate for rate in sorted(protocols.RATES["sgd"])])


@pytest.mark.parametrize("scale", ["smoke", "quick", "paper"])
def test_the_page_says_that_there_are_no_runs(tmp_path, said, scale):
    found = study.run("mnist-recipe", scale, train=False, ledger=tmp_path)
    whole_page(settings.recipes(found))
    assert said[0].startswith("**No answer yet.**")
    assert not any(text.startswith("explanation-") for text in said)
    assert any("0 of the" in text for text in said)


def test_half_of_the_runs_are_shown_and_said_to_be_half(said):
    chapter = settings.recipes(made_up(known_loss, lambda config: config.normalisation == "none" and config.depth == 8))
    whole_page(chapter)
    assert "**No full answer yet.** Shares and effects need the whole design, and 27 of the 81 cells" in said[0]
    assert "in 9 of 9 recipes" in said[0]
    told = "\n".join(said)
    assert "Provisional: of the 81 cells, 27 are complete" in told
    assert "explanation-shares" not in told and "explanation-interactions" in told


def test_one_seed_gives_shares_without_intervals_of_seeds(said):
    whole_page(settings.recipes(made_up(known_loss, scale="quick")))
    told = "\n".join(said)
    assert "with one seed nothing repeats" in told
    assert "1 seed; 12,800 images, 5 epochs; scale: quick" in told
    assert "in every seed" not in told
    assert "The exact form has not been compared" in told


def test_trained_smoke_runs_make_a_page(tmp_path, said):
    found = study.run("mnist-recipe", "smoke", device="cpu", ledger=tmp_path)
    chapter = settings.recipes(found)
    assert len(chapter.factorial_choices) == 6 and not chapter.complete
    whole_page(chapter)
    told = "\n".join(said)
    assert "not a full factorial" in told
    assert "explanation-interactions" in told and "explanation-best" in told
    assert "12 runs; 2 seeds; 1,152 images, 2 epochs; scale: smoke" in told


def test_the_signal_s_sentences_are_those_of_its_numbers(said):
    explanation.signal_shown(explanation.setting(["gelu_tanh", "relu", "elu"], ["unit-norm", "he"], 8, 16, 2))
    assert (
        "second moment 1.0:\n\n- **Unit-norm weights** leave GELU 5.3&nbsp;×&nbsp;10⁻⁵, ReLU 3.9&nbsp;×&nbsp;10⁻³ and ELU 0.086" in said[0]
    )
    assert "ELU starts with 1,622 times the signal of GELU" in said[0]
    assert "- **He weights** leave GELU 0.38, ReLU 1.0 and ELU 3.0: ELU starts with 7.7 times" in said[0]
    assert [text.split(":")[0] for text in said[1:]] == ["explanation-signal", "explanation-slope", "explanation-signal-table"]


@pytest.mark.parametrize(
    ("value", "shown"), [(5.3e-5, "5.3&nbsp;×&nbsp;10⁻⁵"), (0.086, "0.086"), (1, "1.0"), (2e6, "2.0&nbsp;×&nbsp;10⁶"), (0, "0")]
)
def test_small_and_large_numbers_have_powers_of_ten(value, shown):
    assert shown_signal.power(value) == shown


@pytest.mark.parametrize(
    ("middle", "said"),
    [
        (math.log(0.8), "20 % lower than ReLU's (95 % interval 28 % to 12 % lower)"),
        (math.log(16), "16 times ReLU's (95 % interval 14 times to 18 times)"),
        (0.0, "the same as ReLU's (95 % interval 9.5 % lower to 11 % higher)"),
        (math.nan, "not comparable with ReLU's, since runs diverged"),
    ],
)
def test_a_ratio_is_said_in_percent_or_as_a_multiple(middle, said):
    assert words.compared(factorial.Interval(middle, middle - 0.10, middle + 0.10), TRAIN, "ReLU's") == said


def test_the_notebook_s_parameters_are_known_to_the_chapter():
    declared = notebooks.parameters(paths.NOTEBOOKS / "what-explains-it.ipynb")
    values = {name: parameter.default for name, parameter in declared.items()}
    assert values["response"] in settings.RESPONSES
    assert all(name in declared["response"].comment for name in settings.RESPONSES)
    names = ("activations", "initialisations", "depth", "width", "networks", "input_second_moment")
    setting = explanation.setting(*(values[name] for name in names))  # type: ignore[arg-type]
    assert setting.depth >= 16 and setting.width == 128 and len(setting.initialisations) == 4
    called = set(re.findall(r"explanation\.(\w+)", (paths.NOTEBOOKS / "what-explains-it.ipynb").read_text(encoding="utf-8")))
    assert called == set(explanation.__all__)
