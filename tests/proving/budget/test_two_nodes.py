"""Two nodes, one of which lies: its word alone pays for nothing, stops nothing and calls nobody."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from django.test import Client

from devnet.devchain import DevChain
from proving.models import ChainWatch, Transaction
from queries.models import BatchStatus
from tests.chains.lying_node import lying_node
from tests.explorer.batches import beat
from tests.headers import with_hash
from tests.proving.money_node import Node
from tests.proving.prices import ETHER, GWEI, go_on, mine_at
from tests.proving.receipts import balance
from tests.service import ALICE, SIGNER, fresh, reconfigure, request, submit, work_until_done

pytestmark = [pytest.mark.long, pytest.mark.outside]

BATCHES = 4
STALE_BLOCKS = 60
# Wei for four transactions with a header and an account each, at a base fee and a tip of 1 gwei: at most 150,000 gas.
USUAL = BATCHES * 150_000 * 2 * GWEI


@pytest.fixture
def chain() -> Iterator[DevChain]:
    """Yield a chain whose blocks become final after 64, as Ethereum's do."""
    with DevChain(slots_in_an_epoch=32) as chain:
        chain.mine(5)
        yield chain


@dataclass
class Liar(Node):
    """A node that changes the results of the methods in `changes`, of blocks only the newest."""

    changes: Mapping[str, Callable[[Any], Any]] = field(default_factory=dict)

    def _head(self) -> int:
        return self.chain.head() - STALE_BLOCKS

    def _reply(self, question: Any, reply: Any) -> Any:
        reply = super()._reply(question, reply)
        change = self.changes.get(question["method"])
        is_old = question["method"] == "eth_getBlockByNumber" and question["params"][0] != "latest"
        return reply | {"result": change(reply["result"])} if change and reply.get("result") and not is_old else reply


def higher_by(difference: int) -> Callable[[str], str]:
    return lambda number: hex(max(0, int(number, 16) + difference))


def block_with(name: str, difference: int) -> Callable[[Any], Any]:
    return lambda block: with_hash(block | {name: higher_by(difference)(block[name])})


@dataclass(frozen=True)
class Lie:
    changes: Mapping[str, Callable[[Any], Any]]
    code: str = ""
    """The code by which the first node's lie is told. Empty: nobody needs to act."""
    name: str = ""
    """A lie of `money_node`."""


TIP: Mapping[str, Callable[[Any], Any]] = {"eth_maxPriorityFeePerGas": lambda _: hex(150 * GWEI)}
LIES = {
    "tip": Lie(TIP, "node_doubtful"),
    "tip and fee history": Lie(
        {**TIP, "eth_feeHistory": lambda history: history | {"reward": [[hex(150 * GWEI)]] * 10}}, "node_doubtful"
    ),
    "balance": Lie({"eth_getBalance": lambda _: hex(12_345)}, "node_doubtful"),
    "nonce too high": Lie({"eth_getTransactionCount": higher_by(3)}, "nonce_gap"),
    "nonce too low": Lie({"eth_getTransactionCount": higher_by(-3)}),
    "no receipts": Lie({"eth_getTransactionReceipt": lambda _: None}, "receipt_unusable"),
    "impossible receipts": Lie(
        {"eth_getTransactionReceipt": lambda receipt: receipt | {"gasUsed": "0x1"}}, "receipt_unusable"
    ),
    "old head": Lie({}, name="stale"),
    "base fee": Lie({"eth_getBlockByNumber": block_with("baseFeePerGas", 180 * GWEI)}),
}


@pytest.mark.parametrize("is_first", [True, False], ids=["first", "second"])
@pytest.mark.parametrize("lie", LIES.values(), ids=LIES.keys())
def test_all_is_done_at_the_usual_cost_and_the_node_is_named(costly, key, settings, lie, is_first):
    reconfigure(settings, "minimum_signer_balance = '0'", "minimum_signer_balance = '0.01'")
    costly.mine(2 * STALE_BLOCKS)
    mine_at(costly, 1)
    head = costly.head()
    work_until_done(submit(key, request(ALICE, block=head, fee=ETHER)), costly)
    beat()
    mine_at(costly, 1)
    before, liar, told = balance(costly), Liar(costly), list[Any]()
    with lying_node(liar) as url:
        urls = [url, costly.url] if is_first else [costly.url, url]
        reconfigure(settings, f'"{costly.url}"', f'"{urls[0]}", "{urls[1]}"')
        liar.lie, liar.changes = lie.name, lie.changes
        batches = [submit(key, request(ALICE, block=head - 1, fee=ETHER))]
        for number in range(2, 15):
            go_on(costly, 1, rounds=1)
            told.append(Client().get("/healthz", REMOTE_ADDR="127.0.0.1").json())
            if len(batches) < BATCHES:
                batches.append(submit(key, request(ALICE, block=head - number, fee=ETHER)))
    print("RESULT", [fresh(batch).status for batch in batches].count("DONE"), (before-balance(costly))/ETHER, told[-1]["problems"], [t["codes"] for t in told])
    assert {fresh(batch).status for batch in batches} == {BatchStatus.DONE}
    assert USUAL / 2 < before - balance(costly) < USUAL
    assert not Transaction.objects.filter(to=SIGNER).exists()
    code = lie.code if is_first else ""
    assert told[-1]["codes"] == [code][: bool(code)]
    assert {code for at_a_time in told for code in at_a_time["codes"]} <= {code}
    resting = ChainWatch.objects.get().resting_nodes
    host = url.removeprefix("http://").rstrip("/")
    if is_first and (code or lie.name):
        assert host in f"{told[-1]['problems']}{resting}"
    assert bool(resting) == bool(is_first and lie.name)
