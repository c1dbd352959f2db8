"""Tasks that run side by side in one thread, and share the exchanges with nodes that they need.

Each task is a greenlet: ordinary code that is set aside where it asks a node, as a thread would be, and goes on when
the answer is there. It is set aside nowhere else. When all tasks are, what they have asked goes out together: a hundred
tasks of three questions in a row take three exchanges instead of three hundred. Which exchanges there are depends on no
clock, so tests can count them.
"""

import threading
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from contextvars import copy_context
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, TypeAlias, TypeVar, cast, overload

from greenlet import getcurrent, greenlet

Result = TypeVar("Result")
Item = TypeVar("Item")
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")


@dataclass(frozen=True)
class Raised:
    """The exception that a task raised."""

    error: Exception


Outcome: TypeAlias = Result | Raised


@dataclass(eq=False)
class _Shared(Generic[Item, Result]):
    """Items of several tasks that are handled in one go, and the tasks that wait for it."""

    handle: Callable[[Sequence[Item]], Sequence[Outcome[Result]]]
    items: list[Item] = field(default_factory=list)
    waiting: list[greenlet] = field(default_factory=list)


class _Side:
    """The tasks that run side by side in one thread."""

    def __init__(self, may_wait: Callable[[], bool]) -> None:
        self._loop = getcurrent()
        self._may_wait = may_wait
        self._ready: deque[tuple[greenlet, Any]] = deque()
        self._work: dict[Hashable, _Shared[Any, Any]] = {}
        self._exchanges: dict[Hashable, _Shared[Any, Any]] = {}

    def run(self, tasks: Sequence[Callable[[], Result]]) -> list[Outcome[Result]]:
        outcomes = self._begin(tasks, lambda: None)
        while self._ready or self._work or self._exchanges:
            while self._ready:
                task, answer = self._ready.popleft()
                task.switch(answer)
            # Work asks nodes itself, and its questions go out with those that wait already.
            if self._work:
                self._begin_work()
            else:
                self._exchange()
        return cast("list[Outcome[Result]]", outcomes)

    def together(self, tasks: Sequence[Callable[[], Result]]) -> list[Outcome[Result]]:
        """Run tasks of a task, which waits for them."""
        if not tasks:
            return []
        asking = getcurrent()
        outcomes = self._begin(tasks, lambda: self._ready.append((asking, None)))
        self._wait()
        return cast("list[Outcome[Result]]", outcomes)

    def share(
        self,
        key: Hashable,
        item: Item,
        handle: Callable[[Sequence[Item]], Sequence[Outcome[Result]]],
        *,
        is_exchange: bool,
    ) -> Outcome[Result]:
        shared = (self._exchanges if is_exchange else self._work).setdefault(key, _Shared(handle))
        shared.items.append(item)
        shared.waiting.append(getcurrent())
        return cast("Outcome[Result]", self._wait())

    def _wait(self) -> Any:
        assert self._may_wait(), "what a task begins and must end at once would be another's meanwhile"
        return self._loop.switch()

    def _begin(self, tasks: Sequence[Callable[[], Any]], at_end: Callable[[], None]) -> list[Outcome[Any] | None]:
        outcomes: list[Outcome[Any] | None] = [None] * len(tasks)
        left = len(tasks)

        def run(place: int, task: Callable[[], Any], _: None) -> None:
            nonlocal left
            outcomes[place] = _outcome(task)
            left -= 1
            if not left:
                at_end()

        for place, task in enumerate(tasks):
            begun = greenlet(partial(run, place, task), self._loop)
            # A greenlet begins with an empty context otherwise, and then its log lines tell not what they are about.
            begun.gr_context = copy_context()
            self._ready.append((begun, None))
        return outcomes

    def _begin_work(self) -> None:
        work, self._work = self._work, {}
        self._begin([partial(self._finish, shared) for shared in work.values()], lambda: None)

    def _exchange(self) -> None:
        exchanges, self._exchanges = self._exchanges, {}
        for shared in exchanges.values():
            self._finish(shared)

    def _finish(self, shared: _Shared[Any, Any]) -> None:
        handled = _outcome(lambda: shared.handle(shared.items))
        outcomes = [handled] * len(shared.items) if isinstance(handled, Raised) else handled
        self._ready.extend(zip(shared.waiting, outcomes, strict=True))


def _outcome(task: Callable[[], Result]) -> Outcome[Result]:
    try:
        return task()
    except Exception as error:  # noqa: BLE001 (who waits for it raises it)
        return Raised(error)


def _result(outcome: Outcome[Result]) -> Result:
    if isinstance(outcome, Raised):
        raise outcome.error
    return outcome


class _Here(threading.local):
    side: _Side | None = None


_here = _Here()


def run(tasks: Iterable[Callable[[], Result]], *, may_wait: Callable[[], bool] = lambda: True) -> list[Outcome[Result]]:
    """Run tasks side by side, and return what each has returned or raised, in order.

    `may_wait` says whether a task may be set aside at this moment.
    """
    if _here.side is not None:
        return _here.side.together(list(tasks))
    _here.side = _Side(may_wait)
    try:
        return _here.side.run(list(tasks))
    finally:
        _here.side = None


def each(tasks: Iterable[Callable[[], Result]]) -> list[Result]:
    """Run tasks side by side, and return their results in order. Raises what the first of those raised that failed."""
    return [_result(outcome) for outcome in run(tasks)]


@overload
def together(a: Callable[[], A], b: Callable[[], B], /) -> tuple[A, B]: ...
@overload
def together(a: Callable[[], A], b: Callable[[], B], c: Callable[[], C], /) -> tuple[A, B, C]: ...
@overload
def together(
    a: Callable[[], A], b: Callable[[], B], c: Callable[[], C], d: Callable[[], D], /
) -> tuple[A, B, C, D]: ...
def together(*tasks: Callable[[], Any]) -> tuple[Any, ...]:
    """Run tasks of several kinds as `each` does."""
    return tuple(each(tasks))


def share_exchange(key: Hashable, item: Item, handle: Callable[[Sequence[Item]], Sequence[Outcome[Result]]]) -> Result:
    """Have an item handled in one go with those of the same key, when no task goes on without an answer.

    `handle` gives an outcome for each item, in order; it asks nodes by itself. Outside of `run` there is one item.
    """
    if _here.side is None:
        return _result(handle([item])[0])
    return _result(_here.side.share(key, item, handle, is_exchange=True))


def share_work(key: Hashable, item: Item, handle: Callable[[Sequence[Item]], Sequence[Outcome[Result]]]) -> Result:
    """Have an item handled as `share_exchange` does, if handling it is a task whose questions go out with others'."""
    if _here.side is None:
        return _result(handle([item])[0])
    return _result(_here.side.share(key, item, handle, is_exchange=False))


def ask_once(key: Hashable, ask: Callable[[], Result]) -> Result:
    """Return the answer to a question that several tasks may have at the same moment: one of them asks."""
    return share_work(key, ask, lambda asking: [asking[0]()] * len(asking))
