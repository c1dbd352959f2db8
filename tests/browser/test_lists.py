"""The home page and the lists of batches in a real browser."""

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from accounts.models import User
from queries import progress
from queries.rejection_codes import RejectionCode
from tests.browser.conftest import overflows
from tests.explorer.batches import a_batch, finish, path
from tests.service import ALICE

pytestmark = pytest.mark.django_db(transaction=True)

SignIn = Callable[..., User]


def test_a_visitor_finds_a_batch_by_its_identifier_from_the_home_page(page: Page):
    batch = a_batch()
    page.goto("/")
    page.get_by_role("searchbox").fill(batch.pk.lower())
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(f"{path(batch)}$"))


def test_filters_are_in_the_address_so_that_they_can_be_shared(page: Page, context: BrowserContext, sign_in_as: SignIn):
    sign_in_as(context, ALICE)
    kept, other = a_batch(), a_batch(block=13)
    progress.reject([kept.pk], code=RejectionCode.PROOF_UNAVAILABLE, reason="X.", retryable=False)
    page.goto("/explorer")
    expect(page.get_by_text(other.pk)).to_be_visible()
    page.get_by_label("Status").select_option("REJECTED")
    page.get_by_role("button", name="Find").click()
    expect(page.get_by_text(kept.pk)).to_be_visible()
    expect(page.get_by_text(other.pk)).to_have_count(0)
    page.goto(page.url)
    expect(page.get_by_label("Status")).to_have_value("REJECTED")
    expect(page.get_by_text(other.pk)).to_have_count(0)


def test_an_account_is_found_from_the_list(page: Page, context: BrowserContext, sign_in_as: SignIn):
    sign_in_as(context, ALICE)
    a_batch()
    page.goto("/explorer")
    page.get_by_label("Search").fill(ALICE)
    page.keyboard.press("Enter")
    expect(page.get_by_text("With the account")).to_be_visible()
    page.get_by_role("link", name=f"Balance of {ALICE} at block 12").click()
    expect(page.locator(".headline .chip")).to_have_text("RECEIVED")


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


def test_the_menu_closes_by_escape_and_by_a_click_elsewhere(page: Page, context: BrowserContext, sign_in_as: SignIn):
    sign_in_as(context, ALICE)
    page.goto("/")
    menu = page.locator(".menu")
    menu.locator("summary").press("Enter")
    expect(page.get_by_role("button", name="Sign out")).to_be_visible()
    page.keyboard.press("Tab")
    page.keyboard.press("Escape")
    expect(menu.locator("summary")).to_be_focused()
    expect(page.get_by_role("button", name="Sign out")).to_be_hidden()
    menu.locator("summary").click()
    page.locator("h1").click()
    expect(page.get_by_role("button", name="Sign out")).to_be_hidden()


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
