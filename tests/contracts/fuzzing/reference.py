"""What a real EVM does in the calls that the interpreter runs: to see that both do the same."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import requests

from chains.devchain import DevChain
from tests.contracts.deployed import SENDER
from tests.contracts.fuzzing.interpreter import Execution
from tests.contracts.simulator import outcome_of

_CONTRACT = "0x" + "c0" * 20
_GAS = hex(30_000_000)


@dataclass(frozen=True)
class Run:
    """A call of a contract that has this code and storage. Whatever it calls is at `callee`, and answers the same to
    all; it reverts where the answer is None."""

    code: bytes
    calldata: bytes
    storage: Mapping[int, int] = field(default_factory=dict)
    callee: str = ""
    answer: bytes | None = None


def run_on(chain: DevChain, runs: Sequence[Run]) -> list[Execution]:
    """What becomes of each. They don't see each other, and nothing of them is kept."""
    requested = [request for run in runs for request in _requests(run)]
    batch = [{"jsonrpc": "2.0", "id": at, **request} for at, request in enumerate(requested)]
    replies = {reply["id"]: reply for reply in requests.post(chain.url, json=batch, timeout=120).json()}
    if failed := [reply["error"] for reply in replies.values() if "error" in reply]:
        raise AssertionError(f"The node doesn't run what it is asked to: {failed[0]}")
    results = [replies[at]["result"] for at in range(len(batch))]
    return [_execution(run, *results[2 * at : 2 * at + 2]) for at, run in enumerate(runs)]


def _requests(run: Run) -> list[dict[str, Any]]:
    """Of what it answers and logs, and of what it stores."""
    state = {f"0x{place:064x}": f"0x{word:064x}" for place, word in run.storage.items()}
    overrides: dict[str, Any] = {_CONTRACT: {"code": "0x" + run.code.hex(), "stateDiff": state}}
    if run.callee:
        overrides[run.callee] = {"code": "0x" + _always_answer(run.answer).hex()}
    call = {"from": SENDER, "to": _CONTRACT, "input": "0x" + run.calldata.hex(), "gas": _GAS}
    block = {"stateOverrides": overrides, "blockOverrides": {"gasLimit": _GAS}, "calls": [call]}
    difference = {"tracer": "prestateTracer", "tracerConfig": {"diffMode": True}, "stateOverrides": overrides}
    return [
        {"method": "eth_simulateV1", "params": [{"blockStateCalls": [block], "validation": False}, "latest"]},
        {"method": "debug_traceCall", "params": [call, "latest", difference]},
    ]


def _always_answer(answer: bytes | None) -> bytes:
    """Code that returns up to 32 bytes, or else reverts."""
    if answer is None:
        return bytes.fromhex("5f5ffd")  # PUSH0 PUSH0 REVERT
    # PUSH32 answer PUSH0 MSTORE PUSH1 size PUSH0 RETURN
    return b"\x7f" + answer.ljust(32, b"\0") + bytes.fromhex("5f5260") + bytes([len(answer)]) + bytes.fromhex("5ff3")


def _execution(run: Run, simulated: Any, difference: Any) -> Execution:
    outcome = outcome_of(simulated[0]["calls"][0])
    storage = dict(run.storage)
    # Before, what has changed; and after, what isn't zero of that.
    for place in _stored(difference["pre"]):
        storage.pop(place, None)
    storage |= _stored(difference["post"])
    return Execution(outcome.succeeded, outcome.data, bytes(len(outcome.data)), outcome.logs, storage)


def _stored(accounts: Any) -> dict[int, int]:
    stored = accounts.get(_CONTRACT, {}).get("storage", {})
    return {int(place, 16): int(word, 16) for place, word in stored.items()}
