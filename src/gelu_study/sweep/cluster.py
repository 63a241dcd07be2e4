"""Trains stacks on the workers of a Dask cluster (`distributed`), local or remote; a stack is a task.

Dask gives tasks to workers, and to another when one dies. What is here is what Dask cannot know: which workers are fit, and what to
tell the person who waits. Records come back to the caller, who alone writes them.
"""

from __future__ import annotations

import asyncio
import logging
import math
import queue
import signal
import threading
import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import resource_tracker
from typing import Any

from distributed import Client, Future, KilledWorker, LocalCluster, Security
from distributed.comm import core

from gelu_study.errors import ConfigurationError, LedgerError, StudyError
from gelu_study.runs import RunConfig, RunRecord
from gelu_study.sweep import worker
from gelu_study.sweep.executors import Capacity, Job
from gelu_study.sweep.grouping import train_together
from gelu_study.sweep.reporter import Reporter

CONNECT_SECONDS = 20.0
"""How long a scheduler may take to answer, at first and after its connection broke."""
LOOK_SECONDS = 1.0
"""How often a sweep looks which workers there are."""


class ClusterError(StudyError):
    """A cluster that is gone, or that cannot train what it is given."""


class _TrainAgainError(Exception):
    """A stack came back untrained for a reason that lies in its worker."""


@contextmanager
def connect(scheduler: str | None = None, workers: int | None = None) -> Iterator[Cluster]:
    """A cluster: that of the scheduler at an address, or so many worker processes on this machine, of one thread each.

    A script that asks for local workers does so under `if __name__ == "__main__":`, since each of them imports it. Raises
    `ConfigurationError` when no scheduler answers there.
    """
    for name in [name for name in logging.root.manager.loggerDict if name.startswith("distributed")]:
        logging.getLogger(name).setLevel(logging.CRITICAL)  # what matters is said by the sweep, in a line each
    if scheduler is None:
        with ExitStack() as held:
            with _interrupts_later():
                local = held.enter_context(
                    LocalCluster(
                        n_workers=workers,
                        threads_per_worker=1,
                        host="127.0.0.1",
                        dashboard_address="127.0.0.1:0",  # any free port; 8787 may be another cluster's
                        memory_limit=0,  # a worker that Dask pauses would wait for ever
                        silence_logs=logging.CRITICAL,
                    )
                )
            yield Cluster(held.enter_context(Client(local, set_as_default=False)), "the local cluster")
        return
    try:
        with ThreadPoolExecutor(1) as thread:  # the caller's may have an event loop, as in JupyterLab
            thread.submit(asyncio.run, _greet(scheduler)).result()
        client = Client(scheduler, timeout=CONNECT_SECONDS, set_as_default=False)
    except Exception as error:  # of many kinds, for addresses of many kinds
        raise ConfigurationError(
            f"no Dask scheduler answers at {scheduler} ({type(error).__name__}: {error}); start one with `dask scheduler`, set "
            "Dask's certificates for a tls:// address, or leave --scheduler out to train in this process"
        ) from None
    with client:
        yield Cluster(client, f"the scheduler at {scheduler}")


async def _greet(address: str) -> None:
    """Shake hands with a scheduler. What accepts connections and says nothing would hold a `Client` for ever."""
    arguments = Security().get_connection_args("client")
    comm = await asyncio.wait_for(core.connect(address, timeout=CONNECT_SECONDS, **arguments), CONNECT_SECONDS)
    await comm.close()


@contextmanager
def _interrupts_later() -> Iterator[None]:
    """Ctrl-C acts after the block, and not at all on the processes that are started in it: the sweep ends them itself."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    resource_tracker.ensure_running()  # or starting it later would let the signal through
    main, noted = threading.current_thread() is threading.main_thread(), list[int]()
    if main:  # another thread of this process, PyTorch's for instance, may take the signal all the same
        handler = signal.signal(signal.SIGINT, lambda number, _: noted.append(number))
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if main:
            signal.signal(signal.SIGINT, handler)
    if noted:
        raise KeyboardInterrupt


@dataclass
class _Begun:
    """A stack that was handed to the cluster."""

    stack: list[RunConfig]
    future: Future[dict[str, Any]]
    only: frozenset[str]  #: the workers that may have it; empty: any
    steps: int = 0  #: network-steps that its worker told of
    worker: str = ""  #: its address, once it has told of some
    moved: bool = False  #: Dask gave it to another when that one died; there its time begins anew

    def hear(self, worker: str, steps: int) -> int:
        """So many steps a worker has taken; returns how many more these are."""
        self.moved |= self.worker not in ("", worker)
        self.worker, more, self.steps = worker, steps - self.steps, steps
        return more


class Cluster:
    """An executor (see `executors.Executor`) over the workers that a client's scheduler has, now and later."""

    def __init__(self, client: Client, name: str) -> None:
        self._client, self._name = client, name
        self._fit: set[str] = set()
        self._unfit: dict[str, str] = {}  # address -> why
        self._asked: dict[str, float] = {}  # address of a worker that has not answered yet -> when it was asked
        self._silent: set[str] = set()  # those of them that were named
        self._answers: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        self._types: set[str] = set()  # of the devices of workers that were fit
        self._apart_since: float | None = None  # when the connection to the scheduler broke, while it is broken
        self._unfit_since: float | None = None  # since when there are workers, and none that is fit

    def capacity(self, job: Job, names: Sequence[str], reporter: Reporter) -> Capacity:
        """Ask every worker whether it is fit; those that are not, or that do not answer, are named. Waits for the first fit one,
        till the deadline.

        Raises `ClusterError` where no worker is fit, or when the scheduler is lost.
        """
        self._question = (worker.question(), job.device, list(names), str(job.data_root.absolute()) if job.data_root else None)
        self._fit, self._unfit, self._types = set(), {}, set()
        self._look(reporter)
        if not self._asked:
            start = f"`dask worker {self._client.scheduler_info()['address']} --nthreads 1`"
            reporter.say(f"{self._name} has no worker yet; waiting for one, which {start} starts")
        while (not self._fit or self._asked) and not job.deadline.before_another(0):
            time.sleep(LOOK_SECONDS / 10)
            self._look(reporter)
            if self._unfit and not self._fit and not self._asked:
                raise self._no_worker()
            if self._fit and all(time.monotonic() - asked > CONNECT_SECONDS for asked in self._asked.values()):
                break
        return Capacity(max(1, len(self._fit)), self._types.pop() if len(self._types) == 1 else "cpu")

    def train(
        self, stacks: Iterable[list[RunConfig]], job: Job, reporter: Reporter
    ) -> Generator[list[RunRecord], None, None]:
        """Hand over as many stacks as there are workers, more as they end; on leaving, give up those that are not done.

        None waits on a worker, where it would share the blame for its death. Raises `ClusterError` when the scheduler is lost, and
        at the end where a stack could not be trained.
        """
        waiting, again = _as_tasks(stacks), list[list[RunConfig]]()
        begun: dict[str, _Begun] = {}
        events: queue.SimpleQueue[tuple[str, dict[str, Any] | None]] = queue.SimpleQueue()
        failed: list[str] = []
        looked, all_begun = -math.inf, False
        try:
            self._client.subscribe_topic(worker.PROGRESS, lambda event: events.put((event[1]["task"], event[1])))
            while True:
                if time.monotonic() - looked > LOOK_SECONDS:
                    self._look(reporter)
                    again += self._stranded(begun, reporter)
                    looked = time.monotonic()
                if job.deadline.before_another(0):
                    again.clear()
                    all_begun = True
                    for key in [key for key, started in begun.items() if started.moved or not self._fit]:
                        self._client.cancel([begun.pop(key).future])
                while self._may_begin(begun):
                    stack = again.pop() if again else next(waiting, None)
                    if stack is None:
                        all_begun = True
                        break
                    started = self._submit(stack, job)
                    begun[str(started.future.key)] = started
                    started.future.add_done_callback(lambda done: events.put((str(done.key), None)))
                if all_begun and not begun and not again:
                    break
                with suppress(queue.Empty):
                    key, told = events.get(timeout=LOOK_SECONDS)
                    if key not in begun:
                        continue
                    if told is not None:
                        reporter.advance(begun[key].hear(told["worker"], told["steps"]))
                        continue
                    done, records = begun.pop(key), list[RunRecord]()
                    try:
                        records = self._records(done, reporter)
                    except _TrainAgainError:
                        again.append(done.stack)
                    except ClusterError as error:
                        failed.append(str(error))
                    reporter.advance(sum(r.config.steps_per_epoch * r.config.epochs for r in records) - done.steps)
                    if records:
                        yield records
                        self._forget(records, done.worker, job)
        except KeyboardInterrupt:
            for done in [done for done in begun.values() if done.future.status == "finished"]:
                with suppress(_TrainAgainError, ClusterError):
                    yield self._records(done, reporter)
            raise
        finally:
            with suppress(Exception):  # the scheduler may be gone
                self._client.unsubscribe_topic(worker.PROGRESS)
                self._client.cancel([started.future for started in begun.values()])
        if failed:
            raise ClusterError("; ".join(dict.fromkeys(failed)))

    def _may_begin(self, begun: dict[str, _Begun]) -> bool:
        """Whether another stack can be handed over. Without a worker one is, which waits for the first that comes."""
        return self._apart_since is None and bool(self._fit or not self._unfit) and len(begun) < max(1, len(self._fit))

    def _submit(self, stack: list[RunConfig], job: Job) -> _Begun:
        question, device, _, data_root = self._question
        left = job.deadline.at - time.monotonic()
        task = {
            "question": question,
            "configs": [config.to_dict() for config in stack],
            "device": device,
            "data_root": data_root,
            "checkpoints": job.checkpoints.options if job.checkpoints else None,
            "seconds_left": None if left == math.inf else max(0.0, left),
        }
        only = frozenset(self._fit if self._unfit or self._asked else ())
        future = self._client.submit(worker.train_stack, task, workers=sorted(only) or None, pure=False)
        return _Begun(stack, future, only)

    def _stranded(self, begun: dict[str, _Begun], reporter: Reporter) -> list[list[RunConfig]]:
        """Take back the stacks that no worker may have any more."""
        keys = [key for key, started in begun.items() if started.only and not started.only & self._fit]
        lost = [begun.pop(key) for key in keys]
        self._client.cancel([started.future for started in lost])
        reporter.advance(-sum(started.steps for started in lost))
        return [started.stack for started in lost]

    def _records(self, done: _Begun, reporter: Reporter) -> list[RunRecord]:
        """The records of a stack that is done, checked as those in a file are; fewer where time was up.

        Raises `_TrainAgainError` or, where that would not help, `ClusterError`.
        """
        try:
            if done.future.status != "finished":
                self._raise(done, reporter)
            answer = done.future.result(timeout=CONNECT_SECONDS)
        except (CancelledError, OSError):  # the scheduler was lost, or the worker with what it had ready
            raise _TrainAgainError from None
        if "unfit" in answer:
            self._refuse(answer["worker"], answer["unfit"], reporter)
            raise _TrainAgainError
        done.worker = answer["worker"]
        for text in answer["warnings"]:
            reporter.say(text)
        try:
            records = [RunRecord.from_json(text) for text in answer["records"]]
        except LedgerError as error:
            raise ClusterError(f"a worker sent something that is no record ({error}); see that it runs this version") from None
        wanted = {config.key for config in done.stack}
        if any(record.config.key not in wanted for record in records):
            raise ClusterError("a worker sent the record of a run that it was not given; see that it runs this version")
        return records

    def _forget(self, records: list[RunRecord], address: str, job: Job) -> None:
        """Have the worker delete its checkpoints of runs that are recorded: they may lie on a disk of its own."""
        if job.checkpoints and not job.checkpoints.keep:
            configs = [record.config.to_dict() for record in records]
            with suppress(Exception):  # who is gone keeps them
                self._client.run(worker.forget, configs, job.checkpoints.options, workers=[address])

    def _raise(self, done: _Begun, reporter: Reporter) -> None:
        if done.future.status in ("cancelled", "lost"):  # with its scheduler, which may come back
            raise _TrainAgainError
        error = done.future.exception(timeout=CONNECT_SECONDS)
        what = f"a stack of {len(done.stack)} ({done.stack[0].experiment}, {done.stack[0].activation}, …)"
        if isinstance(error, KilledWorker):
            raise ClusterError(
                f"{what} was begun on several workers, and each died of it: give them more memory, or a smaller --stack"
            )
        if isinstance(error, StudyError):
            raise ClusterError(f"{what} could not be trained: {error}")
        known = set(self._unfit)
        end = time.monotonic() + CONNECT_SECONDS
        self._look(reporter)  # it may have fallen to a worker that came a moment ago and is unfit
        while self._asked and time.monotonic() < end:
            time.sleep(LOOK_SECONDS / 10)
            self._look(reporter)
        if self._unfit.keys() - known:
            raise _TrainAgainError
        raise ClusterError(f"{what} failed on its worker: {type(error).__name__}: {error}")

    def _look(self, reporter: Reporter) -> None:
        """See which workers came, went and answered. Raises `ClusterError` when the scheduler, or every fit worker, stays away."""
        there = self._addresses()
        now = time.monotonic()
        if there is None:
            if self._apart_since is None:
                self._apart_since = now
                reporter.say(f"the connection to {self._name} broke; trying to find it again")
            if self._client.status == "closed" or now - self._apart_since > CONNECT_SECONDS:
                raise ClusterError(f"{self._name} is gone; start it again, and the same command goes on from there")
            return
        self._apart_since = None
        for address in sorted(self._fit - there):
            reporter.say(f"the worker at {address} is gone; what it was training begins again on another")
        self._fit &= there
        for gone in [address for address in (*self._asked, *self._unfit) if address not in there]:
            self._asked.pop(gone, None)
            self._unfit.pop(gone, None)  # one that comes back to its address may be fit
        for address in sorted(there - self._fit - set(self._unfit) - set(self._asked)):
            self._asked[address] = now
            # in a thread, since one that hangs never answers
            threading.Thread(target=self._ask, args=(address,), daemon=True).start()
        self._hear(reporter)
        for address, asked in self._asked.items():
            if now - asked > CONNECT_SECONDS and address not in self._silent:
                self._silent.add(address)
                reporter.say(f"the worker at {address} does not answer; it gets nothing to train unless it does")
        if self._fit or not there:
            self._unfit_since = None
        elif self._unfit_since is None:
            self._unfit_since = now
        elif now - self._unfit_since > CONNECT_SECONDS and there <= set(self._unfit):
            raise self._no_worker()

    def _addresses(self) -> set[str] | None:
        """Those of the workers, or nothing while there is no connection."""
        if self._client.status != "running":
            return None
        try:
            return set(self._client.nthreads(callback_timeout=CONNECT_SECONDS))
        except OSError:
            return None

    def _ask(self, address: str) -> None:
        try:
            found = self._client.run(worker.fitness, *self._question, workers=[address], on_error="return")
        except Exception as error:  # the connection broke
            found = {address: error}
        self._answers.put((address, found.get(address)))

    def _hear(self, reporter: Reporter) -> None:
        """What workers that were asked have answered."""
        own = self._question[0]
        while not self._answers.empty():
            address, answer = self._answers.get()
            if self._asked.pop(address, None) is None or answer is None or isinstance(answer, OSError):
                continue  # it died in the meantime
            if not isinstance(answer, dict):
                answer = {"unfit": f"it cannot run this package ({type(answer).__name__}: {answer})"}
            if "unfit" in answer:
                self._refuse(address, answer["unfit"], reporter)
                continue
            self._fit.add(address)
            self._types.add(answer["device_type"])
            if answer["revision"] != own["revision"]:
                reporter.say(f"the worker at {address} runs another revision of the code than this process; its records name it")

    def _no_worker(self) -> ClusterError:
        return ClusterError(f"no worker of {self._name} can train this: {next(iter(self._unfit.values()))}")

    def _refuse(self, address: str, reason: str, reporter: Reporter) -> None:
        if address not in self._unfit:
            reporter.say(f"the worker at {address} gets nothing to train: {reason}")
        self._unfit[address] = reason
        self._fit.discard(address)


def _as_tasks(stacks: Iterable[list[RunConfig]]) -> Iterator[list[RunConfig]]:
    """Convolutional runs train one by one, so each is a task of its own."""
    for stack in stacks:
        yield from [stack] if train_together(stack) else ([config] for config in stack)
