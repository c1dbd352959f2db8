"""How long, how many statements, how many blocks, how much gas. Each figure is printed with what it is of."""

import functools
import json
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from devnet.devchain import PROJECT, DevChain
from proving.models import Transaction, TransactionState
from proving.registry.deploying import deploy
from queries.models import Batch, BatchStatus
from tests.factories import is_done, until
from tests.inside.working import a_worker
from tests.service import ALICE, a_key, chains_toml, header, request, submit

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def chain() -> Iterator[DevChain]:
    """A chain with a block every second, as the demo has."""
    with DevChain(block_seconds=1) as chain:
        yield chain


@pytest.fixture
def service(chain: DevChain, settings, tmp_path, transactional_db) -> DevChain:
    settings.CHAINS_FILE = chains_toml(tmp_path, chain.url)
    settings.MAX_BATCHES_PER_MINUTE, settings.MAX_QUERIES_PER_MINUTE = 1000, 1_000_000
    deploy(31337, 31337)
    return chain


def accounts(count: int, start: int = 1000) -> list[str]:
    return [f"0x{number:040x}" for number in range(start, start + count)]


def test_submission(service, client: Client, report):
    key = a_key()
    body = json.dumps(request(*accounts(1000), block=1))
    seconds = []
    for _ in range(7):
        began = time.perf_counter()
        response = client.post("/submit-batch-query", body, content_type="application/json", headers=header(key))
        seconds.append(time.perf_counter() - began)
        assert response.status_code == 200
    report("submission of 1,000 accounts, median of 7, ms", round(statistics.median(seconds) * 1000))


def test_statements(service, client: Client, report):
    key = a_key()
    for count in (1, 1000):
        batch = submit(key, request(*accounts(count), block=1))
        for what, path in (
            ("status endpoint", f"/batch-query-status?batchQueryId={batch.pk}"),
            ("batch page", f"/explorer/query/{batch.pk}"),
        ):
            client.get(path, headers=header(key))  # notes the key's use, once a minute
            with CaptureQueriesContext(connection) as statements:
                client.get(path, headers=header(key))
            report(f"SQL statements of the {what}, {count} queries", len(statements))


def test_blocks_to_done(service, report):
    key = a_key()
    blocks = []
    with a_worker():
        for _ in range(10):
            head = service.head()
            batch = submit(key, request(ALICE, block=head))
            until(functools.partial(is_done, batch), "DONE")
            blocks.append(service.head() - head)
    report("blocks from submission to DONE at one confirmation, 10 batches", sorted(blocks))


@pytest.mark.parametrize("count", [1, 4, 40, 1000])
def test_a_batch(service, report, count):
    with a_worker():
        began = time.perf_counter()
        batch = submit(a_key(), request(*accounts(count), block=service.head()))
        until(lambda: is_done(batch), "DONE", seconds=300)
        seconds = time.perf_counter() - began
        mined = Transaction.objects.exclude(to="").exclude(state=TransactionState.PENDING)
        until(lambda: sum(mined.values_list("gas_used", flat=True)) > 0, "the gas")
    gas = sum(mined.values_list("gas_used", flat=True))
    assert Batch.objects.get(pk=batch.pk).status == BatchStatus.DONE
    report(
        f"{count} accounts of one block, shallow development trie",
        f"{mined.count()} transactions, {gas} gas, {gas // count} an account, {seconds:.1f} s",
    )


def test_ten_thousand_queries(service, report, settings, tmp_path):
    """As large as a batch may be, with the worker in a process of its own."""
    env = {
        **os.environ,
        "STATE_DIR": str(tmp_path),
        "SQLITE_FILE": str(connection.settings_dict["NAME"]),
        "CHAINS_FILE": str(settings.CHAINS_FILE),
    }
    command = [sys.executable, "manage.py", "runworker"]
    with (tmp_path / "worker.log").open("wb") as log:
        process = subprocess.Popen(command, cwd=PROJECT, env=env, stdout=log, stderr=log)
    try:
        began = time.perf_counter()
        batch = submit(a_key(), request(*accounts(10_000), block=service.head()))
        until(lambda: is_done(batch), "DONE", seconds=900)
        seconds = time.perf_counter() - began
        (peak,) = re.findall(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{process.pid}/status").read_text())
    finally:
        process.terminate()
        process.wait()
    mined = Transaction.objects.exclude(to="").exclude(state=TransactionState.PENDING)
    report(
        "10,000 accounts of one block, shallow development trie",
        f"{mined.count()} transactions, {seconds:.0f} s, worker's peak memory {int(peak) // 1024} MiB",
    )
