"""How far back a source chain's nodes prove accounts is measured when a worker starts, and once a day. Nodes keep
different numbers of states, and refuse older ones in words of their own. The measurement asks for proofs ever further
below the head until one fails (`provable`). A page and `/chains.json` show it for each node, and rejections for the
chain. What else nodes can do, `probe` asks.
"""

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from django.db import DatabaseError
from django.db.models import F
from django.db.models.functions import Now
from django.utils import timezone

from chains.chains_file import Chain
from chains.encoding import HISTORY_CONTRACT, HISTORY_WINDOW, history_slot
from chains.nodes import questions, view_calls
from chains.nodes.node_errors import (
    FINAL,
    ChainError,
    OtherAccounts,
    Reverted,
    RpcRefused,
    UnreadableHeader,
)
from chains.nodes.questions import ProofRequest, VerifiedAccountProof
from chains.nodes.rpc import RpcClient, result
from chains.prices import prices_at
from chains.tries.header import Header
from config.configured_chains import get_chains, get_rpc
from proving import facts
from proving.models import ChainWatch, Signer
from proving.packing.packs import MOST_GAS_OF_PROOFS
from proving.sending import gas_caps
from proving.working.lanes import HeldLane
from queries.waits import WaitReason, wait

# Distances below the head, which include the usual limits: geth and Nethermind keep 128 states, Erigon 1,000. The
# history contract (EIP-2935) keeps 8,191 hashes. With 120, blocks that come meanwhile don't hide the first limit.
DEPTHS = (0, 64, 120, 128, 1_000, HISTORY_WINDOW, 100_000, 1_000_000)
# Every node keeps this number of newest states. A refusal for one of these says little.
KEPT_BY_ALL = 128
# Seconds that a step of the search may take: a user's batch wouldn't wait longer for its proof.
_STEP_SECONDS = 5
_MEASURED_EACH = timedelta(days=1)
# How long a node's reach counts after a measurement that found less.
_REMEMBERED = 2 * _MEASURED_EACH
# Maximum signers whose accounts may pay for lists of slots.
_MOST_PAYERS = 2
# Seconds after which no older block is tried, because the observation of other chains waits.
_MEASURING_SECONDS = 20


def forget_proofs() -> None:
    """Have all chains measured again, because chains.toml may have changed."""
    ChainWatch.objects.update(proofs_measured_at=None)


def measure_next_proofs(lane: HeldLane) -> None:
    """Measure one source chain that wasn't measured for a day. A chain may take half a minute, so others come later.

    A chain whose head the last observation didn't see isn't measured. The earlier measurement stays.
    """
    sources = {connection.source_id for connection in get_chains().connections}
    watches = ChainWatch.objects.filter(pk__in=sources).filter(seen_at=F("looked_at"))
    # A time in the future was stored by a clock that was ahead.
    watch = (
        watches.exclude(proofs_measured_at__range=(Now() - _MEASURED_EACH, Now() + _MEASURED_EACH))
        .order_by("looked_at")
        .first()
    )
    if watch is None:
        return
    try:
        head = get_rpc(watch.chain_id).head()
    except ChainError:
        return
    before = {node["host"]: node.get("lately") for node in watch.proving_nodes}
    nodes = [
        node | {"lately": _lately(node["oldest"], head.number, before.get(node["host"]))}
        for node in _proving_nodes(get_chains().chain(watch.chain_id))
    ]
    oldest = min((node["oldest"] for node in nodes if node["oldest"] is not None), default=None)
    measured = {"measured_head": head.number, "oldest_provable": oldest, "proving_nodes": nodes}
    update = partial(ChainWatch.objects.filter(pk=watch.pk).update, proofs_measured_at=Now(), **measured)
    lane.write(update)


def _lately(oldest: int | None, head: int, before: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Return how far back a node has proven accounts lately, and when: now, or `before` if that was further."""
    now = {"oldest": oldest, "head": head, "at": timezone.now().isoformat()}
    if before and timezone.now() - datetime.fromisoformat(before["at"]) > _REMEMBERED:
        before = None
    if oldest is None or (before and _blocks(before) > _blocks(now)):
        return before
    return now


def _blocks(reach: Mapping[str, Any]) -> float:
    """Return how many blocks back a node proves accounts. On a young chain, any node may prove the first block."""
    return math.inf if reach["oldest"] <= 1 and reach["head"] > DEPTHS[-1] else reach["head"] - reach["oldest"]


def proved_lately(watch: ChainWatch | None, number: int, head: int) -> bool:
    """Return whether a node of the chain has lately proven accounts at a block as old as this one.

    A node that refuses older states for a while doesn't lose its reach.
    """
    if watch is None or not number:
        return False
    reaches = [node["lately"] for node in watch.proving_nodes if node.get("lately")]
    if watch.oldest_provable is not None:
        reaches.append({"oldest": watch.oldest_provable, "head": watch.measured_head or 0})
    return bool(reaches) and head - number <= max(map(_blocks, reaches))


def _proving_nodes(chain: Chain) -> Iterator[dict[str, Any]]:
    """Measure one node after another, because each keeps states of its own, and how each tells slots (`slots`)."""
    for url, host in zip(chain.rpc_urls, chain.hosts, strict=True):
        client = patient_client(chain.model_copy(update={"rpc_urls": (url,)}))
        oldest = slots = None
        with suppress(ChainError):
            head = client.head()
            oldest = provable(client, head, _MEASURING_SECONDS / len(chain.rpc_urls)).oldest
            slots = view_calls.method_of(client, head, accounts_with_ether())
        yield {"host": host, "oldest": oldest, "slots": slots}


def accounts_with_ether() -> Sequence[str]:
    """Return accounts that may have ether, from which nodes may make lists of slots."""
    # Nodes are checked before the database exists, too.
    with suppress(DatabaseError):
        return list(Signer.objects.order_by("-pk").values_list("address", flat=True)[:_MOST_PAYERS])
    return []


def depth_in_words(watch: ChainWatch | None) -> str:
    """Return a sentence about how far back the chain's nodes prove accounts. It is empty if that isn't known."""
    if watch is None or watch.proves_back is None or watch.oldest_provable is None:
        return ""
    if watch.oldest_provable <= 1:
        return "The nodes prove accounts at every block."
    return f"The nodes prove accounts at least {watch.proves_back:,} blocks back."


@dataclass(frozen=True)
class ProvableBlocks:
    """The blocks whose accounts nodes prove."""

    oldest: int | None
    """Block number. None: not even the head."""
    end: ChainError | None = None
    """Why the next older block that was tried isn't provable. None: nodes gave no reason, or the first block is."""
    not_proven: int | None = None
    """The number of that block."""


@dataclass(frozen=True)
class Abilities:
    head: Header
    finalized: int | None
    """None if the chain has no final block."""
    keeps_hashes: bool
    """True if the history contract (EIP-2935) has the hash of the head's parent."""
    provable: ProvableBlocks
    has_unproven_state: bool
    """True if nodes refuse to prove only older blocks, and read the state of the next older one all the same."""
    most_gas: int
    """The most gas of a transaction's proofs."""
    gas_cap: int | None
    """The cap on the gas of calls and estimates, if it is below `most_gas`."""
    slots: str | None
    """The method by which nodes tell which slots a call reads, as `view_calls.method_of` does."""
    knows_pending: bool
    """True if nodes run calls on the pending block. Otherwise calls run on the latest block."""


def probe(rpc: RpcClient, accounts: Sequence[str] = ()) -> Abilities:
    """Return the abilities of the chain's nodes. The `accounts` may have ether, which lists of slots may need.

    Raises `NodeUnavailable`, and `RpcRefused` if even the latest block is refused.
    """
    head = rpc.head()
    (finalized,), (keeps,) = rpc.ask([questions.header("finalized")], [questions.keeps_hashes(head, rpc.chain)])
    final = None if isinstance(finalized, RpcRefused | UnreadableHeader) else result(finalized)
    blocks = provable(rpc, head)
    most_gas = prices_at(head).with_state(MOST_GAS_OF_PROOFS)
    is_refused = blocks.oldest is not None and isinstance(blocks.end, RpcRefused)
    return Abilities(
        head=head,
        finalized=final.number if final else None,
        keeps_hashes=not isinstance(keeps, RpcRefused) and result(keeps),
        provable=blocks,
        has_unproven_state=is_refused and _has_state(rpc, blocks.not_proven or 0),
        most_gas=most_gas,
        gas_cap=gas_caps.below(rpc, most_gas),
        slots=view_calls.method_of(rpc, head, accounts),
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
        (header,) = rpc.ask([questions.header(number)])
        proof = _proof(rpc, header) if isinstance(header, Header) else header
        if not isinstance(proof, VerifiedAccountProof):
            return ProvableBlocks(oldest, proof, number)
        oldest = number
    return ProvableBlocks(oldest)


def why_unproven(rpc: RpcClient, head: Header, request: ProofRequest, refused: RpcRefused) -> WaitReason | None:
    """Return why no node proves an account, after all have refused to. None: the refusal may pass.

    The block's age is the cause if nodes prove the head, or proved no block as old when that was measured lately.
    """
    if isinstance(refused, OtherAccounts):
        return wait("other_accounts", problem=str(refused))
    measured, depth = ChainWatch.objects.filter(pk=rpc.chain.id).first(), head.number - request.block_number
    proves_back = measured.proves_back if measured else None
    if refused.may_pass or depth < KEPT_BY_ALL or proved_lately(measured, request.block_number, head.number):
        return None
    is_too_old = proves_back is not None or isinstance(_proof(rpc, head), VerifiedAccountProof)
    known = [refused.about(facts.proof_of(rpc.chain, request)), depth_in_words(measured)]
    code = "old_proofs_not_served" if is_too_old else "proofs_not_served"
    return wait(code, chain=rpc.chain.id, block=request.block_number, problem=" ".join(filter(None, known)))


def patient_client(chain: Chain) -> RpcClient:
    """Return a client for `provable`. Its nodes rest for no one else if they are too slow."""
    return RpcClient(chain, timeout_seconds=_STEP_SECONDS)


def _proof(rpc: RpcClient, at: Header) -> VerifiedAccountProof | ChainError:
    slot = history_slot(at.number, rpc.chain.history_window)
    (proof,) = rpc.proofs([ProofRequest(at.number, at.hash, at.state_root, HISTORY_CONTRACT, [slot])])
    return proof


def _has_state(rpc: RpcClient, number: int) -> bool:
    (word,) = rpc.ask([questions.storage(HISTORY_CONTRACT, 0, number)])
    return isinstance(word, int)


def _knows_pending(rpc: RpcClient) -> bool:
    (answer,) = rpc.ask([questions.call(HISTORY_CONTRACT, b"", "pending", final=FINAL)])
    # The history contract reverts on empty calldata.
    return isinstance(answer, bytes | Reverted) and not rpc.asks_latest_for_pending
