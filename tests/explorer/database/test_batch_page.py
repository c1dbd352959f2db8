"""A batch's page: values, escaping, cost and privacy. `tests/golden` has its text in many states."""

import re
from decimal import Decimal
from html import unescape
from typing import Any

import pytest
from django.db import connection
from django.template.loader import render_to_string
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from accounts import keys
from proving.models import AccountProof, FactsRegistry, Share, SlotProof
from queries import batch_states
from queries.columns import RejectionCode
from queries.models import Batch, Block, Sender, Step, StepKind
from queries.waits import wait
from tests.browser.states import of_two_sources_waiting
from tests.explorer import batches, shown_code
from tests.explorer.batches import TRANSACTION, accept, batch_at, page, queries_of
from tests.explorer.pages import text_of
from tests.factories import client_of
from tests.service import ALICE, BOB, CHARLIE, a_key, chains_toml, header, request, submit

pytestmark = pytest.mark.django_db


# --- The batch --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", RejectionCode)
def test_every_rejection_has_advice_of_its_own(code):
    template = "explorer/shared/_what_to_do.html"
    advice = render_to_string(template, {"code": code.value})
    assert advice != render_to_string(template, {"code": "a code of an earlier version"})
    assert [render_to_string(template, {"code": other.value}) for other in RejectionCode].count(advice) == 1


def test_the_last_error_is_escaped():
    batch = batches.a_batch()
    batch_states.note_failure(batches.queries_of(batch), wait("node_fails", problem="<script>alert('x')</script>"))
    html = batches.page(batch)
    assert "&lt;script&gt;alert(&#x27;x&#x27;)&lt;/script&gt;" in html
    assert "<script>alert" not in html


def test_facts_stand_before_the_steps_once_all_are_proven():
    batch = batches.accept(batches.a_batch(ALICE, BOB))

    def order() -> bool:
        html = batches.page(batch)
        return html.index('<h2 id="queries">') < html.index("<h2>Steps</h2>")

    assert not order()
    batches.finish(batch)
    assert order()


def notes_of(batch: Batch, text: str) -> list[str]:
    """Return the classes of the notes on a batch's page, whose only mention of a text is in the first one."""
    batches.beat()
    html = batches.page(batch).partition("What was submitted")[0]
    assert text_of(html + "</main>").count(text) == 1
    notes = re.findall(r'<div class="note ([^"]*)">(.*?)</div>', html, flags=re.DOTALL)
    assert text in text_of(f"<main>{notes[0][1]}</main>")
    return [kind for kind, _ in notes]


def test_one_line_says_what_a_batch_waits_for_and_how_long_it_takes():
    batch = batches.accept(batches.a_batch(block=743))
    for head, time in ((691, "about 52 s"), (140, "about 10 min")):
        reason = wait("block_to_come", block=743, chain=31337, head=head, last=None)
        Block.objects.update(wait=reason)
        Step.objects.update(error=reason)
        sentence = f"Waiting for block 743 of Development chain, now {head}, {time}."
        assert notes_of(batch, sentence) == ["run IN_PROGRESS"]
        assert "The service has checked it" not in batches.page(batch)
    # Nothing is expected of a chain that isn't configured.
    Block.objects.update(wait=wait("block_to_come", block=743, chain=99, head=691, last=None))
    assert notes_of(batch, "Waiting for block 743 of chain 99, now 691.") == ["run IN_PROGRESS"]


def test_what_others_hold_up_is_told_once_in_amber(settings, tmp_path):
    settings.CHAINS_FILE = chains_toml(tmp_path, batches.DEAD_NODE)
    batches.connect_source(tmp_path)
    batch = of_two_sources_waiting()
    assert notes_of(batch, "attesters to vouch for block 9 of Other chain") == ["wait"]
    html = batches.page(batch)
    assert ("must sign" in html, html.count('class="IN_PROGRESS waits"')) == (False, 1)


def test_the_way_to_cancel_a_batch_says_what_it_cancels():
    batch = batches.accept(batches.a_batch())
    html = client_of(ALICE).get(batches.path(batch)).text
    assert re.search(r'cancel">Cancel batch<', html)


def test_a_fact_has_one_line_and_the_rest_is_folded():
    batch = batches.finish(batches.batch_at(block_12={"accounts": {ALICE: {"props": ["NONCE", "BALANCE"]}}}))
    html = batches.page(batch)
    lines = [
        " ".join(re.sub("<[^>]+>", "", line).split())
        for line in re.findall(r"<summary>(.*?)</summary>", html, re.DOTALL)
    ]
    assert [line for line in lines if re.match("NONCE|BALANCE", line)] == [
        "NONCE 7",
        "BALANCE 123,456,789.012345678901234567 ETH",
    ]
    opened = re.findall(r'<details class="fact" id="fact-1-\w+"( open)?', html)
    assert opened == ["", ""]
    # An only fact is open.
    alone = batches.finish(batches.a_batch(BOB))
    assert re.findall(r'<details class="fact" id="fact-1-\w+"( open)?', batches.page(alone)) == [" open"]


def test_what_this_service_did_not_send_is_said_to_be_its_sender_s(settings):
    settings.PUBLIC_BATCH_LIST = True
    batch = batches.finish(batches.a_batch())
    assert "The registry already had this" in text_of(batches.page(batch))
    Batch.objects.update(sender=Sender.SELF, fee=0)
    text = text_of(batches.page(batch))
    assert "Its submitter, or somebody else, sent the transaction." in text
    assert "already had this" not in text
    assert "by its sender" in text_of(Client().get(f"/facts?account={ALICE}", headers={"accept": "text/html"}).text)


# --- Values -----------------------------------------------------------------------------------------------------------


def shown_to_alice(batch: Batch) -> list[bool]:
    """Return whether the batch's page, its title and Alice's list show the balance."""
    html = batches.page(batch)
    line = " ".join(re.sub("<[^>]+>", "", client_of(ALICE).get("/explorer").text).split())
    assert f"Balance of {ALICE} at block 12" in line
    (title,) = re.findall(r'og:title" content="([^"]*)"', html)
    return [
        str(10**18) in html,
        re.search(r"\b1\sETH", unescape(title)) is not None,
        re.search(r"at block 12 1\sETH", line) is not None,
    ]


@pytest.mark.long
def test_no_value_is_shown_before_its_query_is_completed_nor_where_the_registry_may_not_hold_it():
    batch = batches.fetch_proofs(batches.accept(batches.a_batch()))
    AccountProof.objects.update(balance=10**18)
    batches.complete(batch, *list(StepKind)[:-1])
    assert shown_to_alice(batch) == [False] * 3
    batches.complete(batch, StepKind.FACTS_PROVEN)
    assert shown_to_alice(batch) == [True] * 3
    FactsRegistry.objects.update(deployed_at=None)
    assert shown_to_alice(batch)[2:] == [False]
    batches.deployed()
    batches.reopen(batch, StepKind.FACTS_PROVEN)
    assert shown_to_alice(batch) == [False] * 3
    batches.complete(batch, StepKind.FACTS_PROVEN)
    Batch.objects.update(status="REJECTED")
    assert shown_to_alice(batch) == [False] * 3


@pytest.mark.parametrize("balance", [0, 1, 10**18, 2**256 - 1])
def test_any_balance_is_shown_exactly(balance):
    batch = batches.finish(batches.a_batch())
    AccountProof.objects.update(balance=balance)
    shown = re.search(r" ETH ([\d.]+) wei, decimal (\d+) raw word 0x([0-9a-f]{64})", text_of(batches.page(batch)))
    assert shown
    whole, _, fraction = shown[1].partition(".")
    assert int(whole + fraction.ljust(18, "0")) == int(shown[2]) == int(shown[3], 16) == balance
    assert not fraction.endswith("0")


@pytest.mark.parametrize(
    "balance", [999_990_000_000_000_000, 10**18 - 1, 30_000_000_000_011_117_116_443, 10**14 - 1, 15 * 10**17]
)
def test_a_balance_has_all_its_digits_on_the_page_and_in_lists(balance):
    batch = batches.finish(batches.a_batch())
    AccountProof.objects.update(balance=balance)
    alice, browser = client_of(ALICE), {"accept": "text/html,*/*;q=0.8"}
    of_account = alice.get("/facts", {"account": ALICE}, headers=browser).text
    for html in (batches.page(batch), of_account, alice.get("/explorer").text, alice.get("/dashboard").text):
        assert f" {Decimal(balance).scaleb(-18).normalize():,f} ETH" in text_of(html).replace("\xa0", " ")
    assert "…" not in of_account.partition('class="r value"')[2].partition("</td>")[0]


# --- Fee and steps ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("paid", "columns", "shown"),
    [
        ({"fee": "0"}, {}, "Fee 0 ETH no limit, because this is a test network"),
        ({"fee": "15000000000000001"}, {}, "Fee 0.015000… ETH no limit, because this is a test network"),
        ({"fee": "auto"}, {}, "Fee auto capped at the estimated maximum"),
        ({"fee": "auto"}, {"fee": 10**15}, "Fee 0.001 ETH auto: capped at the estimated maximum"),
        ({"sender": "self"}, {}, "Fee 0 ETH you send the transactions Who pays Its submitter"),
    ],
)
@pytest.mark.parametrize("end", [lambda _: None, batches.accept, batches.finish, batches.reject])
def test_the_submitted_fee_is_beside_what_was_spent_in_each_state(paid, columns, shown, end):
    body = request(ALICE, block=12)
    del body["fee"]
    batch = submit(a_key(), body | paid)
    Batch.objects.update(**columns)
    batch.refresh_from_db()
    end(batch)
    assert shown in (text := text_of(batches.page(batch)))
    assert re.search("ago .* Fee .* (Spent|Who pays)", text)


def test_a_fee_is_shown_where_gas_has_a_price(settings, tmp_path):
    settings.CHAINS_FILE = chains_toml(tmp_path, batches.DEAD_NODE, chain="test_network = false")
    settings.ALLOWED_ADDRESSES = ["*"]
    assert "Fee 1 ETH the most that it may cost Spent so far 0 ETH" in text_of(
        batches.page(batches.a_batch(fee=10**18))
    )


def test_each_step_of_several_queries_has_its_status_its_start_and_its_completion():
    batch = batches.accept(batches.a_batch(*batches.many_accounts(60)))
    batches.complete(batch, StepKind.INITIAL_STATE)
    batches.complete(batch, StepKind.BLOCKHASH_AVAILABLE, of=batches.queries_of(batch)[:1])
    moment, time = r"[\d-]{10} [\d:]{8}\s+UTC", r"[\d:]{8}"
    steps = [
        rf"INITIAL_STATE COMPLETED 60 of 60, [\d.]+ s {moment} to {time}",
        rf"BLOCKHASH_AVAILABLE IN_PROGRESS 1 of 60, \d+ s so far {moment} ",
        rf"HEADER_ACCUMULATED IN_PROGRESS 0 of 60, \d+ s so far {moment} ",
        "ACCOUNT_ACCUMULATED not begun 0 of 60 60 queries",
    ]
    assert re.search(".*".join(steps), text_of(batches.page(batch)))
    batches.reject(batch)
    stopped = rf"COMPLETED 60 of 60.*_AVAILABLE STOPPED 1 of 60, [\d.]+ s {moment} to {time}.*not begun 0 of 60"
    assert re.search(stopped, text_of(batches.page(batch)))


@pytest.mark.parametrize("queries", [1, 2, 60])
def test_a_batch_that_is_rejected_at_once_shows_the_steps_that_it_had(queries):
    batch = batches.a_batch(*batches.many_accounts(queries))
    batches.reject(batch)
    assert re.search(r"INITIAL_STATE STOPPED .*UTC to [\d:]{8}.*_AVAILABLE not begun", text_of(batches.page(batch)))


def test_a_rejected_batch_says_once_what_happened_and_what_to_do():
    batch, reason = batches.a_batch(), wait("node_fails", problem="The node is down.")
    batch_states.note_failure(batches.queries_of(batch), reason)
    batch_states.reject([batch.pk], code=RejectionCode.DEADLINE_EXCEEDED, reason=reason, retryable=True)
    text = text_of(batches.page(batch))
    once = ("deadline", "The node is down.", "send the same batch again", "Edit and submit again")
    assert [text.count(word) for word in once] == [1] * len(once)


@pytest.mark.parametrize("unit", ["hops", "jumps"])
def test_the_digits_of_every_number_on_a_page_are_grouped(unit):
    batch = batches.accept(batches.a_batch(*batches.many_accounts(1100), block=12_345))
    batches.plan_path(batch, 4_000, left=2_000, unit=unit)
    batches.complete(batch, StepKind.INITIAL_STATE, StepKind.BLOCKHASH_AVAILABLE)
    behind = wait("block_to_come", block=12_345, chain=31337, head=1_234, last=5_678)
    Block.objects.update(path_origin=1_111, wait=behind, failing_since=timezone.now())
    sent = batches.send(batch), batches.send(batch, tx_hash=batches.HASH, extends=batches.deployed())
    for tx in sent:
        batches.mine(tx, block=2_345, head=3_000)
        Share.objects.create(transaction=tx, batch=batch, gas=1, wei=1, weight=1)
    batches.beat()
    for suffix in ("", "/1100"):
        text, _, _ = text_of(Client().get(batches.path(batch) + suffix).text).partition("What was submitted")
        assert re.findall(r"(?<![\w.,…-])\d{4,}(?![\w…-])", text.replace("(31337)", "")) == []
        assert {"12,345", "1,234", "2,345"} <= {*re.findall(r"\d{1,2},\d{3}", text)}


def test_a_transaction_that_was_sent_for_another_batch_proves_no_number_of_queries():
    batches.send(batches.a_batch())
    batch = batches.accept(batches.a_batch(ALICE, BOB))
    batches.complete(batch, *StepKind, transaction_hash=batches.TRANSACTION)
    text = text_of(batches.page(batch))
    assert ("0 queries" in text, "sent for another batch" in text) == (False, True)


# --- Cost -------------------------------------------------------------------------------------------------------------


def taken(batch: Batch) -> int:
    with CaptureQueriesContext(connection) as captured:
        batches.page(batch)
    assert all(statement["sql"].lstrip("(").startswith("SELECT") for statement in captured), "It only reads."
    return len(captured)


@pytest.mark.long
@pytest.mark.parametrize("state", ["open", "done"])
def test_the_number_of_statements_does_not_grow_with_the_batch(state):
    statements = {}
    for count in (1, 10, 60, 200):
        batch = submit(a_key(name=str(count)), request(*batches.many_accounts(count), block=count))
        if state == "done":
            batches.finish(batch)
        statements[count] = taken(batch)
    # Up to ten queries are shown with their steps, which takes a few more statements.
    assert statements[1] <= statements[10]
    assert statements[60] == statements[200] <= statements[10] <= 21, statements


@pytest.mark.long
def test_thousands_of_slots_cost_a_page_no_more_than_fifty():
    sizes, statements = [], []
    for count in (60, 5000):
        batch = batches.batch_at(**{f"block_{count}": {"accounts": {ALICE: {"slots": list(map(hex, range(count)))}}}})
        batches.finish(batch)
        statements.append(taken(batch))
        sizes.append(len(batches.page(batch)))
    assert statements[0] == statements[1]
    assert sizes[1] < sizes[0] * 1.05


def test_a_named_slot_is_shown_by_its_name_and_its_number():
    keys: list[Any] = [
        ALICE,
        {"key": '"<b>\u202e', "type": "string"},
        {"key": "0x12", "type": "bytes"},
        {"member": "1"},
    ]
    keys += [{"index": "3", "size": "64", "length": "4"}, {"index": "3"}, "-7"]
    names = [{"slot": "2", "keys": keys}, {"slot": "9", "keys": [ALICE], "layout": "vyper-0.2.12"}]
    path = rf'0x2[{ALICE}]["\"<b>\u202e"][bytes 0x12].1[element 3 of 4, 64 bytes][element 3][-7]'
    batch = batches.batch_at(block_12={"accounts": {BOB: {"slots": [*names, "0x5"]}}})
    paths = (f"{path} in the layout of Solidity", f"0x9[{ALICE}] in the layout of Vyper 0.2.12")
    first, second, _ = batch.queries.get().slots
    for end in (lambda _: None, batches.finish):
        end(batch)
        for url in (batches.path(batch), f"{batches.path(batch)}/1"):
            html = Client().get(url).text
            text = unescape(text_of(html)).replace(" ", "")
            assert "<b>" not in html
            assert [f"whichis{path.replace(' ', '')}" in text for path in paths] == [True, True]
            assert [hex(int(slot, 16)) in text for slot in (first, second)] == [True, True]
    facts = Client().get(f"/batch-queries/{batch.pk}", headers=header(batch.api_key)).json()["queryList"][0]["facts"]
    shown = [(fact["slot"], fact["slotName"]) for fact in facts]
    named = [
        {"slot": "0x2", "keys": keys, "layout": "solidity"},
        {"slot": "0x9", "keys": [ALICE], "layout": "vyper-0.2.12"},
    ]
    assert shown == [(first, named[0]), (second, named[1]), (batches.word(5), None)]
    (held,) = Client().get(f"/facts?account={BOB}&slot={first}", headers=header(batch.api_key)).json()["facts"]
    assert held["slotName"] == named[0]


TOKENS = 25 * 10**17
BALANCE_OF = {"slot": "2", "keys": [ALICE], "call": "balanceOf(address)", "decimals": 18}
UNITLESS = {"slot": "2", "keys": [ALICE], "call": "balanceOf(address)"}
SHORT = "0xf39F…2266"
OF_SOLADY = {"slot": f"{ALICE[2:]}{'87a211a2':0>24}", "keys": [{"index": "0"}], "call": "balanceOf(address)"}


@pytest.mark.parametrize(
    ("name", "word", "title"),
    [
        (
            BALANCE_OF,
            TOKENS,
            (
                f"Slot said to be balanceOf {SHORT} of {{}} at block 12 of Development chain: "
                "2.5 divided by 10¹⁸, as its sender says"
            ),
        ),
        (
            BALANCE_OF | {"symbol": "LEND"},
            1000 * 10**18,
            (f"LEND balance of {SHORT} in {{}} at block 12 of Development chain: 1,000 LEND, as claimed"),
        ),
        # Without decimals, the number isn't known to be one of the token.
        (UNITLESS | {"symbol": "NFT"}, 7, f"NFT balance of {SHORT} in {{}} at block 12 of Development chain: 7"),
        (BALANCE_OF | {"symbol": "WEI", "decimals": 0}, 7, ": 7 WEI, as claimed"),
        (BALANCE_OF | {"symbol": "OF", "call": "balanceOf(address)(uint256)"}, TOKENS, f"OF balance of {SHORT} in"),
        (
            {**BALANCE_OF, "symbol": "LEND", "keys": [ALICE, BOB], "call": "allowance(address,address)"},
            TOKENS,
            f"LEND allowance of {SHORT} to 0x7099…79C8 in {{}} at",
        ),
        ({**BALANCE_OF, "symbol": "LEND", "keys": [], "call": "totalSupply()"}, TOKENS, "LEND total supply of {} at"),
        (
            {**BALANCE_OF, "symbol": "LEND", "keys": [ALICE, {"index": "3"}], "call": "getVotes(address)"},
            TOKENS,
            f"LEND votes of {SHORT} in {{}} at",
        ),
        # No argument is known to be the holder.
        ({**BALANCE_OF, "symbol": "LEND", "keys": []}, TOKENS, "Slot said to be balanceOf(address) of {} at"),
        ({**BALANCE_OF, "symbol": "LEND", "call": "f(address)"}, TOKENS, f"Slot said to be f {SHORT} of {{}} at"),
        ({**BALANCE_OF, "symbol": "LEND", "keys": ["5000000"]}, TOKENS, "Slot said to be balanceOf 5000000 of {} at"),
        (
            {**BALANCE_OF, "symbol": "LEND", "keys": [{"key": "Bob: 5,000 LEND", "type": "string"}]},
            TOKENS,
            'Slot said to be balanceOf "Bob: 5,000 LEND" of {} at',
        ),
        (OF_SOLADY, 7, f"Slot said to be balanceOf {SHORT} of {{}} at"),
        (OF_SOLADY | {"symbol": "LADY", "decimals": 1}, 7, f"LADY balance of {SHORT} in {{}} at"),
        (
            {
                "slot": f"{0x7F5E9F20:024x}{BOB[2:]}",
                "keys": [{"key": ALICE.lower(), "type": "bytes"}],
                "call": "allowance(address,address)",
            },
            7,
            f"Slot said to be allowance {SHORT}, 0x7099…79C8 of",
        ),
        (BALANCE_OF | {"decimals": 2}, TOKENS + 1, ": 25,000,000,000,000,000.01 divided by 10²"),
        (BALANCE_OF | {"decimals": 6}, 123_456_789, ": 123.456789 divided by 10⁶, as its sender says"),
        (BALANCE_OF, 10**30 + 1, ": 1,000,000,000,000.000000000000000001 divided by"),
        # Divided, they have too many digits.
        (BALANCE_OF | {"decimals": 77}, 5, ": 5"),
        (BALANCE_OF, 10**31 + 1, ": 0x00000000…"),
        (BALANCE_OF | {"decimals": 0}, 2_500_000_000, ": 2,500,000,000"),
        ({"slot": "2", "keys": [ALICE]}, TOKENS, ": 2,500,000,000,000,000,000"),
        # Words that are numbers look alike, whether a name is known or not.
        ({"slot": "2", "keys": [ALICE]}, 10**30, f": {10**30:,}"),
        ("0x2", 10**30, f": {10**30:,}"),
        ({"slot": "2", "keys": [ALICE]}, 10**31, ": 0x00000000…"),
        ("0x2", 10**31, ": 0x00000000…"),
        ({"slot": "2", "keys": [ALICE]}, 7, f"Slot 0x2[{SHORT}] of {{}} at block 12 of Development chain: 7"),
        ({"slot": "2", "keys": [], "call": "totalSupply()"}, 7, "Slot said to be totalSupply of"),
        # The arguments aren't known.
        ({"slot": "2", "keys": [], "call": "f(address)"}, 7, "Slot said to be f(address) of"),
        (
            {"slot": "2", "keys": [ALICE, "5"], "call": "allowance(address,uint256)"},
            7,
            f"Slot said to be allowance {SHORT}, 5 of",
        ),
        ("0x2", 7, "Slot 0x2 of"),
        (
            {"slot": "2", "keys": [], "part": {"offset": 128, "size": 64, "form": "signed"}},
            (2**64 - 5) << 128 | 3,
            "Slot 0x2 of {} at block 12 of Development chain: -5 in bits 128 to 191",
        ),
        (
            {"slot": "2", "keys": [], "part": {"offset": 8, "size": 8, "form": "bool"}},
            0x205,
            ": true in bits 8 to 15",
        ),
        (
            {"slot": "2", "keys": [], "part": {"offset": 0, "size": 32, "form": "left"}, "decimals": 3},
            0xAB,
            ": 0x000000ab in bits 0 to 31",
        ),
        (
            {"slot": "2", "keys": [], "call": "owner()", "part": {"offset": 0, "size": 160, "form": "unsigned"}},
            int(ALICE, 16),
            ": 0xf39f…2266 in bits 0 to 159",
        ),
        # The call states the type of its answer.
        ({"slot": "2", "keys": [ALICE], "call": "pnl(address)(int256)"}, 2**256 - 5, f"said to be pnl {SHORT} of {{}}"),
        ({"slot": "2", "keys": [ALICE], "call": "pnl(address)(int256)"}, 2**256 - 5, ": -5"),
        ({"slot": "2", "keys": [], "call": "isOpen()(bool)"}, 1, ": true"),
        ({"slot": "2", "keys": [], "call": "owner()(address)"}, int(ALICE, 16), ": 0xf39f…2266 in bits 0 to 159"),
        (
            {
                "slot": "2",
                "keys": [],
                "call": "price()(uint160)",
                "part": {"offset": 0, "size": 160, "form": "unsigned"},
            },
            7,
            ": 7 in bits 0 to 159",
        ),
    ],
)
def test_the_title_of_a_slot_is_its_name_and_its_number(name, word, title):
    batch = batches.batch_at(block_12={"accounts": {BOB: {"slots": [name]}}})
    batches.finish(batch)
    SlotProof.objects.update(value=word)
    html = batches.page(batch)
    (shown,) = re.findall(r'og:title" content="([^"]*)"', html)
    assert title.format(f"{BOB[:6]}…{BOB[-4:]}") in unescape(shown)
    # The whole word is beside it.
    assert batches.word(word) in html


def test_a_known_namespace_has_its_number_and_its_name():
    base = "0x52c63247e1f47db19d5ce0460030c497f067ca4cebf71ba98eeadabe20bace00"
    for place, text in ((0, "ERC20)"), (1, "ERC20 + 1)"), (256, "")):
        name = {"slot": f"{int(base, 16) + place:x}", "keys": [ALICE], "layout": "solidity"}
        batch = batches.batch_at(block_12={"accounts": {BOB: {"slots": [name]}}})
        batches.finish(batch)
        html = batches.page(batch)
        assert f"{int(base, 16) + place:#x}" in html
        shown = re.sub(r"\s+", " ", unescape(text_of(html)))
        assert (f"(erc7201:openzeppelin.storage.{text}" in shown) is bool(text)


def test_what_a_sender_states_is_marked_as_not_proven_wherever_it_stands(settings):
    settings.PUBLIC_BATCH_LIST = True
    batch = batches.batch_at(block_12={"accounts": {BOB: {"slots": [BALANCE_OF]}}})
    batches.finish(batch)
    SlotProof.objects.update(value=TOKENS)
    of_batch, of_list, of_facts = (
        # Code has the call as the name of its function.
        unescape(text_of(re.sub("(?s)<pre.*?</pre>", "", Client().get(url, headers={"accept": "text/html"}).text)))
        for url in (batches.path(batch), "/explorer", f"/facts?account={BOB}")
    )
    assert "said by its sender to be balanceOf(address) , not proven" in of_batch
    assert "2.5 divided by 10¹⁸, as its sender says" in re.sub(r"(divided .* says) (2.5)", r"\2 \1", of_batch)
    assert "said by its sender to be balanceOf(address) , not proven" in of_facts
    for text in (of_batch.partition("What was submitted")[0], of_list, of_facts):
        assert (
            len(re.findall("balanceOf", text)) == len(re.findall("said (?:by its sender )?to be balanceOf", text)) > 0
        )
    for url in (f"{batches.path(batch)}/facts.csv", f"/facts.csv?account={BOB}"):
        head, line, *_ = Client().get(url).text.splitlines()
        cells = dict(zip(head.split(","), line.split(","), strict=True))
        assert (cells["slot_said_to_be"], cells["value"]) == (f"balanceOf {ALICE}", str(TOKENS))


def test_a_token_s_symbol_is_marked_as_its_own_claim_wherever_it_stands(settings):
    batch = batches.batch_at(block_12={"accounts": {BOB: {"slots": [BALANCE_OF | {"symbol": "LEND"}]}}})
    batches.finish(batch)
    SlotProof.objects.update(value=TOKENS)
    user = client_of(batch.user.address)
    for url in (batches.path(batch), "/explorer", f"/facts?account={BOB}"):
        shown = re.sub(r"\s+", " ", unescape(text_of(user.get(url, headers={"accept": "text/html"}).text)))
        assert f"LEND balance of {SHORT}" in shown
        assert "LEND, as claimed" in shown
        in_full = "divided by 10¹⁸, LEND by the token's own claim, as its sender says" in shown
        assert in_full is (url != "/explorer")
    # Others see neither the symbol nor the decimals among facts.
    settings.PUBLIC_BATCH_LIST = True
    shown = unescape(text_of(Client().get(f"/facts?account={BOB}", headers={"accept": "text/html"}).text))
    assert ("LEND" in shown, "slot said to be balanceOf" in re.sub(r"\s+", " ", shown)) == (False, True)


@pytest.mark.parametrize(
    ("name", "function"),
    [
        (BALANCE_OF, "balanceOf(address holder, uint256 blockNumber) internal view returns (uint256)"),
        (BALANCE_OF | {"layout": "vyper"}, "balanceOf(address holder, uint256 blockNumber) internal view returns"),
        # The key may be the contract itself, whatever the argument of the call is.
        (BALANCE_OF | {"keys": [BOB]}, "read(address holder, uint256 blockNumber) internal view returns (uint256)"),
        (
            {"slot": "2", "keys": [ALICE], "part": {"offset": 0, "size": 8, "form": "bool"}},
            "read(address holder, uint256 blockNumber) internal view returns (bool)",
        ),
        # Solady hashes a base with the holder, as the first slot of a dynamic array in Solidity.
        (OF_SOLADY, "balanceOf(address holder, uint256 blockNumber) internal view returns (uint256)"),
        (OF_SOLADY | {"layout": "vyper"}, "read() external view returns (uint256)"),
        (OF_SOLADY | {"slot": f"{BOB[2:]}{'87a211a2':0>24}"}, "read(address holder, uint256 blockNumber) internal"),
        # An element of an array may be another one for another holder.
        ({"slot": "2", "keys": [ALICE, {"index": "1"}]}, "read() external view returns (uint256)"),
        ({"slot": "2", "keys": [ALICE, CHARLIE]}, "read() external view returns (uint256)"),
        ({"slot": "2", "keys": ["7"]}, "read() external view returns (uint256)"),
        ("0x2", "read() external view returns (bytes32)"),
    ],
)
def test_a_contract_can_read_another_holder(name, function):
    batch = batches.batch_at(block_12={"accounts": {BOB: {"slots": [name]}}})
    batches.finish(batch)
    html = unescape(batches.page(batch))
    assert "// SPDX-License-Identifier: MIT\npragma solidity ^0.8.20;\n\ninterface IFactsRegistry" in html
    assert f"reverts where nothing is proven.\n    function {function}" in html


# Words, types and builtins of Solidity, and names in the shown code. Others stay.
COLLIDING = """
abi abstract address addmod alias anonymous apply as assembly assert auto block blockhash bool break byte bytes bytes1
bytes32 calldata case catch constant constructor continue contract copyof days default define delete do ecrecover else
emit enum ether event external fallback false final fixed fixed128x18 for function gasleft gwei hex hours if immutable
implements import in indexed inline int int8 int256 interface internal is keccak256 let library log0 macro mapping match
memory minutes modifier msg mulmod mutable new now null of override partial payable pragma private promise public pure
receive reference relocatable require return returns revert ripemd160 sealed seconds selfdestruct sha256 sizeof static
storage string struct super supports switch this throw true try tx type typedef typeof ufixed uint uint8 uint256
unchecked unicode using var view virtual weeks wei while years blobhash
Example FACTS IFactsRegistry blockNumber holder slot word
"""
FREE = "balanceOf $ _free Uint256 registry accountStorageSlotValues ofHolder"


@pytest.mark.long
@pytest.mark.parametrize("texts", [COLLIDING.split(), FREE.split()], ids=["colliding", "free"])
def test_a_function_has_no_name_that_collides_in_solidity(settings, texts):
    settings.PUBLIC_BATCH_LIST = True
    sources: dict[str, str] = {}
    for first in range(0, len(texts), 25):
        account, named = f"0x{first + 1:040x}", texts[first : first + 25]
        slots = [{"slot": hex(place), "keys": [ALICE], "call": f"{text}(address)"} for place, text in enumerate(named)]
        batches.finish(batches.batch_at(block_12={"accounts": {account: {"slots": slots}}}))
        shown = shown_code.of_page(f"/facts?account={account}")
        sources |= {f"{first + place}.sol": each["Solidity"] for place, each in enumerate(shown)}
    assert len(sources) == len(texts)
    shown_code.creation_codes(sources)
    functions = {re.findall(r"function (\S+)\(address holder", code)[0] for code in sources.values()}
    assert functions == ({"read"} if "abi" in texts else set(texts))


# --- Visitors ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", ["0", "12", "9" * 50])
def test_a_query_that_is_not_in_the_batch_is_not_found(number):
    assert Client().get(f"{batches.path(batches.a_batch(*batches.many_accounts(11)))}/{number}").status_code == 404


def test_anyone_with_the_link_can_read_it_and_no_key_is_on_it():
    key = a_key()
    secret = keys.reveal(key)
    assert secret
    batch = submit(key, request(ALICE, block=12))
    response = Client().get(batches.path(batch), {"apiKey": secret})
    assert response.status_code == 200
    for text in (secret, key.prefix, key.last_four, key.name):
        assert text not in text_of(response.text)
    assert secret not in response.text
    assert Client().post(batches.path(batch)).status_code == 405


# --- The table of queries: values, filters and orders -----------------------------------------------------------------


def numbers(batch: Batch, **parameters: Any) -> list[int]:
    """Return the numbers of the shown queries in their order."""
    return [int(number) for number in re.findall(r'id="row-(\d+)"', page(batch, **parameters))]


def blocks_and_states() -> Batch:
    """Return five queries: Alice and Bob at block 9, both at block 5, and a transaction at block 7. Two are proven."""
    both = {"accounts": {ALICE: {"props": ["NONCE"]}, BOB: {"props": ["NONCE"]}}}
    batch = accept(batch_at(block_9=both, block_5=both, block_7={"transactions": {TRANSACTION: {"logs": ["0"]}}}))
    for kind in StepKind:
        batch_states.complete(queries_of(batch)[:2], kind)
    return batch


@pytest.mark.parametrize(
    ("parameters", "shown"),
    [
        ({}, [1, 2, 3, 4, 5]),
        ({"state": "proven"}, [1, 2]),
        ({"state": "open"}, [3, 4, 5]),
        ({"account": ALICE}, [1, 3]),
        ({"account": "5"}, [3, 4]),
        ({"account": "6"}, []),
        ({"account": TRANSACTION.upper().replace("X", "x")}, [5]),
        ({"account": f"0x{'1' * 64}"}, []),
        ({"account": ALICE, "state": "open"}, [3]),
        ({"chain": "31337"}, [1, 2, 3, 4, 5]),
        ({"chain": "7"}, []),
        ({"sort": "block"}, [3, 4, 5, 1, 2]),
        ({"sort": "account"}, [5, 2, 4, 1, 3]),
        ({"sort": "state"}, [3, 4, 5, 1, 2]),
        ({"sort": "block", "state": "proven"}, [1, 2]),
        ({"page": "7"}, [1, 2, 3, 4, 5]),
    ],
)
def test_filters_leave_some_out_and_orders_change_their_order(parameters, shown):
    assert numbers(blocks_and_states(), **parameters) == shown


@pytest.mark.parametrize(
    ("parameters", "sentence"),
    [
        *(({"page": page}, "There is no such page of the list.") for page in ("x", "0", "-1", "1e3", "\u0663")),
        ({"deliveries": "x"}, "There is no such page of the list."),
        ({"sort": "1; DROP TABLE"}, "There is no such order of queries."),
        ({"state": ["open", "proven"]}, "There is no such state of queries."),
        ({"chain": "0x7a69"}, "The source chain must be a chain id, in decimal digits."),
    ],
    ids=str,
)
def test_a_filter_of_a_batch_that_cannot_be_read_is_refused(parameters, sentence):
    batch = blocks_and_states()
    address = f"/explorer/query/{batch.pk}"
    page = client_of(ALICE).get(address, parameters)
    assert (page.status_code, sentence in page.text) == (400, True)
    program = client_of(ALICE).get(address, parameters, headers={"accept": "application/json"})
    assert program.json() == {"error": sentence, "code": "bad_request"}
