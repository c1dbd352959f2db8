"""A WSGI application that is slow or says much, as a path asks: /slow, /large, and whatever else says its path.

/streamed says as much as /large, part by part. Where the query is `fails` it raises instead, or after the first part.
"""

import os
import sys
import time
from collections.abc import Iterable, Iterator
from wsgiref.types import StartResponse, WSGIEnvironment

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
django.setup()

SLOW_SECONDS = 1.0
LARGE = b"x" * (16 * 1024 * 1024)


class Streamed:
    """An answer that is streamed, as Django's are."""

    streaming = True

    def __init__(self, *, fails: bool) -> None:
        self.fails = fails

    def __iter__(self) -> Iterator[bytes]:
        for _ in range(16):
            yield LARGE[: len(LARGE) // 16]
            if self.fails:
                raise ZeroDivisionError("a defect in the middle")

    def close(self) -> None:
        print("A streamed answer is closed.", file=sys.stderr, flush=True)


def application(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    path = environ["PATH_INFO"]
    if path == "/streamed":
        start_response("200 OK", [])
        return Streamed(fails=environ["QUERY_STRING"] == "fails")
    if environ["QUERY_STRING"] == "fails":
        raise ZeroDivisionError("a defect")
    body = LARGE if path == "/large" else path.encode()
    if path == "/slow":
        time.sleep(SLOW_SECONDS)
    start_response("200 OK", [("Content-Length", str(len(body)))])
    return [body]
