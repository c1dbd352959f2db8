"""A batch's page in a real browser follows a real worker and chain, and shows DONE soon."""

import re
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import requests
from django.contrib.sessions.models import Session
from django.utils import timezone
from playwright.sync_api import BrowserContext, Page, Route, expect

from accounts.models import User
from config import configured_chains as configured
from devnet.devchain import DevChain
from explorer.batch import fragment
from proving.registries.registry_setup import deploy
from queries.models import Batch, StepKind, WebhookDelivery
from tests.browser.hand import come_back, leave
from tests.browser.states import done_with_one_answer
from tests.browser.wallet import Wallet
from tests.explorer.batches import (
    a_batch,
    accept,
    beat,
    complete,
    fetch_proofs,
    finish,
    many_accounts,
    path,
    reject,
    reopen,
    settle,
)
from tests.explorer.made_tries import prove
from tests.inside.working import a_worker
from tests.service import ALICE, BOB, a_key, chains_toml, request, submit

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def service(site: str, settings: Any, tmp_path: Path) -> Iterator[DevChain]:
    """Yield a chain that mines two blocks a second, connected to the server."""
    with DevChain(block_seconds=0.5) as chain:
        chain.mine(5)
        settings.CHAINS_FILE = chains_toml(tmp_path, chain.url)
        configured.forget_chains()
        deploy(31337, 31337)
        yield chain


# --- With a worker and a chain ----------------------------------------------------------------------------------------


@pytest.mark.story
def test_somebody_signs_in_copies_the_key_submits_with_it_and_watches_until_done(
    service: DevChain, page: Page, context: BrowserContext, wallet: Wallet
):
    wallet.put_into(context)
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.goto("/dashboard")
    page.get_by_role("button", name="Sign in with Test Wallet").click()
    card = page.get_by_role("region", name="default", exact=True)
    card.get_by_role("button", name="Copy").click()
    expect(card.get_by_role("status")).to_have_text("Copied.")
    key = page.evaluate("navigator.clipboard.readText()")

    # A program submits the batch with the key alone, without the browser's cookie.
    answer = requests.post(
        f"{page.evaluate('origin')}/submit-batch-query",
        json=request(wallet.account.address, block=service.head()),
        headers={"api-key": key},
        timeout=10,
    )
    batch = answer.json()["internalId"]

    page.get_by_role("link", name="Batches").click()
    page.get_by_role("row").filter(has_text=batch).get_by_role("link").first.click()
    page.evaluate("window.neverReloaded = true")
    status = page.locator(".headline .chip")
    expect(status).to_have_text("RECEIVED")
    account = page.get_by_role("heading", level=1).get_by_role("link").first
    account.focus()
    with a_worker():
        expect(status).to_have_text("DONE", timeout=120_000)
        expect(account).to_be_focused()
        expect(page.locator("li.COMPLETED")).to_have_count(4)
        expect(page).to_have_title(re.compile("^DONE"))
        expect(page.locator("#announcement")).to_have_text("The batch is DONE: 4 of 4 steps completed.")
        page.get_by_role("button", name="Read it from the chain now").click()
        expect(page.locator(".reading")).to_contain_text("the registry holds exactly the proven values.")
        # The page hides #live and stops polling once the block is final. The answer must stay.
        expect(page.locator("#live")).to_be_hidden(timeout=120_000)
        expect(page.locator(".reading")).to_contain_text("the registry holds exactly the proven values.")
    assert page.evaluate("window.neverReloaded")
    assert key not in page.content()


# --- Without a chain: the page's view of its rows ---------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize(("end", "title"), [(finish, "DONE"), (reject, "REJECTED")])
def test_a_hidden_page_polls_once_a_minute_until_its_title_says_how_the_batch_ended(page: Page, end: Any, title: str):
    beat()
    batch = accept(a_batch())
    page.clock.install()
    page.goto(path(batch))
    page.wait_for_load_state("networkidle")
    leave(page, "visibilitychange")
    polls: list[str] = []
    page.on("request", lambda request: polls.append(request.url) if "version=" in request.url else None)
    page.clock.run_for(58_000)
    assert polls == []
    end(batch)
    page.clock.run_for(4_000)
    expect(page).to_have_title(re.compile(f"^{title} · "))
    page.clock.run_for(600_000)
    assert len(polls) == 1, "The batch has ended."
    with page.expect_request(lambda request: "version=" in request.url) if end is finish else nullcontext():
        come_back(page)


@pytest.mark.long
def test_no_key_leads_on_and_escape_closes_the_menu(page: Page, alice: User):
    page.goto(path(a_batch()))
    for key in "/n":
        page.keyboard.press(key)
    expect(page).to_have_url(re.compile("/explorer/query/"))
    expect(page.get_by_role("searchbox")).not_to_be_focused()
    expect(page.get_by_role("button", name="Notify")).to_have_count(0)
    menu = page.locator("details.menu")
    menu.locator("summary").click()
    page.keyboard.press("Escape")
    expect(menu).not_to_have_attribute("open", "")
    expect(menu.locator("summary")).to_be_focused()
    menu.locator("summary").click()
    page.get_by_role("heading", level=1).click(position={"x": 1, "y": 1})
    expect(menu).not_to_have_attribute("open", "")


def test_a_page_whose_last_script_comes_late_refreshes_itself(page: Page):
    beat()
    batch = a_batch()
    late: list[Route] = []

    def hold(route: Route) -> None:
        late.append(route)

    page.route(re.compile(r"/check(\.[0-9a-f]+)?\.js"), hold)
    page.clock.install()
    page.goto(path(batch), wait_until="commit")
    expect(page.locator("#live")).to_be_visible()
    page.clock.run_for(10_000)
    accept(batch)
    late[0].continue_()
    page.wait_for_load_state()
    page.clock.run_for(2_000)
    expect(page.locator(".headline .chip")).to_have_text("ACCEPTED")


@pytest.mark.long
def test_whoever_is_signed_out_meanwhile_signs_in_and_is_back_on_the_page(
    page: Page, context: BrowserContext, alice: User, sign_in_as: Callable[..., User]
):
    beat()
    webhook = {"url": "https://hooks.example.org", "events": ["DONE"]}
    batch = submit(a_key(alice.address, "other"), {**request(alice.address, block=12), "webhook": webhook})
    page.goto(path(batch))
    expect(page.get_by_role("heading", name="Webhook")).to_be_visible()
    Session.objects.all().delete()
    # The page notices the missing session at its next refresh.
    expect(page).to_have_url(re.compile(rf"/sign-in\?next={path(batch)}$"))
    sign_in_as(context)
    page.reload()
    expect(page).to_have_url(re.compile(rf"{path(batch)}$"))
    expect(page.get_by_role("heading", name="Webhook")).to_be_visible()


@pytest.mark.long
def test_a_reading_and_a_key_that_are_refused_name_the_cause(page: Page, alice: User, settings: Any):
    refuses_cookies = "If this keeps happening, your browser may refuse cookies."
    page.goto(path(done_with_one_answer()))
    page.context.clear_cookies(name=settings.CSRF_COOKIE_NAME)
    page.get_by_role("button", name="Read it from the chain now").first.click()
    expect(page.get_by_text(refuses_cookies)).to_be_visible()
    page.goto("/keys")
    page.context.clear_cookies(name=settings.CSRF_COOKIE_NAME)
    page.get_by_role("button", name="Show").first.click()
    expect(page.get_by_text(refuses_cookies)).to_be_visible()


# Chromium's score of each shift that doesn't follow an input. https://web.dev/articles/cls
SHIFTS = """
window.shifts = [];
new PerformanceObserver((list) => window.shifts.push(...list.getEntries().filter((entry) => !entry.hadRecentInput)))
  .observe({ type: "layout-shift", buffered: true });
"""


@pytest.fixture
def jumps(page: Page, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Any]]:
    """Return a function that watches a batch's page while it changes, and returns its shifts."""
    monkeypatch.setattr(fragment, "_KEPT_SECONDS", 0)
    beat()

    def jumps(batch: Batch, width: int, *changes: tuple[Callable[[], object], str]) -> list[Any]:
        # The text "in 24 h" would get longer meanwhile.
        Batch.objects.update(deadline_at=timezone.now() + timedelta(hours=23, minutes=30))
        page.set_viewport_size({"width": width, "height": 800})
        page.add_init_script(SHIFTS)
        page.goto(path(batch))
        expect(page.get_by_role("button", name="Pause updates")).to_be_visible()
        for change, state in changes:
            change()
            come_back(page)
            expect(page.locator(".headline .chip")).to_have_text(state)
        page.evaluate("new Promise((done) => requestAnimationFrame(() => setTimeout(done, 50)))")
        shown = "shifts.map((shift) => [shift.value, shift.sources.map(({ node }) => node?.textContent)])"
        shifts: list[Any] = page.evaluate(shown)
        return [] if sum(value for value, _ in shifts) < 0.05 else shifts

    return jumps


@pytest.mark.long
@pytest.mark.parametrize(
    ("queries", "sender", "width", "owner"),
    [
        *((1, "", 1280, ALICE), (1, "", 390, ALICE), (1, "self", 1280, ALICE), (1, "self", 390, ALICE)),
        *((1, "self", 390, BOB), (12, "", 1280, ALICE), (12, "", 390, BOB)),
    ],
)
def test_nothing_jumps_while_a_batch_is_proven(
    page: Page, alice: User, jumps: Callable[..., list[Any]], queries: int, sender: str, width: int, owner: str
):
    body = request(*many_accounts(queries), block=12)
    body |= {"sender": sender} if sender else {}
    batch = submit(a_key(owner, "other"), {name: body[name] for name in body if name != "fee" or not sender})
    assert not jumps(
        batch,
        width,
        (lambda: None, "RECEIVED"),
        (lambda: accept(batch), "ACCEPTED"),
        (lambda: complete(fetch_proofs(batch), *list(StepKind)[:2]), "IN_PROGRESS"),
        (lambda: complete(batch, *StepKind), "DONE"),
        (lambda: settle(batch), "DONE"),
    )
    expect(page.get_by_role("button", name="Pause updates")).to_be_hidden()


@pytest.mark.long
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("queries", [1, 5, 12])
def test_nothing_jumps_while_a_batch_goes_back(alice: User, jumps: Callable[..., list[Any]], queries: int, width: int):
    batch = submit(a_key(alice.address, "other"), request(*many_accounts(queries), block=12))
    finish(batch)
    assert not jumps(
        batch,
        width,
        (lambda: reopen(batch, StepKind.HEADER_ACCUMULATED), "IN_PROGRESS"),
        (lambda: complete(batch, *StepKind), "DONE"),
    )


@pytest.mark.long
@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_jumps_while_a_batch_is_rejected(page: Page, alice: User, jumps: Callable[..., list[Any]], width: int):
    batch = submit(a_key(alice.address, "other"), request(*many_accounts(2), block=12))
    accept(batch)
    assert not jumps(batch, width, (lambda: reject(batch), "REJECTED"))
    expect(page.get_by_role("link", name="ubmit again")).to_have_count(1)


@pytest.mark.long
def test_room_stays_until_the_width_changes_or_the_page_is_hidden(
    page: Page, alice: User, jumps: Callable[..., list[Any]]
):
    batch = submit(a_key(alice.address, "other"), request(*many_accounts(2), block=12))
    assert not jumps(batch, 390, (lambda: accept(batch), "ACCEPTED"), (lambda: finish(batch), "DONE"))
    summary = page.locator(".summary")

    def has_room() -> bool:
        return bool(summary.evaluate("(element) => element.style.minHeight"))

    assert has_room()
    # A phone's address bar goes and comes.
    page.set_viewport_size({"width": 390, "height": 700})
    page.evaluate("new Promise(requestAnimationFrame)")
    assert has_room()
    page.set_viewport_size({"width": 700, "height": 390})
    expect(summary).not_to_have_attribute("style", re.compile("min-height"))
    reject(batch)
    come_back(page)
    expect(page.locator(".headline .chip")).to_have_text("REJECTED")
    assert has_room()
    leave(page, "visibilitychange")
    expect(summary).not_to_have_attribute("style", re.compile("min-height"))


@pytest.mark.long
def test_an_update_leaves_whatever_the_reader_and_scripts_have_changed(
    page: Page, alice: User, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(fragment, "_KEPT_SECONDS", 0)
    beat()
    webhook = {"url": "https://hooks.example.org", "events": ["STEP", "DONE"]}
    batch = submit(a_key(alice.address, "other"), {**request(alice.address, block=12), "webhook": webhook})
    prove(batch)
    attempt = {"at": timezone.now().isoformat(), "httpStatus": 503, "outcome": "It said no.", "seconds": 0.25}
    delivery = batch.webhook.deliveries.latest("pk")
    WebhookDelivery.objects.filter(pk=delivery.pk).update(attempts=[attempt])
    Batch.objects.update(went_back_at=timezone.now(), went_back_because="Its block was dropped.")
    page.clock.install()
    page.goto(path(batch))
    page.get_by_role("button", name="Check it here").click()
    checked = page.locator("#check [role=status]")
    expect(checked).to_have_text(re.compile("Everything checked is correct"))
    page.clock.pause_at(timezone.now() + timedelta(minutes=1))
    copy_button, send_again = page.get_by_role("button", name="Copy the word of BALANCE"), page.locator("button:focus")

    def holds() -> None:
        expect(checked).to_have_text(re.compile("Everything checked is correct"))
        expect(page.get_by_role("radio", name="cast")).to_be_checked()
        expect(page.get_by_text("It said no.").last).to_be_visible()
        expect(copy_button).to_have_text("Copied")
        expect(send_again).to_have_attribute("aria-label", "Send again: DONE")

    page.get_by_text("cast", exact=True).click()
    page.get_by_text("1 attempt").click()
    copy_button.click()
    page.get_by_role("button", name="Send again: DONE").focus()
    holds()
    delivery.pk, delivery.message_id, delivery.event = None, f"msg_{1:026}", "WENT_BACK"
    delivery.save(force_insert=True)
    Batch.objects.update(went_back_because="The chain was reorganised.")
    come_back(page)
    expect(page.get_by_text("The chain was reorganised.")).to_be_visible()
    expect(page.get_by_role("button", name="Send again: WENT_BACK")).to_be_visible()
    holds()
    page.route("**/deliveries", lambda route: route.abort())
    Batch.objects.update(went_back_because="Its clock was wrong.")
    come_back(page)
    expect(page.get_by_text("Its clock was wrong.")).to_be_visible()
    holds()
    page.clock.run_for(2_000)
    expect(copy_button).to_have_text("")
