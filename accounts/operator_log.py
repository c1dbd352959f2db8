"""The log of what operators did: Django's, which the admin shows. Rows are only ever added."""

from collections.abc import Iterable

from django.contrib.admin.models import CHANGE, LogEntry
from django.db.models import Model

from accounts.models import User

# The name for the user of a command on the machine: Django doesn't know who it is.
COMMAND = "manage.py"


def record(rows: Iterable[Model], message: str, *, reason: str = "") -> None:
    """Record what a command does to these rows, in its database transaction."""
    why = f" Why: {reason}" if reason else ""
    LogEntry.objects.log_actions(User.objects.for_address(COMMAND).pk, rows, CHANGE, f"{message}{why}")
