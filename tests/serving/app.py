"""A WSGI application that is slow or says much, as a path asks: /slow, /large, and whatever else says its path.

Where the query is `fails` it raises instead.
"""

import os
import time
from collections.abc import Iterable
from wsgiref.types import StartResponse, WSGIEnvironment

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
django.setup()

SLOW_SECONDS = 1.0
LARGE = b"x" * (16 * 1024 * 1024)


def application(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    path = environ["PATH_INFO"]
    if environ["QUERY_STRING"] == "fails":
        raise ZeroDivisionError("a defect")
    body = LARGE if path == "/large" else path.encode()
    if path == "/slow":
        time.sleep(SLOW_SECONDS)
    start_response("200 OK", [("Content-Length", str(len(body)))])
    return [body]
