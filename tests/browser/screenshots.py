"""Takes a picture of every page in every state, narrow and wide, light and dark, and checks each: `make screenshots`.

The pictures are for people to look through: build/screenshots/index.html has all of them side by side.
"""

import html
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext

from accounts.models import User
from devnet.devchain import PROJECT
from tests.browser.conftest import Stage
from tests.browser.pictures import (
    NARROW,
    PICTURES,
    WIDE,
    Picture,
    faults_as_shown,
    faults_of,
    open_picture,
    unfold,
)

pytestmark = pytest.mark.django_db(transaction=True)

FOLDER = Path(os.environ.get("SCREENSHOTS", PROJECT / "build" / "screenshots"))
# The page of the whole API, with all of it unfolded, takes Chromium longer than other pages.
_PATIENCE_MS = 120_000
VIEWS = [("light", WIDE), ("dark", WIDE), ("light", NARROW), ("dark", NARROW)]


@pytest.fixture(scope="session", autouse=True)
def folder() -> Iterator[None]:
    FOLDER.mkdir(parents=True, exist_ok=True)
    yield
    (FOLDER / "index.html").write_text("\n".join(_index()))


@pytest.mark.parametrize("picture", PICTURES, ids=lambda picture: picture.file)
def test_it_is_taken(
    picture: Picture, stage: Stage, open_context: Callable[..., BrowserContext], sign_in_as: Callable[..., User]
):
    url = picture.open(stage)
    context = open_context(viewport=WIDE, color_scheme="light")
    if picture.who:
        sign_in_as(context, picture.who)
    page = context.new_page()
    opened = open_picture(page, picture, url)
    faults = faults_of(opened, picture)
    told = {"name": picture.name, "bytes": opened.bytes, "screens": opened.screens, "status": opened.statuses[-1]}
    for scheme, size in VIEWS:
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]  # a literal type
        page.set_viewport_size(size)
        page.screenshot(
            path=FOLDER / f"{picture.file}.{size['width']}.{scheme}.png", full_page=True, timeout=_PATIENCE_MS
        )
        faults += [f"{scheme}, {size['width']} px: {fault}" for fault in faults_as_shown(page)]
    if unfold(page):
        page.emulate_media(color_scheme="light")
        page.screenshot(path=FOLDER / f"{picture.file}.400.unfolded.png", full_page=True, timeout=_PATIENCE_MS)
        faults += [f"unfolded: {fault}" for fault in faults_as_shown(page)]
    (FOLDER / f"{picture.file}.json").write_text(json.dumps(told | {"faults": faults}))
    assert faults == []


def _index() -> Iterator[str]:
    """A page with all pictures, those of a page in a row."""
    yield (
        "<!doctype html><meta charset=utf-8><title>Screenshots</title><style>"
        "body{font:15px sans-serif;margin:16px;background:#888;color:#000}"
        "section>div{display:flex;gap:12px;align-items:start;overflow-x:auto;padding-bottom:16px}"
        "img{display:block;height:560px;object-fit:cover;object-position:top}b{color:#900}</style>"
    )
    for picture in PICTURES:
        about = FOLDER / f"{picture.file}.json"
        if not about.exists():
            continue
        told = json.loads(about.read_text())
        yield f"<section><h2>{html.escape(told['name'])}</h2>"
        yield f"<p>{told['status']}; {told['bytes'] / 1000:.1f} kB; {told['screens']} screens at 400 px"
        yield "".join(f"<br><b>{html.escape(fault)}</b>" for fault in told["faults"]) + "</p><div>"
        for taken in sorted(FOLDER.glob(f"{picture.file}.*.png")):
            yield f'<a href="{taken.name}"><img loading=lazy src="{taken.name}" alt="{html.escape(taken.stem)}"></a>'
        yield "</div></section>"
