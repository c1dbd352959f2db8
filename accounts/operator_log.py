"""The log of operators' actions: Django's log, which the admin shows. Rows are only added."""

import getpass
import os
from collections.abc import Iterable

from django.contrib.admin.models import CHANGE, LogEntry
from django.db.models import Model

from accounts.models import User

# This user stands for commands, because Django doesn't know who runs them.
COMMAND = "manage.py"


def login() -> str:
    """Return the system's name of the user who runs a command, or the number of one without a name."""
    try:
        return getpass.getuser()[:32]
    except (KeyError, OSError):  # Python 3.13 raises the second
        return str(os.getuid())


def record(rows: Iterable[Model], message: str, *, reason: str = "", user: User | None = None) -> None:
    """Record a change of these rows by an operator, or by a command (None), in the caller's transaction."""
    why = f" Why: {reason}" if reason else ""
    by = "" if user else f" By: {login()}"
    pk = (user or User.objects.for_address(COMMAND)).pk
    LogEntry.objects.log_actions(pk, rows, CHANGE, f"{message}{why}{by}")
