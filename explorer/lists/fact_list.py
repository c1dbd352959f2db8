"""Facts that registries hold, as a page and as CSV. They don't show who requested a fact.

`proving.reading.fact_search` finds them for these and for the API.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from django.conf import settings
from django.contrib.auth.views import redirect_to_login
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.cache import patch_vary_headers
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_safe
from pydantic import ConfigDict, Field

from accounts import read_rate
from accounts.throttle import client_address
from chains.encoding import hex_data
from config.chain_names import ChainName, chain_name
from config.configured_chains import get_chains
from config.error_answers import is_page
from explorer.batch import code_snippets, fact_display, facts_csv
from explorer.batch.fact_display import Value
from explorer.formatting import csv_lines
from explorer.lists import searched_account, typed_filters
from explorer.lists.searched_account import HASH, NUMBER, SearchedAccount
from explorer.lists.typed_filters import UnreadableFilters
from proving import facts
from proving.facts import SlotFact
from proving.models import SignedTransaction, Transaction
from proving.reading import fact_search
from proving.reading.fact_search import FactCursor, FactFilters, FoundFact, FoundFacts
from queries.models import Block, Query

PAGE_SIZE = 25
# Maximum lines of a file.
MOST_IN_FILE = 1000
_COLUMNS = (
    *("source_chain_id", "destination_chain_id", "block", "block_hash", "account", "property", "slot", "value", "word"),
    *("registry", "calldata", "transaction", *facts_csv.TRANSACTION_COLUMNS, "slot_said_to_be"),
)
_TOO_FEW_SENTENCES = {"account": "Name an account or a block."}


@dataclass(frozen=True)
class FactRow:
    fact: FoundFact
    source: ChainName
    destination: ChainName
    value: Value


class PageFilters(FactFilters):
    model_config = ConfigDict(extra="forbid")

    cursor: str = Field(fact_search.START, pattern=fact_search.CURSOR)


@dataclass(frozen=True)
class FactSearch:
    """The filters in the page's address, and their errors."""

    typed: Mapping[str, str]  # text by field, without empty fields
    account: SearchedAccount | None = None
    filters: PageFilters | None = None  # None: the filters name neither account nor block, or are invalid
    faults: Mapping[str, str] = field(default_factory=dict)  # sentences by field

    @property
    def status(self) -> int:
        """Return the HTTP status of an answer."""
        if self.account and self.account.problem:
            return self.account.status
        return 400 if self.faults else 200


def rows(facts_found: Sequence[FoundFact]) -> Iterator[FactRow]:
    """Yield the facts for a page."""
    for fact in facts_found:
        source, destination = chain_name(fact.block.source_chain_id), chain_name(fact.block.destination_chain_id)
        # Another user's name of a slot would change the code.
        unnamed = replace(fact.fact, name=None) if isinstance(fact.fact, SlotFact) and not fact.is_own else fact.fact
        snippets = code_snippets.reading(fact.registry, fact.block.number, unnamed)
        value = fact_display.value(fact.fact, fact.word, source.currency, fact.registry, snippets=snippets)
        yield FactRow(fact, source, destination, value)


def searched(text: str, account: SearchedAccount | None) -> FactFilters | None:
    """Return the filters for a searched account, or for a block by its number, its hash or a transaction's hash.

    None: nothing can match.
    """
    if account:
        return FactFilters(account=account.address) if account.address else None
    if NUMBER.fullmatch(text):
        return FactFilters.model_validate({"block": str(int(text))})
    block = _with_hash(text.lower()) if HASH.fullmatch(text) else None
    if block is None:
        return None
    return FactFilters.model_validate({"block": str(block.number), "sourceChainId": str(block.source_chain_id)})


def _with_hash(text: str) -> Block | None:
    """Return the block with this hash, or else the first block that the transaction with this hash is about."""
    sent = SignedTransaction.objects.filter(hash=text).values("transaction")
    queries = Transaction.queries.through.objects.filter(transaction__in=sent).values("query")
    about = Block.objects.filter(pk__in=Query.objects.filter(pk__in=queries).values("block")).order_by("pk")
    return Block.objects.filter(hash=text).first() or about.first()


def source_chains() -> list[ChainName]:
    return [chain_name(pk) for pk in sorted({connection.source_id for connection in get_chains().connections})]


def destination_chains() -> list[ChainName]:
    return [chain_name(chain.id) for chain in get_chains().destinations()]


def has_several_chains() -> bool:
    """Return whether lists name the chains of each row."""
    return len(source_chains()) > 1 or len(destination_chains()) > 1


# --- Views ------------------------------------------------------------------------------------------------------------


@csrf_exempt  # The view changes nothing, and the API accepts no cookies.
@never_cache
def facts_or_api(request: HttpRequest, api: Callable[[HttpRequest], HttpResponse]) -> HttpResponse:
    """Show the facts of an account or a block. Programs, and requests with a key, get the API's answer."""
    if not is_page(request):
        response = api(request)
    elif not may_search(request):
        response = redirect_to_login(request.get_full_path())
    else:
        response = _page(request, _search(request))
    patch_vary_headers(response, ["Accept"])
    return response


@never_cache
@require_safe
@read_rate.counted
def file(request: HttpRequest) -> HttpResponse:
    """Return the facts as CSV. If they don't fit into one file, the header `Link` names the next file."""
    if not may_search(request):
        return redirect_to_login(request.get_full_path())
    search = _search(request)
    if search.filters is None:
        return typed_filters.refusing_file(search.faults or _TOO_FEW_SENTENCES, "facts.csv", max(search.status, 400))
    cursor = FactCursor.of(search.filters.cursor)
    page = fact_search.search(search.filters, cursor, MOST_IN_FILE, reader=request.user.pk)
    parts = request.GET.copy()
    parts["cursor"] = str(page.next)
    lines = map(csv_lines.line, [_COLUMNS, *map(_cells, page.facts)])
    return csv_lines.file(lines, "facts.csv", f"?{parts.urlencode()}" if page.next else "")


def may_search(request: HttpRequest) -> bool:
    """Return whether the reader may search facts. Signed-in users may, and everybody if `PUBLIC_BATCH_LIST` is set."""
    return settings.PUBLIC_BATCH_LIST or request.user.is_authenticated


def _page(request: HttpRequest, search: FactSearch) -> HttpResponse:
    chains = get_chains()
    page = FoundFacts([], None)
    if search.filters and search.filters.slot and (refusal := read_rate.refusal(request)):
        return refusal
    filters = search.filters
    if settings.PUBLIC_BATCH_LIST and not search.faults and not filters:
        filters = PageFilters.model_validate(search.typed)
    cursor = filters.cursor if filters else fact_search.START
    if filters:
        page = fact_search.search(filters, FactCursor.of(cursor), PAGE_SIZE, reader=request.user.pk)
    context = {
        "search": search,
        "rows": list(rows(page.facts)),
        "is_first": cursor == fact_search.START,
        "next": str(page.next or ""),
        "most_in_file": MOST_IN_FILE,
        "resolves_names": chains.ens is not None,
        "properties": fact_search.PROPERTIES,
        "sources": source_chains(),
        "destinations": destination_chains(),
        "names_chains": has_several_chains(),
    }
    return render(request, "explorer/fact_list/page.html", context, status=search.status)


def _search(request: HttpRequest) -> FactSearch:
    typed = typed_filters.typed(request.GET)
    account = searched_account.read(typed["account"], client_address(request)) if "account" in typed else None
    faults, values = {}, dict(typed)
    if account and account.address:
        values["account"] = account.address
    elif account:
        faults["account"] = account.problem
    try:
        filters = typed_filters.read(PageFilters, values)
    except UnreadableFilters as unreadable:
        return FactSearch(typed, account, faults={**unreadable.faults, **faults})
    if "account" in typed or "block" in typed:
        return FactSearch(typed, account, filters)
    return FactSearch(typed, faults=_TOO_FEW_SENTENCES if typed.keys() - {"cursor"} else {})


def _cells(fact: FoundFact) -> Iterator[str]:
    block = fact.block
    yield from map(str, (block.source_chain_id, block.destination_chain_id, block.number, block.hash, fact.address))
    yield facts.name(fact.fact)
    yield fact.fact.slot if isinstance(fact.fact, SlotFact) else ""
    yield "" if (number := facts.number(fact.fact, fact.word)) is None else str(number)
    yield from (
        hex_data(fact.word),
        fact.registry.address,
        facts.calldata(block.number, fact.fact),
        fact.transaction_hash,
        *facts_csv.transaction_cells(fact.fact, fact.transaction),
        facts_csv.said_to_be(fact.fact),
    )
