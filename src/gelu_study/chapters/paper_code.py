"""Where the paper's text and the authors' code part, each with what this study does; and what can be said of them without a run."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pandas as pd
from scipy import stats

from gelu_study import pages, published, statistics
from gelu_study.chapters import departures, scoring
from gelu_study.initialisations import weights
from gelu_study.study import Study
from gelu_study.training.stacks import ADAM_BETAS, ADAM_EPSILON, CLEAN_EVERY

PEEKING = '<a href="what-peeking-buys.html">what peeking buys</a>'
CERTAINTY = '<a href="how-sure.html">how much a few seeds say</a>'


@dataclass(frozen=True)
class Departure:
    """A departure in words. `state` says what was run of it, from the studies of the switches and of the classifier."""

    name: str
    text: str
    code: str
    here: str
    switch: str  # HTML; empty where there is none
    state: Callable[[Study, Study], str]


def _runs(number: int) -> Callable[[Study, Study], str]:
    """The state of the switch of that number."""

    def state(found: Study, base: Study) -> str:
        done, planned = departures.state(found, departures.switches(found)[number])
        return f"{done} of {planned} runs" if done else pages.badge(statistics.NOT_RUN)

    return state


def _read_off(found: Study, base: Study) -> str:
    return f"read off {len(base.records)} runs" if base.records else pages.badge(statistics.NOT_RUN)


def _not_run(found: Study, base: Study) -> str:
    return pages.badge(statistics.NOT_RUN)


def _by_seeds(found: Study, base: Study) -> str:
    seeds = len({record.config.seed for record in base.records})
    return f"{seeds} seeds" if seeds else pages.badge(statistics.NOT_RUN)


def _settled(found: Study, base: Study) -> str:
    return "no run needed"


def departures_list(found: Study) -> tuple[Departure, ...]:
    """Every departure, those of the MNIST classifier first."""
    form, initialisation, optimiser, examples = (switch.setting for switch in departures.switches(found))
    return (
        Departure(
            "The form of GELU",
            "x Φ(x)",
            "the tanh form, in every experiment",
            "the tanh form wherever GELU is compared; the exact form as a switch",
            form,
            _runs(0),
        ),
        Departure(
            "Unit norm",
            "weights with unit-norm rows",
            "each unit's incoming vector has norm 1: a column of the [in, out] matrix",
            "as the code; outgoing vectors, the matrix's rows, as a switch",
            initialisation,
            _runs(1),
        ),
        Departure(
            "Adam's ε",
            "Adam, no more said",
            "TensorFlow's: ε beside the root of the uncorrected second moment",
            "as the code; PyTorch's as a switch",
            optimiser,
            _runs(2),
        ),
        Departure(
            "Validation set of MNIST",
            "5,000 of the 60,000 training images, not said which",
            "55,000 train, 5,000 validate",
            "the last 5,000 validate; training on all 60,000 as a switch",
            examples,
            _runs(3),
        ),
        Departure(
            "Choice of the learning rate",
            "by validation, from three",
            "given on the command line",
            f"by validation; what test data would have chosen is in {PEEKING}",
            "",
            _read_off,
        ),
        Departure(
            "Number of epochs",
            "MNIST classifier 50; the autoencoder's figures span 250",
            "classifier 50; autoencoder 500",
            "50 and 250; fewer are read off the curves below",
            "<code>epochs</code>",
            _read_off,
        ),
        Departure(
            "Training loss with dropout",
            "training log loss, no more said",
            "each minibatch once more without dropout, before the step",
            f"the same on every {CLEAN_EVERY}th minibatch; other measures of it below",
            "",
            _read_off,
        ),
        Departure(
            "Smoothing of the figures",
            "not mentioned",
            "not in the scripts; the plotted values give it away",
            "our curves are smoothed likewise wherever they lie over the paper's",
            "",
            _settled,
        ),
        Departure(
            "Seeds and raw results",
            "medians of three or five runs",
            "seeds never set, but for the CIFAR-10 script, where all runs would share one; raw results never published",
            f"every seed set, every record published; {CERTAINTY}",
            "<code>seed</code>",
            _by_seeds,
        ),
        Departure(
            "CIFAR-10: validation split",
            "rate chosen with 5,000 validation images, then trained on all 50,000",
            "no validation split in the script",
            f"as the paper says: <a href=\"cifar10-convnet.html\">CIFAR-10</a>; which epoch its numbers are from: {PEEKING}",
            "<code>train_examples, validation_examples</code>",
            _not_run,
        ),
        Departure(
            "CIFAR-100: test set",
            "median error of three runs",
            "the test set stands in for validation",
            "the rate is the paper's, nothing is chosen: <a href=\"cifar100-wrn.html\">CIFAR-100</a>; a bound below",
            "<code>validation_examples</code>",
            _not_run,
        ),
        Departure(
            "CIFAR-100: dropout",
            "keep probability 0.7",
            "a probability of 0.3 to drop",
            "the same thing in other words, see below",
            "<code>keep_probability=0.7</code>",
            _settled,
        ),
        Departure(
            "TIMIT: mean subtracted twice",
            "features standardised",
            "validation and test features have the training mean subtracted twice",
            "the corpus is licensed and not here; what it does to a feature, below",
            "",
            _not_run,
        ),
    )


def departures_table(found: Study, base: Study) -> None:
    """All departures, with what was run of each."""
    rows = [
        {
            "departure": f"<b>{item.name}</b>",
            "the text": item.text,
            "the code": item.code,
            "this study": item.here + (f"<br>{item.switch.replace('_', '_<wbr>').replace('=', '=<wbr>')}" if item.switch else ""),
            "run here": item.state(found, base),
        }
        for item in departures_list(found)
    ]
    pages.plain_table(pd.DataFrame(rows))


# What needs no run


def epsilon_table(steps: Sequence[int]) -> None:
    """TensorFlow's epsilon as the one that PyTorch's Adam would need for the same step."""
    rows = [
        {"step": f"{step:,}", "ε in PyTorch's form": f"{epsilon(step):.2e}", "× ε": f"{epsilon(step) / ADAM_EPSILON:.1f}"}
        for step in steps
    ]
    pages.plain_table(pd.DataFrame(rows))


def epsilon(step: int) -> float:
    """The epsilon beside the root of the corrected second moment that does what TensorFlow's does beside the uncorrected one."""
    return ADAM_EPSILON / math.sqrt(1 - ADAM_BETAS[1] ** step)


def initial_table(layers: Sequence[tuple[int, int]], seed: int = 0) -> None:
    """How large a layer's output is under both readings of unit norm, for inputs of second moment 1."""
    rows = []
    for (inputs, outputs), (incoming, outgoing) in zip(layers, output_sizes(layers, seed), strict=True):
        rows.append(
            {
                "layer": f"{inputs} → {outputs}",
                "incoming norm 1": f"{incoming:.2f}",
                "outgoing norm 1": f"{outgoing:.2f}",
                "ratio": f"{outgoing / incoming:.2f}",
            }
        )
    pages.plain_table(pd.DataFrame(rows))


def output_sizes(layers: Sequence[tuple[int, int]], seed: int = 0) -> list[tuple[float, float]]:
    """Root mean square of each layer's outputs with incoming and with outgoing vectors of norm 1, for independent inputs of second
    moment 1, from drawn weights."""
    drawn = [weights(scheme, layers, seed) for scheme in ("unit-norm", "unit-norm-outgoing")]
    return [tuple(float(weight.square().sum(dim=0).mean().sqrt()) for weight in pair) for pair in zip(*drawn, strict=True)]  # type: ignore[misc]


def shift_table(offsets: Sequence[float]) -> None:
    """A feature standardised once in training and with its mean subtracted twice in testing, by its mean over its deviation."""
    rows = []
    for offset in offsets:
        mean, deviation = twice_subtracted(offset, 1.0)
        rows.append(
            {
                "mean / deviation": f"{offset:g}",
                "mean in testing": f"{mean:g}".replace("-", "−"),
                "deviation": f"{deviation:g}",
                "below the training median": f"{100 * float(stats.norm.cdf(0, mean, deviation)):.0f} %",
            }
        )
    pages.plain_table(pd.DataFrame(rows))


def twice_subtracted(mean: float, deviation: float) -> tuple[float, float]:
    """Mean and deviation of (x - mean - mean) / deviation, for x of that mean and deviation; (0, 1) if it were done once."""
    return 0.0 - mean / deviation, 1.0


def dropout(keep: float) -> None:
    """`dropout_lines`, shown."""
    pages.text(dropout_lines(keep))


def dropout_lines(keep: float) -> str:
    """What 0.7 means read rightly and wrongly: the variance of the mask, relative to its mean squared."""
    rightly, wrongly = ((1 - share) / share for share in (keep, 1 - keep))
    return (
        f"To keep with probability {keep:g} and to drop with probability {1 - keep:g} are one thing, and nothing departs. Were "
        f"the number taken for the other one, units would be kept with probability {1 - keep:g}: the mask, scaled to mean 1, has "
        f"variance {rightly:.2f} read rightly and {wrongly:.2f} read wrongly, so it matters which of the two a library asks for."
    )


def bound(epochs: int, examples: int) -> None:
    """`bound_lines`, shown."""
    pages.text(bound_lines(epochs, examples))


def bound_lines(epochs: int, examples: int) -> str:
    """The most that choosing an epoch on the test set could buy by luck alone for the published CIFAR-100 numbers."""
    claims = published.claims("result", "cifar100_wrn40-4").set_index("activation")["value"].astype(float)
    error = float(claims["GELU"])
    deviation = scoring.binomial_error(error, examples)
    bought = -scoring.least_of_normals(epochs) * deviation
    gap = float(claims.drop("GELU").min()) - error
    return (
        f"The paper's {error:.2f} % for GELU on {examples:,} test images has a binomial standard error of {deviation:.2f} "
        f"points. If each of {epochs} epochs were tested on {examples:,} images of its own and no epoch were better than "
        f"another, the lowest error would lie {bought:.2f} points below the mean. The epochs of a run share their images, so "
        f"luck is smaller than that. The gap to the next activation is {gap:.2f} points, and what luck one has, the others "
        "have too. Whether the published errors are those of the last epoch or of the best cannot be told from here: figure 6 "
        "plots the log loss."
    )


def passing_table(runs: pd.DataFrame) -> None:
    """Remarks of the paper that only training can check, with the runs that there are."""
    silu = int((runs["activation"] == "silu").sum())
    plain = runs[runs["optimiser"].isin(["sgd", "momentum"])]

    def state(count: int) -> str:
        return f"{count} runs" if count else pages.badge(statistics.NOT_RUN)

    rows = [
        {"the paper says": "SiLU does worse than GELU, but usually better than ReLU and ELU", "runs here": state(silu)},
        {"the paper says": "use an optimiser with momentum", "runs here": state(len(plain))},
    ]
    pages.plain_table(pd.DataFrame(rows))
