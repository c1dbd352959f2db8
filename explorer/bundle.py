"""The proof bundle: all that is needed to check the facts of one query without this service and without a network.

A JSON object. `header` is the block header's RLP, whose keccak-256 is `blockHash`; `accountProof` are the nodes of the
state trie from the header's state root to the account (EIP-1186, `accountProof`); `facts` are the words that the facts
registry answers, by property. Binary values are 0x-prefixed hex; chain ids are decimal strings, as in the API.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from chains import header, trie
from chains.encoding import read_data
from proving import facts
from proving.models import AccountProof, FactsRegistry
from queries.models import AccountField, Batch, Query

FORMAT = "account-facts-1"


class InvalidBundle(ValueError):
    """The bundle does not show what it says; the message is one sentence."""


def build(batch: Batch, query: Query) -> dict[str, Any] | None:
    """The bundle of a query of a batch that is DONE, or None where its proof is not there (any more)."""
    block = query.block
    proof = AccountProof.objects.filter(block=block, address=query.address).first()
    if proof is None or not block.header_rlp:
        return None
    registry = FactsRegistry.objects.filter(
        destination_chain_id=batch.destination_chain_id, source_chain_id=block.source_chain_id
    ).first()
    words = facts.words(proof)
    return {
        "format": FORMAT,
        "batch": batch.pk,
        "query": query.position + 1,
        "sourceChainId": str(block.source_chain_id),
        "blockNumber": str(block.number),
        "blockHash": block.hash,
        "header": "0x" + bytes(block.header_rlp).hex(),
        "account": query.address,
        "accountProof": proof.nodes,
        "facts": {field.name: "0x" + words[field].hex() for field in query.account_fields},
        "destinationChainId": str(batch.destination_chain_id),
        "factsRegistry": registry.address if registry else None,
    }


@dataclass(frozen=True)
class Verified:
    """What a bundle proves, given that `block_hash` is the hash of block `block_number` of the chain it names."""

    source_chain_id: str
    block_number: int
    block_hash: str
    account: str
    facts: dict[str, str]
    exists: bool


def verify(document: str | bytes) -> Verified:
    """Check a bundle from its block hash down to each fact. Raises `InvalidBundle`."""
    try:
        bundle = json.loads(document)
    except (ValueError, RecursionError):
        raise InvalidBundle("The file is not JSON.") from None
    if not isinstance(bundle, dict) or bundle.get("format") != FORMAT:
        raise InvalidBundle(f"The file is not a proof bundle of the format {FORMAT}.")
    block_hash, account = _bytes(bundle, "blockHash", 32), _bytes(bundle, "account", 20)
    try:
        head = header.verify(_bytes(bundle, "header"), block_hash)
    except header.InvalidHeader as invalid:
        raise InvalidBundle(str(invalid)) from None
    if bundle.get("blockNumber") != str(head.number):
        raise InvalidBundle(f"The header is that of block {head.number}, not of the block that the bundle names.")
    try:
        proven = trie.verify_account(head.state_root, account, _nodes(bundle))
    except trie.InvalidProof as invalid:
        raise InvalidBundle(str(invalid)) from None
    claimed = bundle.get("facts")
    if not isinstance(claimed, dict) or not claimed:
        raise InvalidBundle("The bundle claims no facts.")
    words = facts.words(_proof(proven))
    for name, word in claimed.items():
        if name not in AccountField.__members__:
            raise InvalidBundle(f"The bundle claims a fact that is not known: {str(name)[:40]!r}.")
        if word != "0x" + words[AccountField[name]].hex():
            raise InvalidBundle(f"The proof shows another {name} than the bundle claims.")
    return Verified(
        str(bundle.get("sourceChainId")),
        head.number,
        "0x" + block_hash.hex(),
        "0x" + account.hex(),
        claimed,
        proven.exists,
    )


def _proof(account: trie.Account) -> AccountProof:
    """The account as the row that facts are read from; never stored."""
    return AccountProof(
        nonce=account.nonce,
        balance=account.balance,
        storage_root="0x" + account.storage_root.hex(),
        code_hash="0x" + account.code_hash.hex(),
    )


def _bytes(bundle: dict[str, Any], name: str, length: int | None = None) -> bytes:
    try:
        return read_data(bundle.get(name), length)
    except ValueError:
        expected = "hex" if length is None else f"{length} bytes in hex"
        raise InvalidBundle(f"The bundle's {name} is not {expected}.") from None


def _nodes(bundle: dict[str, Any]) -> Sequence[bytes]:
    nodes = bundle.get("accountProof")
    if not isinstance(nodes, list):
        raise InvalidBundle("The bundle's accountProof is not a list.")
    return [_bytes({"accountProof": node}, "accountProof") for node in nodes]
