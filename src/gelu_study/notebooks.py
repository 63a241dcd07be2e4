"""Strict papermill: parameters are checked before a kernel starts, and a notebook is published only when all of it ran.

papermill itself takes any parameter (an unknown one is a warning in its log), leaves a partial notebook behind a failing
cell, and runs whatever kernel is called python3. Here the kernel is this interpreter's, and the executed notebook says
which parameters made it.
"""

from __future__ import annotations

import ast
import difflib
import io
import json
import logging
import os
import re
import shutil
import sys
import tempfile
import tokenize
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode

from gelu_study import files, paths
from gelu_study import parameters as allowed
from gelu_study.errors import NotebookError

Value = bool | int | float | str | list[bool] | list[int] | list[float] | list[str]

INJECTED, STAMP = "injected-parameters", "parameters-used"
"""Tags of the two cells that `execute` adds: the values given, kept out of the book, and the table of all values, shown in it."""

_ATTEMPTS = 3
_START_FAILURES = ("address already in use", "kernel died before replying", "kernel didn't respond")


@dataclass(frozen=True)
class Parameter:
    """A parameter as its notebook declares it."""

    type: str  #: "bool", "int", "float", "str", or a list of these: "list[int]"
    default: Value
    comment: str


def parameters(path: str | os.PathLike[str]) -> dict[str, Parameter]:
    """The parameters in a notebook's cell tagged `parameters`, in their order.

    The cell holds nothing but assignments of scalars or lists of scalars, each with a comment at the end of its line. A
    list that is empty states its type: `seeds: list[int] = []`. Raises `NotebookError` for anything else.
    """
    path = Path(path)
    cells = [cell for cell in _read(path).cells if "parameters" in cell.metadata.get("tags", [])]
    if len(cells) != 1 or cells[0].cell_type != "code":
        raise NotebookError(f"{path} has {len(cells)} cells tagged `parameters`; a notebook has exactly one, of code")
    source = cells[0].source
    try:
        statements = ast.parse(source).body
        comments = _comments(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError, tokenize.TokenError) as error:
        # a text with a null is a ValueError, one that is nested too deeply one of the two after it
        raise NotebookError(f"the parameters cell of {path} is no Python: {error or type(error).__name__}") from None
    found: dict[str, Parameter] = {}
    for statement in statements:
        try:
            name, parameter = _declared(statement, comments)
        except ValueError as error:
            line = source.splitlines()[statement.lineno - 1].strip()
            where = f"the parameters cell of {path}, line {statement.lineno} ({_shortened(line)})"
            raise NotebookError(f"{where}: {error}") from None
        if name in found:
            raise NotebookError(f"the parameters cell of {path}, line {statement.lineno}, sets {name} a second time; keep one")
        found[name] = parameter
    return found


def validate(path: str | os.PathLike[str], given: Mapping[str, object]) -> dict[str, Value]:
    """The values given, as the notebook's own types. Raises `NotebookError` for an unknown name, another type, or a value that
    `parameters.ALLOWED` excludes."""
    known = parameters(path)
    result: dict[str, Value] = {}
    for name, value in given.items():
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean {near[0]}?" if near else "."
            raise NotebookError(f"{Path(path).name} has no parameter {name!r}{hint} It has: {', '.join(known) or 'none'}")
        parameter = known[name]
        if not allowed.is_of(parameter.type, value):
            raise NotebookError(
                f"parameter {name} of {Path(path).name} is {allowed.shown(value)}; it must be of type {parameter.type}, "
                f"for instance {parameter.default!r} ({parameter.comment})"
            )
        complaint = allowed.ALLOWED[name].complaint(name, value) if name in allowed.ALLOWED else ""
        if complaint:
            raise NotebookError(f"a parameter of {Path(path).name}: {complaint}")
        result[name] = _coerced(parameter.type, value)
    return result


def check(path: str | os.PathLike[str]) -> None:
    """Hold a notebook against how the repository keeps them: nothing that running it leaves behind, and one cell of parameters,
    each described in `parameters.ALLOWED`, with a default that is allowed.

    Raises `NotebookError` that says what to do.
    """
    path = Path(path)
    content = _read(path)
    cells = [cell for cell in content.cells if cell.cell_type == "code"]
    if ran := [cell for cell in cells if cell.outputs or cell.execution_count is not None]:
        raise NotebookError(
            f"{path} holds what running it left behind, in {len(ran)} of its {len(cells)} cells of code; take it out with "
            f"`jupyter nbconvert --clear-output --inplace {path}`"
        )
    if "widgets" in content.metadata:
        raise NotebookError(f"{path} holds the state of widgets that ran, as `widgets` in its metadata; take that out")
    declared = parameters(path)
    if strange := [name for name in declared if name not in allowed.ALLOWED]:
        raise NotebookError(f"what {', '.join(strange)} in {path} may be is not said; say it in `ALLOWED` of gelu_study.parameters")
    validate(path, {name: parameter.default for name, parameter in declared.items()})


def execute(
    path: str | os.PathLike[str],
    output: str | os.PathLike[str],
    given: Mapping[str, object] | None = None,
    *,
    cell_timeout: float | None = None,
    environment: Mapping[str, str] | None = None,
) -> Path:
    """Run a notebook with the given parameters and publish the executed copy as `output`, which is returned.

    The kernel is this interpreter's, in the notebook's own folder. `output` appears, or is replaced, only when every cell
    ran; it is strict JSON, its cell of injected parameters is kept out of the book, and a last cell lists the parameters
    that made it. `cell_timeout` is in seconds; `environment` holds further variables of the kernel's. Raises `NotebookError`, which
    says which cell failed and how.
    """
    path, output = Path(path), Path(output)
    values = validate(path, given or {})
    if output.is_dir():
        raise NotebookError(f"the executed notebook cannot be written to {output}: it is a folder")
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            notebook = _run(path, values, cell_timeout, environment or {})
            break
        except NotebookError:
            raise
        except Exception as error:  # whatever papermill, nbclient, jupyter_client or ZeroMQ raise
            starting = any(text in str(error).lower() for text in _START_FAILURES)
            if not starting or attempt == _ATTEMPTS:
                raise NotebookError(f"{path.name}: {_last_lines(str(error) or type(error).__name__)}") from error
    _finish(notebook, path, values)
    _publish(notebook, output)
    return output


def to_html(notebook: str | os.PathLike[str]) -> Path:
    """One page of an executed notebook, beside it, without code; it loads nothing from elsewhere. Returns its path.

    The page stands alone: citations, and links to pages and records of the book, are left out of it.
    """
    from nbconvert import HTMLExporter
    from traitlets.config import Config

    notebook = Path(notebook)
    content = _read(notebook)
    content.cells = [cell for cell in content.cells if "remove-cell" not in cell.metadata.get("tags", [])]
    for cell in content.cells:
        if cell.cell_type == "markdown":
            cell.source = re.sub(r"\s*\{cite\}`[^`]*`", "", cell.source)
    options = Config()
    options.HTMLExporter.update(
        exclude_input=True,
        exclude_output_prompt=True,
        exclude_input_prompt=True,
        exclude_anchor_links=True,
        mathjax_url="",
        require_js_url="",
        jquery_url="",
    )
    body, _ = HTMLExporter(config=options).from_notebook_node(content, {"metadata": {"name": notebook.stem}})
    body = re.sub(r'<a\b[^>]*href="(?!https?:|#)[^"]*"[^>]*>(.*?)</a>', r"\1", body, flags=re.DOTALL)
    body = re.sub(r'<script[^>]*\bsrc=""[^>]*>\s*</script>', "", body)  # where Require.js and jQuery would have been
    copy_mathjax(notebook.parent / "mathjax")
    sheet = paths.BOOK / "_static" / "study.css"
    head = (
        f'<link rel="icon" href="data:,"><style>{_PAGE}{sheet.read_text(encoding="utf-8") if sheet.is_file() else ""}</style>'
        '<script>window.MathJax = {tex: {inlineMath: [["$", "$"]]}, options: {enableMenu: false}};</script>'
        '<script defer src="mathjax/tex-mml-chtml.js"></script></head>'
    )
    page = notebook.with_suffix(".html")
    _write(page, body.replace("</head>", head, 1))
    return page


_PAGE = """
body { max-width: 46rem; margin: 0 auto; padding: 1rem; --pst-color-text-base: #222; --pst-color-text-muted: #555;
  --pst-color-border: #bbb; }
.jp-Cell .jp-Cell-inputWrapper .jp-InputPrompt, .jp-Collapser, .jp-OutputPrompt { display: none !important; }
.jp-Cell, .jp-RenderedHTMLCommon { padding-left: 0 !important; padding-right: 0 !important; }
"""


def copy_mathjax(folder: Path) -> None:
    """Copy what a page needs of MathJax 3 from the installed `django-static-mathjax` into a folder: 2.4 MB.

    Raises `NotebookError` when the package is not there.
    """
    try:
        source = Path(str(resources.files("mathjax"))) / "static" / "mathjax" / "es5"
    except ModuleNotFoundError:
        source = Path("?")
    if not (source / "tex-mml-chtml.js").is_file():
        raise NotebookError("MathJax is not installed; pip install 'django-static-mathjax>=3.2.2,<4'")
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy2(source / "tex-mml-chtml.js", folder)
    # fonts, and the TeX extensions that MathJax loads when a formula asks for them
    for part in ("output/chtml/fonts/woff-v2", "input/tex/extensions"):
        shutil.copytree(source / part, folder / part, dirs_exist_ok=True)


def _coerced(kind: str, value: Any) -> Value:
    if kind.startswith("list["):
        return [_coerced(kind[5:-1], element) for element in value]  # type: ignore[return-value]
    return float(value) if kind == "float" else value


def _read(path: Path) -> NotebookNode:
    try:
        content: NotebookNode = nbformat.read(path, as_version=4)
        nbformat.validate(content)  # reading alone only logs what is wrong
        return content
    except OSError as error:
        raise NotebookError(f"could not read the notebook {path}: {error.strerror}") from error
    except Exception as error:  # nbformat raises its own errors and those of json and jsonschema
        raise NotebookError(f"{path} is no notebook: {_last_lines(str(error))}") from error


def _shortened(text: str) -> str:
    return text if len(text) <= 200 else f"{text[:200]}..."


def _comments(source: str) -> dict[int, str]:
    """The comment on each line that has one."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return {token.start[0]: token.string.lstrip("# ").strip() for token in tokens if token.type == tokenize.COMMENT}


def _declared(statement: ast.stmt, comments: Mapping[int, str]) -> tuple[str, Parameter]:
    """The parameter that a statement declares. Raises ValueError that says why it is none."""
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        target, annotation = statement.targets[0], None
    elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
        target, annotation = statement.target, ast.unparse(statement.annotation)
    else:
        raise ValueError("the cell holds nothing but assignments")
    if not isinstance(target, ast.Name):
        raise ValueError("a parameter is a plain name")
    assert statement.value is not None
    try:
        default = ast.literal_eval(statement.value)
    except (ValueError, TypeError, RecursionError, MemoryError):
        raise ValueError("a parameter is a plain scalar or a list of them") from None
    kind = annotation or _type(default)
    if kind not in (*allowed.SCALARS, *(f"list[{scalar}]" for scalar in allowed.SCALARS)):
        raise ValueError(f"its type is {kind}; it must be one of {', '.join(allowed.SCALARS)}, or a list of one of them")
    comment = comments.get(statement.end_lineno or statement.lineno, "")
    if not comment:
        raise ValueError("a comment at the end of the line must say what it is")
    if not allowed.is_of(kind, default):
        raise ValueError(f"its default is not of its type, {kind}")
    return target.id, Parameter(kind, _coerced(kind, default), comment)


def _type(value: object) -> str:
    if not isinstance(value, list):
        return type(value).__name__
    kinds = {type(element).__name__ for element in value}
    if not kinds:
        raise ValueError("an empty list states its type, for instance `seeds: list[int] = []`")
    if kinds == {"int", "float"}:
        kinds = {"float"}
    if len(kinds) > 1:
        raise ValueError("the elements of a list are of one type")
    return f"list[{kinds.pop()}]"


def _run(path: Path, values: Mapping[str, Value], cell_timeout: float | None, environment: Mapping[str, str]) -> NotebookNode:
    """The executed notebook. Raises `NotebookError` for a failing cell, anything else for a kernel that did not start."""
    import papermill
    from jupyter_client.kernelspec import KernelSpec
    from jupyter_client.manager import AsyncKernelManager
    from traitlets.config import Config

    logging.getLogger("papermill").setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory(prefix="gelu-", ignore_cleanup_errors=True) as name:
        place = Path(name)
        spec = KernelSpec(
            # a kernel that is shut down logs the interrupt as an error
            argv=[sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}", "--log-level=50"],
            language="python",
            display_name="Python 3 (ipykernel)",
            # neither a person's IPython start-up files nor the shared history data base
            env={
                "IPYTHONDIR": str(place / "ipython"),
                "PYDEVD_DISABLE_FILE_VALIDATION": "1",
                "MPLBACKEND": "module://matplotlib_inline.backend_inline",
                **environment,
            },
        )

        class ThisInterpreter(AsyncKernelManager):
            @property
            def kernel_spec(self) -> KernelSpec:
                return spec

        config = Config()
        # sockets in our own folder: parallel runs cannot take each other's ports; a socket's path may have 103 characters
        if os.name == "posix" and len(str(place)) < 95:
            config.KernelManager.update(transport="ipc", ip=str(place / "k"), connection_file=str(place / "k.json"))
            config.ThisInterpreter = config.KernelManager
        source = _read(path)
        for cell in source.cells:
            if cell.cell_type == "code":
                cell.outputs, cell.execution_count = [], None
        source.metadata["kernelspec"] = {"name": "python3", "display_name": spec.display_name, "language": "python"}
        copy = place / "notebook.ipynb"
        nbformat.write(source, copy)
        try:
            notebook: NotebookNode = papermill.execute_notebook(
                str(copy),
                None,
                parameters=dict(values),
                kernel_name="python3",
                cwd=str(path.parent),
                progress_bar=False,
                execution_timeout=cell_timeout,
                kernel_manager_class=ThisInterpreter,
                config=config,
            )
        except papermill.PapermillExecutionError as error:
            lines = _last_lines("\n".join(error.traceback)) or f"{error.ename}: {error.evalue}"
            first = next((line for line in error.source.splitlines() if line.strip()), "")
            tagged = [i for i, cell in enumerate(source.cells) if "parameters" in cell.metadata.get("tags", [])]
            injected = bool(values) and error.cell_index > tagged[0]
            number = error.cell_index + (0 if injected else 1)  # as in the source, without the injected cell
            message = f"{path.name}: cell {number} failed (it begins with `{first.strip()}`):\n{lines}"
            raise NotebookError(message) from None
    return notebook


def _finish(notebook: NotebookNode, path: Path, values: Mapping[str, Value]) -> None:
    """Hide the injected cell, append the table of parameters, and drop what papermill notes of paths and times."""
    declared = parameters(path)
    used = {name: _without_folders(values.get(name, parameter.default)) for name, parameter in declared.items()}
    lines = [
        f"**Parameters of this page** (`notebooks/{path.name}`); those in bold were given, the others are the notebook's own.",
        "",
        "| parameter | value | meaning |",
        "| --- | --- | --- |",
    ]
    for name, parameter in declared.items():
        shown = f"**{name}**" if name in values else name
        comment = parameter.comment.replace("|", r"\|")
        lines.append(f"| {shown} | `{json.dumps(used[name], ensure_ascii=False)}` | {comment} |")
    stamp = nbformat.v4.new_markdown_cell("\n".join(lines), metadata={"tags": [STAMP]})
    notebook.cells = [cell for cell in notebook.cells if STAMP not in cell.metadata.get("tags", [])]
    if declared:
        notebook.cells.append(stamp)
    for index, cell in enumerate(notebook.cells):
        cell.metadata.pop("papermill", None)
        cell.metadata.pop("execution", None)
        cell["id"] = f"cell-{index}"
        tags = cell.metadata.get("tags", [])
        if INJECTED in tags and "remove-cell" not in tags:
            cell.metadata["tags"] = [*tags, "remove-cell"]
    notebook.metadata.pop("papermill", None)
    notebook.metadata["gelu_study"] = {"parameters": used, "given": sorted(values)}


def _without_folders(value: Value) -> Value:
    """A path of this machine as its last part alone; any other value as it is."""
    return f"…/{Path(value).name}" if isinstance(value, str) and Path(value).is_absolute() else value


def _publish(notebook: NotebookNode, output: Path) -> None:
    for number, cell in enumerate(notebook.cells, 1):
        try:
            json.dumps(cell, allow_nan=False)
        except ValueError:
            raise NotebookError(f"cell {number} has an output with NaN or infinity, which is no JSON") from None
    nbformat.validate(notebook)
    _write(output, json.dumps(notebook, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def _write(path: Path, text: str) -> None:
    try:
        files.write_atomically(path, text)
    except OSError as error:
        raise NotebookError(f"could not write {path}: {error.strerror}") from error


def _last_lines(text: str, count: int = 8) -> str:
    """The end of an error's text, without the colours of a terminal."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text)
    return "\n".join([line for line in plain.splitlines() if line.strip()][-count:])
