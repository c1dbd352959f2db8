"""Contracts on a development chain. Errors have names, and transactions return receipts."""

import itertools
from typing import Any

from eth_abi.abi import decode, encode
from eth_utils.abi import (
    abi_to_signature,
    event_abi_to_log_topic,
    filter_abi_by_type,
    function_abi_to_4byte_selector,
    get_abi_input_types,
    get_abi_output_types,
)
from eth_utils.address import to_checksum_address
from eth_utils.crypto import keccak

from chains.contract_artifacts import Artifact, load_artifact
from devnet.devchain import ACCOUNTS, DevChain

SENDER = ACCOUNTS[0][0]
EXECUTION_REVERTED = 3
# Enough gas for thousands of proofs in one call, on chains with an equally large block gas limit.
CALL_GAS = hex(10**12)


class Reverted(Exception):
    """A call reverted with the custom error `name`, which is empty if the revert has no reason."""

    def __init__(self, name: str, *values: Any) -> None:
        super().__init__(name, *values)
        self.error = (name, *values)


class Deployed:
    def __init__(
        self, chain: DevChain, name: str, *arguments: Any, artifact: Artifact | None = None, address: str = ""
    ) -> None:
        """Deploy the contract, or `artifact` as a changed version of it. With an `address`, use the contract deployed
        there.
        """
        artifact = artifact or load_artifact(name)
        self.chain = chain
        # Names and signatures lead to functions. A name with several functions leads to the last of them.
        functions = filter_abi_by_type("function", artifact.abi)
        self._functions = {entry["name"]: entry for entry in functions}
        self._functions |= {abi_to_signature(entry): entry for entry in functions}
        self._errors = filter_abi_by_type("error", artifact.abi)
        self._events = filter_abi_by_type("event", artifact.abi)
        if address:
            self.address = address
            return
        constructors = filter_abi_by_type("constructor", artifact.abi)
        types = get_abi_input_types(constructors[0]) if constructors else []
        creation = {"data": "0x" + (artifact.bytecode + encode(types, arguments)).hex()}
        # A call first, because a receipt doesn't contain the error.
        self._rpc("eth_call", {"from": SENDER, "gas": CALL_GAS, **creation}, "pending")
        receipt = self._mined(creation)
        self.address = to_checksum_address(receipt["contractAddress"])

    @property
    def code(self) -> bytes:
        """Return the runtime code with the constructor's values filled in."""
        return bytes.fromhex(self._rpc("eth_getCode", self.address, "latest")[2:])

    def calldata(self, function: str, *arguments: Any) -> bytes:
        abi = self._functions[function]
        return function_abi_to_4byte_selector(abi) + encode(get_abi_input_types(abi), arguments)

    def call(self, function: str, *arguments: Any, block: str = "latest") -> Any:
        """Return the function's value: None, a single value, or a tuple of several."""
        answer = self.call_raw(self.calldata(function, *arguments), block=block)
        values = decode(get_abi_output_types(self._functions[function]), answer)
        return values[0] if len(values) == 1 else values or None

    def call_raw(self, data: bytes, block: str = "latest", *, gas: str = CALL_GAS) -> bytes:
        transaction = {"from": SENDER, "to": self.address, "data": "0x" + data.hex(), "gas": gas}
        return bytes.fromhex(self._rpc("eth_call", transaction, block)[2:])

    def send(self, function: str, *arguments: Any) -> Any:
        """Send a transaction. Return its receipt as the node gives it."""
        # A call first, because a receipt doesn't contain the error. It runs in the transaction's block.
        self.call(function, *arguments, block="pending")
        return self._mined({"to": self.address, "data": "0x" + self.calldata(function, *arguments).hex()})

    def send_raw(self, data: bytes) -> Any:
        """Send raw calldata like `send`."""
        self.call_raw(data, block="pending")
        return self._mined({"to": self.address, "data": "0x" + data.hex()})

    def refusal(self, function: str, *arguments: Any) -> tuple[Any, ...]:
        """Return the error with which a transaction reverts: its name and values."""
        return self.refusal_raw(self.calldata(function, *arguments))

    def refusal_raw(self, data: bytes) -> tuple[Any, ...]:
        """Return the error of raw calldata like `refusal`."""
        try:
            self.call_raw(data, block="pending")
        except Reverted as reverted:
            return reverted.error
        raise AssertionError("It did not revert.")

    def logged(self, receipt: Any) -> list[tuple[Any, ...]]:
        """Return each event's name and values in order, indexed values first."""
        events: list[tuple[Any, ...]] = []
        for log, event in itertools.product(receipt["logs"], self._events):
            if log["topics"][0] == "0x" + event_abi_to_log_topic(event).hex():
                indexed = [parameter["type"] for parameter in event["inputs"] if parameter.get("indexed")]
                others = [parameter["type"] for parameter in event["inputs"] if not parameter.get("indexed")]
                topics = b"".join(bytes.fromhex(topic[2:]) for topic in log["topics"][1:])
                events.append(
                    (event["name"], *decode(indexed, topics), *decode(others, bytes.fromhex(log["data"][2:])))
                )
        return events

    def _mined(self, transaction: dict[str, str]) -> Any:
        # The node answers only after it has mined the transaction.
        receipt = self._rpc("eth_sendTransactionSync", {"from": SENDER, **transaction})
        assert receipt["status"] == "0x1"
        return receipt

    def _rpc(self, method: str, *params: Any) -> Any:
        reply = self.chain.ask(method, *params)
        if "error" not in reply:
            return reply["result"]
        if reply["error"]["code"] != EXECUTION_REVERTED:
            raise AssertionError(reply["error"])
        data = bytes.fromhex(reply["error"]["data"].removeprefix("0x"))
        for error in self._errors:
            if data[:4] == keccak(text=abi_to_signature(error))[:4]:
                raise Reverted(error["name"], *decode(get_abi_input_types(error), data[4:]))
        raise Reverted(data.hex())
