"""Queries from a command's arguments, a JSON file or a CSV file, as the body of an API request."""

import csv
import io
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Any, TypeVar

import click

from batch_query_client import TRANSACTION_PROPERTIES, Account, Header, InvalidRequest, Transaction, Webhook
from batch_query_client.questions import Slot, body, slot_hex

# The order of columns if no line names the columns.
_COLUMNS = ("address", "block", "properties", "slots", "header", "chain")
_FACT_COLUMNS = ("properties", "slots", "header")
_OTHER_NAMES = {"account": "address", "props": "properties", "property": "properties", "slot": "slots"}
_SEPARATORS = re.compile(r"[\s,;|+]+")
# A number, whose digits may be grouped by three.
_NUMBER = re.compile(r"[0-9]+|[0-9]{1,3}(?:[,_'\u2019\u00a0\u202f ][0-9]{3})+")
_ADDRESS = re.compile(r"0x[0-9a-fA-F]{40}", re.ASCII)
_NAME_ENDS = re.compile('[",;\t]+')
# A first line that tells Excel the delimiter. Other spreadsheets may append their own delimiters to the line.
_HINT = re.compile(r'[\ufeff\r\n ]*"?sep=(?:"?([^\w\s"]|\t))*"? *(?:\r\n?|\n|\Z)', re.IGNORECASE)
_MOST_FAULTS = 20

_Line = tuple[int, list[str]]
Read = TypeVar("Read")

ChainIds = Callable[[], Mapping[str, int]]
"""Returns the ids of the service's chains by their names in lower case. Called if a file names a chain."""

Connections = Callable[[], Sequence[tuple[int, int]]]
"""Returns the service's connections, each as a source and a destination. Called if a chain is not named."""


@dataclass(frozen=True)
class BatchOptions:
    """The options of `submit` and `estimate`."""

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
        options = _connected(options, connections)
        return BatchBody(_body(options, list(_from_arguments(options))))
    text = _text(options.file)
    is_json = text.lstrip().startswith("{")
    has_more = any(value for name, value in vars(options).items() if name != "file")
    if options.accounts or options.transactions or options.logs or options.block_logs or (is_json and has_more):
        raise click.UsageError("Name the facts either in a file or by options, not by both.")
    if is_json:
        return BatchBody(_from_json(text))
    options = _connected(options, connections)
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


def _body(options: BatchOptions, queries: Sequence[Account | Header | Transaction]) -> Mapping[str, Any]:
    if options.destination is None:
        raise click.UsageError("Name the chain on which the facts are to be readable: --destination.")
    return body(
        destination=options.destination,
        queries=queries,
        fee=options.fee or (None if options.is_paid_by_caller else "auto"),
        is_paid_by_caller=options.is_paid_by_caller,
        webhook=Webhook(options.webhook, events=options.webhook_events) if options.webhook else None,
    )


def _lines_by_pointer(queries: Mapping[int, Sequence[Account | Header]]) -> Mapping[str, Sequence[int]]:
    """Return the numbers of lines by the pointers to their chains, blocks, and accounts or headers."""
    lines: dict[str, list[int]] = {}
    for number, of_line in queries.items():
        for query in of_line:
            path = "/data"
            subject = ("header",) if isinstance(query, Header) else ("accounts", query.address.lower())
            for name in (str(query.chain), query.selector, *subject):
                path += f"/{name.replace('~', '~0').replace('/', '~1')}"
                lines.setdefault(path, []).append(number)
    return lines


def _connected(options: BatchOptions, connections: Connections) -> BatchOptions:
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
        return content.decode("utf-8-sig")  # without the byte order mark that spreadsheets write
    except UnicodeDecodeError:
        raise click.UsageError("The file is not UTF-8. In a spreadsheet, save it as “CSV UTF-8”.") from None


# --- Arguments --------------------------------------------------------------------------------------------------------


def _from_arguments(options: BatchOptions) -> Iterator[Account | Header | Transaction]:
    if options.chain is None:
        raise click.UsageError("Name a file, or the source chain: --chain.")
    if not options.accounts and not options.transactions and not options.header:
        raise click.UsageError(
            "Name the facts: --account with --prop or --slot, --transaction with --prop or --log, or --header."
        )
    if (options.logs or options.block_logs) and not options.transactions:
        raise click.UsageError("Name the transaction of the log: --transaction.")
    if len(options.transactions) > 1 and options.block_logs:
        raise click.UsageError("--block-log is of one transaction: submit the others apart.")
    # The service checks the names.
    props: Any = options.props
    account_props = transaction_props = props
    if options.accounts and options.transactions:
        transaction_props = [name for name in props if name in TRANSACTION_PROPERTIES]
        account_props = [name for name in props if name not in TRANSACTION_PROPERTIES]
    yield from _transactions(options, options.chain, transaction_props)
    if not options.accounts and not options.header:
        return
    where: Any = {"chain": options.chain, **_options_at(options)}
    for account in options.accounts:
        yield Account(account, props=account_props, slots=[*map(read_slot, options.slots)], **where)
    if options.header:
        yield Header(options.header, **where)


def _transactions(options: BatchOptions, chain: int, props: Any) -> Iterator[Transaction]:
    has_block = options.block is not None or options.time is not None
    logs: Any = {"logs": options.logs, "block_logs": options.block_logs}
    for name in options.transactions:
        if name.startswith("0x") and options.block in {"latest", "finalized"}:
            raise click.UsageError("Leave out --block: a transaction's hash names its own block.")
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


def _from_csv(
    options: BatchOptions, text: str, chain_ids: ChainIds, faults: LineFaults
) -> Mapping[int, Sequence[Account | Header]]:
    """Return the queries by the numbers of their lines, and add the faults of the other lines.

    Options replace what a line leaves out. Raises `click.UsageError` if no line asks for anything.
    """
    columns, lines = _table(list(_lines(text, faults)), faults)
    queries: dict[int, Sequence[Account | Header]] = {}
    for number, cells in lines:
        before = len(faults)
        of_line = _queries_of(options, columns, cells, chain_ids, partial(faults.add, number))
        if len(faults) == before:
            queries[number] = of_line
    if not queries and not faults:
        raise click.UsageError("The file has no line that asks for anything.")
    return queries


def _named_lines(numbers: Sequence[int]) -> str:
    if numbers == [0]:
        return "the whole file"
    more = len(numbers) - _MOST_FAULTS
    first = ", ".join(map(str, numbers[:_MOST_FAULTS]))
    return f"line{'s' * (len(numbers) > 1)} {first}{f' and {more} more' if more > 0 else ''}"


# --- Lines and columns, read as in the service's form -----------------------------------------------------------------


def _lines(text: str, faults: LineFaults) -> Iterator[_Line]:
    """Yield the number and the cells of each line. Skip blank lines, comments and empty cells at the end."""
    hint = _HINT.match(text)
    above, text = (len(hint[0].splitlines()), text[hint.end() :]) if hint else (0, text.lstrip("\ufeff"))
    delimiter = (hint and hint[1]) or _delimiter(text)
    # Line breaks are kept, because a quoted cell may contain them.
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=True, strict=True)
    number = above + 1
    try:
        for record in reader:
            cells = [cell.strip() for cell in record]
            while cells and not cells[-1]:
                cells.pop()
            if cells and not _is_comment(cells):
                yield number, cells
            number = above + reader.line_num + 1
    except csv.Error:
        faults.add(number, "It can't be read as CSV: look at its quotation marks.")


def _is_comment(cells: Sequence[str]) -> bool:
    words = [cells[0].lstrip("# "), *cells[1:]]
    # Some tools write # before the names of columns, or call the column of line numbers "#".
    is_of_names = len(cells) > 1 and all(word and " " not in word for word in words[1:]) and " " not in words[0]
    return cells[0].startswith("#") and not is_of_names


def _delimiter(text: str) -> str:
    """Return the delimiter of the line that names columns, else of the first line with an address, else of line 1."""
    lines = [
        line for line in re.split(r"[\r\n]+", text) if line.strip() and not _is_comment(_NAME_ENDS.split(line.strip()))
    ]
    head = max(lines, key=lambda line: _likeness(_NAME_ENDS.split(line)), default="")
    if {*map(_column, _NAME_ENDS.split(head))}.isdisjoint(_COLUMNS):
        head = next(filter(_ADDRESS.search, lines), lines[0] if lines else "")
    head = re.sub('"[^"]*"', "", head)
    return "\t" if "\t" in head else next((letter for letter in head if letter in ";,"), ",")


def _table(lines: Sequence[_Line], faults: LineFaults) -> tuple[Sequence[str], Sequence[_Line]]:
    """Return the columns, and the lines below the line that names them. Add the faults of the lines up to that line."""
    heads = [line for line in lines if _names_columns(line[1])]
    if not heads:
        above = list(takewhile(lambda line: not _begins_table(line[1]), lines))
        for at, cells in above:
            names = f" The columns are {', '.join(_COLUMNS)}." if at == above[-1][0] else ""
            faults.add(at, f"It names neither an account nor a column: {_shown(cells[:3])}.{names}")
        # Below names of other columns, cells may be anything.
        below = [line for line in lines[len(above) :] if not above or len(line[1]) == 1]
        return _COLUMNS, [(number, _one_cell_of_addresses(cells)) for number, cells in below]
    number, head = max(heads, key=lambda line: _likeness(line[1]))
    columns = [*map(_column, head)]
    for at, cells in takewhile(lambda line: line[0] < number, lines):
        if _begins_table(cells) and (cells[0] or any(map(_ADDRESS.fullmatch, cells))):
            faults.add(at, f"It names an account above the columns, which line {number} names.")
        if _says_column(cells):
            where = f"above the columns, which line {number} names: put it into a column"
            faults.add(at, f"It says {_shown(cells[:3])} {where}.")
    for name in columns:
        if name and name not in _COLUMNS:
            faults.add(number, f"{name!r} is no column; the columns are {', '.join(_COLUMNS)}.")
    for name in _COLUMNS:
        if columns.count(name) > 1:
            faults.add(number, f"It names the column {name} twice.")
    return columns, [line for line in lines if line[0] > number]


def _begins_table(cells: Sequence[str]) -> bool:
    """Return whether a line is data, not a title and not column names of another tool."""
    return all(map(_is_account, _words(cells[0]))) or any(map(_ADDRESS.fullmatch, cells))


def _names_columns(cells: Sequence[str]) -> bool:
    return not {*map(_column, cells)}.isdisjoint(_COLUMNS) and not any(map(_is_account, cells))


def _says_column(cells: Sequence[str]) -> bool:
    """Return whether a line sets a column's value for the whole file, like `Chain,Ethereum` and `Block: 5`."""
    name, colon, _ = cells[0].partition(":")
    return _column(name) in _COLUMNS and (len(cells) > 1 or bool(colon))


def _likeness(head: Sequence[str]) -> tuple[bool, bool, int]:
    """Rank a line as the one that names columns. Lines above that line may be like `Chain,Ethereum`."""
    names = [name for name in map(_column, head) if name]
    known = [name for name in names if name in _COLUMNS]
    return known == names != [], "address" in known, len(known)


def _column(cell: str) -> str:
    name = cell.strip().casefold()
    name = name.lstrip("# ") or name
    return _OTHER_NAMES.get(name, name)


def _is_account(word: str) -> bool:
    """Return whether a word seems to be an address or a name, valid or not."""
    is_name = "." in word[1:-1] and {*word}.isdisjoint(":/ ") and not word.replace(".", "").isdecimal()
    return word[:2].lower() == "0x" or is_name


def _one_cell_of_addresses(cells: list[str]) -> list[str]:
    """Join the cells of a line if all are addresses, because all of them are accounts."""
    return [" ".join(cells)] if all(map(_ADDRESS.fullmatch, filter(None, cells))) else cells


def _shown(cells: Sequence[str]) -> str:
    return ", ".join(bounded([repr(cell[:40]) for cell in cells]))


# --- Queries ----------------------------------------------------------------------------------------------------------


def _queries_of(
    options: BatchOptions,
    columns: Sequence[str],
    values: Sequence[str],
    chain_ids: ChainIds,
    tell: Callable[[str], None],
) -> list[Account | Header]:
    """Return the queries of a line, or tell its faults."""
    if len(values) > len(columns):
        tell("There are more cells than columns.")
    if nameless := [cell for name, cell in zip(columns, values, strict=False) if cell and not name]:
        tell(f"In a column without a name: {_shown(nameless)}.")
    cells = dict(zip(columns, values, strict=False))
    accounts, props, slot_texts, header = (_words(cells.get(name, "")) for name in ("address", *_FACT_COLUMNS))
    if not (props or slot_texts or header):
        props, slot_texts, header = list(options.props), list(options.slots), list(options.header)
    chain = _told(tell, lambda: _chain(options, cells.get("chain", ""), chain_ids))
    at = _told(tell, lambda: _at(options, cells.get("block", "")))
    slots: Any = [_told(tell, partial(read_slot, text)) for text in slot_texts]
    if not accounts and not header:
        tell("It names neither an account nor properties of a header.")
    if wrong := [word for word in accounts if not _is_account(word)]:
        tell(f"Neither an address nor a name: {_shown(wrong)}.")
    if chain is None or at is None or None in slots:
        return []
    where: Any = {"chain": chain, **at}
    names: Any = [name.upper() for name in props]

    def queries() -> list[Account | Header]:
        of_accounts = [Account(account, props=names, slots=slots, **where) for account in accounts]
        return [*of_accounts, *([Header([name.upper() for name in header], **where)] if header else [])]

    return _told(tell, queries) or []


def _told(tell: Callable[[str], None], read: Callable[[], Read]) -> Read | None:
    """Return what `read` returns, or tell its error."""
    try:
        return read()
    except click.UsageError as error:
        tell(error.message)
    except (ValueError, TypeError) as error:
        tell(str(error))
    return None


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


def _at(options: BatchOptions, cell: str) -> dict[str, int | str | None]:
    """Return the arguments `block` or `time` of `Account`. Raises `click.UsageError`."""
    if not cell:
        return _options_at(options)
    kind, _, number = cell.casefold().partition(":")
    if cell.casefold() in {"latest", "finalized"}:
        return {"block": kind}
    if _NUMBER.fullmatch(digits := number.strip() if kind == "block" else cell):
        return {"block": read_block(re.sub("[^0-9]", "", digits))}
    try:
        return {"time": read_time(number if kind == "timestamp" else cell)}
    except click.UsageError:
        raise ValueError(
            f"{cell[:80]!r} is no block. Name it by its number, by a time such as 2026-11-20 12:00:00 in UTC, or as "
            "latest or finalized."
        ) from None


def _words(cell: str) -> list[str]:
    return [word for word in _SEPARATORS.split(cell) if word]
