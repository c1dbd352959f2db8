"""Reasons that operators give in commands, which users read."""

from django.core.management.base import CommandError

from accounts.form_input import visible_line
from proving.stops import MAX_REASON_CHARS


def reason_in(text: str) -> str:
    """Return an operator's reason as one line that users read. Empty: none is given. Raises `CommandError`."""
    line = visible_line(text, MAX_REASON_CHARS)
    if text.strip() and not line:
        raise CommandError(
            f"--reason must be a line of at most {MAX_REASON_CHARS} visible characters. Nothing was changed."
        )
    return line
