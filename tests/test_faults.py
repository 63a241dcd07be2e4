"""Faults as they happen: real processes that are killed, run out of room, may not write or get in each other's way.

Which of them the book's page on the record tells of is in `chapters.faults`.
"""

from __future__ import annotations

import ast
import dataclasses
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import pytest

from gelu_study import cli, paths, protocols, sweep
from gelu_study.chapters import faults
from gelu_study.errors import DamagedRecordWarning, LedgerError, NewerRecordError
from gelu_study.ledger import Ledger
from gelu_study.runs import RunRecord

SMOKE = ["run", "mnist-classifier", "--scale", "smoke", "--device", "cpu"]
ONE = [*SMOKE, "--activations", "relu", "--keep-probabilities", "1", "--seeds", "0"]


@pytest.fixture(scope="module")
def record() -> RunRecord:
    """Of a run that was trained."""
    config = protocols.plan("mnist-classifier", "smoke", activations=["relu"], keep_probabilities=[1.0], seeds=[0])[0]
    with tempfile.TemporaryDirectory() as folder:
        return sweep.complete([config], Ledger(folder), device="cpu")[0]


def run(script: str, *arguments: object, **options: object) -> subprocess.CompletedProcess[str]:
    """A new process with that script."""
    command = [sys.executable, "-c", script, *(str(argument) for argument in arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, **options)  # type: ignore[call-overload]


def files(folder: Path) -> list[str]:
    """The names of all files below a folder."""
    return sorted(path.name for path in folder.rglob("*") if not path.is_dir() or path.is_symlink())


KILLED = """
import os, signal, sys, tempfile
from pathlib import Path
from gelu_study.ledger import Ledger
from gelu_study.runs import RunRecord

def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)

def before(module, name):
    setattr(module, name, die)

def after(module, name):
    call = getattr(module, name)
    setattr(module, name, lambda *arguments, **options: [call(*arguments, **options), die()])

def in_the_middle():
    os.fdopen = lambda handle, mode: [os.write(handle, text[: len(text) // 2].encode()), die()]

def without_links():
    def fail(*_):
        raise PermissionError(1, "Operation not permitted")
    os.link = fail

STAGES = {
    "before anything": lambda: before(tempfile, "mkstemp"),
    "with an empty file": lambda: after(tempfile, "mkstemp"),
    "in the middle of writing": in_the_middle,
    "before it is on the disk": lambda: before(os, "fsync"),
    "when it is on the disk": lambda: after(os, "fsync"),
    "before it has its name": lambda: before(os, "link"),
    "when it has its name": lambda: after(os, "link"),
    "when its other name is gone": lambda: after(Path, "unlink"),
    "before it is renamed": lambda: [without_links(), before(os, "replace")],
    "when it is renamed": lambda: [without_links(), after(os, "replace")],
}
text = sys.stdin.read()
for number, stage in enumerate(STAGES):
    child = os.fork()
    if not child:
        STAGES[stage]()
        Ledger(f"{sys.argv[1]}/{number}").write(RunRecord.from_json(text))
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), number, stage)
"""

WHOLE = {"when it has its name", "when its other name is gone", "when it is renamed"}


def test_a_writer_killed_at_any_stage_leaves_the_whole_record_or_none(tmp_path, record):
    done = run(KILLED, tmp_path, input=record.to_json())
    stages = [line.split(maxsplit=2) for line in done.stdout.splitlines()]
    assert len(stages) == 10 and {status for status, _, _ in stages} == {"-9"}, done.stderr
    for _, number, stage in stages:
        book = Ledger(tmp_path / number)
        assert book.read() == ([record] if stage in WHOLE else []), stage
        (again,) = sweep.complete([record.config], book, device="cpu")  # the next sweep goes on
        assert again.config == record.config and book.read() == [again]
        left = [path for path in book.folder.rglob("*") if path.name.endswith(".tmp")]
        assert len(left) == (stage not in {"before anything", "when its other name is gone", "when it is renamed"}), stage
        for path in left:
            os.utime(path, (path.stat().st_mtime - 100_000,) * 2)
        book.prepare()
        assert files(book.folder) == [f"{record.config.key}.json"] and book.read() == [again]


LIMITED = """
import resource, sys
from gelu_study import cli
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
sys.exit(cli.main(sys.argv[1:]))
"""


def test_a_disk_that_takes_no_more_bytes(tmp_path):
    done = run(LIMITED, *ONE, "--ledger", tmp_path / "runs", "--checkpoints", tmp_path / "checkpoints")
    assert done.returncode == 2 and "Traceback" not in done.stderr
    said = r"could not write the record of run [0-9a-f]{12} to .*: File too large. Nothing was left half-written; make room"
    assert re.search(said, done.stderr)
    assert files(tmp_path / "runs") == []
    assert cli.main([*ONE, "--ledger", str(tmp_path / "runs")]) == 0  # the limit gone, the same command goes on
    assert len(Ledger(tmp_path / "runs").read()) == 1


UNPRIVILEGED = """
import contextlib, io, json, os, sys
import sklearn.datasets
from gelu_study import cli, ledger, study, sweep, training
ledger.table([]).to_csv(io.StringIO())  # what is imported late may lie where root alone can read
if os.getuid() == 0:
    os.setuid(65534)
results = []
for arguments in json.loads(sys.argv[1]):
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        status = cli.main(arguments)
    results.append([status, out.getvalue(), err.getvalue()])
print(json.dumps(results))
"""


def test_a_ledger_that_may_not_be_written_is_said_before_training(record):
    """All of it, or a folder in it."""
    damaged = dataclasses.replace(record.config, seed=1)
    with tempfile.TemporaryDirectory() as name:
        books = [Ledger(Path(name) / "all"), Ledger(Path(name) / "part")]
        for book in books:
            for config in (record.config, damaged):
                book.write(dataclasses.replace(record, config=config))
            book.path(damaged.key).write_text("damaged")
        parts = [path for book in books for path in book.folder.iterdir()]
        Path(name).chmod(0o755)
        books[1].folder.chmod(0o777)  # the process is no longer the owner if it was root's
        for path in (books[0].folder, *parts):
            path.chmod(0o555)
        try:
            commands = [[*SMOKE, "--ledger", str(book.folder)] for book in books]
            done = run(UNPRIVILEGED, json.dumps([*commands, ["records", "--ledger", str(books[0].folder)]]))
            assert done.returncode == 0, done.stderr
            *sweeps, reading = json.loads(done.stdout)
        finally:
            for path in (books[0].folder, *parts):
                path.chmod(0o755)
        for (status, _, err), reason in zip(sweeps, ("Permission denied", "no permission for [0-9a-f]{2} in it"), strict=True):
            assert status == 2 and re.search(
                f"gelu-study: the ledger .* cannot be written: {reason}; name another with --ledger", err
            )
            assert "runs, " not in err  # nothing was trained
        status, out, err = reading
        bad = books[0].path(damaged.key)
        assert status == 0 and len(out.splitlines()) == 2 and record.config.key in out
        assert re.fullmatch(rf".*{bad} is damaged: .* could not be moved to .*Permission denied.*\n", err)
        assert bad.read_text() == "damaged"


def test_two_sweeps_of_one_plan_at_once(tmp_path):
    command = [sys.executable, "-m", "gelu_study", *SMOKE, "--ledger", str(tmp_path / "runs")]
    command += ["--checkpoints", str(tmp_path / "checkpoints")]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    said = [process.communicate(timeout=300) for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    assert all("12 runs" in out and "arning" not in err for out, err in said)
    records = Ledger(tmp_path / "runs").read()
    assert {record.config for record in records} == set(protocols.plan("mnist-classifier", "smoke")) and len(records) == 12
    assert files(tmp_path) == sorted(f"{record.config.key}.json" for record in records)  # and nothing else, no checkpoint either


RACE = """
import dataclasses, json, multiprocessing, sys, warnings
from gelu_study.ledger import Ledger
from gelu_study.runs import RunRecord

first = RunRecord.from_json(sys.stdin.read())
context = multiprocessing.get_context("fork")
barrier, results = context.Barrier(4), context.SimpleQueue()

def write(writer):
    book, held = Ledger(sys.argv[1]), []
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            for seed in range(40):
                own = dataclasses.replace(first, config=dataclasses.replace(first.config, seed=seed), environment={"device": writer})
                barrier.wait(60)
                held.append(book.write(own).environment["device"])
        finally:
            results.put([held, [str(warning.message) for warning in said]])

writers = [context.Process(target=write, args=(writer,)) for writer in range(4)]
for process in writers:
    process.start()
print(json.dumps([results.get() for _ in writers]))
for process in writers:
    process.join()
"""


def test_writers_of_the_same_run_at_the_same_moment_agree_on_one_record(tmp_path, record):
    """Also where a damaged file is in the way, which all of them find."""
    book = Ledger(tmp_path)
    configs = [dataclasses.replace(record.config, seed=seed) for seed in range(40)]
    damaged = {f"{config.key}.json": f"damaged {config.seed}" for config in configs[::2]}
    for name, text in damaged.items():
        (tmp_path / name[:2]).mkdir(exist_ok=True)
        (tmp_path / name[:2] / name).write_text(text)
    done = run(RACE, tmp_path, input=record.to_json())
    assert done.returncode == 0, done.stderr
    held, said = zip(*json.loads(done.stdout), strict=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = [book.get(config.key).environment["device"] for config in configs]
        assert len(book.read()) == 40
    assert [list(one) for one in held] == [found] * 4  # each was told of the record that is there
    assert len(set(found)) > 1  # it was a race
    messages = [message for one in said for message in one]
    assert len(messages) == 20 and all("is damaged" in message and "It was moved to" in message for message in messages)
    moved = list((tmp_path / "damaged").iterdir())  # with a number where a writer that came too late had the name for a moment
    assert len(moved) == 20
    assert {re.sub(r"\.\d+\.json$", ".json", path.name): path.read_text() for path in moved} == damaged
    assert len(files(tmp_path)) == 40 + 20


def test_a_clock_that_is_set_wrong_changes_nothing(tmp_path, record):
    """Files from the future, and a run that began in it, as after the clock was set back."""
    book = Ledger(tmp_path)
    future = dataclasses.replace(record, environment={**record.environment, "started": "2199-01-01T00:00:00+00:00"})
    assert book.write(future) == future
    path = book.path(record.config.key)
    for when in (7e9, 0):
        os.utime(path, (when, when))
        book.prepare()
        assert book.read() == [future] and book.write(record) == future
        assert sweep.complete([record.config], book, device="cpu") == [future]
    assert files(tmp_path) == [path.name]


def test_nothing_is_decided_by_the_time_of_day():
    """It is recorded, as the start of a training or a measurement; durations and deadlines go by a clock that cannot be set."""
    used = {}
    for path in sorted((paths.ROOT / "src").rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        calls = {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
        of_day = re.compile(r"\b(time\.(time|time_ns|localtime|gmtime)|now|utcnow|today)$")
        if found := sorted(call for call in calls if of_day.search(call)):
            used[str(path.relative_to(paths.ROOT / "src" / "gelu_study"))] = found
    recorded = ["datetime.datetime.now"]
    assert used == {
        "datasets/__init__.py": ["time.time"],  # the age of an abandoned download
        "measurements.py": recorded,
        "training/images.py": recorded,
        "training/stacks.py": recorded,
    }


def test_every_flipped_bit_of_a_record_is_noticed(record):
    sound = record.to_json().encode()
    for position in range(len(sound)):
        for bit in range(8):
            flipped = bytearray(sound)
            flipped[position] ^= 1 << bit
            try:
                RunRecord.from_json(flipped.decode())
            except NewerRecordError as error:
                pytest.fail(f"bit {bit} of byte {position}: {error}")
            except (LedgerError, UnicodeDecodeError):
                continue
            else:
                pytest.fail(f"bit {bit} of byte {position} was not noticed")


def test_the_page_counts_the_records_with_a_checksum(tmp_path, record):
    book = Ledger(tmp_path)
    book.write(record)
    assert faults.checksums(tmp_path) == "1 of the 1 records here end with their checksum."
    text = book.path(record.config.key).read_text()
    other = tmp_path / "00" / f"{'0' * 64}.json"
    other.parent.mkdir(exist_ok=True)
    other.write_text(text[: text.rindex(',\n"sha256"')] + "\n}\n")
    assert faults.checksums(tmp_path).startswith("1 of the 2 records here end with their checksum. In the others")


def test_every_truncated_record_is_noticed(record):
    sound = record.to_json()
    for length in range(len(sound)):
        with pytest.raises(LedgerError, match="not strict JSON" if length < len(sound) - 1 else "sha256"):
            RunRecord.from_json(sound[:length])


def test_flipped_bits_on_the_disk_are_set_aside_and_trained_again(tmp_path, record):
    draw = random.Random(0)
    book, path = Ledger(tmp_path), Ledger(tmp_path).path(record.config.key)
    sound = record.to_json().encode()
    for count in range(1, 26):
        book.write(record)
        flipped = bytearray(sound)
        position = draw.randrange(len(sound))
        flipped[position] ^= 1 << draw.randrange(8)
        path.write_bytes(flipped)
        with pytest.warns(DamagedRecordWarning, match="is damaged: .* It was moved to .*; the run counts as missing"):
            assert sweep.missing([record.config], book) == [record.config]
        assert not path.exists() and len(files(tmp_path / "damaged")) == count


def test_in_an_older_record_a_flipped_bit_of_what_names_the_run_is_noticed(record):
    """Older records have no checksum. What is not noticed there: a digit of a curve, of an end that no curve holds, of the environment."""
    text = record.to_json()
    older = (text[: text.rindex(',\n"sha256"')] + "\n}\n").encode()
    begin, end = older.index(b'"schema"'), older.index(b'"status"')
    for position in range(begin, end):
        for bit in range(8):
            flipped = bytearray(older)
            flipped[position] ^= 1 << bit
            try:
                found = RunRecord.from_json(flipped.decode())
            except (LedgerError, UnicodeDecodeError):
                continue
            assert found == record  # 1e-5 for 1E-5


STATUS = """
import json, sys, time
from gelu_study import cli
read = []
sys.addaudithook(lambda event, found: read.append(found[0]) if event == "open" and str(found[0]).startswith(sys.argv[1]) else None)
status = cli.main(["status", "--format", "json", "--ledger", sys.argv[1]])
times = time.process_time()
print(json.dumps({"status": status, "opened": len(read), "files": len(set(map(str, read))), "seconds": times}), file=sys.stderr)
"""


def test_status_of_ten_thousand_records(tmp_path, record):
    """Each is read once, and damage among them is found. The bound is several times what it takes (see the page), in CPU time."""
    for seed in range(10_000):
        one = dataclasses.replace(record, config=dataclasses.replace(record.config, seed=seed))
        path = tmp_path / one.config.key[:2] / f"{one.config.key}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(one.to_json())
    damaged = one.to_json().replace('"threads": ', '"threads":  ')
    path.write_text(damaged)
    done = run(STATUS, tmp_path)
    warning, measured = done.stderr.splitlines()
    assert f"{path} is damaged: its sha256 is not that of its text" in warning
    found = json.loads(measured)
    assert found["status"] == 0 and found["seconds"] < 8
    assert found["files"] == 10_000 + 1  # the damaged one also where it was moved
    assert found["opened"] == 10_000 + 2  # and there first to reserve the name
    rows = {(row["experiment"], row["scale"]): row for row in json.loads(done.stdout)}
    assert rows["mnist-classifier", "smoke"]["done"] == 2


def test_output_that_cannot_be_written(tmp_path):
    if not Path("/dev/full").exists():
        pytest.skip("needs /dev/full, as Linux has it")
    with open("/dev/full", "w") as full:
        for command in (["records"], ["status"]):
            called = [sys.executable, "-m", "gelu_study", *command, "--ledger", str(tmp_path)]
            done = subprocess.run(called, stdout=full, stderr=subprocess.PIPE, text=True)
            assert done.returncode == 2
            assert done.stderr == "gelu-study: the output could not be read or written: No space left on device\n"


def test_what_is_left_where_it_is_takes_a_line_each(capsys, tmp_path, record):
    """A record of a newer version, and a copy in another folder."""
    text = record.to_json().replace('"schema": 1', '"schema": 2').replace('"final"', '"end"')
    for prefix in (record.config.key[:2], "00", "01"):
        (tmp_path / prefix).mkdir()
        (tmp_path / prefix / f"{record.config.key}.json").write_text(text)
    assert cli.main(["status", "--ledger", str(tmp_path)]) == 0
    first, second = capsys.readouterr().err.splitlines()
    assert re.match(r"gelu-study: warning: 2 of the files in .* cannot be counted, for instance .*00.*belongs in the folder", first)
    assert re.match(r"gelu-study: warning: 1 of the records in .* cannot be read by this version .* update the package", second)
    assert cli.main([*ONE, "--ledger", str(tmp_path)]) == 2
    assert "Update the package; the run is there" in capsys.readouterr().err
    assert len(files(tmp_path)) == 3


def test_an_empty_path_is_no_ledger(capsys):
    with pytest.raises(SystemExit) as stopped:
        cli.main(["records", "--ledger", ""])
    assert stopped.value.code == 2 and "argument --ledger: the path is empty" in capsys.readouterr().err


def defined(file: str) -> set[str]:
    tree = ast.parse((Path(__file__).parent / file).read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_every_fault_of_the_book_has_its_test_and_every_test_here_its_fault():
    shown = [test for fault in faults.FAULTS for test in fault.tests]
    for test in shown:
        file, _, name = test.partition("::")
        assert name in defined(file), test
    own = {name for name in defined(Path(__file__).name) if name.startswith("test_")}
    about_the_table = {name for name in own if "of_the_book_" in name}
    assert own - {test.partition("::")[2] for test in shown} == about_the_table


def test_the_table_of_the_book_says_all_of_each_fault():
    frame = faults.table("https://example.org/study")
    assert len(frame) == len(faults.FAULTS) and not (frame == "").any().any()
    assert 'href="https://example.org/study/blob/HEAD/tests/test_faults.py"' in " ".join(frame["shown by"])
    assert "href" not in " ".join(faults.table("")["shown by"])
