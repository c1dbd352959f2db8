"""Times as people and as pages write them, in UTC."""

from datetime import UTC, datetime


def utc(seconds: int) -> str:
    """Return date and time of day in UTC, such as `2026-01-31 12:00:05`; empty beyond the calendar's years."""
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return ""


def iso(when: datetime) -> str:
    """Return the exact time in ISO 8601, for attributes."""
    return when.astimezone(UTC).isoformat().replace("+00:00", "Z")
