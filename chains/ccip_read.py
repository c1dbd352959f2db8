"""CCIP-Read (EIP-3668): a contract that reverts with OffchainLookup names gateways that have what it lacks.

The contract's author chooses the URLs. So only origins are asked that the operator allows, no redirect is
followed, and time and size are bounded. Several lookups in one (ENSIP-21) are taken apart here where the contract lets
the client do so: then each gateway must be allowed by itself.
"""

import json
import re
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from eth_abi.abi import decode, encode
from eth_abi.exceptions import DecodingError
from eth_utils.abi import function_signature_to_4byte_selector

from chains import bounded_http, together
from chains.bounded_http import Answer, Failed, Post
from chains.encoding import hex_data, read_data
from chains.node_errors import ChainError, NodeUnavailable

_LOOKUP = function_signature_to_4byte_selector("OffchainLookup(address,string[],bytes,bytes4,bytes)")
_QUERY = function_signature_to_4byte_selector("query((address,string[],bytes)[])")
# For the client itself to take apart what is asked in a `query` (ENSIP-21).
_LOCAL = "x-batch-gateway:true"
_MOST_URLS = 4
_MOST_QUERIES = 10
_MAX_URL = 16 * 1024
# Proofs of other chains are long.
_MAX_BYTES = 1024 * 1024
_SILENCE_SECONDS = 3
# Nothing that parsers of URLs disagree about: no user, no backslash, and nothing but ASCII.
_URL = re.compile(r"(https?://[a-z0-9.-]+(?::[0-9]{1,5})?)(?:[/?][!-~]*)?")


class NotAnswered(ChainError):
    """The question has no answer. The message goes on from "the name …"."""

    is_allowed = True
    """False: an operator would have to allow a gateway."""


@dataclass(frozen=True)
class Lookup:
    sender: str
    urls: Sequence[str]
    data: bytes
    callback: bytes = b""
    extra: bytes = b""


def origin_of(url: str) -> str | None:
    """Return scheme, host and port of an http or https URL. None: it is none, or readers may disagree about it."""
    match = _URL.fullmatch(url)
    return match[1] if match else None


def lookup(reverted: bytes, to: str) -> Lookup | None:
    """Return what a call to a contract asks for by its revert data. None if the call simply reverted."""
    if reverted[:4] != _LOOKUP:
        return None
    try:
        sender, urls, data, callback, extra = decode(["address", "string[]", "bytes", "bytes4", "bytes"], reverted[4:])
    except (DecodingError, UnicodeDecodeError):
        return None
    # A contract that it has called has reverted so, and expects the answer itself.
    return Lookup(sender, urls, data, callback, extra) if sender.lower() == to.lower() else None


def answer(asked: Lookup, gateways: Collection[str], ends: float) -> bytes:
    """Ask the gateways, and return the calldata for the contract's callback. `ends` is as `time.monotonic` tells.

    Raises `NotAnswered`, and `NodeUnavailable` where gateways are down.
    """
    if _LOCAL in asked.urls and asked.data[:4] == _QUERY:
        got = _answer_each(asked.data[4:], gateways, ends)
    else:
        got = _ask(asked, gateways, ends)
    return asked.callback + encode(["bytes", "bytes"], [got, asked.extra])


def _answer_each(query: bytes, gateways: Collection[str], ends: float) -> bytes:
    try:
        (requests,) = decode(["(address,string[],bytes)[]"], query)
    except (DecodingError, UnicodeDecodeError):
        raise NotAnswered("has a resolver that asks for nothing that can be read") from None
    if len(requests) > _MOST_QUERIES:
        raise NotAnswered("has a resolver that asks for too much at once")
    # There is one for each name. So where one fails, there is no use in the others.
    responses = [_ask(Lookup(*request), gateways, ends) for request in requests]
    return encode(["bool[]", "bytes[]"], [[False] * len(responses), responses])


def _ask(asked: Lookup, gateways: Collection[str], ends: float) -> bytes:
    """Return the response of the first gateway that answers."""
    origins = {url: origin_of(url) for url in asked.urls[:_MOST_URLS]}
    allowed = {url: origin for url, origin in origins.items() if origin in gateways}
    if not allowed:
        named = ", ".join(dict.fromkeys(origin for origin in origins.values() if origin)) or "what is no web server"
        refused = NotAnswered(f"is resolved by {named[:200]}, which this service may not ask")
        refused.is_allowed = False
        raise refused
    for url, origin in allowed.items():
        got = together.share_exchange("gateways", _request(asked, url, ends), _post_all)
        # Another one may have what this one lacks, but not where it says that the question is wrong (EIP-3668).
        if isinstance(got, Answer) and 400 <= got.status < 500:
            raise NotAnswered(f"is unknown to its gateway {origin}, which answered with HTTP status {got.status}")
        if isinstance(got, Answer) and got.status == 200:
            try:
                return read_data(json.loads(got.content)["data"])
            except (ValueError, TypeError, KeyError, RecursionError):
                continue
    raise NodeUnavailable(f"No gateway of a name can be used: {', '.join(filter(None, allowed.values()))}.")


def _request(asked: Lookup, url: str, ends: float) -> Post:
    data, left = hex_data(asked.data), max(0.1, ends - time.monotonic())
    is_get = "{data}" in url
    url = url.replace("{sender}", asked.sender.lower()).replace("{data}", data)
    if len(url) > _MAX_URL:
        raise NotAnswered("has a resolver that asks for what is too long for a URL")
    return Post(
        url,
        b"" if is_get else json.dumps({"data": data, "sender": asked.sender.lower()}).encode(),
        method="GET" if is_get else "POST",
        max_bytes=_MAX_BYTES,
        silence_seconds=min(_SILENCE_SECONDS, left),
        total_seconds=left,
        read_statuses={200},
    )


def _post_all(requests: Sequence[Post]) -> list[Answer | Failed]:
    return bounded_http.post_all(requests)
