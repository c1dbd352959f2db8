"""A disk that is full from any write on: nothing is lost or done twice, and work goes on when there is room.

A database transaction is lost by whichever of its writes fails, and mostly has several: a run tries each fifth write.
`make chaos` tries them all (campaigns/chaos/statements.py).
"""

import pytest

from tests.proving.every_statement import full_disk, prove_with_each

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.long, pytest.mark.outside]


def test_a_batch_is_done_once_from_any_write_on_the_disk_is_full(service, settings):
    assert prove_with_each(service, settings, full_disk, one_in=5) > 30
