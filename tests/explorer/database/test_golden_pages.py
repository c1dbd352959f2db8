"""Pages in their states: texts, JSON, and rules for all of them. tests/browser/pictures.py has the table."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db import transaction
from django.test import Client, override_settings
from django.utils import timezone

from tests import factories, golden_pages, service
from tests.browser import conftest, pictures
from tests.explorer import batches

pytestmark = pytest.mark.django_db


PAGES = sorted(
    (picture for picture in pictures.PICTURES if picture.then is pictures.Picture.then),
    key=lambda picture: getattr(picture.rows, "__name__", ""),
)


@pytest.fixture(scope="module")
def rows(request, django_db_setup, django_db_blocker, tmp_path_factory) -> Iterator[None]:
    """Store the rows of several pages, once for all tests with the same parameter. No page changes them."""
    with django_db_blocker.unblock(), transaction.atomic():
        if request.param:
            folder = tmp_path_factory.mktemp("rows")
            with override_settings(CHAINS_FILE=service.chains_toml(folder, batches.DEAD_NODE), STATIC_ROOT=str(folder)):
                batches.connect_source(folder)
                request.param()
        yield
        transaction.set_rollback(True)


@pytest.mark.long("batch--two-source-chains--one-held-up", "batch--60-queries", "batch--1-200-queries")
@pytest.mark.parametrize(
    ("rows", "picture"),
    [pytest.param(picture.rows, picture, id=picture.file) for picture in PAGES],
    indirect=["rows"],
    scope="module",
)
def test_a_page_is_as_it_was(
    rows: None, picture: pictures.Picture, settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    stage = conftest.Stage(settings, tmp_path, monkeypatch, lambda: pytest.fail("It needs no chain."))
    url = picture.open(stage, has_rows=True)
    client = factories.client_of(picture.who) if picture.who else Client()
    client.raise_request_exception = False
    # Time stands still, because a timeline's scale would change between two requests.
    now = timezone.now()
    monkeypatch.setattr(timezone, "now", lambda: now)
    answer = client.get(url, follow=True, headers={"accept": "text/html,*/*;q=0.8"})
    assert answer.status_code == picture.status
    assert "default-src 'none'" in (policy := answer.headers["Content-Security-Policy"])
    assert "unsafe" not in policy
    assert not re.search(
        r"<script(?![^>]*\ssrc=)|<style|\s(style|on\w+|hx-on[:\w-]*|hx-vals)=|javascript:", answer.text
    )
    others = re.findall(r'(?:src|href|action)="(?:https?:)?//(?!scan\.example/)', answer.text)
    assert others == [], "It names another host."
    assert answer.text.count("<h1") == 1
    # An update finds a node without an id by its place, which a note that comes before it takes.
    live = answer.text.partition('<div id="batch"')[2]
    kept = re.findall(r"<details\b[^>]*|<[^>]*\bdata-keep\b[^>]*", live)
    assert [tag for tag in kept if " id=" not in tag] == []
    # A file is kept where it says more than the others.
    if (golden_pages.GOLDEN / f"{picture.file}.html").exists():
        golden_pages.compare(answer.text, f"{picture.file}.html")
    if (golden_pages.GOLDEN / f"{picture.file}.json").exists():
        golden_pages.compare(json.dumps(client.get(f"{url}.json?limit=3").json(), indent=1), f"{picture.file}.json")
    # Nothing has changed, so a poll is answered with 204.
    polled = re.search(r'hx-get="([^"]+version=[^"]+)"', answer.text)
    assert not polled or client.get(polled[1].replace("&amp;", "&"), headers={"hx-request": "true"}).status_code == 204
