"""What the page of a batch says in each of its states."""

import re
from datetime import timedelta
from html import unescape

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from eth_abi.abi import encode
from eth_utils.abi import function_signature_to_4byte_selector

from accounts import keys
from chains.devchain import DevChain
from config.chains import forget_chains, get_rpc
from proving.models import Signer
from queries import progress
from queries.models import Batch, BatchStatus, Block, Step, StepKind
from tests.explorer.batches import (
    BALANCE,
    CODE_HASH,
    HASH,
    REGISTRY,
    STORAGE_ROOT,
    a_batch,
    accept,
    beat,
    complete,
    fetch_proofs,
    finish,
    many_accounts,
    page,
    path,
    queries_of,
)
from tests.service import ALICE, BOB, a_key, chains_toml, request, submit, work_until_done

pytestmark = pytest.mark.django_db


def text_of(html: str) -> str:
    """What a reader sees of the page's main part."""
    main = html[html.index("<main") : html.index("</main>")]
    return " ".join(re.sub(r"<[^>]+>", " ", main).split())


def shown_steps(html: str) -> list[str]:
    """What is said of each step of the queries, in the page's order."""
    articles = re.findall(r"<article.*?</article>", html, re.DOTALL)
    items = [item for article in articles for item in re.findall(r"<li.*?</li>", article, re.DOTALL)]
    return [text_of(f"<main>{item}</main>") for item in items]


# --- The batch --------------------------------------------------------------------------------------------------------


def test_it_shows_what_was_submitted_and_when():
    batch = a_batch(fee=1_000_000_000_000_000_001)
    html = page(batch)
    text = text_of(html)
    assert batch.pk in text
    assert "RECEIVED" in text
    assert "Development chain (31337)" in text
    assert "1000000000000000001 wei (1.000000000000000001 ETH)" in text
    for when in (batch.created_at, batch.deadline_at):
        assert f'<time datetime="{when.isoformat().replace("+00:00", "Z")}">{when:%Y-%m-%d %H:%M:%S} UTC</time>' in html


@pytest.mark.parametrize("status", BatchStatus)
def test_it_shows_the_status_by_word_and_colour(status):
    batch = a_batch()
    if status in {BatchStatus.ACCEPTED, BatchStatus.IN_PROGRESS}:
        accept(batch)
    if status == BatchStatus.IN_PROGRESS:
        complete(batch, StepKind.INITIAL_STATE)
    if status == BatchStatus.DONE:
        finish(batch)
    if status == BatchStatus.REJECTED:
        progress.reject([batch.pk], code="x", reason="X.", retryable=False)
    assert f'<strong class="status {status}">{status}</strong>' in page(batch)


def test_it_shows_the_estimate_and_the_cost_once_they_are_known():
    batch = a_batch()
    assert " gas" not in text_of(page(batch))
    accept(batch)
    assert "Estimate 511000 gas" in text_of(page(batch))
    Batch.objects.update(gas_used=175_840, spent=175_840 * 10**9)
    assert "Cost so far 175840 gas, 175840000000000 wei (0.00017584 ETH)" in text_of(page(batch))


@pytest.mark.parametrize(
    ("retryable", "advice"),
    [(True, "Sending it again can help."), (False, "Sending the same again will not help.")],
)
def test_it_says_why_a_batch_was_rejected_and_whether_sending_it_again_can_help(retryable, advice):
    batch = a_batch()
    Block.objects.update(waiting_for="Waiting for the signer.")
    progress.reject([batch.pk], code="block_too_high", reason="Block 12 is far above the head.", retryable=retryable)
    text = text_of(page(batch))
    assert f"Block 12 is far above the head. Code block_too_high {advice}" in text
    assert "Deadline" not in text
    assert "Waiting" not in text


def test_it_says_what_an_open_batch_waits_for_each_sentence_once():
    body = request(ALICE, block=1)
    body["data"]["31337"] |= {f"block:{number}": body["data"]["31337"]["block:1"] for number in (2, 3)}
    batch = submit(a_key(), body)
    Batch.objects.update(waiting_for="The node is checked.")
    Block.objects.filter(number__in=(1, 2)).update(waiting_for="Waiting for the signer.")
    Block.objects.filter(number=3).update(waiting_for="Waiting for block 3.")
    text = text_of(page(batch))
    assert "Waiting The node is checked. Waiting for block 3. Waiting for the signer. Submitted" in text


def test_it_says_nothing_of_what_blocks_wait_for_whose_queries_are_done():
    body = request(ALICE, block=1)
    body["data"]["31337"]["block:2"] = body["data"]["31337"]["block:1"]
    batch = submit(a_key(), body)
    accept(batch)
    Block.objects.filter(number=1).update(waiting_for="Another batch waits here.")
    Block.objects.filter(number=2).update(waiting_for="Waiting for the signer.")
    for kind in StepKind:
        progress.complete(batch.queries.filter(block__number=1).values_list("pk", flat=True), kind)
    assert "IN_PROGRESS It is being proven. Waiting Waiting for the signer. Submitted" in text_of(page(batch))


def test_it_says_that_no_worker_runs_until_one_does():
    batch = a_batch()
    assert "No worker is running:" in page(batch)
    beat()
    assert "No worker is running:" not in page(batch)


def test_it_shows_the_notice_of_the_destination_s_signer_and_of_no_other():
    Signer.objects.create(chain_id=31337, address=ALICE, notice="The signer must be funded.")
    Signer.objects.create(chain_id=31337, address=BOB)
    Signer.objects.create(chain_id=5, address=ALICE, notice="Another chain's signer must be funded.")
    html = page(a_batch())
    assert '<p class="notice">The signer must be funded.</p>' in html
    assert "Another chain" not in html


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
        assert f"{number}. {address} Source chain Development chain (31337) Block 12 Properties NONCE, BALANCE" in text


def test_it_shows_the_block_s_hash_once_it_is_known():
    batch = a_batch()
    assert HASH not in page(batch)
    Block.objects.update(hash=HASH)
    assert f"Block 12 {HASH}" in text_of(page(batch))


def test_steps_come_in_their_order_and_those_that_have_not_begun_have_no_time():
    batch = a_batch()
    accept(batch)
    complete(batch, StepKind.INITIAL_STATE)
    steps = shown_steps(page(batch))
    assert [step.split()[0] for step in steps] == list(StepKind)
    assert re.fullmatch(r"INITIAL_STATE COMPLETED from [-\d]+ [:\d]+ UTC to [-\d]+ [:\d]+ UTC \(\d\.\d s\)", steps[0])
    assert re.fullmatch(r"BLOCKHASH_AVAILABLE IN_PROGRESS from [-\d]+ [:\d]+ UTC", steps[1])
    assert steps[2:] == ["HEADER_ACCUMULATED not begun", "ACCOUNT_ACCUMULATED not begun"]


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0, "0.0 s"), (4.24, "4.2 s"), (200, "3 min 20 s"), (7500, "2 h 5 min"), (90_000, "25 h 0 min")],
)
def test_it_shows_how_long_a_step_took(seconds, shown):
    batch = a_batch()
    accept(batch)
    complete(batch, StepKind.INITIAL_STATE)
    begun = timezone.now()
    Step.objects.filter(kind=StepKind.INITIAL_STATE).update(
        started_at=begun, completed_at=begun + timedelta(seconds=seconds)
    )
    assert shown_steps(page(batch))[0].endswith(f"({shown})")


def test_the_clock_of_the_open_step_stops_with_a_rejection():
    batch = a_batch()
    accept(batch)
    complete(batch, StepKind.INITIAL_STATE)
    progress.reject([batch.pk], code="x", reason="X.", retryable=False)
    first, second, third, _ = shown_steps(page(batch))
    assert first.startswith("INITIAL_STATE COMPLETED")
    assert re.fullmatch(r"BLOCKHASH_AVAILABLE STOPPED from .+ UTC to .+ UTC \(\d\.\d s\)", second)
    assert third == "HEADER_ACCUMULATED not begun"


def test_a_step_links_its_transaction_on_the_destination_s_explorer():
    batch = a_batch()
    accept(batch)
    complete(batch, StepKind.INITIAL_STATE)
    progress.note_transaction(queries_of(batch), HASH)
    assert f'href="https://scan.example/tx/{HASH}"' in page(batch)


def test_a_transaction_is_shown_without_a_link_where_no_explorer_is_configured(settings, tmp_path):
    settings.CHAINS_FILE = chains_toml(tmp_path, "http://127.0.0.1:1")
    batch = a_batch()
    progress.note_transaction(queries_of(batch), HASH)
    html = page(batch)
    assert f"Transaction {HASH}" in text_of(html)
    assert f"tx/{HASH}" not in html


def test_it_shows_failed_attempts_and_the_last_error_escaped():
    batch = a_batch()
    for reason in ("The node is down.", "<script>alert('x')</script>"):
        progress.note_failure(queries_of(batch), reason)
    html = page(batch)
    assert "2 attempts came to nothing" in html
    assert "The node is down." not in html
    assert "&lt;script&gt;alert(&#x27;x&#x27;)&lt;/script&gt;" in html
    assert "<script>alert" not in html


# --- Values -----------------------------------------------------------------------------------------------------------


def test_values_are_shown_at_done_with_the_call_that_reads_them():
    batch = a_batch(props=["NONCE", "BALANCE", "STORAGE_ROOT", "CODE_HASH"])
    finish(batch)
    text = text_of(page(batch))
    call = (
        f"cast call --rpc-url &quot;$RPC_URL&quot; {REGISTRY} &#x27;accountField(address,uint256,uint8)(bytes32)&#x27;"
    )
    read = f"Read it from the facts registry {REGISTRY} :"
    assert f"NONCE 7 0x{7:064x} {read} {call} {ALICE} 12 0" in text
    assert f"BALANCE 123456789.012345678901234567 ETH {BALANCE} wei 0x{BALANCE:064x} {read} {call} {ALICE} 12 1" in text
    assert f"STORAGE_ROOT {STORAGE_ROOT} {read} {call} {ALICE} 12 2" in text
    assert f"CODE_HASH {CODE_HASH} {read} {call} {ALICE} 12 3" in text


@pytest.mark.parametrize("balance", [0, 1, 10**18, 2**256 - 1])
def test_any_balance_is_shown_exactly(balance):
    batch = a_batch()
    finish(batch)
    batch.queries.get().block.account_proofs.update(balance=balance)
    shown = re.search(r"BALANCE ([\d.]+) ETH (\d+) wei 0x([0-9a-f]{64})", text_of(page(batch)))
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


def test_no_value_is_shown_before_done_nor_after_a_reorg_took_done_back():
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
    assert "Chain 31337 was reorganised." in html


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
    assert f"{rpc.balance(BOB)} wei 0x{word.hex()}" in text


# --- Many queries -----------------------------------------------------------------------------------------------------


def test_queries_are_paged_in_the_order_of_the_request():
    accounts = list(many_accounts(120))
    batch = a_batch(*accounts)
    seen = []
    for number in (1, 2, 3):
        html = page(batch, page=number)
        assert f"Page {number} of 3" in html
        seen += [address.lower() for address in re.findall(r"<h3[^>]*>\d+\. <span[^>]*>(0x\w{40})<", html)]
    assert seen == accounts


@pytest.mark.parametrize(
    ("asked", "shown"), [("", 1), ("0", 2), ("-1", 2), ("99", 2), ("x", 1), ("1e9", 1), ("9" * 5000, 1)]
)
def test_a_page_that_does_not_exist_becomes_one_that_does(asked, shown):
    assert f"Page {shown} of 2" in page(a_batch(*many_accounts(51)), page=asked)


def test_it_counts_how_many_queries_completed_each_step():
    batch = a_batch(*many_accounts(60))
    accept(batch)
    progress.complete(queries_of(batch)[:45], StepKind.INITIAL_STATE)
    progress.complete(queries_of(batch)[:5], StepKind.BLOCKHASH_AVAILABLE)
    text = text_of(page(batch))
    counts = re.findall(r"([A-Z_]+) (\d+) of 60 ", text)
    assert counts == list(zip(StepKind, ["45", "5", "0", "0"], strict=True))


@pytest.mark.parametrize("state", ["open", "done"])
def test_the_number_of_statements_does_not_grow_with_the_batch(state):
    statements = {}
    for count in (1, 40, 1000):
        batch = submit(a_key(name=str(count)), request(*many_accounts(count), block=count))
        if state == "done":
            finish(batch)
        with CaptureQueriesContext(connection) as captured:
            page(batch)
        statements[count] = len(captured)
    assert len(set(statements.values())) == 1, statements
    assert statements[1] <= 10


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
    assert all(statement["sql"].startswith("SELECT") for statement in captured)
