"""An HTTP server with answers from a test: a node that lies or fails, often placed before a real one."""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

import urllib3

from tests.chains import geth_answers
from tests.http_server import serving


@dataclass
class Raw:
    """An answer that isn't JSON, or whose status isn't 200."""

    content: bytes = b""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    seconds_between_bytes: float = 0


@contextmanager
def lying_node(answer: Callable[[Any], Any], refused_name: str = "none") -> Iterator[str]:
    """Serve `answer(body)` on a free port. Yield the URL. Programs with the refused name (User-Agent) get 403."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            reply = answer(body)
            raw = reply if isinstance(reply, Raw) else Raw(json.dumps(reply).encode())
            if refused_name in self.headers["User-Agent"]:
                raw = Raw(status=403)
            self.send_response(raw.status)
            for name, value in {"Content-Length": str(len(raw.content)), **raw.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            parts = [bytes([byte]) for byte in raw.content] if raw.seconds_between_bytes else [raw.content]
            # A client hangs up once it has read enough.
            with suppress(ConnectionError):
                for part in parts:
                    self.wfile.write(part)
                    time.sleep(raw.seconds_between_bytes)

        def log_message(self, *_):
            pass

    with serving(Handler) as url:
        yield url


def each(answer: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a function that answers each question of a batch like `answer`."""
    return lambda body: [answer(question) for question in body] if isinstance(body, list) else answer(body)


def recording(into: list[Any], answer: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a function like `answer` that also appends each body to `into`."""

    def answer_and_record(body: Any) -> Any:
        into.append(body)
        return answer(body)

    return answer_and_record


_connections = urllib3.PoolManager(maxsize=16)


def ask(url: str, body: Any) -> Any:
    """Return the real node's answer."""
    return _connections.request("POST", url, json=body, timeout=10, retries=False).json()


def is_chain_id(body: Any) -> bool:
    return isinstance(body, dict) and body["method"] == "eth_chainId"


def result(body: Any, value: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": body["id"], "result": value}


def error(body: Any, code: int, message: str, data: Any = None) -> dict[str, Any]:
    more = {} if data is None else {"data": data}
    return {"jsonrpc": "2.0", "id": body["id"], "error": {"code": code, "message": message} | more}


def refusing(url: str, refusals: Mapping[str, geth_answers.Refusal]) -> AbstractContextManager[str]:
    """Return a node, placed before a real one, that refuses these methods with a code and words, and passes on nothing
    of them. The `refusals` may change.
    """

    def answer(question: Any) -> Any:
        refusal = refusals.get(question["method"])
        return error(question, *refusal) if refusal else ask(url, question)

    return lying_node(each(answer))


def hiding(url: str, number: int, *, serves_states: bool = False) -> AbstractContextManager[str]:
    """Return a node, placed before a real one, that lacks a block's header and, unless it
    `serves_states`, its state.
    """
    of_block = {"jsonrpc": "2.0", "id": 1, "method": "eth_getBlockByNumber", "params": [hex(number), False]}
    block_hash = ask(url, of_block)["result"]["hash"]

    def change(question: Any, reply: Any) -> list[Any]:
        if question["method"] in {"eth_getBlockByNumber", "eth_getBlockByHash"}:
            return [reply | {"result": None} if question["params"][0] in {hex(number), block_hash} else reply]
        last = next(reversed(question["params"]), None)
        if serves_states or last not in ({"blockHash": block_hash}, hex(number)):
            return [reply]
        lacking = "an unknown block hash" if isinstance(last, dict) else "a block number to come"
        return [error(question, *geth_answers.REFUSALS[lacking])]

    return between(url, change)


# The places of the block in the parameters of methods that read a state.
_BLOCK_PLACES = {"eth_getProof": 2, "eth_getStorageAt": 2, "eth_call": 1, "eth_getBalance": 1, "eth_getCode": 1}


def pruned(url: str, *, keeps: int = 128, only_proofs: bool = False) -> AbstractContextManager[str]:
    """Return a node, placed before a real one, that refuses older states in the words of geth 1.17.

    With `only_proofs`, it is geth with `--gcmode archive` alone: it answers calls at old blocks.
    """

    def change(question: Any, reply: Any) -> list[Any]:
        place = _BLOCK_PLACES.get(question["method"])
        if place is None or (only_proofs and question["method"] != "eth_getProof"):
            return [reply]
        at = question["params"][place]
        method, named = (
            ("eth_getBlockByHash", at["blockHash"]) if isinstance(at, dict) else ("eth_getBlockByNumber", at)
        )
        block, head = (
            ask(url, {"jsonrpc": "2.0", "id": 1, "method": method, "params": [named, False]})["result"]
            for method, named in ((method, named), ("eth_getBlockByNumber", "latest"))
        )
        if int(head["number"], 16) - int(block["number"], 16) <= keeps:
            return [reply]
        return [error(question, *geth_answers.no_state(block["stateRoot"][2:]))]

    return between(url, change)


def estimating(url: str, false: Callable[[int], int]) -> AbstractContextManager[str]:
    """Return a node, placed before a real one, that changes estimates of gas."""

    def change(question: Any, reply: Any) -> list[Any]:
        is_estimate = question["method"] == "eth_estimateGas" and "result" in reply
        return [reply | {"result": hex(false(int(reply["result"], 16)))} if is_estimate else reply]

    return between(url, change)


def between(url: str, change: Callable[[Any, Any], list[Any]]) -> AbstractContextManager[str]:
    """Return a node placed before a real one. `change(question, reply)` returns the replies to forward."""

    def answer(body: Any) -> Any:
        answered, replies = ask(url, body), []
        for question in body if isinstance(body, list) else [body]:
            reply = next(
                candidate
                for candidate in (answered if isinstance(answered, list) else [answered])
                if candidate["id"] == question["id"]
            )
            replies += change(question, reply)
        return replies if isinstance(body, list) else next(iter(replies), [])

    return lying_node(answer)
