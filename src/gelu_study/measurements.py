"""Measurements that are no training runs: each a JSON file in `data/measurements`, made by `gelu-study measure NAME`.

What takes too long for a page, or depends on the machine, is measured once, kept with the machine, the date and the revision of the
code that measured it, and read by the pages. Like a record it is never edited: measure again instead.
"""

from __future__ import annotations

import datetime
import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from gelu_study import files, paths, training
from gelu_study.errors import ConfigurationError, DataError

SCHEMA = 1


@dataclass(frozen=True)
class Measurement:
    """A result and what made it. `environment` has the fields of a run record's, `started` (UTC) and `seconds` among them."""

    name: str
    result: dict[str, Any]
    environment: dict[str, Any]


def take(name: str, measure: Callable[[torch.device], dict[str, Any]], device: str = "auto") -> Measurement:
    """Call `measure` on the device and return its result, which must be strict JSON, with the environment."""
    where = training.resolve_device(device)
    environment = training.environment_of(where)  # now: the checkout may move on meanwhile
    started, clock = datetime.datetime.now(datetime.UTC), time.perf_counter()
    result = measure(where)
    environment |= {"started": started.isoformat(timespec="seconds"), "seconds": round(time.perf_counter() - clock, 1)}
    return Measurement(name, result, environment)


def write(measurement: Measurement, folder: str | os.PathLike[str] | None = None) -> Path:
    """Write a measurement as NAME.json, in the place of an older one. Raises `DataError` when it cannot be written."""
    path = Path(folder or paths.MEASUREMENTS) / f"{measurement.name}.json"
    content = {
        "schema": SCHEMA,
        "name": measurement.name,
        "environment": measurement.environment,
        "result": measurement.result,
    }
    try:
        files.write_atomically(path, json.dumps(content, indent=1, allow_nan=False, sort_keys=True) + "\n")
    except OSError as error:
        raise DataError(f"could not write {path}: {error.strerror}; nothing was left half-written") from error
    except ValueError as error:
        raise ConfigurationError(f"the measurement {measurement.name} holds NaN or infinity, which is no JSON") from error
    return path


def read(name: str, folder: str | os.PathLike[str] | None = None) -> Measurement | None:
    """The measurement of that name, or None if there is none. Raises `DataError` for a file that is damaged."""
    path = Path(folder or paths.MEASUREMENTS) / f"{name}.json"
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if (content["schema"], content["name"]) != (SCHEMA, name):
            raise DataError(f"{path} is of schema {content['schema']} and named {content['name']}; measure again")
        return Measurement(name, content["result"], content["environment"])
    except FileNotFoundError:
        return None
    except OSError as error:
        raise DataError(f"could not read {path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path} is damaged ({error}); `gelu-study measure {name}` makes it anew") from error
