"""The rendered part of a batch's page that refreshes itself. One is for the batch's owner, one for all other readers.

A poll renders it and compares it with the last version. Ages and durations are left out of the comparison, because
the browser keeps them up to date.
"""

import hashlib
import re
import secrets
from dataclasses import dataclass

from django.core.cache import cache
from django.http import HttpRequest
from django.middleware.csrf import get_token
from django.template.loader import render_to_string
from django.utils.safestring import SafeString

from accounts.models import User
from explorer.batch import batch_page
from explorer.batch.batch_page import ShownBatch
from explorer.batch.query_paging import QuerySelection
from explorer.formatting.one_line import one_line

# Seconds for which all readers share one rendering. A page polls each second, so DONE is on every screen in 1.5 s.
_KEPT_SECONDS = 0.5
_PASSING = re.compile(r'data-(?:now="[^"]*"|((?:since|until)="[^"]*">)[^<]*)')


@dataclass(frozen=True)
class Fragment:
    title: SafeString
    announcement: SafeString
    content: str
    version: str
    was: str
    """The mark of a DONE batch, which `ShownBatch` describes."""
    token: str
    """It stands in forms for a reader's. Nobody can guess it, so that it stands nowhere else."""

    def of(self, request: HttpRequest) -> SafeString:
        """Return the fragment for this reader, with a CSRF token."""
        is_needed = self.token in self.content
        return SafeString(self.content.replace(self.token, get_token(request)) if is_needed else self.content)


def render(page: ShownBatch, *, is_own: bool, **context: object) -> Fragment:
    """Render a page's fragment for the batch's owner or for others."""
    # Placeholders for values that are inserted after rendering.
    token, place = secrets.token_hex(16), secrets.token_hex(16)
    values = {"page": page, "batch": page.batch, "is_own": is_own, "version": place, "csrf_token": token}
    values |= context
    values["announcement"] = announcement = one_line("explorer/batch/_announcement.html", values)
    content: str = render_to_string("explorer/batch/_fragment.html", values)
    compared = _PASSING.sub(r"\1", content.replace(token, "").replace(place, ""))
    version = hashlib.sha256(compared.encode()).hexdigest()[:32]
    title = one_line("explorer/batch/_title.html", values)
    return Fragment(title, announcement, content.replace(place, version), version, page.was, token)


def read(internal_id: str, wanted: QuerySelection, user: User | None) -> Fragment | None:
    """Return the fragment for this reader, at most half a second old. None: there is no such page."""
    is_own = user is not None and user.batches.filter(pk=internal_id).exists()
    key = hashlib.sha256(f"{internal_id} {wanted} {is_own}".encode()).hexdigest()
    known: Fragment | None = cache.get(key)
    if known is None and (page := batch_page.read(internal_id, wanted)) is not None:
        known = render(page, is_own=is_own)
        cache.set(key, known, _KEPT_SECONDS)
    return known
