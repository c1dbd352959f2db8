"""Whether this version's migrations were applied to the database."""

from functools import cache

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder


def problem(connection: BaseDatabaseWrapper) -> str:
    """Return why this version can't work with the database, a sentence; empty where it can."""
    if _migrations() <= MigrationRecorder(connection).applied_migrations().keys():
        return ""
    return "The database lacks migrations of this version: run manage.py migrate."


@cache
def _migrations() -> frozenset[tuple[str, str]]:
    """Return this version's migrations. To read their files takes 40 ms."""
    return frozenset(MigrationLoader(None).disk_migrations)
