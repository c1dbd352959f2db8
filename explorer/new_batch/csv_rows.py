"""Conversion of a list of addresses or a table (CSV, RFC 4180) to rows of the form."""

import csv
import io
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from itertools import takewhile
from typing import Any

from django.core.exceptions import ValidationError

from chains import encoding
from explorer.new_batch.form_sentences import FORM_SENTENCES, LINE_SENTENCES
from explorer.new_batch.forms import HASH, MAX_ROWS, MOST_FAULTS, RowFault
from queries.batch_request import pointer
from queries.columns import EntryField

COLUMNS = ("address", "block", "properties", "slots", "header", "chain", "transaction", "logs")
"""In this order, unless a line names them."""

_Line = tuple[int, list[str]]
_Faults = dict[str, set[int]]  # the numbers of lines by sentences
_Tell = Callable[..., None]
_OTHER_NAMES = {
    "account": "address",
    "props": "properties",
    "property": "properties",
    "slot": "slots",
    "tx": "transaction",
    "log": "logs",
}
# Lines share a row unless they differ in another column.
_SUBJECTS = {"address": "accounts", "transaction": "transactions"}
_SEPARATORS = re.compile(r"[\s,;|+]+")
# Plain digits, or digits in groups of three.
_NUMBER = re.compile(r"[0-9]+|[0-9]{1,3}(?:[,_'\u2019\u00a0\u202f ][0-9]{3})+")
_ADDRESS = re.compile(r"0x[0-9a-fA-F]{40}", re.ASCII)
_NAME_ENDS = re.compile('[",;\t]+')
# A first line from which Excel reads the delimiter. Other spreadsheets append their own delimiters to it.
_HINT = re.compile(r'[\ufeff\r\n ]*"?sep=(?:"?([^\w\s"]|\t))*"? *(?:\r\n?|\n|\Z)', re.IGNORECASE)


def read(
    text: str,
    like: Mapping[str, Any],
    chains: Mapping[str, str],
    most: int,
    check: Callable[[Sequence[Mapping[str, Any]]], Iterable[RowFault]],
) -> tuple[list[dict[str, Any]], int]:
    """Return the rows, as initial values of their forms, and the number of lines.

    Lines that differ only in their addresses or transactions share a row. `like` has the values that lines leave out.
    `chains` has chain ids by lower-case names. Raises `ValidationError` with the faults of all lines, also those that
    `check` finds, or for more than `most` lines.
    """
    faults: _Faults = defaultdict(set)
    whole = list(_lines(text, faults))
    columns, lines = _table(whole, faults)
    if len(lines or whole) > most:
        raise ValidationError(LINE_SENTENCES["too_many_lines"].format(most=most))
    rows = _rows(lines, columns, like, chains, faults)
    numbers = [row.pop("numbers") for row in rows]
    for fault in check(rows[:MAX_ROWS]):
        of_row = numbers[fault.row]
        faults[fault.sentence].update(of_row.get(fault.place) or of_row[""])
    if len(rows) > MAX_ROWS:
        faults[LINE_SENTENCES["too_many_rows"].format(count=len(rows), most=MAX_ROWS)].add(0)
    elif not rows and not faults:
        faults[LINE_SENTENCES["no_lines"]].add(0)
    if faults:
        in_order = sorted((sorted(numbers), sentence) for sentence, numbers in faults.items())
        named, more = [_named(*fault) for fault in in_order[:MOST_FAULTS]], len(in_order) - MOST_FAULTS
        raise ValidationError(named + [FORM_SENTENCES["more_faults"].format(count=more)] * (more > 0))
    return rows, len(lines)


def _rows(
    lines: Sequence[_Line],
    columns: Sequence[str],
    like: Mapping[str, Any],
    chains: Mapping[str, str],
    faults: _Faults,
) -> list[dict[str, Any]]:
    """Return the rows of lines without faults, and add the faults of the others.

    A row's `numbers` are those of its lines: of all under an empty text, and by the ends of pointers to its subjects.
    """
    rows: dict[tuple[str, ...], dict[str, Any]] = {}
    for number, cells in lines:
        told: list[str] = []
        tell = partial(_tell, told)
        given = _given(tell, columns, cells)
        others = tuple(given.get(name, "") for name in COLUMNS if name not in _SUBJECTS)
        others += tuple(str(bool(given.get(name))) for name in _SUBJECTS)
        row = rows.get(others) or _row(tell, given, like, chains)
        if told:
            _check_addresses(tell, given)
            for sentence in told:
                faults[sentence].add(number)
            continue
        rows[others] = row
        row["numbers"][""].append(number)
        for column, name in _SUBJECTS.items():
            for word in _split(given.get(column, "")):
                row[name].append(word)
                row["numbers"][pointer(name, word).lower()].append(number)
    return [row | {name: "\n".join(row[name]) for name in _SUBJECTS.values()} for row in rows.values()]


def _tell(told: list[str], code: str, **values: object) -> None:
    told.append(LINE_SENTENCES[code].format(**values))


def _named(numbers: Sequence[int], sentence: str) -> str:
    """Return the sentence with the numbers of its lines. A fault without a line has the number 0."""
    if numbers == [0]:
        return sentence
    shown, more = ", ".join(map(str, numbers[:MOST_FAULTS])), len(numbers) - MOST_FAULTS
    code = "faulty_line" if len(numbers) == 1 else "faulty_lines_and_more" if more > 0 else "faulty_lines"
    return LINE_SENTENCES[code].format(numbers=shown, more=more, sentence=sentence)


# --- Lines and columns: `bqs` reads them alike, in `asked_in_files.py` ------------------------------------------------


def _lines(text: str, faults: _Faults) -> Iterator[_Line]:
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
        faults[LINE_SENTENCES["bad_csv"]].add(number)


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


def _table(lines: Sequence[_Line], faults: _Faults) -> tuple[Sequence[str], Sequence[_Line]]:
    """Return the columns, and the lines below the line that names them. Tell the faults of that and those above."""
    heads, names = [line for line in lines if _names_columns(line[1])], ", ".join(COLUMNS)
    if not heads:
        above = list(takewhile(lambda line: not _begins_table(line[1]), lines))
        for number, cells in above:
            code = "no_table_at_all" if number == above[-1][0] else "no_table"
            faults[LINE_SENTENCES[code].format(cells=_shown(cells), names=names)].add(number)
        # Below names of other columns, cells may be anything.
        below = [line for line in lines[len(above) :] if not above or len(line[1]) == 1]
        return COLUMNS, [(number, _one_cell_of_addresses(cells)) for number, cells in below]
    head_at, head = max(heads, key=lambda line: _likeness(line[1]))
    columns = [*map(_column, head)]
    for number, cells in takewhile(lambda line: line[0] < head_at, lines):
        if _begins_table(cells) and (cells[0] or any(map(_ADDRESS.fullmatch, cells))):
            faults[LINE_SENTENCES["above_columns"].format(number=head_at)].add(number)
        if _says_column(cells):
            sentence = LINE_SENTENCES["value_above_columns"].format(cells=_shown(cells), number=head_at)
            faults[sentence].add(number)
    for name in filter(None, columns):
        if name not in COLUMNS:
            faults[LINE_SENTENCES["unknown_column"].format(name=name, names=names)].add(head_at)
        elif columns.count(name) > 1:
            faults[LINE_SENTENCES["column_twice"].format(name=name)].add(head_at)
    return columns, [line for line in lines if line[0] > head_at]


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


def _given(tell: _Tell, columns: Sequence[str], cells: Sequence[str]) -> Mapping[str, str]:
    """Return the cells by column."""
    if len(cells) > len(columns):
        tell("too_many_cells", count=len(cells), columns=len(columns))
    if nameless := [cell for name, cell in zip(columns, cells, strict=False) if cell and not name]:
        tell("nameless_column", words=_shown(nameless))
    given = dict(zip(columns, cells, strict=False))
    if not any(_split(given.get(name, "")) for name in ("address", "header", "transaction")):
        tell("no_address")
    return given


def _check_addresses(tell: _Tell, given: Mapping[str, str]) -> None:
    """Tell the wrong addresses of a line that is left out of the rows, where the API would find them."""
    for word in _split(given.get("address", "")):
        if "." not in word and encoding.checksummed(word) is None:
            tell("bad_account", word=word[:80], why=encoding.fault(word))


def _row(tell: _Tell, given: Mapping[str, str], like: Mapping[str, Any], chains: Mapping[str, str]) -> dict[str, Any]:
    props, slots, header = (_split(given.get(name, "").upper()) for name in COLUMNS[2:5])
    logs = _split(given.get("logs", ""))
    is_of_transactions = bool(given.get("transaction"))
    is_of_accounts = bool(given.get("address")) or not is_of_transactions
    of_transactions = EntryField.names if is_of_accounts else props
    tx_props = [name for name in props if is_of_transactions and name in of_transactions]
    chain = given.get("chain", "")
    row = {**like, "accounts": [], "transactions": [], "header": [], "numbers": defaultdict(list)}
    if chain:
        row["source"] = chains.get(chain.casefold(), chain)
    if props or slots or header or logs:
        row |= {
            "props": [name for name in props if name not in tx_props],
            "slots": "\n".join(slots).lower(),
            "tx_props": tx_props,
            "logs": " ".join(logs),
            "block_logs": "",
            "header": header,
        }
    else:  # The last row may request nothing of this kind.
        if is_of_accounts and not (row["props"] or (row["slots"] or "").strip()):
            row["props"] = ["BALANCE"]
        if is_of_transactions and not (row["tx_props"] or f"{row['logs'] or ''}{row['block_logs'] or ''}".strip()):
            row["tx_props"] = ["STATUS"]
    try:
        return row | _at(given.get("block", ""))
    except (ValueError, OverflowError, OSError):
        tell("bad_block", word=given["block"][:80])
        return row


def _at(cell: str) -> dict[str, str]:
    kind, _, number = cell.casefold().partition(":")
    if not cell:
        return {}
    if cell.casefold() in {"latest", "finalized"}:
        return {"at": kind}
    if _NUMBER.fullmatch(digits := number.strip() if kind == "block" else cell):
        block = re.sub("[^0-9]", "", digits)
        if int(block) >= 1 << 63:
            raise ValueError
        return {"at": "block", "block": block}
    if kind == "transaction" and re.fullmatch(HASH, number):
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
