"""The chapter on cost: what is measured, against what is known without a clock; what is said, on results whose numbers are made up."""

from __future__ import annotations

import itertools
import json
import time
from typing import Any

import nbformat
import numpy as np
import pytest
import torch
from torch.nn import functional

from gelu_study import activations, measurements, notebooks, pages, paths
from gelu_study.chapters import cost
from gelu_study.errors import ConfigurationError

CPU = torch.device("cpu")
NOTEBOOK = paths.NOTEBOOKS / "cost.ipynb"


@pytest.fixture
def small(monkeypatch):
    """A measurement that takes a second."""
    monkeypatch.setattr(cost, "SIZES", (64, 256))
    monkeypatch.setattr(cost, "ROUNDS", 2)
    monkeypatch.setattr(cost, "PYTORCH", {name: cost.PYTORCH[name] for name in ("gelu", "gelu_tanh", "relu")})
    monkeypatch.setattr(cost, "ENGINE", ("gelu", "relu"))
    monkeypatch.setattr(cost, "BLOCK", {"d_model": 8, "hidden": 32, "tokens": 4})


def made_up(nanoseconds: dict[tuple[str, str], float], compiled: bool = True) -> dict[str, Any]:
    """A result in which (activation, form) takes so long at every size, 1 where it is not named; rounds differ by a common factor."""
    drift = (1.0, 1.3, 0.8)
    rows, blocks, kept = [], [], []
    modes = ("eager", "compiled") if compiled else ("eager",)
    for name, form in [*itertools.product(cost.PYTORCH, ("pytorch", "ours")), *((name, "engine") for name in cost.ENGINE)]:
        value = nanoseconds.get((name, form), 1.0)
        for mode, dtype, size, direction in itertools.product(modes, cost.DTYPES, cost.SIZES, ("forward", "both")):
            key = {"activation": name, "form": form, "mode": mode, "dtype": dtype, "size": size, "direction": direction}
            rows.append(key | {"nanoseconds": [value * factor for factor in drift]})
        if form != "engine":
            blocks.append({"activation": name, "form": form, "milliseconds": [(6 + value) * factor for factor in drift]})
            kept += [
                {"activation": name, "form": form, "mode": mode, "dtype": dtype, "bytes": 4.0, "beyond_output": 0.0}
                for mode, dtype in itertools.product(modes, cost.DTYPES)
            ]
    blocks.append({"activation": "identity", "form": "ours", "milliseconds": [6 * factor for factor in drift]})
    return {
        "device": "cpu",
        "threads": 2,
        "sizes": list(cost.SIZES),
        "rounds": 3,
        "seconds": 1.0,
        "compiled": {"available": compiled, "why": "" if compiled else "torch.compile failed with NoCompiler"},
        "elements": rows,
        "kept": kept,
        "block": {**cost.BLOCK, "rows": blocks},
    }


def taken(result: dict[str, Any]) -> measurements.Measurement:
    environment = {"device_name": "a made-up processor", "device": "cpu", "started": "2026-02-03T04:05:06+00:00", "torch": "2.14.1"}
    return measurements.Measurement(cost.NAME, result, environment)


def test_everything_is_measured_in_strict_json(small, monkeypatch):
    calls: list[Any] = []
    monkeypatch.setattr(torch, "compile", lambda function, **options: calls.append(options) or function)
    result = cost.measure(CPU, seconds=0.2)
    assert json.loads(json.dumps(result, allow_nan=False)) == result
    assert result["compiled"]["available"] and all(options["fullgraph"] for options in calls)
    keys = {tuple(row[name] for name in ("activation", "form", "mode", "dtype", "size", "direction")) for row in result["elements"]}
    assert len(keys) == len(result["elements"])
    eager = set(itertools.product(cost.PYTORCH, ("pytorch", "ours"), ("eager",), cost.DTYPES, (64, 256), ("forward", "both")))
    engine = set(itertools.product(("gelu", "relu"), ("engine",), ("eager",), cost.DTYPES, (64, 256), ("forward", "both")))
    assert eager | engine <= keys
    compiled = {key[:4] for key in keys - eager - engine}
    both = set(itertools.product(("gelu", "gelu_tanh"), ("pytorch", "ours"), ("compiled",), cost.DTYPES))
    assert compiled == both | {("relu", "pytorch", "compiled", "float32")}
    assert all(len(row["nanoseconds"]) == 2 and min(row["nanoseconds"]) > 0 for row in result["elements"])
    assert {(row["activation"], row["form"]) for row in result["block"]["rows"]} == {
        ("identity", "ours"),
        *itertools.product(cost.PYTORCH, ("pytorch", "ours")),
    }


def test_without_a_compiler_the_result_says_so(small, monkeypatch):
    def fail(function, **_options):
        def called(_x):
            raise FileNotFoundError("/some/where/g++")

        return called

    monkeypatch.setattr(torch, "compile", fail)
    result = cost.measure(CPU, seconds=0.1)
    assert not result["compiled"]["available"]
    assert "FileNotFoundError" in result["compiled"]["why"] and "/some/where" not in result["compiled"]["why"]
    assert {row["mode"] for row in result["elements"]} == {"eager"}
    assert "Nothing is compiled here" in said(monkeypatch, cost.source, taken(made_up({}, compiled=False)))


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan")])
def test_seconds_are_positive(seconds):
    with pytest.raises(ConfigurationError, match="seconds"):
        cost.measure(CPU, seconds)


@pytest.mark.parametrize(
    ("function", "total", "beyond"),
    [
        (functional.relu, 1, 0),  # the output tells its sign
        (functional.gelu, 1, 1),  # the input
        (cost.PYTORCH["gelu_sigmoid"], 2, 2),  # the input and the sigmoid
        (cost.PYTORCH["squared_relu"], 1, 1),  # ReLU's output, which is no output of the whole
        (lambda x: x.exp().exp(), 2, 1),
        (lambda x: x.view(-1).view(-1), 0, 0),
        (lambda x: x * x, 1, 1),  # the same tensor twice
        (activations.get("gelu"), 2, 2),  # input and slope
    ],
)
@pytest.mark.parametrize(("dtype", "width"), [(torch.float32, 4), (torch.bfloat16, 2)])
def test_bytes_kept_are_counted_by_storage(function, total, beyond, dtype, width):
    assert cost.kept_bytes(function, CPU, dtype) == {"bytes": total * width, "beyond_output": beyond * width}


def test_pytorch_s_own_functions_are_the_functions_that_their_names_say():
    x = torch.linspace(-6, 6, 1001, dtype=torch.float64)
    for name, function in cost.PYTORCH.items():
        torch.testing.assert_close(function(x), activations.get(name)(x), rtol=1e-6, atol=1e-9)


def test_what_is_timed_is_forward_and_backward_pass():
    x, gradient = torch.randn(50), torch.randn(50)
    (found,) = cost._both(functional.gelu, x, gradient)()
    leaf = x.double().requires_grad_()
    torch.testing.assert_close(found.double(), torch.autograd.grad(functional.gelu(leaf), leaf, gradient.double())[0], rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(cost._engine("gelu", x, gradient)(), found, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(cost._forward(functional.gelu, x, training=False)(), functional.gelu(x))
    assert not x.requires_grad and not cost._forward(functional.gelu, x, training=False)().requires_grad
    steps = cost._blocks(CPU)
    shapes = [tuple(part.shape) for part in steps["relu", "ours"]()]
    assert shapes == [(256, 512), (2048, 512), (2048,), (512, 2048), (512,)]
    for first, second in zip(steps["relu", "ours"](), steps["relu", "pytorch"](), strict=True):
        torch.testing.assert_close(first, second)


def test_the_clock_tells_the_time_of_one_call():
    clock = cost._Clock(lambda: time.sleep(0.004), 0.1, CPU)
    assert clock.calls > 1
    assert 0.004 <= clock() < 0.04


def test_ratios_are_formed_within_rounds():
    assert cost.ratio_of([2.0, 40.0, 9.0], [1.0, 10.0, 3.0]) == (3.0, 2.0, 4.0)
    result = made_up({("gelu", "ours"): 2.5})
    common = {"activation": "gelu", "mode": "eager", "dtype": "float32", "size": 2**14, "direction": "both"}
    over = cost.ratio(result, {"form": "ours"}, {"form": "pytorch"}, **common)
    np.testing.assert_allclose(over, (2.5, 2.5, 2.5))
    assert cost.ratio(result, {"form": "other"}, {"form": "pytorch"}, **common) is None
    with pytest.raises(ConfigurationError, match="name every field"):
        cost.times(result, activation="gelu")


@pytest.mark.parametrize(("tanh", "word"), [(2.0, "does not hold here"), (0.5, "holds here"), (1.0, "stays undecided")])
def test_the_advice_on_tanh_is_judged_by_what_was_measured(tanh, word):
    said = cost.answers(made_up({("gelu_tanh", "pytorch"): tanh}), 2**17, "float32")[1]
    assert f"** {word}." in said
    assert f"{tanh:.2f} times as long ({tanh:.2f} to {tanh:.2f}{', undecided' if tanh == 1 else ''})" in said
    assert f"{'dearer' if tanh == 2 else 'cheaper' if tanh == 0.5 else 'undecided'} in 12" in said


def test_advice_that_holds_at_one_size_holds_in_part():
    result = made_up({("gelu_tanh", "pytorch"): 2.0})
    for row in result["elements"]:
        if row["activation"] == "gelu_tanh" and row["size"] == 2**20:
            row["nanoseconds"] = [value / 8 for value in row["nanoseconds"]]
    said = cost.answers(result, 2**17, "float32")[1]
    assert "holds in part" in said and "cheaper in 4, dearer in 8" in said


def test_what_compiling_is_worth_is_said_if_anything_was_compiled():
    result = made_up({})
    for row in result["elements"]:
        if row["mode"] == "compiled" and row["activation"] in ("relu", "mish"):
            row["nanoseconds"] = [value * (30 if row["activation"] == "relu" else 0.5) for value in row["nanoseconds"]]
    assert "slower: ReLU (30 times); faster: Mish (0.5 times)." in cost.answers(result, 2**17, "float32")[-1]
    assert not any("torch.compile" in line for line in cost.answers(made_up({}, compiled=False), 2**17, "float32"))


def test_the_other_sentences_hold_the_numbers():
    result = made_up({("gelu", "pytorch"): 2.0, ("gelu", "ours"): 6.0, ("relu", "pytorch"): 0.25})
    cheap, _, block, exact, _ = cost.answers(result, 2**17, "bfloat16")
    assert "2.0 ns for GELU" in cheap and "0.25 ns for ReLU" in cheap and "131,072 elements of bfloat16" in cheap
    assert "PyTorch's exact GELU is 25 % (25 to 25)" in block and "ReLU 4 %" in block
    assert "0.88 times as long" in block, "7 of 8 milliseconds with a tanh form of 1"
    assert "3.00 times as long" in exact and "1.50 times as long" in exact


@pytest.mark.parametrize(("exact", "tanh", "met"), [(2.9, 0.9, (3, 0, 3)), (3.1, 1.1, (0, 0, 0)), (1.4, 0.5, (3, 3, 3))])
def test_targets_are_judged_by_the_ratios(exact, tanh, met):
    frame = cost.targets(made_up({("gelu", "ours"): exact, ("gelu_tanh", "ours"): tanh}))
    assert len(frame) == 9
    assert tuple((frame["met"][i : i + 3] == "yes").sum() for i in (0, 3, 6)) == met
    without = cost.targets(made_up({}, compiled=False))
    assert list(without["met"][3:6]) == ["not measured"] * 3


def test_tables_have_a_row_for_each_activation():
    result = made_up({("elu", "ours"): 7.0})
    frame = cost.nanoseconds(result, 2**20, "float32").set_index("activation")
    assert len(frame) == len(cost.kept(result, "float32")) == len(cost.PYTORCH)
    assert frame.loc["ELU", "ours"] == "7.0" and "7.00" in frame.loc["ELU", "ours / PyTorch"]
    assert frame.loc["Mish", "engine"] == "–"
    assert set(cost.kept(made_up({}, compiled=False), "float32")["ours, compiled"]) == {"–"}


def test_figures_show_the_medians():
    result = made_up({("gelu", "ours"): 5.0, ("relu", "engine"): 0.5})
    drawn = cost.draw_elements(result, 2**17, "float32")
    assert [ax.get_title(loc="left") for ax in drawn.axes] == ["Eager", "With torch.compile"]
    dots = {line.get_gid(): line.get_xdata()[0] for line in drawn.axes[0].get_lines() if " " in str(line.get_gid())}
    assert dots["gelu ours eager"] == 5.0 and dots["relu engine eager"] == 0.5 and dots["mish pytorch eager"] == 1.0
    assert len(cost.draw_elements(made_up({}, compiled=False), 2**17, "float32").axes) == 1
    lines = {line.get_gid(): list(line.get_ydata()) for ax in cost.draw_sizes(result, "float32").axes for line in ax.get_lines()}
    assert lines["gelu ours"] == [5.0] * 3
    bars = {bar.get_gid(): bar.get_width() for bar in cost.draw_block(result).axes[0].patches if bar.get_gid()}
    assert bars["gelu ours"] == pytest.approx(5) and bars["elu pytorch"] == pytest.approx(1)


def said(monkeypatch, function, *arguments: Any) -> str:
    shown: list[str] = []
    monkeypatch.setattr(pages, "text", shown.append)
    function(*arguments)
    return "\n".join(shown)


def test_the_page_names_machine_and_date(monkeypatch):
    text = said(monkeypatch, cost.source, taken(made_up({})))
    assert "a made-up processor" in text and "2026-02-03" in text and "2 threads" in text
    assert "not measured" not in text.lower()


def test_a_size_that_was_not_measured_is_refused():
    with pytest.raises(ConfigurationError, match="there are 16384, 131072, 1048576"):
        cost.answer(taken(made_up({})), 1000, "float32")
    with pytest.raises(ConfigurationError, match="float16 were not measured"):
        cost.elements_figure(taken(made_up({})), 2**14, "float16")


def test_without_a_measurement_the_page_says_so_and_how(monkeypatch):
    monkeypatch.setattr(measurements, "read", lambda name: None)
    assert cost.load(False, 1.0, True, "cpu") is None
    assert "gelu-study measure activation-cost" in said(monkeypatch, cost.source, None)
    for function in (cost.answer, cost.elements_figure, cost.nanoseconds_table):
        assert said(monkeypatch, function, None, 2**17, "float32") == ""


def test_the_notebook_shows_a_measurement(tmp_path, monkeypatch):
    """Of a result that is kept in a folder of its own."""
    kept = tmp_path / "measurements"
    measurements.write(taken(made_up({("gelu_tanh", "pytorch"): 2.0})), kept)
    lines = ["from pathlib import Path", "from gelu_study import paths", f"paths.MEASUREMENTS = Path({str(kept)!r})"]
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    place = next(i for i, cell in enumerate(notebook.cells) if "load(" in cell.source)
    notebook.cells[place].source = "\n".join([*lines, notebook.cells[place].source])
    nbformat.write(notebook, tmp_path / "cost.ipynb")
    executed = nbformat.read(notebooks.execute(tmp_path / "cost.ipynb", tmp_path / "out.ipynb"), as_version=4)
    shown = "\n".join(str(part) for cell in executed.cells if cell.cell_type == "code" for out in cell.outputs for part in out.data.values())
    assert "does not hold here" in shown and "a made-up processor" in shown
    for name in ("cost-elements", "cost-sizes", "cost-block"):
        assert f'id="{name}"' in shown
