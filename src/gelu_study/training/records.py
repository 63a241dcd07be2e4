"""Makes the records of runs from their curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gelu_study.runs import RunConfig, RunRecord

Curves = Mapping[str, Sequence[float]]


def _rounded(value: float) -> float:
    """Seven significant digits: what float32 holds."""
    return float(f"{value:.7g}")


def diverged(config: RunConfig, step: int, curves: Curves, environment: dict[str, Any]) -> RunRecord:
    """The record of a run whose loss was first not finite at a step, counted from 1; its curves are cut before that epoch."""
    epoch = (step - 1) // config.steps_per_epoch
    kept = {name: [_rounded(value) for value in curves[name][: epoch * values]] for name, values in config.curves.items()}
    return RunRecord(config, "diverged", diverged={"step": step, "epoch": epoch + 1}, curves=kept, environment=environment)


def finished(
    config: RunConfig,
    curves: Curves,
    finals: Sequence[float],
    environment: dict[str, Any],
    further: Mapping[str, Sequence[float] | Sequence[int]] | None = None,
) -> RunRecord:
    """The record of a run that came to its end, with its complete curves and what `RunConfig.finals` names; `further` holds lists
    that were measured once."""

    def measured(epoch: int) -> dict[str, float]:
        """The measures at the end of an epoch, counted from 1."""
        return {name: _rounded(curves[curve][config.curves[curve] * epoch - 1]) for name, curve in config.curve_of.items()}

    best: dict[str, float] = {}
    if config.validation_examples:
        logs = config.curves["validation_loss"]
        losses = curves["validation_loss"][logs - 1 :: logs]
        epoch = losses.index(min(losses)) + 1
        best = {"epoch": epoch, "step": epoch * config.steps_per_epoch, **measured(epoch)}
    lists = {
        name: [value if type(value) is int else _rounded(value) for value in values] for name, values in (further or {}).items()
    }
    return RunRecord(
        config,
        "finished",
        curves={name: [_rounded(value) for value in values] for name, values in curves.items()} | lists,
        final=measured(config.epochs) | {name: _rounded(value) for name, value in zip(config.finals, finals, strict=True)},
        best=best,
        environment=environment,
    )
