"""Paper against code, as far as runs can tell: one switch changed at a time, and what earlier epochs would have said.

Every comparison is paired by seed at the same learning rate; ratios are of the final training loss, differences of the test error
after the last epoch, since a run on all training images has no validation images to stop by. The rest of the chapter, which no run
decides, is in `paper_code`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from gelu_study import activations, figures, ledger, pages, protocols, published, statistics
from gelu_study.runs import RunConfig, RunRecord
from gelu_study.study import Study

CLASSIFIER = published.CLASSIFIER.experiment
SUBJECT = published.CLASSIFIER.subject
UNCHANGED = "as in this study"


@dataclass(frozen=True)
class Switch:
    """A departure that a field of the configuration turns: the values that it takes instead of this study's."""

    name: str
    changed: Mapping[str, Any]
    usual: Mapping[str, Any]

    def turned(self, config: RunConfig) -> bool:
        """Whether a run has it turned."""
        return all(getattr(config, field) == value for field, value in self.changed.items())

    def counterparts(self, config: RunConfig) -> list[str]:
        """Keys of the run that differs from this one in the switch alone, under each name that it may have been trained by."""
        return [
            dataclasses.replace(config, experiment=experiment, **self.usual).key for experiment in (CLASSIFIER, config.experiment)
        ]

    @property
    def setting(self) -> str:
        """As one writes it, in HTML."""
        return "<br>".join(f"<code>{field}={value!r}</code>" for field, value in self.changed.items())


def switches(found: Study) -> tuple[Switch, ...]:
    """The departures that are run on MNIST. `found` is of `mnist-departures`, whose grid has the usual split."""
    grid = protocols.grid(found.experiment, found.scale)
    return (
        Switch("exact form", {"activation": "gelu"}, {"activation": SUBJECT}),
        Switch("unit-norm outgoing", {"initialisation": "unit-norm-outgoing"}, {"initialisation": "unit-norm"}),
        Switch("PyTorch's epsilon", {"optimiser": "adam"}, {"optimiser": "adam-tensorflow"}),
        Switch(
            "all 60,000",
            {"train_examples": 60_000, "validation_examples": 0},
            {"train_examples": grid.train_examples, "validation_examples": grid.validation_examples},
        ),
    )


@dataclass(frozen=True)
class Turned:
    """The runs with a switch turned, and the same runs without it, at one activation, keep probability and learning rate."""

    switch: str
    activation: str
    keep_probability: float
    with_it: list[RunRecord]
    without: list[RunRecord]

    @property
    def keys(self) -> list[str]:
        """Of all its runs."""
        return [record.config.key for record in (*self.with_it, *self.without)]


def turned(found: Study, base: Study) -> list[Turned]:
    """Every setting of `found` (mnist-departures) with a run that has exactly one switch turned, beside its counterparts.

    Counterparts are taken from both studies' records; a run without one is left out.
    """
    known = {record.config.key: record for record in (*base.records, *found.records)}
    groups: dict[tuple[str, str, float, float], Turned] = {}
    every = switches(found)
    for record in found.records:
        config = record.config
        which = [switch for switch in every if switch.turned(config)]
        if len(which) != 1:
            continue
        match = next((known[key] for key in which[0].counterparts(config) if key in known), None)
        if match is None:
            continue
        place = (which[0].name, config.activation, config.keep_probability, config.learning_rate)
        group = groups.setdefault(place, Turned(which[0].name, config.activation, config.keep_probability, [], []))
        group.with_it.append(record)
        group.without.append(match)
    order = {switch.name: number for number, switch in enumerate(every)}
    shape = list(figures.STYLES)
    return sorted(groups.values(), key=lambda g: (order[g.switch], -g.keep_probability, shape.index(g.activation)))


def by_seed(records: Iterable[RunRecord], measure: str) -> pd.Series:
    """A final measure by seed, infinite where the run diverged. Raises `ConfigurationError` if the records mix recipes."""
    runs = list(records)
    statistics.refuse_mixture(ledger.table(runs))
    values = [record.final[measure] if record.status == "finished" else math.inf for record in runs]
    return pd.Series(values, index=pd.Index([record.config.seed for record in runs], dtype=int), dtype=float)


def difference(a: pd.Series, b: pd.Series) -> tuple[float, float, float]:
    """Median over common seeds of a - b, and its interval; seeds in which both are infinite are left out."""
    common = a.index.intersection(b.index)
    x, y = a[common].to_numpy(), b[common].to_numpy()
    kept = ~(np.isinf(x) & np.isinf(y))
    return statistics.median_interval(x[kept] - y[kept])


def effects(groups: Sequence[Turned]) -> pd.DataFrame:
    """What each switch does, a row for each group.

    Columns: switch, activation, keep_probability, n, ratio, low, high (training loss with the switch / without), p_value,
    p_equivalent (Holm over the rows), difference, difference_low, difference_high (test error with the switch less without, in
    points).
    """
    rows = []
    for group in groups:
        compared = statistics.compare(by_seed(group.with_it, "train_loss"), by_seed(group.without, "train_loss"))
        points = difference(by_seed(group.with_it, "test_error"), by_seed(group.without, "test_error"))
        ratio = dict(zip(("ratio", "low", "high"), np.exp((compared.median, compared.low, compared.high)), strict=True))
        rows.append(
            {"switch": group.switch, "activation": group.activation, "keep_probability": group.keep_probability, "n": compared.n}
            | {**ratio, "p_value": compared.p_value, "p_equivalent": compared.p_equivalent}
            | dict(zip(("difference", "difference_low", "difference_high"), points, strict=True))
        )
    columns = ["switch", "activation", "keep_probability", "n", "ratio", "low", "high", "p_value", "p_equivalent"]
    frame = pd.DataFrame(rows, columns=[*columns, "difference", "difference_low", "difference_high"])
    for name in ("p_value", "p_equivalent"):
        frame[name] = statistics.holm(frame[name])
    return frame


def finding(row: Mapping[str, Any]) -> str:
    """A row of `effects` in words. The same rule as for a verdict: equivalence first, then a difference, then neither."""
    title = activations.title(str(row["activation"]))
    who = f"{title}'s training loss {pages.condition(float(row['keep_probability']))}"
    if row["n"] < statistics.LEAST_SEEDS:
        seeds = f"{row['n']} common seed{'s' * (row['n'] != 1)}"
        return f"{who}: {seeds}, too few to tell"
    about = f"{pages.ratio(float(row['ratio']))} (95 % interval {pages.span(float(row['low']), float(row['high']))})"
    if row["p_equivalent"] < statistics.SIGNIFICANCE:
        return f"{who} is the same within {100 * statistics.MARGIN:g} %: {about}"
    if row["p_value"] < statistics.SIGNIFICANCE:
        return f"{who} changes: {about}"
    return f"{who}: no change can be shown, nor its absence; {about}"


def state(found: Study, switch: Switch) -> tuple[int, int]:
    """Runs that have the switch turned: with a record, and planned."""
    return (
        sum(switch.turned(record.config) for record in found.records),
        sum(switch.turned(config) for config in found.planned),
    )


def answer(found: Study, base: Study) -> None:
    """How many of the switches were run, and what each does."""
    lines: list[str] = []
    groups = turned(found, base)
    frame = effects(groups)
    for switch in switches(found):
        done, planned = state(found, switch)
        if not planned:
            continue
        rows = frame[frame["switch"] == switch.name]
        if not done:
            lines.append(f"- **{switch.name}**: not run yet (0 of {planned} runs).")
        elif rows.empty:
            lines.append(f"- **{switch.name}**: {done} of {planned} runs, none with a counterpart to compare with yet.")
        else:
            told = "; ".join(finding(row) for row in rows.to_dict("records"))
            lines.append(f"- **{switch.name}** ({done} of {planned} runs): {told}.")
    if not any(state(found, switch)[0] for switch in switches(found)):
        runs = sum(state(found, switch)[1] for switch in switches(found))
        pages.text(
            f"> **Not run yet.** None of the {runs} runs with a switch turned has a record. "
            f"`make reproduce EXPERIMENT={found.experiment} SCALE={found.scale}` trains them. What follows is computed from the "
            "unchanged runs, or needs none."
        )
    if told := headline(frame):
        lines = [told, "", *lines]
    pages.text("\n".join(lines))
    pages.records("departures-answer", [key for group in groups for key in group.keys])


def headline(frame: pd.DataFrame) -> str:
    """Whether any departure that was tried changes a training loss, in a sentence; empty where none has enough seeds."""
    enough = frame[frame["n"] >= statistics.LEAST_SEEDS]
    if enough.empty:
        return ""
    same = enough["p_equivalent"] < statistics.SIGNIFICANCE
    changed = enough[~same & (enough["p_value"] < statistics.SIGNIFICANCE)]
    names = list(dict.fromkeys(changed["switch"]))
    begin = f"**It does for {', '.join(names)}.**" if names else "**Of those that were tried, none is shown to matter.**"
    open_ = len(enough) - int(same.sum()) - len(changed)
    counts = f"a change in {len(changed)}, sameness within {100 * statistics.MARGIN:g} % in {int(same.sum())}, neither in {open_}"
    return f"{begin} In {len(enough)} comparisons of training losses, with a departure and without, the seeds show {counts}."


def effects_shown(found: Study, base: Study) -> None:
    """What each switch does to training loss and test error, as figure and table; a sentence while there are no runs."""
    groups = turned(found, base)
    if not groups:
        pages.text("These runs are not there yet, so there is nothing to compare.")
        return
    frame = effects(groups)
    keys = [key for group in groups for key in group.keys]
    runs = ledger.table({record.config.key: record for group in groups for record in (*group.with_it, *group.without)}.values())
    sentence = (
        "Final training loss with a switch turned as a multiple of the same runs without it, with 95 % intervals: one that holds 1 "
        "shows no change, one within the grey band shows sameness."
    )
    alt = f"Ratio of training losses with and without each switch. {headline(frame).replace('**', '')}"
    pages.figure(draw_effects(frame), "departures-effects", alt, figures.caption(runs, found.scale, sentence), keys)
    shown = [
        {
            "switch": str(row["switch"]).replace(" ", "&nbsp;"),
            "activation": f"{_title(row['activation'])}, {_briefly(row['keep_probability'])}",
            "training loss, ratio": pages.interval(row["ratio"], row["low"], row["high"]),
            "test error, points": _points(row["difference"], row["difference_low"], row["difference_high"]),
            "p": _p(row["p_value"]),
            "seeds": str(row["n"]),
        }
        for row in frame.to_dict("records")
    ]
    caption = (
        "With the switch turned, against the same seeds without it: median of the ratio of final training losses and of the "
        "difference in test error after the last epoch, with 95 % intervals. <i>p</i>: of no change in training loss, adjusted for "
        "several comparisons."
    )
    pages.table(pd.DataFrame(shown), "departures-table", caption, keys)


@figures.typeset
def draw_effects(frame: pd.DataFrame) -> Figure:
    """A forest plot of `effects`, the margin of equivalence as a grey band; the axis is logarithmic."""
    drawn, (ax,) = figures.panels(1, height=1.3 + 0.55 * len(frame))
    margin = statistics.MARGIN
    ax.axvspan(1 / (1 + margin), 1 + margin, color="#CCCCCC", alpha=0.8, lw=0)
    ax.axvline(1, color="#555555", lw=1)
    numbers = frame[["ratio", "low", "high"]].to_numpy(dtype=float)
    usable = numbers[np.isfinite(numbers) & (numbers > 0)]
    left, right = min([0.85, *(usable / 1.1)]), max([1.18, *(usable * 1.1)])
    ax.set_xlim(left, right)
    for place, row in enumerate(frame.to_dict("records")):
        colour, _, marker = figures.STYLES[row["activation"]]
        if not math.isnan(row["low"]):
            ends = [min(max(float(row[end]), left), right) for end in ("low", "high")]
            ax.plot(ends, [place] * 2, color=colour, lw=2.4, solid_capstyle="butt")
        inside = min(max(float(row["ratio"]), left), right)
        gid = f"{row['switch']} {row['activation']} {row['keep_probability']:g}"
        ax.plot(inside, place, ">" if row["ratio"] > right else marker, color=colour, ms=8, clip_on=False, gid=gid)
    labels = [
        f"{activations.title(row['activation'])}, {_briefly(row['keep_probability'])}\n{row['switch']}"
        for row in frame.to_dict("records")
    ]
    ax.set_yticks(range(len(frame)), labels)
    ax.set_ylim(len(frame) - 0.4, -0.6)
    ax.tick_params(axis="y", length=0)
    figures.log_axis(ax, "x")
    ax.set_xlabel("training loss with the switch / without")
    handles = [
        Line2D([], [], marker="o", color="#444444", lw=2.4, label="median, 95 % interval"),
        Patch(color="#CCCCCC", label=f"within {100 * margin:g} %"),
    ]
    drawn.legend(handles=handles, loc="outside upper center", ncols=2, frameon=False)
    return drawn


def claims_under(groups: Sequence[Turned], records: Iterable[RunRecord]) -> pd.DataFrame:
    """GELU's training loss / each rival's, with each switch turned and without, over the seeds that the turned runs have.

    `records` hold the rivals' runs; those of a switch of GELU's own form are the unchanged ones. Columns: keep_probability, rival,
    switch, n, ratio, low, high, verdict (of the one comparison).
    """
    known = {record.config.key: record for record in records}

    def rivals(runs: Iterable[RunRecord], rival: str) -> list[RunRecord]:
        configs = [dataclasses.replace(record.config, activation=rival) for record in runs]
        return [known[config.key] for config in configs if config.key in known]

    rows = []
    ours = [group for group in groups if group.activation in (SUBJECT, "gelu")]
    for keep in sorted({group.keep_probability for group in ours}, reverse=True):
        here = [group for group in ours if group.keep_probability == keep]
        for rival in published.CLASSIFIER.rivals:
            unchanged = {record.config.key: record for group in here for record in group.without}.values()
            sides = [(UNCHANGED, list(unchanged), rivals(unchanged, rival))]
            for group in here:
                of_rivals = group.without if group.activation == "gelu" else group.with_it
                sides.append((group.switch, group.with_it, rivals(of_rivals, rival)))
            for switch, mine, theirs in sides:
                compared = statistics.compare(by_seed(mine, "train_loss"), by_seed(theirs, "train_loss"))
                if compared.n:
                    ratio = dict(zip(("ratio", "low", "high"), np.exp((compared.median, compared.low, compared.high)), strict=True))
                    row = {"keep_probability": keep, "rival": rival, "switch": switch, "n": compared.n}
                    rows.append({**row, **ratio, "verdict": compared.verdict()})
    return pd.DataFrame(rows, columns=["keep_probability", "rival", "switch", "n", "ratio", "low", "high", "verdict"])


def claims_shown(found: Study, base: Study) -> None:
    """Whether the claim's comparisons come out the same with each switch turned; nothing while there are no runs."""
    groups = turned(found, base)
    records = (*base.records, *found.records)
    frame = claims_under(groups, records)
    if frame.empty:
        return
    pages.text(
        "A switch may change every activation's loss alike, and then it changes no comparison. So here is the paper's claim with "
        "each switch turned."
    )
    rows = [
        {
            "GELU against": f"{_title(row['rival'])}, {_briefly(row['keep_probability'])}",
            "switch": row["switch"],
            "training loss, ratio": pages.interval(row["ratio"], row["low"], row["high"]),
            "alone": pages.badge(row["verdict"]),
            "seeds": str(row["n"]),
        }
        for row in frame.to_dict("records")
    ]
    caption = (
        "GELU's final training loss as a multiple of its rival's, below 1 where GELU is better, over the seeds that the runs with "
        "a switch turned have. <i>Alone</i>: the verdict's rule on that comparison by itself, not adjusted for the others."
    )
    pages.table(pd.DataFrame(rows), "departures-claims", caption, [key for group in groups for key in group.keys])
    usual = frame[frame["switch"] == UNCHANGED].set_index(["keep_probability", "rival"])["verdict"]
    others = frame[frame["switch"] != UNCHANGED]
    changed = [
        f"against {activations.title(row['rival'])} {pages.condition(row['keep_probability'])} with *{row['switch']}*, "
        f"{usual.get((row['keep_probability'], row['rival']))} becomes {row['verdict']}"
        for row in others.to_dict("records")
        if usual.get((row["keep_probability"], row["rival"]), row["verdict"]) != row["verdict"]
    ]
    if changed:
        said = f"A comparison that comes out otherwise with a switch turned: {'; '.join(changed)}."
        pages.text(f"{said} On {frame['n'].min()} seeds a verdict may also turn by chance.")
    elif len(others) and len(usual):
        pages.text("No comparison that can be made both ways comes out otherwise with a switch turned.")


def provenance(found: Study, base: Study, repository: str = "") -> None:
    """What is behind the page: the unchanged runs, and those of the switches if there are any."""
    if any(state(found, switch)[0] for switch in switches(found)):
        pages.text("The runs with a switch turned, and the same seeds without it:")
        pages.provenance(found, repository)
    if base.records:
        pages.text("The unchanged runs that curves and measures are read off:")
        pages.provenance(base, repository)


def _title(name: str) -> str:
    return activations.title(name).replace(" ", "&nbsp;")


def _briefly(keep: float) -> str:
    return "no dropout" if keep == 1 else f"keep {keep:g}"


def _points(middle: float, low: float, high: float) -> str:
    def write(value: float) -> str:
        return "∞" if math.isinf(value) else f"{value:+.2f}".replace("-", "−")

    if math.isnan(middle):
        return "–"
    around = "" if math.isnan(low) else f' <span class="study-interval">[{write(low)}, {write(high)}]</span>'
    return f'<span class="study-value">{write(middle)}{around}</span>'


def _p(value: float) -> str:
    return "–" if math.isnan(value) else "&lt;&nbsp;0.001" if value < 0.001 else f"{value:.3f}"
