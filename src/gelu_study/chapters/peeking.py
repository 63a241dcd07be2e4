"""What peeking buys: the same runs scored honestly and as papers often do, in percent of the test set.

`scoring` has the calculation; this module shows it. Every sentence is computed from the records that it speaks of.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from gelu_study import activations, figures, ledger, pages, protocols, study
from gelu_study.chapters import scoring
from gelu_study.chapters.scoring import Array, Scores, Way
from gelu_study.study import Study

OTHERS = ("mnist-soi",)
"""Experiments other than the classifier whose runs are scored in the same ways, once they have records."""


@dataclass(frozen=True)
class Scored:
    """An experiment's runs, and their scores for each keep probability; None as a key lets the scoring choose it."""

    found: Study
    runs: pd.DataFrame  # `scoring.per_run`
    scores: dict[float | None, Scores]
    best_of: int

    @property
    def shown(self) -> dict[float | None, Scores]:
        """The scores without those that a choice of dropout leaves as they are at a fixed keep probability."""
        return {keep: scores for keep, scores in self.scores.items() if keep is not None or self.fixed() is None}

    def fixed(self) -> float | None:
        """The keep probability at which every choice of dropout ends, whatever chooses; None if there are several."""
        chosen = self.scores.get(None)
        ends = {keep for choices in chosen.choices.values() for keep, _ in choices} if chosen else set()
        same = len(ends) == 1 and chosen is not None and (at := self.scores.get(min(ends))) is not None and at.names == chosen.names
        return min(ends) if same else None

    @property
    def left_out(self) -> list[str]:
        """Planned activations, each with its keep probability, that cannot be scored yet."""
        planned = dict.fromkeys((config.activation, config.keep_probability) for config in self.found.planned)
        done = {(name, keep) for keep, scores in self.scores.items() for name in scores.names}
        return [f"{activations.title(name)} {pages.condition(keep)}" for name, keep in planned if (name, keep) not in done]

    @property
    def keys(self) -> list[str]:
        """Of the runs that are scored."""
        return sorted({key for scores in self.scores.values() for key in scores.keys})

    @property
    def table(self) -> pd.DataFrame:
        """The run table of those runs."""
        keys = set(self.keys)
        return ledger.table([record for record in self.found.records if record.config.key in keys])


def scored(found: Study, best_of: int = 5, draws: int = 4_999) -> Scored:
    """Score a study's runs at each keep probability, and with the keep probability chosen too where there are several."""
    runs = scoring.per_run(found.records)
    keeps: list[float | None] = [float(keep) for keep in sorted(runs["keep_probability"].unique(), reverse=True)]
    cells = {
        keep: scoring.score(runs, keep, best_of=best_of, draws=draws) for keep in [*keeps, *([None] if len(keeps) > 1 else [])]
    }
    return Scored(found, runs, {keep: scores for keep, scores in cells.items() if scores is not None}, best_of)


def ways_table(best_of: int) -> None:
    """The ways of scoring, and which of them let test data choose."""
    rows = [
        {"called": way.name, "epoch of each run": _epoch(way), "learning rate": _rate(way), "reported": _reported(way, best_of)}
        | {"honest": "yes" if way.honest else "no"}
        for way in scoring.WAYS
    ]
    pages.plain_table(pd.DataFrame(rows))


def _epoch(way: Way) -> str:
    least = {
        scoring.LOSS: "least validation loss",
        scoring.ERROR: "least validation error",
        scoring.TEST: "<b>least test error</b>",
    }
    return least.get(way.epoch, "the last")


def _rate(way: Way) -> str:
    names = {scoring.LOSS: "validation loss", scoring.ERROR: "validation error", scoring.TEST: "<b>test error</b>"}
    return names[way.setting]


def _reported(way: Way, best_of: int) -> str:
    return f"<b>the best of {best_of} seeds</b>" if way.best_of_seeds else "median over seeds"


# The answer


def answer(chapter: Scored) -> None:
    """What each look at test data buys, and what becomes of the ranking: a few sentences for each keep probability."""
    if not chapter.scores:
        pages.text("No learning rate can be chosen while the grid of learning rates is incomplete, so nothing can be scored yet.")
        return
    pages.text("\n\n".join(answer_lines(chapter)).replace(" %", "\u00a0%"))
    pages.records(f"peeking-answer-{chapter.found.experiment}", chapter.keys)


def answer_lines(chapter: Scored) -> list[str]:
    """`answer` as paragraphs of Markdown."""
    lines = []
    for keep, scores in chapter.shown.items():
        findings = _findings(scores, chapter.best_of)
        lines.append("\n".join([f"**{setting(keep)}{_headline(scores)}**", "", *(f"- {line}" for line in findings)]))
    if (fixed := chapter.fixed()) is not None:
        lines.append(
            f"**Dropout chosen too.** Whatever chooses the keep probability, validation or test, it is {fixed:g} for every "
            f"activation: the scores are those {pages.condition(fixed)}."
        )
    if left_out := chapter.left_out:
        lines.append(f"Left out while the grid of learning rates is incomplete: {', '.join(left_out)}.")
    return lines


def _headline(scores: Scores) -> str:
    """What test data alone buy, beside what separates the activations; empty where nothing can be compared."""
    bought = scores.gains(scoring.TEST_EPOCH, scoring.BY_ERROR)[:, 0]
    widest = float(np.ptp(scores.errors[scoring.HONEST][:, 0])) if np.isfinite(scores.errors[scoring.HONEST][:, 0]).all() else 0.0
    if len(bought) < 2 or widest == 0 or not np.isfinite(bought).all():
        return ""
    size = "more than" if bought.min() > widest else "less than" if bought.max() < widest else "about as much as"
    return f": picking the epoch on test data buys {size} what separates the best activation from the worst"


def _findings(scores: Scores, best_of: int) -> list[str]:
    honest = scores.errors[scoring.HONEST][:, 0]
    listed = ", ".join(f"{activations.title(name)} {value:.2f} %" for name, value in zip(scores.names, honest, strict=True))
    said = f"Scored honestly, by validation loss: {listed}"
    if len(honest) > 1 and np.isfinite(honest).all():
        said += f". Best and worst are {float(np.ptp(honest)):.2f} points apart"
    lines = [
        f"{said}.",
        f"Reporting the epoch of least test error makes it {lower(scores.gains(scoring.TEST_EPOCH)[:, 0])}. Choosing the epoch by "
        f"validation *error* is honest, and makes it {lower(scores.gains(scoring.BY_ERROR)[:, 0])}. So test data alone make it "
        f"{lower(scores.gains(scoring.TEST_EPOCH, scoring.BY_ERROR)[:, 0])}.",
    ]
    same = [a == b for a, b in zip(scores.choices[scoring.TEST_RATE], scores.choices[scoring.HONEST], strict=True)]
    if all(same):
        lines.append("Choosing the learning rate on test data buys nothing: they choose the one that validation chooses.")
    else:
        others = [activations.title(name) for name, is_same in zip(scores.names, same, strict=True) if not is_same]
        gained = scores.gains(scoring.TEST_RATE)[~np.array(same), 0]
        lines.append(f"Choosing the setting on test data changes it for {listed_and(others)}, which makes it {lower(gained)}.")
    lines.append(
        f"Reporting the best of {best_of} seeds makes it {lower(scores.gains(scoring.BEST_SEED)[:, 0])}; everything together "
        f"{lower(scores.gains(scoring.ALL_PEEKS)[:, 0])}."
    )
    if len(scores.names) > 1:
        orders = [_order(scores.ranking(way)) for way in (scoring.HONEST, scoring.TEST_EPOCH)]
        turned, unsettled = (float(draws[1:].mean()) for draws in (scores.reversed(scoring.TEST_EPOCH), scores.unstable()))
        chance = 1 - 1 / math.factorial(len(scores.names))
        said = f"The ranking is {orders[0]} by validation loss"
        said += " and by the least test error." if orders[0] == orders[1] else f", and {orders[1]} by the least test error."
        if turned == unsettled == 0:
            said += " No draw of seeds has another one, in either way."
        else:
            said += (
                f" At least two activations change places between the two in {turned:.0%} of the draws of seeds. But the honest "
                f"ranking of a draw is not that of all {len(scores.seeds)} seeds either, in {unsettled:.0%} of them; a ranking "
                f"by lot would differ in {chance:.0%}."
            ).replace("%", " %")
        lines.append(said)
    return lines


def lower(gains: Array) -> str:
    """Gains of several activations in words: "0.44 to 0.55 points lower"."""
    finite = gains[np.isfinite(gains)]
    if not len(finite):
        return "not comparable"
    low, high = sorted((round(float(finite.min()), 2), round(float(finite.max()), 2)))
    if low == high:
        return "neither lower nor higher" if low == 0 else f"{abs(low):.2f} points {'lower' if low > 0 else 'higher'}"
    if low < 0 < high:
        return f"something between {-low:.2f} points higher and {high:.2f} lower"
    word = "lower" if low >= 0 else "higher"
    ends = sorted((abs(low), abs(high)))
    if ends[0] == 0:
        return f"up to {ends[1]:.2f} points {word}"
    return f"{ends[0]:.2f} to {ends[1]:.2f} points {word}"


def _order(ranking: Sequence[Sequence[str]]) -> str:
    return ", ".join(" and ".join(activations.title(name) for name in tied) for tied in ranking)


def _share(draws: Array) -> str:
    return f"{100 * float(draws[1:].mean()):.0f} %"


def setting(keep: float | None) -> str:
    return "With the dropout chosen too" if keep is None else pages.condition(keep).capitalize()


# Figures and tables of the scores


def errors_figure(chapter: Scored, name: str = "peeking-errors") -> None:
    """Each activation's error in every way of scoring."""
    if chapter.shown:
        sentence = (
            "Test error of the same runs in each way of scoring, with 95 % intervals over draws of seeds. Grey: the ways in which "
            "test data choose nothing. What lies further left is lower, not better: the networks are the same."
        )
        caption = figures.caption(chapter.table, chapter.found.scale, sentence)
        said = _first_and_last(chapter.shown, lambda scores, way: scores.errors[way], " %")
        alt = f"Test error of each activation in each way of scoring. {said}"
        pages.figure(draw_errors(chapter.shown), name, alt, caption, chapter.keys)


@figures.typeset
def draw_errors(shown: dict[float | None, Scores]) -> Figure:
    """A panel for each keep probability: ways downwards, errors in percent to the right."""
    drawn, axes = figures.panels(len(shown), height=4.3)
    for ax, (keep, scores) in zip(axes, shown.items(), strict=True):
        _rows_by_way(ax, scores, lambda scores, way: scores.errors[way], range(len(scores.names)))
        finite = np.concatenate([errors[np.isfinite(errors[:, 0]), 0] for errors in scores.errors.values()])
        if len(finite) and finite.max() > 3 * finite.min() > 0:
            figures.log_axis(ax, "x")
        ax.set_title(setting(keep))
        ax.set_xlabel("test error (%)")
    figures.legend(drawn, next(iter(shown.values())).names, [])
    return drawn


def gaps_figure(chapter: Scored, name: str = "peeking-gaps") -> None:
    """How far the other activations lie behind the first one, in every way of scoring."""
    shown = {keep: scores for keep, scores in chapter.shown.items() if len(scores.names) > 1}
    if shown:
        subject = activations.title(next(iter(shown.values())).names[0])
        sentence = (
            f"Test error less that of {subject}, in points: right of 0, {subject} is better. 95 % intervals over draws of seeds."
        )
        caption = figures.caption(chapter.table, chapter.found.scale, sentence)
        said = _first_and_last(shown, lambda scores, way: scores.gaps(way), " points")
        alt = f"Gaps to {subject} in each way of scoring. {said}"
        pages.figure(draw_gaps(shown), name, alt, caption, chapter.keys)


@figures.typeset
def draw_gaps(shown: dict[float | None, Scores]) -> Figure:
    """A panel for each keep probability: ways downwards, gaps to the first activation in points to the right."""
    drawn, axes = figures.panels(len(shown), height=4.1)
    for ax, (keep, scores) in zip(axes, shown.items(), strict=True):
        _rows_by_way(ax, scores, lambda scores, way: scores.gaps(way), range(1, len(scores.names)))
        ends = np.abs([value for way in scores.ways for row in scores.gaps(way) for value in scoring.interval(row)])
        if len(ends := ends[np.isfinite(ends)]) and ends.max() > 4:
            ax.set_xscale("symlog", linthresh=1)
            ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}".replace("-", "−")))
        ax.axvline(0, color="#555555", lw=1)
        ax.set_title(setting(keep))
        ax.set_xlabel(f"points above {activations.title(scores.names[0])}")
    figures.legend(drawn, next(iter(shown.values())).names[1:], [])
    return drawn


def _first_and_last(shown: dict[float | None, Scores], values: Callable[[Scores, Way], Array], unit: str) -> str:
    """What the first way of scoring gives and the last, for those who do not see the figure."""
    said = []
    for keep, scores in shown.items():
        for way in (scores.ways[0], scores.ways[-1]):
            found = dict(zip(scores.names, values(scores, way)[:, 0], strict=True))
            said.append(f"{setting(keep)}, by {way.name}: {figures.ascending(found, unit)}")
    return "; ".join(said)


def _rows_by_way(ax: Axes, scores: Scores, values: Callable[[Scores, Way], Array], rows: Iterable[int]) -> None:
    places = list(rows)
    for height, way in enumerate(scores.ways):
        if way.honest:
            ax.axhspan(height - 0.5, height + 0.5, color="#EEEEEE", lw=0)
        for offset, row in zip(np.linspace(-0.25, 0.25, len(places)) if len(places) > 1 else [0.0], places, strict=True):
            middle, low, high = scoring.interval(values(scores, way)[row])
            if not math.isfinite(middle):
                continue
            colour, _, marker = figures.STYLES.get(scores.names[row], ("#555555", "-", "o"))
            ends = [end if math.isfinite(end) else middle for end in (low, high)]
            ax.plot(ends, [height + offset] * 2, color=colour, lw=2.2, solid_capstyle="butt")
            ax.plot(middle, height + offset, marker, color=colour, ms=7, gid=f"{scores.names[row]} {way.name}")
    ax.set_yticks(range(len(scores.ways)), [way.name for way in scores.ways])
    ax.set_ylim(len(scores.ways) - 0.5, -0.5)
    ax.tick_params(axis="y", length=0)
    ax.grid(True, axis="x")


def errors_table(chapter: Scored, name: str = "peeking-scores") -> None:
    """Error under each way of scoring, a table for each keep probability."""
    _tables(chapter, name, lambda scores, way: scores.errors[way], scoring.WAYS, _percent, "Test error in percent")


def gains_table(chapter: Scored, name: str = "peeking-gains") -> None:
    """Points below the honest score, a table for each keep probability."""
    what = "Points by which the error is lower than by validation loss"
    _tables(chapter, name, lambda scores, way: scores.gains(way), scoring.WAYS[1:], signed, what)


def _tables(
    chapter: Scored,
    name: str,
    values: Callable[[Scores, Way], Array],
    ways: Sequence[Way],
    write: Callable[[float], str],
    what: str,
) -> None:
    for keep, scores in chapter.shown.items():
        rows = []
        for way in ways:
            row = {"scored by": way.name.replace(" ", "&nbsp;")}
            for activation, draws in zip(scores.names, values(scores, way), strict=True):
                row[title(activation)] = _interval(draws, write)
            rows.append(row)
        caption = f"{setting(keep)}. {what}, with its 95 % percentile interval over draws of {len(scores.seeds)} seeds."
        pages.table(pd.DataFrame(rows), f"{name}-{_suffix(keep)}", caption, scores.keys)


def ranking_table(chapter: Scored, name: str = "peeking-ranking") -> None:
    """The ranking in each way, how often it differs from the honest one, and the gaps to the first activation."""
    for keep, scores in chapter.shown.items():
        if len(scores.names) < 2:
            continue
        rows = []
        for way in scores.ways:
            row = {
                "scored by": way.name.replace(" ", "&nbsp;"),
                "ranking": _order(scores.ranking(way)).replace(" (", "&nbsp;("),
                "turned": "–" if way == scoring.HONEST else _share(scores.reversed(way)),
                "unsettled": _share(scores.unstable(way)),
            }
            for activation, draws in zip(scores.names[1:], scores.gaps(way)[1:], strict=True):
                row[f"{title(activation)} behind"] = _interval(draws, signed)
            rows.append(row)
        caption = (
            f"{setting(keep)}. <i>Turned</i>: share of draws of seeds in which at least two activations stand the other way round "
            "than by validation loss in the same draw. <i>Unsettled</i>: the same against the ranking with all seeds in the same "
            f"way. <i>Behind</i>: points of test error above {activations.title(scores.names[0])}'s."
        )
        pages.table(pd.DataFrame(rows), f"{name}-{_suffix(keep)}", caption, scores.keys)


def _interval(draws: Array, write: Callable[[float], str]) -> str:
    middle, low, high = scoring.interval(draws)
    return f'<span class="study-value">{write(middle)} <span class="study-interval">[{write(low)}, {write(high)}]</span></span>'


def _percent(value: float) -> str:
    return "–" if math.isnan(value) else "∞" if math.isinf(value) else f"{value:.2f}"


def signed(value: float) -> str:
    if not math.isfinite(value):
        return "–" if math.isnan(value) else "∞" if value > 0 else "−∞"
    shown = f"{value:+.2f}"
    return "0" if float(shown) == 0 else shown.replace("-", "−")


def _suffix(keep: float | None) -> str:
    return "chosen" if keep is None else f"keep-{keep:g}".replace(".", "-")


def title(name: str) -> str:
    return activations.title(name).replace(" ", "&nbsp;")


# Elsewhere


def listed_and(words: Sequence[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def others(scale: str, best_of: int, draws: int, ledger_folder: str | None = None) -> None:
    """The same for the other experiments that have runs with validation and test errors; a sentence if none has."""
    shown = 0
    for experiment in OTHERS:
        if experiment not in protocols.EXPERIMENTS:
            continue
        found = study.run(experiment, scale, train=False, ledger=ledger_folder)
        if not any(record.config.experiment == experiment for record in scoring.usable(found.records)):
            continue  # what there is are another experiment's runs
        chapter = scored(found, best_of, draws)
        shown += 1
        pages.text(f"**{experiment}**")
        pages.progress(found)
        answer(chapter)
        errors_figure(chapter, f"peeking-errors-{experiment}")
        errors_table(chapter, f"peeking-scores-{experiment}")
    if not shown:
        pages.text("No other experiment with validation and test errors has been run yet.")
