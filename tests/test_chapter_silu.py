"""SiLU against GELU on the classifier's page: made-up runs with known ratios."""

from __future__ import annotations

import math

import pandas as pd
import pytest

import synthetic
from gelu_study import claims, pages, protocols, published
from gelu_study.chapters import silu
from gelu_study.runs import RunConfig, RunRecord

pytestmark = pytest.mark.usefixtures("few_resamples")

LEVELS = {"gelu_tanh": 0.12, "silu": 0.1, "relu": 0.2, "elu": 0.4}
NAMES = list(LEVELS)


def made_up(config: RunConfig) -> RunRecord:
    """Losses and errors that differ by `LEVELS` under dropout and by nothing without it."""
    level = LEVELS[config.activation] if config.keep_probability < 1 else 0.1
    jitter = math.exp(0.01 * ((7 * config.seed + len(config.activation)) % 5 - 2))
    return synthetic.finished(config, lambda name, epochs: level * jitter * (1e-3 / config.learning_rate) ** 0.1 * 2 / (1 + epochs))


def found(names: list[str] = NAMES, **selection) -> silu.Behind:
    records = [made_up(config) for config in protocols.plan("mnist-classifier", "paper", activations=names, **selection)]
    return silu.runs("paper", ledger=synthetic.Held(records))


def test_the_answer_names_what_differs(shown):
    silu.answer(found())
    answer, beside = shown
    assert answer.startswith("**No.** GELU's training loss is")
    assert "keep probability 0.5: GELU's final training loss is 2" in answer and "% higher than SiLU's" in answer
    assert "GELU's validation loss is 2" in beside and "GELU's test error is 2" in beside and "% higher than SiLU's" in beside
    assert "without dropout" not in beside, "what holds 1 is not named"


def test_the_table_has_both_halves_of_the_remark(monkeypatch):
    tables: list[tuple[pd.DataFrame, list[str]]] = []
    monkeypatch.setattr(pages, "table", lambda frame, name, caption, keys: tables.append((frame, list(keys))))
    silu.table(found())
    ((frame, keys),) = tables
    assert list(zip(frame["ratio"], frame["keep"], strict=True)) == [
        ("GELU (tanh) / SiLU", "1"),
        ("GELU (tanh) / SiLU", "0.5"),
        ("SiLU / ReLU", "1"),
        ("SiLU / ELU", "1"),
        ("SiLU / ReLU", "0.5"),
        ("SiLU / ELU", "0.5"),
    ]
    for name in silu.MEASURES.values():
        values = [float(cell.split(">")[1].split(" ")[0]) for cell in frame[name]]
        assert values == pytest.approx([1, 1.2, 1, 1, 0.5, 0.25], rel=0.03), name
    assert set(frame["n"]) == {"5"} and len(keys) == 4 * 2 * 5


def test_without_runs_of_silu_the_section_says_how_to_train_them(shown):
    others = found(["gelu_tanh", "relu", "elu"])
    silu.answer(others)
    silu.table(others)
    assert len(shown) == 1 and "gelu-study run mnist-classifier --scale paper --activations silu" in shown[0]


def test_without_the_others_gelu_and_silu_are_still_judged(shown):
    pair = found(["gelu_tanh", "silu"])
    silu.answer(pair)
    silu.table(pair)
    assert shown[0].startswith("**No.** GELU's training loss is")
    assert shown[-1].count("GELU (tanh) / SiLU") == 2 and "SiLU / ReLU" not in shown[-1]


def test_an_incomplete_grid_is_said_and_nothing_is_claimed_of_it(shown):
    part = found(learning_rates=[1e-3])
    silu.answer(part)
    silu.table(part)
    assert len(shown) == 1 and shown[0].startswith("> **Not complete.** Of GELU and SiLU, 20 of 60 runs have a record")
    assert "--activations gelu_tanh,silu --seeds 0,1,2,3,4`" in shown[0]


def test_of_a_single_seed_no_difference_is_said_to_be_absent(shown):
    records = [made_up(config) for config in protocols.plan("mnist-classifier", "paper", activations=NAMES, seeds=[0])]
    silu.answer(silu.runs("paper", [0], synthetic.Held(records)))
    assert len(shown) == 1 and "interval" not in shown[0]


def test_the_section_is_about_the_page_s_own_selection():
    behind = silu.runs("quick", dataset="digits", learning_rates=[1e-3], keep_probabilities=[1.0])
    for config in behind.pair.planned + behind.others.planned:
        assert (config.dataset, config.learning_rate, config.keep_probability) == ("digits", 1e-3, 1.0)


def test_the_page_and_the_verdict_agree(shown):
    silu.answer(silu.runs("powered"))
    row = next(row for row in claims.verdicts() if row.claim.name == published.SILU.name)
    assert f">{row.verdict}</span>" in shown[0]
    assert row.claim.page == "mnist-classifier"
