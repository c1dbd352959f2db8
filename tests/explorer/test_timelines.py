"""The timeline of a batch: what is drawn where."""

import re
from datetime import UTC, datetime, timedelta

import pytest
from django.test import Client
from django.utils import timezone

from explorer.batch import timelines, transaction_display
from explorer.batch.timelines import Lane, Segment, Timeline
from explorer.templatetags.explorer_values import span
from explorer.templatetags.timeline_drawing import drawn
from proving.models import Share, Transaction, TransactionState
from queries import progress
from queries.models import Batch, Block, Step, StepKind
from queries.rejection_codes import RejectionCode
from tests.explorer.batches import (
    SOURCE,
    a_batch,
    accept,
    beat,
    complete,
    connect_source,
    deployed,
    finish,
    many_accounts,
    mine,
    of_two_sources,
    page,
    path,
    plan_path,
    queries_of,
    send,
)
from tests.explorer.pages import text_of

pytestmark = pytest.mark.django_db

START = datetime(2026, 1, 1, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def lanes(batch: Batch) -> dict[str, str]:
    """By its name: what came of it."""
    html = page(batch)
    found = re.findall(r'<text class="name"[^>]*>([^<]+)</text>\s*<text class="end"[^>]*>([^<]*)</text>', html)
    return dict(found)


def description(batch: Batch) -> str:
    found = re.search(r"<desc[^>]*>([^<]+)</desc>", page(batch))
    assert found
    return found[1]


def test_segments_are_placed_in_percent_of_the_whole():
    segments = (Segment("ok", "first", at(0), at(25), "1"), Segment("ok", "second", at(25), at(100), "2"))
    shown = drawn(Timeline(at(0), at(100), (Lane("Chain", "done", (segments,)),)))
    (lane,) = shown.lanes
    assert [(one.x, one.width, one.middle, one.label) for one in lane.segments] == [
        (0, 25, 12.5, "1"),
        (25, 75, 62.5, "2"),
    ]
    assert shown.text == "1 min 40 s in all. Chain: first, 25.0 s, second, 1 min 15 s."


@pytest.mark.parametrize(
    ("start", "end", "place"),
    [
        (0, 0.001, (0, 0.8)),  # thin, but there
        (100, 100, (99.2, 0.8)),  # at the very end
        (-50, 10, (0, 10)),  # a step may have begun anew after a reorg, and a transaction been sent for others
        (90, 200, (90, 10)),
        (150, 160, (99.2, 0.8)),
    ],
)
def test_nothing_is_drawn_outside(start, end, place):
    segment = Segment("ok", "one", at(start), at(end), "1")
    (lane,) = drawn(Timeline(at(0), at(100), (Lane("Chain", "", ((segment,),)),))).lanes
    (one,) = lane.segments
    assert (one.x, one.width) == place
    assert (">1</text>" in one.svg(0)) == (one.width >= 4)


def test_what_goes_on_reaches_to_now(monkeypatch):
    monkeypatch.setattr(timezone, "now", lambda: at(50))
    segments = (Segment("ok", "first", at(0), at(25)), Segment("run", "second", at(25), None))
    shown = drawn(Timeline(at(0), None, (Lane("Chain", "", (segments,)),)))
    assert [(one.x, one.width) for one in shown.lanes[0].segments] == [(0, 50), (50, 50)]
    assert shown.text == ("It goes on since 00:00:00 UTC. Chain: first, 25.0 s, second, since 00:00:25 UTC."), (
        "It is read while time goes on."
    )
    # The page's script draws it on by these.
    assert 'data-start="2026-01-01T00:00:00Z"' in shown.svg
    assert re.findall(r' data-a="([\d.]+)"(?: data-b="([\d.]+)")?', shown.svg) == [("0.00", "25.00"), ("25.00", "")]
    assert re.search(r'<text class="end" x="100%" y="\d+">now</text><rect class="now"', shown.svg)


def test_what_is_over_has_nothing_to_draw_on():
    shown = drawn(Timeline(at(0), at(100), (Lane("Chain", "", ((Segment("ok", "one", at(0), at(25)),),)),)))
    assert "data-" not in shown.svg.replace("data-top", "")
    assert ">now<" not in shown.svg
    assert re.search(r'<text class="end" x="100%" y="\d+">1 min 40 s</text>', shown.svg)


@pytest.mark.parametrize(
    ("seconds", "ticks"),
    [
        (0.001, ["0 s"]),
        (0.7, ["0 s", "0.2 s", "0.4 s"]),
        (4, ["0 s", "1 s", "2 s", "3 s"]),
        (40.8, ["0 s", "15 s", "30 s"]),
        (100, ["0 s", "30 s", "60 s"]),
        (260, ["0 min", "2 min"]),
        (86_400, ["0 h", "6 h", "12 h", "18 h"]),
        (5 * 86_400, ["0 d", "2 d", "4 d"]),
    ],
)
def test_the_axis_has_few_round_ticks_and_leaves_its_end_to_what_it_took(seconds, ticks):
    shown = drawn(Timeline(at(0), at(seconds), ()))
    assert [label for _, label in shown.ticks] == ticks
    assert all(place <= 86 for place, _ in shown.ticks)


def test_the_days_are_told_of_what_lasted_longer_than_one():
    batch = a_batch()
    finish(batch)
    Batch.objects.update(created_at=at(0), finished_at=at(100))
    assert "Timeline 00:00:00 to 00:01:40 UTC, 1 min 40 s" in text_of(page(batch))
    Batch.objects.update(finished_at=at(86_400))
    assert "Timeline 2026-01-01 00:00:00 UTC to 2026-01-02 00:00:00 UTC , 1 d" in text_of(page(batch))


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0, "0.0 s"),
        (59.4, "59.4 s"),
        (60, "1 min"),
        (61.9, "1 min 1 s"),
        (3659, "1 h"),
        (3660, "1 h 1 min"),
        (86_399, "23 h 59 min"),
        (86_400, "1 d"),
        (200_000, "2 d 7 h"),
    ],
)
def test_a_length_of_time_has_two_units_of_which_none_is_zero(seconds, said):
    assert span(timedelta(seconds=seconds)) == said


def test_each_source_chain_has_a_lane(tmp_path):
    connect_source(tmp_path)
    batch = of_two_sources()
    accept(batch)
    assert lanes(batch) == {"Other chain": "step 1: 0 of 1", "Development chain": "step 1: 0 of 1"}
    here = batch.queries.filter(source_chain_id=31337).values_list("pk", flat=True)
    progress.complete(here, StepKind.INITIAL_STATE)
    assert lanes(batch) == {"Other chain": "step 1: 0 of 1", "Development chain": "step 2: 0 of 1"}
    assert SOURCE < 31337


@pytest.mark.parametrize("count", [1, 11])
def test_steps_of_one_chain_go_from_the_first_that_began_to_the_last_that_ended(count):
    batch = a_batch(*many_accounts(count))
    finish(batch)
    Batch.objects.update(created_at=at(0), finished_at=at(100))
    for number, kind in enumerate(StepKind):
        Step.objects.filter(kind=kind).update(started_at=at(25 * number), completed_at=at(25 * number + 20))
    last = queries_of(batch)[-1]
    Step.objects.filter(kind=StepKind.INITIAL_STATE, query=last).update(completed_at=at(25))
    bars = re.findall(r'<rect class="ok" x="([\d.]+)%" y="\d+" width="([\d.]+)%"', page(batch))
    assert [(float(x), float(width)) for x, width in bars] == [(0, 25), (25, 20), (50, 20), (75, 20)]


def bars(batch: Batch, kind: str) -> list[tuple[float, float, int]]:
    """Return where each bar of a kind begins and how wide it is, in percent, and how far down it is, in pixels."""
    found = re.findall(rf'<rect class="{kind}" x="([\d.]+)%" y="(\d+)" width="([\d.]+)%"', page(batch))
    return [(float(x), float(width), int(y)) for x, y, width in found]


@pytest.mark.parametrize("count", [1, 11])
def test_where_some_are_ahead_of_others_each_step_has_a_track_of_its_own(count):
    beat()
    batch = a_batch(*many_accounts(count + 1))
    accept(batch)
    ahead, *rest = queries_of(batch)
    for kind in list(StepKind)[:3]:
        progress.complete([ahead], kind)
    progress.complete(rest, StepKind.INITIAL_STATE)
    tops = [y for _, _, y in (*bars(batch, "ok"), *bars(batch, "run"))]
    assert len(set(tops)) == len(tops) == 4
    assert lanes(batch) == {"Development chain": f"step 4: 0 of {count + 1}"}


@pytest.mark.parametrize("count", [1, 11])
@pytest.mark.parametrize(
    ("went_back", "times", "lost"),
    [
        (StepKind.INITIAL_STATE, [(40, 50), (50, 60), (60, 80), (80, 100)], (0, 40)),
        (StepKind.HEADER_ACCUMULATED, [(0, 10), (10, 20), (70, 90), (90, 100)], (20, 50)),
    ],
)
def test_the_time_before_a_step_went_back_is_drawn_as_lost(went_back, times, lost, count):
    batch = a_batch(*many_accounts(count))
    finish(batch)
    progress.reopen(queries_of(batch), went_back, reason="Reorganised.")
    complete(batch, *list(StepKind)[list(StepKind).index(went_back) :])
    Batch.objects.update(created_at=at(0), finished_at=at(100))
    for kind, (start, end) in zip(StepKind, times, strict=True):
        Step.objects.filter(kind=kind).update(started_at=at(start), completed_at=at(end))
    assert [(x, width) for x, width, _ in bars(batch, "lost")] == [lost]
    assert [(x, x + width) for x, width, _ in bars(batch, "ok")] == times
    assert "rolled back" in description(batch)
    assert "lost: rolled back" in page(batch)


def test_transactions_wait_until_they_are_in_a_block():
    beat()
    batch = a_batch()
    accept(batch)
    complete(batch, StepKind.INITIAL_STATE)
    tx = send(batch)
    assert lanes(batch)["Transactions"] == "1 sent, 0 in a block"
    assert f"{tx.latest_hash} waits for a block" in description(batch)
    assert bars(batch, "wait")
    mine(tx, block=14)
    Transaction.objects.update(spent_at=tx.created_at + timedelta(seconds=12))
    assert lanes(batch)["Transactions"] == "1 sent, 1 in a block"
    assert f"{tx.latest_hash} is in a block" in description(batch)
    assert not bars(batch, "wait"), "It waits for nothing."
    Transaction.objects.update(succeeded=False)
    assert f"{tx.latest_hash} was reverted" in description(batch)
    assert bars(batch, "stopped")
    Transaction.objects.update(state=TransactionState.DISPLACED, block_number=None)
    assert "Transactions" not in lanes(batch), "Its nonce was used by another one."


@pytest.mark.parametrize("count", [1, 11])
def test_a_step_whose_queries_all_wait_for_something_is_not_under_way(count):
    batch = a_batch(*many_accounts(count))
    assert (len(bars(batch, "run")), len(bars(batch, "wait"))) == (0, 1), "No worker has taken it up."
    accept(batch)
    assert (len(bars(batch, "run")), len(bars(batch, "wait"))) == (0, 1), "No worker runs."
    beat()
    complete(batch, StepKind.INITIAL_STATE)
    assert (len(bars(batch, "run")), len(bars(batch, "wait"))) == (1, 0)
    Block.objects.update(waiting_for="Waiting for attesters to vouch for block 12 of chain 31337.")
    assert (len(bars(batch, "run")), len(bars(batch, "wait"))) == (0, 1)
    assert ">waiting</span>" in page(batch)
    assert "under way" not in page(batch)


def test_a_path_to_an_old_block_has_a_lane():
    batch = a_batch()
    accept(batch)
    complete(batch, StepKind.INITIAL_STATE, StepKind.BLOCKHASH_AVAILABLE)
    plan_path(batch, 60, left=40)
    mine(send(batch, extends=deployed()), block=14)
    assert lanes(batch)["Path to block 12 of Development chain"] == "hops 20 of 60 done"
    assert "Transactions" not in lanes(batch), "They are drawn twice."
    # Where nothing is walked, as with attesters, they are transactions as any.
    plan_path(batch, 0, left=0)
    assert lanes(batch)["Transactions"] == "1 sent, 1 in a block"


def test_blocks_of_two_chains_with_the_same_number_have_a_lane_each(tmp_path):
    connect_source(tmp_path)
    batch = of_two_sources()
    for source in (31337, SOURCE):
        accept(batch, source)
    Block.objects.update(number=12)
    plan_path(batch, 60, left=40)
    of_both = {"Path to block 12 of Development chain", "Path to block 12 of Other chain"}
    assert of_both <= set(lanes(batch))


def test_of_many_transactions_it_says_how_many_there_are(monkeypatch):
    monkeypatch.setattr(transaction_display, "MOST_SHOWN", 2)
    batch = a_batch(*many_accounts(11))
    accept(batch)
    for number in range(3):
        Share.objects.create(transaction=send(batch, tx_hash=f"0x{number:064x}"), batch=batch, gas=1, wei=1, weight=1)
    assert lanes(batch)["Transactions"] == "the newest 2 of 3"


def test_what_fails_is_drawn_since_it_does():
    batch = a_batch()
    accept(batch)
    Block.objects.update(waiting_for="The node is down.", failing_since=timezone.now(), due_at=timezone.now())
    assert lanes(batch)["Fails"] == "tried again"
    assert "Fails: The node is down." in description(batch)


def test_a_rejection_ends_it_red():
    batch = a_batch()
    accept(batch)
    progress.reject([batch.pk], code=RejectionCode.BLOCK_TOO_OLD, reason="It is too old.", retryable=False)
    html = page(batch)
    assert re.search(r'<rect class="stopped" x="[\d.]+%"', html)
    assert "in all" in description(batch)


def test_of_too_many_queries_no_step_is_drawn(monkeypatch):
    monkeypatch.setattr(timelines, "MOST_QUERIES", 11)
    few, many = a_batch(*many_accounts(11)), a_batch(*many_accounts(12), block=13)
    accept(few)
    accept(many)
    assert list(lanes(few)) == ["Development chain"]
    assert "are not drawn" not in page(few)
    assert lanes(many) == {"The batch": "ACCEPTED"}
    assert "The steps of so many queries are not drawn." in page(many)


def test_a_page_about_one_query_of_several_has_none():
    batch = a_batch(*many_accounts(2))
    assert 'id="timeline"' in page(batch)
    assert 'id="timeline"' not in Client().get(f"{path(batch)}/1").text
