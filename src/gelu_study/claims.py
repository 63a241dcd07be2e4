"""The paper's claims, one by one, and how the records of a ledger judge each: the landing page's table, and `gelu-study verdicts`.

The rules are those of `statistics.verdict` and of the book's page on verdicts; `judging` applies them.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from gelu_study import judging, paths, published, statistics
from gelu_study.judging import Judge, Judgement, Part
from gelu_study.ledger import Snapshot

COLUMNS = ("claim", "published", "measured", "low", "high", "n", "verdict")


@dataclass(frozen=True)
class Claim:
    """A claim of the paper."""

    name: str
    statement: str  #: in our words
    where: str  #: in the paper
    page: str  #: of the book, which may not have it yet; empty: none is planned
    sources: tuple[str, ...]  #: its rows of `published.claims`, by experiment
    task: bool = False  #: one of those that "improvements across all tasks" speaks of


@dataclass(frozen=True)
class Row:
    """A claim with its verdict and what speaks for it."""

    claim: Claim
    judgement: Judgement

    @property
    def name(self) -> str:
        """The claim's name; where it is judged on less than the paper's protocol, it says so."""
        limit = self.judgement.limit
        return f"{self.claim.name} ({limit})" if limit else self.claim.name

    @property
    def verdict(self) -> str:
        """The verdict on the claim."""
        return self.judgement.verdict

    @property
    def part(self) -> Part:
        """What speaks for the claim: its weakest comparison, or the number that it states."""
        return self.judgement.weakest


def verdicts(ledger: str | os.PathLike[str] | None = None, scale: str = "powered") -> list[Row]:
    """Every claim of the paper with its verdict from the records of `ledger` (default: the project's), which is read once.

    Only runs that are planned at `scale` are looked at.
    """
    evidence = judging.Evidence(Snapshot(ledger or paths.LEDGER), scale)
    rows = [Row(claim, judge(evidence)) for claim, judge in known()]
    tasks = [(row.claim.name, row.judgement) for row in rows if row.claim.task]
    return [*rows, Row(_ALL, judging.all_of(tasks))]


def frame(rows: Sequence[Row]) -> pd.DataFrame:
    """The table of verdicts, a row a claim with `COLUMNS`.

    Published and measured are of what speaks for the claim, `Row.part`: as a rule the ratio of GELU's loss or error to a rival's,
    below 1 where the claim holds, with its 95 % interval in `low` and `high`; n counts pairs of runs. What is not there is NaN.
    """
    found = [
        (row.name, row.part.published, row.part.measured, row.part.low, row.part.high, row.part.n, row.verdict) for row in rows
    ]
    return pd.DataFrame(found, columns=list(COLUMNS)).astype({"n": "Int64"})


def as_json(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """The table of verdicts as strict JSON: null for what is not there, the word "inf" for an infinite ratio; each row with what
    was measured, every comparison, what is lacking, and the claim's words and place in the paper."""

    def plain(value: float | None) -> float | str | None:
        return None if value is None or math.isnan(value) else "inf" if math.isinf(value) else value

    def numbers(part: Part) -> dict[str, Any]:
        return {name: plain(getattr(part, name)) for name in COLUMNS[1:-1]}

    return [
        {
            "claim": row.name,
            **numbers(row.part),
            "verdict": row.verdict,
            "of": row.part.of,
            "lacking": row.judgement.lacking,
            "statement": row.claim.statement,
            "where": row.claim.where,
            "comparisons": [{"of": part.of, **numbers(part), "verdict": part.verdict} for part in row.judgement.parts],
        }
        for row in rows
    ]


_LEGEND = """\
paper, measured: the ratio, below 1 where the claim holds, of the claim's weakest comparison, with a 95 % bootstrap
interval over n paired seeds; for Sigmoid and Gaussian the distance itself. `--format json` has every comparison."""


def as_text(rows: Sequence[Row]) -> str:
    """The table of verdicts for a terminal."""

    def shown(value: float) -> str:
        return "-" if math.isnan(value) else f"{value:#.3g}"

    width = max(len(row.name) for row in rows)
    lines = [f"{'claim':<{width}}  {'paper':>6}  {'measured':>8}  {'[95 %]':<14}  {'n':>3}  verdict"]
    for row in rows:
        part = row.part
        around = "" if math.isnan(part.low) else f"[{shown(part.low)}, {shown(part.high)}]"
        paper = f"{part.published:g}" if part.n is None else shown(part.published)  # what the text states has its own digits
        numbers = f"{paper:>6}  {shown(part.measured):>8}  {around:<14}  {'' if part.n is None else part.n:>3}"
        lacking = f" ({row.judgement.lacking})" if row.judgement.lacking else ""
        lines.append(f"{row.name:<{width}}  {numbers}  {row.verdict}{lacking}")
    return "\n".join([*lines, "", _LEGEND])


def tally(rows: Sequence[Row], names: bool = True) -> str:
    """How many claims have each verdict, from the strongest to those without runs, with their names where there are few words."""
    parts = []
    for verdict in (*reversed(statistics.LINKS), statistics.NOT_RUN):
        found = [row.name for row in rows if row.verdict == verdict]
        if found:
            listed = f" ({'; '.join(found)})" if names and verdict != statistics.NOT_RUN else ""
            parts.append(f"{len(found)} {verdict}{listed}")
    return ", ".join(parts)


def known() -> list[tuple[Claim, Judge]]:
    """The paper's claims in its order, each with its judge; all but the one on all tasks, which rests on the others."""
    soi = _errors("mnist_fcn_soi", "error", decimals=2)
    (distance,) = published.stated("math", _DISTANCE).values()
    main, silu = published.CLASSIFIER, published.SILU
    autoencoder, source = "mnist-autoencoder", ("mnist_autoencoder",)
    greatest = "MNIST autoencoder, rate 0.01"
    return [
        (
            Claim(main.name, main.statement, main.where, "mnist-classifier", ("mnist_fcn",), task=True),
            judging.classifier(main),
        ),
        (
            Claim(
                "MNIST noise robustness",
                "With noise on the test inputs GELU matches or exceeds ELU and ReLU.",
                "figure 3 of later versions",
                "mnist-noise",
                (),
            ),
            judging.noise,
        ),
        (
            Claim(
                "MNIST autoencoder",
                "GELU ties with or outperforms ReLU and ELU at each learning rate from 0.001 to 0.00001.",
                "section 3.2, figures 3 and 8",
                autoencoder,
                source,
                task=True,
            ),
            judging.autoencoder_at_any_rate,
        ),
        (
            Claim(f"{greatest}: ELU", "At a learning rate of 0.01 ELU diverged.", "section 3.2", autoencoder, source),
            judging.elu_diverges,
        ),
        (
            Claim(
                f"{greatest}: GELU and ReLU",
                "At a learning rate of 0.01 GELU and ReLU converged poorly.",
                "section 3.2",
                autoencoder,
                source,
            ),
            judging.autoencoder_converges_poorly,
        ),
        (
            Claim(
                "MNIST autoencoder, rate 0.00001",
                "At a learning rate of 0.00001 errors are higher than at 0.001 and 0.0001.",
                "figure 8",
                autoencoder,
                ("mnist_autoencoder_lr1e-5",),
            ),
            judging.autoencoder_errs_more,
        ),
        _lowest_error("Twitter part-of-speech tagging", "section 3.3", "twitter_pos"),
        _lowest_error("TIMIT frame classification", "section 3.4, figure 4", "timit_frame_classification"),
        _lowest_error("CIFAR-10, shallow network", "section 3.5, figure 5", "cifar10_convnet", "cifar10-convnet"),
        _lowest_error("CIFAR-100, wide residual network", "section 3.5, figure 6", "cifar100_wrn40-4", "cifar100-wrn"),
        (
            Claim("SOI map on MNIST: against ReLU", _soi_words(soi), "section 4", "mnist-soi", ("mnist_fcn_soi", "soi_map")),
            judging.soi_against("relu", _soi_ratio(soi), ties=True),
        ),
        (
            Claim(
                "SOI map on MNIST: against a linear network",
                "A network of SOI maps is not merely a regularised linear model.",
                "abstract, section 4",
                "mnist-soi",
                ("soi_map",),
            ),
            judging.soi_against("identity", math.nan, ties=False),
        ),
        _soi_elsewhere("SOI map on Twitter", "twitter_pos_soi"),
        _soi_elsewhere("SOI map on TIMIT", "timit_soi"),
        (
            Claim(silu.name, silu.statement, silu.where, silu.experiment, ()),
            judging.classifier(silu),
        ),
        (
            Claim(
                "Sigmoid and Gaussian",
                f"The logistic sigmoid and the Gaussian distribution function are at most about {distance} apart.",
                "section 5, figure 7",
                "approximations",
                ("math",),
            ),
            judging.sigmoid_distance(distance),
        ),
    ]


_DISTANCE = "max |sigmoid(x) - Phi(x)|"
_ALL = Claim("All tasks", "GELU improves on ReLU and ELU across all tasks.", "abstract, section 6", "", ("all",))


def _errors(experiment: str, metric: str, decimals: int | None = None) -> dict[str, str]:
    """The stated errors, in percent; with so many decimals where the table of claims has lost some of the text's."""
    found = published.stated(experiment, metric)
    return {name: value if decimals is None else f"{float(value):.{decimals}f}" for name, value in found.items()}


def _lowest_error(name: str, where: str, source: str, ours: str = "") -> tuple[Claim, Judge]:
    """A claim of the lowest median test error; `ours` names our experiment and its page, if there is one."""
    error = _errors(source, "test_error")
    statement = f"GELU has the lowest median test error: {error['GELU']} %, ReLU {error['ReLU']} %, ELU {error['ELU']} %."
    ratios = {f"test error, GELU / {rival}": float(error["GELU"]) / float(error[rival]) for rival in ("ReLU", "ELU")}
    judge = judging.lowest_error(ours, ratios) if ours else judging.not_run(ratios)
    return Claim(name, statement, where, ours, (source,), task=True), judge


def _soi_elsewhere(name: str, experiment: str) -> tuple[Claim, Judge]:
    """The claim on the SOI map against ReLU, of an experiment without runs."""
    error = _errors(experiment, "error")
    judge = judging.not_run({"error, SOI map / ReLU": _soi_ratio(error)})
    return Claim(name, _soi_words(error), "section 4", "", (experiment,)), judge


def _soi_words(error: dict[str, str]) -> str:
    return f"SOI maps as the only nonlinearity err in {error['SOI map']} %, ReLU with tuned dropout in {error['ReLU + dropout']} %."


def _soi_ratio(error: dict[str, str]) -> float:
    return float(error["SOI map"]) / float(error["ReLU + dropout"])
