"""What keeps the service from working, as `/healthz` and `check_chains` tell it."""

from typing import NamedTuple

CODES = (
    *("storage", "no_worker", "clock", "chain_unavailable", "wrong_chain", "chain_not_watched", "head_went_back"),
    *("signer_unfunded", "signer_unreadable", "signer_waits", "nonce_gap", "node_doubtful", "signing_stopped"),
    *("no_registry", "registry_refused", "connection_paused", "signer_paused"),
)
"""The codes of `/healthz`, as docs/operating/watching.md explains them, besides `database_unavailable`."""


class Problem(NamedTuple):
    code: str
    """Stable: what watches the service may rely on it."""
    sentence: str
    """For people; it names what to do where that isn't plain. It holds no secret and names no file."""
