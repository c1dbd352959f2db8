"""The dashboard: newest batches, the day's budget, thirty days, and the first key."""

import re
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from accounts.models import ApiKey, User
from explorer.lists import daily_charts, daily_history
from explorer.lists.daily_history import Day, History
from proving.models import Share
from queries import progress
from queries.models import Batch, BatchStatus
from queries.rejection_codes import RejectionCode
from tests.explorer.batches import DEAD_NODE, a_batch, finish, send
from tests.explorer.pages import ids
from tests.plans import plans
from tests.service import ALICE, BOB, a_key, chains_toml, request, submit

pytestmark = pytest.mark.django_db

JSON = {"Accept": "application/json"}


def ended(at: datetime, *, status: str = BatchStatus.DONE, address: str = ALICE, **columns: Any) -> Batch:
    key = ApiKey.objects.filter(user__address=address).first() or a_key(address)
    values = {"size": 2, "gas_used": 100, "created_at": at - timedelta(minutes=1)} | columns
    finished = None if status in {"RECEIVED", "ACCEPTED", "IN_PROGRESS"} else at
    return Batch.objects.create(
        user=key.user,
        api_key=key,
        destination_chain_id=31337,
        fee=0,
        request="{}",
        deadline_at=at,
        status=status,
        finished_at=finished,
        **values,
    )


def history() -> History:
    return daily_history.read(User.objects.for_address(ALICE))


# --- What it begins with ----------------------------------------------------------------------------------------------


def test_a_newcomer_finds_the_key_and_the_way_to_a_first_fact(alice):
    key = a_key()
    html = alice.get("/dashboard").text
    assert "No batches yet." in html
    assert 'href="/new-batch">Prove your first fact</a>' in html
    assert key.ends in html
    assert f'action="/dashboard/keys/{key.pk}/reveal"' in html
    assert 'href="/keys"' in html
    assert html.index(key.ends) < html.index("Budget, last 24 hours")
    assert '<svg class="plot"' not in html


def test_only_the_newest_keys_are_there_and_the_others_are_a_link_away(alice):
    made = [a_key(name=f"key {number}") for number in range(5)]
    html = alice.get("/dashboard").text
    assert [key.name for key in made if f">{key.name}</h3>" in html] == ["key 2", "key 3", "key 4"]
    assert "All 5 keys" in html


def test_programs_get_the_keys_at_either_address(alice):
    key = a_key()
    expected = alice.get("/keys", headers=JSON).json()
    assert [one["id"] for one in expected["keys"]] == [key.pk]
    assert alice.get("/dashboard", headers=JSON).json() == expected


# --- Newest batches ---------------------------------------------------------------------------------------------------


def test_one_s_newest_batches_are_told_with_what_came_out(alice):
    batches = [a_batch(block=block) for block in range(8)]
    submit(a_key(BOB), request(BOB, block=12))
    finish(batches[7])
    progress.reject([batches[6].pk], code=RejectionCode.PROOF_UNAVAILABLE, reason="X.", retryable=False)
    html = alice.get("/dashboard").text
    assert ids(html) == [batch.pk for batch in batches[:1:-1]]
    assert "123,456,789.0123" in html
    assert "proof_unavailable" in html
    assert "so far" in html


# --- Budget -----------------------------------------------------------------------------------------------------------


def test_where_gas_costs_nothing_nothing_is_limited(alice):
    assert "Nothing is limited" in alice.get("/dashboard").text


def test_what_is_used_of_the_day_s_budget_and_what_is_left(alice, settings, tmp_path):
    limit = 'test_network = false\ndaily_limit_per_user = "0.5"'
    settings.CHAINS_FILE = chains_toml(tmp_path, DEAD_NODE, chain=limit)
    settings.DAILY_GAS_BUDGET = 8_000_000
    settings.ALLOWED_ADDRESSES = ["*"]
    batch = a_batch(fee=10**18)
    Batch.objects.update(status=BatchStatus.REJECTED)
    Share.objects.create(transaction=send(batch), batch=batch, gas=2_000_000, wei=10**17, weight=1)
    html = re.sub(r"<[^>]+>|\s+", " ", alice.get("/dashboard").text)
    said = re.sub(r"\s+", " ", html)
    assert "2.0 M of 8.0 M gas" in said
    assert "6.0 M gas are left." in said
    assert "0.1 ETH of 0.5 ETH on Development chain" in said
    assert "0.4 ETH are left." in said


# --- Days -------------------------------------------------------------------------------------------------------------


def test_days_are_those_of_utc_on_which_batches_ended():
    midnight = timezone.now().astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    ended(midnight, size=3, gas_used=1000)
    ended(midnight - timedelta(seconds=1), size=5, gas_used=20)
    ended(midnight - timedelta(seconds=2), status=BatchStatus.REJECTED, size=7, gas_used=1)
    ended(midnight, status=BatchStatus.IN_PROGRESS, size=11)
    ended(midnight, address=BOB, size=13)
    ended(midnight - timedelta(days=29), size=17)
    ended(midnight - timedelta(days=29, seconds=1), size=19)
    days = history().days
    today = midnight.date()
    assert [day.date for day in days] == [today - timedelta(days=ago) for ago in range(29, -1, -1)]
    assert days[-1] == Day(today, done=1, proven=3, gas=1000)
    assert days[-2] == Day(today - timedelta(days=1), done=1, rejected=1, proven=5, gas=21)
    assert days[0].proven == 17
    assert sum(day.ended for day in days) == 4


def test_a_batch_counts_that_was_submitted_before_these_days_and_ended_in_them():
    first = timezone.now() - timedelta(days=29)
    ended(first, created_at=first - timedelta(days=1), size=3)
    assert history().days[0].proven == 3


def test_no_more_than_the_newest_are_added_up_and_the_page_says_so(alice, monkeypatch):
    now = timezone.now()
    for ago in range(4):
        ended(now - timedelta(hours=ago))
    assert "of your newest" not in alice.get("/dashboard").text
    monkeypatch.setattr(daily_history, "MOST_BATCHES", 3)
    assert sum(day.done for day in history().days) == 3
    assert "of your newest 3 batches" in alice.get("/dashboard").text


def test_an_index_finds_the_batches_of_these_days():
    user = User.objects.for_address(ALICE)
    with CaptureQueriesContext(connection) as captured:
        daily_history.read(user)
    assert len(captured) == 1
    assert any("user_id" in line and "created_at" in line for line in plans(captured))


def test_the_charts_say_the_same_as_their_tables(alice):
    now = timezone.now()
    ended(now, size=1234, gas_used=2_500_000)
    ended(now, status=BatchStatus.REJECTED, gas_used=0)
    html = alice.get("/dashboard").text
    assert html.count("<figure") == html.count("<details>") == 3
    today = f"{now.astimezone(UTC):%Y-%m-%d}"
    assert f'<th scope="row">{today}</th><td class="r">1,234</td>' in html
    assert f'<th scope="row">{today}</th><td class="r">2,500,000</td>' in html
    assert f'<th scope="row">{today}</th><td class="r">1</td><td class="r">1</td>' in html
    assert f"<title>{today}: 1 rejected</title>" in html
    assert "50.0 %" in html
    assert not re.search(r"\sstyle=|<script(?![^>]*\ssrc=)", html)


def days(*of_days: Day) -> History:
    empty = (Day(date(2026, 1, 1)),) * (daily_history.DAYS - len(of_days))
    return History(empty + of_days, is_whole=True)


def test_bars_stand_on_the_ground_and_on_each_other():
    *_, success = daily_charts.of(days(Day(date(2026, 1, 30), done=3, rejected=1)))
    below, above = success.bars
    assert success.top == "5"
    assert (below.kind, below.height, below.y) == ("today", 60, 40)
    assert (above.kind, above.height, above.y) == ("bad", 20, 20)
    assert below.x == above.x
    assert 0 < below.x < below.x + below.width < 100


@pytest.mark.parametrize(
    ("most", "top"), [(0, "1"), (1, "1"), (3, "5"), (5, "5"), (6, "10"), (51, "100"), (1_900_000, "2.0 M")]
)
def test_the_upper_edge_is_a_round_number(most, top):
    proven, gas, _ = daily_charts.of(days(Day(date(2026, 1, 30), proven=most, gas=most)))
    assert proven.top == gas.top == top


@pytest.mark.parametrize(
    ("done", "rejected", "said"),
    [(0, 0, "0 %"), (3, 0, "100 %"), (0, 3, "0 %"), (9_999, 1, "99.9 %"), (1, 2, "33.3 %")],
)
def test_a_share_is_whole_only_if_it_is(done, rejected, said):
    assert daily_charts.of(days(Day(date(2026, 1, 30), done=done, rejected=rejected)))[2].total == said


# --- What it takes ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("url", "most"), [("/dashboard", 9), ("/explorer", 7), ("/", 8)])
def test_the_number_of_statements_does_not_grow(alice, url, most):
    counts = []
    for block in range(1, 4):
        finish(a_batch(block=block))
        ended(timezone.now() - timedelta(days=block))
        with CaptureQueriesContext(connection) as captured:
            assert alice.get(url).status_code == 200
        counts.append(len(captured))
    assert counts == [most] * 3
