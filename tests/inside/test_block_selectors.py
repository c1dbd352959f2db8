"""A batch is admitted in parts, where blocks are to come."""

import itertools
from typing import Any

import pytest

from accounts.models import ApiKey
from devnet.devchain import DevChain
from proving.admission import admit as admission
from proving.budget.money import Reservation
from queries.models import Batch, BatchStatus, Block
from tests.inside.working import accept_all
from tests.proving.money import limit
from tests.service import ALICE, BOB, a_key, asking, fresh, submit

BALANCE = {"props": ["BALANCE"]}


def submitted(api_key: ApiKey, *, fee: int = 0, **blocks: Any) -> Batch:
    """Submit a batch with these accounts at these selectors, with `_` for their colon."""
    data = {
        selector.replace("_", ":"): {"accounts": dict.fromkeys(accounts, BALANCE)}
        for selector, accounts in blocks.items()
    }
    return submit(api_key, asking(data, fee=fee))


def admitted(batch: Batch) -> list[bool]:
    return list(batch.queries.order_by("position").values_list("is_admitted", flat=True))


def test_only_what_exists_is_admitted_and_each_when_it_does(costly, key):
    """Nothing mines but the test."""
    head = costly.head()
    batch = submitted(key, fee=10**18, **{f"block_{head + ahead}": [ALICE] for ahead in (-1, 1, 2)})
    estimates = [0]
    for count in (1, 2, 3):
        accept_all()
        assert admitted(batch) == [True] * count + [False] * (3 - count)
        assert Block.objects.filter(due_at__isnull=False).count() == count
        estimates.append(fresh(batch).estimated_gas or 0)
        costly.mine()
    # What was admitted before is not counted again.
    first, *others = [after - before for before, after in itertools.pairwise(estimates)]
    assert others == [pytest.approx(first, rel=0.01)] * 2
    assert (batch.waiting_for, batch.due_at) == ("", None)


def estimate_of(costly: DevChain, *heights: int) -> Reservation:
    """Return what admission estimates for Alice at blocks of these heights above the head."""
    blocks = {f"block_{costly.head() + above}": [ALICE] for above in heights}
    with pytest.MonkeyPatch.context() as patch:
        reckoned: list[Reservation] = []
        patch.setattr(admission, "_fee_too_low", lambda _, needed, *__: reckoned.append(needed))
        submitted(a_key(BOB), fee=10**18, **blocks)
        accept_all()
    Batch.objects.all().delete()
    return reckoned[0]


def test_the_budget_must_do_for_what_is_to_come(costly, key, settings):
    head = costly.head()
    limit(settings, daily_limit_per_user=estimate_of(costly, 0, 1).wei * 95 // 100)
    batch = submitted(key, fee=10**18, **{f"block_{head}": [ALICE], f"block_{head + 1}": [ALICE]})
    accept_all()
    assert (fresh(batch).status, batch.rejection_code) == (BatchStatus.REJECTED, "too_large_for_budget")
