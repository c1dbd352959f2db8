"""How many exchanges with a node, transactions and seconds batches take, the node being as far away as nodes are.

The worker is a process of its own. Beside each figure stands the one of before work and questions were shared.
"""

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from django.db import connection

from campaigns.benchmarks.distant_node import DistantNode
from devnet.devchain import PROJECT, DevChain
from proving.models import Transaction
from proving.registry.deploying import deploy
from queries.models import Batch, BatchStatus
from tests.factories import is_done, until
from tests.service import ALICE, a_key, chains_toml, request, submit

pytestmark = pytest.mark.django_db(transaction=True)

# Between two measurements nothing is under way: the last blocks are looked at again until they are final.
_PAUSE_SECONDS = 5

# By the node's distance in ms.
BEFORE = {
    "one account": {50: "45 exchanges, 2.6 s"},
    "100 accounts": {50: "50 exchanges"},
    "100 batches": {50: "90 s"},
    "200 batches": {50: "7,121 exchanges, 199 transactions"},
}


class _Installation:
    """A chain with a block every second, a node before it, and a registry."""

    def __init__(self, chain: DevChain, node: DistantNode, chains_file: Path, folder: Path) -> None:
        self.chain, self.node = chain, node
        self._environment = {
            **os.environ,
            "STATE_DIR": str(folder),
            "SQLITE_FILE": str(connection.settings_dict["NAME"]),
            "CHAINS_FILE": str(chains_file),
        }
        self._log = folder / "worker.log"

    @contextmanager
    def worker(self) -> Iterator[None]:
        with self._log.open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "manage.py", "runworker"], cwd=PROJECT, env=self._environment, stdout=log, stderr=log
            )
        try:
            yield
        finally:
            process.terminate()
            process.wait()


@pytest.fixture(params=[0, 50, 200], ids="{} ms away".format)
def installation(request: pytest.FixtureRequest, settings, tmp_path, transactional_db) -> Iterator[_Installation]:
    with DevChain(block_seconds=1) as chain, DistantNode(chain.url, request.param / 1000) as node:
        chain.mine(260)
        settings.CHAINS_FILE = chains_toml(tmp_path, node.url)
        settings.MAX_BATCHES_PER_MINUTE, settings.MAX_QUERIES_PER_MINUTE = 10_000, 1_000_000
        deploy(31337, 31337)
        yield _Installation(chain, node, settings.CHAINS_FILE, tmp_path)


def _are_done(batches: Sequence[Batch]) -> bool:
    return not Batch.objects.filter(pk__in=[batch.pk for batch in batches]).exclude(status=BatchStatus.DONE).exists()


def test_round_trips(installation: _Installation, report) -> None:
    node, chain, key = installation.node, installation.chain, a_key()
    away = round(node.seconds * 1000)

    def say(what: str, figure: str) -> None:
        before = BEFORE[what].get(away)
        report(f"{what}, {away} ms away", figure + (f" (before: {before})" if before else ""))

    with installation.worker():
        first = submit(key, request(ALICE, block=chain.head()))
        until(lambda: is_done(first), "the worker's first batch", seconds=60)
        for count, what in ((1, "one account"), (100, "100 accounts")):
            exchanges, seconds, to_send = [], [], []
            for round_ in range(5):
                time.sleep(_PAUSE_SECONDS)
                node.forget()
                began = time.perf_counter()
                accounts = [f"0x{1000 * (round_ + 1) + number:040x}" for number in range(count)]
                batch = submit(key, request(*accounts, block=chain.head()))
                until(partial(is_done, batch), "DONE", seconds=60)
                seconds.append(time.perf_counter() - began)
                exchanges.append(len(node.exchanges))
                to_send.append(
                    next(at for at, sent in enumerate(node.exchanges) if "eth_sendRawTransaction" in sent) + 1
                )
            say(
                what,
                f"{statistics.median(exchanges)} exchanges, {statistics.median(to_send)} until its transaction is out, "
                f"{statistics.median(seconds):.1f} s",
            )
        for count, first_block in ((100, 20), (200, 30)):
            time.sleep(_PAUSE_SECONDS)
            node.forget()
            sent = Transaction.objects.count()
            began = time.perf_counter()
            account = f"0x{count:040x}"
            batches = [
                submit(key, request(account, block=number)) for number in range(first_block, first_block + count)
            ]
            until(partial(_are_done, batches), "DONE", seconds=300)
            seconds_taken = time.perf_counter() - began
            say(
                f"{count} batches",
                f"{len(node.exchanges)} exchanges, {Transaction.objects.count() - sent} transactions, "
                f"{seconds_taken:.1f} s",
            )
