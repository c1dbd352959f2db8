"""The page "Why does my read revert?": what a facts registry lacks for a read, and the request that proves it."""

import json
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from django.contrib.auth.views import redirect_to_login
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe
from eth_abi.abi import decode
from eth_abi.exceptions import DecodingError
from eth_utils.crypto import keccak
from pydantic import BaseModel, ConfigDict

from accounts import read_rate
from accounts.throttle import client_address
from chains.encoding import checksummed, hex_data
from chains.nodes.node_errors import NodeUnavailable, RpcRefused
from config.chain_names import chain_name
from config.configured_chains import get_chains, get_page_rpc
from explorer.batch.read_from_chain import READING_SENTENCES
from explorer.lists import fact_list, typed_filters
from explorer.lists.typed_filters import UnreadableFilters
from explorer.new_batch.forms import posted
from explorer.new_batch.views import rows_of
from proving import facts
from proving.facts import AccountFact, EntryFact, Fact, HeaderFact, LogFact, SlotFact, TimeFact
from proving.models import FactsRegistry
from proving.reading.fact_search import PROPERTIES, PropertyName
from proving.registries.deployments import Registry
from queries.columns import AccountField, EntryField, HeaderField
from queries.query_parameters import Address, Number, Slot

ERRORS: dict[str, dict[str, Any]] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
"""Errors of the contracts by signature, as the file describes them."""

_SIGNATURES = {keccak(text=signature)[:4].hex(): signature for signature in ERRORS}
_FIELDS = {each.__name__: each for each in (AccountField, EntryField, HeaderField)}
_UNREADABLE_SENTENCE = "This is no error of a registry, a reader or the library: 0x, a selector and its arguments."
_NUMBER_LABELS = {
    "block": "Block",
    "tx": "Transaction index",
    "log": "Log in receipt",
    "timestamp": "Unix time",
}
# Maximum characters of revert data: the longest error has five words, and a text may be longer.
_MOST_CHARACTERS = 2000


class Read(BaseModel):
    """A read of a contract, as the form or an error's arguments name it."""

    model_config = ConfigDict(extra="forbid")

    sourceChainId: Number | None = None
    destinationChainId: Number | None = None
    account: Address | None = None
    block: Number | None = None
    property: PropertyName | None = None
    slot: Slot | None = None
    tx: Number | None = None
    log: Number | None = None
    timestamp: Number | None = None


@dataclass(frozen=True)
class RevertReason:
    signature: str = ""
    values: tuple[str, ...] = ()
    fault: str = ""
    typed: Mapping[str, str] = field(default_factory=dict)  # the form's fields

    @property
    def sentence(self) -> str:
        return str(ERRORS[self.signature]["sentence"])


@dataclass(frozen=True)
class RequiredFact:
    """A fact that a read needs."""

    name: str
    is_root: bool  # for a proof in the caller's own call
    word: str  # empty: the registry doesn't hold it
    document: Mapping[str, Any]  # the request that proves it

    @property
    def text(self) -> str:
        return json.dumps(self.document, indent=2)

    @property
    def inputs(self) -> QueryDict:
        """Return the fields of the form of a new batch."""
        batch = {"destination": self.document["destinationChainId"], "sender": self.document.get("sender", "service")}
        return posted(batch, [{"props": [], "tx_props": [], **row} for row in rows_of(self.document["data"])])


def revert_reason(text: str) -> RevertReason:
    """Decode revert data."""
    try:
        data = bytes.fromhex(text.removeprefix("0x"))
        signature = _SIGNATURES[data[:4].hex()]
        values = decode(signature.partition("(")[2][:-1].split(",") if "()" not in signature else [], data[4:])
        typed = dict(map(_typed, ERRORS[signature].get("fields", ()), values)) | ERRORS[signature].get("typed", {})
    except (ValueError, KeyError, DecodingError):
        return RevertReason(fault=_UNREADABLE_SENTENCE)
    return RevertReason(signature, tuple(map(_shown, values)), typed=typed)


def _typed(name: str, value: Any) -> tuple[str, str]:
    return ("property", _FIELDS[name](value).name) if name in _FIELDS else (name, _shown(value))


def _shown(value: Any) -> str:
    return hex_data(value) if isinstance(value, bytes) else checksummed(str(value)) or str(value)


@never_cache
@require_safe
def page(request: HttpRequest) -> HttpResponse:
    """Show the form, and what the registry holds of the read that it names."""
    if not fact_list.may_search(request):
        return redirect_to_login(request.get_full_path())
    typed = typed_filters.typed(request.GET)
    typed.pop("revert", None)
    pasted = request.GET.get("revert", "").strip()[:_MOST_CHARACTERS]
    reason = revert_reason(pasted) if pasted else None
    typed |= reason.typed if reason else {}
    faults = {"revert": reason.fault} if reason and reason.fault else {}
    context: dict[str, Any] = {
        "typed": typed,
        "pasted": pasted,
        "reason": reason,
        "faults": faults,
        "properties": PROPERTIES,
        "numbers": [(name, label, typed.get(name, "")) for name, label in _NUMBER_LABELS.items()],
        "sources": fact_list.source_chains(),
        "destinations": fact_list.destination_chains(),
    }
    status, retry_after = 200, 0
    try:
        read = typed_filters.read(Read, typed)
        fact = _fact(read)
        if fact and (retry_after := read_rate.count(client_address(request))):
            context["problem"], status = READING_SENTENCES["too_many_requests"], 429
        elif fact:
            context |= _compared(read, fact)
    except UnreadableFilters as unreadable:
        faults |= unreadable.faults
    response = render(request, "explorer/reverts/page.html", context, status=400 if faults else status)
    if retry_after:
        response.headers["Retry-After"] = str(retry_after)
    return response


def _compared(read: Read, fact: Fact) -> dict[str, Any]:
    """Ask the registry for the fact, and for the root of a proof. Raises `UnreadableFilters`."""
    named = {"source_chain_id": read.sourceChainId, "destination_chain_id": read.destinationChainId}
    pair = {name: chain for name, chain in named.items() if chain is not None}
    row = FactsRegistry.in_use.filter(**pair).exclude(deployed_at=None).order_by("pk").first()
    if row is None:
        raise UnreadableFilters({"sourceChainId": "This service has no facts registry of these chains."})
    chain, source = chain_name(row.destination_chain_id), chain_name(row.source_chain_id)
    context = {"registry": row.address, "chain": chain, "source": source, "number": read.block}
    required = list(_required(fact))
    try:
        rpc = get_page_rpc(chain.id)
        held = facts.read(rpc, Registry(row.address), read.block or 0, required, at=rpc.head().number).facts
    except (NodeUnavailable, RpcRefused) as error:
        return context | {"problem": READING_SENTENCES["chain_unavailable"].format(reason=error)}
    pays = {"fee": "auto"} if get_chains().chain(chain.id).all_signers else {"sender": "self"}
    selector = f"timestamp:{fact.timestamp}" if isinstance(fact, TimeFact) else f"block:{read.block}"
    return context | {
        "required": [
            RequiredFact(
                facts.name(each),
                each != fact,
                hex_data(word) if (word := held[each]) is not None else "",
                {"destinationChainId": str(chain.id), **pays, "data": {str(source.id): {selector: _requested(each)}}},
            )
            for each in required
        ]
    }


def _fact(read: Read) -> Fact | None:
    """Return the fact that is read. None: the form doesn't name one. Raises `UnreadableFilters`."""
    if read.timestamp is not None:
        return TimeFact(read.timestamp)
    if read.block is None:
        return None
    if read.account and read.slot:
        return SlotFact(read.account, read.slot)
    if read.tx is not None and read.log is not None:
        return LogFact(read.tx, read.log)
    return _property(read, read.property) if read.property else None


def _property(read: Read, name: str) -> Fact:
    try:
        if read.account:
            return AccountFact(read.account, AccountField[name])
        return HeaderFact(HeaderField[name]) if read.tx is None else EntryFact(read.tx, EntryField[name])
    except KeyError:
        raise UnreadableFilters({"property": f"There is no {name} of what the form names."}) from None


def _required(fact: Fact) -> Iterator[Fact]:
    """Yield the fact, and the root below which a caller can show it instead."""
    yield fact
    match fact:
        case SlotFact():
            yield AccountFact(fact.address, AccountField.STORAGE_ROOT)
        case AccountFact():
            yield HeaderFact(HeaderField.STATE_ROOT)
        case EntryFact() | LogFact() if fact.root == HeaderField.RECEIPTS_ROOT:
            yield HeaderFact(fact.root)


def _requested(fact: Fact) -> dict[str, Any]:
    """Return a request's block that asks for the fact alone."""
    match fact:
        case SlotFact():
            return {"accounts": {fact.address: {"slots": [fact.slot]}}}
        case AccountFact():
            return {"accounts": {fact.address: {"props": [fact.field.name]}}}
        case LogFact():
            return {"transactions": {str(fact.entry): {"logs": [str(fact.log)]}}}
        case EntryFact():
            return {"transactions": {str(fact.entry): {"props": [fact.field.name]}}}
        case HeaderFact():
            return {"header": [fact.field.name]}
        case TimeFact():
            return {"header": [HeaderField.BLOCK_NUMBER.name]}
