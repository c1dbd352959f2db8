"""Caps of nodes on the gas of calls and estimates, such as geth's `--rpc.gascap`.

Above its cap, a node may answer as if the transaction reverted, without data.
"""

from chains.nodes import questions
from chains.nodes.node_errors import ChainError
from chains.nodes.rpc import RpcClient
from chains.prices import MAX_EXECUTION
from queries.waits import WaitReason, wait

# A call never sees more than the gas of execution at some nodes. They show so much less than that limit.
_BEFORE_EXECUTION = 1_000_000


def why_too_low(rpc: RpcClient, gas: int) -> WaitReason | None:
    """Return the reason if nodes run no transaction with this gas. None if nothing shows that."""
    cap = below(rpc, gas)
    return None if cap is None else wait("node_gas_cap", chain=rpc.chain.id, gas=gas, cap=cap)


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
