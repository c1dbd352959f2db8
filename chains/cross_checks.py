"""What must fit together in the chains' file: tables of what may be wrong, and the sentence that says so.

A predicate is true where there is a fault.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, TypeVar

if TYPE_CHECKING:
    from chains.chains_file import Chain, Chains, Connection, Ens

One = TypeVar("One")
Checks = Sequence[tuple[str, Callable[[One, "Chains"], object], str]]
"""The place of a fault within a table of the file, when it is one, and the sentence."""

# A contract can check this many signatures in one transaction, with much room to spare.
MAX_ATTESTERS = 100
# The chain whose beacon chain is known.
MAINNET_ID = 1

OF_ONE_CHAIN: Sequence[tuple[Callable[["Chain"], object], str]] = (
    (lambda one: one.signer and one.signers, "must have [chains.signer] or [[chains.signers]], not both"),
    (
        lambda one: one.id == MAINNET_ID and one.beacon_chain_table,
        "must have no [chains.beacon_chain]: that of Ethereum, chain 1, is known",
    ),
)

OF_ONE_CONNECTION: Sequence[tuple[Callable[["Connection"], object], str]] = (
    (
        lambda one: bool(one.outbox) != (one.block_hash_source in {"arbitrum", "arbitrum-slot"}),
        "outbox belongs to block_hash_source arbitrum and arbitrum-slot, which need it",
    ),
    (
        lambda one: bool(one.parent_id) != (one.block_hash_source == "arbitrum-slot"),
        "parent belongs to block_hash_source arbitrum-slot, which needs it",
    ),
    (
        lambda one: bool(one.anchor_state_registry) != (one.block_hash_source == "op-stack-games"),
        "anchor_state_registry belongs to block_hash_source op-stack-games, which needs it",
    ),
    (
        lambda one: one.known_implementations and not (one.anchor_state_registry or one.outbox),
        "known_implementations belongs to block_hash_source arbitrum and op-stack-games",
    ),
    (
        lambda one: (one.attesters or one.threshold) and one.block_hash_source != "attested",
        "attesters and threshold belong to block_hash_source attested",
    ),
    (
        lambda one: one.block_hash_source == "attested" and not 1 <= len(one.attesters) <= MAX_ATTESTERS,
        f"block_hash_source attested needs 1 to {MAX_ATTESTERS} attesters",
    ),
    (
        lambda one: len({attester.address for attester in one.attesters}) < len(one.attesters),
        "an attester is listed twice",
    ),
    (
        lambda one: one.attesters and not 1 <= (one.threshold or 0) <= len(one.attesters),
        "block_hash_source attested needs a threshold, at most the number of attesters",
    ),
)

# Of kinds of block hash source: what the source chain must be, which isn't the destination then; and which of the two
# is a rollup on top of another.
KINDS: Mapping[str, tuple[str, Literal["source_id", "destination_id"]]] = {
    "op-stack": ("the chain below", "destination_id"),
    "op-stack-games": ("an OP Stack chain on top of the destination", "source_id"),
    "beacon-roots": ("a chain whose beacon roots the destination holds", "destination_id"),
    "arbitrum": ("an Arbitrum chain on top of the destination", "source_id"),
    "arbitrum-slot": ("an Arbitrum chain on top of the parent", "source_id"),
    "arbitrum-buffer": ("the parent chain", "destination_id"),
}


def _is_above_itself(one: "Connection", chains: "Chains") -> bool:
    """Return whether the source chain is its own parent's parent, or further up."""
    above = one.parent_id
    for _ in chains.connections:
        further = chains.connection(above or 0, one.destination_id)
        above = further.parent_id if further else None
        if above == one.source_id:
            return True
    return False


def _lacks_beacon_node(one: "Connection", chains: "Chains") -> bool:
    source = chains.chain(one.source_id)
    is_other = one.block_hash_source == "beacon-roots" and one.source_id != one.destination_id
    return is_other and not (source.beacon_chain and source.beacon_urls)


def _rollup(one: "Connection") -> int:
    """Return the id of the chain that the kind of block hash source takes for a rollup."""
    chain_id: int = getattr(one, KINDS[one.block_hash_source][1])
    return chain_id


def _is_unknown(chain_id: int, chains: "Chains") -> bool:
    return chain_id not in {chain.id for chain in chains.chains}


_OF_CHAINS: Checks["Chain"] = (
    (".id", lambda one, chains: chains.chain(one.id) is not one, "{one.id} is listed twice"),
    (
        ".node_quorum",
        lambda one, chains: one.node_quorum is not None and chains.attester is None,
        "belongs to the file of an attester, which has a table [attester]",
    ),
)
_OF_ENS: Checks["Ens"] = (
    (".chain", lambda one, chains: _is_unknown(one.chain_id, chains), "no chain with id {one.chain_id} is configured"),
)
_OF_ENDS: Checks["Connection"] = (
    (
        "",
        lambda one, chains: chains.connection(one.source_id, one.destination_id) is not one,
        "a connection from {one.source_id} to {one.destination_id} is listed twice",
    ),
    (
        ".source",
        lambda one, chains: _is_unknown(one.source_id, chains),
        "no chain with id {one.source_id} is configured",
    ),
    (
        ".destination",
        lambda one, chains: _is_unknown(one.destination_id, chains),
        "no chain with id {one.destination_id} is configured",
    ),
)
# Looked at where nothing is wrong by the tables above.
_OF_CONNECTIONS: Checks["Connection"] = (
    (
        "",
        lambda one, _: one.block_hash_source == "native" and one.source_id != one.destination_id,
        "block_hash_source native needs source and destination to be the same chain",
    ),
    (
        "",
        lambda one, _: one.block_hash_source in KINDS and one.source_id == one.destination_id,
        "block_hash_source {one.block_hash_source} needs {kind[0]} as source",
    ),
    (
        "",
        lambda one, _: one.parent_id in {one.source_id, one.destination_id},
        "parent is neither source nor destination",
    ),
    (
        ".parent",
        lambda one, chains: one.parent_id and not chains.connection(one.parent_id, one.destination_id),
        "no connection from {one.parent_id} to {one.destination_id} is configured",
    ),
    (".parent", _is_above_itself, "its parents lead back to chain {one.source_id}"),
    (
        "",
        _lacks_beacon_node,
        "block_hash_source beacon-roots needs a known beacon chain and beacon_urls of chain {one.source_id}",
    ),
    (
        "",
        lambda one, chains: one.block_hash_source in KINDS and chains.chain(_rollup(one)).beacon_chain,
        "chain {rollup} is a rollup, so it has no beacon chain: by it facts of another chain would pass as its own",
    ),
    (
        ".window",
        lambda one, chains: one.window > chains.chain(one.source_id).history_window,
        "must be at most {source.history_window}, the history_window of chain {one.source_id}",
    ),
)


def check(one: One, table: Sequence[tuple[Callable[[One], object], str]]) -> One:
    """Return the chain or connection. Raises `ValueError`, the first sentence of the table that is true of it."""
    for is_fault, sentence in table:
        if is_fault(one):
            raise ValueError(sentence)
    return one


def faults(chains: "Chains") -> list[str]:
    """Return a sentence, with its place, for each thing that doesn't fit together among chains and connections."""

    def told(place: str, one: One, table: Checks[One], **words: object) -> list[str]:
        return [
            f"{place}{of}: {said.format(one=one, **words)}" for of, is_fault, said in table if is_fault(one, chains)
        ]

    found = [fault for at, one in enumerate(chains.chains) for fault in told(f"chains[{at}]", one, _OF_CHAINS)]
    found += told("ens", chains.ens, _OF_ENS) if chains.ens else []
    for at, one in enumerate(chains.connections):
        place, kind = f"connections[{at}]", KINDS.get(one.block_hash_source)
        if of_ends := told(place, one, _OF_ENDS):
            found += of_ends
            continue
        rollup = _rollup(one) if kind else None
        found += told(place, one, _OF_CONNECTIONS, kind=kind, rollup=rollup, source=chains.chain(one.source_id))
    return found
