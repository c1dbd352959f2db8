"""Asks again what may pass: answers that say so, and connections that fail."""

import json
import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, TypeVar
from urllib.parse import urlsplit

from pydantic import BaseModel, ValidationError

from batch_query_client.effects import Answer, Now, Pause, Request, Steps, Unreachable
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

# The other side says that it has not done it, and that it may later.
_NOT_DONE = {HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE}
# It may have been done: a proxy in front knows nothing of it.
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

# Lists and objects of one answer. Empty ones take twenty times as much memory as text.
_MAX_CONTAINERS = 500_000

Model = TypeVar("Model", bound=BaseModel)


@dataclass(frozen=True)
class Patience:
    """The limits of retries. Pauses double, with full jitter, and keep to `Retry-After`."""

    seconds: float = 60
    """From the first failure on. 0: nothing is tried again."""
    first_pause: float = 0.5
    longest_pause: float = 15
    answer_seconds: float = 30
    """For one answer, from the name's look-up to its last byte."""
    chance: Callable[[], float] = random.random
    """Returns a number from 0 to 1: the share of a pause that is made."""

    def pause(self, attempt: int) -> float:
        """Return the seconds to wait after the attempt of this number, counted from 0."""
        return self.chance() * min(self.longest_pause, self.first_pause * 2.0 ** min(attempt, 60))


def ask(request: Request, patience: Patience, *, is_repeatable: bool = True) -> Steps[Answer]:
    """Repeat the request until its answer is none that may pass, or patience ends.

    Return the answer, of whatever status. What is not `is_repeatable` is sent again only where it is sure that it was
    not done. Raises `Unavailable`.
    """
    first_failure = math.inf
    attempt = 0
    while True:
        answer: Answer | None = None
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
        if not may_pass or at - first_failure + seconds > patience.seconds:
            if answer:
                return answer
            raise Unavailable(f"{host(request.url)} {failure}.")
        yield Pause(seconds)
        attempt += 1


def retry_after(answer: Answer) -> float | None:
    """Return the seconds of `Retry-After`. A date, which it may also hold, is ignored: these services send none."""
    text = answer.header("retry-after").strip()
    return float(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


def host(url: str) -> str:
    """Return host and port of a URL, which may be shown: its user, path and query may hold keys."""
    try:
        return plain(urlsplit(url).netloc.rpartition("@")[2]) or "The address"
    except ValueError:
        return "The address"


# --- Answers of the service -------------------------------------------------------------------------------------------


def require(answer: Answer, url: str) -> Answer:
    """Return the answer if it is 200 to 299. Raises `ServiceRefused`, `Unavailable` and `UnexpectedAnswer`."""
    if 200 <= answer.status < 300:
        return answer
    error = _object(answer.content)
    code = plain(error.get("code") or "")
    sentence = plain(error.get("error") or "")
    if answer.status in _NOT_DONE | _UNKNOWN or answer.status >= 500:
        said = sentence or f"{host(url)} can't answer now (HTTP status {answer.status})."
        raise Unavailable(said, code=code, retry_after=retry_after(answer))
    if 300 <= answer.status < 400:
        raise UnexpectedAnswer(f"{host(url)} redirects to another address. Give the service's own.")
    if not sentence and answer.status == HTTPStatus.NOT_FOUND:
        raise UnexpectedAnswer(f"{host(url)} has nothing at {urlsplit(url).path}. Is this a Batch Query Service?")
    kind = _REFUSALS.get(answer.status, ServiceRefused)
    said = sentence or f"{host(url)} refused the request (HTTP status {answer.status})."
    raise kind(said, status=answer.status, code=code, faults=_faults(error.get("details")))


def read(model: type[Model], answer: Answer, url: str) -> Model:
    """Read the content of an answer that was taken. Raises `UnexpectedAnswer`."""
    try:
        if answer.content.count(b"[") + answer.content.count(b"{") <= _MAX_CONTAINERS:
            return model.model_validate_json(answer.content)
        where = ""
    except ValidationError as error:
        where = ".".join(map(str, error.errors(include_url=False, include_input=False)[0]["loc"]))
    except RecursionError:
        where = ""
    raise UnexpectedAnswer(
        f"{host(url)} answered with something else than a Batch Query Service does{': ' if where else ''}"
        f"{plain(where)}."
    )


def _object(content: bytes) -> dict[str, Any]:
    """Return the JSON object of the content, or an empty one for anything else."""
    # An error is short. Of anything longer no more is known than its status.
    if len(content) > 1024 * 1024:
        return {}
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _faults(details: Any) -> list[Fault]:
    found = details if isinstance(details, list) else []
    return [
        Fault(*(plain(fault.get(name) or "") for name in ("path", "message", "code")))
        for fault in found
        if isinstance(fault, dict)
    ]
