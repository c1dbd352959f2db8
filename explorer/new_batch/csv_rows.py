"""Conversion of a list of addresses or a table (CSV, RFC 4180) to rows of the form."""

import csv
import io
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from itertools import takewhile
from operator import attrgetter
from typing import Any, NamedTuple

from django.core.exceptions import ValidationError

from chains import encoding
from explorer.new_batch.form_sentences import LINE_SENTENCES, MOST_FAULTS, bounded, quoted
from explorer.new_batch.forms import LOG_INDEX, MAX_ROWS, TRANSACTION, RowFault
from queries.batch_request import pointer
from queries.columns import AccountField, HeaderField, TransactionField

COLUMNS = ("address", "block", "properties", "slots", "header", "chain", "transaction", "logs")
"""In this order, unless a line names them."""

_Line = tuple[int, list[str]]
_Tell = Callable[..., None]
_OTHER_NAMES = {
    "account": "address",
    "props": "properties",
    "property": "properties",
    "slot": "slots",
    "tx": "transaction",
    "log": "logs",
}
# The fields of a row that a column sets. Faults of the others are the form's, and stay for the reader to correct.
_FIELDS_OF = {
    "address": ("accounts",),
    "block": ("at", "block", "time", "block_of"),
    "properties": ("props", "tx_props"),
    "slots": ("slots",),
    "header": ("header",),
    "chain": ("source",),
    "transaction": ("transactions",),
    "logs": ("logs",),
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


class PastedRows(NamedTuple):
    rows: list[dict[str, Any]]  # initial values of their forms
    lines: int  # number of lines


class _LineFault(NamedTuple):
    number: int  # of the first line with the fault; 0: it isn't about a line
    sentence: str


def read(
    text: str,
    like: Mapping[str, Any],
    chains: Mapping[str, str],
    most: int,
    check: Callable[[Sequence[Mapping[str, Any]]], Iterable[RowFault]],
) -> PastedRows:
    """Return the rows of a table.

    Lines that differ only in their addresses or transactions share a row. `like` has the values that lines leave out.
    `chains` has chain ids by lower-case names. Raises `ValidationError` with the faults of all lines and those that
    `check` finds in the rows of the others, or for more than `most` lines.
    """
    faults: list[_LineFault] = []
    whole = list(_lines(text, faults))
    columns, lines = _table(whole, faults)
    if len(lines or whole) > most:
        raise ValidationError(LINE_SENTENCES["too_many_lines"].format(most=most))
    by_cells: dict[tuple[str, ...], _LinesOfRow] = {}
    for number, cells in lines:
        before, tell = len(faults), partial(_tell, faults, number)
        given = _given(tell, columns, cells)
        others = tuple(given.get(name, "") for name in COLUMNS if name not in _SUBJECTS)
        others += tuple(str(bool(given.get(name))) for name in _SUBJECTS)
        of_row = by_cells.get(others) or _LinesOfRow(_row(tell, given, like, chains))
        accounts, transactions = _accounts(tell, given), _words(tell, given, "transaction", TRANSACTION)
        if len(faults) == before:
            of_row.fields.update(field for name, cell in given.items() if cell for field in _FIELDS_OF.get(name, ()))
            by_cells.setdefault(others, of_row).add(number, accounts, transactions)
        else:
            _check_addresses(tell, accounts)
    rows = [of_row.row for of_row in by_cells.values()]
    if len(rows) > MAX_ROWS:
        _tell(faults, 0, "too_many_rows", count=len(rows), most=MAX_ROWS)
    else:
        faults += _found([*by_cells.values()], check(rows))
    if not rows and not faults:
        _tell(faults, 0, "no_lines")
    if faults:
        raise ValidationError(bounded([fault.sentence for fault in sorted(faults, key=attrgetter("number"))]))
    return PastedRows(rows, len(lines))


class _LinesOfRow:
    """A row with the fields that its lines set, and their numbers: of all, and by word as in the paths of faults."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values, self._accounts, self._transactions = values, list[str](), list[str]()
        self.fields = set[str]()
        self.numbers = list[int]()
        self.by_word = defaultdict[str, list[int]](list)

    def add(self, number: int, accounts: Sequence[str], transactions: Sequence[str]) -> None:
        self._accounts += accounts
        self._transactions += transactions
        self.numbers.append(number)
        for word in (*accounts, *transactions):
            self.by_word[pointer(word)[1:].lower()].append(number)

    @property
    def row(self) -> dict[str, Any]:
        lists = {"accounts": self._accounts, "transactions": self._transactions}
        return {**self._values, **{name: "\n".join(words) for name, words in lists.items()}}


def _found(rows: Sequence[_LinesOfRow], faults: Iterable[RowFault]) -> Iterator[_LineFault]:
    """Yield the faults of rows with the numbers of their lines, each sentence once."""
    by_sentence: dict[str, set[int]] = defaultdict(set)
    for fault in faults:
        row = rows[fault.row]
        if fault.field in row.fields:
            by_sentence[fault.sentence].update(row.by_word.get(fault.word) or row.numbers)
    for sentence, lines in by_sentence.items():
        numbers, more = sorted(lines), len(lines) - MOST_FAULTS
        code = "faulty_line" if len(lines) == 1 else "faulty_lines_and_more" if more > 0 else "faulty_lines"
        shown = ", ".join(map(str, numbers[:MOST_FAULTS]))
        yield _LineFault(numbers[0], LINE_SENTENCES[code].format(numbers=shown, more=more, sentence=sentence))


# --- Lines and columns: `bqs` reads them alike, in `asked_in_files.py` ------------------------------------------------


def _tell(faults: list[_LineFault], number: int, code: str, **values: object) -> None:
    faults.append(_LineFault(number, LINE_SENTENCES[code].format(number=number, **values)))


def _lines(text: str, faults: list[_LineFault]) -> Iterator[_Line]:
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
        _tell(faults, number, "bad_csv")


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


def _table(lines: Sequence[_Line], faults: list[_LineFault]) -> tuple[Sequence[str], Sequence[_Line]]:
    """Return the columns, and the lines below the line that names them. Tell the faults of that and those above."""
    heads, names = [line for line in lines if _names_columns(line[1])], ", ".join(COLUMNS)
    if not heads:
        above = list(takewhile(lambda line: not _begins_table(line[1]), lines))
        for number, cells in above:
            code = "no_table_at_all" if number == above[-1][0] else "no_table"
            _tell(faults, number, code, cells=_shown(cells), names=names)
        # Below names of other columns, cells may be anything.
        below = [line for line in lines[len(above) :] if not above or len(line[1]) == 1]
        return COLUMNS, [(number, _one_cell_of_addresses(cells)) for number, cells in below]
    head_at, head = max(heads, key=lambda line: _likeness(line[1]))
    columns = [*map(_column, head)]
    for number, cells in takewhile(lambda line: line[0] < head_at, lines):
        if _begins_table(cells) and (cells[0] or any(map(_ADDRESS.fullmatch, cells))):
            _tell(faults, number, "above_columns", columns_at=head_at)
        if _says_column(cells):
            _tell(faults, number, "value_above_columns", cells=_shown(cells), columns_at=head_at)
    for name in columns:
        if name and name not in COLUMNS:
            _tell(faults, head_at, "unknown_column", name=name, names=names)
    for name in COLUMNS:
        if columns.count(name) > 1:
            _tell(faults, head_at, "column_twice", name=name)
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
        tell("nameless_column", words=quoted(nameless))
    return dict(zip(columns, cells, strict=False))


def _accounts(tell: _Tell, given: Mapping[str, str]) -> list[str]:
    accounts = _split(given.get("address", ""))
    if not accounts and not given.get("header") and not given.get("transaction"):
        tell("no_address")
    if wrong := [word for word in accounts if not _is_account(word)]:
        tell("bad_account", words=quoted(wrong))
    return accounts


def _check_addresses(tell: _Tell, accounts: Sequence[str]) -> None:
    """Tell which are no addresses, in a line that is left out of the rows for another fault."""
    for word in accounts:
        if word[:2].lower() == "0x" and encoding.checksummed(word) is None:
            tell("wrong_address", word=word[:80], why=encoding.fault(word))


def _words(tell: _Tell, given: Mapping[str, str], column: str, form: re.Pattern[str]) -> list[str]:
    words = _split(given.get(column, ""))
    if wrong := [word for word in words if not form.fullmatch(word)]:
        tell(f"bad_{column}", words=quoted(wrong))
    return words


def _row(tell: _Tell, given: Mapping[str, str], like: Mapping[str, Any], chains: Mapping[str, str]) -> dict[str, Any]:
    props, slots, header = (_split(given.get(name, "").upper()) for name in COLUMNS[2:5])
    logs = _words(tell, given, "logs", LOG_INDEX)
    of_transactions = TransactionField.names if given.get("transaction") else []
    of_accounts = AccountField.names if given.get("address") or not of_transactions else []
    # The form has no checkbox for an unknown property, so the row would lose it.
    for named, known in ((props, [*of_accounts, *of_transactions]), (header, HeaderField.names)):
        if unknown := [name for name in named if name not in known]:
            tell("bad_name", words=quoted(unknown), names=", ".join(known))
    chain = given.get("chain", "")
    row = {**like, "header": []}
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
        tell("bad_block", word=given["block"][:80])
        return row


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
