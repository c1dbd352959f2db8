"""The form for a new batch in a real browser."""

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import BrowserContext, expect

from accounts.models import User
from devnet.devchain import DevChain
from queries.models import Batch
from tests.explorer.batches import path
from tests.service import ALICE, BOB

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.long
def test_without_javascript_each_button_does_its_part(
    service: DevChain, open_context: Callable[..., BrowserContext], sign_in_as: Callable[..., User]
):
    context = open_context(java_script_enabled=False)
    sign_in_as(context, ALICE)
    page = context.new_page()
    page.goto("/new-batch")
    page.get_by_label("Accounts").fill(ALICE)
    page.locator("summary", has_text="Storage slots").click()
    page.get_by_label("Its own slot").fill("0")
    page.get_by_label("Keys or index").fill(BOB)
    page.get_by_role("button", name="Add this slot").click()
    expect(page.get_by_label("Slots")).to_have_value(re.compile(f'"keys": ."{BOB}".'))
    page.get_by_role("button", name="Add a row").click()
    page.locator("#id_rows-1-accounts").fill(BOB)
    page.get_by_role("button", name="Estimate", exact=True).click()
    expect(page.locator("#estimate")).to_contain_text("Already proven")
    # A sign-in in another tab replaces the CSRF token.
    context.add_cookies([{"name": "csrftoken", "value": "n" * 32, "url": page.url}])
    page.get_by_role("button", name="Submit 3 facts").click()
    expect(page.get_by_role("alert")).to_contain_text("Nothing was submitted.")
    page.get_by_role("button", name="Go on").click()
    page.get_by_role("button", name="Submit 3 facts").click()
    expect(page).to_have_url(re.compile(path(Batch.objects.get())))


@pytest.mark.long
def test_typed_values_survive_going_back_and_a_session_that_ends(
    service: DevChain, context: BrowserContext, sign_in_as: Callable[..., User]
):
    sign_in_as(context, ALICE)
    page = context.new_page()
    page.goto("/new-batch")
    accounts, submit = page.get_by_label("Accounts"), page.get_by_role("button", name=re.compile("^Submit"))
    accounts.fill(ALICE)
    page.goto("/chains")
    page.go_back()
    expect(accounts).to_have_value(ALICE)
    context.clear_cookies()
    submit.click()
    expect(page.get_by_role("alert")).to_contain_text("You are signed out. Sign in from another tab, then go on here.")
    sign_in_as(context, ALICE)
    context.new_page().goto("/dashboard")
    page.get_by_role("button", name="Go on").click()
    expect(accounts).to_have_value(ALICE)
    submit.click()
    expect(page).to_have_url(re.compile(path(Batch.objects.get())))
