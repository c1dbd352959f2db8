"""What keeps the service from working, as `/healthz` and `check_chains` tell it."""

from typing import NamedTuple


class Problem(NamedTuple):
    code: str
    """Stable: what watches the service may rely on it."""
    sentence: str
    """For people; it names what to do where that isn't plain. It holds no secret and names no file."""
