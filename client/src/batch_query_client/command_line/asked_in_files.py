"""What to ask for, as the arguments of a command, a JSON file or a CSV file say it: all become the API's body."""

import csv
import io
import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from batch_query_client import Account, Header, Webhook
from batch_query_client.questions import body

_COLUMNS = ("chain", "block", "account", "props", "slots", "header")
_SEPARATORS = re.compile(r"[\s;|]+")
_MOST_FAULTS = 20


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
    webhook_events: Sequence[str]


def document(asked: Asked) -> Mapping[str, Any]:
    """Return the body. Raises `click.UsageError` and `ValueError`."""
    if asked.file is None:
        return _body(asked, list(_from_arguments(asked)))
    if any((asked.chain, asked.block, asked.time, asked.accounts, asked.props, asked.slots, asked.header)):
        raise click.UsageError("Name what to prove either in a file or by options, and not by both.")
    text = _text(asked.file)
    if text.lstrip().startswith("{"):
        return _from_json(asked, text)
    return _body(asked, list(_from_csv(text)))


def _text(file: str) -> str:
    content = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    try:
        return content.decode("utf-8-sig")  # Spreadsheets write a mark in front.
    except UnicodeDecodeError:
        raise click.UsageError("The file is not UTF-8.") from None


def _body(asked: Asked, queries: Sequence[Account | Header]) -> dict[str, Any]:
    if asked.destination is None:
        raise click.UsageError("Name the chain on which the facts are to be readable: --destination.")
    return body(destination=asked.destination, queries=queries) | _envelope(asked, fee="auto")


def _envelope(asked: Asked, *, fee: str | None) -> dict[str, Any]:
    """Return the fields beside the data. `fee` is the default for a batch that the service pays."""
    found: dict[str, Any] = {}
    if asked.is_paid_by_caller:
        found["sender"] = "self"
    if asked.fee is not None:
        found["fee"] = asked.fee
    elif fee is not None and not asked.is_paid_by_caller:
        found["fee"] = fee
    if asked.webhook is not None:
        hook = Webhook(asked.webhook)
        found["webhook"] = {"url": hook.url, "headers": {}}
        if asked.webhook_events:
            found["webhook"]["events"] = list(asked.webhook_events)
    return found


# --- Arguments --------------------------------------------------------------------------------------------------------


def _from_arguments(asked: Asked) -> Iterator[Account | Header]:
    if asked.chain is None:
        raise click.UsageError("Name a file, or the source chain: --chain.")
    if not asked.accounts and not asked.header:
        raise click.UsageError("Name what to prove: --account with --prop or --slot, or --header.")
    block = None if asked.block is None else read_block(asked.block)
    time = None if asked.time is None else read_time(asked.time)
    for account in asked.accounts:
        yield Account(
            account,
            chain=asked.chain,
            block=block,
            time=time,
            props=asked.props,  # type: ignore[arg-type] # the service knows their names
            slots=asked.slots,
        )
    if asked.header:
        yield Header(asked.header, chain=asked.chain, block=block, time=time)


def read_block(text: str) -> int | str:
    return int(text) if re.fullmatch(r"[0-9]{1,19}", text, re.ASCII) else text


def read_time(text: str) -> int:
    """Read seconds since 1970, or ISO 8601, which is in UTC if it has no time zone. Raises `click.UsageError`."""
    if re.fullmatch(r"[0-9]{1,19}", text, re.ASCII):
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise click.UsageError(f"{text!r} is no time: seconds since 1970, or as 2025-06-30T12:00:00Z.") from None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp())


# --- Files ------------------------------------------------------------------------------------------------------------


def _from_json(asked: Asked, text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise click.UsageError(f"The file is not JSON: {error}.") from None
    if not isinstance(value, dict):
        raise click.UsageError("The file holds no object.")
    if asked.destination is not None:
        value["destinationChainId"] = str(asked.destination)
    has_fee = "fee" in value or value.get("sender") == "self"
    return value | _envelope(asked, fee=None if has_fee else "auto")


def _from_csv(text: str) -> Iterator[Account | Header]:
    """Read one account or header a line. Raises `click.UsageError` with all lines that are wrong."""
    rows = csv.DictReader(io.StringIO(text))
    unknown = set(rows.fieldnames or ()) - set(_COLUMNS)
    if unknown or "chain" not in (rows.fieldnames or ()):
        raise click.UsageError(f"The first line of a CSV file names its columns, of {', '.join(_COLUMNS)}.")
    queries: list[Account | Header] = []
    faults: list[str] = []
    for row in rows:
        try:
            queries += _queries_of(row)
        except (ValueError, TypeError) as error:
            faults.append(f"line {rows.line_num}: {error}")
    if faults:
        more = f"\n  and {len(faults) - _MOST_FAULTS} more" if len(faults) > _MOST_FAULTS else ""
        raise click.UsageError("\n  ".join(["The file has faults:", *faults[:_MOST_FAULTS]]) + more)
    yield from queries


def _queries_of(row: Mapping[str, str | None]) -> Iterator[Account | Header]:
    cells = {name: (row.get(name) or "").strip() for name in _COLUMNS}
    if row.get(None):  # type: ignore[call-overload] # where csv puts cells without a column
        raise ValueError("There are more cells than columns.")
    if not re.fullmatch(r"[0-9]{1,19}", cells["chain"], re.ASCII):
        raise ValueError(f"{cells['chain']!r} is no chain id.")
    chain, block = int(cells["chain"]), read_block(cells["block"])
    if not cells["account"] and not cells["header"]:
        raise ValueError("It names neither an account nor properties of a header.")
    if cells["account"]:
        props: Any = _words(cells["props"])
        yield Account(cells["account"], chain=chain, block=block, props=props, slots=_words(cells["slots"]))
    if cells["header"]:
        yield Header(_words(cells["header"]), chain=chain, block=block)


def _words(cell: str) -> list[str]:
    return [word for word in _SEPARATORS.split(cell) if word]
