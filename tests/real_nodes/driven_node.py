"""A client without a beacon chain. Tests request blocks from it by the Engine API."""

import hashlib
import secrets
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Self

from eth_account import Account

from devnet.devchain import ACCOUNTS
from devnet.execution_client import ExecutionClient
from devnet.json_rpc import EngineApi, fork_at
from tests.real_nodes.facts import Node

# Number of blocks from the head to the newest final block.
_FINAL_BEHIND = 6


class DrivenNode(ExecutionClient):
    """A client whose blocks a test makes. `final_behind` is None while no block is final."""

    final_behind: int | None = _FINAL_BEHIND
    clock_is_slow = False
    """If so, blocks have times one second apart, before now."""

    def __enter__(self) -> Self:
        super().__enter__()
        self.engine = EngineApi(self.engine_url, self.secret, self.building_log)
        head = self.rpc("eth_getBlockByNumber", "latest", False)
        self._chain: list[tuple[str, int]] = [(head["hash"], int(head["timestamp"], 16))]
        """Hashes and times of the blocks up to the head."""
        self.genesis_time = self._chain[0][1]
        self._making = threading.RLock()
        """Locked while blocks are made, because `mining` makes them in another thread."""
        self._added: list[tuple[dict[str, Any], str, str]] = []
        """The payloads of the blocks from the first on, with beacon roots and forks."""
        return self

    def mine(
        self, blocks: int = 1, *, withdrawals: Sequence[Mapping[str, str]] = (), at: int = 0, slot: int | None = None
    ) -> None:
        """Let the client build blocks with these withdrawals, each of which becomes the head.

        `at` is the time of the first block. By default it is now. `slot` is the slot number of blocks of Amsterdam. By
        default it is the number of seconds since the first block.
        """
        with self._making:
            for _ in range(blocks):
                self._mine(withdrawals, at, slot)
                at = 0

    def _mine(self, withdrawals: Sequence[Mapping[str, str]], at: int, slot: int | None) -> None:
        parent_hash, parent_time = self._chain[-1]
        timestamp = at or max(parent_time + 1, 0 if self.clock_is_slow else int(time.time()))
        fork = fork_at(self.genesis["config"], timestamp)
        beacon_root = "0x" + hashlib.sha256(parent_hash.encode()).hexdigest()
        attributes: dict[str, Any] = {
            "timestamp": hex(timestamp),
            # A random value makes each block differ from those dropped.
            "prevRandao": "0x" + secrets.token_hex(32),
            "suggestedFeeRecipient": "0x" + "fe" * 20,
            "withdrawals": withdrawals,
            "parentBeaconBlockRoot": beacon_root,
        }
        if fork == "amsterdam":
            attributes["slotNumber"] = hex(timestamp - self.genesis_time if slot is None else slot)
        payload_id = self.engine.choose(parent_hash, self._final(), attributes, fork=fork)
        payload = self.engine.take(payload_id, beacon_root, fork=fork)
        self._chain.append((payload["blockHash"], timestamp))
        self._added[len(self._chain) - 2 :] = [(payload, beacon_root, fork)]
        self.engine.choose(payload["blockHash"], self._final())

    @contextmanager
    def mining(self, seconds: float = 1) -> Iterator[None]:
        """Make a block every so many seconds, while the test does something else."""
        is_over = threading.Event()

        def mine() -> None:
            while not is_over.wait(seconds):
                self.mine()

        with ThreadPoolExecutor(1) as pool:
            made = pool.submit(mine)
            try:
                yield
            finally:
                is_over.set()
            made.result()

    def follow(self, other: "DrivenNode") -> None:
        """Add the blocks that another client of the chain has built, each of which becomes the head."""
        self.add(other._added[len(self._chain) - 1 :])

    def add(self, blocks: Sequence[tuple[dict[str, Any], str, str]]) -> None:
        """Add built blocks: their payloads, with beacon roots and forks. Each becomes the head."""
        self.engine.choose(self._chain[-1][0], self._final())
        for payload, beacon_root, fork in blocks:
            self.engine.add(payload, beacon_root, [], fork=fork)
            self._chain.append((payload["blockHash"], int(payload["timestamp"], 16)))
            self.engine.choose(payload["blockHash"], self._final())

    def restart(self, *, killed: bool = False) -> None:
        """Start the client again with its data. A killed one has lost its newest blocks, until it follows itself."""
        self.kill() if killed else self.stop()
        self.start()
        del self._chain[self.head() + 1 :]

    def drop(self, blocks: int) -> None:
        """Reorganise the chain: replace the newest `blocks` by one block more."""
        with self._making:
            del self._chain[len(self._chain) - blocks :]
            self.mine(blocks + 1)

    def forget_lost_blocks(self) -> None:
        """Go on from the client's head, which a kill may have set back."""
        head = self.rpc("eth_getBlockByNumber", "latest", False)["hash"]
        del self._chain[1 + [block_hash for block_hash, _ in self._chain].index(head) :]

    def _final(self) -> str:
        if self.final_behind is None:
            return "0x" + "00" * 32
        return self._chain[max(0, len(self._chain) - 1 - self.final_behind)][0]


def give(node: Node, address: str, wei: int) -> None:
    """Send money of the first development account, as a faucet does. It comes with the next block."""
    giver, key = ACCOUNTS[0]
    fields = {
        "chainId": node.chain_id,
        "nonce": int(node.rpc("eth_getTransactionCount", giver, "pending"), 16),
        "to": address,
        "value": wei,
        # Since Amsterdam, a new account takes 204,600.
        "gas": 250_000,
        "maxFeePerGas": 10**11,
        "maxPriorityFeePerGas": 10**9,
    }
    node.rpc("eth_sendRawTransaction", Account.sign_transaction(fields, key).raw_transaction.to_0x_hex())
