"""Calldata of a genuine call whose words about places and sizes are others."""

from collections.abc import Iterator, Sequence

_NEAR = (-64, -33, -32, -31, -1, 1, 31, 32, 33, 64)


def lies(data: bytes, places: Sequence[int]) -> Iterator[bytes]:
    """Yield the call with other words where the offsets of its arguments of any size are, and where their sizes are.

    Some are near what they were, some far, and some overflow; some calls are cut instead.
    """
    starts = [4 + int.from_bytes(data[at : at + 32]) for at in places]
    for at in (*places, *starts):
        told = int.from_bytes(data[at : at + 32])
        words = {*(told + by for by in _NEAR), 0, *(start - 4 for start in starts), len(data), 2**64, 2**255}
        for word in sorted({word % 2**256 for word in (*words, 2**256 - told)} - {told}):
            yield data[:at] + word.to_bytes(32) + data[at + 32 :]
    yield from (data[:size] for size in range(4, len(data), 53))
