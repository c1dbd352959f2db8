"""Fields of requests, read alike from people's forms and programs' JSON objects."""

import json
import unicodedata
from typing import Protocol
from urllib.parse import urlsplit

from django.conf import settings
from django.http import HttpRequest
from django.shortcuts import resolve_url
from django.utils.http import url_has_allowed_host_and_scheme

from batch_query_client.combining_marks import with_few_marks
from config.error_answers import Refused, is_json
from config.logs import redact_keys


class FieldReader(Protocol):
    """Returns a field's text. A field that isn't a string is "", but for the number of a chain."""

    def __call__(self, name: str, missing: str = "") -> str: ...


STATUS_OF_REFUSAL = {
    **dict.fromkeys(("malformed_request", "malformed_name", "malformed_access", "malformed_overlap"), 400),
    **dict.fromkeys(("malformed_address", "malformed_message", "malformed_signature", "unknown_chain"), 400),
    "address_not_allowed": 403,
    **dict.fromkeys(("too_many_changes", "too_many_sign_ins"), 429),
    **dict.fromkeys(("node_unavailable", "too_many_checks"), 503),
}
"""The HTTP status for an error code. Other codes give 401 at sign-in, and 409 for keys."""


def given_in(request: HttpRequest) -> FieldReader:
    """Return a reader of the fields of a form or a JSON object.

    Raises `Refused`: malformed_request.
    """
    if not is_json(request):
        return lambda name, missing="": str(request.POST.get(name, missing))
    try:
        body = json.loads(request.body.decode())
    except (ValueError, RecursionError):
        body = None
    if not isinstance(body, dict):
        raise Refused("malformed_request", "The body must be a JSON object.")

    def read_json_field(name: str, missing: str = "") -> str:
        value = body.get(name, missing)
        if name == "chainId" and type(value) is int:
            return str(value)
        return value if isinstance(value, str) else ""

    return read_json_field


# Letters and marks that have no picture, which Python counts as printable: Hangul's, Khmer's, Mongolian and Miao ones,
# Braille's, a musical one, a joiner, and selectors of variants of ideographs.
_BLANK = frozenset(
    "\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0\U00016fe4\U0001d159"
) | set(map(chr, range(0xE0100, 0xE01F0)))
# Emoji need these behind a character that has a picture.
_VARIANTS = frozenset(map(chr, range(0xFE00, 0xFE10)))
# Categories of characters that have a picture of their own: letters, numbers, punctuation, symbols.
_PICTURED = frozenset("LNPS")


def is_hidden(character: str) -> bool:
    """Return whether a reader doesn't see the character."""
    return not character.isprintable() or character in _BLANK or character in _VARIANTS


def visible_line(text: str, most: int) -> str:
    """Return a text normalized to one line, so that texts that look the same are the same.

    Empty: it has no characters, more than `most`, one with more than 4 combining marks, or control or invisible ones,
    such as those that turn its direction.
    """
    # The length is compared first, because normalizing takes long for many combining characters.
    line = " ".join(unicodedata.normalize("NFC", text).split()) if len(text) <= 4 * most else ""
    is_valid = len(line) <= most and line.isprintable() and not _BLANK.intersection(line)
    is_pictured = any(unicodedata.category(character)[0] in _PICTURED for character in line)
    decomposed = unicodedata.normalize("NFD", line) if is_valid else ""
    return line if is_valid and is_pictured and with_few_marks(decomposed) == decomposed else ""


HIDDEN_ORIGIN = (
    "Your browser sent Origin: null, or neither Origin nor Referer, so the service can't see that the form belongs to "
    "this site. A privacy setting, an extension or a proxy may cause this, for example with Referrer-Policy: "
    "no-referrer. Turn that off for this site, reload the page, then send the form again."
)


def hides_origin(request: HttpRequest) -> bool:
    """Return whether the browser hides the origin. The CSRF check then refuses every form."""
    origin = request.headers.get("Origin")
    return origin == "null" or (origin is None and request.is_secure() and not request.headers.get("Referer"))


REFUSED_COOKIES = (
    "If this keeps happening, your browser may refuse cookies. The site needs a cookie to know that you sent the form."
)


def _origin(request: HttpRequest, own: str) -> str:
    """Return the origin as the CSRF check reads it: over https, without Origin, that of Referer. Empty: unreadable."""
    if "Origin" in request.headers or not request.is_secure():
        return request.headers.get("Origin", own)
    try:
        referer = urlsplit(request.headers.get("Referer", ""))
    except ValueError:
        return ""
    return f"{referer.scheme}://{referer.netloc}"


def csrf_refusal(request: HttpRequest) -> Refused:
    """Return why the CSRF check refused the request."""
    if hides_origin(request):
        return Refused("origin_hidden", HIDDEN_ORIGIN)
    trusted = (f"{request.scheme}://{request.get_host()}", *settings.CSRF_TRUSTED_ORIGINS)
    if _origin(request, trusted[0]) not in trusted:
        return Refused("other_origin", f"This service is at {settings.BASE_URL}. Open it there, then try again.")
    name = settings.CSRF_COOKIE_NAME
    # Each form of this site has a token.
    if not (request.headers.get("X-CSRFToken") or request.POST.get("csrfmiddlewaretoken")):
        return Refused("csrf_failed", f"First get /sign-in, then send its cookie {name} as the header X-CSRFToken.")
    if name not in request.COOKIES:
        return Refused("cookie_missing", f"Reload this page, then try again. {REFUSED_COOKIES}")
    return Refused("csrf_failed", "This page has been open for too long. Reload it, then try again.")


def safe_next(path: str) -> str:
    """Return the path if it belongs to this service, else the dashboard."""
    local = path.startswith("/") and url_has_allowed_host_and_scheme(path, allowed_hosts=None)
    return redact_keys(path) if local else resolve_url(settings.LOGIN_REDIRECT_URL)
