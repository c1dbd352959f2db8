"""A list of addresses or a table (CSV, RFC 4180) as rows of the form.

Lines that ask the same at the same block share a row. What a line leaves out is as in a given row.
"""

import csv
import io
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from explorer.formatting import csv_lines
from explorer.new_batch.drafts import MAX_ROWS, Row, iso_time, unix_seconds
from queries.models import BlockTag

COLUMNS = ("address", "block", "properties", "slots", "header", "chain")
"""In this order, unless the first line names them."""

_OTHER_NAMES = {"account": "address", "props": "properties", "property": "properties", "slot": "slots"}
_SEPARATORS = re.compile(r"[\s,;|+]+")
_NUMBER = re.compile(r"[0-9][0-9,_ ]*", re.ASCII)
_ADDRESS = re.compile(r"0x[0-9a-fA-F]{40}", re.ASCII)


@dataclass(frozen=True)
class LineFault:
    line: int  # of the text, from 1; 0: about all of it
    sentence: str


@dataclass(frozen=True)
class Pasted:
    rows: tuple[Row, ...]
    # Of each row, the line of the text that each line of its accounts is from; without accounts, its first line.
    lines: Sequence[Sequence[int]]
    faults: tuple[LineFault, ...] = ()
    count: int = 0  # of the lines that were read

    def line(self, row: int | None, line_of_accounts: int) -> int:
        """Return where in the text it is: the first line of the row, if it is about all of that."""
        lines = () if row is None else self.lines[row]
        return lines[max(line_of_accounts, 1) - 1] if lines else 0


@dataclass(frozen=True)
class _Line:
    number: int
    cells: Sequence[str]


def read(text: str, like: Row, chains: Mapping[str, str], most: int) -> Pasted:
    """Read the text as rows.

    `like` says what lines leave out. `chains` has the ids of chains by their names, in small letters.

    Of more than `most` lines it only says that they are too many.
    """
    if max(text.count("\n"), text.count("\r")) > most:
        return _refused(0, f"It has more than {most:,} lines. Send it in parts.")
    try:
        lines = list(_lines(text))
    except csv.Error as error:
        return _refused(0, f"It can't be read as CSV: {error}.")
    return _read(lines, like, chains) if lines else _refused(0, "There is nothing in it.")


def written(rows: Iterable[Row]) -> Iterator[str]:
    """Yield the rows as lines that `read` and the command line `bqs` take."""
    yield csv_lines.line(COLUMNS)
    for row in rows:
        at = {"block": row.block, "time": row.time}.get(row.at, row.at)
        for account in _split(row.accounts):
            yield csv_lines.line((account, at, " ".join(row.props), " ".join(_split(row.slots)), "", row.source))
        if row.header:
            yield csv_lines.line(("", at, "", "", " ".join(row.header), row.source))


def _read(lines: Sequence[_Line], like: Row, chains: Mapping[str, str]) -> Pasted:
    columns: Sequence[str] = COLUMNS
    if any(_column(cell) for cell in lines[0].cells):
        columns = [_column(cell) or cell for cell in lines[0].cells]
        if unknown := [name for name in columns if name not in COLUMNS]:
            return _refused(lines[0].number, f"{unknown[0]!r} is no column; the columns are {', '.join(COLUMNS)}.")
        if not (lines := lines[1:]):
            return _refused(0, "There is nothing below the names of its columns.")
    else:
        lines = [replace(line, cells=_one_cell_of_addresses(line.cells)) for line in lines]
    if faults := tuple(_line_faults(lines, columns)):
        return Pasted((), (), faults)
    return _grouped([(line.number, dict(zip(columns, line.cells, strict=False))) for line in lines], like, chains)


def _refused(line: int, sentence: str) -> Pasted:
    return Pasted((), (), (LineFault(line, sentence),))


def _line_faults(lines: Iterable[_Line], columns: Sequence[str]) -> Iterator[LineFault]:
    block = columns.index("block") if "block" in columns else len(columns)
    for line in lines:
        if len(line.cells) > len(columns):
            yield LineFault(line.number, f"It has {len(line.cells)} columns instead of at most {len(columns)}.")
        elif _ADDRESS.fullmatch("".join(line.cells[block : block + 1])):
            yield LineFault(
                line.number, "The column of its block holds another address. Put each address on a line of its own."
            )


def _one_cell_of_addresses(cells: Sequence[str]) -> Sequence[str]:
    """Join the cells of a line that is nothing but addresses: all of them are accounts."""
    words = [cell for cell in cells if cell]
    return [" ".join(words)] if len(words) > 1 and all(map(_ADDRESS.fullmatch, words)) else cells


def _lines(text: str) -> Iterator[_Line]:
    """Yield the lines that are not blank."""
    text = text.removeprefix("\ufeff").rstrip()
    found = re.search(r"\S.*", text)
    first = found[0] if found else ""
    delimiter = "\t" if "\t" in first else ";" if ";" in first and "," not in first else ","
    # With its line breaks: in a quoted cell, they are part of it.
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=True, strict=True)
    number = 1
    for cells in reader:
        if any(cell.strip() for cell in cells):
            yield _Line(number, [cell.strip() for cell in cells])
        number = reader.line_num + 1


def _column(cell: str) -> str | None:
    name = cell.casefold()
    return _OTHER_NAMES.get(name, name if name in COLUMNS else None)


def _grouped(lines: Sequence[tuple[int, Mapping[str, str]]], like: Row, chains: Mapping[str, str]) -> Pasted:
    accounts: dict[Row, list[str]] = defaultdict(list)
    numbers: dict[Row, list[int]] = defaultdict(list)
    first: dict[Row, int] = {}
    rows: dict[tuple[str, ...], Row] = {}  # by all cells but the address, which are mostly the same
    for number, cells in lines:
        others = tuple(cells.get(name, "") for name in COLUMNS[1:])
        row = rows[others] = rows.get(others) or _row(cells, like, chains)
        first.setdefault(row, number)
        found = _split(cells.get("address", "")) or ([] if row.header else [""])
        accounts[row] += found
        numbers[row] += [number] * len(found)
    missing = [
        LineFault(numbers[row][found.index("")], "It has no address.") for row, found in accounts.items() if "" in found
    ]
    if len(first) > MAX_ROWS:
        sentence = (
            f"It asks for {len(first):,} different things: blocks, or what is proven at them. The form holds "
            f"{MAX_ROWS} rows. Send it in parts, or by the API."
        )
        missing.append(LineFault(0, sentence))
    return Pasted(
        tuple(replace(row, accounts="\n".join(accounts[row])) for row in first),
        [numbers[row] or [line] for row, line in first.items()],
        tuple(missing),
        len(lines),
    )


def _row(cells: Mapping[str, str], like: Row, chains: Mapping[str, str]) -> Row:
    """Make the row, without accounts."""
    props, slots, header = (_split(cells.get(name, "")) for name in ("properties", "slots", "header"))
    chain = cells.get("chain", "")
    row = replace(like, source=chains.get(chain.casefold(), chain) or like.source, accounts="", header=())
    if props or slots or header:
        row = replace(
            row,
            props=tuple(name.upper() for name in props),
            slots="\n".join(slots),
            header=tuple(name.upper() for name in header),
        )
    elif not (row.props or row.slots.strip()):  # The given row asks for a header alone.
        row = replace(row, props=Row.props)
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
