"""Simulate many contract calls in one request to a development chain, with their logs. The chain stays unchanged."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import urllib3

from chains.encoding import hex_data
from devnet.devchain import DevChain
from tests.contracts.deployed import SENDER

# Maximum weight of the calls in a request. Nodes refuse requests of about two megabytes.
MOST_WEIGHT = 900_000
_GAS_PER_CALL = 30_000_000
# Selector of Panic(uint256), by which Solidity reports failed assertions.
PANIC = bytes.fromhex("4e487b71")


@dataclass(frozen=True)
class Log:
    topics: tuple[bytes, ...]
    data: bytes


@dataclass(frozen=True)
class Outcome:
    """The outcome of a call. `data` is the return value or the error data."""

    succeeded: bool
    data: bytes
    logs: tuple[Log, ...]
    gas_used: int

    @property
    def halted(self) -> bool:
        """Return whether the call ran out of gas or panicked."""
        return not self.succeeded and (not self.data or self.data.startswith(PANIC))


@dataclass(frozen=True)
class Call:
    to: str
    data: bytes

    @property
    def weight(self) -> int:
        """Return the call's approximate size in a request, in bytes."""
        return 2 * len(self.data) + 200


class Simulator:
    """Run calls one after another on the chain's latest state (`eth_simulateV1`).

    Calls of one `run` may see each other's changes, so the caller gives each call its own block number. Calls with a
    total weight of at most MOST_WEIGHT are one request, in which each call sees the changes of earlier ones.
    """

    def __init__(self, chain: DevChain) -> None:
        self._url = chain.url
        self._connections = urllib3.PoolManager()

    def run(self, calls: Sequence[Call], *, first: Sequence[Call] = ()) -> list[Outcome]:
        """Return the outcome of each call. Every request begins with the calls in `first`."""
        outcomes: list[Outcome] = []
        chunk: list[Call] = []
        size = 0
        for call in calls:
            chunk.append(call)
            size += call.weight
            if size > MOST_WEIGHT:
                outcomes += self._request(first, chunk)
                chunk, size = [], 0
        return outcomes + (self._request(first, chunk) if chunk else [])

    def _request(self, first: Sequence[Call], calls: Sequence[Call]) -> list[Outcome]:
        written = [
            {"from": SENDER, "to": call.to, "input": hex_data(call.data), "gas": hex(_GAS_PER_CALL)}
            for call in [*first, *calls]
        ]
        block = {"blockOverrides": {"gasLimit": hex(10**12)}, "calls": written}
        request = {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "eth_simulateV1",
            "params": [{"blockStateCalls": [block], "validation": False}, "latest"],
        }
        answer = self._connections.request("POST", self._url, json=request, timeout=120, retries=False).json()
        if "error" in answer:
            raise AssertionError(f"The node refuses to simulate: {answer['error']}")
        outcomes = [outcome_of(each) for each in answer["result"][0]["calls"]]
        if not all(outcome.succeeded for outcome in outcomes[: len(first)]):
            raise AssertionError("A call that others need failed.")
        return outcomes[len(first) :]


def outcome_of(answer: dict[str, Any]) -> Outcome:
    return Outcome(
        answer["status"] == "0x1",
        bytes.fromhex(answer["returnData"][2:]),
        tuple(
            Log(tuple(bytes.fromhex(topic[2:]) for topic in log["topics"]), bytes.fromhex(log["data"][2:]))
            for log in answer["logs"]
        ),
        int(answer["gasUsed"], 16),
    )
