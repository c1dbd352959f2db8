"""The HTML of pages in their states, as it is kept in `golden/`: `GOLDEN=write` writes it anew, for `git diff` to show.

What differs from one time to the next has one word in its place.
"""

import os
import re
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from config.configured_chains import forget_chains
from tests.browser.conftest import DEAD_NODE, Stage
from tests.browser.pictures import OTHERS, Picture
from tests.factories import client_of
from tests.service import chains_toml

pytestmark = pytest.mark.django_db

GOLDEN = Path(__file__).parent / "golden"
_BLOCKS = "h1|h2|h3|p|li|ol|ul|dl|div|dt|dd|tr|td|th|table|form|section|article|label|nav|summary|details|figure|pre"
# Characters of a page: lists repeat themselves.
_MOST_KEPT = 8000
# In this order: what is left out or named, and by what.
_REPLACED = (
    (r"<svg.*?</svg>", ""),
    (r'<button[^>]* class="copy".*?</button>', ""),
    (r'<tr class="group".*?</tr>|<p class="axis".*?</p>|<tbody><tr><th scope="row">\d{4}-.*?</tbody>', ""),
    (r"</tbody>\s*<tbody[^>]*>", ""),
    (r"about [\d,]+ gas|0\.000\d+", "COST"),
    (r'<span class="(?:mid|g)">([\w.]*)</span>(?:<wbr>)?', r"\1"),
    (r'(name="csrfmiddlewaretoken" value=)"\w+"', r'\1"TOKEN"'),
    (r'(data-(?:since|until|aged|now)|datetime)="[^"]+"', r'\1="MOMENT"'),
    (r"0x[0-9a-f]{64}", "HASH"),
    (r"\b[0-9A-HJKMNP-TV-Z]{26}\b", "ULID"),
    (r"bqs_\w+…\w+", "KEY"),
    (r"(key[s]?[/-])\d+", r"\1N"),
    (r"(cursor=)[\d.]+", r"\1PLACE"),
    (r"\d{4}-\d\d-\d\d(?: \d\d:\d\d(?::\d\d)?)?", "DATE"),
    (r"\b\d\d:\d\d:\d\d\b", "CLOCK"),
    (r"\b\d+(?:\.\d+)? (?:s|min|h|d)\b(?: \d+ (?:s|min|h)\b)?", "TIME"),
    (r"\s+", " "),
    (rf" ?(</?(?:{_BLOCKS})\b)", r"\n\1"),
    (r"\n(</)", r"\1"),
)


def as_kept(html: str) -> str:
    kept = f"{html[html.index('<title') : html.index('</title>')]}\n{html[html.index('<main') : html.index('</main>')]}"
    for pattern, word in _REPLACED:
        kept = re.sub(pattern, word, kept, flags=re.DOTALL)
    return f"{kept.strip()[:_MOST_KEPT]}\n"


@pytest.mark.parametrize(
    "picture",
    [one for one in OTHERS if one.then is Picture.then and not one.file.startswith("new-batch")],
    ids=lambda picture: picture.file,
)
def test_a_page_says_what_it_did(picture: Picture, settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    settings.CHAINS_FILE = chains_toml(tmp_path, DEAD_NODE)
    forget_chains()
    url = picture.open(Stage(settings, tmp_path, monkeypatch, lambda: pytest.fail("It needs no chain.")))
    client = client_of(picture.who) if picture.who else Client()
    client.raise_request_exception = False
    answer = client.get(url, follow=True, headers={"accept": "text/html,*/*;q=0.8"})
    assert answer.status_code == picture.status
    assert "default-src 'none'" in (policy := answer.headers["Content-Security-Policy"])
    assert "unsafe" not in policy
    assert not re.search(
        r"<script(?![^>]*\ssrc=)|<style|\s(style|on\w+|hx-on[:\w-]*|hx-vals)=|javascript:", answer.text
    )
    assert not re.search(r'(?:src|href|action)="(?:https?:)?//', answer.text), "It names another host."
    assert answer.text.count("<h1") == 1
    kept, found = GOLDEN / f"{picture.file}.html", as_kept(answer.text)
    if os.environ.get("GOLDEN") == "write":
        kept.write_text(found)
    assert found == kept.read_text()
