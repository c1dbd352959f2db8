"""Which facts registry serves a connection, and whose block hashes it trusts."""

from collections.abc import Sequence
from dataclasses import dataclass

from chains.rpc import Block, InvalidReply, RpcClient
from proving.models import FactsRegistry
from proving.registry import Registry


@dataclass(frozen=True)
class Deployed:
    """A deployed registry: its row, the contract to call, and the addresses of what belongs to it."""

    row_id: int
    contract: Registry
    block_hash_source: str
    sequence: str


def find(destination: int, source: int) -> Deployed | None:
    """The deployed registry of a connection, or None as long as there is none."""
    row = (
        FactsRegistry.objects.filter(
            destination_chain_id=destination, source_chain_id=source, deployed_at__isnull=False
        )
        .exclude(sequence="")  # deployed by an older version: `deploy_registry` says what to do
        .first()
    )
    return Deployed(row.pk, Registry(row.address), row.block_hash_source, row.sequence) if row else None


def vouches(
    rpc: RpcClient, registry: Deployed, blocks: Sequence[tuple[int, bytes]], *, at: Block = "pending"
) -> list[bool]:
    """Of each (number, hash): whether a transaction mined next could bring that header. `rpc` is the destination's.

    By default asked of the pending block: one that is mined now is the first to know the hash of the present head.
    """
    answers = rpc.eth_calls([registry.contract.vouches(*block) for block in blocks], at)
    words = [answer for answer in answers if isinstance(answer, bytes) and len(answer) == 32]  # noqa: PLR2004 - a word.
    if len(words) < len(blocks):
        raise InvalidReply(f"There is no facts registry of this version at {registry.contract.address}.")
    return [any(word) for word in words]
