"""Identifiers of batches and deliveries, as people and programs write them.

The letters of a ULID are the same in any case (https://github.com/ulid/spec). Rows have the capital ones.
"""

import re

ULID = "[0-9A-HJKMNP-TV-Za-hjkmnp-tv-z]{26}"
_MESSAGE = re.compile(f"[Mm][Ss][Gg]_({ULID})")


def batch_id(text: str) -> str:
    """Return the identifier of a batch as rows have it; empty if the text is no ULID. No batch has that."""
    return text.upper() if re.fullmatch(ULID, text) else ""


def message_id(text: str) -> str:
    """Return the identifier of a delivery as rows have it; empty if the text is none."""
    message = _MESSAGE.fullmatch(text)
    return f"msg_{message[1].upper()}" if message else ""
