"""Clocks jump by a day, of the machine or of one worker: nothing is rejected for it, and nothing waits for it."""

import random
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import requests

from campaigns.attacks.table import Seen
from campaigns.attacks.target import Target, target
from demo.client import TIMEOUT, submit
from demo.installation import CHAIN_ID, MANAGE
from devnet.devchain import PROJECT

# Of the batch that waits all the while, in blocks, which are seconds.
_AHEAD = 60
_SECONDS = 40
_PROMISE = "/healthz says so, nothing is rejected for it, and batches go on"


def run(seed: int) -> Iterator[Seen]:
    chosen = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        machine, other = Path(folder) / "machine", Path(folder) / "other"
        machine.write_text("0")
        path = f"{PROJECT / 'campaigns' / 'attacks' / 'skewed_site'}:{PROJECT}"
        with target(PYTHONPATH=path, CLOCK_FILE=str(machine), LEASE_SECONDS="5") as attacked:
            watched = _Watched(attacked)
            for direction, sign in (("ahead", 1), ("back", -1)):
                seconds = chosen.randrange(25 * 3600, 60 * 3600)
                machine.write_text(str(sign * seconds))
                yield watched.during(f"the machine's clock jumps {seconds:,} s {direction}", "The clock is")
                machine.write_text("0")
                yield watched.after("it is set right again")
            seconds = chosen.randrange(25 * 3600, 60 * 3600)
            other.write_text(str(seconds))
            attacked.service.start("other", "env", f"CLOCK_FILE={other}", *MANAGE, "runworker")
            tried = f"beside the worker another one begins whose clock is {seconds:,} s ahead"
            yield watched.during(tried, "A worker's clock is")
            attacked.service.process("other").kill()
            yield watched.after("it is killed")
            yield watched.end()


class _Watched:
    """A service with a batch that waits for a block to come."""

    def __init__(self, attacked: Target) -> None:
        self._target, self._key = attacked, attacked.key()
        self._waiting = self._submit(attacked.chain.head() + _AHEAD)

    def during(self, tried: str, sentence: str) -> Seen:
        told = _until(lambda: any(problem.startswith(sentence) for problem in self._problems("clock")))
        done = self._prove()
        status = self._status(self._waiting)
        seen = f"told after {told:.1f} s, a batch DONE after {done:.1f} s, the one that waits is {status}"
        return Seen(tried, _PROMISE, seen, kept=max(told, done) < _SECONDS and status != "REJECTED")

    def after(self, tried: str) -> Seen:
        well = _until(lambda: not self._problems())
        done = self._prove()
        seen = f"well after {well:.1f} s, a batch DONE after {done:.1f} s"
        promise = "/healthz is well again, and what was put off is found"
        return Seen(tried, promise, seen, kept=max(well, done) < _SECONDS)

    def end(self) -> Seen:
        chain = self._target.chain
        done = _until(lambda: self._status(self._waiting) == "DONE", _AHEAD + _SECONDS)
        seen = f"{self._status(self._waiting)} at block {chain.head()}, {done:.1f} s later"
        promise = "it is proven as if nothing had been"
        return Seen("the block comes that a batch has waited for", promise, seen, self._status(self._waiting) == "DONE")

    def _prove(self) -> float:
        batch = self._submit(self._target.chain.head())
        return _until(lambda: self._status(batch) == "DONE")

    def _submit(self, block: int) -> str:
        accounts = {f"0x{block:040x}": {"props": ["BALANCE"]}}
        data = {str(CHAIN_ID): {f"block:{block}": {"accounts": accounts}}}
        body = {"destinationChainId": str(CHAIN_ID), "fee": "0", "data": data}
        return submit(self._target.url, self._key, body)

    def _status(self, batch: str) -> str:
        answer = requests.get(f"{self._target.url}/explorer/query/{batch}.json", timeout=TIMEOUT)
        status: str = answer.json()["status"]
        return status

    def _problems(self, *codes: str) -> list[str]:
        """The sentences of these codes, or of any."""
        health = requests.get(f"{self._target.url}/healthz", timeout=TIMEOUT).json()
        told = zip(health["codes"], health["problems"], strict=True)
        return [sentence for code, sentence in told if not codes or code in codes]


def _until(condition: Callable[[], bool], seconds: float = _SECONDS) -> float:
    """After how many seconds it came true; at least `seconds` where it did not."""
    began = time.monotonic()
    while not condition() and time.monotonic() - began < seconds:
        time.sleep(0.2)
    return time.monotonic() - began
