"""The home page and the lists of batches in a real browser."""

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from accounts.models import User
from tests.browser.conftest import overflows
from tests.explorer.batches import a_batch, finish
from tests.service import ALICE

pytestmark = pytest.mark.django_db(transaction=True)

SignIn = Callable[..., User]


def test_the_header_is_one_row_at_400_px_with_search_a_new_batch_and_a_menu(
    page: Page, context: BrowserContext, sign_in_as: SignIn
):
    sign_in_as(context, ALICE)
    for width in (320, 400, 700, 900, 1100, 1280):
        page.set_viewport_size({"width": width, "height": 800})
        page.goto("/")
        height = page.locator("header.top").bounding_box()
        assert height
        assert height["height"] <= 62, width
        expect(page.get_by_role("searchbox")).to_be_visible()
        expect(page.get_by_role("link", name="New batch")).to_be_visible()
        expect(page.get_by_role("link", name="Facts")).to_be_hidden() if width < 1024 else None
        page.locator(".menu > summary").click()
        expect(page.get_by_role("link", name="Facts").filter(visible=True)).to_have_count(1)
        page.get_by_role("link", name="Keys").click()
        expect(page).to_have_url(re.compile("/keys$"))
        assert not overflows(page)


def test_a_key_searches_and_a_key_begins_a_batch_unless_they_are_turned_off(
    page: Page, context: BrowserContext, sign_in_as: SignIn
):
    sign_in_as(context, ALICE)
    page.goto("/chains")
    page.keyboard.press("/")
    search = page.get_by_role("searchbox")
    expect(search).to_be_focused()
    page.keyboard.type("n/")
    expect(search).to_have_value("n/")
    page.get_by_role("button", name="Turn them off").click()
    page.keyboard.press("n")
    page.keyboard.press("/")
    expect(search).not_to_be_focused()
    page.reload()
    page.keyboard.press("/")
    expect(search).not_to_be_focused()
    page.get_by_role("button", name="Turn them on").press("Enter")
    page.keyboard.press("Control+n")
    expect(page).to_have_url(re.compile("/chains$"))
    page.locator("h1").click()
    page.keyboard.press("n")
    expect(page).to_have_url(re.compile("/new-batch$"))
    expect(page.get_by_role("link", name="New batch")).to_have_count(0)
    page.goto("/explorer")
    page.keyboard.press("/")
    expect(page.get_by_label("Search")).to_be_focused()


def test_without_javascript_search_and_menu_work(open_context: Callable[..., BrowserContext], sign_in_as: SignIn):
    context = open_context(java_script_enabled=False, viewport={"width": 400, "height": 800})
    sign_in_as(context, ALICE)
    finish(a_batch())
    page = context.new_page()
    page.goto("/")
    expect(page.get_by_text("Turn them off")).to_be_hidden()
    page.get_by_role("searchbox").fill(ALICE)
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Proven of this account")).to_be_visible()
    page.get_by_role("link", name="More about these facts").click()
    page.get_by_text("Read it from a contract").click()
    expect(page.get_by_text("interface IFactsRegistry")).to_be_visible()
    page.locator(".menu > summary").click()
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("button", name="Sign out")).to_have_count(0)
