"""Formatting of times in UTC, for readers and for attributes."""

from datetime import UTC, datetime


def utc(seconds: int) -> str:
    """Return date and time in UTC, such as `2026-01-31 12:00:05`; empty if the calendar has no such year."""
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return ""


def iso(when: datetime) -> str:
    """Return the exact time in ISO 8601, for attributes."""
    return when.astimezone(UTC).isoformat().replace("+00:00", "Z")
