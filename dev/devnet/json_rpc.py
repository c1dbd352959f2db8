"""JSON-RPC calls to nodes on this machine, and the Engine API, by which a consensus client drives a node.

Only the standard library is used, so that every environment can import it.
"""

import base64
import hmac
import json
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

# Versions of forkchoiceUpdated, getPayload and newPayload by fork. A client refuses those of another fork.
_VERSIONS = {"cancun": (3, 3, 3), "prague": (3, 4, 4), "osaka": (3, 5, 4), "amsterdam": (4, 6, 5)}

_BUILT_SECONDS = 30

# The environment's proxy can't reach a node on this machine.
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class NodeErrorReply(Exception):
    """A node answered with an error, or doesn't start. The message is one sentence."""


def post(url: str, method: str, params: Sequence[Any], headers: Mapping[str, str] | None = None) -> Any:
    """Return the `result` of one call. Raises `NodeErrorReply`, and `OSError` if no node answers."""
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": list(params)}).encode()
    request = urllib.request.Request(  # noqa: S310 (the URL is our own)
        url, body, {"Content-Type": "application/json", **(headers or {})}
    )
    try:
        with _OPENER.open(request, timeout=60) as answer:
            reply = json.load(answer)
    except urllib.error.HTTPError as refusal:
        reply = json.load(refusal)
    if "error" in reply:
        raise NodeErrorReply(f"{method}: {json.dumps(reply['error'])}")
    return reply["result"]


class EngineApi:
    """The Engine API of a node. Calls are signed with the node's secret.

    `log` is geth's log: geth builds a block with the pool's transactions only after it has answered.
    """

    def __init__(self, url: str, secret: bytes, log: Path | None = None) -> None:
        self._url, self._secret, self._log = url, secret, log

    def call(self, method: str, *params: Any) -> Any:
        """Return the `result` of a call. The method is without `engine_`. Raises `NodeErrorReply`."""
        signed = _part({"alg": "HS256", "typ": "JWT"}) + b"." + _part({"iat": int(time.time())})
        token = signed + b"." + _base64(hmac.digest(self._secret, signed, "sha256"))
        return post(self._url, f"engine_{method}", params, {"Authorization": f"Bearer {token.decode()}"})

    def choose(
        self, head: str, final: str, attributes: Mapping[str, Any] | None = None, *, fork: str = "prague"
    ) -> str | None:
        """Set the node's head and final block, by their hashes.

        If there are attributes, the node starts to build the next block, and its payload id is returned. `fork` is that
        of the next block. Raises `NodeErrorReply`.
        """
        state = {"headBlockHash": head, "safeBlockHash": final, "finalizedBlockHash": final}
        reply = self.call(f"forkchoiceUpdatedV{_VERSIONS[fork][0]}", state, attributes)
        if reply["payloadStatus"]["status"] != "VALID":
            raise NodeErrorReply(f"The head is {reply['payloadStatus']}")
        payload_id: str | None = reply.get("payloadId")
        return payload_id

    def take(self, payload_id: str | None, beacon_root: str, *, fork: str) -> dict[str, Any]:
        """Return the payload that the node has built, and let the node add it to its chain. Raises `NodeErrorReply`."""
        payload, requests = self.built(payload_id, fork=fork)
        self.add(payload, beacon_root, *requests, fork=fork)
        return payload

    def built(self, payload_id: str | None, *, fork: str) -> tuple[dict[str, Any], list[Sequence[str]]]:
        """Return the payload that the node has built, with the last arguments for `add`. Raises `NodeErrorReply`."""
        self._wait_until_built(payload_id)
        built = self.call(f"getPayloadV{_VERSIONS[fork][1]}", payload_id)
        return built["executionPayload"], [] if fork == "cancun" else [built["executionRequests"]]

    def add(self, payload: Mapping[str, Any], beacon_root: str, *requests: Sequence[str], fork: str) -> None:
        """Let the node add a block, which isn't its head yet. Raises `NodeErrorReply`."""
        reply = self.call(f"newPayloadV{_VERSIONS[fork][2]}", payload, [], beacon_root, *requests)
        if reply["status"] != "VALID":
            raise NodeErrorReply(f"The block is {reply}")

    def _wait_until_built(self, payload_id: str | None) -> None:
        """Wait for the line in geth's log. Until then geth would answer with an empty block."""
        deadline = time.monotonic() + _BUILT_SECONDS
        while self._log:
            lines = self._log.read_text(errors="replace").splitlines()
            if any("Updated payload" in line and f"id={payload_id} " in line for line in lines):
                return
            if time.monotonic() > deadline:
                raise NodeErrorReply(f"geth built no block: {lines[-5:]}")
            time.sleep(0.005)


def fork_at(config: Mapping[str, Any], timestamp: int) -> str:
    """Return the newest fork in the `config` of a genesis whose time has come."""
    return [fork for fork in _VERSIONS if config.get(f"{fork}Time", timestamp + 1) <= timestamp][-1]


def _part(value: dict[str, Any]) -> bytes:
    return _base64(json.dumps(value).encode())


def _base64(value: bytes) -> bytes:
    return base64.urlsafe_b64encode(value).rstrip(b"=")
