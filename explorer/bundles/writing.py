"""Writes the proof bundle of a query from the stored headers and proofs."""

from collections.abc import Mapping
from typing import Any

from eth_abi.abi import decode
from eth_utils.crypto import keccak

from chains.encoding import hex_data
from chains.header import Header
from explorer.bundles import FORMAT
from explorer.pages import shown_facts, trusted_sources
from proving import facts
from proving.facts import AccountFact, Fact, HeaderFact, SlotFact
from proving.models import AccountProof, Transaction
from queries.models import Batch, Block, Query

# So many are named to the database: others may have asked thousands of the same account.
_FEW_SLOTS = 500
_PROVE_TIMESTAMP = keccak(text="proveTimestamp(bytes,bytes,uint256)")[:4]


def build(batch: Batch, query: Query) -> dict[str, Any] | None:
    """The bundle of a query that is completed, or None where its proofs are not there (any more)."""
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
        "selector": query.selector,
        "blockNumber": str(block.number),
        "blockHash": block.hash,
        "header": hex_data(bytes(block.header_rlp)),
        "account": query.address or None,
        "name": query.name or None,
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
    found = proof.slot_proofs.values_list("slot", "nodes")
    if len(wanted) <= _FEW_SLOTS:
        found = found.filter(slot__in=wanted)
    # Of more, what others asked of the same account is among them.
    for slot, nodes in found.iterator():
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
