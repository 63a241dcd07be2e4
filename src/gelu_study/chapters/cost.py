"""What an activation costs: nanoseconds an element, memory kept for the backward pass, and its share of a feed-forward block.

`measure` takes the measurement `activation-cost`; everything else shows one. All of it is timed in one run, in rounds that take
turns, because absolute times drift on a shared machine: a ratio compares two times of one round, and its range is over the rounds.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, NamedTuple

import pandas as pd
import torch
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.nn import functional

from gelu_study import activations, figures, measurements, pages
from gelu_study.errors import ConfigurationError
from gelu_study.measurements import Measurement
from gelu_study.transformer import FeedForward

NAME = "activation-cost"
SIZES = (2**14, 2**17, 2**20)
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
ROUNDS = 5
SAMPLES, FEWEST_SAMPLES = 5, 3  # of each entry in a round, and where the time does not allow that; their median counts
BLOCK = {"d_model": 512, "hidden": 2048, "tokens": 256}

Function = Callable[[Tensor], Tensor]
Step = Callable[[], object]

PYTORCH: dict[str, Function] = {
    "gelu": lambda x: functional.gelu(x),
    "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
    "gelu_sigmoid": lambda x: x * torch.sigmoid(1.702 * x),
    "silu": lambda x: functional.silu(x),
    "relu": lambda x: functional.relu(x),
    "elu": lambda x: functional.elu(x),
    "mish": lambda x: functional.mish(x),
    "squared_relu": lambda x: functional.relu(x).square(),
    "hard_swish": lambda x: functional.hardswish(x),
}
"""PyTorch's own functions; the two that it does not have, as one would write them."""

ENGINE = ("gelu", "gelu_tanh", "gelu_sigmoid", "silu", "relu", "elu")
"""Activations with a kernel of the training engine."""
OURS_COMPILED = ("gelu", "gelu_tanh", "gelu_sigmoid", "silu")
"""Activations that are ours; the others call PyTorch's, and compile to the same."""
COMPILED_HALF = ("gelu", "gelu_tanh")
"""Activations that are compiled for bfloat16 too; each compilation takes seconds."""
TARGETS = (("gelu", "eager", 3.0), ("gelu", "compiled", 1.5), ("gelu_tanh", "eager", 1.0))
"""Activation, mode, and how many times PyTorch's forward and backward pass on a CPU ours may take, as this study set out."""


@dataclass(frozen=True)
class Key:
    """What was timed. `form` is pytorch, ours or engine; `mode` eager or compiled; `direction` forward or both."""

    activation: str
    form: str
    mode: str
    dtype: str
    size: int
    direction: str


def measure(device: torch.device, seconds: float = 100.0, compiled: bool = True) -> dict[str, Any]:
    """Measure everything and return it as strict JSON.

    `seconds` is about the time spent timing, in all; setting up, and compiling above all, comes on top (two minutes or so on two
    cores). `elements` holds nanoseconds an element, a value for each round; `kept` bytes an element kept for the backward pass;
    `block` milliseconds for forward and backward pass of a feed-forward block. On CUDA, times are taken with events. Inputs are
    standard normal. Raises `ConfigurationError` for seconds that are not positive.
    """
    if not seconds > 0:
        raise ConfigurationError(f"seconds is {seconds}; give a positive number")
    why = compiler_lacks(device) if compiled else "it was left out of this measurement"
    steps: dict[Key, Step] = {}
    kept = []
    for dtype in DTYPES:
        functions = _functions(dtype, compiled=not why)
        # the largest size first: the compiler takes its hints from the first input
        for size in reversed(SIZES):
            torch.manual_seed(size)
            x = torch.randn(size, device=device).to(DTYPES[dtype])
            gradient = torch.randn(size, device=device).to(DTYPES[dtype])
            for (activation, form, mode), function in functions.items():
                passes = {"forward": _forward(function, x, training=mode == "compiled"), "both": _both(function, x, gradient)}
                for direction, step in passes.items():
                    steps[Key(activation, form, mode, dtype, size, direction)] = step
            for activation in ENGINE:
                for direction in ("forward", "both"):
                    step = _engine(activation, x, gradient if direction == "both" else None)
                    steps[Key(activation, "engine", "eager", dtype, size, direction)] = step
        kept += [
            {"activation": activation, "form": form, "mode": mode, "dtype": dtype, **kept_bytes(function, device, DTYPES[dtype])}
            for (activation, form, mode), function in functions.items()
        ]
    blocks = _blocks(device)
    share = 0.15  # of the time, for the blocks
    per_entry = (1 - share) * seconds / ROUNDS / len(steps)
    per_block = share * seconds / ROUNDS / len(blocks)
    clocks = {key: _Clock(step, per_entry, device) for key, step in steps.items()}
    block_clocks = {key: _Clock(step, per_block, device) for key, step in blocks.items()}
    times: dict[Key, list[float]] = {key: [] for key in steps}
    block_times: dict[tuple[str, str], list[float]] = {key: [] for key in blocks}
    # forms of one activation stand side by side, so that what is compared is measured at nearly the same time
    order = sorted(steps, key=lambda key: (key.dtype, key.size, key.direction, key.activation, key.mode, key.form))
    for _ in range(ROUNDS):
        for key in order:
            times[key].append(_short(1e9 * clocks[key]() / key.size))
        for block, clock in block_clocks.items():
            block_times[block].append(_short(1e3 * clock()))
    return {
        "device": device.type,
        "threads": torch.get_num_threads(),
        "sizes": list(SIZES),
        "rounds": ROUNDS,
        "seconds": seconds,
        "compiled": {"available": not why, "why": why},
        "elements": [{**asdict(key), "nanoseconds": times[key]} for key in order],
        "kept": kept,
        "block": {
            **BLOCK,
            "rows": [{"activation": name, "form": form, "milliseconds": row} for (name, form), row in block_times.items()],
        },
    }


def compiler_lacks(device: torch.device) -> str:
    """Why `torch.compile` does not work here; nothing where it does."""
    torch._dynamo.reset()
    try:
        torch.compile(lambda x: torch.sin(x) * 2.5 + 1, fullgraph=True)(torch.ones(64, device=device))
    except Exception as error:  # of many types, by what is missing: a C++ compiler, Triton, headers
        return f"torch.compile failed with {type(error).__name__}; on a CPU it needs a C++ compiler"
    finally:
        torch._dynamo.reset()
    return ""


def kept_bytes(function: Function, device: torch.device, dtype: torch.dtype, size: int = 1 << 17) -> dict[str, float]:
    """Bytes an element that autograd keeps for the backward pass of a function, its input and output included if they are kept.

    `beyond_output` leaves the output's out, which a layer that follows keeps in any case. Tensors that share memory count once.
    """
    held: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        held[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    x = torch.randn(size, device=device).to(dtype).requires_grad_()
    with saved_tensors_hooks(pack, lambda tensor: tensor):
        y = function(x)
    total = sum(held.values())
    beyond = total - held.get(y.untyped_storage().data_ptr(), 0)
    return {"bytes": round(total / size, 3), "beyond_output": round(beyond / size, 3)}


def _functions(dtype: str, compiled: bool) -> dict[tuple[str, str, str], Function]:
    """The functions to time, by activation, form and mode."""
    found: dict[tuple[str, str, str], Function] = {}
    for name, own in PYTORCH.items():
        forms = {"pytorch": own, "ours": activations.get(name)}
        for form, function in forms.items():
            found[name, form, "eager"] = function
            wanted = (form == "pytorch" or name in OURS_COMPILED) and (dtype == "float32" or name in COMPILED_HALF)
            if compiled and wanted:
                # for sizes that vary: one compilation instead of three
                found[name, form, "compiled"] = torch.compile(function, dynamic=True, fullgraph=True)
    return found


def _forward(function: Function, x: Tensor, training: bool) -> Step:
    """The forward pass alone, without gradients; in training with what it keeps, since without would be a compilation more."""
    leaf = x.clone().requires_grad_(training)

    def step() -> object:
        with torch.set_grad_enabled(training):
            return function(leaf)

    return step


def _both(function: Function, x: Tensor, gradient: Tensor) -> Step:
    leaf = x.clone().requires_grad_()

    def step() -> object:
        return torch.autograd.grad(function(leaf), leaf, gradient)

    return step


def _engine(activation: str, x: Tensor, gradient: Tensor | None) -> Step:
    """Value and slope in one go, into memory that is there; with a gradient, its product with the slope too."""
    value, slope = torch.empty_like(x), torch.empty_like(x)

    def step() -> object:
        activations.value_and_slope_(activation, x, value, slope)
        return slope if gradient is None else slope.mul_(gradient)

    return step


def _blocks(device: torch.device) -> dict[tuple[str, str], Step]:
    """Forward and backward pass of a feed-forward block with each activation; with `identity` it has none."""
    torch.manual_seed(0)
    x = torch.randn(BLOCK["tokens"], BLOCK["d_model"], device=device, requires_grad=True)
    gradient = torch.randn(BLOCK["tokens"], BLOCK["d_model"], device=device)
    network = FeedForward(BLOCK["d_model"], BLOCK["hidden"], "identity").to(device)
    into, out_of = network.into, network.out_of
    wanted = [x, *network.parameters()]

    def step(function: Function) -> object:
        return torch.autograd.grad(out_of(function(into(x))), wanted, gradient)

    functions: dict[tuple[str, str], Function] = {("identity", "ours"): activations.identity}
    for name, own in PYTORCH.items():
        functions |= {(name, "pytorch"): own, (name, "ours"): activations.get(name)}
    return {key: partial(step, function) for key, function in functions.items()}


class _Clock:
    """Seconds that a call of a step takes: the median of some samples, each of as many calls as the time allows."""

    def __init__(self, step: Step, seconds: float, device: torch.device) -> None:
        self.step, self.device, self.calls = step, device, 1
        for _ in range(2):
            step()
        once = min(self._sample() for _ in range(2))
        self.samples = SAMPLES if SAMPLES * once < seconds else FEWEST_SAMPLES
        self.calls = max(1, min(1000, round(seconds / SAMPLES / once)))

    def __call__(self) -> float:
        self.step()  # what ran before has taken the caches
        return statistics.median(self._sample() for _ in range(self.samples))

    def _sample(self) -> float:
        if self.device.type == "cuda":
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            for _ in range(self.calls):
                self.step()
            end.record()
            end.synchronize()
            return float(begin.elapsed_time(end)) / 1e3 / self.calls
        self._synchronise()
        clock = time.perf_counter()
        for _ in range(self.calls):
            self.step()
        self._synchronise()
        return (time.perf_counter() - clock) / self.calls

    def _synchronise(self) -> None:
        if self.device.type == "mps":
            torch.mps.synchronize()


def _short(value: float) -> float:
    return float(f"{value:.4g}")


# What a measurement says


class Ratio(NamedTuple):
    """A ratio of times: its median over the rounds, and the least and greatest."""

    middle: float
    low: float
    high: float


def ratio_of(above: Sequence[float], below: Sequence[float]) -> Ratio:
    """The ratio of two lists of times that were measured in the same rounds."""
    ratios = [a / b for a, b in zip(above, below, strict=True)]
    return Ratio(statistics.median(ratios), min(ratios), max(ratios))


def times(result: dict[str, Any], **wanted: Any) -> list[float] | None:
    """Nanoseconds an element of each round for the fields of a `Key`, or None for what was not measured."""
    rows = [row for row in result["elements"] if all(row[name] == value for name, value in wanted.items())]
    if not rows:
        return None
    if len(rows) > 1:
        raise ConfigurationError(f"{len(rows)} entries of the measurement match {wanted}; name every field")
    values: list[float] = rows[0]["nanoseconds"]
    return values


def ratio(result: dict[str, Any], above: dict[str, Any], below: dict[str, Any], **common: Any) -> Ratio | None:
    """The ratio of two entries, or None where one was not measured."""
    a, b = times(result, **above, **common), times(result, **below, **common)
    return None if a is None or b is None else ratio_of(a, b)


def block_times(result: dict[str, Any], activation: str, form: str = "pytorch") -> list[float]:
    """Milliseconds of each round for the block with an activation."""
    values: list[float] = next(
        row["milliseconds"] for row in result["block"]["rows"] if (row["activation"], row["form"]) == (activation, form)
    )
    return values


def block_share(result: dict[str, Any], activation: str, form: str = "pytorch") -> Ratio:
    """The share of the block's time that goes when the activation is left out: median, least and greatest over the rounds."""
    over = ratio_of(block_times(result, "identity", "ours"), block_times(result, activation, form))
    return Ratio(1 - over.middle, 1 - over.high, 1 - over.low)


def kept_by(
    result: dict[str, Any], activation: str, form: str, mode: str = "eager", dtype: str = "float32"
) -> dict[str, float] | None:
    """The row of `kept` for an activation, or None for what was not measured."""
    fields = (activation, form, mode, dtype)
    return next(
        (row for row in result["kept"] if (row["activation"], row["form"], row["mode"], row["dtype"]) == fields),
        None,
    )


def compared(found: Ratio) -> str:
    """A ratio of times in words: "1.80 times as long (1.71 to 1.92)", which says so where the rounds do not agree."""
    undecided = ", undecided" if found.low <= 1 <= found.high else ""
    return f"{found.middle:.2f} times as long ({found.low:.2f} to {found.high:.2f}{undecided})"


# What the page shows

NOT_MEASURED = (
    "> **Not measured yet.** `gelu-study measure activation-cost` measures this machine, in about four minutes; or set "
    "`measure = True` in this notebook."
)


def load(measure_now: bool, seconds: float, compiled: bool, device: str) -> Measurement | None:
    """The project's measurement, or one taken here and now, which is kept nowhere."""
    if not measure_now:
        return measurements.read(NAME)
    return measurements.take(NAME, partial(measure, seconds=seconds, compiled=compiled), device)


def source(taken: Measurement | None) -> None:
    """Say what was measured, where, when and with what; or that nothing was."""
    if taken is None:
        pages.text(NOT_MEASURED)
        return
    made, result = taken.environment, taken.result
    compiled = "" if result["compiled"]["available"] else f" Nothing is compiled here: {result['compiled']['why']}."
    pages.text(
        f"Measured on {made['device_name']} ({made['device']}, {result['threads']} threads), {made['started'][:10]}, PyTorch "
        f"{made['torch']}, {result['rounds']} rounds.{compiled} On another machine the numbers are others: measure yours."
    )


def _shown(result: dict[str, Any], elements: int, dtype: str) -> None:
    if elements not in result["sizes"] or dtype not in DTYPES:
        sizes, dtypes = ", ".join(map(str, result["sizes"])), ", ".join(DTYPES)
        raise ConfigurationError(f"{elements} elements of {dtype} were not measured; there are {sizes}, and {dtypes}")


def answer(taken: Measurement | None, elements: int, dtype: str) -> None:
    """What each form costs, what the tanh form is worth, what exactness costs: in computed sentences."""
    if taken is None:
        return
    result = taken.result
    _shown(result, elements, dtype)
    pages.text("\n".join(f"- {line}" for line in answers(result, elements, dtype)))


def answers(result: dict[str, Any], elements: int, dtype: str) -> list[str]:
    """The sentences of `answer`."""
    where: dict[str, Any] = {"mode": "eager", "dtype": dtype, "size": elements, "direction": "both"}

    def cost(activation: str, form: str = "pytorch") -> str:
        values = times(result, activation=activation, form=form, **where)
        assert values is not None
        return f"{pages.number(statistics.median(values), 2)} ns"

    named = ("gelu", "gelu_tanh", "gelu_sigmoid", "silu", "relu", "elu")
    lines = [
        f"**What each form costs.** Forward and backward pass of PyTorch's own functions, {elements:,} elements of {dtype}, an "
        "element: "
        f"{', '.join(f'{cost(name)} for {activations.title(name)}' for name in named)}."
    ]
    tanh = _tanh_over_exact(result)
    words = [_word(found) for found in tanh.values()]
    sides = {"cheaper", "dearer"} & set(words)
    truth = {"cheaper": "holds here", "dearer": "does not hold here"}.get(
        "".join(sides), "holds in part" if sides else "stays undecided"
    )
    here = "; ".join(f"{mode} {compared(found)}" for (mode, *rest), found in tanh.items() if rest == [dtype, elements])
    tally = ", ".join(f"{word} in {words.count(word)}" for word in ("cheaper", "dearer", "undecided") if word in words)
    lines.append(
        f'**"Use tanh, it is cheaper"** {truth}. PyTorch\'s tanh form against its exact one, forward and backward: {here}. '
        f"Over all {len(words)} combinations of mode, dtype and size that were measured it is {tally}."
    )
    block = ratio_of(block_times(result, "gelu_tanh"), block_times(result, "gelu"))
    share, least = block_share(result, "gelu"), block_share(result, "relu")
    size = result["block"]
    lines.append(
        f"**In a feed-forward block** of {size['d_model']} → {size['hidden']} → {size['d_model']} with {size['tokens']} tokens "
        "in float32, "
        f"PyTorch's exact GELU is {_percent(share)} of forward and backward pass, ReLU {_percent(least)}. "
        f"With the tanh form the block takes {compared(block)} as with the exact one."
    )
    exact = ratio(result, {"form": "ours"}, {"form": "pytorch"}, activation="gelu", **where)
    ours, theirs = kept_by(result, "gelu", "ours", dtype=dtype), kept_by(result, "gelu", "pytorch", dtype=dtype)
    assert exact is not None and ours is not None and theirs is not None
    whole = ratio_of(block_times(result, "gelu", "ours"), block_times(result, "gelu"))
    how = "computes in float64 and " if result["device"] != "mps" else ""
    lines.append(
        f"**What exactness costs.** Our exact GELU {how}keeps the derivative beside its input: forward and "
        f"backward take {compared(exact)} as PyTorch's, and {ours['bytes']:g} bytes an element are kept instead of "
        f"{theirs['bytes']:g}. The whole block takes {compared(whole)}."
    )
    return [*lines, *_compiling(result, where)]


def _compiling(result: dict[str, Any], where: dict[str, Any]) -> list[str]:
    """What compiling a function by itself is worth, in a sentence, or nothing where nothing was compiled."""
    common = {**where, "form": "pytorch"}
    del common["mode"]
    found = {
        activations.title(name): over
        for name in PYTORCH
        if (over := ratio(result, {"mode": "compiled"}, {"mode": "eager"}, activation=name, **common)) is not None
    }
    if not found:
        return []
    slower = [f"{name} ({over.middle:.2g} times)" for name, over in found.items() if over.low > 1]
    faster = [f"{name} ({over.middle:.2g} times)" for name, over in found.items() if over.high < 1]
    return [
        f"**torch.compile** for an activation by itself, with nothing to fuse it with, makes PyTorch's own slower: "
        f"{', '.join(slower) or 'none'}; faster: {', '.join(faster) or 'none'}."
    ]


def _tanh_over_exact(result: dict[str, Any]) -> dict[tuple[str, str, int], Ratio]:
    found = {}
    for mode, dtype, size in itertools.product(("eager", "compiled"), DTYPES, result["sizes"]):
        common = {"form": "pytorch", "mode": mode, "dtype": dtype, "size": size, "direction": "both"}
        over = ratio(result, {"activation": "gelu_tanh"}, {"activation": "gelu"}, **common)
        if over is not None:
            found[mode, dtype, size] = over
    return found


def _word(found: Ratio) -> str:
    return "cheaper" if found.high < 1 else "dearer" if found.low > 1 else "undecided"


def _percent(share: Ratio) -> str:
    return f"{100 * share.middle:.0f} % ({100 * share.low:.0f} to {100 * share.high:.0f})"


def nanoseconds_table(taken: Measurement | None, elements: int, dtype: str) -> None:
    """Nanoseconds an element of every activation, PyTorch's and ours, with the ratio."""
    if taken is None:
        return
    _shown(taken.result, elements, dtype)
    pages.plain_table(nanoseconds(taken.result, elements, dtype))
    pages.text(
        f"Nanoseconds an element, forward and backward pass, {elements:,} elements of {dtype}: medians over the rounds. "
        "*Forward* is "
        "PyTorch's forward pass alone, without gradients. *Ours / PyTorch*: the ratio of times of the same round, median "
        "[least, greatest]. "
        "*Engine*: the kernels with which this study's networks are trained, value and slope in one go into memory that is "
        "there, and the "
        "product with the gradient. A dash: not measured."
    )


def nanoseconds(result: dict[str, Any], elements: int, dtype: str) -> pd.DataFrame:
    """The table of `nanoseconds_table`."""
    common: dict[str, Any] = {"dtype": dtype, "size": elements}

    def cell(**wanted: Any) -> str:
        values = times(result, **common, **wanted)
        return "–" if values is None else pages.number(statistics.median(values), 2)

    rows = []
    for name in PYTORCH:
        own = {"activation": name, "form": "pytorch", "mode": "eager"}
        over = ratio(result, {"form": "ours"}, {"form": "pytorch"}, activation=name, mode="eager", direction="both", **common)
        assert over is not None
        rows.append(
            {
                "activation": activations.title(name).replace(" ", "&nbsp;"),
                "forward": cell(direction="forward", **own),
                "both": cell(direction="both", **own),
                "compiled": cell(activation=name, form="pytorch", mode="compiled", direction="both"),
                "ours": cell(activation=name, form="ours", mode="eager", direction="both"),
                "ours / PyTorch": pages.interval(*over),
                "engine": cell(activation=name, form="engine", mode="eager", direction="both"),
            }
        )
    return pd.DataFrame(rows)


def targets_table(taken: Measurement | None) -> None:
    """The ratios that this study set out to keep to, as measured, met or not."""
    if taken is None:
        return
    if taken.result["device"] != "cpu":
        pages.text("The targets are about CPUs; this measurement is not.")
        return
    frame = targets(taken.result)
    pages.plain_table(frame)
    met = int((frame["met"] == "yes").sum())
    pages.text(f"{met} of {len(frame)} targets are met in this measurement: the median of the rounds decides, the range is shown.")


def targets(result: dict[str, Any]) -> pd.DataFrame:
    """The table of `targets_table`: forward and backward pass in float32 at each size."""
    rows = []
    for (activation, mode, most), size in itertools.product(TARGETS, result["sizes"]):
        common = {"activation": activation, "mode": mode, "dtype": "float32", "size": size, "direction": "both"}
        over = ratio(result, {"form": "ours"}, {"form": "pytorch"}, **common)
        rows.append(
            {
                "activation": activations.title(activation).replace(" ", "&nbsp;"),
                "mode": mode,
                "elements": f"{size:,}",
                "ours / PyTorch": "–" if over is None else pages.interval(*over),
                "target": f"at most {most:g}" if most > 1 else f"below {most:g}",
                "met": "not measured"
                if over is None
                else "yes"
                if (over.middle <= most if most > 1 else over.middle < most)
                else "no",
            }
        )
    return pd.DataFrame(rows)


def kept_table(taken: Measurement | None, dtype: str) -> None:
    """Bytes an element that are kept for the backward pass."""
    if taken is None:
        return
    pages.plain_table(kept(taken.result, dtype))
    pages.text(
        f"Bytes an element of {dtype} kept for the backward pass. In brackets, what is left when the output is not counted, "
        "which a "
        "layer that follows keeps in any case."
    )


def kept(result: dict[str, Any], dtype: str) -> pd.DataFrame:
    """The table of `kept_table`."""

    def cell(activation: str, form: str, mode: str) -> str:
        row = kept_by(result, activation, form, mode, dtype)
        return "–" if row is None else f"{row['bytes']:.3g} ({row['beyond_output']:.3g})"

    rows = [
        {
            "activation": activations.title(name).replace(" ", "&nbsp;"),
            "PyTorch": cell(name, "pytorch", "eager"),
            "PyTorch, compiled": cell(name, "pytorch", "compiled"),
            "ours": cell(name, "ours", "eager"),
            "ours, compiled": cell(name, "ours", "compiled"),
        }
        for name in PYTORCH
    ]
    return pd.DataFrame(rows)


FORMS = {"pytorch": ("o", "none", "PyTorch"), "ours": ("o", "full", "ours"), "engine": ("D", "full", "training engine")}
"""Marker, how it is filled, and the word for each form."""


def elements_figure(taken: Measurement | None, elements: int, dtype: str) -> None:
    """Nanoseconds an element, eager and compiled, all forms."""
    if taken is None:
        return
    _shown(taken.result, elements, dtype)
    pages.figure(
        draw_elements(taken.result, elements, dtype),
        "cost-elements",
        f"Nanoseconds an element for forward and backward pass of {len(PYTORCH)} activations, PyTorch's, ours and the training "
        "engine's",
        f"Forward and backward pass, {elements:,} elements of {dtype}: dots are medians over the rounds, lines reach from the "
        f"least to the greatest of {taken.result['rounds']} rounds: the further left, the cheaper. The axis is logarithmic. "
        + pages.measured(taken),
        [],
    )


@figures.typeset
def draw_elements(result: dict[str, Any], elements: int, dtype: str) -> Figure:
    """The figure of `elements_figure`: a panel for each mode that was measured."""
    modes = [
        mode for mode in ("eager", "compiled") if any(row["mode"] == mode and row["dtype"] == dtype for row in result["elements"])
    ]
    figure, axes = figures.panels(len(modes), height=0.7 + 0.36 * len(PYTORCH), sharex=True)
    for ax, mode in zip(axes, modes, strict=True):
        for place, name in enumerate(PYTORCH):
            for offset, (form, (marker, fill, _)) in zip((-0.2, 0.0, 0.2), FORMS.items(), strict=True):
                values = times(result, activation=name, form=form, mode=mode, dtype=dtype, size=elements, direction="both")
                if values is None:
                    continue
                colour = figures.STYLES[name][0]
                ax.plot([min(values), max(values)], [place + offset] * 2, color=colour, lw=1.6)
                ax.plot(
                    statistics.median(values),
                    place + offset,
                    marker,
                    color=colour,
                    mfc="white" if fill == "none" else colour,
                    ms=7,
                    mew=1.8,
                    gid=f"{name} {form} {mode}",
                )
        ax.set_yticks(range(len(PYTORCH)), [activations.title(name) for name in PYTORCH])
        ax.set_ylim(len(PYTORCH) - 0.5, -0.5)
        ax.tick_params(axis="y", length=0)
        ax.set_title({"eager": "Eager", "compiled": "With torch.compile"}[mode])
    for ax in axes:
        figures.log_axis(ax, "x")
    axes[-1].set_xlabel("nanoseconds an element")
    _forms_legend(figure, list(FORMS))
    return figure


def sizes_figure(taken: Measurement | None, dtype: str) -> None:
    """Nanoseconds an element over the number of elements."""
    if taken is None:
        return
    pages.figure(
        draw_sizes(taken.result, dtype),
        "cost-sizes",
        "Nanoseconds an element over the number of elements for the exact GELU, its tanh form and ReLU, PyTorch's and ours",
        f"The same over the number of elements, {dtype}, eager. Small tensors pay for the call. {pages.measured(taken)}",
        [],
    )


@figures.typeset
def draw_sizes(result: dict[str, Any], dtype: str) -> Figure:
    """The figure of `sizes_figure`."""
    names = ("gelu", "gelu_tanh", "relu")
    figure, axes = figures.panels(len(names), height=1.9, sharex=True)
    for ax, name in zip(axes, names, strict=True):
        for form, (marker, fill, _) in FORMS.items():
            rows = [
                times(result, activation=name, form=form, mode="eager", dtype=dtype, size=size, direction="both")
                for size in result["sizes"]
            ]
            values = [statistics.median(row) for row in rows if row is not None]
            colour = figures.STYLES[name][0]
            line = {"pytorch": (0, (5, 2)), "ours": "-", "engine": (0, (1, 1.5))}[form]
            face = "white" if fill == "none" else colour
            ax.plot(result["sizes"], values, marker, ls=line, color=colour, mfc=face, ms=7, mew=1.8, gid=f"{name} {form}")
        ax.set_title(activations.title(name))
        ax.set_ylabel("ns an element")
        ax.set_xscale("log", base=2)
        ax.set_xticks(result["sizes"], [f"{size:,}" for size in result["sizes"]])
        figures.log_axis(ax, "y")
    axes[-1].set_xlabel("elements")
    _forms_legend(figure, list(FORMS))
    return figure


def _forms_legend(figure: Figure, forms: Sequence[str]) -> None:
    handles = [
        Line2D(
            [],
            [],
            marker=FORMS[form][0],
            ls="",
            color="#444444",
            mfc="white" if FORMS[form][1] == "none" else "#444444",
            mew=1.8,
            ms=7,
        )
        for form in forms
    ]
    figure.legend(
        handles=handles, labels=[FORMS[form][2] for form in forms], loc="outside upper center", ncols=len(forms), frameon=False
    )


def block_figure(taken: Measurement | None) -> None:
    """Milliseconds of a feed-forward block with each activation, and without."""
    if taken is None:
        return
    size = taken.result["block"]
    pages.figure(
        draw_block(taken.result),
        "cost-block",
        f"Milliseconds for forward and backward pass of a feed-forward block with each of {len(PYTORCH)} activations, "
        "PyTorch's and ours",
        f"Forward and backward pass of a feed-forward block, {size['d_model']} → {size['hidden']} → {size['d_model']}, "
        f"{size['tokens']} tokens, float32, eager, median of {taken.result['rounds']} rounds. Grey: what the block takes "
        f"without an activation. Percentages: what is beyond it, as a share of the whole. {pages.measured(taken)}",
        [],
    )


@figures.typeset
def draw_block(result: dict[str, Any]) -> Figure:
    """The figure of `block_figure`."""
    figure, (ax,) = figures.panels(1, height=0.9 + 0.62 * len(PYTORCH))
    base = statistics.median(block_times(result, "identity", "ours"))
    longest = max(base / (1 - block_share(result, name, form).middle) for name in PYTORCH for form in ("pytorch", "ours"))
    for place, name in enumerate(PYTORCH):
        for offset, form in ((-0.2, "pytorch"), (0.2, "ours")):
            share = block_share(result, name, form)
            whole = base / (1 - share.middle)  # from ratios of one round, as the label, not from medians of different rounds
            colour = figures.STYLES[name][0]
            ax.barh(place + offset, min(base, whole), 0.34, color="#BBBBBB")
            ax.barh(
                place + offset,
                max(whole - base, 0),
                0.34,
                left=base,
                facecolor=colour if form == "ours" else "white",
                edgecolor=colour,
                lw=1.6,
                gid=f"{name} {form}",
            )
            ax.text(max(whole, base) + 0.015 * longest, place + offset, f"{100 * share.middle:.0f} %", va="center", fontsize=10.5)
    ax.set_yticks(range(len(PYTORCH)), [activations.title(name) for name in PYTORCH])
    ax.set_ylim(len(PYTORCH) - 0.5, -0.5)
    ax.set_xlim(0, longest * 1.12)
    ax.tick_params(axis="y", length=0)
    ax.set_xlabel("milliseconds")
    ax.grid(True, axis="x")
    _forms_legend(figure, ["pytorch", "ours"])
    return figure
