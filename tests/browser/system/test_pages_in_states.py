"""Pages in their states are accessible, small and not too high. Only a selection is tested unless pictures are taken.

SCREENSHOTS names a folder in which each page is saved wide and narrow, light and dark: `make screenshots`.
"""

import os
from collections.abc import Callable

import pytest
from playwright.sync_api import BrowserContext

from accounts.models import User
from tests.browser.conftest import NARROW, NARROW_FONT, WIDE, Stage, written_in
from tests.browser.pictures import PICTURES, Picture, faults_as_shown, open_picture, unfold

pytestmark = pytest.mark.django_db(transaction=True)

FOLDER = os.environ.get("SCREENSHOTS")
VIEWS = [("light", WIDE), ("dark", NARROW), ("light", NARROW), ("dark", WIDE)]

SOME = {
    *("Batch: waits for attesters", "Batch: a time, slots and a header, DONE", "Batch: 60 queries", "Batch: unknown"),
    *("Home", "List: everybody's, full", "Dashboard: full", "Keys: three", "New batch, with faults", "Operator"),
    *("Facts: the latest", "Sign in by hand", "API", "Webhooks: deliveries"),
}
LONG = {
    *("Batch: REJECTED on the way", "Batch: rolled back", "Batch: old block, on the path", "List: empty", "Chains"),
    *("Dashboard: new", "New batch", "New batch, a token's slot", "Batch: self-funded, your turn", "Sign in"),
    *("Batch: an account and two transactions, DONE", "Batch: a token's balance, DONE", "Why a read reverts: a slot"),
}


def test_the_table_has_each_page_once():
    files = [picture.file for picture in PICTURES]
    assert len(set(files)) == len(files)
    assert {picture.name for picture in PICTURES} >= SOME | LONG


def test_fonts_are_those_of_the_locked_packages(context: BrowserContext):
    """Tell fonts apart by the width of a text of 100 px. A font of the machine has another."""
    page = context.new_page()
    width = (
        "font => { const pen = document.createElement('canvas').getContext('2d'); pen.font = `100px ${font}`; "
        "return pen.measureText('0x12ab').width; }"
    )
    widths = {font: page.evaluate(width, font) for font in ("sans-serif", "monospace", NARROW_FONT)}
    assert widths == pytest.approx({"sans-serif": 375, "monospace": 361, NARROW_FONT: 259}, abs=3)


@pytest.mark.story("batch--60-queries")
@pytest.mark.long
@pytest.mark.parametrize(
    "picture",
    [
        pytest.param(picture, id=picture.file, marks=[] if FOLDER or picture.name in SOME else pytest.mark.long)
        for picture in PICTURES
        if FOLDER or picture.name in SOME | LONG
    ],
)
def test_nobody_is_kept_out_of_a_page(
    picture: Picture, stage: Stage, open_context: Callable[..., BrowserContext], sign_in_as: Callable[..., User]
):
    url = picture.open(stage)
    context = open_context(color_scheme="light")
    if picture.who:
        sign_in_as(context, picture.who)
    page = context.new_page()
    faults = open_picture(page, picture, url)
    if FOLDER:
        page.set_viewport_size(WIDE)  # type: ignore[arg-type]  # a typed dictionary of the same keys
        page.screenshot(path=f"{FOLDER}/{picture.file}.png", full_page=True)
    unfold(page)
    for scheme, size in VIEWS if FOLDER else VIEWS[:2]:
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]  # a literal type
        page.set_viewport_size(size)  # type: ignore[arg-type]  # a typed dictionary of the same keys
        faults += [f"{scheme}, {size['width']} px: {fault}" for fault in faults_as_shown(page)]
        with written_in(page, NARROW_FONT):
            faults += [f"{NARROW_FONT}, {size['width']} px: {fault}" for fault in faults_as_shown(page, "target-size")]
        if FOLDER:
            page.screenshot(path=f"{FOLDER}/{picture.file}.{size['width']}.{scheme}.png", full_page=True)
    assert faults == []
