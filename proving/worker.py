"""A worker: finds what is due and does it on a few threads, until it is told to stop.

It keeps nothing that matters: kill it, and another one takes up its rows when their leases run out.
"""

import contextlib
import logging
import os
import secrets
import socket
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import datetime, timedelta

from django.db import Error as DatabaseError
from django.db import connections
from django.utils import timezone

from config.chains import get_chains
from proving import keeping
from proving.models import WorkerHeartbeat
from proving.turns import Turns
from proving.work import Work, due, reject_overdue

logger = logging.getLogger(__name__)

# How often the database is asked for due rows, and how often the worker says that it runs, in seconds.
_LOOK_SECONDS = 0.2
_BEAT_SECONDS = 5
# A worker that has been silent for so long is taken for dead.
SILENCE = timedelta(seconds=20)


def last_beat() -> datetime | None:
    """When a worker was last heard of."""
    return WorkerHeartbeat.objects.order_by("-beat_at").values_list("beat_at", flat=True).first()


def is_running() -> bool:
    beat = last_beat()
    return beat is not None and timezone.now() - beat < SILENCE


class Worker:
    def __init__(self, *, threads: int = 4) -> None:
        self.name = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(3)}"
        self._stopping = threading.Event()
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="worker")
        self._in_hand: dict[Work, Future[None]] = {}
        self._threads = threads
        self._turns = Turns()

    def stop(self) -> None:
        """Finish what is in hand, take up nothing new. May be called from a signal handler."""
        self._stopping.set()

    def run(self) -> None:
        """Work until `stop`. A database that doesn't answer is waited for."""
        logger.info("worker %s starts", self.name)
        started_at = timezone.now()
        next_beat = started_at
        is_first = True
        while not self._stopping.is_set():
            try:
                now = timezone.now()
                if now >= next_beat:
                    self._beat(started_at, now)
                    reject_overdue()
                    keeping.wake(everyone=is_first)
                    is_first = False
                    next_beat = now + timedelta(seconds=_BEAT_SECONDS)
                self._take_up_what_is_due()
            except DatabaseError:
                logger.exception("the database does not answer; trying again")
                connections.close_all()
                self._stopping.wait(_BEAT_SECONDS)
            self._stopping.wait(_LOOK_SECONDS)
        logger.info("worker %s stops, %d in hand", self.name, len(self._in_hand))
        self._pool.shutdown(wait=True)
        # On a full disk it is left behind, and falls silent.
        with contextlib.suppress(DatabaseError):
            WorkerHeartbeat.objects.filter(worker=self.name).delete()
        connections.close_all()

    def _beat(self, started_at: datetime, now: datetime) -> None:
        WorkerHeartbeat.objects.update_or_create(
            worker=self.name, defaults={"beat_at": now}, create_defaults={"started_at": started_at, "beat_at": now}
        )
        WorkerHeartbeat.objects.filter(beat_at__lt=now - timedelta(days=1)).delete()

    def _take_up_what_is_due(self) -> None:
        self._in_hand = {work: future for work, future in self._in_hand.items() if not future.done()}
        # More than there are threads would only wait in memory, where no other worker sees it.
        if len(self._in_hand) >= self._threads:
            return
        for work in due(self._turns):
            if work not in self._in_hand and self._leaves_threads(work):
                self._turns.note(work.user, work.queue)
                self._in_hand[work] = self._pool.submit(_do, work)
                if len(self._in_hand) >= self._threads:
                    return

    def _leaves_threads(self, work: Work) -> bool:
        """Whether threads are left to others: beside a lane whose node hangs, what takes long, and one user."""
        half, all_but_one = max(1, self._threads // 2), max(1, self._threads - 1)
        in_lane = sum(other.lane == work.lane for other in self._in_hand)
        long = [other.user for other in self._in_hand if other.is_long]
        of_user = sum(other.user == work.user for other in self._in_hand)
        return (
            in_lane < (self._threads if len(get_chains().connections) == 1 else half)
            and not (work.is_long and (len(long) >= half or work.user in long))
            and (work.user is None or of_user < all_but_one)
        )


def _do(work: Work) -> None:
    try:
        work()
    except Exception:
        # The row was pushed ahead by whoever raised this, so that it can't be taken up again at once.
        logger.exception("working on %s %s failed", work.kind, work.key)
    finally:
        connections.close_all()
