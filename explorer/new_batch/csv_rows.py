"""Conversion of the lines of a file to rows of the form."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from typing import Any

from django.core.exceptions import ValidationError

from batch_query_client.csv_table import COLUMNS, Line, lines_of, selector
from chains import encoding
from explorer.new_batch.form_sentences import FORM_SENTENCES, LINE_SENTENCES
from explorer.new_batch.forms import MAX_ROWS, MOST_FAULTS, RowFault
from explorer.new_batch.row_kinds import BALANCE, KINDS
from queries.batch_request import pointer
from queries.columns import EntryField

_Faults = dict[str, set[int]]  # the numbers of lines by sentences
# Lines share a row unless they differ in another column.
_SUBJECTS = {"address": "accounts", "transaction": "transactions"}
# Columns of lines that may be about holders of the last row's token.
_OF_HOLDER = {"address", "chain", "block"}


@dataclass(frozen=True)
class PastedRows:
    """Rows of the form that were made from lines."""

    rows: Sequence[dict[str, Any]]
    """The initial values of their forms."""
    line_count: int


def read(
    text: str,
    like: Mapping[str, Any],
    chains: Mapping[str, str],
    most: int,
    check: Callable[[Sequence[Mapping[str, Any]]], Iterable[RowFault]],
) -> PastedRows:
    """Convert lines to rows.

    Lines that differ only in their addresses or transactions share a row. `like` has the values that lines leave out.
    `chains` has chain ids by lower-case names. Raises `ValidationError` with the faults of all lines, also those that
    `check` finds, or for more than `most` lines.
    """
    lines = list(islice(lines_of(text), most + 1))
    if len(lines) > most:
        raise ValidationError(LINE_SENTENCES["too_many_lines"].format(most=most))
    faults: _Faults = defaultdict(set)
    rows = _rows(lines, like, chains, faults)
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
    return PastedRows(rows, len(lines))


def _rows(
    lines: Sequence[Line], like: Mapping[str, Any], chains: Mapping[str, str], faults: _Faults
) -> list[dict[str, Any]]:
    """Return the rows of lines without faults, and add the faults of the others.

    A row's `numbers` are those of its lines: of all under an empty text, and by the ends of pointers to its subjects.
    """
    rows: dict[tuple[tuple[str, str], ...], dict[str, Any]] = {}
    for line in lines:
        cells = ((name, text) for name, text in line.cells.items() if text and name in COLUMNS)
        others = tuple((name, "" if name in _SUBJECTS else text) for name, text in cells)
        told = [*line.faults]
        try:
            row = rows.get(others) or _row(line, like, chains)
        except ValueError as error:
            told.append(str(error))
        if told:
            for sentence in (*told, *_faults_of_addresses(line)):
                faults[sentence].add(line.number)
            continue
        rows[others] = row
        row["numbers"][""].append(line.number)
        for column, name in _SUBJECTS.items():
            for word in line.words(column):
                row[name].append(word)
                row["numbers"][pointer(name, word).lower()].append(line.number)
    return [_shown(row) for row in rows.values()]


def _shown(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row with its subjects as texts."""
    texts = {name: "\n".join(row[name]) for name in _SUBJECTS.values()}
    if row["token"]:
        texts |= {"holder": " ".join(row["accounts"]), "accounts": ""}
    return named_once({**row, **texts})


def _named(numbers: Sequence[int], sentence: str) -> str:
    """Return the sentence with the numbers of its lines. A fault without a line has the number 0."""
    if numbers == [0]:
        return sentence
    shown, more = ", ".join(map(str, numbers[:MOST_FAULTS])), len(numbers) - MOST_FAULTS
    code = "faulty_line" if len(numbers) == 1 else "faulty_lines_and_more" if more > 0 else "faulty_lines"
    return LINE_SENTENCES[code].format(numbers=shown, more=more, sentence=sentence)


def _faults_of_addresses(line: Line) -> Iterator[str]:
    """Yield what is wrong with the addresses of a line that is left out of the rows, where the API would find it."""
    for word in line.words("address"):
        if word[:2].lower() == "0x" and not encoding.is_address(word):
            yield LINE_SENTENCES["bad_account"].format(word=word[:80], why=encoding.fault(word))


def _row(line: Line, like: Mapping[str, Any], chains: Mapping[str, str]) -> dict[str, Any]:
    """Return the row of the line, without its accounts and transactions. Raises `ValueError` with a sentence."""
    of_kind = dict.fromkeys(("kind", "token", "holder", "base", "found"), "")
    if is_of_token(like) and {*filter(line.cells.get, line.cells)} <= _OF_HOLDER:
        of_kind |= {name: like[name] for name in ("kind", "token", "base")}
    row = {**like, **of_kind, "accounts": [], "transactions": [], "header": [], "numbers": defaultdict(list)}
    if chain := line.cells.get("chain", ""):
        row["source"] = chains.get(chain.casefold(), chain)
    if block := line.cells.get("block", ""):
        row |= block_fields(selector(block))
    props, header = ([name.upper() for name in line.words(column)] for column in ("properties", "header"))
    slots, logs = line.words("slots"), line.words("logs")
    is_of_transactions = bool(line.cells.get("transaction"))
    is_of_accounts = bool(line.cells.get("address")) or not is_of_transactions
    if props or slots or header or logs:
        of_transactions = EntryField.names if is_of_accounts else props
        tx_props = [name for name in props if is_of_transactions and name in of_transactions]
        return row | {
            "props": [name for name in props if name not in tx_props],
            "slots": "\n".join(slots).lower(),
            "tx_props": tx_props,
            "logs": " ".join(logs),
            "block_logs": "",
            "header": header,
        }
    # The last row may request nothing of this kind.
    if is_of_accounts and not (row["props"] or (row["slots"] or "").strip()):
        row["props"] = ["BALANCE"]
    if is_of_transactions and not (row["tx_props"] or f"{row['logs'] or ''}{row['block_logs'] or ''}".strip()):
        row["tx_props"] = ["STATUS"]
    return row


def is_of_token(row: Mapping[str, Any]) -> bool:
    """Return whether lines of addresses are the holders that a row of a token lacks."""
    return bool(row["token"]) and not row["holder"] and bool(KINDS[row["kind"] or BALANCE.name].call)


def block_fields(text: str) -> dict[str, str]:
    """Return the fields of a row about the block of a selector. A time of too many digits is left empty."""
    kind, _, rest = text.partition(":")
    field = {"block": "block", "transaction": "block_of", "timestamp": "time"}.get(kind, "")
    if kind == "timestamp":
        kind, seconds, rest = "time", rest, ""
        with suppress(ValueError, OverflowError, OSError):
            rest = datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return {"at": kind} | ({field: rest} if field else {})


def named_once(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row without the block's name if that is the hash of all that it is about, a transaction."""
    is_own = row.get("block_of") and row.get("transactions", "").lower() == row["block_of"].lower()
    return {**row, "block_of": ""} if is_own and not row.get("accounts") and not row.get("header") else {**row}
