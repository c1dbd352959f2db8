"""The client follows a batch by long polls, or by ordinary polls if the service has no long polls."""

from dataclasses import replace
from typing import Any

import pytest

from batch_query_client import BatchRejected, NotDoneInTime, NotFound, Unavailable, UnexpectedAnswer
from batch_query_client.effects import Unreachable
from batch_query_client.operations import Access, details, wait
from tests.client.answers import ID, batch, query
from tests.client.world import PATIENCE, World, answer

pytestmark = pytest.mark.outside

ACCESS = Access("https://service.example", "bqs_key", PATIENCE)

OPEN = {"queryStatus": "IN_PROGRESS"}
DONE = {"queryStatus": "DONE"}


def follow(world: World, **how: Any) -> Any:
    return world.run(wait(ACCESS, ID, timeout=how.get("timeout"), progress=how.get("progress")))


def waits(world: World) -> list[str]:
    """Return the `wait` parameter of each status request."""
    return [request.url.partition("&wait=")[2] for request in world.requests if "status" in request.url]


def test_a_service_that_keeps_the_question_is_asked_again_at_once():
    kept = answer(200, OPEN, after=25)
    world = World(kept, kept, answer(200, DONE), answer(200, batch()))
    assert follow(world).status == "DONE"
    assert world.pauses == []
    assert waits(world) == ["25"] * 3
    assert all(request.seconds > 25 for request in world.requests[:3])
    assert all(("api-key", "bqs_key") in request.headers for request in world.requests)


def test_an_advice_is_not_kept_to_beyond_the_caller_s_time():
    patient = Access("https://service.example", "bqs_key", replace(PATIENCE, seconds=15, advised_seconds=75))
    world = World(answer(429, retry_after="17"))
    with pytest.raises(Unavailable):
        world.run(wait(patient, ID, timeout=10, progress=None))
    assert world.pauses == []


def test_a_service_that_answers_at_once_is_asked_as_often_as_it_advises():
    same = answer(200, OPEN, retry_after="5", after=1)
    world = World(answer(200, OPEN, retry_after="2"), same, same, answer(200, DONE), answer(200, batch()))
    follow(world)
    assert world.pauses == [2, 4, 4]


def test_a_status_that_changes_at_each_question_is_not_asked_for_without_end():
    answers = [answer(200, OPEN | {"info": [str(n)]}, retry_after="0") for n in range(100)]
    world = World(*answers)
    with pytest.raises(NotDoneInTime):
        follow(world, timeout=10)
    assert len(world.requests) <= 21


def test_in_time_means_in_time():
    world = World(*[answer(200, OPEN | {"info": ["A node is down."]}, retry_after="4")] * 9)
    with pytest.raises(NotDoneInTime, match=rf"^The batch {ID} is not DONE after 10 s\. A node is down\.$") as caught:
        follow(world, timeout=10)
    assert world.seconds == 10
    assert caught.value.waits == ("A node is down.",)
    assert waits(world)[0] == "10"


def test_a_service_that_is_down_meanwhile_is_waited_for():
    lost = Unreachable("can't be reached", was_sent=False)
    assert follow(World(answer(200, OPEN), lost, answer(503), answer(200, DONE), answer(200, batch()))).status == "DONE"


def test_a_batch_that_has_just_gone_back_is_followed_on():
    world = World(
        *(answer(200, DONE), answer(200, batch(queryStatus="IN_PROGRESS"))),
        *(answer(200, OPEN), answer(200, DONE), answer(200, batch())),
    )
    assert follow(world).query_status == "DONE"


def test_a_rejection_is_raised():
    rejection = {"queryStatus": "REJECTED", "error": "Too old.", "code": "block_too_old", "retryable": False}
    with pytest.raises(BatchRejected, match=r"^Too old\.$") as caught:
        follow(World(answer(200, rejection)))
    assert (caught.value.code, caught.value.retryable, caught.value.internal_id) == ("block_too_old", False, ID)


def test_a_batch_that_is_not_ours_is_not_found():
    with pytest.raises(NotFound, match=r"^No query found$"):
        follow(World(answer(404, {"error": "No query found", "code": "not_found"})))


def test_progress_is_told_when_something_has_changed_and_at_the_end():
    first, second = batch(status="ACCEPTED", queriesCompleted=0), batch(queriesCompleted=1)
    kept = answer(200, OPEN, after=2, retry_after="15")
    world = World(
        *(answer(200, first), kept, answer(200, first), kept, answer(200, second), answer(200, DONE)),
        answer(200, batch(queriesCompleted=2)),
    )
    told = []
    follow(world, progress=lambda batch: told.append(batch.queries_completed))
    assert told == [0, 1, 2]
    assert waits(world) == ["2"] * 3
    # Retry-After applies only after an immediate answer, and these answers came after a long poll.
    assert world.pauses == []


def test_all_queries_are_taken_page_by_page():
    balance = {"property": "BALANCE", "word": "0x" + "00" * 31 + "07"}
    time = {"property": "BLOCK_AT_TIMESTAMP", "word": "0x" + "00" * 31 + "0f"}
    world = World(
        answer(200, batch(queryList=[query(1, balance)], next="a b&c")),
        answer(200, batch(queryList=[query(1, balance)], next="1.2")),
        answer(200, batch(queryList=[query(1, balance), query(2, time, selector="timestamp:99")])),
    )
    batch_details = world.run(details(ACCESS, ID))
    assert "cursor=a+b%26c" in world.requests[1].url
    assert [(fact.value, fact.account, fact.timestamp) for fact in batch_details.facts] == [
        *[(7, "0x" + "aa" * 20, None)] * 3,
        (15, "", 99),
    ]
    assert [len(listed.facts) for listed in batch_details.query_list] == [3, 1]
    assert batch_details.next is None


@pytest.mark.parametrize(
    "page",
    [
        batch(queryList=[query(1)], next="same"),
        batch(queryList=[], next="another"),
        batch(queryList=[query(1)], next="another"),
        batch(queryList=[query(n) for n in range(9)], next="another"),
    ],
)
def test_a_list_that_turns_in_circles_is_left(page):
    pages = [page if page["next"] == "same" else page | {"next": f"another {at}"} for at in range(9)]
    world = World(*[answer(200, told) for told in (batch(queryList=[query(1)], next="same"), *pages)])
    with pytest.raises(UnexpectedAnswer, match="doesn't end"):
        world.run(details(ACCESS, ID))
