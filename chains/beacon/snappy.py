"""What streams of snappy frames hold (google/snappy, `framing_format.txt` and `format_description.txt`).

Checksums aren't compared: who reads a stream verifies what is in it.
"""

# What one frame holds at most, by the format.
_FRAME = 1 << 16
_COMPRESSED, _PLAIN, _FIRST_SKIPPED = 0x00, 0x01, 0x80
_HEAD, _CHECKSUM = 4, 4
# The length that a block begins with takes so many bytes at most, by the format.
_MOST_OF_LENGTH = 5


class InvalidSnappy(ValueError):
    """The bytes are no stream of snappy frames, or hold more than they may; the message is one sentence."""


def unpack(framed: bytes, most: int, *, enough: int | None = None) -> bytes:
    """Return what a stream holds, at most `most` bytes. Raises `InvalidSnappy`.

    With `enough`, it is read no further than until there are so many bytes, and may be cut after them.
    """
    out, at = bytearray(), 0
    while at < len(framed) if enough is None else len(out) < enough:
        kind, size = framed[at : at + 1], int.from_bytes(framed[at + 1 : at + _HEAD], "little")
        frame = framed[at + _HEAD : at + _HEAD + size]
        if len(frame) != size or not kind:
            raise InvalidSnappy("A snappy stream is cut.")
        if kind[0] == _COMPRESSED:
            out += _unpack_block(frame[_CHECKSUM:])
        elif kind[0] == _PLAIN:
            out += frame[_CHECKSUM:]
        elif kind[0] < _FIRST_SKIPPED:
            raise InvalidSnappy("A snappy stream has a frame of an unknown kind.")
        if len(out) > most:
            raise InvalidSnappy(f"A snappy stream holds more than {most} bytes.")
        at += _HEAD + size
    return bytes(out)


def _unpack_block(data: bytes) -> bytes:
    try:
        return _elements(data)
    except (IndexError, StopIteration):
        raise InvalidSnappy("A snappy block is cut.") from None


def _elements(data: bytes) -> bytes:
    out = bytearray()
    # The length comes first, in bytes of which all but the last have the highest bit.
    at = next(place for place, byte in enumerate(data[:_MOST_OF_LENGTH]) if byte < 0x80) + 1
    told = sum((byte & 0x7F) << 7 * place for place, byte in enumerate(data[:at]))
    while at < len(data):
        tag, at = data[at], at + 1
        size, kind = (tag >> 2) + 1, tag & 3
        if kind == 0:
            if size > 60:
                width = size - 60
                size, at = int.from_bytes(data[at : at + width], "little") + 1, at + width
            out += data[at : at + size]
            at += size
        else:
            width = 1 if kind == 1 else 2 if kind == 2 else 4
            distance, at = int.from_bytes(data[at : at + width], "little"), at + width
            if kind == 1:
                size, distance = (tag >> 2 & 7) + 4, tag >> 5 << 8 | distance
            _repeat(out, distance, size)
        if len(out) > _FRAME:
            raise InvalidSnappy(f"A snappy block holds more than {_FRAME} bytes.")
    if at > len(data) or len(out) != told:
        raise InvalidSnappy("A snappy block holds another number of bytes than it tells.")
    return bytes(out)


def _repeat(out: bytearray, distance: int, size: int) -> None:
    """Append what begins `distance` bytes before the end. It may overlap with what is appended."""
    if not 0 < distance <= len(out):
        raise InvalidSnappy("A snappy block repeats what it doesn't have.")
    start = len(out) - distance
    found = out[start : start + size]
    out += (found * (-(-size // distance)))[:size]
