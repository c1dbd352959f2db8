"""The API's documentation in a real browser, and requests that are tried from it."""

import json
from collections.abc import Callable

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from accounts import keys
from accounts.models import AccountEvent, ApiKey, EventKind, User
from tests.browser.conftest import axe_violations, faults_for_anybody, overflows, weight
from tests.browser.hand import leave
from tests.explorer.batches import a_batch
from tests.queries.api_document import OPERATIONS
from tests.service import ALICE, request

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def secret(context: BrowserContext, sign_in_as: Callable[..., User]) -> str:
    """The key of a user who is signed in."""
    sign_in_as(context, ALICE)
    found = keys.reveal(ApiKey.objects.get())
    assert found
    return found


def test_a_request_is_tried_with_one_s_own_key_by_the_keyboard_alone(page: Page, context: BrowserContext, secret: str):
    batch, sent = a_batch(), []
    page.on("request", lambda each: sent.append(f"{each.url} {each.post_data or ''}"))
    page.goto("/api/docs")
    page.get_by_role("link", name="List batch queries").press("Enter")
    operation = page.get_by_role("region", name="List batch queries")
    operation.get_by_text("Try it").click()
    operation.get_by_role("button", name="Send this request").press("Enter")
    expect(operation.get_by_role("status")).to_have_text("This request needs a key. Choose one at the top of the page.")

    page.get_by_role("button", name="Use my key").press("Enter")
    expect(page.locator("#key-status")).to_contain_text("Requests that need a key have default (")
    assert AccountEvent.objects.filter(kind=EventKind.KEY_SHOWN).count() == 1
    operation.get_by_label("limit").fill("1")
    operation.get_by_label("limit").press("Enter")
    expect(operation.get_by_role("status")).to_have_text("200 OK")
    expect(operation.get_by_label("What was answered")).to_contain_text(batch.pk)

    submission = page.get_by_role("region", name="Submit batch query", exact=True)
    submission.get_by_text("Try it").click()
    submission.get_by_role("textbox", name="Body").fill(json.dumps(request(ALICE, block=1) | {"fee": "x"}))
    submission.get_by_role("button", name="Send this request").press("Enter")
    expect(submission.get_by_role("status")).to_have_text("400 Bad Request")
    expect(submission.get_by_label("What was answered")).to_contain_text('"path": "/fee"')

    # It is in a header, and nowhere else.
    stored = page.evaluate("JSON.stringify([{ ...localStorage }, { ...sessionStorage }, document.cookie])")
    values = page.evaluate("[...document.querySelectorAll('input, textarea')].map((each) => each.value).join(' ')")
    assert secret not in "".join([*sent, stored, values, page.content(), str(context.cookies())])
    leave(page, "pagehide")
    expect(page.locator("#key-status")).to_have_text("The key is forgotten.")
    operation.get_by_role("button", name="Send this request").press("Enter")
    expect(operation.get_by_role("status")).to_have_text("This request needs a key. Choose one at the top of the page.")


def test_a_key_can_be_pasted_by_whoever_is_not_signed_in(page: Page, secret: str, open_context):
    page = open_context().new_page()
    page.goto("/api/docs")
    page.get_by_role("textbox", name="Key", exact=True).fill(secret)
    operation = page.get_by_role("region", name="Batch query status")
    operation.get_by_text("Try it").click()
    operation.get_by_label("batchQueryId").fill("x")
    operation.get_by_role("button", name="Send this request").click()
    expect(operation.get_by_role("status")).to_have_text("404 Not Found")


def test_what_is_typed_after_a_key_was_chosen_is_used(page: Page, secret: str):
    page.goto("/api/docs")
    page.get_by_role("button", name="Use my key").click()
    expect(page.locator("#key-status")).to_contain_text("Requests that need a key have default (")
    page.get_by_label("Or another").fill("bqs_another")
    expect(page.locator("#key-status")).to_have_text("Requests that need a key have the one that you have typed.")
    operation = page.get_by_role("region", name="List batch queries")
    operation.get_by_text("Try it").click()
    with page.expect_request("**/batch-queries*") as asked:
        operation.get_by_role("button", name="Send this request").click()
    assert asked.value.headers["api-key"] == "bqs_another"
    expect(operation.get_by_role("status")).to_have_text("401 Unauthorized")
    # And the other way round.
    page.get_by_role("button", name="Use my key").click()
    expect(page.get_by_label("Or another")).to_have_value("")
    operation.get_by_role("button", name="Send this request").click()
    expect(operation.get_by_role("status")).to_have_text("200 OK")


def test_the_documentation_is_for_anybody(page: Page, context: BrowserContext, secret: str, open_context):
    page.goto("/api/docs#get_batch_query_status")
    expect(page.get_by_role("button", name="Use my key")).to_be_visible()
    assert faults_for_anybody(page) == []
    page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    assert axe_violations(page) == []
    page.set_viewport_size({"width": 400, "height": 800})
    assert not overflows(page)
    assert weight(context, "/api/docs") < 60_000

    plain = open_context(java_script_enabled=False).new_page()
    plain.goto("/api/docs")
    assert plain.evaluate("document.documentElement.scrollHeight") < 20_000
    folded = plain.locator("#type-Rejection")
    expect(folded).to_be_hidden()
    plain.goto("/api/docs#type-Rejection")
    expect(folded).to_be_visible()
    expect(plain.get_by_role("button", name="Use my key")).to_be_hidden()
    expect(plain.get_by_text("Try it")).to_have_count(len(OPERATIONS))
    expect(plain.get_by_text("Try it").first).to_be_hidden()
    plain.get_by_text("Errors", exact=True).first.click()
    expect(plain.get_by_text("idempotency_key_reused")).to_be_visible()
