"""The strict papermill wrapper: what it refuses, which interpreter it uses, what it leaves behind."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import IPython
import nbformat
import numpy as np
import pytest

from gelu_study import notebooks, paths, protocols, study
from gelu_study import parameters as allowed
from gelu_study.errors import ConfigurationError, NotebookError
from gelu_study.ledger import Ledger

PARAMETERS = """\
scale = "paper"  # how much to train
seeds: list[int] = []  # empty for the scale's own
rates = [1e-3, 1]  # learning rates
keep: float = 0.5  # of a hidden unit
epochs = 3  # passes over the data
train = True  # whether to train
folder = ""  # of what
"""


@pytest.fixture
def notebook(tmp_path):
    """Writes a notebook with the parameters cell above and the code given, and returns its path."""

    def write(*code: str, parameters: str = PARAMETERS) -> Path:
        cell = nbformat.v4.new_code_cell
        cells = [cell(parameters, metadata={"tags": ["parameters"]}), *(cell(source) for source in code)]
        path = tmp_path / "source" / "a notebook.ipynb"
        path.parent.mkdir(exist_ok=True)
        nbformat.write(nbformat.v4.new_notebook(cells=cells), path)
        return path

    return write


def test_parameters_are_read_with_type_default_and_comment(notebook):
    found = notebooks.parameters(notebook())
    assert {name: (p.type, p.default, p.comment) for name, p in found.items()} == {
        "scale": ("str", "paper", "how much to train"),
        "seeds": ("list[int]", [], "empty for the scale's own"),
        "rates": ("list[float]", [1e-3, 1.0], "learning rates"),
        "keep": ("float", 0.5, "of a hidden unit"),
        "epochs": ("int", 3, "passes over the data"),
        "train": ("bool", True, "whether to train"),
        "folder": ("str", "", "of what"),
    }


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ("x = 1", "comment"),
        ("x = []  # empty", "states its type"),
        ("x = [1, 'a']  # mixed", "of one type"),
        ("x = {'a': 1}  # a dictionary", "its type is dict"),
        ("x = None  # nothing", "NoneType"),
        ("x = max(1, 2)  # computed", "plain scalar"),
        ("import os  # no assignment", "nothing but assignments"),
        ("x: int = 1.5  # not its type", "not of its type"),
        ("x = [  # broken", "no Python"),
    ],
)
def test_a_parameters_cell_of_anything_else_is_refused(notebook, source, complaint):
    with pytest.raises(NotebookError, match=complaint):
        notebooks.parameters(notebook(parameters=source))


def test_a_notebook_without_a_parameters_cell_is_refused(tmp_path):
    path = tmp_path / "none.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("1")]), path)
    with pytest.raises(NotebookError, match="0 cells tagged"):
        notebooks.parameters(path)
    path.write_text("{}")
    with pytest.raises(NotebookError, match="is no notebook"):
        notebooks.parameters(path)
    with pytest.raises(NotebookError, match="could not read"):
        notebooks.parameters(tmp_path / "absent.ipynb")


def test_an_unknown_parameter_is_refused_with_the_near_name(notebook):
    with pytest.raises(NotebookError, match=r"no parameter 'seed'; did you mean seeds\? It has: scale, seeds, rates"):
        notebooks.validate(notebook(), {"seed": [1]})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("scale", 1),
        ("scale", None),
        ("seeds", 1),
        ("seeds", [0, 1.0]),
        ("seeds", [0, True]),
        ("seeds", ["0"]),
        ("rates", [0.1, float("nan")]),
        ("keep", "0.5"),
        ("keep", float("inf")),
        ("keep", True),
        ("epochs", 3.0),
        ("epochs", True),
        ("train", 1),
        ("train", "false"),
    ],
)
def test_a_value_of_another_type_is_refused_before_any_kernel_starts(notebook, tmp_path, monkeypatch, name, value):
    monkeypatch.setattr(notebooks, "_run", lambda *_: pytest.fail("a kernel would have started"))
    with pytest.raises(NotebookError, match=rf"parameter {name} .* must be of type"):
        notebooks.execute(notebook(), tmp_path / "out.ipynb", {name: value})


WRONG = {
    "a name": ({"scale": "quik"}, "scale is 'quik'; it must be one of smoke, quick, paper, powered; did you mean 'quick'?"),
    "a name in a list": ({"activations": ["gelu_tanh", "rleu"]}, "activations has 'rleu' in it; it must be a list of names among "),
    "no list": ({"seeds": 3}, "seeds is 3; it must be a list of whole numbers from 0 to 2,147,483,647"),
    "a number below": ({"seeds": [0, -1]}, "seeds has -1 in it; it must be a list of whole numbers from 0 to 2,147,483,647"),
    "an open bound": ({"keep_probabilities": [0.0]}, "keep_probabilities has 0.0 in it; it must be a list of numbers above 0 and at most 1"),
    "infinity": ({"learning_rate": float("inf")}, "learning_rate is inf; it must be a number above 0"),
    "a flag": ({"train": 1}, "train is 1; it must be True or False"),
    "a device": ({"device": "gpu"}, "device is 'gpu'; it must be auto, cpu, cuda, cuda:N (a number) or mps"),
    "an address": ({"repository": "github.com"}, "repository is 'github.com'; it must be the address of a repository, https://..., or empty"),
    "nothing of a list that needs something": ({"units": []}, "units is empty; it must be a list of names among "),
    "nothing": ({"epochs": None}, "epochs is None; it must be a whole number from 0 to 100,000"),
    "a number too long to print": ({"epochs": 10**5000}, "epochs is a value too large to print; it must be a whole number from 0"),
    "a long text": ({"device": "x" * 300}, f"device is '{'x' * 199}...; it must be"),
}  # fmt: skip


@pytest.mark.parametrize(("values", "said"), WRONG.values(), ids=list(WRONG))
def test_a_person_s_wrong_value_is_answered_by_a_line_that_says_what_is_allowed(values, said):
    with pytest.raises(ConfigurationError) as caught:
        allowed.check(values)
    assert str(caught.value).startswith(said) and "\n" not in str(caught.value)
    assert caught.value._render_traceback_() == [str(caught.value)]  # what IPython shows instead of a traceback


def test_each_wrong_value_has_its_line_and_only_parameters_are_looked_at():
    with pytest.raises(ConfigurationError) as caught:
        allowed.check({"scale": "", "seeds": ["a"], "unknown": object(), "x": np.zeros(3), "ledger": paths, "epochs": 5})
    assert [line.split()[0] for line in str(caught.value).splitlines()] == ["scale", "seeds"]
    allowed.check(
        {"scale": "smoke", "activations": [], "seeds": (0, 1), "keep_probabilities": [1], "dataset": "", "device": "cuda:1"}
    )


@pytest.mark.parametrize("path", sorted(paths.NOTEBOOKS.glob("*.ipynb")), ids=lambda path: path.name)
def test_every_parameter_of_a_notebook_is_known_and_checked_with_its_default_allowed(path):
    declared = notebooks.parameters(path)
    assert set(declared) <= set(allowed.ALLOWED)
    allowed.check({name: parameter.default for name, parameter in declared.items()})
    assert {name for name, parameter in declared.items() if allowed.ALLOWED[name].type != parameter.type} == set()
    code = [cell.source for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    assert "\nparameters.check(globals())" in code[1]


def test_an_int_passes_for_a_float_and_becomes_one(notebook):
    values = notebooks.validate(notebook(), {"keep": 1, "rates": (1, 0.5), "epochs": 2})
    assert values == {"keep": 1.0, "rates": [1.0, 0.5], "epochs": 2}
    assert [type(value) for value in values["rates"]] == [float, float]


@pytest.fixture(scope="module")
def executed(tmp_path_factory):
    """A notebook run once with a parameter, in a folder whose name has a space, though a python3 kernel of another kind is found."""
    folder = tmp_path_factory.mktemp("a folder")
    impostor = folder / "jupyter" / "kernels" / "python3"
    impostor.mkdir(parents=True)
    (impostor / "kernel.json").write_text(json.dumps({"argv": ["false"], "display_name": "impostor", "language": "python"}))
    cell = nbformat.v4.new_code_cell
    code = "import os, sys\nprint(sys.executable, os.getcwd(), seeds, scale, sep='\\n')"
    source = nbformat.v4.new_notebook(
        cells=[cell(PARAMETERS, metadata={"tags": ["parameters"]}), cell(code), cell("from IPython.display import display")],
        metadata={"kernelspec": {"name": "another", "display_name": "another", "language": "python"}},
    )
    nbformat.write(source, folder / "source.ipynb")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JUPYTER_PATH", str(folder / "jupyter"))
        output = notebooks.execute(folder / "source.ipynb", folder / "new" / "out.ipynb", {"seeds": [3, 4]})
    return folder, json.loads(output.read_text(), parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))


def test_the_kernel_is_this_interpreter_in_the_notebook_s_folder(executed):
    folder, content = executed
    printed = next(cell["outputs"][0]["text"] for cell in content["cells"] if cell.get("outputs"))
    interpreter, place, seeds, scale = "".join(printed).split("\n")[:4]
    assert interpreter == sys.executable
    assert Path(place) == folder
    assert (seeds, scale) == ("[3, 4]", "paper")


def test_the_injected_cell_is_hidden_and_the_page_says_which_parameters_made_it(executed):
    _, content = executed
    injected = [cell for cell in content["cells"] if "injected-parameters" in cell["metadata"].get("tags", [])]
    assert len(injected) == 1
    assert "remove-cell" in injected[0]["metadata"]["tags"]
    stamp = "".join(content["cells"][-1]["source"])
    assert "| **seeds** | `[3, 4]` | empty for the scale's own |" in stamp
    assert '| scale | `"paper"` | how much to train |' in stamp
    used = content["metadata"]["gelu_study"]
    assert used["given"] == ["seeds"]
    assert used["parameters"]["seeds"] == [3, 4]
    assert used["parameters"]["train"] is True


def test_nothing_of_this_machine_s_folders_is_noted(executed):
    folder, content = executed
    del content["cells"][2]  # the cell that prints its folder
    assert str(folder) not in json.dumps(content)


def test_a_failing_cell_leaves_nothing_behind_and_is_named(notebook, tmp_path):
    path, output = notebook("1", "x = 1\nraise KeyError('the reason')"), tmp_path / "out" / "a.ipynb"
    with pytest.raises(NotebookError, match=r"(?s)cell 3 failed \(it begins with `x = 1`\).*KeyError: 'the reason'"):
        notebooks.execute(path, output, {"epochs": 1})
    assert not output.exists()
    output.parent.mkdir(exist_ok=True)
    output.write_text("what was there before")
    with pytest.raises(NotebookError, match="cell 3 failed"):
        notebooks.execute(path, output)
    assert output.read_text() == "what was there before"
    assert list(output.parent.iterdir()) == [output]


def test_a_cell_that_fails_before_the_parameters_is_counted_as_in_the_source(tmp_path):
    cell = nbformat.v4.new_code_cell
    cells = [cell("1 / 0"), cell(PARAMETERS, metadata={"tags": ["parameters"]})]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), tmp_path / "early.ipynb")
    for given in ({}, {"seeds": [1]}):
        with pytest.raises(NotebookError, match=r"cell 1 failed \(it begins with `1 / 0`\)"):
            notebooks.execute(tmp_path / "early.ipynb", tmp_path / "out.ipynb", given)


def test_a_folder_of_this_machine_is_not_shown_whole(notebook, tmp_path):
    output = notebooks.execute(notebook("pass"), tmp_path / "out.ipynb", {"folder": str(tmp_path / "my runs")})
    shown = output.read_text().split('"Parameters')[-1].rsplit("cell_type", 1)[-1]
    assert "…/my runs" in shown
    assert str(tmp_path) not in shown


def test_a_kernel_that_could_not_start_is_tried_again(notebook, tmp_path, monkeypatch):
    real, calls = notebooks._run, []

    def flaky(*arguments):
        calls.append(arguments)
        if len(calls) == 1:
            raise RuntimeError("Kernel died before replying to kernel_info")
        return real(*arguments)

    monkeypatch.setattr(notebooks, "_run", flaky)
    assert notebooks.execute(notebook("1"), tmp_path / "out.ipynb").is_file()
    assert len(calls) == 2


def test_nan_in_an_output_is_no_published_notebook(notebook, tmp_path, monkeypatch):
    def run(path, *_):
        content = nbformat.read(path, as_version=4)
        content.cells[1].outputs = [nbformat.v4.new_output("display_data", {"application/json": {"loss": float("nan")}})]
        return content

    monkeypatch.setattr(notebooks, "_run", run)
    with pytest.raises(NotebookError, match="cell 2 has an output with NaN"):
        notebooks.execute(notebook("1"), tmp_path / "out.ipynb")
    assert not (tmp_path / "out.ipynb").exists()


@pytest.mark.parametrize("path", sorted(paths.NOTEBOOKS.glob("*.ipynb")), ids=lambda path: path.name)
def test_the_notebooks_of_the_repository_have_valid_parameters_and_no_outputs(path):
    assert notebooks.parameters(path)
    notebooks.check(path)


@pytest.mark.parametrize("path", sorted(paths.NOTEBOOKS.glob("*.ipynb")), ids=lambda path: path.name)
def test_no_text_says_what_has_not_been_run_since_pages_compute_that(path):
    texts = [cell.source for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "markdown"]
    assert [text for text in texts if re.search(r"(?i)\bnot (yet )?run\b", text)] == []


def test_what_the_start_page_calls_complete_is():
    (text,) = [cell.source for cell in nbformat.read(paths.NOTEBOOKS / "start.ipynb", as_version=4).cells if "open with all of" in cell.source]
    names = {"The classifier": "mnist-classifier", "noise": "mnist-noise", "the SOI map": "mnist-soi"}
    said = re.search(r"(The classifier.*?) and what only reads", text)[1].split(", ")
    for name in said:
        path = paths.NOTEBOOKS / f"{names[name]}.ipynb"
        found = study.run(path.stem, notebooks.parameters(path)["scale"].default, train=False, ledger=paths.LEDGER)
        assert not found.missing and not found.choice_pending, path.name


@pytest.mark.parametrize("name", ["mnist-autoencoder", "mnist-noise", "mnist-soi"])
def test_an_experiment_s_notebook_trains_on_digits_into_one_s_own_records(name, tmp_path):
    """Those of the classifier and of convolutional networks do it in the tests of their chapters."""
    own, before = tmp_path / "own", set(paths.LEDGER.rglob("*"))
    given = {"scale": "smoke", "train": True, "device": "cpu"}
    source, where = paths.NOTEBOOKS / f"{name}.ipynb", {"GELU_STUDY_OWN": str(own)}
    cells = nbformat.read(notebooks.execute(source, tmp_path / "out.ipynb", given, environment=where), as_version=4).cells
    text = "".join(str(output.get("data")) for cell in cells if cell.cell_type == "code" for output in cell.outputs)
    count = len(protocols.plan(name, "smoke"))
    assert f"All of the {count} records of this page were trained by hand" in text
    assert len(Ledger(own).read()) == count and set(paths.LEDGER.rglob("*")) == before


def test_the_single_page_loads_nothing_from_elsewhere_and_has_no_link_that_leads_nowhere(tmp_path):
    markdown = "# Title\n\nAs in {cite}`someone2016`, see [the rule](verdicts.md) and [x](https://arxiv.org/). $x_1$"
    figure = nbformat.v4.new_output("display_data", {"text/html": '<a href="records/a.csv" download>Records: 2 runs</a>'})
    cells = [
        nbformat.v4.new_markdown_cell(markdown),
        nbformat.v4.new_code_cell("secret = 1", outputs=[figure]),
        nbformat.v4.new_code_cell("injected = 1", metadata={"tags": ["remove-cell"]}),
    ]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), tmp_path / "a page.ipynb")
    page = notebooks.to_html(tmp_path / "a page.ipynb")
    text = page.read_text(encoding="utf-8")
    assert page == tmp_path / "a page.html"
    assert (tmp_path / "mathjax" / "tex-mml-chtml.js").is_file()
    assert set(re.findall(r'<a\b[^>]*href="([^"]*)"', text)) == {"https://arxiv.org/"}
    assert re.findall(r'<(?:script|img|link)\b[^>]*(?:src|href)="([^"]*)"', text) == ["data:,", "mathjax/tex-mml-chtml.js"]
    assert "As in, see the rule and" in text and "Records: 2 runs" in text
    assert "secret" not in text and "injected" not in text and "cite" not in text


@pytest.mark.parametrize(("before", "after"), [(0.0, 1.0), (5.0, 5.0)])
def test_after_a_wrong_parameter_a_kernel_cancels_cells_that_arrive_late(monkeypatch, before, after):
    kernel = SimpleNamespace(stop_on_error_timeout=before)
    monkeypatch.setattr(IPython, "get_ipython", lambda: SimpleNamespace(kernel=kernel))
    allowed.check({"scale": "quick"})
    assert kernel.stop_on_error_timeout == before
    with pytest.raises(ConfigurationError, match="scale is 'quik'"):
        allowed.check({"scale": "quik"})
    assert kernel.stop_on_error_timeout == after
