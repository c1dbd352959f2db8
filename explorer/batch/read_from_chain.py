"""Reading of a query's facts from the chain when a reader requests it."""

from dataclasses import dataclass

from django.core.paginator import Page, Paginator

from chains.chains_file import UnknownChain
from chains.encoding import hex_data
from chains.nodes.node_errors import NodeUnavailable, RpcRefused
from config.chain_names import ChainName, chain_name
from config.configured_chains import get_page_rpc
from explorer.batch import fact_display
from explorer.batch.fact_display import SLOTS_PAGE, Meaning
from proving import facts
from proving.reading import query_values
from proving.registries import deployments
from proving.registries.deployments import Registry
from queries.models import Query, QueryKind

READING_SENTENCES = {
    "chain_unavailable": "The chain could not be read. {reason} Try again in a moment.",
    "no_registry": "This fact's registry is no longer in use.",
    "too_many_requests": "Your network has sent too many reads. Try again in a minute.",
    "unknown_chain": "Chain {chain} is no longer configured here.",
}
"""Problems with a reading of a chain for a page, by code."""


@dataclass(frozen=True)
class ReadFact:
    label: str
    word: str  # empty: the registry does not hold the fact
    meanings: tuple[Meaning, ...]
    as_proven: bool


@dataclass(frozen=True)
class Reading:
    """The registry's answer, or a `problem` (one of `READING_SENTENCES`)."""

    number: int  # the query's number
    problem: str = ""
    chain: ChainName | None = None
    block: int = 0
    facts: tuple[ReadFact, ...] = ()
    slots: "Page[object] | None" = None  # the slots or logs that were read
    is_of_transaction: bool = False

    @property
    def as_proven(self) -> bool:
        return all(fact.as_proven for fact in self.facts)


def read_now(query: Query, slots_page: str = "") -> Reading:
    """Read the query's facts from the registry at the newest block: of its slots or logs, one page."""
    number, slots = query.number, Paginator(fact_display.listed(query), SLOTS_PAGE).get_page(slots_page or 1)
    chain, source = chain_name(query.batch.destination_chain_id), chain_name(query.source_chain_id)
    row = deployments.of_batch(query.batch, deployments.all_of(chain.id, [source.id])).get(source.id)
    shown = fact_display.shown(query, slots.start_index() or 1)
    proven = query_values.read({query: shown})[query.pk].words
    if row is None or query.block is None or not proven:
        return Reading(number, READING_SENTENCES["no_registry"])
    try:
        rpc = get_page_rpc(chain.id)
        head = rpc.head().number
        view = facts.read(rpc, Registry(row.address), query.block.number, proven, at=head)
    except UnknownChain:
        return Reading(number, READING_SENTENCES["unknown_chain"].format(chain=chain.id))
    except (NodeUnavailable, RpcRefused) as error:
        return Reading(number, READING_SENTENCES["chain_unavailable"].format(reason=error))
    return Reading(
        number,
        chain=chain,
        block=head,
        facts=tuple(
            ReadFact(
                fact_display.label(fact),
                hex_data(word) if word is not None else "",
                fact_display.meanings(fact, word, source.currency) if word is not None else (),
                word == proven[fact],
            )
            for fact, word in view.facts.items()
        ),
        slots=slots,
        is_of_transaction=query.kind == QueryKind.ENTRY,
    )
