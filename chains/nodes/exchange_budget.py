"""A limit of the exchanges and seconds that one client may take of the nodes of a chain."""

import threading
import time

from chains.nodes.node_errors import ChainError


class OutOfExchanges(ChainError):
    """The nodes took more exchanges or seconds than the client may take."""


class ExchangeBudget:
    """HTTP requests and seconds that are left, for all nodes together."""

    def __init__(self, exchanges: int, seconds: float) -> None:
        self.exchanges_left = exchanges
        self._ends_at = time.monotonic() + seconds
        self._lock = threading.Lock()

    @property
    def seconds_left(self) -> float:
        return max(0.0, self._ends_at - time.monotonic())

    def check_time(self) -> None:
        """Raise `OutOfExchanges` if no seconds are left. Exchanges end by then anyway."""
        if not self.seconds_left:
            raise OutOfExchanges("The search takes too long.")

    def take(self, exchanges: int) -> None:
        """Count exchanges that begin now. Raises `OutOfExchanges`."""
        with self._lock:
            if exchanges > self.exchanges_left:
                raise OutOfExchanges("The search takes too many requests to nodes.")
            self.exchanges_left -= exchanges
