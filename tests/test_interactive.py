"""Figures to point at hold the records' numbers; that they answer to the pointer is seen in test_book.py."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from bokeh.models import MultiLine, Scatter

from gelu_study import figures, interactive, ledger, statistics
from gelu_study.errors import ConfigurationError
from test_figures import study


def test_each_seed_has_a_curve_of_its_own_values():
    records = study(seeds=5, diverged=(2,))
    drawn = interactive.learning_curves(records)
    lines = [r.data_source.data for r in drawn.select({"name": "runs"}) if isinstance(r.glyph, MultiLine)]
    assert len(lines) == 2 * 2 * 3 and all(list(data["seed"]) == [0, 1, 2, 3, 4] for data in lines)
    chosen = [r for r in records if r.config.learning_rate == 1e-3 and r.config.keep_probability == 1]
    for record in chosen:
        (found,) = {
            float(ys[-1]) for data in lines for seed, ys in zip(data["seed"], data["ys"], strict=True)
            if seed == record.config.seed and np.isclose(ys[-1], record.curves["train_loss_smoothed"][-1], rtol=1e-5)
        }  # fmt: skip
        assert found > 0
    lengths = {len(ys) for data in lines for ys in data["ys"]}
    assert lengths == {10, 50}  # the one that diverged ends where its values do


def test_the_intervals_are_those_of_the_verdicts():
    verdicts = statistics.verdicts(ledger.table(study()))
    drawn = interactive.intervals(verdicts)
    (data,) = [r.data_source.data for r in drawn.renderers if isinstance(r.glyph, Scatter) and r.glyph.marker != "diamond"]
    rows = verdicts[verdicts["comparison"] != statistics.ALL]
    assert list(data["measured"]) == list(rows["measured"]) and list(data["low"]) == list(rows["low"])
    assert len(set(data["label"])) == len(rows) == 4
    assert dict(zip(rows["rival"], data["marker"], strict=True)) == {"relu": "square", "elu": "triangle"}


def test_an_activation_s_line_is_told_apart_without_colour_and_as_in_the_still_figures():
    styles = {name: interactive.dashes(name) for name in figures.STYLES}
    assert styles["gelu_tanh"] == "solid" and styles["relu"] == [10, 4]
    assert len({str(style) for style in styles.values()}) == len(figures.STYLES)


def test_panels_share_their_axis_and_leave_out_what_is_not_finite():
    run = study(seeds=1)[0]
    x, y = np.array([1.0, 2.0, 3.0]), np.array([0.5, np.inf, 0.25])
    drawn = interactive.curves([interactive.Panel("one", "error (%)", [(run, x, y)], logarithmic=False)] * 2, "width")
    first, second = drawn.children
    assert first.x_range is second.x_range and first.xaxis.axis_label == "width" and first.yaxis.axis_label == "error (%)"
    (data,) = [r.data_source.data for r in first.renderers]
    assert [list(xs) for xs in data["xs"]] == [[1, 3]] and [list(ys) for ys in data["ys"]] == [[0.5, 0.25]]


def test_without_a_chosen_rate_there_is_nothing_to_draw():
    with pytest.raises(ConfigurationError, match="nothing to draw"):
        interactive.learning_curves(study(), {})


def test_what_is_shown_waits_hidden_and_cannot_end_its_script_early(monkeypatch):
    shown = []
    monkeypatch.setattr(interactive, "display", lambda data, raw: shown.append(data["text/html"]))
    interactive.show(interactive.intervals(statistics.verdicts(ledger.table(study()))), "a-figure", "Point & see</script>")
    (body,) = shown
    assert body.startswith('<details class="study-interactive" id="a-figure" hidden><summary>Point &amp; see&lt;/script&gt;</summary>')
    (data,) = re.findall(r'<script type="application/json">(.*?)</script>', body)
    assert json.loads(data)["doc"]["roots"]


def test_the_library_is_copied_once_beside_the_pages(tmp_path):
    interactive.copy_library(tmp_path / "vendor")
    (file,) = (tmp_path / "vendor").iterdir()
    assert file.name == interactive.LIBRARY and 500_000 < file.stat().st_size < 2_000_000
