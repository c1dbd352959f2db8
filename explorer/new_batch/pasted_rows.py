"""A list of addresses or a table (CSV, RFC 4180) as rows of the form.

Lines that ask the same at the same block share a row. What a line leaves out is as in a given row.
"""

import csv
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from explorer.new_batch.drafts import MAX_ROWS, Row, iso_time, unix_seconds
from queries.models import BlockTag

COLUMNS = ("address", "block", "properties", "slots", "header", "chain")
"""In this order, unless the first line names them."""

_OTHER_NAMES = {"account": "address", "props": "properties", "property": "properties", "slot": "slots"}
_SEPARATORS = re.compile(r"[\s,;|+]+")
_NUMBER = re.compile(r"[0-9][0-9,_ ]*", re.ASCII)


@dataclass(frozen=True)
class LineFault:
    line: int  # of the text, from 1; 0: about all of it
    sentence: str


@dataclass(frozen=True)
class Pasted:
    rows: tuple[Row, ...]
    lines: Sequence[Sequence[int]]  # of each row, the line of the text that each line of its accounts is from
    faults: tuple[LineFault, ...] = ()

    def line(self, row: int | None, line_of_accounts: int) -> int:
        """Where in the text it is: the first line of the row, if it is about all of that."""
        lines = () if row is None else self.lines[row]
        return lines[max(line_of_accounts, 1) - 1] if lines else 0


@dataclass(frozen=True)
class _Line:
    number: int
    cells: Sequence[str]


def read(text: str, like: Row, chains: Mapping[str, str]) -> Pasted:
    """`like` says what lines leave out. `chains` has the ids of chains by their names, in small letters."""
    try:
        lines = list(_lines(text))
    except csv.Error as error:
        return Pasted((), (), (LineFault(0, f"It can't be read as CSV: {error}."),))
    if not lines:
        return Pasted((), (), (LineFault(0, "There is nothing in it."),))
    columns: Sequence[str] = COLUMNS
    if any(_column(cell) for cell in lines[0].cells):
        columns = [_column(cell) or cell for cell in lines[0].cells]
        if unknown := [name for name in columns if name not in COLUMNS]:
            sentence = f"{unknown[0]!r} is no column; the columns are {', '.join(COLUMNS)}."
            return Pasted((), (), (LineFault(lines[0].number, sentence),))
        lines = lines[1:]
    faults = tuple(
        LineFault(line.number, f"It has {len(line.cells)} columns instead of at most {len(columns)}.")
        for line in lines
        if len(line.cells) > len(columns)
    )
    if faults:
        return Pasted((), (), faults)
    return _grouped([(line.number, dict(zip(columns, line.cells, strict=False))) for line in lines], like, chains)


def _lines(text: str) -> Iterator[_Line]:
    """Those that are not blank."""
    text = text.removeprefix("\ufeff")
    first = next((line for line in text.splitlines() if line.strip()), "")
    delimiter = "\t" if "\t" in first else ";" if ";" in first and "," not in first else ","
    reader = csv.reader(text.splitlines(), delimiter=delimiter, skipinitialspace=True, strict=True)
    for cells in reader:
        if any(cell.strip() for cell in cells):
            yield _Line(reader.line_num, [cell.strip() for cell in cells])


def _column(cell: str) -> str | None:
    name = cell.casefold()
    return _OTHER_NAMES.get(name, name if name in COLUMNS else None)


def _grouped(lines: Iterable[tuple[int, Mapping[str, str]]], like: Row, chains: Mapping[str, str]) -> Pasted:
    accounts: dict[Row, list[str]] = defaultdict(list)
    numbers: dict[Row, list[int]] = defaultdict(list)
    for number, cells in lines:
        row = _row(cells, like, chains)
        for account in _split(cells.get("address", "")) or ([] if row.header else [""]):
            accounts[row].append(account)
            numbers[row].append(number)
        numbers[row] = numbers[row] or [number]
    missing = [
        LineFault(numbers[row][found.index("")], "It has no address.") for row, found in accounts.items() if "" in found
    ]
    if len(numbers) > MAX_ROWS:
        sentence = (
            f"It asks for {len(numbers):,} different things: blocks, or what is proven at them. The form holds "
            f"{MAX_ROWS} rows. Send it in parts, or by the API."
        )
        missing.append(LineFault(0, sentence))
    rows = tuple(replace(row, accounts="\n".join(accounts.get(row, ()))) for row in numbers)
    return Pasted(rows, list(numbers.values()), tuple(missing))


def _row(cells: Mapping[str, str], like: Row, chains: Mapping[str, str]) -> Row:
    """Without accounts."""
    props, slots, header = (_split(cells.get(name, "")) for name in ("properties", "slots", "header"))
    says_what = bool(props or slots or header)
    chain = cells.get("chain", "")
    row = replace(
        like,
        source=chains.get(chain.casefold(), chain) or like.source,
        accounts="",
        props=tuple(name.upper() for name in props) if says_what else like.props,
        slots="\n".join(slots) if says_what else like.slots,
        header=tuple(name.upper() for name in header) if says_what else (),
    )
    return _at(row, cells.get("block", ""))


def _at(row: Row, text: str) -> Row:
    kind, _, number = text.partition(":")
    if not text:
        return row
    if text.casefold() in BlockTag.values:
        return replace(row, at=text.casefold(), block="", time="")
    if kind == "block" or _NUMBER.fullmatch(text):
        return replace(row, at="block", block=number or text, time="")
    return replace(row, at="time", block="", time=iso_time(number if kind == "timestamp" else unix_seconds(text)))


def _split(cell: str) -> list[str]:
    return [word for word in _SEPARATORS.split(cell) if word]
