"""Reads the facts of a query from their registry at this moment: the only thing here that asks a chain."""

from dataclasses import dataclass
from datetime import timedelta

from django.conf import settings
from django.core.cache import cache
from django.utils import timezone

from chains.config import UnknownChain
from chains.rpc import NodeUnavailable, RpcRefused
from config.chains import get_rpc
from explorer.chain_names import ChainName, chain_name
from explorer.query_cards import Meaning, meanings
from proving import facts, registries
from proving.models import AccountProof
from queries.models import Batch, Query


@dataclass(frozen=True)
class ReadFact:
    field: str
    word: str  # empty: the registry holds no such fact
    meanings: tuple[Meaning, ...]
    as_proven: bool


@dataclass(frozen=True)
class Reading:
    """What the registry answered. `problem` is a sentence instead of an answer."""

    number: int  # of the query
    problem: str = ""
    chain: ChainName | None = None
    block: int = 0
    facts: tuple[ReadFact, ...] = ()

    @property
    def as_proven(self) -> bool:
        return all(fact.as_proven for fact in self.facts)


def read_now(batch: Batch, query: Query) -> Reading:
    """Ask the destination's registry, at the newest block."""
    number = query.position + 1
    chain = chain_name(batch.destination_chain_id)
    registry = registries.find(chain.id, query.block.source_chain_id)
    proof = AccountProof.objects.filter(block=query.block_id, address=query.address).defer("nodes").first()
    if registry is None or proof is None:
        return Reading(number, "There is no facts registry to read this from any more.")
    wanted = [(query.address, field) for field in query.account_fields]
    try:
        rpc = get_rpc(chain.id)
        head = rpc.head().number
        view = facts.read(rpc, registry.contract, query.block.number, wanted, at=head)
    except UnknownChain:
        return Reading(number, f"Chain {chain.id} is no longer configured here.")
    except (NodeUnavailable, RpcRefused) as error:
        return Reading(number, f"The chain could not be read. {error} Try again in a moment.")
    proven = facts.words(proof)
    source = chain_name(query.block.source_chain_id)
    return Reading(
        number,
        chain=chain,
        block=head,
        facts=tuple(
            ReadFact(
                field.name,
                "0x" + word.hex() if word is not None else "",
                meanings(field, word, source.currency) if word is not None else (),
                word == proven[field],
            )
            for (_, field), word in view.facts.items()
        ),
    )


def is_allowed(client_address: str) -> bool:
    """Whether this client may read once more in this minute. Counted by each web process for itself."""
    minute = timezone.now().replace(second=0, microsecond=0)
    key = f"chain-reads:{client_address}:{minute.timestamp():.0f}"
    cache.add(key, 0, timedelta(minutes=2).total_seconds())
    return bool(cache.incr(key) <= settings.MAX_READS_PER_MINUTE)
