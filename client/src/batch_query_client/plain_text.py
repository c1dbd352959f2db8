"""Untrusted text made fit for terminals, logs and error messages, and bytes as text."""

MAX_CHARS = 2000


def plain(words: object) -> str:
    """Return one printable line of at most `MAX_CHARS` characters, without escape sequences or direction marks."""
    text = str(words)[: 2 * MAX_CHARS]
    line = " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())
    return line if len(line) <= MAX_CHARS else f"{line[: MAX_CHARS - 1]}…"


def hex_data(data: bytes) -> str:
    """Return the bytes as JSON-RPC data, such as 0x00ff."""
    return f"0x{data.hex()}"
