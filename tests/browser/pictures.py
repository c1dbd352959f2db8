"""A table of every page in every state. People check its pictures, and tests check rules that all pages must keep."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlencode

from django.conf import settings
from django.db import OperationalError
from eth_utils.crypto import keccak
from playwright.sync_api import Page, Response, ViewportSize, expect

from accounts import development_sign_in, keys
from accounts.models import User
from config.configured_chains import forget_chains
from devnet.devchain import DevChain
from devnet.foreign_contracts import create, send
from explorer.lists import batch_rows
from queries.models import Batch
from tests.browser import installations, states
from tests.browser.conftest import Stage, axe_violations, overflows, sent
from tests.explorer.batches import TRANSFER, beat, connect_rollup, connect_source, path
from tests.service import ALICE, BOB, SIGNER, a_key

NARROW: ViewportSize = {"width": 400, "height": 800}
WIDE: ViewportSize = {"width": 1280, "height": 800}
VYPER = Path(__file__).parents[1] / "proving" / "vyper"
FIRST_CONTRACT = "0x5FbDB2315678afecb367f032d93F642f64180aa3"
MOST_BYTES = 60_000
"""Maximum size of a page and all that it loads, as sent."""


_HAS_HIGH_ROWS = (
    "[...document.querySelectorAll('.batches tr:not(.group, :has(.under))')].some(row => row.offsetHeight > 48)"
)
# Names of chains may be cut off. All other cells may hold numbers.
_HAS_CUT_CELLS = (
    "[...document.querySelectorAll(':is(.list, .facts-found) tbody :is(th, td):not(.where)')]"
    ".some(cell => cell.scrollWidth > cell.clientWidth + 1)"
)

Address = Callable[[Stage], str]
"""A function that stores the rows of a page and returns the page's address."""


@dataclass(frozen=True)
class Picture:
    name: str
    address: Address
    who: str = ""
    """The address of the signed-in user."""
    status: int = 200
    then: Callable[[Page], object] = lambda _: None
    """Actions on the page. They may lead to another page."""
    rows: Callable[[], object] | None = None
    """A function that stores what several pages show and none changes."""
    has_worker: bool = True
    settings: Mapping[str, object] = field(default_factory=dict)
    most_screens: float | None = None
    """Maximum height at a width of 400 px, in screens of 800 px."""

    @property
    def file(self) -> str:
        return "".join(letter if letter.isalnum() else "-" for letter in self.name.lower()).strip("-")

    def open(self, stage: Stage, *, has_rows: bool = False) -> str:
        """Prepare the state, whose shared rows may exist. Return the page's address."""
        for name, value in self.settings.items():
            setattr(stage.settings, name, value)
        connect_source(stage.folder)
        if self.rows and not has_rows:
            self.rows()
        address = self.address(stage)
        if self.has_worker:
            beat()
        return address


# --- Addresses --------------------------------------------------------------------------------------------------------


def at(url: str) -> Address:
    return lambda _: url


def of(make: Callable[[], Batch], suffix: str = "") -> Address:
    return lambda _: path(make()) + suffix


def _with_a_rollup(make: Callable[[], Batch]) -> Address:
    def address(stage: Stage) -> str:
        connect_rollup(stage.folder)
        return path(make())

    return address


def on_a_chain(make: Callable[[DevChain], Batch]) -> Address:
    return lambda stage: path(make(stage.chain()))


def _on_chains(url: str) -> Address:
    """Return a function that starts a chain and returns the address of a page about chains."""

    def address(stage: Stage) -> str:
        stage.chain()
        return url

    return address


def beside_a_token(stage: Stage) -> str:
    chain = stage.chain()
    assert create(chain, (VYPER / "Token-0.4.3.hex").read_text().strip()) == FIRST_CONTRACT
    send(chain, FIRST_CONTRACT, "fill(address)", ALICE)
    return "/new-batch"


def after(make: Callable[[], object], url: str) -> Address:
    def address(_: Stage) -> str:
        make()
        return url

    return address


def _failing(error: Exception) -> Address:
    """Return the address of a page whose rows can't be read."""

    def address(stage: Stage) -> str:
        def fail(*_: object, **__: object) -> None:
            raise error

        stage.patch.setattr(batch_rows, "read", fail)
        return "/explorer"

    return address


def _keys() -> None:
    """Issue three keys, and rotate one of them."""
    user = User.objects.for_address(ALICE)
    keys.issue_first(user)
    keys.issue(user, "the program that watches balances", "read")
    keys.rotate(keys.issue(user, "nightly"), "nightly 2", timedelta(days=1))


def _key(what: str) -> Address:
    def address(_: Stage) -> str:
        return f"/dashboard/keys/{a_key(name='nightly').pk}/{what}"

    return address


def _beside_a_demo(stage: Stage) -> str:
    stage.patch.setattr(development_sign_in, "is_offered", lambda _: True)
    return "/sign-in"


def _without_connections(stage: Stage) -> str:
    file = stage.settings.CHAINS_FILE
    file.write_text(file.read_text().partition("[[connections]]")[0])
    forget_chains()
    return "/"


# --- Actions on a page ------------------------------------------------------------------------------------------------


def click(name: str) -> Callable[[Page], object]:
    return lambda page: page.get_by_role("button", name=name).first.click()


def _sign_by_hand(page: Page) -> None:
    page.get_by_label("Your address").fill(ALICE)
    page.get_by_role("button", name="Show the message to sign").click()


def _read(page: Page) -> None:
    click("Read it from the chain now")(page)
    expect(page.locator(".reading")).to_contain_text("the registry holds exactly")


def _check(page: Page) -> None:
    click("Check it here")(page)
    expect(page.locator("#check [role=status]")).to_contain_text("Everything checked is correct.")


def _with_an_old_form(page: Page) -> None:
    # A pending request of the page would set the cookie again.
    page.wait_for_load_state("networkidle")
    page.context.clear_cookies()
    _sign_by_hand(page)


def _fill_in(page: Page) -> None:
    """Fill in two rows at a block: balances of accounts, and slots of one account."""
    page.get_by_label("Accounts").fill(f"{ALICE}\n{BOB}")
    page.get_by_role("radio", name="Block", exact=True).check(force=True)
    page.get_by_label("Block number").fill("3")
    page.get_by_role("button", name="Add a row").click()
    page.locator("[name=rows-1-kind][value=slot]").check()
    page.locator("#id_rows-1-accounts").fill(BOB)
    page.locator("#id_rows-1-slots").fill("0x5\n0x6")
    expect(page.get_by_role("button", name="Submit 4 facts")).to_be_visible()


def _find_a_slot(page: Page) -> None:
    page.get_by_role("radio", name="Token balance").check()
    page.get_by_role("textbox", name="Token").fill(FIRST_CONTRACT)
    page.get_by_role("textbox", name="Holder").fill(ALICE)
    page.get_by_role("button", name="Find the slot").click()
    expect(page.get_by_role("button", name="Submit 1 fact")).to_be_visible()
    expect(page.locator("#estimate")).to_contain_text("Transactions")


def _see_two_requests(page: Page) -> None:
    expect(page.get_by_role("button", name="Open it as a new batch")).to_have_count(2)


def _open_menu(page: Page) -> None:
    page.set_viewport_size(NARROW)
    page.locator(".menu > summary").click()


def _fill_in_wrong(page: Page) -> None:
    page.get_by_label("Accounts").fill(f"{ALICE}\n0x12")
    page.get_by_role("radio", name="Block", exact=True).check(force=True)
    page.get_by_role("button", name="Submit").click()
    expect(page.get_by_role("alert").first).to_be_visible()


def _submit_two(page: Page) -> None:
    page.get_by_label("Accounts").fill(f"{ALICE}\n{BOB}")
    page.locator("#submit").click()
    expect(page.get_by_role("button", name="Submit 2 queries")).to_be_visible()


# --- The table --------------------------------------------------------------------------------------------------------

_PUBLIC = {"PUBLIC_BATCH_LIST": True}
_OPERATOR = {"OPERATOR_ADDRESSES": [ALICE]}
_CHAIN = "Development chain (31337)"
_SLOT_NOT_PROVEN = (
    f"0x{keccak(text='SlotNotProven(address,uint256,bytes32)')[:4].hex()}{int(ALICE, 16):064x}{3:064x}{7:064x}"
)
_NOPE = f"0x{keccak(text='Error(string)')[:4].hex()}{32:064x}{4:064x}{b'nope'.hex():0<64}"

PICTURES = (
    Picture("Batch: RECEIVED", of(states.received)),
    Picture("Batch: RECEIVED, no worker runs", of(states.received), has_worker=False),
    Picture("Batch: its block is mistyped", of(states.mistyped)),
    Picture("Batch: ACCEPTED", of(states.accepted)),
    Picture("Batch: IN_PROGRESS, two queries", of(states.running)),
    Picture("Batch: its transaction is sent", of(states.being_sent), who=ALICE),
    Picture("Batch: cancel", of(states.being_sent, "/cancel"), who=ALICE),
    Picture("Batch: its transaction is being confirmed", of(states.being_confirmed)),
    Picture("Batch: waits, a node is down", of(states.waiting)),
    Picture("Batch: waits for attesters", of(states.of_two_sources_waiting)),
    Picture("Batch: waits, no worker runs", of(states.of_two_sources_waiting), has_worker=False),
    Picture("Batch: DONE, not final", of(states.just_done)),
    Picture("Batch: DONE, one answer", of(states.done_with_one_answer)),
    Picture("Batch: DONE, three facts", of(states.done)),
    Picture("Batch: DONE, with a webhook", of(states.with_webhook), who=ALICE),
    Picture("Batch: DONE, pruned", of(states.pruned)),
    Picture("Batch: REJECTED", of(states.rejected)),
    Picture("Batch: CANCELLED", of(states.cancelled)),
    Picture("Batch: DONE, with a label", of(states.labelled), who=ALICE),
    Picture("Batch: REJECTED at once", of(states.rejected_at_once)),
    Picture("Batch: REJECTED on the way", of(states.rejected_on_the_way)),
    Picture("Batch: rolled back", of(states.reorged)),
    Picture("Batch: rolled back, and is DONE since", of(states.reorged_and_done_since)),
    Picture("Batch: two source chains, one held up", of(states.one_of_two_sources)),
    Picture("Batch: two source chains, DONE", of(states.of_two_sources_done)),
    Picture("Batch: old block, on the path", of(states.on_the_path)),
    Picture("Batch: old block, arrived", of(states.arrived)),
    Picture("Batch: over a parent chain, waits", _with_a_rollup(states.over_a_parent)),
    Picture("Batch: over a parent chain, DONE", _with_a_rollup(states.over_a_parent_done)),
    Picture("Batch: a time, slots and a header", of(states.everything_open)),
    Picture("Batch: a time, slots and a header, DONE", of(states.everything_done)),
    Picture("Batch: an account and two transactions", of(states.about_transactions)),
    Picture("Batch: an account and two transactions, DONE", of(states.about_transactions_done)),
    Picture("Batch: one log, DONE", of(states.one_log, f"/1?{urlencode({'event': TRANSFER})}")),
    Picture("Batch: a token's balance, DONE", of(states.a_token_balance)),
    Picture("Batch: later slots", of(states.everything_done, "/1?slots=2")),
    Picture("Batch: five queries, one fails", of(states.several)),
    Picture("Batch: 60 queries", of(states.sixty), most_screens=6.5),
    Picture("Batch: 60 queries, DONE", of(states.sixty_done), most_screens=6.5),
    Picture("Batch: 60 queries, those that are open", of(states.sixty, "?state=open&sort=account&page=2")),
    Picture("Batch: 60 queries, none is as chosen", of(states.sixty, "?account=0x" + "9" * 40)),
    Picture("Batch: 60 queries, one of them", of(states.sixty_done, "/17")),
    Picture("Batch: 1,200 queries", of(states.twelve_hundred), most_screens=5.25),
    Picture("Batch: self-funded, your turn", of(states.left_to_its_user)),
    Picture("Batch: DONE, read from the chain", on_a_chain(states.proven_on_a_chain), then=_read),
    Picture("Batch: DONE, checked here", on_a_chain(states.proven_on_a_chain), then=_check),
    Picture(
        "Batch: self-funded, left to send", on_a_chain(states.paid_by_its_user), then=click("List the transactions")
    ),
    Picture("Batch: unknown", at(f"/explorer/query/{'0' * 26}"), status=404),
    Picture("Batch: no proof yet", of(states.received, "/1/bundle.json"), status=404),
    Picture("Home", at("/")),
    Picture("Home, signed in", at("/"), who=ALICE),
    Picture("Home, with a finished batch", after(states.done_with_one_answer, "/"), settings=_PUBLIC),
    Picture("Home, no chains", _without_connections),
    Picture("Menu", at("/nowhere"), who=ALICE, status=404, then=_open_menu),
    Picture("Menu, signed out", at("/nowhere"), status=404, then=_open_menu),
    Picture("List: to find one", at("/explorer")),
    Picture("List: empty", at("/explorer"), who=ALICE),
    Picture("List: everybody's, empty", at("/explorer"), settings=_PUBLIC),
    Picture("List: full", at("/explorer"), rows=states.a_page_of_batches, who=ALICE),
    Picture("List: everybody's, full", at("/explorer"), rows=states.a_page_of_batches, settings=_PUBLIC),
    Picture("List: found", at(f"/explorer?q={ALICE}&status=DONE"), rows=states.a_page_of_batches, who=ALICE),
    Picture("List: nothing found", at("/explorer?q=nothing"), rows=states.a_page_of_batches, who=ALICE),
    Picture("List: an unknown identifier", at(f"/explorer?q={'0' * 26}")),
    Picture("List: searched, signed out", at(f"/explorer?q={ALICE}")),
    Picture("Facts: none asked for", at("/facts"), who=ALICE),
    Picture("Facts: the latest", at("/facts"), rows=states.a_page_of_batches, settings=_PUBLIC),
    Picture("Facts of an account", at(f"/facts?account={ALICE}"), rows=states.a_page_of_batches, who=BOB),
    Picture("Facts of a block", after(states.everything_done, "/facts?block=12"), who=BOB),
    Picture("Facts: a wrong filter", at("/facts?account=0x12&block=x"), who=ALICE, status=400),
    Picture("Why a read reverts", at("/facts/why"), who=ALICE),
    Picture(
        "Why a read reverts: a slot",
        _on_chains(f"/facts/why?{urlencode({'revert': _SLOT_NOT_PROVEN})}"),
        who=ALICE,
        then=_see_two_requests,
    ),
    Picture("Why a read reverts: another's error", at(f"/facts/why?revert={_NOPE}"), who=ALICE),
    Picture("Why a read reverts: wrong", at("/facts/why?revert=0x12&account=0x12&block=x"), who=ALICE, status=400),
    Picture("Sign in", at("/sign-in")),
    Picture("Sign in, beside a demo", _beside_a_demo),
    Picture("Sign in by hand", at("/sign-in"), then=_sign_by_hand),
    Picture("Dashboard: new", at("/dashboard"), who=ALICE),
    Picture("Dashboard: full", at("/dashboard"), rows=installations.a_month, who=ALICE),
    Picture("Keys: three", after(_keys, "/keys"), who=ALICE),
    Picture("Keys: revoke", _key("revoke"), who=ALICE),
    Picture("Keys: rotate", _key("rotate"), who=ALICE),
    Picture("Log", at("/dashboard/log"), who=ALICE),
    Picture("Webhooks: deliveries", after(states.with_tests, "/webhooks"), who=ALICE),
    Picture("Webhooks: none", at("/webhooks"), who=ALICE),
    Picture("New batch", at("/new-batch"), who=ALICE),
    Picture("New batch, filled in", _on_chains("/new-batch"), who=ALICE, then=_fill_in),
    Picture("New batch, a token's slot", beside_a_token, who=ALICE, then=_find_a_slot),
    Picture(
        "New batch, to confirm",
        _on_chains("/new-batch"),
        who=ALICE,
        then=_submit_two,
        settings={"CONFIRM_ABOVE_QUERIES": 1},
    ),
    Picture("New batch, with faults", at("/new-batch"), who=ALICE, then=_fill_in_wrong, status=400),
    Picture("Chains", at("/chains"), rows=installations.seen_chains),
    Picture("Chains: attesters not asked lately", at("/chains"), rows=installations.attesters_not_asked_lately),
    Picture("Chains: nothing seen yet", at("/chains")),
    Picture("API", at("/api/docs"), then=lambda page: page.get_by_role("link", name="BatchRequest").first.click()),
    Picture("Operator", at("/operator"), rows=installations.operated, who=ALICE, settings=_OPERATOR),
    Picture("Operator: stop", at(f"/operator/stop?{urlencode({'what': _CHAIN})}"), who=ALICE, settings=_OPERATOR),
    Picture(
        "Operator: allow again",
        at(f"/operator/stop?{urlencode({'what': f'The signer {SIGNER} on {_CHAIN}'})}"),
        rows=installations.operated,
        who=ALICE,
        settings=_OPERATOR,
    ),
    Picture("Operator: new", at("/operator"), who=ALICE, settings=_OPERATOR),
    Picture("Operator, who is none", at("/operator"), who=BOB, settings=_OPERATOR, status=404),
    Picture(
        "Error 400", at("/explorer?" + "&".join(["a="] * (settings.DATA_UPLOAD_MAX_NUMBER_FIELDS + 1))), status=400
    ),
    Picture("Error 403", at("/admin/"), who=BOB, status=403),
    Picture("Error 403, an old form", at("/sign-in"), then=_with_an_old_form, status=403),
    Picture("Error 404", at("/nowhere"), status=404),
    Picture("Error 500", _failing(RuntimeError("a defect")), who=ALICE, status=500),
    Picture("Error 503", _failing(OperationalError("database is locked")), who=ALICE, status=503),
)


# --- Rules for pages --------------------------------------------------------------------------------------------------


def open_picture(page: Page, picture: Picture, url: str) -> list[str]:
    """Open the page. Return its faults after loading, including all console messages and requests to foreign hosts."""
    statuses: list[int] = []
    first_load: list[Response] = []
    is_loaded = False

    def answered(response: Response) -> None:
        nonlocal is_loaded
        if response.request.is_navigation_request():
            statuses.append(response.status)
            first_load.clear()
            is_loaded = False
        if not is_loaded and response.request.resource_type in {"document", "stylesheet", "script"}:
            first_load.append(response)

    def loaded(_: Page) -> None:
        nonlocal is_loaded
        is_loaded = True

    page.on("response", answered)
    page.on("load", loaded)
    page.goto(url)
    picture.then(page)
    page.wait_for_load_state()
    faults = [] if statuses[-1] == picture.status else [f"It is answered with {statuses[-1]}, not {picture.status}."]
    if (size := sent(first_load)) >= MOST_BYTES:
        faults.append(f"Its first load is {size:,} bytes.")
    page.set_viewport_size(NARROW)
    screens = page.evaluate("document.documentElement.scrollHeight / innerHeight")
    if picture.most_screens is not None and screens > picture.most_screens:
        faults.append(f"At 400 px it is {screens:.1f} screens high, and may be {picture.most_screens}.")
    return faults


def unfold(page: Page) -> bool:
    """Open all folded parts but the header's menu, which would cover the page. Return whether there were any."""
    folded = page.locator("details:not([open], .menu)")
    return folded.count() > 0 and bool(folded.evaluate_all("all => all.map(one => (one.open = true))"))


def faults_as_shown(page: Page, rule: str | None = None) -> list[str]:
    """Return the page's faults in its present colours, width and font: of one rule of axe-core, or of all."""
    faults = [*axe_violations(page, rule), *(["It must be scrolled sideways."] if overflows(page) else [])]
    if page.evaluate(_HAS_CUT_CELLS):
        faults.append("A cell of a list is cut off.")
    is_wide = (page.viewport_size or NARROW)["width"] >= WIDE["width"]
    return [*faults, "A batch has several lines in the list."] if is_wide and page.evaluate(_HAS_HIGH_ROWS) else faults
