"""geth without a beacon chain."""

import time
from collections.abc import Callable, Iterator
from typing import Any, Literal

import pytest

from devnet.geth import Geth
from devnet.json_rpc import NodeErrorReply
from tests.real_nodes.driven_node import DrivenNode

CHAIN_ID = 424242
_BUILT_SECONDS = 30


class DrivenGeth(DrivenNode, Geth):
    """A chain with Osaka's rules from the first block on, and with Amsterdam's from a time on."""

    def mine_until_amsterdam(self, slot: int | None = None) -> int:
        """Make the first block of Amsterdam, at the fork's time and slot, and return the block's number."""
        self.mine(at=self.genesis["config"]["amsterdamTime"], slot=slot)
        return self.head()

    def follow_unknown(self) -> None:
        """Set a head that the client doesn't know and that no peer has, so that it syncs without end."""
        unknown = "0x" + "ab" * 32
        state = {"headBlockHash": unknown, "safeBlockHash": unknown, "finalizedBlockHash": unknown}
        assert self.engine.call("forkchoiceUpdatedV3", state, None)["payloadStatus"]["status"] == "SYNCING"

    def _wait_until_built(self, payload_id: str | None) -> None:
        """Wait for the log's line. Until then geth would answer with an empty block."""
        deadline = time.monotonic() + _BUILT_SECONDS
        while not any("Updated payload" in line and f"id={payload_id} " in line for line in self._log_lines()):
            if time.monotonic() > deadline:
                raise NodeErrorReply(f"geth built no block: {self._log_lines()[-5:]}")
            time.sleep(0.005)

    def _log_lines(self) -> list[str]:
        return (self.folder / "log").read_text(errors="replace").splitlines()


def geth_fixture(
    prepare: Callable[[DrivenGeth], object] = lambda _: None,
    *,
    scope: Literal["function", "module"] = "module",
    **options: Any,
) -> Any:
    """Return a fixture that yields a prepared geth, as `chain_fixture` does. `options` are those of `DrivenGeth`."""

    @pytest.fixture(scope=scope)
    def prepared() -> Iterator[DrivenGeth]:
        with DrivenGeth(CHAIN_ID, **options) as node:
            prepare(node)
            yield node

    return prepared
