"""The browser's wallet sends each of a batch's missing transactions once, to a real chain."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import BrowserContext, Page, Route, expect

from chains.prices import WALLET_GAS
from devnet.devchain import DevChain
from queries.models import Batch
from tests.browser.conftest import TIMEOUT, faults_for_anybody
from tests.browser.hand import come_back
from tests.browser.wallet import DECLINED, NO_SUCH_CHAIN, Wallet, said
from tests.explorer.batches import beat, path
from tests.proving.self_funded import itself, left_of, nothing_spent, send
from tests.service import BOB, CHARLIE, a_key, request, submit, work

pytestmark = pytest.mark.django_db(transaction=True)

ASKED_TO_SEND = {"eth_sendTransaction", "wallet_sendCalls"}


@pytest.fixture
def received(service: DevChain) -> Batch:
    """Return a batch that needs two transactions, before a worker has seen it."""
    head = service.head()
    body = itself(request(BOB, block=head))
    body["data"]["31337"][f"block:{head - 1}"] = {"accounts": {CHARLIE: {"props": ["NONCE"]}}}
    return submit(a_key(), body)


@pytest.fixture
def batch(received: Batch) -> Batch:
    work(2)
    return received


@pytest.fixture
def connected(context: BrowserContext, wallet: Wallet, service: DevChain) -> BrowserContext:
    """Return the browser with a wallet connected to the chain."""
    wallet.chain = service
    wallet.put_into(context)
    return context


@pytest.fixture
def page(connected: BrowserContext, batch: Batch) -> Page:
    page = connected.new_page()
    page.goto(path(batch))
    return page


def begin(page: Page, transactions: str = "") -> None:
    """Open what is to send. Confirm so many `transactions`, if given."""
    page.locator("#send").click()
    if transactions:
        confirm(page, transactions)


def confirm(page: Page, transactions: str) -> None:
    page.get_by_role("button", name=f"Send {transactions}", exact=True).click()


def all_is_sent(page: Page, wallet: Wallet) -> None:
    """Wait until both transactions are on the chain, each of which was sent once."""
    said(page, "Nothing is missing")
    assert len(wallet.sent) == 2


def goes_on_until(page: Page, condition: Callable[[], bool]) -> None:
    """Wait for a condition, and meanwhile answer the page's calls of the wallet in this thread."""
    for _ in range(TIMEOUT // 50):
        if condition():
            return
        page.wait_for_timeout(50)
    pytest.fail("It did not come.")


def kept_back(service: DevChain) -> None:
    """Stop the chain's mining, so that transactions stay pending until a test mines a block."""
    service.rpc("evm_setAutomine", False)


# --- Success ----------------------------------------------------------------------------------------------------------


@pytest.mark.story("one by one")
@pytest.mark.long("EIP-5792")
@pytest.mark.parametrize("together", [False, True], ids=["one by one", "EIP-5792"])
def test_a_wallet_sends_what_is_missing_until_the_batch_is_done(
    connected: BrowserContext, service: DevChain, wallet: Wallet, received: Batch, together
):
    """The page is open from the beginning, and each change comes to it as a live update."""
    wallet.sends_calls = together
    page = connected.new_page()
    page.goto(path(received))
    expect(page.locator(".headline .chip")).to_have_text("RECEIVED")
    with nothing_spent(service):
        work(2)
        expect(page.get_by_text("Waiting for its submitter to send 2 transactions")).to_be_visible()
        expect(page.get_by_text("No worker is running.")).to_be_visible()
        beat()
        expect(page.get_by_text("No worker is running.")).to_be_hidden()
        expect(page.get_by_text("Waiting for its submitter to send 2 transactions")).to_be_visible()
        begin(page)
        said(page, re.compile(r"2 transactions on Development chain: [\d,]+ gas at most, 0\.\d+ ETH at the pr"))
        assert not wallet.sent
        page.keyboard.press("Enter")  # the "Send" button has the focus
        said(page, "Nothing is missing: everything is on the chain.")
        assert len(wallet.sent) == 2
        expect(page.locator("#send")).to_be_focused()
        work()
        expect(page.locator(".headline .chip")).to_have_text("DONE")
    methods = [method for method in wallet.asked if method in ASKED_TO_SEND]
    assert methods == (["wallet_sendCalls"] if together else ["eth_sendTransaction"] * 2)
    # A later transaction may depend on an earlier one, so the page waits for the earlier one's receipt.
    first, last = (wallet.asked.index(methods[0]), len(wallet.asked) - 1 - wallet.asked[::-1].index(methods[-1]))
    assert together or "eth_getTransactionReceipt" in wallet.asked[first:last]
    assert page.evaluate("localStorage.length") == 0


@pytest.mark.long
@pytest.mark.parametrize(("more", "requests"), [(0, 1), (1, 2)], ids=["as much as fits", "more"])
def test_calls_that_a_wallet_could_not_put_into_one_transaction_are_sent_one_after_the_other(
    page: Page, context: BrowserContext, wallet: Wallet, more, requests
):
    def with_more_gas(route: Route) -> None:
        answer = route.fetch()
        told = answer.json()
        for tx in told["transactions"]:
            tx["gas"] = hex(WALLET_GAS // 2 + more)
        route.fulfill(response=answer, json=told)

    context.route("**/transactions", with_more_gas)
    wallet.sends_calls = True
    begin(page, "2 transactions")
    all_is_sent(page, wallet)
    assert wallet.asked.count("wallet_sendCalls") == requests


@pytest.mark.long
def test_a_wallet_on_another_chain_is_switched_and_sends_one_by_one_where_it_knows_no_calls(page: Page, wallet: Wallet):
    wallet.chain_id = 1
    wallet.refuses["wallet_switchEthereumChain"] = NO_SUCH_CHAIN
    begin(page)
    said(page, "Test Wallet doesn't have the chain Development chain (31337). Add it there, then try again.")
    # Whatever is declined leaves all as it was.
    wallet.refuses = dict.fromkeys(ASKED_TO_SEND, DECLINED)
    for together in (False, True):
        wallet.sends_calls = together
        begin(page, "2 transactions")
        said(page, "You declined in Test Wallet, so nothing was sent now. Earlier transactions count.")
        assert page.evaluate("localStorage.length") == 0
    wallet.refuses = {"wallet_sendCalls": (5710, "EIP-7702 not supported on this chain.")}
    begin(page, "2 transactions")
    said(page, "Nothing is missing")
    assert (len(wallet.sent), wallet.chain_id) == (2, 31337)


@pytest.mark.long
def test_a_batch_that_a_reorg_takes_is_sent_again_from_a_page_that_was_opened_when_it_was_done(
    connected: BrowserContext, service: DevChain, wallet: Wallet, batch: Batch
):
    send(service, left_of(batch)["transactions"])
    work()
    page = connected.new_page()
    page.goto(path(batch))
    expect(page.locator(".headline .chip")).to_have_text("DONE")
    service.rpc("anvil_reorg", 2, [])
    work()
    come_back(page)
    expect(page.get_by_text("The batch was rolled back", exact=True)).to_be_visible()
    begin(page, "2 transactions")
    all_is_sent(page, wallet)
    work()
    expect(page.locator(".headline .chip")).to_have_text("DONE")


# --- Failures ---------------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_only_what_is_missing_is_offered_after_some_was_sent(page: Page, service: DevChain, wallet: Wallet):
    kept_back(service)
    begin(page, "2 transactions")
    said(page, "Transaction 1 of 2 is sent.")
    wallet.refuses["eth_sendTransaction"] = DECLINED
    service.mine()
    said(page, "You declined")
    service.rpc("evm_setAutomine", True)
    wallet.refuses.clear()
    begin(page)
    said(page, "1 transaction on Development chain")
    confirm(page, "1 transaction")
    all_is_sent(page, wallet)


LEFT = {
    "one by one, answered": (False, False),
    "one by one, closed before the answer": (False, True),
    "EIP-5792, answered": (True, False),
    "EIP-5792, closed before the answer": (True, True),
}


@pytest.mark.long
@pytest.mark.parametrize("left", LEFT.values(), ids=LEFT)
def test_a_page_that_is_left_in_the_middle_sends_nothing_twice(
    page: Page, service: DevChain, wallet: Wallet, left: tuple[bool, bool]
):
    together, loses_answer = wallet.sends_calls, wallet.loses_answers = left
    kept_back(service)
    begin(page, "2 transactions")
    said(page, "Confirm" if loses_answer else re.compile("Waiting until (it|that) is in a block"))
    sent = 2 if together else 1
    goes_on_until(page, lambda: len(wallet.sent) == sent)
    wallet.loses_answers = False
    page.reload()
    begin(page)
    said(page, "Waiting for earlier transactions from this browser.")
    count = len(wallet.asked)
    goes_on_until(page, lambda: len(wallet.asked) > count + 4)  # two polls or more
    assert len(wallet.sent) == sent
    service.mine()
    service.rpc("evm_setAutomine", True)
    if not together:
        confirm(page, "1 transaction")
    all_is_sent(page, wallet)


@pytest.mark.long
@pytest.mark.parametrize("together", [False, True], ids=["one by one", "EIP-5792"])
def test_a_prompt_that_is_open_while_the_page_is_reloaded_is_declined_first_and_can_be_approved_once(
    page: Page, wallet: Wallet, together
):
    wallet.sends_calls, wallet.holds = together, True
    begin(page, "2 transactions")
    goes_on_until(page, lambda: len(wallet.held) == 1)
    page.reload()
    begin(page)
    said(
        page,
        "Your wallet may still show an earlier request from this page. Decline that request in the wallet, then go on",
    )
    expect(page.get_by_role("button", name="It is declined, go on")).to_be_focused()
    assert faults_for_anybody(page) == []
    assert len(wallet.held) == 1
    page.keyboard.press("Enter")
    confirm(page, "2 transactions")
    goes_on_until(page, lambda: len(wallet.held) == 2)
    # The owner approves the first prompt despite the page's advice. The second then fails, because its nonce is used.
    first, second = wallet.approve()
    assert ("result" in first, "error" in second) == (True, True)
    assert len(wallet.sent) == (2 if together else 1)
    wallet.holds = False
    page.reload()
    begin(page)
    if not together:
        confirm(page, "1 transaction")
    all_is_sent(page, wallet)


@pytest.mark.long
def test_a_prompt_that_is_approved_after_the_page_was_reloaded_counts(page: Page, wallet: Wallet):
    """The wallet ignores the page's nonces, as wallets may."""
    wallet.holds, wallet.takes_nonces = True, False
    begin(page, "2 transactions")
    goes_on_until(page, lambda: len(wallet.held) == 1)
    page.reload()
    begin(page)
    said(page, "Your wallet may still show an earlier request")
    wallet.approve()
    confirm(page, "1 transaction")
    goes_on_until(page, lambda: len(wallet.held) == 1)
    # The user tells the page that the prompt is declined, but then approves it.
    page.reload()
    begin(page)
    page.get_by_role("button", name="It is declined, go on").click()
    said(page, "1 transaction on Development chain")
    wallet.approve()
    confirm(page, "1 transaction")
    said(page, "Your account has sent a transaction meanwhile.")
    begin(page)
    all_is_sent(page, wallet)


@pytest.mark.long
def test_a_sent_transaction_not_waited_for_is_offered_again_with_a_warning(
    page: Page, service: DevChain, wallet: Wallet
):
    kept_back(service)
    begin(page, "2 transactions")
    said(page, "Transaction 1 of 2 is sent.")
    page.get_by_role("button", name="Stop").click()
    said(page, "Stopped. Sent transactions count")
    begin(page)
    page.get_by_role("button", name="Don't wait for it").click()
    said(page, "Your account has sent 1 transaction that no block has yet.")
    page.get_by_role("button", name="Not now").click()
    assert len(wallet.sent) == 1


@pytest.mark.long
def test_a_transaction_that_the_wallet_has_replaced_is_not_waited_for_for_ever(
    page: Page, service: DevChain, wallet: Wallet
):
    kept_back(service)
    begin(page, "2 transactions")
    said(page, "Transaction 1 of 2 is sent.")
    goes_on_until(page, lambda: wallet.asked.count("eth_getTransactionByHash") > 1)
    wallet.cancel(wallet.sent[0])
    service.mine()
    said(page, re.compile("Transaction 2 of 2 is sent"))
    service.rpc("evm_setAutomine", True)
    service.mine()
    confirm(page, "1 transaction")
    said(page, "Nothing is missing")


@pytest.mark.long
def test_a_service_that_is_behind_the_wallet_s_node_is_waited_for(page: Page, context: BrowserContext, wallet: Wallet):
    """If the page did not wait, it would offer transactions again that are sent."""
    told: list[Any] = []

    def late(route: Route) -> None:
        answer = route.fetch()
        told.append(answer.json())
        # The second answer is the first one again, as from a node that lags.
        route.fulfill(response=answer, json=told[0] if len(told) == 2 else told[-1])

    context.route("**/transactions", late)
    begin(page, "2 transactions")
    said(page, "Waiting until the service sees block")
    all_is_sent(page, wallet)


@pytest.mark.long
def test_two_pages_of_a_browser_don_t_send_at_once(
    page: Page, context: BrowserContext, service: DevChain, batch: Batch
):
    kept_back(service)
    begin(page, "2 transactions")
    said(page, "Transaction 1 of 2 is sent.")
    expect(page.locator("#send")).to_be_hidden()
    other = context.new_page()
    other.goto(path(batch))
    begin(other)
    said(other, "Another page of this browser is already sending these transactions.")


@pytest.mark.long
def test_without_a_wallet_and_without_javascript_it_says_what_to_do(
    open_context: Callable[..., BrowserContext], batch: Batch
):
    page = open_context().new_page()
    page.goto(path(batch))
    begin(page)
    said(page, "There is no wallet in this browser.")
    page = open_context(java_script_enabled=False).new_page()
    page.goto(path(batch))
    expect(page.locator("#send")).to_be_hidden()
    page.get_by_role("button", name="List the transactions").click()
    expect(page.locator("#send")).to_be_hidden()
    expect(page.get_by_role("main")).to_contain_text(
        re.compile(r"2\s+transactions\s+to send on [\s\S]* ETH at the present price")
    )
    expect(page.get_by_role("main")).to_contain_text(f"bqs send {batch.pk}")
