"""The registry's code without its checks. It continues wherever the registry refuses.

If the registry lacks a check, and only that check would refuse, it ends in the same root as this code.
"""

import re
from collections.abc import Iterable
from typing import NamedTuple

from eth_utils.crypto import keccak

from campaigns.fuzzing.judge import Fact, facts_of
from campaigns.fuzzing.memory import NODE, STACK, SUBTREE, harness_calldata
from campaigns.fuzzing.mutated import compile_each
from campaigns.fuzzing.steps import HARNESS
from chains.contract_artifacts import Artifact
from chains.encoding import HISTORY_WINDOW
from contracts.build import read_sources
from devnet.devchain import DevChain
from tests.contracts.deployed import Deployed
from tests.contracts.simulator import Call, Simulator

_REFUSALS = re.compile(r"(?<=\{ )refuse\(\)(?= \})|revert InvalidProof\(\);")
# A condition that is never true, because an operation needs calldata. It keeps the error in the interface.
_NEVER = "if (msg.data.length == 0) "


class Ending(NamedTuple):
    """The result of operations if nothing is refused."""

    root: bytes | None
    """The root; None if the operations halt even without checks."""
    facts: tuple[Fact, ...]
    """All facts that would become readable."""


class Unchecked:
    def __init__(self, chain: DevChain) -> None:
        self._address = Deployed(chain, HARNESS, HISTORY_WINDOW, artifact=without_checks()).address
        self._simulator = Simulator(chain)

    def endings(self, cases: Iterable[tuple[bytes, int]]) -> list[Ending]:
        """Return the result of each list of operations, on the state of the block with that number."""
        calls = [
            Call(self._address, harness_calldata(STACK, STACK, b"", b"", operations, is_open=False, block=number))
            for operations, number in cases
        ]
        return [
            Ending(_root(outcome.data) if outcome.succeeded else None, tuple(facts_of(outcome.logs)))
            for outcome in self._simulator.run(calls)
        ]


def without_checks(harness: str = HARNESS) -> Artifact:
    def removed(match: re.Match[str]) -> str:
        return "" if match[0] == "refuse()" else _NEVER + match[0]

    sources = {path: _REFUSALS.sub(removed, text) for path, text in read_sources("src", "test").items()}
    [artifact] = compile_each([sources], f"{harness}.sol")
    return artifact


def _root(memory: bytes) -> bytes | None:
    """Return the root of the topmost subtree in StepHarness's answer. None if there is none."""
    top = int.from_bytes(memory[-96:-64])
    if not NODE <= top - SUBTREE < len(memory):
        return None
    reference, size = memory[top - SUBTREE :][:32], int.from_bytes(memory[top - SUBTREE + 32 :][:32])
    return keccak(reference[:size]) if size else reference
