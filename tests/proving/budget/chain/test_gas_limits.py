"""Nodes that lie about the gas of transactions, and chains with other prices: what is signed, paid and waited for."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from django.test import Client

from devnet.devchain import DevChain
from proving.models import ChainWatch, Transaction
from queries.models import Batch, BatchStatus
from tests.chains.lying_node import estimating
from tests.proving import money, self_funded
from tests.proving.prices import ETHER, go_on, mine_at
from tests.service import ALICE, fresh, header, reconfigure, request, submit, work
from tests.users import a_key

pytestmark = [pytest.mark.long, pytest.mark.outside]

Lie = Callable[[int], int]


def times(factor: float) -> Lie:
    return lambda gas: int(gas * factor)


@contextmanager
def asked_at(settings: Any, chain: DevChain, *lies: Lie) -> Iterator[None]:
    """Let the service ask a node for each of these lies about estimates."""
    with ExitStack() as nodes:
        urls = ", ".join(f'"{nodes.enter_context(estimating(chain.url, lie))}"' for lie in lies)
        reconfigure(settings, f'"{chain.url}"', urls)
        yield
        reconfigure(settings, urls, f'"{chain.url}"')


def sent_for(batch: Batch) -> list[Transaction]:
    return list(Transaction.objects.filter(queries__batch=batch).distinct())


def code_of_wait(batch: Batch) -> str:
    (key,) = batch.user.api_keys.all()
    (wait,) = Client().get(f"/batch-queries/{batch.pk}", headers=header(key)).json()["waits"]
    return str(wait["code"])


LIES = {
    "one, too low": [times(0.1)],
    "one, a little too low": [times(0.6)],
    "one, fivefold": [times(5)],
    "one, tenfold": [times(10)],
    "two, too low": [times(0.1), times(0.2)],
    "two, both fivefold": [times(5), times(5)],
    "two, both tenfold": [times(10), times(10)],
    "two, tenfold and fiftyfold": [times(10), times(50)],
    "the first of two, tenfold": [times(10), times(1)],
    "the second of two, tenfold": [times(1), times(10)],
    "the first of two, too low": [times(0.1), times(1)],
}


@pytest.mark.parametrize("lies", LIES.values(), ids=LIES)
@pytest.mark.parametrize("record", ["", "osaka", "amsterdam"])
def test_where_nodes_lie_about_estimates_batches_are_done_at_the_usual_cost(costly, key, settings, lies, record):
    """The chain has Osaka's prices. A fee of `auto` suffices where these are known."""
    if record:
        reconfigure(settings, "[chains.signer]", f'gas_prices = "{record}"\n[chains.signer]')
    mine_at(costly, 1)
    with asked_at(settings, costly, *lies):
        fee = ETHER if record == "amsterdam" else "auto"
        batch = submit(key, request(ALICE, block=costly.head() - 1) | {"fee": str(fee)})
        go_on(costly, 1, rounds=6)
        assert fresh(batch).status == BatchStatus.DONE
    (tx,) = sent_for(batch)
    assert tx.succeeded
    assert tx.gas_used < 150_000


@pytest.mark.parametrize("lies", [[times(1.6), times(1)], [times(1), times(0.1)]], ids=["high", "low"])
@pytest.mark.parametrize("pays_limit", [True, False])
def test_the_lowest_estimate_counts_where_the_whole_limit_is_paid(costly, key, settings, lies, pays_limit):
    if pays_limit:
        reconfigure(settings, "[chains.signer]", "charges_gas_limit = true\n[chains.signer]")
    mine_at(costly, 1)
    with asked_at(settings, costly, *lies):
        batch = submit(key, request(ALICE, block=costly.head() - 1, fee=ETHER))
        go_on(costly, 1, rounds=6)
    assert fresh(batch).status == BatchStatus.DONE
    (tx,) = sent_for(batch)
    is_higher = not pays_limit and lies[0](10) > 10
    assert (tx.gas_limit > tx.gas_used * 1.25) == is_higher


def test_a_node_rests_only_if_no_other_confirms_its_high_estimates(costly, key, settings):
    mine_at(costly, 1)
    resting = []
    for place, lies in enumerate(((times(10), times(10.5)), (times(10), times(1)))):
        with asked_at(settings, costly, *lies):
            submit(key, request(ALICE, block=costly.head() - 1 - place, fee=ETHER))
            go_on(costly, 1, rounds=4)
            resting.append(len(ChainWatch.objects.get().resting_nodes))
    assert resting == [0, 1]


# Prices by which a new word costs a tenth of the gas that the chain charges.
CHEAP = "[chains.gas_prices]\nrecord = 'osaka'\nword = 2_210"


@pytest.mark.parametrize(
    ("lies", "code"),
    [
        ([times(1)], ""),
        ([times(10)], "gas_doubted"),
        ([times(10), times(20)], "gas_doubted"),
        ([times(10), times(10)], ""),
        ([times(10), times(1)], ""),
    ],
    ids=["honest", "one liar", "two that differ", "two that agree", "one of two"],
)
def test_where_prices_are_unknown_a_batch_waits_until_two_nodes_agree(costly, key, settings, lies, code):
    settings.CHAINS_FILE.write_text(
        f"{settings.CHAINS_FILE.read_text()}".replace("[chains.signer]", "[chains.signer]", 1)
    )
    reconfigure(settings, "[[connections]]", f"{CHEAP}\n[[connections]]", count=1)
    mine_at(costly, 1)
    with asked_at(settings, costly, *lies):
        batch = submit(key, request(ALICE, block=costly.head() - 1, fee=ETHER))
        go_on(costly, 1, rounds=6)
        if code:
            assert (sent_for(batch), code_of_wait(batch)) == ([], code)
        else:
            assert fresh(batch).status == BatchStatus.DONE
    go_on(costly, 1, rounds=4)
    assert fresh(batch).status == BatchStatus.DONE
    assert [tx.succeeded for tx in sent_for(batch)] == [True]


def test_a_self_funded_batch_waits_too_where_prices_are_unknown(costly, key, settings):
    reconfigure(settings, "[[connections]]", f"{CHEAP}\n[[connections]]", count=1)
    mine_at(costly, 1)
    batch = submit(key, self_funded.itself(request(ALICE, block=costly.head() - 1)))
    with asked_at(settings, costly, times(10)):
        work(2)
        answer = self_funded.left_of(batch)
        assert (answer["transactions"], answer["isComplete"]) == ([], False)
        assert any("doubtful" in sentence for sentence in answer["waits"])
    (tx,) = self_funded.left_of(batch)["transactions"]
    assert int(tx["gas"], 16) < 200_000


@pytest.mark.parametrize("lies", [[times(5)], [times(30)], [times(30), times(30)]], ids=["5", "30", "two"])
def test_no_high_estimate_cancels_a_pending_transaction_or_keeps_its_fee_from_rising(costly, key, settings, lies):
    mine_at(costly, 1)
    batch, tx = money.paying_up_to(8, key, ALICE, block=costly.head())
    money.pending(submit(a_key("0x" + "b0" * 20), request(ALICE, block=costly.head() - 1, fee=ETHER)))
    costly.rpc("anvil_dropAllTransactions")
    with asked_at(settings, costly, *lies):
        go_on(costly, 3, rounds=4, aged=True)
    assert fresh(batch).status == BatchStatus.DONE
    assert fresh(tx).succeeded
    assert tx.versions.count() > 1
    assert not tx.versions.filter(is_cancellation=True).exists()
