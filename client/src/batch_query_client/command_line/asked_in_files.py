"""What to ask for, as the arguments of a command, a JSON file or a CSV file say it: all become the API's body."""

import csv
import io
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from batch_query_client import Account, Header, Webhook
from batch_query_client.questions import body

# In this order, unless the first line names them.
_COLUMNS = ("address", "block", "properties", "slots", "header", "chain")
_ASKED = ("properties", "slots", "header")
_OTHER_NAMES = {"account": "address", "props": "properties", "property": "properties", "slot": "slots"}
_SEPARATORS = re.compile(r"[\s,;|+]+")
_NUMBER = re.compile(r"[0-9][0-9,_ ]*", re.ASCII)
_ADDRESS = re.compile(r"0x[0-9a-fA-F]{40}", re.ASCII)
_MOST_FAULTS = 20


ChainIds = Callable[[], Mapping[str, int]]
"""Returns the ids of the service's chains by their names in small letters: it is asked where a file names one."""


@dataclass(frozen=True)
class Asked:
    """The arguments of `submit` and `estimate`."""

    file: str | None
    destination: int | None
    chain: int | None
    block: str | None
    time: str | None
    accounts: Sequence[str]
    props: Sequence[str]
    slots: Sequence[str]
    header: Sequence[str]
    fee: str | None
    is_paid_by_caller: bool
    webhook: str | None
    webhook_events: Any


def document(asked: Asked, chain_ids: ChainIds) -> Mapping[str, Any]:
    """Return the body. Raises `click.UsageError` and `ValueError`."""
    if asked.file is None:
        queries = list(_from_arguments(asked))
    else:
        text = _text(asked.file)
        is_json = text.lstrip().startswith("{")
        if asked.accounts or (is_json and any(value for name, value in vars(asked).items() if name != "file")):
            raise click.UsageError("Name what to prove either in a file or by options, and not by both.")
        if is_json:
            return _from_json(text)
        queries = _from_csv(asked, text, chain_ids)
    if asked.destination is None:
        raise click.UsageError("Name the chain on which the facts are to be readable: --destination.")
    return body(
        destination=asked.destination,
        queries=queries,
        fee=asked.fee or (None if asked.is_paid_by_caller else "auto"),
        is_paid_by_caller=asked.is_paid_by_caller,
        webhook=Webhook(asked.webhook, events=asked.webhook_events) if asked.webhook else None,
    )


def _text(file: str) -> str:
    content = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    try:
        return content.decode("utf-8-sig")  # Spreadsheets write a mark in front.
    except UnicodeDecodeError:
        raise click.UsageError("The file is not UTF-8.") from None


# --- Arguments --------------------------------------------------------------------------------------------------------


def _from_arguments(asked: Asked) -> Iterator[Account | Header]:
    if asked.chain is None:
        raise click.UsageError("Name a file, or the source chain: --chain.")
    if not asked.accounts and not asked.header:
        raise click.UsageError("Name what to prove: --account with --prop or --slot, or --header.")
    where: Any = {"chain": asked.chain, **_options_at(asked)}
    props: Any = asked.props  # The service knows their names.
    for account in asked.accounts:
        yield Account(account, props=props, slots=asked.slots, **where)
    if asked.header:
        yield Header(asked.header, **where)


def _options_at(asked: Asked) -> dict[str, int | str | None]:
    """Return `block` and `time` as the options say them. Raises `click.UsageError`."""
    if asked.block is None and asked.time is None:
        raise click.UsageError("Name the block: --block, or --time.")
    return {
        "block": None if asked.block is None else read_block(asked.block),
        "time": None if asked.time is None else read_time(asked.time),
    }


def read_block(text: str) -> int | str:
    return int(text) if re.fullmatch(r"[0-9]{1,19}", text, re.ASCII) else text


def read_time(text: str) -> int:
    """Read seconds since 1970, or ISO 8601, which is in UTC if it has no time zone. Raises `click.UsageError`."""
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


def _from_csv(asked: Asked, text: str, chain_ids: ChainIds) -> list[Account | Header]:
    """Return what each line asks for; what a line leaves out is as the options say.

    The service's form takes the same files. Raises `click.UsageError` with all lines that are wrong.
    """
    lines = list(_lines(text))
    columns: Sequence[str] = _COLUMNS
    if lines and any(_column(cell) in _COLUMNS for cell in lines[0][1]):
        columns = [_column(cell) for cell in lines.pop(0)[1]]
        if unknown := [name for name in columns if name not in _COLUMNS]:
            raise click.UsageError(f"{unknown[0]!r} is no column; the columns are {', '.join(_COLUMNS)}.")
    else:
        lines = [(number, _one_cell_of_addresses(cells)) for number, cells in lines]
    if not lines:
        raise click.UsageError("The file has no line that asks for anything.")
    queries: list[Account | Header] = []
    faults: list[str] = []
    for number, cells in lines:
        try:
            queries += _queries_of(asked, columns, cells, chain_ids)
        except (ValueError, TypeError, click.UsageError) as error:
            faults.append(f"line {number}: {error}")
    if faults:
        more = [f"and {len(faults) - _MOST_FAULTS} more"] if len(faults) > _MOST_FAULTS else []
        raise click.UsageError("\n  ".join(["The file has faults:", *faults[:_MOST_FAULTS], *more]))
    return queries


def _lines(text: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the number and the cells of each line that is not blank."""
    first = text.lstrip().partition("\n")[0]
    delimiter = "\t" if "\t" in first else ";" if ";" in first and "," not in first else ","
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=True, strict=True)
    number = 1
    try:
        for cells in reader:
            if any(cell.strip() for cell in cells):
                yield number, [cell.strip() for cell in cells]
            number = reader.line_num + 1
    except csv.Error as error:
        raise click.UsageError(f"The file can't be read as CSV: {error}.") from None


def _column(cell: str) -> str:
    return _OTHER_NAMES.get(cell.casefold(), cell.casefold())


def _one_cell_of_addresses(cells: list[str]) -> list[str]:
    """Join the cells of a line that is nothing but addresses: all of them are accounts."""
    return [" ".join(cells)] if all(map(_ADDRESS.fullmatch, filter(None, cells))) else cells


def _queries_of(
    asked: Asked, columns: Sequence[str], given: Sequence[str], chain_ids: ChainIds
) -> Iterator[Account | Header]:
    if len(given) > len(columns):
        raise ValueError("There are more cells than columns.")
    cells = dict(zip(columns, given, strict=False))
    accounts, props, slots, header = (_words(cells.get(name, "")) for name in ("address", *_ASKED))
    if not (props or slots or header):
        props, slots, header = list(asked.props), list(asked.slots), list(asked.header)
    where: Any = {"chain": _chain(asked, cells.get("chain", ""), chain_ids), **_at(asked, cells.get("block", ""))}
    if not accounts and not header:
        raise ValueError("It names neither an account nor properties of a header.")
    names: Any = [name.upper() for name in props]
    for account in accounts:
        yield Account(account, props=names, slots=slots, **where)
    if header:
        yield Header([name.upper() for name in header], **where)


def _chain(asked: Asked, cell: str, chain_ids: ChainIds) -> int:
    if not cell:
        if asked.chain is None:
            raise ValueError("It names no chain, nor does --chain.")
        return asked.chain
    if re.fullmatch(r"[0-9]{1,19}", cell, re.ASCII):
        return int(cell)
    found = chain_ids().get(cell.casefold())
    if found is None:
        raise ValueError(f"{cell!r} is no chain of this service.")
    return found


def _at(asked: Asked, cell: str) -> dict[str, int | str | None]:
    """Return `block` or `time` as `Account` takes them. Raises `click.UsageError`."""
    if not cell:
        return _options_at(asked)
    kind, _, number = cell.casefold().partition(":")
    if kind in {"latest", "finalized"}:
        return {"block": kind}
    if kind == "block" or _NUMBER.fullmatch(cell):
        return {"block": read_block(re.sub("[,_ ]", "", number or cell))}
    return {"time": read_time(number if kind == "timestamp" else cell)}


def _words(cell: str) -> list[str]:
    return [word for word in _SEPARATORS.split(cell) if word]
