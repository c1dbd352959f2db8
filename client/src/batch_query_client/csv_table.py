"""Lines of a file: one column of accounts, or CSV (RFC 4180) whose first line names the columns.

The service's form reads files by this module, too. So it imports only the standard library.
"""

import csv
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain, zip_longest

COLUMNS = ("address", "block", "properties", "slots", "header", "chain", "transaction", "logs")

_OTHER_NAMES = {"account": "address", "props": "properties", "slot": "slots", "tx": "transaction", "log": "logs"}
_OTHER_NAMES |= {"property": "properties"}
_SEPARATORS = re.compile(r'[\s,;|+"\ufeff]+')
# Invisible characters come along from pages and messages: soft hyphens, spaces of no width, marks of direction.
_INVISIBLE = dict.fromkeys([0xAD, 0x200B, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2060, 0x206A), 0xFEFF])
# Spreadsheets write some whole numbers as 5.0, and long ones as 1.23457E+17, without their last digits.
_DECIMAL = re.compile(r"(?<![\w.])([0-9]+)\.0+(?![\w.])")
_ROUNDED = re.compile(r"(?<![\w.])[0-9]+(?:[.,][0-9]+E[+-]?|E[+-])[0-9]+(?![\w.])", re.IGNORECASE)
# An address with its chain (ERC-3770, ERC-681).
_OF_CHAIN = re.compile(r"[a-z][a-z0-9-]*:0x[0-9a-f]{40}(?:@[0-9]+)?", re.IGNORECASE)
# Plain digits, or digits in groups of three.
_NUMBER = re.compile(r"[0-9]+|[0-9]{1,3}(?:[,_'\u2019\u00a0\u202f ][0-9]{3})+")
# Nothing is wrong with a line of such an address alone, so that a long list takes a quarter of the time.
_PLAIN = re.compile(r"\s*(0x[0-9a-fA-F]{40})\s*")
_HASH = re.compile("0x[0-9a-fA-F]{64}")
_SPREADSHEETS = (b"PK\x03\x04", b"\xd0\xcf\x11\xe0")
_MOST_COLUMNS = 100
_SENTENCES = {
    "bad_block": (
        "{cell!r} is not a block. Name it by its number in digits alone, by a time such as 2026-11-20 12:00:00 in UTC, "
        "or as latest or finalized."
    ),
    "bad_csv": "This is not valid CSV: check the quotation marks.",
    "column_twice": "The first line names the column {name} twice.",
    "nameless": "Some cells have no column: {words}.",
    "no_account": "Neither an address, which begins with 0x, nor a name: {words}.",
    "no_account_in_list": (
        "Neither an address, which begins with 0x, nor a name: {words}. "
        "A table's first line names its columns: {names}."
    ),
    "no_address": "It has no address. Lines about a transaction or a header need no address.",
    "not_text": "The file is not UTF-8 text. In a spreadsheet, save it as “CSV UTF-8”.",
    "of_chain": "Name the address alone, from 0x on, and its chain in the column chain: {words}.",
    "rounded": "A spreadsheet has rounded {words}. Format its cells as text, and enter all digits again.",
    "spreadsheet": "The file is a spreadsheet, such as .xlsx. In that program, save the file as “CSV UTF-8”.",
    "unknown_column": "Not a column: {words}. The columns are {names}.",
}


@dataclass(frozen=True)
class Line:
    """The cells of a line by their columns, and sentences about what is wrong in it."""

    number: int
    cells: Mapping[str, str]
    faults: Sequence[str]

    def words(self, column: str) -> list[str]:
        return _words(self.cells.get(column, ""))


def text_of(content: bytes) -> str:
    """Return the text of a file. Raises `ValueError` with a sentence."""
    if content.startswith(_SPREADSHEETS):
        raise ValueError(_SENTENCES["spreadsheet"])
    text = content.decode("utf-8-sig", errors="replace")
    if "\0" in text or "\ufffd" in text:
        raise ValueError(_SENTENCES["not_text"])
    return text


def lines_of(text: str) -> Iterator[Line]:
    """Yield the lines that ask for something or are wrong."""
    if text.startswith(tuple(magic.decode("latin-1") for magic in _SPREADSHEETS)):
        yield Line(1, {}, [_SENTENCES["spreadsheet"]])
        return
    # Line breaks are kept, because a quoted cell may contain them.
    source = io.StringIO(text.translate(_INVISIBLE), newline="")
    head, at = next(((line, at) for at, line in enumerate(source, 1) if not _is_before_head(line)), ("", 1))
    delimiter = next((letter for letter in head if letter in ",;|\t"), ",")
    columns = [_column(cell) for cell in head.split(delimiter, _MOST_COLUMNS)]
    if {*columns}.isdisjoint(COLUMNS):
        for number, line in enumerate(chain([head], source), at):
            if plain := _PLAIN.fullmatch(line):
                yield Line(number, {"address": plain[1]}, [])
            elif (accounts := _words(line)) and not accounts[0].startswith("#"):
                yield _line(number, ["address"], [" ".join(accounts)], is_table=False)
        return
    if faults := _faults_of_columns(columns):
        yield Line(at, {}, faults)
    reader, number = csv.reader(source, delimiter=delimiter, skipinitialspace=True, strict=True), at + 1
    try:
        for record in reader:
            cells = [cell.strip() for cell in record]
            if any(cells) and not cells[0].startswith("#"):
                yield _line(number, columns, cells, is_table=True)
            number = at + reader.line_num + 1
    except csv.Error:
        yield Line(number, {}, [_SENTENCES["bad_csv"]])


def _is_before_head(line: str) -> bool:
    """Return whether the line is blank, a comment, or one that tells Excel the delimiter."""
    words = _words(line)
    return not words or words[0].casefold().startswith(("#", "sep="))


def _column(cell: str) -> str:
    name = " ".join(_words(cell)).casefold()
    return _OTHER_NAMES.get(name, name)


def _faults_of_columns(columns: Sequence[str]) -> list[str]:
    unknown = [name for name in columns if name and name not in COLUMNS]
    twice = [_SENTENCES["column_twice"].format(name=name) for name in COLUMNS if columns.count(name) > 1]
    return [_told("unknown_column", unknown), *twice] if unknown else twice


def _told(code: str, words: Sequence[str]) -> str:
    return _SENTENCES[code].format(words=", ".join(repr(word[:80]) for word in words[:3]), names=", ".join(COLUMNS))


def _line(number: int, columns: Sequence[str], cells: Sequence[str], *, is_table: bool) -> Line:
    # An apostrophe before a cell tells Excel that it is text.
    whole = [_DECIMAL.sub(r"\1", cell.lstrip("'")) for cell in cells]
    line = Line(number, given := dict(zip(columns, whole, strict=False)), faults := [])
    if nameless := [cell for name, cell in zip_longest(columns, cells, fillvalue="") if cell and not name]:
        faults.append(_told("nameless", nameless))
    if not ((addresses := line.words("address")) or line.words("header") or line.words("transaction")):
        faults.append(_SENTENCES["no_address"])
    if rounded := [found[0] for cell in cells for found in _ROUNDED.finditer(cell)]:
        faults.append(_told("rounded", rounded))
    if of_chain := [word for word in addresses if _OF_CHAIN.fullmatch(word)]:
        faults.append(_told("of_chain", of_chain))
    elif wrong := [word for word in addresses if not _is_account(word)]:
        faults.append(_told("no_account" if is_table else "no_account_in_list", wrong))
    # A hash alone names the block too.
    if not given.get("block") and _HASH.fullmatch(entry := given.get("transaction", "")):
        given["block"] = f"transaction:{entry}"
    return line


def _is_account(word: str) -> bool:
    """Return whether the word looks like an address or a name, valid or not."""
    is_name = "." in word[1:-1] and not word.replace(".", "").isdecimal()
    return word[:2].lower() == "0x" or is_name


def _words(cell: str) -> list[str]:
    return [word for word in _SEPARATORS.split(cell) if word] if cell else []


def selector(cell: str) -> str:
    """Return a block in the API's spelling. Raises `ValueError` with a sentence."""
    kind, _, rest = (text := cell.casefold()).partition(":")
    digits = rest.strip() if kind == "block" else text
    try:
        if text in {"latest", "finalized"} or (kind == "transaction" and _HASH.fullmatch(rest)):
            return text
        if _NUMBER.fullmatch(digits) and (number := int(re.sub("[^0-9]", "", digits))) < 1 << 63:
            return f"block:{number}"
        if kind == "timestamp" and _NUMBER.fullmatch(rest):
            moment = datetime.fromtimestamp(int(rest), UTC)
        else:
            moment = datetime.fromisoformat(cell.removesuffix("UTC").strip())
        if (seconds := int(moment.replace(tzinfo=moment.tzinfo or UTC).timestamp())) >= 0:
            return f"timestamp:{seconds}"
    except (ValueError, OverflowError, OSError):
        pass
    raise ValueError(_SENTENCES["bad_block"].format(cell=cell[:80]))
