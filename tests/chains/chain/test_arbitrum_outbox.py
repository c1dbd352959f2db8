"""The service finds a rollup's confirmed blocks, also old ones, in the events of Arbitrum's Outbox
with few requests.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest
from eth_utils.crypto import keccak

from chains import arbitrum_outbox as outbox_module
from chains.arbitrum_outbox import Outbox
from chains.nodes.node_errors import InvalidReply, RpcRefused
from chains.nodes.rpc import RpcClient
from chains.tries.header import Header
from devnet.arbitrum_outbox import ArbitrumOutbox
from devnet.devchain import DevChain
from tests.contracts import tries

# The rollup confirms every tenth block. Confirmations are a hundred times as frequent as on real parent chains.
EACH, CONFIRMED = 10, 40
HEAD = EACH * CONFIRMED + 5
RANGE = 20


class Rollup(NamedTuple):
    parent: DevChain
    rollup: DevChain
    address: str
    at: dict[int, int]
    """The parent's block that confirmed each block."""


@pytest.fixture(scope="module")
def confirmed() -> Iterator[Rollup]:
    with DevChain() as parent, DevChain(chain_id=31338) as rollup:
        rollup.rpc("anvil_mine", hex(HEAD), hex(5))
        outbox = ArbitrumOutbox(parent)
        at = {}
        for number in range(EACH, HEAD, EACH):
            # The numbers of blocks between confirmations vary, as on real rollups.
            parent.rpc("anvil_mine", hex(1 + number % 70 // 10), "0xc")
            block_hash = bytes.fromhex(rollup.rpc("eth_getBlockByNumber", hex(number), False)["hash"][2:])
            at[number] = outbox.confirm(keccak(bytes([number // EACH])), block_hash)
        yield Rollup(parent, rollup, outbox.address, at)


class Bounded(NamedTuple):
    """Records the ranges of requests for events. `bound` refuses ranges of more than `most` blocks, or
    before `first`.
    """

    requests: list[tuple[int, int]]
    bound: Callable[..., None]


@pytest.fixture
def logs(monkeypatch) -> Bounded:
    requests: list[tuple[int, int]] = []
    ask = RpcClient.logs

    def bound(most: int, first: int = 0) -> None:
        def bounded(client, address, topics, low, high):
            requests.append((low, high))
            if high - low >= most or low < first:
                raise RpcRefused(-32005, f"eth_getLogs is limited to a range of {most} blocks")
            return ask(client, address, topics, low, high)

        monkeypatch.setattr(RpcClient, "logs", bounded)

    monkeypatch.setattr(outbox_module, "_RANGE", RANGE)
    bound(10**9)
    return Bounded(requests, bound)


@pytest.fixture
def outbox(confirmed, client_of) -> Outbox:
    rollup = client_of(confirmed.rollup.url, chain_id=31338)
    return Outbox(client_of(confirmed.parent.url), rollup, confirmed.address)


def target(confirmed: Rollup, client_of: Callable[..., RpcClient], number: int) -> Header:
    return client_of(confirmed.rollup.url, chain_id=31338).known_header(number)


@pytest.mark.parametrize(("most", "requests"), [(10**9, 6), (RANGE, 6), (7, 9), (1, 25)])
def test_the_first_confirmed_block_from_any_one_on_is_found_in_few_requests(
    confirmed, outbox, logs, client_of, most, requests
):
    logs.bound(most)
    newest = outbox.newest()
    assert (newest.header.number, newest.at) == (HEAD - 5, confirmed.at[HEAD - 5])
    for number in (1, 9, 10, 11, 95, 200, 333, 391, 400):
        logs.requests.clear()
        lowest = outbox.lowest(target(confirmed, client_of, number), newest)
        expected = -(-number // EACH) * EACH
        assert (lowest.header.number, lowest.at) == (expected, confirmed.at[expected])
        assert len(logs.requests) <= requests


def test_blocks_whose_logs_nodes_no_longer_serve_are_reached_from_the_lowest_served_one(
    confirmed, outbox, logs, client_of
):
    newest = outbox.newest()
    logs.bound(RANGE, first=confirmed.at[300])
    lowest = outbox.lowest(target(confirmed, client_of, 95), newest)
    assert lowest.header.number >= 95
    logs.bound(0)
    assert outbox.lowest(target(confirmed, client_of, 95), newest) == newest
    with pytest.raises(RpcRefused):
        outbox.newest()


def test_without_events_nothing_is_confirmed(confirmed, client_of):
    with DevChain(chain_id=31338) as rollup:
        rpc = client_of(rollup.url, chain_id=31338)
        assert Outbox(rpc, rpc, confirmed.address).newest() is None


@pytest.mark.parametrize("code", ["0x", "0x00", "0x60205ffd", "0x601f5ff3", "0x60405ff3"])
def test_an_address_that_does_not_answer_as_an_outbox_is_told(confirmed, client_of, code):
    """The contract's code reverts, or returns nothing, 31 bytes or two words."""
    other = "0x" + "12" * 20
    confirmed.parent.rpc("anvil_setCode", other, code)
    rollup = client_of(confirmed.rollup.url, chain_id=31338)
    header = Header.decode(tries.header(1, b"\x01" * 32, extra_data=b"\x05" * 32))
    with pytest.raises(InvalidReply, match=f"There is no Outbox at {other} on "):
        Outbox(client_of(confirmed.parent.url), rollup, other).held(header)
