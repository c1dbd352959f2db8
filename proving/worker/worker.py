"""A worker: gives each lane its turns on a thread of its own, until it is told to stop.

It keeps nothing that matters: kill it, and another one takes its lanes when they run out.

It finds what is due by polling the database, and polls again at once when a turn has ended. With a broker it polls less
often, and when it gets a message that something was submitted.
"""

import contextlib
import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta

from django.db import Error as DatabaseError
from django.db import connection, connections, transaction
from django.db.models.functions import Now

from chains.chains_file import ChainsError
from chains.signer_keys import SignerError
from config.configured_chains import get_chains
from proving import lanes
from proving.health import chain_checks
from proving.lanes import LaneKind, LaneLost, LaneName
from proving.models import WorkerHeartbeat
from proving.paths import upkeep
from proving.worker import turns
from queries import storage

logger = logging.getLogger(__name__)

# How often the database is asked for due rows, and how often the worker says that it runs, in seconds.
_POLL_SECONDS = 0.2
_BEAT_SECONDS = 5
# Lanes that come round with each beat.
_EACH_BEAT = {LaneKind.WATCH, LaneKind.HOUSE}
# Workers of versions before lanes don't call themselves so. While one may run, nothing is done beside it.
_BY_LANES = ":lanes"
_BEFORE_LANES = timedelta(seconds=60)


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

    def __init__(self, *, poll_seconds: float = _POLL_SECONDS) -> None:
        self.name = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(3)}{_BY_LANES}"
        self._stopping = threading.Event()
        self._wake = threading.Event()
        self._poll_seconds = poll_seconds
        self._lanes = lanes.every()
        self._pool = ThreadPoolExecutor(len(self._lanes), thread_name_prefix="worker")
        self._turns: dict[LaneName, Future[None]] = {}
        self._waits = False

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
                is_beat = time.monotonic() >= next_beat
                if is_beat:
                    self._beat(is_first=is_first)
                    is_first = False
                    next_beat = time.monotonic() + _BEAT_SECONDS
                if not self._waits:
                    self._begin_turns(is_beat=is_beat)
            except DatabaseError:
                logger.exception("the database does not answer; trying again")
                connections.close_all()
                self._stopping.wait(_BEAT_SECONDS)
            self._wake.wait(self._poll_seconds)
            self._wake.clear()
        logger.info("worker %s stops, %d turns in hand", self.name, len(self._turns))
        self._pool.shutdown(wait=True)
        # On a full disk it is left behind, and falls silent.
        with contextlib.suppress(DatabaseError):
            WorkerHeartbeat.objects.filter(worker=self.name).delete()
        connections.close_all()

    def _beat(self, *, is_first: bool) -> None:
        if is_first:
            # chains.toml may say something else now.
            chain_checks.wake()
            upkeep.deployed().update(due_at=Now())
        said = {"beat_at": Now()}
        with transaction.atomic():
            WorkerHeartbeat.objects.update_or_create(
                worker=self.name, defaults=said, create_defaults=said | {"started_at": Now()}
            )
            # Of the dead, and those that say they are of the future.
            day = timedelta(days=1)
            WorkerHeartbeat.objects.exclude(beat_at__range=(Now() - day, Now() + WorkerHeartbeat.SILENCE)).delete()
        older = WorkerHeartbeat.objects.exclude(worker__endswith=_BY_LANES)
        waits = older.filter(beat_at__range=(Now() - _BEFORE_LANES, Now() + WorkerHeartbeat.SILENCE)).exists()
        if waits and not self._waits:
            logger.warning("a worker of an older version runs, or did a minute ago: waiting until it has ended")
        self._waits = waits

    def _begin_turns(self, *, is_beat: bool) -> None:
        self._turns = {name: running for name, running in self._turns.items() if not running.done()}
        free = [name for name in self._lanes if name not in self._turns]
        with_work = turns.with_work([name for name in free if name.kind not in _EACH_BEAT])
        for name in free:
            if is_beat if name.kind in _EACH_BEAT else str(name) in with_work:
                self._turns[name] = self._pool.submit(self._turn, name)

    def _turn(self, name: LaneName) -> None:
        try:
            if _failures(turns.turn, name) == 0:
                # What it has made due is taken up at once.
                self.wake()
        finally:
            connections.close_all()


def work_once() -> int:
    """Give each thing that waits one turn, due or not, in this thread. Return how many turns failed."""
    chain_checks.wake()
    upkeep.wake()
    every = lanes.every()
    connections = [name for name in every if name.kind == LaneKind.CONNECTION]
    # What is found out about a registry counts for what is sent to it. What is admitted makes its blocks due, and what
    # is proven its webhook.
    return sum(_failures(turns.look_after_registry, name) or 0 for name in connections) + sum(
        _failures(turns.turn_of_all, name) or 0 for name in every
    )


def _failures(do: Callable[[LaneName], int | None], name: LaneName) -> int | None:
    """Return how much of a turn failed by an error of ours; None where another worker has the lane."""
    try:
        return do(name)
    except LaneLost:
        logger.warning("the lane %s was taken over by another worker; nothing more was written here", name)
        return None
    except Exception:
        logger.exception("a turn of the lane %s failed", name)
        return 1
