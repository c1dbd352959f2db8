"""The proof bundle: all that is needed to check the facts of one query without this service and without a network.

A JSON object. Binary values are 0x-prefixed hex; numbers are decimal strings, as chain ids in the API.

- `header` is the block header's RLP, whose keccak-256 is `blockHash`.
- `account`, or null where the query is about the header. `accountProof` are the nodes of the state trie from the
  header's state root to the account (EIP-1186, `accountProof`).
- `facts` are the words that the facts registry answers, by property: of the account, or of the header.
- `slots` has for each storage slot its `word`, and as `proof` the places (from 0) in `storageNodes` of the nodes of the
  storage trie from the account's storage root to the slot (EIP-1186, `storageProof`). Proofs share most of their nodes.
- `timestamp`, or null where the block was named by its number. `nextHeader` is the RLP of the header after the block's:
  the two show that the block was the latest at that time. It is null where it is not stored here; then a bundle does
  not prove that.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eth_abi.abi import decode
from eth_utils.crypto import keccak

from chains import header, trie
from chains.encoding import hex_data, read_data
from chains.header import Header
from explorer.pages import shown_facts, trusted_sources
from proving import facts
from proving.facts import AccountFact, Fact, HeaderFact, SlotFact
from proving.models import AccountProof, Transaction
from queries.models import AccountField, Batch, Block, Query

FORMAT = "facts-2"

_CHAIN_ID = re.compile(r"[1-9][0-9]{0,19}", re.ASCII)
_BATCH_ID = re.compile(r"[0-9A-HJKMNP-TV-Z]{26}", re.ASCII)
_PROVE_TIMESTAMP = keccak(text="proveTimestamp(bytes,bytes,uint256)")[:4]


class InvalidBundle(ValueError):
    """The bundle does not show what it says; the message is one sentence."""


# --- Building ---------------------------------------------------------------------------------------------------------


def build(batch: Batch, query: Query) -> dict[str, Any] | None:
    """The bundle of a query of a batch that is DONE, or None where its proofs are not there (any more)."""
    block = query.block
    if block is None or not block.header_rlp:
        return None
    words = shown_facts.proven([query], None)[query.pk]
    proof = AccountProof.objects.filter(block=block, address=query.address).first()
    if len(words) < len(facts.of(query)) or (query.address and proof is None):
        return None
    rows = trusted_sources.registries(batch.destination_chain_id, [block.source_chain_id])
    registry = trusted_sources.holding(batch, rows).get(block.source_chain_id)
    nodes, slots = _slots(proof, words) if proof else ([], {})
    following = _next_header(block, query.timestamp) if query.timestamp is not None else None
    return {
        "format": FORMAT,
        "batch": batch.pk,
        "query": query.position + 1,
        "sourceChainId": str(block.source_chain_id),
        "blockNumber": str(block.number),
        "blockHash": block.hash,
        "header": hex_data(bytes(block.header_rlp)),
        "account": query.address or None,
        "accountProof": proof.nodes if proof else None,
        "facts": {
            fact.field.name: hex_data(word)
            for fact, word in words.items()
            if isinstance(fact, AccountFact | HeaderFact)
        },
        "slots": slots,
        "storageNodes": nodes,
        "timestamp": None if query.timestamp is None else str(query.timestamp),
        "nextHeader": hex_data(following) if following else None,
        "destinationChainId": str(batch.destination_chain_id),
        "factsRegistry": registry.address if registry else None,
    }


def _slots(proof: AccountProof, words: Mapping[Fact, bytes]) -> tuple[list[str], dict[str, Any]]:
    """`storageNodes` and `slots`."""
    wanted = {fact.slot: word for fact, word in words.items() if isinstance(fact, SlotFact)}
    if not wanted:
        return [], {}
    places: dict[str, int] = {}
    proofs: dict[str, list[int]] = {}
    # What others asked of the same account is among them.
    for slot, nodes in proof.slot_proofs.values_list("slot", "nodes").iterator():
        if slot in wanted:
            proofs[slot] = [places.setdefault(node, len(places)) for node in nodes]
    return list(places), {slot: {"word": hex_data(word), "proof": proofs[slot]} for slot, word in wanted.items()}


def _next_header(block: Block, timestamp: int) -> bytes | None:
    """The RLP of a header that shows that the block was the latest at the time, if there is one among what is stored.

    It is there if somebody asked for that block, or in the transaction that proved the time.
    """
    rows = Block.objects.filter(source_chain_id=block.source_chain_id, number=block.number + 1)
    for stored in rows.values_list("header_rlp", flat=True):
        if stored is not None and _is_next(bytes(stored), block, timestamp):
            return bytes(stored)
    for data in Transaction.objects.filter(accumulates=block).order_by("pk").values_list("data", flat=True):
        if bytes(data)[:4] == _PROVE_TIMESTAMP:
            _, sent, _ = decode(["bytes", "bytes", "uint256"], bytes(data)[4:])
            if _is_next(sent, block, timestamp):
                return bytes(sent)
    return None


def _is_next(encoded: bytes, block: Block, timestamp: int) -> bool:
    following = Header.decode(encoded)
    return hex_data(following.parent_hash) == block.hash and following.timestamp > timestamp


# --- Checking ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class VerifiedTime:
    """The block was the latest at the time, given that `next_hash` is the hash of the block after it."""

    timestamp: int  # unix seconds
    next_hash: str | None  # None: the bundle doesn't hold the next header, and proves nothing of the time


@dataclass(frozen=True)
class Verified:
    """What a bundle proves, given that `block_hash` is the hash of block `block_number` of chain `source_chain_id`."""

    source_chain_id: str  # claimed only: a header does not say of which chain it is
    block_number: int
    block_hash: str
    account: str | None  # None: the facts are the header's
    exists: bool  # the account
    facts: dict[str, str]  # word by property
    slots: dict[str, str]  # word by slot
    time: VerifiedTime | None  # None: the block was named by its number


def verify(document: str | bytes) -> Verified:
    """Check a bundle from its block hash down to each fact. Raises `InvalidBundle`."""
    try:
        bundle = json.loads(document)
    except (ValueError, RecursionError):
        raise InvalidBundle("The file is not JSON.") from None
    if not isinstance(bundle, dict) or bundle.get("format") != FORMAT:
        raise InvalidBundle(f"The file is not a proof bundle of the format {FORMAT}.")
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
        account=hex_data(address) if account else None,
        exists=account is not None and account.exists,
        facts=claimed,
        slots=_verified_slots(bundle, account, claimed_slots),
        time=_verified_time(bundle, head),
    )


def _check_origin(bundle: dict[str, Any]) -> None:
    """Nothing in the bundle can prove where it comes from, so of this only the form is checked."""
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
    if not isinstance(text, str) or not (text.isascii() and text.isdigit()) or len(text) > 20:  # noqa: PLR2004 (2^64)
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
    """The account as the row that facts are read from; never stored."""
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
