"""Logs in the JSON of receipts, shortened to their RLP while they are received.

A log without topics and data costs 375 gas. It takes 400 bytes as JSON and more than 1,000 as Python's objects.
"""

import json
import re
from collections.abc import Iterable

import rlp
from rlp.codec import length_prefix

from chains.encoding import hex_data, read_data, read_list

# An object without another one in it, which a receipt with logs isn't.
_OBJECT = re.compile(rb"\{[^{}]*\}")
# More commas than a log has. Other objects may have many values, which take much memory.
_MOST_COMMAS = 30


def shorten(content: bytes) -> bytes:
    """Return the JSON with a string in place of each log: its RLP in hexadecimal digits."""
    return _OBJECT.sub(_shorten, content)


def _shorten(found: re.Match[bytes]) -> bytes:
    if found[0].count(b",") > _MOST_COMMAS:
        return found[0]
    try:
        log = json.loads(found[0])
        address, data = read_data(log["address"], 20), read_data(log["data"])
        topics = [read_data(topic, 32) for topic in read_list(log["topics"])]
    except (ValueError, KeyError, RecursionError):
        return found[0]
    in_rlp = rlp_list([rlp.encode(address), rlp_list(map(rlp.encode, topics)), rlp.encode(data)])
    return f'"{hex_data(in_rlp)}"'.encode()


def rlp_list(items: Iterable[bytes]) -> bytes:
    """Return the RLP of a list, from the RLP of its items."""
    content = b"".join(items)
    prefix: bytes = length_prefix(len(content), 0xC0)
    return prefix + content
