"""Trains stacks on the workers of a Dask cluster (`distributed`), local or remote; a stack is a task.

Dask gives tasks to workers, and to another when one dies. What is here is what Dask cannot know: which workers are fit, and what to
tell the person who waits. Records come back to the caller, who alone writes them.
"""

from __future__ import annotations

import logging
import math
import queue
import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from distributed import Client, Future, KilledWorker, LocalCluster

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

    Raises `ConfigurationError` when no scheduler answers there.
    """
    logging.getLogger("distributed").setLevel(logging.CRITICAL)  # what matters is said by the sweep, in a line each
    if scheduler is None:
        local = LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            host="127.0.0.1",
            dashboard_address=None,
            memory_limit=0,  # a worker that Dask pauses would wait for ever
            preload=[worker.__name__],
            silence_logs=logging.CRITICAL,
        )
        with local, Client(local, set_as_default=False) as client:
            yield Cluster(client, "the local cluster")
        return
    try:
        client = Client(scheduler, timeout=CONNECT_SECONDS, set_as_default=False)
    except (OSError, ValueError) as error:  # ValueError: not an address
        raise ConfigurationError(
            f"no Dask scheduler answers at {scheduler} ({type(error).__name__}); start one with `dask scheduler`, "
            "or leave --scheduler out to train in this process"
        ) from None
    with client:
        yield Cluster(client, f"the scheduler at {scheduler}")


@dataclass
class _Begun:
    """A stack that was handed to the cluster."""

    stack: list[RunConfig]
    future: Future[dict[str, Any]]
    steps: int = 0  # network-steps that its worker told of


class Cluster:
    """An executor (see `executors.Executor`) over the workers that a client's scheduler has, now and later."""

    def __init__(self, client: Client, name: str) -> None:
        self._client, self._name = client, name
        self._fit: set[str] = set()
        self._unfit: dict[str, str] = {}  # address -> why
        self._apart_since: float | None = None  # when the connection to the scheduler broke, while it is broken

    def capacity(self, job: Job, names: Sequence[str], reporter: Reporter) -> Capacity:
        """Ask every worker whether it is fit; those that are not are named. Waits for the first worker.

        Raises `ClusterError` where no worker is fit.
        """
        self._question = (worker.identity(), job.device, list(names), str(job.data_root.absolute()) if job.data_root else None)
        self._fit, self._unfit = set(), {}
        if not self._addresses():
            reporter.say(f"{self._name} has no worker yet; waiting for one")
            while not self._addresses():
                time.sleep(LOOK_SECONDS / 4)
        types = self._ask(self._addresses(), reporter)
        if not self._fit:
            raise ClusterError(f"no worker of {self._name} can train this: {next(iter(self._unfit.values()))}")
        return Capacity(len(self._fit), types.pop() if len(types) == 1 else "cpu")

    def train(
        self, stacks: Iterable[list[RunConfig]], job: Job, reporter: Reporter
    ) -> Generator[list[RunRecord], None, None]:
        """Hand over as many stacks as there are workers, more as they end; on leaving, give up those that are not done.

        None waits on a worker, where it would share the blame for its death. Raises `ClusterError` when the scheduler is lost, and
        at the end where a stack could not be trained.
        """
        waiting, again = _as_tasks(stacks), list[list[RunConfig]]()
        begun: dict[str, _Begun] = {}
        events: queue.SimpleQueue[tuple[str, int | None]] = queue.SimpleQueue()
        failed: list[str] = []
        looked = -math.inf
        try:
            self._client.subscribe_topic(worker.PROGRESS, lambda event: events.put((event[1]["task"], event[1]["steps"])))
            while True:
                if time.monotonic() - looked > LOOK_SECONDS:
                    self._look(reporter)
                    looked = time.monotonic()
                while self._apart_since is None and len(begun) < max(1, len(self._fit)):
                    stack = again.pop() if again else next(waiting, None)
                    if stack is None:
                        break
                    future = self._submit(stack, job)
                    begun[str(future.key)] = _Begun(stack, future)
                    future.add_done_callback(lambda done: events.put((str(done.key), None)))
                if not begun and not again:
                    break
                with suppress(queue.Empty):
                    key, steps = events.get(timeout=LOOK_SECONDS)
                    if key not in begun:
                        continue
                    if steps is not None:
                        reporter.advance(steps - begun[key].steps)
                        begun[key].steps = steps
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
        finally:
            with suppress(Exception):  # the scheduler may be gone
                self._client.unsubscribe_topic(worker.PROGRESS)
                self._client.cancel([started.future for started in begun.values()])
        if failed:
            raise ClusterError("; ".join(dict.fromkeys(failed)))

    def _submit(self, stack: list[RunConfig], job: Job) -> Future[dict[str, Any]]:
        identity, device, _, data_root = self._question
        left = job.deadline.at - time.monotonic()
        task = {
            "identity": identity,
            "configs": [config.to_dict() for config in stack],
            "device": device,
            "data_root": data_root,
            "checkpoints": job.checkpoints.options if job.checkpoints else None,
            "seconds_left": None if left == math.inf else max(0.0, left),
        }
        only = sorted(self._fit) if self._unfit and self._fit else None
        return self._client.submit(worker.train_stack, task, workers=only, pure=False)

    def _records(self, done: _Begun, reporter: Reporter) -> list[RunRecord]:
        """The records of a stack that is done, checked as those in a file are; fewer where time was up.

        Raises `_TrainAgainError` or, where that would not help, `ClusterError`.
        """
        if done.future.status != "finished":
            self._raise(done, reporter)
        answer = done.future.result()
        if "unfit" in answer:
            self._refuse(answer["worker"], answer["unfit"], reporter)
            raise _TrainAgainError
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

    def _raise(self, done: _Begun, reporter: Reporter) -> None:
        if done.future.status in ("cancelled", "lost"):  # with its scheduler, which may come back
            raise _TrainAgainError
        error = done.future.exception()
        what = f"a stack of {len(done.stack)} ({done.stack[0].experiment}, {done.stack[0].activation}, …)"
        if isinstance(error, KilledWorker):
            raise ClusterError(
                f"{what} was begun on several workers, and each died of it: give them more memory, or a smaller --stack"
            )
        if isinstance(error, StudyError):
            raise ClusterError(f"{what} could not be trained: {error}")
        known = len(self._unfit)
        self._look(reporter)  # it may have fallen to a worker that came a moment ago and is unfit
        if len(self._unfit) > known:
            raise _TrainAgainError
        raise ClusterError(f"{what} failed on its worker: {type(error).__name__}: {error}")

    def _look(self, reporter: Reporter) -> None:
        """See which workers came and went. Raises `ClusterError` when the scheduler stays away or no fit worker can be left."""
        if self._client.status != "running":
            now = time.monotonic()
            if self._apart_since is None:
                self._apart_since = now
                reporter.say(f"the connection to {self._name} broke; trying to find it again")
            if self._client.status == "closed" or now - self._apart_since > CONNECT_SECONDS:
                raise ClusterError(f"{self._name} is gone; start it again, and the same command goes on from there")
            return
        self._apart_since = None
        there = self._addresses()
        for address in sorted(self._fit - there):
            reporter.say(f"the worker at {address} is gone; what it was training begins again on another")
        self._fit &= there
        news = there - self._fit - set(self._unfit)
        if news:
            self._ask(news, reporter)
        if there and not self._fit and there <= set(self._unfit):
            raise ClusterError(f"no worker of {self._name} can train this: {self._unfit[min(there)]}")

    def _addresses(self) -> set[str]:
        return set(self._client.nthreads())

    def _ask(self, addresses: set[str], reporter: Reporter) -> set[str]:
        """Ask these workers whether they are fit, and return the types of devices of those that are."""
        identity = self._question[0]
        answers = self._client.run(worker.fitness, *self._question, workers=sorted(addresses), on_error="return")
        fit: dict[str, dict[str, Any]] = {}
        for address, answer in answers.items():
            if isinstance(answer, OSError):
                continue  # it died in the meantime
            if not isinstance(answer, dict):
                answer = {"unfit": f"it cannot run this package ({type(answer).__name__}: {answer})"}
            if "unfit" in answer:
                self._refuse(address, answer["unfit"], reporter)
            else:
                fit[address] = answer
        self._fit |= set(fit)
        if {answer["revision"] for answer in fit.values()} - {identity["revision"]}:
            reporter.say("some workers run another revision of the code than this process; their records name it")
        return {answer["device_type"] for answer in fit.values()}

    def _refuse(self, address: str, reason: str, reporter: Reporter) -> None:
        if address not in self._unfit:
            reporter.say(f"the worker at {address} gets nothing to train: {reason}")
        self._unfit[address] = reason
        self._fit.discard(address)


def _as_tasks(stacks: Iterable[list[RunConfig]]) -> Iterator[list[RunConfig]]:
    """Convolutional runs train one by one, so each is a task of its own."""
    for stack in stacks:
        yield from [stack] if train_together(stack) else ([config] for config in stack)
