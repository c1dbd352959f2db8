"""Pages in their states: texts, JSON, and rules for all of them. tests/browser/pictures.py has the table."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from tests.browser.conftest import Stage
from tests.browser.pictures import PICTURES, Picture
from tests.factories import client_of
from tests.golden_pages import compare

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    "picture", [picture for picture in PICTURES if picture.then is Picture.then], ids=lambda picture: picture.file
)
def test_a_page_is_as_it_was(picture: Picture, settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    url = picture.open(Stage(settings, tmp_path, monkeypatch, lambda: pytest.fail("It needs no chain.")))
    client = client_of(picture.who) if picture.who else Client()
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
    compare(answer.text, f"{picture.file}.html")
    if answer.status_code == 200 and re.fullmatch(r"/explorer/query/\w{26}", url):
        compare(json.dumps(client.get(f"{url}.json?limit=3").json(), indent=1), f"{picture.file}.json")
    # Nothing has changed, so a poll is answered with 204.
    polled = re.search(r'hx-get="([^"]+version=[^"]+)"', answer.text)
    assert not polled or client.get(polled[1].replace("&amp;", "&"), headers={"hx-request": "true"}).status_code == 204
