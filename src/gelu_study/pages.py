"""What the notebooks show: figures and tables that name the records they are made from, and sentences computed from verdicts."""

from __future__ import annotations

import base64
import html
import io
import math
import os
import re
from collections.abc import Iterable, Sequence, Sized
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from IPython.display import Markdown, display
from matplotlib.figure import Figure

from gelu_study import activations, datasets, figures, interactive, measurements, paths, protocols, published, statistics
from gelu_study.runs import parts as run_parts
from gelu_study.study import Study, recorded
from gelu_study.training import products

SOURCE = "gelu_study_source"
"""Key of the output metadata that names the records something is made from, and its number; `site` writes them beside the page."""

BADGES = {
    statistics.REPRODUCED: "The paper's claim holds here.",
    statistics.EQUIVALENT: "The difference is shown to be smaller than 5 %.",
    statistics.CONTRADICTED: "The runs contradict the paper's claim.",
    statistics.UNRESOLVED: "The runs do not decide.",
    statistics.NOT_RUN: "There are no runs to compare yet.",
}

IN_BOOK = bool(os.environ.get("GELU_STUDY_BOOK"))
"""Whether the book's build executes this notebook: then records lie beside the page, else in this checkout's folders."""

COMPUTED = "Calculated when this page was made; no record is behind it."
"""What a caption says of a figure that is made from no run."""

MOST_LISTED = 100
"""Records that a notebook lists below a figure; the book's lists have all."""

_numbers: dict[str, dict[str, int]] = {"Figure": {}, "Table": {}}
_VERBATIM = re.compile(r"(`[^`]*`|<code\b.*?</code>|<[a-zA-Z/][^>]*>)", re.DOTALL)
_HYPHEN = re.compile(r"(?<![\w.,/#=-])-(?=\d)")
_COLUMNS = "<i>Keep</i>: the keep probability, 1 for no dropout. <i>Rate</i>: the learning rate."


def record_path(key: str) -> str:
    """Where the site keeps a record, below its folder of records."""
    return f"{key[:2]}/{key}.json"


def text(markdown: str) -> None:
    """Show Markdown; minus signs of numbers are written as such."""
    display(Markdown(minus(markdown)))


def records(name: str, keys: Iterable[str]) -> None:
    """Show a link to the records that the sentences above are computed from, whose keys are given; nothing where there are none.
    `name` is the list's."""
    if found := sorted(set(keys)):
        shown = {"text/html": f'<p class="study-behind">{_records(name, found)}</p>', "text/plain": f"Records: {counted(found)}"}
        display(shown, raw=True, metadata=_source(name, found))


def figure(drawn: Figure, name: str, alt: str, caption: str, keys: Iterable[str]) -> None:
    """Show a figure with its number, its caption and a link to the records it is made from, whose keys are given. `alt` says what
    it shows, in words that stand for it."""
    buffer = io.BytesIO()
    with mpl.rc_context({"svg.hashsalt": name, "svg.fonttype": "path"}):
        drawn.savefig(buffer, format="svg", bbox_inches="tight", metadata={"Date": None})
    image = base64.b64encode(buffer.getvalue()).decode()
    picture = f'<img class="dark-light" alt="{html.escape(alt)}" src="data:image/svg+xml;base64,{image}">'
    _show("Figure", f'<div class="study-scroll">{picture}</div>', name, caption, alt, keys)


def table(frame: pd.DataFrame, name: str, caption: str, keys: Iterable[str]) -> None:
    """Show a table, whose cells are HTML, with its number, its caption and a link to the records it is made from."""
    _show("Table", _scrolling(frame), name, caption, frame.to_string(index=False), keys)


def plain_table(frame: pd.DataFrame) -> None:
    """Show a table, whose cells are HTML, that is not made from single records."""
    shown = {"text/html": _scrolling(frame, "study-table"), "text/plain": frame.to_string(index=False)}
    display(shown, raw=True)


def badge(verdict: str) -> str:
    """A verdict as a coloured word."""
    kind = verdict.replace(" ", "-")
    return f'<span class="verdict verdict-{kind}" title="{html.escape(BADGES.get(verdict, ""))}">{html.escape(verdict)}</span>'


def on_the_claim(verdict: str) -> str:
    """A verdict as a sentence, its word coloured."""
    return f"Verdict on the claim: {badge(verdict)}."


def condition(keep_probability: float) -> str:
    """A keep probability in words."""
    return "without dropout" if keep_probability == 1 else f"with dropout, keep probability {keep_probability:g}"


def number(value: float, digits: int = 3) -> str:
    """A number with so many significant digits; infinity for a diverged run, a dash for what is not defined."""
    if math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞"
    if value == 0:
        return "0"
    value = float(f"{value:.{digits - 1}e}")  # 0.9996 has the decimals of 1.00
    decimals = digits - 1 - math.floor(math.log10(abs(value)))
    return f"{value:.{decimals}f}" if 0 <= decimals <= 5 else f"{value:.{digits - 1}e}"


def rate(value: float) -> str:
    """A learning rate without an exponent: 0.00001."""
    return np.format_float_positional(value, trim="-")


def interval(middle: float, low: float, high: float, digits: int = 3) -> str:
    """A median with its interval, as HTML on one line."""
    around = "" if math.isnan(low) else f' <span class="study-interval">[{number(low, digits)}, {number(high, digits)}]</span>'
    return f'<span class="study-value">{number(middle, digits)}{around}</span>'


def p_value(value: float) -> str:
    """A p value as HTML."""
    return "–" if math.isnan(value) else "&lt;&nbsp;0.001" if value < 0.001 else f"{value:.3f}"


def count(value: float) -> str:
    """A number of seeds as HTML."""
    return "–" if math.isnan(value) else "∞" if math.isinf(value) else "&gt; 9,999" if value > 9_999 else f"{value:.0f}"


def ratio(value: float) -> str:
    """A ratio of losses in words, from the side of its numerator: "60 % lower" of 0.4."""
    if math.isnan(value):
        return "not comparable"
    if math.isinf(value):  # the numerator's run diverged
        return "infinitely higher"
    share = abs(value - 1)
    if share < 0.0005:
        return "the same"
    return f"{100 * share:.{1 if share < 0.1 else 0}f} % {'lower' if value < 1 else 'higher'}"


def against(value: float, rival: str) -> str:
    """A ratio of losses as a comparison: "60 % lower than ReLU's"."""
    words = ratio(value)
    return f"{words} {'as' if words == 'the same' else 'than'} {rival}'s"


def span(low: float, high: float) -> str:
    """An interval of ratios in words: "31 % to 5 % lower", "31 % lower to 4 % higher"."""
    first, last = ratio(low), ratio(high)
    if first == last:
        return first
    word = first.rpartition(" ")[2]
    return f"{first.removesuffix(f' {word}')} to {last}" if last.endswith(f" {word}") else f"{first} to {last}"


def progress(found: Study) -> None:
    """Say what is missing, if anything is, and what was not trained by the paper's protocol or on its data."""
    if found.planned and found.planned[0].dataset == "digits":
        wanted = datasets.KNOWN[protocols.grid(found.experiment, "paper").dataset].title
        text(
            f"> **Not {wanted}.** These runs were trained on scikit-learn's 1,797 digits of 8 × 8 pixels, a stand-in that needs no "
            f"download. They show that everything works and say nothing about {wanted}."
        )
    elif found.planned and found.scale not in ("paper", "powered"):
        first, seeds = found.planned[0], len({config.seed for config in found.planned})
        text(
            f"> **A reduced run.** {first.epochs} epochs on {first.train_examples:,} images and {seeds} seed{'s' * (seeds > 1)} "
            "instead of the full protocol: what follows is about such short trainings and is no verdict on any claim."
        )
    done, planned = len(found.records), len(found.planned)
    if found.own:
        which = "All" if found.own == done else f"{found.own}"
        text(
            f"> **Your own.** {which} of the {done} records of this page were trained by hand and lie in "
            f"`{paths.shown(paths.OWN)}`, which Git ignores and the book does not read."
        )
    if not done:
        text(f"> **Not run yet.** None of the {planned} runs of scale `{found.scale}` has a record. {_how_to_run(found)}")
    elif found.missing or found.choice_pending:
        more = " More seeds follow once validation has chosen the learning rates." if found.choice_pending else ""
        state = f"{recorded(done, planned)}; this page shows what there is."
        text(f"> **Not complete.** {state}{more} {_how_to_run(found)}")


def answer(found: Study) -> None:
    """Answer the claim's question in a few computed sentences."""
    verdicts = statistics.verdicts(found.table, choice=found.chosen)
    lines = answer_lines(verdicts, published.CLASSIFIER)
    undecided = verdicts.iloc[:-1].query(f"verdict == '{statistics.UNRESOLVED}' and n > 1")
    if len(undecided):
        parts = [
            f"{count(float(row.seeds_needed))} for {activations.title(str(row.rival))} {condition(float(row.keep_probability))}"
            for row in undecided.itertuples()
        ]
        lines += ["", f"Seeds that a power of 80 % would take at the difference and spread seen so far: {', '.join(parts)}."]
    choices = statistics.choose_learning_rates(found.table) if found.chosen else pd.DataFrame({"at_edge": []})
    if edges := int(choices["at_edge"].sum()):
        chosen = f"{edges} of the {len(choices)} learning rates that validation chose"
        lines += ["", f"{chosen} lie at the edge of their grid: a better one may lie outside."]
    text("\n".join(lines))
    records(f"{found.experiment}-answer", statistics.at_choice(found.table, found.chosen)["key"] if found.chosen else [])


def answer_lines(verdicts: pd.DataFrame, claim: published.Claim) -> list[str]:
    """The answer as Markdown lines: a headline, then each comparison."""
    overall = str(verdicts["verdict"].iloc[-1])
    rows = verdicts.iloc[:-1]
    total, given = len(rows), rows["verdict"].value_counts()
    lower = int(given.get(statistics.REPRODUCED, 0))
    tied = int(given.get(statistics.EQUIVALENT, 0))
    higher = int(given.get(statistics.CONTRADICTED, 0))
    open_ = total - lower - tied - higher
    counted = ((lower, "lower"), (tied, "the same within 5 %"), (higher, "higher"), (open_, "undecided"))
    tally = ", ".join(f"{words} in {n}" for n, words in counted if n)
    headline = {
        statistics.REPRODUCED: f"**Yes.** GELU ends with the lowest training loss in all {total} comparisons.",
        statistics.EQUIVALENT: f"**It is nowhere beaten, but ties.** GELU's training loss is {tally} of {total} comparisons.",
        statistics.CONTRADICTED: f"**Not in every comparison.** GELU's training loss is {tally} of {total} comparisons."
        if lower
        else f"**No.** GELU's training loss is {tally} of {total} comparisons.",
        statistics.UNRESOLVED: f"**Undecided.** GELU's training loss is {tally} of {total} comparisons.",
        statistics.NOT_RUN: "**No answer yet.** The runs that would decide are not there.",
    }[overall]
    lines = [f"{headline} {on_the_claim(overall)}", ""]
    if overall == statistics.NOT_RUN:
        return lines
    for keep in claim.keep_probabilities:
        parts = []
        for row in rows[(rows["keep_probability"] == keep) & (rows["n"] > 0)].itertuples():
            rival = activations.title(str(row.rival))
            around = f"95 % interval {span(float(row.low), float(row.high))}; " if not math.isnan(row.low) else ""
            parts.append(f"{against(float(row.measured), rival)} ({around}{row.verdict})")
        if parts:
            lines.append(f"- {condition(keep).capitalize()}: GELU's final training loss is {' and '.join(parts)}.")
    return lines


def verdict_table(found: Study, name: str = "mnist-classifier-verdicts") -> None:
    """The comparisons of the claim with their evidence."""
    verdicts = statistics.verdicts(found.table, choice=found.chosen)
    rows = []
    for row in verdicts.iloc[:-1].itertuples():
        rows.append(
            {
                "GELU vs": activations.title(str(row.rival)),
                "keep": f"{row.keep_probability:g}",
                "verdict": badge(str(row.verdict)),
                "paper": number(float(row.published), 2),
                "measured [95 %]": interval(float(row.measured), float(row.low), float(row.high)),
                "seeds": int(row.n),
                "GELU better": "–" if math.isnan(row.probability_better) else f"{row.probability_better:.0%}".replace("%", " %"),
                "p": p_value(float(row.p_value)),
                "p equiv.": p_value(float(row.p_equivalent)),
                "seeds needed": count(float(row.seeds_needed)),
            }
        )
    rows.append({"GELU vs": "<b>all</b>", "verdict": badge(str(verdicts["verdict"].iloc[-1]))})
    frame = pd.DataFrame(rows).fillna("")
    frame["seeds"] = [str(int(value)) if value != "" else "" for value in frame["seeds"]]
    table(
        frame,
        name,
        "GELU's final training loss as a multiple of its rival's: below 1, GELU is better. <i>Keep</i>: the keep probability, 1 "
        "for no dropout. <i>Paper</i>: read off the last points of its figure 2. <i>Measured</i>: median over seeds, paired, "
        "with its bootstrap interval. <i>GELU better</i>: share of seeds in which GELU's loss is the lower one. <i>p</i>: of no "
        "difference; <i>p equiv.</i>: of a difference beyond 5 %; both adjusted for several comparisons. <i>Seeds needed</i>: for "
        "a power of 80 % at the observed effect.",
        statistics.at_choice(found.table, found.chosen)["key"],
    )


def rates_table(found: Study, name: str = "mnist-classifier-learning-rates") -> None:
    """The learning rates that validation chose, or that it cannot choose yet."""
    choices = statistics.choose_learning_rates(found.table) if found.chosen else pd.DataFrame()
    if choices.empty:
        text("No learning rate can be chosen while the grid of learning rates is incomplete.")
        return
    tried = ", ".join(rate(value) for value in sorted(found.table["learning_rate"].unique(), reverse=True))
    if len({config.learning_rate for config in found.planned}) == 1:
        text(f"A learning rate of {tried} is the only one of these runs: there was nothing to choose from.")
        return
    rows = [
        {
            "activation": _title(str(row.activation)),
            "dropout": "none" if row.keep_probability == 1 else f"keep {row.keep_probability:g}",
            "learning rate": rate(float(row.learning_rate)),
            "median best validation loss": number(float(row.median_validation_loss)),
            "seeds": int(row.n),
            "in its grid": '<span class="verdict verdict-edge">at the edge</span>' if row.at_edge else "inside",
        }
        for row in choices.itertuples()
    ]
    caption = (
        f"Chosen from {tried} by the lowest median over seeds of the validation loss at its best epoch. A rate at the edge of "
        f"the grid is flagged, since a better one may lie outside: {int(choices['at_edge'].sum())} of {len(choices)} here."
    )
    seeds = set(found.table.groupby("seed").filter(lambda cell: cell["learning_rate"].nunique() > 1)["seed"])
    table(pd.DataFrame(rows), name, caption, found.table[found.table["seed"].isin(seeds)]["key"])


MEASURES = {
    "train_loss": "training loss",
    "validation_loss": "validation loss",
    "validation_error": "validation error, %",
    "test_error": "test error, %",
    "best_validation_loss": "validation loss",
    "best_validation_error": "validation error, %",
    "best_test_loss": "test loss",
    "best_test_error": "test error, %",
    "train_loss_full": "training loss, all examples",
}


def _results(found: Study, metrics: Sequence[str], name: str, caption: str) -> None:
    """Median, interval and n of some measures at the chosen learning rates, or at every one while none is chosen."""
    if not found.records:
        text("No run has a record yet.")
        return
    rows = statistics.at_choice(found.table, found.chosen) if found.chosen else found.table
    summary = statistics.summary(rows, metrics)
    summary = summary.sort_values(["keep_probability", "learning_rate"], ascending=False, kind="stable")
    shown = []
    for _, row in summary.iterrows():
        line: dict[str, Any] = {
            "activation": _title(row["activation"]),
            "keep": f"{row['keep_probability']:g}",
            "rate": rate(row["learning_rate"]),
            "n": f"{row['n']}" + (f" ({row['diverged']} diverged)" if row["diverged"] else ""),
        }
        for metric in metrics:
            line[MEASURES[metric]] = interval(row[metric], row[f"{metric}_low"], row[f"{metric}_high"])
        shown.append(line)
    table(pd.DataFrame(shown), name, caption, rows["key"])


def final_table(found: Study) -> None:
    """Losses and errors at the end of training."""
    _results(
        found,
        ("train_loss", "validation_loss", "validation_error", "test_error"),
        "mnist-classifier-final",
        "At the last epoch: median over n seeds [95 % interval]; losses in nats. " + _COLUMNS,
    )


def best_table(found: Study) -> None:
    """Losses and errors at the epoch of best validation loss."""
    _results(
        found,
        ("best_validation_loss", "best_validation_error", "best_test_loss", "best_test_error"),
        "mnist-classifier-best",
        "At the epoch of best validation loss: median over n seeds [95 % interval]; losses in nats. " + _COLUMNS,
    )


def classifier_curves(found: Study) -> None:
    """Figure 2 again: our curves over the published ones."""
    choice = _choice(found)
    if not any(record.status == "finished" for record in found.records):
        why = "every run diverged" if found.records else "no run has finished"
        text(f"There are no curves to show: {why}.")
        return
    # digits have no published curves; a name of `published.NAMES` at a keep probability of figure 2 has
    compared = found.planned[0].dataset == "mnist" and any(
        name in published.NAMES and keep in published.PANELS for name, keep in choice
    )
    sentence = (
        "Learning curves" + (" over those of the paper's figure 2 (dotted)" if compared else "") + ": the lower a line ends, the "
        f"better its activation trained.{_provisional(found)}"
    )
    shown = statistics.at_choice(found.table, choice)
    figure(
        figures.learning_curves(found.records, choice),
        "mnist-classifier-curves",
        "Training and validation loss over the epochs for each activation and keep probability"
        + (", over the paper's curves" if compared else "")
        + f". {figures.in_words(shown, 'train_loss')}",
        figures.caption(shown, found.scale, sentence, bands=True),
        shown["key"],
    )
    interactive.show(
        interactive.learning_curves(found.records, choice),
        "mnist-classifier-each-seed",
        interactive.EACH_SEED,
    )


def classifier_distributions(found: Study) -> None:
    """Every run's final training loss."""
    if (choice := _choice(found)) and not found.table["train_loss"].isna().all():
        sentence = (
            "Every run at the chosen learning rates, by the loss that the claim is about: the further left, the better."
            f"{_provisional(found)}"
        )
        shown = statistics.at_choice(found.table, choice)
        figure(
            figures.distributions(found.table, "train_loss", choice),
            "mnist-classifier-runs",
            "Training loss of the last epoch of every run for each activation, with medians and intervals. "
            + figures.in_words(shown, "train_loss"),
            figures.caption(shown, found.scale, sentence),
            shown["key"],
        )


def classifier_intervals(found: Study) -> None:
    """The comparisons of the claim as a forest plot; nothing before validation could choose."""
    if found.chosen:
        shown = statistics.at_choice(found.table, found.chosen)
        verdicts = statistics.verdicts(found.table, choice=found.chosen)
        figure(
            figures.intervals(verdicts),
            "mnist-classifier-intervals",
            f"Ratio of GELU's training loss to each rival's, with 95 % intervals and the margin of 5 %: {_ratios(verdicts)}",
            figures.caption(
                shown,
                found.scale,
                "GELU's final training loss as a multiple of its rival's, with 95 % intervals: left of 1 GELU is better.",
            ),
            shown["key"],
        )
        interactive.show(interactive.intervals(verdicts), "mnist-classifier-each-interval", "Point at an interval for its numbers")


def _ratios(verdicts: pd.DataFrame) -> str:
    """Each comparison with its ratio, in words."""
    return "; ".join(
        f"{number(float(row.measured))} against {activations.title(str(row.rival))} {condition(float(row.keep_probability))}"
        for row in verdicts.iloc[:-1].itertuples()
    )


def _choice(found: Study) -> dict[tuple[str, float], float]:
    """The learning rates that validation chose, or, while it cannot, the best so far of those that have runs."""
    if found.chosen or not found.records:
        return found.chosen
    summary = statistics.summary(found.table, ["best_validation_loss"]).sort_values("best_validation_loss")
    best = summary.drop_duplicates(["activation", "keep_probability"])
    cells = zip(best["activation"], best["keep_probability"], best["learning_rate"], strict=True)
    return {(str(activation), float(keep)): float(value) for activation, keep, value in cells}


def _provisional(found: Study) -> str:
    return "" if found.chosen else " Provisional: the best learning rates among the runs there are, until all of them are."


def provenance(found: Study, repository: str = "") -> None:
    """Say which runs made the page: how many, on what device, when, at which scale and revision."""
    if not found.records:
        return
    runs, first = found.table, found.planned[0]
    splits = dict.fromkeys((config.train_examples, config.validation_examples) for config in found.planned)
    parts = [f"{train:,} training and {f'{held_out:,}' if held_out else 'no'} validation examples" for train, held_out in splits]
    made = [run_parts(record.environment) for record in found.records]
    onednn = sum(any(part.get("products") == products.ONEDNN for part in one) for one in made)
    devices = pd.Series([part.get("device_name") for one in made for part in one])
    lines = [
        f"- **Runs:** {len(runs)} of {len(found.planned)} planned, {int((runs['status'] == 'diverged').sum())} of them diverged; "
        f"scale `{found.scale}`, {first.epochs} epochs, {runs['seed'].nunique()} seeds.",
        f"- **Data:** {first.dataset}, {' or '.join(parts)}, "
        f"SHA-256 `{first.dataset_sha256[:16]}…` (in full on [the record's page](record.html)).",
        f"- **Device:** {_listed(devices)} ({_listed(runs['device'])}); PyTorch {_listed(runs['torch'])}; "
        f"{_listed(runs['precision'])}{f'; oneDNN took matrix products of {onednn} of the runs' if onednn else ''}.",
        f"- **Date:** {dates(runs)}.",
        f"- **Code:** {revisions(runs, repository)}.",
    ]
    text("\n".join(lines))


def dates(runs: pd.DataFrame) -> str:
    """When the runs were started: a day, or the first and the last."""
    days = sorted({str(value)[:10] for value in runs["started"].dropna()})
    return " to ".join(dict.fromkeys((days[0], days[-1]))) if days else "not recorded"


def revisions(runs: pd.DataFrame, repository: str = "") -> str:
    """The revisions of the code that trained the runs, as Markdown; links only where there is a repository."""
    found = []
    for (revision, dirty), cell in runs.groupby(["revision", "dirty"], dropna=False, sort=False):
        if not isinstance(revision, str):
            found.append(f"no revision recorded ({counted(cell)})")
            continue
        short = f"`{revision[:10]}`"
        linked = f"[{short}]({repository}/commit/{revision})" if repository else short
        found.append(f"revision {linked} ({counted(cell)}{', with local changes' if dirty is True else ''})")
    return ", ".join(found) or "not recorded"


def machine_hours(runs: pd.DataFrame) -> float:
    """Hours of machine time: a stack's networks train together, so each run counts for its share of the stack's time."""
    return float((runs["seconds"].astype(float) / runs["stack"].astype(float)).sum() / 3600)


def record_summary(runs: pd.DataFrame, repository: str = "") -> None:
    """How many runs there are of each kind, on what, when and how long."""
    if runs.empty:
        text("> **Not run yet.** The ledger holds no record.")
        return
    lines = [
        f"- **Runs:** {len(runs)}, {int((runs['status'] == 'diverged').sum())} of them diverged; "
        f"{machine_hours(runs):.1f} hours of machine time in all.",
        f"- **Date:** {dates(runs)}.",
        f"- **Code:** {revisions(runs, repository)}.",
        "- **All of them as a table:** [all.csv](records/all.csv), one row a run; the records themselves are linked below.",
    ]
    text("\n".join(lines))
    parts = ["experiment", "dataset", "epochs", "device", "device_name", "threads", "torch", "precision"]
    rows = [
        {
            **dict(zip((part.replace("_", " ") for part in parts), keys, strict=True)),
            "runs": len(cell),
            "seeds": cell["seed"].nunique(),
            "hours": f"{machine_hours(cell):.1f}",
        }
        for keys, cell in runs.groupby(parts, dropna=False, sort=True)
    ]
    table(pd.DataFrame(rows), "record-environments", "Runs by experiment and machine.", runs["key"])


def record_table(runs: pd.DataFrame) -> None:
    """Every run, with a link to its record."""
    if runs.empty:
        text("The ledger holds no record.")
        return
    shown = {"text/html": _scrolling(run_table(runs), "study-tall"), "text/plain": f"{len(runs)} runs"}
    display(shown, raw=True)


def data_sets() -> pd.DataFrame:
    """The data sets and their identities: each array's digest, and the one of all four that a configuration holds."""
    rows = []
    for name in datasets.NAMES:
        digests = {"all four": datasets.content_hash(name), **datasets.SHA256[name]}
        rows += [{"data set": name, "array": array, "SHA-256": f"<code>{digest}</code>"} for array, digest in digests.items()]
    return pd.DataFrame(rows)


def run_table(runs: pd.DataFrame, folder: str = "records/") -> pd.DataFrame:
    """Every run in a row, with a link to its record in the site's folder of records."""
    rows = []
    for row in runs.sort_values(["experiment", "epochs", "keep_probability", "learning_rate", "activation", "seed"]).itertuples():
        rows.append(
            {
                "record": f'<a href="{folder}{record_path(str(row.key))}"><code>{str(row.key)[:10]}</code></a>',
                "experiment": row.experiment,
                "data": row.dataset,
                "epochs": row.epochs,
                "activation": _title(str(row.activation)),
                "learning rate": rate(float(row.learning_rate)),
                "keep": f"{row.keep_probability:g}",
                "seed": row.seed,
                "status": row.status,
                "training loss": number(float(row.train_loss)),
                "test error, %": number(float(row.test_error)),
            }
        )
    return pd.DataFrame(rows)


def _show(kind: str, body: str, name: str, caption: str, plain: str, keys: Iterable[str]) -> None:
    found = sorted(set(keys))
    number = f"{kind} {_numbers[kind].setdefault(name, len(_numbers[kind]) + 1)}"  # shown again, it keeps its number
    shown = f'<figcaption><b class="study-number">{number}.</b> {caption} {_records(name, found)}</figcaption>'
    outputs = {"text/html": f'<figure class="study-figure" id="{name}">{body}{shown}</figure>', "text/plain": f"{number}. {plain}"}
    display(outputs, raw=True, metadata=_source(name, found, number))


def _source(name: str, keys: Sequence[str], number: str = "") -> dict[str, Any]:
    return {SOURCE: {"name": name, "number": number, "keys": keys}} if number or keys else {}


def _records(name: str, keys: Sequence[str]) -> str:
    """A link to the list of these records, which the book's build writes; in a notebook of one's own the list itself."""
    if not keys:
        return ""
    if IN_BOOK:
        return f'<a class="study-records" href="records/{name}.html">Records: {counted(keys)}</a>'
    more = f" and {len(keys) - MOST_LISTED} more" if len(keys) > MOST_LISTED else ""
    listed = ", ".join(map(_file, keys[:MOST_LISTED]))
    return f'<details class="study-records"><summary>Records: {counted(keys)}</summary>{listed}{more}</details>'


def measured(taken: measurements.Measurement) -> str:
    """Where, when and with what a measurement was made, with a link to its file."""
    made = taken.environment
    said = f"Device: {made['device_name']} ({made['device']}); PyTorch {made['torch']}; date: {made['started'][:10]}."
    return f"{said} {measurement_file(taken)}".strip()


def measurement_file(taken: measurements.Measurement) -> str:
    """A link to the file of a measurement; nothing for one that was made here and now."""
    if measurements.read(taken.name) != taken:
        return ""
    folder = "measurements" if IN_BOOK else Path(os.path.relpath(paths.MEASUREMENTS, paths.NOTEBOOKS)).as_posix()
    return f'<a class="study-records" href="{folder}/{taken.name}.json">The measurement</a>'


def _file(key: str) -> str:
    """A record's name, as a link to its file where it lies in the project's folder or in that of one's own."""
    for folder in (paths.LEDGER, paths.OWN):
        if (file := folder / record_path(key)).is_file():
            return f'<a href="{Path(os.path.relpath(file, paths.NOTEBOOKS)).as_posix()}"><code>{key[:10]}</code></a>'
    return f"<code>{key[:10]}</code>"


def _scrolling(frame: pd.DataFrame, kind: str = "") -> str:
    """A table in a box that scrolls, by the keyboard too."""
    what = f"Table of {len(frame)} rows, which scrolls"
    return f'<div class="{f"study-scroll {kind}".strip()}" tabindex="0" role="group" aria-label="{what}">{_rows(frame)}</div>'


def _rows(frame: pd.DataFrame) -> str:
    return minus(frame.to_html(index=False, escape=False, border=0, classes="dataframe study", na_rep="–"))


def minus(markup: str) -> str:
    """Markdown or HTML with a true minus sign in place of each hyphen before a number, but for code and tags."""
    return "".join(part if part[:1] in "`<" else _HYPHEN.sub("−", part) for part in _VERBATIM.split(markup))


def _title(activation: str) -> str:
    return activations.title(activation).replace(" ", "&nbsp;")


def counted(runs: Sized) -> str:
    """How many runs, in words."""
    return "1 run" if len(runs) == 1 else f"{len(runs)} runs"


def _listed(values: pd.Series) -> str:
    return ", ".join(sorted({str(value) for value in values.dropna()})) or "not recorded"


def _how_to_run(found: Study) -> str:
    first = found.planned[0]
    own = protocols.grid(found.experiment, found.scale, first.dataset).epochs
    epochs = "" if first.epochs == own else f" EPOCHS={first.epochs}"
    return f"`make reproduce EXPERIMENT={found.experiment} SCALE={found.scale}{epochs}` trains what is missing."
