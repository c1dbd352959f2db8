"""A worker's watch over its database. Its seconds are counted here, without its thread."""

import pytest
from django.utils import timezone

from proving.health.problem_reports import OutageWatch
from proving.models import ProblemReport
from tests.proving.receiver import Received, receiver, tell_operator

pytestmark = pytest.mark.django_db


def pass_seconds(*watches: OutageWatch, seconds: int, is_answering: bool) -> None:
    for second in range(seconds):
        for watch in watches:
            if is_answering and second % 5 == 0:
                watch.note_answer()
            watch.tick()


def test_each_worker_tells_an_outage_with_the_same_id_and_what_was_known_before(settings, monkeypatch):
    first, second = OutageWatch(), OutageWatch()
    now = timezone.now()
    known = {"code": "no_registry", "sentence": "It lacks.", "values": {"chainId": "5"}}
    row = ProblemReport.objects.create(key="no_registry", began_at=now, seen_at=now, **known)

    def refuse_the_first(_: Received) -> int:
        return 204 if len(hook.received) > 1 else 503

    with receiver(refuse_the_first) as hook:
        tell_operator(settings, monkeypatch, hook.url)
        pass_seconds(first, second, seconds=31, is_answering=True)
        pass_seconds(first, second, seconds=28, is_answering=False)
        pass_seconds(first, second, seconds=1, is_answering=True)
        assert hook.received == [], "It was away for less than 30 s."
        for outage in range(2):
            received = len(hook.received)
            pass_seconds(first, second, seconds=40, is_answering=False)
            # It comes back for a moment.
            pass_seconds(first, second, seconds=6, is_answering=True)
            pass_seconds(first, second, seconds=40, is_answering=False)
            pass_seconds(first, second, seconds=50, is_answering=True)
            messages = hook.received[received:]
            # The first message was refused once.
            assert [got.type for got in messages] == ["problem.began"] * (3 - outage) + ["problem.ended"] * 2
            assert {got.data("code") for got in messages} == {"database_unavailable"}
            assert len({got.id for got in messages}) == 2
            assert messages[0].data("known") == [
                {"id": row.pk, "code": "no_registry", "problem": "It lacks.", "values": {"chainId": "5"}}
            ]
    assert len({got.id for got in hook.received}) == 4
    assert len({got.data("id") for got in hook.received}) == 2


def test_a_worker_that_starts_takes_away_the_id_of_an_outage_whose_end_nobody_told():
    OutageWatch().note_answer()
    before = ProblemReport.objects.get().pk
    OutageWatch().note_answer()
    assert ProblemReport.objects.get().pk != before
