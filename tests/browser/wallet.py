"""A wallet that a test puts into a page, as an extension of the browser would: real signatures, behaviour at will."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from eth_account.messages import encode_defunct
from eth_account.signers.local import LocalAccount
from playwright.sync_api import BrowserContext

from tests.accounts.wallets import ALICE

_SCRIPT = Path(__file__).with_name("wallet.js")

# EIP-1193, EIP-1474 and what wallets do: a code and the wallet's own words.
DECLINED = (4001, "User rejected the request.")
BUSY = (-32002, "Request of type 'wallet_requestPermissions' already pending. Please wait.")
NO_SUCH_CHAIN = (4902, "Unrecognized chain ID.")


@dataclass
class Wallet:
    """Put it into a context before the first page opens. Its behaviour may change at any time."""

    account: LocalAccount = ALICE
    chain_id: int = 31337
    locked: bool = False
    refuses: dict[str, tuple[int, str]] = field(default_factory=dict)
    """JSON-RPC method to the error that it is answered with."""
    signs_instead: str | None = None
    """A text that is signed in place of the one that the page asks for."""
    asked: list[str] = field(default_factory=list)
    """The JSON-RPC methods that the page called."""

    def put_into(
        self, context: BrowserContext, *, name: str = "Test Wallet", announced: bool = True, injected: bool = True
    ) -> None:
        """As EIP-6963 provider (`announced`), as `window.ethereum` (`injected`), or both."""
        context.expose_function("walletState", self._state)
        context.expose_function("walletSigns", self._sign)
        context.expose_function("walletSwitches", self._switch)
        options = {"announced": announced, "injected": injected, "name": name}
        context.add_init_script(f"window.__wallet = {json.dumps(options)};\n{_SCRIPT.read_text()}")

    def _state(self, method: str) -> dict[str, Any]:
        self.asked.append(method)
        return {
            "accounts": [] if self.locked else [self.account.address.lower()],
            "chain_id": hex(self.chain_id),
            "refuses": self.refuses,
        }

    def _sign(self, data: str, address: str) -> str:
        assert address.lower() == self.account.address.lower()
        text = self.signs_instead or bytes.fromhex(data.removeprefix("0x")).decode()
        return self.account.sign_message(encode_defunct(text=text)).signature.to_0x_hex()

    def _switch(self, chain_id: str) -> None:
        self.chain_id = int(chain_id, 16)
