"""The rendered part of a batch's page that refreshes itself. It is the same for all readers.

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

from explorer.batch import batch_page
from explorer.batch.batch_page import ShownBatch
from explorer.batch.query_paging import QuerySelection
from explorer.formatting.one_line import one_line

# Seconds for which all readers share one rendering. A page polls each second, so DONE is on every screen in 1.5 s.
_KEPT_SECONDS = 0.5
# Placeholders for values that are inserted after rendering.
_VERSION = "VersionOfTheFragment"
_READER = "ReaderOfTheBatch"
_PASSING = re.compile(r' data-now="[^"]*"|(?<=data-)((?:since|until)="[^"]*">)[^<]*')


@dataclass(frozen=True)
class Fragment:
    title: SafeString
    announcement: SafeString
    content: str
    version: str
    submitter: int  # the id of the user
    token: str
    """It stands in forms for a reader's. Nobody can guess it, so that it stands nowhere else."""

    def of(self, request: HttpRequest) -> SafeString:
        """Return the fragment for this reader, with a CSRF token and the words for the submitter or for others."""
        marker = _READER + self.token
        kept = r"\1" if request.user.pk == self.submitter else r"\2"
        content = re.sub(f"{marker}(.*?){marker}(.*?){marker}", kept, self.content, flags=re.DOTALL)
        is_needed = self.token in content
        return SafeString(content.replace(self.token, get_token(request)) if is_needed else content)


def render(page: ShownBatch, **context: object) -> Fragment:
    """Render a page's fragment."""
    token = secrets.token_hex(16)
    values = {"page": page, "batch": page.batch, "version": _VERSION, "csrf_token": token, "reader": _READER + token}
    values |= context
    values["announcement"] = announcement = one_line("explorer/batch/_announcement.html", values)
    content: str = render_to_string("explorer/batch/_fragment.html", values)
    version = hashlib.sha256(_PASSING.sub(r"\1", content.replace(token, "")).encode()).hexdigest()[:32]
    title = one_line("explorer/batch/_title.html", values)
    content = content.replace(_VERSION, version)
    return Fragment(title, announcement, content, version, page.batch.user_id, token)


def read(internal_id: str, wanted: QuerySelection) -> Fragment | None:
    """Return the fragment, at most half a second old. None: there is no such page."""
    key = hashlib.sha256(f"{internal_id} {wanted}".encode()).hexdigest()
    known: Fragment | None = cache.get(key)
    if known is None and (page := batch_page.read(internal_id, wanted)) is not None:
        known = render(page)
        cache.set(key, known, _KEPT_SECONDS)
    return known
