"""The selectors `latest` and `finalized`, and blocks to come that delay only their own queries."""

import re
from typing import Any

import pytest
from django.test import Client

from accounts.models import ApiKey
from devnet.devchain import DevChain
from proving.models import Transaction
from queries.models import Batch, BatchStatus
from tests.chains import geth_answers
from tests.chains.lying_node import ask, each, error, lying_node
from tests.deployed import deploy_on
from tests.headers import LONDON, with_hash
from tests.proving.prices import go_on
from tests.service import (
    ALICE,
    BOB,
    CHARLIE,
    asking,
    chains_toml,
    changed_replies,
    fresh,
    header,
    reconfigure,
    submit,
    waiting,
    work,
    work_until_done,
)

pytestmark = [pytest.mark.django_db, pytest.mark.outside]

BALANCE = {"props": ["BALANCE"]}


def submitted(api_key: ApiKey, *, fee: int = 0, **blocks: Any) -> Batch:
    """Submit a batch about these accounts, by selector with `_` for the colon."""
    data = {
        selector.replace("_", ":"): {"accounts": dict.fromkeys(accounts, BALANCE)}
        for selector, accounts in blocks.items()
    }
    return submit(api_key, asking(data, fee=fee))


def numbers(batch: Batch) -> list[int | None]:
    return list(batch.queries.order_by("position").values_list("block__number", flat=True))


def done(batch: Batch) -> list[bool]:
    return [query.step is None for query in batch.queries.order_by("position")]


# --- Tags -------------------------------------------------------------------------------------------------------------


@pytest.mark.story
def test_a_tag_becomes_the_block_of_the_moment_and_stays_it(service, key):
    service.mine(5)
    batch = submitted(key, latest=[ALICE, BOB], finalized=[ALICE], block_3=[ALICE])
    assert numbers(batch) == [None, None, None, 3]
    service.mine(2)
    head, final = service.head(), int(service.rpc("eth_getBlockByNumber", "finalized", False)["number"], 16)
    assert 3 < final < head
    work()
    assert numbers(batch) == [head, head, final, 3]
    service.mine(5)
    assert work_until_done(batch).status == BatchStatus.DONE
    assert numbers(batch) == [head, head, final, 3]
    assert [query.selector for query in batch.queries.order_by("position")] == [
        *("latest", "latest", "finalized", "block:3")
    ]


@pytest.mark.long
def test_a_look_that_finds_a_batch_wanting_fixes_no_tag(service, key, settings):
    """A node lags. Its header is from an older fork and has no `withdrawalsRoot`."""
    service.mine(9)
    behind = service.rpc("eth_getBlockByNumber", hex(service.head() - 2), False)
    told = with_hash({name: value for name, value in behind.items() if name in {*LONDON, "hash"}})

    def change(question: Any, reply: Any) -> list[Any]:
        is_asked = question["method"] == "eth_getBlockByNumber" and question["params"][0] in {"latest", told["number"]}
        return [reply | {"result": told} if is_asked else reply]

    with changed_replies(settings, service, change) as url:
        batch = submit(key, asking({"latest": {"header": ["WITHDRAWALS_ROOT"]}}))
        work()
        assert "WITHDRAWALS_ROOT" in str(fresh(batch).wait)
        reconfigure(settings, url, service.url)
    head = service.head()
    assert work_until_done(batch, service).status == BatchStatus.DONE
    assert numbers(batch) == [head]


@pytest.mark.long
@pytest.mark.django_db(transaction=True)
def test_a_kill_after_a_tag_was_fixed_does_not_fix_it_to_another_block(service, key, killing):
    batch = submitted(key, latest=[ALICE, BOB])
    head = service.head()
    with killing.once(lambda: None not in numbers(batch)):
        work()
    assert killing.killed
    service.mine(3)
    assert work_until_done(batch).status == BatchStatus.DONE
    assert numbers(batch) == [head, head]


def refusing_finality(url: str) -> Any:
    """Return the answers of a node that refuses the tag `finalized`. Other requests go to the node at `url`."""

    @each
    def answer(body: Any) -> Any:
        if body["method"] == "eth_getBlockByNumber" and body["params"][0] == "finalized":
            return error(body, *geth_answers.REFUSALS["no final block"])
        return ask(url, body)

    return answer


@pytest.mark.long
def test_a_chain_that_knows_no_final_block_says_so_and_proves_the_latest(service, key, settings):
    with lying_node(refusing_finality(service.url)) as url:
        reconfigure(settings, service.url, url)
        batch, other = submitted(key, finalized=[ALICE]), submitted(key, latest=[ALICE])
        assert work_until_done(batch).status == BatchStatus.REJECTED
        assert (batch.rejection_code, batch.rejection_retryable) == ("finalized_unknown", True)
        assert "No node of chain 31337 reports" in batch.rejection_reason
        assert batch.rejection_reason.endswith("The node refused (-32000).")
        assert work_until_done(other).status == BatchStatus.DONE


@pytest.mark.long
@pytest.mark.parametrize("head", [10_000, 10_001])
def test_the_first_block_is_not_the_newest_final_one_of_a_long_chain(chain, key, settings, tmp_path, head):
    def first(question: Any, reply: Any) -> list[Any]:
        if question["method"] == "eth_getBlockByNumber" and question["params"][0] == "finalized":
            reply["result"] = chain.rpc("eth_getBlockByNumber", "0x0", False)
        return [reply]

    with DevChain(extra_args=("--number", "9990")) as long:
        settings.CHAINS_FILE = chains_toml(tmp_path, long.url)
        deploy_on(long)
        long.mine(head - long.head())
        with changed_replies(settings, long, first):
            batch = submitted(key, finalized=[ALICE])
            work()
            search = {"sourceChainId": "31337", "contract": ALICE, "signature": "totalSupply()", "block": "finalized"}
            searched = Client().post("/find-slots", search, content_type="application/json", headers=header(key)).text
    told = f"Nodes report block 0 as final, and block {head} as the newest one."
    assert (told in str(fresh(batch).wait), told in searched) == ((head > 10_000,) * 2)


def test_a_node_that_is_down_may_know_the_final_block(service, key, settings):
    with lying_node(refusing_finality(service.url)) as url:
        reconfigure(settings, f'"{service.url}"', f'"{url}", "http://127.0.0.1:1"')
        batch = submitted(key, finalized=[ALICE])
        work()
        assert fresh(batch).status == BatchStatus.RECEIVED
        assert "The node refused (-32000)." in str(batch.wait)


# --- Coming blocks ----------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_blocks_to_come_delay_only_their_own_queries(service, key):
    head = service.head()
    time = int(service.rpc("eth_getBlockByNumber", "latest", False)["timestamp"], 16) + 30
    blocks: dict[str, Any] = {f"block_{head + 2}": [BOB], f"timestamp_{time}": [CHARLIE], f"block_{head + 4}": [ALICE]}
    batch = submitted(key, latest=[ALICE], **blocks)
    work(3)
    assert (done(batch), fresh(batch).status) == ([True, False, False, False], BatchStatus.IN_PROGRESS)
    sentences = " ".join(waiting())
    assert f"Block {head + 2} of chain 31337 does not exist yet" in sentences
    assert f"Block {head + 4} of chain 31337 does not exist yet" in sentences
    assert f"No block of chain 31337 is later than the time {time} yet" in sentences
    service.mine(max(0, head + 2 - service.head()))
    work(3)
    assert done(batch)[:2] == [True, True]
    service.rpc("evm_increaseTime", 60)
    service.mine(5)
    assert work_until_done(batch, service).status == BatchStatus.DONE
    assert batch.wait is None
    assert numbers(batch)[1] == head + 2


def cost_of(key: ApiKey, **blocks: Any) -> int:
    """Return a batch's cost in wei, read from its rejection with a fee of 1."""
    batch = work_until_done(submitted(key, fee=1, **blocks))
    (wei,) = re.findall(r"may cost ([\d,]+) wei", batch.rejection_reason)
    return int(wei.replace(",", ""))


@pytest.mark.long
def test_the_fee_must_do_for_what_is_to_come_before_anything_is_sent(costly, key):
    head = costly.head()
    blocks = {f"block_{head}": [ALICE], f"block_{head + 2}": [ALICE]}
    both = cost_of(key, **blocks)
    assert both > 1.3 * cost_of(key, **{f"block_{head}": [ALICE]})
    too_little, enough = submitted(key, fee=both - 1, **blocks), submitted(key, fee=both, **blocks)
    work_until_done(too_little)
    assert (fresh(too_little).status, too_little.rejection_code) == (BatchStatus.REJECTED, "fee_too_low")
    # The batch with enough fee reserves the later block's cost and sends the first transaction.
    assert Transaction.objects.get().queries.get().batch == enough


@pytest.mark.long
def test_a_block_to_come_spends_no_more_than_the_fee_when_gas_has_become_dearer(costly, key):
    """The batch can't be finished, but its first fact stays proven."""
    head = costly.head()
    blocks = {f"block_{head}": [ALICE], f"block_{head + 20}": [ALICE]}
    batch = submitted(key, fee=2 * cost_of(key, **blocks), **blocks)
    work(3, costly)
    costly.mine(20)
    go_on(costly, 50, 3)
    assert 0 < fresh(batch).spent <= batch.fee
    assert done(batch) == [True, False]
    assert batch.status != BatchStatus.DONE
