"""Nodes whose settings or state refuse transactions, estimates and receipts. The words are geth's."""

from collections.abc import Iterator
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import Client
from django.utils import timezone

from devnet.devchain import DevChain
from proving.models import SignedTransaction, Transaction
from queries.models import BatchStatus
from tests.chains.geth_answers import REFUSALS, REFUSED_SENDS, Refusal
from tests.chains.lying_node import refusing
from tests.proving.chain_state import signer_nonce
from tests.proving.money import pending, without_limits
from tests.proving.prices import ETHER, GWEI, mine_at
from tests.proving.transactions import age
from tests.service import ALICE, SIGNER, fresh, header, reconfigure, request, submit, waiting, work

pytestmark = pytest.mark.outside

TOO_DEAR, TIP_TOO_LOW = ((-32000, REFUSED_SENDS[case]) for case in ("fee too high", "fee too low"))
LITTLE_GAS, INDEXES = (REFUSALS[case] for case in ("an estimate above the limit", "transactions that are not indexed"))
SEND, ESTIMATE, RECEIPT = "eth_sendRawTransaction", "eth_estimateGas", "eth_getTransactionReceipt"


@pytest.fixture
def refusals() -> dict[str, Refusal]:
    """Return what the node refuses. Tests change it."""
    return {}


@pytest.fixture
def strict(costly: DevChain, settings, refusals) -> Iterator[DevChain]:
    """Yield a chain whose node refuses these methods."""
    with refusing(costly.url, refusals) as url:
        reconfigure(settings, costly.url, url)
        mine_at(costly, 1)
        yield costly


def told(code: str = "signer_waits") -> list[str]:
    """Return the sentences of `/healthz` for operators with this code."""
    health = Client().get("/healthz", REMOTE_ADDR="127.0.0.1").json()
    return [sentence for of, sentence in zip(health["codes"], health["problems"], strict=True) if of == code]


def public_texts(key, *batches: Any) -> str:
    """Return what everybody, and the batches' user, may read."""
    pages = ["/chains", "/chains.json", *(f"/explorer/query/{batch.pk}" for batch in batches)]
    answers = [Client().get(page, REMOTE_ADDR="8.8.8.8") for page in pages]
    answers += [Client().get(f"/batch-queries/{batch.pk}", headers=header(key)) for batch in batches]
    assert {answer.status_code for answer in answers} == {200}
    return "".join(answer.text for answer in [*answers, Client().get("/healthz", REMOTE_ADDR="8.8.8.8")])


def finish(chain: DevChain, *batches: Any) -> None:
    """Let the node's refusals end. Each batch must be done, and no nonce be used twice."""
    age()
    for _ in range(3):
        work()
        mine_at(chain, 1)
    work()
    assert all(fresh(batch).status == BatchStatus.DONE for batch in batches), waiting()
    assert signer_nonce(chain) == signer_nonce(chain, "pending")
    assert told() == []


@pytest.mark.parametrize(
    "refusal", [TOO_DEAR, pytest.param(TIP_TOO_LOW, marks=pytest.mark.long)], ids=["txfeecap", "pricelimit"]
)
def test_operators_alone_read_at_once_why_a_node_takes_no_transaction(strict, key, refusals, refusal):
    refusals[SEND] = refusal
    batch = submit(key, request(ALICE, block=strict.head() - 1, fee=ETHER))
    tx = pending(batch)
    (sentence,) = told()
    assert f"nonce {tx.nonce} of the signer {SIGNER}" in sentence
    assert sentence.endswith(f"; the node said: “{refusal[1]}”.")
    texts = public_texts(key, batch)
    assert "A signer of this service has a problem" in texts
    assert "the node said" not in texts
    assert refusal[1] not in texts


@pytest.mark.long
def test_check_chains_quotes_the_node_that_takes_no_transaction_until_it_does(strict, key, refusals):
    refusals[SEND] = TOO_DEAR
    batch = submit(key, request(ALICE, block=strict.head() - 1, fee=ETHER))
    pending(batch)
    with pytest.raises(CommandError, match=r"signer_waits: .*the node said: “tx fee"):
        call_command("check_chains", stdout=StringIO())
    refusals.clear()
    finish(strict, batch)


def versions(tx: Transaction) -> list[tuple[int, int]]:
    """Return the maximum fee and the priority fee of each version, in wei."""
    return [*tx.versions.order_by("pk").values_list("max_fee_per_gas", "max_priority_fee_per_gas")]


def try_again(chain: DevChain, gwei: float) -> None:
    """Let a block at this base fee come, and all pauses pass."""
    mine_at(chain, gwei)
    age()
    work()


@pytest.mark.long
def test_no_fee_is_raised_while_a_node_refuses_for_a_reason_of_its_own(strict, key, refusals):
    refusals[SEND] = TOO_DEAR
    batch = submit(key, request(ALICE, block=strict.head() - 1, fee=ETHER))
    tx = pending(batch)
    for gwei in (1, 1.2, 0.9):
        try_again(strict, gwei)
    assert len(versions(tx)) == 1
    # It is offered for less as soon as the market allows that.
    try_again(strict, 0.5)
    first, second = versions(tx)
    assert second[0] < first[0] / 1.1
    refusals.clear()
    finish(strict, batch)
    assert len(versions(tx)) == 2


@pytest.mark.long
def test_a_raised_minimum_priority_fee_ends_the_refusal_of_a_low_one(strict, key, settings, refusals):
    refusals[SEND] = TIP_TOO_LOW
    batch = submit(key, request(ALICE, block=strict.head() - 1, fee=ETHER))
    tx = pending(batch)
    try_again(strict, 1)
    assert len(versions(tx)) == 1
    reconfigure(settings, "block_seconds = 1", "block_seconds = 1\nmin_priority_fee_gwei = 5")
    try_again(strict, 1)
    assert [priority for _, priority in versions(tx)][1:] == [5 * GWEI]
    refusals.clear()
    finish(strict, batch)


@pytest.mark.long
def test_a_cancellation_that_a_node_refuses_is_raised_no_further(strict, key, refusals):
    refusals[SEND] = TOO_DEAR
    batch = submit(key, request(ALICE, block=strict.head() - 1, fee=ETHER))
    tx = pending(batch)
    assert Client().post(f"/batch-queries/{batch.pk}/cancel", headers=header(key)).status_code == 200
    for _ in range(4):
        try_again(strict, 1)
    assert len(versions(tx)) == 2
    refusals.clear()
    finish(strict)
    assert SignedTransaction.objects.get(hash=fresh(tx).hash).is_cancellation


# Base fees in gwei, and whether the next block's price leaves a maximum cost of 0.9 ether.
PRICES = {"usual": (5, True), "dear": (5500, True), "too dear for any limit": (9000, False)}


@pytest.mark.long
@pytest.mark.parametrize(("gwei", "is_kept_low"), PRICES.values(), ids=PRICES.keys())
def test_a_transaction_may_cost_less_than_an_ether_where_the_base_fee_allows_it(
    strict, key, settings, gwei, is_kept_low
):
    reconfigure(settings, "block_seconds = 1", "block_seconds = 1\nmax_fee_per_gas_gwei = 50000")
    without_limits(settings)
    mine_at(strict, gwei)
    batch = submit(key, request(ALICE, block=strict.head() - 1, fee=50 * ETHER))
    tx = pending(batch)
    assert (tx.most_for_gas <= 0.9 * ETHER) == is_kept_low
    # The next block would take it at least.
    assert tx.newest.max_fee_per_gas >= 9 * gwei * GWEI // 8
    for _ in range(3):
        try_again(strict, gwei)
    assert fresh(batch).status == BatchStatus.DONE, waiting()


@pytest.mark.long
def test_no_replacement_costs_more_than_an_ether_where_the_base_fee_allows_it(strict, key, settings):
    reconfigure(settings, "block_seconds = 1", "block_seconds = 1\nmax_fee_per_gas_gwei = 50000")
    without_limits(settings)
    mine_at(strict, 5500)
    tx = pending(submit(key, request(ALICE, block=strict.head() - 1, fee=50 * ETHER)))
    for _ in range(4):
        age()
        work()
    assert tx.versions.count() == 1
    assert fresh(tx).most_for_gas <= 0.9 * ETHER


def test_operators_alone_read_at_once_why_a_node_estimates_no_gas(strict, key, refusals):
    refusals[ESTIMATE] = LITTLE_GAS
    batch = submit(key, request(ALICE, block=strict.head() - 1, fee=ETHER))
    work(2)
    (sentence,) = told()
    assert SIGNER in sentence
    assert sentence.endswith(f"; the node said: “{LITTLE_GAS[1]}”.")
    texts = public_texts(key, batch)
    assert "refuse to estimate" in texts
    assert "gas required" not in texts


@pytest.mark.long
def test_a_refused_estimate_is_told_until_the_node_estimates(strict, key, refusals):
    refusals[ESTIMATE] = LITTLE_GAS
    batch = submit(key, request(ALICE, block=strict.head() - 1, fee=ETHER))
    for _ in range(3):
        work()
    assert len(told()) == 1
    assert not Transaction.objects.exists()
    refusals.clear()
    finish(strict, batch)


def test_a_node_that_refuses_receipts_of_waiting_transactions_troubles_nobody(strict, key, refusals, caplog):
    refusals[RECEIPT] = INDEXES
    tx = pending(submit(key, request(ALICE, block=strict.head() - 1, fee=ETHER)))
    assert told("receipt_unusable") == []
    assert "can't be used" not in caplog.text
    # A transaction that the node has lost is sent again meanwhile.
    strict.rpc("anvil_dropAllTransactions")
    tx.versions.update(broadcast_at=timezone.now() - timedelta(minutes=1))
    work()
    assert strict.rpc("eth_getTransactionByHash", tx.latest_hash)
    refusals.clear()
    mine_at(strict, 1)
    work()
    assert fresh(tx).succeeded


@pytest.mark.long
def test_receipts_that_a_node_refuses_for_long_are_told_with_its_words(strict, key, refusals):
    refusals[RECEIPT] = INDEXES
    batch = submit(key, request(ALICE, block=strict.head() - 1, fee=ETHER))
    tx = pending(batch)
    for blocks in range(1, 4):
        mine_at(strict, 1)
        work()
        assert told("receipt_unusable") == [], f"{blocks} blocks may be too few for the node"
    mine_at(strict, 1)
    work()
    (sentence,) = told("receipt_unusable")
    assert tx.latest_hash in sentence
    assert sentence.endswith(f"; the node said: “{INDEXES[1]}”.")
    assert INDEXES[1] not in public_texts(key, batch)
    refusals.clear()
    finish(strict, batch)
    assert told("receipt_unusable") == []
