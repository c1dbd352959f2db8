"""Bounds of a request's header fields that Django reads before any middleware, or in more time than their length."""

import codecs
import encodings
import pkgutil
from collections.abc import Iterable
from encodings.aliases import aliases
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

# Maximum characters of fields, more than browsers and libraries send, and a character that is left out, because none of
# our types or cookies has it. Django parses a type in the square of its length, and fails before any middleware if a
# parameter with an asterisk has an unknown charset (RFC 8187). Before 3.11.10 and 3.12.6, Python reads a cookie in the
# square of its backslashes.
_BOUNDS = {"CONTENT_TYPE": (1024, "*"), "HTTP_ACCEPT": (1024, "\n"), "HTTP_COOKIE": (16 * 1024, "\\")}
_CHARSETS = {*aliases, *aliases.values(), *(module.name for module in pkgutil.iter_modules(encodings.__path__))}


def bounded(application: WSGIApplication) -> WSGIApplication:
    """Return the application, which gets the beginnings of these fields."""

    def bounded_application(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        for name, (most, left_out) in _BOUNDS.items():
            if name in environ:
                environ[name] = environ[name].replace(left_out, "")[:most]
        return application(environ, start_response)

    return bounded_application


def _known_charset(name: str) -> codecs.CodecInfo | None:
    return encodings.search_function(name) if encodings.normalize_encoding(name) in _CHARSETS else None


# Python keeps each unknown name for ever, and clients write names of charsets: in Content-Type, and in parts of forms.
codecs.unregister(encodings.search_function)
codecs.register(_known_charset)
