"""The headers that show that blocks were the latest at a time, from what is stored."""

from collections.abc import Iterator, Mapping, Sequence

from eth_abi.abi import decode
from eth_utils.crypto import keccak

from accounts import statements
from chains.encoding import hex_data
from chains.header import Header
from queries.models import Block

_PROVE_TIMESTAMP = keccak(text="proveTimestamp(bytes,bytes,uint256)")[:4]


def stored(times: Mapping[Block, int]) -> dict[int, bytes]:
    """Return, by the block's id, a header after it, later than its time (unix seconds), as RLP, where there is one.

    It is there if somebody asked for that block, or in the transaction that proved the time. Two statements.
    """
    found: dict[int, bytes] = {}
    if not times:
        return found
    by_id = {block.pk: (block, seconds) for block, seconds in times.items()}
    for pk, encoded in _candidates([block for block, _ in by_id.values()]):
        if pk not in found and _is_next(encoded, *by_id[pk]):
            found[pk] = encoded
    return found


def _candidates(blocks: Sequence[Block]) -> Iterator[tuple[int, bytes]]:
    """Yield headers as RLP, each with the id of the block that it may come after."""
    following = [(block.pk, block.source_chain_id, block.number + 1) for block in blocks]
    join, values = statements.join_rows(following, "named", {2: "b.source_chain_id", 3: "b.number"})
    rows = statements.every(
        f"SELECT named.column1, b.header_rlp FROM queries_block b {join} WHERE b.header_rlp IS NOT NULL",  # noqa: S608
        values,
    )
    for pk, encoded in rows:
        yield pk, bytes(encoded)
    join, values = statements.join_rows([(block.pk,) for block in blocks], "named", {1: "a.block_id"})
    rows = statements.every(
        "SELECT a.block_id, t.data FROM proving_transaction_accumulates a "  # noqa: S608 (names of this project)
        f"JOIN proving_transaction t ON t.id = a.transaction_id {join} "
        "WHERE substr(t.data, 1, 4) = %s ORDER BY t.id",
        (*values, _PROVE_TIMESTAMP),
    )
    for pk, data in rows:
        _, sent, _ = decode(["bytes", "bytes", "uint256"], bytes(data)[4:])
        yield pk, sent


def _is_next(encoded: bytes, block: Block, timestamp: int) -> bool:
    following = Header.decode(encoded)
    return hex_data(following.parent_hash) == block.hash and following.timestamp > timestamp
