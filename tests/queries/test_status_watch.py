"""Who waits for another status is woken, whatever goes wrong with looking for it."""

import threading
from collections.abc import Collection

import pytest

from queries import status_watch

SOON = 10


class Waiting:
    """A request that is parked, and where it is."""

    has_waited = is_parked = is_gone = False

    def __init__(self) -> None:
        self._is_woken = threading.Event()

    def park(self) -> "Waiting":
        return self

    def wake(self) -> None:
        self._is_woken.set()

    def is_woken_soon(self) -> bool:
        status_watch.wait(self, 1, "a batch", "IN_PROGRESS", SOON * 2)
        return self._is_woken.wait(SOON)


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr(status_watch, "_LOOK_SECONDS", 0.01)


def test_a_defect_wakes_all_and_who_comes_next_is_looked_for_again(monkeypatch, caplog):
    def defect(_: Collection[str]) -> dict[str, str]:
        raise RuntimeError("a defect")

    with monkeypatch.context() as patch:
        patch.setattr(status_watch, "_statuses", defect)
        assert Waiting().is_woken_soon()
    assert "a defect" in caplog.text
    monkeypatch.setattr(status_watch, "_statuses", lambda _: {"a batch": "DONE"})
    assert Waiting().is_woken_soon()
