"""A WSGI application that says the path that it was asked for; /slow takes a second."""

import os
import time
from collections.abc import Iterable
from wsgiref.types import StartResponse, WSGIEnvironment

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
django.setup()

SLOW_SECONDS = 1.0


def application(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    environ["wsgi.input"].read()
    body = environ["PATH_INFO"].encode()
    if body == b"/slow":
        time.sleep(SLOW_SECONDS)
    start_response("200 OK", [("Content-Length", str(len(body)))])
    return [body]
