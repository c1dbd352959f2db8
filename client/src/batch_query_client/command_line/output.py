"""Output of commands: tables for people, and JSON in the API's form with --json.

All commands load this module, even --help, so rich and pydantic are loaded only when something is printed.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

import batch_query_client as client
from batch_query_client import stated_words
from batch_query_client.amounts import answer_type, is_amount
from batch_query_client.plain_text import hex_data, plain
from batch_query_client.questions import NUMBERS

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

# Width of output that isn't a terminal. Lines must not break there.
_PIPE_COLUMNS = 10_000
_SPINNER_COLUMNS = 3
# The emitter of the logs that the chain itself writes where ETH moves (EIP-7708), in the form of a token's transfers.
_ETH_EMITTER, _TOPICS_OF_TRANSFER, _WORD = "0x" + "f" * 39 + "e", 3, 32
_COLOURS = {"DONE": "green", "COMPLETED": "green", "REJECTED": "red"}


def print_json(value: Any) -> None:
    """Print a value as JSON. An answer of the service is printed as the service sent it."""
    click.echo(json.dumps(_plain_value(value), indent=2 if sys.stdout.isatty() else None))


def _plain_value(value: Any) -> Any:
    from pydantic import BaseModel  # noqa: PLC0415 (as above)

    if isinstance(value, client.BatchDetails):
        # The source has only the first page of queries.
        return value.source | {"queryList": _plain_value(value.query_list), "next": value.next}
    if isinstance(value, client.Fact):
        return value.source or _as_listed(value)
    if isinstance(value, BaseModel):
        source: Any = value.source  # type: ignore[attr-defined]  # every model here is an answer
        return source or _listed(value.model_dump(by_alias=True))
    if isinstance(value, Mapping):
        return {name: _plain_value(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain_value(entry) for entry in value]
    return hex_data(value) if isinstance(value, bytes) else value


def _as_listed(fact: client.Fact) -> dict[str, Any]:
    """Return a fact in the form of `GET /facts`. The fact may come from a batch or from the chain."""
    listed = _listed(fact.model_dump(by_alias=True, exclude={"timestamp", "call"}))
    # The service lists a slot's word, or its stated part, as a number too.
    number = str(fact.value) if fact.word is not None and (fact.is_number or fact.property == "SLOT") else None
    call = fact.call and {"to": fact.call.to, "data": hex_data(fact.call.data)}
    return listed | {"slotName": fact.slot_name, "value": number, "call": call}


def _listed(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields as the API lists them: numbers as strings, and null for what is empty."""

    def listed(field: Any) -> Any:
        if isinstance(field, Mapping):
            return _listed(field)
        return str(field) if isinstance(field, int) else _plain_value(field) if field != "" else None

    return {name: listed(field) for name, field in fields.items()}


def say(sentence: str) -> None:
    """Print a sentence for people, on standard error."""
    click.echo(plain(sentence), err=True)


def console(*, err: bool = False) -> Console:
    from rich.console import Console  # noqa: PLC0415 (as above)

    file = sys.stderr if err else sys.stdout
    return Console(
        file=file, highlight=False, markup=False, emoji=False, width=None if file.isatty() else _PIPE_COLUMNS
    )


def print_table(headings: Sequence[str], rows: Iterable[Sequence[object]], *, empty: str = "There is nothing.") -> None:
    """Print a table. Cells may have other people's words, so markup is not interpreted."""
    filled = list(rows)
    if not filled:
        say(empty)
        return
    table = _table(headings)
    for row in filled:
        table.add_row(*map(cell, row))
    _print(table)


def print_fields(fields: Iterable[tuple[str, object]]) -> None:
    """Print names and values, one pair per line."""
    table = _table()
    table.show_header = False
    for name, value in fields:
        table.add_row(_text(name, "dim"), cell(value))
    _print(table)


def _print(table: Table) -> None:
    to = console()
    if sys.stdout.isatty():
        to.print(table)
        return
    with to.capture() as captured:
        to.print(table)
    click.echo("\n".join(line.rstrip() for line in captured.get().splitlines()))


def _table(headings: Sequence[str] = ()) -> Table:
    from rich.table import Table  # noqa: PLC0415 (as above)

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for heading in headings:
        table.add_column(_text(heading), overflow="fold")
    return table


def _text(words: str, style: str = "") -> Text:
    """Return the words as text without markup."""
    from rich.text import Text  # noqa: PLC0415 (as above)

    return Text(words, style)


def cell(value: object) -> Text:
    text = "" if value is None else plain(value)
    return _text(text, _COLOURS.get(text, ""))


# --- Amounts ---------------------------------------------------------------------------------------------------------

_WEI = 10**18
_ETH = "ETH"
_DIGITS_OF_COST = 6


def currencies(service: client.BatchQueryService) -> Mapping[int, str]:
    """Return the chains' currencies by chain id. Empty if the service doesn't answer."""
    try:
        return {chain.chain_id: chain.currency for chain in service.chains()}
    except client.BatchQueryError:
        return {}


def amount(wei: int, currency: str = _ETH) -> str:
    """Return an exact amount in whole units of its currency, such as 0.015 ETH."""
    whole, part = divmod(wei, _WEI)
    fraction = f".{part:018d}".rstrip("0.")
    return f"{whole}{fraction} {currency or _ETH}"


def cost(wei: int, currency: str = _ETH) -> str:
    """Return a cost like `amount`, rounded up to `_DIGITS_OF_COST` digits, which suffice to compare costs."""
    step = 10 ** max(0, len(str(wei)) - _DIGITS_OF_COST)
    return amount(-(-wei // step) * step, currency)


_LONGEST_KEY = 20
_BITS_OF_ADDRESS = 160


# --- Facts ------------------------------------------------------------------------------------------------------------


def print_facts(facts: Sequence[client.Fact], currencies: Mapping[int, str]) -> None:
    """Print facts as a table. `currencies` are by chain id."""
    headings = ("chain", "block", "about", "property", "value")
    rows = [
        (fact.source_chain_id, fact.block_number, subject(fact), property_name(fact), fact_value(fact, currencies))
        for fact in facts
    ]
    print_table(headings, rows, empty="There are no facts.")
    say_claims([fact.slot_name for fact in facts])


def say_claims(names: Iterable[Mapping[str, Any] | None]) -> None:
    """Say once that the symbols in slots' names are claims, if there are any."""
    if symbols := sorted({symbol for name in names if name and (symbol := stated_words.symbol(name))}):
        say(f"What tokens call themselves is their own claim, which nothing proves: {', '.join(symbols)}.")


def subject(fact: client.Fact | client.ReadProof) -> str:
    """Return the account, transaction or withdrawal that a fact is about. Empty: it is about the block."""
    if isinstance(fact, client.ReadProof) and fact.withdrawal is not None:
        return f"withdrawal {fact.withdrawal.place}"
    if fact.transaction is None:
        return fact.account
    index, digest = fact.transaction.index, fact.transaction.hash
    return f"transaction {digest}" if index is None else f"transaction {index} {digest}".rstrip()


def property_name(fact: client.Fact | client.ReadProof) -> str:
    if fact.property == "SLOT":
        return _name_in_short(fact.slot_name) if fact.slot_name else slot_in_words(fact.slot)
    if fact.log is not None:
        return f"log {fact.log.index}"
    timestamp = getattr(fact, "timestamp", None)  # proofs are of no time
    return fact.property if timestamp is None else f"block at {timestamp}"


def _name_in_short(name: Mapping[str, Any]) -> str:
    """Return a slot's name in short. The sender states a call, and nothing proves it."""
    if words := stated_words.in_words(name, _in_short):
        return words
    keys = [_key_in_short(key) for key in name.get("keys") or ()]
    slot = str(name.get("slot"))
    known = f" ({known})" if (known := namespace_of(slot)) else ""
    return f"slot {slot}{known}{''.join(f'[{key}]' for key in keys)}"


def _key_in_short(key: Any) -> str:
    return _in_short(" ".join(f"{name} {value}" for name, value in key.items()) if isinstance(key, dict) else str(key))


def _in_short(text: str) -> str:
    return text if len(text) <= _LONGEST_KEY else f"{text[:6]}…{text[-4:]}"


def namespace_of(slot: str) -> str:
    """Return the known namespace of a slot in hexadecimal. Empty: there is none."""
    from batch_query_client.namespaces import namespace  # noqa: PLC0415 (as above)

    return namespace(int(slot, 16)) if re.fullmatch("0x[0-9a-fA-F]{1,64}", slot) else ""


def slot_in_words(slot: str) -> str:
    """Return the slot in hexadecimal, and its namespace or in decimal, as compilers print it."""
    try:
        return f"slot {int(slot, 16):#x} ({namespace_of(slot) or int(slot, 16)})"
    except ValueError:  # the service's text is no slot
        return f"slot {slot}"


def fact_value(fact: client.Fact | client.ReadProof, currencies: Mapping[int, str]) -> str:
    """Return the fact's value: an amount, a number, a log, or the word."""
    if fact.word is None:
        return "not proven yet"
    if fact.log is not None:
        return log_content(fact.log)
    if isinstance(fact, client.ReadProof) and (paid := fact.withdrawal) is not None:
        return f"{paid.amount} Gwei to {paid.address} from validator {paid.validator_index}, index {paid.index}"
    number = int.from_bytes(fact.word)
    if fact.property == "BALANCE":
        return amount(number, currencies.get(fact.source_chain_id, ""))
    if fact.property == "SLOT":
        return _stated_value(fact.slot_name or {}, fact.word)
    is_number = fact.is_number if isinstance(fact, client.Fact) else fact.property in NUMBERS
    return str(number) if is_number else hex_data(fact.word)


def _stated_value(name: Mapping[str, Any], word: bytes) -> str:
    """Return what a slot's name says the word, or a part of it, to be. Without such a name: the word."""
    part = client.SlotPart.stated(name)
    if part is None:
        number = int.from_bytes(word)
        in_decimal = name.get("call") and not name.get("part")
        return stated_words.in_units(name, number) or str(number) if in_decimal else hex_data(word)
    of_amount = is_amount(name)
    number = part.of(word, is_amount=of_amount)
    if of_amount:
        return stated_words.in_units(name, number) or str(number)
    if part.form == "bool":
        return str(bool(number)).lower()
    # Otherwise a part of this size without decimals is an address as a rule.
    is_alike = part.form == "unsigned" and part.size == _BITS_OF_ADDRESS and not name.get("decimals")
    is_address = answer_type(name) == "address" or is_alike
    digits = -(-(_BITS_OF_ADDRESS if is_address else part.size) // 4)
    return f"0x{number:0{digits}x}" if is_address or part.form == "left" else str(number)


def log_content(log: client.ShownLog) -> str:
    """Return a log's emitter, topics and data. Only an ABI tells their meaning, except of an ETH transfer."""
    topics = " ".join(map(hex_data, log.topics)) or "none"
    content = f"by {log.emitter}, topics {topics}, data {hex_data(log.data)}"
    if log.emitter.lower() != _ETH_EMITTER or len(log.topics) != _TOPICS_OF_TRANSFER or len(log.data) != _WORD:
        return content
    from eth_utils.address import to_checksum_address  # noqa: PLC0415 (as above)

    sender, receiver = (to_checksum_address(topic[-20:]) for topic in log.topics[1:])
    return f"ETH transfer of {int.from_bytes(log.data)} wei from {sender} to {receiver}, {content}"


# --- Progress ---------------------------------------------------------------------------------------------------------


@contextmanager
def progress(*, is_json: bool) -> Iterator[Callable[[client.BatchDetails], None]]:
    """Yield a function that shows a batch in one line of a terminal.

    Without a terminal it prints each kind of wait once, but nothing for JSON.
    """
    terminal = console(err=True)
    printed: set[str] = set()
    with terminal.status("") as line:

        def show(batch: client.BatchDetails) -> None:
            wait = _sentence(batch, batch.waits[0]) if batch.waits else ""
            text = _text(f"{batch.status}  {batch.queries_completed} of {batch.queries} queries  {wait}")
            text.truncate(terminal.width - _SPINNER_COLUMNS, overflow="ellipsis")
            line.update(text)
            if terminal.is_terminal or is_json:
                return
            # The numbers in a sentence change as chains go on, so its code decides.
            for waiting in batch.waits:
                if (kind := waiting.code or waiting.sentence) not in printed:
                    printed.add(kind)
                    say(_sentence(batch, waiting))

        yield show


def _sentence(batch: client.BatchDetails, wait: client.Wait) -> str:
    """Return why the batch waits. Where the user must act, it names the command."""
    if wait.code == "left_to_payer":
        command = f"bqs send {batch.internal_id}"
        return f"You pay for this batch: `{command}` sends what is missing. It goes on when its facts are on the chain."
    return wait.sentence
