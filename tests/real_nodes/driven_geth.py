"""geth without a beacon chain."""

from collections.abc import Callable, Iterator
from typing import Any, Literal

import pytest

from devnet.geth import Geth
from tests.real_nodes.driven_node import DrivenNode

CHAIN_ID = 424242


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
