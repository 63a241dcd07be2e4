"""What is promised of runs trained again, with real processes; and what the page makes of the measurement."""

from __future__ import annotations

import copy
import dataclasses
import json
from typing import Any

import pytest
import torch

from gelu_study import measurements, pages, protocols, retraining, verification
from gelu_study.chapters import reproducibility
from gelu_study.chapters.reproducibility import Kind
from gelu_study.measurements import Measurement
from gelu_study.retraining import RetrainingError
from gelu_study.runs import RunRecord

ALL = ["gelu_tanh", "relu", "elu"]


def small() -> dict[str, Kind]:
    """A dense and a convolutional kind."""
    dense = protocols.plan("mnist-classifier", "smoke", activations=ALL, keep_probabilities=[0.5], seeds=reproducibility.SEEDS)
    images = protocols.plan("cifar10-convnet", "smoke", activations=["gelu_tanh"], seeds=[1])
    return {"dense": Kind("dense", tuple(dense)), "images": Kind("images", tuple(images))}


def stacks() -> list[Any]:
    return [stack for kind in small().values() for stack in kind.together]


@pytest.fixture(scope="module")
def base() -> dict[str, RunRecord]:
    """As committed code makes them: whoever changes the code runs these tests too."""
    trained = retraining.train(stacks())
    return {r.config.key: dataclasses.replace(r, environment={**r.environment, "dirty": False}) for r in trained}


def compared(base: dict[str, RunRecord], again: list[RunRecord], same_stack: bool = True) -> list[verification.Comparison]:
    return [verification.compare(base[record.config.key], record, same_stack) for record in again]


def test_the_same_runs_in_two_fresh_processes_have_the_same_bits(base):
    rows = compared(base, retraining.train(stacks()))
    assert len(rows) == len(base) == 7
    assert all(row.promised and row.identical for row in rows), "\n".join(map(str, rows))


def test_resumed_in_another_process_they_have_the_same_bits(base):
    again = retraining.train(stacks(), interrupted_after=1)
    rows = compared(base, again)
    assert all(len(record.environment["earlier"]) == 1 for record in again)
    assert len(rows) == 7 and all(row.promised and row.identical for row in rows), "\n".join(map(str, rows))


def test_with_two_threads_they_are_within_the_tolerance(base):
    again = retraining.train(stacks(), threads=2)
    assert {record.environment["threads"] for record in again} == {2} != {r.environment["threads"] for r in base.values()}
    rows = compared(base, again)
    assert len(rows) == 7 and all(row.within and not row.promised for row in rows), "\n".join(map(str, rows))


def test_in_stacks_of_another_size_they_are_within_the_tolerance(base):
    dense = small()["dense"].configs
    again = retraining.train([dense[:4], dense[4:5], dense[5:]])
    assert sorted(record.environment["stack"] for record in again) == [1, 1, 4, 4, 4, 4]
    rows = compared(base, again, same_stack=False)
    assert all(row.within and not row.promised for row in rows), "\n".join(map(str, rows))


def test_a_process_that_fails_says_why():
    dense = small()["dense"].together
    with pytest.raises(RetrainingError, match="device cuda:97 was asked for"):
        retraining.train(dense, device="cuda:97")


@pytest.fixture
def here(monkeypatch):
    """Train in this process with one thread, which takes less time than starting others."""
    threads = torch.get_num_threads()
    monkeypatch.setattr(retraining, "_records", lambda job, python: retraining._train_here(dataclasses.replace(job, threads=1)))
    yield
    torch.set_num_threads(threads)


def test_runs_without_an_epoch_to_be_interrupted_in_are_refused(here):
    with pytest.raises(RetrainingError, match="no more than 2 epochs"):
        retraining.train(small()["dense"].together, interrupted_after=2)


def test_a_measurement_of_every_way(here, tmp_path):
    kinds = [*small().values()]
    result = reproducibility.measure(torch.device("cpu"), chosen=kinds, ledger=tmp_path, data_root=tmp_path)
    json.dumps(result, allow_nan=False)
    found = {(row["kind"], row["way"], row["detail"]): 0 for row in result["rows"]}
    for row in result["rows"]:
        lengths = {len(row[name]) for name in ("identical", "within", *reproducibility.MEASURES)}
        assert len(lengths) == 1 and row["activation"] in ALL
        found[row["kind"], row["way"], row["detail"]] += lengths.pop()
    ways = [("again", ""), ("resumed", ""), ("threads", "2"), ("company", "")]
    assert found == {
        **{("dense", *way): 6 for way in [*ways, ("place", ""), ("stack", "1"), ("stack", "3"), ("stack", "12")]},
        **{("images", *way): 1 for way in ways},
    }
    assert all(all(row["identical"]) for row in result["rows"] if row["way"] in ("again", "resumed"))
    assert all(all(row["within"]) for row in result["rows"])
    assert {kind["name"]: (kind["runs"], kind["dense"]) for kind in result["kinds"]} == {"dense": (6, True), "images": (1, False)}
    assert result["devices"] == result["torch"] == [] and len(result["left_out"]) == 3
    assert any("MNIST" in reason for reason in result["left_out"])


@pytest.mark.parametrize("name", ["torch", "threads"])
def test_records_made_elsewhere_are_no_test_of_a_promise(base, monkeypatch, name):
    record = next(iter(base.values()))
    elsewhere = dataclasses.replace(record, environment={**record.environment, name: "another"})
    found = [(["again", ""], elsewhere), (["again", ""], record), (["stack", "3"], elsewhere)]
    ways = [(f"{way} {number}", (way, detail), [made], compared(base, [made])) for number, ((way, detail), made) in enumerate(found)]
    monkeypatch.setattr(reproducibility, "_ledger_ways", lambda *_: iter(ways))
    result = reproducibility.measure(torch.device("cpu"), chosen=[])
    assert [row["kind"] for row in result["rows"]] == [kind["name"] for kind in result["kinds"]] == ["again 1", "stack 2"]
    (said,) = [reason for reason in result["left_out"] if reason.startswith("again 0, trained again: recorded ")]
    assert "another" in said


def test_the_companions_keep_or_move_a_runs_place():
    """As a stack sorts its runs; what `company` and `place` are about."""
    seeds = sorted(reproducibility.SEEDS)
    low, high = seeds
    assert (
        [sorted([low, high + 1]).index(low), sorted([high, low - 1]).index(high)] == [0, 1] == [seeds.index(seed) for seed in seeds]
    )
    assert [sorted([low, low - 1]).index(low), sorted([high, high + 1]).index(high)] == [1, 0]


def test_kinds_of_each_sort_that_the_study_trains():
    kinds = reproducibility.kinds()
    assert {config.network for kind in kinds for config in kind.configs} == {"perceptron", "autoencoder", "shallow-convnet"}
    assert {config.keep_probability for kind in kinds for config in kind.configs} >= {1.0, 0.5}
    assert {config.precision for kind in kinds for config in kind.configs} == {"float32", "bfloat16"}
    for kind in kinds:
        names = {config.activation for config in kind.configs}
        assert names == ({"soi"} if kind.name.startswith("SOI") else set(ALL))
        assert len({config.key for config in kind.configs}) == len(kind.configs) == 6


def row(way: str, identical: list[bool], apart: float = 0.0, **fields: Any) -> dict[str, Any]:
    values = [0.0 if same else apart for same in identical]
    made = {"kind": "classifier", "way": way, "detail": "", "activation": "relu", "identical": identical}
    return made | {"within": [True] * len(identical), "early": values, "final_loss": values, "final_error": values} | fields


def made_up() -> dict[str, Any]:
    kind = {"name": "classifier", "dataset": "digits", "epochs": 2, "steps": 18, "runs": 3, "dense": True}
    rows = [
        row("again", [True] * 3),
        row("company", [True] * 3),
        row("stack", [True, False, True], 0.0123, detail="3"),
        row("stack", [True, True, True], detail="12"),
    ]
    left_out = [reproducibility.NO_DEVICE, reproducibility.NO_VERSION]
    return {"kinds": [kind], "rows": rows, "devices": [], "torch": [], "left_out": left_out}


def test_the_table_counts_and_takes_the_greatest():
    table = reproducibility.table(made_up()).set_index("what changes")
    assert list(table["the same bits"]) == ["3 of 3", "not measured", "3 of 3", "not measured", "5 of 6", *["not measured"] * 3]
    stack = table.loc["the size of the stack (3, 12)"]
    assert (stack["promised"], stack["n"], stack["ln of a loss at the end, most"]) == ("within the tolerance", 6, "0.012")
    kinds = reproducibility.kinds_table(made_up())
    assert kinds.iloc[0].to_dict() == {
        "network": "classifier", "steps": "18", "nothing": "3/3", "resumed": "–", "company": "3/3", "place": "–", "stack": "5/6",
        "threads": "–", "torch": "–", "device": "–",
    }  # fmt: skip


def test_the_sentences_follow_the_data():
    result = made_up()
    said = " ".join(reproducibility.seen(result))
    assert "promised of 3 runs and seen of all of them" in said
    assert "though not promised, where this changed: the other runs in the stack, or before it." in said
    assert "lost by some where this changed: the size of the stack (5 of 6)" in said
    assert "first epoch’s training loss 0.012 (allowed 0.03, classifier, ReLU)" in said and "All 12 runs are within" in said
    broken = copy.deepcopy(result)
    broken["rows"][0] = row("again", [True, False, False], 0.4, within=[True, True, False], early=[0.0, None, 0.1])
    said = " ".join(reproducibility.seen(broken))
    assert "seen of only 1 of these" in said and "**1 of 12 runs are beyond the tolerance.**" in said and "loss ∞ (allowed" in said
    same = {**result, "rows": result["rows"][:2]}
    assert not any("Farthest apart" in sentence or "lost by some" in sentence for sentence in reproducibility.seen(same))


def test_what_is_not_promised_names_what_was_compared():
    said = reproducibility.not_promised(made_up())
    assert "No GPU was there" in said and "none was compared" in said and "Not measured" not in said
    more = {**made_up(), "devices": ["Tube"], "torch": ["1.0"], "left_out": ["records of the ledger: MNIST is not there"]}
    said = reproducibility.not_promised(more)
    assert "Compared was Tube." in said and "1.0 was compared." in said and "Not measured: records of the ledger" in said


def test_the_page_says_so_where_nothing_was_measured(shown, monkeypatch):
    monkeypatch.setattr(measurements, "read", lambda name: None)
    reproducibility.shown()
    assert len(shown) == 2 and "at most 3 %" in shown[0] and "Not measured yet" in shown[1]


@pytest.fixture(scope="module")
def taken() -> Measurement:
    found = measurements.read(reproducibility.NAME)
    assert found is not None, "the project has no measurement of reproducibility"
    return found


def test_the_projects_measurement_keeps_both_promises(taken):
    """And so justifies the tolerances, which are met without being so wide that they would say nothing."""
    rows = taken.result["rows"]
    assert {row["way"] for row in rows} >= set(reproducibility.WAYS) - {"device"}
    assert all(all(row["identical"]) for row in rows if reproducibility.WAYS[row["way"]][1] == reproducibility.BITS)
    assert all(all(row["within"]) for row in rows) and taken.result["torch"]
    early, final = (max(max(row[name]) for row in rows) for name in ("early", "final_loss"))
    assert verification.EARLY_TOLERANCE / 20 < early < verification.EARLY_TOLERANCE
    assert verification.FINAL_LOSS_TOLERANCE / 20 < final < verification.FINAL_LOSS_TOLERANCE
    assert {kind.name for kind in reproducibility.kinds()} <= {kind["name"] for kind in taken.result["kinds"]}


def test_the_page_shows_the_measurement(taken, shown, monkeypatch):
    monkeypatch.setattr(pages, "plain_table", lambda frame: shown.append(frame.to_string()))
    reproducibility.shown(taken)
    said = "\n".join(shown)
    assert taken.environment["started"][:10] in said and taken.environment["torch"] in said and taken.result["torch"][0] in said
    older = dataclasses.replace(taken, environment={**taken.environment, "torch": "0.0.1"})
    assert "PyTorch 0.0.1" in reproducibility.caption(older)
