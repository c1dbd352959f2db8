"""A worker: finds what is due and does it on a few threads, until it is told to stop.

It keeps nothing that matters: kill it, and another one takes up its rows when their leases run out.

It finds what is due by polling the database. With a broker it polls rarely, to find what messages have missed, and
Celery's tasks call `answer` where a message says that something is due.
"""

import contextlib
import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Collection, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from datetime import timedelta

from django.db import Error as DatabaseError
from django.db import connection, connections, transaction
from django.db.models.functions import Now

from chains import together
from chains.chains_file import ChainsError, SignerError
from chains.exchange_metrics import exchanges
from chains.together import Raised
from config.configured_chains import get_chains
from database import row_locks
from proving import pruning
from proving.health import attester_checks, chain_checks
from proving.models import FactsRegistry, Signer, WorkerHeartbeat
from proving.paths import upkeep
from proving.worker.due import Poll, Task, Turns, due, due_webhooks, recover, reject_overdue
from proving.worker.groups import Group, Groups
from proving.worker.heartbeats import SILENCE, was_clock_set_back
from proving.worker.notifier import Notifier
from proving.worker.routes import WEBHOOKS, Route
from proving.worker.webhook_dispatcher import WebhookDispatcher
from queries import schema
from queries.clock import Clock
from queries.models import Batch, Block, Pruning, Webhook

logger = logging.getLogger(__name__)

# How often the database is asked for due rows, and how often the worker says that it runs, in seconds.
_POLL_SECONDS = 0.2
_BEAT_SECONDS = 5
# How often it is asked while a broker says what is due.
_SWEEP_SECONDS = 5
# Seconds until a worker polls again for what could not be taken up, and for what a group left. By then the group
# has leased its rows.
_AGAIN_SECONDS, _REST_SECONDS = 1.0, 0.1
# How long one poll may take, also when much is due that can't be taken up: the worker beats between two polls.
_MOST_POLL_SECONDS = 1.0


def _watch(_: object) -> None:
    chain_checks.observe_what_is_due()
    # Behind the chains, which clocks are judged by: one that hangs takes seconds.
    attester_checks.watch()


_WATCH = Task("chains", None, (), _watch)


def obstacle() -> str:
    """Return why no worker can run here, a sentence; empty where one can.

    A database that doesn't answer is waited for.
    """
    try:
        for chain in get_chains().destinations():
            chain.accounts()
        return schema.problem(connection)
    except (ChainsError, SignerError) as error:
        return str(error)
    except DatabaseError:
        return ""


class Worker:
    """Works on these routes; None: on all. With a notifier it tells of what its work has made due."""

    def __init__(
        self, *, threads: int = 4, routes: Collection[Route] | None = None, notifier: Notifier | None = None
    ) -> None:
        self.name = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(3)}"
        self._stopping = threading.Event()
        self._wake = threading.Event()
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="worker")
        self._routes = routes
        self._notifier = notifier
        # With a notifier, several threads take up work.
        self._taking = threading.Lock()
        self._in_hand = Groups(threads)
        self._dispatcher = WebhookDispatcher(self._go_on_with_webhooks)
        self._turns = Turns()
        # Of its own: chains whose nodes hang hold up no work.
        self._watcher = ThreadPoolExecutor(1, thread_name_prefix="watcher")
        self._watch: Future[None] | None = None
        self._clock = Clock()

    def stop(self) -> None:
        """Finish what is in hand, take up nothing new. May be called from a signal handler."""
        self._stopping.set()
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
            self._wake.wait(_SWEEP_SECONDS if self._is_notified else _POLL_SECONDS)
            self._wake.clear()
        logger.info("worker %s stops, %d in hand", self.name, len(self._in_hand.tasks))
        wait(self._in_hand.running)
        self._dispatcher.stop()
        self._pool.shutdown(wait=True)
        self._watcher.shutdown(wait=True)
        # On a full disk it is left behind, and falls silent.
        with contextlib.suppress(DatabaseError):
            WorkerHeartbeat.objects.filter(worker=self.name).delete()
        connections.close_all()

    def answer(self, route: Route) -> None:
        """Take up what is due on the route, as one group, and do it in this thread. Notifies of what is left."""
        try:
            self._answer(route)
        except DatabaseError:
            logger.exception("the database does not answer; a sweep will find what is due")
        finally:
            connections.close_all()

    def _answer(self, route: Route) -> None:
        assert self._notifier is not None
        seconds = route.due_in()
        if seconds is None or self._stopping.is_set():
            return
        if seconds > 0:
            self._notifier.notify(route, seconds)
            return
        with self._taking:
            if route == WEBHOOKS:
                self._take_up_webhooks()
                return
            group, is_more_due = self._take_up_one(route)
        if is_more_due:
            self._notifier.notify(route, _REST_SECONDS if group else _AGAIN_SECONDS)
        if group:
            assert group.running is not None
            try:
                _do(group.tasks)
            finally:
                group.running.set_result(None)
            self._notify_what_follows(group)

    @property
    def _is_notified(self) -> bool:
        """Return whether the broker's messages say when something is due."""
        return self._notifier is not None and not self._notifier.problem

    def _notify_what_follows(self, group: Group) -> None:
        first = group.tasks[0]
        if first.lane:
            self._notify(Route(first.kind, first.lane).affected())

    def _go_on_with_webhooks(self) -> None:
        """Go on with webhooks. Called in a thread of the dispatcher, when it has delivered one."""
        if self._notifier:
            self._notify([WEBHOOKS])
        if not self._is_notified:
            self._wake.set()

    def _notify(self, routes: Collection[Route]) -> None:
        assert self._notifier is not None
        try:
            for route in routes:
                if (seconds := route.due_in()) is not None:
                    self._notifier.notify(route, seconds)
        except DatabaseError:
            logger.exception("the database does not answer; a sweep will find what is due")

    def _beat(self, *, is_first: bool) -> None:
        was_set_back = was_clock_set_back()
        chain_checks.wake(everyone=is_first or was_set_back)
        if self._watch is None or self._watch.done():
            self._watch = self._watcher.submit(_do, [_WATCH])
            if is_first:
                # After a pause the chains tell whether the clock is right.
                wait([self._watch], _BEAT_SECONDS)
        recover(all_postponed=was_set_back)
        pruning.wake()
        upkeep.wake(everyone=is_first)
        reading = self._clock.read(chain_checks.witnesses())
        self._say_that_it_runs(reading.problem)
        reject_overdue(reading.at)

    def _say_that_it_runs(self, clock_problem: str) -> None:
        if clock_problem:
            logger.error("%s", clock_problem)
        said = {"beat_at": Now(), "clock_problem": clock_problem, "exchanges": exchanges()}
        if self._notifier:
            said["broker_problem"] = self._notifier.problem
            self._notifier.check()
        with transaction.atomic():
            WorkerHeartbeat.objects.update_or_create(
                worker=self.name, defaults=said, create_defaults=said | {"started_at": Now()}
            )
            # Of the dead, and those that say they are of the future.
            day = timedelta(days=1)
            row_locks.delete_free(WorkerHeartbeat.objects.exclude(beat_at__range=(Now() - day, Now() + SILENCE)))

    def _take_up_what_is_due(self) -> None:
        with self._taking:
            if self._routes is None or WEBHOOKS in self._routes:
                self._take_up_webhooks()
            self._in_hand.forget_done()
            # More than there are threads would only wait in memory, where no other worker sees it.
            if self._in_hand.are_full:
                return
            poll = self._poll(self._routes)
            for task in due(self._turns, poll):
                self._take(task)
                if poll.is_over() or self._in_hand.are_full:
                    break
            self._note_asked(poll)
            self._in_hand.begin(self._start)

    def _take_up_webhooks(self) -> None:
        """Take up webhooks while there is room. What is left is taken up when one of those in hand has ended."""
        poll = Poll(self._dispatcher.has_room, time.monotonic() + _MOST_POLL_SECONDS)
        for task in due_webhooks(self._turns, poll):
            if self._dispatcher.take(task):
                self._turns.note(task.user, task.queue)

    def _take_up_one(self, route: Route) -> tuple[Group | None, bool]:
        """Take up one group of what is due on the route; return it, and whether more is due.

        The group is None where threads are left to others, or nothing is due; then more may be due, and it says so.
        """
        self._in_hand.forget_done()
        self._in_hand.begin(self._start)  # what a poll has left that the database has ended
        poll = self._poll([route], is_answer=True)
        group, is_more_due = None, False
        for task in due(self._turns, poll):
            if (group is None or group.may_join(task)) and self._take(task):
                group = self._in_hand.all[-1]
            else:
                is_more_due = True
            if poll.is_over() or (group and not group.may_grow):
                is_more_due = True
                break
        self._note_asked(poll)
        if group is None:
            return None, True
        group.running = Future()
        return group, is_more_due

    def _poll(self, routes: Collection[Route] | None, *, is_answer: bool = False) -> Poll:
        return Poll(self._in_hand.has_room, time.monotonic() + _MOST_POLL_SECONDS, routes, is_answer=is_answer)

    def _take(self, task: Task) -> bool:
        is_taken = self._in_hand.take(task)
        if is_taken:
            self._turns.note(task.user, task.queue)
        return is_taken

    def _note_asked(self, poll: Poll) -> None:
        if poll.is_over():
            # The next one begins with those whom this one didn't come to.
            for queue in poll.asked:
                self._turns.note(queue[0], queue)

    def _start(self, group: Group) -> Future[None]:
        running = self._pool.submit(self._work_on, group)
        if not self._is_notified:
            # What it has made due is taken up at once.
            running.add_done_callback(lambda _: self._wake.set())
        return running

    def _work_on(self, group: Group) -> None:
        _do(group.tasks)
        if self._notifier:
            try:
                self._notify_what_follows(group)
            finally:
                connections.close_all()


def work_once() -> int:
    """Give each thing that waits one turn, due or not, in this thread. Return how many turns failed.

    A row that another worker has leased is left to it.
    """
    chain_checks.wake(everyone=True)
    _watch(None)
    pruning.wake()
    upkeep.wake(everyone=True)
    reject_overdue(Clock().read(chain_checks.witnesses()).at)
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


_ONE_TURN: Sequence[tuple[str, type[FactsRegistry | Signer | Batch | Block | Webhook | Pruning]]] = (
    ("registry", FactsRegistry),
    ("signer", Signer),
    ("batch", Batch),
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
