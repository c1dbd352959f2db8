"""What workers do about leases, clocks and the database, by their functions."""

from datetime import datetime, timedelta

import pytest
from django.conf import settings
from django.db import connection
from django.db.models import Q
from django.db.models.functions import Now
from django.test import Client
from django.utils import timezone

from campaigns.attacks.skewed import skewed_now
from config.configured_chains import forget_chains
from database import leases
from proving.health import chain_checks
from proving.models import ChainWatch, FactsRegistry, SignedTransaction, Signer, WorkerHeartbeat
from proving.transactions.replacement import _is_past
from proving.worker.due import due, recover
from proving.worker.worker import Worker
from queries.models import Batch, Block
from tests.explorer.batches import DEAD_NODE, SOURCE, connect_source
from tests.inside.working import observe
from tests.service import ALICE, BOB, SIGNER, SIGNERS, a_key, request, submit

pytestmark = pytest.mark.django_db(transaction=True)

DAY = timedelta(hours=25)


def seen(chain_id: int = 31337) -> list[str]:
    """The codes of what a worker has seen."""
    return [code for code, _ in ChainWatch.objects.get(pk=chain_id).problems]


def codes() -> list[str]:
    found: list[str] = Client().get("/healthz").json()["codes"]
    return found


def test_an_error_at_one_chain_is_logged_and_pushed_ahead_and_the_others_are_looked_at(
    service, tmp_path, monkeypatch, caplog
):
    connect_source(tmp_path, DEAD_NODE)
    examine = chain_checks.examine

    def fail_at_source(chain, rpc):
        if chain.id == SOURCE:
            raise ZeroDivisionError("a defect")
        return examine(chain, rpc)

    monkeypatch.setattr(chain_checks, "examine", fail_at_source)
    chain_checks.wake(everyone=True)
    ChainWatch.objects.filter(pk=SOURCE).update(due_at=timezone.now() - DAY)  # the first
    chain_checks.observe_what_is_due()
    failed = ChainWatch.objects.get(pk=SOURCE)
    assert "a defect" in caplog.text
    assert (failed.looked_at, failed.lease_token, failed.attempts) == (None, "", 1)
    assert failed.due_at
    assert timedelta() < failed.due_at - timezone.now() < timedelta(seconds=2)
    assert ChainWatch.objects.get(pk=31337).looked_at
    monkeypatch.setattr(chain_checks, "examine", examine)
    observe()
    assert seen(SOURCE) == ["chain_unavailable"]
    assert ChainWatch.objects.get(pk=SOURCE).attempts == 0


def test_the_newest_blocks_of_configured_chains_are_witnesses(service):
    observe()
    ChainWatch.objects.create(chain_id=SOURCE, timestamp=1)
    (witness,) = chain_checks.witnesses()
    watch = ChainWatch.objects.get(pk=31337)
    assert watch.timestamp == witness.made_at.timestamp()
    assert witness.lag == timedelta(minutes=5)


def test_test_networks_are_witnesses_only_where_there_are_no_other_chains(service, tmp_path):
    connect_source(tmp_path, DEAD_NODE)
    for chain_id in (31337, SOURCE):
        ChainWatch.objects.create(chain_id=chain_id, timestamp=1)
    assert [witness.chain_id for witness in chain_checks.witnesses()] == [SOURCE]
    ChainWatch.objects.filter(pk=SOURCE).delete()
    assert chain_checks.witnesses() == []


@pytest.mark.parametrize("model", [Batch, Block, Signer, FactsRegistry])
def test_all_that_is_worked_on_is_found_again(service, model):
    submit(a_key(), request(ALICE, block=service.head()))
    put_off = {"due_at": timezone.now() + DAY, "leased_until": timezone.now() + DAY}
    assert model.objects.update(**put_off) == 1
    recover()
    assert len(leases.due(model.objects.all(), 10)) == 1


@pytest.mark.parametrize("of_database", [True, False], ids=["the machine", "a worker on another one"])
def test_an_hour_ahead_and_back_delays_nothing_beyond_a_lease(service, monkeypatch, of_database):
    key, hour, right = a_key(), timedelta(hours=1), timezone.now
    service.rpc("evm_setAutomine", False)
    told = {"url": "https://example.org/hook"}
    waits = submit(key, request(ALICE, block=service.head() + 3))
    submit(key, request(BOB, block=service.head()) | {"webhook": told})
    leased = submit(key, request(BOB, block=service.head() - 1))
    with monkeypatch.context() as jumped:
        jumped.setattr(timezone, "now", lambda: right() + hour)
        jumped.setattr(Now, f"as_{connection.vendor}", skewed_now(hour.total_seconds if of_database else float))
        for _ in range(3):
            recover()
            for task in due():
                task()
        assert Batch.objects.get(pk=waits.pk).waiting_for
        # By a worker that is killed.
        assert leases.claim(Block.objects.all(), leased.queries.get().block_id)
    recover()
    lease = timedelta(seconds=settings.LEASE_SECONDS + 1)
    for model in (Batch, Block, Signer):
        rows = model.objects.exclude(due_at=None)
        assert rows.exists()
        late = rows.filter(Q(due_at__gt=Now() + lease) | Q(leased_until__gt=Now() + lease))
        assert [str(row) for row in late] == []


def test_beats_from_the_future_are_forgotten():
    now = timezone.now()
    WorkerHeartbeat.objects.create(worker="ahead", started_at=now, beat_at=now + DAY)
    WorkerHeartbeat.objects.create(worker="dead", started_at=now, beat_at=now - DAY)
    WorkerHeartbeat.objects.create(worker="alive", started_at=now, beat_at=now)
    Worker()._say_that_it_runs("")
    assert WorkerHeartbeat.objects.filter(worker="alive").exists()
    assert WorkerHeartbeat.objects.count() == 2, "that one, and the one that has beaten"


@pytest.mark.parametrize(
    ("seconds", "is_past"), [(-60, True), (-20, True), (-5, False), (0, False), (5, False), (20, True)]
)
def test_a_version_that_a_clock_ahead_has_signed_is_not_waited_for(seconds, is_past):
    moment: datetime = timezone.now() + timedelta(seconds=seconds)
    version = SignedTransaction(created_at=moment)
    assert _is_past(version.created_at, timedelta(seconds=10)) == is_past


def test_a_signer_whose_key_is_gone_is_seen_without_its_path(service, settings):
    forget_chains()
    (settings.CHAINS_FILE.parent / "signer.key").unlink()
    observe()
    assert ChainWatch.objects.get().problems == [
        ["signer_unreadable", "The key of the signer of Development chain (31337) can't be read."]
    ]


def test_which_of_several_keys_is_gone_or_twice_there_is_seen(two_signers, settings):
    folder = settings.CHAINS_FILE.parent
    (folder / "second.key").unlink()
    forget_chains()
    observe()
    said = "The key of signer 2 of Development chain (31337) can't be read."
    assert ChainWatch.objects.get().problems == [["signer_unreadable", said]]
    (folder / "second.key").write_text(SIGNERS[SIGNER])
    forget_chains()
    observe()
    said = f"Two signers of Development chain (31337) have the same key, that of {SIGNER}."
    assert ChainWatch.objects.get().problems == [["signer_unreadable", said]]
