"""A jump of the clock alone ends no batch. A deadline passes when block times have also passed it, or a day later."""

from datetime import UTC, datetime, timedelta
from functools import partialmethod

import pytest
from django.db import connection
from django.db.models.functions import Now
from django.utils import timezone

from queries.models import Batch, BatchStatus, Step
from queries.waits import wait
from tests.service import ALICE, BOB, a_key, fresh, reconfigure, request, submit, work, work_until_done

pytestmark = pytest.mark.outside

DAY = timedelta(hours=25)
MONTH = timedelta(days=30)


@pytest.fixture
def jump(monkeypatch):
    """Return a function that sets the clocks of this machine and its database ahead."""

    def to(machine: timedelta, database: timedelta) -> None:
        monkeypatch.setattr(timezone, "now", lambda: datetime.now(UTC) + machine)
        seconds = f"{database.total_seconds():+f} seconds"
        templates = {
            "postgresql": f"(STATEMENT_TIMESTAMP() + INTERVAL '{seconds}')",
            # Django's form of the statement, with a modifier (https://www.sqlite.org/lang_datefunc.html).
            "sqlite": f"STRFTIME('%%%%Y-%%%%m-%%%%d %%%%H:%%%%M:%%%%f', 'NOW', '{seconds}')",
        }
        as_sql = partialmethod(Now.as_sql, template=templates[connection.vendor])
        monkeypatch.setattr(Now, f"as_{connection.vendor}", as_sql)

    return to


@pytest.fixture
def waits(service, key) -> Batch:
    """Return a batch about a coming block that a worker has checked."""
    batch = submit(key, request(ALICE, block=service.head() + 6))
    work()
    return batch


JUMPS = {
    "a day": (DAY, DAY),
    "a day back": (-DAY, -DAY),
    "a day, the machine alone": (DAY, timedelta()),
    "a day, the database alone": (timedelta(), DAY),
    "a month": (MONTH, MONTH),
    "a month, the database alone": (timedelta(), MONTH),
}


@pytest.mark.long
@pytest.mark.parametrize("to", JUMPS.values(), ids=JUMPS)
def test_no_clock_that_jumps_alone_ends_a_batch(service, waits, jump, to):
    jump(*to)
    work(2)
    assert fresh(waits).status == BatchStatus.ACCEPTED
    jump(timedelta(), timedelta())
    service.mine(6)
    assert work_until_done(waits, service).status == BatchStatus.DONE


def test_a_batch_that_a_clock_behind_has_stored_gets_its_whole_time(service, waits, jump):
    jump(-DAY, -DAY)
    batch = submit(a_key(BOB), request(ALICE, block=service.head() + 7))
    work()
    jump(timedelta(), timedelta())
    work(2)
    assert fresh(batch).status == BatchStatus.ACCEPTED


def test_a_deadline_passes_when_a_chain_agrees_with_the_clock(service, waits, jump):
    jump(DAY, DAY)
    Step.objects.update(error=wait("node_fails", problem="The node is mad."))
    service.rpc("evm_increaseTime", int(DAY.total_seconds()))
    service.mine()
    work()
    assert (fresh(waits).status, waits.rejection_code) == (BatchStatus.REJECTED, "deadline_exceeded")
    assert waits.rejection_retryable
    assert waits.rejection_reason.endswith("Its last error: The node is mad.")


@pytest.mark.long
@pytest.mark.parametrize("is_up", [True, False])
def test_a_chain_that_stands_still_or_is_down_keeps_a_batch_for_a_further_day(service, waits, jump, settings, is_up):
    if not is_up:
        reconfigure(settings, service.url, "http://127.0.0.1:1")
    jump(DAY, DAY)
    work()
    jump(2 * DAY, 2 * DAY)
    work()
    assert (fresh(waits).status, waits.rejection_code) == (BatchStatus.REJECTED, "deadline_exceeded")


@pytest.mark.long
def test_a_day_of_a_clock_that_was_ahead_does_not_count(service, waits, jump):
    jump(MONTH, MONTH)
    work()
    jump(DAY, DAY)
    work()
    assert fresh(waits).status == BatchStatus.ACCEPTED
    jump(2 * DAY, 2 * DAY)
    work()
    assert fresh(waits).status == BatchStatus.REJECTED
