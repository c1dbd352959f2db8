"""A list of addresses or a table (CSV, RFC 4180) as rows of the form."""

import csv
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from django.core.exceptions import ValidationError

from explorer.new_batch.forms import MAX_ROWS
from queries.columns import AccountField, HeaderField

COLUMNS = ("address", "block", "properties", "slots", "header", "chain")
"""In this order, unless the first line names them."""

_OTHER_NAMES = {"account": "address", "props": "properties", "property": "properties", "slot": "slots"}
_SEPARATORS = re.compile(r"[\s,;|+]+")
_NUMBER = re.compile(r"[0-9][0-9,_ ]*", re.ASCII)
_ADDRESS = re.compile(r"0x[0-9a-fA-F]{40}", re.ASCII)


def read(text: str, like: Mapping[str, Any], chains: Mapping[str, str], most: int) -> tuple[list[dict[str, Any]], int]:
    """Return the rows, as the fields of their forms begin, and the number of lines.

    Lines that differ in their addresses alone share a row. What a line leaves out is as in `like`. `chains` has ids by
    names in small letters. Raises `ValidationError` with the line that is no part of a table of at most `most` lines.
    """
    rows: dict[tuple[str, ...], dict[str, Any]] = {}
    count = 0
    columns: Sequence[str] = COLUMNS
    for number, found in _lines(text):
        # A line of nothing but addresses names accounts.
        cells = [" ".join(found)] if all(_ADDRESS.fullmatch(cell) for cell in found if cell) else found
        names = [_OTHER_NAMES.get(cell.casefold(), cell.casefold()) for cell in cells]
        if not count and columns is COLUMNS and not {*names}.isdisjoint(COLUMNS):
            columns = names
            if unknown := [name for name in names if name not in COLUMNS]:
                raise ValidationError(f"{unknown[0]!r} is no column. The columns are {', '.join(COLUMNS)}.")
            continue
        count += 1
        if count > most:
            raise ValidationError(f"It has more than {most:,} lines. Add them in parts.")
        if len(cells) > len(columns):
            raise ValidationError(f"Line {number} has {len(cells)} cells, and there are {len(columns)} columns.")
        given = dict(zip(columns, cells, strict=False))
        others = tuple(given.get(name, "") for name in COLUMNS[1:])
        row = rows.get(others) or rows.setdefault(others, _row(number, given, like, chains))
        accounts = _split(given.get("address", ""))
        if not accounts and not row["header"]:
            raise ValidationError(f"Line {number} has no address.")
        row["accounts"] += accounts
    if len(rows) > MAX_ROWS:
        raise ValidationError(
            f"It asks for {len(rows):,} different things: blocks, or what is proven at them. The form holds {MAX_ROWS} "
            "rows. Add them in parts, or use the API."
        )
    if not rows:
        raise ValidationError("It has no line that asks for anything.")
    return [row | {"accounts": "\n".join(row["accounts"])} for row in rows.values()], count


def _lines(text: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the number and the cells of each line that is not blank."""
    text = text.removeprefix("\ufeff")
    first = text.lstrip("\r\n ").partition("\n")[0]
    delimiter = "\t" if "\t" in first else ";" if ";" in first and "," not in first else ","
    # With its line breaks: in a quoted cell, they are part of it.
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=True, strict=True)
    try:
        for cells in reader:
            if any(cell.strip() for cell in cells):
                yield reader.line_num, [cell.strip() for cell in cells]
    except csv.Error:
        sentence = f"Line {reader.line_num} can't be read as CSV: look at its quotation marks."
        raise ValidationError(sentence) from None


def _row(number: int, given: Mapping[str, str], like: Mapping[str, Any], chains: Mapping[str, str]) -> dict[str, Any]:
    props, slots, header = (_split(given.get(name, "")) for name in COLUMNS[2:5])
    # A box for what is unknown isn't there to be ticked, so the row would lose it.
    for named, known in ((props, AccountField.names), (header, HeaderField.names)):
        if unknown := [name for name in named if name.upper() not in known]:
            raise ValidationError(f"Line {number}: {unknown[0]!r} is none of {', '.join(known)}.")
    chain = given.get("chain", "")
    row = {**like, "accounts": [], "header": []}
    if chain:
        row["source"] = chains.get(chain.casefold(), chain)
    if props or slots or header:
        row |= {
            "props": [name.upper() for name in props],
            "slots": "\n".join(slots),
            "header": [name.upper() for name in header],
        }
    elif not (row["props"] or row["slots"].strip()):  # `like` asks for a header alone
        row["props"] = ["BALANCE"]
    try:
        return row | _at(given.get("block", ""))
    except (ValueError, OverflowError, OSError):
        raise ValidationError(
            f"Line {number}: {given['block'][:80]!r} is no block. Name it by its number, by a time such as "
            "2026-11-20 12:00:00 in UTC, or as latest or finalized."
        ) from None


def _at(cell: str) -> dict[str, str]:
    kind, _, number = cell.casefold().partition(":")
    if not cell:
        return {}
    if kind in {"latest", "finalized"}:
        return {"at": kind}
    if kind == "block" or _NUMBER.fullmatch(cell):
        return {"at": "block", "block": number or cell}
    if kind == "timestamp":
        return {"at": "time", "time": typed_time(int(number))}
    when = datetime.fromisoformat(cell.removesuffix("UTC").strip())
    return {"at": "time", "time": typed_time(when.replace(tzinfo=when.tzinfo or UTC).timestamp())}


def typed_time(seconds: float) -> str:
    """Return a time as a field for it has it: 2026-11-20T12:00:00. Raises `ValueError`, `OverflowError`, `OSError`."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def _split(cell: str) -> list[str]:
    return [word for word in _SEPARATORS.split(cell) if word]
