"""A program that uses the service: it signs in, takes its API key, submits a batch, follows it, and reads the fact."""

import time
from collections.abc import Callable
from typing import Any

import requests
from eth_account import Account
from eth_account.messages import encode_defunct

# Selector of `accountField(address,uint256,uint8)`, and the index of BALANCE for its last argument.
ACCOUNT_FIELD_SELECTOR = "7177899b"
BALANCE = 1
# Selector of `logHash(uint256,uint32,uint32)`: block, index of the transaction, index of the log in its receipt.
LOG_HASH_SELECTOR = "7b698d42"

# Maximum seconds for one answer. The limit is high, because the machine may be busy during the first start.
TIMEOUT = 30


class ClientError(Exception):
    """The service didn't answer as expected. The message is one sentence."""


class ServiceDown(ClientError):
    """The service answered 503. Nothing was stored, and the request may be sent again."""


def take_api_key(base_url: str, address: str, private_key: str, chain_id: int) -> str:
    """Sign in with a wallet, and return the API key from the dashboard."""
    session = signed_in(base_url, address, private_key, chain_id)
    key = _ok(session.get(f"{base_url}/keys", timeout=TIMEOUT)).json()["keys"][0]
    revealed = session.post(f"{base_url}/dashboard/keys/{key['id']}/reveal", timeout=TIMEOUT)
    api_key: str = _ok(revealed).json()["apiKey"]
    return api_key


def take_webhook_secret(base_url: str, address: str, private_key: str, chain_id: int) -> str:
    """Sign in with a wallet, and return the webhook secret from the page of keys."""
    session = signed_in(base_url, address, private_key, chain_id)
    secret: str = _ok(session.post(f"{base_url}/dashboard/webhooks/reveal", timeout=TIMEOUT)).json()["webhookSecret"]
    return secret


def signed_in(base_url: str, address: str, private_key: str, chain_id: int) -> requests.Session:
    """Sign in with a wallet, and return the session. It sends the CSRF token."""
    session = requests.Session()
    session.headers.update({"Accept": "application/json", "Referer": f"{base_url}/sign-in"})
    _ok(session.get(f"{base_url}/sign-in", headers={"Accept": "text/html"}, timeout=TIMEOUT))
    session.headers["X-CSRFToken"] = csrf_token(session)
    answer = session.post(
        f"{base_url}/sign-in/message", json={"address": address, "chainId": chain_id}, timeout=TIMEOUT
    )
    message = _ok(answer).json()["message"]
    signature = Account.sign_message(encode_defunct(text=message), private_key).signature.to_0x_hex()
    _ok(session.post(f"{base_url}/sign-in/verify", json={"message": message, "signature": signature}, timeout=TIMEOUT))
    # The CSRF token changes at sign-in.
    session.headers["X-CSRFToken"] = csrf_token(session)
    return session


def csrf_token(session: requests.Session) -> str:
    """Return the CSRF token of the session. The prefix of its cookie's name depends on the address."""
    return next(value for name, value in session.cookies.items() if name.endswith("csrftoken"))


def submit(base_url: str, api_key: str, body: dict[str, Any]) -> str:
    """Submit a batch, and return its `internalId`."""
    answer = requests.post(f"{base_url}/submit-batch-query", headers={"api-key": api_key}, json=body, timeout=TIMEOUT)
    internal_id: str = _ok(answer).json()["internalId"]
    return internal_id


def follow(
    base_url: str,
    api_key: str,
    internal_id: str,
    show: Callable[[dict[str, Any]], None],
    seconds: float,
    *,
    until_wait: str = "",
) -> str:
    """Wait until the batch is DONE, or waits with the code `until_wait`. Return the sentence of that wait, else "".

    Raises `ClientError` if the batch is rejected or takes longer than `seconds`.
    """
    deadline = time.monotonic() + seconds
    while True:
        # The status is read before the details. So the details that are shown last are at least as new as the status.
        is_done = status(base_url, api_key, internal_id) == "DONE"
        batch = _ok(requests.get(f"{base_url}/explorer/query/{internal_id}.json", timeout=TIMEOUT)).json()
        show(batch)
        if is_done:
            return ""
        for wait in batch["waits"]:
            if wait["code"] == until_wait:
                return str(wait["sentence"])
        if time.monotonic() > deadline:
            waits = " ".join(wait["sentence"] for wait in batch["waits"])
            raise ClientError(f"The batch is not DONE after {seconds:g} s. {waits}")
        time.sleep(0.25)


def status(base_url: str, api_key: str, internal_id: str) -> str:
    """Return the batch's `queryStatus`. Raises `ClientError` if it was rejected."""
    url, params = f"{base_url}/batch-query-status", {"batchQueryId": internal_id}
    answer = _ok(requests.get(url, headers={"api-key": api_key}, params=params, timeout=TIMEOUT)).json()
    if answer["queryStatus"] == "REJECTED":
        raise ClientError(f"The batch was rejected: {answer['error']}")
    return str(answer["queryStatus"])


def transactions(base_url: str, internal_id: str) -> set[str]:
    """Return the hashes of the transactions that proved the batch."""
    batch = _ok(requests.get(f"{base_url}/explorer/query/{internal_id}.json", timeout=TIMEOUT)).json()
    return {step["transactionHash"] for query in batch["queryList"] for step in query["steps"]} - {None}


def account_field(rpc_url: str, registry: str, address: str, block: int, field: int) -> bytes:
    """Return the word that the facts registry returns to any caller."""
    data = f"0x{ACCOUNT_FIELD_SELECTOR}{int(address, 16):064x}{block:064x}{field:064x}"
    return bytes.fromhex(rpc(rpc_url, "eth_call", {"to": registry, "data": data}, "latest")[2:])


def log_hash(rpc_url: str, registry: str, block: int, transaction: int, log: int) -> bytes:
    """Return the hash of a log that the facts registry returns to any caller."""
    data = f"0x{LOG_HASH_SELECTOR}{block:064x}{transaction:064x}{log:064x}"
    return bytes.fromhex(rpc(rpc_url, "eth_call", {"to": registry, "data": data}, "latest")[2:])


def registry(base_url: str, destination: int, source: int) -> str:
    """Return the address of the facts registry of a connection."""
    connections = _ok(requests.get(f"{base_url}/chains.json", timeout=TIMEOUT)).json()["connections"]
    ends = {"sourceChainId": str(source), "destinationChainId": str(destination)}
    return next(str(each["factsRegistry"]) for each in connections if ends.items() <= each.items())


def rpc(url: str, method: str, *params: Any) -> Any:
    reply = requests.post(
        url, json={"jsonrpc": "2.0", "id": 1, "method": method, "params": params}, timeout=TIMEOUT
    ).json()
    if "error" in reply:
        raise ClientError(f"The chain refused {method}: {reply['error']['message']}")
    return reply["result"]


def _ok(response: requests.Response) -> requests.Response:
    if response.status_code != requests.codes.ok:
        try:
            sentence = response.json()["error"]
        except (ValueError, KeyError):
            sentence = f"HTTP status {response.status_code}"
        kind = ServiceDown if response.status_code == requests.codes.unavailable else ClientError
        raise kind(f"The service answered at {response.url.partition('?')[0]}: {sentence}")
    return response
