"""What a node can do: its newest blocks, whether it knows the pending one and its chain keeps block hashes, and the
oldest state that it proves.
"""

from dataclasses import dataclass

from chains import questions
from chains.encoding import HISTORY_CONTRACT, HISTORY_WINDOW, history_slot
from chains.header import ExecutionHeader
from chains.node_errors import ChainError, Reverted, RpcRefused, UnreadableHeader
from chains.questions import ProofRequest
from chains.rpc import RpcClient, result

# Around the usual limits: geth and Nethermind keep 128 states, Erigon 1,000, EIP-2935 8,191 hashes.
DEPTHS = (0, 128, 1_000, HISTORY_WINDOW, 100_000, 1_000_000)


@dataclass(frozen=True)
class Abilities:
    head: ExecutionHeader
    finalized: int | None
    """None where the chain has no final block."""
    keeps_hashes: bool
    """True if the chain's state knows its head's parent by the history contract (EIP-2935)."""
    oldest_provable: int | None
    """See `oldest_provable`."""
    knows_pending: bool
    """Calls are made on top of what waits in its mempool. Otherwise it is asked for its latest state."""


def probe(rpc: RpcClient) -> Abilities:
    """Find out what the chain's nodes can do.

    Raises `NodeUnavailable`, and `RpcRefused` where not even the latest block is told.
    """
    head = rpc.head()
    (finalized,), (keeps,) = rpc.ask([questions.header("finalized")], [questions.keeps_hashes(head, rpc.chain)])
    final = None if isinstance(finalized, RpcRefused | UnreadableHeader) else result(finalized)
    return Abilities(
        head=head,
        finalized=final.number if final else None,
        keeps_hashes=not isinstance(keeps, RpcRefused) and result(keeps),
        oldest_provable=oldest_provable(rpc, head),
        # At the end: a node that calls make fail may prove all the same.
        knows_pending=_knows_pending(rpc),
    )


def oldest_provable(rpc: RpcClient, head: ExecutionHeader) -> int | None:
    """Return the oldest of a few blocks (`DEPTHS` below the head, and the first) down to which every state is provable.

    Older blocks up to the next depth may be provable too. None where not even the head is. A node that does not answer
    in time does not prove.
    """
    oldest = None
    for number in [*(head.number - depth for depth in DEPTHS if head.number - depth > 1), min(1, head.number)]:
        if not _proves(rpc, number):
            break
        oldest = number
    return oldest


def _proves(rpc: RpcClient, number: int) -> bool:
    slot = history_slot(number, rpc.chain.history_window)
    (header,) = rpc.ask([questions.header(number)])
    if not isinstance(header, ExecutionHeader):
        return False
    (proof,) = rpc.proofs([ProofRequest(number, header.hash, header.state_root, HISTORY_CONTRACT, [slot])])
    return not isinstance(proof, ChainError)


def _knows_pending(rpc: RpcClient) -> bool:
    (answer,) = rpc.ask([questions.call(HISTORY_CONTRACT, b"", "pending")])
    # The history contract reverts without a number.
    return isinstance(answer, bytes | Reverted) and not rpc.asks_latest_for_pending
