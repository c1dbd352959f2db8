"""A check of the database's schema: it must have this version's migrations, or be recent enough to be upgraded."""

from functools import cache

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder

# The first and the last migrations of commit f79de48e. Each `0001_before_0_3` replaces the range of migrations from the
# first to the last.
_FIRST = "0001_initial"
_LAST = {"accounts": "0005_limits_in_wei", "queries": "0015_admitted_in_part", "proving": "0015_expected_gas"}


def problem(connection: BaseDatabaseWrapper) -> str:
    """Return a sentence about why this version can't use the database. Empty if it can."""
    if _migrations() <= MigrationRecorder(connection).applied_migrations().keys():
        return ""
    return why_too_old(connection) or "The database lacks migrations of this version: run manage.py migrate."


def why_too_old(connection: BaseDatabaseWrapper) -> str:
    """Return a sentence about why this version can't upgrade the database. Empty if it can. No Django app is loaded."""
    applied = MigrationRecorder(connection).applied_migrations().keys()
    if any((app, _FIRST) in applied and (app, last) not in applied for app, last in _LAST.items()):
        return (
            "The database is older than commit f79de48e, from which this version upgrades: run that commit's "
            "manage.py migrate first."
        )
    return ""


@cache
def _migrations() -> frozenset[tuple[str, str]]:
    """Return this version's migrations. They are cached, because reading their files takes 40 ms."""
    return frozenset(MigrationLoader(None).disk_migrations)
