"""A WSGI application that returns the requested path, slowly or at length if asked."""

import os
from collections.abc import Iterable
from wsgiref.types import StartResponse, WSGIEnvironment

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
django.setup()


def application(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    environ["wsgi.input"].read()
    body = environ["PATH_INFO"].encode()
    start_response("200 OK", [("Content-Length", str(len(body)))])
    return [body]
