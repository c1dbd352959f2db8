"""Estimated durations in round numbers."""


def roughly(seconds: int) -> str:
    """Return an estimated duration in round numbers, from less than a minute to days."""
    minutes = round(seconds / 60)
    if minutes < 1:
        return "less than a minute"
    if seconds >= 48 * 3600:
        return f"about {seconds / 86_400:,.0f} days"
    return f"about {minutes} min" if minutes < 120 else f"about {round(seconds / 3600)} h"


def lasting(seconds: float) -> str:
    """Return an estimated duration like `roughly`, with short durations in seconds."""
    return f"{seconds:.0f} s" if seconds < 120 else roughly(round(seconds))
