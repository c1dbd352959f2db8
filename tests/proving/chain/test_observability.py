"""Counters, logs and rows by which operators observe workers."""

import json
import logging
import re
from collections.abc import Iterator

import pytest
from django.test import Client

from proving.models import ChainWatch, Signer, Transaction, TransactionState
from queries.models import Batch
from tests import deployed, metrics
from tests.proving import prices, proxy
from tests.service import chains_toml, request, submit, work, work_until_done
from tests.users import ALICE, SIGNER, a_key, header

pytestmark = [pytest.mark.django_db, pytest.mark.outside]

URL_KEY = "the-key-of-a-node-0123456789"

USER = f"0x{0xA11CE:040x}"


def counted(name: str, **labels: object) -> float:
    return metrics.value(Client().get("/metrics").text, name, **labels) or 0


@pytest.fixture
def lines(settings) -> Iterator[list[dict[str, object]]]:
    """Yield a list to which the log's lines are added, parsed from JSON."""
    parsed: list[dict[str, object]] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            parsed.append(json.loads(formatter.format(record)))

    formatter, handler = settings.LOGGING["formatters"]["json"]["()"](), Keep()
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    yield parsed
    root.removeHandler(handler)
    root.setLevel(level)


@pytest.mark.long
def test_looks_and_exchanges_are_counted_by_what_came_of_them(chain, settings, tmp_path):
    with proxy.Proxy(chain.url) as node:
        host = re.sub("^http://", "", node.url)
        settings.CHAINS_FILE = chains_toml(tmp_path, f"{node.url}/?key={URL_KEY}")
        deployed.deploy()
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
    text = Client().get("/metrics").text
    assert URL_KEY not in text
    # Nothing else has this address, neither a log line nor another test's signer.
    assert USER.lower() not in text.lower()


@pytest.mark.long
def test_the_cost_of_final_transactions_is_counted_once(service):
    key = a_key()
    work_until_done(submit(key, request(ALICE, block=service.head())), service)
    signer = Signer.objects.get()
    for _ in range(3):
        # Enough blocks for two epochs and for the checks of final transactions.
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


@pytest.mark.long
def test_a_worker_stores_what_it_sees_of_balances_and_the_day(service):
    work_until_done(submit(a_key(), request(ALICE, block=service.head())), service)
    work()
    watch = ChainWatch.objects.get()
    held = int(service.rpc("eth_getBalance", SIGNER, "latest"), 16)
    assert watch.balances == {SIGNER: str(held)}
    assert watch.number == service.head()
    assert watch.spent_in_day == sum(prices.up_to_a_gwei(tx.reserved) for tx in Transaction.objects.all())
    text = Client().get("/metrics").text
    assert metrics.value(text, "batchquery_signer_balance_wei", chain=31337, signer=SIGNER) == float(held)
    assert metrics.value(text, "batchquery_daily_spent_wei", chain=31337) == float(watch.spent_in_day or 0)


def test_a_request_can_be_followed_from_the_api_to_the_chain(service, lines):
    body = json.dumps(request(ALICE, block=service.head()))
    answer = Client().post("/submit-batch-query", body, content_type="application/json", headers=header(a_key()))
    batch_id, request_id = answer.json()["internalId"], answer.headers["X-Request-Id"]
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
