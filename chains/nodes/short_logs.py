"""Logs in the JSON of receipts, shortened to their RLP while they are received.

A log without topics and data costs 375 gas. It takes 400 bytes as JSON and more than 1,000 as Python's objects.
"""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

import rlp
from rlp.codec import length_prefix

from chains.encoding import hex_data, read_data, read_list

# An object without another one in it, which a receipt with logs isn't.
_OBJECT = re.compile(rb"\{[^{}]*\}")
# More commas than a log has. Other objects may have many values, which take much memory.
_MOST_COMMAS = 30
_NO_DATA = (None, "", "0x", "0x0")


def shorten(content: bytes) -> bytes:
    """Return the JSON with a string in place of each log: its RLP in hexadecimal digits."""
    return _OBJECT.sub(_shorten, content)


def _shorten(found: re.Match[bytes]) -> bytes:
    if found[0].count(b",") > _MOST_COMMAS:
        return found[0]
    try:
        log = json.loads(found[0])
        in_rlp = encode(log) if {"address", "topics", "data"} <= log.keys() else b""
    except (ValueError, RecursionError):
        in_rlp = b""
    return f'"{hex_data(in_rlp)}"'.encode() if in_rlp else found[0]


def encode(log: Mapping[str, Any]) -> bytes:
    """Return the RLP of a log in JSON. Null, "" and a lone 0 stand for no data. Raises `ValueError`."""
    data = b"" if log.get("data") in _NO_DATA else read_data(log.get("data"))
    topics = [rlp.encode(read_data(topic, 32)) for topic in read_list(log.get("topics") or [])]
    return rlp_list([rlp.encode(read_data(log.get("address"), 20)), rlp_list(topics), rlp.encode(data)])


def rlp_list(items: Iterable[bytes]) -> bytes:
    """Return the RLP of a list, from the RLP of its items."""
    content = b"".join(items)
    prefix: bytes = length_prefix(len(content), 0xC0)
    return prefix + content
