"""Whether a small write succeeds, and what is said where it doesn't."""

import shutil

import pytest
from django.core.cache import cache
from django.db import OperationalError, ProgrammingError, connection
from django.utils import timezone

from queries import storage
from queries.models import StorageCheck
from tests.disks import full_disk, locked_database

pytestmark = pytest.mark.django_db(transaction=True)


def test_no_problem_is_said_when_a_write_succeeds():
    assert storage.problem() is None
    assert StorageCheck.objects.count() == 1


def test_a_locked_database_is_a_problem_until_it_is_not():
    with locked_database():
        assert storage.problem() == "The database of this service is locked for longer than usual."
    cache.clear()  # time passes
    assert storage.problem() is None


def test_a_disk_on_which_no_large_batch_has_room_is_a_problem(monkeypatch):
    usage = shutil.disk_usage("/")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=1_230_000))
    assert storage.problem() == "The disk of this service is nearly full: 1.2 MB are left."


def test_a_full_disk_is_told_from_a_defect():
    with full_disk(), pytest.raises(OperationalError) as full:
        StorageCheck.objects.bulk_create(StorageCheck(at=timezone.now()) for _ in range(10_000))
    assert storage.why_unavailable(full.value) == "The disk of this service is full, so nothing can be stored."
    with connection.cursor() as cursor, pytest.raises(OperationalError) as missing:
        cursor.execute("SELECT * FROM no_table")
    assert storage.why_unavailable(missing.value) is None
    assert storage.why_unavailable(ProgrammingError("a defect")) is None


def test_between_two_checks_nothing_is_written():
    storage.problem()
    first = StorageCheck.objects.get().at
    storage.problem()
    assert StorageCheck.objects.get().at == first
