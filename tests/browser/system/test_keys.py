from itertools import product

import pytest
from playwright.sync_api import Page, expect

from accounts.models import ApiKey
from tests.browser.hand import leave
from tests.service import secret_of


@pytest.fixture
def key(alice) -> ApiKey:
    return ApiKey.objects.get()


def card(page: Page, name: str = "default"):
    return page.get_by_role("row", name=name)


# --- Showing and copying ----------------------------------------------------------------------------------------------


def test_a_shown_key_is_hidden_after_a_minute(page, key):
    page.clock.install()
    page.goto("/keys")
    card(page).get_by_role("button", name="Show").click()
    expect(card(page).locator("[data-key]")).to_have_text(secret_of(key))
    page.clock.fast_forward(50_000)
    expect(card(page).locator("[data-key]")).to_have_text(secret_of(key))
    page.clock.fast_forward(11_000)
    expect(card(page).locator("[data-key]")).to_have_text(f"{key.prefix}…{key.last_four}", timeout=10_000)
    assert secret_of(key) not in page.content()


@pytest.mark.long
def test_a_shown_key_is_hidden_when_the_page_is_left(page, key):
    for event, shown_by in product(("pagehide", "visibilitychange"), ("script", "post")):
        page.goto("/keys")
        if shown_by == "post":
            # `submit()` fires no submit event, so the page's script doesn't handle the form.
            page.evaluate("document.querySelector('form[data-reveal]').submit()")
            page.wait_for_url("**/reveal")
        else:
            card(page).get_by_role("button", name="Show").click()
        expect(card(page)).to_contain_text(secret_of(key))
        leave(page, event)
        assert secret_of(key) not in page.content(), (event, shown_by)


@pytest.mark.long
def test_nothing_that_the_browser_keeps_or_sends_holds_a_key(page, context, key):
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    secret, sent, holding = secret_of(key), [], []

    def record(response) -> None:
        request = response.request
        sent.append(f"{request.url} {request.all_headers()} {request.post_data or ''}")
        if response.status < 300 and secret in response.text():
            holding.append((response.url, response.header_value("cache-control")))

    page.on("requestfinished", lambda request: record(request.response()))
    page.goto("/keys")
    card(page).get_by_role("button", name="Copy").click()
    expect(card(page).get_by_role("status")).to_have_text("Copied.")
    card(page).get_by_role("button", name="Show").click()
    expect(card(page).locator("[data-key]")).to_have_text(secret)
    for path in ("/dashboard/log", f"/dashboard/keys/{key.pk}/rotate", f"/dashboard/keys/{key.pk}/revoke", "/"):
        page.goto(path)
        assert secret not in page.content()
    page.go_back()
    page.goto("/keys")
    assert secret not in page.content()

    assert len(sent) > 10
    assert secret not in "".join(sent)
    assert {url.rpartition("/")[2] for url, _ in holding} == {"reveal"}
    assert all("no-store" in cached for _, cached in holding)
    stored = page.evaluate(
        "JSON.stringify([{ ...localStorage }, { ...sessionStorage }, document.cookie, history.state])"
    )
    assert secret not in stored + str(context.cookies())
    assert page.evaluate("caches.keys()") == []
