"""Caps of nodes on the gas of calls and estimates, such as geth's `--rpc.gascap`.

Above its cap, a node may answer as if the transaction reverted, without data.
"""

from collections.abc import Sequence
from typing import TypeVar

from chains.nodes import questions
from chains.nodes.node_errors import ChainError, Reverted, RpcRefused
from chains.nodes.rpc import RpcClient
from chains.prices import MAX_EXECUTION
from queries.waits import WaitReason, wait

_Outcome = TypeVar("_Outcome")
# A call never sees more than the gas of execution at some nodes. They show so much less than that limit.
_BEFORE_EXECUTION = 1_000_000


def explained(rpc: RpcClient, outcomes: Sequence[_Outcome], gas: Sequence[int]) -> list[_Outcome | WaitReason]:
    """Return the outcomes, with a wait for those that hide nodes' cap. Each transaction may take this `gas`."""
    hiding = [most for outcome, most in zip(outcomes, gas, strict=True) if _may_hide_cap(outcome)]
    cap = below(rpc, max(hiding)) if hiding else None
    return [
        wait("node_gas_cap", chain=rpc.chain.id, gas=most, cap=cap)
        if cap is not None and cap < most and _may_hide_cap(outcome)
        else outcome
        for outcome, most in zip(outcomes, gas, strict=True)
    ]


def _may_hide_cap(outcome: object) -> bool:
    return isinstance(outcome, RpcRefused) and not (isinstance(outcome, Reverted) and outcome.data)


def below(rpc: RpcClient, gas: int) -> int | None:
    """Return the highest cap of the nodes if it is below this gas. None if it isn't, or if they don't show it."""
    half = gas // 2
    asked = [questions.gas_of_call(half), questions.gas_of_call(gas)]
    of_nodes = [*rpc.ask_each(asked).values()] or [rpc.ask(asked)]
    caps = [
        # The difference leaves out the gas before the code.
        of_whole if of_whole < half else half + of_whole - of_half
        for of_half, of_whole in of_nodes
        if not isinstance(of_half, ChainError) and not isinstance(of_whole, ChainError)
    ]
    cap = max(caps, default=gas)
    is_of_execution = 0 <= MAX_EXECUTION - cap < _BEFORE_EXECUTION
    return None if cap >= gas or is_of_execution else cap
