"""What workers count, log and store for operators."""

import json
import logging
import re
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextvars import Context
from ipaddress import ip_network

import pytest
from django.test import Client

from chains import together
from config import log_context, metrics_server, process_metrics
from config.configured_chains import forget_chains
from config.logs import JsonLines
from devnet.ports import free_port
from proving.health import chain_checks
from proving.models import ChainWatch, Signer, Transaction, TransactionState
from proving.registry.deploying import deploy
from queries.models import Batch, Block
from tests.metrics import value
from tests.proving.proxy import Proxy
from tests.service import ALICE, SIGNER, a_key, chains_toml, header, request, submit, work, work_until_done

pytestmark = pytest.mark.django_db

URL_KEY = "the-key-of-a-node-0123456789"

USER = f"0x{0xA11CE:040x}"


def counted(name: str, **labels: object) -> float:
    return value(process_metrics.exposition().decode(), name, **labels) or 0


@pytest.fixture
def lines() -> Iterator[list[dict[str, object]]]:
    """The log, as JSON."""
    found: list[dict[str, object]] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            found.append(json.loads(formatter.format(record)))

    formatter, handler = JsonLines(), Keep()
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    yield found
    root.removeHandler(handler)
    root.setLevel(level)


def test_looks_and_exchanges_are_counted_by_what_came_of_them(chain, settings, tmp_path):
    with Proxy(chain.url) as node:
        host = re.sub("^http://", "", node.url)
        settings.CHAINS_FILE = chains_toml(tmp_path, f"{node.url}/?key={URL_KEY}")
        forget_chains()
        deploy(31337, 31337)
        before = {
            (kind, outcome): counted("batchquery_job_run_seconds_count", kind=kind, outcome=outcome)
            for kind, outcome in [("batch", "done"), ("block", "done"), ("block", "waits"), ("signer", "done")]
        }
        key = a_key(USER)
        work_until_done(submit(key, request(USER, block=chain.head())), chain)
        for (kind, outcome), so_many in before.items():
            if (kind, outcome) != ("block", "done"):
                assert counted("batchquery_job_run_seconds_count", kind=kind, outcome=outcome) > so_many, (
                    kind,
                    outcome,
                )
        of_node = {"chain": 31337, "node": host}
        answered = counted("batchquery_node_exchanges_total", outcome="answered", **of_node)
        assert answered > 5
        assert counted("batchquery_node_exchange_seconds_count", **of_node) >= answered
        failed = counted("batchquery_job_run_seconds_count", kind="batch", outcome="fails")
        node.down()
        submit(key, request(ALICE, block=chain.head()))
        work()
        assert counted("batchquery_job_run_seconds_count", kind="batch", outcome="fails") == failed + 1
        assert counted("batchquery_node_exchanges_total", outcome="unreachable", **of_node) >= 1
        node.up()
    text = process_metrics.exposition().decode()
    assert URL_KEY not in text
    # Nothing else has this address, such as a signer that another test was about.
    assert USER.lower() not in text.lower()


def test_what_final_transactions_cost_is_counted_once(service):
    key = a_key()
    work_until_done(submit(key, request(ALICE, block=service.head())), service)
    signer = Signer.objects.get()
    for _ in range(3):
        # Two epochs and more, and looks at what was final already.
        service.mine(70)
        Signer.objects.update(due_at=None)
        work()
        Signer.objects.update(due_at="2020-01-01T00:00:00Z")
        work()
    signer.refresh_from_db()
    final = list(Transaction.objects.filter(state=TransactionState.FINAL))
    assert final
    assert Transaction.objects.count() == len(final)
    assert signer.final_count == len(final)
    assert signer.final_failures == 0
    assert signer.final_gas == sum(tx.gas_used for tx in final)
    assert signer.final_wei == sum(tx.cost for tx in final) > 0


def test_a_worker_stores_what_it_sees_of_balances_and_the_day(service):
    work_until_done(submit(a_key(), request(ALICE, block=service.head())), service)
    chain_checks.wake(everyone=True)
    chain_checks.observe_what_is_due()
    watch = ChainWatch.objects.get()
    held = int(service.rpc("eth_getBalance", SIGNER, "latest"), 16)
    assert watch.balances == {SIGNER: str(held)}
    assert watch.number == service.head()
    assert watch.spent_in_day == sum(tx.reserved for tx in Transaction.objects.all())
    text = Client().get("/metrics").text
    assert value(text, "batchquery_signer_balance_wei", chain=31337, signer=SIGNER) == float(held)
    assert value(text, "batchquery_daily_spent_wei", chain=31337) == float(watch.spent_in_day or 0)


def test_a_request_can_be_followed_from_the_api_to_the_chain(service, lines):
    body = json.dumps(request(ALICE, block=service.head()))
    answer = Client().post("/submit-batch-query", body, content_type="application/json", headers=header(a_key()))
    batch_id, request_id = answer.json()["internalId"], answer.headers["X-Request-Id"]
    log_context.enter({})
    work_until_done(Batch.objects.get(pk=batch_id), service)
    (stored,) = [line for line in lines if line["logger"] == "queries.submission"]
    assert (stored["request"], stored["batch"]) == (request_id, batch_id)
    admitted = next(line for line in lines if "admitted" in str(line["message"]))
    assert (admitted["batch"], admitted["chain"]) == (batch_id, 31337)
    sent = next(line for line in lines if "is stored for" in str(line["message"]))
    assert sent["batches"] == [batch_id]
    broadcast = next(line for line in lines if str(line["message"]).startswith("broadcast "))
    mined = next(line for line in lines if "mined in block" in str(line["message"]))
    assert broadcast["transaction"] == mined["transaction"] == sent["transaction"]
    assert (mined["chain"], mined["signer"]) == (31337, SIGNER)


def test_lines_about_a_block_name_it(service, settings, lines):
    batch = submit(a_key(), request(ALICE, block=service.head()))
    work()
    forget_chains()
    block = Block.objects.get()
    with Proxy(service.url) as node:
        node.down()
        settings.CHAINS_FILE.write_text(settings.CHAINS_FILE.read_text().replace(service.url, node.url))
        forget_chains()
        work()
        node.up()
    line = next(line for line in lines if "Next try in" in str(line["message"]))
    assert (line["block"], line["source"], line["chain"]) == (block.number, 31337, 31337)
    assert batch.pk


def test_tasks_side_by_side_have_each_its_own_context_and_that_of_who_asks():
    seen: dict[str, object] = {}

    def part(name: str) -> None:
        # Set aside, while the others go on.
        together.share_exchange("all", name, lambda names: [None] * len(names))
        seen[name] = dict(log_context.fields())

    def task(number: int) -> None:
        with log_context.about(block=number):
            part(f"{number} before")
            together.each([lambda: part(f"{number} within"), lambda: part(f"{number} beside")])
            part(f"{number} after")

    def both() -> None:
        with log_context.about(worker="w"):
            together.run([lambda: task(1), lambda: task(2)])

    # Without what the last request of this thread has left.
    Context().run(both)
    assert len(seen) == 8
    for name, fields in seen.items():
        assert fields == {"worker": "w", "block": int(name[0])}
    assert "block" not in log_context.fields()


# --- The metrics of a worker ------------------------------------------------------------------------------------------


def test_a_worker_serves_its_metrics_to_who_may_read_them(settings):
    port = free_port()
    metrics_server.serve(port)
    url = f"http://127.0.0.1:{port}"
    with urllib.request.urlopen(f"{url}/metrics") as answer:
        text = answer.read().decode()
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    assert "batchquery_job_run_seconds" in text
    assert "process_cpu_seconds_total" in text
    for path, headers, status in [
        ("/metrics", {"X-Forwarded-For": "192.0.2.1"}, 403),
        ("/", {}, 404),
        ("/metrics?a", {}, 404),
    ]:
        asked = urllib.request.Request(url + path, headers=headers)
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(asked)
        assert refused.value.code == status
        refused.value.close()
    # Nothing stands before a worker that would write this header over.
    settings.CLIENT_ADDRESS_HEADER = "Client"
    settings.METRICS_ALLOWED_NETWORKS = [ip_network("10.0.0.0/8")]
    with pytest.raises(urllib.error.HTTPError, match="403") as forged:
        urllib.request.urlopen(urllib.request.Request(f"{url}/metrics", headers={"Client": "10.0.0.1"}))
    forged.value.close()
    settings.METRICS_TOKEN = "right"
    asked = urllib.request.Request(f"{url}/metrics", headers={"Authorization": "Bearer right"})
    with urllib.request.urlopen(asked) as answer:
        assert answer.status == 200


def test_a_worker_works_without_its_port(caplog):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        metrics_server.serve(taken.getsockname()[1])
    assert "no metrics are served" in caplog.text
