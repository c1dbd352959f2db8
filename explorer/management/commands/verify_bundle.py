"""Checks a proof bundle: from blocks' hashes to headers, to accounts, their slots, each fact. Asks no network."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from chains.packed import HASHED_HEADER_FIELDS
from explorer.bundles import BATCH_FORMAT, FORMAT, batch_verifying, verifying
from explorer.bundles.batch_verifying import VerifiedBatch
from explorer.bundles.verifying import Verified, VerifiedTime
from explorer.formatting import utc_times
from explorer.formatting.amounts import whole_units
from proving import facts
from proving.facts import HeaderFact
from queries.properties import HeaderField


class Command(BaseCommand):
    help = "Check a proof bundle that a batch's page offers. Uses neither a network nor the database."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", type=Path, help="the bundle, a JSON file")

    def handle(self, *_: Any, file: Path, **__: Any) -> None:
        try:
            document = file.read_bytes()
        except OSError as error:
            raise CommandError(f"{file} can't be read: {error.strerror}.") from None
        try:
            bundle = verifying.read(document, FORMAT, BATCH_FORMAT)
            if bundle["format"] == BATCH_FORMAT:
                self._say_batch(batch_verifying.verify_batch(bundle))
            else:
                self._say_query(verifying.verify_query(bundle))
        except verifying.InvalidBundle as invalid:
            raise CommandError(f"The bundle does not hold: {invalid}") from None

    def _say_query(self, proven: Verified) -> None:
        write = self.stdout.write
        write("The bundle holds.")
        if proven.account is None:
            write("  the block's header")
        else:
            write(f"  account  {proven.account}{'' if proven.exists else ' (does not exist)'}")
        write(f"  block    {proven.block_number}")
        write(f"  chain    {proven.source_chain_id} (claimed, not proven: a header does not say of which chain it is)")
        for name, word in proven.facts.items():
            write(f"  {name:<14} {word}{_meaning(name, word, of_header=proven.account is None)}")
        for slot, word in proven.slots.items():
            write(f"  slot {int(slot, 16):#x}: {word} ({int(word, 16)})")
        hashes = f"{proven.block_hash} is the hash of that block of chain {proven.source_chain_id}"
        if proven.time is not None:
            hashes += _say_time(write, proven.time, proven.block_number)
        write(f"This is so if {hashes}: compare with a source that you trust, such as a node of your own.")

    def _say_batch(self, proven: VerifiedBatch) -> None:
        write = self.stdout.write
        write("The bundle holds.")
        write(
            f"  batch    {proven.batch} (claimed, not proven, as are its chains: a header does not say of which it is)"
        )
        write(f"  queries  {len(proven.queries)}: the bundle does not prove that the batch has no more")
        for number, query in proven.queries.items():
            write(f"  {number}  {_in_a_line(query)}")
        write("This is so if these are the hashes of these blocks: compare with a source that you trust, such as nodes")
        write("of your own.")
        for (chain, block), block_hash in sorted(proven.hashes.items(), key=lambda item: (int(item[0][0]), item[0][1])):
            write(f"  chain {chain}  block {block}  {block_hash}")


def _in_a_line(query: Verified) -> str:
    about = "header" if query.account is None else f"{query.account}{'' if query.exists else ' (does not exist)'}"
    values = [f"{name} {_in_short(name, word, query)}" for name, word in query.facts.items()]
    values += [f"slot {int(slot, 16):#x} {word}" for slot, word in query.slots.items()]
    if query.time is not None:
        was_latest = f"the latest at the time {query.time.timestamp}"
        values.append(f"NOT checked: {was_latest}" if query.time.next_hash is None else was_latest)
    return f"chain {query.source_chain_id}  block {query.block_number}  {about}  {', '.join(values)}"


def _in_short(name: str, word: str, query: Verified) -> str:
    if name == "BALANCE":
        return f"{whole_units(int(word, 16))} whole units"
    is_decimal = name == "NONCE" if query.account else facts.is_number(HeaderFact(HeaderField[name]))
    return str(int(word, 16)) if is_decimal else word


def _say_time(write: Callable[[str], object], time: VerifiedTime, block: int) -> str:
    """Say whether the time is proven, and return what must be compared beside the block's hash."""
    if time.next_hash is None:
        write(
            f"  NOT checked: that block {block} was the latest at the time {time.timestamp}. That takes the header of "
            f"block {block + 1}, which is not in the bundle."
        )
        return ""
    write(f"  block {block} was the latest at the time {time.timestamp}{_utc(time.timestamp)}")
    return f", and {time.next_hash} that of block {block + 1}"


def _meaning(name: str, word: str, *, of_header: bool) -> str:
    number = int(word, 16)
    if of_header:
        field = HeaderField[name]
        if field in HASHED_HEADER_FIELDS:
            return " (keccak-256 of its bytes)"
        utc = _utc(number) if field == HeaderField.TIMESTAMP else ""
        return f" ({number}){utc}" if facts.is_number(HeaderFact(field)) else ""
    if name == "BALANCE":
        return f" ({whole_units(number)} whole units)"
    return f" ({number})" if name == "NONCE" else ""


def _utc(seconds: int) -> str:
    when = utc_times.utc(seconds)
    return f", {when} UTC" if when else ""
