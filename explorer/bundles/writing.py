"""Writes the proof bundle of a query from the stored headers and proofs."""

from collections.abc import Mapping
from typing import Any

from chains.encoding import hex_data
from explorer.batch import fact_display
from explorer.bundles import FORMAT, next_headers
from proving import facts
from proving.facts import AccountFact, Fact, HeaderFact, SlotFact
from proving.models import AccountProof
from proving.registry import deployments
from queries.models import Batch, Query

# The maximum that is named to the database: others may have asked for thousands of the same account.
_FEW_SLOTS = 500


def build(batch: Batch, query: Query) -> dict[str, Any] | None:
    """Return the bundle of a query that is completed, or None where its proofs are not there (any more)."""
    block = query.block
    if block is None or not block.header_rlp:
        return None
    words = fact_display.proven([query], None)[query.pk]
    proof = AccountProof.objects.filter(block=block, address=query.address).first()
    if len(words) < len(facts.of(query)) or (query.address and proof is None):
        return None
    rows = deployments.all_of(batch.destination_chain_id, [block.source_chain_id])
    registry = deployments.of_batch(batch, rows).get(block.source_chain_id)
    nodes, slots = _slots(proof, words) if proof else ([], {})
    times = {} if query.timestamp is None else {block: query.timestamp}
    following = next_headers.stored(times).get(block.pk)
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
    """Return `storageNodes` and `slots`."""
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
