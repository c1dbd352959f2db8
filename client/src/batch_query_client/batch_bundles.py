"""Verifies the proof bundles of whole batches: each query as its bundle alone would be (`bundles`).

What is trusted are the hashes of all blocks that the batch is about, which nodes of the caller's tell.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Annotated

from pydantic import Field

from batch_query_client import bundles
from batch_query_client.answers import Data, Number
from batch_query_client.block_header import BlockHeader
from batch_query_client.bundles import BlockPart, Document, Part, Place, QueryPart, VerifiedBundle
from batch_query_client.effects import Steps
from batch_query_client.errors import InvalidBundle, NodeRefused, WrongChain
from batch_query_client.json_rpc import Node, read_quantity
from batch_query_client.plain_text import hex_data

FORMAT = "facts-batch-1"

# In one request to a node: a block comes with the hashes of its transactions, and some chains have thousands in each.
_BLOCKS_TOGETHER = 10
# Chains in a sentence.
_MOST_NAMED = 5

BlockHashes = Mapping[tuple[int, int], str | bytes]
"""By the source chain's id and the block's number: 32 bytes, or 0x and 64 digits."""


class _Query(QueryPart):
    number: Annotated[int, Field(strict=True)]
    block: Place
    account_proof: tuple[Place, ...] | None
    nodes: tuple[Data, ...]
    """The nodes that no query before it has. Places are in the nodes of all queries, one after the other."""


class _Batch(Part):
    """A bundle as it comes."""

    batch: Annotated[str, Field(pattern="^[0-9A-Za-z]{1,64}$")]
    destination_chain_id: Number
    blocks: tuple[BlockPart, ...]
    queries: tuple[_Query, ...]


@dataclass(frozen=True)
class VerifiedBatchBundle:
    """The facts that a batch's bundle proves of the blocks whose hashes the caller trusts."""

    batch: str
    """Claimed only, as is the next: no header says what a user asked for. So nothing shows that there are no more
    queries than these."""
    destination_chain_id: int
    queries: Mapping[int, VerifiedBundle]
    """By number, from 1, with none left out between."""


def verify_batch_bundle(document: str | bytes, *, block_hashes: BlockHashes) -> VerifiedBatchBundle:
    """Check a batch's bundle from the blocks' hashes down to each fact of each query. Needs no network.

    `block_hashes` must come from a source that you trust, such as your own nodes, and not from the bundle. It must have
    all blocks that `bundle_blocks` names; where the block after one of them is missing, no time of it is shown. Raises
    `InvalidBundle`.
    """
    bundle, headers = _read(document)
    trusted = {about: bundles.trusted_hash(value) for about, value in block_hashes.items()}
    for block, header in zip(bundle.blocks, headers, strict=True):
        about = block.source_chain_id, header.number
        name = f"block {header.number} of chain {block.source_chain_id}"
        if about not in trusted:
            raise InvalidBundle(f"The bundle is about {name}, whose hash is not given.")
        if trusted[about] != header.hash:
            raise InvalidBundle(f"The bundle is about {name} with another hash than yours: {hex_data(header.hash)}.")
    return _verify(bundle, headers, trusted)


def bundle_blocks(document: str | bytes) -> tuple[tuple[int, int], ...]:
    """Return the source chain's id and the number of each block that a bundle claims to be about.

    The bundle is of a query or of a batch. Nothing is checked. Raises `InvalidBundle` where it is no bundle.
    """
    if not is_of_batch(document):
        return (bundles.bundle_block(document),)
    bundle = bundles.read_as(_Batch, FORMAT, document)
    return tuple((block.source_chain_id, block.block_number) for block in bundle.blocks)


def is_of_batch(document: str | bytes) -> bool:
    """Return whether it is said to be the bundle of a batch, and not of one query. Raises `InvalidBundle`."""
    return bundles.format_of(document) == FORMAT


def verify_by_nodes(document: str | bytes, nodes: Sequence[Node]) -> Steps[VerifiedBatchBundle]:
    """Check a bundle as `verify_batch_bundle` does, with the hashes that these nodes of the source chains tell.

    Several nodes of one chain must agree. Raises `WrongChain` too, where a chain has no node.
    """
    bundle, headers = _read(document)
    of_chain: dict[int, dict[int, bytes]] = {block.source_chain_id: {} for block in bundle.blocks}
    following: dict[int, set[int]] = {chain_id: set() for chain_id in of_chain}
    for block, header in zip(bundle.blocks, headers, strict=True):
        of_chain[block.source_chain_id][header.number] = header.hash
        if block.next_header is not None:
            following[block.source_chain_id].add(header.number + 1)
    asked: dict[int, list[Node]] = {}
    for node in nodes:
        asked.setdefault(read_quantity((yield from node.call("eth_chainId"))), []).append(node)
    if missing := [str(chain_id) for chain_id in of_chain if chain_id not in asked]:
        named = ", ".join(missing[:_MOST_NAMED]) + (", ..." if len(missing) > _MOST_NAMED else "")
        raise WrongChain(f"The bundle has blocks of chain {named}, and no node of it is given.")
    told: dict[tuple[int, int], bytes] = {}
    for chain_id, claimed in of_chain.items():
        numbers = sorted({*claimed, *following[chain_id]})
        for node in asked[chain_id]:
            hashes = yield from _block_hashes(node, numbers)
            for number, found in zip(numbers, hashes, strict=True):
                if found != claimed.get(number, found):
                    raise InvalidBundle(
                        f"{node.name} knows another block {number} of chain {chain_id} than the bundle is about."
                    )
                if found is not None and told.setdefault((chain_id, number), found) != found:
                    raise InvalidBundle(f"Your nodes know different blocks {number} of chain {chain_id}.")
    return _verify(bundle, headers, told)


def _block_hashes(node: Node, numbers: Sequence[int]) -> Steps[list[bytes | None]]:
    calls = [(method, parameters) for method, *parameters in map(bundles.asking_hash, numbers)]
    answers = yield from node.calls(calls, together=_BLOCKS_TOGETHER)
    for answer in answers:
        if isinstance(answer, NodeRefused):
            raise answer
    return [bundles.block_hash_in(answer) for answer in answers]


def _read(document: str | bytes) -> tuple[_Batch, list[BlockHeader]]:
    """Return the bundle, and the headers of its blocks. Whether their hashes are to be trusted is not checked."""
    bundle = bundles.read_as(_Batch, FORMAT, document)
    if not bundle.queries:
        raise InvalidBundle("The bundle has no queries.")
    if [query.number for query in bundle.queries] != list(range(1, len(bundle.queries) + 1)):
        raise InvalidBundle("The bundle's queries are not numbered from 1, each once and in order.")
    if any(query.block >= len(bundle.blocks) for query in bundle.queries):
        raise InvalidBundle("A query names a block that the bundle lacks.")
    if {query.block for query in bundle.queries} != set(range(len(bundle.blocks))):
        raise InvalidBundle("The bundle has a block that none of its queries is about.")
    if len({(block.source_chain_id, block.block_number) for block in bundle.blocks}) < len(bundle.blocks):
        raise InvalidBundle("The bundle has a block twice.")
    return bundle, [bundles.checked_header(block) for block in bundle.blocks]


def _verify(
    bundle: _Batch, headers: Sequence[BlockHeader], trusted: Mapping[tuple[int, int], bytes]
) -> VerifiedBatchBundle:
    """Check each query of a bundle whose headers have trusted hashes. Raises `InvalidBundle`."""
    verified: dict[int, VerifiedBundle] = {}
    nodes: list[bytes] = []
    for query in bundle.queries:
        nodes += query.nodes
        block, header = bundle.blocks[query.block], headers[query.block]
        next_hash = trusted.get((block.source_chain_id, header.number + 1))
        try:
            verified[query.number] = bundles.verify_query(_alone(query, block, nodes), header, next_hash)
        except InvalidBundle as invalid:
            raise InvalidBundle(f"Query {query.number}: {invalid}") from None
    return VerifiedBatchBundle(bundle.batch, bundle.destination_chain_id, verified)


def _alone(query: _Query, block: BlockPart, nodes: Sequence[bytes]) -> Document:
    """Return the bundle of this query alone. `nodes` are those of the batch's bundle so far. Raises `InvalidBundle`."""
    proofs = [query.account_proof or (), *(entry.proof for entry in query.slots.values())]
    if any(place >= len(nodes) for place in chain.from_iterable(proofs)):
        raise InvalidBundle("Its proof names nodes that neither it nor a query before it has.")
    here: dict[int, int] = {}
    slots = {
        slot: entry.model_copy(update={"proof": tuple(here.setdefault(place, len(here)) for place in entry.proof)})
        for slot, entry in query.slots.items()
    }
    return Document.model_construct(
        **{name: getattr(block, name) for name in BlockPart.model_fields},
        account=query.account,
        account_proof=None if query.account_proof is None else tuple(nodes[place] for place in query.account_proof),
        facts=query.facts,
        slots=slots,
        timestamp=query.timestamp,
        storage_nodes=tuple(nodes[place] for place in here),
    )
