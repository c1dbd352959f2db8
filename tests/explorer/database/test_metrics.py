"""`/metrics`: values from the database, and who may read them."""

import re
from collections.abc import Callable, Iterable
from datetime import timedelta
from ipaddress import ip_network

import pytest
from django.db import OperationalError, connection
from django.test import Client
from django.utils import timezone
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics import parser
from prometheus_client.parser import text_string_to_metric_families

from devnet.devchain import PROJECT
from proving.models import ChainHead, ChainWatch, FactsRegistry, Problem, Signer, Stop, Transaction, WorkerHeartbeat
from queries.models import Batch, Block, Sender
from queries.waits import wait
from tests import golden_pages, metrics, service
from tests.explorer.batches import a_batch, beat, deployed, finish

pytestmark = [pytest.mark.django_db, pytest.mark.outside]

MINUTE = timedelta(minutes=1)


@pytest.fixture(autouse=True)
def measured_service(db, settings, tmp_path) -> None:
    settings.CHAINS_FILE = service.chains_toml(tmp_path, "http://127.0.0.1:1/secret-path", chain='daily_limit = "2"')
    beat()
    deployed()


def read(**headers: str) -> str:
    answer = Client().get("/metrics", headers=headers)
    assert answer.status_code == 200
    assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    assert "secret" not in answer.text
    return answer.text


# --- Content ----------------------------------------------------------------------------------------------------------


def test_metrics_show_what_the_database_has():
    """`golden/metrics.txt` has queues and their ages, batches, money, nonces, heads, workers and problems."""
    now = timezone.now()
    late, overdue, done, rejected, long_ago, self_funded = (a_batch(block=10 + offset) for offset in range(6))
    for batch, columns in (
        (late, {"due_at": now - 5 * MINUTE}),
        (overdue, {"due_at": now + MINUTE, "deadline_at": now - MINUTE, "created_at": now - 9 * MINUTE}),
        (rejected, {"status": "REJECTED", "rejection_code": "FEE_TOO_LOW", "finished_at": now}),
        (long_ago, {"status": "REJECTED", "rejection_code": "FEE_TOO_LOW", "finished_at": now - 61 * MINUTE}),
        # A self-funded batch's user has a day to send.
        (self_funded, {"sender": Sender.SELF, "created_at": now - 69 * MINUTE}),
    ):
        Batch.objects.filter(pk=batch.pk).update(**columns)
    Block.objects.update(due_at=now - MINUTE)
    # A worker has taken up block 10 and will look at it again in a minute.
    Block.objects.filter(number=10).update(due_at=now + MINUTE)
    finish(done)
    final = {"final_count": 7, "final_failures": 2, "final_gas": 10**6, "final_wei": 3 * 10**18}
    signer = Signer.objects.create(chain_id=31337, address=service.SIGNER, **final)
    for nonce in (8, 9):
        spent = {"data": b"", "gas_limit": 1, "spent_at": now - 10 * MINUTE}
        Transaction.objects.create(signer=signer, nonce=nonce, **spent)
    Signer.objects.create(chain_id=31337, address=service.BOB)
    Stop.objects.create(chain_id=31337)
    Stop.objects.create(chain_id=31337, signer=service.BOB)
    ChainWatch.objects.create(
        chain_id=31337,
        looked_at=now - MINUTE,
        timestamp=int(now.timestamp()) - 120,
        number=77,
        balances={service.SIGNER: str(10**19)},
        spent_in_day=10**18,
    )
    Problem.objects.create(
        key="clock", code="clock", shown="A.", seen_by="watch", chain_id=31337, began_at=now, seen_at=now
    )
    ChainHead.objects.create(chain_id=31337, number=77, final=70, seen_at=now - MINUTE)
    FactsRegistry.objects.update(risk=wait("attester_conflict", problem="It contradicts."), risk_seen_at=now)
    lines = []
    for sample in metrics.samples(read()):
        # These counters belong to the whole process, so they include other tests.
        if re.match("batchquery_(?!.*(exchange|job_run|request|chain_event|retries))", sample.name) and (
            sample.value or "code" not in sample.labels
        ):
            is_age = sample.name.endswith("_seconds")
            lines.append(
                f"{sample.name} {sample.labels} {f'{sample.value / 60:.0f} minutes' if is_age else f'{sample.value:g}'}"
            )
    golden_pages.compare("\n".join(lines), "metrics.txt")


def test_open_metrics_are_given_where_they_are_asked_for():
    read()  # Each reading is counted, so the first one makes samples.
    accept = "application/openmetrics-text;version=1.0.0;q=0.6,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
    answer = Client().get("/metrics", headers={"accept": accept})
    assert answer.headers["Content-Type"].startswith("application/openmetrics-text; version=1.0.0")
    assert answer.text.endswith("# EOF\n")
    open_families: Callable[[str], Iterable[Metric]] = parser.text_string_to_metric_families
    told, plain = (
        {(sample.name, *sample.labels.items()) for family in families for sample in family.samples}
        for families in (open_families(answer.text), text_string_to_metric_families(read()))
    )
    assert told == plain


@pytest.mark.parametrize("kind", ["application/openmetrics-text", "text/plain"])
@pytest.mark.parametrize("version", ["x", "1.x.0", "\xe9"])
def test_an_unknown_version_is_answered_in_the_usual_form(kind, version):
    answer = Client().get("/metrics", headers={"accept": f"{kind}; version={version}"})
    assert (answer.status_code, answer.headers["Content-Type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")


def test_the_codes_are_those_that_the_page_explains():
    page = (PROJECT / "docs/operating/runbook.md").read_text()
    codes = {sample.labels["code"] for sample in metrics.samples(read()) if sample.name == "batchquery_problems"}
    assert codes
    assert [page.count(f"| `{code}` |") for code in codes] == [1] * len(codes)


def test_a_database_that_does_not_answer_is_told_and_what_processes_count_stays():
    Client().get("/chain-connections")

    def fail(_execute, _sql, _params, _many, _context):
        raise OperationalError("unable to open the database")

    with connection.execute_wrapper(fail):
        text = read()
    assert metrics.value(text, "batchquery_database_answers") == 0
    assert metrics.value(text, "batchquery_workers") is None
    assert (metrics.value(text, "batchquery_requests_total", route="chain-connections", status="200") or 0) >= 1


@pytest.mark.long
def test_a_stranger_s_scrapes_load_no_database_and_few_statements_do(django_assert_max_num_queries, pass_time):
    with django_assert_max_num_queries(39):
        assert metrics.value(read(), "batchquery_workers") == 1
    WorkerHeartbeat.objects.all().delete()
    with django_assert_max_num_queries(0):
        assert metrics.value(read(), "batchquery_workers") == 1
    pass_time(6)
    assert metrics.value(read(), "batchquery_workers") == 0


def test_a_request_counts_by_its_route_and_never_by_its_path():
    for path in ("/explorer/query/01M7W1MRHW703BTRFFPT53VVP5", "/nowhere/at-all", "/admin/login/"):
        Client().get(path)
    text = read()
    assert metrics.value(text, "batchquery_requests_total", route="explorer/query/<batch:internal_id>", status="404")
    assert metrics.value(text, "batchquery_requests_total", route="unmatched", status="404")
    assert metrics.value(text, "batchquery_requests_total", route="admin")
    assert metrics.value(text, "batchquery_request_seconds_count", route="admin")
    assert "01M7W1MRHW703BTRFFPT53VVP5" not in text
    assert "at-all" not in text


# --- Readers ----------------------------------------------------------------------------------------------------------


def test_a_chain_that_left_the_file_has_a_severity_for_its_alerts():
    ChainWatch.objects.create(chain_id=5)
    assert metrics.value(Client().get("/metrics").text, "batchquery_chain_severity", chain="5", severity="warning") == 1


@pytest.mark.parametrize(
    ("peer", "headers", "variables", "status"),
    [
        ("127.0.0.1", {}, {}, 200),
        ("::1", {}, {}, 200),
        ("::ffff:127.0.0.1", {}, {}, 200),
        ("192.0.2.1", {}, {}, 403),
        ("", {}, {}, 403),
        # The settings don't name the proxy on this machine.
        ("127.0.0.1", {"x-forwarded-for": "192.0.2.1"}, {}, 403),
        ("127.0.0.1", {"x-forwarded-proto": "https"}, {}, 403),
        ("127.0.0.1", {"x-real-ip": "192.0.2.1"}, {"CLIENT_ADDRESS_HEADER": "X-Real-IP"}, 403),
        ("127.0.0.1", {"x-real-ip": "127.0.0.1, 192.0.2.1"}, {"CLIENT_ADDRESS_HEADER": "X-Real-IP"}, 403),
        ("10.0.0.1", {"forwarded": 'for="[::1]:4711"'}, {"CLIENT_ADDRESS_HEADER": "Forwarded"}, 200),
        ("127.0.0.1", {"forwarded": "for=_hidden"}, {"CLIENT_ADDRESS_HEADER": "Forwarded"}, 403),
        # A proxy that adds an empty entry leaves what the client wrote as the last one.
        ("10.0.0.1", {"x-real-ip": "127.0.0.1, "}, {"CLIENT_ADDRESS_HEADER": "X-Real-IP"}, 403),
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
