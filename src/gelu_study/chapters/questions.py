"""Answers to the questions people ask about GELU, each from this book's own computations, runs and measurements."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pandas as pd
import torch
from scipy import integrate, stats

from gelu_study import activations, measurements, pages, published, statistics
from gelu_study.chapters import cost, definition, swaps
from gelu_study.study import Study

FORMS = ("gelu", "gelu_tanh", "gelu_sigmoid", "silu", "relu")
SWAPS = "activation-swaps"


def value(name: str, x: float) -> float:
    """f(x) in float64."""
    return float(activations.get(name)(torch.tensor(x, dtype=torch.float64)))


def expected(name: str, of: Callable[[float, float], float]) -> float:
    """The expectation of of(f(z), z) for z ~ N(0, 1), by quadrature on both sides of 0."""
    parts = [
        integrate.quad(lambda z: of(value(name, z), z) * stats.norm.pdf(z), *ends, limit=200)[0] for ends in ((-12, 0), (0, 12))
    ]
    return float(sum(parts))


def greatest_difference(name: str) -> tuple[float, float]:
    """The greatest |f(x) - GELU(x)| and the |x| where it is, in float64; both are the same on either side."""
    place, gap = definition.extreme(partial(definition.apart, name), 0, 12)
    return gap, place


def against_relu() -> None:
    """GELU beside ReLU, in numbers."""
    slope = statistics_of_gate()
    gap, at = greatest_difference("relu")
    pages.text(
        "Both pass a large positive input as it is and stop a large negative one. ReLU decides by the sign; GELU weighs the input "
        "by Φ(x), the probability that a standard normal variable is smaller. "
        f"For standard normal inputs ReLU is exactly 0 half of the time and GELU practically never; the lowest value it "
        f"passes is {_signed(slope['minimum'])}, at x = {_signed(slope['at'], 2)}. The two curves are never further apart than "
        f"{gap:.3f}, at |x| = {at:.2f}. The mean output is {expected('relu', lambda f, z: f):.3f} for ReLU and "
        f"{expected('gelu', lambda f, z: f):.3f} for GELU, the mean square {expected('relu', lambda f, z: f * f):.3f} and "
        f"{expected('gelu', lambda f, z: f * f):.3f}: a signal fades faster through GELU, which is why initialisation matters in "
        "a comparison. ReLU's derivative jumps from 0 to 1; GELU's is smooth, dips to "
        f"{_signed(slope['least'])} and overshoots to {slope['most']:.3f}."
    )


def _signed(value: float, decimals: int = 3) -> str:
    """With a proper minus sign: formulas in outputs are not typeset."""
    return f"{value:.{decimals}f}".replace("-", "−")


def statistics_of_gate() -> dict[str, float]:
    """GELU's minimum and where it is, and the least and greatest slope."""
    place, least = definition.minimum("gelu")
    steepest = definition.extreme(lambda x: definition.curves("gelu", x).slope, 0, 6)[1]
    lowest = definition.extreme(lambda x: -definition.curves("gelu", x).slope, -6, 0)[1]
    return {"minimum": least, "at": place, "least": -lowest, "most": steepest}


def better(found: Study) -> None:
    """The verdicts by training loss, and what is left of the difference in test error."""
    if not found.records:
        pages.text("No run has a record yet, so this book cannot say.")
        return
    lines = pages.answer_lines(statistics.verdicts(found.table, choice=found.chosen), published.CLASSIFIER)
    pages.text("\n".join(lines))
    if not found.chosen:
        return
    pages.records(f"{found.experiment}-answer", statistics.at_choice(found.table, found.chosen)["key"])
    summary = statistics.summary(statistics.at_choice(found.table, found.chosen), ["best_test_error"])
    rows = []
    for keep, cell in summary.groupby("keep_probability", sort=False):
        listed = ", ".join(
            f"{activations.title(str(row.activation))} {row.best_test_error:.2f} % "
            f"[{row.best_test_error_low:.2f}, {row.best_test_error_high:.2f}]"
            for row in cell.sort_values("best_test_error").itertuples()
        )
        rows.append(f"- {pages.condition(float(keep)).capitalize()}: {listed}.")
    pages.text(
        "Training loss is what the paper's claim is about. Test error at the epoch of best validation loss, which is what a user "
        "gets, from best to worst (median over seeds, 95 % interval):\n\n" + "\n".join(rows)
    )
    compared = statistics.comparisons(found.table, "best_test_error", choice=found.chosen)
    level = [
        f"{activations.title(str(row.rival))} {pages.condition(float(row.keep_probability))} (p = {row.p_value:.2f})"
        for row in compared.itertuples()
        if row.p_value >= statistics.SIGNIFICANCE
    ]
    if level:
        pages.text(f"By test error, {found.table['seed'].nunique()} seeds do not tell GELU apart from {', nor from '.join(level)}.")


def which_form() -> None:
    """How far the forms are from exact, in sentences."""
    rows = []
    for name in FORMS[1:]:
        gap, at = greatest_difference(name)
        title = activations.title(name).replace(" ", "&nbsp;")
        rows.append({"form": title, "greatest difference": pages.number(gap), "at |x|": f"{at:.3f}"})
    pages.table(pd.DataFrame(rows), "questions-forms", "The greatest difference of each form from exact GELU, over all x.", [])
    tanh, _ = greatest_difference("gelu_tanh")
    sigmoid, _ = greatest_difference("gelu_sigmoid")
    pages.text(
        f"Whichever form the weights were trained with. The tanh form is within {tanh:.1e} of exact everywhere, which is below "
        f"the rounding of bfloat16 for values beyond {2 * tanh / torch.finfo(torch.bfloat16).eps:.2f}; the sigmoid form is off "
        f"by up to {sigmoid:.1e}, which is {sigmoid / tanh:.0f} times as much."
    )


def swapping() -> None:
    """What happens to a trained network whose activation is swapped: a table, and sentences from it."""
    taken = measurements.read(SWAPS)
    if taken is None:
        pages.text(f"> **Not measured yet.** `gelu-study measure {SWAPS}` trains the networks, in about ten minutes.")
        return
    rows = taken.result["rows"]
    tables = {name: swaps.medians(rows, name) for name in ("error", "changed", "difference")}
    error = tables["error"]
    shown = []
    for trained in error.index:
        line = {"trained with": activations.title(trained).replace(" ", "&nbsp;")}
        for evaluated in error.columns:
            cell = f"{error.loc[trained, evaluated]:.2f}"
            if trained == evaluated:
                cell = f"<b>{cell}</b>"
            line[activations.title(evaluated)] = cell
        shown.append(line)
    seeds = len({row["seed"] for row in rows})
    pages.table(
        pd.DataFrame(shown),
        "questions-swaps",
        f"Test error in percent of the paper's MNIST classifier, trained with the row's activation and evaluated with the "
        f"column's; median over {seeds} seeds, {taken.result['epochs']} epochs, no dropout; bold is without a swap. "
        + pages.measured(taken),
        [],
    )
    pages.text(swap_sentences(tables))


def swap_sentences(tables: dict[str, pd.DataFrame]) -> str:
    """What the medians over seeds say, in the words of someone who has weights to load."""
    error, changed, difference = (tables[name] for name in ("error", "changed", "difference"))

    def pair(one: str, other: str) -> str:
        worse = error.loc[one, other] - error.loc[one, one]
        return (
            f"{activations.title(one)} to {activations.title(other)} moves the logits by {100 * difference.loc[one, other]:.2g} % "
            f"of their spread and changes {changed.loc[one, other]:.2g} % of the predicted classes; the error goes "
            f"{'up' if worse > 0 else 'down' if worse < 0 else 'neither up nor down'}"
            + (f" by {abs(worse):.2g} points" if worse else "")
        )

    lines = [pair("gelu", "gelu_tanh"), pair("gelu", "gelu_sigmoid"), pair("gelu", "silu"), pair("gelu", "relu")]
    return "\n".join(f"- {line[0].upper()}{line[1:]}." for line in lines)


def when_relu(found: Study) -> None:
    """Where the runs and the measured cost leave ReLU ahead, or level."""
    lines = []
    if found.chosen:
        rows = statistics.verdicts(found.table, choice=found.chosen).iloc[:-1].query("rival == 'relu'")
        level = rows[rows["verdict"] != statistics.REPRODUCED]
        for row in level.itertuples():
            lines.append(
                f"Where training decides nothing: {pages.condition(float(row.keep_probability))}, GELU's training loss is "
                f"{pages.against(float(row.measured), 'ReLU')} on {row.n} pairs of runs, and the verdict is *{row.verdict}*."
            )
        if level.empty:
            lines.append("Not by training loss on this network: there GELU is ahead in every comparison.")
    taken = measurements.read(cost.NAME)
    if taken is None:
        lines.append(f"What ReLU saves in time has not been measured yet (`gelu-study measure {cost.NAME}`).")
    else:
        block = cost.ratio_of(cost.block_times(taken.result, "gelu"), cost.block_times(taken.result, "relu"))
        kept = [cost.kept_by(taken.result, name, "pytorch") for name in ("relu", "gelu")]
        assert kept[0] is not None and kept[1] is not None
        middle = f"a feed-forward block with PyTorch's exact GELU takes {cost.compared(block)} as one with ReLU"
        where = f"as measured on {taken.environment['device_name']}"
        time = "Where time counts" if block.low > 1 else "Where time counts it hardly matters"
        lines.append(f"{time}: {middle}, {where}.")
        lines.append(
            "Where memory counts: beside its output, ReLU keeps "
            f"{kept[0]['beyond_output']:g} bytes an element for the backward pass, PyTorch's GELU {kept[1]['beyond_output']:g}."
        )
    lines.append(
        "Where zeros are wanted: ReLU's output is exactly 0 for half of standard normal inputs, which can be skipped; "
        f"GELU's is below 0.01 in size for only {100 * _small('gelu', 0.01):.1f} %."
    )
    pages.text("\n".join(f"- {line}" for line in lines))


def _small(name: str, bound: float) -> float:
    """The probability that |f(z)| < bound for z ~ N(0, 1)."""
    edges = torch.linspace(-12, 12, 2_000_001, dtype=torch.float64)
    inside = (activations.get(name)(edges).abs() < bound).numpy()
    return float((stats.norm.pdf(edges.numpy()) * inside).sum() * (edges[1] - edges[0]))
