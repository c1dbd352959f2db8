"""The measurement of a chain's gas prices by a tiny creation, which stores a new word and 32 bytes of code.

If the chain charges a record's prices, a call of the creation passes with exactly the record's gas, and fails with one
less. Some nodes ignore the gas of such a call, or refuse it with any gas. Their estimates must be near the record's
gas. On a chain that charges gas for data, only the difference to a creation of the same size counts, which stores
nothing.
"""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from chains import rollups
from chains.encoding import hex_data, read_data
from chains.nodes import questions
from chains.nodes.chain_nodes import Question
from chains.nodes.node_errors import ChainError, RpcRefused
from chains.nodes.rpc import RpcClient
from chains.prices import GasPrices
from chains.tries.header import Header

# PUSH1 1, PUSH0, SSTORE, PUSH1 32, PUSH0, RETURN; and PUSH1 1, PUSH0, MSTORE, PUSH0, PUSH1 32, RETURN: no code. Then
# the gas of their other operations, with a word of memory.
_CREATION, _EMPTY_CREATION = bytes.fromhex("60015f5560205ff3"), bytes.fromhex("60015f525f6020f3")
_OPERATIONS, _EMPTY_OPERATIONS = 13, 16
_CODE_BYTES = 32
# Part of a record's gas by which an estimate may differ. geth's are up to 1.5 % too high.
_TOLERANCE = 0.02
# A call with this gas passes only if the node ignores it.
_TOO_LITTLE = 30_000


def gas_of(prices: GasPrices) -> int:
    """Return the gas of the creation."""
    stored = prices.new_word + prices.new_account + prices.code_of(_CODE_BYTES)
    return prices.before_execution(None, _CREATION) + _OPERATIONS + stored


def calls(prices: GasPrices) -> list[Question[bytes]]:
    """Ask for calls with the record's gas, and with one less."""
    gas, sender = gas_of(prices), _stranger()
    return [_call(sender, gas), _call(sender, gas - 1)]


def fit(answers: Sequence[bytes | ChainError]) -> bool:
    """Return whether these answers to `calls` show that the chain charges the record's prices."""
    enough, too_little = answers
    return isinstance(enough, bytes) and isinstance(too_little, RpcRefused)


@dataclass(frozen=True)
class PriceMeasurement:
    """The gas prices of a chain, as one node shows them."""

    head: Header | None
    fitting: frozenset[str]
    """The names of the records that fit."""
    scale: Mapping[str, float]
    """The gas of the creation over that of each record, by its name. Empty: the node doesn't tell it."""


def measure(rpc: RpcClient, records: Sequence[GasPrices]) -> list[PriceMeasurement]:
    """Measure with each node, or with one if there is no other. Raises `NodeUnavailable`, `RpcRefused`."""
    sender, counts_differences = _stranger(), rollups.charges_gas_for_data(rpc)
    asked: list[Question[Any]] = [
        questions.header("latest"),
        *(_call(sender, gas) for gas in (None, _TOO_LITTLE)),
        *(questions.gas_estimate(sender, None, code, "latest") for code in (_CREATION, _EMPTY_CREATION)),
        *(call for record in records for call in calls(record)),
    ]
    of_nodes = list(rpc.ask_each(asked).values()) or [rpc.ask(asked)]
    return [_read(answers, records, counts_differences=counts_differences) for answers in of_nodes]


def _read(answers: Sequence[Any], records: Sequence[GasPrices], *, counts_differences: bool) -> PriceMeasurement:
    head, unlimited, too_little, whole, empty, *of_records = answers
    obeys_gas = fit([unlimited, too_little]) and not counts_differences
    fitting = {record.name for place, record in enumerate(records) if fit(of_records[2 * place : 2 * place + 2])}
    scale: dict[str, float] = {}
    for record in records:
        needed = gas_of(record)
        stored = needed - record.before_execution(None, _EMPTY_CREATION) - _EMPTY_OPERATIONS - record.new_account
        if isinstance(whole, ChainError) or (counts_differences and isinstance(empty, ChainError)):
            continue
        taken, of_record = (whole - empty, stored) if counts_differences else (whole, needed)
        if taken > 0:
            scale[record.name] = taken / of_record
        if not obeys_gas and abs(taken - of_record) <= _TOLERANCE * needed:
            fitting.add(record.name)
    return PriceMeasurement(head if isinstance(head, Header) else None, frozenset(fitting), scale)


def _stranger() -> str:
    """Return an address that nobody knows. Anybody could send money to the next contract of a known one."""
    return hex_data(secrets.token_bytes(20))


def _call(sender: str, gas: int | None) -> Question[bytes]:
    transaction = {"from": sender, "data": hex_data(_CREATION)} | ({} if gas is None else {"gas": hex(gas)})
    # Honest nodes refuse one of the calls, so no other node is asked.
    return Question(("eth_call", [transaction, "latest"]), read_data, final=(RpcRefused,))
