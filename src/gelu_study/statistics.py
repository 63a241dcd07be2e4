"""Statistics of run tables: learning rates chosen on validation, paired comparisons, and verdicts on the paper's claims.

Pure functions of arrays and of the table that `ledger.table` gives; nothing here reads files. The rule by which a claim is judged
is the docstring of `verdict`; it was written before any run was trained.
"""

from __future__ import annotations

from collections.abc import Iterable

REPRODUCED = "reproduced"
EQUIVALENT = "equivalent"
CONTRADICTED = "contradicted"
UNRESOLVED = "unresolved"
NOT_RUN = "not run"

LINKS = (CONTRADICTED, UNRESOLVED, EQUIVALENT, REPRODUCED)
"""Verdicts from the weakest to the strongest link of a claim."""

MARGIN = 0.05
"""Equivalence margin: losses whose ratio lies between 1 / 1.05 and 1.05 count as the same."""
SIGNIFICANCE = 0.05
"""Level of every test, held over the comparisons of a claim by Holm's method."""
CONFIDENCE = 0.95
POWER = 0.80
LEAST_SEEDS = 3
"""With fewer common seeds a comparison stays unresolved, whatever its tests say: two values tell next to nothing about a spread."""


def verdict(
    n: int, p_value: float, p_equivalent: float, shift: float, median_difference: float, *, alpha: float = SIGNIFICANCE
) -> str:
    r"""The verdict on one comparison of a claim that GELU's loss is the lower one. **The rule, fixed before the runs:**

    1. *What is compared.* GELU with one rival at one keep probability, each at the learning rate that validation chose for it,
       by the final training log loss (`train_loss`, dropout off, mean over the last epoch). Validation loss and test error at the
       epoch of best validation loss are reported beside it and not judged.
    2. *Pairs.* Runs of the same seed start from the same draw and see the same minibatches, so they are compared in pairs:
       d = ln(GELU's loss) - ln(rival's loss), below 0 where GELU is better. The scale is that of ratios because losses differ by
       orders of magnitude between settings and a margin must mean the same in all of them. Seeds that only one side has are left out
       and counted.
    3. *A diverged run counts, as the worst:* its loss is infinite. Medians and ranks stay defined. Two diverged runs of a seed are
       a tie.
    4. *Tests.* `p_value`: the two-sided paired t test of mean d = 0. `p_equivalent`: two one-sided paired t tests (Schuirmann 1987)
       of |mean d| < ln 1.05, a margin of 5 %. The t test is used because d is a difference of logarithms of two like quantities,
       hence near symmetric, and because the paper's five seeds can decide with it: the least p of a signed-rank test with
       five pairs is 1/16, above every level. The signed-rank test is reported as a check, and takes the place of the t test in
       both where a diverged run leaves the mean undefined. If all d are equal, the tests are certain (p = 0 or 1).
    5. *Several comparisons.* Both p values are adjusted by Holm's method over the comparisons of the claim that were run, each of the
       two kinds by itself; level 5 %.
    6. *Verdict of a comparison*, the first that holds:
       **not run**: no seed has both runs.
       **unresolved**: fewer than three common seeds.
       **equivalent**: adjusted `p_equivalent` < 5 %. This comes before the next two: a difference shown to be smaller than the margin
       is none, even where its sign is certain, since with enough seeds every sign becomes certain.
       **reproduced**: adjusted `p_value` < 5 %, GELU better on average (`shift` < 0), and GELU's median loss the lower one
       (`median_difference` < 0), for the claim speaks of medians.
       **contradicted**: the same with the rival better and its median lower.
       **unresolved**: everything else.
    7. *Verdict of the claim*: its weakest link, see `combined`.

    The interval shown beside a verdict is the 95 % bootstrap interval of the median of d; it illustrates and does not decide.
    A learning rate at the edge of its grid is flagged and changes no verdict.

    Args: `n` common seeds; the two adjusted p values; `shift`, whose sign is that of the test's statistic (mean d, or the signed-rank
    sum); `median_difference`, ln of GELU's median loss minus ln of the rival's.
    """
    if n == 0:
        return NOT_RUN
    if n < LEAST_SEEDS:
        return UNRESOLVED
    if p_equivalent < alpha:
        return EQUIVALENT
    if p_value < alpha and shift < 0 and median_difference < 0:
        return REPRODUCED
    if p_value < alpha and shift > 0 and median_difference > 0:
        return CONTRADICTED
    return UNRESOLVED


def combined(verdicts: Iterable[str]) -> str:
    """The verdict on a claim that must hold in every comparison: its weakest link.

    From weak to strong: contradicted, unresolved, equivalent, reproduced. So one contradicted comparison contradicts the claim;
    it is reproduced only if all comparisons are, and equivalent if GELU is beaten nowhere and shown to tie somewhere. A comparison
    that was not run counts as unresolved; if none was run, the claim is not run.
    """
    links = list(verdicts)
    if all(link == NOT_RUN for link in links):
        return NOT_RUN
    return min((UNRESOLVED if link == NOT_RUN else link for link in links), key=LINKS.index)
