"""Requests of public clients of the replaced service, and the ways in which these clients read answers.

The request heads in `recorded.http` were recorded byte for byte from the libraries that the clients use: axios 1.6 on
Node and Bun, node-fetch 2.7, Node's own fetch, requests, curl, and fetch in Chromium. The bodies follow the clients'
code and documentation. Angle brackets mark values that differ between installations.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.serving.process import Answer


class GivesUp(Exception):
    """The client gives up, with the text that it shows or reads."""


# --- How libraries and clients read -----------------------------------------------------------------------------------


def _of_any_status(answer: Answer) -> Any:
    """Read an answer like `await (await fetch(…)).json()`."""
    return json.loads(answer.body)


def _of_success(answer: Answer) -> Any:
    """Read an answer like axios, `raise_for_status`, and clients that check `response.ok`."""
    if not 200 <= answer.status < 300:
        raise GivesUp(answer.status)
    return json.loads(answer.body)


def _without_error(answer: Answer) -> Any:
    """Read an answer like the voting relayer, which stops at an `error` whatever the HTTP status is."""
    body = json.loads(answer.body)
    if body.get("error"):
        raise GivesUp(body["error"])
    return body


def _as_printed(answer: Answer) -> Any:
    """Read an answer like a program that parses curl's output."""
    return json.loads(answer.body)


@dataclass(frozen=True)
class Client:
    submission: str
    question: str  # request for the batch's status
    read: Callable[[Answer], Any] = _of_any_status

    def identifier(self, answer: Answer) -> str:
        body = self.read(answer)
        if "internalId" not in body:
            raise GivesUp(body)
        return str(body["internalId"])

    def status(self, answer: Answer) -> str:
        return str(self.read(answer)["queryStatus"])


class PresentClient(Client):
    """A client of the present API, which has a status for each query of a request."""

    def identifier(self, answer: Answer) -> str:
        body = self.read(answer)
        if "request_id" not in body:
            raise GivesUp(body)
        return str(body["request_id"])

    def status(self, answer: Answer) -> str:
        statuses = {query["status"] for query in self.read(answer)["queries"]}
        if statuses & {"FAILED", "REJECTED"}:
            return "REJECTED"
        # The relayer takes an empty list as done, too.
        return "DONE" if statuses <= {"COMPLETED"} else "IN_PROGRESS"


def as_sent(request: str, **places: object) -> bytes:
    """Return the request's bytes, with values in place of angle brackets. An empty line separates head and body."""
    head, _, body = request.partition("\n\n")
    for name, value in places.items():
        head, body = (text.replace(f"<{name}>", str(value)) for text in (head, body))
    head = head.replace("<length>", str(len(body)))
    return head.replace("\n", "\r\n").encode() + b"\r\n\r\n" + body.encode()


# --- Clients ----------------------------------------------------------------------------------------------------------

_RECORDED = {
    name: request.rstrip("\n")
    for name, request in (
        part.split("\n", 1) for part in Path(__file__).with_name("recorded.http").read_text("utf-8").split("### ")[1:]
    )
}


def _client(name: str, read: Callable[[Answer], Any], *, question: str = "", of_kind: type[Client] = Client) -> Client:
    """Return the client with this name in `recorded.http`. It may ask with another client's question."""
    return of_kind(_RECORDED[f"{name} submits"], _RECORDED[f"{question or name} asks"], read)


EXTENSION = _client("extension", _of_success, question="guide")
PAGE = _client("page", _of_success)
PREFLIGHT, CONNECTIONS = _RECORDED["preflight"], _RECORDED["connections"]

# The extension's request for a block with every box ticked.
_PROPERTIES = (
    *("PARENT_HASH", "UNCLES_HASH", "COINBASE", "PROPOSER", "STATE_ROOT", "TRANSACTIONS_ROOT", "RECEIPTS_ROOT"),
    *("LOGS_BLOOM", "DIFFICULTY", "BLOCK_NUMBER", "GAS_LIMIT", "GAS_USED", "TIMESTAMP", "EXTRA_DATA", "MIX_HASH"),
    *("NONCE", "BASE_FEE_PER_GAS", "WITHDRAWALS_ROOT", "BLOB_GAS_USED", "EXCESS_BLOB_GAS"),
    *("PARENT_BEACON_BLOCK_ROOT", "PROPOSER"),
)
_OF_BLOCK = '{"destinationChainId":"<destination>","fee":"0","data":{"11155111":{"block:<block>":{"header":%s}}}}'


def _extension_asks_for(*properties: str) -> Client:
    body = _OF_BLOCK % json.dumps(properties, separators=(",", ":"))
    return replace(EXTENSION, submission="\n\n".join((EXTENSION.submission.partition("\n\n")[0], body)))


EXTENSION_ON_BLOCK = _extension_asks_for(*_PROPERTIES)

CLIENTS = {
    "documentation, guide": _client("guide", _as_printed),
    "documentation, reference": _client("reference", _as_printed),
    # A relayer of voting proposals to another chain, and its version of two years before.
    "relayer": _client("relayer", _without_error),
    "former relayer": _client("former relayer", _of_any_status),
    # A demonstration script for votes by storage proofs.
    "voting script": _client("voting script", _of_success),
    # A tutorial for Bun, which polls every five seconds for half an hour.
    "tutorial": _client("tutorial", _of_success),
    # A market maker of a bridge. It writes slots as web3.py 7 does, and as Python's decimal numbers.
    "market maker": _client("market maker", _of_success),
    # A backend for users who claim tokens. Its GET has a content type but no body.
    "claims": _client("claims", _of_any_status),
    # A shell script that relays commitments. Its body is indented by jq, and it reads only the identifier.
    "shell script": _client("shell script", _as_printed, question="guide"),
    # A browser extension for the pages of a block explorer.
    "extension": EXTENSION,
    "extension, block": _extension_asks_for(*[name for name in _PROPERTIES if name != "PROPOSER"]),
    # A page that shows a balance. It requests the status at another endpoint's path.
    "page": PAGE,
    # Two of these, as they send to the present API.
    "present relayer": _client("present relayer", _without_error, of_kind=PresentClient),
    "present tutorial": _client("present tutorial", _of_success, of_kind=PresentClient),
}
