"""A real rollup of the OP Stack above geth, and the service on it."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from devnet.op_stack import OpStack
from tests.real_nodes.driven_geth import DrivenGeth
from tests.real_nodes.facts import Node, send_transactions
from tests.service import chains_toml, source_tables

L1, L2 = 900, 901
L1_SECONDS = 2
_WAIT_SECONDS = 60
_L1_BLOCK, _NUMBER = "0x4200000000000000000000000000000000000015", "0x8381f58a"
# A scalar and a constant that make the fee a fifth to a quarter of a transaction's cost.
OPERATOR_FEE = 2_000_000, 10**9


class Rollup(OpStack):
    """A rollup above a geth that makes a block every two seconds. As a `BlockMaker` it waits for its next block."""

    chain_id = L2

    def rpc(self, method: str, *params: Any) -> Any:
        return self.l2.rpc(method, *params)

    def mine(self) -> None:
        """Wait for the next block."""
        self.wait_for_block(self.l2.head() + 1)

    def wait_for_block(self, number: int, tag: str = "latest") -> None:
        """Wait until the rollup's block with this tag has at least this number."""
        self._wait(lambda: self.number(tag) >= number)

    def number(self, tag: str) -> int:
        return int(self.rpc("eth_getBlockByNumber", tag, False)["number"], 16)

    def block_with_transactions(self) -> int:
        """Return the number of a block of the rollup that has transactions. There are later blocks."""
        return self._mined(self, send_transactions(self))

    def l1_block_with_transactions(self) -> int:
        """Return the number of a block of L1 that has transactions. The rollup is derived from later ones."""
        number = self._mined(self.l1, send_transactions(self.l1))
        self._wait(lambda: self.origin() > number)
        return number

    def origin(self) -> int:
        """Return the number of the L1 block that the newest block is derived from, as its contract tells."""
        return int(self.rpc("eth_call", {"to": _L1_BLOCK, "data": _NUMBER}, "latest"), 16)

    def _mined(self, node: Node, sent: str) -> int:
        self._wait(lambda: node.rpc("eth_getTransactionReceipt", sent))
        return int(node.rpc("eth_getTransactionReceipt", sent)["blockNumber"], 16)

    def _wait(self, is_so: Callable[[], object]) -> None:
        deadline = time.monotonic() + _WAIT_SECONDS
        while not is_so():
            assert time.monotonic() < deadline, self.sync_status()
            time.sleep(0.05)


@contextmanager
def rollup(**options: Any) -> Iterator[Rollup]:
    """Yield a rollup, and make the blocks of its L1."""
    l1 = DrivenGeth(L1, genesis_time=int(time.time()) - L1_SECONDS)
    l1.final_behind = 4
    OpStack.prepare(l1)
    with l1, l1.mining(L1_SECONDS), Rollup(l1, L2, **options) as running:
        yield running


def connect(settings: Any, folder: Path, running: Rollup) -> None:
    """Configure the service on the rollup for its own facts, and for those of L1."""
    path = chains_toml(folder, running.l2.url, chain_id=L2)
    lines = f"test_network = true\nblock_seconds = {L1_SECONDS}"
    trust = 'block_hash_source = "op-stack"'
    path.write_text(path.read_text() + source_tables(L1, "L1", running.l1.url, trust, chain=lines, destination=L2))
    settings.CHAINS_FILE = path
