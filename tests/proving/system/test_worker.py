"""`manage.py runworker` as a process that is killed, doubled or stopped, or whose node goes away."""

import itertools
import signal
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.db.models import F
from django.test import Client
from django.utils import timezone
from eth_utils.crypto import keccak

from devnet import devchain, ports
from proving.models import Lane, Signer, Transaction, WorkerHeartbeat
from queries.models import Batch
from tests import chain_fixtures, deployed, factories, metrics
from tests.chains.lying_node import Raw, ask, each, error, lying_node
from tests.proving.chain_state import ACCOUNT_PROVEN, HEADER_ACCUMULATED, events, signer_nonce
from tests.proving.signing_service import name_service
from tests.service import ALICE, BOB, a_key, asking, balances, chains_toml, reconfigure, request, submit

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.outside]
BLOCK_HASH_PROVEN = "0x" + keccak(text="BlockHashProven(bytes32)").hex()


# A chain that mines a block every half second.
chain = chain_fixtures.chain_fixture(lambda chain: chain.mine(5), scope="function", block_seconds=0.5)


@pytest.fixture
def service(chain: devchain.DevChain, settings, tmp_path, transactional_db) -> devchain.DevChain:
    settings.CHAINS_FILE = chains_toml(tmp_path, chain.url)
    deployed.deploy()
    return chain


def log_of(tmp_path: Path) -> str:
    return "".join(path.read_text() for path in sorted(tmp_path.glob("worker*.log")))


def last_log(tmp_path: Path) -> str:
    """Return the log of the worker that was started last."""
    return max(tmp_path.glob("worker*.log"), key=lambda path: int(path.stem.removeprefix("worker"))).read_text()


@pytest.mark.long
def test_a_worker_says_that_it_holds_an_older_chains_toml(service, start_worker, settings, tmp_path):
    def codes() -> list[str]:
        told: list[str] = Client().get("/healthz").json()["codes"]
        return told

    start_worker()
    factories.until(lambda: codes() == [], "health")
    reconfigure(settings, "block_seconds = 1", "block_seconds = 2")
    factories.until(lambda: codes() == ["chains_file_changed"], "the problem", says=codes)
    assert "chains.toml has changed since this worker read it: restart the worker" in log_of(tmp_path)
    reconfigure(settings, "block_seconds = 2", "block_seconds = 1")
    factories.until(lambda: codes() == [], "its end", says=codes)


@pytest.mark.long
@pytest.mark.skipif(connection.vendor != "sqlite", reason="only SQLite's database is a file")
def test_a_worker_notices_that_its_database_was_moved_away(service, start_worker, tmp_path):
    with connection.cursor() as cursor:
        ((_, _, name),) = cursor.execute("PRAGMA database_list").fetchall()
    database = Path(name)
    start_worker()
    factories.until(lambda: WorkerHeartbeat.running().exists(), "a heartbeat")
    away = database.rename(database.with_name("away"))
    try:
        factories.until(lambda: "the database does not answer; trying again" in log_of(tmp_path), "its line")
    finally:
        away.rename(database)


@pytest.mark.long
def test_a_worker_that_beats_and_does_nothing_is_told_until_it_goes_on(service, start_worker, monkeypatch):
    """Another holder hangs in the lane of admission, and renews it."""

    def codes() -> list[str]:
        told: list[str] = Client().get("/healthz").json()["codes"]
        return told

    monkeypatch.setenv("LEASE_SECONDS", "60")
    batch = submit(a_key(), request(ALICE, block=service.head()))
    Lane.objects.create(name="admission:31337", token="another", until=timezone.now() + timedelta(seconds=60))
    start_worker()
    factories.until(lambda: "no_worker" not in codes(), "a heartbeat")
    assert "standstill" not in codes()
    Batch.objects.update(due_at=F("due_at") - timedelta(seconds=31))
    assert "standstill" in codes()
    assert "no_worker" not in codes()
    Lane.objects.filter(token="another").update(until=None)
    factories.until(lambda: factories.is_done(batch), "DONE")
    assert "standstill" not in codes()


@pytest.mark.long
@pytest.mark.parametrize("method", ["eth_estimateGas", "eth_sendRawTransaction", "eth_getProof"])
def test_a_method_that_the_node_does_not_answer_is_named_until_it_does(service, start_worker, settings, method):
    """The node answers all others."""
    goes_on = threading.Event()

    def answer(body: Any) -> Any:
        if any(question["method"] == method for question in (body if isinstance(body, list) else [body])):
            goes_on.wait(factories.SECONDS)
        return ask(service.url, body)

    def health() -> tuple[list[str], list[str]]:
        told = Client().get("/healthz").json()
        return told["codes"], told["problems"]

    with lying_node(answer) as url:
        reconfigure(settings, service.url, url)
        start_worker()
        key = a_key()
        batch = submit(key, request(ALICE, block=service.head()))
        sentence = f"{method}: no answer within 10 s from "
        factories.until(lambda: any(told.startswith(sentence) for told in health()[1]), "its name", says=health)
        everywhere = f"{sentence}any node of Development chain (31337)."
        factories.until(lambda: everywhere in health()[1], "the chain that has no other node", says=health)
        assert "chain_unavailable" in health()[0]
        goes_on.set()
        # A second batch needs the method once more.
        again = submit(key, request(BOB, block=service.head()))
        factories.until(lambda: factories.is_done(batch, again), "DONE")
        # The request that hung may still be named for minutes.
        factories.until(lambda: {*health()[0]} <= {"node_fails"}, "the chain's recovery", says=health)


@pytest.mark.long
def test_a_node_that_takes_transactions_late_is_named(service, start_worker, settings):
    never = threading.Event()

    def answer(question: Any) -> Any:
        if question["method"] == "eth_sendRawTransaction":
            never.wait(6)
        return ask(service.url, question)

    def problems() -> list[str]:
        return list(Client().get("/healthz").json()["problems"])

    with lying_node(each(answer)) as url:
        reconfigure(settings, service.url, url)
        start_worker()
        batch = submit(a_key(), request(ALICE, block=service.head()))
        sentence = f"eth_sendRawTransaction: an answer only after 6 s from {url.removeprefix('http://')}, a node of"
        factories.until(lambda: any(told.startswith(sentence) for told in problems()), "its name", says=problems)
        factories.until(lambda: factories.is_done(batch), "DONE")


@pytest.mark.postgresql_only(reason="a trigger of SQLite can't raise the error of a full disk")
def test_a_worker_whose_database_takes_no_writes_pauses_says_so_once_and_goes_on(service, start_worker, tmp_path):
    batch = submit(a_key(), request(ALICE, block=service.head()))
    with connection.cursor() as cursor:
        # A sequence's value stays increased after a rollback, so it counts failed statements.
        cursor.execute("CREATE SEQUENCE refusals")
        cursor.execute(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM nextval('refusals'); "
            "RAISE EXCEPTION 'could not extend file' USING ERRCODE = 'disk_full'; END $$"
        )
        cursor.execute("CREATE TRIGGER refuse BEFORE INSERT OR UPDATE ON proving_lane EXECUTE FUNCTION refuse()")

        def refused(turns: int) -> bool:
            cursor.execute("SELECT last_value FROM refusals WHERE is_called AND last_value >= %s", [turns])
            return cursor.fetchone() is not None

        try:
            start_worker()
            factories.until(lambda: refused(1), "a turn")
            began = time.monotonic()
            # Five lanes begin with a turn at once. Those with due rows, three of them, repeat it after 1, 2 and 4
            # seconds.
            factories.until(lambda: refused(12), "further turns")
            assert time.monotonic() - began > 2
        finally:
            cursor.execute("DROP FUNCTION refuse CASCADE")
            cursor.execute("DROP SEQUENCE refusals")
    assert "Traceback" not in log_of(tmp_path)
    assert log_of(tmp_path).count("The disk of this service is full") == 1
    factories.until(lambda: factories.is_done(batch), "DONE")


@pytest.mark.long
def test_a_worker_serves_metrics_where_it_is_told_to_who_may_read_them(service, start_worker, monkeypatch):
    # Workers have no proxy that would overwrite this header.
    monkeypatch.setenv("CLIENT_ADDRESS_HEADER", "Client")
    monkeypatch.setenv("METRICS_ALLOWED_NETWORKS", "10.0.0.0/8")
    monkeypatch.setenv("METRICS_TOKEN", "right")
    port = ports.free_port()
    start_worker("--metrics-port", str(port))
    batch = submit(a_key(), request(ALICE, block=service.head()))
    factories.until(lambda: factories.is_done(batch), "DONE")
    scrape = urllib.request.Request(f"http://127.0.0.1:{port}/metrics", headers={"Authorization": "Bearer right"})
    with urllib.request.urlopen(scrape) as answer:
        text = answer.read().decode()
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    assert metrics.value(text, "batchquery_job_run_seconds_count", kind="batch", outcome="done") == 1
    assert metrics.value(text, "batchquery_job_run_seconds_count", kind="block")
    assert metrics.value(text, "batchquery_job_run_seconds_count", outcome="defect") is None
    for path, sent in (("/metrics", {}), ("/metrics", {"Client": "10.0.0.1"}), ("/", {})):
        scrape = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers=sent)
        with pytest.raises(urllib.error.HTTPError, match=r"40[34]") as refused:
            urllib.request.urlopen(scrape)
        refused.value.close()


def kill_until_done(batch: Batch, start_worker: Any, folder: Path, *, seconds: float) -> None:
    """Kill workers until the batch is DONE, each after a longer time than the one before."""
    lives = 0
    for length in itertools.count(step=3):
        if factories.is_done(batch):
            break
        process = start_worker()
        factories.until(lambda: "starts" in last_log(folder), "the start")
        time.sleep(seconds * length)
        process.send_signal(signal.SIGKILL)
        process.wait()
        lives += 1
        assert lives < 40, log_of(folder)
    assert lives > 1


@pytest.mark.long
def test_killed_again_and_again_it_ends_done_once(service, start_worker, tmp_path):
    nonce = signer_nonce(service)
    batch = submit(a_key(), request(ALICE, BOB, block=service.head()))
    # Kills come while workers fetch, send and confirm.
    kill_until_done(batch, start_worker, tmp_path, seconds=0.12)
    assert signer_nonce(service) == signer_nonce(service, "pending") == nonce + 1
    assert len(events(service, HEADER_ACCUMULATED)) == 1
    assert len(events(service, ACCOUNT_PROVEN)) == 2


@pytest.fixture
def short_hops(settings, tmp_path, transactional_db) -> Iterator[devchain.DevChain]:
    """Yield a chain of 300 blocks, where a hop reaches two blocks."""
    with devchain.DevChain(block_seconds=0.5) as chain:
        chain.mine(5)
        settings.CHAINS_FILE = chains_toml(tmp_path, chain.url, connection="window = 40\nmax_hops = 200")
        deployed.deploy()
        chain.mine(300)
        reconfigure(settings, "window = 40", "window = 2")
        yield chain


@pytest.mark.long
def test_a_path_killed_again_and_again_goes_on_and_pays_for_no_hop_twice(short_hops, start_worker, tmp_path):
    batch = submit(a_key(), request(ALICE, block=short_hops.head() - 220))
    kill_until_done(batch, start_worker, tmp_path, seconds=0.25)
    assert Transaction.objects.exclude(extends=None).count() > 2
    for kind in (BLOCK_HASH_PROVEN, HEADER_ACCUMULATED):
        proven = [log["topics"][1] for log in events(short_hops, kind)]
        assert len(proven) == len(set(proven)) >= 100


@pytest.mark.story
def test_two_workers_do_everything_once(chain, settings, tmp_path, transactional_db, start_worker):
    settings.CHAINS_FILE = chains_toml(tmp_path, chain.url, signers=2)
    deployed.deploy()
    service = chain
    head = service.head()
    key = a_key()
    start_worker()
    start_worker()
    batches = [
        submit(key, request(f"0x{account:040x}", block=head - offset)) for offset in range(4) for account in (1, 2, 3)
    ]
    factories.until(lambda: factories.is_done(*batches), "DONE")
    assert len(events(service, ACCOUNT_PROVEN)) == 12
    assert len(events(service, HEADER_ACCUMULATED)) == 4
    for signer in Signer.objects.all():
        nonces = list(signer.transactions.order_by("nonce").values_list("nonce", flat=True))
        assert nonces == list(range(len(nonces)))
    assert signer_nonce(service) == Transaction.objects.count()


@pytest.mark.long
@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGINT])
def test_runworker_stops_in_order_at_sigterm_and_sigint(service, start_worker, ending, tmp_path):
    process = start_worker()
    factories.until(WorkerHeartbeat.objects.exists, "the first heartbeat")
    submit(a_key(), request(ALICE, block=service.head()))
    process.send_signal(ending)
    assert process.wait(timeout=60) == 0
    assert not WorkerHeartbeat.objects.exists()
    assert "Traceback" not in log_of(tmp_path)


# --- Its log while a failure lasts ------------------------------------------------------------------------------------


FAILURES = 12


def warnings(folder: Path) -> list[str]:
    lines = (folder / "worker0.log").read_text().splitlines()
    return [line for line in lines if " WARNING " in line or " ERROR " in line]


def submit_until_it_failed_often(service: devchain.DevChain, failures: Sequence[Any]) -> int:
    """Submit a batch after each failure, because pauses between attempts for the same batches grow.

    Return the number of minutes that have begun.
    """
    key, began = a_key(), time.monotonic()
    while len(failures) < FAILURES:
        submit(key, asking(balances([service.head()])))
        factories.until(partial(lambda count: len(failures) > count, len(failures)), "a failure")
    return 1 + int((time.monotonic() - began) // 60)


@pytest.mark.long
def test_a_signing_service_that_is_down_has_one_line_of_its_own_and_one_about_its_signer(
    service, start_worker, settings, tmp_path
):
    asked: list[Any] = []

    def answer(body: Any) -> Raw:
        asked.append(body)
        return Raw(b"", 503)

    with lying_node(answer) as url:
        name_service(settings, url)
        start_worker()
        minutes = submit_until_it_failed_often(service, asked)
    # The second one is about the signer.
    assert minutes * 2 >= len(warnings(tmp_path)) >= 1


@pytest.mark.long
def test_nodes_that_refuse_fees_as_too_low_have_one_line_whatever_they_say(service, start_worker, settings, tmp_path):
    refused: list[Any] = []

    def answer(question: Any) -> Any:
        if question["method"] != "eth_sendRawTransaction":
            return ask(service.url, question)
        refused.append(question)
        return error(question, -32000, f"max fee per gas less than block base fee: {len(refused)} gwei")

    with lying_node(each(answer)) as url:
        reconfigure(settings, service.url, url)
        start_worker()
        minutes = submit_until_it_failed_often(service, refused)
    assert minutes >= len(warnings(tmp_path)) >= 1
