"""Kill or freeze a process at an exchange with a node or after a commit. A killed process writes nothing afterwards."""

import os
import re
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from typing import Any, NoReturn

import pytest
from django.db import connection, connections, transaction

from config.configured_chains import forget_chains
from tests.chains.lying_node import ask, lying_node
from tests.service import expire_leases, reconfigure

BEFORE_AND_AFTER = [pytest.param(False, id="before the node acts"), pytest.param(True, id="after it acted")]


class Killed(BaseException):
    pass


def exchanges(*, after: bool = False) -> Iterator[int]:
    """Yield numbers of exchanges to kill at, without end: every fourth, or each one in `make chaos`."""
    return count(1) if "EVERY_EXCHANGE" in os.environ else count(3 if after else 1, 4)


class Killer:
    """Proxies before the configured nodes that kill this process at its n-th exchange."""

    def __init__(self, settings: Any, stack: ExitStack) -> None:
        self._settings = settings
        self._stack = stack
        self._between: set[str] = set()
        self._counter, self._last, self._after = count(1), 0, False
        self._dead = threading.Event()
        self._meanwhile: Callable[[], None] | None = None
        self.killed = False

    def exchanges(self, *, after: bool = False) -> Iterator[int]:
        """Yield numbers of exchanges to kill at, up to the first at which nothing was killed."""
        for exchange in exchanges(after=after):
            yield exchange
            if not self.killed:
                return

    @contextmanager
    def at(self, exchange: int, *, after: bool) -> Iterator[None]:
        """Kill the context's code at its n-th exchange, before or after the node acts. Then restart the process.

        `killed` is False if the code had fewer exchanges.
        """
        self._go_between()
        self._counter, self._last, self._after = count(1), exchange, after
        with self.dying():
            yield
        self._last = 0

    @contextmanager
    def frozen_at(self, exchange: int, meanwhile: Callable[[], None], *, after: bool) -> Iterator[None]:
        """Freeze the context's code at its n-th exchange while `meanwhile` runs in another thread."""

        def others() -> None:
            expire_leases()
            forget_chains()
            meanwhile()
            connections.close_all()

        self._go_between()
        self._counter, self._last, self._after, self._meanwhile = count(1), exchange, after, others
        yield
        self._last, self._meanwhile = 0, None

    @contextmanager
    def dying(self) -> Iterator[None]:
        """Let the context's code be killed, and restart the process."""
        self.killed = False
        before = signal.signal(signal.SIGUSR1, self.kill)
        try:
            with connection.execute_wrapper(self._execute):
                yield
        except Killed:
            self.killed = True
        finally:
            signal.signal(signal.SIGUSR1, before)
            self._dead.clear()
        expire_leases()
        forget_chains()

    @contextmanager
    def once(self, holds: Callable[[], bool]) -> Iterator[None]:
        """Kill the context's code after the first commit that makes the condition true."""

        def execute(execute: Any, sql: str, *arguments: Any) -> Any:
            answer = execute(sql, *arguments)
            if sql.startswith(("UPDATE", "DELETE")) and holds():
                transaction.on_commit(self.kill)
            return answer

        with self.dying(), connection.execute_wrapper(execute):
            yield

    @contextmanager
    def when(self, is_time: Callable[[], object]) -> Iterator[None]:
        """Kill the context's code between two statements once the condition is true, even if a command is waiting."""

        def execute(execute: Any, sql: str, *arguments: Any) -> Any:
            if is_time():
                self._dead.set()
            return self._execute(execute, sql, *arguments)

        with self.dying(), connection.execute_wrapper(execute):
            yield
        assert self.killed

    def kill(self, *_: object) -> NoReturn:
        self._dead.set()
        raise Killed

    def _execute(self, execute: Any, sql: str, *arguments: Any) -> Any:
        # If a real process dies, the database rolls back. Here Django must send these statements.
        if self._dead.is_set() and not sql.startswith(("ROLLBACK TO SAVEPOINT", "RELEASE SAVEPOINT")):
            raise Killed
        return execute(sql, *arguments)

    def _go_between(self) -> None:
        text = self._settings.CHAINS_FILE.read_text()
        # The second kind is a signing service.
        for url in {*re.findall(r'^(?:rpc_urls = \[|url = )"(.*)"\]?$', text, re.MULTILINE)} - self._between:
            proxy = self._stack.enter_context(lying_node(self._before(url)))
            self._between.add(proxy)
            reconfigure(self._settings, url, proxy)

    def _before(self, url: str) -> Callable[[Any], Any]:
        def answer(body: Any) -> Any:
            is_last = next(self._counter) == self._last
            answered = ask(url, body) if self._after or not is_last else None
            if is_last and self._meanwhile:
                self._meanwhile()
                return answered or ask(url, body)
            if is_last:
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)
                self._dead.wait(20)
            return answered

        return answer
