"""EthereumJS without a beacon chain. Tests request blocks from it by the Engine API."""

import hashlib
import secrets
import time
from collections.abc import Mapping, Sequence
from typing import Self

from devnet.ethereumjs import EthereumJs
from devnet.json_rpc import EngineApi

# Number of blocks from the head to the newest final block.
_FINAL_BEHIND = 6


class DrivenEthereumJs(EthereumJs):
    """A chain with Prague's rules from the first block on."""

    def __enter__(self) -> Self:
        super().__enter__()
        self._engine = EngineApi(self.engine_url, self.secret)
        head = self.rpc("eth_getBlockByNumber", "latest", False)
        self._chain: list[tuple[str, int]] = [(head["hash"], int(head["timestamp"], 16))]
        """Hashes and times of the blocks up to the head."""
        return self

    def mine(self, withdrawals: Sequence[Mapping[str, str]] = ()) -> None:
        """Let the client build a block with these withdrawals, and make the block the head."""
        parent_hash, parent_time = self._chain[-1]
        beacon_root = "0x" + hashlib.sha256(parent_hash.encode()).hexdigest()
        payload_id = self._engine.choose(
            parent_hash,
            self._final(),
            {
                "timestamp": hex(max(parent_time + 1, int(time.time()))),
                # A random value makes each block differ from those dropped.
                "prevRandao": "0x" + secrets.token_hex(32),
                "suggestedFeeRecipient": "0x" + "fe" * 20,
                "withdrawals": withdrawals,
                "parentBeaconBlockRoot": beacon_root,
            },
        )
        payload = self._engine.take(payload_id, beacon_root, prague=True)
        self._chain.append((payload["blockHash"], int(payload["timestamp"], 16)))
        self._engine.choose(payload["blockHash"], self._final())

    def drop(self, blocks: int) -> None:
        """Reorganise the chain: replace the newest `blocks` by one block more."""
        del self._chain[len(self._chain) - blocks :]
        for _ in range(blocks + 1):
            self.mine()

    def _final(self) -> str:
        return self._chain[max(0, len(self._chain) - 1 - _FINAL_BEHIND)][0]
