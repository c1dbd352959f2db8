"""Verifies a proof bundle, from the block hash down to each fact. Uses neither the database nor a network."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from eth_utils.address import to_checksum_address

from chains import header, trie
from chains.encoding import hex_data, read_data
from chains.header import Header
from explorer.bundles import FORMAT
from proving import facts
from proving.models import AccountProof
from queries.properties import AccountField

_CHAIN_ID = re.compile(r"[1-9][0-9]{0,19}", re.ASCII)
_BATCH_ID = re.compile(r"[0-9A-HJKMNP-TV-Z]{26}", re.ASCII)


class InvalidBundle(ValueError):
    """The bundle does not show what it says; the message is one sentence."""


@dataclass(frozen=True)
class VerifiedTime:
    """The block was the latest at the time, given that `next_hash` is the hash of the block after it."""

    timestamp: int  # unix seconds
    next_hash: str | None  # None: the bundle doesn't hold the next header, and proves nothing of the time


@dataclass(frozen=True)
class Verified:
    """The facts of a bundle, proven if `block_hash` is the hash of block `block_number` of chain `source_chain_id`."""

    source_chain_id: str  # claimed only: a header does not say of which chain it is
    block_number: int
    block_hash: str
    account: str | None  # with its EIP-55 checksum; None: the facts are the header's
    exists: bool  # the account
    facts: dict[str, str]  # word by property
    slots: dict[str, str]  # word by slot
    time: VerifiedTime | None  # None: the block was named by its number


def verify(document: str | bytes) -> Verified:
    """Check a query's bundle from its block hash down to each fact. Raises `InvalidBundle`."""
    return verify_query(read(document, FORMAT))


def read(document: str | bytes, *formats: str) -> dict[str, Any]:
    """Read a bundle of one of these formats. Nothing else is checked. Raises `InvalidBundle`."""
    try:
        bundle = json.loads(document)
    except (ValueError, RecursionError):
        raise InvalidBundle("The file is not JSON.") from None
    if not isinstance(bundle, dict) or bundle.get("format") not in formats:
        raise InvalidBundle(f"The file is not a proof bundle of the format {' or '.join(formats)}.")
    return bundle


def verify_query(bundle: dict[str, Any]) -> Verified:
    """Verify the bundle of a query as `verify` does, whatever its format is said to be."""
    try:
        return _verify(bundle)
    except (header.InvalidHeader, trie.InvalidProof) as invalid:
        raise InvalidBundle(str(invalid)) from None


def _verify(bundle: dict[str, Any]) -> Verified:
    _check_origin(bundle)
    block_hash, encoded = _bytes(bundle, "blockHash", 32), _bytes(bundle, "header")
    head = header.verify(encoded, block_hash)
    if bundle.get("blockNumber") != str(head.number):
        raise InvalidBundle(f"The header is that of block {head.number}, not of the block that the bundle names.")
    claimed, claimed_slots = _object(bundle, "facts"), _object(bundle, "slots")
    if not claimed and not claimed_slots:
        raise InvalidBundle("The bundle claims no facts.")
    account: trie.Account | None = None
    address = b""
    if bundle.get("account") is not None:
        address = _bytes(bundle, "account", 20)
        account = trie.verify_account(head.state_root, address, _nodes(bundle, "accountProof"))
        properties = facts.account_words(_row(account))
        words = {field.name: properties[field] for field in AccountField}
    else:
        words = {field.name: word for field, word in facts.header_words(head).items()}
    for name, word in claimed.items():
        if name not in words:
            raise InvalidBundle(f"The bundle claims a fact that is not known: {name[:40]!r}.")
        if word != hex_data(words[name]):
            raise InvalidBundle(f"The proof shows another {name} than the bundle claims.")
    return Verified(
        source_chain_id=bundle["sourceChainId"],
        block_number=head.number,
        block_hash=hex_data(block_hash),
        account=to_checksum_address(address) if account else None,
        exists=account is not None and account.exists,
        facts=claimed,
        slots=_verified_slots(bundle, account, claimed_slots),
        time=_verified_time(bundle, head),
    )


def _check_origin(bundle: dict[str, Any]) -> None:
    """Check the form of what the bundle says of its origin, which nothing in it can prove."""
    for name in ("sourceChainId", "destinationChainId"):
        if not _has_form(bundle.get(name), _CHAIN_ID):
            raise InvalidBundle(f"The bundle's {name} is not a chain id, a decimal number as a string.")
    if not _has_form(bundle.get("batch"), _BATCH_ID):
        raise InvalidBundle("The bundle's batch is not the identifier of a batch.")
    number = bundle.get("query")
    if type(number) is not int or number < 1:
        raise InvalidBundle("The bundle's query is not the number of a query.")
    if bundle.get("factsRegistry") is not None:
        _bytes(bundle, "factsRegistry", 20)


def _has_form(value: object, form: re.Pattern[str]) -> bool:
    return isinstance(value, str) and form.fullmatch(value) is not None


def _verified_slots(bundle: dict[str, Any], account: trie.Account | None, claimed: dict[str, Any]) -> dict[str, str]:
    if claimed and account is None:
        raise InvalidBundle("The bundle claims slots of no account.")
    nodes = _nodes(bundle, "storageNodes") if claimed else []
    slots: dict[str, str] = {}
    for slot, entry in claimed.items():
        number = int.from_bytes(_bytes({"slot": slot}, "slot", 32))
        places = entry.get("proof") if isinstance(entry, dict) else None
        if not isinstance(places, list) or not all(type(at) is int and 0 <= at < len(nodes) for at in places):
            raise InvalidBundle(f"The proof of slot {slot} is not a list of places in storageNodes.")
        assert account is not None
        word = hex_data(trie.verify_slot(account.storage_root, number, [nodes[at] for at in places]).to_bytes(32))
        if entry.get("word") != word:
            raise InvalidBundle(f"The proof shows another word in slot {slot} than the bundle claims.")
        slots[slot] = word
    return slots


def _verified_time(bundle: dict[str, Any], head: Header) -> VerifiedTime | None:
    text = bundle.get("timestamp")
    if text is None:
        return None
    # A time of more digits would be a time after which no header comes.
    if not isinstance(text, str) or not (text.isascii() and text.isdigit()) or len(text) > 20:
        raise InvalidBundle("The bundle's timestamp is not a number of seconds.")
    timestamp = int(text)
    if head.timestamp > timestamp:
        raise InvalidBundle(f"The block is of {head.timestamp} s, after the time {timestamp} that the bundle names.")
    if bundle.get("nextHeader") is None:
        return VerifiedTime(timestamp, None)
    following = Header.decode(_bytes(bundle, "nextHeader"))
    if following.parent_hash != head.hash:
        raise InvalidBundle("The nextHeader is not that of the block after it.")
    if following.timestamp <= timestamp:
        raise InvalidBundle(f"The next block is of {following.timestamp} s, not after the time {timestamp}.")
    return VerifiedTime(timestamp, hex_data(following.hash))


def _row(account: trie.Account) -> AccountProof:
    """Return the account as the row that facts are read from; never stored."""
    return AccountProof(
        nonce=account.nonce,
        balance=account.balance,
        storage_root=hex_data(account.storage_root),
        code_hash=hex_data(account.code_hash),
    )


def _object(bundle: dict[str, Any], name: str) -> dict[str, Any]:
    value = bundle.get(name)
    if not isinstance(value, dict):
        raise InvalidBundle(f"The bundle's {name} are not an object.")
    return value


def _bytes(bundle: dict[str, Any], name: str, length: int | None = None) -> bytes:
    try:
        return read_data(bundle.get(name), length)
    except ValueError:
        expected = "hex" if length is None else f"{length} bytes in hex"
        raise InvalidBundle(f"The bundle's {name} is not {expected}.") from None


def _nodes(bundle: dict[str, Any], name: str) -> Sequence[bytes]:
    nodes = bundle.get(name)
    if not isinstance(nodes, list):
        raise InvalidBundle(f"The bundle's {name} is not a list.")
    return [_bytes({name: node}, name) for node in nodes]
