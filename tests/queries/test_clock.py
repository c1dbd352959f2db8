"""A clock that jumps alone ends no batch; deadlines pass when the chains agree."""

from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection
from django.db.models.functions import Now
from django.utils import timezone

from campaigns.attacks.skewed import skewed_now
from queries.models import BatchStatus
from tests.service import ALICE, fresh, request, submit, work, work_until_done

pytestmark = pytest.mark.outside

DAY = timedelta(hours=25)


@pytest.fixture
def jump(monkeypatch):
    """Puts this machine's clock and, on the same machine, the database's so far ahead."""

    def to(machine: timedelta, database: timedelta) -> None:
        monkeypatch.setattr(timezone, "now", lambda: datetime.now(UTC) + machine)
        monkeypatch.setattr(Now, f"as_{connection.vendor}", skewed_now(database.total_seconds))

    return to


@pytest.mark.parametrize(("machine", "database"), [(DAY, DAY), (-DAY, -DAY), (DAY, timedelta()), (timedelta(), DAY)])
def test_no_clock_that_jumps_alone_ends_a_batch(service, key, jump, machine, database):
    batch = submit(key, request(ALICE, block=service.head() + 6))
    work()
    jump(machine, database)
    for _ in range(2):
        work()
    assert fresh(batch).status == BatchStatus.RECEIVED
    jump(timedelta(), timedelta())
    service.mine(6)
    assert work_until_done(batch, service).status == BatchStatus.DONE


def test_a_deadline_passes_when_a_chain_agrees_with_the_clock(service, key, jump):
    batch = submit(key, request(ALICE, block=service.head() + 6))
    work()
    jump(DAY, DAY)
    service.rpc("evm_increaseTime", int(DAY.total_seconds()))
    service.mine()
    work()
    assert (fresh(batch).status, batch.rejection_code) == (BatchStatus.REJECTED, "deadline_exceeded")
