"""The explorer of activations: its script against mpmath and against the package, its page in a real browser."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import mpmath as mp
import numpy as np
import pytest
from playwright.sync_api import Browser, Page

import browser as reader
from gelu_study import activations, explorer, pages, paths
from gelu_study.errors import ConfigurationError
from gelu_study.explorer import Settings

SCRIPT = paths.BOOK / "_static" / "explorer.js"
PARAMETERS = [
    {"mu": 0.0, "sigma": 1.0, "alpha": 1.0, "negative_slope": 0.01},
    {"mu": 0.7, "sigma": 0.3, "alpha": 1.7, "negative_slope": 0.2},
    {"mu": -1.2, "sigma": 2.5, "alpha": 0.5, "negative_slope": 0.0},
]
POINTS = np.r_[np.linspace(-12, 12, 61) + 0.0137, -36, -30, -20.5, -1e-9, 1e-9, -1e-3, 1e-3, 30]

FORMULAS: dict[str, Callable[[Any, dict[str, float]], Any]] = {
    "gelu": lambda x, p: x * mp.erfc(-(x - p["mu"]) / p["sigma"] / mp.sqrt(2)) / 2,
    "gelu_tanh": lambda x, p: x / (1 + mp.exp(-2 * _tanh_argument((x - p["mu"]) / p["sigma"]))),
    "gelu_sigmoid": lambda x, p: x / (1 + mp.exp(-mp.mpf("1.702") * (x - p["mu"]) / p["sigma"])),
    "silu": lambda x, p: x / (1 + mp.exp(-(x - p["mu"]) / p["sigma"])),
    "lalu": lambda x, p: x * _laplace((x - p["mu"]) / p["sigma"]),
    "calu": lambda x, p: x * (mp.mpf(1) / 2 + mp.atan((x - p["mu"]) / p["sigma"]) / mp.pi),
    "relu": lambda x, p: max(x, 0),
    "elu": lambda x, p: x if x > 0 else p["alpha"] * (mp.exp(x) - 1),
    "leaky_relu": lambda x, p: x if x > 0 else p["negative_slope"] * x,
    "squared_relu": lambda x, p: max(x, 0) ** 2,
    "selu": lambda x, p: _SELU[0] * (x if x > 0 else _SELU[1] * (mp.exp(x) - 1)),
    "softplus": lambda x, p: mp.log(1 + mp.exp(x)),
    "mish": lambda x, p: x * mp.tanh(mp.log(1 + mp.exp(x))),
    "hard_swish": lambda x, p: x * min(max(x + 3, 0), 6) / 6,
    "identity": lambda x, p: x,
}
_SELU = (mp.mpf("1.0507009873554804934193349852946"), mp.mpf("1.6732632423543772848170429916717"))


def _formula(name: str, p: dict[str, float], x: Any) -> Any:
    return FORMULAS[name](x, p)


def _tanh_argument(u: Any) -> Any:
    return mp.sqrt(2 / mp.pi) * (u + mp.mpf("0.044715") * u**3)


def _laplace(u: Any) -> Any:
    return mp.exp(u) / 2 if u < 0 else 1 - mp.exp(-u) / 2


@pytest.fixture(scope="module")
def chrome(chromium) -> Iterator[Browser]:
    with reader.launched(chromium) as found:
        yield found


@pytest.fixture(scope="module")
def script(chrome) -> Iterator[Page]:
    """An empty page with the script's functions."""
    page = chrome.new_page()
    page.add_script_tag(path=SCRIPT)
    yield page
    page.close()


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """The page that the book has, without the rest of the book."""
    folder = tmp_path_factory.mktemp("explorer")
    shutil.copytree(paths.BOOK / "_static", folder / "_static")
    shown: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        for module in (explorer, pages):
            patch.setattr(module, "display", lambda data, **_: shown.append(data["text/html"]))
        explorer.show(Settings(), widgets=False)
        explorer.things_to_try()
    head = '<!doctype html><html lang="en" data-theme="light"><meta charset="utf-8"><link rel="icon" href="data:,"><title>x</title>'
    style = '<meta name="viewport" content="width=device-width"><link rel="stylesheet" href="_static/study.css">'
    (folder / "explorer.html").write_text(f"{head}{style}<body><main>{''.join(shown)}</main></body></html>", encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def address(site) -> Iterator[str]:
    with reader.served(site) as found:
        yield f"{found}explorer.html"


@pytest.fixture
def visit(chrome, address) -> Iterator[reader.Visit]:
    with reader.Visit(chrome, address) as found:
        found.page.wait_for_selector(".explorer-curve[data-name=gelu]")
        yield found
        assert found.problems == []


# What is computed


@pytest.mark.parametrize("name", explorer.NAMES)
def test_the_script_computes_the_functions_and_their_derivatives(script, name):
    ask = "([name, points, p]) => points.map(x => geluExplorer.evaluate(name, x, p))"
    for p in PARAMETERS:
        found = script.evaluate(ask, [name, POINTS.tolist(), p])
        with mp.workdps(60):
            exact = {key: mp.mpf(value) for key, value in p.items()}
            for x, (value, slope) in zip(POINTS, found, strict=True):
                at = mp.mpf(float(x))
                true = mp.mpf(FORMULAS[name](at, exact))
                derivative = mp.diff(partial(_formula, name, exact), at, h=mp.mpf(10) ** -25)
                assert abs(value - true) <= 1e-12 * abs(true) + 1e-300, (x, p)
                # a derivative may cross zero: its error is held against its parts too, of which f(x) / x is one
                assert abs(slope - derivative) <= 1e-12 * (abs(derivative) + abs(true / at)) + 1e-300, (x, p)


def test_the_script_and_the_package_have_the_same_functions(script):
    ask = "([name, points, p]) => points.map(x => geluExplorer.evaluate(name, x, p))"
    for name in explorer.offered():
        for p in PARAMETERS if explorer.parameters(name) else PARAMETERS[:1]:
            settings = Settings(**{**p, "alpha": max(p["alpha"], explorer.CONTROLS["alpha"].low)})
            found = np.array(script.evaluate(ask, [name, POINTS.tolist(), p if explorer.parameters(name) else asdict(settings)]))
            value, slope = explorer.evaluate(name, POINTS, settings)
            np.testing.assert_allclose(found[:, 0], value, rtol=1e-11, atol=1e-300, err_msg=name)
            np.testing.assert_allclose(found[:, 1], slope, rtol=1e-9, atol=1e-12, err_msg=name)


def _exact_moments(name: str, gain: float | None, settings: Settings) -> list[float]:
    """The recursion by Gauss-Legendre quadrature between the kinks of every function here."""
    nodes, weights = np.polynomial.legendre.leggauss(160)

    def moment(q: float) -> float:
        kinks = {k / np.sqrt(q) for k in (-3, 0, 3) if abs(k) < 14 * np.sqrt(q)}
        ends = sorted({-14.0, -4.0, -1.0, 1.0, 4.0, 14.0} | kinks)
        total = 0.0
        for a, b in pairwise(ends):
            z = (a + b) / 2 + (b - a) / 2 * nodes
            density = np.exp(-z * z / 2) / np.sqrt(2 * np.pi)
            total += (b - a) / 2 * float(weights @ (density * explorer.evaluate(name, np.sqrt(q) * z, settings)[0] ** 2))
        return total

    factor = 1 / moment(1.0) if gain is None else gain
    found, q = [], 1.0
    for _ in range(explorer.LAYERS):
        found.append(moment(q))
        q = factor * found[-1]
        if not 1e-100 < q < 1e100:  # squared ReLU leaves every range within a few layers
            break
    return found


@pytest.mark.parametrize("initialisation", explorer.INITIALISATIONS)
def test_script_and_package_integrate_the_signal_accurately(script, initialisation):
    settings = Settings(initialisation=initialisation, alpha=1.3)
    gain = explorer.INITIALISATIONS[initialisation][1]
    ask = "([name, gain, layers, p]) => geluExplorer.secondMoments(name, gain, layers, p)"
    for name in explorer.offered():
        exact = _exact_moments(name, gain, settings)
        if name == "squared_relu":
            exact = exact[:4]  # each layer squares the error of the last
        here = explorer.second_moments(name, settings, len(exact))
        there = script.evaluate(ask, [name, gain, len(exact), asdict(settings)])
        np.testing.assert_allclose(here, exact, rtol=2e-6, err_msg=name)
        np.testing.assert_allclose(there["moments"], here, rtol=1e-9, err_msg=name)
        assert there["gain"] == pytest.approx(explorer.gain(name, settings), rel=1e-9)


def test_eight_layers_with_unit_norm_give_the_known_second_moments(script):
    known = {"gelu": 5.3e-5, "relu": 2**-8, "elu": 8.6e-2}
    for name, value in known.items():
        assert explorer.second_moments(name, Settings())[7] == pytest.approx(value, rel=6e-3)
        there = script.evaluate("([name, p]) => geluExplorer.secondMoments(name, 1, 8, p).moments", [name, PARAMETERS[0]])
        assert there[7] == pytest.approx(value, rel=6e-3)
    assert explorer.second_moments("relu", Settings())[7] == pytest.approx(2**-8, rel=1e-12)
    assert explorer.second_moments("relu", Settings(initialisation="he"))[29] == pytest.approx(0.5, rel=1e-12)
    matched = explorer.second_moments("gelu", Settings(initialisation="matched"))
    assert matched == pytest.approx(matched[0], rel=1e-9)


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        ({"activations": ["gelo"]}, "no activation 'gelo'"),
        ({"sigma": 0.0}, "sigma is 0; it must be between 0.01 and 3"),
        ({"layer": 31}, "layer is 31"),
        ({"initialisation": "xavier"}, "known are unit, glorot"),
    ],
)
def test_settings_that_cannot_be_shown_are_refused(wrong, complaint):
    with pytest.raises(ConfigurationError, match=complaint):
        Settings(**wrong)


def test_what_the_presets_say_is_what_is_known():
    seen = {preset.title: preset.seen for preset in explorer.presets()}
    assert "−0.170 at x = −0.752" in seen["GELU, ReLU, ELU"]
    assert "4.73 × 10⁻⁴ at |x| = 2.70" in seen["The forms of GELU"]
    assert "0.0203 at |x| = 2.27" in seen["The forms of GELU"]
    assert "5.3 × 10⁻⁵ for GELU" in seen["Eight layers"]


# The page


def _curve(page: Page, plot: str, name: str) -> str:
    return str(page.locator(f"svg[data-key={plot}] [data-name={name}] .explorer-line").get_attribute("d"))


def test_every_activation_can_be_chosen_and_told_apart(visit):
    page = visit.page
    for name in explorer.offered():
        box = page.get_by_label(activations.title(name), exact=True)
        box.check()
    for plot in ("value", "slope", "difference", "moments"):
        page.wait_for_function(
            "([plot, n]) => document.querySelectorAll(`svg[data-key=${plot}] [data-name]`).length === n",
            arg=[plot, len(explorer.offered())],
        )
        for name in explorer.offered():
            drawn = _curve(page, plot, name)
            assert drawn.startswith("M") and "NaN" not in drawn and "Infinity" not in drawn, (plot, name)
    looks = page.evaluate(
        "[...document.querySelectorAll('.explorer-choice g')].map(g => g.children[0].getAttribute('stroke-dasharray') + g.children[1].getAttribute('d'))"
    )
    assert len(set(looks)) == len(explorer.offered())


def test_a_setting_redraws_and_travels_in_the_address(visit, chrome):
    page = visit.page
    before = [_curve(page, plot, "elu") for plot in ("value", "slope", "difference", "moments")]
    page.get_by_role("spinbutton", name="α, depth of ELU").fill("2")
    page.get_by_label("initialisation").select_option("he")
    page.get_by_role("checkbox", name="logarithmic").check()
    page.wait_for_url(re.compile("#activations=gelu,relu,elu&alpha=2&initialisation=he&logarithmic=1$"))
    after = [_curve(page, plot, "elu") for plot in ("value", "slope", "difference", "moments")]
    assert all(old != new for old, new in zip(before, after, strict=True))
    with reader.Visit(chrome, page.url) as other:
        other.page.wait_for_selector(".explorer-curve[data-name=elu]")
        assert [_curve(other.page, plot, "elu") for plot in ("value", "slope", "difference", "moments")] == after
        assert other.page.locator("#explorer-alpha").input_value() == "2"
        assert other.problems == []
    page.get_by_role("button", name="Reset").click()
    page.wait_for_function("document.getElementById('explorer-alpha').value === '1'")
    page.wait_for_timeout(900)
    assert [_curve(page, plot, "elu") for plot in ("value", "slope", "difference", "moments")] == before


def test_an_address_with_nonsense_is_read_as_far_as_it_makes_sense(chrome, address):
    with reader.Visit(
        chrome, f"{address}#activations=gelu,nonsense&sigma=-5&layer=x&initialisation=constructor&alpha=Infinity"
    ) as visit:
        visit.page.wait_for_selector(".explorer-curve[data-name=gelu]")
        assert visit.page.locator("svg[data-key=value] [data-name]").count() == 1
        assert visit.problems == []


def test_pointing_reads_values_quietly_and_the_keyboard_speaks(visit):
    page = visit.page
    page.locator("svg[data-key=slope]").hover(position={"x": 200, "y": 60})
    page.wait_for_function("document.getElementById('explorer-x').value !== '1'")
    page.wait_for_timeout(900)
    assert page.locator("[role=status]").inner_text() == ""
    page.get_by_role("spinbutton", name="x, where").fill("2")
    page.wait_for_function("document.querySelector('[role=status]').textContent.startsWith('at x = 2: GELU 1.95')")
    row = page.locator(".explorer-table tr", has_text="GELU").first.inner_text().split("\t")
    assert [cell.strip() for cell in row] == ["GELU", "1.954", "1.085", "0"]
    page.get_by_role("spinbutton", name="layer").fill("8")
    page.get_by_role("slider", name="layer").press("ArrowRight")
    page.wait_for_function("document.querySelector('[role=status]').textContent.startsWith('after layer 9: GELU 1.3')")


def test_every_control_is_reached_by_tab_has_a_name_and_shows_its_focus(visit):
    page = visit.page
    controls = "[...document.querySelectorAll('main :is(input, select, button)')].filter(c => c.checkVisibility())"
    wanted = page.evaluate(f"{controls}.length")
    assert page.evaluate(f"{controls}.filter(c => !(c.labels?.length || c.ariaLabel || c.textContent.trim())).length") == 0
    reached = set()
    for _ in range(wanted):
        page.keyboard.press("Tab")
        focus = page.evaluate(
            f"[{controls}.indexOf(document.activeElement), getComputedStyle(document.activeElement).outlineWidth]"
        )
        assert focus[1] == "3px"
        reached.add(focus[0])
    assert reached == set(range(wanted))


def test_the_presets_load(visit):
    page = visit.page
    for number, preset in enumerate(explorer.presets()):
        page.locator(f"[data-preset='{number}']").click()
        names = list(preset.settings.activations)
        page.wait_for_function(
            "names => names.join() === [...document.querySelectorAll('svg[data-key=value] [data-name]')].map(g => g.dataset.name).join()",
            arg=sorted(names, key=explorer.NAMES.index),
        )
        assert page.locator("#explorer-reach").input_value() == f"{preset.settings.reach:g}"


@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_leaves_the_window(chrome, address, width):
    with reader.Visit(chrome, f"{address}#activations={','.join(explorer.offered())}", width) as visit:
        visit.page.wait_for_selector(".explorer-curve[data-name=silu]")
        assert visit.page.evaluate(reader.OVERFLOW) == []
        assert visit.problems == []


def test_it_works_from_a_disk(chrome, site):
    with reader.Visit(chrome, f"{(site / 'explorer.html').as_uri()}#activations=silu") as visit:
        visit.page.wait_for_selector(".explorer-curve[data-name=silu]")
        visit.page.get_by_role("checkbox", name="logarithmic").check()
        visit.page.wait_for_url(re.compile("logarithmic=1"))
        assert visit.problems == []


def test_without_scripts_there_is_a_figure_and_with_them_only_the_explorer(chrome, address, visit):
    assert visit.page.locator("img").count() == 0
    page = chrome.new_page(java_script_enabled=False)
    page.goto(address)
    figure = page.locator("figure img")
    box = figure.bounding_box()
    assert box is not None and box["width"] > 300 and box["height"] > 300
    assert "GELU, ReLU, ELU" in str(figure.get_attribute("alt"))
    assert page.locator("button:visible").count() == 0
    page.close()


def test_the_readout_says_what_is_drawn():
    rows = explorer.readout(replace(Settings(), x=2.0, layer=1))
    assert "<th>GELU</th><td>1.954</td><td>1.085</td><td>0</td><td>0.4252</td>" in rows
