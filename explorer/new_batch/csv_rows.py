"""Conversion of a list of addresses or a table (CSV, RFC 4180) to rows of the form."""

import csv
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import takewhile
from typing import Any

from django.core.exceptions import ValidationError

from explorer.new_batch.form_sentences import line_fault
from explorer.new_batch.forms import LOG_INDEX, MAX_ROWS, TRANSACTION
from queries.columns import AccountField, HeaderField, TransactionField

COLUMNS = ("address", "block", "properties", "slots", "header", "chain", "transaction", "logs")
"""In this order, unless a line names them."""

_Line = tuple[int, list[str]]
_MOST_FAULTS = 20
_OTHER_NAMES = {
    "account": "address",
    "props": "properties",
    "property": "properties",
    "slot": "slots",
    "tx": "transaction",
    "log": "logs",
}
# Lines share a row unless they differ in another column.
_SUBJECTS = ("address", "transaction")
_SEPARATORS = re.compile(r"[\s,;|+]+")
# Plain digits, or digits in groups of three.
_NUMBER = re.compile(r"[0-9]+|[0-9]{1,3}(?:[,_'\u2019\u00a0\u202f ][0-9]{3})+")
_ADDRESS = re.compile(r"0x[0-9a-fA-F]{40}", re.ASCII)
_NAME_ENDS = re.compile('[",;\t]+')
# A first line from which Excel reads the delimiter. Other spreadsheets append their own delimiters to it.
_HINT = re.compile(r'[\ufeff\r\n ]*"?sep=(?:"?([^\w\s"]|\t))*"? *(?:\r\n?|\n|\Z)', re.IGNORECASE)


def read(text: str, like: Mapping[str, Any], chains: Mapping[str, str], most: int) -> tuple[list[dict[str, Any]], int]:
    """Return the rows, as initial values of their forms, and the number of lines.

    Lines that differ only in their addresses or transactions share a row. `like` has the values that lines leave out.
    `chains` has chain ids by lower-case names. Raises `ValidationError` with the invalid lines, or for more than `most`
    lines.
    """
    rows: dict[tuple[str, ...], dict[str, Any]] = {}
    whole = list(_lines(text))
    columns, lines, faults = _table(whole)
    if len(lines or whole) > most:
        raise line_fault("too_many_lines", most=most)
    for number, cells in lines:
        try:
            given = _given(number, columns, cells)
            others = tuple(given.get(name, "") for name in COLUMNS if name not in _SUBJECTS)
            others += tuple(str(bool(given.get(name))) for name in _SUBJECTS)
            row = rows.get(others) or rows.setdefault(others, _row(number, given, like, chains))
            transactions = _words(number, given, "transaction", TRANSACTION)
            row["transactions"] += transactions
            row["accounts"] += _accounts(number, given, is_needed=not row["header"] and not transactions)
        except ValidationError as error:
            faults.append(error)
    if faults:
        more = len(faults) - _MOST_FAULTS
        raise ValidationError(faults[:_MOST_FAULTS] + [line_fault("more_faults", count=more)] * (more > 0))
    if len(rows) > MAX_ROWS:
        raise line_fault("too_many_rows", count=len(rows), most=MAX_ROWS)
    if not rows:
        raise line_fault("no_lines")
    lists = "accounts", "transactions"
    return [row | {name: "\n".join(row[name]) for name in lists} for row in rows.values()], len(lines)


# --- Lines and columns: `bqs` reads them alike, in `asked_in_files.py` ------------------------------------------------


def _lines(text: str) -> Iterator[_Line]:
    """Yield the number and the cells of each line, without blank lines, comments and trailing empty cells."""
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
        raise line_fault("bad_csv", number=number) from None


def _is_comment(cells: Sequence[str]) -> bool:
    words = [cells[0].lstrip("# "), *cells[1:]]
    # Some tools put # before the names of columns. In numbered tables, # may be the name of the first column.
    is_of_names = len(cells) > 1 and all(word and " " not in word for word in words[1:]) and " " not in words[0]
    return cells[0].startswith("#") and not is_of_names


def _delimiter(text: str) -> str:
    """Return the delimiter of the line with columns' names, else of the first line with an address or at all."""
    lines = [
        line for line in re.split(r"[\r\n]+", text) if line.strip() and not _is_comment(_NAME_ENDS.split(line.strip()))
    ]
    head = max(lines, key=lambda line: _likeness(_NAME_ENDS.split(line)), default="")
    if {*map(_column, _NAME_ENDS.split(head))}.isdisjoint(COLUMNS):
        head = next(filter(_ADDRESS.search, lines), lines[0] if lines else "")
    head = re.sub('"[^"]*"', "", head)
    return "\t" if "\t" in head else next((letter for letter in head if letter in ";,"), ",")


def _table(lines: Sequence[_Line]) -> tuple[Sequence[str], Sequence[_Line], list[ValidationError]]:
    """Return the columns, the lines below the line that names them, and faults of that line and those above."""
    heads = [line for line in lines if _names_columns(line[1])]
    if not heads:
        above = list(takewhile(lambda line: not _begins_table(line[1]), lines))
        codes = ["no_table"] * (len(above) - 1) + ["no_table_at_all"]
        if above:
            faults = [
                line_fault(code, number=number, cells=_shown(cells), names=", ".join(COLUMNS))
                for code, (number, cells) in zip(codes, above, strict=True)
            ]
            return COLUMNS, (), faults
        return COLUMNS, [(number, _one_cell_of_addresses(cells)) for number, cells in lines], []
    number, head = max(heads, key=lambda line: _likeness(line[1]))
    columns = [*map(_column, head)]
    faults = [
        line_fault("above_columns", above=above, number=number)
        for above, cells in lines
        if above < number and _begins_table(cells) and (cells[0] or any(map(_ADDRESS.fullmatch, cells)))
    ]
    faults += [
        line_fault("value_above_columns", above=above, cells=_shown(cells), number=number)
        for above, cells in lines
        if above < number and _says_column(cells)
    ]
    unknown = [name for name in columns if name and name not in COLUMNS]
    faults += [line_fault("unknown_column", name=name, number=number, names=", ".join(COLUMNS)) for name in unknown]
    faults += [line_fault("column_twice", number=number, name=name) for name in COLUMNS if columns.count(name) > 1]
    return columns, () if faults else [line for line in lines if line[0] > number], faults


def _begins_table(cells: Sequence[str]) -> bool:
    """Return whether the line begins with accounts or has an address. Titles and lines of unknown names don't."""
    return all(map(_is_account, _split(cells[0]))) or any(map(_ADDRESS.fullmatch, cells))


def _names_columns(cells: Sequence[str]) -> bool:
    return not {*map(_column, cells)}.isdisjoint(COLUMNS) and not any(map(_is_account, cells))


def _says_column(cells: Sequence[str]) -> bool:
    """Return whether the line sets a column's value, as `Chain,Ethereum` or `Block: 5` does."""
    name, colon, _ = cells[0].partition(":")
    return _column(name) in COLUMNS and (len(cells) > 1 or bool(colon))


def _likeness(head: Sequence[str]) -> tuple[bool, bool, int]:
    """Return a score of how likely the line names columns. Lines such as `Chain,Ethereum` may come before it."""
    names = [name for name in map(_column, head) if name]
    known = [name for name in names if name in COLUMNS]
    return known == names != [], "address" in known, len(known)


def _column(cell: str) -> str:
    name = cell.strip().casefold()
    name = name.lstrip("# ") or name
    return _OTHER_NAMES.get(name, name)


def _is_account(word: str) -> bool:
    """Return whether the word looks like an address or a name, valid or not."""
    is_name = "." in word[1:-1] and {*word}.isdisjoint(":/ ") and not word.replace(".", "").isdecimal()
    return word[:2].lower() == "0x" or is_name


def _one_cell_of_addresses(cells: list[str]) -> list[str]:
    """Join the cells of a line that has only addresses. They are all accounts."""
    return [" ".join(cells)] if all(map(_ADDRESS.fullmatch, filter(None, cells))) else cells


def _shown(cells: Sequence[str]) -> str:
    return ", ".join(repr(cell[:40]) for cell in cells[:3])


# --- Rows -------------------------------------------------------------------------------------------------------------


def _given(number: int, columns: Sequence[str], cells: Sequence[str]) -> Mapping[str, str]:
    """Return the cells by column. Raises `ValidationError`."""
    if len(cells) > len(columns):
        raise line_fault("too_many_cells", number=number, count=len(cells), columns=len(columns))
    given = list(zip(columns, cells, strict=False))
    if nameless := [cell for name, cell in given if cell and not name]:
        raise line_fault("nameless_column", number=number, word=nameless[0][:80])
    return dict(given)


def _accounts(number: int, given: Mapping[str, str], *, is_needed: bool) -> list[str]:
    accounts = _split(given.get("address", ""))
    if not accounts and is_needed:
        raise line_fault("no_address", number=number)
    if wrong := [word for word in accounts if not _is_account(word)]:
        raise line_fault("bad_account", number=number, word=wrong[0][:80])
    return accounts


def _words(number: int, given: Mapping[str, str], column: str, form: re.Pattern[str]) -> list[str]:
    words = _split(given.get(column, ""))
    if wrong := [word for word in words if not form.fullmatch(word)]:
        raise line_fault(f"bad_{column}", number=number, word=wrong[0][:80])
    return words


def _row(number: int, given: Mapping[str, str], like: Mapping[str, Any], chains: Mapping[str, str]) -> dict[str, Any]:
    props, slots, header = (_split(given.get(name, "").upper()) for name in COLUMNS[2:5])
    logs = _words(number, given, "logs", LOG_INDEX)
    of_transactions = TransactionField.names if given.get("transaction") else []
    of_accounts = AccountField.names if given.get("address") or not of_transactions else []
    # The form has no checkbox for an unknown property, so the row would lose it.
    for named, known in ((props, [*of_accounts, *of_transactions]), (header, HeaderField.names)):
        if unknown := [name for name in named if name not in known]:
            raise line_fault("bad_name", number=number, word=unknown[0], names=", ".join(known))
    chain = given.get("chain", "")
    row = {**like, "accounts": [], "transactions": [], "header": []}
    if chain:
        row["source"] = chains.get(chain.casefold(), chain)
    if props or slots or header or logs:
        row |= {
            "props": [name for name in props if name in of_accounts],
            "slots": "\n".join(slots).lower(),
            "tx_props": [name for name in props if name in of_transactions],
            "logs": " ".join(logs),
            "block_logs": "",
            "header": header,
        }
    else:  # The last row may request nothing of this kind.
        if of_accounts and not (row["props"] or (row["slots"] or "").strip()):
            row["props"] = ["BALANCE"]
        if of_transactions and not (row["tx_props"] or f"{row['logs'] or ''}{row['block_logs'] or ''}".strip()):
            row["tx_props"] = ["STATUS"]
    try:
        return row | _at(given.get("block", ""))
    except (ValueError, OverflowError, OSError):
        raise line_fault("bad_block", number=number, word=given["block"][:80]) from None


def _at(cell: str) -> dict[str, str]:
    kind, _, number = cell.casefold().partition(":")
    if not cell:
        return {}
    if cell.casefold() in {"latest", "finalized"}:
        return {"at": kind}
    if _NUMBER.fullmatch(digits := number.strip() if kind == "block" else cell):
        return {"at": "block", "block": re.sub("[^0-9]", "", digits)}
    if kind == "transaction" and number.startswith("0x") and TRANSACTION.fullmatch(number):
        return {"at": kind, "block_of": number}
    if kind == "timestamp":
        return {"at": "time", "time": typed_time(int(number))}
    when = datetime.fromisoformat(cell.removesuffix("UTC").strip())
    return {"at": "time", "time": typed_time(when.replace(tzinfo=when.tzinfo or UTC).timestamp())}


def typed_time(seconds: float) -> str:
    """Return a time as in a form field: 2026-11-20T12:00:00. Raises `ValueError`, `OverflowError`, `OSError`."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def _split(cell: str) -> list[str]:
    return [word for word in _SEPARATORS.split(cell) if word]
