"""The methods that a node doesn't answer in time, and the requests of which it hangs."""

import json
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from chains.nodes.node_batches import Request
from chains.nodes.node_errors import SEND

# Seconds after which an answer to a sent transaction is late: a node only checks the transaction before it answers.
_SLOW_SEND_SECONDS = 5
# Seconds to remember a request that hung. It is repeated at least once a minute while it is needed.
_HUNG_SECONDS = 100
# The number of time-outs of a request that hung in a batch and then alone.
_TWICE = 2


@dataclass(frozen=True)
class Unanswered:
    """A method that a node didn't answer in time, when it was requested last."""

    seconds: float
    """The time-out, or how long the late answer took."""
    is_late: bool
    """True if the node answered, but too late."""
    is_alone: bool
    """False if other methods went in each such batch, any of which may be the cause."""
    times: int
    """The number of requests since the last answer in time."""
    last: float
    """The time of the last one, in unix seconds."""


@dataclass(frozen=True)
class _Hung:
    """A request that got no answer in time in a batch, and then alone."""

    method: str
    until: float
    """It goes alone until then."""
    last: float
    """When it hung last, in unix seconds."""


class UnansweredMethods:
    """The methods that one node doesn't answer in time. Any number of threads note them."""

    def __init__(self, timeout_seconds: float, clock: Callable[[], float]) -> None:
        self._timeout = timeout_seconds
        self._clock = clock
        self._since_answer: dict[str, Unanswered] = {}
        """The methods that the node didn't answer in time since its last answer to them."""
        self._hung: dict[int, _Hung] = {}
        """Requests that hung in a batch and then alone, by hash. In a batch, they would cost several time-outs."""

    def note(self, methods: Collection[str], seconds: float, *, is_silent: bool) -> None:
        """Count a batch with these methods, which took so long, and was answered unless the node `is_silent`.

        A node that doesn't even tell its chain id is down: then no method is the cause.
        """
        now = time.time()
        if is_silent and {*methods} == {"eth_chainId"}:
            self._since_answer.clear()
            self._hung = {}
            return
        for method in methods:
            is_late = method == SEND and seconds >= _SLOW_SEND_SECONDS
            if not (is_silent or is_late):
                self._since_answer.pop(method, None)
                continue
            before = self._since_answer.get(method)
            # Nobody knows whether a transaction has arrived, so once is enough. A late answer is no silence.
            times = 2 if method == SEND else 1
            if before and is_silent:
                # Requests that were sent at the same time count once.
                times = before.times if now - before.last < self._timeout / 2 else before.times + times
            self._since_answer[method] = Unanswered(
                seconds=self._timeout if is_silent else seconds,
                is_late=not is_silent,
                is_alone=len(methods) == 1 or (before is not None and before.is_alone),
                times=times,
                last=now,
            )

    def note_alone(self, request: Request, *, is_silent: bool) -> None:
        """Remember a request that hung alone after its batch, or forget it if it is answered."""
        now, key = self._clock(), _hash(request)
        hung = {other: one for other, one in self._hung.items() if now < one.until and other != key}
        if is_silent:
            hung[key] = _Hung(request[0], now + _HUNG_SECONDS, time.time())
        self._hung = hung

    def hung(self, requests: Mapping[int, Request]) -> list[int]:
        """Return the indexes of the requests that go alone, because they hung lately."""
        now = self._clock()
        known = {key for key, one in self._hung.items() if now < one.until}
        return [index for index, request in requests.items() if _hash(request) in known] if known else []

    def by_method(self) -> dict[str, Unanswered]:
        """Return the methods that the node doesn't answer in time.

        One request that hung isn't answered because others are. But that is no failure of the whole method.
        """
        counted, now = self._since_answer.copy(), self._clock()
        for one in self._hung.values():
            before = counted.get(one.method)
            if now < one.until and (before is None or before.times < _TWICE or not before.is_alone):
                counted[one.method] = Unanswered(self._timeout, False, True, _TWICE, one.last)
        return counted


def _hash(request: Request) -> int:
    return hash(json.dumps(request))
