"""The benchmark of sweeps measures the right things; how fast they are is for the benchmark itself to say."""

from __future__ import annotations

import json
from contextlib import nullcontext

import pytest

from gelu_study import sweep
from gelu_study.bench import sweeps

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


@pytest.fixture(scope="module")
def measured():
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("WORKERS", (1,)), ("ROUNDS", 1), ("PLANS", (180, 1_800))):
            patch.setattr(sweeps, name, value)
        yield sweeps.measure("cpu", seconds=0.5)


def test_rows_are_complete_and_ratios_those_of_their_parts(measured):
    json.dumps(measured, allow_nan=False)
    here, worker = measured["rows"]
    assert (here["workers"], worker["workers"]) == (0, 1) and here["speedup"] == 1
    assert worker["speedup"] == pytest.approx(here["seconds"] / worker["seconds"])
    assert measured["overhead_seconds_a_stack"] == pytest.approx((worker["seconds"] - here["seconds"]) / measured["stacks"])
    assert worker["start_seconds"] > 0 and measured["runs"] == 12 and measured["stacks"] == 4


def test_plans_are_of_the_size_asked_for(measured):
    assert [(plan["runs"], plan["stacks"]) for plan in measured["plans"]] == [(180, 12), (1_800, 120)]
    for plan in measured["plans"]:
        parts = sum(plan[name] for name in ("plan_seconds", "missing_seconds", "group_seconds"))
        assert plan["seconds"] == pytest.approx(parts) and plan["mib"] >= 0


def test_growth_is_the_power_of_the_number_of_runs():
    plans = [{"runs": n, "seconds": 3.0 * n**1.5} for n in (100, 400, 1_600)]
    assert sweeps.growth(plans, "seconds") == pytest.approx(1.5)


def test_the_report_says_it(measured):
    plans = [dict(plan, mib=1.0 + plan["runs"]) for plan in measured["plans"]]
    text = sweeps.report({**measured, "plans": plans})
    for row in measured["rows"]:
        assert f"{row['seconds']:.1f} {row['speedup']:>9.2f}" in text
    assert "1,800" in text and f"{1e3 * measured['overhead_seconds_a_stack']:.0f} ms a stack" in text


def test_records_that_differ_stop_it(monkeypatch, tmp_path):
    complete, calls = sweep.complete, []

    def differing(runs, *arguments, **options):
        calls.append(None)
        return complete(runs if len(calls) < 5 else runs[:-1], *arguments, **options)

    for name, value in (("WORKERS", (1,)), ("ROUNDS", 2)):
        monkeypatch.setattr(sweeps, name, value)
    monkeypatch.setattr(sweeps.sweep, "complete", differing)
    monkeypatch.setattr(sweeps, "connect", lambda workers: nullcontext(None))  # this process in its place
    with pytest.raises(AssertionError, match="other records"):
        sweeps._spreading("cpu", 0.1)
