"""Calls of JSON-RPC to nodes on this machine, and of the Engine API, by which a consensus client drives one.

Nothing but the standard library is needed, so that it may be used in any environment.
"""

import base64
import hmac
import json
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from typing import Any

# The environment's proxy would not find the node.
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class NodeRefused(Exception):
    """A node answered with an error, or doesn't come up; the message is one sentence."""


def post(url: str, method: str, params: Sequence[Any], headers: Mapping[str, str] | None = None) -> Any:
    """Return the `result` of one call. Raises `NodeRefused`, and `OSError` where nobody answers."""
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": list(params)}).encode()
    request = urllib.request.Request(  # noqa: S310 (a URL of our own)
        url, body, {"Content-Type": "application/json", **(headers or {})}
    )
    try:
        with _OPENER.open(request, timeout=60) as answer:
            reply = json.load(answer)
    except urllib.error.HTTPError as refusal:
        reply = json.load(refusal)
    if "error" in reply:
        raise NodeRefused(f"{method}: {json.dumps(reply['error'])}")
    return reply["result"]


class EngineApi:
    """The Engine API of a node, which believes whoever knows its secret."""

    def __init__(self, url: str, secret: bytes) -> None:
        self._url, self._secret = url, secret

    def call(self, method: str, *params: Any) -> Any:
        """Return the `result` of a call, whose method is named without `engine_`. Raises `NodeRefused`."""
        signed = _part({"alg": "HS256", "typ": "JWT"}) + b"." + _part({"iat": int(time.time())})
        token = signed + b"." + _base64(hmac.digest(self._secret, signed, "sha256"))
        return post(self._url, f"engine_{method}", params, {"Authorization": f"Bearer {token.decode()}"})

    def choose(self, head: str, final: str, attributes: Mapping[str, Any] | None = None) -> str | None:
        """Tell the node by hashes which block is the head, and which is final.

        With attributes it begins to build the next block, whose id is returned. Raises `NodeRefused`.
        """
        state = {"headBlockHash": head, "safeBlockHash": final, "finalizedBlockHash": final}
        said = self.call("forkchoiceUpdatedV3", state, attributes)
        if said["payloadStatus"]["status"] != "VALID":
            raise NodeRefused(f"The head is {said['payloadStatus']}")
        payload_id: str | None = said.get("payloadId")
        return payload_id

    def take(self, payload_id: str | None, beacon_root: str, *, prague: bool) -> dict[str, Any]:
        """Return the payload that the node has built, and have it add that to its chain. Raises `NodeRefused`."""
        version = 4 if prague else 3
        built = self.call(f"getPayloadV{version}", payload_id)
        requests = [built["executionRequests"]] if prague else []
        payload: dict[str, Any] = built["executionPayload"]
        said = self.call(f"newPayloadV{version}", payload, [], beacon_root, *requests)
        if said["status"] != "VALID":
            raise NodeRefused(f"Its own block is {said}")
        return payload


def _part(value: dict[str, Any]) -> bytes:
    return _base64(json.dumps(value).encode())


def _base64(value: bytes) -> bytes:
    return base64.urlsafe_b64encode(value).rstrip(b"=")
