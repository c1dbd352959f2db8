"""Checks across the tables of chains.toml.

A check is a predicate and a sentence: if the predicate is true, the sentence describes a fault.

If a sentence begins with a key, such as `.id:`, the fault is at that key of the table.
"""

from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from typing import Any, Literal, TypeAlias, TypeVar

# Classes of `chains.chains_file`. They can't be imported here, because that module imports this one.
Chain: TypeAlias = Any
Chains: TypeAlias = Any
Connection: TypeAlias = Any

Entry = TypeVar("Entry")
Checks = Sequence[tuple[Callable[[Entry], object], str]]
ChecksAmongAll = Sequence[tuple[Callable[[Entry, Chains], object], str]]

# A contract can check this many signatures well within one transaction's gas.
MAX_ATTESTERS = 100
# Chains whose beacon chain is built in (`chains.beacon.jumps`): Ethereum and Sepolia.
KNOWN_BEACON_CHAINS = frozenset({1, 11_155_111})
# Block hash sources that need a certain kind of chain: its description, and the end of the connection that is a rollup.
KINDS: Mapping[str, tuple[str, Literal["source_id", "destination_id"]]] = {
    "op-stack": ("the chain below", "destination_id"),
    "op-stack-games": ("an OP Stack chain on top of the destination", "source_id"),
    "beacon-roots": ("a chain whose beacon roots the destination holds", "destination_id"),
    "arbitrum": ("an Arbitrum chain on top of the destination", "source_id"),
    "arbitrum-slot": ("an Arbitrum chain on top of the parent", "source_id"),
    "arbitrum-buffer": ("the parent chain", "destination_id"),
}


# --- Checks of one table ----------------------------------------------------------------------------------------------


def _is_only_with(field: str, *kinds: str) -> Callable[[Connection], bool]:
    return lambda entry: bool(getattr(entry, field)) != (entry.block_hash_source in kinds)


def _is_attested(entry: Connection) -> bool:
    return bool(entry.block_hash_source == "attested")


def _same_attesters(entry: Connection) -> bool:
    return len({attester.address for attester in entry.attesters}) < len(entry.attesters)


OF_CHAIN: Checks[Chain] = (
    (lambda entry: entry.signer and entry.signers, "must have [chains.signer] or [[chains.signers]], not both"),
    (
        lambda entry: entry.contradicts_known_beacon_chain,
        "must have no [chains.beacon_chain] with other values than the service has for this chain: remove the table",
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
        lambda entry: entry.known_implementations and not (entry.anchor_state_registry or entry.outbox),
        "known_implementations belongs to block_hash_source arbitrum and op-stack-games",
    ),
    (
        lambda entry: (entry.attesters or entry.threshold) and not _is_attested(entry),
        "attesters and threshold belong to block_hash_source attested",
    ),
    (
        lambda entry: _is_attested(entry) and not 1 <= len(entry.attesters) <= MAX_ATTESTERS,
        f"block_hash_source attested needs 1 to {MAX_ATTESTERS} attesters",
    ),
    (_same_attesters, "an attester is listed twice"),
    (
        lambda entry: _is_attested(entry) and not 1 <= (entry.threshold or 0) <= len(entry.attesters),
        "block_hash_source attested needs a threshold, at most the number of attesters",
    ),
)


def check(entry: Entry, table: Checks[Entry]) -> Entry:
    """Return the chain or connection. Raises `ValueError` with the sentence of its first fault."""
    for is_fault, sentence in table:
        if is_fault(entry):
            raise ValueError(sentence)
    return entry


# --- Checks across tables ---------------------------------------------------------------------------------------------


def _is_unknown(chain_id: int, chains: Chains) -> bool:
    return chain_id not in {chain.id for chain in chains.chains}


def _rollup(entry: Connection) -> int | None:
    """Return the id of the chain that must be a rollup for this kind of block hash source."""
    kind = KINDS.get(entry.block_hash_source)
    return getattr(entry, kind[1]) if kind else None


def _is_rollup_with_beacon_chain(entry: Connection, chains: Chains) -> bool:
    rollup = _rollup(entry)
    return rollup is not None and chains.chain(rollup).beacon_chain is not None


def _is_above_itself(entry: Connection, chains: Chains) -> bool:
    """Return whether the source chain's parents form a cycle."""
    above = entry.parent_id
    for _ in chains.connections:
        further = chains.connection(above or 0, entry.destination_id)
        above = further.parent_id if further else None
        if above == entry.source_id:
            return True
    return False


def _lacks_beacon_node(entry: Connection, chains: Chains) -> bool:
    source = chains.chain(entry.source_id)
    is_other = entry.block_hash_source == "beacon-roots" and entry.source_id != entry.destination_id
    return is_other and not (source.beacon_chain and source.beacon_urls)


_AMONG_CHAINS: ChecksAmongAll[Chain] = (
    (lambda entry, chains: chains.chain(entry.id) is not entry, ".id: {entry.id} is listed twice"),
    (
        lambda entry, chains: entry.node_quorum is not None and chains.attester is None,
        ".node_quorum: belongs to the file of an attester, which has a table [attester]",
    ),
    (
        lambda entry, _: entry.era_files and find_spec("cramjam") is None,
        ".era_files: needs cramjam, the extra `era`: pip install --no-deps --require-hashes -r requirements/era.txt",
    ),
)
_OF_ENDS: ChecksAmongAll[Connection] = (
    (
        lambda entry, chains: chains.connection(entry.source_id, entry.destination_id) is not entry,
        ": a connection from {entry.source_id} to {entry.destination_id} is listed twice",
    ),
    (
        lambda entry, chains: _is_unknown(entry.source_id, chains),
        ".source: no chain with id {entry.source_id} is configured",
    ),
    (
        lambda entry, chains: _is_unknown(entry.destination_id, chains),
        ".destination: no chain with id {entry.destination_id} is configured",
    ),
)
# These checks apply to a connection only if `_OF_ENDS` finds no fault.
_AMONG_CONNECTIONS: ChecksAmongAll[Connection] = (
    (
        lambda entry, _: entry.block_hash_source == "native" and entry.source_id != entry.destination_id,
        ": block_hash_source native needs source and destination to be the same chain",
    ),
    (
        lambda entry, _: entry.block_hash_source in KINDS and entry.source_id == entry.destination_id,
        ": block_hash_source {entry.block_hash_source} needs {kind[0]} as source",
    ),
    (
        lambda entry, _: entry.parent_id in {entry.source_id, entry.destination_id},
        ": parent is neither source nor destination",
    ),
    (
        lambda entry, chains: entry.parent_id and not chains.connection(entry.parent_id, entry.destination_id),
        ".parent: no connection from {entry.parent_id} to {entry.destination_id} is configured",
    ),
    (_is_above_itself, ".parent: its parents lead back to chain {entry.source_id}"),
    (
        _lacks_beacon_node,
        ": block_hash_source beacon-roots needs a known beacon chain and beacon_urls of chain {entry.source_id}",
    ),
    (
        _is_rollup_with_beacon_chain,
        ": chain {rollup} is a rollup, so it has no beacon chain: facts about another would pass as its own",
    ),
    (
        lambda entry, chains: entry.window > chains.chain(entry.source_id).history_window,
        ".window: must be at most {source.history_window}, the history_window of chain {entry.source_id}",
    ),
)


def faults(chains: Chains) -> list[str]:
    """Return a sentence, with its place, for each contradiction among chains and connections."""

    def sentences(place: str, entry: Entry, table: ChecksAmongAll[Entry], **words: object) -> list[str]:
        return [
            place + sentence.format(entry=entry, **words) for is_fault, sentence in table if is_fault(entry, chains)
        ]

    all_faults = [
        fault for at, chain in enumerate(chains.chains) for fault in sentences(f"chains[{at}]", chain, _AMONG_CHAINS)
    ]
    if chains.ens and _is_unknown(chains.ens.chain_id, chains):
        all_faults.append(f"ens.chain: no chain with id {chains.ens.chain_id} is configured")
    for at, connection in enumerate(chains.connections):
        place = f"connections[{at}]"
        if faults_of_ends := sentences(place, connection, _OF_ENDS):
            all_faults += faults_of_ends
        else:
            words = {"kind": KINDS.get(connection.block_hash_source), "rollup": _rollup(connection)}
            source = chains.chain(connection.source_id)
            all_faults += sentences(place, connection, _AMONG_CONNECTIONS, source=source, **words)
    return all_faults
