"""The threads of a worker that deliver webhooks. Proving has others: it waits for no receiver.

A user, and a receiver, have so few of them at a time that a slow one holds up nobody else.
"""

import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from django.db import connections

from proving.webhooks import delivery
from proving.worker.due import MOST_OF_A_RECEIVER, Queue, Task

logger = logging.getLogger(__name__)

_THREADS = 32
_MOST_OF_A_USER = 8


class WebhookDispatcher:
    def __init__(self, at_end: Callable[[], None]) -> None:
        """Make the pool of threads. `at_end` is called when one has ended, in its thread. It must not raise."""
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="webhooks")
        self._at_end = at_end
        self._lock = threading.Lock()
        self._in_hand: set[Task] = set()

    @property
    def are_full(self) -> bool:
        return len(self._in_hand) >= _THREADS

    def has_room(self, queue: Queue) -> bool:
        """Return whether anything of the queue could be taken up."""
        user = queue[0]
        return not self.are_full and (user is None or self._count(lambda task: task.user == user) < _MOST_OF_A_USER)

    def take(self, task: Task) -> bool:
        """Begin to do it, unless it is in hand or others need the threads; whether that was done."""
        if (
            task in self._in_hand
            or not self.has_room(task.queue)
            or self._count(lambda one: one.receiver == task.receiver) >= MOST_OF_A_RECEIVER
        ):
            return False
        with self._lock:
            self._in_hand.add(task)
        self._pool.submit(self._do, task)
        return True

    def stop(self) -> None:
        """Wait for what is in hand."""
        self._pool.shutdown(wait=True)

    def _count(self, condition: Callable[[Task], bool]) -> int:
        with self._lock:
            return sum(map(condition, self._in_hand))

    def _do(self, task: Task) -> None:
        try:
            # Who only waits for a receiver needs no connection to the database.
            delivery.deliver(task.key, before_waiting=connections.close_all)
        except Exception:
            # The row was pushed ahead, so that it isn't taken up again at once.
            logger.exception("working on %s %s failed", task.kind, task.key)
        finally:
            with self._lock:
                self._in_hand.discard(task)
            self._at_end()
            connections.close_all()
