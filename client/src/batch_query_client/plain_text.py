"""Untrusted text made fit for terminals, logs and error messages, and bytes as text."""

from batch_query_client.combining_marks import with_few_marks

MAX_CHARS = 2000


def plain(words: object) -> str:
    """Return one printable line of at most `MAX_CHARS` characters, without escape sequences or direction marks.

    No character has more than 4 combining marks.
    """
    text = with_few_marks(str(words)[: 2 * MAX_CHARS])
    line = " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())
    return line if len(line) <= MAX_CHARS else f"{line[: MAX_CHARS - 1]}…"


def hex_data(data: bytes) -> str:
    """Return the bytes as JSON-RPC data, such as 0x00ff."""
    return f"0x{data.hex()}"
