"""Which facts registry serves a connection, and what its block hash source can still vouch for."""

from dataclasses import dataclass

from config.chains import get_chains, get_rpc
from proving.models import FactsRegistry
from proving.registry import Registry, block_hash
from queries.models import Block


@dataclass(frozen=True)
class Deployed:
    """A deployed registry: the contract to call, and the address of its block hash source."""

    contract: Registry
    block_hash_source: str


def find(destination: int, source: int) -> Deployed | None:
    """The deployed registry of a connection, or None as long as there is none."""
    row = FactsRegistry.objects.filter(
        destination_chain_id=destination, source_chain_id=source, deployed_at__isnull=False
    ).first()
    return Deployed(Registry(row.address), row.block_hash_source) if row else None


def vouched_hash(registry: Deployed, block: Block) -> bytes:
    """The hash that the destination can vouch for in its next block; 32 zero bytes where it can't.

    Asked of the pending block: one that is mined now is the first to know the hash of the present head.
    """
    rpc = get_rpc(block.destination_chain_id)
    return rpc.eth_call(*block_hash(registry.block_hash_source, block.number), "pending")


def too_old(block: Block, head: int) -> str | None:
    """Why the block's header can't be accumulated any more, a sentence, or None if it can. `head` is the source's."""
    connection = get_chains().connection(block.source_chain_id, block.destination_chain_id)
    window = connection.window if connection else 0
    # A transaction sent now is mined at head + 1 at the earliest, and sees `window` blocks before its own.
    if block.number >= head + 1 - window:
        return None
    return (
        f"Block {block.number} of chain {block.source_chain_id} is {head - block.number} blocks old; chain "
        f"{block.destination_chain_id} can vouch for the last {window} blocks only."
    )
