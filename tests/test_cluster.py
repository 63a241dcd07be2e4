"""Sweeps on a cluster: whatever dies, nothing is lost and nothing is written twice. Schedulers and workers are real processes."""

from __future__ import annotations

import gc
import io
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import gelu_study
from clusters import Machines, kill, machines, until
from gelu_study import protocols, sweep
from gelu_study.checkpoints import Checkpoints
from gelu_study.errors import ConfigurationError
from gelu_study.ledger import Ledger
from gelu_study.sweep import cluster
from gelu_study.training import Deadline
from test_sweep import results

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore:.*unclosed.*")


@pytest.fixture(scope="module")
def long() -> list:
    """Twelve runs that take seconds, not moments, so that something can happen to them."""
    return protocols.plan("mnist-classifier", "smoke", epochs=20)


@pytest.fixture
def there(tmp_path) -> Iterator[Machines]:
    """A scheduler without workers yet."""
    with machines(tmp_path / "dask") as started:
        yield started


class Sweep(threading.Thread):
    """A sweep in the background, its words and its end."""

    def __init__(self, address: str, configs: list, book: Ledger, **options: object) -> None:
        super().__init__(daemon=True)
        self.said, self.error, self.records = io.StringIO(), None, []
        self._do = lambda executor: sweep.complete(configs, book, executor=executor, device="cpu", stream=self.said, **options)
        self._address = address
        self.start()

    def run(self) -> None:
        try:
            with cluster.connect(self._address) as executor:
                self.records = self._do(executor)
        except Exception as error:
            self.error = error

    def end(self) -> str:
        """Wait for it and return what it said."""
        self.join(180)
        assert not self.is_alive(), self.said.getvalue()
        return self.said.getvalue()


def pass_now(deadline: Deadline) -> None:
    """A limit that was far away passes, for the client alone."""
    object.__setattr__(deadline, "at", time.monotonic())


def begun(folder: Path, count: int = 1):
    """Whether checkpoints show that training is under way."""
    return lambda: len(list(folder.glob("*.pt"))) >= count


def test_a_local_cluster_gives_what_this_process_gives(tmp_path, smoke):
    with cluster.connect(workers=2) as executor:
        spread = sweep.complete(smoke, Ledger(tmp_path / "spread"), executor=executor, device="cpu", stream=io.StringIO())
    here = sweep.complete(smoke, Ledger(tmp_path / "here"), device="cpu", stack_size=6, stream=io.StringIO())
    assert results(spread) == results(here) and len(Ledger(tmp_path / "spread").read()) == len(smoke)
    assert {(r.environment["stack"], r.environment["threads"]) for r in spread} == {(6, 1)}


def test_a_worker_killed_in_mid_stack(there, tmp_path, long):
    """Its stack goes on elsewhere from its checkpoint; while there is no worker, the sweep waits."""
    book, checkpoints = Ledger(tmp_path / "runs"), Checkpoints(tmp_path / "checkpoints", every=0)
    first = there.worker()
    there.joined(1)
    running = Sweep(there.address, long[:2], book, checkpoints=checkpoints, stack_size=1)
    until(begun(checkpoints.folder), "a checkpoint")
    kill(first)
    until(lambda: "is gone" in running.said.getvalue(), "a word on the lost worker")
    there.worker()
    said = running.end()
    assert running.error is None and len(re.findall("is gone; what it was training begins again", said)) == 1
    assert said.splitlines()[-1].startswith("2/2 runs")
    assert [record.config for record in running.records] == long[:2] and len(book.read()) == 2
    assert any("earlier" in record.environment for record in running.records) and not list(checkpoints.folder.iterdir())
    whole = sweep.complete(long[:2], Ledger(tmp_path / "whole"), device="cpu", stack_size=1, stream=io.StringIO())
    assert results(running.records) == results(whole)


def test_a_lost_scheduler(there, tmp_path, long, monkeypatch):
    """The sweep ends with a message, what was finished is kept, and the next one goes on."""
    monkeypatch.setattr(cluster, "CONNECT_SECONDS", 2.0)
    book = Ledger(tmp_path / "runs")
    there.worker()
    there.joined(1)
    running = Sweep(there.address, long[:4], book, stack_size=1)
    until(book.read, "a record")
    before = len(running.said.getvalue())
    kill(there.scheduler)
    said = running.end()
    assert isinstance(running.error, cluster.ClusterError) and "is gone; start it again" in str(running.error)
    assert said[before:].count("broke") == 1
    kept = book.read()
    assert 0 < len(kept) < 4
    every = sweep.complete(long[:4], book, device="cpu", stream=io.StringIO())
    assert [record.config for record in every] == long[:4] and all(record in every for record in kept)


def test_a_scheduler_that_comes_back(there, tmp_path, long):
    """The sweep finds it again and hands it what was lost with it."""
    book = Ledger(tmp_path / "runs")
    there.worker()
    there.joined(1)
    running = Sweep(there.address, long[:3], book, stack_size=1)
    until(book.read, "a record")
    kill(there.scheduler)
    until(lambda: "broke" in running.said.getvalue(), "a word on the lost scheduler")
    there.restart_scheduler()
    there.worker()
    running.end()
    assert running.error is None and len(book.read()) == 3


def copy_of_the_package(folder: Path, **changes: tuple[str, str]) -> str:
    """A folder for PYTHONPATH with the package, in which each named module has a text replaced."""
    shutil.copytree(Path(gelu_study.__file__).parent, folder / "gelu_study", ignore=shutil.ignore_patterns("__pycache__"))
    for name, (old, new) in changes.items():
        module = folder / "gelu_study" / f"{name}.py"
        assert old in module.read_text()
        module.write_text(module.read_text().replace(old, new))
    return str(folder)


def another_version(folder: Path) -> str:
    """A folder for PYTHONPATH that makes the installed package call itself version 99."""
    metadata = folder / "gelu_study-99.dist-info" / "METADATA"
    metadata.parent.mkdir(parents=True)
    metadata.write_text("Metadata-Version: 2.1\nName: gelu-study\nVersion: 99\n")
    return str(folder)


def test_unfit_workers_get_nothing_and_are_named(there, tmp_path, smoke):
    """Another engine, another version, no package at all, and one that is fit, which trains everything."""
    source = str(Path(gelu_study.__file__).parents[1])
    (tmp_path / "none" / "gelu_study").mkdir(parents=True)
    (tmp_path / "none" / "gelu_study" / "__init__.py").write_text("raise ImportError('half an installation')")
    paths = {
        "engine": copy_of_the_package(tmp_path / "engine", runs=("ENGINE = 1", "ENGINE = 77")),
        "version": os.pathsep.join([another_version(tmp_path / "version"), source]),
        "none": str(tmp_path / "none"),
        "fit": source,
    }
    for path in paths.values():
        there.worker(PYTHONPATH=path)
    there.joined(len(paths))
    running = Sweep(there.address, smoke, Ledger(tmp_path / "runs"))
    said = running.end()
    assert running.error is None and [record.config for record in running.records] == smoke
    assert said.count("gets nothing to train") == 3
    for reason in ("it has engine 77, and this sweep needs 1", "it has version 99 of the package", "cannot run this package"):
        assert said.count(reason) == 1
    kill(there.workers[-1])
    there.joined(3)
    alone = Sweep(there.address, smoke, Ledger(tmp_path / "others"))
    alone.end()
    assert isinstance(alone.error, cluster.ClusterError) and "can train this" in str(alone.error)


def test_the_only_fit_worker_dies_beside_an_unfit_one(there, tmp_path, long):
    """The sweep waits for another, which gets what was lost, though the stack was meant for the dead one alone."""
    book, checkpoints = Ledger(tmp_path / "runs"), Checkpoints(tmp_path / "checkpoints", every=0)
    there.worker(PYTHONPATH=os.pathsep.join([another_version(tmp_path / "version"), str(Path(gelu_study.__file__).parents[1])]))
    first = there.worker()
    there.joined(2)
    running = Sweep(there.address, long[:2], book, checkpoints=checkpoints, stack_size=1)
    until(begun(checkpoints.folder), "a checkpoint")
    kill(first)
    until(lambda: "is gone" in running.said.getvalue(), "a word on the lost worker")
    there.worker()
    said = running.end()
    assert running.error is None and said.count("gets nothing to train: it has version 99") == 1
    assert [record.config for record in running.records] == long[:2]


def test_a_worker_that_does_not_answer_holds_nobody_up(there, tmp_path, smoke, monkeypatch):
    monkeypatch.setattr(cluster, "CONNECT_SECONDS", 3.0)
    frozen = there.worker()
    there.joined(1)
    frozen.send_signal(signal.SIGSTOP)
    there.worker()
    there.joined(2)
    running = Sweep(there.address, smoke, Ledger(tmp_path / "runs"))
    said = running.end()
    frozen.send_signal(signal.SIGCONT)
    assert running.error is None and [record.config for record in running.records] == smoke
    assert "does not answer" in said


def test_a_worker_that_freezes_in_mid_stack(tmp_path, long):
    """The scheduler gives it up, and what it had begun goes on elsewhere."""
    checkpoints = Checkpoints(tmp_path / "checkpoints", every=0)
    with machines(tmp_path / "dask", DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL="10s") as there:
        frozen = there.worker()
        there.joined(1)
        running = Sweep(there.address, long[:1], Ledger(tmp_path / "runs"), checkpoints=checkpoints)
        until(begun(checkpoints.folder), "a checkpoint")
        frozen.send_signal(signal.SIGSTOP)
        there.worker()
        said = running.end()
    assert running.error is None and [record.config for record in running.records] == long[:1]
    assert said.count("is gone; what it was training begins again") == 1


def test_a_deadline_holds_while_there_is_no_worker(there, tmp_path, smoke):
    running = Sweep(there.address, smoke, Ledger(tmp_path / "runs"), deadline=Deadline.after(3))
    assert running.end().count(f"no worker yet; waiting for one, which `dask worker {there.address} --nthreads 1` starts") == 1
    assert running.error is None and running.records == []


def test_a_deadline_holds_when_the_workers_die(there, tmp_path, long):
    """What comes back after it is not handed over again."""
    checkpoints, deadline = Checkpoints(tmp_path / "checkpoints", every=0), Deadline.after(1000)
    worker = there.worker()
    there.joined(1)
    running = Sweep(there.address, long[:1], Ledger(tmp_path / "runs"), checkpoints=checkpoints, deadline=deadline)
    until(begun(checkpoints.folder), "a checkpoint")
    kill(worker)
    pass_now(deadline)
    running.end()
    assert running.error is None and running.records == [] and len(list(checkpoints.folder.glob("*.pt"))) == 1


def test_a_deadline_holds_for_a_stack_that_was_moved(there, tmp_path):
    """The worker that goes on with it knows only how long it was to take when it was handed over."""
    endless = protocols.plan("mnist-classifier", "smoke", epochs=10_000)[:1]
    checkpoints, deadline = Checkpoints(tmp_path / "checkpoints", every=0), Deadline.after(1000)
    first = there.worker()
    there.joined(1)
    running = Sweep(there.address, endless, Ledger(tmp_path / "runs"), checkpoints=checkpoints, deadline=deadline)
    until(begun(checkpoints.folder), "a checkpoint")
    before = reached(checkpoints, endless)
    time.sleep(2)  # its worker tells the client once a second how far it is
    there.worker()
    kill(first)
    until(lambda: reached(checkpoints, endless) > before + 2, "training on the second worker")
    time.sleep(2)
    pass_now(deadline)
    running.end()
    assert running.error is None and running.records == []


def reached(checkpoints: Checkpoints, configs: list) -> int:
    """The epoch of a checkpoint."""
    return max(checkpoints.epoch(config) for config in configs)


def test_what_is_done_and_cannot_be_fetched_is_handed_over_again(there, tmp_path, long, monkeypatch):
    """The worker dies when Dask has told of the end of its stack, and before the records have come."""
    monkeypatch.setattr(cluster, "CONNECT_SECONDS", 3.0)
    first, fetch = there.worker(), cluster.Cluster._records
    there.joined(1)

    def fetch_from_the_dead(*arguments):
        if first.poll() is None:
            kill(first)
            there.worker()
        return fetch(*arguments)

    monkeypatch.setattr(cluster.Cluster, "_records", fetch_from_the_dead)
    running = Sweep(there.address, long[:2], Ledger(tmp_path / "runs"), stack_size=1)
    running.end()
    assert running.error is None and [record.config for record in running.records] == long[:2]


def test_a_scheduler_that_is_lost_before_records_are_fetched(there, tmp_path, long, monkeypatch):
    monkeypatch.setattr(cluster, "CONNECT_SECONDS", 2.0)
    fetch = cluster.Cluster._records
    there.worker()
    there.joined(1)

    def fetch_without_a_scheduler(*arguments):
        kill(there.scheduler)
        return fetch(*arguments)

    monkeypatch.setattr(cluster.Cluster, "_records", fetch_without_a_scheduler)
    running = Sweep(there.address, long[:1], Ledger(tmp_path / "runs"))
    running.end()
    assert isinstance(running.error, cluster.ClusterError) and "is gone; start it again" in str(running.error)


def test_checkpoints_on_the_disks_of_workers_are_deleted_too(there, tmp_path, long, monkeypatch):
    """The folder's path is the same everywhere; what lies there need not be."""
    theirs = tmp_path / "theirs"
    monkeypatch.setattr(Checkpoints, "options", {"folder": str(theirs), "keep": False, "every": 0})
    there.worker()
    there.joined(1)
    running = Sweep(there.address, long[:1], Ledger(tmp_path / "runs"), checkpoints=Checkpoints(tmp_path / "ours"))
    until(begun(theirs), "a checkpoint")
    running.end()
    assert running.error is None
    until(lambda: not list(theirs.iterdir()), "the end of the checkpoint")


def test_the_scheduler_is_lost_while_there_is_no_worker(there, tmp_path, smoke, monkeypatch):
    monkeypatch.setattr(cluster, "CONNECT_SECONDS", 2.0)
    running = Sweep(there.address, smoke, Ledger(tmp_path / "runs"))
    until(lambda: "no worker yet" in running.said.getvalue(), "a word on that there is no worker")
    kill(there.scheduler)
    running.end()
    assert isinstance(running.error, cluster.ClusterError) and "is gone; start it again" in str(running.error)


def test_workers_without_data(there, tmp_path, monkeypatch):
    """Absent data are found before anything is handed over, damaged ones when a worker loads them."""
    monkeypatch.setattr(cluster, "CONNECT_SECONDS", 3.0)
    (tmp_path / "empty").mkdir()
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "mnist.npz").write_bytes(b"PK")
    runs = protocols.plan("mnist-classifier", "quick")
    there.worker(GELU_STUDY_DATA=str(tmp_path / "empty"))
    there.joined(1)
    absent = Sweep(there.address, runs, Ledger(tmp_path / "runs"))
    assert "gelu-study data mnist" in absent.end() and isinstance(absent.error, cluster.ClusterError)
    there.worker(GELU_STUDY_DATA=str(tmp_path / "damaged"))
    there.joined(2)
    damaged = Sweep(there.address, runs, Ledger(tmp_path / "runs"))
    said = damaged.end()
    assert said.count("gets nothing to train:") == 2 and "mnist.npz is damaged" in said
    assert isinstance(damaged.error, cluster.ClusterError) and "can train this" in str(damaged.error)
    assert Ledger(tmp_path / "runs").read() == []


def test_a_stack_that_its_workers_die_of(tmp_path, long):
    """It is named at the end, when everything else is in the ledger."""
    checkpoints = Checkpoints(tmp_path / "checkpoints", every=0)
    with machines(tmp_path / "dask", DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES="0") as there:
        first = there.worker()
        there.joined(1)
        running = Sweep(there.address, long[:2], Ledger(tmp_path / "runs"), checkpoints=checkpoints, stack_size=1)
        until(begun(checkpoints.folder), "a checkpoint")
        kill(first)
        there.worker()
        running.end()
    assert isinstance(running.error, cluster.ClusterError) and "smaller --stack" in str(running.error)
    assert len(Ledger(tmp_path / "runs").read()) == 1


def test_a_scheduler_that_freezes(there, tmp_path, long, monkeypatch):
    """Nothing breaks the connection to it; it only says nothing any more."""
    monkeypatch.setattr(cluster, "CONNECT_SECONDS", 2.0)
    book = Ledger(tmp_path / "runs")
    there.worker()
    there.joined(1)
    running = Sweep(there.address, long[:4], book, stack_size=1)
    until(book.read, "a record")
    there.scheduler.send_signal(signal.SIGSTOP)
    running.end()
    assert isinstance(running.error, cluster.ClusterError) and "is gone; start it again" in str(running.error)
    assert 0 < len(book.read()) < 4


def test_something_else_listens_at_the_address(monkeypatch):
    """It takes the connection and never says a word."""
    monkeypatch.setattr(cluster, "CONNECT_SECONDS", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        address = f"tcp://127.0.0.1:{mute.getsockname()[1]}"
        with pytest.raises(ConfigurationError, match=f"no Dask scheduler answers at {address}"), cluster.connect(address):
            pass


def test_no_scheduler(tmp_path, capsys, monkeypatch):
    from gelu_study import cli

    monkeypatch.setattr(cluster, "CONNECT_SECONDS", 0.5)
    for address in ("tcp://127.0.0.1:9", "nonsense://x", "127.0.0.1:9", "tls://127.0.0.1:9", "foo", "tcp://127.0.0.1:8786x"):
        assert cli.main(["run", "mnist-classifier", "--scale", "smoke", "--scheduler", address, "--ledger", str(tmp_path)]) == 2
        gc.collect()  # what a client that never connected says when it is deleted would be seen too
        (said,) = capsys.readouterr().err.splitlines()
        assert said.startswith(f"gelu-study: no Dask scheduler answers at {address}")
    with pytest.raises(SystemExit):
        cli.main(["run", "mnist-classifier", "--scheduler", "tcp://127.0.0.1:9", "--workers", "2"])
    with pytest.raises(SystemExit):
        cli.main(["run", "mnist-classifier", "--scheduler", ""])
    assert "the address is empty" in capsys.readouterr().err


def no_process_of(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return True
    return False


def test_ctrl_c_ends_workers_too_and_keeps_what_is_done(tmp_path):
    command = [sys.executable, "-m", "gelu_study", "run", "mnist-classifier", "--scale", "smoke", "--epochs", "50", "--workers", "2"]
    options = ["--stack", "1", "--device", "cpu", "--ledger", str(tmp_path / "runs"), "--checkpoints", str(tmp_path / "checkpoints")]
    process = subprocess.Popen([*command, *options], text=True, stderr=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
    until(lambda: list((tmp_path / "runs").glob("*/*.json")), "a record")
    os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 130, said
    assert "interrupted; what was finished is kept" in said and "Traceback" not in said
    until(lambda: no_process_of(process.pid), "the end of its workers")
    kept = Ledger(tmp_path / "runs").read()
    assert 0 < len(kept) < 12


def test_a_deadline_holds_on_a_cluster(tmp_path):
    long = protocols.plan("mnist-classifier", "smoke", epochs=100)  # more than any machine trains in four seconds
    checkpoints = Checkpoints(tmp_path / "checkpoints")
    with cluster.connect(workers=1) as executor:
        options = {"executor": executor, "device": "cpu", "checkpoints": checkpoints, "stack_size": 1, "stream": io.StringIO()}
        sweep.complete(long[:1], Ledger(tmp_path / "runs"), **options)  # the worker is ready then
        some = sweep.complete(long, Ledger(tmp_path / "runs"), deadline=Deadline.after(4), **options)
        assert len(some) < len(long) and (len(some) > 1 or begun(checkpoints.folder)())
        every = sweep.complete(long[: len(some) + 1], Ledger(tmp_path / "runs"), **options)
    assert len(every) == len(some) + 1


def test_ctrl_c_while_local_workers_start(tmp_path):
    """None is left behind, whichever thread of the process takes the signal."""
    script = """
import os, psutil, threading, torch
from gelu_study.sweep import cluster
start = cluster.LocalCluster
def start_and_interrupt(**options):
    threading.Timer(0.3, os.kill, (os.getpid(), 2)).start()
    return start(**options)
cluster.LocalCluster = start_and_interrupt
torch.rand(1000, 1000) @ torch.rand(1000, 1000)  # has threads of its own
try:
    with cluster.connect(workers=2):
        print("not interrupted")
except KeyboardInterrupt:
    commands = [" ".join(child.cmdline()) for child in psutil.Process().children()]
    print("interrupted; left", [command for command in commands if "resource_tracker" not in command])
"""
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    path = tmp_path / "script.py"
    path.write_text("if __name__ == '__main__':\n    " + script.strip().replace("\n", "\n    ") + "\n")
    process = subprocess.Popen(
        [sys.executable, str(path)], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, start_new_session=True
    )
    said, errors = process.communicate(timeout=120)
    assert said == "interrupted; left []\n", errors
    until(lambda: no_process_of(process.pid), "the end of its workers")
