"""A worker: finds what is due and does it on a few threads, until it is told to stop.

It keeps nothing that matters: kill it, and another one takes up its rows when their leases run out.

It finds what is due by polling the database, and polls again at once when something that it did has ended. With a
broker it polls less often, and when it gets a message that something was submitted.
"""

import contextlib
import itertools
import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from datetime import timedelta

from django.db import Error as DatabaseError
from django.db import connection, connections, transaction
from django.db.models.functions import Now

from chains import together
from chains.chains_file import ChainsError
from chains.signer_keys import SignerError
from chains.together import Raised
from config.configured_chains import get_chains
from database import row_locks
from proving import pruning
from proving.budget import reservations
from proving.health import attester_checks, chain_checks
from proving.models import FactsRegistry, JumpLeaves, Signer, WorkerHeartbeat
from proving.paths import upkeep
from proving.worker.due import Poll, Task, Turns, due, due_webhooks, reject_overdue
from proving.worker.groups import Group, Groups
from proving.worker.heartbeats import SILENCE
from queries import storage
from queries.models import Batch, Block, Pruning, Webhook

logger = logging.getLogger(__name__)

# How often the database is asked for due rows, and how often the worker says that it runs, in seconds.
_POLL_SECONDS = 0.2
_BEAT_SECONDS = 5
# Webhooks that are sent at a time.
_SENDERS = 32
# How long one poll may take, also when much is due that can't be taken up: the worker beats between two polls.
_MOST_POLL_SECONDS = 1.0


def _watch(everyone: object) -> None:
    chain_checks.observe(everyone=bool(everyone))
    # Behind the chains, whose newest block is waited for: one that hangs takes seconds.
    attester_checks.watch()


def obstacle() -> str:
    """Return why no worker can run here, a sentence; empty where one can.

    A database that doesn't answer is waited for.
    """
    try:
        for chain in get_chains().destinations():
            chain.accounts()
        return storage.schema_problem(connection)
    except (ChainsError, SignerError) as error:
        return str(error)
    except DatabaseError:
        return ""


class Worker:
    """One process's; any number of them run, on any number of machines."""

    def __init__(self, *, threads: int = 4, poll_seconds: float = _POLL_SECONDS) -> None:
        self.name = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(3)}"
        self._stopping = threading.Event()
        self._wake = threading.Event()
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="worker")
        self._poll_seconds = poll_seconds
        self._in_hand = Groups(threads)
        # Of their own: proving waits for no receiver.
        self._senders = ThreadPoolExecutor(_SENDERS, thread_name_prefix="webhooks")
        self._sending: dict[Task, Future[None]] = {}
        self._turns = Turns()
        # Of its own: chains whose nodes hang hold up no work.
        self._watcher = ThreadPoolExecutor(1, thread_name_prefix="watcher")
        self._watch: Future[None] | None = None

    def stop(self) -> None:
        """Finish what is in hand, take up nothing new. May be called from a signal handler."""
        self._stopping.set()
        self.wake()

    def wake(self) -> None:
        """Poll at once. May be called from any thread."""
        self._wake.set()

    def run(self) -> None:
        """Work until `stop`. A database that doesn't answer is waited for."""
        logger.info("worker %s starts", self.name)
        next_beat = time.monotonic()
        is_first = True
        while not self._stopping.is_set():
            try:
                if time.monotonic() >= next_beat:
                    self._beat(is_first=is_first)
                    is_first = False
                    next_beat = time.monotonic() + _BEAT_SECONDS
                self._take_up_what_is_due()
            except DatabaseError:
                logger.exception("the database does not answer; trying again")
                connections.close_all()
                self._stopping.wait(_BEAT_SECONDS)
            self._wake.wait(self._poll_seconds)
            self._wake.clear()
        logger.info("worker %s stops, %d in hand", self.name, len(self._in_hand.tasks))
        wait(self._in_hand.running)
        self._senders.shutdown(wait=True)
        self._pool.shutdown(wait=True)
        self._watcher.shutdown(wait=True)
        # On a full disk it is left behind, and falls silent.
        with contextlib.suppress(DatabaseError):
            WorkerHeartbeat.objects.filter(worker=self.name).delete()
        connections.close_all()

    def _beat(self, *, is_first: bool) -> None:
        if self._watch is None or self._watch.done():
            self._watch = self._watcher.submit(_do, [Task("chains", is_first, (), _watch)])
            if is_first:
                # After a pause the newest block that is known is too old for `queries.clock`.
                wait([self._watch], _BEAT_SECONDS)
        pruning.wake()
        upkeep.wake(everyone=is_first)
        self._say_that_it_runs()
        reject_overdue()
        reservations.recount()

    def _say_that_it_runs(self) -> None:
        said = {"beat_at": Now()}
        with transaction.atomic():
            WorkerHeartbeat.objects.update_or_create(
                worker=self.name, defaults=said, create_defaults=said | {"started_at": Now()}
            )
            # Of the dead, and those that say they are of the future.
            day = timedelta(days=1)
            row_locks.delete_free(WorkerHeartbeat.objects.exclude(beat_at__range=(Now() - day, Now() + SILENCE)))

    def _take_up_what_is_due(self) -> None:
        self._take_up_webhooks()
        self._in_hand.forget_done()
        # More than there are threads would only wait in memory, where no other worker sees it.
        if self._in_hand.are_full:
            return
        poll = Poll(self._in_hand.has_room, time.monotonic() + _MOST_POLL_SECONDS)
        for task in due(self._turns, poll):
            if self._in_hand.take(task):
                self._turns.note(task.user, task.queue)
            if poll.is_over() or self._in_hand.are_full:
                break
        if poll.is_over():
            # The next one begins with those whom this one didn't come to.
            for queue in poll.asked:
                self._turns.note(queue[0], queue)
        self._in_hand.begin(self._start)

    def _take_up_webhooks(self) -> None:
        """Take up webhooks while there is room. What is left is taken up when one of those in hand has ended."""
        self._sending = {task: sent for task, sent in self._sending.items() if not sent.done()}
        if room := _SENDERS - len(self._sending):
            for task in itertools.islice(due_webhooks(self._sending), room):
                self._sending[task] = self._begin(self._senders, [task])

    def _start(self, group: Group) -> Future[None]:
        return self._begin(self._pool, group.tasks)

    def _begin(self, pool: ThreadPoolExecutor, tasks: Sequence[Task]) -> Future[None]:
        running = pool.submit(_do, tasks)
        # What it has made due is taken up at once.
        running.add_done_callback(lambda _: self.wake())
        return running


def work_once() -> int:
    """Give each thing that waits one turn, due or not, in this thread. Return how many turns failed.

    A row that another worker has leased is left to it.
    """
    _watch(everyone=True)
    pruning.wake()
    upkeep.wake(everyone=True)
    reject_overdue()
    reservations.recount()
    failed = 0
    # What is admitted makes its blocks due, and what is proven its webhook.
    for kind, model in _ONE_TURN:
        model.objects.filter(due_at__gt=Now()).update(due_at=Now())
        for task in list(due_webhooks() if kind == "webhook" else due(poll=Poll(kinds={kind}))):
            try:
                task()
            except Exception:
                failed += 1
                logger.exception("working on %s %s failed", task.kind, task.key)
    return failed


_ONE_TURN: Sequence[tuple[str, type[FactsRegistry | Signer | Batch | Block | JumpLeaves | Webhook | Pruning]]] = (
    ("registry", FactsRegistry),
    ("signer", Signer),
    ("batch", Batch),
    ("leaves", JumpLeaves),
    ("block", Block),
    ("webhook", Webhook),
    ("pruning", Pruning),
)


def _do(tasks: Sequence[Task]) -> None:
    """Do them side by side. Where one waits for a node it must hold no transaction, which would be the others' too."""
    try:
        outcomes = together.run(tasks, may_wait=lambda: not connection.in_atomic_block)
        for task, outcome in zip(tasks, outcomes, strict=True):
            if isinstance(outcome, Raised):
                # The code that raised this has put the row off, so that it can't be taken up again at once.
                logger.error("working on %s %s failed", task.kind, task.key, exc_info=outcome.error)
    finally:
        connections.close_all()
