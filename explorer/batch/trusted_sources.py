"""For each source chain of a batch: why the destination trusts its blocks, and through which contracts."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from config.chain_names import ChainName, chain_name
from config.configured_chains import get_chains
from proving import sources
from proving.models import FactsRegistry
from queries.models import Batch


@dataclass(frozen=True)
class TrustedSource:
    """A source chain that is connected to the batch's destination."""

    chain: ChainName
    title: str  # title of the kind of block hash source
    trust: str  # a sentence that says who must be trusted with what
    registry: FactsRegistry | None  # None: not deployed yet
    replaced: tuple[FactsRegistry, ...]  # former registries

    @property
    def is_replaced(self) -> bool:
        return self.registry is not None and self.registry.replaced_at is not None

    @property
    def why_not(self) -> str:
        """Return why the registry that holds the batch's facts is no longer used. Empty: it is used."""
        if self.registry is None:
            return ""
        return self.registry.replaced_because if self.is_replaced else self.registry.refused


def trusted_sources(
    batch: Batch, source_chains: Collection[int], rows: Collection[FactsRegistry], held_by: Mapping[int, FactsRegistry]
) -> Iterator[TrustedSource]:
    """Yield the trusted sources of the batch's source chains, without chains that are no longer connected.

    `rows` are the chains' registries, and `held_by` comes from `deployments.of_batch`.
    """
    for chain_id in source_chains:
        if connection := get_chains().connection(chain_id, batch.destination_chain_id):
            source = sources.of(connection)
            replaced = tuple(row for row in rows if row.source_chain_id == chain_id and row.replaced_at)
            yield TrustedSource(
                chain_name(chain_id), source.title, source.trust(connection), held_by.get(chain_id), replaced
            )
