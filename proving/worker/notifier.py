"""Notifies Celery's workers through the broker of routes where something is due, so that none has to poll.

Rows are the truth and the queue, and a message holds nothing but the name of a route: whatever gets lost of them, the
workers' sweeps find. So a caller never waits, and never hears of a failure.
"""

import contextlib
import logging
import threading
import time
from collections.abc import Collection
from typing import Any

from proving.worker.routes import Route, every

logger = logging.getLogger(__name__)

# Between two messages of a process for the same route. Whatever becomes due meanwhile shares the second one.
_PAUSE_SECONDS = 0.05
# After a failure, until the broker is tried again. What is to be told meanwhile waits: at most a mark for each route.
_REST_SECONDS = 3
# Messages that wait in a queue. Each brings a worker, who finds whatever is due by then: more would bring them in vain.
_MOST_QUEUED = 16
# What is due later is found by a sweep.
_LONGEST_SECONDS = 60

_UNAVAILABLE = "The broker can't be used. Workers poll the database for what is due, so batches go on, a little later."


class Notifier:
    """The notifier of one process. A thread of its own talks with the broker."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._wanted: dict[Route, float] = {}  # when to tell, as `time.monotonic` tells
        self._told: dict[Route, float] = {}
        self._is_check_wanted = False
        self._is_closed = False
        self._thread: threading.Thread | None = None
        self._connection: Any = None
        self._channel: Any = None
        self.problem = ""
        """A sentence that says why the broker can't be used; empty if nothing is known to be wrong."""
        self.failures = 0
        """Number of failures of the broker since the process began."""

    def notify(self, route: Route, seconds: float = 0) -> None:
        """Have a worker poll the route after these seconds. Returns at once."""
        if seconds > _LONGEST_SECONDS:
            return
        now = time.monotonic()
        with self._changed:
            at = max(now + seconds, self._told.get(route, 0) + _PAUSE_SECONDS)
            if at < self._wanted.get(route, at + 1):
                self._wanted[route] = at
                self._wake()

    def check(self) -> None:
        """See whether the broker can be used. `problem` tells, a moment later."""
        with self._changed:
            self._is_check_wanted = True
            self._wake()

    def close(self) -> None:
        """End its thread, for tests. What wasn't told is left to the sweeps."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
            thread, self._thread = self._thread, None
        if thread:
            thread.join()

    def _wake(self) -> None:
        if self._thread is None:
            self._is_closed = False
            # Processes end without waiting for it.
            self._thread = threading.Thread(target=self._run, name="notifier", daemon=True)
            self._thread.start()
        self._changed.notify()

    def _run(self) -> None:
        while (due := self._wait()) is not None:
            try:
                self._send(due)
            except Exception as error:  # noqa: BLE001 (the broker's libraries raise what they like)
                self._fail(due, error)
            else:
                self._succeed()
        self._disconnect()

    def _wait(self) -> list[Route] | None:
        """Wait for the routes to tell of now, none if the broker is only to be checked. None: it is closed."""
        with self._changed:
            while not self._is_closed:
                now = time.monotonic()
                due = [route for route, at in self._wanted.items() if at <= now]
                if due or self._is_check_wanted:
                    self._is_check_wanted = False
                    for route in due:
                        del self._wanted[route]
                        # Before it is sent: what becomes due from here on takes another message.
                        self._told[route] = now
                    return due
                self._changed.wait(min(self._wanted.values()) - now if self._wanted else None)
        return None

    def _send(self, routes: Collection[Route]) -> None:
        # A process that never notifies need not know Celery, and importing it takes a part of a second.
        from proving.worker import broker_queues  # noqa: PLC0415

        if self._channel is None:
            self._connection = broker_queues.connect()
            self._channel = self._connection.channel()
        producer = broker_queues.app.amqp.Producer(self._channel, auto_declare=False)
        for route in routes:
            if self._queued(route) < _MOST_QUEUED:
                broker_queues.notify(route, producer)
        if not routes:
            self._queued(every()[0])

    def _queued(self, route: Route) -> int:
        """Return how many messages wait in the route's queue. Declares it as Celery's workers do, if it isn't there."""
        count: int = self._channel.queue_declare(queue=route.queue, durable=True, auto_delete=False).message_count
        return count

    def _fail(self, routes: Collection[Route], error: Exception) -> None:
        self._disconnect()
        self.failures += 1
        if not self.problem:
            # Its words may quote a URL.
            logger.warning("the broker can't be used: %s", type(error).__name__)
        self.problem = _UNAVAILABLE
        with self._changed:
            self._wanted |= dict.fromkeys(routes, 0.0)
            self._changed.wait_for(lambda: self._is_closed, _REST_SECONDS)

    def _succeed(self) -> None:
        if self.problem:
            logger.warning("the broker can be used again")
            self.problem = ""

    def _disconnect(self) -> None:
        with contextlib.suppress(Exception):
            if self._connection is not None:
                self._connection.release()
        self._connection = self._channel = None


notifier = Notifier()
"""This process's."""
