"""Compare a deployed beacon history with `beacon_model`. Both must agree on each call."""

from collections.abc import Sequence
from typing import Any

from campaigns.fuzzing.branches import MODELS, REFUSALS, arguments_of
from chains.beacon.jumps import BeaconChain
from devnet.devchain import DevChain
from tests.contracts.beacon_model import InvalidBranch
from tests.contracts.deployed import Deployed
from tests.contracts.simulator import Call, Simulator

# A function of the contract with its arguments.
Asked = tuple[str, tuple[Any, ...]]


class History:
    """A deployed contract and its model. A call on which they differ fails the test."""

    def __init__(
        self, chain: DevChain, simulator: Simulator, beacon: BeaconChain, contract: str = "GloasBeaconHistory"
    ) -> None:
        arguments, self.beacon = arguments_of(contract, beacon)
        self.contract = Deployed(chain, contract, arguments)
        self._model = MODELS[contract]
        self._simulator = simulator

    def answers(self, questions: Sequence[Asked]) -> list[bytes | None]:
        """Return each answer, or None if the call is refused."""
        calls = [Call(self.contract.address, self.contract.calldata(name, *arguments)) for name, arguments in questions]
        results: list[bytes | None] = []
        for (name, arguments), outcome in zip(questions, self._simulator.run(calls), strict=True):
            assert not outcome.halted
            try:
                expected = self._model[name](self.beacon, *arguments)
            except InvalidBranch:
                assert not outcome.succeeded
                assert outcome.data[:4] in REFUSALS
                results.append(None)
            else:
                assert outcome.succeeded
                assert outcome.data == (True.to_bytes(32) if expected is None else expected)
                results.append(outcome.data)
        return results

    def answer(self, name: str, *arguments: Any) -> bytes | None:
        return self.answers([(name, arguments)])[0]
