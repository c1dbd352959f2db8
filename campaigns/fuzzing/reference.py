"""A real EVM's outcomes, to test that the interpreter agrees."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import requests

from campaigns.fuzzing.interpreter import Execution
from chains.encoding import hex_data
from devnet.devchain import DevChain
from tests.contracts.deployed import SENDER
from tests.contracts.simulator import outcome_of

_CONTRACT = "0x" + "c0" * 20
_GAS = hex(30_000_000)


@dataclass(frozen=True)
class Run:
    """A call of a contract with this code and storage.

    The contract at `callee` always returns `answer` (less than 256 bytes), or reverts if that is None.
    """

    code: bytes
    calldata: bytes
    storage: Mapping[int, int] = field(default_factory=dict)
    callee: str = ""
    answer: bytes | None = None


class Reference:
    """A runner of calls on anvil. Calls leave no state."""

    def __init__(self, chain: DevChain) -> None:
        self._url = chain.url
        self._session = requests.Session()

    def execute(self, run: Run) -> Execution:
        overrides = {
            _CONTRACT: {
                "code": hex_data(run.code),
                "stateDiff": {_hex(at): _hex(run.storage[at]) for at in run.storage},
            }
        }
        if run.callee:
            overrides[run.callee] = {"code": hex_data(_always_answer(run.answer))}
        call = {"from": SENDER, "to": _CONTRACT, "input": hex_data(run.calldata), "gas": _GAS}
        block = {"stateOverrides": overrides, "blockOverrides": {"gasLimit": _GAS}, "calls": [call]}
        # The first request returns the answer and events, the second the storage.
        [simulated] = self._rpc("eth_simulateV1", {"blockStateCalls": [block], "validation": False}, "latest")
        trace = {"tracer": "prestateTracer", "tracerConfig": {"diffMode": True}, "stateOverrides": overrides}
        changes = self._rpc("debug_traceCall", call, "latest", trace)
        outcome = outcome_of(simulated["calls"][0])
        # `pre` has the old values that changed. `post` has the new values that aren't zero.
        before, after = _stored(changes["pre"]), _stored(changes["post"])
        storage = {place: word for place, word in run.storage.items() if place not in before} | after
        return Execution(outcome.succeeded, outcome.data, bytes(len(outcome.data)), outcome.logs, storage)

    def _rpc(self, method: str, *params: Any) -> Any:
        request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        reply = self._session.post(self._url, json=request, timeout=120).json()
        if "error" in reply:
            raise AssertionError(f"The node doesn't run what it is asked to: {reply['error']}")
        return reply["result"]


def _always_answer(answer: bytes | None) -> bytes:
    """Return code that always returns `answer`, or always reverts."""
    if answer is None:
        return bytes.fromhex("5f5ffd")  # PUSH0 PUSH0 REVERT
    # PUSH1 size PUSH1 10 PUSH0 CODECOPY PUSH1 size PUSH0 RETURN, and the data.
    return bytes([0x60, len(answer), 0x60, 10, 0x5F, 0x39, 0x60, len(answer), 0x5F, 0xF3]) + answer


def _stored(accounts: Any) -> dict[int, int]:
    stored = accounts.get(_CONTRACT, {}).get("storage", {})
    return {int(place, 16): int(word, 16) for place, word in stored.items()}


def _hex(word: int) -> str:
    return f"0x{word:064x}"
