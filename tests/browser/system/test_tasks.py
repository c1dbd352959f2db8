"""Five common tasks, each in the fewest steps."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, expect

from accounts.models import User
from tests.browser import installations, states
from tests.browser.conftest import Stage
from tests.browser.hand import Hand
from tests.explorer.batches import beat, connect_source, finish, many_accounts, path
from tests.service import ALICE, BOB, CHARLIE, a_key, request, submit

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def hand(context: BrowserContext, sign_in_as: Callable[..., User]) -> Hand:
    sign_in_as(context, ALICE)
    return Hand(context.new_page())


@pytest.mark.long
def test_find_a_proven_balance(stage: Stage, hand: Hand):
    states.a_page_of_batches()
    hand.page.goto("/")
    hand.click(hand.page.get_by_role("link", name="Dashboard", exact=True))
    row = hand.page.get_by_role("row").filter(has=hand.page.get_by_role("rowheader", name="at block 39"))
    hand.look(row.get_by_text("123,456,789.012345678901234567 ETH"))
    assert (hand.clicks, hand.scrolls) == (1, 0)


def test_find_a_proven_balance_that_somebody_else_asked_for(stage: Stage, hand: Hand):
    finish(submit(a_key(BOB), request(CHARLIE, block=39)))
    hand.page.goto("/")
    hand.click(hand.page.get_by_role("searchbox"))
    hand.paste(CHARLIE)
    hand.press("Enter")
    hand.look(hand.page.get_by_text("123,456,789.0123"))
    assert (hand.clicks, hand.scrolls, hand.keys) == (1, 0, 2)
    # That page also shows the code for a contract.
    hand.click(hand.page.get_by_role("link", name="More about these facts"))
    hand.click(hand.page.locator(".facts-found summary"))
    expect(hand.page.get_by_text("interface IFactsRegistry")).to_be_visible()


@pytest.mark.long
def test_submit_fifty_addresses_of_a_csv(stage: Stage, hand: Hand, tmp_path: Path):
    stage.chain()
    file = tmp_path / "accounts.csv"
    file.write_text("address,block,properties\n" + "".join(f"{account},5,BALANCE\n" for account in many_accounts(50)))
    hand.page.goto("/")
    hand.click(hand.page.get_by_role("link", name="New batch", exact=True))
    hand.choose_file(hand.page.get_by_text("Choose a CSV file"), str(file))
    expect(hand.page.get_by_role("button", name="Submit 50 facts")).to_be_focused()
    expect(hand.page.locator("#estimate")).to_contain_text("Already proven")
    hand.press("Enter")
    expect(hand.page).to_have_url(re.compile("/explorer/query/[0-9A-Z]{26}$"))
    assert (hand.clicks, hand.scrolls) == (4, 0)


@pytest.mark.long
def test_learn_why_a_batch_waits(stage: Stage, hand: Hand):
    connect_source(stage.folder)
    batch = states.of_two_sources_waiting()
    beat()
    hand.page.goto("/")
    hand.click(hand.page.get_by_role("link", name="Dashboard", exact=True))
    hand.click(hand.page.locator(f'a[href="{path(batch)}"]'))
    hand.look(hand.page.get_by_text("1 of 2 required attesters has signed"))
    assert (hand.clicks, hand.scrolls) == (2, 0)


@pytest.mark.long
def test_see_what_mainnet_would_cost(stage: Stage, hand: Hand):
    connect_source(stage.folder)
    installations.seen_chains()
    hand.page.goto("/")
    hand.click(hand.page.get_by_role("link", name="Chains", exact=True))
    hand.look(hand.page.get_by_text("Usual cost of a query").first)
    hand.look(hand.page.get_by_text("0.000054").first)
    assert (hand.clicks, hand.scrolls) == (1, 0)
