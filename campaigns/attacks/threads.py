"""A user's requests try to occupy all threads of the web server. Another user must still get pages."""

import statistics
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import requests
from eth_account import Account
from eth_utils.crypto import keccak

from campaigns.attacks.table import Seen
from campaigns.attacks.target import Target, target
from campaigns.bodies import balances
from demo.client import TIMEOUT, csrf_token, signed_in, take_api_key
from demo.installation import CHAIN_ID, CHAINS_TOML
from devnet.devchain import ACCOUNTS, DevChain
from devnet.foreign_contracts import create
from tests.chains.lying_node import ask, lying_node

_ATTACKERS, _SECONDS = 16, 20
# Each user has a rate limit, so the attack comes from several users.
_REQUESTS, _QUERIES = "100000", "10000000"
_PAUSE = 0.2  # seconds between two requests of an attacker
# Seconds that a public node takes for an answer, and number of timestamps in one estimate.
_NODE_SECONDS, _TIMES = 0.05, 300
# Most proofs that one request may ask for, and most slots that a searched call may read.
_PROOFS, _READ_SLOTS = 100, 48
# Maximum median seconds of another user's pages, and maximum seconds of a request that waits for nodes.
_MEDIAN_SECONDS, _MOST_SECONDS = 0.5, 15


def run(_: int) -> Iterator[Seen]:
    chains: list[DevChain] = []

    def answer(body: Any) -> Any:
        time.sleep(_NODE_SECONDS)
        return ask(chains[0].url, body)

    with (
        lying_node(answer) as url,
        # The service uses a node in front of the chain. The target reads the chain's own URL from a comment.
        target(
            CHAINS_TOML.replace("%s", url) + "# %s\n",
            prepare=chains.append,
            MAX_BATCHES_PER_MINUTE=_REQUESTS,
            MAX_QUERIES_PER_MINUTE=_QUERIES,
        ) as attacked,
    ):
        attacked.chain.mine(_TIMES)
        alone = statistics.median(_pages(attacked, seconds=3))
        yield _estimates(attacked, alone)
        yield _proofs(attacked, alone)
        yield _searches(attacked, alone)
        yield _forms(attacked, alone)


def _estimates(attacked: Target, alone: float) -> Seen:
    newest = int(attacked.chain.rpc("eth_getBlockByNumber", "latest", False)["timestamp"], 16)

    def body(number: int) -> dict[str, Any]:
        blocks = {f"timestamp:{newest - n - number - 2}": {"header": ["TIMESTAMP"]} for n in range(_TIMES)}
        return {"destinationChainId": str(CHAIN_ID), "fee": "0", "data": {str(CHAIN_ID): blocks}}

    return _beside(
        attacked,
        alone,
        _posting(attacked, "/estimate-batch-query", body),
        f"{_ATTACKERS} estimates of {_TIMES} times at once, again and again, with a node that takes {_NODE_SECONDS} s",
    )


def _proofs(attacked: Target, alone: float) -> Seen:
    head = attacked.chain.head()
    return _beside(
        attacked,
        alone,
        _posting(attacked, "/read-proofs", lambda number: balances(range(head - number - _PROOFS, head - number))),
        f"{_ATTACKERS} requests for {_PROOFS} proofs at once, again and again, by a node that takes {_NODE_SECONDS} s",
    )


def _searches(attacked: Target, alone: float) -> Seen:
    """Search for slots of a call without end, and of one that reads many slots for which no layout is found."""
    endless = create(attacked.chain, _deploying(bytes.fromhex("5b60005450600056")))
    reads = b"".join(b"\x7f" + keccak(bytes([number])) + b"\x54\x01" for number in range(_READ_SLOTS))
    many = create(attacked.chain, _deploying(b"\x60\x00" + reads + bytes.fromhex("60005260206000f3")))
    users = [Account.create() for _ in range(_ATTACKERS)]
    keys = [take_api_key(attacked.url, user.address, user.key.to_0x_hex(), CHAIN_ID) for user in users]

    def search(number: int) -> requests.Response:
        body: dict[str, Any] = {"sourceChainId": str(CHAIN_ID), "contract": (endless, many)[number % 2]}
        body |= {"signature": "f(address,uint256,uint256,uint256)", "arguments": [many, "1", "2", "3"]}
        return requests.post(
            f"{attacked.url}/find-slots", json=body, headers={"api-key": keys[number]}, timeout=TIMEOUT
        )

    return _beside(attacked, alone, search, f"searches for slots by {_ATTACKERS} users at once, again and again")


def _deploying(code: bytes) -> str:
    """Return the init code of a contract with this code, as hex."""
    return f"61{len(code):04x}600e60003961{len(code):04x}6000f3{code.hex()}"


def _posting(attacked: Target, path: str, body: Callable[[int], dict[str, Any]]) -> Callable[[int], requests.Response]:
    """Return a function that sends the body of a number to a path."""
    url, headers = f"{attacked.url}{path}", {"api-key": attacked.key()}
    return lambda number: requests.post(url, json=body(number), headers=headers, timeout=TIMEOUT)


def _forms(attacked: Target, alone: float) -> Seen:
    session = signed_in(attacked.url, *ACCOUNTS[2], CHAIN_ID)
    token = csrf_token(session)

    def post(_: int) -> requests.Response:
        body = {"csrfmiddlewaretoken": token, "do": "add-", "rows-49-a": ""}
        return requests.post(
            f"{attacked.url}/new-batch",
            data=body,
            cookies=session.cookies.get_dict(),
            headers={"Referer": f"{attacked.url}/new-batch"},
            timeout=TIMEOUT,
        )

    return _beside(attacked, alone, post, f"forms of 50 rows in a few bytes, {_ATTACKERS} at once, again and again")


def _beside(attacked: Target, alone: float, send: Callable[[int], requests.Response], tried: str) -> Seen:
    """Request another user's page while attackers send requests."""
    over, answers, slowest = threading.Event(), Counter[str](), [0.0]

    def attack(number: int) -> None:
        while not over.wait(_PAUSE):
            began = time.monotonic()
            try:
                answer = str(send(number).status_code)
            except requests.RequestException as error:
                answer = type(error).__name__
            answers[answer] += 1
            slowest.append(time.monotonic() - began)

    with ThreadPoolExecutor(_ATTACKERS) as pool:
        attackers = [pool.submit(attack, number) for number in range(_ATTACKERS)]
        seconds = _pages(attacked, seconds=_SECONDS)
        over.set()
    for attacker in attackers:
        attacker.result()
    median = statistics.median(seconds)
    return Seen(
        tried,
        f"half of another user's pages come within {_MEDIAN_SECONDS} s, and each request ends in {_MOST_SECONDS} s",
        f"a page takes {1000 * median:.0f} ms ({1000 * alone:.0f} alone), {1000 * max(seconds):.0f} at most; "
        f"answers {dict(answers)}, the slowest after {max(slowest):.1f} s",
        kept=median < _MEDIAN_SECONDS and max(slowest) < _MOST_SECONDS,
    )


def _pages(attacked: Target, *, seconds: float) -> list[float]:
    """Request a page that needs no node, for `seconds` seconds. Return the seconds of each answer."""
    seconds_of_pages: list[float] = []
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        began = time.monotonic()
        requests.get(f"{attacked.url}/chain-connections", timeout=TIMEOUT).raise_for_status()
        seconds_of_pages.append(time.monotonic() - began)
        time.sleep(0.05)
    return seconds_of_pages
