import re
from datetime import timedelta

import pytest
from django.test import Client
from playwright.sync_api import Page, expect

from accounts import keys
from accounts.models import AccountEvent, ApiKey
from tests.browser.conftest import faults_for_anybody
from tests.browser.hand import leave
from tests.service import secret_of


@pytest.fixture
def key(alice) -> ApiKey:
    return ApiKey.objects.get()


def card(page: Page, name: str = "default"):
    return page.get_by_role("region", name=name, exact=True)


def works(secret: str) -> bool:
    """Return whether the API takes the key: it then misses only the batch."""
    status = Client().get("/batch-query-status", {"batchQueryId": "x"}, headers={"api-key": secret}).status_code
    return {401: False, 404: True}[status]


# --- Showing and copying ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/keys", "/dashboard"])
def test_a_key_is_shown_on_request_and_hidden_again(page, key, path):
    page.goto(path)
    expect(card(page)).to_contain_text(f"{key.prefix}…{key.last_four}")
    assert secret_of(key) not in page.content()
    card(page).get_by_role("button", name="Show").click()
    expect(card(page).locator("[data-key]")).to_have_text(secret_of(key))
    card(page).get_by_role("button", name="Hide").click()
    expect(card(page).locator("[data-key]")).to_have_text(f"{key.prefix}…{key.last_four}")
    assert secret_of(key) not in page.content()


def test_a_shown_key_is_hidden_after_a_minute(page, key):
    page.clock.install()
    page.goto("/keys")
    card(page).get_by_role("button", name="Show").click()
    expect(card(page).locator("[data-key]")).to_have_text(secret_of(key))
    page.clock.fast_forward(59_000)
    expect(card(page).locator("[data-key]")).to_have_text(secret_of(key))
    page.clock.fast_forward(2_000)
    expect(card(page).locator("[data-key]")).to_have_text(f"{key.prefix}…{key.last_four}")
    assert secret_of(key) not in page.content()


@pytest.mark.parametrize("event", ["pagehide", "visibilitychange"])
@pytest.mark.parametrize("shown_by", ["script", "post"])
def test_a_shown_key_is_hidden_when_the_page_is_left(page, key, event, shown_by):
    page.goto("/keys")
    if shown_by == "post":
        page.evaluate("document.querySelector('form[data-reveal]').submit()")  # past the script's listener
        page.wait_for_url("**/reveal")
    else:
        card(page).get_by_role("button", name="Show").click()
    expect(card(page)).to_contain_text(secret_of(key))
    leave(page, event)
    assert secret_of(key) not in page.content()


@pytest.mark.parametrize("event", ["pagehide", "visibilitychange"])
def test_a_key_that_comes_after_the_page_was_left_is_not_shown(page, key, event):
    page.goto("/keys")
    answers = []
    page.route("**/reveal", lambda route: answers.append(route))  # noqa: PLW0108 (Playwright marks what it is given)
    with page.expect_request("**/reveal"):
        card(page).get_by_role("button", name="Show").click()
    leave(page, event)
    answers[0].continue_()
    expect(card(page).get_by_role("status")).to_have_text("Not shown, because you left the page.")
    assert secret_of(key) not in page.content()
    with page.expect_request("**/reveal"):
        card(page).get_by_role("button", name="Show").click()
    page.evaluate("0")  # Playwright tells of the request first, and of its route just after.
    answers[1].continue_()
    expect(card(page).locator("[data-key]")).to_have_text(secret_of(key))


def test_a_copied_key_is_in_the_clipboard_alone(page, context, key):
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.goto("/keys")
    card(page).get_by_role("button", name="Copy").click()
    expect(card(page).get_by_role("status")).to_have_text("Copied.")
    assert page.evaluate("navigator.clipboard.readText()") == secret_of(key)
    assert secret_of(key) not in page.content()
    assert AccountEvent.objects.get().key_name == "default"


def test_what_can_not_be_shown_is_said(page, alice, key):
    page.goto("/keys")
    keys.revoke(key)
    card(page).get_by_role("button", name="Show").click()
    expect(card(page).get_by_role("status")).to_have_text("This key has expired or was revoked. Reload the page.")
    alice.end_sessions()
    card(page).get_by_role("button", name="Show").click()
    expect(card(page).get_by_role("status")).to_have_text("You are no longer signed in. Reload the page.")


def test_a_key_is_shown_without_javascript(open_context, sign_in_as):
    context = open_context(java_script_enabled=False)
    sign_in_as(context)
    page, secret = context.new_page(), secret_of(ApiKey.objects.get())
    page.goto("/keys")
    expect(page.get_by_role("button", name="Copy")).to_be_hidden()
    card(page).get_by_role("button", name="Show").click()
    expect(page.get_by_text(secret)).to_be_visible()
    page.get_by_role("link", name="Hide").click()
    expect(page.get_by_text(secret)).to_be_hidden()


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


# --- Making and revoking ----------------------------------------------------------------------------------------------


def test_a_key_is_made_with_the_keyboard_alone(page, key):
    page.goto("/keys")
    page.get_by_label("Name").focus()
    page.keyboard.type("  nightly   run ")
    page.keyboard.press("Enter")
    expect(page.get_by_role("main").get_by_text("The key nightly run was made.")).to_be_visible()
    expect(card(page, "nightly run")).to_be_visible()
    page.get_by_label("Name").fill("default")
    page.get_by_role("button", name="Make a key").press("Enter")
    expect(page.get_by_role("alert")).to_have_text("You already have a key named default. Choose another name.")
    expect(page.get_by_label("Name")).to_have_value("default")
    expect(page.get_by_label("Name")).to_be_focused()


def test_a_rotated_key_goes_on_until_its_end(page, key):
    page.goto("/keys")
    card(page).get_by_role("link", name="Rotate default").press("Enter")
    expect(page.get_by_label("Name of the new key")).to_have_value("default 2")
    expect(page.get_by_label("for one more day")).to_be_checked()
    page.get_by_label("for one more day").press("ArrowDown")
    expect(page.get_by_label("for seven more days")).to_be_checked()
    page.get_by_role("button", name="Make the new key").press("Enter")
    expect(card(page)).to_contain_text("It expires at")
    expect(card(page).get_by_role("link", name="Rotate default")).to_have_count(0)
    expect(card(page, "default 2").get_by_role("link", name="Rotate default 2")).to_be_visible()

    new = ApiKey.objects.get(name="default 2")
    assert works(secret_of(key))
    assert works(secret_of(new))
    ApiKey.objects.filter(pk=key.pk).update(expires_at=key.created_at + timedelta(seconds=0))
    page.reload()
    expect(card(page)).to_have_count(0)
    assert not works(secret_of(key))
    assert works(secret_of(new))


def test_a_key_is_revoked_for_good_after_a_question(page, key):
    page.goto("/keys")
    card(page).get_by_role("link", name="Revoke default").press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("Revoke the key default?")
    assert works(secret_of(key))
    page.get_by_role("button", name="Revoke it for good").press("Enter")
    expect(page.get_by_role("main")).to_contain_text("The key default was revoked.")
    expect(page.get_by_text("You have no key.")).to_be_visible()
    assert not works(secret_of(key))
    expect(page.get_by_role("listitem").filter(has_text="Key revoked")).to_contain_text("default")


def test_signing_out_everywhere_ends_the_other_browser_too(page, open_context, sign_in_as, key):
    other = open_context()
    sign_in_as(other)
    elsewhere = other.new_page()
    elsewhere.goto("/keys")
    expect(elsewhere).to_have_url(re.compile("/keys$"))

    page.goto("/keys")
    page.get_by_role("button", name="Sign out everywhere").press("Enter")
    expect(page).to_have_url(re.compile("/sign-in$"))
    elsewhere.reload()
    expect(elsewhere).to_have_url(re.compile("/sign-in"))
    assert works(secret_of(key))


# --- For everybody ----------------------------------------------------------------------------------------------------


def test_the_pages_of_keys_are_for_anybody(page, alice, key):
    long = keys.issue(alice, "W" * 60)
    keys.authenticate_hash(keys.digest(secret_of(long)))
    page.goto(f"/dashboard/keys/{key.pk}/rotate")
    page.get_by_role("button", name="Make the new key").click()
    expect(card(page, long.name).get_by_role("button", name="Copy")).to_be_visible()  # The page's script is there.
    card(page, long.name).get_by_role("button", name="Show").click()
    expect(card(page, long.name).locator("[data-key]")).to_have_text(secret_of(long))
    assert faults_for_anybody(page) == []
    for path in (
        "/dashboard/log",
        f"/dashboard/keys/{long.pk}/rotate",
        f"/dashboard/keys/{long.pk}/revoke",
        "/nowhere",
    ):
        page.goto(path)
        assert (path, faults_for_anybody(page)) == (path, [])
