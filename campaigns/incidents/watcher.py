"""A monitor that asks `/healthz`, as docs/operating/watching.md says, and keeps when it told which codes."""

import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass

import requests

NO_ANSWER = "no answer"
"""Stands for a web server that doesn't answer the monitor, which calls people by itself then."""

_PROBE_SECONDS, _PAUSE_SECONDS = 10, 0.5


@dataclass(frozen=True)
class Probe:
    asked: float
    answered: float
    codes: frozenset[str]


class Watcher(threading.Thread):
    def __init__(self, base_url: str) -> None:
        super().__init__(daemon=True)
        self._url = f"{base_url}/healthz"
        self._probes: list[Probe] = []

    def run(self) -> None:
        while True:
            asked = time.monotonic()
            try:
                codes = frozenset(requests.get(self._url, timeout=_PROBE_SECONDS).json()["codes"])
            except (requests.RequestException, KeyError):
                codes = frozenset({NO_ANSWER})
            self._probes.append(Probe(asked, time.monotonic(), codes))
            time.sleep(_PAUSE_SECONDS)

    def told(self, codes: Collection[str], since: float, most: float) -> float:
        """Wait until one of the codes is told. Return after how many seconds, or infinity after `most`."""
        return self._seconds(lambda probe: probe.answered >= since and not probe.codes.isdisjoint(codes), since, most)

    def well(self, since: float, most: float) -> float:
        """Wait until nothing is told. Return after how many seconds, or infinity after `most`."""
        return self._seconds(lambda probe: probe.asked >= since and not probe.codes, since, most)

    def codes(self, since: float) -> list[str]:
        """Return all codes that were told since a time."""
        return sorted({code for probe in self._probes if probe.answered >= since for code in probe.codes})

    def _seconds(self, is_so: Callable[[Probe], bool], since: float, most: float) -> float:
        while True:
            is_over = time.monotonic() > since + most
            for probe in self._probes:
                if is_so(probe):
                    return max(0.0, probe.answered - since)
            if is_over:
                return float("inf")
            time.sleep(0.1)
