"""Carries out what the logic asks for, blocking or not. Nothing is decided here.

Requests run in an event loop in both cases, because there they can be bounded in total time. A blocking client's
time-out covers one read only, so it would wait as long as a server likes that drips its headers or its body.
"""

import asyncio
import atexit
import inspect
import logging
import os
import ssl
import threading
import time
from collections.abc import Coroutine
from contextvars import ContextVar
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any

import httpx

from batch_query_client.effects import Answer, Call, Effect, Now, Pause, Request, Result, Steps, Tell, Unreachable

_CONNECT_SECONDS = 10

_is_ours: ContextVar[bool] = ContextVar("_is_ours", default=False)


class _WithoutOurs(logging.Filter):
    """httpx logs the URL of each request. Those of nodes hold keys, so of ours it logs none."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not _is_ours.get()


logging.getLogger("httpx").addFilter(_WithoutOurs())


def run(steps: Steps[Result]) -> Result:
    """Return or raise what the steps do. Blocks."""
    send, value = steps.send, None
    while True:
        try:
            effect = send(value)
        except StopIteration as stop:
            result: Result = stop.value
            return result
        try:
            send, value = steps.send, _carry_out(effect)
        except Exception as error:  # noqa: BLE001 (the steps know what to make of it)
            send, value = steps.throw, error


async def run_async(steps: Steps[Result], http: httpx.AsyncClient) -> Result:
    """Return or raise what the steps do."""
    send, value = steps.send, None
    while True:
        try:
            effect = send(value)
        except StopIteration as stop:
            result: Result = stop.value
            return result
        try:
            send, value = steps.send, await _carry_out_async(effect, http)
        except Exception as error:  # noqa: BLE001 (as above)
            send, value = steps.throw, error


def _carry_out(effect: Effect) -> Any:
    match effect:
        case Request():
            return _loop().exchange(effect)
        case Call():
            return effect.provider.make_request(effect.method, effect.parameters)
        case Pause():
            return time.sleep(effect.seconds)
        case Now():
            return time.monotonic()
        case Tell():
            return effect.function(effect.value)


async def _carry_out_async(effect: Effect, http: httpx.AsyncClient) -> Any:
    match effect:
        case Request():
            return await exchange(http, effect)
        case Pause():
            return await asyncio.sleep(effect.seconds)
        case Call() | Tell():
            came = _carry_out(effect)
            return await came if inspect.isawaitable(came) else came
        case Now():
            return time.monotonic()


# --- Requests ---------------------------------------------------------------------------------------------------------


def http_client() -> httpx.AsyncClient:
    """Make a client that keeps connections open, and nothing else.

    It keeps no cookies, and follows no redirect, which could take keys along.
    """
    return httpx.AsyncClient(
        cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
        timeout=httpx.Timeout(None, connect=_CONNECT_SECONDS),
        follow_redirects=False,
    )


async def exchange(http: httpx.AsyncClient, request: Request) -> Answer:
    """Send the request and return its answer. Raises `Unreachable`."""
    ours = _is_ours.set(True)
    try:
        async with asyncio.timeout(request.seconds):
            return await _exchange(http, request)
    except TimeoutError:
        failed = Unreachable(f"did not answer within {request.seconds:g} seconds", was_sent=True)
    except httpx.ConnectTimeout:
        failed = Unreachable(f"could not be reached within {_CONNECT_SECONDS} seconds", was_sent=False)
    except httpx.ConnectError as error:
        failed = Unreachable(_why_not_connected(error), was_sent=False)
    except (httpx.HTTPError, OSError):
        failed = Unreachable("broke off its answer", was_sent=True)
    except (httpx.InvalidURL, ValueError):
        failed = Unreachable("has an address that is no URL", was_sent=False)
    finally:
        _is_ours.reset(ours)
    # Outside of `except`, so that no chained exception shows the URL.
    raise failed


async def _exchange(http: httpx.AsyncClient, request: Request) -> Answer:
    # Packed content would have to be bounded twice.
    headers = [("accept-encoding", "identity"), *request.headers]
    async with http.stream(request.method, request.url, headers=headers, content=request.body or None) as response:
        if response.headers.get("content-encoding", "identity").lower() != "identity":
            raise Unreachable("answered in an encoding that it was not asked for", was_sent=True)
        content = bytearray()
        async for part in response.aiter_raw():
            content += part
            if len(content) > request.max_bytes:
                raise Unreachable(f"sent more than {request.max_bytes} bytes", was_sent=True)
        fields = tuple((name.lower(), value) for name, value in response.headers.multi_items())
        return Answer(response.status_code, fields, bytes(content))


def _why_not_connected(error: BaseException) -> str:
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLError):
            return "has no valid TLS certificate, or speaks no TLS"
        cause = cause.__cause__ or cause.__context__
    return "can't be reached"


class _Loop:
    """A loop in a thread of its own, for callers that block, and the connections that it keeps open."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="batch-query-client", daemon=True)
        self._thread.start()
        self._http = self._run(self._open())
        atexit.register(self._close)

    def exchange(self, request: Request) -> Answer:
        return self._run(exchange(self._http, request))

    def _run(self, work: Coroutine[Any, Any, Result]) -> Result:
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # Ctrl-C ends the request too.
            raise

    async def _open(self) -> httpx.AsyncClient:
        return http_client()

    def _close(self) -> None:
        if self.process != os.getpid():
            return  # A forked process has no such thread.
        self._run(self._http.aclose())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


_lock = threading.Lock()
_the_loop: _Loop | None = None


def _loop() -> _Loop:
    """Return the loop of this process, made at its first use. After a fork, which loses the thread, it is made anew."""
    global _the_loop
    with _lock:
        if _the_loop is None or _the_loop.process != os.getpid():
            _the_loop = _Loop()
        return _the_loop
