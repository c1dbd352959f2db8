"""Batches that are submitted during failures."""

import random
import threading
import time
from collections import Counter

import requests

from campaigns.bodies import balances
from campaigns.chaos.engines import OLD_BLOCKS, Installed
from demo.client import TIMEOUT, ClientError, submit
from devnet.devchain import ACCOUNTS

_USERS = 2
# In a mixed load, each third batch names a recent block, and each twentieth is cancelled.
_RECENT, _CANCELLED = 3, 20
DEAR_FEE = 10**18
"""In wei: enough to prove all again, dearer. An `auto` fee waits for cheaper gas after a registry was replaced."""


class Load(threading.Thread):
    """A thread that submits batches with a pause after each. A batch is submitted again until it is accepted.

    If it `is_mixed`, some batches ask for the signer's balance at a recent block, some are cancelled, and `fee` is the
    fee of each, in wei or `auto`.
    """

    def __init__(
        self,
        target: Installed,
        seed: int,
        *,
        batches: int,
        pause: float,
        is_mixed: bool = False,
        fee: int | str = DEAR_FEE,
    ) -> None:
        super().__init__(daemon=True)
        self._fee = fee
        self._target, self._batches, self._pause, self._is_mixed = target, batches, pause, is_mixed
        self._keys = [target.key(user) for user in range(_USERS)]
        self._chosen = random.Random(seed)
        self.answered: list[str] = []
        self.refused = Counter[str]()

    def key_of(self, number: int) -> str:
        """Return the API key of the user who submits this batch, counted from 0."""
        return self._keys[number % _USERS]

    def end(self) -> None:
        """Stop submitting."""
        self._batches = 0

    def run(self) -> None:
        self.submit(self._batches)

    def submit(self, count: int) -> None:
        """Submit so many further batches, unless the load ends before."""
        most = len(self.answered) + count
        while len(self.answered) < min(most, self._batches):
            key = self.key_of(len(self.answered))
            try:
                self.answered.append(submit(self._target.base_url, key, self._request()))
                if self._is_mixed and len(self.answered) % _CANCELLED == 0:
                    url = f"{self._target.base_url}/batch-queries/{self.answered[-1]}/cancel"
                    requests.post(url, headers={"api-key": key}, timeout=TIMEOUT)
            except (requests.RequestException, ClientError) as error:
                self.refused[type(error).__name__] += 1
            time.sleep(self._pause)

    def _request(self) -> dict[str, object]:
        accounts = [f"0x{self._chosen.getrandbits(160):040x}" for _ in range(2)]
        # There are fewer blocks than batches, so some batches share a block.
        block = self._chosen.randrange(1, OLD_BLOCKS // 2)
        if not self._is_mixed:
            return balances([block], accounts)
        if len(self.answered) % _RECENT == 0:
            block = self._target.chain.head() - self._chosen.randrange(1, OLD_BLOCKS // 2)
        return balances([block], [*accounts, ACCOUNTS[3][0]], fee=self._fee)


def kinds(counted: Counter[str]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in sorted(counted.items()))
