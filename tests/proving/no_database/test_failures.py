"""How often the same was sent in vain, tested without a chain and a database."""

from datetime import UTC, datetime, timedelta

import pytest

from proving.facts import AccountFact
from proving.failures import FailedFacts, FailedTransaction, Tries, counted
from proving.models import FailureCause
from queries.columns import AccountField
from queries.waits import wait

GAS, OUTDATED, REVERTED = FailureCause.OUT_OF_GAS, FailureCause.OUTDATED, FailureCause.REVERTED
BALANCE, NONCE = (AccountFact("0x" + "a1" * 20, name) for name in (AccountField.BALANCE, AccountField.NONCE))
REASON = wait("transaction_reverted")


def at(minute: int, cause: FailureCause, limit: int) -> FailedTransaction:
    return FailedTransaction(datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=minute), cause, limit, REASON)


# In order: the failed transactions, then the number of tries, of unexplained reverts, and the least limit of the next.
HISTORIES: dict[str, tuple[list[FailedTransaction], tuple[int, int, int]]] = {
    "none": ([], (0, 0, 0)),
    "one": ([at(1, GAS, 100)], (1, 0, 0)),
    "two": ([at(1, GAS, 100), at(2, GAS, 110)], (2, 0, 165)),
    "three": ([at(1, GAS, 100), at(2, GAS, 110), at(3, GAS, 165)], (3, 0, 248)),
    "many of an earlier version": ([at(minute, GAS, 100) for minute in range(58)], (2, 0, 150)),
    "many of an earlier version, and two": (
        [*(at(minute, GAS, 100) for minute in range(58)), at(60, GAS, 250), at(61, GAS, 375)],
        (4, 0, 563),
    ),
    "sent together": ([at(1, GAS, 100), at(1, GAS, 300), at(1, GAS, 200)], (1, 0, 0)),
    "two tries of several": ([at(1, GAS, 100), at(1, GAS, 300), at(2, GAS, 90), at(2, GAS, 450)], (2, 0, 675)),
    "two reverts": ([at(1, REVERTED, 100), at(2, REVERTED, 100)], (2, 2, 0)),
    "two that reorganisations explain, if they count": ([at(1, OUTDATED, 100), at(2, OUTDATED, 100)], (2, 0, 0)),
    "a revert beside others": ([at(1, OUTDATED, 100), at(2, REVERTED, 100), at(3, GAS, 150)], (3, 1, 225)),
}


@pytest.mark.parametrize(("failed", "expected"), HISTORIES.values(), ids=HISTORIES)
def test_tries_are_counted_by_what_was_sent_together_and_by_its_limit(failed, expected):
    tries = Tries.of((each, True) for each in failed)
    assert (tries.count, tries.reverts, tries.least_limit) == expected
    assert tries.is_over == (expected[0] >= 4 or expected[1] >= 2)


REORGS = [at(minute, OUTDATED, 100) for minute in range(1, 17)]


@pytest.mark.parametrize(
    ("failed", "places"),
    [
        (REORGS, []),
        ([*REORGS, REORGS[0]], []),
        ([REORGS[0], at(2, REVERTED, 100), at(3, GAS, 100), REORGS[3]], [1, 2]),
        ([*REORGS, at(17, OUTDATED, 100)], [*range(17)]),
    ],
    ids=["sixteen", "two sent together", "with others", "seventeen"],
)
def test_reverts_that_reorganisations_explain_are_no_tries_unless_there_are_many(failed, places):
    assert counted(dict(enumerate(failed))) == places


def test_the_limit_of_a_shared_transaction_is_no_measure():
    tries = Tries.of([(at(1, GAS, 1_400_000), False), (at(2, GAS, 100), True)])
    assert (tries.count, tries.least_limit) == (2, 150)


@pytest.mark.parametrize(
    ("asked", "is_of_block", "is_alone"),
    [
        ([{BALANCE}], True, True),
        ([{BALANCE, NONCE}], True, True),
        ([{BALANCE}, {BALANCE}], True, True),
        ([{BALANCE}, {NONCE}], True, False),
        ([{BALANCE}], False, False),
    ],
    ids=["one query", "a query of more", "two queries of the same", "another query", "another block"],
)
def test_facts_were_sent_alone_if_all_queries_asked_for_them(asked, is_of_block, is_alone):
    facts = FailedFacts(at(1, GAS, 100), [frozenset(each) for each in asked], is_of_block)
    assert facts.is_about(BALANCE)
    assert facts.is_alone_about({BALANCE}) == is_alone
