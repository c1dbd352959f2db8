"""Questions about a view call at one block: its answer, also with changed storage, and the slots that it reads."""

import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from chains.encoding import HISTORY_CONTRACT, checksummed, hex_data, read_data, read_list, read_object, read_quantity
from chains.nodes.chain_nodes import Question
from chains.nodes.node_errors import FINAL
from chains.nodes.rpc import RpcClient
from chains.tries.header import Header

# Bytes of init code before the call's data: copy the data into memory, STATICCALL, STOP.
_INIT_BYTES = 42
# Wei that pay for any call.
_FUNDS = 10**30
# Maximum gas of a call that its caller must be able to pay for.
_PAID_GAS = 1_000_000
# Maximum contracts in a list. The addresses of more would take long to check.
_MOST_ENTRIES = 500
# Ten years, in which numbers of 32 bits hold the time, and blocks.
_LATER_SECONDS, _LATER_BLOCKS = 315_360_000, 100_000_000
# Code that returns the gas that is left, and the gas that was used before.
_RETURNS_GAS = "0x5a60005260206000f3"
_BASE_GAS = 21_002

ACCESS_LIST, TRACE = "eth_createAccessList", "debug_traceCall"

Place = tuple[str, int]
"""A contract (EIP-55) and one of its slots."""
Storage = Mapping[Place, int]
"""Words by their places."""


@dataclass(frozen=True)
class ViewCall:
    to: str
    data: bytes
    gas: int
    """Maximum for the execution."""


@dataclass(frozen=True)
class ReadSlots:
    """The slots that a call reads, as a node tells them."""

    places: Sequence[Place]
    accounts: frozenset[str]
    """The contracts (EIP-55), also those of which no slot is read."""
    method: str
    takes_changes: bool = False
    """True if the node took changed state in the question for the list."""


def together(lists: Sequence[ReadSlots]) -> ReadSlots:
    """Return the slots and contracts of several lists. The method is that of the first."""
    places = dict.fromkeys(place for read in lists for place in read.places)
    accounts = frozenset(account for read in lists for account in read.accounts)
    return ReadSlots([*places], accounts, lists[0].method)


def answer(call: ViewCall, at: Header, changed: Storage | None = None) -> Question[bytes]:
    """Ask for the return data of a call, with these words in place of those in storage."""
    return _at_block("eth_call", call, at, [_overrides(changed)] if changed else [], read_data)


def answer_later(call: ViewCall, at: Header, changed: Storage) -> Question[bytes]:
    """Ask for the return data as `answer` does, but in a block with a later time and a higher number."""
    block = {"time": hex(at.timestamp + _LATER_SECONDS), "number": hex(at.number + _LATER_BLOCKS)}
    return _at_block("eth_call", call, at, [_overrides(changed), block], read_data)


def reads(call: ViewCall, at: Header, accounts: Sequence[str]) -> list[Question[ReadSlots]]:
    """Ask for the slots that a call reads in every form that nodes are known to answer, the best first.

    geth before 1.17 and nodes made from it, such as op-geth, make a list only for a caller that can pay for the gas.
    They give it ether by a state override; older ones refuse the third parameter. The `accounts` may have ether, and
    so may the block's fee recipient.
    """
    caller = _caller()
    payers = dict.fromkeys([hex_data(at.fee_recipient), *accounts])
    poor = replace(call, gas=min(call.gas, _PAID_GAS))
    return [
        _access_list(call, at, caller, [{caller: {"balance": hex(_FUNDS)}}]),
        _access_list(call, at, caller),
        *(_access_list(poor, at, payer) for payer in payers),
        _prestate(call, at),
    ]


def method_of(rpc: RpcClient, at: Header, accounts: Sequence[str]) -> str | None:
    """Return the method by which nodes tell the slots that a call reads, `eth_call` if only trials can find them.

    None: nodes ignore or refuse changed storage, so that no slot is found.
    """
    (given,) = rpc.ask([given_gas(_PAID_GAS, at)])
    if not isinstance(given, int):
        return None
    call = ViewCall(HISTORY_CONTRACT, b"", _PAID_GAS)
    told = rpc.first_of_each(reads(call, at, accounts), lambda read: tells(read, call.to))
    return next(
        (read.method for read in told.values() if isinstance(read, ReadSlots) and tells(read, call.to)), "eth_call"
    )


def tells(read: object, contract: str) -> bool:
    """Return whether a list tells of the called contract, which may read no slot of its own."""
    return isinstance(read, ReadSlots) and contract in read.accounts


def reads_over(call: ViewCall, at: Header, changed: Storage, *, by_list: bool) -> Question[ReadSlots]:
    """Ask for the slots that a call reads with these words in place of those in storage, by a list or a trace."""
    caller, overrides = _caller(), _overrides(changed)
    if by_list:
        return _access_list(call, at, caller, [overrides | {caller: {"balance": hex(_FUNDS)}}])
    return _prestate(call, at, {"stateOverrides": overrides})


def _access_list(call: ViewCall, at: Header, caller: str, more: Sequence[Any] = ()) -> Question[ReadSlots]:
    """Ask for the slots by `eth_createAccessList`.

    The call is made by the init code of a contract creation, because some nodes leave the callee and more out of the
    list of a plain call. A list with an error is no answer.
    """
    size, to = len(call.data), call.to[2:].lower()
    init = bytes.fromhex(f"61{size:04x}61{_INIT_BYTES:04x}6000396000600061{size:04x}600073{to}5afa00")
    transaction = {"from": caller, "gas": hex(call.gas), "data": hex_data(init + call.data)}

    def read(result: Any) -> ReadSlots:
        told = read_object(result)
        if told.get("error"):
            raise ValueError("an access list with an error")
        entries = map(read_object, read_list(told.get("accessList")))
        slots = [(entry.get("address"), read_list(entry.get("storageKeys") or [])) for entry in entries]
        return replace(_read_slots(slots, ACCESS_LIST), takes_changes=bool(more))

    # A node that refuses a third parameter would refuse it again.
    plainer = None if more else (ACCESS_LIST, [transaction, hex(at.number)])
    return Question((ACCESS_LIST, [transaction, {"blockHash": hex_data(at.hash)}, *more]), read, plainer)


def given_gas(gas: int, at: Header) -> Question[int]:
    """Ask for how much gas the node gives a call that asks for so much: a node may give less."""
    to = _caller()
    call = ViewCall(to, b"", gas)
    return _at_block(
        "eth_call",
        call,
        at,
        [{to: {"code": _RETURNS_GAS}}],
        lambda told: _BASE_GAS + int.from_bytes(read_data(told, 32)),
    )


def _prestate(call: ViewCall, at: Header, more: Mapping[str, Any] | None = None) -> Question[ReadSlots]:
    """Ask for the slots that a call reads by `debug_traceCall` with the prestate tracer."""

    def read(result: Any) -> ReadSlots:
        accounts = read_object(result).items()
        slots = [(address, read_object(read_object(account).get("storage") or {})) for address, account in accounts]
        return _read_slots(slots, TRACE)

    tracer = {"tracer": "prestateTracer", "tracerConfig": {"disableCode": True}, **(more or {})}
    return _at_block(TRACE, call, at, [tracer], read)


def _at_block(method: str, call: ViewCall, at: Header, more: list[Any], read: Any) -> Question[Any]:
    transaction = {"from": _caller(), "to": call.to, "gas": hex(call.gas), "data": hex_data(call.data)}
    by_hash, by_number = {"blockHash": hex_data(at.hash)}, hex(at.number)
    plainer = (method, [transaction, by_number, *more])
    return Question((method, [transaction, by_hash, *more]), read, plainer, final=FINAL)


def _overrides(changed: Storage) -> dict[str, Any]:
    overrides: dict[str, Any] = {}
    for (account, slot), word in changed.items():
        overrides.setdefault(account, {"stateDiff": {}})["stateDiff"][_word(slot)] = _word(word)
    return overrides


def _read_slots(entries: Sequence[tuple[Any, Iterable[Any]]], method: str) -> ReadSlots:
    """Return the slots in a node's entries, of which a contract may have several."""
    if len(entries) > _MOST_ENTRIES:
        raise ValueError(f"{len(entries)} contracts")
    read = [(_address(address), keys) for address, keys in entries]
    places = sorted({(account, read_quantity(key)) for account, keys in read for key in keys})
    return ReadSlots(places, frozenset(account for account, _ in read), method)


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
