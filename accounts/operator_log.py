"""The log of operators' actions: Django's log, which the admin shows. Rows are only added."""

from collections.abc import Iterable

from django.contrib.admin.models import CHANGE, LogEntry
from django.db.models import Model

from accounts.models import User

# This user stands for commands, because Django doesn't know who runs them.
COMMAND = "manage.py"


def record(rows: Iterable[Model], message: str, *, reason: str = "") -> None:
    """Record a command's change of these rows, in the command's own transaction."""
    why = f" Why: {reason}" if reason else ""
    LogEntry.objects.log_actions(User.objects.for_address(COMMAND).pk, rows, CHANGE, f"{message}{why}")
