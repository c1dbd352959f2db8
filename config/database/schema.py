"""A check of the database's schema: it has this version's migrations, or those of 0.3.0, from which it is upgraded."""

from functools import cache

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.migrations import Migration
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder


def problem(connection: BaseDatabaseWrapper) -> str:
    """Return a sentence about why this version can't use the database. Empty if it can."""
    if _migrations().keys() <= MigrationRecorder(connection).applied_migrations().keys():
        return ""
    return why_too_old(connection) or "The database lacks migrations of this version: run manage.py migrate."


def why_too_old(connection: BaseDatabaseWrapper) -> str:
    """Return a sentence about why this version can't upgrade the database. Empty if it can.

    Each app's first migration replaces those of 0.3.0, which have no files any more. Django can take over an app that
    has none or all of these. With some of them, it ends with a traceback or creates tables that exist.
    """
    applied = MigrationRecorder(connection).applied_migrations().keys()
    begun = {app for app, _ in applied}
    replaced = {key for migration in _migrations().values() for key in migration.replaces}
    if {(app, name) for app, name in replaced if app in begun} <= applied:
        return ""
    return (
        "The database lacks migrations of version 0.3.0, from which this version upgrades: run that version's "
        "manage.py migrate first."
    )


@cache
def _migrations() -> dict[tuple[str, str], Migration]:
    """Return this version's migrations. They are cached, because reading their files takes 20 ms."""
    return MigrationLoader(None).disk_migrations
