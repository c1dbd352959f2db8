"""A batch's page in a real browser: it follows a real worker on a real chain, and nothing of the reader's is lost."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import requests
from django.utils import timezone
from playwright.sync_api import BrowserContext, Page, expect

from config import configured_chains as configured
from devnet.devchain import DevChain
from proving.registry.deploying import deploy
from queries import progress
from queries.models import Batch, Block, Step, StepKind
from tests.browser.conftest import NARROW, overflows
from tests.browser.wallet import Wallet
from tests.explorer.batches import (
    a_batch,
    accept,
    beat,
    finish,
    many_accounts,
    path,
    queries_of,
    settle,
)
from tests.inside.working import a_worker
from tests.service import ALICE, BOB, a_key, chains_toml, request, submit

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def service(site: str, settings: Any, tmp_path: Path) -> Iterator[DevChain]:
    """A chain with two blocks a second, which the server knows."""
    with known_chain(settings, tmp_path) as chain:
        yield chain


@pytest.fixture
def service_with_late_finality(site: str, settings: Any, tmp_path: Path) -> Iterator[DevChain]:
    """The same, on which no block is final within half a minute."""
    with known_chain(settings, tmp_path, slots_in_an_epoch=32) as chain:
        yield chain


@contextmanager
def known_chain(settings: Any, tmp_path: Path, slots_in_an_epoch: int = 1) -> Iterator[DevChain]:
    with DevChain(block_seconds=0.5, slots_in_an_epoch=slots_in_an_epoch) as chain:
        chain.mine(5)
        settings.CHAINS_FILE = chains_toml(tmp_path, chain.url)
        configured.forget_chains()
        deploy(31337, 31337)
        yield chain


# --- With a worker and a chain ----------------------------------------------------------------------------------------


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

    # A program elsewhere: it has the key, and no cookie of the browser.
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
    with a_worker():
        expect(status).to_have_text("DONE", timeout=30_000)
        expect(page.locator("li.COMPLETED")).to_have_count(4)
        expect(page).to_have_title(re.compile("^DONE"))
        expect(page.locator("#announcement")).to_have_text("The batch is DONE: 4 of 4 steps completed.")
        page.get_by_role("button", name="Read it from the chain now").click()
        expect(page.locator(".reading")).to_contain_text("the registry holds exactly the proven values.")
        # The answer stays when the page goes on to what is final, and then nothing is asked any more.
        expect(page.locator("#live")).to_be_hidden(timeout=30_000)
        expect(page.locator(".reading")).to_contain_text("the registry holds exactly the proven values.")
    assert page.evaluate("window.neverReloaded")
    assert key not in page.content()


def test_a_reorg_is_seen_as_what_it_is(service_with_late_finality: DevChain, page: Page):
    service = service_with_late_finality
    batch = submit(a_key(), request(BOB, block=service.head()))
    page.goto(path(batch))
    status = page.locator(".headline .chip")
    with a_worker():
        expect(status).to_have_text("DONE", timeout=30_000)
        service.rpc("evm_setIntervalMining", 0)
        at = Step.objects.get(kind=StepKind.ACCOUNT_ACCUMULATED).transaction_hash
        mined = int(service.rpc("eth_getTransactionReceipt", at)["blockNumber"], 16)
        service.rpc("anvil_reorg", service.head() - mined + 1, [])
        expect(status).to_have_text("IN_PROGRESS", timeout=20_000)
        expect(page.locator(".summary .went-back")).to_contain_text("Development chain was reorganised")
        expect(page.locator("#announcement")).to_contain_text("The batch was rolled back.")
        service.rpc("evm_setIntervalMining", 1)
        expect(status).to_have_text("DONE", timeout=30_000)
        expect(page.locator(".summary .went-back")).to_contain_text("have run again since")


# --- Without a chain: what the page makes of its rows -----------------------------------------------------------------


def poll_fast(page: Page) -> None:
    """The page asks at once, as it would in a second."""
    page.evaluate("htmx.trigger('#batch', 'refresh')")


def test_pausing_stops_the_page_and_resuming_asks_at_once(page: Page):
    beat()
    batch = a_batch()
    polls: list[str] = []
    page.on("request", lambda request: polls.append(request.url) if "version=" in request.url else None)
    page.goto(path(batch))
    page.get_by_role("button", name="Pause updates").click()
    accept(batch)
    with page.expect_request(re.compile("version=")) as resumed:
        # Longer than a poll takes to come: nothing may be asked meanwhile.
        page.wait_for_timeout(1500)
        assert polls == []
        expect(page.locator(".headline .chip")).to_have_text("RECEIVED")
        page.get_by_role("button", name="Resume updates").click()
    assert resumed.value.url == polls[0]
    expect(page.locator(".headline .chip")).to_have_text("ACCEPTED")


def test_a_lost_connection_is_said_and_so_is_that_it_is_back(page: Page, context: BrowserContext):
    batch = a_batch()
    page.goto(path(batch))
    lost = page.locator("#lost")
    expect(lost).to_be_hidden()
    context.set_offline(True)
    expect(lost).to_contain_text("The connection to this service is lost. Trying again. What you see is ")
    accept(batch)
    context.set_offline(False)
    expect(lost).to_be_hidden(timeout=20_000)
    expect(page.locator(".headline .chip")).to_have_text("ACCEPTED")


def test_a_server_that_hangs_is_said(page: Page):
    batch = a_batch()
    page.goto(path(batch))
    assert page.evaluate("htmx.config.timeout") == 15_000
    page.evaluate("htmx.config.timeout = 100")
    page.route(re.compile("version="), lambda _route: None)  # never answered
    poll_fast(page)
    expect(page.locator("#lost")).to_contain_text("The connection to this service is lost.")
    page.unroute_all()
    expect(page.locator("#lost")).to_be_hidden(timeout=20_000)


@pytest.mark.parametrize(
    ("state", "fault", "sentence"),
    [
        ("DONE", "offline", "This service can't be reached. Check your connection, then try again."),
        ("final", "hangs", "This service can't be reached. Check your connection, then try again."),
        ("final", "403", "This page has been open for too long. Reload it, then try again."),
        ("final", "502", "This service answered with error 502. Try again in a moment."),
    ],
)
def test_a_chain_that_could_not_be_read_is_said(
    page: Page, context: BrowserContext, state: str, fault: str, sentence: str
):
    beat()
    batch = a_batch()
    finish(batch)
    if state == "final":
        settle(batch)
    page.goto(path(batch))
    expect(page.locator("#live")).to_have_count(0 if state == "final" else 1)
    if fault == "offline":
        context.set_offline(True)
    elif fault == "hangs":
        page.evaluate("htmx.config.timeout = 100")
        page.route(re.compile("/read$"), lambda _route: None)
    else:
        page.route(re.compile("/read$"), lambda route: route.fulfill(status=int(fault), body="no"))
    page.get_by_role("button", name="Read it from the chain now").click()
    expect(page.locator("#reading-1 .problem")).to_have_text(sentence)
    context.set_offline(False)
    page.unroute_all()
    page.evaluate("htmx.config.timeout = 15000")
    page.get_by_role("button", name="Read it from the chain now").click()
    expect(page.locator("#reading-1")).to_contain_text("The chain could not be read.")


def test_focus_scroll_open_details_and_what_was_typed_survive_a_refresh(page: Page):
    beat()
    batch = a_batch()
    finish(batch)
    page.goto(path(batch))
    page.locator("#submitted summary").click()
    details = page.locator("details[id^=steps]").first
    details.locator("summary").click()
    button = page.get_by_role("button", name="Read it from the chain now")
    button.focus()
    page.evaluate("scrollTo(0, 300)")
    before = page.evaluate("scrollY")
    Batch.objects.update(gas_used=12_345)
    poll_fast(page)
    expect(page.get_by_role("cell", name="12,345", exact=True)).to_be_visible()
    expect(button).to_be_focused()
    expect(details).to_have_attribute("open", "")
    expect(page.locator("#submitted")).to_have_attribute("open", "")
    assert page.evaluate("scrollY") == before > 0


def test_a_time_tells_on_hover_what_it_is_here(open_context: Callable[..., BrowserContext]):
    page = open_context(timezone_id="America/New_York", locale="en-US").new_page()
    batch = a_batch()
    Batch.objects.update(created_at=datetime(2026, 1, 31, 12, 0, 5, tzinfo=UTC))
    page.goto(path(batch))
    time = page.locator(".strip time").first
    expect(time).to_contain_text("2026-01-31 12:00:05")
    time.hover()
    expect(time).to_have_attribute("title", re.compile("Jan 31, 2026.*7:00:05.AM EST"))


def test_tabs_of_code_are_changed_by_keys_and_a_refresh_leaves_them(page: Page):
    beat()
    batch = a_batch()
    finish(batch)
    page.goto(path(batch))
    code = page.locator(".tabs pre:visible")
    expect(code).to_contain_text("contract Reader")
    page.get_by_role("radio", name="Solidity").focus()
    page.keyboard.press("ArrowRight")
    expect(code).to_contain_text("createPublicClient")
    Batch.objects.update(gas_used=12_345)
    poll_fast(page)
    expect(page.get_by_role("cell", name="12,345", exact=True)).to_be_visible()
    expect(code).to_contain_text("createPublicClient")
    expect(page.get_by_role("radio", name="viem")).to_be_focused()


def test_whoever_wants_it_is_notified_once_when_the_batch_is_done(page: Page):
    page.add_init_script(
        """
        window.told = [];
        window.Notification = class extends EventTarget {
          static permission = "default";
          static async requestPermission() { return (Notification.permission = "granted"); }
          constructor(title, options) { super(); window.told.push(`${title}: ${options.body}`); }
        };
        """
    )
    beat()
    batch = a_batch()
    page.goto(path(batch))
    page.get_by_role("button", name="Notify me when it is done").click()
    expect(page.get_by_role("button", name="You will be notified")).to_have_attribute("aria-pressed", "true")
    accept(batch)
    expect(page.locator(".headline .chip")).to_have_text("ACCEPTED")
    assert page.evaluate("told") == []
    finish(batch)
    # Within 1.5 s, and what this machine takes for it.
    expect(page.locator(".headline .chip")).to_have_text("DONE", timeout=2500)
    expect(page.locator("#notify")).to_be_hidden()
    (told,) = page.evaluate("told")
    assert told.startswith("DONE · Balance of ")
    assert told.endswith(": The batch is DONE: 4 of 4 steps completed.")


def test_nobody_is_notified_unasked(page: Page):
    page.add_init_script("window.Notification = class { constructor() { throw new Error('unasked'); } };")
    beat()
    batch = a_batch()
    page.goto(path(batch))
    expect(page.get_by_role("button", name="Notify me when it is done")).to_have_attribute("aria-pressed", "false")
    finish(batch)
    poll_fast(page)
    expect(page.locator(".headline .chip")).to_have_text("DONE")


def test_the_focus_is_where_it_was_after_a_reading(page: Page):
    beat()
    batch = a_batch()
    finish(batch)
    settle(batch)
    page.goto(path(batch))
    button = page.get_by_role("button", name="Read it from the chain now")
    button.focus()
    page.keyboard.press("Enter")
    expect(page.locator("#reading-1")).to_contain_text("The chain could not be read.")
    expect(button).to_be_enabled()
    expect(button).to_be_focused()


def test_what_was_typed_to_find_an_account_survives_a_refresh(page: Page):
    beat()
    batch = a_batch(*many_accounts(20))
    page.goto(path(batch))
    page.locator("#account").fill("0xabc")
    page.get_by_role("button", name="Find").focus()
    accept(batch)
    poll_fast(page)
    expect(page.locator(".headline .chip")).to_have_text("ACCEPTED")
    expect(page.locator("#account")).to_have_value("0xabc")


def test_one_change_is_announced_once_and_an_unchanged_poll_not_at_all(page: Page):
    beat()
    batch = a_batch()
    page.goto(path(batch))
    page.evaluate("""() => {
      window.said = [];
      const watched = document.getElementById("announcement");
      new MutationObserver(() => said.push(watched.textContent)).observe(watched, {childList: true});
    }""")
    changes: list[Callable[[], None]] = [
        lambda: None,
        lambda: accept(batch),
        lambda: progress.note_failure(queries_of(batch), "Down."),
    ]
    for change in changes:
        change()
        with page.expect_response(re.compile("version=")):
            poll_fast(page)
    expect(page.get_by_text("Last error: Down.")).to_be_visible()
    assert page.evaluate("said") == ["The batch is ACCEPTED: 0 of 4 steps completed."]


def test_times_go_on_by_themselves(page: Page):
    beat()
    batch = a_batch()
    accept(batch)
    now = timezone.now()
    Block.objects.update(
        waiting_for="The node is down.", failing_since=now - timedelta(seconds=57), due_at=now + timedelta(hours=1)
    )
    page.goto(path(batch))
    expect(page.locator(".note.wait").first).to_contain_text(
        re.compile(r"This has lasted for 1 min \d s; the next attempt is in 59 min")
    )


def test_an_account_is_copied_from_its_row(open_context: Callable[..., BrowserContext]):
    context = open_context(viewport=NARROW, permissions=["clipboard-read", "clipboard-write"])
    page = context.new_page()
    page.goto(path(a_batch(*many_accounts(20))))
    row = page.get_by_role("row").filter(has=page.get_by_role("link", name="7", exact=True))
    shown = row.locator(".short")
    assert shown.evaluate("element => element.offsetWidth") < 150, "It is not shown by its ends."
    # A reader who selects it copies what is between its ends too.
    selected = shown.evaluate(
        "element => { getSelection().selectAllChildren(element); return String(getSelection()); }"
    )
    assert (shown.get_attribute("title"), selected) == (f"0x{7:040x}", f"0x{7:040x}")
    row.get_by_role("button", name="Copy the account of query 7").click()
    expect(row.get_by_text("Copied")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == f"0x{7:040x}"
    assert not overflows(page)


def test_the_keyboard_alone_pauses_opens_and_copies(open_context: Callable[..., BrowserContext]):
    context = open_context(permissions=["clipboard-read", "clipboard-write"])
    page = context.new_page()
    batch = a_batch()
    page.goto(path(batch))

    def tab_to(name: str) -> None:
        for _ in range(40):
            page.keyboard.press("Tab")
            if page.evaluate("document.activeElement.ariaLabel || document.activeElement.textContent").strip() == name:
                return
        raise AssertionError(f"no way to {name!r} by the Tab key")

    tab_to("Pause updates")
    page.keyboard.press("Space")
    expect(page.get_by_role("button", name="Resume updates")).to_be_focused()
    tab_to("Copy the batch's identifier")
    page.keyboard.press("Enter")
    expect(page.get_by_text("Copied")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == batch.pk
    tab_to("The request as JSON")
    page.keyboard.press("Enter")
    expect(page.locator("#submitted-json")).to_be_visible()


def test_everything_is_readable_without_javascript(open_context: Callable[..., BrowserContext]):
    page = open_context(java_script_enabled=False, viewport=NARROW).new_page()
    batch = a_batch()
    finish(batch)
    page.goto(path(batch))
    expect(page.locator(".hex").first).to_have_text(ALICE)
    assert page.get_by_role("button", name="Copy").count() == 0
    expect(page.get_by_text("Reload the page to see the latest progress.")).to_be_visible()
    page.get_by_role("button", name="Read it from the chain now").click()
    expect(page.locator(".reading")).to_contain_text("The chain could not be read.")
