"""Questions about a view call at one block: its answer, also with changed storage, and the slots that it reads."""

import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from chains.encoding import checksummed, hex_data, read_data, read_list, read_object, read_quantity
from chains.nodes.chain_nodes import Question
from chains.nodes.node_errors import FINAL
from chains.tries.header import Header

# Bytes of init code before the call's data: copy the data into memory, STATICCALL, STOP.
_INIT_BYTES = 42
# Wei that pay for any call.
_FUNDS = 10**30

Storage = Mapping[str, Mapping[int, int]]
"""Words by contract and slot."""


@dataclass(frozen=True)
class ViewCall:
    to: str
    data: bytes
    gas: int
    """Maximum for the execution."""


@dataclass(frozen=True)
class ReadSlots:
    """The slots that a call reads, as a node tells them."""

    slots: Mapping[str, Sequence[int]]
    """Grouped by contract (EIP-55), without contracts of which no slot is read."""
    accounts: frozenset[str]
    method: str


def answer(call: ViewCall, at: Header, changed: Storage | None = None) -> Question[bytes]:
    """Ask for the return data of a call, with these words in place of those in storage."""
    overrides = {
        account: {"stateDiff": {_word(slot): _word(word) for slot, word in words.items()}}
        for account, words in (changed or {}).items()
    }
    return _at_block("eth_call", call, at, [overrides] if overrides else [], read_data)


def access_list(call: ViewCall, at: Header, *, is_funded: bool = False) -> Question[ReadSlots]:
    """Ask for the slots that a call reads by `eth_createAccessList`.

    The call is made by the init code of a contract creation, because some nodes leave the callee and more out of the
    list of a plain call. A list with an error is no answer.

    geth before 1.17, and nodes made from it, refuse a caller that can't pay for the gas. Only such nodes need one that
    `is_funded`, and others may not know how to fund one.
    """
    size, to = len(call.data), call.to[2:].lower()
    init = bytes.fromhex(f"61{size:04x}61{_INIT_BYTES:04x}6000396000600061{size:04x}600073{to}5afa00")
    transaction = {"from": _caller(), "gas": hex(call.gas), "data": hex_data(init + call.data)}
    more = [{transaction["from"]: {"balance": hex(_FUNDS)}}] if is_funded else []

    def read(result: Any) -> ReadSlots:
        told = read_object(result)
        if told.get("error"):
            raise ValueError("an access list with an error")
        entries = map(read_object, read_list(told.get("accessList")))
        slots = [(entry.get("address"), read_list(entry.get("storageKeys") or [])) for entry in entries]
        return _read_slots(slots, "eth_createAccessList")

    method = "eth_createAccessList"
    return Question(
        (method, [transaction, {"blockHash": hex_data(at.hash)}, *more]),
        read,
        (method, [transaction, hex(at.number), *more]),
    )


def prestate(call: ViewCall, at: Header) -> Question[ReadSlots]:
    """Ask for the slots that a call reads by `debug_traceCall` with the prestate tracer."""

    def read(result: Any) -> ReadSlots:
        accounts = read_object(result).items()
        slots = [(address, read_object(read_object(account).get("storage") or {})) for address, account in accounts]
        return _read_slots(slots, "debug_traceCall")

    tracer = {"tracer": "prestateTracer", "tracerConfig": {"disableCode": True}}
    return _at_block("debug_traceCall", call, at, [tracer], read)


def _at_block(method: str, call: ViewCall, at: Header, more: list[Any], read: Any) -> Question[Any]:
    transaction = {"from": _caller(), "to": call.to, "gas": hex(call.gas), "data": hex_data(call.data)}
    by_hash, by_number = {"blockHash": hex_data(at.hash)}, hex(at.number)
    plainer = (method, [transaction, by_number, *more])
    return Question((method, [transaction, by_hash, *more]), read, plainer, final=FINAL)


def _read_slots(entries: Iterable[tuple[Any, Iterable[Any]]], method: str) -> ReadSlots:
    """Return the slots in a node's entries, of which a contract may have several."""
    slots: dict[str, set[int]] = {}
    for address, keys in entries:
        slots.setdefault(_address(address), set()).update(map(read_quantity, keys))
    distinct = {address: sorted(of_one) for address, of_one in slots.items() if of_one}
    return ReadSlots(distinct, frozenset(slots), method)


def _caller() -> str:
    """Return an address that no contract knows, so that each call has another: an answer may depend on it.

    Nodes refuse calls from an address with code (EIP-3607), which this one can't have.
    """
    return hex_data(secrets.token_bytes(20))


def _address(value: Any) -> str:
    address = checksummed(hex_data(read_data(value, 20)))
    assert address
    return address


def _word(number: int) -> str:
    return hex_data(number.to_bytes(32))
