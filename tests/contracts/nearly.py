"""Words that differ from another word only in a part."""

from collections.abc import Container, Iterator

_GROUP = 8


def nearly(word: bytes) -> Iterator[bytes]:
    """Yield words that would pass if a comparison read only a part of `word`, or folded its parts."""
    size = len(word)
    everywhere = range(size)
    for offset in everywhere:
        yield _changed(word, [offset], 1 << offset % 8)
    for end in everywhere[1:]:
        yield _changed(word, everywhere[:end])
        yield _changed(word, everywhere[end:])
    groups = [everywhere[start : start + _GROUP] for start in everywhere[::_GROUP]]
    for group in groups[1:-1]:
        yield _changed(word, [offset for offset in everywhere if offset not in group])
    # Two equal changes cancel each other out in a fold by "xor".
    for distance in (1, 2, 4, 8, 16):
        for offset in everywhere[:: 2 * distance]:
            yield _changed(word, [each for each in (offset, offset + distance) if each < size])


def _changed(word: bytes, places: Container[int], by: int = 0xFF) -> bytes:
    return bytes(byte ^ by if offset in places else byte for offset, byte in enumerate(word))
