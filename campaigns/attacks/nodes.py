"""Hostile nodes of one chain. Other chains and users must not suffer."""

import json
import random
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import requests
from eth_account import Account
from eth_account.messages import encode_defunct

from campaigns.attacks.table import Seen
from campaigns.attacks.target import Target, target
from campaigns.bodies import balances
from chains.nodes.chain_nodes import FAIL_FAST_SECONDS
from demo.client import csrf_token, status, submit
from demo.installation import CHAIN_ID, CHAINS_TOML
from devnet.devchain import ACCOUNTS, DevChain
from tests.chains.hostile_node import DRIPS, FLOODS, LIES, Behaviour, Exchange, hostile_node
from tests.chains.lying_node import ask

HOSTILE_ID = 5
HOSTILE_TOML = CHAINS_TOML.replace(str(CHAIN_ID), str(HOSTILE_ID))
_SIGN_INS, _AT_ONCE = 6, 100
# Seconds that a public node takes for code that runs up to its gas limit.
_SLOW_SECONDS = 1.8
# A contract wallet, so only the chain can verify its signature.
_WALLET = ACCOUNTS[3][0]
_OTHER_KEY = ACCOUNTS[2][1]
# Limits on a busy machine: seconds for a page or a sign-in, and megabytes by which a process may grow.
_ANSWER_SECONDS = 20
_GROWTH_MEGABYTES = 150
_DONE_SECONDS = 30
# Seconds for which the worker avoids a failed node.
_WORKER_SECONDS = FAIL_FAST_SECONDS + 2


@dataclass
class _Door:
    """A node of the hostile chain. It is honest until an attack is set."""

    chain: DevChain
    behave: Behaviour | None = None
    asked_by: set[str] = field(default_factory=set)
    """Clients that were answered under the present attack."""

    def __call__(self, exchange: Exchange) -> None:
        if self.behave is None:
            exchange.answer_json(ask(self.chain.url, exchange.body))
            return
        self.asked_by.add("sign-in" if _WALLET.lower() in json.dumps(exchange.body).lower() else "worker")
        self.behave(exchange)


def run(seed: int) -> Iterator[Seen]:
    choice = random.Random(seed)
    with DevChain(chain_id=HOSTILE_ID, block_seconds=1) as chain:
        door = _Door(chain)
        with hostile_node(door, chain_id=HOSTILE_ID) as url:
            chains_toml = CHAINS_TOML + HOSTILE_TOML.replace("%s", url)
            with target(
                chains_toml, others=[HOSTILE_ID], MAX_SIGN_INS_PER_MINUTE="100000", MAX_BATCHES_PER_MINUTE="100000"
            ) as attacked:
                yield from _attack(attacked, door, choice)


def _attack(attacked: Target, door: _Door, choice: random.Random) -> Iterator[Seen]:
    alice, bob = attacked.key(0), attacked.key(1)
    alone = _seconds_to_done(attacked, alice)
    before = _peaks(attacked)
    held_up: list[str] = []
    # Slow answers come last, because each delays the worker's threads of this chain for half a minute.
    quick, slow = [*FLOODS.items(), *LIES.items()], list(DRIPS.items())
    choice.shuffle(quick)
    choice.shuffle(slow)
    met = 0
    for name, behaviour in [*quick, *slow]:
        door.asked_by.clear()
        door.behave = behaviour
        held_up.append(submit(attacked.url, bob, balances([1], chain_id=HOSTILE_ID)))
        with ThreadPoolExecutor(_SIGN_INS + 1) as people:
            wallets = [people.submit(_sign_in_as_contract, attacked) for _ in range(_SIGN_INS)]
            own = people.submit(_seconds_of, lambda: attacked.key(2))
            done = _seconds_to_done(attacked, alice)
            codes = {wallet.result()[0] for wallet in wallets}
            took = max(wallet.result()[1] for wallet in wallets)
        deadline = time.monotonic() + _WORKER_SECONDS
        while "worker" not in door.asked_by and time.monotonic() < deadline:
            time.sleep(0.05)
        met += "worker" in door.asked_by
        # Until then, the web server wouldn't ask a node that has failed.
        time.sleep(FAIL_FAST_SECONDS)
        code, asked = _ask_for_proof(attacked, bob)
        peaks = _peaks(attacked)
        grown = {process: peaks[process] - before[process] for process in before}
        yield Seen(
            f"a node of chain {HOSTILE_ID} does its worst, {name}: asked by {' and '.join(sorted(door.asked_by))}",
            f"chain {CHAIN_ID} goes on; {_SIGN_INS} contract wallets and a request for a proof get an answer, keys "
            "sign in; memory is bounded",
            f"DONE after {done:.1f} s ({alone:.1f} s alone); wallets {'/'.join(sorted(codes))} within {took:.1f} s, "
            f"a key within {own.result():.1f} s; a proof {code} within {asked:.1f} s; peaks "
            + ", ".join(f"{process} {peaks[process]} MB (+{grown[process]})" for process in peaks),
            done < _DONE_SECONDS
            and codes <= {"node_unavailable", "too_many_checks"}
            and "sign-in" in door.asked_by
            and code == "chain_unavailable"
            and max(took, asked, own.result()) < _ANSWER_SECONDS
            and all(megabytes < _GROWTH_MEGABYTES for megabytes in grown.values()),
        )
    # They are read before the node becomes honest, only slow.
    states = [status(attacked.url, bob, batch) for batch in held_up]
    yield _finish_at_once(attacked, door)
    yield Seen(
        f"all of them, one after another: {len(held_up)} kinds, {met} of which the worker met",
        "what can't be read is waited for; nothing is rejected or lost",
        ", ".join(f"{states.count(state)} {state}" for state in sorted(set(states))),
        set(states) == {"IN_PROGRESS"} and met > len(held_up) // 2,
    )


def _ask_for_proof(attacked: Target, key: str) -> tuple[str, float]:
    """Ask for a proof of the hostile chain. Return the answer's code, and the seconds."""
    began, body = time.monotonic(), balances([1], chain_id=HOSTILE_ID)
    answer = requests.post(f"{attacked.url}/read-proofs", json=body, headers={"api-key": key}, timeout=60)
    return str(answer.json().get("code", answer.status_code)), time.monotonic() - began


def _seconds_to_done(attacked: Target, key: str) -> float:
    """Return the seconds until a new balance in the newest block of the honest chain is proven."""
    return attacked.seconds_to_done(key, balances([attacked.chain.head()]), _DONE_SECONDS)


def _finish_at_once(attacked: Target, door: _Door) -> Seen:
    """Collect sign-in messages, then answer all of them at once with signatures that only a slow node can verify."""

    def slowly(exchange: Exchange) -> None:
        time.sleep(_SLOW_SECONDS)
        exchange.answer_json(ask(door.chain.url, exchange.body))

    def page() -> object:
        return requests.get(f"{attacked.url}/sign-in", timeout=60)

    door.behave = slowly
    begun = [_begin_as_contract(attacked) for _ in range(_AT_ONCE)]
    alone = statistics.median(_seconds_of(page) for _ in range(9))
    began, beside = time.monotonic(), list[float]()
    with ThreadPoolExecutor(_AT_ONCE) as people:
        answers = [people.submit(finish) for finish in begun]
        while not all(answer.done() for answer in answers):
            beside.append(_seconds_of(page))
    codes = Counter(answer.result() for answer in answers)
    median = statistics.median(beside)
    return Seen(
        f"{_AT_ONCE} sign-ins of contract wallets finished at once, whose node takes {_SLOW_SECONDS} s for each call",
        f"a few are checked, the others may be tried again; a page comes within {_ANSWER_SECONDS} s",
        f"{', '.join(f'{codes[code]} {code}' for code in sorted(codes))} within {time.monotonic() - began:.1f} s; "
        f"{len(beside)} pages of a visitor meanwhile, half within {median:.2f} s, all within {max(beside):.2f} s "
        f"({alone:.2f} s alone)",
        set(codes) <= {"wrong_signature", "too_many_checks"} and max(beside) < _ANSWER_SECONDS,
    )


def _sign_in_as_contract(attacked: Target) -> tuple[str, float]:
    """Sign in with a signature that only the chain can verify. Return the answer's code, and the seconds."""
    began = time.monotonic()
    return _begin_as_contract(attacked)(), time.monotonic() - began


def _begin_as_contract(attacked: Target) -> Callable[[], str]:
    """Request a sign-in message. Return a function that answers it and returns the code of the service's answer."""
    session = requests.Session()
    session.headers.update({"Accept": "application/json", "Referer": f"{attacked.url}/sign-in"})
    session.get(f"{attacked.url}/sign-in", headers={"Accept": "text/html"}, timeout=60)
    session.headers["X-CSRFToken"] = csrf_token(session)
    request = {"address": _WALLET, "chainId": HOSTILE_ID}
    message = session.post(f"{attacked.url}/sign-in/message", json=request, timeout=60).json()["message"]
    signature = Account.sign_message(encode_defunct(text=message), _OTHER_KEY).signature.to_0x_hex()

    def finish() -> str:
        signed = {"message": message, "signature": signature}
        answer = session.post(f"{attacked.url}/sign-in/verify", json=signed, timeout=60)
        return str(answer.json().get("code", answer.status_code))

    return finish


def _seconds_of(do: Callable[[], object]) -> float:
    began = time.monotonic()
    do()
    return time.monotonic() - began


def _peaks(attacked: Target) -> dict[str, int]:
    """Return the peak memory of each kind of process, in MB."""
    parents = {int(stat.parent.name): _parent(stat) for stat in Path("/proc").glob("[0-9]*/stat")}
    peaks = {}
    for name, process in attacked.service._processes.items():
        family = {process._process.pid}
        while more := {child for child, parent in parents.items() if parent in family} - family:
            family |= more
        peaks[name] = max(map(_peak, family))
    return peaks


def _parent(stat: Path) -> int:
    try:
        return int(stat.read_text().rpartition(")")[2].split()[1])
    except OSError:  # the process has ended meanwhile
        return 0


def _peak(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) // 1024 for line in lines if line.startswith("VmHWM:"))
