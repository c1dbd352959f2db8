"""A monitor that asks `/healthz`, as docs/operating/watching.md says, and keeps when it told which codes."""

import threading
import time
from collections.abc import Collection
from dataclasses import dataclass

import requests

NO_ANSWER = "no answer"
"""Stands for a web server that doesn't answer the monitor, which calls people by itself then."""

_PROBE_SECONDS, _PAUSE_SECONDS = 10, 0.5
# Heartbeats come every 5 s, so what is told only once they are missing comes later than a first answer without codes.
_CALM_SECONDS = 8


@dataclass(frozen=True)
class Probe:
    answered: float
    codes: frozenset[str]


class Watcher(threading.Thread):
    def __init__(self, base_url: str) -> None:
        super().__init__(daemon=True)
        self._url = f"{base_url}/healthz"
        self._probes: list[Probe] = []

    def run(self) -> None:
        while True:
            try:
                codes = frozenset(requests.get(self._url, timeout=_PROBE_SECONDS).json()["codes"])
            except (requests.RequestException, KeyError):
                codes = frozenset({NO_ANSWER})
            self._probes.append(Probe(time.monotonic(), codes))
            time.sleep(_PAUSE_SECONDS)

    def told(self, codes: Collection[str], since: float, most: float) -> float:
        """Wait until one of the codes is told. Return after how many seconds, or infinity after `most`."""
        while time.monotonic() < since + most:
            for probe in self._probes:
                if probe.answered >= since and not probe.codes.isdisjoint(codes):
                    return probe.answered - since
            time.sleep(0.1)
        return float("inf")

    def well(self, since: float, most: float) -> float:
        """Wait until nothing was told for `_CALM_SECONDS`. Return since when, in seconds, or infinity after `most`."""
        while True:
            last = max((probe.answered for probe in self._probes if probe.codes), default=since)
            ill = max(since, last) - since
            if ill > most or time.monotonic() > since + most + _CALM_SECONDS:
                return float("inf")
            if self._probes[-1].answered >= since + ill + _CALM_SECONDS:
                return ill
            time.sleep(0.1)

    def codes(self, since: float) -> list[str]:
        """Return all codes that were told since a time."""
        return sorted({code for probe in self._probes if probe.answered >= since for code in probe.codes})
