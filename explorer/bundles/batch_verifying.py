"""Verifies the proof bundle of a batch: makes of each query the bundle that it would have alone, which is verified."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from explorer.bundles import BATCH_FORMAT, verifying
from explorer.bundles.verifying import InvalidBundle, Verified

_OF_BLOCK = ("sourceChainId", "blockNumber", "blockHash", "header", "nextHeader", "factsRegistry")


@dataclass(frozen=True)
class VerifiedBatch:
    """The facts that a bundle proves, given that the hashes of all its blocks are those of these blocks."""

    batch: str  # claimed only, like the next
    destination_chain_id: str
    queries: dict[int, Verified]  # by number: from 1, with none left out between
    hashes: dict[tuple[str, int], str]
    """By source chain and number, those of all its blocks, and of the blocks after them by which it proves times."""


def verify(document: str | bytes) -> VerifiedBatch:
    """Check a batch's bundle from the blocks' hashes down to each fact. Raises `InvalidBundle`."""
    return verify_batch(verifying.read(document, BATCH_FORMAT))


def verify_batch(bundle: dict[str, Any]) -> VerifiedBatch:
    """Verify the bundle of a batch as `verify` does, whatever its format is said to be."""
    blocks, queries = _list(bundle, "blocks"), _list(bundle, "queries")
    if not queries:
        raise InvalidBundle("The bundle has no queries.")
    _require_distinct(blocks)
    nodes: list[Any] = []
    used: set[int] = set()
    verified: dict[int, Verified] = {}
    for number, query in enumerate(queries, 1):
        if not isinstance(query, dict) or type(query.get("number")) is not int or query["number"] != number:
            raise InvalidBundle(
                f"Where query {number} should be is another: queries are numbered from 1, each is once."
            )
        try:
            nodes += _list(query, "nodes")
            (at,) = _places([query.get("block")], blocks, "The query's block is no place in the bundle's blocks.")
            used.add(at)
            origin = {name: bundle.get(name) for name in ("batch", "destinationChainId")} | {"query": number}
            block = {name: blocks[at].get(name) for name in _OF_BLOCK}
            verified[number] = verifying.verify_query(origin | block | _alone(query, nodes))
        except InvalidBundle as invalid:
            raise InvalidBundle(f"Query {number}: {invalid}") from None
    if len(used) < len(blocks):
        raise InvalidBundle("The bundle has a block that none of its queries is about.")
    return VerifiedBatch(bundle["batch"], bundle["destinationChainId"], verified, _hashes(verified.values()))


def _hashes(verified: Iterable[Verified]) -> dict[tuple[str, int], str]:
    found: dict[tuple[str, int], str] = {}
    for proven in verified:
        chain, number = proven.source_chain_id, proven.block_number
        said = {number: proven.block_hash}
        if proven.time is not None and proven.time.next_hash is not None:
            said[number + 1] = proven.time.next_hash
        for of, block_hash in said.items():
            if found.setdefault((chain, of), block_hash) != block_hash:
                raise InvalidBundle(f"The bundle has two headers of block {of} of chain {chain}.")
    return found


def _require_distinct(blocks: Sequence[Any]) -> None:
    """Reject a block that is there twice: otherwise two blocks of one number could be shown."""
    named: set[tuple[str, str]] = set()
    for block in blocks:
        chain, number = (block.get(name) if isinstance(block, dict) else None for name in _OF_BLOCK[:2])
        if not isinstance(chain, str) or not isinstance(number, str):
            raise InvalidBundle("One of the bundle's blocks is none.")
        if (chain, number) in named:
            raise InvalidBundle(f"The bundle has block {number[:20]!r} of chain {chain[:20]!r} twice.")
        named.add((chain, number))


def _alone(query: dict[str, Any], nodes: Sequence[Any]) -> dict[str, Any]:
    """Return what the bundle of this query alone would have of it. `nodes` are those of the batch's bundle so far."""
    content: dict[str, Any] = {name: query.get(name) for name in ("account", "facts", "slots", "timestamp")}
    if query.get("account") is not None:
        sentence = "The accountProof is not a list of places in the nodes so far."
        content["accountProof"] = [nodes[at] for at in _places(query.get("accountProof"), nodes, sentence)]
    if not isinstance(query.get("slots"), dict):
        return content
    here: dict[int, int] = {}
    content["slots"] = {}
    for slot, entry in query["slots"].items():
        sentence = "The proof of a slot is not a list of places in the nodes so far."
        places = _places(entry.get("proof") if isinstance(entry, dict) else None, nodes, sentence)
        content["slots"][slot] = entry | {"proof": [here.setdefault(at, len(here)) for at in places]}
    return content | {"storageNodes": [nodes[at] for at in here]}


def _places(value: object, within: Sequence[Any], sentence: str) -> list[int]:
    if not isinstance(value, list) or not all(type(at) is int and 0 <= at < len(within) for at in value):
        raise InvalidBundle(sentence)
    return value


def _list(of: dict[str, Any], name: str) -> list[Any]:
    value = of.get(name)
    if not isinstance(value, list):
        raise InvalidBundle(f"The bundle's {name} are not a list.")
    return value
