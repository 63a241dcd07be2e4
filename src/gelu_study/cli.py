"""`gelu-study`: the command line. Nothing but argument handling; the rooms do the work.

Exit status: 0 done, 1 a check found a difference, 2 a bad option, absent data or another error with a message, 130 interrupted.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gelu_study import paths
from gelu_study.errors import CheckpointWarning, ConfigurationError, DataError, LedgerWarning, NotebookError, StudyError

if TYPE_CHECKING:
    from gelu_study import sweep

MEASUREMENTS = {
    "activation-cost": "gelu_study.chapters.cost",
    "activation-swaps": "gelu_study.chapters.swaps",
    "reproducibility": "gelu_study.chapters.reproducibility",
}
"""The module that takes each measurement: its `measure(device)` returns strict JSON."""

BENCHES = {"mnist": "gelu_study.bench.classifier", "cifar": "gelu_study.bench.cifar", "sweep": "gelu_study.bench.sweeps"}
"""The module that measures each: `measure(device, seconds)`, `report` of it and `SECONDS`."""


def seeds(text: str) -> list[int]:
    """The seeds in a text like "0-4,9"."""
    result: list[int] = []
    for part in re.split(r"[,\s]+", text.strip()):
        match = re.fullmatch(r"(\d{1,10})(?:-(\d{1,10}))?", part)
        if not match:
            raise argparse.ArgumentTypeError(f"{text!r}: give seeds as numbers and ranges, for instance 0-4,9")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first or len(result) + last - first > 100_000:
            raise argparse.ArgumentTypeError(f"{part!r}: a range goes up, and there are at most 100,000 seeds")
        result += range(first, last + 1)
    return result


def folder(text: str) -> Path:
    """A folder's path. Nothing at all would mean the current folder, and is an unset variable of the shell."""
    if not text:
        raise argparse.ArgumentTypeError("the path is empty; name a folder, or . for the current one")
    return Path(text)


def address(text: str) -> str:
    """A scheduler's address. Nothing at all is an unset variable of the shell."""
    if not text.strip():
        raise argparse.ArgumentTypeError("the address is empty; leave the option out to train in this process")
    return text.strip()


def words(text: str) -> list[str]:
    """The words in a text like "gelu_tanh,relu"."""
    found = [word for word in re.split(r"[,\s]+", text.strip()) if word]
    if not found:
        raise argparse.ArgumentTypeError("the list is empty; leave the option out for the scale's own")
    return found


def numbers(text: str) -> list[float]:
    """The numbers in a text like "1e-3,1e-4"."""
    try:
        return [float(word) for word in words(text)]
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}: give numbers separated by commas, for instance 1e-3,1e-4") from None


def positive(text: str) -> int:
    """A whole number of at least 1."""
    if not re.fullmatch(r"\d{1,15}", text) or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: give a whole number of at least 1")
    return int(text)


def seconds(text: str) -> float:
    """A positive, finite number."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r}: give a number of seconds, for instance 540")
    return value


def parameter(text: str) -> tuple[str, Any]:
    """NAME=VALUE with the value as JSON, or as plain text where it is none."""
    name, equals, value = text.partition("=")
    if not equals or not name.isidentifier():
        raise argparse.ArgumentTypeError(f"{text!r}: give NAME=VALUE, for instance scale=quick or seeds=[0,1]")
    try:
        return name, json.loads(value)
    except (ValueError, RecursionError):  # the latter where it is nested too deeply
        return name, value


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="gelu-study",
        description="Reproduce Gaussian Error Linear Units (Hendrycks & Gimpel 2016): train, record, compare, publish.",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name: str, text: str, *options: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=text, description=text, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
        for option in options:
            _OPTIONS[option](sub)
        return sub

    data = command("data", "Show, download or import data sets; each is verified by its SHA-256.", "data-root")
    data.add_argument("names", nargs="*", metavar="NAME", help="for instance mnist; none shows what there is")
    data.add_argument(
        "--from",
        dest="source",
        type=folder,
        metavar="FOLDER",
        help="import from this folder instead of downloading: NAME.npz, IDX files, or files as torchvision lays them out",
    )

    run = command("run", "Train the runs of an experiment that the ledger lacks.", "plan", "device", "ledger", "data-root")
    run.add_argument(
        "--stack",
        type=positive,
        metavar="N",
        help="networks that train together (default: 15 on a CPU, 60 on CUDA; fewer of a large kind)",
    )
    run.add_argument("--epochs", type=positive, metavar="N", help="of each run (default: the scale's own)")
    run.add_argument(
        "--precision",
        choices=("float32", "bfloat16", "tf32"),
        help="of the products in training (default: the scale's own); runs in another precision are runs apart",
    )
    run.add_argument(
        "--checkpoints",
        type=folder,
        default=paths.CHECKPOINTS,
        metavar="FOLDER",
        help="where long trainings leave their state, to go on from when interrupted",
    )
    run.add_argument(
        "--time-limit",
        type=seconds,
        metavar="SECONDS",
        help="begin no epoch that would end later (a run's first one may), keep what is finished and a checkpoint of the rest; "
        "the same command goes on from there",
    )
    where = run.add_mutually_exclusive_group()
    where.add_argument(
        "--scheduler",
        type=address,
        metavar="ADDRESS",
        help="train on the workers of the Dask scheduler there, for instance tcp://127.0.0.1:8786 (default: in this process)",
    )
    where.add_argument(
        "--workers", type=positive, metavar="N", help="train in so many processes of this machine, with one thread each"
    )
    run.add_argument(
        "--keep-checkpoints",
        action="store_true",
        help="keep those of finished runs, to train them on with more --epochs later; not where a schedule depends on them",
    )

    status = command("status", "Runs done and missing, for each experiment and scale.", "ledger")
    status.add_argument("--format", choices=("text", "json"), default="text", help="how to print it")

    records = command("records", "The ledger as a table, a row a run; losses in nats, errors in percent.", "ledger")
    records.add_argument("--experiment", metavar="NAME", help="only the runs of this experiment")
    records.add_argument("--format", choices=("csv", "json"), default="csv", help="how to print it")

    verdicts = command("verdicts", "The paper's claims with their verdicts, a row a claim, from the records of a ledger.", "ledger")
    verdicts.add_argument("--format", choices=("text", "csv", "json"), default="text", help="how to print it")

    verify = command(
        "verify",
        "Train a random sample of the ledger again, with each record's number of threads, and compare: the same to the bit, or "
        "within the tolerance. Exit status 1 when a run is beyond the tolerance, or the same bits were promised and not seen.",
        "device",
        "ledger",
        "data-root",
    )
    verify.add_argument("--sample", type=positive, default=3, metavar="N", help="how many runs")
    verify.add_argument(
        "--sample-seed", type=int, default=None, metavar="N", help="draw the same sample again (default: a new one)"
    )
    verify.add_argument("--experiment", metavar="NAME", help="only runs of this experiment")
    verify.add_argument(
        "--whole-stacks",
        action="store_true",
        help="also train the runs again that trained together with a drawn one, so that the same bits are promised on the same "
        "machine; it takes as long as it did, for a stack of the classifier's paper scale about half an hour",
    )

    bench = command(
        "bench", "Measure on this machine: training against plain loops and its own rates, or a sweep over workers.", "device"
    )
    bench.add_argument(
        "what",
        nargs="?",
        choices=tuple(BENCHES),
        default="mnist",
        help="the classifier of MNIST (two minutes), convolutional networks of CIFAR-10 (three), or a sweep over local workers and "
        "the planning of 100,000 runs (four)",
    )
    bench.add_argument(
        "--seconds", type=seconds, metavar="S", help="for each measurement (default: 3 of mnist, 18 of cifar, 20 of sweep)"
    )
    bench.add_argument("--format", choices=("text", "json"), default="text", help="how to print it")

    measure = command(
        "measure",
        "Take a measurement that pages show and that is no training run; it replaces the last one of its name.",
        "device",
    )
    measure.add_argument("name", choices=tuple(MEASUREMENTS), help="what to measure")
    measure.add_argument("--output", type=folder, default=paths.MEASUREMENTS, metavar="FOLDER", help="where NAME.json goes")
    measure.add_argument(
        "--other-python",
        type=Path,
        metavar="FILE",
        help="for reproducibility: the interpreter of an environment with another PyTorch, NumPy, scikit-learn, pandas, psutil, "
        "tqdm and orjson",
    )

    notebook = command("notebook", "Execute a notebook with parameters, checked before the kernel starts.")
    notebook.add_argument("name", metavar="NAME", help="for instance mnist-classifier")
    notebook.add_argument(
        "-p",
        dest="parameters",
        type=parameter,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a parameter; lists as JSON, for instance seeds=[0,1]",
    )
    notebook.add_argument(
        "--output", type=Path, metavar="FILE", help="where the executed notebook goes (default: build/notebooks/NAME.ipynb)"
    )

    check = command("check", "Hold source notebooks against how the repository keeps them: no outputs, valid parameters.")
    check.add_argument("files", nargs="*", type=Path, metavar="FILE", help="notebooks (default: those of the project)")

    book = command("book", "Execute every notebook against the ledger and build the site; nothing is trained.", "ledger")
    book.add_argument("--output", type=folder, default=paths.BOOK / "_build" / "html", metavar="FOLDER", help="where the site goes")
    book.add_argument(
        "--repository",
        metavar="URL",
        help="the repository's address, for the book's buttons (default: REPOSITORY, or GitHub's own variables; none, no buttons)",
    )

    book.add_argument(
        "--site",
        default="",
        metavar="URL",
        help="the address where the pages will be published, for a site map, cards and a 404 page (default: none of these)",
    )

    book.add_argument("--pdf", action="store_true", help="also print the whole book as a PDF, with the system's Chromium")

    command("readme", "Write the answer in README.md anew from the project's records.")

    quick = command(
        "quick", "Train a reduced version on this machine, in minutes, and make its page.", "device", "data-root"
    )
    quick.add_argument(
        "--ledger",
        type=folder,
        metavar="FOLDER",
        help=f"the folder of records (default: the project's are read, new ones go to {paths.shown(paths.OWN)})",
    )
    page = paths.ROOT / "build" / "quick"
    quick.add_argument("--output", type=folder, default=page, metavar="FOLDER", help="where its page goes")
    quick.add_argument("--seeds", type=seeds, metavar="LIST", help="for instance 0-4 (default: the scale's own)")
    return parser


def _plan_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("experiment", metavar="EXPERIMENT", help="for instance mnist-classifier")
    parser.add_argument(
        "--scale",
        default="quick",
        help="smoke (seconds), quick (minutes), paper (the paper's protocol) or powered (with more seeds)",
    )
    parser.add_argument("--seeds", type=seeds, metavar="LIST", help="for instance 0-4,9 (default: the scale's own)")
    parser.add_argument("--activations", type=words, metavar="LIST", help="for instance gelu_tanh,relu (default: the scale's own)")
    parser.add_argument(
        "--learning-rates", type=numbers, metavar="LIST", help="a step, for instance 1e-3,1e-4 (default: the scale's own)"
    )
    parser.add_argument(
        "--keep-probabilities",
        type=numbers,
        metavar="LIST",
        help="of a hidden unit, in (0, 1], 1 for no dropout (default: the scale's own)",
    )
    parser.add_argument("--dataset", metavar="NAME", help="another data set that the scale can run on (default: the scale's own)")


_OPTIONS = {
    "plan": _plan_options,
    "device": lambda parser: parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:N or mps"),
    "ledger": lambda parser: parser.add_argument(
        "--ledger", type=folder, default=paths.LEDGER, metavar="FOLDER", help="the folder of records"
    ),
    "data-root": lambda parser: parser.add_argument(
        "--data-root",
        type=folder,
        default=None,
        metavar="FOLDER",
        help="where data sets are kept (default: GELU_STUDY_DATA, else data/raw)",
    ),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    options = _parser().parse_args(arguments)
    try:
        with warnings.catch_warnings():
            for kind in (LedgerWarning, CheckpointWarning):
                warnings.simplefilter("always", kind)
            warnings.showwarning = lambda message, *_, **__: print(f"gelu-study: warning: {message}", file=sys.stderr)
            status = _COMMANDS[options.command](options)
            sys.stdout.flush()  # here, where what goes wrong can still be said
            return status
    except StudyError as error:
        print(f"gelu-study: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\ngelu-study: interrupted; what was finished is kept, the same command goes on from there", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of our output has seen enough
        sys.stderr.close()
        return 0
    except OSError as error:
        print(f"gelu-study: {error.filename or 'the output'} could not be read or written: {error.strerror}", file=sys.stderr)
        with suppress(OSError):
            sys.stdout.close()  # or Python would try to write the rest once more
        return 2


def _data(options: argparse.Namespace) -> int:
    from gelu_study import datasets

    unknown = [name for name in options.names if name not in datasets.NAMES]
    if unknown:
        raise ConfigurationError(f"unknown data set {', '.join(unknown)}; known are {', '.join(datasets.NAMES)}")
    for name in options.names:
        datasets.fetch(name, options.data_root, options.source)
    for name in options.names or datasets.NAMES:
        print(datasets.describe(name, options.data_root))
    return 0


def _run(options: argparse.Namespace) -> int:
    from gelu_study import protocols, study, training
    from gelu_study.checkpoints import Checkpoints

    deadline = training.Deadline.after(options.time_limit) if options.time_limit else training.NEVER
    protocols.grid(options.experiment, options.scale, options.dataset, options.learning_rates)  # before workers are started
    with _executor(options) as executor:
        result = study.run(
            options.experiment,
            options.scale,
            seeds=options.seeds,
            activations=options.activations,
            learning_rates=options.learning_rates,
            keep_probabilities=options.keep_probabilities,
            epochs=options.epochs,
            precision=options.precision,
            dataset=options.dataset,
            device=options.device,
            stack_size=options.stack,
            checkpoints=Checkpoints(options.checkpoints, options.keep_checkpoints),
            ledger=options.ledger,
            data_root=options.data_root,
            deadline=deadline,
            executor=executor,
        )
    diverged = sum(record.status == "diverged" for record in result.records)
    print(f"{options.experiment} at scale {options.scale}: {len(result.records)} runs in {options.ledger}, {diverged} diverged")
    if result.missing:
        more = ", those at the learning rates to be chosen not counted" if result.choice_pending else ""
        print(f"time was up; {result.missing} runs are missing{more}, and the same command goes on from there")
    elif result.choice_pending:
        print("validation could not choose a learning rate for every activation, so the runs with more seeds were left out")
    return 0


@contextmanager
def _executor(options: argparse.Namespace) -> Iterator[sweep.Executor | None]:
    from gelu_study import training

    if options.scheduler or options.workers:
        from gelu_study.sweep.cluster import connect

        with connect(options.scheduler, options.workers) as found:
            yield found
    else:
        training.resolve_device(options.device)
        yield None


def _status(options: argparse.Namespace) -> int:
    from gelu_study import study

    rows = study.status(options.ledger)
    if options.format == "json":
        print(json.dumps(rows, indent=1))
        return 0
    print(f"{'experiment':<20} {'scale':<8} {'planned':>8} {'done':>6} {'diverged':>9} {'missing':>8}")
    for row in rows:
        print("{experiment:<20} {scale:<8} {planned:>8} {done:>6} {diverged:>9} {missing:>8}  {note}".format(**row).rstrip())
    if damaged := [*(options.ledger / "damaged").glob("*")]:
        print(f"{len(damaged)} damaged in {options.ledger / 'damaged'}: restore them with git, or delete them")
    return 0


def _records(options: argparse.Namespace) -> int:
    from gelu_study.ledger import Ledger, table

    records = Ledger(options.ledger).read()
    frame = table(record for record in records if options.experiment in (None, record.config.experiment))
    if options.format == "csv":
        frame.to_csv(sys.stdout, index=False)
    else:
        rows = frame.astype(object).where(frame.notna(), None).to_dict("records")
        print(json.dumps(rows, indent=1, allow_nan=False))
    return 0


def _verdicts(options: argparse.Namespace) -> int:
    from gelu_study import claims

    rows = claims.verdicts(options.ledger)
    if options.format == "csv":
        claims.frame(rows).to_csv(sys.stdout, index=False)
    else:
        print(json.dumps(claims.as_json(rows), indent=1, allow_nan=False) if options.format == "json" else claims.as_text(rows))
    return 0


def _verify(options: argparse.Namespace) -> int:
    from gelu_study import verification

    rows = verification.verify(
        options.ledger,
        sample=options.sample,
        sample_seed=options.sample_seed,
        experiment=options.experiment,
        device=options.device,
        data_root=options.data_root,
        whole_stacks=options.whole_stacks,
    )
    for row in rows:
        print(row)
    print(verification.summary(rows))
    return 1 if any(row.verdict == verification.DIFFERS for row in rows) else 0


def _bench(options: argparse.Namespace) -> int:
    from importlib import import_module

    bench = import_module(BENCHES[options.what])
    result = bench.measure(options.device, options.seconds or bench.SECONDS)
    print(json.dumps(result, indent=1, allow_nan=False) if options.format == "json" else bench.report(result))
    return 0


def _measure(options: argparse.Namespace) -> int:
    from importlib import import_module

    from gelu_study import measurements, training

    training.resolve_device(options.device)
    measure = import_module(MEASUREMENTS[options.name]).measure
    if options.other_python is not None:
        if options.name != "reproducibility":
            raise ConfigurationError(f"--other-python is for the measurement reproducibility, not for {options.name}")
        measure = partial(measure, other_python=options.other_python)
    print(measurements.write(measurements.take(options.name, measure, options.device), options.output))
    return 0


def _notebook(options: argparse.Namespace) -> int:
    from gelu_study import notebooks

    output = options.output or paths.ROOT / "build" / "notebooks" / f"{options.name}.ipynb"
    given = dict(options.parameters)
    if isinstance(given.get("ledger"), str) and given["ledger"]:  # the kernel runs in the notebook's folder
        given["ledger"] = str(Path(os.path.expanduser(given["ledger"])).absolute())
    notebooks.execute(paths.NOTEBOOKS / f"{options.name}.ipynb", output, given)
    print(output)
    return 0


def _check(options: argparse.Namespace) -> int:
    from gelu_study import notebooks

    complaints = []
    for path in options.files or sorted(paths.NOTEBOOKS.glob("*.ipynb")):
        try:
            notebooks.check(path)
        except NotebookError as error:
            complaints.append(str(error))
    print("\n".join(complaints), end="\n" if complaints else "", file=sys.stderr)
    return 1 if complaints else 0


def _book(options: argparse.Namespace) -> int:
    from gelu_study import site

    built = site.build(options.output, options.repository, options.ledger, site=options.site, pdf=options.pdf)
    print(built)
    return 0


def _readme(options: argparse.Namespace) -> int:
    from gelu_study import readme

    print(readme.update())
    return 0


def _quick(options: argparse.Namespace) -> int:
    from gelu_study import datasets, notebooks, study, training

    training.resolve_device(options.device)
    dataset = "mnist"
    if not datasets.available(dataset, options.data_root):
        try:
            datasets.fetch(dataset, options.data_root)
        except DataError as error:
            dataset = "digits"
            print(f"gelu-study: {error}\n", file=sys.stderr)
            print(
                "MNIST could not be had, so this quick run trains on `digits`: 1,797 handwritten digits of 8 x 8 pixels that\n"
                "ship with scikit-learn. It shows that everything works; its numbers say nothing about the paper's claim.",
                file=sys.stderr,
            )
    study.run(
        "mnist-classifier",
        "quick",
        seeds=options.seeds,
        dataset=dataset,
        device=options.device,
        ledger=options.ledger,
        data_root=options.data_root,
    )
    given = {
        "scale": "quick",
        "dataset": dataset,
        "train": False,
        "ledger": str(options.ledger.absolute()) if options.ledger else "",
        "seeds": options.seeds or [],
    }
    output = options.output / "mnist-classifier.ipynb"
    notebooks.execute(paths.NOTEBOOKS / "mnist-classifier.ipynb", output, given)
    page = notebooks.to_html(output)
    print(f"the page of this quick run: {page}")
    return 0


_COMMANDS = {
    "data": _data,
    "run": _run,
    "status": _status,
    "records": _records,
    "verdicts": _verdicts,
    "verify": _verify,
    "bench": _bench,
    "measure": _measure,
    "notebook": _notebook,
    "check": _check,
    "book": _book,
    "readme": _readme,
    "quick": _quick,
}
