"""Requests that are retried after temporary failures and broken connections."""

import json
import math
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Any, TypeVar
from urllib.parse import urlsplit

from pydantic import BaseModel, ValidationError

from batch_query_client.effects import HttpAnswer, Now, Pause, Request, Steps, Unreachable
from batch_query_client.errors import (
    Conflict,
    Fault,
    InvalidRequest,
    NotFound,
    ServiceRefused,
    Unauthorized,
    Unavailable,
    UnexpectedAnswer,
)
from batch_query_client.plain_text import plain

# Statuses by which the service says that it did nothing and may do it later.
_NOT_DONE = {HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE}
# Statuses of a proxy that failed. The service may have processed the request.
_UNKNOWN = {HTTPStatus.BAD_GATEWAY, HTTPStatus.GATEWAY_TIMEOUT}

_REFUSALS: dict[int, type[ServiceRefused]] = {
    400: InvalidRequest,
    401: Unauthorized,
    403: Unauthorized,
    404: NotFound,
    409: Conflict,
    410: NotFound,
    413: InvalidRequest,
    415: InvalidRequest,
    422: InvalidRequest,
}

# Maximum lists and objects in one answer. Empty ones take twenty times as much memory as their text.
_MAX_CONTAINERS = 500_000

Model = TypeVar("Model", bound=BaseModel)


@dataclass(frozen=True)
class Patience:
    """The limits of retries. Pauses double, are randomised (full jitter), and respect `Retry-After`."""

    seconds: float = 75
    """Seconds for retries after the first failure. 0: no retries. The service's limits last up to a minute."""
    first_pause: float = 0.5
    longest_pause: float = 15
    answer_seconds: float = 30
    """Limit of one exchange, from the look-up of the name to the answer's last byte."""
    chance: Callable[[], float] = random.random
    """A random number from 0 to 1, by which a pause is multiplied."""
    advised_seconds: float = 0
    """Seconds for retries, if longer, while the answers say when to ask again (`Retry-After`)."""

    def at_most(self, seconds: float) -> "Patience":
        """Return this patience with retries for at most so many seconds."""
        return replace(self, seconds=min(self.seconds, seconds), advised_seconds=min(self.advised_seconds, seconds))

    def pause(self, attempt: int) -> float:
        """Return the pause after an attempt, in seconds. Attempts are counted from 0."""
        return self.chance() * min(self.longest_pause, self.first_pause * 2.0 ** min(attempt, 60))


def ask(request: Request, patience: Patience, *, is_repeatable: bool = True) -> Steps[HttpAnswer]:
    """Repeat the request until its answer is not a temporary failure, or until patience ends. Return the answer.

    If the request isn't `is_repeatable`, it is sent again only if it certainly had no effect. Raises `Unavailable`.
    """
    first_failure = math.inf
    attempt = 0
    while True:
        answer: HttpAnswer | None = None
        failure = ""
        try:
            answer = yield request
        except Unreachable as unreachable:
            failure, may_pass = str(unreachable), is_repeatable or not unreachable.was_sent
        else:
            may_pass = answer.status in _NOT_DONE or (is_repeatable and answer.status in _UNKNOWN)
        advised = retry_after(answer) if answer else None
        seconds = (advised or 0) + patience.pause(attempt)
        at = yield Now()
        first_failure = min(first_failure, at)
        limit = patience.seconds if advised is None else max(patience.seconds, patience.advised_seconds)
        if not may_pass or at - first_failure + seconds > limit:
            if answer:
                return answer
            raise Unavailable(f"{host(request.url)} {failure}.")
        yield Pause(seconds)
        attempt += 1


def retry_after(answer: HttpAnswer) -> float | None:
    """Return the seconds in `Retry-After`. Dates are ignored, because the service sends none."""
    text = answer.header("retry-after").strip()
    return float(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


def host(url: str) -> str:
    """Return a URL's host and port, for messages. The user, path and query may hold keys."""
    try:
        return plain(urlsplit(url).netloc.rpartition("@")[2]) or "The address"
    except ValueError:
        return "The address"


def sender(answer: HttpAnswer, url: str) -> str:
    """Return who sent the answer, for messages: the URL's host, and the proxy."""
    return f"{host(url)} {answer.through}".rstrip()


# --- Answers of the service -------------------------------------------------------------------------------------------


def require(answer: HttpAnswer, url: str) -> HttpAnswer:
    """Return the answer if it is 200 to 299. Raises `ServiceRefused`, `Unavailable` and `UnexpectedAnswer`."""
    if 200 <= answer.status < 300:
        return answer
    error = _object(answer.content)
    code = plain(error.get("code") or "")
    sentence = plain(error.get("error") or "")
    if answer.status in _NOT_DONE | _UNKNOWN or answer.status >= 500:
        sentence = sentence or f"{sender(answer, url)} can't answer now (HTTP status {answer.status})."
        raise Unavailable(sentence, code=code, retry_after=retry_after(answer))
    if 300 <= answer.status < 400:
        raise UnexpectedAnswer(f"{sender(answer, url)} redirects to another address. Give the service's own address.")
    if not sentence and answer.status == HTTPStatus.NOT_FOUND:
        raise UnexpectedAnswer(
            f"{sender(answer, url)} has nothing at {urlsplit(url).path}. Is this a Batch Query Service?"
        )
    kind = _REFUSALS.get(answer.status, ServiceRefused)
    sentence = sentence or f"{sender(answer, url)} refused the request (HTTP status {answer.status})."
    raise kind(sentence, status=answer.status, code=code, faults=_faults(error.get("details")))


def read(model: type[Model], answer: HttpAnswer, url: str) -> Model:
    """Read the content of a successful answer. Raises `UnexpectedAnswer`."""
    try:
        if answer.content.count(b"[") + answer.content.count(b"{") <= _MAX_CONTAINERS:
            return model.model_validate_json(answer.content)
        where = ""
    except ValidationError as error:
        where = ".".join(map(str, error.errors(include_url=False, include_input=False)[0]["loc"]))
    except RecursionError:
        where = ""
    raise UnexpectedAnswer(
        f"{sender(answer, url)} didn't answer like a Batch Query Service{': ' if where else ''}{plain(where)}."
    )


def _object(content: bytes) -> dict[str, Any]:
    """Return the JSON object in the content. If there is none, return an empty object."""
    # Errors are short, so a long answer has none.
    if len(content) > 1024 * 1024:
        return {}
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _faults(details: Any) -> list[Fault]:
    faults = details if isinstance(details, list) else []
    return [
        Fault(*(plain(fault.get(name) or "") for name in ("path", "message", "code")))
        for fault in faults
        if isinstance(fault, dict)
    ]
