"""Builds the book: executes every notebook against the ledger, never trains, and checks the pages that come out.

The sources in `book/` and the executed notebooks are laid together in a temporary folder; Jupyter Book renders them
without executing anything; the site replaces the last one only when every check passed. It needs no data set and no
network, and its pages load nothing from elsewhere.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import closing
from pathlib import Path
from typing import Any

import yaml
from jupyter_core.utils import ensure_event_loop

from gelu_study import claims, interactive, notebooks, paths, statistics, study
from gelu_study.errors import NotebookError, StudyError
from gelu_study.ledger import Ledger
from gelu_study.site import cross_references, records
from gelu_study.site.checks import check, missing_figures, wrong_numbers
from gelu_study.site.printing import PDF, print_page, required
from gelu_study.site.publishing import configure, draw_card, write_site_map

_TOGETHER = 4
"""Notebooks that are executed at the same time, at most: a kernel takes most of a gigabyte."""


class SiteError(StudyError):
    """The book could not be built, or a built page is not as it should be."""


def build(
    output: str | os.PathLike[str] = paths.BOOK / "_build" / "html",
    repository: str | None = None,
    ledger: str | os.PathLike[str] | None = None,
    site: str = "",
    pdf: bool = False,
) -> Path:
    """Build the book from the records in `ledger` (default: the project's) into the folder `output`, which is returned.

    `repository` is the address that buttons and links to the repository use; by default `repository_address()`; without
    one there are none. `site` is where the pages will be published, for what only works with an address: a site map, cards
    for those who link to a page, and a page for addresses that lead nowhere. With `pdf` the site also has the whole book as
    one, which Chromium prints. Raises `SiteError`, `NotebookError` or, where the PDF cannot be made, `StudyError`, and leaves
    an earlier site as it was.
    """
    output = Path(output).absolute()
    if output.exists() and not (output / "index.html").is_file() and (not output.is_dir() or any(output.iterdir())):
        raise SiteError(f"{output} is no earlier site and will not be replaced; name a new or an empty folder")
    repository = repository_address() if repository is None else repository.strip().rstrip("/")
    if repository and not re.fullmatch(r"https?://[^\s/]+/\S+", repository):
        raise SiteError(f"REPOSITORY is {repository!r}; give its address, for instance https://example.org/owner/name")
    site = site.strip().rstrip("/")
    if site and not re.fullmatch(r"https?://[^\s/?#]+(/[^\s?#]+)?", site):
        raise SiteError(f"SITE is {site!r}; give the address where the book will be, for instance https://owner.example.org/name")
    if pdf:
        required()  # before minutes of building
    work = paths.BOOK / "_build"
    try:
        work.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="site-", dir=work) as name:
            stage = Path(name) / "source"
            shutil.copytree(paths.BOOK, stage, ignore=shutil.ignore_patterns("_build", ".*"))
            executed = _execute(stage, repository, ledger)
            records.write(stage / "extra" / "records", executed, Ledger(ledger or paths.LEDGER))
            shutil.copytree(paths.MEASUREMENTS, stage / "extra" / "measurements")
            for notebook in executed:
                cross_references.resolve(notebook)
            notebooks.copy_mathjax(stage / "extra" / "vendor" / "mathjax")
            interactive.copy_library(stage / "extra" / "vendor" / "bokeh")
            found = study.run("mnist-classifier", "powered", train=False, ledger=ledger)
            verdicts = statistics.verdicts(found.table, choice=found.chosen)
            card = draw_card(verdicts, stage / "_static") if site and found.chosen else ""
            configuration = configure(
                yaml.safe_load((stage / "_config.yml").read_text(encoding="utf-8")), repository, site, card, PDF if pdf else ""
            )
            (stage / "_config.yml").write_text(yaml.safe_dump(configuration, sort_keys=False), encoding="utf-8")
            built = _render(stage, Path(name))
            expected = expected_pages(stage / "_toc.yml")
            if site:
                write_site_map(built, expected, site)
            if pdf:
                print_page(_render(stage, Path(name), "singlehtml") / "index.html", built / PDF, site)
            problems = check(built, expected, site) + missing_figures(built, executed)
            problems += wrong_numbers(built / "index.html", claims.verdicts(ledger), verdicts)
            if problems:
                shown = "\n".join(f"  {problem}" for problem in problems[:10])
                more = f"\n  and {len(problems) - 10} more" if len(problems) > 10 else ""
                raise SiteError(f"the book was built, but {len(problems)} checks of its pages failed:\n{shown}{more}")
            _replace(built, output)
    except OSError as error:
        raise SiteError(f"could not build the book: {error}") from error
    return output


def repository_address(environment: Mapping[str, str] = os.environ) -> str:
    """The repository's address from REPOSITORY, else from GitHub Actions' own variables, else nothing."""
    if address := environment.get("REPOSITORY", "").strip():
        return address.rstrip("/")
    server, name = environment.get("GITHUB_SERVER_URL", ""), environment.get("GITHUB_REPOSITORY", "")
    return f"{server.rstrip('/')}/{name}" if server and name else ""


def expected_pages(toc: Path) -> list[str]:
    """The pages that a table of contents promises, as file names without suffix."""
    contents = yaml.safe_load(toc.read_text(encoding="utf-8"))

    def files(node: Any) -> Iterator[str]:
        if isinstance(node, dict):
            yield from (str(value) for key, value in node.items() if key in ("root", "file"))
            yield from (name for value in node.values() for name in files(value))
        elif isinstance(node, list):
            yield from (name for value in node for name in files(value))

    return list(files(contents))


def _execute(stage: Path, repository: str, ledger: str | os.PathLike[str] | None) -> list[Path]:
    """Execute every notebook into the stage, with training switched off and without widgets, which need a kernel."""
    wanted: dict[str, Any] = {"train": False, "widgets": False, "repository": repository}
    # the book shows the project's records, whatever else was trained here, and has them beside its pages
    variables = {"GELU_STUDY_OWN": str(stage / "none"), "GELU_STUDY_BOOK": "yes"}
    if ledger is not None and Path(ledger).absolute() != paths.LEDGER:
        wanted["ledger"] = str(Path(ledger).absolute())
    pages_of_book = expected_pages(stage / "_toc.yml")
    sources = sorted(path for path in paths.NOTEBOOKS.glob("*.ipynb") if path.stem in pages_of_book)
    if not sources:
        raise NotebookError(f"no notebooks in {paths.NOTEBOOKS}")
    cores = os.process_cpu_count() if hasattr(os, "process_cpu_count") else os.cpu_count()
    together = min(_TOGETHER, cores or 1)
    variables["OMP_NUM_THREADS"] = os.environ.get("OMP_NUM_THREADS", str((cores or 1) // together))

    def execute(number: int, source: Path) -> Path:
        declared = notebooks.parameters(source)
        given = {name: value for name, value in wanted.items() if name in declared and value != declared[name].default}
        print(f"executing {source.stem} ({number} of {len(sources)})", file=sys.stderr, flush=True)
        with closing(ensure_event_loop()):  # this thread's, which nobody else would close
            return notebooks.execute(source, stage / source.name, given, environment=variables)

    with ThreadPoolExecutor(together) as pool:  # each waits for a kernel, which is a process
        running = [pool.submit(execute, number, source) for number, source in enumerate(sources, 1)]
        try:
            wait(running, return_when=FIRST_EXCEPTION)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)  # none begins after one has failed
        executed = [one.result() for one in running]
    print("laying out the pages and checking them", file=sys.stderr, flush=True)
    return executed


def _render(stage: Path, place: Path, builder: str = "html") -> Path:
    """Run Jupyter Book, warnings as errors, and return the folder of pages."""
    program = [sys.executable, "-c", "from jupyter_book.cli.main import main; main()"]  # it cannot be run as a module
    command = [*program, "build", str(stage), "--path-output", str(place), "--builder", builder, "-W", "--keep-going", "-n"]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONWARNINGS"}
    done = subprocess.run(
        command, capture_output=True, text=True, env={**environment, "PYTHONUTF8": "1"}, stdin=subprocess.DEVNULL, check=False
    )
    if done.returncode:
        lines = complaints(done.stdout + done.stderr)
        shown = "\n".join(f"  {line}" for line in lines[:10])
        raise SiteError(f"Jupyter Book found something wrong (exit status {done.returncode}):\n{shown}")
    return place / "_build" / builder


def complaints(said: str) -> list[str]:
    """What Jupyter Book's output complains of: warnings and errors, else what it said before its traceback."""
    lines = [line.strip() for line in re.sub(r"\x1b\[[0-9;]*m", "", said).splitlines() if line.strip(" =\t")]
    named = [line for line in lines if re.search(r"\b(WARNING|ERROR|CRITICAL)\b", line)]
    before = lines[: next((i for i, line in enumerate(lines) if line.startswith("Traceback")), None)]
    return [line[:300] for line in list(dict.fromkeys(named)) or before[-3:]]


def _replace(built: Path, output: Path) -> None:
    """Put the new site in the place of the last one."""
    (built / ".nojekyll").touch()  # GitHub Pages would drop folders that begin with an underscore
    output.parent.mkdir(parents=True, exist_ok=True)
    new, old = (output.with_name(f".{output.name}.{word}") for word in ("new", "old"))
    for left_over in (new, old):
        shutil.rmtree(left_over, ignore_errors=True)
    shutil.copytree(built, new)
    if output.exists():
        output.rename(old)
    new.rename(output)
    shutil.rmtree(old, ignore_errors=True)
