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
# L1's fork is so many seconds after its first block, which its slow clock doesn't reach while the tests run.
_UNTIL_FORK = 600


class Rollup(OpStack):
    """A rollup above a geth that makes a block every two seconds. As a `BlockMaker` it waits for its next block."""

    l1: DrivenGeth

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
        self.wait_for_origin(number + 1)
        return number

    def wait_for_origin(self, number: int) -> None:
        """Wait until the newest block is derived from L1's block with this number, or a later one."""
        self._wait(lambda: self.origin() >= number)

    def fork_l1(self) -> int:
        """Let L1 fork, and return the number of the fork's first block."""
        before = self.l1.head()
        self.l1.clock_is_slow = False
        self._wait(lambda: "slotNumber" in self.l1.rpc("eth_getBlockByNumber", "latest", False))
        numbers = range(before, self.l1.head() + 1)
        return next(at for at in numbers if "slotNumber" in self.l1.rpc("eth_getBlockByNumber", hex(at), False))

    def drop_l1(self, blocks: int) -> None:
        """Reorganise L1, and wait until the rollup has replaced its newest block."""
        head = self.rpc("eth_getBlockByNumber", "latest", False)
        self.l1.drop(blocks)
        self._wait(lambda: self._hash(head["number"]) not in {None, head["hash"]})

    def _hash(self, number: str) -> str | None:
        block = self.rpc("eth_getBlockByNumber", number, False)
        return block and str(block["hash"])

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
def rollup(
    chain_ids: tuple[int, int] = (L1, L2),
    *,
    forks: bool = False,
    is_forked: bool = False,
    age: int | None = None,
    final_behind: int = 2,
    **options: Any,
) -> Iterator[Rollup]:
    """Yield a rollup, and make the blocks of its L1, which forks when a test says so if it `forks`.

    If there is an `age`, both chains began so many seconds ago. The newest `final_behind` blocks of L1 aren't final.
    """
    now = int(time.time())
    l1_id, l2_id = chain_ids
    fork = 0 if is_forked else now if forks else None
    l1 = DrivenGeth(l1_id, genesis_time=now - (age or _UNTIL_FORK), amsterdam_time=fork)
    l1.final_behind, l1.clock_is_slow = final_behind, forks
    OpStack.prepare(l1)
    with l1:
        for at in range(now - age + 60, now, 60) if age else ():
            l1.mine(at=at)
        with l1.mining(L1_SECONDS), Rollup(l1, l2_id, is_as_old=bool(age), **options) as running:
            # Until then, op-geth says that it syncs.
            running.wait_for_block(1)
            yield running


def connect(settings: Any, folder: Path, running: Rollup) -> None:
    """Configure the service on the rollup for its own facts, and for those of L1."""
    path = chains_toml(folder, running.l2.url, chain_id=L2)
    lines = f"test_network = true\nblock_seconds = {L1_SECONDS}"
    trust = 'block_hash_source = "op-stack"'
    path.write_text(path.read_text() + source_tables(L1, "L1", running.l1.url, trust, chain=lines, destination=L2))
    settings.CHAINS_FILE = path
