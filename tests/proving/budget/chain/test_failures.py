"""Transactions that fail although their simulations passed: how often the same is sent, and who waits."""

import re
from datetime import timedelta
from typing import Any

import pytest
from django.db.models import F
from django.test import Client

from devnet.devchain import DevChain
from proving.models import Problem, Transaction
from queries.models import Batch, BatchStatus
from tests.chains.lying_node import error
from tests.proving import dear_registry
from tests.proving.prices import ETHER, mine_at
from tests.service import ALICE, BOB, CHARLIE, SIGNER, changed_replies, fresh, header, request, submit, work
from tests.users import a_key

pytestmark = [pytest.mark.long, pytest.mark.outside]

# Gas that a call takes more in a dear block. It is above what a limit after three failures has as margin, and below
# what four times a limit has.
MORE_GAS = 250_000


def block_to_prove(chain: DevChain) -> int:
    """Return a block below the head, whose state changes with the registry's code."""
    mine_at(chain, 1)
    mine_at(chain, 1)
    return chain.head() - 1


def sent_for(batch: Batch) -> list[Transaction]:
    return list(Transaction.objects.filter(queries__batch=batch).distinct().order_by("pk"))


def limits_of(batch: Batch) -> list[int]:
    return [tx.versions.get().gas for tx in sent_for(batch)]


def wait_of(batch: Batch) -> Any:
    answer = Client().get(f"/batch-queries/{batch.pk}", headers=header(batch.user.api_keys.all()[0]))
    (wait,) = answer.json()["waits"]
    return wait


def fail_always(chain: DevChain, *, rounds: int = 8) -> None:
    """Work while every transaction is mined in a block in which it takes more gas."""
    for _ in range(rounds):
        work(2)
        dear_registry.mine_dear(chain, MORE_GAS)
    work(2)


def go_on(chain: DevChain) -> None:
    for _ in range(5):
        work()
        mine_at(chain, 1)


def test_facts_that_always_run_out_of_gas_are_sent_four_times_and_hold_up_nobody(costly, key):
    block = block_to_prove(costly)
    batch = submit(key, request(ALICE, block=block, fee=ETHER))
    fail_always(costly)
    limits = limits_of(batch)
    assert len(limits) == 4
    assert [tx.succeeded for tx in sent_for(batch)] == [False] * 4
    assert limits[2] >= 1.5 * max(limits[:2])
    assert limits[3] >= 1.5 * limits[2]
    wait = wait_of(batch)
    assert wait["code"] == "reverted"
    used = f"{limits[3]:,} of {limits[3]:,} gas"
    assert re.search(rf"ran out of gas: it used {used}\. Nodes estimate [\d,]+", wait["sentence"])
    health = Client().get("/healthz", REMOTE_ADDR="127.0.0.1").json()
    assert "transactions_fail" in health["codes"]
    assert any(f"of {limits[3]:,} gas. Nodes estimate" in sentence for sentence in health["problems"])
    page = " ".join(Client().get(f"/explorer/query/{batch.pk}").text.split())
    assert "ran out of gas in block" in page
    # Whoever asks for the same facts waits too. Others don't, also at the same block.
    another = a_key(BOB)
    same, other = (submit(another, request(account, block=block, fee=ETHER)) for account in (ALICE, CHARLIE))
    go_on(costly)
    assert (fresh(same).status, sent_for(same)) == (BatchStatus.IN_PROGRESS, [])
    assert fresh(other).status == BatchStatus.DONE
    # When the batch's time is over, a new one can ask again.
    Transaction.objects.update(spent_at=F("spent_at") - timedelta(days=30))
    go_on(costly)
    assert {fresh(batch).status, fresh(same).status} == {BatchStatus.DONE}
    Problem.objects.update(seen_at=F("seen_at") - timedelta(minutes=5))
    assert "transactions_fail" not in Client().get("/healthz").json()["codes"]


def test_those_that_shared_a_transaction_with_one_that_always_fails_are_done_without_it(costly, key):
    """One of the others asks for another fact about the same account."""
    block = block_to_prove(costly)
    accounts = [f"0x{number:040x}" for number in range(1000, 1100)]
    failing = submit(key, request(ALICE, *accounts, block=block, fee=ETHER))
    others = [
        submit(a_key(user), request(account, block=block, props=["NONCE"], fee=ETHER))
        for user, account in ((BOB, BOB), (CHARLIE, ALICE), (SIGNER, CHARLIE))
    ]
    work(2)
    (shared,) = Transaction.objects.filter(queries__batch=failing).distinct()
    assert {query.batch_id for query in shared.queries.all()} == {batch.pk for batch in (failing, *others)}
    for _ in range(12):
        # The other proofs are shorter.
        dear_registry.mine_dear(costly, shared.gas_limit * 12 // 5, least_bytes=1_500)
        work(2)
    assert {fresh(batch).status for batch in others} == {BatchStatus.DONE}
    assert fresh(failing).status == BatchStatus.IN_PROGRESS
    assert len(sent_for(failing)) == 4
    for tx in sent_for(failing)[1:]:
        assert {query.batch_id for query in tx.queries.all()} == {failing.pk}
    assert [len(sent_for(batch)) for batch in others] == [2, 2, 2]


def test_what_the_operator_pays_for_failures_is_bounded_by_one_more_fee(costly, key):
    batch = submit(key, request(ALICE, block=block_to_prove(costly)) | {"fee": "auto"})
    for _ in range(6):
        work(2)
        dear_registry.mine_dear(costly, MORE_GAS, lambda: mine_at(costly, 1))
        costly.mine(70)
    work(2)
    paid = sum(tx.cost for tx in sent_for(batch))
    assert fresh(batch).fee < paid <= 2 * batch.fee
    assert wait_of(batch)["code"] in {"fee_limit", "reverted"}
    assert batch.spent == batch.fee


@pytest.mark.parametrize("mine", [dear_registry.mine_broken, dear_registry.mine_without_block])
def test_facts_that_revert_twice_wait(costly, key, mine):
    """A block that is unknown explains a revert only after a reorganisation."""
    batch = submit(key, request(ALICE, block=block_to_prove(costly), fee=ETHER))
    for _ in range(4):
        work(2)
        mine(costly)
    work(2)
    assert len(sent_for(batch)) == 2
    assert wait_of(batch)["code"] == "reverted"
    assert "it reverted" in wait_of(batch)["sentence"]


@pytest.mark.parametrize("has_state", [True, False])
def test_a_node_without_the_state_leaves_the_gas_used_as_a_measure(costly, key, settings, has_state):
    """The registry's code is broken, and uses up all gas, which is no want of gas."""

    def change(question: Any, reply: Any) -> list[Any]:
        is_repeated = question["method"] == "eth_call" and "gas" in question["params"][0]
        return [error(question, -32000, "missing trie node") if is_repeated and not has_state else reply]

    batch = submit(key, request(ALICE, block=block_to_prove(costly), fee=ETHER))
    with changed_replies(settings, costly, change):
        work(2)
        dear_registry.mine_broken(costly)
        work()
    (tx,) = sent_for(batch)[:1]
    assert ("ran out of gas" in str(tx.error)) == (not has_state)


def test_failures_of_an_earlier_version_block_nothing(costly, key):
    """It has signed the same limit again and again."""
    batch = submit(key, request(ALICE, block=block_to_prove(costly), fee=ETHER))
    fail_always(costly)
    Transaction.objects.update(failure=None)
    lowest = min(limits_of(batch))
    for tx in sent_for(batch):
        tx.versions.update(gas_limit=lowest * 2 // 5)
    Transaction.objects.update(gas_used=lowest * 2 // 5)
    work(2)
    costly.mine()
    work(2)
    assert fresh(batch).status == BatchStatus.DONE
