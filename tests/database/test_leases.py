"""Leases are extended while work goes on, and not at each step of it."""

from datetime import timedelta

import pytest
from django.conf import settings
from django.db.models.functions import Now

from database import leases
from database.leases import Lease, LeaseLost
from queries.models import Block

pytestmark = pytest.mark.django_db


@pytest.fixture
def lease() -> Lease[Block]:
    row = Block.objects.create(destination_chain_id=1, source_chain_id=2, number=3)
    lease = leases.claim(Block.objects.all(), row.pk)
    assert lease is not None
    # As if it had been claimed when a third of it was over.
    Block.objects.update(leased_until=Now() + timedelta(seconds=settings.LEASE_SECONDS * 2 / 3))
    return lease


def is_whole() -> bool:
    """Return whether the row's lease has lately been extended."""
    return Block.objects.filter(leased_until__gt=Now() + timedelta(seconds=settings.LEASE_SECONDS * 5 / 6)).exists()


def write(lease: Lease[Block]) -> None:
    with lease.writing():
        pass


@pytest.mark.parametrize("extends", [Lease.extend, write])
def test_one_that_has_just_begun_is_left_as_it_is(lease, extends):
    extends(lease)
    assert not is_whole()


@pytest.mark.parametrize("extends", [Lease.extend, write])
def test_one_that_has_lasted_for_a_while_is_extended(lease, extends):
    lease.extended_at -= settings.LEASE_SECONDS / 3
    extends(lease)
    assert is_whole()
    assert lease.is_fresh


def test_what_fails_has_extended_nothing(lease):
    lease.extended_at -= settings.LEASE_SECONDS / 3
    with pytest.raises(ZeroDivisionError), lease.writing():
        raise ZeroDivisionError
    assert not is_whole()
    assert not lease.is_fresh


@pytest.mark.parametrize("seconds", [0, 1000])
def test_nothing_is_written_by_who_has_lost_it(lease, seconds):
    lease.extended_at -= seconds
    Block.objects.update(lease_token="another's")
    with pytest.raises(LeaseLost):
        write(lease)


def test_one_that_was_lost_while_its_process_stood_still_is_not_extended(lease):
    lease.extended_at -= 1000
    Block.objects.update(lease_token="another's")
    with pytest.raises(LeaseLost):
        lease.extend()
    assert not is_whole()
