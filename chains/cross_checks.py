"""What must fit together in the chains' file: tables of what may be wrong, and the sentence that says so.

A predicate is true where there is a fault. A sentence begins with its place within the table of the file.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias, TypeVar

# Of `chains.chains_file`, which imports this.
Chain: TypeAlias = Any
Chains: TypeAlias = Any
Connection: TypeAlias = Any
Ens: TypeAlias = Any

One = TypeVar("One")
Checks = Sequence[tuple[Callable[[One], object], str]]
ChecksAmongAll = Sequence[tuple[Callable[[One, Chains], object], str]]

# A contract can check this many signatures in one transaction, with much room to spare.
MAX_ATTESTERS = 100
# The chain whose beacon chain is known.
MAINNET_ID = 1
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


# --- Of one table -----------------------------------------------------------------------------------------------------


def _is_only_with(field: str, *kinds: str) -> Callable[[Connection], bool]:
    return lambda one: bool(getattr(one, field)) != (one.block_hash_source in kinds)


def _is_attested(one: Connection) -> bool:
    return bool(one.block_hash_source == "attested")


def _same_attesters(one: Connection) -> bool:
    return len({attester.address for attester in one.attesters}) < len(one.attesters)


OF_CHAIN: Checks[Chain] = (
    (lambda one: one.signer and one.signers, "must have [chains.signer] or [[chains.signers]], not both"),
    (
        lambda one: one.id == MAINNET_ID and one.beacon_chain_table,
        "must have no [chains.beacon_chain]: that of Ethereum, chain 1, is known",
    ),
)
OF_CONNECTION: Checks[Connection] = (
    (
        _is_only_with("outbox", "arbitrum", "arbitrum-slot"),
        "outbox belongs to block_hash_source arbitrum and arbitrum-slot, which need it",
    ),
    (_is_only_with("parent_id", "arbitrum-slot"), "parent belongs to block_hash_source arbitrum-slot, which needs it"),
    (
        _is_only_with("anchor_state_registry", "op-stack-games"),
        "anchor_state_registry belongs to block_hash_source op-stack-games, which needs it",
    ),
    (
        lambda one: one.known_implementations and not (one.anchor_state_registry or one.outbox),
        "known_implementations belongs to block_hash_source arbitrum and op-stack-games",
    ),
    (
        lambda one: (one.attesters or one.threshold) and not _is_attested(one),
        "attesters and threshold belong to block_hash_source attested",
    ),
    (
        lambda one: _is_attested(one) and not 1 <= len(one.attesters) <= MAX_ATTESTERS,
        f"block_hash_source attested needs 1 to {MAX_ATTESTERS} attesters",
    ),
    (_same_attesters, "an attester is listed twice"),
    (
        lambda one: _is_attested(one) and not 1 <= (one.threshold or 0) <= len(one.attesters),
        "block_hash_source attested needs a threshold, at most the number of attesters",
    ),
)


def check(one: One, table: Checks[One]) -> One:
    """Return the chain or connection. Raises `ValueError`, the first sentence of the table that is true of it."""
    for is_fault, sentence in table:
        if is_fault(one):
            raise ValueError(sentence)
    return one


# --- Of several -------------------------------------------------------------------------------------------------------


def _is_unknown(chain_id: int, chains: Chains) -> bool:
    return chain_id not in {chain.id for chain in chains.chains}


def _rollup(one: Connection) -> int | None:
    """Return the id of the chain that its kind of block hash source takes for a rollup."""
    kind = KINDS.get(one.block_hash_source)
    return getattr(one, kind[1]) if kind else None


def _is_rollup_with_beacon_chain(one: Connection, chains: Chains) -> bool:
    rollup = _rollup(one)
    return rollup is not None and chains.chain(rollup).beacon_chain is not None


def _is_above_itself(one: Connection, chains: Chains) -> bool:
    """Return whether the source chain is its own parent's parent, or further up."""
    above = one.parent_id
    for _ in chains.connections:
        further = chains.connection(above or 0, one.destination_id)
        above = further.parent_id if further else None
        if above == one.source_id:
            return True
    return False


def _lacks_beacon_node(one: Connection, chains: Chains) -> bool:
    source = chains.chain(one.source_id)
    is_other = one.block_hash_source == "beacon-roots" and one.source_id != one.destination_id
    return is_other and not (source.beacon_chain and source.beacon_urls)


_AMONG_CHAINS: ChecksAmongAll[Chain] = (
    (lambda one, chains: chains.chain(one.id) is not one, ".id: {one.id} is listed twice"),
    (
        lambda one, chains: one.node_quorum is not None and chains.attester is None,
        ".node_quorum: belongs to the file of an attester, which has a table [attester]",
    ),
)
_OF_ENS: ChecksAmongAll[Ens] = (
    (lambda one, chains: _is_unknown(one.chain_id, chains), ".chain: no chain with id {one.chain_id} is configured"),
)
_OF_ENDS: ChecksAmongAll[Connection] = (
    (
        lambda one, chains: chains.connection(one.source_id, one.destination_id) is not one,
        ": a connection from {one.source_id} to {one.destination_id} is listed twice",
    ),
    (lambda one, chains: _is_unknown(one.source_id, chains), ".source: no chain with id {one.source_id} is configured"),
    (
        lambda one, chains: _is_unknown(one.destination_id, chains),
        ".destination: no chain with id {one.destination_id} is configured",
    ),
)
# Looked at where nothing is wrong by `_OF_ENDS`.
_AMONG_CONNECTIONS: ChecksAmongAll[Connection] = (
    (
        lambda one, _: one.block_hash_source == "native" and one.source_id != one.destination_id,
        ": block_hash_source native needs source and destination to be the same chain",
    ),
    (
        lambda one, _: one.block_hash_source in KINDS and one.source_id == one.destination_id,
        ": block_hash_source {one.block_hash_source} needs {kind[0]} as source",
    ),
    (
        lambda one, _: one.parent_id in {one.source_id, one.destination_id},
        ": parent is neither source nor destination",
    ),
    (
        lambda one, chains: one.parent_id and not chains.connection(one.parent_id, one.destination_id),
        ".parent: no connection from {one.parent_id} to {one.destination_id} is configured",
    ),
    (_is_above_itself, ".parent: its parents lead back to chain {one.source_id}"),
    (
        _lacks_beacon_node,
        ": block_hash_source beacon-roots needs a known beacon chain and beacon_urls of chain {one.source_id}",
    ),
    (
        _is_rollup_with_beacon_chain,
        ": chain {rollup} is a rollup, so it has no beacon chain: by it facts of another chain would pass as its own",
    ),
    (
        lambda one, chains: one.window > chains.chain(one.source_id).history_window,
        ".window: must be at most {source.history_window}, the history_window of chain {one.source_id}",
    ),
)


def faults(chains: Chains) -> list[str]:
    """Return a sentence, with its place, for each thing that doesn't fit together among chains and connections."""

    def told(place: str, one: One, table: ChecksAmongAll[One], **words: object) -> list[str]:
        return [place + sentence.format(one=one, **words) for is_fault, sentence in table if is_fault(one, chains)]

    found = [fault for at, one in enumerate(chains.chains) for fault in told(f"chains[{at}]", one, _AMONG_CHAINS)]
    if chains.ens:
        found += told("ens", chains.ens, _OF_ENS)
    for at, one in enumerate(chains.connections):
        place = f"connections[{at}]"
        if of_ends := told(place, one, _OF_ENDS):
            found += of_ends
        else:
            words = {"kind": KINDS.get(one.block_hash_source), "rollup": _rollup(one)}
            found += told(place, one, _AMONG_CONNECTIONS, source=chains.chain(one.source_id), **words)
    return found
