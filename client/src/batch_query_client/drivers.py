"""Drivers, which carry out the effects of steps. One blocks, the other doesn't. They have no logic of their own.

Both send requests in an event loop, which can limit a request's total time. A blocking client's time-out covers a
single read, so a server that sends its answer slowly could hold it up for ever.
"""

import asyncio
import inspect
import logging
import os
import ssl
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from http import HTTPStatus
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any, Concatenate, Generic, ParamSpec, Self, overload

import httpx
from anyio.from_thread import BlockingPortal, start_blocking_portal

from batch_query_client.effects import (
    Effect,
    HttpAnswer,
    Now,
    Pause,
    ProviderCall,
    Request,
    Result,
    Steps,
    Tell,
    Unreachable,
)
from batch_query_client.environment_transport import MOST_PORT, EnvironmentProxy, EnvironmentTransport, proxy_for
from batch_query_client.errors import Unavailable
from batch_query_client.plain_text import plain

_CONNECT_SECONDS = 10
# OpenSSL's codes for a certificate whose issuer isn't trusted.
_UNTRUSTED = {18, 19, 20, 21}

_is_ours: ContextVar[bool] = ContextVar("_is_ours", default=False)


class _WithoutOurs(logging.Filter):
    """A filter that drops log lines about our requests: with URLs that hold keys, cookies, and passwords of proxies."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not _is_ours.get()


for logger in ("httpx", "httpcore.http11", "httpcore.socks"):
    logging.getLogger(logger).addFilter(_WithoutOurs())


def run(steps: Steps[Result]) -> Result:
    """Run the steps in the caller's thread, and return their result.

    The event loop has a thread of its own, because the caller's thread may have a loop already, as in notebooks.
    """
    send, value = steps.send, None
    with start_blocking_portal() as portal, _client_in(portal) as http:
        while True:
            try:
                effect = send(value)
            except StopIteration as stop:
                result: Result = stop.value
                return result
            try:
                done = portal.call(exchange, http, effect) if isinstance(effect, Request) else _carry_out(effect)
                send, value = steps.send, done
            except Exception as error:  # noqa: BLE001 (the steps handle every exception)
                send, value = steps.throw, error


@contextmanager
def _client_in(portal: BlockingPortal) -> Iterator[httpx.AsyncClient]:
    http = portal.call(http_client)
    try:
        yield http
    finally:
        portal.call(http.aclose)


async def run_async(steps: Steps[Result], http: httpx.AsyncClient) -> Result:
    """Run the steps in the caller's event loop, and return their result."""
    send, value = steps.send, None
    while True:
        try:
            effect = send(value)
        except StopIteration as stop:
            result: Result = stop.value
            return result
        try:
            send, value = steps.send, await _carry_out_async(effect, http)
        except Exception as error:  # noqa: BLE001 (the steps handle every exception)
            send, value = steps.throw, error


def _carry_out(effect: ProviderCall | Pause | Now | Tell) -> Any:
    match effect:
        case ProviderCall():
            return effect.provider.make_request(effect.method, effect.parameters)
        case Pause():
            return time.sleep(max(0, effect.seconds))
        case Now():
            return time.monotonic()
        case Tell():
            return effect.function(effect.value)


async def _carry_out_async(effect: Effect, http: httpx.AsyncClient) -> Any:
    match effect:
        case Request():
            return await exchange(http, effect)
        case Pause():
            return await asyncio.sleep(max(0, effect.seconds))
    result = _carry_out(effect)
    return await result if inspect.isawaitable(result) else result


# --- Methods ----------------------------------------------------------------------------------------------------------


class Blocking:
    """The base of classes whose operations block."""


class NonBlocking:
    """The base of classes whose operations are coroutines."""

    http: httpx.AsyncClient


Parameters = ParamSpec("Parameters")


class operation(Generic[Parameters, Result]):  # noqa: N801 (the class is used as a decorator)
    """A decorator that turns a function of steps into a method.

    In a blocking class the method blocks; otherwise it is a coroutine function.
    """

    def __init__(self, steps: Callable[Concatenate[Any, Parameters], Steps[Result]]) -> None:
        self._steps = steps
        self.__doc__ = steps.__doc__

    @overload
    def __get__(self, of: Blocking, kind: type) -> Callable[Parameters, Result]: ...

    @overload
    def __get__(self, of: NonBlocking, kind: type) -> Callable[Parameters, Coroutine[Any, Any, Result]]: ...

    @overload
    def __get__(self, of: None, kind: type) -> Self: ...

    def __get__(self, of: Blocking | NonBlocking | None, kind: type) -> Any:
        if of is None:
            return self

        @wraps(self._steps)
        def call(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Any:
            steps = self._steps(of, *args, **kwargs)
            return run_async(steps, of.http) if isinstance(of, NonBlocking) else run(steps)

        return call


# --- Requests ---------------------------------------------------------------------------------------------------------


def http_client() -> httpx.AsyncClient:
    """Make a client that keeps connections open.

    It stores no cookies, and follows no redirects, because a redirect could send keys to another server.
    """
    return httpx.AsyncClient(
        # Some providers refuse the names of libraries.
        headers={"User-Agent": "batch-query-client"},
        cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
        timeout=httpx.Timeout(None, connect=_CONNECT_SECONDS),
        follow_redirects=False,
        transport=EnvironmentTransport(),
    )


def _url(text: str) -> httpx.URL:
    url = httpx.URL(text)
    # httpx would raise an `ExceptionGroup` when it connects.
    if (url.port or 0) > MOST_PORT:
        raise httpx.InvalidURL("the port is too high")
    return url


async def exchange(http: httpx.AsyncClient, request: Request) -> HttpAnswer:
    """Send the request and return its answer. Raises `Unreachable`, and `Unavailable` if a retry can't help."""
    ours = _is_ours.set(True)
    by: EnvironmentProxy | None = None
    failed: Unreachable | Unavailable
    try:
        by = proxy_for(_url(request.url))
        async with asyncio.timeout(request.seconds):
            return await _exchange(http, request, by)
    except httpx.ProxyError as error:
        failed = _refused_by_proxy(by, str(error))
    except TimeoutError:
        failed = Unreachable(f"did not answer within {request.seconds:g} seconds", was_sent=True)
    except httpx.ConnectTimeout:
        failed = Unreachable(f"could not be reached within {_CONNECT_SECONDS} seconds", was_sent=False)
    except httpx.ConnectError as error:
        failed = Unreachable(_why_failed(error, "can't be reached"), was_sent=False)
    except (httpx.HTTPError, OSError) as error:
        failed = Unreachable(_why_failed(error, "broke off its answer"), was_sent=True)
    except (httpx.InvalidURL, ValueError):
        failed = Unreachable("has an address that is no URL", was_sent=False)
    finally:
        _is_ours.reset(ours)
    if by and isinstance(failed, Unreachable):
        failed = Unreachable(f"through {by.name} {failed}", was_sent=failed.was_sent)
    # Raised outside of `except`, so that no chained exception shows the URL.
    raise failed


def _refused_by_proxy(by: EnvironmentProxy | None, answer: str) -> Unreachable | Unavailable:
    """Return the error for a proxy's answer, which begins with its HTTP status, or is of SOCKS."""
    if by and answer.startswith("4"):
        return Unavailable(f"{by.name[:1].upper()}{by.name[1:]} refuses the request ({plain(answer)}).")
    return Unreachable(f"can't be reached ({plain(answer).rstrip('.')})", was_sent=False)


async def _exchange(http: httpx.AsyncClient, request: Request, by: EnvironmentProxy | None) -> HttpAnswer:
    # Compressed content would need a second size limit.
    headers = [("accept-encoding", "identity"), *request.headers]
    async with http.stream(
        request.method, request.url, headers=headers, content=request.body or None, extensions={"proxy": by}
    ) as response:
        if by and response.status_code == HTTPStatus.PROXY_AUTHENTICATION_REQUIRED:
            # Requests without TLS have the proxy's refusal as their answer.
            raise httpx.ProxyError(f"{response.status_code} {response.reason_phrase}")
        if response.headers.get("content-encoding", "identity").lower() != "identity":
            raise Unreachable("answered in an encoding that was not requested", was_sent=True)
        content = bytearray()
        async for part in response.aiter_raw():
            content += part
            if len(content) > request.max_bytes:
                raise Unreachable(f"sent more than {request.max_bytes} bytes", was_sent=True)
        fields = tuple((name.lower(), value) for name, value in response.headers.multi_items())
        return HttpAnswer(response.status_code, fields, bytes(content), f"through {by.name}" if by else "")


def _why_failed(error: BaseException, otherwise: str) -> str:
    """Return why a connection failed, with the cause if its TLS did not come about."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            # "Hostname mismatch" goes on with the name.
            why = cause.verify_message.partition(",")[0].lower()
            variable = next(filter(os.environ.get, ("SSL_CERT_FILE", "SSL_CERT_DIR")), "")
            if variable and cause.verify_code in _UNTRUSTED:
                why += f"; trusted are the certificates of {variable}"
            return f"has no valid TLS certificate ({why})"
        if isinstance(cause, ssl.SSLError) and cause.reason:
            return f"speaks no TLS, or no version that this machine knows ({cause.reason.replace('_', ' ').lower()})"
        if isinstance(cause, ConnectionResetError) and isinstance(error, httpx.ConnectError):
            return "ended the connection before TLS came about"
        cause = cause.__cause__ or cause.__context__
    return otherwise
