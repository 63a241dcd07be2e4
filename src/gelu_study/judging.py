"""How the records of a ledger judge the paper's claims, by the rules of the book's page on verdicts.

A judge takes the `Evidence` and gives a `Judgement`; `claims` says which claim has which judge. Losses and errors are compared as
`statistics.compare` does it, a diverged run being the worst.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pandas as pd
from scipy import optimize, special, stats

from gelu_study import activations, protocols, published, statistics, study
from gelu_study.errors import ConfigurationError
from gelu_study.ledger import Ledger, table
from gelu_study.runs import RunConfig, RunRecord

REDUCED_EPOCHS = 50
"""Autoencoders are judged after so many epochs while the paper's number of them has fewer records."""

MEAN_IMAGE_ERROR = {"mnist": 0.0672513, "digits": 0.0729072}
"""Mean squared error of a pixel in [0, 1] if the mean image is always the answer: the first 60,000 training images of MNIST, the
first 1,152 of digits."""

GELU, RIVALS = "gelu_tanh", ("relu", "elu")


@dataclass(frozen=True)
class Part:
    """One comparison of a claim, or the number that it states."""

    of: str  #: what is measured, and in which comparison
    published: float  #: the paper's, NaN where it gives none
    measured: float  #: as a rule a ratio, below 1 where the claim holds; NaN without runs
    low: float  #: 95 % interval, NaN where there is none
    high: float
    n: int | None  #: pairs of runs, or runs; None for what is computed without any
    verdict: str


@dataclass(frozen=True)
class Judgement:
    """The verdict on a claim, and what it is made of."""

    verdict: str
    parts: tuple[Part, ...]
    keys: tuple[str, ...] = ()  #: of the records
    limit: str = ""  #: in what the runs are less than the paper's protocol: "50 of 250 epochs"
    lacking: str = ""  #: what is not there yet: "30 of 105 runs"

    @property
    def weakest(self) -> Part:
        """The part that speaks for the claim: of those that were run the one with the weakest verdict, then the greatest ratio."""
        found = [part for part in self.parts if part.verdict != statistics.NOT_RUN]
        if not found:
            return max(self.parts, key=lambda part: -math.inf if math.isnan(part.published) else part.published)
        return max(found, key=lambda part: (-statistics.LINKS.index(part.verdict), part.measured))


class Evidence:
    """The records of a ledger, as `study.run` finds them at a scale; each plan is looked up once."""

    def __init__(self, ledger: Ledger, scale: str) -> None:
        def found(experiment: str, activations: tuple[str, ...] = (), epochs: int | None = None) -> study.Study:
            return study.run(experiment, scale, activations=activations, epochs=epochs, train=False, ledger=ledger)

        self.study = cache(found)


Judge = Callable[[Evidence], Judgement]


def classifier(claim: published.Claim) -> Judge:
    """A claim on the MNIST classifier, judged as `statistics.verdicts` does it; rivals may be activations that the plan has not."""

    def judge(evidence: Evidence) -> Judgement:
        found = evidence.study(claim.experiment, (claim.subject, *claim.rivals))
        rivals = [_of(found.records, name) for name in claim.rivals]
        rows = statistics.verdicts(found.table, choice=found.chosen, claim=claim)
        parts = [
            Part(
                f"training loss, {_name(claim.subject)} / {_name(str(row.rival))}, keep {row.keep_probability:g}",
                float(row.published),
                float(row.measured),
                float(row.low),
                float(row.high),
                int(row.n),
                str(row.verdict),
            )
            for row in rows.iloc[:-1].itertuples()
        ]
        keys = statistics.at_choice(found.table, found.chosen)["key"]
        lacking = _lacking(found.records, found.planned) if any(rivals) else ""
        return Judgement(str(rows["verdict"].iloc[-1]), tuple(parts), tuple(keys), lacking=lacking)

    return judge


def noise(evidence: Evidence) -> Judgement:
    """Test error and log loss under noise, each the mean over the widths above 0, against each rival: a claim of a tie."""
    found = evidence.study("mnist-noise")
    statistics.refuse_mixture(found.table)

    def mean(curve: str) -> Callable[[RunRecord], float]:
        return lambda record: float(np.mean(np.array(record.curves[curve])[np.array(record.config.test_noise) > 0]))

    compared = {
        f"{measure} under noise, GELU / {_name(rival)}": statistics.compare(
            *(losses(_of(found.records, name), mean(curve)) for name in (GELU, rival))
        )
        for measure, curve in (("test error", "noise_error"), ("log loss", "noise_loss"))
        for rival in RIVALS
    }
    return _judged(compared, found.records, found.planned, ties=True)


def autoencoder_at_any_rate(evidence: Evidence) -> Judgement:
    """The test error at the end against each rival, at each of the figures' learning rates: a claim of a tie."""
    cells = [(name, rate) for rate in published.AUTOENCODER for name in (GELU, *RIVALS)]
    found = _autoencoders(evidence, cells)
    compared, ratios = {}, {}
    for rate, rival in ((rate, rival) for rate in published.AUTOENCODER for rival in RIVALS):
        of = f"test error, GELU / {_name(rival)}, rate {_rate(rate)}"
        compared[of] = found.compare((GELU, rate), (rival, rate))
        ratios[of] = found.in_paper(GELU, rate) / found.in_paper(rival, rate)
    return found.judged(compared, ratios, ties=True)


def autoencoder_errs_more(evidence: Evidence) -> Judgement:
    """For each activation, that the test error at either greater rate is lower than at 0.00001."""
    *greater, least = published.AUTOENCODER
    found = _autoencoders(evidence, [(name, rate) for name in (GELU, *RIVALS) for rate in published.AUTOENCODER])
    compared, ratios = {}, {}
    for name, rate in ((name, rate) for name in (GELU, *RIVALS) for rate in greater):
        of = f"test error of {_name(name)}, rate {_rate(rate)} / {_rate(least)}"
        compared[of] = found.compare((name, rate), (name, least))
        ratios[of] = found.in_paper(name, rate) / found.in_paper(name, least)
    return found.judged(compared, ratios)


def autoencoder_converges_poorly(evidence: Evidence) -> Judgement:
    """For GELU and ReLU, that the test error at 0.001 is lower than at 0.01."""
    pairs = {name: ((name, 1e-3), (name, 1e-2)) for name in (GELU, "relu")}
    found = _autoencoders(evidence, [cell for pair in pairs.values() for cell in pair])
    return found.judged({f"test error of {_name(name)}, rate 0.001 / 0.01": found.compare(*pair) for name, pair in pairs.items()})


def elu_diverges(evidence: Evidence) -> Judgement:
    """That all runs of ELU at 0.01 diverged: the share that did, with its exact binomial interval."""
    found = _autoencoders(evidence, [("elu", 1e-2)])
    gone, n = sum(diverged(record) for record in found.records), len(found.records)
    share, low, high = math.nan, math.nan, math.nan
    if n:
        around = stats.binomtest(gone, n).proportion_ci(statistics.CONFIDENCE)
        share, low, high = gone / n, float(around.low), float(around.high)
    if not n:
        verdict = statistics.NOT_RUN
    elif n < max(len(found.planned), statistics.LEAST_SEEDS) or 0 < gone < n:
        verdict = statistics.UNRESOLVED
    else:
        verdict = statistics.REPRODUCED if gone else statistics.CONTRADICTED
    part = Part("share of ELU's runs that diverged", math.nan, share, low, high, n, verdict)
    return Judgement(verdict, (part,), _keys(found.records), found.limit, _lacking(found.records, found.planned))


def diverged(record: RunRecord) -> bool:
    """Whether a run of the autoencoder diverged: a loss was not finite, or the training error ends above twice that of always
    answering the mean image."""
    return record.status == "diverged" or record.final["train_loss"] > 2 * MEAN_IMAGE_ERROR[record.config.dataset]


def soi_against(rival: str, ratio: float, *, ties: bool) -> Judge:
    """The SOI map's test error at the epoch of best validation loss against that of a rival whose learning rate and dropout
    validation chose; `ratio` is the paper's."""

    def judge(evidence: Evidence) -> Judgement:
        found = evidence.study("mnist-soi")
        cells = {name: tuned(found, name) for name in ("soi", rival)}
        records = {name: _of(found.records, name, *cell) if cell else [] for name, cell in cells.items()}
        compared = statistics.compare(*(losses(runs, lambda record: record.best["test_error"]) for runs in records.values()))
        cell = cells[rival]
        of = f"test error, SOI map / {_name(rival)}" + (f", keep {cell[0]:g}" if cell else "")
        result = _judged({of: compared}, found.records, found.planned, {of: ratio}, ties=ties)
        return replace(result, keys=_keys(record for runs in records.values() for record in runs))

    return judge


def lowest_error(experiment: str, ratios: Mapping[str, float]) -> Judge:
    """GELU's test error at the end against each rival's, of the runs that `deciding` gives; the paper's ratios by their names."""

    def judge(evidence: Evidence) -> Judgement:
        found = evidence.study(experiment)
        runs = deciding(found)
        statistics.refuse_mixture(table(runs))
        compared = {
            f"test error, GELU / {_name(rival)}": statistics.compare(
                *(losses(_of(runs, name), lambda record: record.final["test_error"]) for name in (GELU, rival))
            )
            for rival in RIVALS
        }
        return replace(_judged(compared, found.records, found.planned, ratios), keys=_keys(runs))

    return judge


def grid_of(found: study.Study) -> protocols.Grid:
    """The grid that a study's runs were planned by."""
    return protocols.grid(
        found.experiment, found.scale, found.planned[0].dataset, {config.learning_rate for config in found.planned}
    )


def deciding(found: study.Study) -> tuple[RunRecord, ...]:
    """The records that an experiment is about: all, or, where runs with other fields follow the choice of a learning rate, as those
    on all training images of CIFAR-10 do, these alone."""
    wanted = grid_of(found).after_choice
    return tuple(record for record in found.records if all(getattr(record.config, name) == wanted[name] for name in wanted))


def tuned(found: study.Study, activation: str) -> tuple[float, float] | None:
    """The keep probability and learning rate with the lowest median validation loss of an activation; None while the grid is not
    done, or without the activation. Of equal medians the greatest keep probability is taken."""
    if not found.chosen:
        return None
    choices = statistics.choose_learning_rates(found.table)
    rows = choices[choices["activation"] == activation].sort_values("keep_probability", ascending=False, kind="stable")
    if rows.empty:
        return None
    best = rows.loc[rows["median_validation_loss"].idxmin()]
    return float(best["keep_probability"]), float(best["learning_rate"])


def not_run(ratios: Mapping[str, float]) -> Judge:
    """A claim whose experiment has no runs; the paper's ratios by what they are of."""
    nan = math.nan
    parts = tuple(Part(of, ratio, nan, nan, nan, 0, statistics.NOT_RUN) for of, ratio in ratios.items())
    return lambda evidence: Judgement(statistics.NOT_RUN, parts)


def sigmoid_distance(stated: str) -> Judge:
    """The greatest distance between the logistic sigmoid and the standard normal distribution function, a stated number."""

    def judge(evidence: Evidence) -> Judgement:
        # odd in x, and with a single maximum for x > 0
        found = optimize.minimize_scalar(lambda x: special.expit(x) - special.ndtr(x), bounds=(0, 8), method="bounded")
        distance = float(-found.fun)
        verdict = statistics.verdict_on_number(distance, stated)
        part = Part("greatest distance, computed", float(stated), distance, math.nan, math.nan, None, verdict)
        return Judgement(verdict, (part,))

    return judge


def all_of(tasks: Sequence[tuple[str, Judgement]]) -> Judgement:
    """That GELU is better in every comparison of every task, given by name: a tie is no improvement here."""
    parts = [replace(part, of=f"{name}: {part.of}", published=math.nan) for name, judgement in tasks for part in judgement.parts]
    run = [judgement for _, judgement in tasks if judgement.verdict != statistics.NOT_RUN]
    return Judgement(
        statistics.combined(part.verdict for part in parts),
        tuple(parts),
        tuple(key for judgement in run for key in judgement.keys),
        "; ".join(dict.fromkeys(judgement.limit for judgement in run if judgement.limit)),
        f"{len(run)} of {len(tasks)} tasks" if len(run) < len(tasks) else "",
    )


def losses(records: Iterable[RunRecord], value: Callable[[RunRecord], float]) -> pd.Series:
    """A value of each run by seed; infinite where the run diverged.

    Raises `ConfigurationError` where a seed has several runs: they would have other settings too, and must not be mixed.
    """
    runs = list(records)
    seeds = [record.config.seed for record in runs]
    if twice := sorted({seed for seed in seeds if seeds.count(seed) > 1}):
        rates = ", ".join(f"{rate:g}" for rate in sorted({record.config.learning_rate for record in runs}))
        raise ConfigurationError(
            f"seed {twice[0]} has several runs of {runs[0].config.activation}, with learning rates {rates}; give a single one"
        )
    found = [value(record) if record.status == "finished" else math.inf for record in runs]
    return pd.Series(found, index=pd.Index(seeds, dtype=int), dtype=float)


@dataclass(frozen=True)
class _Autoencoders:
    """The runs of some cells, an activation at a learning rate each, all of one length."""

    epochs: int
    records: tuple[RunRecord, ...]
    planned: tuple[RunConfig, ...]
    limit: str = ""

    def compare(self, one: tuple[str, float], other: tuple[str, float]) -> statistics.Comparison:
        """The test errors at the end of two cells, infinite where a run `diverged`."""
        cells = ([record for record in self.records if _cell(record.config) == cell] for cell in (one, other))
        return statistics.compare(
            *(losses(runs, lambda record: math.inf if diverged(record) else record.final["test_loss"]) for runs in cells)
        )

    def in_paper(self, activation: str, rate: float) -> float:
        """The paper's test error after as many epochs, as its figure plots it."""
        return published.last_point(*published.AUTOENCODER[rate], "test", activation, until=self.epochs)

    def judged(
        self, compared: Mapping[str, statistics.Comparison], ratios: Mapping[str, float] | None = None, *, ties: bool = False
    ) -> Judgement:
        """`_judged` of these runs."""
        return replace(_judged(compared, self.records, self.planned, ratios, ties=ties), limit=self.limit)


def _autoencoders(evidence: Evidence, cells: Sequence[tuple[str, float]]) -> _Autoencoders:
    """The runs of these cells. All claims on autoencoders are judged after the same number of epochs: the scale's own or, while
    more runs of that length have records, `REDUCED_EPOCHS`."""
    own, shorter = (evidence.study("mnist-autoencoder", epochs=epochs) for epochs in (None, REDUCED_EPOCHS))
    length, reduced = own.planned[0].epochs, shorter.planned[0].epochs
    few = reduced < length and len(shorter.records) > len(own.records)
    found = shorter if few else own
    planned = tuple(config for config in found.planned if _cell(config) in cells)
    records = tuple(record for record in found.records if _cell(record.config) in cells)
    return _Autoencoders(found.planned[0].epochs, records, planned, f"{reduced} of {length} epochs" if few else "")


def _judged(
    compared: Mapping[str, statistics.Comparison],
    records: Sequence[RunRecord],
    planned: Sequence[RunConfig],
    ratios: Mapping[str, float] | None = None,
    *,
    ties: bool = False,
) -> Judgement:
    """The judgement on a claim that makes these comparisons; the paper's ratios by the same names."""
    verdicts = statistics.verdicts_together(list(compared.values()))
    parts = []
    for (of, item), verdict in zip(compared.items(), verdicts, strict=True):
        measured, low, high = map(float, np.exp((item.median, item.low, item.high)))
        parts.append(Part(of, (ratios or {}).get(of, math.nan), measured, low, high, item.n, verdict))
    return Judgement(statistics.combined(verdicts, ties=ties), tuple(parts), _keys(records), lacking=_lacking(records, planned))


def _of(
    records: Iterable[RunRecord], activation: str, keep_probability: float | None = None, learning_rate: float | None = None
) -> list[RunRecord]:
    """The records of an activation, at one keep probability and learning rate where they are given."""
    wanted = (activation, keep_probability, learning_rate)
    return [
        record
        for record in records
        if all(
            value in (None, getattr(record.config, name))
            for name, value in zip(("activation", "keep_probability", "learning_rate"), wanted, strict=True)
        )
    ]


def _cell(config: RunConfig) -> tuple[str, float]:
    return config.activation, config.learning_rate


def _keys(records: Iterable[RunRecord]) -> tuple[str, ...]:
    return tuple(record.config.key for record in records)


def _lacking(records: Sequence[RunRecord], planned: Sequence[RunConfig]) -> str:
    return f"{len(records)} of {len(planned)} runs" if 0 < len(records) < len(planned) else ""


def _name(activation: str) -> str:
    """A short name of an activation: the paper's, without the form, which is the tanh form throughout."""
    return {**published.NAMES, "identity": "linear"}.get(activation, activations.title(activation))


def _rate(value: float) -> str:
    return np.format_float_positional(value, trim="-")
