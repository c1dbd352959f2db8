"""What the page of a batch says in each of its states."""

import re
from datetime import timedelta
from html import unescape

import pytest
from django.db import connection
from django.template.loader import render_to_string
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from eth_abi.abi import encode
from eth_utils.abi import function_signature_to_4byte_selector
from eth_utils.crypto import keccak

from accounts import keys
from config.configured_chains import forget_chains, get_rpc
from devnet.devchain import DevChain
from explorer.batch import transaction_display
from proving.models import AccountProof, Share, SignedTransaction, Signer, Transaction, TransactionState
from queries import progress
from queries.models import Batch, BatchStatus, Block, Query, Sender, Step, StepKind
from queries.properties import HeaderField
from queries.rejection_codes import RejectionCode
from tests import headers
from tests.explorer.batches import (
    BALANCE,
    CODE_HASH,
    HASH,
    REGISTRY,
    SOURCE,
    STORAGE_ROOT,
    TRANSACTION,
    a_batch,
    accept,
    batch_at,
    beat,
    complete,
    connect_source,
    deployed,
    fetch_proofs,
    find_block,
    finish,
    many_accounts,
    mine,
    of_two_sources,
    page,
    path,
    plan_path,
    queries_of,
    send,
    settle,
    word,
)
from tests.explorer.pages import sent, shown_steps, text_of
from tests.service import ALICE, BOB, a_key, chains_toml, request, submit, work_until_done

pytestmark = pytest.mark.django_db


# --- The batch --------------------------------------------------------------------------------------------------------


def test_it_shows_what_was_submitted_and_when():
    batch = a_batch(fee=1_000_000_000_000_000_001)
    html = page(batch)
    text = text_of(html)
    assert batch.pk in text
    assert "RECEIVED" in text
    assert "Development chain (31337)" in text
    assert (
        "Cost Gas ETH Spent so far 0 0 Fee offered 1.000000 The operator of this service pays; you pay nothing;" in text
    )
    assert '<td class="r" title="1.000000000000000001 ETH">1.000000</td>' in html, "The whole of it is in the title."
    for when in (batch.created_at, batch.deadline_at):
        assert (
            f'<time datetime="{when.isoformat().replace("+00:00", "Z")}">{when:%Y-%m-%d %H:%M:%S}\xa0UTC</time>' in html
        )
    assert "Submitted" in text
    assert re.search(r"UTC \d s ago", text)


def test_a_fee_is_a_limit_where_gas_costs_something(settings, tmp_path):
    batch = a_batch(fee=10**18)
    assert "at most" not in text_of(page(batch))
    settings.CHAINS_FILE = chains_toml(tmp_path, "http://127.0.0.1:1", chain="test_network = false")
    forget_chains()
    text = text_of(page(batch))
    assert "Fee at most 1 ETH" in text
    assert "Fee offered 1 The operator of this service pays; you pay nothing; the fee caps what" in text


@pytest.mark.parametrize("status", BatchStatus)
def test_it_shows_the_status_by_word_icon_and_colour(status):
    batch = a_batch()
    if status in {BatchStatus.ACCEPTED, BatchStatus.IN_PROGRESS}:
        accept(batch)
    if status == BatchStatus.IN_PROGRESS:
        complete(batch, StepKind.INITIAL_STATE)
    if status == BatchStatus.DONE:
        finish(batch)
    if status == BatchStatus.REJECTED:
        progress.reject([batch.pk], code=RejectionCode.PROOF_UNAVAILABLE, reason="X.", retryable=False)
    assert re.search(f'<strong class="chip {status}"><svg class="ic"[^>]*>.+?</svg>{status}</strong>', page(batch))


def test_it_shows_the_estimate_and_the_cost_once_they_are_known():
    batch = a_batch()
    assert "Estimated" not in text_of(page(batch))
    accept(batch)
    assert "Estimated, at most 511,000" in text_of(page(batch))
    Batch.objects.update(gas_used=175_840, spent=175_840 * 10**9, estimated_wei=511_000 * 10**9)
    text = text_of(page(batch))
    assert "Cost Gas ETH Spent so far 175,840 0.000176 Estimated, at most 511,000 0.000511 Fee offered 0" in text
    assert 'title="0.00017584 ETH"' in page(batch)


def test_a_batch_that_is_done_says_first_what_was_spent():
    batch = a_batch()
    finish(batch)
    Batch.objects.update(gas_used=175_840, spent=175_840 * 10**9)
    text = text_of(page(batch))
    assert "Spent so far 0.000176 ETH 175,840 gas Submitted" in text
    settle(batch)
    text = text_of(page(batch))
    assert "Spent 0.000176 ETH 175,840 gas Submitted" in text
    assert "Fee 0 ETH" not in text
    assert text.index("Cost Gas ETH Spent 175,840") < text.index("Why blocks are trusted")


def test_of_a_batch_that_is_done_the_proof_is_the_main_button_and_its_steps_are_drawn_once():
    batch = a_batch()
    finish(batch)
    html = page(batch)
    assert re.findall(r'<a class="button main"[^>]*>([^<]+)<', html) == ["Download the proof"]
    assert 'id="timeline"' in html
    assert re.search(r'<details id="steps-1"><summary>4 of 4 steps completed</summary>', html)
    several = a_batch(ALICE, BOB)
    finish(several)
    html = page(several)
    assert re.findall(r'<a class="button main"[^>]*>([^<]+)<', html) == ["Download all proofs"]
    assert 'class="counts"' not in html


def test_the_code_of_a_fact_is_in_tabs_the_contract_s_first():
    batch = a_batch()
    finish(batch)
    html = page(batch)
    tabs = re.findall(
        r'<input type="radio" name="tab-1-BALANCE" id="([^"]+)"( checked)?><label for="([^"]+)">([^<]+)<', html
    )
    assert [(checked != "", name) for _, checked, _, name in tabs] == [
        (True, "Solidity"),
        (False, "viem"),
        (False, "web3.py"),
        (False, "cast"),
    ]
    assert all(one == label for one, _, label, _ in tabs)
    assert '<details id="calls-1-BALANCE" open>' in html


@pytest.mark.parametrize(
    ("retryable", "advice"),
    [(True, "Sending it again can help."), (False, "Sending the same batch again will not help.")],
)
def test_it_says_why_a_batch_was_rejected_and_whether_sending_it_again_can_help(retryable, advice):
    batch = a_batch()
    Block.objects.update(waiting_for="Waiting for the signer.")
    progress.reject(
        [batch.pk],
        code=RejectionCode.BLOCK_TOO_FAR_AHEAD,
        reason="Block 12 is far above the head.",
        retryable=retryable,
    )
    text = text_of(page(batch))
    assert f"Block 12 is far above the head. REJECTED {batch.pk} Code block_too_far_ahead" in text
    assert "What to change Check the block number." in text
    assert "The block does not exist yet" in text
    assert "Code block_too_far_ahead It will not be proven. Nothing was spent. What to change" in text
    assert advice in text
    assert "Deadline" not in text
    assert "Waiting" not in text


def test_the_title_of_a_rejected_batch_is_one_sentence_in_words():
    batch = a_batch()
    reason = (
        "Block 26441180 of chain 31337 may cost 342,000,000,000,000 wei, more than its fee of 100,000,000,000,000 wei. "
        "It is estimated at 281,000 gas. The node 127.0.0.1:8545 of chain 77 said so at the time 1700000000."
    )
    progress.reject([batch.pk], code=RejectionCode.FEE_TOO_LOW, reason=reason, retryable=True)
    html = page(batch)
    assert (
        "<h1>Block 26,441,180 of Development chain may cost 0.000342 ETH, more than its fee of 0.0001 ETH.</h1>" in html
    )
    why = re.search(r'<details id="why-rejected">.*?</details>', html, re.DOTALL)
    assert why
    said = "It is estimated at 281,000 gas. The node 127.0.0.1:8545 of chain 77 said so at the time 1700000000."
    assert said in text_of(f"<main>{why[0]}</main>")
    assert text_of(html).count("Send the batch again with a higher fee") == 1
    assert f'<a class="button main" href="/new-batch?from={batch.pk}">Sign in and submit it again</a>' in html
    assert Client().get(f"{path(batch)}.json").json()["rejectionReason"] == reason, "Programs get what was stored."


@pytest.mark.parametrize("code", [RejectionCode.CANCELLED_BY_USER, RejectionCode.CANCELLED_BY_OPERATOR])
def test_of_a_cancelled_batch_nothing_is_wrong(code):
    batch = a_batch()
    progress.reject([batch.pk], code=code, reason="It was cancelled.", retryable=False)
    text = text_of(page(batch))
    assert "will not help" not in text
    assert "Nothing was spent." in text
    # What others have paid isn't known here.
    Batch.objects.update(sender=Sender.SELF)
    assert "Nothing was spent." not in text_of(page(batch))


def test_gas_of_transactions_that_serve_others_too_is_not_taken_for_the_cost():
    batch = a_batch()
    accept(batch)
    complete(batch, StepKind.INITIAL_STATE)
    tx = send(batch)
    mine(tx, block=14)
    Share.objects.create(transaction=tx, batch=batch, gas=175_840, wei=1, weight=1)
    # Not before it is confirmed is it part of what the batch has spent.
    assert "A transaction counts once it is confirmed." in page(batch)
    assert "serve other batches too" not in page(batch)
    Transaction.objects.update(state=TransactionState.CONFIRMED)
    Batch.objects.update(gas_used=175_840)
    assert "once it is confirmed" not in page(batch)
    assert "serve other batches too" not in page(batch)
    Batch.objects.update(gas_used=100_000)
    assert "serve other batches too" in page(batch)
    # What its sender has paid is no cost of the service.
    Batch.objects.update(gas_used=0, sender=Sender.SELF)
    assert "serve other batches too" not in page(batch)


@pytest.mark.parametrize("code", RejectionCode)
def test_every_rejection_has_advice_of_its_own(code):
    for template in ("explorer/_what_happened.html", "explorer/_what_to_do.html"):
        advice = render_to_string(template, {"code": code.value})
        assert advice != render_to_string(template, {"code": "a code of an earlier version"})
        assert [render_to_string(template, {"code": other.value}) for other in RejectionCode].count(advice) == 1


def test_it_says_what_an_open_batch_waits_for_each_sentence_once():
    body = request(ALICE, block=1)
    body["data"]["31337"] |= {f"block:{number}": body["data"]["31337"]["block:1"] for number in (2, 3)}
    batch = submit(a_key(), body)
    Batch.objects.update(waiting_for="The node is checked.")
    Block.objects.update(due_at=timezone.now())
    Block.objects.filter(number__in=(1, 2)).update(waiting_for="Waiting for the signer.")
    Block.objects.filter(number=3).update(waiting_for="Waiting for block 3.")
    text = text_of(page(batch))
    said = "The node is checked. Waiting for block 3. Waiting for the signer. Submitted"
    assert f"When a worker last looked: {said}" in text
    beat()
    text = text_of(page(batch))
    assert said in text
    assert "last looked" not in text


def test_it_says_nothing_of_what_blocks_wait_for_whose_queries_are_done():
    body = request(ALICE, block=1)
    body["data"]["31337"]["block:2"] = body["data"]["31337"]["block:1"]
    batch = submit(a_key(), body)
    accept(batch)
    Block.objects.filter(number=1).update(waiting_for="Another batch waits here.")
    Block.objects.filter(number=2).update(waiting_for="Waiting for the signer.")
    for kind in StepKind:
        progress.complete(batch.queries.filter(block__number=1).values_list("pk", flat=True), kind)
    text = text_of(page(batch))
    assert "looked: Waiting for the signer. Submitted" in text
    assert "4 of 8 steps completed" in text
    assert "Another batch" not in text


def test_what_fails_is_said_with_how_long_it_has_and_when_it_is_tried_again():
    batch = a_batch()
    accept(batch)
    now = timezone.now()
    why = "No node of chain 1 can be used."
    progress.note_failure(queries_of(batch), why)
    Block.objects.update(
        waiting_for=why, failing_since=now - timedelta(seconds=90.5), due_at=now + timedelta(seconds=8.9)
    )
    text = text_of(page(batch))
    assert f"{why} This has lasted for 1 min 30 s ; the next attempt is in 8 s ." in text
    assert f"Last error: {why} The next attempt is in 8 s ." in text


@pytest.mark.parametrize(
    ("state", "sentence"),
    [
        ("received", "Waiting for a worker to check it against the chains."),
        ("accepted", "Block headers and proofs are being fetched."),
        ("fetched", "A worker compares with what Development chain (31337) already knows,"),
        (
            "sent",
            "The next block of Development chain (31337) should include the transaction. A block comes about every",
        ),
        (
            "mined",
            "The transaction is being confirmed on Development chain (31337). The newest block is 14, the newest",
        ),
    ],
)
def test_an_open_batch_always_says_what_takes_time(state, sentence):
    beat()
    batch = a_batch()
    if state != "received":
        accept(batch)
    if state not in {"received", "accepted"}:
        complete(batch, StepKind.INITIAL_STATE)
    if state == "sent":
        send(batch)
    if state == "mined":
        mine(send(batch), block=14)
    html = page(batch)
    assert sentence in text_of(html)
    # Only what a worker waits for stands out.
    assert 'class="note wait"' not in html
    assert ("waits" in html.partition('<ol class="steps">')[2]) == (state == "received")
    Batch.objects.update(waiting_for="Waiting for the signer.")
    html = page(batch)
    assert 'class="note wait"' in html
    assert sentence not in text_of(html)


def test_a_batch_that_went_back_says_when_and_why_also_once_it_is_done_again():
    batch = a_batch()
    finish(batch)
    progress.reopen(queries_of(batch), StepKind.HEADER_ACCUMULATED, reason="Chain 31337 was reorganised.")
    at = Batch.objects.get().went_back_at
    assert at
    open_again, step = text_of(page(batch)), shown_steps(page(batch))[2]
    assert f"It was rolled back at {at:%Y-%m-%d %H:%M:%S} UTC ( " in open_again
    assert " s ago). Development chain was reorganised. Nothing" in open_again
    assert f"Rolled back to this step at {at:%H:%M:%S} UTC ( " in step
    assert "Last error" not in step
    complete(batch, StepKind.HEADER_ACCUMULATED, StepKind.ACCOUNT_ACCUMULATED)
    done_again = text_of(page(batch))
    assert "The steps concerned have run again since." in done_again
    assert "Rolled back to this step" in done_again


def test_it_says_that_no_worker_runs_until_one_does():
    batch = a_batch()
    assert "No worker is running." in page(batch)
    beat()
    assert "No worker is running." not in page(batch)


def test_it_shows_the_notice_of_the_destination_s_signer_and_of_no_other():
    Signer.objects.create(chain_id=31337, address=ALICE, notice="The signer must be funded.")
    Signer.objects.create(chain_id=31337, address=BOB)
    Signer.objects.create(chain_id=5, address=ALICE, notice="Another chain's signer must be funded.")
    html = page(a_batch())
    assert '<p class="notice">The signer must be funded.</p>' in html
    assert "Another chain" not in html


def test_it_shows_once_what_all_signers_say():
    for address in (ALICE, BOB):
        Signer.objects.create(chain_id=31337, address=address, notice="Gas costs more than the cap.")
    assert page(a_batch()).count("Gas costs more than the cap.") == 1


def test_a_chain_that_is_no_longer_configured_is_shown_by_its_id(settings, tmp_path):
    batch = a_batch()
    (tmp_path / "other").mkdir()
    settings.CHAINS_FILE = chains_toml(tmp_path / "other", "http://127.0.0.1:1", chain_id=5)
    forget_chains()
    assert "Chain that is no longer configured (31337)" in text_of(page(batch))


# --- Queries and steps ------------------------------------------------------------------------------------------------


def test_it_shows_what_each_query_asks_for():
    batch = a_batch(ALICE, BOB.lower(), props=["BALANCE", "NONCE"])
    text = text_of(page(batch))
    for number, address in ((1, ALICE), (2, BOB)):
        asked = f"Block and steps of query {number}: NONCE, BALANCE Account {address}"
        assert f"{asked} Source chain Development chain (31337) Block 12" in text


def test_it_shows_the_block_s_hash_once_it_is_known():
    batch = a_batch()
    assert HASH not in page(batch)
    Block.objects.update(hash=HASH)
    assert f"Block 12 Block hash {HASH}" in text_of(page(batch))


def test_steps_come_in_their_order_and_those_that_have_not_begun_have_no_time():
    batch = a_batch()
    accept(batch)
    complete(batch, StepKind.INITIAL_STATE)
    steps = shown_steps(page(batch))
    assert [step.split()[0] for step in steps] == list(StepKind)
    assert re.fullmatch(r"INITIAL_STATE .+ verified COMPLETED \d\.\d s [-\d]+ [:\d]+ UTC to [:\d]+", steps[0])
    assert re.fullmatch(r"BLOCKHASH_AVAILABLE .+ hash IN_PROGRESS \d s [-\d]+ [:\d]+ UTC", steps[1])
    assert [step.endswith("not begun") for step in steps] == [False, False, True, True]


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0, "0.0 s"), (4.24, "4.2 s"), (200, "3 min 20 s"), (7500, "2 h 5 min"), (90_000, "1 d 1 h")],
)
def test_it_shows_how_long_a_step_took(seconds, shown):
    batch = a_batch()
    accept(batch)
    complete(batch, StepKind.INITIAL_STATE)
    begun = timezone.now()
    Step.objects.filter(kind=StepKind.INITIAL_STATE).update(
        started_at=begun, completed_at=begun + timedelta(seconds=seconds)
    )
    assert f"COMPLETED {shown} " in shown_steps(page(batch))[0]


def test_the_clock_of_the_open_step_stops_with_a_rejection():
    batch = a_batch()
    accept(batch)
    complete(batch, StepKind.INITIAL_STATE)
    progress.reject([batch.pk], code=RejectionCode.PROOF_UNAVAILABLE, reason="X.", retryable=False)
    first, second, third, _ = shown_steps(page(batch))
    assert " COMPLETED " in first
    assert re.fullmatch(r"BLOCKHASH_AVAILABLE .+ STOPPED \d\.\d s .+ UTC to [:\d]+", second)
    assert third.endswith("not begun")


def test_a_step_links_its_transaction_on_the_destination_s_explorer():
    batch = a_batch()
    accept(batch)
    complete(batch, StepKind.INITIAL_STATE)
    progress.note_transactions({HASH: queries_of(batch)})
    assert f'href="https://scan.example/tx/{HASH}"' in page(batch)


def test_a_transaction_is_shown_without_a_link_where_no_explorer_is_configured(unreachable_chain):
    batch = a_batch()
    accept(batch)
    complete(batch, StepKind.INITIAL_STATE)
    progress.note_transactions({HASH: queries_of(batch)})
    html = page(batch)
    assert f"Transaction {HASH}" in text_of(html)
    assert f"tx/{HASH}" not in html


@pytest.mark.parametrize(
    ("state", "confirmations", "said"),
    [
        (TransactionState.MINED, "3", "in block 14, 2 of 3 confirmations"),
        (TransactionState.CONFIRMED, "3", "in block 14, 3 of 3 confirmations"),
        (TransactionState.MINED, "1", "in block 14, 1 of 1 confirmation"),
        (
            TransactionState.MINED,
            '"finalized"',
            "in block 14, waiting until it is final; block 13 is the newest final one",
        ),
        (TransactionState.FINAL, "3", "in block 14, which is final"),
        (TransactionState.PENDING, "3", "sent, not in a block yet"),
        (TransactionState.DISPLACED, "3", "its nonce was used by another transaction"),
    ],
)
def test_a_transaction_tells_how_far_it_is(settings, tmp_path, state, confirmations, said):
    settings.CHAINS_FILE = chains_toml(tmp_path, "http://127.0.0.1:1", chain=f"confirmations = {confirmations}")
    batch = a_batch()
    accept(batch)
    complete(batch, StepKind.INITIAL_STATE)
    tx = send(batch)
    if state not in {TransactionState.PENDING, TransactionState.DISPLACED}:
        mine(tx, block=14, head=15)
    Transaction.objects.update(state=state)
    html = page(batch)
    (row,) = sent(html)
    assert row.startswith(f"{TRANSACTION} Nonce, gas and price Nonce 0 ")
    assert row.endswith(f" BALANCE {said}")
    assert ("175,840" in row) == (tx.gas_used > 0)
    assert f'<a href="#tx-{TRANSACTION}"' in html
    assert f"Transaction {TRANSACTION}" in shown_steps(html)[1]


def test_a_transaction_tells_its_nonce_its_price_and_which_versions_it_replaced():
    batch = a_batch()
    accept(batch)
    complete(batch, StepKind.INITIAL_STATE)
    tx = send(batch)
    SignedTransaction.objects.create(
        transaction=tx, hash=HASH, raw=b"", max_fee_per_gas=1_500_000_000, max_priority_fee_per_gas=1
    )
    progress.note_transactions({HASH: queries_of(batch)})
    Transaction.objects.update(nonce=1234)
    Share.objects.create(transaction=tx, batch=batch, gas=1, wei=3 * 10**15, weight=1)
    more = f"Nonce 1,234 Gas price at most 1.5 gwei Replaced {TRANSACTION}"
    (row,) = sent(page(batch))
    assert row == f"{HASH} Nonce, gas and price {more} BALANCE sent, not in a block yet at most 0.003"
    mine(Transaction.objects.get(), block=14)
    Transaction.objects.update(gas_price=1_207_123_456)
    (row,) = sent(page(batch))
    assert f"Nonce 1,234 Gas 175,840 Gas price 1.2071 gwei Replaced {TRANSACTION} BALANCE in block 14" in row
    assert row.endswith(" 0.003")


def test_a_transaction_tells_what_it_proves_of_the_batch():
    batch = a_batch(ALICE, BOB)
    accept(batch)
    complete(batch, StepKind.INITIAL_STATE)
    send(batch, tx_hash=word(1), extends=deployed())
    both = send(batch, tx_hash=word(2))
    progress.note_transactions({word(2): queries_of(batch)})
    Share.objects.create(transaction=both, batch=batch, gas=1, wei=1, weight=1)
    (row,) = sent(page(batch))
    assert " 2 queries sent" in row
    both.queries.set(queries_of(batch)[1:])
    (row,) = sent(page(batch))
    assert " query 2 sent" in row
    plan_path(batch, 60, left=40)
    assert any(" path to block 12 sent" in row for row in sent(page(batch)))


def test_of_many_queries_the_newest_transactions_of_the_batch_are_shown(monkeypatch):
    monkeypatch.setattr(transaction_display, "MOST_SHOWN", 2)
    batch, other = a_batch(*many_accounts(11)), a_batch(block=13)
    for number, of in ((1, batch), (2, batch), (3, batch), (4, other)):
        tx = send(of, tx_hash=word(number))
        Share.objects.create(transaction=tx, batch=of, gas=1, wei=1, weight=1)
    html = page(batch)
    assert [row[:66] for row in sent(html)] == [word(3), word(2)]
    assert "The newest 2 of 3" in html


def test_it_shows_the_last_error_escaped():
    batch = a_batch()
    for reason in ("The node is down.", "<script>alert('x')</script>"):
        progress.note_failure(queries_of(batch), reason)
    html = page(batch)
    assert "The node is down." not in html
    assert "&lt;script&gt;alert(&#x27;x&#x27;)&lt;/script&gt;" in html
    assert "<script>alert" not in html


# --- Values -----------------------------------------------------------------------------------------------------------


def test_values_are_shown_with_the_call_that_reads_them():
    batch = a_batch(props=["NONCE", "BALANCE", "STORAGE_ROOT", "CODE_HASH"])
    finish(batch)
    text = text_of(page(batch))
    call = (
        f"cast call --rpc-url &quot;$RPC_URL&quot; {REGISTRY} &#x27;accountField(address,uint256,uint8)(bytes32)&#x27;"
    )
    assert f"NONCE 7 raw word 0x{7:064x} Read it yourself" in text
    assert (
        f"BALANCE 123456789.012345678901234567 ETH wei, decimal {BALANCE} raw word 0x{BALANCE:064x} Read it yourself"
    ) in text
    assert f"STORAGE_ROOT {STORAGE_ROOT} Read it yourself" in text
    assert f"CODE_HASH {CODE_HASH} Read it yourself" in text
    assert f"The facts registry is {REGISTRY} on Development chain (31337)." in text
    for field in range(4):
        assert f"{call} {ALICE} 12 {field}" in text


def test_values_are_shown_while_another_source_chain_hangs_and_not_after_a_rejection(tmp_path):
    connect_source(tmp_path)
    batch = of_two_sources()
    fetch_proofs(batch)
    AccountProof.objects.filter(block__source_chain_id=SOURCE).update(balance=BALANCE + 1)
    accept(batch)
    here, _ = queries_of(batch)
    for kind in StepKind:
        progress.complete([here], kind)
    batch.refresh_from_db()
    assert batch.status == BatchStatus.IN_PROGRESS
    html = page(batch)
    assert str(BALANCE) in html
    assert str(BALANCE + 1) not in html
    answers = [Client().get(f"{path(batch)}/{number}/bundle.json") for number in (1, 2)]
    assert [answer.status_code for answer in answers] == [200, 404]
    assert answers[1].json()["code"] == "not_done"
    progress.reject([batch.pk], code=RejectionCode.DEADLINE_EXCEEDED, reason="It took too long.", retryable=True)
    assert str(BALANCE) not in page(batch)
    assert Client().get(f"{path(batch)}/1/bundle.json").json()["code"] == "rejected"


@pytest.mark.parametrize("number", ["0", "3", "null", "1.0", "-1", "\u0661", "9" * 30, "9" * 3000])
def test_a_program_that_asks_for_a_proof_that_there_is_not_is_told_so_as_json(number):
    answer = Client().get(f"{path(a_batch())}/{number}/bundle.json")
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")


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


def test_only_the_properties_asked_for_have_a_value():
    batch = a_batch(props=["NONCE"])
    finish(batch)
    html = page(batch)
    assert f"0x{7:064x}" in html
    assert f"0x{BALANCE:064x}" not in html


def test_no_value_is_shown_before_its_query_is_completed_nor_after_a_reorg_took_that_back():
    batch = a_batch()
    accept(batch)
    fetch_proofs(batch)
    complete(batch, *list(StepKind)[:-1])
    assert str(BALANCE) not in page(batch)
    complete(batch, StepKind.ACCOUNT_ACCUMULATED)
    assert str(BALANCE) in page(batch)
    progress.reopen(queries_of(batch), StepKind.ACCOUNT_ACCUMULATED, reason="Chain 31337 was reorganised.")
    html = page(batch)
    assert str(BALANCE) not in html
    assert "Development chain was reorganised." in html


def test_the_call_on_the_page_of_a_really_proven_balance_reads_the_value_on_the_page(service: DevChain):
    batch = submit(a_key(), request(BOB, block=3))
    work_until_done(batch, service)
    rpc = get_rpc(31337)
    text = unescape(text_of(page(batch)))
    found = re.search(r'cast call --rpc-url "\$RPC_URL" (\S+) \'(\S+)\(bytes32\)\' (\S+) (\d+) (\d)', text)
    assert found
    registry, signature, address, block, field = found.groups()
    arguments = encode(["address", "uint256", "uint8"], [address, int(block), int(field)])
    [word] = rpc.eth_calls([(registry, function_signature_to_4byte_selector(signature) + arguments)], "latest")
    assert isinstance(word, bytes)
    assert int.from_bytes(word) == rpc.balance(BOB) > 0
    assert f"wei, decimal {rpc.balance(BOB)} raw word 0x{word.hex()}" in text


# --- Slots, headers and times -----------------------------------------------------------------------------------------


def only_header() -> Batch:
    return batch_at(block_12={"header": ["TIMESTAMP", "GAS_USED"]})


def test_a_query_for_a_header_says_so_and_has_the_three_steps_that_it_needs():
    batch = only_header()
    accept(batch)
    complete(batch, StepKind.INITIAL_STATE)
    html = page(batch)
    text = text_of(html)
    assert (
        "Query 1: header, GAS_USED, TIMESTAMP About the block's header Properties GAS_USED, TIMESTAMP Source chain"
        in text
    )
    assert "1 of 3 steps completed" in text
    steps = shown_steps(html)
    assert [step.split()[0] for step in steps] == list(StepKind)[:3]
    assert "INITIAL_STATE the header is fetched and verified" in steps[0]
    complete(batch, StepKind.BLOCKHASH_AVAILABLE, StepKind.HEADER_ACCUMULATED)
    batch.refresh_from_db()
    assert batch.status == BatchStatus.DONE
    assert "3 of 3 steps completed" in text_of(page(batch))


def test_steps_are_counted_of_the_queries_that_have_them():
    batch = batch_at(block_12={"accounts": {ALICE: {"props": ["NONCE"]}}, "header": ["GAS_USED"]})
    assert "0 of 7 steps completed" in text_of(page(batch))
    accept(batch)
    complete(batch, *list(StepKind)[:3])
    text = text_of(page(batch))
    assert "6 of 7 steps completed" in text
    counts = re.findall(rf"({'|'.join(StepKind)}) (\d) of (\d) ", text[: text.index("Timeline")])
    assert counts == list(zip(StepKind, "2220", "2221", strict=True))
    complete(batch, StepKind.ACCOUNT_ACCUMULATED)
    assert "all proven" in text_of(page(batch))


def test_a_batch_of_headers_alone_counts_no_accounts():
    batch = batch_at(block_12={"header": ["GAS_USED"]}, block_13={"header": ["GAS_USED"]})
    text = text_of(page(batch))
    assert "0 of 6 steps completed" in text
    assert "ACCOUNT_ACCUMULATED" not in text


def test_a_line_for_a_header_or_a_time_says_what_it_is_and_how_many_steps_it_has():
    accounts = {account: {"props": ["NONCE"], "slots": ["0x1", "0x2"]} for account in many_accounts(10)}
    batch = batch_at(timestamp_1700000000={"accounts": accounts, "header": ["GAS_USED"]})
    text = text_of(page(batch))
    assert "A block at 2023-11-14 22:13:20 UTC, being looked up 1 0x" in text
    assert "NONCE, 2 slots 0 of 4 INITIAL_STATE" in text
    assert "11 the block's header header, GAS_USED 0 of 3 INITIAL_STATE" in text
    find_block(batch)
    assert "Block 12 at 2023-11-14 22:13:20 UTC 1 0x" in text_of(page(batch))


def test_a_block_named_by_a_time_shows_the_time_and_the_block_that_it_became():
    batch = batch_at(timestamp_1700000000={"accounts": {ALICE: {"props": ["NONCE"]}}})
    time = "Time 2023-11-14 22:13:20 UTC 1700000000 seconds since 1970"
    assert f"{time} Block the latest at that time; being looked up Timeline" in text_of(page(batch))
    find_block(batch)
    assert f"{time} Block 12 the latest at that time Timeline" in text_of(page(batch))


@pytest.mark.parametrize(
    ("tag", "meaning"), [("latest", "the newest when"), ("finalized", "the newest final one when")]
)
def test_a_block_named_by_a_tag_shows_the_tag_and_the_block_that_it_became(tag, meaning):
    meaning += " the batch was checked"
    batch = batch_at(**{tag: {"accounts": {ALICE: {"props": ["NONCE"]}}}})
    assert f"Block {meaning}; being looked up Timeline" in text_of(page(batch))
    find_block(batch)
    assert f"Block 12 {tag} {meaning} Timeline" in text_of(page(batch))
    (shown,) = Client().get(f"{path(batch)}.json").json()["queries"]
    assert (shown["selector"], shown["blockNumber"], shown["name"]) == (tag, 12, "")
    lines = batch_at(**{tag: {"accounts": {account: {"props": ["NONCE"]} for account in many_accounts(11)}}})
    assert f"{tag.capitalize()} block 1 0x" in text_of(page(lines))
    find_block(lines)
    assert f"Block 12 {tag} 1 0x" in text_of(page(lines))


def test_an_account_that_was_named_shows_the_name_and_the_address():
    batch, lines = a_batch(ALICE), a_batch(*many_accounts(11))
    Query.objects.update(name="alice.eth")
    assert "which the name alice.eth stood for" in text_of(page(batch))
    (shown,) = Client().get(f"{path(batch)}.json").json()["queries"]
    assert (shown["name"], shown["address"], shown["selector"]) == ("alice.eth", ALICE, "block:12")
    assert text_of(page(lines)).count("alice.eth BALANCE") == 11


def test_a_time_whose_block_was_never_found_says_so_even_beyond_the_calendar():
    batch = batch_at(**{f"timestamp_{2**62}": {"accounts": {ALICE: {"props": ["NONCE"]}}}})
    progress.reject([batch.pk], code=RejectionCode.TIMESTAMP_TOO_FAR_AHEAD, reason="It is to come.", retryable=True)
    text = text_of(page(batch))
    assert f"Time {2**62} seconds since 1970 Block not found 0 of 4 steps completed" in text
    # Nothing was begun: there is no time that it took, and no cost.
    assert "Timeline" not in text
    assert "Cost" not in text
    assert "What to change Check the time:" in text


def test_slots_are_shown_as_numbers_and_words_with_the_call_that_reads_them():
    largest = 2**256 - 1
    batch = batch_at(block_12={"accounts": {ALICE: {"slots": ["0x05", "0x0", hex(largest)]}}})
    text = text_of(page(batch))
    assert f"Query 1: 3 slots Account {ALICE}" in text
    assert f"3 storage slots 0x5 0x0 {hex(largest)} Timeline" in text
    finish(batch)
    text = text_of(page(batch))
    for slot in (5, 0, largest):
        assert f"slot {hex(slot)} {slot} raw word {word(slot)}" in text
    signature = "accountStorageSlotValues(address,uint256,bytes32)(bytes32)"
    assert f"{REGISTRY} &#x27;{signature}&#x27; {ALICE} 12 {word(5)}" in text
    assert text.count(signature) == 1
    assert "This reads the first of these slots. Read the others the same way." in text


def test_every_property_of_a_header_is_shown_in_the_spellings_that_people_look_for():
    batch = batch_at(block_12={"header": HeaderField.names})
    finish(batch)
    text = text_of(page(batch))
    assert "Query 1: header, 21 properties About" in text
    numbers = {"GAS_LIMIT": 30_000_000, "GAS_USED": 21_000, "BLOCK_NUMBER": 12, "EXCESS_BLOB_GAS": 0}
    for name, number in numbers.items():
        place = HeaderField[name].value
        assert f"{name} number {place} {number} raw word {word(number)}" in text
    assert "TIMESTAMP number 11 2023-11-14 22:13:20 UTC seconds, decimal 1700000000 raw word" in text
    assert "BASE_FEE_PER_GAS number 15 1234567890 wei, decimal raw word" in text
    assert f"COINBASE number 2 {ALICE} address raw word 0x{ALICE[2:].lower():0>64}" in text
    assert f"PARENT_HASH number 0 0x{'01' * 32} UNCLES_HASH" in text
    for place, name, value in ((6, "LOGS_BLOOM", bytes(256)), (12, "EXTRA_DATA", b"anybody")):
        assert f"{name} number {place} 0x{keccak(value).hex()} keccak-256 of its bytes" in text
    assert "&#x27;headerField(uint256,uint8)(bytes32)&#x27; 12 0" in text
    assert "Read the others the same way, by their numbers." in text


def test_a_property_that_the_header_does_not_have_shows_no_value():
    batch = batch_at(block_12={"header": ["GAS_USED", "REQUESTS_HASH"]})
    finish(batch)
    Block.objects.update(header_rlp=headers.encode(headers.CANCUN))
    text = text_of(page(batch))
    assert "GAS_USED number 10 21000" in text
    assert "REQUESTS_HASH number" not in text


def test_a_time_s_block_is_a_value_of_its_own():
    batch = batch_at(timestamp_1700000005={"accounts": {ALICE: {"props": ["NONCE"]}}})
    find_block(batch)
    finish(batch)
    text = text_of(page(batch))
    assert (
        "BLOCK_AT_TIMESTAMP 12 which is the latest block at 2023-11-14 22:13:25 UTC, 1700000005 s raw word "
        f"{word(12)} Read it yourself"
    ) in text
    assert f"{REGISTRY} &#x27;blockAtTimestamp(uint256)(uint256)&#x27; 1700000005" in text


@pytest.mark.parametrize("state", ["open", "done"])
def test_of_many_slots_a_page_shows_fifty_and_leads_to_the_others(state):
    batch = batch_at(block_12={"accounts": {ALICE: {"slots": [hex(slot) for slot in range(1000, 1120)]}}})
    if state == "done":
        finish(batch)
    url = f"{path(batch)}/1"
    seen: list[int] = []
    while url:
        html = Client().get(url).text
        text = text_of(html)
        shown = r"slot (0x\w+)" if state == "done" else r" (0x[34]\w\w)\b"
        seen += [int(slot, 16) for slot in re.findall(shown, text[: text.index("steps completed")])]
        assert " of 120 " in text
        found = re.search(r'id="next-slots-1" href="([^"]+)"', html)
        url = found[1] if found else ""
    assert seen == list(range(1000, 1120))
    assert "Storage slots 101 to 120 of 120" in text
    assert f'href="{path(batch)}/1?slots=51" rel="prev"' in html
    assert "Storage slots 1 to 50 of 120" in page(batch)


@pytest.mark.parametrize(("asked", "first"), [("", 1), ("0", 1), ("x", 1), ("60", 60), ("61", 60), ("9" * 5000, 1)])
def test_a_first_slot_that_does_not_exist_becomes_one_that_does(asked, first):
    batch = batch_at(block_12={"accounts": {ALICE: {"slots": [hex(slot) for slot in range(60)]}}})
    assert f"Storage slots {first} to " in Client().get(f"{path(batch)}/1", {"slots": asked}).text


def test_it_polls_the_slots_that_it_shows():
    batch = batch_at(block_12={"accounts": {ALICE: {"slots": [hex(slot) for slot in range(60)]}}})
    html = Client().get(f"{path(batch)}/1", {"slots": "51"}).text
    assert f'hx-get="{path(batch)}/1?slots=51&amp;version=' in html


STATEMENTS = {"received": 15, "accepted": 15, "in progress": 16, "done": 13}


@pytest.mark.parametrize("state", STATEMENTS)
def test_a_page_takes_so_many_statements(state, django_assert_max_num_queries):
    batch = a_batch()
    beat()
    if state != "received":
        accept(batch)
    if state == "in progress":
        complete(batch, StepKind.INITIAL_STATE)
    if state == "done":
        fetch_proofs(batch)
        complete(batch, *StepKind)
        settle(batch)
    with django_assert_max_num_queries(STATEMENTS[state]):
        assert page(batch)


def test_thousands_of_slots_cost_a_page_no_more_than_fifty():
    sizes, statements = [], []
    for count in (60, 5000):
        slots = [hex(slot) for slot in range(count)]
        batch = batch_at(**{f"block_{count}": {"accounts": {ALICE: {"slots": slots}}}})
        finish(batch)
        with CaptureQueriesContext(connection) as captured:
            sizes.append(len(page(batch)))
        statements.append(len(captured))
    assert statements[0] == statements[1] <= 19
    assert sizes[1] < sizes[0] * 1.05


def test_the_json_has_all_slots_headers_and_times():
    slots = [word(slot) for slot in range(120)]
    accounts = {ALICE: {"props": ["NONCE"], "slots": slots}}
    batch = batch_at(timestamp_1700000005={"accounts": accounts, "header": ["GAS_USED", "EXTRA_DATA"]})
    answer = Client().get(f"{path(batch)}.json").json()
    first, second = answer["queries"]
    assert (first["address"], second["address"]) == (ALICE, None)
    assert (first["timestamp"], first["blockNumber"], first["isBlockSought"]) == (1_700_000_005, None, True)
    assert (first["slots"], first["slotCount"]) == (slots, 120)
    assert (second["fields"], len(second["steps"])) == (["GAS_USED", "EXTRA_DATA"], 3)
    find_block(batch)
    finish(batch)
    first, second = Client().get(f"{path(batch)}.json").json()["queries"]
    assert [(value["field"], value["slot"], value["word"]) for value in first["values"]] == [
        ("NONCE", "", word(7)),
        *[("SLOT", slot, slot) for slot in slots],
        ("BLOCK_AT_TIMESTAMP", "", word(12)),
    ]
    assert [(value["field"], value["number"], value["word"]) for value in second["values"]] == [
        ("GAS_USED", 10, word(21_000)),
        ("EXTRA_DATA", 12, "0x" + keccak(b"anybody").hex()),
        ("BLOCK_AT_TIMESTAMP", None, word(12)),
    ]


# --- Many queries -----------------------------------------------------------------------------------------------------


def test_queries_are_paged_in_the_order_of_the_request():
    accounts = list(many_accounts(120))
    batch = a_batch(*accounts)
    seen = []
    url = path(batch)
    while url:
        text = text_of(html := Client().get(url).text)
        seen += re.findall(r"0x\w{40}", text)
        found = re.search(r'id="next-below" href="([^"]+)"', html)
        url = path(batch) + found[1] if found else ""
    assert [address.lower() for address in seen] == accounts


def test_pages_of_queries_lead_back_and_forth():
    batch = a_batch(*many_accounts(120))
    html = page(batch, **{"from": 51})
    assert "Queries 51 to 75 of 120" in html
    for link in (
        'id="first-above" href="?from=1"',
        'id="previous-above" href="?from=26"',
        'href="?from=76" rel="next"',
    ):
        assert link in html


@pytest.mark.parametrize(
    ("asked", "first"), [("", 1), ("0", 1), ("-1", 1), ("51", 51), ("99", 51), ("x", 1), ("1e9", 1), ("9" * 5000, 1)]
)
def test_a_first_query_that_does_not_exist_becomes_one_that_does(asked, first):
    assert f"Queries {first} to " in page(a_batch(*many_accounts(51)), **{"from": asked})


def test_a_batch_shows_a_line_for_each_query_and_a_small_one_all_of_them_whole_too():
    small, large = a_batch(*many_accounts(10)), a_batch(*many_accounts(11), block=13)
    assert (page(small).count("<article"), page(small).count('id="row-')) == (10, 10)
    assert (page(large).count("<article"), page(large).count('id="row-')) == (0, 11)


def test_a_line_leads_to_its_query_and_that_to_its_neighbours():
    batch = a_batch(*many_accounts(11))
    assert f'href="{path(batch)}/7"' in page(batch)
    html = Client().get(f"{path(batch)}/7").text
    assert html.count("<article") == 1
    assert '<article class="query" id="query-7"' in html
    assert f'href="{path(batch)}/6"' in html
    assert f'href="{path(batch)}/8"' in html


@pytest.mark.parametrize("number", ["0", "12", "9" * 50])
def test_a_query_that_is_not_in_the_batch_is_not_found(number):
    assert Client().get(f"{path(a_batch(*many_accounts(11)))}/{number}").status_code == 404


def test_an_account_is_found_among_many_however_its_letters_are_written():
    batch = a_batch(*many_accounts(60), ALICE)
    for written in (ALICE, ALICE.lower(), f" {ALICE} "):
        assert re.findall(r'id="row-(\d+)"', page(batch, account=written)) == ["61"]
    assert "No query of this batch is about this account." in page(batch, account=BOB)


def asking_of_alice_at(blocks: int) -> Batch:
    """Return a batch about Alice at `blocks` blocks. At each block, another account comes before her."""
    other = "0x" + "11" * 20
    accounts = {other: {"props": ["NONCE"]}, ALICE: {"props": ["NONCE"]}}
    return batch_at(**{f"block_{number}": {"accounts": accounts} for number in range(1, blocks + 1)})


def test_an_account_at_many_blocks_is_paged_like_all_queries():
    batch = asking_of_alice_at(120)
    url, seen, said = f"{path(batch)}?account={ALICE}", [], []
    while url:
        html = Client().get(url).text
        assert "120 of the 240 queries are about" in html
        seen += re.findall(r'id="row-(\d+)"', html)
        said += re.findall(r"Found \d+ to \d+ of \d+", html)[:1]
        found = re.search(r'id="next-below" href="([^"]+)"', html)
        url = path(batch) + found[1].replace("&amp;", "&") if found else ""
    assert seen == [str(number) for number in range(2, 242, 2)]
    assert said == [f"Found {first} to {min(first + 24, 120)} of 120" for first in (1, 26, 51, 76, 101)]


@pytest.mark.parametrize(("asked", "first"), [("1", 2), ("102", 102), ("103", 104), ("9999", 240), ("x", 2)])
def test_a_page_of_an_account_s_queries_begins_with_the_nearest_from_there_on(asked, first):
    html = page(asking_of_alice_at(120), **{"from": asked}, account=ALICE)
    assert re.findall(r'id="row-(\d+)"', html)[0] == str(first)


def test_pages_of_an_account_s_queries_lead_back():
    html = page(asking_of_alice_at(120), **{"from": 202}, account=ALICE)
    assert f'id="first-above" href="?account={ALICE}&amp;from=1"' in html
    assert f'id="previous-above" href="?account={ALICE}&amp;from=152"' in html


@pytest.mark.parametrize("accounts", [2, 60])
@pytest.mark.parametrize("written", ["0x12", ALICE[:-1], f"{ALICE}0", "bob"])
def test_what_is_not_an_address_is_said_and_leaves_all_queries_there(accounts, written):
    html = page(a_batch(*many_accounts(accounts)), account=written)
    assert "This is not an account" in html
    assert len(re.findall(r'id="row-\d+"', html)) == min(accounts, 25)


def test_an_account_is_found_in_a_small_batch_too():
    batch = a_batch(BOB, ALICE)
    html = page(batch, account=ALICE)
    assert re.findall(r'id="query-(\d+)"', html) == ["2"]
    assert "1 of the 2 queries is about" in html
    assert "No query of this batch" not in html
    assert "No query of this batch is about this account." in page(batch, account="0x" + "11" * 20)


def test_it_counts_how_many_queries_completed_each_step():
    batch = a_batch(*many_accounts(60))
    accept(batch)
    progress.complete(queries_of(batch)[:45], StepKind.INITIAL_STATE)
    progress.complete(queries_of(batch)[:5], StepKind.BLOCKHASH_AVAILABLE)
    text = text_of(page(batch))
    counts = re.findall(rf"({'|'.join(StepKind)}) (\d+) of 60 ", text[: text.index("Account or block")])
    assert counts == list(zip(StepKind, ["45", "5", "0", "0"], strict=True))


@pytest.mark.parametrize("state", ["open", "done"])
def test_the_number_of_statements_does_not_grow_with_the_batch(state):
    statements = {}
    for count in (1, 10, 60, 1000):
        batch = submit(a_key(name=str(count)), request(*many_accounts(count), block=count))
        if state == "done":
            finish(batch)
        with CaptureQueriesContext(connection) as captured:
            page(batch)
        statements[count] = len(captured)
    # Whole queries take a few more than lines, which need no steps, proofs and transactions.
    assert statements[1] == statements[10]
    assert statements[60] == statements[1000] <= statements[10] <= 18, statements


# --- Everyone ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("internal_id", ["01J2VM6636VWW45ZRPGEQEZ5E5", "x", "%00", "%F0%9F%A6%84", "<b>", "1" * 5000])
def test_an_unknown_identifier_gets_a_page_in_plain_words(internal_id):
    response = Client().get(f"/explorer/query/{internal_id}")
    assert response.status_code == 404
    assert "There is no such batch" in response.text
    assert "<b>" not in response.text


def test_anyone_with_the_link_can_read_it_and_no_key_is_on_it(settings):
    key = a_key()
    secret = keys.reveal(key)
    assert secret
    batch = submit(key, request(ALICE, block=12))
    response = Client().get(path(batch), {"apiKey": secret})
    assert response.status_code == 200
    for text in (secret, key.prefix, key.last_four, key.name):
        assert text not in text_of(response.text)
    assert secret not in response.text


def test_it_only_reads():
    batch = a_batch()
    assert Client().post(path(batch)).status_code == 405
    with CaptureQueriesContext(connection) as captured:
        page(batch)
    assert all(statement["sql"].lstrip("(").startswith("SELECT") for statement in captured)
