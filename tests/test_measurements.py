"""Measurements are kept with what made them, whole or not at all."""

from __future__ import annotations

import json

import pytest
import torch

from gelu_study import measurements
from gelu_study.errors import ConfigurationError, DataError


def test_what_was_measured_is_read_with_its_environment(tmp_path):
    taken = measurements.take("speed", lambda device: {"on": device.type, "values": [1.5, 2]}, "cpu")
    path = measurements.write(taken, tmp_path / "new")
    found = measurements.read("speed", tmp_path / "new")
    assert found == taken
    assert found is not None and found.result == {"on": "cpu", "values": [1.5, 2]}
    assert found.environment["torch"] == torch.__version__
    assert {"device_name", "threads", "revision", "dirty", "started", "seconds"} <= set(found.environment)
    json.loads(path.read_text(), parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))


def test_nan_is_refused_and_the_old_file_stays(tmp_path):
    good = measurements.take("speed", lambda device: {"value": 1}, "cpu")
    measurements.write(good, tmp_path)
    with pytest.raises(ConfigurationError, match="no JSON"):
        measurements.write(measurements.Measurement("speed", {"value": float("nan")}, {}), tmp_path)
    assert measurements.read("speed", tmp_path) == good


@pytest.mark.parametrize("text", ["{", "[]", '{"schema": 1}', '{"schema": 2, "name": "speed", "environment": {}, "result": {}}'])
def test_damage_is_named(tmp_path, text):
    (tmp_path / "speed.json").write_text(text)
    with pytest.raises(DataError, match=r"speed\.json"):
        measurements.read("speed", tmp_path)


def test_absent_is_none(tmp_path):
    assert measurements.read("speed", tmp_path) is None
