"""JSON-RPC with nodes, at a URL or through a connection that the caller has made, such as web3.py's."""

import json
from collections.abc import Sequence
from typing import Any

from batch_query_client.asking import Patience, ask, host
from batch_query_client.effects import MEGABYTE, Provider, ProviderCall, Request, Steps
from batch_query_client.errors import NodeRefused, Unavailable, UnexpectedAnswer, WrongChain
from batch_query_client.plain_text import hex_data, plain

# Calls in one request. Nodes allow some hundreds.
_CALLS_TOGETHER = 50
_MAX_BYTES = 8 * MEGABYTE
_MAX_CONTAINERS = 100_000

_HEX_DIGITS = frozenset("0123456789abcdefABCDEF")


class Node:
    """A node, given as a URL, a provider, or an object with a `provider`, such as web3.py's `Web3` and `AsyncWeb3`.

    Raises `ValueError` for other objects.
    """

    def __init__(self, node: Any, patience: Patience) -> None:
        self._patience = patience
        self._provider: Provider | None = None
        self._url = ""
        if isinstance(node, str):
            if not node.startswith(("http://", "https://")):
                raise ValueError("Name a node with an http or https URL, or a connection of web3.py.")
            self._url = node
            return
        self._provider = getattr(node, "provider", node)
        if not hasattr(self._provider, "make_request"):
            raise ValueError("Name a node with an http or https URL, or a connection of web3.py.")

    @property
    def name(self) -> str:
        """Return the node's name for messages. Its URL may hold a key."""
        return f"The node {host(self._url)}" if self._url else "The node"

    def call(self, method: str, *parameters: Any) -> Steps[Any]:
        """Return the result of one call. Raises `NodeRefused`, `Unavailable`."""
        (result,) = yield from self.calls([(method, parameters)])
        if isinstance(result, NodeRefused):
            raise result
        return result

    def calls(self, calls: Sequence[tuple[str, Sequence[Any]]], *, together: int = _CALLS_TOGETHER) -> Steps[list[Any]]:
        """Return the results of many calls, in order. A refused call has its `NodeRefused` instead.

        `together` is the number of calls in one request. Large answers need a lower number. Raises `Unavailable`.
        """
        replies: list[Any] = []
        if self._provider is not None:
            for method, parameters in calls:
                replies.append((yield from self._by_provider(method, parameters)))
        else:
            for start in range(0, len(calls), together):
                replies += yield from self._post(calls[start : start + together])
        return [self._result(reply) for reply in replies]

    def require_chain(self, chain_id: int) -> Steps[None]:
        """Check that the node serves this chain. Raises `WrongChain`."""
        node_chain_id = read_quantity((yield from self.call("eth_chainId")))
        if node_chain_id != chain_id:
            raise WrongChain(f"{self.name} is one of chain {node_chain_id}, not of chain {chain_id}.")

    def _by_provider(self, method: str, parameters: Sequence[Any]) -> Steps[Any]:
        assert self._provider is not None
        try:
            return (yield ProviderCall(self._provider, method, list(parameters)))
        except Exception as error:  # noqa: BLE001 (each library raises its own errors, and their text may show a URL)
            raise Unavailable(f"{self.name} did not answer {method} ({type(error).__name__}).") from None

    def _post(self, calls: Sequence[tuple[str, Sequence[Any]]]) -> Steps[list[Any]]:
        bodies: Any = [
            {"jsonrpc": "2.0", "id": number, "method": method, "params": list(parameters)}
            for number, (method, parameters) in enumerate(calls, 1)
        ]
        body = json.dumps(bodies[0] if len(bodies) == 1 else bodies).encode()
        headers = [("content-type", "application/json"), ("accept", "application/json")]
        seconds = self._patience.answer_seconds
        request = Request("POST", self._url, headers, body, max_bytes=_MAX_BYTES, seconds=seconds)
        # A request may be sent twice, because a signed transaction can take effect only once.
        answer = yield from ask(request, self._patience)
        replies, name = _json(answer.content), f"{self.name} {answer.through}".rstrip()
        if len(bodies) == 1:
            replies = [replies]
        if not isinstance(replies, list) or not all(isinstance(reply, dict) for reply in replies):
            raise UnexpectedAnswer(f"{name} did not answer JSON-RPC (HTTP status {answer.status}).")
        by_id = {reply["id"]: reply for reply in replies if isinstance(reply.get("id"), int)}
        if len(bodies) == 1 and "error" in replies[0]:
            return replies  # a node that can't read the request doesn't know its id
        if set(by_id) != set(range(1, len(bodies) + 1)):
            raise UnexpectedAnswer(f"{name} did not answer all of {len(bodies)} calls.")
        return [by_id[number] for number in range(1, len(bodies) + 1)]

    def _result(self, reply: Any) -> Any:
        if isinstance(reply, dict) and reply.get("error"):
            error = reply["error"]
            message = error.get("message") if isinstance(error, dict) else error
            return NodeRefused(f"{self.name} refused: {plain(message)}")
        if not isinstance(reply, dict) or "result" not in reply:
            raise UnexpectedAnswer(f"{self.name} did not answer JSON-RPC.")
        return reply["result"]


def _json(content: bytes) -> Any:
    if content.count(b"[") + content.count(b"{") > _MAX_CONTAINERS:
        return None  # empty lists and objects take twenty times as much memory as their text
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return None


def read_quantity(value: Any) -> int:
    """Read a number such as 0x1f. Raises `UnexpectedAnswer`."""
    digits = value[2:] if isinstance(value, str) and value.startswith("0x") else ""
    if not 1 <= len(digits) <= 64 or not _HEX_DIGITS.issuperset(digits):
        raise UnexpectedAnswer("The node's answer is not a number.")
    return int(digits, 16)


def read_data(value: Any) -> bytes:
    """Read bytes such as 0x00ff. Raises `UnexpectedAnswer`."""
    if isinstance(value, bytes):
        return bytes(value)  # web3.py returns HexBytes
    digits = value[2:] if isinstance(value, str) and value.startswith("0x") else "x"
    if len(digits) % 2 or not _HEX_DIGITS.issuperset(digits):
        raise UnexpectedAnswer("The node's answer is not hexadecimal data.")
    return bytes.fromhex(digits)


def transaction_call(to: str, data: bytes) -> dict[str, str]:
    """Return the first parameter of `eth_call`, the call."""
    return {"to": to, "data": hex_data(data)}
