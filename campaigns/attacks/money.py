"""Attempts to spend the operator's money beyond a budget, beyond a fee, after a stop, or without being counted."""

import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import requests

from campaigns.attacks.table import Seen
from campaigns.attacks.target import Target, target
from campaigns.bodies import balances
from demo.client import TIMEOUT, ClientError, submit
from demo.installation import CHAINS_TOML
from devnet.devchain import ACCOUNTS, PROJECT, DevChain
from tests.proving.rollups import OP_STACK, charge_for_data

_ETHER, _GWEI = 10**18, 10**9
_SIGNER = ACCOUNTS[3][0]
_LIMIT = 5 * 10**15  # wei
# Maximum characters of a search's output to print, from its end.
_PRINTED = 2_000
_COSTLY = CHAINS_TOML.replace("test_network = true", 'test_network = false\ndaily_limit_per_user = "1"')


def run(seed: int) -> Iterator[Seen]:
    yield from _rejected_again_and_again(random.Random(seed))
    with target(_COSTLY, ALLOWED_ADDRESSES="*") as service:
        yield _fee_spike(service)
        yield _stop_under_load(service)
    yield _data_fees()


def search(seed: int, count: int) -> Iterator[Seen]:
    """Try `count` sequences of submissions, kills, reorganisations, lies and changed limits."""
    command = [sys.executable, "-m", "pytest", "campaigns/attacks/sequences.py", f"--hypothesis-seed={seed}", "-q"]
    env = {**os.environ, "SEQUENCES": str(count)}
    ended = subprocess.run(command, cwd=PROJECT, env=env, capture_output=True, text=True, check=False)
    yield Seen(
        f"{count} sequences of events around the operator's money",
        "within every bound; each nonce used once; no fact paid for twice; nothing sent for a self-funded batch",
        ended.stdout[-_PRINTED:],
        kept=ended.returncode == 0,
    )


# --- Batches that are rejected when they are paid ---------------------------------------------------------------------


def _rejected_again_and_again(chance: random.Random) -> Iterator[Seen]:
    """Let each batch be rejected while its transactions are pending or in young blocks."""
    toml = _COSTLY.replace("confirmations = 1", "confirmations = 150")
    toml = toml.replace('per_user = "1"', 'per_user = "0.005"')
    with target(toml, ALLOWED_ADDRESSES="*", BATCH_DEADLINE_SECONDS="4") as service:
        service.chain.mine(200)
        key = service.key()
        before, began, sent, refused = _balance(service.chain), time.monotonic(), 0, 0
        while time.monotonic() - began < 30:
            head = service.chain.head()
            accounts = [f"0x{chance.getrandbits(160):040x}" for _ in range(3)]
            try:
                submit(service.url, key, balances([head - chance.randrange(100)], accounts, fee=_ETHER))
                sent += 1
            except ClientError:
                refused += 1
            time.sleep(0.6)
        time.sleep(6)  # the last batches need time to be rejected or mined
        burnt = before - _balance(service.chain)
        yield Seen(
            f"{sent} batches in 30 s, each rejected by its deadline with its transactions unconfirmed",
            f"a user's batches burn at most their limit of {_LIMIT:,} wei",
            f"{burnt:,} wei were burnt, {refused} submissions answered 429",
            kept=0 < burnt <= _LIMIT,
        )


# --- A fee spike ------------------------------------------------------------------------------------------------------


def _fee_spike(service: Target) -> Seen:
    """Raise the base fee twelvefold for 15 s while the transactions of twelve batches are pending.

    No block is mined before a transaction is pending. Otherwise a batch could be checked during the spike and rejected
    because its fee is too low.
    """
    chain, key = service.chain, service.key()
    with _base_fee(chain) as price:
        price.gwei = 1
        chain.mine(14)
        head = chain.head()
        fee = 12 * 302_000 * 4 * _GWEI
        before, nonce = _balance(chain), _nonce(chain)
        chain.rpc("evm_setIntervalMining", 0)
        batch = submit(service.url, key, balances(range(head - 11, head + 1), fee=fee))
        pending = _until_pending(chain, nonce)
        price.gwei = 12
        time.sleep(1)
        chain.rpc("evm_setIntervalMining", 1)
        time.sleep(15)
        at_peak = before - _balance(chain)
        price.gwei = 1
        done = _settle(service, [batch], seconds=60)
        paid = before - _balance(chain)
    return Seen(
        "a base fee of twelve times as much for 15 s, while a batch of 12 blocks is pending",
        "the fee isn't burnt on a part: the batch is DONE, within its fee",
        f"{pending} transactions pending when it began, {at_peak / fee:.0%} of the fee spent at its end, "
        f"{paid / fee:.0%} in all, {done} of 1 DONE",
        kept=pending > 0 and done == 1 and paid <= fee,
    )


# --- A stop -----------------------------------------------------------------------------------------------------------


def _stop_under_load(service: Target) -> Seen:
    chain, key = service.chain, service.key(1)
    head = chain.head()
    batches = [submit(service.url, key, balances([head - place], fee=_ETHER)) for place in range(20)]
    while _nonce(chain) < _nonce(chain, "latest") + 1 and _nonce(chain) < 6:
        time.sleep(0.02)
    service.service.manage("stop")
    at_stop = _nonce(chain)
    time.sleep(5)
    after = _nonce(chain)
    service.service.manage("resume")
    done = _settle(service, batches, seconds=90)
    return Seen(
        "stop while 20 batches are being proven",
        "no transaction is sent after the command has ended, and nothing is lost",
        f"nonce {at_stop} when it ended, {after} 5 s later; {done} of 20 DONE after resume",
        kept=at_stop == after and done == len(batches),
    )


# --- Data fees that the gas doesn't include ---------------------------------------------------------------------------


def _data_fees() -> Seen:
    """Charge a data fee about as high as the gas, on a chain whose receipts don't show the fee."""
    with target(_COSTLY, arguments=OP_STACK, prepare=charge_for_data, ALLOWED_ADDRESSES="*") as service:
        chain = service.chain
        before = _balance(chain)
        fee = _ETHER // 100
        batch = submit(service.url, service.key(), balances([chain.head()], fee=fee))
        done = _settle(service, [batch], seconds=30)
        time.sleep(3)  # the transaction needs time to be confirmed
        shown = requests.get(f"{service.url}/explorer/query/{batch}.json", timeout=TIMEOUT).json()
        taken, spent = before - _balance(chain), int(shown["spent"])
    return Seen(
        "a batch on a chain that takes a data fee beside the gas",
        "what is shown as spent is no less than what is gone, and both are within the fee",
        f"{taken / _ETHER:.6f} ETH gone, {spent / _ETHER:.6f} shown as spent, a fee of {fee / _ETHER:.6f}",
        kept=done == 1 and 0 < taken <= spent <= fee,
    )


# --- Helpers ----------------------------------------------------------------------------------------------------------


class _Price:
    gwei: float = 1


@contextmanager
def _base_fee(chain: DevChain) -> Iterator[_Price]:
    """Set the base fee of each new block."""
    price, ended = _Price(), threading.Event()

    def hold() -> None:
        while not ended.wait(0.1):
            chain.rpc("anvil_setNextBlockBaseFeePerGas", hex(int(price.gwei * _GWEI)))

    thread = threading.Thread(target=hold)
    thread.start()
    try:
        yield price
    finally:
        ended.set()
        thread.join()


def _settle(service: Target, batches: list[str], *, seconds: float) -> int:
    """Wait until all batches are DONE, at most `seconds` seconds. Return how many are DONE."""
    deadline = time.monotonic() + seconds
    while True:
        shown = [
            requests.get(f"{service.url}/explorer/query/{batch}.json", timeout=TIMEOUT).json()["status"]
            for batch in batches
        ]
        done = shown.count("DONE")
        if done == len(batches) or time.monotonic() > deadline:
            return done
        time.sleep(0.5)


def _until_pending(chain: DevChain, nonce: int) -> int:
    """Wait up to a minute for a pending transaction after this nonce. Return how many are pending."""
    deadline = time.monotonic() + 60
    while _nonce(chain) == nonce and time.monotonic() < deadline:
        time.sleep(0.1)
    return _nonce(chain) - nonce


def _balance(chain: DevChain) -> int:
    return int(chain.rpc("eth_getBalance", _SIGNER, "latest"), 16)


def _nonce(chain: DevChain, block: str = "pending") -> int:
    return int(chain.rpc("eth_getTransactionCount", _SIGNER, block), 16)
