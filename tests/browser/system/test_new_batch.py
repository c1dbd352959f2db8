"""The form for a new batch in a real browser."""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from accounts.models import User
from devnet.devchain import DevChain
from queries.models import Batch
from tests.browser.conftest import Stage
from tests.browser.pictures import FIRST_CONTRACT, beside_a_token
from tests.explorer.batches import path
from tests.service import ALICE, BOB

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def open_form(open_context: Callable[..., BrowserContext], sign_in_as: Callable[..., User]) -> Callable[..., Page]:
    """Return a function that opens the form for Alice in a new browser profile with Playwright's options."""

    def open_form(**options: Any) -> Page:
        context = open_context(**options)
        sign_in_as(context, ALICE)
        page = context.new_page()
        page.goto("/new-batch")
        return page

    return open_form


@pytest.mark.long
def test_without_javascript_each_button_does_its_part(service: DevChain, open_form: Callable[..., Page], settings: Any):
    page = open_form(java_script_enabled=False)
    page.get_by_role("radio", name="Storage slot").check()
    page.get_by_label("Accounts").fill(ALICE)
    page.locator("summary", has_text="Slot of a value in a mapping").click()
    page.get_by_label("Its own slot").fill("0")
    page.get_by_label("Keys or index").fill(BOB)
    page.get_by_role("button", name="Add this slot").click()
    expect(page.get_by_label("Slots")).to_have_value(re.compile(f'"keys": ."{BOB}".'))
    page.get_by_role("button", name="Add a row").click()
    page.locator("[name=rows-1-kind][value=balance]").check()
    page.locator("#id_rows-1-accounts").fill(BOB)
    page.get_by_role("button", name="Estimate", exact=True).click()
    expect(page.locator("#estimate")).to_contain_text("Already proven")
    # A sign-in in another tab replaces the CSRF token.
    page.context.add_cookies([{"name": settings.CSRF_COOKIE_NAME, "value": "n" * 32, "url": page.url}])
    page.get_by_role("button", name="Submit 2 facts").click()
    expect(page.get_by_role("alert")).to_contain_text("Nothing was submitted.")
    page.get_by_role("button", name="Go on").click()
    page.get_by_role("button", name="Submit 2 facts").click()
    expect(page).to_have_url(re.compile(path(Batch.objects.get())))


@pytest.mark.long
def test_typed_values_survive_going_back_and_a_session_that_ends(
    service: DevChain, open_form: Callable[..., Page], sign_in_as: Callable[..., User]
):
    page = open_form()
    accounts, submit = page.get_by_label("Accounts"), page.get_by_role("button", name=re.compile("^Submit"))
    accounts.fill(ALICE)
    page.goto("/chains")
    page.go_back()
    expect(accounts).to_have_value(ALICE)
    page.context.clear_cookies()
    submit.click()
    expect(page.get_by_role("alert")).to_contain_text("You are signed out. Sign in from another tab, then go on here.")
    sign_in_as(page.context, ALICE)
    page.context.new_page().goto("/dashboard")
    page.get_by_role("button", name="Go on").click()
    expect(accounts).to_have_value(ALICE)
    submit.click()
    expect(page).to_have_url(re.compile(path(Batch.objects.get())))


@pytest.mark.long
def test_the_keyboard_alone_chooses_a_file(open_form: Callable[..., Page]):
    page = open_form()
    button = page.get_by_role("button", name="Choose a CSV file")
    outline = "one => getComputedStyle(one).outlineStyle + getComputedStyle(one).outlineWidth"
    # The browser tells of the dialog only from a while after this.
    with page.expect_file_chooser() as chosen:
        for _ in range(30):
            page.keyboard.press("Tab")
            if button.evaluate("one => one === document.activeElement"):
                break
        expect(button).to_be_focused()
        assert button.evaluate(outline) == "solid2px"
        page.keyboard.press("Enter")
    chosen.value.set_files({"name": "a.csv", "mimeType": "text/csv", "buffer": f"account\n{BOB}\n".encode()})
    expect(page.get_by_label("Accounts")).to_have_value(BOB)


BROWSERS: list[dict[str, Any]] = [{}, {"java_script_enabled": False}]
FIELDS_OF_KINDS = {
    "Balance": ["Accounts", "Properties"],
    "Token balance": ["Token", "Holder"],
    "Votes of a token": ["Token", "Holder"],
    "Storage slot": ["Accounts", "Slots"],
    "Event or transaction": ["Transactions", "Logs", "Logs as the block counts", "Properties of the transactions"],
    "Block header": ["Header fields"],
}


@pytest.mark.long
@pytest.mark.parametrize("options", BROWSERS)
def test_each_choice_shows_its_fields_alone(open_form: Callable[..., Page], options: dict[str, Any]):
    page = open_form(**options)
    of_rows = page.locator(".ask .field > :is(label, legend)")
    for kind, labels in FIELDS_OF_KINDS.items():
        page.get_by_role("radio", name=re.compile(f"^{kind}")).check()
        shown = [label.inner_text() for label in of_rows.all() if label.is_visible()]
        _, *others = shown  # the choice itself
        assert others == ["Source chain", "At", *labels], kind


@pytest.mark.long
@pytest.mark.parametrize("options", BROWSERS)
def test_a_transaction_needs_no_other_block(service: DevChain, open_form: Callable[..., Page], options: dict[str, Any]):
    sent = service.rpc("eth_sendTransaction", {"from": ALICE, "to": BOB, "value": "0x1"})
    service.mine(2)
    page = open_form(**options)
    page.get_by_role("radio", name="Event or transaction").check()
    page.get_by_role("textbox", name="Transactions").fill(sent)
    if not options:
        expect(page.get_by_role("radio", name="Transaction", exact=True)).to_be_checked()
        expect(page.locator("#estimate")).to_contain_text("Receipts and hashes")
        page.get_by_role("radio", name="Block header").check()
        expect(page.get_by_role("radio", name="Latest")).to_be_checked()
        page.get_by_role("radio", name="Event or transaction").check()
    page.get_by_role("button", name=re.compile("^Submit")).click()
    expect(page).to_have_url(re.compile("/explorer/query/"))
    (data,) = json.loads(Batch.objects.get().request)["data"].values()
    assert data == {f"transaction:{sent}": {"transactions": {sent: {"props": ["STATUS"]}}}}


@pytest.mark.long
@pytest.mark.parametrize("options", BROWSERS)
def test_a_holder_of_a_token_leads_to_a_batch_about_its_slot(
    stage: Stage, open_form: Callable[..., Page], options: dict[str, Any]
):
    beside_a_token(stage)
    page = open_form(**options)
    page.get_by_role("radio", name="Token balance").check()
    page.get_by_role("textbox", name="Token").fill(FIRST_CONTRACT)
    page.get_by_role("textbox", name="Holder").fill(BOB[:20])
    page.get_by_role("button", name="Find the slot").click()
    expect(page.locator(".err")).to_contain_text("and an address has 40.")
    page.get_by_role("textbox", name="Holder").fill(ALICE)
    page.get_by_role("button", name="Find the slot").click()
    expect(page.locator(".found")).to_contain_text("The word of this slot is the answer")
    expect(page.locator("#found-0")).to_be_focused()
    if not options:
        expect(page.locator("#estimate")).to_contain_text("Already proven")
        page.get_by_role("textbox", name="Holder").fill(BOB)
        expect(page.locator("#estimate")).to_contain_text("Press “Find the slot” first.")
        expect(page.locator(".found")).to_have_count(0)
        page.get_by_role("textbox", name="Holder").fill(ALICE)
        expect(page.locator(".found")).to_be_visible()
    page.get_by_role("button", name="Submit 1 fact").click()
    expect(page).to_have_url(re.compile(path(Batch.objects.get())))
    (data,) = json.loads(Batch.objects.get().request)["data"].values()
    (slot,) = data["latest"]["accounts"][FIRST_CONTRACT]["slots"]
    assert (slot["keys"], slot["layout"]) == ([ALICE], "vyper")


@pytest.mark.long
def test_on_a_phone_the_cost_and_the_button_stay_in_sight(service: DevChain, open_form: Callable[..., Page]):
    page = open_form(viewport={"width": 390, "height": 800})
    submit = page.get_by_role("button", name=re.compile("^Submit"))
    expect(submit).to_be_in_viewport(ratio=1)
    page.get_by_label("Accounts").fill(ALICE)
    cost = page.locator("#bar-cost")
    expect(cost).to_contain_text("ETH")
    for target in (cost, submit):
        expect(target).to_be_in_viewport(ratio=1)
    # Nothing that takes the focus lies below the bar.
    page.get_by_role("button", name="Add a row").focus()
    (button, bar) = (
        locator.bounding_box() for locator in (page.get_by_role("button", name="Add a row"), page.locator(".pay"))
    )
    assert button
    assert bar
    assert button["y"] + button["height"] <= bar["y"]
