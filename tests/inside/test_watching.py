"""What workers do about leases, clocks and the database, by their functions."""

from datetime import datetime, timedelta

import pytest
from django.test import Client
from django.utils import timezone

from config.configured_chains import forget_chains
from database import leases
from proving.health import chain_checks
from proving.models import ChainWatch, FactsRegistry, SignedTransaction, Signer, WorkerHeartbeat
from proving.transactions.replacement import _is_past
from proving.worker.worker import Worker
from queries import clock
from queries.models import Batch, Block, ServiceClock
from tests.explorer.batches import DEAD_NODE, SOURCE, connect_source
from tests.inside.working import observe
from tests.service import ALICE, SIGNER, SIGNERS, a_key, request, submit, work

pytestmark = pytest.mark.django_db(transaction=True)

DAY = timedelta(hours=25)


def seen(chain_id: int = 31337) -> list[str]:
    """The codes of what a worker has seen."""
    return [code for code, _ in ChainWatch.objects.get(pk=chain_id).problems]


def codes() -> list[str]:
    found: list[str] = Client().get("/healthz").json()["codes"]
    return found


def test_an_error_at_one_chain_is_logged_and_the_others_are_looked_at(service, tmp_path, monkeypatch, caplog):
    connect_source(tmp_path, DEAD_NODE)
    examine = chain_checks.examine

    def fail(chain, rpc):
        if chain.id == 31337:  # the first
            raise ZeroDivisionError("a defect")
        return examine(chain, rpc)

    monkeypatch.setattr(chain_checks, "examine", fail)
    observe()
    assert "a defect" in caplog.text
    assert ChainWatch.objects.get(pk=31337).looked_at is None
    assert seen(SOURCE) == ["chain_unavailable"]


@pytest.mark.parametrize("model", [Batch, Block, Signer, FactsRegistry])
def test_all_that_is_worked_on_is_found_again(service, model):
    submit(a_key(), request(ALICE, block=service.head()))
    put_off = {"due_at": timezone.now() + DAY, "leased_until": timezone.now() + DAY}
    assert model.objects.update(**put_off) == 1
    (pk,) = leases.due(model.objects.all())
    assert leases.claim(model.objects.all(), pk)


def test_beats_from_the_future_are_forgotten():
    now = timezone.now()
    WorkerHeartbeat.objects.create(worker="ahead", started_at=now, beat_at=now + DAY)
    WorkerHeartbeat.objects.create(worker="dead", started_at=now, beat_at=now - DAY)
    WorkerHeartbeat.objects.create(worker="alive", started_at=now, beat_at=now)
    Worker()._say_that_it_runs()
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


@pytest.mark.parametrize("ahead", [timedelta(hours=25), -timedelta(hours=25), timedelta(days=400)])
def test_a_node_that_tells_a_wrong_time_begins_no_window_anew_and_forgets_nothing(ahead):
    ServiceClock.objects.update_or_create(pk=1, defaults={"at": timezone.now() + ahead})
    assert clock.earliest() <= timezone.now()
    assert clock.latest() >= timezone.now() - timedelta(seconds=1)
    assert clock.latest() < timezone.now() + timedelta(days=3)


def test_one_node_that_tells_a_time_far_ahead_does_not_silence_the_others(service):
    work()
    honest = ServiceClock.objects.get().at
    ChainWatch.objects.update(timestamp=int((timezone.now() + timedelta(days=4)).timestamp()))
    chain_checks._note_newest_block()
    assert ServiceClock.objects.get().at == honest
