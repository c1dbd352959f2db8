"""Jumps that are worked on side by side."""

import pytest

from queries.models import BatchStatus
from tests.inside.working import work_once
from tests.proving.test_jumps import OLD, made, of_batch, of_there, proven, service, there  # noqa: F401  # fixtures
from tests.service import fresh, submit, work_until_done

pytestmark = pytest.mark.django_db


def test_blocks_side_by_side_share_a_transaction(service, there, key):  # noqa: F811
    assert work_until_done(submit(key, of_there(OLD)), service.here).status == BatchStatus.DONE
    numbers = range(OLD + 1, OLD + 6)
    batch = submit(key, of_there(*numbers))
    for _ in range(6):
        work_once()
        service.here.mine()
    assert fresh(batch).status == BatchStatus.DONE
    assert len(of_batch(batch)) < len(numbers)
    assert proven(service, there, *numbers)
