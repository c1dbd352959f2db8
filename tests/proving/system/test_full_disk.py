"""The disk is full from any write on. Nothing is lost or done twice, and work continues once there is room.

A failed write undoes its whole database transaction, which mostly has several writes. So a run tries every fifth write,
and `make chaos` tries all of them (campaigns/chaos/statements.py).
"""

import pytest

from tests.proving.every_statement import full_disk, prove_with_each

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.long, pytest.mark.outside]


@pytest.mark.release
def test_a_batch_is_done_once_from_any_write_on_the_disk_is_full(service, settings):
    assert prove_with_each(service, settings, full_disk, one_in=5) > 30
