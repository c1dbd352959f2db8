"""Nodes that lie about proofs for reading (`/read-proofs`). No answer may have a proof that doesn't verify."""

import random
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import requests
import rlp

from campaigns.attacks.nodes import HOSTILE_ID, HOSTILE_TOML
from campaigns.attacks.table import Seen
from campaigns.attacks.target import Target, target
from campaigns.bodies import balances
from chains.encoding import HISTORY_CONTRACT
from chains.nodes.chain_nodes import FAIL_FAST_SECONDS
from chains.tries.trie import EMPTY_CODE_HASH, verify_account, verify_slot
from demo.client import TIMEOUT
from demo.installation import CHAINS_TOML
from devnet.devchain import ACCOUNTS, DevChain
from tests.chains.lying_node import between
from tests.headers import with_hash

_ANSWER_SECONDS, _DONE_SECONDS = 15, 30
_PROPERTIES = ("NONCE", "BALANCE", "STORAGE_ROOT", "CODE_HASH")
# Number of proofs of which one digit is changed.
_CHANGED = 20

Lie = Callable[[DevChain, Any, Any], Any]
"""Takes the chain, the question and the true result. Returns the result that the node sends."""


def _to_another_question(place: int, value: Callable[[DevChain], Any]) -> Lie:
    """Answer as if another parameter had been sent at a place."""

    def lie(chain: DevChain, question: Any, _: Any) -> Any:
        parameters = list(question["params"])
        parameters[place] = value(chain)
        return chain.rpc(question["method"], *parameters)

    return lie


def _of_each_proof(change: Callable[[list[str]], object]) -> Lie:
    """Change the nodes of the account's proof and of each slot's."""

    def lie(_: DevChain, __: Any, told: Any) -> Any:
        slots = [slot | {"proof": change(slot["proof"])} for slot in told["storageProof"]]
        return told | {"accountProof": change(told["accountProof"]), "storageProof": slots}

    return lie


def _always(value: object) -> Lie:
    return lambda *_: value


def _swapped(_: DevChain, __: Any, told: Any) -> Any:
    slots = told["storageProof"]
    return told | {"storageProof": [slot | {"proof": slots[-1 - place]["proof"]} for place, slot in enumerate(slots)]}


def _with_another_digit(choice: random.Random) -> Lie:
    def lie(_: DevChain, __: Any, told: Any) -> Any:
        nodes = choice.choice([told["accountProof"], *(slot["proof"] for slot in told["storageProof"])])
        number = choice.randrange(len(nodes))
        place = choice.randrange(2, len(nodes[number]))
        digit = choice.choice("0123456789abcdef".replace(nodes[number][place], ""))
        nodes[number] = nodes[number][:place] + digit + nodes[number][place + 1 :]
        return told

    return lie


_LIES: Mapping[str, Mapping[str, Lie]] = {
    "eth_getProof": {
        "another account's proof": _to_another_question(0, lambda _: ACCOUNTS[1][0]),
        "another block's proof": _to_another_question(2, lambda chain: hex(chain.head() - 4)),
        "other slots' proofs": _to_another_question(1, lambda _: [f"0x{slot:064x}" for slot in (7, 8)]),
        "each slot's proof for the other": _swapped,
        "proofs without their end": _of_each_proof(lambda nodes: nodes[:-1]),
        "proofs without their root": _of_each_proof(lambda nodes: nodes[1:]),
        "proofs twice": _of_each_proof(lambda nodes: nodes * 2),
        "proofs with a megabyte behind": _of_each_proof(lambda nodes: [*nodes, "0x" + 2**20 * "11"]),
        "numbers for nodes": _of_each_proof(lambda _: [1, 2]),
        "null for nodes": _of_each_proof(lambda _: None),
        "null": _always(None),
        "an empty object": _always({}),
        "a list": _always([[], "0x"]),
    },
    "eth_getBlockByNumber": {
        "another state root": lambda _, __, told: with_hash(told | {"stateRoot": "0x" + 64 * "7"}),
        "another block": _to_another_question(0, lambda chain: hex(chain.head() - 4)),
        "no block": _always(None),
    },
    "eth_call": {
        "a byte": _always("0x01"),
        "nothing": _always("0x"),
        "three words": _always("0x" + 96 * "01"),
        "a million bytes": _always("0x" + 10**6 * "00"),
    },
}


@dataclass
class _Door:
    """A node in front of the hostile chain. It is honest until it has a lie."""

    chain: DevChain
    method: str = ""
    lie: Lie | None = None
    times: int = 0

    def change(self, question: Any, reply: Any) -> list[Any]:
        if self.lie is None or question["method"] != self.method or "result" not in reply:
            return [reply]
        reply |= {"result": self.lie(self.chain, question, reply["result"])}
        self.times += 1
        return [reply]


def run(seed: int) -> Iterator[Seen]:
    choice = random.Random(seed)
    with DevChain(chain_id=HOSTILE_ID, block_seconds=1) as chain:
        chain.mine(10)
        door = _Door(chain)
        with (
            between(chain.url, door.change) as url,
            target(
                CHAINS_TOML + HOSTILE_TOML.replace("%s", url), others=[HOSTILE_ID], MAX_BATCHES_PER_MINUTE="100000"
            ) as attacked,
        ):
            alice, bob = attacked.key(0), attacked.key(1)
            yield _honest(attacked, chain, bob, "an honest node")
            for method, lies in _LIES.items():
                more = {f"digit {number}": _with_another_digit(choice) for number in range(_CHANGED)}
                yield _lied_to(attacked, door, bob, method, {**lies, **(more if method == "eth_getProof" else {})})
            door.lie = None
            yield _honest(attacked, chain, bob, "the same node when it is honest again")
            done = attacked.seconds_to_done(alice, balances([attacked.chain.head()]), _DONE_SECONDS)
            yield Seen(
                "a batch of another user and chain afterwards",
                f"it is DONE within {_DONE_SECONDS} s",
                f"DONE after {done:.1f} s",
                done < _DONE_SECONDS,
            )


def _honest(attacked: Target, chain: DevChain, key: str, tried: str) -> Seen:
    deadline = time.monotonic() + FAIL_FAST_SECONDS + 2
    while not (answer := _ask(attacked, chain, key)).ok and time.monotonic() < deadline:
        time.sleep(0.5)
    proofs = answer.json().get("proofs", [])
    true = sum(_is_true(chain, proof) for proof in proofs)
    return Seen(
        tried,
        "each proof verifies under the chain's own root",
        f"{answer.status_code} with {len(proofs)} proofs, of which {true} verify",
        len(proofs) == true == 2 * len(_PROPERTIES) + 2,
    )


def _lied_to(attacked: Target, door: _Door, key: str, method: str, lies: Mapping[str, Lie]) -> Seen:
    seen, slowest = list[str](), 0.0
    for name, lie in lies.items():
        door.method, door.lie, door.times = method, lie, 0
        deadline = time.monotonic() + FAIL_FAST_SECONDS + 2
        while not door.times and time.monotonic() < deadline:
            began = time.monotonic()
            answer = _ask(attacked, door.chain, key)
            slowest = max(slowest, time.monotonic() - began)
        told = answer.json()
        is_right = (
            door.times
            and (answer.status_code, told.get("code")) == (503, "chain_unavailable")
            and isinstance(told.get("error"), str)
            and answer.headers.get("Retry-After", "").isdigit()
        )
        if not is_right:
            seen.append(f"{name}, told {door.times} times: {answer.status_code} {answer.text[:150]}")
    return Seen(
        f"a node answers {method} falsely in {len(lies)} ways",
        f"each is answered 503 chain_unavailable in the form of errors, within {_ANSWER_SECONDS} s",
        f"{len(lies) - len(seen)} are, within {slowest:.1f} s" + "".join(f"; {each}" for each in seen),
        not seen and slowest < _ANSWER_SECONDS,
    )


def _ask(attacked: Target, chain: DevChain, key: str) -> requests.Response:
    accounts = {
        HISTORY_CONTRACT: {"props": _PROPERTIES, "slots": ["1", "0xffff"]},
        # An account that doesn't exist.
        "0x00000000000000000000000000000000000000B0": {"props": _PROPERTIES},
    }
    data = {str(HOSTILE_ID): {f"block:{chain.head() - 1}": {"accounts": accounts}}}
    body = {"destinationChainId": str(HOSTILE_ID), "data": data}
    return requests.post(f"{attacked.url}/read-proofs", json=body, headers={"api-key": key}, timeout=TIMEOUT)


def _is_true(chain: DevChain, proof: Mapping[str, Any]) -> bool:
    """Return whether a proof verifies under the chain's own root. Raises `InvalidProof`."""
    block, address = hex(int(proof["blockNumber"])), proof["account"]
    nodes, root = rlp.decode(bytes.fromhex(proof["proof"][2:])), bytes.fromhex(proof["root"]["word"][2:])
    word = int(proof["word"], 16)
    if proof["slot"]:
        is_own = proof["root"]["word"] == chain.rpc("eth_getProof", address, [], block)["storageHash"]
        return is_own and verify_slot(root, int(proof["slot"], 16), nodes) == word
    account = verify_account(root, address, nodes)
    values = {
        "NONCE": account.nonce,
        "BALANCE": account.balance,
        "STORAGE_ROOT": int.from_bytes(account.storage_root),
        "CODE_HASH": int.from_bytes(account.code_hash if account.exists else EMPTY_CODE_HASH),
    }
    is_own = proof["root"]["word"] == chain.rpc("eth_getBlockByNumber", block, False)["stateRoot"]
    return is_own and values[proof["property"]] == word
