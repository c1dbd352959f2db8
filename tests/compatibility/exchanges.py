"""Requests of public clients of the replaced service, and the ways in which these clients read answers.

The request heads were recorded byte for byte from the libraries that the clients use: axios 1.6 on Node and Bun,
node-fetch 2.7, Node's own fetch, requests, curl, and fetch in Chromium. The bodies follow the clients' code and
documentation. Angle brackets mark values that differ between installations.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
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


def as_sent(request: str, **places: object) -> bytes:
    """Return the request's bytes, with values in place of angle brackets. An empty line separates head and body."""
    head, _, body = request.partition("\n\n")
    for name, value in places.items():
        head, body = (text.replace(f"<{name}>", str(value)) for text in (head, body))
    head = head.replace("<length>", str(len(body)))
    return head.replace("\n", "\r\n").encode() + b"\r\n\r\n" + body.encode()


# --- Documentation ----------------------------------------------------------------------------------------------------

GUIDE = Client(
    """POST /submit-batch-query?apiKey=<key> HTTP/1.1
Host: <host>
User-Agent: curl/7.88.1
Accept: */*
Content-Type: application/json
Content-Length: <length>

{
  "destinationChainId": "11155111",
  "fee": "0",
  "data": {
    "11155111": {
      "block:<block>": {
        "accounts": {
          "0x17C2D875CB397D813eAE817DaFD25807E348Df07": {
            "props": ["BALANCE"],
            "slots": []
          }
        }
      }
    }
  }
}""",
    """GET /batch-query-status?apiKey=<key>&batchQueryId=<id> HTTP/1.1
Host: <host>
User-Agent: curl/7.88.1
Accept: */*

""",
    _as_printed,
)

REFERENCE = Client(
    """POST /submit-batch-query HTTP/1.1
Host: <host>
User-Agent: curl/7.88.1
Accept: */*
Content-Type: application/json
api-key: <key>
Content-Length: <length>

{
  "destinationChainId": "<destination>",
  "fee": "0",
  "data": {
    "11155111": {
      "block:<block>": {
        "header": [
          "STATE_ROOT",
          "TIMESTAMP"
        ]
      },
      "timestamp:<time>": {
        "accounts": {
          "vitalik.eth": {
            "slots": [],
            "props": [
              "BALANCE",
              "NONCE",
              "STORAGE_ROOT"
            ]
          },
          "0xd8da6bf26964af9d7eed9e03e53415d37aa96045": {
            "slots": [],
            "props": [
              "BALANCE"
            ]
          }
        }
      },
      "block:<earlier>": {
        "header": [
          "PARENT_HASH"
        ],
        "accounts": {
          "0x69030ef8C2744b37a096fAf2A4C78B4dAec1308b": {
            "slots": [
              "0x0000000000000000000000000000000000000000000000000000000000000001",
              "0xe90b7bceb6e7df5418fb78d8ee546e97c83a08bbccc01a0644d599ccd2a7c2e0"
            ],
            "props": []
          }
        }
      }
    }
  },
  "webhook": {
    "url": "<webhook>",
    "headers": {
      "Content-Type": "application/json"
    }
  }
}""",
    """GET /batch-query-status?batchQueryId=<id> HTTP/1.1
Host: <host>
User-Agent: curl/7.88.1
Accept: */*
api-key: <key>

""",
    _as_printed,
)

# --- Programs ---------------------------------------------------------------------------------------------------------

# A relayer of voting proposals to another chain.
RELAYER = Client(
    """POST /submit-batch-query?apiKey=<key> HTTP/1.1
host: <host>
connection: keep-alive
Content-Type: application/json
api-key: <key>
accept: */*
accept-language: *
sec-fetch-mode: cors
user-agent: node
accept-encoding: gzip, deflate
content-length: <length>

{"destinationChainId":"<destination>","fee":"100000","data":{"11155111":{"timestamp:<time>":{"accounts":{"<token>":\
{"props":["STORAGE_ROOT"]}}}}}}""",
    """GET /batch-query-status?apiKey=<key>&batchQueryId=<id> HTTP/1.1
host: <host>
connection: keep-alive
api-key: <key>
accept: */*
accept-language: *
sec-fetch-mode: cors
user-agent: node
accept-encoding: gzip, deflate

""",
    _without_error,
)

# An earlier version of this relayer, by two years.
FORMER_RELAYER = Client(
    """POST /submit-batch-query?apiKey=<key> HTTP/1.1
Content-Type: application/json
Accept: */*
Content-Length: <length>
User-Agent: node-fetch/1.0 (+https://github.com/bitinn/node-fetch)
Accept-Encoding: gzip,deflate
Host: <host>
Connection: close

{"destinationChainId":"<destination>","fee":"0","data":{"11155111":{"timestamp:<time>":{"accounts":{"<token>":\
{"props":["STORAGE_ROOT"]}}}}},"webhook":{"url":"<webhook>?timestamp=<time>&strategyAddress=0x1&key=212121424242",\
"headers":{"Content-Type":"application/json"}}}""",
    """GET /batch-query-status?apiKey=<key>&batchQueryId=<id> HTTP/1.1
Accept: */*
User-Agent: node-fetch/1.0 (+https://github.com/bitinn/node-fetch)
Accept-Encoding: gzip,deflate
Host: <host>
Connection: close

""",
)

# A demonstration script for votes by storage proofs.
VOTING_SCRIPT = Client(
    """POST /submit-batch-query?apiKey=<key> HTTP/1.1
Accept: application/json
Content-Type: application/json
User-Agent: axios/1.6.2
Content-Length: <length>
Accept-Encoding: gzip, compress, deflate, br
Host: <host>
Connection: keep-alive

{"destinationChainId":"<destination>","fee":"0","data":{"11155111":{"timestamp:<time>":{"accounts":{"<token>":\
{"props":["STORAGE_ROOT"]}}}}},"webhook":{"url":"<webhook>","headers":{"Content-Type":"application/json"}}}""",
    """GET /batch-query-status?apiKey=<key>&batchQueryId=<id> HTTP/1.1
Accept: application/json
User-Agent: axios/1.6.2
Accept-Encoding: gzip, compress, deflate, br
Host: <host>
Connection: keep-alive

""",
    _of_success,
)

# A tutorial for Bun, which polls every five seconds for half an hour.
TUTORIAL = Client(
    """POST /submit-batch-query?apiKey=<key> HTTP/1.1
Accept: application/json, text/plain, */*
Content-Type: application/json
User-Agent: axios/1.6.2
Content-Length: <length>
Accept-Encoding: gzip, compress, deflate, br
Host: <host>
Connection: keep-alive

{"destinationChainId":"<destination>","fee":"0","data":{"11155111":{"block:<block>":{"accounts":{"<contract>":\
{"slots":["0xe90b7bceb6e7df5418fb78d8ee546e97c83a08bbccc01a0644d599ccd2a7c2e0",\
"0xe90b7bceb6e7df5418fb78d8ee546e97c83a08bbccc01a0644d599ccd2a7c2e1",\
"0xe90b7bceb6e7df5418fb78d8ee546e97c83a08bbccc01a0644d599ccd2a7c2e2"]}}}}}}""",
    """GET /batch-query-status?batchQueryId=<id>&apiKey=<key> HTTP/1.1
Accept: application/json, text/plain, */*
User-Agent: axios/1.6.2
Accept-Encoding: gzip, compress, deflate, br
Host: <host>
Connection: keep-alive

""",
    _of_success,
)

# A market maker of a bridge. It writes slots as web3.py 7 does, and as Python's decimal numbers.
MARKET_MAKER = Client(
    """POST /submit-batch-query?apiKey=<key> HTTP/1.1
Host: <host>
User-Agent: python-requests/2.34.2
Accept-Encoding: gzip, deflate
Accept: */*
Connection: keep-alive
Content-Type: application/json
Content-Length: <length>

{"destinationChainId": "<destination>", "fee": "0", "data": {"11155111": {"block:<block>": {"accounts": {"<contract>": \
{"slots": ["00d4d29a6ac1bdb8eb7e0c7d0bce3d1c1ba7c3a0c0e7a5d0fba0c9bd67cf0d27", \
"0xd4d29a6ac1bdb8eb7e0c7d0bce3d1c1ba7c3a0c0e7a5d0fba0c9bd67cf0d29"]}}}}}}""",
    """GET /batch-query-status?apiKey=<key>&batchQueryId=<id> HTTP/1.1
Host: <host>
User-Agent: python-requests/2.34.2
Accept-Encoding: gzip, deflate
Accept: */*
Connection: keep-alive

""",
    _of_success,
)

# A backend for users who claim tokens. Its GET has a content type but no body.
CLAIMS = Client(
    """POST /submit-batch-query?apiKey=<key> HTTP/1.1
host: <host>
connection: keep-alive
Content-Type: application/json
accept: */*
accept-language: *
sec-fetch-mode: cors
user-agent: node
accept-encoding: gzip, deflate
content-length: <length>

{"destinationChainId":"<destination>","fee":"0","data":{"11155111":{"block:<block>":{"accounts":{"<contract>":\
{"slots":["0x0b10e2d527612073b26eecdfd717e6a320cf44b4afac2b0732d9fcbe2b7fa0cf",\
"0xb10e2d527612073b26eecdfd717e6a320cf44b4afac2b0732d9fcbe2b7fa0d0"]}}}}}}""",
    """GET /batch-query-status?batchQueryId=<id>&apiKey=<key> HTTP/1.1
host: <host>
connection: keep-alive
Content-Type: application/json
accept: */*
accept-language: *
sec-fetch-mode: cors
user-agent: node
accept-encoding: gzip, deflate

""",
)

# A shell script that relays commitments. Its body is indented by jq, and it reads only the identifier.
SHELL_SCRIPT = Client(
    """POST /submit-batch-query?apiKey=<key> HTTP/1.1
Host: <host>
User-Agent: curl/7.88.1
accept: application/json
Content-Type: application/json
Content-Length: <length>

{
  "destinationChainId": "<destination>",
  "fee": "0",
  "data": {
    "11155111": {
      "block:<block>": {
        "header": [
          "PARENT_HASH"
        ],
        "accounts": {
          "0x48B257EC1610d04191cC2c528d0c940AdbE1E439": {
            "slots": [
              "0x00000000000000000000000000000000000000000000000000000000000000fc",
              "0x8c85e6b1f3d1fbbd9f1bbd9ba8a4d6a6e4d0c7c9d2f51f3e2a0d9b8c7a6f5e4d"
            ],
            "props": []
          }
        }
      }
    }
  },
  "webhook": {
    "url": "<webhook>",
    "headers": {
      "Content-Type": "application/json"
    }
  }
}""",
    GUIDE.question,
    _as_printed,
)

# --- In browsers ------------------------------------------------------------------------------------------------------

_BROWSER = """\
Origin: https://<origin>
Sec-Fetch-Site: cross-site
Sec-Fetch-Mode: cors
Sec-Fetch-Dest: empty
Referer: https://<origin>/
Accept-Encoding: gzip, deflate, br, zstd
Accept-Language: en-US,en;q=0.9"""
_AGENT = (
    "User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/156.0.0.0 Safari/537.36"
)

# A browser extension for the pages of a block explorer.
EXTENSION = Client(
    f"""POST /submit-batch-query HTTP/1.1
Host: <host>
Connection: keep-alive
Content-Length: <length>
sec-ch-ua-platform: "Linux"
api-key: <key>
{_AGENT}
sec-ch-ua: "Not:A-Brand";v="8", "Chromium";v="156"
Content-Type: application/json
sec-ch-ua-mobile: ?0
Accept: */*
{_BROWSER}

"""
    """{"destinationChainId":"<destination>","fee":"0","data":{"11155111":{"block:<block>":{"accounts":{"<token>":\
{"props":["BALANCE","NONCE","CODE_HASH","STORAGE_ROOT"],"slots":[]}}}}}}""",
    GUIDE.question,
    _of_success,
)

# The extension's request for a block with every box ticked.
_PROPERTIES = (
    *("PARENT_HASH", "UNCLES_HASH", "COINBASE", "PROPOSER", "STATE_ROOT", "TRANSACTIONS_ROOT", "RECEIPTS_ROOT"),
    *("LOGS_BLOOM", "DIFFICULTY", "BLOCK_NUMBER", "GAS_LIMIT", "GAS_USED", "TIMESTAMP", "EXTRA_DATA", "MIX_HASH"),
    *("NONCE", "BASE_FEE_PER_GAS", "WITHDRAWALS_ROOT", "BLOB_GAS_USED", "EXCESS_BLOB_GAS"),
    *("PARENT_BEACON_BLOCK_ROOT", "PROPOSER"),
)
_HEAD = EXTENSION.submission.partition("\n\n")[0]
_OF_BLOCK = '{"destinationChainId":"<destination>","fee":"0","data":{"11155111":{"block:<block>":{"header":%s}}}}'


def _extension_asks_for(*properties: str) -> Client:
    body = _OF_BLOCK % json.dumps(properties, separators=(",", ":"))
    return Client(f"{_HEAD}\n\n{body}", GUIDE.question, _of_success)


EXTENSION_ON_BLOCK = _extension_asks_for(*_PROPERTIES)
EXTENSION_ON_BLOCK_OF_ETHEREUM = _extension_asks_for(*[name for name in _PROPERTIES if name != "PROPOSER"])

PREFLIGHT = f"""OPTIONS /submit-batch-query HTTP/1.1
Host: <host>
Connection: keep-alive
Accept: */*
Access-Control-Request-Method: POST
Access-Control-Request-Headers: api-key,content-type
{_AGENT}
{_BROWSER}

"""

CONNECTIONS = f"""GET /chain-connections HTTP/1.1
Host: <host>
Connection: keep-alive
sec-ch-ua-platform: "Linux"
{_AGENT}
sec-ch-ua: "Not:A-Brand";v="8", "Chromium";v="156"
sec-ch-ua-mobile: ?0
Accept: */*
{_BROWSER}

"""

# The extension sends this request before it submits, and shows the answer.
IS_ALIVE = CONNECTIONS.replace("/chain-connections", "/is-alive").replace(
    "Accept: */*", "Accept: application/json, */*"
)

# A page that shows a balance. It requests the status at another endpoint's path.
PAGE = Client(
    f"""POST /submit-batch-query?apiKey=<key> HTTP/1.1
Host: <host>
Connection: keep-alive
Content-Length: <length>
sec-ch-ua-platform: "Linux"
{_AGENT}
accept: application/json
sec-ch-ua: "Not:A-Brand";v="8", "Chromium";v="156"
Content-Type: application/json
sec-ch-ua-mobile: ?0
{_BROWSER}

"""
    """{"destinationChainId":"<destination>","fee":"0","data":{"11155111":{"block:<block>":{"accounts":{"<token>":\
{"props":["BALANCE"]}}}}},"webhook":{"url":"<webhook>","headers":{"Content-Type":"application/json"}}}""",
    f"""GET /batch-queries/<id>?apiKey=<key> HTTP/1.1
Host: <host>
Connection: keep-alive
sec-ch-ua-platform: "Linux"
{_AGENT}
accept: application/json
sec-ch-ua: "Not:A-Brand";v="8", "Chromium";v="156"
Content-Type: application/json
sec-ch-ua-mobile: ?0
{_BROWSER}

""",
    _of_success,
)

CLIENTS = {
    "documentation, guide": GUIDE,
    "documentation, reference": REFERENCE,
    "relayer": RELAYER,
    "former relayer": FORMER_RELAYER,
    "voting script": VOTING_SCRIPT,
    "tutorial": TUTORIAL,
    "market maker": MARKET_MAKER,
    "claims": CLAIMS,
    "shell script": SHELL_SCRIPT,
    "extension": EXTENSION,
    "extension, block": EXTENSION_ON_BLOCK_OF_ETHEREUM,
    "page": PAGE,
}
