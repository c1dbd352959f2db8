"""Statements and exchanges of a connection's turns, and the cost of a block about which our own code fails."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from chains import bounded_http
from config.database import due_rows
from proving.models import Transaction
from proving.reconcile import decide
from proving.working import lanes, worker
from proving.working.lanes import LaneKind
from queries.models import Batch, BatchStatus, Block
from tests.inside.working import admitted, work_side_by_side
from tests.service import ALICE, BOB, fresh, request


class Costs:
    """Statements and exchanges with nodes."""

    statements = exchanges = 0

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch

    @contextmanager
    def counted(self) -> Iterator[None]:
        send_all = bounded_http.send_all

        def send(requests: Any, *others: Any, **options: Any) -> Any:
            self.exchanges += len(requests)
            return send_all(requests, *others, **options)

        with self._monkeypatch.context() as patched, CaptureQueriesContext(connection) as captured:
            patched.setattr(bounded_http, "send_all", send)
            yield
        self.statements += len(captured)

    def check(self, statements: int, exchanges: int) -> None:
        assert self.statements <= statements
        assert self.exchanges <= exchanges


@pytest.fixture
def costs(monkeypatch) -> Costs:
    # A turn that has taken long looks for other users' blocks, by one more statement.
    monkeypatch.setattr("proving.reconcile.turn._SECONDS", math.inf)
    return Costs(monkeypatch)


def of_blocks(service: Any, key: Any, places: range) -> list[Batch]:
    return [admitted(key, request(ALICE, BOB, block=service.head() - place)) for place in places]


def prove(service: Any, batches: list[Batch], costs: Costs) -> None:
    """Do all work until the batches are done, and count the connection's turns."""
    for _ in range(12):
        work_side_by_side(LaneKind.DESTINATION)
        with costs.counted():
            work_side_by_side(LaneKind.CONNECTION)
        if all(fresh(batch).status == BatchStatus.DONE for batch in batches):
            return
        service.mine(1)
    pytest.fail("not all batches are done")


@pytest.mark.parametrize(("blocks", "most"), [(1, (122, 7)), (20, (122, 9))])
def test_blocks_share_statements_and_exchanges(service, key, costs, blocks, most):
    service.mine(blocks)
    prove(service, of_blocks(service, key, range(blocks)), costs)
    costs.check(*most)


def test_new_blocks_are_served_together_with_older_ones(service, key, costs):
    service.mine(20)
    batches = of_blocks(service, key, range(5))
    with costs.counted():
        work_side_by_side(LaneKind.CONNECTION)
    prove(service, [*batches, *of_blocks(service, key, range(6, 11))], costs)
    costs.check(214, 13)


def test_a_defect_in_one_block_leaves_the_others_their_shared_transaction(service, key, costs, monkeypatch):
    service.mine(20)
    batches = of_blocks(service, key, range(20))
    bad = Block.objects.filter(queries__batch=batches[7]).distinct().get()
    decided = decide.prove

    def fail_once(seen: Any) -> Any:
        if seen.number == bad.number:
            raise ZeroDivisionError("a defect")
        return decided(seen)

    monkeypatch.setattr(decide, "prove", fail_once)
    work_side_by_side(LaneKind.DESTINATION)
    failed = 0
    with costs.counted():
        for name in lanes.every():
            if name.kind == LaneKind.CONNECTION:
                due_rows.wake_all(lanes.rows(name))
                failed += worker.turn(name) or 0
    assert failed == 1
    (sent,) = Transaction.objects.exclude(queries=None).distinct()
    assert sent.queries.values("block").distinct().count() == 19
    wait = fresh(bad).wait
    assert wait is not None
    assert wait.code == "internal_error"
    costs.check(93, 6)
