"""Problems as rows: which observer may end them, what they cost, and what version 0.4.0 has left."""

from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from proving.health import current_problems, stored_problems
from proving.health.current_problems import SeenProblem
from proving.health.problem_kinds import ProblemKind
from proving.models import SEEN, ChainWatch, Problem
from proving.working import lanes
from proving.working.lanes import HeldLane, LaneKind, LaneLost, LaneName

pytestmark = [pytest.mark.django_db(transaction=True)]

CHAIN = 31337
WATCH, HOUSE = LaneName(LaneKind.WATCH), LaneName(LaneKind.HOUSE)
ABOUT = {"chainId": str(CHAIN)}
CLOCK = SeenProblem(ProblemKind.CLOCK, "The newest block is 20 s old.", ABOUT)
UNFUNDED = SeenProblem(ProblemKind.SIGNER_UNFUNDED, "The signer holds 1 ETH.", ABOUT | {"signer": "0x1"})


@pytest.fixture(autouse=True)
def watched(unreachable_chain, db) -> None:
    ChainWatch.objects.create(chain_id=CHAIN, looked_at=timezone.now())


def see(lane: HeldLane, *problems: SeenProblem) -> None:
    lane.write(lambda: stored_problems.replace(problems, seen_by=LaneKind.WATCH, chain_id=CHAIN))


def shown() -> list[tuple[str, str]]:
    return [(problem.kind, problem.sentence) for problem in current_problems.chains()]


def pass_time(time: timedelta) -> None:
    for row in Problem.objects.all():
        row.seen_at -= time
        row.absent_since = row.absent_since and row.absent_since - time
        row.save()


def test_a_worker_that_lost_its_lane_ends_nothing():
    with lanes.seize(WATCH) as frozen:
        see(frozen, CLOCK)
        with lanes.seize(WATCH):
            with pytest.raises(LaneLost):
                see(frozen)
            assert shown() == [(CLOCK.kind, CLOCK.sentence)]


def test_an_observation_shows_the_last_sentence_and_takes_one_update():
    with lanes.seize(WATCH) as lane:
        see(lane, CLOCK, UNFUNDED)
        later = [CLOCK._replace(sentence="It is 30 s old."), UNFUNDED._replace(sentence="It holds 0.5 ETH.")]
        with CaptureQueriesContext(connection) as statements:
            see(lane, *later)
        updates = [each for each in statements.captured_queries if each["sql"].startswith("UPDATE")]
        assert sum(Problem._meta.db_table in each["sql"] for each in updates) == 1
        assert shown() == [(problem.kind, problem.sentence) for problem in later]
        # Messages keep the sentence of the beginning.
        assert {row.sentence for row in Problem.objects.all()} == {CLOCK.sentence, UNFUNDED.sentence}


def test_what_is_seen_no_more_is_not_shown_and_ends_after_its_period():
    with lanes.seize(WATCH) as lane:
        see(lane, CLOCK, UNFUNDED)
        begun = Problem.objects.get(code=CLOCK.kind)
        see(lane, UNFUNDED)
        assert shown() == [(UNFUNDED.kind, UNFUNDED.sentence)]
        see(lane, CLOCK, UNFUNDED)
        assert Problem.objects.get(code=CLOCK.kind).pk == begun.pk, "It comes and goes."
        Problem.objects.filter(pk=begun.pk).update(is_told=True)
        see(lane, UNFUNDED)
        pass_time(SEEN + timedelta(seconds=1))
        see(lane, UNFUNDED)
    ended = Problem.objects.get(pk=begun.pk)
    assert ended.ended_at
    assert ended.due_at, "The operator's webhook is told."


def test_what_no_observer_looks_at_fades():
    with lanes.seize(WATCH) as lane:
        see(lane, CLOCK)
    pass_time(SEEN + timedelta(seconds=1))
    assert shown() == []
    with lanes.seize(HOUSE) as house:
        stored_problems.fade(house)
        pass_time(SEEN + timedelta(seconds=1))
        stored_problems.fade(house)
    assert not Problem.objects.exists()


def test_a_report_of_0_4_0_goes_on_as_the_problem():
    key = f'clock {{"chainId": "{CHAIN}"}}'
    now = timezone.now()
    told = Problem.objects.create(key=key, code="clock", values=ABOUT, began_at=now, seen_at=now, is_told=True)
    with lanes.seize(WATCH) as lane:
        see(lane, CLOCK)
    (row,) = Problem.objects.all()
    assert (row.pk, row.is_told, row.seen_by, row.absent_since) == (told.pk, True, LaneKind.WATCH, None)


def test_a_kind_of_a_later_version_is_left_alone():
    now = timezone.now()
    Problem.objects.create(
        key="later", code="later", shown="Something.", seen_by="watch", chain_id=CHAIN, began_at=now, seen_at=now
    )
    assert shown() == []


def test_the_log_has_a_line_when_a_problem_begins_and_one_when_it_ends(caplog):
    def lines() -> list[str]:
        return [record.getMessage() for record in caplog.records if "a problem has" in record.getMessage()]

    subject = f'clock {{"chainId": "{CHAIN}"}}'
    began = f"a problem has begun: {subject}: {CLOCK.sentence}"
    with lanes.seize(WATCH) as lane:
        for _ in range(3):
            see(lane, CLOCK)
        see(lane)
        assert lines() == [began]
        pass_time(SEEN + timedelta(seconds=1))
        see(lane)
        see(lane)
    assert lines() == [began, f"a problem has ended: {subject}: {CLOCK.sentence}"]


def test_a_cause_that_changes_each_time_is_no_new_line(caplog):
    with lanes.seize(WATCH) as lane:
        for cause in ("down", "slow", "wrong"):
            see(lane, SeenProblem(ProblemKind.CHAIN_UNAVAILABLE, f"No node can be used: it is {cause}.", ABOUT))
            assert shown() == [("chain_unavailable", f"No node can be used: it is {cause}.")]
    assert sum("a problem has begun" in record.getMessage() for record in caplog.records) == 1
