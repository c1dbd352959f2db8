"""`/metrics` as the database has it, and who may read it."""

from datetime import timedelta
from ipaddress import ip_network

import pytest
from django.db import OperationalError, connection
from django.test import Client
from django.utils import timezone

from devnet.devchain import PROJECT
from proving.models import ChainHead, ChainWatch, FactsRegistry, Signer, Stop, Transaction, WorkerHeartbeat
from queries.models import Batch, BatchStatus, Block, Sender
from tests.explorer.batches import a_batch, beat, deployed, finish
from tests.metrics import samples, value
from tests.service import BOB, SIGNER, chains_toml

pytestmark = [pytest.mark.django_db, pytest.mark.outside]

MINUTE = timedelta(minutes=1)


@pytest.fixture(autouse=True)
def measured_service(db, settings, tmp_path) -> None:
    settings.CHAINS_FILE = chains_toml(tmp_path, "http://127.0.0.1:1/secret-path", chain='daily_limit = "2"')
    beat()
    deployed()


def read(**headers: str) -> str:
    answer = Client().get("/metrics", headers=headers)
    assert answer.status_code == 200
    assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    assert "secret" not in answer.text
    return answer.text


# --- What it tells ----------------------------------------------------------------------------------------------------


def test_it_tells_of_queues_and_the_age_of_what_is_due():
    late, later = a_batch(), a_batch(block=11)
    Batch.objects.filter(pk=late.pk).update(due_at=timezone.now() - 5 * MINUTE)
    Batch.objects.filter(pk=later.pk).update(due_at=timezone.now() + MINUTE)
    # Another worker has the oldest.
    Block.objects.update(due_at=timezone.now() - MINUTE)
    first = Block.objects.order_by("pk").first()
    assert first
    Block.objects.filter(pk=first.pk).update(
        due_at=timezone.now() - 9 * MINUTE, leased_until=timezone.now() + MINUTE, lease_token="another's"
    )
    text = read()
    batch, block = {"kind": "batch", "destination": 31337, "source": ""}, {"kind": "block", "source": 31337}
    assert value(text, "batchquery_queue_rows", **batch) == 2
    assert value(text, "batchquery_queue_due_rows", **batch) == 1
    assert value(text, "batchquery_queue_oldest_due_seconds", **batch) == pytest.approx(300, abs=30)
    assert value(text, "batchquery_queue_rows", **block) == Block.objects.count()
    assert value(text, "batchquery_queue_due_rows", **block) == Block.objects.count() - 1
    assert value(text, "batchquery_queue_oldest_due_seconds", **block) == pytest.approx(60, abs=30)


def test_it_tells_of_batches_that_are_open_late_and_ended():
    overdue, done, rejected, long_ago = (a_batch(block=10 + place) for place in range(4))
    Batch.objects.filter(pk=overdue.pk).update(deadline_at=timezone.now() - MINUTE)
    finish(done)
    ended = {"status": BatchStatus.REJECTED, "rejection_code": "FEE_TOO_LOW"}
    Batch.objects.filter(pk=rejected.pk).update(**ended, finished_at=timezone.now())
    Batch.objects.filter(pk=long_ago.pk).update(**ended, finished_at=timezone.now() - 61 * MINUTE)
    # Its sender may take a day over it.
    sent_by_itself = a_batch(block=20)
    created_at = timezone.now() - 9 * MINUTE
    Batch.objects.filter(pk=sent_by_itself.pk).update(sender=Sender.SELF, created_at=created_at - 60 * MINUTE)
    Batch.objects.filter(pk=overdue.pk).update(created_at=created_at)
    text = read()
    assert value(text, "batchquery_batches_open", destination=31337) == 2
    assert value(text, "batchquery_batches_overdue", destination=31337) == 1
    assert value(text, "batchquery_batches_oldest_seconds", destination=31337) == pytest.approx(540, abs=30)
    ended_name = "batchquery_batches_ended_last_hour"
    assert value(text, ended_name, status="REJECTED", code="FEE_TOO_LOW") == 1
    assert value(text, ended_name) == 2


def test_it_tells_of_money_and_nonces():
    signer = Signer.objects.create(
        chain_id=31337, address=SIGNER, final_count=7, final_failures=2, final_gas=10**6, final_wei=3 * 10**18
    )
    for nonce in (8, 9):
        Transaction.objects.create(
            signer=signer, nonce=nonce, data=b"", gas_limit=1, spent_at=timezone.now() - 10 * MINUTE
        )
    ChainWatch.objects.create(
        chain_id=31337, looked_at=timezone.now(), balances={SIGNER: str(10**19)}, spent_in_day=10**18
    )
    Stop.objects.create(chain_id=31337)
    paused = Signer.objects.create(chain_id=31337, address=BOB)
    Stop.objects.create(chain_id=31337, signer=BOB)
    text, of = read(), {"chain": 31337, "signer": SIGNER}
    assert value(text, "batchquery_transactions_total", outcome="succeeded", **of) == 5
    assert value(text, "batchquery_transactions_total", outcome="failed", **of) == 2
    assert value(text, "batchquery_gas_used_total", **of) == 10**6
    assert value(text, "batchquery_spent_wei_total", **of) == 3e18
    assert value(text, "batchquery_transactions_pending", **of) == 2
    assert value(text, "batchquery_transactions_pending_oldest_seconds", **of) == pytest.approx(600, abs=30)
    assert value(text, "batchquery_transactions_pending_lowest_nonce", **of) == 8
    assert value(text, "batchquery_signer_next_nonce", **of) == 10
    assert value(text, "batchquery_signer_balance_wei", **of) == 1e19
    assert value(text, "batchquery_signer_minimum_balance_wei", chain=31337) == 1e16
    assert value(text, "batchquery_daily_limit_wei", chain=31337) == 2e18
    assert value(text, "batchquery_daily_spent_wei", chain=31337) == 1e18
    assert value(text, "batchquery_signing_stopped", chain=31337) == 1
    assert value(text, "batchquery_signer_paused", **of) == 0
    assert value(text, "batchquery_signer_paused", chain=31337, signer=paused.address) == 1


def test_it_tells_of_heads_and_of_workers_and_of_each_problem():
    seen_at = timezone.now() - MINUTE
    ChainWatch.objects.create(
        chain_id=31337,
        looked_at=seen_at,
        timestamp=int(seen_at.timestamp()) - 60,
        number=77,
        problems=[["clock", "A."]],
    )
    ChainHead.objects.create(chain_id=31337, number=77, final=70, seen_at=seen_at)
    FactsRegistry.objects.update(notice="Attesters contradict the nodes.")
    text = read()
    assert value(text, "batchquery_database_answers") == 1
    assert value(text, "batchquery_workers") == 1
    assert value(text, "batchquery_chain_head_number", chain=31337) == 77
    assert value(text, "batchquery_chain_final_number", chain=31337) == 70
    assert value(text, "batchquery_chain_head_age_seconds", chain=31337) == pytest.approx(120, abs=30)
    assert value(text, "batchquery_chain_observed_seconds", chain=31337) == pytest.approx(60, abs=30)
    assert value(text, "batchquery_attesters_notice", source=31337, destination=31337) == 1
    told = {sample.labels["code"]: sample.value for sample in samples(text) if sample.name == "batchquery_problems"}
    assert len(told) > 10
    assert {code for code, count in told.items() if count} == {"clock"}


def test_the_codes_are_those_that_the_page_explains():
    page = (PROJECT / "docs/operating/watching.md").read_text()
    codes = [sample.labels["code"] for sample in samples(read()) if sample.name == "batchquery_problems"]
    assert codes
    assert [page.count(f"| `{code}` |") for code in codes] == [1] * len(set(codes))


def test_a_database_that_does_not_answer_is_told_and_what_processes_count_stays():
    Client().get("/chain-connections")

    def fail(_execute, _sql, _params, _many, _context):
        raise OperationalError("unable to open the database")

    with connection.execute_wrapper(fail):
        text = read()
    assert value(text, "batchquery_database_answers") == 0
    assert value(text, "batchquery_workers") is None
    assert (value(text, "batchquery_requests_total", route="chain-connections", status="200") or 0) >= 1


def test_a_stranger_s_scrapes_load_no_database_and_few_statements_do(django_assert_max_num_queries, pass_time):
    with django_assert_max_num_queries(32):
        assert value(read(), "batchquery_workers") == 1
    WorkerHeartbeat.objects.all().delete()
    with django_assert_max_num_queries(0):
        assert value(read(), "batchquery_workers") == 1
    pass_time(6)
    assert value(read(), "batchquery_workers") == 0


def test_a_request_counts_by_its_route_and_never_by_its_path():
    for path in ("/explorer/query/01M7W1MRHW703BTRFFPT53VVP5", "/nowhere/at-all", "/admin/login/"):
        Client().get(path)
    text = read()
    assert value(text, "batchquery_requests_total", route="explorer/query/<batch:internal_id>", status="404")
    assert value(text, "batchquery_requests_total", route="unmatched", status="404")
    assert value(text, "batchquery_requests_total", route="admin")
    assert value(text, "batchquery_request_seconds_count", route="admin")
    assert "01M7W1MRHW703BTRFFPT53VVP5" not in text
    assert "at-all" not in text


# --- Who may read it --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("peer", "headers", "variables", "status"),
    [
        ("127.0.0.1", {}, {}, 200),
        ("::1", {}, {}, 200),
        ("::ffff:127.0.0.1", {}, {}, 200),
        ("192.0.2.1", {}, {}, 403),
        ("", {}, {}, 403),
        # Through a proxy on this machine, of which the settings say nothing.
        ("127.0.0.1", {"x-forwarded-for": "192.0.2.1"}, {}, 403),
        ("127.0.0.1", {"x-forwarded-proto": "https"}, {}, 403),
        ("127.0.0.1", {"x-real-ip": "192.0.2.1"}, {"CLIENT_ADDRESS_HEADER": "X-Real-IP"}, 403),
        ("127.0.0.1", {"x-real-ip": "127.0.0.1, 192.0.2.1"}, {"CLIENT_ADDRESS_HEADER": "X-Real-IP"}, 403),
        ("127.0.0.1", {}, {"CLIENT_ADDRESS_HEADER": "X-Real-IP"}, 200),
        ("127.0.0.1", {"via": "1.1 proxy"}, {"CLIENT_ADDRESS_HEADER": "X-Real-IP"}, 403),
        ("192.0.2.1", {"authorization": "Bearer right"}, {"METRICS_TOKEN": "right"}, 200),
        ("192.0.2.1", {"authorization": "Bearer wrong"}, {"METRICS_TOKEN": "right"}, 403),
        ("192.0.2.1", {"authorization": "Bearer "}, {}, 403),
        ("192.0.2.1", {"authorization": "Bearer é"}, {"METRICS_TOKEN": "right"}, 403),
    ],
)
def test_the_operator_reads_it_and_nobody_else(settings, peer, headers, variables, status):
    for name, of_variable in variables.items():
        setattr(settings, name, of_variable)
    assert Client().get("/metrics", headers=headers, REMOTE_ADDR=peer).status_code == status


def test_networks_may_be_named(settings):
    settings.METRICS_ALLOWED_NETWORKS = [ip_network("10.0.0.0/8"), ip_network("2001:db8::/32")]
    statuses = [
        Client().get("/metrics", REMOTE_ADDR=peer).status_code for peer in ("10.1.2.3", "2001:db8::1", "127.0.0.1")
    ]
    assert statuses == [200, 200, 403]
