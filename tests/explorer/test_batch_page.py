"""What the page of a batch and its JSON say in each of its states: tests/browser/states.py has the table.

With UPDATE=1 in the environment, the texts are written anew. Below are rules that hold in every state.
"""

import json
import os
import re
from hashlib import sha256
from html import unescape
from pathlib import Path

import pytest
from django.db import connection
from django.template.loader import render_to_string
from django.test import Client
from django.test.utils import CaptureQueriesContext
from eth_abi.abi import encode
from eth_utils.abi import function_signature_to_4byte_selector

from accounts import keys
from config.configured_chains import forget_chains, get_rpc
from devnet.devchain import DevChain
from explorer.batch import transaction_display
from proving.models import AccountProof, Share, SignedTransaction, Signer, Stop, Transaction, TransactionState
from queries import progress
from queries.error_codes import RejectionCode
from queries.models import Batch, Block, StepKind
from tests.browser.states import STATES, State
from tests.explorer.batches import (
    BALANCE,
    HASH,
    SOURCE,
    TRANSACTION,
    a_batch,
    accept,
    batch_at,
    beat,
    complete,
    connect_rollup,
    connect_source,
    fetch_proofs,
    finish,
    many_accounts,
    mine,
    of_two_sources,
    page,
    path,
    queries_of,
    send,
    word,
)
from tests.explorer.pages import lines_of, sent, text_of
from tests.factories import client_of
from tests.service import ALICE, BOB, a_key, chains_toml, request, submit, work_until_done

pytestmark = pytest.mark.django_db

TEXTS = Path(__file__).parent / "batch_pages"
# Of what passes, and what each run makes anew.
PASSING = (
    (r"\d{4}-\d\d-\d\dT[\d:.+]+", "INSTANT"),
    (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "DATE"),
    (r"(?<!\d)\d\d:\d\d:\d\d", "TIME"),
    (r"on \d{4}-\d\d-\d\d", "on DATE"),
    (r"(?<![\w.,])(\d+ (d|h|min)( \d+ (h|min|s))?|[\d.]+ s)\b", "SPAN"),
    (r"msg_\w+", "MESSAGE"),
)


@pytest.mark.parametrize("state", STATES, ids=lambda state: state.name)
def test_each_state_is_told_as_it_is_to_be(state: State, tmp_path):
    connect_source(tmp_path)
    connect_rollup(tmp_path)
    batch = state.make()
    if state.has_worker:
        beat()
    client = client_of(state.who) if state.who else Client()
    html = client.get(path(batch) + state.rest).text
    compare(lines_of(html), TEXTS / f"{state.file}.txt", batch.pk)
    if not state.rest:
        as_json = json.dumps(client.get(f"{path(batch)}.json?limit=3").json(), indent=1)
        compare(as_json, TEXTS / f"{state.file}.json", batch.pk)
    # What htmx is told is the same, and nothing is new in it.
    polled = re.search(r'hx-get="([^"]+)"', html)
    assert not polled or client.get(polled[1].replace("&amp;", "&"), headers={"hx-request": "true"}).status_code == 204


def compare(said: str, file: Path, batch: str) -> None:
    hashes = {"0x" + sha256(f"{batch} {number}".encode()).hexdigest(): number for number in range(1, 4)}
    for tx_hash, number in hashes.items():
        said = said.replace(tx_hash, f"TRANSACTION_{number}")
    said = said.replace(batch, "BATCH")
    for pattern, name in PASSING:
        said = re.sub(pattern, name, said)
    if os.environ.get("UPDATE"):
        TEXTS.mkdir(exist_ok=True)
        file.write_text(said)
    assert said == file.read_text()


# --- The batch --------------------------------------------------------------------------------------------------------


def test_a_fee_is_a_limit_where_gas_costs_something(settings, tmp_path):
    batch = a_batch(fee=10**18)
    settings.CHAINS_FILE = chains_toml(tmp_path, "http://127.0.0.1:1", chain="test_network = false")
    forget_chains()
    text = text_of(page(batch))
    assert "Fee at most 1 ETH" in text
    assert "Fee offered 1 The operator of this service pays; you pay nothing; the fee caps what" in text


def test_a_chain_that_is_no_longer_configured_is_shown_by_its_id(settings, tmp_path):
    batch = a_batch()
    (tmp_path / "other").mkdir()
    settings.CHAINS_FILE = chains_toml(tmp_path / "other", "http://127.0.0.1:1", chain_id=5)
    forget_chains()
    assert "Chain that is no longer configured (31337)" in text_of(page(batch))


@pytest.mark.parametrize("code", RejectionCode)
def test_every_rejection_has_advice_of_its_own(code):
    for template in ("explorer/_what_happened.html", "explorer/_what_to_do.html"):
        advice = render_to_string(template, {"code": code.value})
        assert advice != render_to_string(template, {"code": "a code of an earlier version"})
        assert [render_to_string(template, {"code": other.value}) for other in RejectionCode].count(advice) == 1


def test_the_last_error_is_escaped():
    batch = a_batch()
    progress.note_failure(queries_of(batch), "<script>alert('x')</script>")
    html = page(batch)
    assert "&lt;script&gt;alert(&#x27;x&#x27;)&lt;/script&gt;" in html
    assert "<script>alert" not in html


def test_who_must_act_is_said_once_for_all_that_is_about_the_destination():
    for address in (ALICE, BOB):
        Signer.objects.create(chain_id=31337, address=address, notice="Gas costs more than the cap.")
    Signer.objects.create(chain_id=5, address=ALICE, notice="Another chain's signer must be funded.")
    Stop.objects.create(chain_id=31337, reason="The keys are changed.", by="an operator")
    html = page(a_batch())
    assert html.count("Gas costs more than the cap. The operator of this service must act.") == 1
    assert "The keys are changed." in html
    assert "Another chain" not in html


def test_gas_of_transactions_that_serve_others_too_is_not_taken_for_the_cost():
    batch = a_batch()
    accept(batch)
    complete(batch, StepKind.INITIAL_STATE)
    tx = send(batch)
    mine(tx, block=14)
    Share.objects.create(transaction=tx, batch=batch, gas=175_840, wei=1, weight=1)
    # Not before it is confirmed is it part of what the batch has spent.
    assert "A transaction counts once it is confirmed." in page(batch)
    Transaction.objects.update(state=TransactionState.CONFIRMED)
    Batch.objects.update(gas_used=175_840)
    assert "once it is confirmed" not in page(batch)
    assert "serve other batches too" not in page(batch)
    Batch.objects.update(gas_used=100_000)
    assert "serve other batches too" in page(batch)


# --- Transactions -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "confirmations", "said"),
    [
        (TransactionState.MINED, "3", "in block 14, being confirmed: 2 of 3 confirmations"),
        (TransactionState.MINED, "1", "in block 14, being confirmed"),
        (TransactionState.MINED, '"finalized"', "in block 14, being confirmed: block 13 is the newest final one"),
        (TransactionState.CONFIRMED, "3", "in block 14, confirmed"),
        (TransactionState.FINAL, "3", "in block 14, final"),
        (TransactionState.PENDING, "3", "sent, not in a block yet"),
        (TransactionState.DISPLACED, "3", "its nonce was used by another transaction"),
    ],
)
def test_a_transaction_tells_how_far_it_is_and_no_wait_contradicts_it(settings, tmp_path, state, confirmations, said):
    settings.CHAINS_FILE = chains_toml(tmp_path, "http://127.0.0.1:1", chain=f"confirmations = {confirmations}")
    batch = a_batch()
    beat()
    accept(batch)
    complete(batch, StepKind.INITIAL_STATE)
    tx = send(batch)
    Block.objects.update(waiting_for=f"Waiting for transaction {TRANSACTION} to be mined.")
    if state not in {TransactionState.PENDING, TransactionState.DISPLACED}:
        mine(tx, block=14, head=15)
    Transaction.objects.update(state=state)
    html = page(batch)
    (row,) = sent(html)
    assert row.endswith(f" BALANCE {said}")
    in_words = {"PENDING": "should include the transaction.", "MINED": "The transaction is being confirmed"}
    assert all((words in html) == (state == of) for of, words in in_words.items())
    assert ("to be mined" in html) == (state not in in_words)


def test_a_transaction_tells_which_versions_it_replaced():
    batch = a_batch()
    accept(batch)
    complete(batch, StepKind.INITIAL_STATE)
    fees = {"max_fee_per_gas": 1_500_000_000, "max_priority_fee_per_gas": 1}
    SignedTransaction.objects.create(transaction=send(batch), hash=HASH, raw=b"", **fees)
    (row,) = sent(page(batch))
    assert row.startswith(f"{HASH} Nonce, gas and price Nonce 0 Gas price at most 1.5 gwei Replaced {TRANSACTION} ")


def test_of_many_queries_the_newest_transactions_of_the_batch_are_shown(monkeypatch):
    monkeypatch.setattr(transaction_display, "MOST_SHOWN", 2)
    batch, other = a_batch(*many_accounts(11)), a_batch(block=13)
    for number, of in ((1, batch), (2, batch), (3, batch), (4, other)):
        tx = send(of, tx_hash=word(number))
        Share.objects.create(transaction=tx, batch=of, gas=1, wei=1, weight=1)
    html = page(batch)
    assert [row[:66] for row in sent(html)] == [word(3), word(2)]
    assert "The newest 2 of 3" in html


def test_a_transaction_of_somebody_else_is_linked_on_the_destination_s_explorer():
    batch = a_batch()
    accept(batch)
    complete(batch, StepKind.INITIAL_STATE)
    progress.note_transactions({HASH: queries_of(batch)})
    assert f'href="https://scan.example/tx/{HASH}"' in page(batch)
    assert "not known here" in page(batch)


# --- Values -----------------------------------------------------------------------------------------------------------


def test_values_are_shown_while_another_source_chain_hangs_and_not_after_a_rejection(tmp_path):
    connect_source(tmp_path)
    batch = of_two_sources()
    fetch_proofs(batch)
    AccountProof.objects.filter(block__source_chain_id=SOURCE).update(balance=BALANCE + 1)
    accept(batch)
    here, _ = queries_of(batch)
    for kind in StepKind:
        progress.complete([here], kind)
    html = page(batch)
    assert str(BALANCE) in html
    assert str(BALANCE + 1) not in html
    progress.reject([batch.pk], code=RejectionCode.DEADLINE_EXCEEDED, reason="It took too long.", retryable=True)
    assert str(BALANCE) not in page(batch)


def test_no_value_is_shown_before_its_query_is_completed_nor_after_a_reorg_took_that_back():
    batch = a_batch()
    accept(batch)
    fetch_proofs(batch)
    complete(batch, *list(StepKind)[:-1])
    assert str(BALANCE) not in page(batch)
    complete(batch, StepKind.ACCOUNT_ACCUMULATED)
    assert str(BALANCE) in page(batch)
    progress.reopen(queries_of(batch), StepKind.ACCOUNT_ACCUMULATED, reason="Chain 31337 was reorganised.")
    assert str(BALANCE) not in page(batch)


@pytest.mark.parametrize("balance", [0, 1, 10**18, 2**256 - 1])
def test_any_balance_is_shown_exactly(balance):
    batch = a_batch()
    finish(batch)
    AccountProof.objects.update(balance=balance)
    shown = re.search(r"BALANCE ([\d.]+) ETH wei, decimal (\d+) raw word 0x([0-9a-f]{64})", text_of(page(batch)))
    assert shown
    whole, _, fraction = shown[1].partition(".")
    assert int(whole + fraction.ljust(18, "0")) == int(shown[2]) == int(shown[3], 16) == balance
    assert not fraction.endswith("0")


def test_the_call_on_the_page_of_a_really_proven_balance_reads_the_value_on_the_page(service: DevChain):
    batch = submit(a_key(), request(BOB, block=3))
    work_until_done(batch, service)
    rpc = get_rpc(31337)
    text = unescape(text_of(page(batch)))
    found = re.search(r'cast call --rpc-url "\$RPC_URL" (\S+) \'(\S+)\(bytes32\)\' (\S+) (\d+) (\d)', text)
    assert found
    registry, signature, address, block, field = found.groups()
    arguments = encode(["address", "uint256", "uint8"], [address, int(block), int(field)])
    [read] = rpc.eth_calls([(registry, function_signature_to_4byte_selector(signature) + arguments)], "latest")
    assert isinstance(read, bytes)
    assert int.from_bytes(read) == rpc.balance(BOB) > 0
    assert f"wei, decimal {rpc.balance(BOB)} raw word 0x{read.hex()}" in text


def test_steps_are_counted_of_the_queries_that_have_them():
    batch = batch_at(block_12={"accounts": {ALICE: {"props": ["NONCE"]}}, "header": ["GAS_USED"]})
    assert "0 of 7 steps completed" in text_of(page(batch))
    accept(batch)
    complete(batch, *list(StepKind)[:3])
    text = text_of(page(batch))
    counts = re.findall(rf"({'|'.join(StepKind)}) (\d) of (\d) ", text[: text.index("Timeline")])
    assert counts == list(zip(StepKind, "2220", "2221", strict=True))


@pytest.mark.parametrize(("asked", "first"), [("", 1), ("x", 1), ("2", 51), ("3", 51), ("9" * 5000, 1)])
def test_a_page_of_slots_that_does_not_exist_becomes_one_that_does(asked, first):
    batch = batch_at(block_12={"accounts": {ALICE: {"slots": [hex(slot) for slot in range(60)]}}})
    assert f"Storage slots {first} to " in Client().get(f"{path(batch)}/1", {"slots": asked}).text


# --- What it takes ----------------------------------------------------------------------------------------------------


def taken(batch: Batch) -> int:
    with CaptureQueriesContext(connection) as captured:
        page(batch)
    assert all(statement["sql"].lstrip("(").startswith("SELECT") for statement in captured), "It only reads."
    return len(captured)


@pytest.mark.parametrize("state", ["open", "done"])
def test_the_number_of_statements_does_not_grow_with_the_batch(state):
    statements = {}
    for count in (1, 10, 60, 1000):
        batch = submit(a_key(name=str(count)), request(*many_accounts(count), block=count))
        if state == "done":
            finish(batch)
        statements[count] = taken(batch)
    # Whole queries take a few more than lines, which need no steps.
    assert statements[1] == statements[10]
    assert statements[60] == statements[1000] <= statements[10] <= 21, statements


def test_thousands_of_slots_cost_a_page_no_more_than_fifty():
    sizes, statements = [], []
    for count in (60, 5000):
        batch = batch_at(**{f"block_{count}": {"accounts": {ALICE: {"slots": list(map(hex, range(count)))}}}})
        finish(batch)
        statements.append(taken(batch))
        sizes.append(len(page(batch)))
    assert statements[0] == statements[1]
    assert sizes[1] < sizes[0] * 1.05


# --- Everyone ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("internal_id", ["01J2VM6636VWW45ZRPGEQEZ5E5", "x", "%00", "%F0%9F%A6%84", "<b>", "1" * 5000])
def test_an_unknown_identifier_gets_a_page_in_plain_words(internal_id):
    response = Client().get(f"/explorer/query/{internal_id}")
    assert response.status_code == 404
    assert "There is no such batch" in response.text
    assert "<b>" not in response.text


@pytest.mark.parametrize("number", ["0", "12", "9" * 50])
def test_a_query_that_is_not_in_the_batch_is_not_found(number):
    assert Client().get(f"{path(a_batch(*many_accounts(11)))}/{number}").status_code == 404


def test_anyone_with_the_link_can_read_it_and_no_key_is_on_it():
    key = a_key()
    secret = keys.reveal(key)
    assert secret
    batch = submit(key, request(ALICE, block=12))
    response = Client().get(path(batch), {"apiKey": secret})
    assert response.status_code == 200
    for text in (secret, key.prefix, key.last_four, key.name):
        assert text not in text_of(response.text)
    assert secret not in response.text
    assert Client().post(path(batch)).status_code == 405
