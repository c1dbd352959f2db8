"""The form that people submit a batch with, in a real browser: by pointer, by keyboard, with and without JavaScript."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import BrowserContext, Page, Route, expect

from accounts.models import User
from devnet.devchain import DevChain
from queries.models import Batch
from tests.browser.conftest import TIMEOUT, faults_for_anybody, weight
from tests.explorer.batches import many_accounts, path
from tests.service import ALICE, BOB

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def patience() -> None:
    expect.set_options(timeout=TIMEOUT)


def test_fifty_addresses_of_a_csv_take_two_clicks(service: DevChain, alice: User, page: Page, tmp_path: Path):
    file = tmp_path / "accounts.csv"
    file.write_text("address,block,properties\n" + "".join(f"{one},5,BALANCE\n" for one in many_accounts(50)))
    page.goto("/new-batch")
    page.get_by_label("Or a file").set_input_files(file)
    expect(page.locator(".ask > summary")).to_contain_text("50 facts of 50 accounts")
    expect(page.locator("#estimate")).to_contain_text("0 of 50")
    expect(page.get_by_role("button", name="Submit 50 facts")).to_be_focused()
    assert faults_for_anybody(page) == []
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("/explorer/query/[0-9A-Z]{26}$"))
    assert Batch.objects.get().size == 50


def test_a_file_may_be_chosen_before_the_scripts_are_there(service: DevChain, alice: User, page: Page, tmp_path: Path):
    file = tmp_path / "accounts.csv"
    file.write_text(f"{ALICE},5,BALANCE\n")

    def choose_and_go_on(route: Route) -> None:
        page.get_by_label("Or a file").set_input_files(file)
        route.continue_()

    page.route("**/js/new_batch*.js", choose_and_go_on)
    page.goto("/new-batch")
    expect(page.get_by_role("button", name="Submit 1 fact")).to_be_focused()


def test_the_estimate_follows_what_is_typed(service: DevChain, alice: User, page: Page):
    page.goto("/new-batch")
    page.get_by_label("Accounts").fill(ALICE)
    expect(page.locator("#estimate")).to_contain_text("0 of 1")
    expect(page.locator(".ask > summary")).to_contain_text("1 fact of")
    expect(page.locator("#json-text")).to_contain_text(ALICE)
    page.get_by_label("NONCE").first.check()
    expect(page.locator("#estimate")).to_contain_text("0 of 1")
    expect(page.get_by_role("button", name="Submit 2 facts")).to_be_visible()
    expect(page.locator("#json-text")).to_contain_text("NONCE")
    # What is wrong is said beside the form, and its field keeps the focus.
    page.get_by_label("Accounts").fill(f"{ALICE}\n0x12")
    expect(page.locator("#estimate")).to_contain_text("Row 1, accounts: Line 2")
    expect(page.get_by_label("Accounts")).to_be_focused()
    assert faults_for_anybody(page) == []


def test_submit_is_in_sight_at_1280_by_800_wherever_the_page_is_and_nothing_scrolls_within_it(
    service: DevChain, alice: User, page: Page
):
    page.set_viewport_size({"width": 1280, "height": 800})
    page.goto("/new-batch")
    submit = page.locator("#submit")
    expect(submit).to_be_in_viewport(ratio=1)
    page.get_by_label("Accounts").fill("\n".join(many_accounts(12)))
    for name in ("Storage slots", "Header fields", "JSON", "curl", "Webhook"):
        page.locator("summary", has_text=name).click()
    expect(page.locator("#estimate")).to_contain_text("0 of 12")
    for bottom in (False, True):
        page.evaluate(f"scrollTo(0, {'document.documentElement.scrollHeight' if bottom else 0})")
        expect(submit).to_be_in_viewport(ratio=1)
    within = """[...document.querySelectorAll("main *")].filter((one) => one.scrollHeight > one.clientHeight + 1
        && /auto|scroll/.test(getComputedStyle(one).overflowY)).map((one) => one.outerHTML.slice(0, 80))"""
    assert page.evaluate(within) == []


def test_it_is_filled_in_and_corrected_by_keyboard(alice: User, page: Page):
    page.goto("/new-batch")
    page.get_by_label("Accounts").focus()
    page.keyboard.type(ALICE)
    page.get_by_role("button", name="Add a row").press("Enter")
    expect(page.locator("#id_rows-1-accounts")).to_be_focused()
    page.keyboard.type("0x12")
    page.keyboard.press("Shift+Tab")
    expect(page.locator("#id_rows-1-at_0")).to_be_focused()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Tab")
    expect(page.locator("#id_rows-1-block")).to_be_focused()
    page.get_by_role("button", name="Submit").press("Enter")
    summary = page.get_by_role("alert").filter(has_text="2 things need correcting.")
    expect(summary).to_be_focused()
    assert faults_for_anybody(page) == []
    summary.get_by_role("link", name="Row 2, block number").press("Enter")
    expect(page.locator("#id_rows-1-block")).to_be_focused()
    page.keyboard.type("12")
    page.locator("#id_rows-1-accounts").fill(BOB)
    page.get_by_role("button", name="Submit").press("Enter")
    expect(page).to_have_url(re.compile(path(Batch.objects.get())))


def test_without_javascript_each_button_does_its_part(
    service: DevChain, open_context: Callable[..., BrowserContext], sign_in_as: Callable[..., User]
):
    context = open_context(java_script_enabled=False)
    sign_in_as(context, ALICE)
    page = context.new_page()
    page.goto("/new-batch")
    page.get_by_label("Accounts").fill(ALICE)
    page.locator("summary", has_text="Storage slots").click()
    page.get_by_label("Its own slot").fill("0")
    page.get_by_label("Key or index").fill(BOB)
    page.get_by_role("button", name="Add this slot").click()
    expect(page.get_by_label("Slots")).to_have_value(re.compile("^0x[0-9a-f]{64}$"))
    page.get_by_role("button", name="Add a row").click()
    page.locator("#id_rows-1-accounts").fill(BOB)
    page.get_by_role("button", name="Estimate", exact=True).click()
    expect(page.locator("#estimate")).to_contain_text("0 of 3")
    page.get_by_role("button", name="Submit 3 facts").click()
    expect(page).to_have_url(re.compile(path(Batch.objects.get())))


def test_what_was_typed_stays_where_the_service_is_not_reached_or_knows_the_reader_no_more(
    alice: User, context: BrowserContext, page: Page, sign_in_as: Callable[..., User]
):
    page.goto("/new-batch")
    page.route("**/new-batch", lambda route: route.abort())
    page.get_by_label("Accounts").fill(ALICE)
    page.get_by_role("button", name="Add a row").click()
    expect(page.get_by_text("This service can't be reached.")).to_be_visible()
    page.unroute("**/new-batch")
    page.get_by_label("Accounts").fill(ALICE)
    expect(page.locator("#row-count")).to_have_text("1 row, 1 fact")
    alice.end_sessions()
    page.get_by_role("button", name="Add a row").press("Enter")
    expect(page.locator("#estimate")).to_contain_text("You are signed out.")
    expect(page.locator("#estimate-said")).to_contain_text("You are signed out.")
    expect(page.get_by_label("Accounts")).to_have_value(ALICE)
    # Nothing is denied that stands in it.
    expect(page.locator("#row-count")).to_have_text("1 row, 1 fact")
    expect(page.locator(".ask > summary")).to_contain_text("1 fact of")
    expect(page.locator("#json-text")).to_contain_text(ALICE)
    expect(page.get_by_role("button", name="Add a row")).to_be_focused()
    # In another tab, with another token than this page has.
    sign_in_as(context, ALICE)
    context.add_cookies([{"name": "csrftoken", "value": "n" * 32, "url": page.url}])
    page.get_by_role("button", name="Submit").click()
    expect(page).to_have_url(re.compile(path(Batch.objects.get())))


@pytest.mark.parametrize(
    ("status", "said"), [(413, "This is too much for one form."), (500, "This service answered with error 500.")]
)
def test_no_estimate_stands_there_that_is_not_of_what_was_typed(
    status: int, said: str, service: DevChain, alice: User, page: Page
):
    page.goto("/new-batch")
    page.get_by_label("Accounts").fill(ALICE)
    expect(page.locator("#estimate")).to_contain_text("0 of 1")
    page.route("**/estimate", lambda route: route.fulfill(status=status, body="no"))
    page.get_by_label("Accounts").fill(f"{ALICE}\n{BOB}")
    expect(page.get_by_role("alert").filter(has_text=said)).to_be_visible()
    expect(page.locator("#estimate")).to_have_text("No answer came to what you typed last.")
    expect(page.get_by_role("button", name="Submit this batch")).to_be_visible()
    expect(page.locator(".ask > summary")).to_have_text("Row 1")
    expect(page.locator("#new-batch")).not_to_contain_text("1 fact")
    assert page.locator("#json-text").count() == 0
    assert faults_for_anybody(page) == []
    page.unroute("**/estimate")
    with page.expect_request("**/estimate") as asked:
        page.get_by_label("NONCE").first.check()
    expect(page.get_by_role("button", name="Submit 4 facts")).to_be_visible()
    expect(page.locator("#fee-unit")).to_have_text("ETH")
    # The web server takes no other form that is large.
    assert asked.value.headers["content-type"].startswith("multipart/form-data")


@pytest.mark.parametrize("fails", [False, True], ids=["answered", "not answered"])
def test_nothing_is_typed_that_the_answer_to_a_button_would_overwrite(
    alice: User,
    page: Page,
    fails: bool,  # noqa: FBT001 (pytest names it)
):
    page.goto("/new-batch")
    page.get_by_label("Accounts").fill(ALICE)
    held: list[Route] = []
    page.route("**/new-batch", lambda route: held.append(route))  # noqa: PLW0108 (playwright marks functions of Python)
    page.get_by_label("Fee cap").fill("1")
    page.get_by_role("button", name="Add a row").press("Enter")
    expect(page.get_by_text("Waiting for the answer.")).to_be_attached()
    page.keyboard.type("2")
    page.get_by_label("Fee cap").evaluate("fee => fee.focus()")
    page.keyboard.type("3")
    expect(page.get_by_label("Fee cap")).to_have_value("1")
    if fails:
        held[0].abort()
        expect(page.get_by_text("This service can't be reached.")).to_be_visible()
        expect(page.get_by_role("button", name="Add a row")).to_be_focused()
    else:
        held[0].continue_()
        expect(page.locator("#id_rows-1-accounts")).to_be_focused()
    expect(page.get_by_text("Waiting for the answer.")).not_to_be_attached()
    expect(page.get_by_label("Fee cap")).to_have_value("1")
    page.get_by_label("Fee cap").press("5")
    expect(page.get_by_label("Fee cap")).to_have_value(re.compile("^(15|51)$"))
    expect(page.locator("#id_rows-0-accounts")).to_have_value(ALICE)


def test_its_first_load_is_small(alice: User, context: BrowserContext):
    assert weight(context, "/new-batch") < 60_000


def test_a_new_row_takes_the_focus_once(alice: User, page: Page):
    page.clock.install(time=0)
    page.goto("/new-batch")
    # Timers wait from here on. The browser moves the focus to a new field by itself; no timer may move it again.
    page.clock.pause_at(60_000)
    for new in (1, 2):
        page.get_by_role("button", name="Add a row").press("Enter")
        expect(page.locator(f"#id_rows-{new}-accounts")).to_be_focused()
        page.keyboard.type("0x12")
        page.keyboard.press("Shift+Tab")
        expect(page.locator(f"#id_rows-{new}-at_0")).to_be_focused()
        page.clock.run_for(100)
        expect(page.locator(f"#id_rows-{new}-at_0")).to_be_focused()
        expect(page.locator(f"#id_rows-{new}-accounts")).to_have_value("0x12")


def test_a_late_form_leaves_focus_text_and_selection_elsewhere_on_the_page(alice: User, page: Page):
    page.goto("/new-batch")
    held: list[Route] = []
    page.route("**/new-batch", lambda route: held.append(route))  # noqa: PLW0108 (playwright marks functions of Python)
    page.get_by_role("button", name="Add a row").press("Enter")
    expect(page.get_by_text("Waiting for the answer.")).to_be_attached()
    find = page.get_by_role("searchbox")
    find.focus()
    page.keyboard.type("0x12")
    page.keyboard.press("Shift+ArrowLeft")
    held[0].continue_()
    expect(page.locator("#id_rows-1-accounts")).to_be_visible()
    expect(page.get_by_text("Waiting for the answer.")).not_to_be_attached()
    expect(find).to_be_focused()
    page.keyboard.type("3")
    expect(find).to_have_value("0x13")


@pytest.mark.parametrize(
    ("role", "name"),
    [("link", "Row 1, accounts"), ("button", "Copy the JSON"), ("button", "Download the JSON")],
)
def test_a_late_estimate_leaves_the_focus_on_what_it_replaces(role: Any, name: str, alice: User, page: Page):
    page.goto("/new-batch")
    page.locator("summary", has_text="JSON").click()
    place = page.locator("aside" if role == "link" else ".by-api")
    accounts, control = page.get_by_label("Accounts"), place.get_by_role(role, name=name)
    first, then = (ALICE, BOB)
    if role == "link":
        first, then = ("0x12", "0x1234")
        # The list above the form has the same link.
        page.get_by_role("button", name="Submit").click()
        expect(page.get_by_role("alert").get_by_role("link", name=name)).to_be_visible()
    accounts.fill(first)
    expect(control).to_be_visible()
    held: list[Route] = []
    page.route("**/estimate", lambda route: held.append(route))  # noqa: PLW0108 (playwright marks functions of Python)
    with page.expect_request("**/estimate"):
        accounts.fill(then)
    control.focus()
    expect(control).to_be_focused()
    with page.expect_response("**/estimate"):
        held[0].continue_()
    expect(page.locator("#estimate:not(.htmx-request)")).to_be_attached()
    expect(control).to_be_focused()
