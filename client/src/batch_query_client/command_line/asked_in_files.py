"""Queries from a command's arguments, a JSON file or a CSV file, as the body of an API request."""

import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from batch_query_client import (
    TRANSACTION_PROPERTIES,
    Account,
    Header,
    InvalidRequest,
    Transaction,
    Webhook,
    Withdrawals,
    csv_table,
)
from batch_query_client.csv_table import Line
from batch_query_client.questions import Slot, body, slot_hex

_MOST_FAULTS = 20

_Queries = Sequence[Account | Header | Transaction | Withdrawals]
_ByLine = Mapping[int, _Queries]

ChainIds = Callable[[], Mapping[str, int]]
"""Returns the ids of the service's chains by their names in lower case. Called if a file names a chain."""

Connections = Callable[[], Sequence[tuple[int, int]]]
"""Returns the service's connections, each as a source and a destination. Called if a chain is not named."""


@dataclass(frozen=True)
class BatchOptions:
    """The options of `submit`, `estimate` and `proofs`."""

    file: str | None
    destination: int | None
    chain: int | None
    block: str | None
    time: str | None
    accounts: Sequence[str]
    props: Sequence[str]
    slots: Sequence[str]
    transactions: Sequence[str]
    logs: Sequence[int]
    block_logs: Sequence[int]
    header: Sequence[str]
    fee: str | None
    is_paid_by_caller: bool
    webhook: str | None
    webhook_events: Any
    label: str | None = None
    token: str | None = None
    holders: Sequence[str] = ()
    base: str | None = None
    withdrawals: Sequence[int] = ()


class LineFaults:
    """Sentences about lines of a file, each with the numbers of its lines. The number 0 stands for the whole file."""

    def __init__(self) -> None:
        self._lines: dict[str, set[int]] = {}

    def add(self, number: int, sentence: str) -> None:
        self._lines.setdefault(sentence, set()).add(number)

    def __len__(self) -> int:
        return sum(map(len, self._lines.values()))

    def __str__(self) -> str:
        in_order = sorted((sorted(numbers), sentence) for sentence, numbers in self._lines.items())
        sentences = [f"{_named_lines(numbers)}: {sentence}" for numbers, sentence in in_order]
        return "\n  ".join(["The file has faults:", *bounded(sentences)])


class InvalidFile(click.UsageError):
    """Lines of a file have faults."""

    def __init__(self, faults: LineFaults, refused: InvalidRequest | None = None) -> None:
        super().__init__(str(faults))
        self.refused = refused
        """The service's answer, if it alone has found the faults."""


def bounded(sentences: Sequence[str]) -> list[str]:
    """Return the first sentences, and how many more there are."""
    more = len(sentences) - _MOST_FAULTS
    return [*sentences[:_MOST_FAULTS], *([f"and {more} more"] if more > 0 else ())]


@dataclass(frozen=True)
class BatchBody:
    """The body of an API request, and the lines of the file that it comes from."""

    document: Mapping[str, Any]
    lines: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """Their numbers by JSON pointers, in lower case, of what they ask for."""

    @contextmanager
    def naming_lines(self) -> Iterator[None]:
        """Raise `InvalidFile` if the service finds faults in the block. Without a file, leave its error as it is."""
        try:
            yield
        except InvalidRequest as invalid:
            if not self.lines:
                raise
            faults = LineFaults()
            self.add_faults(faults, invalid)
            raise InvalidFile(faults, invalid) from None

    def add_faults(self, faults: LineFaults, invalid: InvalidRequest) -> None:
        """Add the faults that the service has found."""
        for fault in invalid.faults:
            path = fault.path.lower()
            while path and path not in self.lines:
                path = path.rpartition("/")[0]
            for number in self.lines.get(path, (0,)):
                faults.add(number, fault.message)


def batch_body(
    options: BatchOptions,
    chain_ids: ChainIds,
    connections: Connections = tuple,
    check: Callable[[Mapping[str, Any]], InvalidRequest | None] = lambda _: None,
) -> BatchBody:
    """Return the body of the API request. Raises `click.UsageError` and `ValueError`.

    If lines of a file have faults, raises `InvalidFile` with these and those that `check` finds in the others.
    """
    if options.file is None:
        options = connected(options, connections)
        return BatchBody(_body(options, list(_from_arguments(options))))
    text = _text(options.file)
    is_json = text.lstrip().startswith("{")
    has_more = any(value for name, value in vars(options).items() if name not in {"file", "label"})
    named = (options.accounts, options.transactions, options.logs, options.block_logs, options.withdrawals)
    if any(named) or (is_json and has_more):
        raise click.UsageError("Name the facts either in a file or with options, not both.")
    if is_json:
        return BatchBody(_from_json(text) | ({"label": options.label} if options.label is not None else {}))
    options = connected(options, connections)
    faults = LineFaults()
    by_line = _from_csv(options, text, chain_ids, faults)
    if faults and (not by_line or options.destination is None):
        raise InvalidFile(faults)
    queries = [query for of_line in by_line.values() for query in of_line]
    batch = BatchBody(_body(options, queries), _lines_by_pointer(by_line))
    if faults:
        if invalid := check(batch.document):
            batch.add_faults(faults, invalid)
        raise InvalidFile(faults)
    return batch


def _body(options: BatchOptions, queries: _Queries) -> Mapping[str, Any]:
    if options.destination is None:
        raise click.UsageError("Name the chain where the facts become readable: --destination.")
    return body(
        destination=options.destination,
        queries=queries,
        fee=options.fee or (None if options.is_paid_by_caller else "auto"),
        is_paid_by_caller=options.is_paid_by_caller,
        webhook=Webhook(options.webhook, events=options.webhook_events) if options.webhook else None,
        label=options.label,
    )


def _lines_by_pointer(queries: _ByLine) -> Mapping[str, Sequence[int]]:
    """Return the numbers of lines by the pointers to their chains, blocks, and accounts, transactions or headers."""
    lines: dict[str, list[int]] = {}
    for number, of_line in queries.items():
        for query in of_line:
            match query:
                case Account():
                    subject = ["accounts", query.address]
                case Transaction():
                    subject = ["transactions", str(query.transaction)]
                case Header():
                    subject = ["header"]
                case Withdrawals():
                    subject = ["withdrawals"]
            path = "/data"
            for name in (str(query.chain), query.selector, *subject):
                path += f"/{name.lower().replace('~', '~0').replace('/', '~1')}"
                lines.setdefault(path, []).append(number)
    return lines


def connected(options: BatchOptions, connections: Connections) -> BatchOptions:
    """Return the options with missing chains filled in, if exactly one connection fits."""
    if options.chain is not None and options.destination is not None:
        return options
    matches = [
        (source, destination)
        for source, destination in connections()
        if options.chain in {source, None} and options.destination in {destination, None}
    ]
    return replace(options, chain=matches[0][0], destination=matches[0][1]) if len(matches) == 1 else options


def _text(file: str) -> str:
    content = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    try:
        return csv_table.text_of(content)
    except ValueError as error:
        raise click.UsageError(str(error)) from None


# --- Arguments --------------------------------------------------------------------------------------------------------


def _check_names(options: BatchOptions) -> int:
    """Return the source chain. Raises `click.UsageError` if the options lack a name that they need."""
    if options.chain is None:
        raise click.UsageError("Name a file, or the source chain: --chain.")
    if not any((options.accounts, options.transactions, options.header, options.withdrawals)):
        raise click.UsageError(
            "Name the facts: --account with --prop or --slot, --transaction with --prop or --log, or --header."
        )
    if (options.logs or options.block_logs) and not options.transactions:
        raise click.UsageError("Name the transaction of the log: --transaction.")
    if options.slots and not options.accounts:
        raise click.UsageError("Name the account of the slot: --account.")
    if len(options.transactions) > 1 and options.block_logs:
        raise click.UsageError("--block-log needs exactly one transaction: submit the others separately.")
    return options.chain


def _from_arguments(options: BatchOptions) -> Iterator[Account | Header | Transaction | Withdrawals]:
    chain = _check_names(options)
    # The service checks the names.
    props: Any = options.props
    account_props = transaction_props = props
    if options.accounts and options.transactions:
        transaction_props = [name for name in props if name in TRANSACTION_PROPERTIES]
        account_props = [name for name in props if name not in TRANSACTION_PROPERTIES]
    yield from _transactions(options, chain, transaction_props)
    if not any((options.accounts, options.header, options.withdrawals)):
        return
    where: Any = {"chain": chain, **_options_at(options)}
    for account in options.accounts:
        yield Account(account, props=account_props, slots=[*map(read_slot, options.slots)], **where)
    if options.header:
        yield Header(options.header, **where)
    if options.withdrawals:
        yield Withdrawals(options.withdrawals, **where)


def _transactions(options: BatchOptions, chain: int, props: Any) -> Iterator[Transaction]:
    has_block = options.block is not None or options.time is not None
    logs: Any = {"logs": options.logs, "block_logs": options.block_logs}
    for name in options.transactions:
        if name.startswith("0x") and options.block in {"latest", "finalized"}:
            raise click.UsageError("Leave out --block: a transaction's hash already selects its block.")
        at: Any = _options_at(options) if has_block or not name.startswith("0x") else {}
        yield Transaction(name, chain=chain, props=props, **logs, **at)


def _options_at(options: BatchOptions) -> dict[str, int | str | None]:
    """Return the options' `block` and `time`. Raises `click.UsageError`."""
    if options.block is None and options.time is None:
        raise click.UsageError("Name the block: --block, or --time.")
    return {
        "block": None if options.block is None else read_block(options.block),
        "time": None if options.time is None else read_time(options.time),
    }


def read_slot(text: str) -> Slot:
    """Read a slot, `SLOT:KEY:KEY` for a mapping's value, or a name as the API takes it. Raises `ValueError`."""
    if text.startswith("{"):
        try:
            return dict(json.loads(text))
        except ValueError as error:
            raise ValueError(f"The slot's name is no JSON: {error}.") from None
    slot, *keys = text.split(":")
    return {"slot": slot_hex(slot), "keys": keys} if keys else slot_hex(slot)


def read_block(text: str) -> int | str:
    return int(text) if re.fullmatch(r"[0-9]{1,19}", text, re.ASCII) else text


def read_time(text: str) -> int:
    """Read a time in seconds since 1970 or in ISO 8601. UTC if it has no time zone. Raises `click.UsageError`."""
    if re.fullmatch(r"[0-9]{1,19}", text, re.ASCII):
        return int(text)
    try:
        moment = datetime.fromisoformat(text.removesuffix("UTC").strip())
    except ValueError:
        raise click.UsageError(f"{text!r} is no time: seconds since 1970, or as 2025-06-30T12:00:00Z.") from None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp())


# --- Files ------------------------------------------------------------------------------------------------------------


def _from_json(text: str) -> dict[str, Any]:
    try:
        value: dict[str, Any] = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise click.UsageError(f"The file is not JSON: {error}.") from None
    return value


def _from_csv(options: BatchOptions, text: str, chain_ids: ChainIds, faults: LineFaults) -> _ByLine:
    """Return the queries by the numbers of their lines, and add the faults of the other lines.

    Options replace what a line leaves out. Raises `click.UsageError` if no line asks for anything.
    """
    queries: dict[int, _Queries] = {}
    for line in csv_table.lines_of(text):
        told = [*line.faults]
        if not told:
            try:
                queries[line.number] = list(_from_arguments(_options_of(line, options, chain_ids)))
            except click.UsageError as error:
                told.append(error.message)
            except (ValueError, TypeError) as error:
                told.append(str(error))
        for sentence in told:
            faults.add(line.number, sentence)
    if not queries and not faults:
        raise click.UsageError("No line of the file asks for anything.")
    return queries


def _options_of(line: Line, options: BatchOptions, chain_ids: ChainIds) -> BatchOptions:
    """Return what the line asks for as options. Raises `ValueError`."""
    accounts, transactions = line.words("address"), line.words("transaction")
    props, header = ([name.upper() for name in line.words(column)] for column in ("properties", "header"))
    slots = [slot_hex(slot) for slot in line.words("slots")]
    logs = [*map(_log_index, line.words("logs"))]
    if not (props or slots or header or logs):
        of_transactions = [name for name in options.props if name in TRANSACTION_PROPERTIES] or ["STATUS"]
        of_accounts = [name for name in options.props if name not in TRANSACTION_PROPERTIES]
        props = of_transactions * bool(transactions)
        if accounts:
            props += of_accounts or ["BALANCE"] * (not options.slots)
        slots, header = [*options.slots] if accounts else [], [*options.header]
    block = line.cells.get("block", "")
    return replace(
        options,
        chain=_chain(options, line.cells.get("chain", ""), chain_ids),
        block=csv_table.selector(block) if block else options.block,
        time=None if block else options.time,
        accounts=accounts,
        transactions=transactions,
        props=props,
        slots=slots,
        logs=logs,
        header=header,
    )


def _log_index(word: str) -> int:
    if not re.fullmatch("[0-9]{1,19}", word):
        raise ValueError(f"The index of a log is a number, not {word[:80]!r}.")
    return int(word)


def _named_lines(numbers: Sequence[int]) -> str:
    if numbers == [0]:
        return "the whole file"
    more = len(numbers) - _MOST_FAULTS
    first = ", ".join(map(str, numbers[:_MOST_FAULTS]))
    return f"line{'s' * (len(numbers) > 1)} {first}{f' and {more} more' if more > 0 else ''}"


def _chain(options: BatchOptions, cell: str, chain_ids: ChainIds) -> int:
    if not cell:
        if options.chain is None:
            raise ValueError("It names no chain, nor does --chain.")
        return options.chain
    if re.fullmatch(r"[0-9]{1,19}", cell, re.ASCII):
        return int(cell)
    chain_id = chain_ids().get(cell.casefold())
    if chain_id is None:
        raise ValueError(f"{cell!r} is no chain of this service.")
    return chain_id
