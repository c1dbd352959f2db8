"""Bounds of a request's header fields that Django reads before any middleware, or in more time than their length."""

import codecs
import encodings
import pkgutil
from collections.abc import Iterable
from encodings.aliases import aliases
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

# Maximum characters of a list of types, more than browsers and libraries send.
_MOST = 1024
_CHARSETS = {*aliases, *aliases.values(), *(module.name for module in pkgutil.iter_modules(encodings.__path__))}


def bounded(application: WSGIApplication) -> WSGIApplication:
    """Return the application, which gets only the beginning of `Content-Type` and `Accept`.

    Django parses both in the square of their length. It fails if a parameter with an asterisk has an unknown charset
    (RFC 8187), which no type needs.
    """

    def bounded_application(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        environ["CONTENT_TYPE"] = environ.get("CONTENT_TYPE", "").replace("*", "")[:_MOST]
        environ["HTTP_ACCEPT"] = environ.get("HTTP_ACCEPT", "*/*")[:_MOST]
        return application(environ, start_response)

    return bounded_application


def _known_charset(name: str) -> codecs.CodecInfo | None:
    return encodings.search_function(name) if encodings.normalize_encoding(name) in _CHARSETS else None


# Python keeps each unknown name for ever, and clients write names of charsets: in Content-Type, and in parts of forms.
codecs.unregister(encodings.search_function)
codecs.register(_known_charset)
