"""For each source chain of a batch: how its blocks come to be trusted on the destination, and by which contracts."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from config.chains import get_chains
from explorer.chain_names import ChainName, chain_name
from proving import sources
from proving.models import FactsRegistry


@dataclass(frozen=True)
class TrustedSource:
    """A source chain that is connected to the batch's destination."""

    source: ChainName
    title: str  # of the kind of block hash source
    trust: str  # who must be trusted for what, a sentence
    facts_registry: str  # its address, as the next; empty: not deployed yet
    block_hash_source: str


def registries(destination: int, source_chains: Collection[int]) -> list[FactsRegistry]:
    found = FactsRegistry.objects.filter(destination_chain_id=destination, source_chain_id__in=source_chains)
    return list(found.order_by("source_chain_id"))


def trusted_sources(
    destination: int, source_chains: Collection[int], rows: Collection[FactsRegistry]
) -> Iterator[TrustedSource]:
    """`rows` are their registries. A source chain that isn't connected any more is left out."""
    deployed = {row.source_chain_id: row for row in rows if row.deployed_at}
    for chain_id in source_chains:
        connection = get_chains().connection(chain_id, destination)
        if connection is None:
            continue
        source, row = sources.of(connection), deployed.get(chain_id)
        yield TrustedSource(
            source=chain_name(chain_id),
            title=source.title,
            trust=source.trust(connection),
            facts_registry=row.address if row else "",
            block_hash_source=row.block_hash_source if row else "",
        )
