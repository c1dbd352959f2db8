"""Bounds of a request's header fields that Django reads before any middleware, or in more time than their length."""

import codecs
import encodings
import pkgutil
import re
from collections.abc import Iterable
from email.message import Message
from encodings.aliases import aliases
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

# Maximum characters of a list of types, more than browsers and libraries send.
_MOST = 1024
# An asterisk that is not that of a range of types, such as */*.
_OF_PARAMETER = re.compile(r"(?<!/)\*(?!/)")
_CHARSETS = {*aliases, *aliases.values(), *(module.name for module in pkgutil.iter_modules(encodings.__path__))}


def bounded(application: WSGIApplication) -> WSGIApplication:
    """Return the application, which gets only the beginning of `Content-Type` and `Accept`, and no charset.

    Django parses both in the square of their length. It would decode the query string and forms by the charset of
    `Content-Type`, and fail if that is no charset of texts. Here all of them are UTF-8. Django also fails at some
    parameters with an asterisk (RFC 8187), which no type needs.
    """

    def bounded_application(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        environ["CONTENT_TYPE"] = _without_charset(environ.get("CONTENT_TYPE", "").replace("*", "")[:_MOST])
        environ["HTTP_ACCEPT"] = _OF_PARAMETER.sub("", environ.get("HTTP_ACCEPT", "*/*")[:_MOST])
        return application(environ, start_response)

    return bounded_application


def _without_charset(content_type: str) -> str:
    if ";" not in content_type:
        return content_type
    # Django parses the field with this class, so it finds no charset that this doesn't find.
    message = Message()
    message["Content-Type"] = content_type
    message.del_param("charset")
    return str(message["Content-Type"])


def _known_charset(name: str) -> codecs.CodecInfo | None:
    return encodings.search_function(name) if encodings.normalize_encoding(name) in _CHARSETS else None


# Python keeps each unknown name for ever, and clients write names of charsets: in Content-Type, and in parts of forms.
codecs.unregister(encodings.search_function)
codecs.register(_known_charset)
