"""Checks a proof bundle: from the block's hash to the header, to the account, its slots, each fact. Asks no network."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from chains.packed import HASHED_HEADER_FIELDS
from explorer.bundles import verifying
from explorer.bundles.verifying import VerifiedTime
from explorer.pages import utc_times
from explorer.pages.amounts import whole_units
from explorer.pages.code_snippets import is_number
from proving.facts import HeaderFact
from queries.models import HeaderField


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
            proven = verifying.verify(document)
        except verifying.InvalidBundle as invalid:
            raise CommandError(f"The bundle does not hold: {invalid}") from None
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


def _say_time(write: Callable[[str], object], time: VerifiedTime, block: int) -> str:
    """Returns what must be compared beside the block's hash."""
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
        return f" ({number}){utc}" if is_number(HeaderFact(field)) else ""
    if name == "BALANCE":
        return f" ({whole_units(number)} whole units)"
    return f" ({number})" if name == "NONCE" else ""


def _utc(seconds: int) -> str:
    when = utc_times.utc(seconds)
    return f", {when} UTC" if when else ""
