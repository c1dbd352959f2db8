"""A wallet that acts like a browser extension in a page: real signatures, configurable behaviour."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from eth_account.messages import encode_defunct
from eth_account.signers.local import LocalAccount
from playwright.sync_api import BrowserContext, Page, expect

from devnet.devchain import DevChain, DevChainError
from tests.accounts.wallets import ALICE

_SCRIPT = Path(__file__).with_name("wallet.js")

# Error codes and texts of wallets (EIP-1193, EIP-1474).
DECLINED = (4001, "User rejected the request.")
BUSY = (-32002, "Request of type 'wallet_requestPermissions' already pending. Please wait.")
NO_SUCH_CHAIN = (4902, "Unrecognized chain ID.")
NO_SUCH_METHOD = (4200, "The wallet has no such method.")
# Error codes of EIP-5792.
DUPLICATE_ID = (5720, "There are calls with this identifier.")
UNKNOWN_CALLS = (5730, "No calls have this identifier.")

# Methods that the wallet forwards to its node.
_OF_NODE = {
    "eth_blockNumber",
    "eth_call",
    "eth_getBlockByNumber",
    "eth_getProof",
    "eth_getTransactionByHash",
    "eth_getTransactionCount",
    "eth_getTransactionReceipt",
}


@dataclass
class Wallet:
    """A wallet in a browser profile. Install it before the first page opens. A test may change its behaviour at any
    time.
    """

    account: LocalAccount = ALICE
    chain_id: int = 31337
    refuses: dict[str, tuple[int, str]] = field(default_factory=dict)
    """Errors to answer with, by JSON-RPC method."""
    lies: dict[str, Any] = field(default_factory=dict)
    """Answers that replace the chain's, by JSON-RPC method."""
    asked: list[str] = field(default_factory=list)
    """The JSON-RPC methods that the page has called."""
    chain: DevChain | None = None
    """The chain to send on. Without one the wallet can only sign messages."""
    sends_calls: bool = False
    """True if the wallet knows EIP-5792."""
    loses_answers: bool = False
    """True if the page never learns of sent transactions, as when it was closed before."""
    holds: bool = False
    """True if requests to send wait for the owner, even after the page is gone."""
    takes_nonces: bool = True
    """True if a transaction gets the nonce that the page names."""
    fills_in: bool = False
    """True if a page may leave the chain, the value and the gas to the wallet."""
    held: list[tuple[str, list[Any]]] = field(default_factory=list)
    """The waiting JSON-RPC methods with their parameters."""
    sent: list[str] = field(default_factory=list)
    """The hashes of sent transactions."""
    calls: dict[str, list[str]] = field(default_factory=dict)
    """The transaction hashes of calls, by the calls' identifier (EIP-5792)."""

    def put_into(self, context: BrowserContext) -> None:
        """Install the wallet as an EIP-6963 provider and as `window.ethereum`."""
        context.expose_function("walletState", self._state)
        context.expose_function("walletSigns", self._sign)
        context.expose_function("walletSwitches", self._switch)
        context.expose_function("walletAnswers", self._answer)
        context.expose_function("walletHolds", lambda method, params: self.held.append((method, params)))
        context.add_init_script(path=_SCRIPT)

    def _state(self, method: str) -> dict[str, Any]:
        self.asked.append(method)
        return {
            "accounts": [self.account.address.lower()],
            "chain_id": hex(self.chain_id),
            "refuses": self.refuses,
            "loses_answers": self.loses_answers,
            "holds": self.holds,
        }

    def _sign(self, data: str, address: str) -> str:
        assert address.lower() == self.account.address.lower()
        text = bytes.fromhex(data.removeprefix("0x")).decode()
        return self.account.sign_message(encode_defunct(text=text)).signature.to_0x_hex()

    def _switch(self, chain_id: str) -> None:
        self.chain_id = int(chain_id, 16)

    # --- Sending ------------------------------------------------------------------------------------------------------

    def _answer(self, method: str, params: list[Any]) -> dict[str, Any]:
        if method in self.lies:
            return {"result": self.lies[method]}
        if self.chain is not None and method in _OF_NODE:
            reply = self.chain.ask(method, *params)
            return {"error": [*reply["error"].values()]} if "error" in reply else {"result": reply["result"]}
        if self.chain is not None and method == "eth_sendTransaction":
            try:
                return {"result": self._send(params[0])}
            except DevChainError as error:
                return {"error": (-32000, str(error))}
        if self.chain is not None and self.sends_calls and method in _OF_CALLS:
            return _OF_CALLS[method](self, *params)
        return {"error": NO_SUCH_METHOD}

    def approve(self) -> list[dict[str, Any]]:
        """Approve all open prompts as the owner would. Return the results, which no page receives."""
        answers = [self._answer(method, params) for method, params in self.held]
        self.held.clear()
        return answers

    def cancel(self, sent: str) -> None:
        """Replace a pending transaction with an empty transfer at a higher fee."""
        assert self.chain is not None
        nonce = int(self.chain.rpc("eth_getTransactionByHash", sent)["nonce"], 16)
        self._sign_and_send({"to": self.account.address, "data": "0x", "value": "0x0", "gas": "0x5208"}, nonce, 20)

    def _send(self, fields: dict[str, str]) -> str:
        assert self.chain is not None
        if self.fills_in:
            gas = self.chain.rpc("eth_estimateGas", fields)
            fields = {"chainId": hex(self.chain_id), "value": "0x0", "gas": gas} | fields
        assert int(fields["chainId"], 16) == self.chain_id == self.chain.chain_id
        nonce = int(self.chain.rpc("eth_getTransactionCount", self.account.address, "pending"), 16)
        if self.takes_nonces and "nonce" in fields:
            nonce = int(fields["nonce"], 16)
        self.sent.append(self._sign_and_send(fields, nonce))
        return self.sent[-1]

    def _sign_and_send(self, page_fields: dict[str, str], nonce: int, price: int = 2) -> str:
        """Sign and send a transaction with the page's fields and the wallet's own fees. `price` is in gwei."""
        assert self.chain is not None
        fields: dict[str, Any] = {
            "to": page_fields["to"],
            "data": page_fields["data"],
            "value": int(page_fields["value"], 16),
            "gas": int(page_fields["gas"], 16),
            "chainId": self.chain_id,
            "nonce": nonce,
            "maxFeePerGas": price * 10**9,
            "maxPriorityFeePerGas": price * 10**8,
        }
        signed = self.account.sign_transaction(fields)
        return str(self.chain.rpc("eth_sendRawTransaction", signed.raw_transaction.to_0x_hex()))

    def _capabilities(self, account: str, chains: list[str]) -> dict[str, Any]:
        assert account.lower() == self.account.address.lower()
        return {"result": {chain: {"atomic": {"status": "unsupported"}} for chain in chains}}

    def _send_calls(self, request: dict[str, Any]) -> dict[str, Any]:
        """Send the calls as single transactions. EIP-5792 allows this unless the page requires an atomic batch."""
        assert (request["version"], request["atomicRequired"]) == ("2.0.0", False)
        if request["id"] in self.calls:
            return {"error": DUPLICATE_ID}
        sent = [self._send(call | {"gas": hex(2_000_000), "chainId": request["chainId"]}) for call in request["calls"]]
        self.calls[request["id"]] = sent
        return {"result": {"id": request["id"]}}

    def _calls_status(self, identifier: str) -> dict[str, Any]:
        if identifier not in self.calls:
            return {"error": UNKNOWN_CALLS}
        assert self.chain is not None
        receipts = [self.chain.rpc("eth_getTransactionReceipt", sent) for sent in self.calls[identifier]]
        if not all(receipts):
            return {"result": {"version": "2.0.0", "id": identifier, "status": 100}}
        worked = [receipt["status"] == "0x1" for receipt in receipts]
        status = 200 if all(worked) else 600 if any(worked) else 500
        return {"result": {"version": "2.0.0", "id": identifier, "status": status, "receipts": receipts}}


_OF_CALLS: dict[str, Callable[..., dict[str, Any]]] = {
    "wallet_getCapabilities": Wallet._capabilities,
    "wallet_sendCalls": Wallet._send_calls,
    "wallet_getCallsStatus": Wallet._calls_status,
}


def said(page: Page, text: str | re.Pattern[str]) -> None:
    expect(page.locator("#wallet-status")).to_contain_text(text)
