"""The page "Why does my read revert?": what a facts registry lacks for a read, and the request that proves it."""

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from django.contrib.auth.views import redirect_to_login
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe
from eth_abi.abi import decode
from eth_abi.exceptions import DecodingError
from eth_utils.crypto import keccak
from pydantic import ConfigDict

from accounts import read_rate
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
from proving.reading.fact_search import PROPERTIES, FactFilters
from proving.registries.deployments import Registry
from queries.columns import AccountField, EntryField, HeaderField
from queries.query_parameters import Number

_tables: dict[str, Any] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
ERRORS: dict[str, dict[str, Any]] = _tables["error"]
"""Errors of the contracts by signature, as the file describes them."""

TEXTS: dict[str, str] = {text: sentence for sentence, texts in _tables["text"].items() for text in texts}
"""Sentences about the reader's `Error(string)` by its text."""
EMPTY: str = _tables["empty"]

_TEXT, _PANIC = "Error(string)", "Panic(uint256)"
_SIGNATURES = {keccak(text=signature)[:4]: signature for signature in (*ERRORS, _TEXT, _PANIC)}
_DATA = re.compile(r"(?:0x)?((?:[0-9a-f]{2})*)", re.IGNORECASE)
_PROPERTIES = {
    fields.__name__: {str(field.value): field.name for field in fields}
    for fields in (AccountField, EntryField, HeaderField)
}
_LABELS = {
    "revert": "Revert data",
    "account": "Account",
    "block": "Block",
    "slot": "Slot",
    "transaction": "Transaction index",
    "log": "Log in receipt",
    "timestamp": "Unix time",
}
# Maximum characters of revert data. The web server accepts no longer address.
_MOST_CHARACTERS = 8000


class ContractRead(FactFilters):
    """A read of a contract, as the form or an error's arguments name it."""

    model_config = ConfigDict(extra="forbid")

    revert: str = ""
    log: Number | None = None
    timestamp: Number | None = None


@never_cache
@require_safe
def page(request: HttpRequest) -> HttpResponse:
    """Show the form, and what the registry holds of the read that it names."""
    if not fact_list.may_search(request):
        return redirect_to_login(request.get_full_path())
    typed = typed_filters.typed(request.GET)
    # Without anything typed, the form describes a read that reverted without data.
    pasted = request.GET.get("revert", "").strip()[:_MOST_CHARACTERS]
    is_pasted = bool(pasted) or ("revert" in request.GET and not typed)
    if pasted:
        typed["revert"] = pasted
    faults: Mapping[str, str] = {}
    context: dict[str, Any] = {"sources": fact_list.source_chains(), "destinations": fact_list.destination_chains()}
    try:
        if is_pasted:
            context |= _decoded(pasted)
            typed |= context["fields"]
        read = typed_filters.read(ContractRead, typed)
        if required := _required(read):
            if refusal := read_rate.refusal(request):
                return refusal
            context |= _compared(read, required)
    except UnreadableFilters as unreadable:
        faults = unreadable.faults
    context |= {"typed": typed, "faults": faults, "properties": PROPERTIES}
    context["inputs"] = [(name, label, typed.get(name, "")) for name, label in _LABELS.items()]
    return render(request, "explorer/reverts/page.html", context, status=400 if faults else 200)


def _fault(name: str, code: str) -> UnreadableFilters:
    return UnreadableFilters({name: _tables["fault"][code]})


def _decoded(text: str) -> dict[str, Any]:
    """Return what revert data says, and the fields of the form that its arguments fill in.

    Errors of other contracts may wrap ours. Raises `UnreadableFilters`.
    """
    match = _DATA.fullmatch("".join(text.split()).strip("\"',"))
    if match and not match[1]:
        return {"sentence": EMPTY, "fields": {}}
    data = bytes.fromhex(match[1]) if match else b""
    outer, name = _error(data), _SIGNATURES.get(data[:4])
    # Only data that is cut off has a known selector, and arguments that don't decode.
    if len(data) < 4 or (name and not outer):
        raise _fault("revert", "not_an_error")
    name = name or hex_data(data[:4])
    errors = [error for error in (outer, *map(_error, _wrapped(data))) if error]
    for error in errors:
        if "fields" in error:
            return error if error is outer else error | {"wrapper": name}
    others = errors[0] if errors else {"signature": name, "values": hex_data(data[4:]), "sentence": ""}
    whose = _tables["checks" if others["signature"] == _PANIC else "others"]
    return others | {"sentence": f"{whose} {others['sentence']}", "fields": {}}


def _error(data: bytes) -> dict[str, Any] | None:
    """Return an error. None: its selector is unknown, or it doesn't decode. Another contract's has no `fields`."""
    arguments = data[4:]
    try:
        signature = _SIGNATURES[data[:4]]
        if signature == _TEXT:
            text = _bytes_at(arguments, int.from_bytes(arguments[:32])).decode(errors="replace")
            ours = {"sentence": TEXTS[text], "fields": {}} if text in TEXTS else {"sentence": ""}
            return {"signature": signature, "values": f"“{''.join(map(_visible, text))}”"} | ours
        values = decode(list(filter(None, signature.partition("(")[2][:-1].split(","))), arguments)
    except (KeyError, ValueError, DecodingError):
        return None
    shown = list(map(_shown, values))
    found: dict[str, Any] = {"signature": signature, "values": ", ".join(shown)}
    if signature == _PANIC:
        return found | {"sentence": _tables["panic"].get(hex(values[0]), "")}
    error = ERRORS[signature]
    fields = dict(zip(error.get("fields", ()), shown, strict=False)) | error.get("typed", {})
    if "properties" in error:
        number = fields["property"]
        fields["property"] = _PROPERTIES[error["properties"]].get(number, number)
    return found | {"sentence": error["sentence"], "fields": fields}


def _wrapped(data: bytes) -> Iterator[bytes]:
    """Return the byte strings among an error's arguments, also those in other byte strings."""
    for place in range(4, len(data), 4):
        with suppress(ValueError):
            yield _bytes_at(data, place)


def _bytes_at(data: bytes, place: int) -> bytes:
    """Return a byte string as the ABI writes it: a length, and the bytes. Raises `ValueError` if bytes are missing."""
    start = place + 32
    end = start + int.from_bytes(data[place:start])
    if end > len(data):
        raise ValueError
    return data[start:end]


def _visible(letter: str) -> str:
    """Return a letter, or its code if it can't be seen, or turns those next to it."""
    return letter if letter.isprintable() else letter.encode("unicode_escape").decode()


def _shown(value: Any) -> str:
    return hex_data(value) if isinstance(value, bytes) else checksummed(str(value)) or str(value)


def _required(read: ContractRead) -> dict[Fact, Any]:
    """Return the fact that is read, and the root below which a caller can show it, with requests for a block.

    Raises `UnreadableFilters`.
    """
    account, index, name = read.account, read.transaction, read.property or ""
    if read.timestamp is not None:
        return {TimeFact(read.timestamp): {"header": [HeaderField.BLOCK_NUMBER.name]}}
    if read.block is None:
        return {}
    try:
        if account and read.slot:
            slot = {SlotFact(account, read.slot): {"accounts": {account: {"slots": [read.slot]}}}}
            return slot | _of_account(account, AccountField.STORAGE_ROOT)
        if account:
            return _of_account(account, AccountField[name]) | _of_header(HeaderField.STATE_ROOT)
        if index is None:
            return _of_header(HeaderField[name])
        if isinstance(index, int):
            fact = EntryFact(index, EntryField[name]) if read.log is None else LogFact(index, read.log)
            requested = {"props": [name]} if read.log is None else {"logs": [str(read.log)]}
            root = _of_header(fact.root) if fact.root == HeaderField.RECEIPTS_ROOT else {}
            return {fact: {"transactions": {str(index): requested}}} | root
    except KeyError:
        raise _fault("property", "other_property") from None
    raise _fault("transaction", "not_an_index")


def _of_account(account: str, field: AccountField) -> dict[Fact, Any]:
    return {AccountFact(account, field): {"accounts": {account: {"props": [field.name]}}}}


def _of_header(field: HeaderField) -> dict[Fact, Any]:
    return {HeaderFact(field): {"header": [field.name]}}


def _compared(read: ContractRead, required: Mapping[Fact, Any]) -> dict[str, Any]:
    """Ask the registry for the facts. Raises `UnreadableFilters` if there is no registry."""
    named = {"source_chain_id": read.sourceChainId, "destination_chain_id": read.destinationChainId}
    pair = {name: chain for name, chain in named.items() if chain is not None}
    row = FactsRegistry.in_use.filter(**pair).exclude(deployed_at=None).order_by("pk").first()
    if row is None:
        raise _fault("sourceChainId", "no_registry")
    chain, source = chain_name(row.destination_chain_id), chain_name(row.source_chain_id)
    try:
        rpc = get_page_rpc(chain.id)
        held = facts.read(rpc, Registry(row.address), read.block or 0, required, at=rpc.head().number).facts
    except (NodeUnavailable, RpcRefused) as error:
        return {"problem": READING_SENTENCES["chain_unavailable"].format(reason=error)}
    pays = {"fee": "auto"} if get_chains().chain(chain.id).all_signers else {"sender": "self"}
    selector = f"block:{read.block}" if read.timestamp is None else f"timestamp:{read.timestamp}"
    compared = []
    for fact, requested in required.items():
        data = {str(source.id): {selector: requested}}
        document = {"destinationChainId": str(chain.id), **pays, "data": data}
        inputs = posted({"destination": str(chain.id), "sender": pays.get("sender", "service")}, list(rows_of(data)))
        shown = {"name": facts.name(fact), "request": json.dumps(document, indent=2), "inputs": inputs}
        compared.append(shown | ({} if (word := held[fact]) is None else {"word": hex_data(word)}))
    return {"compared": compared, "registry": row.address, "chain": chain, "source": source, "number": read.block}
