"""The API's page in a real browser, and requests that a visitor tries on it."""

import json

import pytest
from playwright.sync_api import Page, expect

from tests.service import ALICE, a_key, header, request

pytestmark = [pytest.mark.outside, pytest.mark.django_db(transaction=True)]


def test_a_batch_is_submitted_by_the_page_with_a_key_that_only_a_header_has(page: Page):
    secret, sent_requests = header(a_key())["api-key"], []
    page.on("request", lambda each: sent_requests.append(f"{each.url} {each.post_data or ''}"))
    page.goto("/api/docs")
    operation = page.locator("#operations-Batch_queries-submit_batch_query")

    def execute() -> None:
        operation.get_by_role("button", name="Try it out").click()
        operation.locator("textarea").fill(json.dumps(request(ALICE, block=1)))
        operation.get_by_role("button", name="Execute").click()

    page.get_by_role("button", name="Authorize").click()
    page.locator(".auth-container input").fill(secret)
    page.get_by_label("Apply credentials").click()
    page.get_by_role("button", name="Close").click()
    operation.locator(".opblock-summary-control").click()
    execute()
    expect(operation.locator(".live-responses-table")).to_contain_text('"internalId"')

    assert secret not in "".join(sent_requests)
    page.reload()
    execute()
    expect(operation.locator(".live-responses-table")).to_contain_text('"unauthorized"')
