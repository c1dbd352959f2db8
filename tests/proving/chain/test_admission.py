"""Checks against the chains before money is spent. Some faults are waited out instead of rejected."""

import json
import re
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from accounts.models import ApiKey
from devnet.devchain import DevChain
from proving.models import ChainHead, ChainWatch, FactsRegistry, Transaction, WorkerHeartbeat
from queries.models import Batch, BatchStatus, Block
from tests import deployed, users
from tests.chains.lying_node import Raw, ask, between, error, hiding, lying_node, pruned
from tests.explorer.batches import beat
from tests.proving import estimated_batches, money
from tests.service import asking, changed_replies, fresh, reconfigure, request, submit, waiting, work, work_until_done

pytestmark = pytest.mark.outside

# Number of checks in the minute during which nodes must agree on a rejection.
LOOKS_IN_A_MINUTE = 6


@pytest.fixture
def costly(service, settings):
    """Configure the chain as a main network, where gas costs real money."""
    settings.ALLOWED_ADDRESSES = ["*"]
    reconfigure(settings, "test_network = true", "test_network = false")


@pytest.fixture
def short_window(service, settings):
    """Let the block hash source vouch for 10 blocks only."""
    reconfigure(settings, 'block_hash_source = "native"', 'block_hash_source = "native"\nwindow = 10')
    FactsRegistry.objects.all().delete()
    deployed.deploy(31337, 31337)


def _time(chain) -> int:
    return int(chain.rpc("eth_getBlockByNumber", "latest", False)["timestamp"], 16)


def accepted(batch: Batch) -> Batch:
    work()
    batch.refresh_from_db()
    return batch


# --- Blocks -----------------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_a_block_far_above_the_head_is_rejected_and_can_be_sent_again(service, key, settings):
    settings.MAX_BLOCKS_AHEAD = 5
    batch = work_until_done(submit(key, request(users.ALICE, block=service.head() + 6)))
    assert (batch.status, batch.rejection_code, batch.rejection_retryable) == (
        BatchStatus.REJECTED,
        "block_too_far_ahead",
        True,
    )
    assert "6 blocks above the newest one" in batch.rejection_reason


DAY = 86_400
"""The blocks of a day on a chain with one in a second."""


def asked_at(key: ApiKey, path: str, *selectors: str, account: str = users.ALICE) -> Any:
    """Return the endpoint's answer to a request for an account at these blocks."""
    body = asking({selector: {"accounts": {account: {"props": ["BALANCE"]}}} for selector in selectors})
    if path == "/submit-request":
        body["destination_chain_id"] = body.pop("destinationChainId")
    return Client().post(path, body, content_type="application/json", headers=users.header(key))


@pytest.mark.parametrize("path", ["/submit-batch-query", "/submit-request", "/estimate-batch-query", "/read-proofs"])
def test_blocks_far_above_the_stored_head_are_refused_at_once_by_their_selectors(service, key, settings, path):
    """The chain has no node meanwhile, so nothing asks one."""
    work()
    head = ChainHead.objects.get().number
    reconfigure(settings, service.url, "http://127.0.0.1:1")
    far = {
        f"block:{block}": f"Block {block} of chain 31337 is {block - head:,} blocks above the newest one, {head}. A "
        "batch waits for at most 64 blocks. Send it again when the block is nearer."
        for block in (head + 64 + DAY + 1, 99_999_999)
    } | {
        "timestamp:1700000000000": "The time 1700000000000 is in the far future. It seems to be in milliseconds; name "
        "it in seconds."
    }
    near = f"block:{head + 64 + DAY}"
    refused = asked_at(key, path, *far, near)
    assert (refused.status_code, refused.json()["code"]) == (422, "block_too_far_ahead")
    told = {fault["path"]: (fault["code"], fault["message"]) for fault in refused.json()["details"]}
    assert told == {
        f"/data/31337/{selector}": (f"{selector.partition(':')[0]}_too_far_ahead", sentence)
        for selector, sentence in far.items()
    }
    refused = asked_at(key, path, *far, near, account="0x12")
    assert (refused.status_code, refused.json()["code"]) == (400, "invalid_request")
    assert {fault["path"] for fault in refused.json()["details"]} >= {*told, f"/data/31337/{near}/accounts/0x12"}
    assert asked_at(key, path, near).status_code != 422
    assert Batch.objects.count() == path.startswith("/submit")


@pytest.mark.parametrize("kind", ["no head", "an old head", "a lower head for a moment"])
def test_without_a_head_that_was_seen_lately_nothing_is_refused_at_once(service, key, settings, kind):
    work()
    far = f"block:{service.head() + 64 + DAY + 1}"
    assert asked_at(key, "/submit-batch-query", far).status_code == 422
    if kind == "no head":
        ChainWatch.objects.all().delete()
    elif kind == "an old head":
        ChainWatch.objects.update(seen_at=timezone.now() - timedelta(minutes=6))
    else:
        ChainHead.objects.update(number=service.head() + 1)
    assert asked_at(key, "/submit-batch-query", far).status_code == 200


def _page(batch: Batch) -> str:
    return " ".join(Client().get(f"/explorer/query/{batch.pk}").text.partition("<main")[2].split())


MISTYPED: dict[str, Callable[[DevChain], str]] = {
    "a block just too far above it": lambda chain: f"block:{chain.head() + 65}",
    "a time in milliseconds": lambda chain: f"timestamp:{_time(chain)}000",
    "a time before the first block": lambda _: "timestamp:5",
}


@pytest.mark.long
@pytest.mark.parametrize("kind", MISTYPED)
def test_a_mistyped_block_is_told_with_the_time_until_it_is_rejected_and_blames_nobody(service, key, kind):
    WorkerHeartbeat.objects.create(worker="worker", started_at=timezone.now(), beat_at=timezone.now())
    batch = submit(key, asking({MISTYPED[kind](service): {"accounts": {users.ALICE: {"props": ["BALANCE"]}}}}))
    for check, seconds in enumerate((63, 62, 60, 56, 48, 32)):
        work()
        html, now = _page(batch), timezone.now()
        (until,) = re.findall(r'The batch is rejected <span data-until="([^"]+)">in [\w ]+</span> if this', html)
        assert abs((datetime.fromisoformat(until) - now).total_seconds() - seconds) < 10, check
        for absent in (
            "operator of this service",
            "Deadline",
            "note wait",
            "It has failed for",
            "for a minute",
            "deadline",
        ):
            assert absent not in html, absent
        assert html.count('class="note run') == 1
    work()
    assert fresh(batch).status == BatchStatus.REJECTED


def test_a_block_that_may_still_come_has_the_deadline_of_its_batch_alone(service, key):
    WorkerHeartbeat.objects.create(worker="worker", started_at=timezone.now(), beat_at=timezone.now())
    batch = submit(key, request(users.ALICE, block=service.head() + 3))
    work()
    html = _page(batch)
    assert f"Waiting for block {service.head() + 3} of Development chain, now {service.head()}, about 3 s." in html
    assert html.count("data-until") == html.count("Deadline") == 1
    assert "The batch is rejected" not in html
    assert "operator of this service" not in html
    assert "note wait" not in html


@pytest.mark.long
def test_a_node_that_is_behind_for_a_minute_has_nothing_rejected_and_is_told(service, key, settings):
    settings.MAX_BLOCKS_AHEAD = 5
    service.mine(100)
    work()
    seen = service.head()
    existing = submit(key, request(users.ALICE, block=seen - 1))

    def change(question: Any, reply: Any) -> list[Any]:
        if question["method"] != "eth_getBlockByNumber" or question["params"][0] not in {"latest", "finalized"}:
            return [reply]
        return [reply | {"result": service.rpc("eth_getBlockByNumber", hex(seen - 50), False)}]

    with changed_replies(settings, service, change) as url:
        batch = submit(key, request(users.ALICE, block=seen + 5))
        began = timezone.now()
        for _ in range(LOOKS_IN_A_MINUTE):
            assert accepted(batch).status == BatchStatus.RECEIVED
        assert batch.due_at
        # The interval between checks doubles, so the next check is much later than the first ones.
        assert batch.due_at - began > timedelta(seconds=31)
        assert f"Block {seen + 5} of chain 31337 is 55 blocks above the newest one" in str(batch.wait)
        assert f"The newest block of Development chain (31337) is {seen - 50}, and {seen} was seen" in told()
        assert (batch.attempts, batch.rejecting_checks) == (LOOKS_IN_A_MINUTE, LOOKS_IN_A_MINUTE)
        # Another failure resets the count of rejecting checks.
        reconfigure(settings, url, "http://127.0.0.1:1")
        batch = accepted(batch)
        assert (batch.attempts, batch.rejecting_checks) == (LOOKS_IN_A_MINUTE + 1, 0)
        reconfigure(settings, "http://127.0.0.1:1", service.url)
    service.mine(5)
    for each in (batch, existing):
        assert work_until_done(each).status == BatchStatus.DONE
    work()
    assert "was seen" not in told()


def told() -> str:
    return " ".join(Client().get("/healthz", REMOTE_ADDR="127.0.0.1").json()["problems"])


@pytest.mark.long
def test_a_block_waited_for_is_not_rejected_when_the_head_falls_back(service, key, settings):
    settings.MAX_BLOCKS_AHEAD = 5
    service.mine(5)
    low = service.rpc("evm_snapshot")
    service.mine(64)
    coming = service.head() + 2
    batch = accepted(submit(key, request(users.ALICE, block=coming)))
    assert f"Block {coming} of chain 31337 does not exist yet" in waiting()[0]
    service.rpc("evm_revert", low)
    batch = accepted(batch)
    assert (batch.status, waiting()) == (
        BatchStatus.ACCEPTED,
        [f"Block {coming} of chain 31337 does not exist yet; the head is {service.head()}."],
    )
    # The block is checked again within a minute, although it is 66 blocks away.
    due_at = Block.objects.get(number=coming).due_at
    assert due_at
    assert due_at - timezone.now() < timedelta(seconds=61)
    service.mine(66)
    assert work_until_done(batch, service).status == BatchStatus.DONE


def test_fields_that_the_next_fork_adds_are_waited_for_with_their_block(service, key):
    coming = service.head() + 2
    batch = accepted(submit(key, asking({f"block:{coming}": {"header": ["SLOT_NUMBER"]}})))
    assert batch.status in {BatchStatus.ACCEPTED, BatchStatus.IN_PROGRESS}
    assert waiting() == [f"Block {coming} of chain 31337 does not exist yet; the head is {service.head()}."]
    service.mine(3)
    # The block has come without the fork.
    accepted(batch)
    assert "has no SLOT_NUMBER: its fork has no such fields." in waiting()[0]


@pytest.mark.long
def test_a_block_that_seems_too_old_is_waited_for_once_its_batch_is_accepted(service, key, short_window, settings):
    """A node whose chain is far ahead makes the block look too old."""
    coming = service.head() + 2
    body = request(users.ALICE, block=coming)
    body["data"]["31337"][f"block:{service.head()}"] = {"accounts": {users.BOB: {"props": ["NONCE"], "slots": []}}}
    batch = accepted(submit(key, body))
    assert batch.status == BatchStatus.IN_PROGRESS
    service.mine(40)
    reconfigure(settings, "window = 10", "window = 10\nmax_hops = 0")
    for _ in range(3):
        batch = accepted(batch)
    assert (batch.status, batch.rejection_code) == (BatchStatus.IN_PROGRESS, "")
    assert any("This service goes back at most 0 hops" in sentence for sentence in waiting())
    reconfigure(settings, "\nmax_hops = 0", "")
    assert work_until_done(batch, service).status == BatchStatus.DONE


@pytest.mark.long
@pytest.mark.parametrize("named", ["block", "timestamp"])
def test_headers_of_another_chain_reject_no_accepted_batch(service, key, settings, named):
    """Blocks of the wrong chain have no `withdrawalsRoot`, or are all later than the requested time."""
    later = _time(service) + 3
    body = request(users.ALICE, block=service.head())
    coming = {"block": service.head() + 2, "timestamp": later}[named]
    body["data"]["31337"][f"{named}:{coming}"] = {"header": ["WITHDRAWALS_ROOT"]}
    batch = accepted(submit(key, body))
    assert batch.status == BatchStatus.IN_PROGRESS
    spoilt = {"block": ["--hardfork", "london"], "timestamp": ["--timestamp", str(later + 1)]}[named]
    with DevChain(extra_args=spoilt) as other:
        other.mine(coming if named == "block" else 1)

        def answer(body):
            asks_for_headers = "eth_getBlockBy" in json.dumps(body)
            return ask(other.url if asks_for_headers else service.url, body)

        with lying_node(answer) as wrong:
            reconfigure(settings, service.url, wrong)
            for _ in range(2):
                batch = accepted(batch)
                assert (batch.status, batch.rejection_code) == (BatchStatus.IN_PROGRESS, "")
            assert named == "block" or "before the first block" in str(batch.wait)
            reconfigure(settings, wrong, service.url)
    service.rpc("evm_increaseTime", 60)
    service.mine(2)
    assert work_until_done(batch, service).status == BatchStatus.DONE


@pytest.mark.long
def test_the_oldest_block_of_the_window_is_proven(service, key, short_window):
    service.mine(10)
    assert work_until_done(submit(key, request(users.ALICE, block=service.head() - 9))).status == BatchStatus.DONE


@pytest.mark.long
def test_an_old_block_whose_header_is_accumulated_is_proven(service, key, short_window):
    block = service.head()
    work_until_done(submit(key, request(users.ALICE, block=block)))
    service.mine(20)
    assert work_until_done(submit(key, request(users.BOB, block=block))).status == BatchStatus.DONE


@pytest.mark.long
def test_a_block_that_ages_out_while_it_waits_is_proven_by_a_hop(service, key, short_window):
    service.rpc("evm_setAutomine", False)
    service.rpc("anvil_setBalance", users.SIGNER, "0x0")  # the signer can't send
    service.mine()
    batch = submit(key, request(users.ALICE, block=service.head()))
    work()
    assert fresh(batch).status == BatchStatus.IN_PROGRESS
    service.mine(12)
    service.rpc("anvil_setBalance", users.SIGNER, hex(10**18))
    assert work_until_done(batch, service).status == BatchStatus.DONE
    assert Transaction.objects.exclude(extends=None).count() == 1


# --- Money ------------------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_a_fee_below_the_estimate_is_rejected_with_the_estimate(service, key, costly):
    batch = work_until_done(submit(key, request(users.ALICE, block=service.head(), fee=1)))
    assert (batch.status, batch.rejection_code, batch.rejection_retryable) == (
        BatchStatus.REJECTED,
        "fee_too_low",
        True,
    )
    assert "gas" in batch.rejection_reason
    assert "its fee of 1 wei" in batch.rejection_reason


@pytest.mark.long
def test_a_user_has_a_limit_in_a_day(service, key, costly, settings):
    block = service.head()
    first = work_until_done(submit(key, request(users.ALICE, block=block, fee=10**18)))
    assert first.status == BatchStatus.DONE
    money.limit(settings, daily_limit_per_user=first.estimated_wei or 0)
    # A user has one limit, whatever key is used.
    batch = work_until_done(submit(users.a_key(name="another"), request(users.BOB, block=block - 1, fee=10**18)))
    assert (batch.status, batch.rejection_code) == (BatchStatus.REJECTED, "budget_exceeded")
    assert "this batch is estimated at" in batch.rejection_reason
    other = users.a_key(users.BOB)
    assert work_until_done(submit(other, request(users.BOB, block=block - 1, fee=10**18))).status == BatchStatus.DONE
    Transaction.objects.update(spent_at=timezone.now() - timedelta(days=1, seconds=1))
    third = work_until_done(submit(key, request(users.BOB, block=block - 2, fee=10**18)))
    assert third.status == BatchStatus.DONE
    # The limit is now below the day's spending, so the rejection names no estimate.
    money.limit(settings, daily_limit_per_user=third.spent // 2)
    batch = work_until_done(submit(key, request(users.BOB, block=block - 3, fee=10**18)))
    assert (batch.rejection_code, batch.rejection_reason.split(". ")[-1].split(" ", 2)[2]) == (
        "budget_exceeded",
        "of this are used or reserved.",
    )


@pytest.mark.long
def test_a_batch_never_costs_more_than_its_fee(service, key, costly):
    """The batch is accepted at one gas price and waits at a higher one."""
    batch = submit(key, request(users.ALICE, block=service.head(), fee=2 * 10**15))
    service.rpc("evm_setAutomine", False)
    with money.stopped():
        assert accepted(batch).status == BatchStatus.IN_PROGRESS
    service.rpc("anvil_setNextBlockBaseFeePerGas", hex(90 * 10**9))
    service.mine()
    work()
    assert "The batch's fee leaves 0.002000 ETH, and at the present gas price" in waiting()[0]
    assert "Waiting for gas at " in waiting()[0]
    service.rpc("anvil_setNextBlockBaseFeePerGas", hex(10**9))
    service.mine()
    service.rpc("evm_setAutomine", True)
    assert work_until_done(batch, service).status == BatchStatus.DONE
    work()
    assert 0 < fresh(batch).spent <= batch.fee


# --- Waiting ----------------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_a_registry_that_is_not_deployed_is_waited_for_and_the_command_named(service, key):
    row = FactsRegistry.objects.get()
    FactsRegistry.objects.update(deployed_at=None)
    batch = accepted(submit(key, request(users.ALICE, block=service.head())))
    assert batch.status == BatchStatus.RECEIVED
    assert batch.wait
    assert "manage.py deploy_registry 31337 31337" in batch.wait.for_operators
    FactsRegistry.objects.update(deployed_at=row.deployed_at)
    assert work_until_done(batch).status == BatchStatus.DONE


def test_a_block_without_its_header_is_not_accepted_as_if_it_took_nothing(service, key, settings):
    number = service.head() - 1

    def lose(body):
        answers = ask(service.url, body)
        for question, answer in zip(body, answers, strict=True) if isinstance(body, list) else [(body, answers)]:
            if question["method"] == "eth_getBlockByNumber" and question["params"][0] == hex(number):
                answer["result"] = None
        return answers

    body = request(users.ALICE, block=number)
    body["data"]["31337"][f"block:{number - 1}"] = body["data"]["31337"][f"block:{number}"]
    batch = submit(key, body)
    with lying_node(lose) as url:
        reconfigure(settings, service.url, url)
        work()
    assert (fresh(batch).status, batch.estimated_gas) == (BatchStatus.RECEIVED, None)
    assert "lacks headers" in str(batch.wait)


@pytest.mark.long
def test_a_header_below_the_head_that_nodes_lack_is_the_fault_of_the_source_s_nodes(service, key, settings):
    WorkerHeartbeat.objects.create(worker="worker", started_at=timezone.now(), beat_at=timezone.now())
    number = service.head() + 2
    batch = submit(key, request(users.ALICE, block=number))
    work()
    assert "does not exist yet" in waiting()[0]
    service.mine(8)
    with hiding(service.url, number) as url:
        reconfigure(settings, service.url, url)
        for _ in range(2):
            work()
            assert waiting() == [f"Nodes of chain 31337 lack block {number}, although the chain has it."]
        (told,) = Client().get(f"/explorer/query/{batch.pk}.json").json()["waits"]
        assert (told["code"], told["failingSince"] is None) == ("source_without_block", False)
        html = _page(batch)
        assert f"Nodes of Development chain lack block {number}, although the chain has it." in html
        assert "If it lasts, the operator of this service must act." in html
        reconfigure(settings, url, service.url)
    assert work_until_done(batch, service).status == BatchStatus.DONE


@pytest.mark.long
@pytest.mark.usefixtures("short_window")
def test_a_block_from_which_a_path_begins_that_nodes_lack_is_told(service, key, settings):
    service.mine(30)
    batch, number = submit(key, request(users.ALICE, block=service.head() - 20)), service.head() - 8
    with hiding(service.url, number) as url:
        reconfigure(settings, service.url, url)
        work()
        assert waiting() == [f"Nodes of chain 31337 lack block {number}, although the chain has it."]
        reconfigure(settings, url, service.url)
    assert work_until_done(batch, service, rounds=20).status == BatchStatus.DONE


@pytest.mark.long
def test_a_block_after_that_of_a_time_that_nodes_lack_is_not_told_as_still_to_come(service, key, settings):
    service.rpc("anvil_setBlockTimestampInterval", 10)
    service.mine(2)
    number, time = service.head(), _time(service)
    service.mine(8)
    batch = submit(key, asking({f"timestamp:{time}": {"accounts": {users.ALICE: {"props": ["BALANCE"]}}}}))
    with money.stopped(), hiding(service.url, number + 1) as url:
        work()
        assert "has stopped sending" in waiting()[0]
        reconfigure(settings, service.url, url)
        work()
        assert waiting() == [f"A node of chain 31337 doesn't have block {number + 1}, below its own head."]
        reconfigure(settings, url, service.url)
    assert work_until_done(batch, service).status == BatchStatus.DONE


# --- Proofs of old blocks that no node serves -------------------------------------------------------------------------


def status(key: ApiKey, batch: Batch) -> dict[str, Any]:
    answer = Client().get("/batch-query-status", {"batchQueryId": batch.pk}, headers=users.header(key))
    return dict(answer.json())


def instead_of_proofs(chain: DevChain, answer: Callable[[Any, Any], Any]) -> AbstractContextManager[str]:
    """Return a context that yields the URL of a node with another answer to `eth_getProof`."""

    def change(question: Any, reply: Any) -> list[Any]:
        return [answer(question, reply) if question["method"] == "eth_getProof" else reply]

    return between(chain.url, change)


def of_another_state(question: Any, reply: Any) -> Any:
    """Return the proof without its root node. Nodes without the old state answer from another state (lambdaclass/ethrex
    issue 7028).
    """
    return reply | {"result": reply["result"] | {"accountProof": reply["result"]["accountProof"][1:]}}


@pytest.fixture
def old(service) -> int:
    """Return a block so old that not all nodes keep its state."""
    service.mine(200)
    return int(service.head()) - 150


@pytest.mark.long
def test_a_node_that_limits_requests_is_waited_for_however_old_the_block(service, key, settings, old):
    batch = submit(key, request(users.ALICE, block=old))
    with instead_of_proofs(service, lambda asked, _: error(asked, -32000, "Exceeded the quota usage")) as url:
        reconfigure(settings, service.url, url)
        work(LOOKS_IN_A_MINUTE)
        told = status(key, batch)
        assert told["queryStatus"] == "IN_PROGRESS"
        assert " limits our requests (-32000)." in told["info"][0]
        assert "archive" not in told["info"][0]
        reconfigure(settings, url, service.url)
    assert work_until_done(batch).status == BatchStatus.DONE


@pytest.mark.long
@pytest.mark.parametrize(
    ("code", "refuses_newest", "why"),
    [
        (-32000, True, "(-32000)."),
        (-32601, True, "(-32601): it doesn't serve that method."),
        (
            -32000,
            False,
            "(-32000). Accounts and slots at old blocks need an archive node. Header fields don't.",
        ),
    ],
)
def test_a_rejection_at_an_old_block_quotes_the_nodes_refusal(
    service, client, key, settings, old, code, refuses_newest, why
):
    body = request(users.ALICE, block=old)
    newest = service.rpc("eth_getBlockByNumber", "latest", False)["hash"]

    def refuse(asked: Any, reply: Any) -> Any:
        return error(asked, code, "no") if refuses_newest or newest not in str(asked) else reply

    with instead_of_proofs(service, refuse) as url:
        reconfigure(settings, service.url, url)
        proof = f"the proof of account {users.ALICE} at block {old} of Development chain (31337)"
        sentence = f"No node of chain 31337 serves proofs at block {old}. {url.removeprefix('http://')} refused {proof}"
        (rejection,) = estimated_batches.estimate(client, key, body)["rejections"]
        assert rejection["error"] == f"{sentence} {why}"
        batch = work_until_done(submit(key, body))
    # A worker has measured meanwhile how far back the node proves.
    reason = batch.rejection_reason.replace(" The nodes prove accounts at least 0 blocks back.", "")
    assert (batch.rejection_code, reason) == ("proof_unavailable", f"{sentence} {why}")


def test_an_old_block_is_rejected_for_its_age_if_a_younger_one_is_served(service, client, key, settings, old):
    body = request(users.ALICE, block=old)
    body["data"]["31337"][f"block:{service.head()}"] = body["data"]["31337"][f"block:{old}"]

    def refuse_old(question: Any, reply: Any) -> Any:
        is_old = question["params"][2] == {"blockHash": service.rpc("eth_getBlockByNumber", hex(old), False)["hash"]}
        return error(question, -32000, "members only") if is_old else reply

    with instead_of_proofs(service, refuse_old) as url:
        reconfigure(settings, service.url, url)
        (rejection,) = estimated_batches.estimate(client, key, body)["rejections"]
    assert "(-32000). Accounts and slots at old blocks need an archive node." in rejection["error"]


def test_proofs_for_reading_at_an_old_block_are_refused_as_the_batch_is(service, client, key, settings, old):
    with pruned(service.url) as url:
        reconfigure(settings, service.url, url)
        (rejection,) = estimated_batches.estimate(client, key, request(users.ALICE, block=old))["rejections"]
        shown = asked_at(key, "/read-proofs", f"block:{old}")
        assert shown.json() == {"error": rejection["error"], "code": "proof_unavailable"}
        assert (shown.status_code, "Retry-After" in shown) == (422, False)
        assert "(-32000). Accounts and slots at old blocks need an archive node." in rejection["error"]


@pytest.mark.parametrize("cause", ["another node is down", "the nodes proved as old a block"])
def test_a_refused_proof_for_reading_may_be_asked_for_again_where_it_may_be_had(service, key, settings, old, cause):
    with pruned(service.url) as url:
        if cause == "another node is down":
            reconfigure(settings, f'"{service.url}"', f'"{url}", "http://127.0.0.1:1"')
        else:
            head = service.head()
            ChainWatch.objects.update_or_create(pk=31337, defaults={"measured_head": head, "oldest_provable": 1})
            reconfigure(settings, service.url, url)
        shown = asked_at(key, "/read-proofs", f"block:{old}")
    assert (shown.status_code, shown.json()["code"], "Retry-After" in shown) == (503, "chain_unavailable", True)


@pytest.mark.long
def test_how_far_back_nodes_prove_is_measured_once_a_day_and_told(service, client, key, settings, old):
    """The node refuses older states in words that no pattern knows."""
    asked: list[str] = []

    def refuse_old(question: Any, reply: Any) -> Any:
        asked.append(question["params"][2]["blockHash"])
        number = int(service.rpc("eth_getBlockByHash", asked[-1], False)["number"], 16)
        return error(question, -32000, "Zustand unbekannt") if number < service.head() - 130 else reply

    def proves() -> tuple[str | None, bool]:
        (chain,) = client.get("/chains.json").json()["chains"]
        return chain["provesBack"], chain["provesEveryBlock"]

    assert proves() == (None, False)
    work()
    assert proves() == (str(service.head() - 1), True)
    with instead_of_proofs(service, refuse_old) as url:
        reconfigure(settings, service.url, url)
        work()
        assert proves() == (str(service.head() - 1), True)
        ChainWatch.objects.update(proofs_measured_at=timezone.now() - timedelta(hours=25))
        before = len(asked)
        work()
        assert proves() == ("128", False)
        # Its last step is the first that fails. Two more belong to the check that nodes prove at all.
        assert len(asked) - before <= 7
        with lying_node(lambda asked: ask(service.url, asked)) as archive:
            reconfigure(settings, f'"{url}"', f'"{url}", "{archive}"')
            ChainWatch.objects.update(proofs_measured_at=None)
            work()
            reconfigure(settings, f'"{url}", "{archive}"', f'"{url}"')
        shown = " ".join(client.get("/chains").text.split())
        assert f"{url.removeprefix('http://')} proves accounts at least 128 blocks back" in shown
        assert f"{archive.removeprefix('http://')} proves accounts at every block · finds slots of calls" in shown
        ChainWatch.objects.update(proofs_measured_at=None)
        work()
        (rejection,) = estimated_batches.estimate(client, key, request(users.ALICE, block=old))["rejections"]
    assert "The nodes prove accounts at least 128 blocks back. Accounts and slots at old blocks" in rejection["error"]


def states_refused(chain: DevChain, keeps: Callable[[], int]) -> AbstractContextManager[str]:
    """Return a context that yields the URL of a node that refuses proofs of older states in words of its own."""

    def refuse_old(question: Any, reply: Any) -> Any:
        number = int(chain.rpc("eth_getBlockByHash", question["params"][2]["blockHash"], False)["number"], 16)
        return error(question, -32000, "Zustand unbekannt") if number < chain.head() - keeps() else reply

    return instead_of_proofs(chain, refuse_old)


def health() -> tuple[list[str], str]:
    told = Client().get("/healthz").json()
    return told["codes"], " ".join(told["problems"])


def return_of_workers(chain: DevChain) -> None:
    """Let workers be off for more blocks than nodes keep states, and come back, which has the nodes measured again."""
    chain.mine(200)
    ChainWatch.objects.update(proofs_measured_at=None)
    work()
    Block.objects.exclude(refused_since=None).update(refused_since=timezone.now() - timedelta(minutes=11))


@pytest.mark.long
def test_batches_wait_for_an_archive_that_refuses_old_states_after_workers_were_off(service, key, settings):
    keeps = 1_000_000
    beat()
    service.mine(1000)
    with states_refused(service, lambda: keeps) as url:
        reconfigure(settings, service.url, url)
        accepted_before = submit(key, request(users.ALICE, block=service.head() + 1))
        work()
        assert fresh(accepted_before).status == BatchStatus.ACCEPTED
        received = submit(key, request(users.BOB, block=service.head()))
        keeps = 130
        for _ in range(2):
            return_of_workers(service)
        work(2 * LOOKS_IN_A_MINUTE)
        assert {fresh(accepted_before).status, fresh(received).status} == {BatchStatus.ACCEPTED}
        codes, sentence = health()
        assert codes == ["no_proofs"]
        assert sentence.startswith(
            "Batches wait for proofs of accounts at blocks of Development chain (31337), the oldest"
        )
        assert sentence.endswith("which no node serves now. Blocks: 2. An archive node proves them.")
        keeps = 1_000_000
        for batch in (accepted_before, received):
            assert work_until_done(batch).status == BatchStatus.DONE
        work()
    assert health() == ([], "")


@pytest.mark.long
def test_the_reach_of_a_node_is_forgotten_when_measurements_have_not_seen_it_for_days(service, key, settings):
    keeps = 1_000_000
    service.mine(1000)
    with states_refused(service, lambda: keeps) as url:
        reconfigure(settings, service.url, url)
        work()
        keeps = 130
        (node,) = ChainWatch.objects.get().proving_nodes
        long_ago = (timezone.now() - timedelta(hours=49)).isoformat()
        ChainWatch.objects.update(proving_nodes=[node | {"lately": node["lately"] | {"at": long_ago}}])
        batch = submit(key, request(users.ALICE, block=service.head()))
        return_of_workers(service)
        assert work_until_done(batch).rejection_code == "proof_unavailable"


@pytest.mark.parametrize("waited", [True, False])
def test_batches_that_are_rejected_because_no_worker_ran_are_reported_and_old_requests_are_not(
    service, key, settings, waited
):
    beat()
    service.mine(200)
    with states_refused(service, lambda: 130) as url:
        reconfigure(settings, service.url, url)
        work()
        batch = submit(key, request(users.ALICE, block=service.head()))
        service.mine(200)
        Batch.objects.update(created_at=timezone.now() - timedelta(minutes=26 if waited else 1))
        work(2)
        assert fresh(batch).status == BatchStatus.RECEIVED
        before = health()
        assert work_until_done(batch).rejection_code == "proof_unavailable"
        work()
        after = health()
        Batch.objects.update(
            finished_at=timezone.now() - timedelta(minutes=16), created_at=timezone.now() - timedelta(minutes=42)
        )
        work()
        assert health() == ([], "")
    told = [
        "Batches waited for longer than nodes of Development chain (31337) keep states, as when no worker ran. "
        f"About to be rejected: {doomed}. Rejected within 15 minutes: {rejected}. An archive node proves them."
        for doomed, rejected in ((1, 0), (0, 1))
    ]
    assert [before, after] == ([(["no_proofs"], sentence) for sentence in told] if waited else [([], "")] * 2)


@pytest.mark.long
def test_a_node_that_hangs_at_old_states_is_measured_in_seconds(service, settings, old):
    released = threading.Event()

    def hang(question: Any, reply: Any) -> Any:
        number = int(service.rpc("eth_getBlockByHash", question["params"][2]["blockHash"], False)["number"], 16)
        if number < service.head() - 100:
            released.wait(30)
        return reply

    with instead_of_proofs(service, hang) as url:
        reconfigure(settings, service.url, url)
        began = time.monotonic()
        work()
        took = time.monotonic() - began
        released.set()
    assert 4 < took < 15
    assert ChainWatch.objects.get().proves_back == 64


@pytest.mark.long
def test_a_proof_of_another_state_is_asked_for_again_for_ten_minutes(service, client, key, settings, old):
    batch, patient = submit(key, request(users.ALICE, block=old)), submit(key, request(users.ALICE, block=old + 1))
    with instead_of_proofs(service, of_another_state) as url, lying_node(lambda _: Raw(b"<html>")) as down:
        reconfigure(settings, service.url, url)
        told = estimated_batches.estimate(client, key, request(users.ALICE, block=old))
        assert "serves a usable proof: 127.0.0.1" in told["waits"][0]
        shown = asked_at(key, "/read-proofs", f"block:{old}").json()
        assert shown["error"].endswith(" Nothing was stored; send it again in a moment.")
        work(LOOKS_IN_A_MINUTE + 2)
        (sentence,) = status(key, batch)["info"]
        assert f"with a proof of {users.ALICE} at block {old} that does not verify: The proof " in sentence
        assert " The batch is rejected if this stays so for ten minutes." in sentence
        # The other node is down and may have the state, so the batch waits without a limit.
        reconfigure(settings, f'"{url}"', f'"{url}", "{down}"')
        Block.objects.update(refused_since=timezone.now() - timedelta(minutes=11))
        work()
        assert (fresh(batch).status, Block.objects.get(number=old).refused_since) == (BatchStatus.ACCEPTED, None)
        reconfigure(settings, f'"{url}", "{down}"', f'"{url}"')
        work()
        Block.objects.filter(number=old).update(refused_since=timezone.now() - timedelta(minutes=11))
        work()
        assert (fresh(batch).status, batch.rejection_code) == (BatchStatus.REJECTED, "proof_unavailable")
        reconfigure(settings, url, service.url)
    assert work_until_done(patient).status == BatchStatus.DONE


# --- Block 0 ----------------------------------------------------------------------------------------------------------


def checked(batch: Batch, times: int) -> float:
    """Check the batch this often. Return the seconds that its pauses take."""
    seconds = 0.0
    for _ in range(times):
        work()
        assert fresh(batch).status == BatchStatus.RECEIVED
        assert batch.due_at
        assert batch.looked_at
        seconds += (batch.due_at - batch.looked_at).total_seconds()
    return seconds


def of_the_empty_trie(question: Any, reply: Any) -> Any:
    """Return the proof of an absent account: the state root of anvil's block 0 is that of the empty trie."""
    return reply | {"result": reply["result"] | {"accountProof": []}}


@pytest.mark.long
@pytest.mark.parametrize("blocks", [0, 200])
def test_block_0_of_a_development_chain_is_rejected_within_a_minute_with_its_reason(service, client, key, blocks):
    service.mine(blocks)
    body = request(users.ALICE, block=0)
    (rejection,) = estimated_batches.estimate(client, key, body)["rejections"]
    sentence = rejection["error"]
    assert rejection["retryable"] is False
    assert sentence.startswith("No node of chain 31337 proves the state at block 0. 127.0.0.1")
    assert sentence.endswith(" Development chains often begin with another state: ask for block 1 or a later one.")
    shown = asked_at(key, "/read-proofs", "block:0")
    assert (shown.status_code, shown.json(), "Retry-After" in shown) == (
        422,
        {"error": sentence, "code": "proof_unavailable"},
        False,
    )
    batch = submit(key, body)
    assert 30 < checked(batch, 5) < 45
    (told,) = status(key, batch)["info"]
    assert told.startswith(f"{sentence} The batch is rejected if this stays so for half a minute.")
    work()
    assert fresh(batch).status == BatchStatus.REJECTED
    assert status(key, batch) == {
        "queryStatus": "REJECTED",
        "error": sentence,
        "code": "proof_unavailable",
        "retryable": False,
    }
    assert work_until_done(submit(key, request(users.ALICE, block=1))).status == BatchStatus.DONE
    of_header = asking({"block:0": {"header": ["TIMESTAMP"]}})
    assert work_until_done(submit(key, of_header), service).status == BatchStatus.DONE


@pytest.mark.long
def test_block_0_is_waited_for_as_long_as_a_node_may_prove_it_and_then_proven(service, key, settings):
    batch = submit(key, request(users.ALICE, block=0))
    checked(batch, 5)
    with instead_of_proofs(service, of_the_empty_trie) as url, lying_node(lambda _: Raw(b"<html>")) as down:
        # The other node may have the state.
        reconfigure(settings, f'"{service.url}"', f'"{service.url}", "{down}"')
        for _ in range(LOOKS_IN_A_MINUTE + 2):
            work()
            assert fresh(batch).status not in {BatchStatus.REJECTED, BatchStatus.DONE}
        reconfigure(settings, f'"{service.url}", "{down}"', f'"{service.url}", "{url}"')
        assert work_until_done(batch, service).status == BatchStatus.DONE
