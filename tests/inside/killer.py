"""A process that is killed at an exchange with a node, by patching who asks."""

from typing import Any

from chains.beacon.beacon_client import BeaconEndpoint
from chains.request_batches import Endpoint
from database.leases import Lease
from tests.proving.kills import Killed


class Killer:
    """Kills at the n-th exchange with a node, before or after it."""

    def __init__(self, monkeypatch) -> None:
        self._countdown = 0
        self._after = False
        release = Lease.release

        def deadly(exchange: Any) -> Any:
            def deadly_exchange(endpoint, batched):
                if self._countdown == 0:
                    return exchange(endpoint, batched)
                self._countdown -= 1
                if self._countdown:
                    return exchange(endpoint, batched)
                if self._after:
                    exchange(endpoint, batched)
                self._dead = True
                raise Killed

            return deadly_exchange

        def release_of_the_living(lease, *arguments, **named):
            if not self._dead:
                release(lease, *arguments, **named)

        self._dead = False
        for kind in (Endpoint, BeaconEndpoint):
            monkeypatch.setattr(kind, "exchange", deadly(kind.exchange))
        monkeypatch.setattr(Lease, "release", release_of_the_living)

    def arm(self, exchange: int, *, after: bool) -> None:
        self._countdown, self._after, self._dead = exchange, after, False

    def disarm(self) -> None:
        self._countdown, self._dead = 0, False
