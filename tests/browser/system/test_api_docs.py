"""The API's page in a real browser, and requests that a visitor tries on it."""

import json

import pytest
from playwright.sync_api import Page, expect

from tests.service import ALICE, a_key, header, request

pytestmark = [pytest.mark.outside, pytest.mark.django_db(transaction=True)]


@pytest.mark.long
def test_a_batch_is_submitted_by_the_page_with_a_key_that_only_a_header_has(page: Page):
    secret, sent_requests = header(a_key())["api-key"], []
    page.on("request", lambda each: sent_requests.append(f"{each.url} {each.post_data or ''}"))
    page.goto("/api/docs")
    operation = page.get_by_role("region", name="POST /submit-batch-query")

    def send() -> None:
        operation.get_by_text("Try it").click()
        operation.get_by_label("Body").fill(json.dumps(request(ALICE, block=1)))
        operation.get_by_role("button", name="Send").click()

    page.get_by_label("API key").fill(secret)
    send()
    expect(operation.get_by_label("Answer")).to_contain_text('"internalId"')

    assert secret not in "".join(sent_requests)
    page.reload()
    send()
    expect(operation.get_by_label("Answer")).to_contain_text('"unauthorized"')


@pytest.mark.long
def test_each_schema_that_the_page_names_is_on_it(page: Page):
    page.goto("/api/docs")
    names = {link.get_attribute("href") for link in page.locator("main a[href^='#']").all()}
    assert {"#BatchRequest", "#Error", "#submit_batch_query"} <= names
    assert [name for name in names if page.locator(str(name)).count() != 1] == []
