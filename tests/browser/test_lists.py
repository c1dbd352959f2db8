"""The home page and the lists of batches in a real browser."""

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from accounts.models import User
from queries import progress
from queries.rejection_codes import RejectionCode
from tests.explorer.batches import a_batch, path
from tests.service import ALICE

pytestmark = pytest.mark.django_db(transaction=True)

SignIn = Callable[..., User]


def test_a_visitor_finds_a_batch_by_its_identifier_from_the_home_page(page: Page):
    batch = a_batch()
    page.goto("/")
    page.get_by_label("Find a batch").fill(batch.pk.lower())
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
