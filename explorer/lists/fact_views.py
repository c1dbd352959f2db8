"""The page of the facts of an account or a block, and the same as CSV."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from re import fullmatch

from django.conf import settings
from django.contrib.auth.views import redirect_to_login
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import render
from django.utils.cache import patch_vary_headers
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_safe
from pydantic import ValidationError

from accounts.client_address import client_address
from config.chain_names import chain_name
from config.configured_chains import get_chains
from config.error_answers import is_page
from explorer import read_rate
from explorer.formatting import csv_lines
from explorer.lists import facts_page, searched_account
from explorer.lists.searched_account import SearchedAccount
from proving import fact_search
from proving.fact_search import FactFilters

_FIELDS = {
    "account": "The account is {}.",
    "block": "The block is a number, in decimal digits.",
    "property": "There is no such property.",
    "slot": "The slot is 0x and up to 64 hexadecimal digits.",
    "sourceChainId": "The source chain is none.",
    "destinationChainId": "The destination chain is none.",
}


@dataclass(frozen=True)
class Asked:
    """The filters in the page's address, and what is wrong with them."""

    typed: Mapping[str, str]  # by the field; empty ones are left out
    account: SearchedAccount | None = None
    filters: FactFilters | None = None  # None: they name neither an account nor a block, or are wrong
    faults: Mapping[str, str] = field(default_factory=dict)  # sentences, by the field

    def query(self, **changes: str) -> str:
        parts = QueryDict(mutable=True)
        parts.update({**self.typed, **changes})
        return "?" + parts.urlencode()


def may_search(request: HttpRequest) -> bool:
    """Return whether the reader may search facts: as with a key, or everybody who may list everybody's batches."""
    return settings.PUBLIC_BATCH_LIST or request.user.is_authenticated


@csrf_exempt  # It changes nothing, and the API takes no cookie.
@never_cache
def facts(request: HttpRequest, api: Callable[[HttpRequest], HttpResponse]) -> HttpResponse:
    """Show the facts of an account or a block. Programs, and whoever sends a key, are answered by the API."""
    if not is_page(request):
        response = api(request)
    elif not may_search(request):
        response = redirect_to_login(request.get_full_path())
    else:
        response = _page(request)
    patch_vary_headers(response, ["Accept"])
    return response


def _page(request: HttpRequest) -> HttpResponse:
    asked, chains = _asked(request), get_chains()
    cursor = _cursor(request)
    page = facts_page.read(asked.filters, facts_page.PAGE_SIZE, cursor) if asked.filters else None
    context = {
        "asked": asked,
        "facts": page,
        "is_first": cursor == fact_search.START,
        "first": asked.query(),
        "next": asked.query(cursor=page.next) if page and page.next else "",
        "file": asked.query(cursor=cursor),
        "most_in_file": facts_page.MOST_IN_FILE,
        "account_in_words": searched_account.in_words(),
        "properties": fact_search.PROPERTIES,
        "sources": [chain_name(pk) for pk in sorted({one.source_id for one in chains.connections})],
        "destinations": [chain_name(chain.id) for chain in chains.destinations()],
    }
    return render(request, "explorer/facts.html", context)


@never_cache
@require_safe
@read_rate.counted
def facts_csv(request: HttpRequest) -> HttpResponse:
    """Return the facts as CSV. Where there are more than a file holds, the header `Link` names the next file."""
    if not may_search(request):
        return redirect_to_login(request.get_full_path())
    asked = _asked(request)
    if asked.filters is None:
        return _page(request)
    lines, following = facts_page.csv(asked.filters, _cursor(request))
    return csv_lines.file(lines, "facts.csv", asked.query(cursor=following) if following else "")


def _cursor(request: HttpRequest) -> str:
    text = request.GET.get("cursor", "")
    return text if fullmatch(fact_search.CURSOR, text) else fact_search.START


def _asked(request: HttpRequest) -> Asked:
    typed = {name: text for name in _FIELDS if (text := request.GET.get(name, "").strip().replace("\0", "")[:100])}
    account = searched_account.read(typed["account"], client_address(request)) if "account" in typed else None
    faults, values = {}, dict(typed)
    if account and account.address:
        values["account"] = account.address
    elif account:
        faults["account"] = account.problem
    try:
        filters = FactFilters.model_validate(values)
    except ValidationError as invalid:
        for error in invalid.errors(include_url=False, include_context=False, include_input=False):
            name = str(error["loc"][0])
            faults.setdefault(name, _FIELDS[name].format(searched_account.in_words()))
        return Asked(typed, account, faults=faults)
    if "account" in typed or "block" in typed:
        return Asked(typed, account, filters)
    return Asked(typed, faults={"account": "Name an account or a block."} if typed else {})
