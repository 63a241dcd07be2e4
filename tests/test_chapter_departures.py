"""Paper against code: paired effects against arithmetic by hand, statements without runs against torch and simulation."""

from __future__ import annotations

import dataclasses
import math
import re

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats

from gelu_study import ledger, pages, protocols, statistics, study
from gelu_study.chapters import departures, paper_code, readings
from gelu_study.errors import ConfigurationError
from gelu_study.runs import RunConfig, RunRecord
from gelu_study.study import Study

LEVEL = {"gelu_tanh": 0.010, "gelu": 0.010, "relu": 0.012, "elu": 0.020}
FACTOR = {"exact form": 1.0, "unit-norm outgoing": 2.0, "PyTorch's epsilon": 0.9, "all 60,000": 1.01}
"""What each switch multiplies the made-up training losses by."""


def made_up(config: RunConfig, loss: float, *, diverged: bool = False) -> RunRecord:
    """A record whose training loss falls to `loss`; its test error is 100 times that."""
    environment = {"device": "cpu", "started": "2026-01-01T10:00:00+00:00", "seconds": 1.0, "stack": 1}
    if diverged:
        return RunRecord(config, "diverged", {"step": 1, "epoch": 1}, {}, {}, {}, environment)
    falling = loss * np.geomspace(50, 1, config.epochs)
    curves = {name: np.repeat(falling, each).tolist() for name, each in config.curves.items()}
    final = {name: float(falling[-1]) for name in [*config.measures, "train_loss_full", "train_error_full"]}
    final["test_error"] = 100 * loss
    best = (
        {**{name: final[name] for name in config.measures}, "epoch": config.epochs, "step": 1} if config.validation_examples else {}
    )
    return RunRecord(config, "finished", None, curves, final, best, environment)


def loss_of(config: RunConfig, switch: str | None) -> float:
    return (
        LEVEL[config.activation]
        * (1 + 0.01 * config.seed)
        * (1 if config.keep_probability == 1 else 5)
        * FACTOR.get(switch or "", 1.0)
    )


def synthetic(seeds: int = 5, only: tuple[str, ...] = tuple(FACTOR), lost: tuple[int, ...] = ()) -> Study:
    """The plan of the departures, with records of the unchanged runs and of the switches in `only`.

    With unit norm outgoing, ReLU's seeds in `lost` diverge."""
    planned = protocols.plan("mnist-departures", "paper", seeds=range(seeds))
    bare = Study("mnist-departures", "paper", tuple(planned), (), {}, False)
    records = []
    for config in planned:
        which = [switch.name for switch in departures.switches(bare) if switch.turned(config)]
        assert len(which) <= 1
        if which and which[0] not in only:
            continue
        fails = which == ["unit-norm outgoing"] and config.activation == "relu" and config.seed in lost
        records.append(made_up(config, loss_of(config, which[0] if which else None), diverged=fails))
    return dataclasses.replace(bare, records=tuple(records))


def classifier(seeds: int = 5) -> Study:
    """The unchanged runs, with a choice of the greatest learning rate."""
    planned = protocols.plan("mnist-classifier", "paper", seeds=range(seeds))
    records = tuple(made_up(c, loss_of(c, None) * (1 if c.learning_rate == 1e-3 else 3)) for c in planned)
    chosen = {(name, keep): 1e-3 for name in ("gelu_tanh", "relu", "elu") for keep in (1.0, 0.5)}
    return Study("mnist-classifier", "paper", tuple(planned), records, chosen, False)


NOTHING = Study("mnist-classifier", "paper", (), (), {}, False)


def test_every_switch_of_the_plan_is_turned_alone_and_finds_its_counterpart():
    found = synthetic()
    groups = departures.turned(found, NOTHING)
    runs = [record for group in groups for record in group.with_it]
    unchanged = {r.config.key for r in found.records if r.config.experiment == "mnist-classifier"}
    assert len(runs) + len(unchanged) == len(found.planned)
    assert {group.switch for group in groups} == set(FACTOR)
    for group in groups:
        for one, other in zip(group.with_it, group.without, strict=True):
            assert other.config.key in unchanged
            differing = {
                field.name
                for field in dataclasses.fields(RunConfig)
                if getattr(one.config, field.name) != getattr(other.config, field.name)
            }
            allowed = {
                "exact form": {"activation"},
                "unit-norm outgoing": {"initialisation"},
                "PyTorch's epsilon": {"optimiser"},
                "all 60,000": {"train_examples", "validation_examples"},
            }[group.switch]
            assert differing == allowed | {"experiment"}


def test_every_setting_that_the_page_names_is_a_valid_configuration():
    found = synthetic(seeds=1)
    usual = next(config for config in found.planned if config.experiment == "mnist-classifier")
    for switch in departures.switches(found):
        changed = dataclasses.replace(usual, **switch.changed)
        assert switch.turned(changed)
        assert not switch.turned(usual)
        assert usual.key in switch.counterparts(changed)
        for field, value in switch.changed.items():
            assert f"{field}={value!r}" in switch.setting


def test_effects_by_hand():
    frame = departures.effects(departures.turned(synthetic(), NOTHING)).set_index(["switch", "activation", "keep_probability"])
    assert len(frame) == 2 + 3 * 3
    for (switch, activation, keep), row in frame.iterrows():
        assert row["n"] == 5
        assert row["ratio"] == pytest.approx(FACTOR[switch])
        usual = [100 * LEVEL[activation] * (1 + 0.01 * seed) * (1 if keep == 1 else 5) for seed in range(5)]
        assert row["difference"] == pytest.approx(np.median(usual) * (FACTOR[switch] - 1), abs=1e-12)
    assert frame.loc[("unit-norm outgoing", "relu", 1.0), "p_value"] < 0.05
    assert frame.loc[("all 60,000", "relu", 1.0), "p_equivalent"] < 0.05


def test_effects_against_scipy():
    rng = np.random.default_rng(3)
    found = synthetic()
    for record in found.records:
        if record.config.optimiser == "adam":
            record.final["train_loss"] *= rng.lognormal(0, 0.2)
    groups = [group for group in departures.turned(found, NOTHING) if group.switch == "PyTorch's epsilon"]
    frame = departures.effects(groups)
    tests = []
    for group, row in zip(groups, frame.to_dict("records"), strict=True):
        logs = [np.log([record.final["train_loss"] for record in side]) for side in (group.with_it, group.without)]
        assert row["ratio"] == pytest.approx(math.exp(np.median(logs[0] - logs[1])))
        tests.append(stats.ttest_rel(*logs).pvalue)
    order = np.argsort(tests)
    adjusted = np.maximum.accumulate(np.array(tests)[order] * [3, 2, 1]).clip(max=1)
    np.testing.assert_allclose(frame["p_value"].to_numpy()[order], adjusted)


def test_a_diverged_run_is_infinitely_worse_and_the_words_say_so():
    groups = departures.turned(synthetic(lost=(0, 1, 2)), NOTHING)
    row = departures.effects(groups).query("switch == 'unit-norm outgoing' and activation == 'relu'").iloc[0]
    assert math.isinf(row["ratio"])
    assert "infinitely higher" in departures.finding(row)
    assert math.isinf(row["difference"])
    assert departures.draw_effects(departures.effects(groups))


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"n": 2, "ratio": 0.5, "low": 0.4, "high": 0.6, "p_value": 0.0, "p_equivalent": 0.0}, "2 common seeds, too few to tell"),
        (
            {"n": 5, "ratio": 1.01, "low": 1.0, "high": 1.02, "p_value": 0.0, "p_equivalent": 0.01},
            "is the same within 5 %: 1.0 % higher",
        ),
        (
            {"n": 5, "ratio": 0.5, "low": 0.4, "high": 0.6, "p_value": 0.01, "p_equivalent": 0.9},
            "changes: 50 % lower (95 % interval 60 % to 40 % lower)",
        ),
        (
            {"n": 5, "ratio": 0.8, "low": 0.7, "high": 1.2, "p_value": 0.4, "p_equivalent": 0.4},
            "no change can be shown, nor its absence; 20 % lower",
        ),
    ],
)
def test_findings_in_words(row, said):
    words = departures.finding({**row, "activation": "relu", "keep_probability": 1.0})
    assert said in words
    assert words.startswith("ReLU's training loss without dropout")


def test_the_claim_under_each_switch_by_hand():
    found = synthetic()
    groups = departures.turned(found, NOTHING)
    frame = departures.claims_under(groups, found.records).set_index(["switch", "rival", "keep_probability"])
    for (_, rival, _), row in frame.iterrows():
        assert row["ratio"] == pytest.approx(LEVEL["gelu_tanh"] / LEVEL[rival])
        assert row["n"] == 5
        assert row["verdict"] == statistics.REPRODUCED
    assert {switch for switch, _, keep in frame.index if keep == 1.0} == {departures.UNCHANGED, *FACTOR}
    assert {switch for switch, _, keep in frame.index if keep == 0.5} == {departures.UNCHANGED, "exact form"}


def test_a_comparison_that_comes_out_otherwise_is_named(monkeypatch):
    said = shown(monkeypatch)
    found = synthetic()
    departures.claims_shown(found, NOTHING)
    assert said["text"][1:] == ["No comparison that can be made both ways comes out otherwise with a switch turned."]
    said["text"].clear()
    for record in found.records:
        if record.config.optimiser == "adam" and record.config.activation == "relu":
            record.final["train_loss"] /= 10
    departures.claims_shown(found, NOTHING)
    assert said["text"][1:] == [
        "A comparison that comes out otherwise with a switch turned: against ReLU without dropout with *PyTorch's epsilon*, "
        "reproduced becomes contradicted. On 5 seeds a verdict may also turn by chance."
    ]


def test_runs_of_several_recipes_are_refused():
    found = synthetic()
    with pytest.raises(ConfigurationError, match="mixes"):
        departures.by_seed(
            [r for r in found.records if r.config.activation == "relu" and r.config.keep_probability == 1], "train_loss"
        )


def shown(monkeypatch) -> dict[str, list]:
    said: dict[str, list] = {"text": [], "figure": [], "table": [], "plain": []}
    monkeypatch.setattr(pages, "text", said["text"].append)
    monkeypatch.setattr(
        pages, "figure", lambda drawn, name, alt, caption, keys: said["figure"].append((name, drawn, caption, list(keys)))
    )
    monkeypatch.setattr(pages, "table", lambda frame, name, caption, keys: said["table"].append((name, frame, caption, list(keys))))
    monkeypatch.setattr(pages, "plain_table", said["plain"].append)
    return said


def whole_page(found: Study, base: Study) -> None:
    departures.answer(found, base)
    paper_code.departures_table(found, base)
    departures.effects_shown(found, base)
    departures.claims_shown(found, base)
    readings.epochs_shown(base, "train_loss_epoch", [5, 50, 999], "departures-epochs")
    readings.measures_table(base)
    paper_code.passing_table(base.table)
    departures.provenance(found, base)


def test_without_runs_the_page_says_so(monkeypatch, tmp_path):
    said = shown(monkeypatch)
    found, base = (study.run(name, "paper", train=False, ledger=tmp_path) for name in ("mnist-departures", "mnist-classifier"))
    whole_page(found, base)
    assert "None of the 55 runs with a switch turned has a record" in said["text"][0]
    assert said["text"][1].count("not run yet") == 4
    assert said["figure"] == said["table"] == []
    states = said["plain"][0].set_index("departure")["run here"]
    assert [state for state in states if re.search(r"\d+ (of|seeds|runs)", state)] == []


def test_the_unchanged_runs_alone_are_no_run_switch(monkeypatch):
    said = shown(monkeypatch)
    whole_page(synthetic(only=()), classifier())
    assert "Not run yet" in said["text"][0]
    assert {name for name, *_ in said["figure"]} == {"departures-epochs"}


def test_some_of_the_switches_and_some_of_the_seeds(monkeypatch):
    said = shown(monkeypatch)
    found = synthetic(only=("exact form",))
    part = dataclasses.replace(
        found, records=tuple(r for r in found.records if not (r.config.activation == "gelu" and r.config.seed > 2))
    )
    whole_page(part, classifier())
    assert "**exact form** (6 of 10 runs)" in said["text"][0]
    assert "is the same within 5 %: the same" in said["text"][0]
    assert said["text"][0].count("not run yet") == 3
    (_, table, _, keys) = next(item for item in said["table"] if item[0] == "departures-table")
    assert list(table["seeds"]) == ["3", "3"]
    assert len(keys) == 12
    assert said["plain"][0]["run here"][0] == "6 of 10 runs"


def test_the_figure_shows_the_effects():
    frame = departures.effects(departures.turned(synthetic(), NOTHING))
    figure = departures.draw_effects(frame)
    drawn = {line.get_gid(): line.get_xdata()[0] for line in figure.axes[0].get_lines() if line.get_gid() and " " in line.get_gid()}
    assert drawn["unit-norm outgoing elu 1"] == pytest.approx(2.0)
    assert len([gid for gid in drawn if not gid.startswith("_")]) == len(frame)


# ---- read off the curves


def test_ratios_over_epochs_by_hand():
    base = classifier(seeds=3)
    gelu = next(
        r
        for r in base.records
        if (r.config.activation, r.config.keep_probability, r.config.learning_rate, r.config.seed) == ("gelu_tanh", 1.0, 1e-3, 1)
    )
    gelu.curves["train_loss_epoch"] = [0.5] * 25 + [0.003] * 25
    ratios = readings.over_epochs(base, "train_loss_epoch")
    assert len(ratios) == 4
    relu = next(
        r
        for r in base.records
        if (r.config.activation, r.config.keep_probability, r.config.learning_rate, r.config.seed) == ("relu", 1.0, 1e-3, 1)
    )
    assert ratios["without dropout", "relu"].loc[1, 50] == pytest.approx(0.003 / relu.curves["train_loss_epoch"][-1])
    assert ratios["without dropout", "relu"].shape == (3, 50)


def test_the_side_on_which_a_ratio_ends_is_counted():
    columns = np.arange(1, 5)
    frames = {
        ("without dropout", "relu"): pd.DataFrame([[1.2, 0.9, 1.1, 0.8]], columns=columns),
        ("without dropout", "elu"): pd.DataFrame([[1.2, 1.2, 1.2, 1.5]], columns=columns),
    }
    lines = readings.epoch_lines(frames, "training")
    assert "is lower than ReLU's after 2 of 4 epochs, the last among them; it ends 20 % lower" in lines[0]
    assert "is higher than ELU's after every epoch; it ends 50 % higher" in lines[1]


def test_where_nothing_chooses_a_rate_every_rate_is_read_off():
    planned = [c for c in protocols.plan("mnist-autoencoder", "paper", seeds=[0, 1]) if c.learning_rate in (1e-3, 1e-4)]
    records = tuple(made_up(c, LEVEL[c.activation] * (1 if c.learning_rate == 1e-3 else 2)) for c in planned)
    found = Study("mnist-autoencoder", "paper", tuple(planned), records, {}, False)
    ratios = readings.over_epochs(found, "test_loss")
    assert set(ratios) == {(f"learning rate {rate}", rival) for rate in ("0.001", "0.0001") for rival in ("relu", "elu")}
    assert ratios["learning rate 0.001", "elu"].shape == (2, 250)
    np.testing.assert_allclose(ratios["learning rate 0.0001", "elu"], 0.5)


def test_what_is_called_training_loss_may_decide(monkeypatch):
    said = shown(monkeypatch)
    base = classifier()
    readings.measures_table(base)
    assert "In every comparison the other two are on the same side of 1" in said["text"][0]
    for record in base.records:
        if record.config.activation == "relu" and record.config.keep_probability == 0.5:
            record.final["train_loss_full"] /= 10
    readings.measures_table(base)
    told = "against ReLU with dropout, keep probability 0.5, by the loss called *all images, after the last step*, 733 % higher, with an"
    assert f"{told} interval that does not include no difference." in said["text"][1]
    (_, table, _, _) = said["table"][1]
    assert len(table) == 6
    assert re.sub("<[^>]+>", "", table["GELU / ReLU"][0]).startswith("0.833")


# ---- what needs no run


@pytest.mark.parametrize("steps", [1, 3, 50])
def test_epsilon_against_tensorflow_s_update_written_out(steps):
    """PyTorch's Adam with that epsilon in the last step goes where TensorFlow's formula does."""
    generator = torch.Generator().manual_seed(steps)
    gradients = 1e-7 * torch.randn(steps, 6, generator=generator, dtype=torch.float64)
    weight = torch.zeros(6, dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.Adam([weight], lr=1e-3)
    m, v, theirs = torch.zeros(6, dtype=torch.float64), torch.zeros(6, dtype=torch.float64), torch.zeros(6, dtype=torch.float64)
    for step, gradient in enumerate(gradients, 1):
        optimiser.param_groups[0]["eps"] = paper_code.epsilon(step)
        weight.grad = gradient.clone()
        optimiser.step()
        m, v = 0.9 * m + 0.1 * gradient, 0.999 * v + 0.001 * gradient**2
        rate = 1e-3 * math.sqrt(1 - 0.999**step) / (1 - 0.9**step)
        theirs = theirs - rate * m / (v.sqrt() + 1e-8)
    torch.testing.assert_close(weight.detach(), theirs)


def test_output_sizes_of_both_readings_against_simulated_inputs():
    layers = [(784, 128), (128, 128), (128, 10)]
    generator = torch.Generator().manual_seed(0)
    for (inputs, outputs), (incoming, outgoing) in zip(layers, paper_code.output_sizes(layers), strict=True):
        assert incoming == pytest.approx(1, abs=1e-6)
        assert outgoing == pytest.approx(math.sqrt(inputs / outputs), rel=1e-3)
        rows = torch.nn.functional.normalize(torch.randn(inputs, outputs, generator=generator), dim=1)
        x = torch.randn(4000, inputs, generator=generator)
        assert (x @ rows).square().mean().sqrt().item() == pytest.approx(outgoing, rel=0.05)


def test_a_mean_subtracted_twice_against_simulation():
    x = np.random.default_rng(0).normal(3.0, 2.0, 200_000)
    twice = (x - 3.0 - 3.0) / 2.0
    mean, deviation = paper_code.twice_subtracted(3.0, 2.0)
    assert (twice.mean(), twice.std()) == pytest.approx((mean, deviation), abs=0.02)
    assert (twice < 0).mean() == pytest.approx(stats.norm.cdf(0, mean, deviation), abs=0.01)


def test_dropout_read_wrongly_against_bernoulli():
    said = paper_code.dropout_lines(0.7)
    for keep in (0.7, 0.3):
        relative = stats.bernoulli(keep).var() / keep**2
        assert f"{relative:.2f}" in said


def test_the_bound_against_simulation():
    said = paper_code.bound_lines(50, 10_000)
    rng = np.random.default_rng(0)
    least = 100 * rng.binomial(10_000, 0.2074, (4000, 50)).min(axis=1) / 10_000
    bound = float(re.search(r"would lie ([\d.]+) points below", said).group(1))
    assert bound == pytest.approx(20.74 - least.mean(), abs=0.02)
    assert "20.74 %" in said
    assert "1.03 points" in said


def test_every_departure_is_told_in_full():
    found = synthetic(seeds=1)
    listed = paper_code.departures_list(found)
    assert len({item.name for item in listed}) == len(listed)
    for item in listed:
        assert all((item.text, item.code, item.here))
        assert item.state(found, NOTHING)


def test_remarks_that_take_training_count_their_runs(monkeypatch):
    said = shown(monkeypatch)
    found = synthetic(seeds=1)
    runs = ledger.table(found.records)
    paper_code.passing_table(runs)
    assert all("not run" in state for state in said["plain"][0]["runs here"])
    runs.loc[:2, "activation"] = "silu"
    runs.loc[:3, "optimiser"] = "momentum"
    paper_code.passing_table(runs)
    assert list(said["plain"][1]["runs here"]) == ["3 runs", "4 runs"]
