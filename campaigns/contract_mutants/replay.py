"""Replay the calls of tests for each mutant of a schema: `python -m campaigns.contract_mutants.replay`.

The arguments are a file for the caught mutants, a file with a JSON list of the mutants' numbers, and a command, for
example `pytest tests/contracts/chain/test_headers.py`. The artifacts have the code of the schema. The command runs with
the original. Before a development chain stops, the calls and transactions that it got are repeated on its last state,
once for each mutant. Calls that reach no mutant are left out. A mutant is caught if an answer differs. One line is
written for each: its number, and what differs.
"""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import urllib3

from campaigns.contract_mutants.choosing import choose, run
from campaigns.contract_mutants.schemata import SWITCH
from devnet.devchain import DevChain, DevChainError

Call = dict[str, str]

# Nodes refuse requests of about two megabytes. The first requests are small, because they catch most mutants.
_MAX_CHARACTERS = 1_200_000
_FIRST_CALLS, _MAX_CALLS = 30, 400
# Tests make thousands of proofs in one call.
_CALL_GAS, _BLOCK_GAS = 10**12, 10**13
_LISTED = [{"address": SWITCH, "storageKeys": []}]
# A mutant that runs on is stopped: it may use several times the gas of the original.
_GAS_FACTOR, _MORE_GAS = 3, 1_000_000


class Replay:
    """The mutants that no answer has caught yet."""

    def __init__(self, caught: Path, numbers: Sequence[int]) -> None:
        """Write caught mutants to the file `caught`."""
        self._caught = caught
        self._left = list(numbers)
        self._calls: dict[str, dict[str, Call]] = {}

    def record(self, url: str, request: Any) -> None:
        """Keep the calls in a JSON-RPC request to the node at the URL."""
        for call in _calls(request):
            # The node simulates no creation of a contract.
            if not call.get("to"):
                continue
            asked = {
                "from": call.get("from", ""),
                "to": call.get("to", ""),
                "input": call.get("input") or call.get("data", ""),
                "value": call.get("value", ""),
            }
            self._calls.setdefault(url, {})[json.dumps(asked)] = {key: each for key, each in asked.items() if each}

    def run(self, chain: DevChain) -> None:
        """Replay the calls of this chain for each mutant that is left."""
        calls = list(self._calls.pop(chain.url, {}).values())
        calls = [call for chunk in _chunks(calls) for call in reaching(chain, chunk)]
        expected: list[tuple[list[Call], list[Any]]] = []
        for chunk in _chunks(calls):
            first = _simulated(chain, chunk, 0)
            limited = [
                {**call, "gas": hex(_GAS_FACTOR * int(each["gasUsed"], 16) + _MORE_GAS)}
                for call, each in zip(chunk, first, strict=False)
            ]
            again = _simulated(chain, limited, 0)
            # Without an answer to the original there is nothing to compare, and the tests try these calls.
            if not len(chunk) == len(first) == len(again):
                continue
            # An answer about gas may differ from call to call, so it is left out.
            pairs = zip(map(_compared, first), map(_compared, again), strict=True)
            expected.append((limited, [one if one == other else None for one, other in pairs]))
        for number in list(self._left):
            for place, (chunk, answers) in enumerate(expected):
                if difference := _difference(chunk, answers, _simulated(chain, chunk, number)):
                    with self._caught.open("a") as file:
                        file.write(json.dumps([number, difference]) + "\n")
                    self._left.remove(number)
                    # Neighbouring mutants are often caught by the same calls.
                    expected.insert(0, expected.pop(place))
                    break


def _calls(request: Any) -> Iterator[dict[str, Any]]:
    """Yield the calls and transactions in a JSON-RPC request, or in a batch of requests."""
    for each in request if isinstance(request, list) else [request]:
        method, params = each.get("method", ""), each.get("params", [])
        if method in {"eth_call", "eth_sendTransaction", "eth_sendTransactionSync"}:
            yield params[0]
        elif method == "eth_simulateV1":
            for block in params[0]["blockStateCalls"]:
                yield from block["calls"]


def _chunks(calls: Sequence[Call]) -> Iterator[list[Call]]:
    chunk: list[Call] = []
    characters, limit = 0, _FIRST_CALLS
    for call in calls:
        chunk.append(call)
        characters += len(call["input"]) + 300 if "input" in call else 300
        if characters > _MAX_CHARACTERS or len(chunk) >= limit:
            yield chunk
            chunk, characters, limit = [], 0, min(_MAX_CALLS, limit * 2)
    if chunk:
        yield chunk


def reaching(chain: DevChain, calls: Sequence[Call]) -> Sequence[Call]:
    """Return the calls that read SWITCH. No mutant changes the others' answers."""
    first = _simulated(chain, calls, 0)
    listed = _simulated(chain, [{**call, "accessList": _LISTED} for call in calls], 0)
    if not len(calls) == len(first) == len(listed):
        return calls
    # To list an address costs 2,400 gas, and saves 2,500 if it is read (EIP-2930). The floor of calldata hides both.
    return [
        call
        for call, one, other in zip(calls, first, listed, strict=True)
        if int(other["gasUsed"], 16) <= int(one["gasUsed"], 16)
    ]


def _simulated(chain: DevChain, calls: Sequence[Mapping[str, Any]], number: int) -> list[dict[str, Any]]:
    """Return the node's answer to each call with the chosen mutant. Empty if the node answers none."""
    block = {
        "blockOverrides": {"gasLimit": hex(_BLOCK_GAS)},
        "stateOverrides": {SWITCH: {"balance": hex(number)}},
        "calls": [{"gas": hex(_CALL_GAS), **call} for call in calls],
    }
    try:
        reply = chain.ask("eth_simulateV1", {"blockStateCalls": [block], "validation": False}, "latest")
    except DevChainError:
        return []
    answers: list[dict[str, Any]] = reply["result"][0]["calls"] if "result" in reply else []
    return answers


def _compared(answer: dict[str, Any]) -> Any:
    logs = [[log["topics"], log["data"]] for log in answer["logs"]]
    return [answer["status"], answer["returnData"], logs]


def _difference(calls: Sequence[Call], expected: Sequence[Any], answers: Sequence[dict[str, Any]]) -> str:
    """Return what the first different answer is about. Empty if all are as expected."""
    # A node that doesn't answer says nothing about the mutant, so the tests try it.
    for call, one, other in zip(calls, expected, answers, strict=bool(answers)):
        if one is not None and one != _compared(other):
            return f"call of {call.get('input', '0x')[:10]}"
    return ""


def main() -> None:
    caught, numbers, module, *arguments = sys.argv[1:]
    replay = Replay(Path(caught), json.loads(Path(numbers).read_text()))
    request, stop = urllib3.PoolManager.request, DevChain.stop
    replaying = False

    def recorded(self: urllib3.PoolManager, method: str, url: str, *args: Any, **options: Any) -> Any:
        if not replaying and options.get("json"):
            replay.record(url, options["json"])
        return request(self, method, url, *args, **options)

    def replayed(self: DevChain) -> None:
        nonlocal replaying
        if self.url:
            replaying = True
            replay.run(self)
            replaying = False
        stop(self)

    choose(0)
    # Tests reach a chain through these.
    urllib3.PoolManager.request = recorded  # type: ignore[method-assign, assignment]
    DevChain.stop = replayed  # type: ignore[method-assign]
    run(module, arguments)


if __name__ == "__main__":
    main()
