"""A worker that looked, froze, and wakes after another has sent, and after that was confirmed, sends nothing."""

import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from django.db import connection, transaction
from eth_utils.crypto import keccak

from devnet.devchain import DevChain
from proving.models import FactsRegistry, Signer, Transaction, WorkerHeartbeat
from queries.models import Batch, Block
from tests.chains.lying_node import ask, lying_node
from tests.deployed import deploy_on
from tests.factories import is_done, until
from tests.service import ALICE, SIGNER, a_key, chains_toml, request, submit

pytestmark = [pytest.mark.outside, pytest.mark.django_db(transaction=True)]

EVENTS = ("HeaderAccumulated(uint256,bytes32)", "AccountProven(address,uint256,uint8)")
# Exchanges of workers for a block: a method, and which of the exchanges with it.
EXCHANGES = {
    "admitting": ("eth_getProof", 1),
    "looking at the registry": ("eth_getProof", 2),
    "simulating": ("eth_estimateGas", 1),
    "broadcasting": ("eth_sendRawTransaction", 1),
}


@dataclass
class Freezer:
    """Freezes the worker that makes this exchange, the `left`-th with the method, when its node has answered."""

    chain: DevChain
    method: str
    left: int
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)
    frozen: subprocess.Popen[bytes] | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)

    def node_of(self, worker: int) -> Callable[[Any], Any]:
        def answer(body: Any) -> Any:
            given = ask(self.chain.url, body)
            methods = {one["method"] for one in (body if isinstance(body, list) else [body])}
            with self.lock:
                self.left -= bool(self.workers) and self.method in methods
                if self.left == 0 and self.frozen is None:
                    self._freeze(self.workers[worker])
            return given

        return answer

    def _freeze(self, worker: subprocess.Popen[bytes]) -> None:
        # Another thread of it might hold a lock, for which everybody would wait.
        with transaction.atomic():
            for model in (Signer, Block, Batch, FactsRegistry):
                list(model.objects.select_for_update())
            worker.send_signal(signal.SIGSTOP)
            os.waitid(os.P_PID, worker.pid, os.WSTOPPED | os.WNOWAIT)
        connection.close()
        self.frozen = worker


@pytest.mark.parametrize("exchange", EXCHANGES.values(), ids=EXCHANGES)
def test_a_worker_that_froze_sends_nothing_that_another_has_sent(chain, settings, tmp_path, start_worker, exchange):
    with one_of_two_frozen(chain, settings, tmp_path, start_worker, exchange) as freezer:
        batch, nonce = submit(a_key(), request(ALICE, block=chain.head())), nonce_of(chain)
        until(lambda: freezer.frozen is not None, f"the exchange {exchange}")
        until(lambda: is_done(batch), "DONE by the other worker")
        stored = Transaction.objects.filter(queries__batch=batch)
        until(lambda: {tx.state for tx in stored} <= {"CONFIRMED", "FINAL"}, "confirmations")
    chain.mine()
    assert nonce_of(chain) == nonce_of(chain, "pending") == nonce + 1
    assert stored.count() == 1
    assert [len(logged(chain, event)) for event in EVENTS] == [1, 1]


@contextmanager
def one_of_two_frozen(
    chain: DevChain, settings: Any, folder: Path, start_worker: Any, exchange: tuple[str, int]
) -> Iterator[Freezer]:
    """Start two workers, one of which freezes at the exchange. It wakes at the end, and both end what they began."""
    freezer = Freezer(chain, *exchange)
    with lying_node(freezer.node_of(0)) as one, lying_node(freezer.node_of(1)) as other:
        settings.CHAINS_FILE = chains_toml(folder, chain.url)
        deploy_on(chain)
        chain.mine()
        started = []
        for place, url in enumerate((one, other)):
            (own := folder / str(place)).mkdir()
            settings.CHAINS_FILE = chains_toml(own, url)
            started.append(start_worker())
        until(lambda: WorkerHeartbeat.objects.count() == 2, "both workers")
        freezer.workers += started
        yield freezer
        frozen, awake = sorted(started, key=lambda worker: worker is not freezer.frozen)
        # It ends what it has in hand, and takes up nothing else.
        frozen.terminate()
        frozen.send_signal(signal.SIGCONT)
        assert frozen.wait(timeout=60) == 0
        awake.terminate()
        assert awake.wait(timeout=60) == 0


def logged(chain: DevChain, event: str) -> list[Any]:
    logs = {"address": FactsRegistry.in_use.get().address, "fromBlock": "0x0"}
    return list(chain.rpc("eth_getLogs", logs | {"topics": ["0x" + keccak(text=event).hex()]}))


def nonce_of(chain: DevChain, block: str = "latest") -> int:
    return int(chain.rpc("eth_getTransactionCount", SIGNER, block), 16)
