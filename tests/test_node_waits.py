"""How many threads of a web process nodes may hold."""

import threading
from contextlib import ExitStack

import pytest

from config import rpc_bulkhead


@pytest.fixture(autouse=True)
def as_before(monkeypatch):
    monkeypatch.setattr(rpc_bulkhead, "_most", rpc_bulkhead._most)


def taken(*chains: int) -> list[bool]:
    """Return whether each thread may wait: they wait for nodes of these chains, one after another."""
    may = []
    with ExitStack() as held:
        for chain in chains:
            try:
                held.enter_context(rpc_bulkhead.waiting_for(chain))
                may.append(True)
            except rpc_bulkhead.Busy:
                may.append(False)
    return may


@pytest.mark.parametrize(
    ("threads", "chains", "may"),
    [
        (1, [1, 1, 2], [True, False, False]),
        (4, [1, 1, 2, 3], [True, False, True, False]),
        (8, [1, 1, 1, 1, 2, 3], [True, True, True, False, True, False]),
    ],
)
def test_half_of_the_threads_may_wait_and_one_chain_leaves_a_place(threads, chains, may):
    rpc_bulkhead.share(threads)
    assert taken(*chains) == may
    assert taken(*chains) == may, "all places are free again"


def test_a_place_is_given_back_by_an_error():
    rpc_bulkhead.share(2)
    with pytest.raises(ValueError, match="down"), rpc_bulkhead.waiting_for(1):
        raise ValueError("down")
    assert taken(1) == [True]


def test_who_is_patient_gets_the_place_that_becomes_free():
    rpc_bulkhead.share(2)
    taken_here, release = threading.Event(), threading.Event()

    def hold() -> None:
        with rpc_bulkhead.waiting_for(1):
            taken_here.set()
            release.wait(10)

    holder = threading.Thread(target=hold)
    holder.start()
    assert taken_here.wait(10)
    with pytest.raises(rpc_bulkhead.Busy), rpc_bulkhead.waiting_for(1, patience_seconds=0.01):
        pass
    timer = threading.Timer(0.05, release.set)
    timer.start()
    with rpc_bulkhead.waiting_for(1, patience_seconds=10):
        assert release.is_set()
    holder.join(10)
    timer.join(10)
