"""Stored headers that show which block was the latest at a time."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from django.db.models import BinaryField
from django.db.models.functions import Substr
from eth_abi.abi import decode
from eth_utils.crypto import keccak

from chains.encoding import hex_data
from chains.tries.header import Header
from proving.models import Transaction
from queries.models import Block

_PROVE_TIMESTAMP = keccak(text="proveTimestamp(bytes,bytes,uint256)")[:4]


def stored(times: Mapping[Block, int]) -> dict[int, bytes]:
    """Return headers that prove times, as RLP, by the id of the block before them.

    `times` has unix seconds. Blocks without a stored next header are left out. A header is stored if a query is about
    its block, or if the transaction that proved the time contains it.
    """
    headers: dict[int, bytes] = {}
    if not times:
        return headers
    by_id = {block.pk: (block, seconds) for block, seconds in times.items()}
    for pk, encoded in _candidates([block for block, _ in by_id.values()]):
        if pk not in headers and _is_next(encoded, *by_id[pk]):
            headers[pk] = encoded
    return headers


def _candidates(blocks: Sequence[Block]) -> Iterator[tuple[int, bytes]]:
    """Yield stored headers as RLP, each with the id of the block that may come before it."""
    following = {(block.source_chain_id, block.number + 1): block.pk for block in blocks}
    for source, pairs in groupby(sorted(following), key=lambda pair: pair[0]):
        stored = Block.objects.filter(
            source_chain_id=source, number__in=[number for _, number in pairs], header_rlp__isnull=False
        )
        for number, encoded in stored.values_list("number", "header_rlp"):
            yield following[source, number], bytes(encoded or b"")
    sent = (
        Transaction.objects.filter(accumulates__in=blocks)
        .annotate(function=Substr("data", 1, 4, output_field=BinaryField()))
        .filter(function=_PROVE_TIMESTAMP)
        .order_by("pk")
    )
    for pk, data in sent.values_list("accumulates", "data"):
        _, header, _ = decode(["bytes", "bytes", "uint256"], bytes(data)[4:])
        yield pk, header


def _is_next(encoded: bytes, block: Block, timestamp: int) -> bool:
    following = Header.decode(encoded)
    return hex_data(following.parent_hash) == block.hash and following.timestamp > timestamp
