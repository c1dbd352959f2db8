"""How often it makes sense to ask for news of an open batch."""

from datetime import timedelta

# Seconds between two requests, by the age of the batch.
_POLL = ((timedelta(minutes=2), 2), (timedelta(minutes=10), 5))
_OLD_SECONDS = 15


def poll_seconds(age: timedelta) -> int:
    return next((seconds for younger, seconds in _POLL if age < younger), _OLD_SECONDS)
