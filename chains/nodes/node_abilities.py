"""Abilities of a chain's nodes: the newest blocks, the pending block, kept block hashes, the oldest provable state."""

import math
import time
from dataclasses import dataclass

from chains.chains_file import Chain
from chains.encoding import HISTORY_CONTRACT, HISTORY_WINDOW, history_slot
from chains.nodes import questions
from chains.nodes.node_errors import FINAL, ChainError, Reverted, RpcRefused, UnreadableHeader
from chains.nodes.questions import ProofRequest, VerifiedAccountProof
from chains.nodes.rpc import RpcClient, result
from chains.tries.header import Header

# Distances below the head, which include the usual limits: geth and Nethermind keep 128 states, Erigon 1,000. The
# history contract (EIP-2935) keeps 8,191 hashes.
DEPTHS = (0, 128, 1_000, HISTORY_WINDOW, 100_000, 1_000_000)
# Seconds that a step of the search may take: a user's batch wouldn't wait longer for its proof.
_STEP_SECONDS = 5


@dataclass(frozen=True)
class ProvableBlocks:
    """The blocks whose accounts nodes prove."""

    oldest: int | None
    """Block number. None: not even the head."""
    end: ChainError | None = None
    """Why the next older block that was tried isn't provable. None: nodes gave no reason, or the first block is."""


@dataclass(frozen=True)
class Abilities:
    head: Header
    finalized: int | None
    """None if the chain has no final block."""
    keeps_hashes: bool
    """True if the history contract (EIP-2935) has the hash of the head's parent."""
    provable: ProvableBlocks
    knows_pending: bool
    """True if nodes run calls on the pending block. Otherwise calls run on the latest block."""


def probe(rpc: RpcClient) -> Abilities:
    """Return the abilities of the chain's nodes.

    Raises `NodeUnavailable`, and `RpcRefused` if even the latest block is refused.
    """
    head = rpc.head()
    (finalized,), (keeps,) = rpc.ask([questions.header("finalized")], [questions.keeps_hashes(head, rpc.chain)])
    final = None if isinstance(finalized, RpcRefused | UnreadableHeader) else result(finalized)
    return Abilities(
        head=head,
        finalized=final.number if final else None,
        keeps_hashes=not isinstance(keeps, RpcRefused) and result(keeps),
        provable=provable(rpc, head),
        # Asked last, because the call may make a node fail that can prove.
        knows_pending=_knows_pending(rpc),
    )


def provable(rpc: RpcClient, head: Header, seconds: float = math.inf) -> ProvableBlocks:
    """Return the oldest provable block among block 1 and blocks `DEPTHS` below the head.

    The search stops at the first block that isn't provable. A time-out counts as not provable. No step begins after
    these seconds.
    """
    oldest, ends_at = None, time.monotonic() + seconds
    for number in [*(head.number - depth for depth in DEPTHS if head.number - depth > 1), min(1, head.number)]:
        if time.monotonic() > ends_at:
            break
        proof = _proof(rpc, number)
        if not isinstance(proof, VerifiedAccountProof):
            return ProvableBlocks(oldest, proof)
        oldest = number
    return ProvableBlocks(oldest)


def patient_client(chain: Chain) -> RpcClient:
    """Return a client for `provable`. Its nodes rest for no one else if they are too slow."""
    return RpcClient(chain, timeout_seconds=_STEP_SECONDS)


def _proof(rpc: RpcClient, number: int) -> VerifiedAccountProof | ChainError | None:
    slot = history_slot(number, rpc.chain.history_window)
    (header,) = rpc.ask([questions.header(number)])
    if not isinstance(header, Header):
        return header
    (proof,) = rpc.proofs([ProofRequest(number, header.hash, header.state_root, HISTORY_CONTRACT, [slot])])
    return proof


def _knows_pending(rpc: RpcClient) -> bool:
    (answer,) = rpc.ask([questions.call(HISTORY_CONTRACT, b"", "pending", final=FINAL)])
    # The history contract reverts on empty calldata.
    return isinstance(answer, bytes | Reverted) and not rpc.asks_latest_for_pending
