"""For each source chain of a batch: why the destination trusts its blocks, and by which contracts."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from config.chain_names import ChainName, chain_name
from config.configured_chains import get_chains
from config.json_objects import JsonObject, Time
from proving import sources
from proving.models import FactsRegistry
from queries.models import Batch


@dataclass(frozen=True)
class ReplacedRegistry(JsonObject):
    """A facts registry that was in use before."""

    address: str
    code_hash: str
    replaced_at: Time
    because: str  # sentences


@dataclass(frozen=True)
class TrustedSource(JsonObject):
    """A source chain that is connected to the batch's destination."""

    source: ChainName
    title: str  # of the kind of block hash source
    trust: str  # who must be trusted for what, a sentence
    facts_registry: str  # an address, like the next; empty: not deployed yet
    block_hash_source: str
    warning: str  # about the registry that holds the batch's facts; empty: it can be trusted
    replaced: tuple[ReplacedRegistry, ...]


def trusted_sources(
    batch: Batch,
    source_chains: Collection[int],
    rows: Collection[FactsRegistry],
    held_by: Mapping[int, FactsRegistry],
    *,
    has_facts: bool,
) -> Iterator[TrustedSource]:
    """Yield what the batch trusts, by source chain. Leaves out chains that are no longer connected.

    `rows` are their registries, and `held_by` is `deployments.of_batch`.

    `has_facts`: the page shows facts.
    """
    for chain_id in source_chains:
        connection = get_chains().connection(chain_id, batch.destination_chain_id)
        if connection is None:
            continue
        source, row = sources.of(connection), held_by.get(chain_id)
        yield TrustedSource(
            source=chain_name(chain_id),
            title=source.title,
            trust=source.trust(connection),
            facts_registry=row.address if row else "",
            block_hash_source=row.block_hash_source if row else "",
            warning=_warning(row) if row and has_facts else "",
            replaced=tuple(
                ReplacedRegistry(old.address, old.code_hash, old.replaced_at, old.replaced_because)
                for old in rows
                if old.source_chain_id == chain_id and old.replaced_at
            ),
        )


def _warning(row: FactsRegistry) -> str:
    """Return a warning about a registry that holds facts of a batch."""
    if row.replaced_at:
        return f"The facts of this batch are in a registry that was replaced. {row.replaced_because}"
    return row.refused and f"The facts of this batch are in a registry that is no longer used. {row.refused}"
