"""The paper's claims judged from made-up records with known answers, from trained ones, and from none."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from scipy import optimize, stats

import synthetic
from gelu_study import claims, judging, pages, paths, protocols, published, site, statistics, study
from gelu_study.chapters import landing
from gelu_study.errors import ConfigurationError
from gelu_study.judging import Judgement, Part
from gelu_study.ledger import Ledger
from gelu_study.runs import RunConfig, RunRecord
from gelu_study.statistics import CONTRADICTED, EQUIVALENT, NOT_RUN, REPRODUCED, UNRESOLVED

AUTOENCODER, ELU, POORLY, MORE = (
    "MNIST autoencoder",
    "MNIST autoencoder, rate 0.01: ELU",
    "MNIST autoencoder, rate 0.01: GELU and ReLU",
    "MNIST autoencoder, rate 0.00001",
)
SOI, LINEAR, NOISE, ALL = (
    "SOI map on MNIST: against ReLU",
    "SOI map on MNIST: against a linear network",
    "MNIST noise robustness",
    "All tasks",
)
JITTER = np.array([0.0, 0.01, -0.01, 0.005, -0.005])
"""Logarithms by seed that GELU's values are multiplied with: a spread that tests can see through."""


def finished(config: RunConfig, value: Callable[[str], float], noisy: Callable[[float], float] = lambda width: 1.0) -> RunRecord:
    """A record whose curves stand still at `value(measure)`, with errors 10 times the losses under noise `noisy(width)`."""
    curves = {name: [value(name)] * (n * config.epochs) for name, n in config.curves.items()}
    if config.test_noise:
        losses = [noisy(width) for width in config.test_noise]
        curves |= {"noise_loss": losses, "noise_error": [10 * loss for loss in losses], "test_wrong": [3, 5]}
    at_end = {name: curves["train_loss_epoch" if name == "train_loss" else name][-1] for name in config.measures}
    full = {
        f"train_{kind}_full": value("train_loss") for kind in (("loss",) if config.network == "autoencoder" else ("loss", "error"))
    }
    best = {"epoch": 1, "step": config.steps_per_epoch, **at_end} if config.validation_examples else {}
    return RunRecord(config, "finished", curves=curves, final=at_end | full, best=best, environment={"device": "cpu"})


def diverged(config: RunConfig) -> RunRecord:
    return synthetic.diverged(config, epoch=1)


class Made(Ledger):
    """A ledger of the records that functions of their configurations give, without a folder."""

    def __init__(self, *parts: tuple[list[RunConfig], Callable[[RunConfig], RunRecord | None]]) -> None:
        super().__init__("no such ledger")
        made = [record for configs, make in parts for config in configs if (record := make(config)) is not None]
        self._held = {record.config.key: record for record in made}

    def get(self, key: str) -> RunRecord | None:
        return self._held.get(key)


def judge(name: str, *parts: tuple[list[RunConfig], Callable[[RunConfig], RunRecord | None]]) -> claims.Row:
    """One claim judged on made-up records, which must be sound ones."""
    held = Made(*parts)
    for record in held._held.values():
        assert RunRecord.from_json(record.to_json()) == record
    claim, how = next((claim, how) for claim, how in claims.known() if claim.name == name)
    return claims.Row(claim, how(judging.Evidence(held, "powered")))


@pytest.fixture(autouse=True)
def few_resamples(monkeypatch) -> None:
    """Intervals decide nothing."""
    monkeypatch.setattr(statistics, "_RESAMPLES", 499)


def row(rows: list[claims.Row], name: str) -> claims.Row:
    return next(found for found in rows if found.claim.name == name)


# ---- the list of claims


def test_every_claim_of_the_text_has_a_row() -> None:
    texts = {*published.claims("result")["experiment"], *published.claims("qualitative")["experiment"]}
    cited = {"cifar100_wrn40-4_original"}  # another paper's number
    every = [*(claim for claim, _ in claims.known()), claims._ALL]
    assert {source for claim in every for source in claim.sources} == texts - cited
    assert len({claim.name for claim in every}) == len(every) == 17


def test_statements_have_the_text_s_numbers() -> None:
    words = {claim.name: claim.statement for claim, _ in claims.known()}
    for name, numbers in {
        "CIFAR-10, shallow network": "7.89 8.16 8.41",
        "CIFAR-100, wide residual network": "20.74 21.77 22.98",
        "Twitter part-of-speech tagging": "12.57 12.67 12.91",
        "TIMIT frame classification": "29.3 29.5 29.6",
        "SOI map on Twitter": "12.5 11.9",
        "SOI map on TIMIT": "29.46",
        SOI: "2.00 2.10",
    }.items():
        assert all(f"{number} %" in words[name] for number in numbers.split()), words[name]


# ---- no records, few records


def test_nothing_is_claimed_of_an_empty_ledger(tmp_path) -> None:
    rows = claims.verdicts(tmp_path / "none")
    assert {found.name for found in rows if found.verdict != NOT_RUN} == {"Sigmoid and Gaussian"}
    table = claims.frame(rows).set_index("claim")
    assert tuple(table.reset_index().columns) == claims.COLUMNS
    computed = table.index == "Sigmoid and Gaussian"
    assert table.loc[~computed, ["measured", "low", "high"]].isna().all(axis=None)
    assert (table.loc[~computed, "n"] == 0).all() and table.loc[computed, "n"].isna().all()
    assert table.loc["CIFAR-10, shallow network", "published"] == pytest.approx(7.89 / 8.16)  # the nearest rival
    assert table.loc["SOI map on TIMIT", "published"] == 1
    assert table.loc[SOI, "published"] == pytest.approx(2.0 / 2.1)
    assert math.isnan(table.loc[NOISE, "published"])
    assert [found.judgement.keys for found in rows if found.judgement.keys] == []


def test_the_project_s_own_ledger_says_of_the_classifier_what_its_page_says() -> None:
    found = study.run("mnist-classifier", "powered", train=False)
    shown = statistics.verdicts(found.table, choice=found.chosen)
    main = claims.verdicts()[0]
    assert main.verdict == shown["verdict"].iloc[-1]
    assert set(main.judgement.keys) == set(statistics.at_choice(found.table, found.chosen)["key"])
    weakest = shown.iloc[:-1].sort_values("measured").iloc[-1]
    assert (main.part.measured, main.part.high, main.part.n) == (weakest["measured"], weakest["high"], weakest["n"])


def test_each_record_is_read_once(tmp_path, monkeypatch) -> None:
    configs = protocols.plan("mnist-noise", "paper")
    for config in configs:
        Ledger(tmp_path).write(finished(config, lambda name: 0.1))
    read = []
    load = Ledger._load
    monkeypatch.setattr(Ledger, "_load", lambda book, path: read.append(path) or load(book, path))
    claims.verdicts(tmp_path)
    assert len(read) == len(set(read)) == len(configs)


# ---- noise


@pytest.mark.parametrize(
    ("ratio", "expected"),
    [(0.5, REPRODUCED), (1.0, REPRODUCED), (2.0, CONTRADICTED)],  # the second one by a tie
)
def test_noise_is_judged_by_the_mean_over_the_widths_above_nought(ratio, expected) -> None:
    def made(config: RunConfig) -> RunRecord:
        gelu = config.activation == "gelu_tanh"
        level = ratio * math.exp(JITTER[config.seed % 5]) if gelu else 1.0

        def loss(width: float) -> float:
            return level * width if width else 10 if gelu else 1e-6  # what clean images have must not count

        return finished(config, lambda name: 0.1, loss)

    found = judge(NOISE, (protocols.plan("mnist-noise", "paper"), made))
    assert found.verdict == expected
    assert len(found.judgement.parts) == 4
    assert [part.measured for part in found.judgement.parts] == pytest.approx([ratio] * 4)
    single = {0.5: REPRODUCED, 1.0: EQUIVALENT, 2.0: CONTRADICTED}[ratio]
    assert [part.verdict for part in found.judgement.parts] == [single] * 4
    assert (found.part.n, len(found.judgement.keys)) == (5, 15)
    assert found.judgement.lacking == "15 of 60 runs"


def test_noise_with_one_rival_only_is_unresolved() -> None:
    configs = protocols.plan("mnist-noise", "paper", activations=["gelu_tanh", "relu"])
    level = {"gelu_tanh": 0.5, "relu": 1.0}
    found = judge(NOISE, (configs, lambda config: finished(config, lambda name: 0.1, lambda width: level[config.activation])))
    assert found.verdict == UNRESOLVED
    assert [part.n for part in found.judgement.parts] == [5, 0, 5, 0]
    assert found.part.measured == 0.5 and "ReLU" in found.part.of


def test_p_values_are_adjusted_over_a_claim_s_comparisons() -> None:
    """Differences of log losses whose t test gives p = 0.03: enough alone, too much for the least of four."""
    d = np.array([-0.30, -0.08, -0.35, -0.02, -0.25])
    assert 0.05 / 4 < stats.ttest_1samp(d, 0).pvalue < 0.05

    def made(config: RunConfig) -> RunRecord:
        level = math.exp(d[config.seed]) if config.activation == "gelu_tanh" else 1.0
        return finished(config, lambda name: 0.1, lambda width: level)

    found = judge(NOISE, (protocols.plan("mnist-noise", "paper"), made))
    assert [part.verdict for part in found.judgement.parts] == [UNRESOLVED] * 4
    assert found.part.measured == pytest.approx(math.exp(-0.25))


# ---- autoencoder


def autoencoder(errors: dict[tuple[str, float], float | None], seeds: int = 3) -> Callable[[RunConfig], RunRecord | None]:
    """Records with these test errors by activation and learning rate, None for diverged; the training error is the same."""

    def made(config: RunConfig) -> RunRecord | None:
        cell = config.activation, config.learning_rate
        if cell not in errors or config.seed >= seeds:
            return None
        level = errors[cell]
        if level is None:
            return diverged(config)
        error = level * math.exp(JITTER[config.seed] if config.activation == "gelu_tanh" else 0)
        return finished(config, lambda name: error)

    return made


def rates(gelu: float, rival: float, factors: tuple[float, ...] = (1, 1, 3)) -> dict[tuple[str, float], float | None]:
    """Errors of GELU and both rivals at 0.001, 0.0001 and 0.00001."""
    levels = {"gelu_tanh": gelu, "relu": rival, "elu": rival}
    return {(n, rate): level * k for n, level in levels.items() for rate, k in zip((1e-3, 1e-4, 1e-5), factors, strict=True)}


@pytest.mark.parametrize(
    ("errors", "expected"),
    [
        (rates(0.004, 0.008), REPRODUCED),
        (rates(0.008, 0.008), REPRODUCED),
        (rates(0.008, 0.004), CONTRADICTED),
        (rates(0.004, 0.008) | {("elu", 1e-5): 0.001}, CONTRADICTED),
        ({cell: level for cell, level in rates(0.004, 0.008).items() if cell[1] != 1e-5}, UNRESOLVED),
    ],
    ids=["outperforms", "ties", "is beaten", "is beaten once", "a rate is absent"],
)
def test_the_autoencoder_ties_or_outperforms_at_each_rate(errors, expected) -> None:
    found = judge(AUTOENCODER, (protocols.plan("mnist-autoencoder", "paper"), autoencoder(errors)))
    assert found.verdict == expected and found.name == AUTOENCODER
    assert len(found.judgement.parts) == 6 and len(found.judgement.keys) == 3 * len(errors)
    if expected == CONTRADICTED:
        assert found.part.verdict == CONTRADICTED and found.part.measured > 1


def test_the_weakest_comparison_stands_for_the_claim_with_the_paper_s_ratio() -> None:
    errors = rates(0.004, 0.008) | {("elu", 1e-4): 0.005}
    found = judge(AUTOENCODER, (protocols.plan("mnist-autoencoder", "paper"), autoencoder(errors)))
    assert found.part.of == "test error, GELU / ELU, rate 0.0001"
    assert found.part.measured == pytest.approx(0.004 / 0.005)
    assert (found.part.low, found.part.high) == pytest.approx((0.8 * math.exp(-0.01), 0.8 * math.exp(0.01)))
    assert found.part.published == pytest.approx(0.00435263 / 0.00490671)


def test_shorter_runs_are_judged_while_there_are_more_of_them_and_never_mixed() -> None:
    full, short = (protocols.plan("mnist-autoencoder", "paper", epochs=epochs) for epochs in (None, 50))
    there = (short, autoencoder(rates(0.004, 0.008)))
    found = judge(AUTOENCODER, there, (full, autoencoder(rates(0.9, 0.1), seeds=2)))
    assert found.name == "MNIST autoencoder (50 of 250 epochs)" and found.verdict == REPRODUCED
    assert claims.frame([found])["claim"].tolist() == [found.name] and claims.as_json([found])[0]["claim"] == found.name
    assert {part.n for part in found.judgement.parts} == {3}
    assert set(found.judgement.keys) <= {config.key for config in short}
    curve = published.curves(3, "left").query("split == 'test' and epoch <= 50").sort_values("epoch")
    last = curve.groupby("activation")["value"].last()
    against_relu = next(part for part in found.judgement.parts if part.of == "test error, GELU / ReLU, rate 0.001")
    assert against_relu.published == pytest.approx(last["GELU"] / last["ReLU"])
    assert judging.all_of([(AUTOENCODER, found.judgement)]).limit == "50 of 250 epochs"
    found = judge(AUTOENCODER, there, (full, autoencoder(rates(0.008, 0.004))))
    assert (found.name, found.verdict) == (AUTOENCODER, CONTRADICTED)
    assert set(found.judgement.keys) <= {config.key for config in full}


TOO_MUCH = 2.01 * judging.MEAN_IMAGE_ERROR["mnist"]


@pytest.mark.parametrize(
    ("levels", "share", "expected"),
    [
        ([None, None, None], 1.0, REPRODUCED),
        ([None, TOO_MUCH, TOO_MUCH], 1.0, REPRODUCED),
        ([0.06, 0.06, 0.9 * TOO_MUCH], 0.0, CONTRADICTED),
        ([None, 0.06, None], 2 / 3, UNRESOLVED),
        ([None, None], 1.0, UNRESOLVED),
        ([0.06, 0.06], 0.0, UNRESOLVED),
    ],
)
def test_elu_diverges_if_all_its_runs_do(levels, share, expected) -> None:
    def made(config: RunConfig) -> RunRecord | None:
        if (config.activation, config.learning_rate) != ("elu", 1e-2) or config.seed >= len(levels):
            return None
        level = levels[config.seed]
        return diverged(config) if level is None else finished(config, lambda name: level)

    found = judge(ELU, (protocols.plan("mnist-autoencoder", "paper"), made))
    assert (found.verdict, found.part.n) == (expected, len(levels))
    assert found.part.measured == pytest.approx(share)
    if share == 1:  # Clopper and Pearson's interval: the chance of n of n is 2.5 % at its lower end
        assert found.part.low ** len(levels) == pytest.approx(0.025) and found.part.high == 1


@pytest.mark.parametrize(
    ("errors", "expected"),
    [
        ({("gelu_tanh", 1e-2): 0.05, ("relu", 1e-2): 0.05}, REPRODUCED),
        ({("gelu_tanh", 1e-2): 0.05, ("relu", 1e-2): 0.002}, CONTRADICTED),
        ({("gelu_tanh", 1e-2): 0.05, ("relu", 1e-2): 0.008}, EQUIVALENT),
        ({("gelu_tanh", 1e-2): 0.05, ("relu", 1e-2): None}, UNRESOLVED),  # the signed-rank test cannot decide with three
        ({("gelu_tanh", 1e-2): 0.05, ("relu", 1e-2): 3 * TOO_MUCH}, UNRESOLVED),
        ({("gelu_tanh", 1e-2): 0.05}, UNRESOLVED),
    ],
    ids=["both poorly", "ReLU better", "ReLU the same", "ReLU not finite", "ReLU diverged", "no ReLU"],
)
def test_converging_poorly_is_a_greater_error_than_at_the_next_rate(errors, expected) -> None:
    every = {("gelu_tanh", 1e-3): 0.004, ("relu", 1e-3): 0.008, **errors}
    found = judge(POORLY, (protocols.plan("mnist-autoencoder", "paper"), autoencoder(every)))
    assert found.verdict == expected


def test_higher_errors_at_the_least_rate() -> None:
    plan = protocols.plan("mnist-autoencoder", "paper")
    found = judge(MORE, (plan, autoencoder(rates(0.004, 0.008))))
    assert found.verdict == REPRODUCED and len(found.judgement.parts) == 6
    assert [part.measured for part in found.judgement.parts] == pytest.approx([1 / 3] * 6)
    gelu = next(part for part in found.judgement.parts if part.of == "test error of GELU, rate 0.001 / 0.00001")
    assert gelu.published == pytest.approx(0.00448124 / 0.00849348)
    tied = autoencoder(rates(0.004, 0.008, (1, 1, 1)))
    assert judge(MORE, (plan, tied)).verdict == EQUIVALENT
    once = autoencoder(rates(0.004, 0.008) | {("elu", 1e-4): 0.08})
    assert judge(MORE, (plan, once)).verdict == CONTRADICTED


def test_the_mean_image_s_error_is_that_of_digits(digits) -> None:
    seen = digits.x_train[:1152].reshape(1152, -1) / digits.scale
    assert judging.MEAN_IMAGE_ERROR["digits"] == pytest.approx(np.mean((seen - seen.mean(0)) ** 2), rel=1e-5)
    assert {config.train_examples for config in protocols.plan("mnist-autoencoder", "smoke")} == {1152}


def test_the_mean_image_s_error_is_that_of_mnist(mnist) -> None:
    seen = mnist.x_train.reshape(len(mnist.x_train), -1) / mnist.scale
    assert judging.MEAN_IMAGE_ERROR["mnist"] == pytest.approx(np.mean((seen - seen.mean(0)) ** 2), rel=1e-5)
    assert {config.train_examples for config in protocols.plan("mnist-autoencoder", "paper")} == {len(mnist.x_train)}


# ---- CIFAR

CIFAR10, CIFAR100 = "CIFAR-10, shallow network", "CIFAR-100, wide residual network"
OF = {CIFAR10: "cifar10-convnet", CIFAR100: "cifar100-wrn"}


def images(errors: dict[str, float], best: float = 1e-3) -> Callable[[RunConfig], RunRecord]:
    """Records with these test errors at the end; those that validation judges err the other way about, so that they must not count."""

    def made(config: RunConfig) -> RunRecord:
        jitter = math.exp(JITTER[config.seed % 5] if config.activation == "gelu_tanh" else 0)
        error = min(99.0, 100 / errors[config.activation] if config.validation_examples else errors[config.activation] * jitter)
        validation = 10.0 if config.learning_rate == best else 20.0
        level = {"test_error": error, "validation_error": validation}
        return synthetic.finished(config, lambda name, epochs: np.full(len(epochs), level.get(name, 0.1)))

    return made


def on_images(
    name: str, make: Callable[[RunConfig], RunRecord | None], seeds: tuple[int, ...] = (0, 1, 2), best: float = 1e-3
) -> tuple[list[RunConfig], Callable[[RunConfig], RunRecord | None]]:
    """The runs of the paper's scale, those of CIFAR-10 that follow the choice among them, with what makes their records."""
    chosen = {(activation, 0.5): best for activation in ("gelu_tanh", "relu", "elu")} if name == CIFAR10 else None
    planned = protocols.plan(OF[name], "powered", chosen=chosen)
    return [c for c in planned if c.validation_examples or c.seed in seeds], make


@pytest.mark.parametrize("name", [CIFAR10, CIFAR100])
@pytest.mark.parametrize(
    ("relu", "elu", "expected"),
    [
        (10.0, 12.0, REPRODUCED),
        (8.1, 12.0, EQUIVALENT),  # no claim of a tie
        (6.0, 12.0, CONTRADICTED),
    ],
)
def test_gelu_has_the_lowest_test_error_at_the_end(name, relu, elu, expected) -> None:
    found = judge(name, on_images(name, images({"gelu_tanh": 8.0, "relu": relu, "elu": elu})))
    assert found.verdict == expected and found.name == name
    assert [part.of for part in found.judgement.parts] == ["test error, GELU / ReLU", "test error, GELU / ELU"]
    assert [part.measured for part in found.judgement.parts] == pytest.approx([8 / relu, 8 / elu])
    assert [part.n for part in found.judgement.parts] == [3, 3]
    stated = {CIFAR10: (7.89 / 8.16, 7.89 / 8.41), CIFAR100: (20.74 / 21.77, 20.74 / 22.98)}[name]
    assert [part.published for part in found.judgement.parts] == pytest.approx(stated)


def test_only_the_final_runs_on_cifar10_are_compared() -> None:
    configs, make = on_images(CIFAR10, images({"gelu_tanh": 8.0, "relu": 10.0, "elu": 12.0}, best=1e-4), best=1e-4)
    found = judge(CIFAR10, (configs, make))
    used = [config for config in configs if config.key in found.judgement.keys]
    assert len(used) == len(found.judgement.keys) == 9
    assert {(c.train_examples, c.validation_examples, c.learning_rate, c.epochs) for c in used} == {(50_000, 0, 1e-4, 200)}
    assert found.judgement.lacking == "18 of 39 runs"


@pytest.mark.parametrize(
    ("name", "kept", "expected", "lacking"),
    [
        (CIFAR10, lambda c: bool(c.validation_examples), NOT_RUN, "9 of 39 runs"),
        (CIFAR10, lambda c: bool(c.validation_examples) and c.learning_rate > 1e-4, NOT_RUN, "3 of 9 runs"),
        (CIFAR10, lambda c: not c.validation_examples, NOT_RUN, ""),  # no choice, so nobody knows that these follow it
        (CIFAR10, lambda c: c.activation != "elu" or bool(c.validation_examples), UNRESOLVED, "15 of 39 runs"),
        (CIFAR100, lambda c: c.seed < 2, UNRESOLVED, "6 of 30 runs"),
        (CIFAR100, lambda c: c.activation == "gelu_tanh", NOT_RUN, "3 of 30 runs"),
    ],
)
def test_what_is_lacking_of_the_runs_on_images_is_said(name, kept, expected, lacking) -> None:
    make = images({"gelu_tanh": 8.0, "relu": 10.0, "elu": 12.0})
    found = judge(name, on_images(name, lambda config: make(config) if kept(config) else None))
    assert (found.verdict, found.judgement.lacking) == (expected, lacking)


def test_a_diverged_run_on_images_is_the_worst() -> None:
    make = images({"gelu_tanh": 8.0, "relu": 10.0, "elu": 12.0})
    gone = on_images(CIFAR100, lambda c: diverged(c) if c.activation == "gelu_tanh" else make(c), seeds=tuple(range(10)))
    found = judge(CIFAR100, gone)
    assert found.verdict == CONTRADICTED and found.part.measured == math.inf and found.part.n == 10


def test_short_runs_on_images_judge_nothing() -> None:
    make = images({"gelu_tanh": 8.0, "relu": 10.0, "elu": 12.0})
    for name, experiment in OF.items():
        assert judge(name, (protocols.plan(experiment, "quick"), make)).verdict == NOT_RUN


def test_all_tasks_rest_on_the_images_too() -> None:
    parts = [on_images(name, images({"gelu_tanh": 8.0, "relu": 6.0, "elu": 12.0})) for name in OF]
    evidence = judging.Evidence(Made(*parts), "powered")
    tasks = [(claim.name, how(evidence)) for claim, how in claims.known() if claim.task]
    found = judging.all_of(tasks)
    assert (found.verdict, found.lacking) == (CONTRADICTED, "2 of 6 tasks")
    assert found.weakest.of.endswith("test error, GELU / ReLU") and len(found.keys) == 18


# ---- SOI map


def soi(validation: dict[tuple[str, float], float], test: dict[tuple[str, float], float]) -> Callable[[RunConfig], RunRecord]:
    """Records with these validation losses and test errors by activation and keep probability; the rate of 0.0001 is the best."""

    def made(config: RunConfig) -> RunRecord:
        cell = config.activation, config.keep_probability
        jitter = math.exp(JITTER[config.seed % 5] if config.activation == "soi" else 0)
        level = {
            "validation_loss": validation[cell] * (1 if config.learning_rate == 1e-4 else 2),
            "test_error": test[cell] * jitter,
        }
        return finished(config, lambda name: level.get(name, 0.1))

    return made


CELLS = [("soi", 1.0), *((name, keep) for name in ("relu", "identity") for keep in (1.0, 0.75, 0.5))]


@pytest.mark.parametrize(
    ("relu", "linear", "expected"),
    [
        (2.0, 8.0, (REPRODUCED, REPRODUCED)),
        (2.5, 2.0, (REPRODUCED, EQUIVALENT)),
        (1.0, 1.0, (CONTRADICTED, CONTRADICTED)),
    ],
)
def test_the_soi_map_is_compared_with_the_dropout_that_validation_chose(relu, linear, expected) -> None:
    validation = dict.fromkeys(CELLS, 0.3) | {("relu", 0.75): 0.2, ("identity", 0.5): 0.2}
    test = dict.fromkeys(CELLS, 0.01) | {("soi", 1.0): 2.0, ("relu", 0.75): relu, ("identity", 0.5): linear}  # 0.01: not to be seen
    there = (protocols.plan("mnist-soi", "paper"), soi(validation, test))
    against, control = judge(SOI, there), judge(LINEAR, there)
    assert (against.verdict, control.verdict) == expected
    assert [found.part.of for found in (against, control)] == [
        f"test error, SOI map / {rival}" for rival in ("ReLU, keep 0.75", "linear, keep 0.5")
    ]
    assert (against.part.measured, control.part.measured) == pytest.approx((2.0 / relu, 2.0 / linear))
    assert (against.part.published, against.part.n) == (pytest.approx(2 / 2.1), 5)
    used = [config for config in there[0] if config.key in against.judgement.keys]
    assert {(config.activation, config.keep_probability, config.learning_rate) for config in used} == {
        ("soi", 1.0, 1e-4),
        ("relu", 0.75, 1e-4),
    }
    assert against.judgement.lacking  # the seeds that scale powered adds


def test_the_soi_map_waits_for_the_whole_grid() -> None:
    made = soi(dict.fromkeys(CELLS, 0.3), dict.fromkeys(CELLS, 2.0))
    configs = [config for config in protocols.plan("mnist-soi", "paper") if config.activation != "identity"]
    found = judge(SOI, (configs, made))
    assert (found.verdict, found.judgement.lacking, found.judgement.keys) == (NOT_RUN, "60 of 105 runs", ())


def test_dropout_is_tuned_by_the_median_over_seeds() -> None:
    def made(config: RunConfig) -> RunRecord:
        best = {1.0: [1.0, 1.0, 1.0, 9.0, 9.0], 0.75: [2.0] * 5, 0.5: [0.1, 0.1, 3.0, 3.0, 3.0]}[config.keep_probability]
        return finished(config, lambda name: best[config.seed] if name == "validation_loss" else 0.1)

    planned = protocols.plan("mnist-soi", "paper", activations=["identity"])
    records = tuple(made(config) for config in planned)
    done = study.Study("mnist-soi", "paper", tuple(planned), records, {("identity", 1.0): 1e-3}, False)
    assert judging.tuned(done, "identity") == (1.0, 1e-5)  # of equal rates the least


# ---- SiLU, sigmoid, all tasks


@pytest.mark.parametrize(("ratio", "expected"), [(0.5, REPRODUCED), (1.0, EQUIVALENT), (2.0, CONTRADICTED)])
def test_silu_is_judged_where_it_was_run(ratio, expected) -> None:
    def made(config: RunConfig) -> RunRecord:
        level = (ratio * math.exp(JITTER[config.seed % 5]) if config.activation == "gelu_tanh" else 1) * 1e-4 / config.learning_rate
        return finished(config, lambda name: level)

    configs = protocols.plan("mnist-classifier", "paper", activations=["gelu_tanh", "silu"])
    found = judge("SiLU", (configs, made))
    assert found.verdict == expected and found.part.measured == pytest.approx(ratio)
    assert len(found.judgement.parts) == 2 and found.part.n == 5
    assert judge("MNIST classifier", (configs, made)).verdict == NOT_RUN  # the classifier's claim is about ReLU and ELU


def test_the_distance_of_sigmoid_and_gaussian_is_where_their_densities_cross() -> None:
    place = optimize.brentq(lambda x: stats.norm.pdf(x) - stats.logistic.pdf(x), 0.5, 4)
    found = judge("Sigmoid and Gaussian")
    assert found.part.measured == pytest.approx(stats.norm.cdf(place) - stats.logistic.cdf(place), abs=1e-9)
    assert (found.verdict, found.part.published, found.part.n) == (REPRODUCED, 0.1, None)
    grid = np.linspace(-20, 20, 40_001)
    assert found.part.measured == pytest.approx(np.abs(stats.norm.cdf(grid) - stats.logistic.cdf(grid)).max(), abs=1e-6)
    assert judging.sigmoid_distance("0.01")(judging.Evidence(Made(), "smoke")).verdict == CONTRADICTED


def judged(*verdicts: str, ties: bool = False) -> Judgement:
    numbers = {REPRODUCED: 0.5, EQUIVALENT: 1.0, CONTRADICTED: 2.0}
    parts = [Part(f"part {i}", 0.9, numbers.get(v, math.nan), 0.4, 3, 0 if v == NOT_RUN else 5, v) for i, v in enumerate(verdicts)]
    return Judgement(statistics.combined(verdicts, ties=ties), tuple(parts), ("a",))


@pytest.mark.parametrize(
    ("tasks", "expected", "lacking"),
    [
        ([judged(REPRODUCED, REPRODUCED), judged(REPRODUCED)], REPRODUCED, ""),
        ([judged(REPRODUCED), judged(EQUIVALENT, ties=True)], EQUIVALENT, ""),  # a tie is no improvement
        ([judged(REPRODUCED), judged(NOT_RUN)], UNRESOLVED, "1 of 2 tasks"),
        ([judged(REPRODUCED, CONTRADICTED), judged(NOT_RUN)], CONTRADICTED, "1 of 2 tasks"),
        ([judged(NOT_RUN), judged(NOT_RUN)], NOT_RUN, "0 of 2 tasks"),
    ],
)
def test_improvements_across_all_tasks_are_their_weakest_comparison(tasks, expected, lacking) -> None:
    found = judging.all_of([(f"task {i}", task) for i, task in enumerate(tasks)])
    assert (found.verdict, found.lacking) == (expected, lacking)
    assert math.isnan(found.weakest.published)
    if expected == CONTRADICTED:
        assert found.weakest.of == "task 0: part 1"


def test_the_tasks_are_the_six_of_the_abstract() -> None:
    names = [claim.name for claim, _ in claims.known() if claim.task]
    assert len(names) == 6 and {name.split()[0].strip(",") for name in names} == {
        "MNIST",
        "Twitter",
        "TIMIT",
        "CIFAR-10",
        "CIFAR-100",
    }


# ---- trained records


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    """Every experiment's smoke runs on digits."""
    folder = tmp_path_factory.mktemp("trained")
    for experiment in ("mnist-noise", "mnist-autoencoder", "mnist-soi"):
        study.run(experiment, "smoke", device="cpu", ledger=folder)
    return folder


def test_trained_runs_are_judged_as_arithmetic_on_their_records_does(trained) -> None:
    rows = claims.verdicts(trained, scale="smoke")
    records = Ledger(trained).read()

    def cell(experiment: str, name: str, rate: float = 1e-3, keep: float = 1.0) -> list[RunRecord]:
        wanted = (experiment, name, rate, keep)
        found = [
            r
            for r in records
            if (r.config.experiment, r.config.activation, r.config.learning_rate, r.config.keep_probability) == wanted
        ]
        return sorted(found, key=lambda record: record.config.seed)

    noisy = {name: [np.mean(r.curves["noise_error"][1:]) for r in cell("mnist-noise", name)] for name in ("gelu_tanh", "relu")}
    part = next(part for part in row(rows, NOISE).judgement.parts if part.of == "test error under noise, GELU / ReLU")
    assert part.measured == pytest.approx(np.exp(np.median(np.log(noisy["gelu_tanh"]) - np.log(noisy["relu"]))))
    assert part.n == 2 and part.verdict == UNRESOLVED  # two seeds are too few

    bound = 2 * judging.MEAN_IMAGE_ERROR["digits"]
    part = row(rows, ELU).part
    assert part.measured == np.mean([r.final["train_loss"] > bound for r in cell("mnist-autoencoder", "elu", 1e-2)])
    assert row(rows, AUTOENCODER).name == AUTOENCODER

    against = row(rows, SOI)
    keeps = {keep: cell("mnist-soi" if keep == 0.75 else "mnist-classifier", "relu", keep=keep) for keep in (1.0, 0.75, 0.5)}
    keep = min(keeps, key=lambda keep: np.median([r.best["validation_loss"] for r in keeps[keep]]))
    ours, theirs = ([r.best["test_error"] for r in runs] for runs in (cell("mnist-soi", "soi"), keeps[keep]))
    assert against.part.of.endswith(f"keep {keep:g}")
    assert against.part.measured == pytest.approx(np.exp(np.median(np.log(ours) - np.log(theirs))))
    assert {found.verdict for found in rows} == {UNRESOLVED, NOT_RUN, REPRODUCED}
    assert [found.name for found in rows if found.verdict == REPRODUCED] == ["Sigmoid and Gaussian"]


def test_runs_of_another_scale_do_not_count(trained) -> None:
    assert [found.name for found in claims.verdicts(trained) if found.verdict != NOT_RUN] == ["Sigmoid and Gaussian"]


# ---- how they are shown


def test_the_table_links_to_pages_that_exist_and_names_its_records(trained, monkeypatch) -> None:
    shown: list[tuple] = []
    monkeypatch.setattr(pages, "table", lambda frame, name, caption, keys: shown.append((frame, name, list(keys))))
    monkeypatch.setattr(site, "expected_pages", lambda toc: ["index", "mnist-classifier", "mnist-soi"])
    rows = claims.verdicts(trained, scale="smoke")
    landing.verdict_table(rows)
    ((frame, name, keys),) = shown
    assert name == "verdicts" and len(frame) == 17 and len(frame.columns) == 5
    assert {key for found in rows for key in found.judgement.keys} == set(keys) <= {r.config.key for r in Ledger(trained).read()}
    assert frame["claim"].str.contains('href="mnist-classifier.html"').sum() == 2, "the classifier and SiLU"
    assert frame["claim"].str.contains('href="mnist-soi.html"').sum() == 2
    assert not frame["claim"].str.contains("mnist-noise.html|approximations.html").any()
    for found, verdict in zip(rows, frame["verdict"], strict=True):
        assert f">{found.verdict}</span>" in verdict
    cifar = frame[frame["claim"].str.contains("CIFAR-10,")].iloc[0]
    assert (cifar["paper"], cifar["measured [95 %]"], cifar["n"]) == ("0.967", "–", "0")


def test_pages_that_claims_name_are_in_the_book_or_agreed() -> None:
    agreed = {"mnist-noise", "mnist-autoencoder", "mnist-soi"}
    known = {claim.page for claim, _ in claims.known() if claim.page}
    assert known - agreed <= set(site.expected_pages(paths.BOOK / "_toc.yml"))


def test_the_page_says_how_many_claims_have_which_verdict(monkeypatch, tmp_path) -> None:
    said: list[str] = []
    monkeypatch.setattr(pages, "text", said.append)
    rows = claims.verdicts(tmp_path)
    landing.coverage(rows)
    assert said == ["The paper makes 17 claims that can be checked. So far: **1 reproduced, 16 not run.**"]
    assert claims.tally(rows) == "1 reproduced (Sigmoid and Gaussian), 16 not run"


def test_the_figure_of_the_answer_has_each_comparison_with_a_rival(trained, monkeypatch, tmp_path) -> None:
    shown: list[tuple] = []
    monkeypatch.setattr(pages, "figure", lambda *given: shown.append(given))
    landing.answer_figure(claims.verdicts(tmp_path))
    assert not shown  # only the paper's numbers would be no answer
    rows = claims.verdicts(trained, scale="smoke")
    landing.answer_figure(rows, trained, "smoke")
    ((drawn, name, alt, caption, keys),) = shown
    lines = dict(landing.lines(rows))
    classifier, cifar = lines["MNIST classifier\ntraining loss, keep 1"], lines["CIFAR-10, shallow network\ntest error"]
    assert classifier == {
        "relu": row(rows, "MNIST classifier").judgement.parts[0],
        "elu": row(rows, "MNIST classifier").judgement.parts[1],
    }
    assert [round(part.published, 3) for part in cifar.values()] == [0.967, 0.938]
    assert not any("SOI" in line or "SiLU" in line or "All tasks" in line for line in lines)
    assert name == "answer" and alt.count(";") == len(lines) - 1
    for line, parts in lines.items():
        (said,) = re.findall(rf"{re.escape(line.replace(chr(10), ', '))}: ([^;]*?)(?:;|\.$)", alt)
        ratios = [f"{pages.number(part.measured)} against {published.NAMES[rival]}" for rival, part in parts.items() if part.n]
        assert said == (" and ".join(ratios) or "the paper alone")
    assert set(keys) == {key for found in rows if found.claim.name in {line.split("\n")[0] for line in lines} for key in found.judgement.keys}
    assert f"{len(keys)} runs" in caption and "device: cpu" in caption
    ours = {mark.get_gid(): mark for mark in drawn.axes[0].get_lines() if str(mark.get_gid()).split()[0] in judging.RIVALS}
    numbers = [(f"{rival} {i}", part) for i, parts in enumerate(lines.values()) for rival, part in parts.items() if part.n]
    assert numbers and set(ours) == {gid for gid, _ in numbers}
    for gid, part in numbers:
        (drawn_at,) = ours[gid].get_xdata()
        assert drawn_at == pytest.approx(min(part.measured, drawn.axes[0].get_xlim()[1]))
        assert (ours[gid].get_markerfacecolor() == "white") == (part.verdict == UNRESOLVED)
    decided = sum(part.verdict != UNRESOLVED for _, part in numbers)
    assert f"Of {len(numbers)} comparisons with runs {decided} are decided: " in caption


def test_infinite_and_absent_numbers_are_plain_json_and_text() -> None:
    errors = rates(0.004, 0.008) | {("gelu_tanh", 1e-3): None}
    rows = [judge(AUTOENCODER, (protocols.plan("mnist-autoencoder", "paper"), autoencoder(errors))), judge("Sigmoid and Gaussian")]
    found, sigmoid = claims.as_json(rows)
    assert (found["verdict"], found["measured"], found["n"]) == (UNRESOLVED, "inf", 3)
    assert found["statement"] and len(found["comparisons"]) == 6
    assert sigmoid["low"] is None and sigmoid["n"] is None
    table, legend = claims.as_text(rows).split("\n\n")
    head, first, second = table.splitlines()
    assert head.index("verdict") == first.index(UNRESOLVED) == second.index(REPRODUCED)
    assert " inf " in first and " 0.1 " in second and "0.117" in second
    assert "ratio" in legend and "distance" in legend


def test_runs_of_one_seed_at_several_learning_rates_are_not_mixed():
    runs = [
        synthetic.diverged(config)
        for config in protocols.plan("cifar100-wrn", "smoke", learning_rates=[0.1, 0.05], seeds=[0], activations=["relu"])
    ]
    with pytest.raises(
        ConfigurationError, match=r"seed 0 has several runs of relu, with learning rates 0\.05, 0\.1; give a single one"
    ):
        judging.losses(runs, lambda record: record.final["test_error"])
