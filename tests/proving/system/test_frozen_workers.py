"""A worker freezes and wakes after another one has done the work. It sends and writes nothing then."""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps
from django.db import OperationalError, connection, transaction
from django.db.models import QuerySet
from django.utils import timezone

from devnet.devchain import DevChain
from proving.models import ChainHead, FactsRegistry, JumpLeaves, Lane, Signer, Transaction, WorkerHeartbeat
from queries.models import Batch, Block, WebhookDelivery
from tests.chains.lying_node import ask, lying_node
from tests.deployed import deploy_on
from tests.factories import is_done, until
from tests.proving.chain_state import ACCOUNT_PROVEN, HEADER_ACCUMULATED, events, signer_nonce
from tests.proving.receiver import receiver
from tests.service import ALICE, a_key, chains_toml, request, submit

pytestmark = [pytest.mark.outside, pytest.mark.django_db(transaction=True)]

# A worker's exchange about a block: its method, and its number among those with this method.
EXCHANGES = {
    "admitting": ("eth_getProof", 1),
    "looking at the registry": ("eth_call", 2),
    "simulating": ("eth_estimateGas", 1),
    "broadcasting": ("eth_sendRawTransaction", 1),
}
LANES = ["destination", "admission", "large-admission", "connection", "history", "webhooks", "watch", "house"]


@dataclass
class Freezer:
    """Freeze the worker that makes the `left`-th exchange with this method, after the node has answered."""

    chain: DevChain
    method: str
    left: int
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)
    frozen: subprocess.Popen[bytes] | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)

    def node_of(self, worker: int) -> Callable[[Any], Any]:
        def answer(body: Any) -> Any:
            reply = ask(self.chain.url, body)
            methods = {question["method"] for question in (body if isinstance(body, list) else [body])}
            with self.lock:
                self.left -= bool(self.workers) and self.method in methods
                if self.left == 0 and self.frozen is None:
                    self._freeze(self.workers[worker])
            return reply

        return answer

    def _freeze(self, worker: subprocess.Popen[bytes]) -> None:
        with all_locked():
            stop(worker)
        connection.close()
        self.frozen = worker


@contextmanager
def all_locked() -> Iterator[None]:
    """Hold all row locks, at a moment when no worker holds one. Otherwise everybody would wait for the
    frozen worker.
    """
    while True:
        with transaction.atomic():
            try:
                for model in (Signer, Lane, Block, Batch, FactsRegistry):
                    # Waiting while holding locks could cause a deadlock with a worker.
                    list(model.objects.select_for_update(nowait=True))
            except OperationalError:
                transaction.set_rollback(True)
                continue
            yield
            return


def stop(worker: subprocess.Popen[bytes]) -> None:
    worker.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, worker.pid, os.WSTOPPED | os.WNOWAIT)


@pytest.mark.long
@pytest.mark.story("broadcasting")
@pytest.mark.parametrize("exchange", EXCHANGES.values(), ids=EXCHANGES)
def test_a_worker_that_froze_sends_nothing_that_another_has_sent(chain, settings, tmp_path, start_worker, exchange):
    with one_of_two_frozen(chain, settings, tmp_path, start_worker, exchange) as freezer:
        batch, nonce = submit(a_key(), request(ALICE, block=chain.head())), signer_nonce(chain)
        until(lambda: freezer.frozen is not None, f"the exchange {exchange}")
        until(lambda: is_done(batch), "DONE by the other worker")
        stored = Transaction.objects.filter(queries__batch=batch)
        until(lambda: {tx.state for tx in stored} <= {"CONFIRMED", "FINAL"}, "confirmations")
    chain.mine()
    assert signer_nonce(chain) == signer_nonce(chain, "pending") == nonce + 1
    assert stored.count() == 1
    assert len(events(chain, HEADER_ACCUMULATED)) == len(events(chain, ACCOUNT_PROVEN)) == 1


@contextmanager
def one_of_two_frozen(
    chain: DevChain, settings: Any, folder: Path, start_worker: Any, exchange: tuple[str, int]
) -> Iterator[Freezer]:
    """Run two workers. Freeze one at the exchange, wake it at the end, and let both end."""
    freezer = Freezer(chain, *exchange)
    with lying_node(freezer.node_of(0)) as first_url, lying_node(freezer.node_of(1)) as second_url:
        settings.CHAINS_FILE = chains_toml(folder, chain.url)
        deploy_on(chain)
        chain.mine()
        started = []
        for index, url in enumerate((first_url, second_url)):
            (own := folder / str(index)).mkdir()
            settings.CHAINS_FILE = chains_toml(own, url)
            started.append(start_worker())
        until(lambda: WorkerHeartbeat.objects.count() == 2, "both workers")
        freezer.workers += started
        yield freezer
        wake(*sorted(started, key=lambda worker: worker is not freezer.frozen))


@pytest.mark.release
@pytest.mark.parametrize("kind", LANES)
def test_others_go_on_with_what_a_worker_froze_in(chain, settings, tmp_path, start_worker, monkeypatch, kind):
    settings.CHAINS_FILE = chains_toml(tmp_path, chain.url)
    settings.WEBHOOK_ALLOW = [ip_network("127.0.0.0/8")]
    monkeypatch.setenv("WEBHOOK_ALLOW", "127.0.0.0/8")
    monkeypatch.setenv("API_KEY_SECRET", settings.API_KEY_SECRET)
    deploy_on(chain)
    chain.mine()
    is_frozen = threading.Event()

    def answer(body: Any) -> Any:
        """Answer a worker that holds the lane only once it is frozen, so that it can't leave the lane unseen."""
        is_held = held(kind).exists()
        connection.close()
        if is_held:
            is_frozen.wait(20)
        return ask(chain.url, body)

    # Nobody can fetch these rows, so each costs a turn.
    leaves = [JumpLeaves(chain_id=31337, kind="period", number=number, due_at=timezone.now()) for number in range(30)]
    JumpLeaves.objects.bulk_create(leaves)
    with receiver(lambda _: 204 if is_frozen.wait(20) else 500) as hook, lying_node(answer) as url:
        settings.CHAINS_FILE = chains_toml(tmp_path, url)
        batch = submit(a_key(), request(ALICE, block=chain.head()) | {"webhook": {"url": hook.url, "events": ["DONE"]}})
        nonce = signer_nonce(chain)
        if kind == "large-admission":
            Batch.objects.update(block_count=101)
        frozen = start_worker()
        lane = freeze_in(kind, frozen)
        is_frozen.set()
        awake = start_worker()
        until(lambda: not Lane.objects.filter(token=lane.token).exists(), "another holder of the lane")
        until(lambda: is_done(batch), "DONE by the other worker")
        until(lambda: not JumpLeaves.objects.filter(problem="").exists(), "what becomes of the leaves")
        until(lambda: not WebhookDelivery.objects.exclude(status="DELIVERED").exists(), "the delivery")
        wake(frozen, awake)
    assert signer_nonce(chain) == signer_nonce(chain, "pending") == nonce + 1
    assert [len(delivery.attempts) for delivery in WebhookDelivery.objects.all()] == [1]


def held(kind: str) -> QuerySet[Lane]:
    """Return the lanes of this kind that a worker holds."""
    return Lane.objects.filter(name__startswith=kind).exclude(token="")


def freeze_in(kind: str, worker: subprocess.Popen[bytes]) -> Lane:
    """Freeze the worker when it holds a lane of this kind. Return the lane."""
    deadline = time.monotonic() + 180
    while worker.poll() is None and time.monotonic() < deadline:
        if held(kind).exists():
            with all_locked():
                if lane := held(kind).first():
                    stop(worker)
                    return lane
    raise AssertionError(kind)


def wake(frozen: subprocess.Popen[bytes], awake: subprocess.Popen[bytes]) -> None:
    """Wake a worker and let it end while others hold all lanes. Assert that it writes nothing."""
    awake.terminate()
    assert awake.wait(timeout=60) == 0
    Lane.objects.update(token="another", until=timezone.now() + timedelta(seconds=3))
    # The next observation of the chain would store it.
    Signer.objects.update(accounted_nonce=None)
    before = stored()
    frozen.terminate()
    frozen.send_signal(signal.SIGCONT)
    assert frozen.wait(timeout=60) == 0
    assert stored() == before


def stored() -> list[dict[str, Any]]:
    """Return all rows except heads, heartbeats, and times of broadcast."""
    models = [model for model in apps.get_models() if model not in {ChainHead, WorkerHeartbeat}]
    rows = [row for model in models for row in model._default_manager.order_by("pk").values()]
    return [row | {"broadcast_at": None} for row in rows]
