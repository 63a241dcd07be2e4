"""Every parameter of every notebook counts: another value changes a plan, where something acts, or what the page shows.

A notebook's statements are run in this process, twice each and only those that a parameter reaches, until what they do differs.
Training and measuring are stood in for, at the boundary: what is asked of them is what they would act on.
"""

from __future__ import annotations

import ast
import contextlib
import copy
import functools
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import nbformat
import pytest
from IPython.display import display
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import Collection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.text import Text

import synthetic
from gelu_study import datasets, ledger, measurements, notebooks, pages, paths, protocols, statistics, sweep

NOTEBOOKS = {path.stem: path for path in sorted(paths.NOTEBOOKS.glob("*.ipynb"))}
HERE = Path(__file__).name
ELSEWHERE = "https://example.org/study"

OTHER: dict[str, Any] = {
    "activations": ["relu", "elu"],
    "alpha": 2.0,
    "autoencoder_epochs": [5, 20],
    "base_scale": "quick",
    "compiled": False,
    "d_model": 256,
    "dataset": "digits",
    "depth": 3,
    "device": "cuda:1",
    "differences": [3.0],
    "draw_sizes": [4],
    "classifier_epochs": [5, 50],
    "download": "mnist",
    "draws": 150,
    "dropout": 0.5,
    "dtype": "bfloat16",
    "dtypes": ["bfloat16"],
    "edge_dtype": "float64",
    "elements": 16384,
    "epochs": 4,
    "family_high": 3.0,
    "family_low": -5.0,
    "heads": 4,
    "hidden_factor": 3.0,
    "high": 2.0,
    "initialisation": "he",
    "initialisations": ["he"],
    "input_second_moment": 0.1,
    "inputs": [-1.0, 1.0],
    "keep_probabilities": [1.0],
    "layer": 3,
    "layers": 2,
    "learning_rate": 0.01,
    "learning_rates": [1e-3],
    "ledger": "",  # a folder, which is made for it
    "logarithmic": True,
    "low": -2.0,
    "measure": True,
    "most_seeds": 6,
    "mu": 0.5,
    "negative_slope": 0.2,
    "networks": 2,
    "offsets": [0.0, 3.0],
    "plateau": 3,
    "points": 300,
    "points_float64": 30,
    "reach": 3.0,
    "repository": ELSEWHERE,
    "resamples": 30,
    "response": "best_test_error",
    "runs_to_pick_from": 3,
    "scale": "quick",
    "seconds": 10.0,
    "seed": 7,
    "seed_count": 2,
    "seeds": [1],
    "sequence_length": 128,
    "shown_activation": "relu",
    "shown_keep_probability": 0.5,
    "shown_levels": [0.5],
    "shown_seed": 1,
    "sigma": 0.5,
    "sigmas": [0.75],
    "soi_draws": [10, 60],
    "steps": [1, 7],
    "table_points": [1.0],
    "tokens": 16,
    "train": True,
    "units": ["gelu", "relu"],
    "vocabulary": 1000,
    "weight_std": 0.0,
    "widgets": False,
    "width": 16,
    "x": 0.5,
}
"""Another valid value of the parameters of each name."""

OTHER_IN: dict[tuple[str, str], Any] = {
    ("playground", "dataset"): "mnist",
    ("start", "scale"): "smoke",
    ("approximations", "dtypes"): ["float64"],
}
"""Where another value than that is needed: by notebook and name."""

BESIDE: dict[str, dict[str, Any]] = {
    "approximations": {"dtypes": ["float32"], "points": 50, "points_float64": 40},
    "definition": {"soi_draws": [10, 50]},
    "explorer": {"widgets": False},
    "how-sure": {"resamples": 20, "most_seeds": 5},
    "transformer-block": {"units": ["gelu"], "tokens": 8, "d_model": 64, "seeds": [0]},
    "what-explains-it": {"activations": ["gelu_tanh"], "initialisations": ["unit-norm"], "depth": 2, "networks": 1},
    "what-peeking-buys": {"draws": 100},
}
"""Values in both runs, so that they are short: by notebook."""

BESIDE_IN: dict[tuple[str, str], dict[str, Any]] = {
    **{(name, "device"): {"train": True} for name in NOTEBOOKS if "train" in notebooks.parameters(NOTEBOOKS[name])},
    **{("cost", name): {"measure": True} for name in ("seconds", "compiled", "device")},
    ("approximations", "points_float64"): {"dtypes": ["float64"]},
    ("cifar10-convnet", "seeds"): {
        "learning_rates": [1e-3]
    },  # given one, none is chosen, and what follows a choice is all there is
    ("cifar10-fast", "seeds"): {"learning_rates": [1.5]},
    ("explorer", "negative_slope"): {"activations": ["gelu", "leaky_relu"]},
    ("explorer", "widgets"): {"widgets": True},
    ("mnist-classifier", "dataset"): {"scale": "quick"},
    # runs at this scale are made up for it
    **{(name, "repository"): {"scale": "smoke"} for name in protocols.EXPERIMENTS},
}
"""Values in both runs without which a parameter has no effect: by notebook and name."""


def beside(name: str, parameter: str, folder: Path) -> dict[str, Any]:
    """The values of a notebook's parameters in both runs that are not its defaults."""
    values = BESIDE.get(name, {}) | BESIDE_IN.get((name, parameter), {})
    if values.get("scale") == "smoke":
        for config in protocols.plan(name, "smoke"):
            record = synthetic.diverged(config)
            ledger.Ledger(folder).write(replace(record, environment={**record.environment, "revision": "0" * 40, "dirty": False}))
        values |= {"ledger": str(folder)}
    return values


def other(name: str, parameter: str, default: object, folder: Path) -> Any:
    """Another value of a notebook's parameter."""
    if parameter == "ledger":
        return str(folder / "another")
    known = OTHER_IN.get((name, parameter), OTHER.get(parameter, default))
    if known == default and parameter == "train":
        return not default
    if known == default:
        pytest.fail(
            f"no other value is known for the parameter {parameter} of {name}.ipynb, which is {default!r} there; add a valid one to "
            f"OTHER in tests/{HERE} (and to BESIDE_IN what others must be for it to count)"
        )
    return known


# ------------------------------------------------------------------------------------------- what a statement does


@dataclass
class Trace:
    """What was asked for, opened and shown, in order."""

    events: list[Any] = field(default_factory=list)

    def draw(self, drawn: Figure, name: str, alt: str, caption: str, keys: Iterable[str]) -> None:
        """A figure as what is in it: to set it in SVG would take a second."""
        self.events.append(("drawn", list(map(_content, drawn.findobj())), name, alt, caption, list(keys)))

    def show(self, *objects: Any, **_: Any) -> None:
        for shown in objects:
            data = getattr(shown, "data", shown)
            if isinstance(data, dict):  # a widget's name is drawn anew each time
                data = {kind: value for kind, value in data.items() if "widget-view" not in kind}
            self.events.append(("shown", data if isinstance(data, str | dict) else type(shown).__name__))


def _content(artist: Artist) -> object:
    if isinstance(artist, Line2D):
        return artist.get_xydata().tobytes()
    if isinstance(artist, Text):
        return artist.get_text()
    if isinstance(artist, Collection):
        return [path.vertices.tobytes() for path in artist.get_paths()], artist.get_offsets().tobytes()
    if isinstance(artist, Patch):
        return artist.get_path().vertices.tobytes(), artist.get_patch_transform().get_matrix().tobytes()
    return artist.viewLim.bounds if isinstance(artist, Axes) else None


@pytest.fixture
def trace(monkeypatch) -> Trace:
    """Records what acts: plans, folders of records, what is to be trained or measured, and what the pages show."""
    found = Trace()
    plan, opened = protocols.plan, ledger.Ledger.__init__

    def planned(*arguments: Any, **options: Any) -> Any:
        configs = plan(*arguments, **options)
        found.events.append(("planned", [config.key for config in configs]))
        return configs

    def opening(self: ledger.Ledger, folder: Any) -> None:
        found.events.append(("opened", str(folder)))
        opened(self, folder)

    def complete(configs: Any, book: ledger.Ledger, **options: Any) -> Any:
        asked = {name: value for name, value in options.items() if isinstance(value, str | int | None)}
        found.events.append(("trained", [config.key for config in configs], str(book.folder), asked))
        return [record for config in configs if (record := book.get(config.key)) is not None]

    def fetch(name: str) -> None:
        found.events.append(("fetched", name))

    def take(name: str, measure: Any, device: str) -> Any:
        found.events.append(("measured", name, measure.keywords, device))
        return measurements.read(name)

    monkeypatch.setattr(protocols, "plan", planned)
    monkeypatch.setattr(ledger.Ledger, "__init__", opening)
    monkeypatch.setattr(sweep, "complete", complete)
    monkeypatch.setattr(datasets, "fetch", fetch)
    monkeypatch.setattr(measurements, "take", take)
    monkeypatch.setattr(pages, "figure", found.draw)
    monkeypatch.setattr(statistics, "_RESAMPLES", 99)
    return found


class Statements:
    """A notebook's statements after its parameters, of which those that are asked for are run, once."""

    def __init__(self, path: Path, values: Mapping[str, Any]) -> None:
        self.names: dict[str, Any] = dict(values)
        self.did: dict[int, list[Any]] = {}
        cells = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
        source = [cell.source for cell in cells if "parameters" not in cell.metadata.get("tags", [])]
        self.all = [statement for text in source for statement in ast.parse(text).body]

    def reached(self, parameter: str) -> list[int]:
        """The statements that a parameter's value reaches."""
        carriers, places = {parameter}, []
        for place, statement in enumerate(self.all):
            if carriers & _names(statement, ast.Load):
                places.append(place)
                carriers |= _names(statement, ast.Store)
        return places

    def run(self, place: int, trace: Trace) -> list[Any]:
        """What a statement does; what it needs of earlier ones is run first."""
        if place in self.did:
            return self.did[place]
        for earlier in range(place):
            if _names(self.all[place], ast.Load) & _names(self.all[earlier], ast.Store):
                self.run(earlier, trace)
        before = len(trace.events)
        with pages_show(trace):
            exec(compile(ast.Module([self.all[place]], type_ignores=[]), "notebook", "exec"), self.names)
        self.did[place] = trace.events[before:]
        return self.did[place]

    def with_another(self, parameter: str, value: object, place: int, trace: Trace) -> list[Any]:
        """What the statement does with another value, which goes through all statements before it that it reaches."""
        another = copy.copy(self)
        another.names = self.names | {parameter: value}
        another.did = {done: what for done, what in self.did.items() if done not in self.reached(parameter)}
        return another.run(place, trace)


@functools.cache
def statements(path: Path, values: str) -> Statements:
    """The statements with such values, as JSON; several parameters are held against the same ones."""
    return Statements(path, json.loads(values))


def _names(statement: ast.stmt, kind: type[ast.expr_context]) -> set[str]:
    found = {node.id for node in ast.walk(statement) if isinstance(node, ast.Name) and isinstance(node.ctx, kind)}
    if kind is ast.Store and isinstance(statement, ast.Import | ast.ImportFrom):
        found |= {(alias.asname or alias.name).partition(".")[0] for alias in statement.names}
    return found


@contextlib.contextmanager
def pages_show(trace: Trace) -> Iterator[None]:
    """Whatever a room displays goes into the trace. (Rooms are imported by statements of their own, before.)"""
    with pytest.MonkeyPatch.context() as patch:
        for name, module in list(sys.modules.items()):
            if name.startswith("gelu_study") and getattr(module, "display", None) is display:
                patch.setattr(module, "display", trace.show)
        yield


def effect(path: Path, parameter: str, value: object, trace: Trace, given: Mapping[str, Any] | None = None) -> str | None:
    """The statement at which another value of a parameter makes a difference; None where none does."""
    defaults = {name: known.default for name, known in notebooks.parameters(path).items()}
    base = notebooks.validate(path, defaults | dict(given or {}))
    (value,) = notebooks.validate(path, {parameter: value}).values()
    one = statements(path, json.dumps(base))
    for place in one.reached(parameter):
        first = one.run(place, trace)
        if one.with_another(parameter, value, place, trace) != first:
            assert one.with_another(parameter, base[parameter], place, trace) == first, "what the statement does differs by itself"
            return ast.unparse(one.all[place])
    return None


# ------------------------------------------------------------------------------------------- tests

EVERY = [(name, parameter) for name, path in NOTEBOOKS.items() for parameter in notebooks.parameters(path)]


@pytest.mark.parametrize(("name", "parameter"), EVERY, ids=[f"{name}-{parameter}" for name, parameter in EVERY])
def test_a_parameter_makes_a_difference(name, parameter, trace, tmp_path):
    path, given = NOTEBOOKS[name], beside(name, parameter, tmp_path)
    value = other(name, parameter, given.get(parameter, notebooks.parameters(path)[parameter].default), tmp_path)
    assert effect(path, parameter, value, trace, given), f"{parameter} of {name}.ipynb has no effect"


def doctored(path: Path, parameters: str, *code: str) -> Path:
    cells = [nbformat.v4.new_code_cell(parameters, metadata={"tags": ["parameters"]}), *map(nbformat.v4.new_code_cell, code)]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), path)
    return path


PLAN = "from gelu_study import study\nfound = study.run('mnist-classifier', 'smoke', seeds=seeds, train=False, ledger=ledger)"
DECLARED = "seeds: list[int] = []  # of the runs\nledger = 'absent'  # folder of records\nrate = 1.0  # of what\n"


def test_a_parameter_that_is_ignored_is_noticed(trace, tmp_path):
    path = doctored(tmp_path / "a.ipynb", DECLARED, PLAN, "doubled = 2 * rate")
    assert effect(path, "seeds", [1], trace).startswith("found = study.run(")
    assert effect(path, "ledger", str(tmp_path), trace).startswith("found = study.run(")
    assert effect(path, "rate", 2.0, trace) is None  # it goes into a number that nobody sees
    path = doctored(
        tmp_path / "b.ipynb", DECLARED, PLAN, "doubled = 2 * rate", "from gelu_study import pages\npages.text(f'{doubled}')"
    )
    assert effect(path, "rate", 2.0, trace) == "pages.text(f'{doubled}')"
    ignored = PLAN.replace("seeds=seeds, ", "").replace("ledger=ledger", "ledger='absent'")
    path = doctored(tmp_path / "c.ipynb", DECLARED, ignored, "seeds = seeds or [1]\npages = found")
    for parameter, value in {"seeds": [1], "ledger": str(tmp_path), "rate": 2.0}.items():
        assert effect(path, parameter, value, trace) is None


def test_a_parameter_without_another_value_says_what_to_add(tmp_path):
    with pytest.raises(
        pytest.fail.Exception, match=r"the parameter brand_new of a.ipynb, which is 3 there; add a valid one to OTHER"
    ):
        other("a", "brand_new", 3, tmp_path)


def test_what_is_known_here_is_of_parameters_that_there_are():
    """So that what is said of a parameter goes when it goes."""
    names = {parameter for _, parameter in EVERY}
    assert set(OTHER) <= names
    assert {*OTHER_IN, *BESIDE_IN} <= {*EVERY, *((name, "repository") for name in protocols.EXPERIMENTS)}
    assert all(set(values) <= set(notebooks.parameters(NOTEBOOKS[name])) for name, values in BESIDE.items())
