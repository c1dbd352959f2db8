"""Calldata of a genuine call with false offsets and sizes."""

from collections.abc import Iterator, Sequence

_NEAR = (-64, -33, -32, -31, -1, 1, 31, 32, 33, 64)


def lies(data: bytes, places: Sequence[int]) -> Iterator[bytes]:
    """Yield the call with false words for offsets and sizes of its dynamic arguments.

    The false words are near the right ones, far from them, or overflow. Other calls are cut off.
    """
    starts = [4 + int.from_bytes(data[at : at + 32]) for at in places]
    for at in (*places, *starts):
        genuine = int.from_bytes(data[at : at + 32])
        words = {*(genuine + by for by in _NEAR), 0, *(start - 4 for start in starts), len(data), 2**64, 2**255}
        for word in sorted({word % 2**256 for word in (*words, 2**256 - genuine)} - {genuine}):
            yield data[:at] + word.to_bytes(32) + data[at + 32 :]
    # Some of the last 31 bytes may only fill a word.
    yield from (data[:size] for size in range(4, len(data) - 31, 53))
