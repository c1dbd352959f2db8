"""What old blocks cost: gas, transactions, exchanges with nodes, and time, on a development chain.

Its state trie is small; `make bench-gas` has the gas of mainnet-sized proofs.
"""

import functools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from chains.beacon.beacon_client import BeaconEndpoint
from chains.request_batches import Endpoint
from devnet.devchain import DevChain
from proving.models import Transaction
from proving.registry.deploying import deploy
from queries.models import Batch, Block
from tests.factories import is_done, until
from tests.inside.working import a_worker
from tests.proving.jumping import beacon_chain_of, jumping
from tests.proving.sources import THERE, grow
from tests.service import ALICE, a_key, asking, balances, chains_toml, submit

pytestmark = pytest.mark.django_db(transaction=True)

WINDOW = 40


@pytest.fixture
def exchanges(monkeypatch) -> list[object]:
    """Grows by one with each exchange with a node, or with a beacon node."""
    counted: list[object] = []

    def counting(exchange: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        def count(endpoint: object, batched: object) -> object:
            counted.append(endpoint)
            return exchange(endpoint, batched)

        return count

    for kind in (Endpoint, BeaconEndpoint):
        monkeypatch.setattr(kind, "exchange", counting(kind.exchange))
    return counted


@pytest.fixture
def with_history(settings, tmp_path, transactional_db) -> Iterator[DevChain]:
    """A chain with a block every second, of 600 blocks, with the service on it."""
    with DevChain(block_seconds=1) as chain:
        settings.CHAINS_FILE = chains_toml(tmp_path, chain.url, connection=f"window = {WINDOW}")
        deploy(31337, 31337)
        chain.mine(600)
        yield chain


def measure(chain: DevChain, block: int, exchanges: list[object], *, source: int = 31337) -> str:
    batch = submit(a_key(name=f"of {block}"), asking(balances([block], ALICE), source=source))
    began, exchanged = chain.head(), len(exchanges)
    with a_worker():
        until(functools.partial(is_done, batch), "DONE", 120)
    batch = Batch.objects.get(pk=batch.pk)
    assert batch.finished_at is not None
    row = Block.objects.get(number=block, source_chain_id=source)
    paths = list(Transaction.objects.exclude(extends=None).filter(queries__batch=batch).distinct())
    path = f"{row.path_length} {row.path_unit}, {sum(tx.gas_used for tx in paths):,} gas in {len(paths)} transactions"
    return (
        f"{path if paths else 'no path is needed'}; "
        f"in all {batch.gas_used:,} gas, {len(exchanges) - exchanged} exchanges with nodes, "
        f"{(batch.finished_at - batch.created_at).total_seconds():.1f} s, {chain.head() - began} blocks"
    )


def test_a_young_block(with_history, exchanges, report):
    report("a balance at the head", measure(with_history, with_history.head(), exchanges))


@pytest.mark.parametrize("hops", [1, 10, 50])
def test_hops(with_history, exchanges, report, hops):
    with_history.mine(max(0, (hops - 10) * WINDOW))
    # A little of the window is left to the transaction.
    block = with_history.head() - WINDOW - hops * WINDOW + WINDOW // 2
    report("a balance behind hops", measure(with_history, block, exchanges))


def test_jumps(settings, tmp_path, transactional_db, exchanges, report):
    """In periods of 8 slots. Of mainnet's, of 8,192, it takes 255 exchanges more to tell the first one's roots."""
    with DevChain(chain_id=THERE, hardfork="cancun") as there, DevChain(block_seconds=1) as here:
        grow(there, 60)
        with jumping(here, beacon_chain_of(there), settings, tmp_path) as service:
            service.tell(59)
            for what, block in (("first", 13), ("next", 14)):
                report(f"a balance by the {what} jump to a period", measure(here, block, exchanges, source=THERE))
