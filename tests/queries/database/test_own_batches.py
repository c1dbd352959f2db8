"""`GET /batch-queries` and `POST /batch-queries/{internalId}/cancel`."""

from datetime import UTC, datetime, timedelta
from itertools import count

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from campaigns.rows import BATCH_ID
from queries.models import Batch, BatchStatus, StepKind
from tests.explorer.batches import accept, complete, finish, queries_of, reject
from tests.factories import copies
from tests.plans import plans
from tests.service import ALICE, BOB, CHARLIE, a_key, fresh, header, request, submit, work

pytestmark = pytest.mark.outside


@pytest.fixture
def get(client: Client, key):
    """Return a function that requests the list with these query parameters."""

    def get(**parameters):
        answer = client.get("/batch-queries", parameters, headers=header(key))
        assert answer.status_code == 200, answer.content
        return answer.json()

    return get


@pytest.fixture
def cancel(client: Client, key):
    def cancel(batch_id, key=key):
        return client.post(f"/batch-queries/{batch_id}/cancel", headers=header(key))

    return cancel


def listed(answer) -> list[str]:
    return [batch["internalId"] for batch in answer["batchQueries"]]


# --- The list ---------------------------------------------------------------------------------------------------------


def test_the_list_of_own_batches_shows_how_each_stands(key, get):
    batch = accept(submit(key, request(ALICE, BOB, block=7, fee=2**200)))
    complete(batch, *StepKind, of=queries_of(batch)[:1])
    Batch.objects.update(gas_used=5, spent=2**100)
    created_at = Batch.objects.get().created_at
    (told,) = get()["batchQueries"]
    assert told == {
        "internalId": batch.pk,
        "status": "IN_PROGRESS",
        "queryStatus": "IN_PROGRESS",
        "label": None,
        "destinationChainId": "31337",
        "sourceChainIds": ["31337"],
        "fee": str(2**200),
        "sender": None,
        "createdAt": created_at.isoformat(),
        "finishedAt": None,
        "queries": 2,
        "queriesCompleted": 1,
        "gasUsed": 5,
        "spent": str(2**100),
        "rejection": None,
    }
    reject(batch, "block_too_old", "It is too old.", retryable=False)
    (told,) = get()["batchQueries"]
    assert (told["status"], told["queryStatus"]) == ("REJECTED", "REJECTED")
    assert told["rejection"] == {"code": "block_too_old", "error": "It is too old.", "retryable": False}
    assert datetime.fromisoformat(told["finishedAt"]).tzinfo == UTC


def test_pages_lead_from_the_newest_to_the_oldest_whatever_comes_meanwhile(key, get):
    batches = [submit(key, request(ALICE, block=1)).pk for _ in range(5)]
    page = get(limit=2)
    pages = [listed(page)]
    while page["next"]:
        submit(key, request(ALICE, block=1))
        page = get(limit=2, cursor=page["next"])
        pages.append(listed(page))
    assert [batch for page in pages for batch in page] == sorted(batches, reverse=True)
    assert list(map(len, pages)) == [2, 2, 1]


def test_only_one_s_own_are_listed_by_any_key(key, get, client: Client):
    submit(a_key(BOB), request(ALICE, block=1))
    batch = submit(key, request(ALICE, block=1))
    assert listed(get()) == [batch.pk]
    answer = client.get("/batch-queries", headers=header(a_key(ALICE, "another")))
    assert listed(answer.json()) == [batch.pk]
    assert client.get("/batch-queries").status_code == 401


def test_each_filter_leaves_others_out(key, get):
    def at(moment: datetime, batch: Batch) -> str:
        Batch.objects.filter(pk=batch.pk).update(created_at=moment)
        return batch.pk

    now = timezone.now()
    old = at(now - timedelta(days=2), submit(key, request(ALICE, block=1)))
    done = finish(submit(key, request(BOB, CHARLIE, block=2)))
    everything = [done.pk, old]
    for parameters, expected in (
        ({"status": "DONE"}, [done.pk]),
        ({"status": "RECEIVED"}, [old]),
        ({"destinationChainId": "31337"}, everything),
        ({"destinationChainId": "1"}, []),
        ({"sourceChainId": "31337"}, everything),
        ({"sourceChainId": "1"}, []),
        ({"account": BOB}, [done.pk]),
        ({"account": BOB.lower()}, [done.pk]),
        ({"account": ALICE}, [old]),
        ({"block": "1"}, [old]),
        ({"block": "3"}, []),
        ({"account": ALICE, "block": "2"}, []),
        ({"createdAfter": (now - timedelta(days=1)).isoformat()}, [done.pk]),
        ({"createdBefore": (now - timedelta(days=1)).isoformat().replace("+00:00", "Z")}, [old]),
        ({"createdAfter": "2020-01-01T00:00:00+14:00", "createdBefore": "2021-01-01T00:00:00Z"}, []),
    ):
        assert listed(get(**parameters)) == expected, parameters


@pytest.mark.parametrize(
    "parameters",
    [
        *({"limit": limit} for limit in ("0", "101", "-1", "x", "")),
        *({"status": status} for status in ("done", "x", "\x00")),
        *(
            {"block": number}
            for number in ("-1", "1.0", "01", "1_0", " 1", "9223372036854775808", "9" * 5000, "\u0661")
        ),
        {"destinationChainId": "x"},
        {"sourceChainId": "0x1"},
        {"limit": "x", "block": "y", "status": "z"},
        *({"account": account} for account in ("0x12", "vitalik.eth", ALICE.swapcase(), "\x00")),
        *({"createdAfter": at} for at in ("yesterday", "2026-01-01T00:00:00", "0001-01-01T00:00:00+14:00", "")),
        *({"cursor": cursor} for cursor in ("x", "0" * 25, "\x00", "'" * 26)),
    ],
    ids=str,
)
def test_each_malformed_parameter_is_named(client: Client, key, parameters):
    answer = client.get("/batch-queries", parameters, headers=header(key))
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_request")
    assert not [name for name in parameters if name not in answer.json()["error"]]


@pytest.mark.parametrize(("filters", "most"), [({}, 3), ({"block": "1"}, 4)], ids=str)
def test_a_page_takes_few_statements_and_reads_only_what_is_the_user_s(key, get, filters, most):
    for _ in range(3):
        submit(key, request(*(f"0x{number:040x}" for number in range(60)), block=1))
    taken = []
    for limit in (1, 3):
        with CaptureQueriesContext(connection) as statements:
            assert len(get(limit=limit, account=f"0x{1:040x}", **filters)["batchQueries"]) == limit
        taken.append(len(statements))
        assert not [line for line in plans(statements) if line.startswith("SCAN")], plans(statements)
    assert taken == [most, most]


# --- The cost of all lists --------------------------------------------------------------------------------------------


def steps_of(client: Client, path: str, parameters: dict[str, str], headers: dict[str, str]) -> int:
    """Return the number of instructions (in hundreds) that SQLite's virtual machine takes for a list."""
    taken = count()
    connection.ensure_connection()
    connection.connection.set_progress_handler(lambda: next(taken) < 0, 100)
    assert client.get(path, parameters, headers=headers).status_code == 200
    connection.connection.set_progress_handler(None, 0)
    return 100 * next(taken)


@pytest.mark.long
@pytest.mark.sqlite_only(reason="PostgreSQL counts no steps")
def test_no_list_takes_more_steps_than_in_proportion_to_the_rows(key, client: Client, settings):
    settings.PUBLIC_BATCH_LIST = True
    own, other = submit(key, request(ALICE, block=1)), submit(a_key(BOB), request(CHARLIE, block=2))
    finish(own)
    finish(other)
    by_key, browser = header(key), {"accept": "text/html"}
    # Each list with the instructions that copies of the two batches may add. 0 means that an index leads to the shown
    # rows only.
    lists = [
        *(
            ("/batch-queries", parameters, by_key, most)
            for parameters, most in (
                ({"account": CHARLIE}, 30),
                ({"account": CHARLIE, "status": "DONE"}, 30),
                ({"account": CHARLIE, "block": "1"}, 30),
                ({"account": CHARLIE, "sourceChainId": "31337"}, 30),
                ({"account": ALICE, "limit": "1"}, 30),
                ({"block": "2"}, 30),
                ({"sourceChainId": "1"}, 30),
                ({"status": "REJECTED"}, 30),
                ({"createdAfter": "2020-01-01T00:00:00Z", "limit": "1"}, 30),
                ({"limit": "1"}, 0),
            )
        ),
        ("/facts", {"account": ALICE, "limit": "1"}, by_key, 0),
        ("/facts", {"account": ALICE, "slot": "2"}, by_key, 30),
        ("/facts", {}, browser, 0),
        ("/chains", {}, browser, 20),
        ("/explorer", {"q": CHARLIE, "status": "REJECTED"}, browser, 30),
        ("/explorer", {"q": "no label has this", "of": "everybody"}, browser, 0),
    ]
    client.force_login(key.user)

    def taken() -> list[int]:
        return [steps_of(client, path, parameters, headers) for path, parameters, headers, _ in lists]

    taken()
    before, rows = taken(), 1000
    for index, batch in enumerate((own, other)):
        query = batch.queries.get()
        copies(fresh(batch), rows, id=BATCH_ID.format("EF"[index]))
        copies(query, rows, batch_id=BATCH_ID.format("EF"[index]))
    for (path, parameters, _, most), few, many in zip(lists, before, taken(), strict=True):
        assert many - few <= most * rows + 3000, (path, parameters, few, many)


# --- Cancelling -------------------------------------------------------------------------------------------------------


def test_an_open_batch_is_cancelled_for_good(key, cancel, get):
    batch = submit(key, request(ALICE, block=1))
    for _ in range(2):  # a client repeats a request whose answer was lost
        answer = cancel(batch.pk)
        assert (answer.status_code, answer.json()) == (200, {"internalId": batch.pk, "queryStatus": "REJECTED"})
    (told,) = get()["batchQueries"]
    assert told["rejection"] == {
        "code": "cancelled_by_user",
        "error": "The user who submitted the batch has cancelled it with an API key.",
        "retryable": False,
    }


@pytest.mark.long
def test_a_batch_cancelled_while_its_transaction_is_on_the_way_stays_cancelled(service, key, cancel):
    service.rpc("evm_setAutomine", False)
    batch = submit(key, request(ALICE, block=1))
    work(2)
    assert fresh(batch).status == BatchStatus.IN_PROGRESS
    step = batch.queries.get().step
    assert cancel(batch.pk).status_code == 200
    for _ in range(3):
        service.mine()
        work()
    assert (fresh(batch).status, batch.queries.get().step) == (BatchStatus.REJECTED, step)


@pytest.mark.parametrize("end", ["DONE", "REJECTED"])
def test_an_ended_batch_is_not_cancelled(key, cancel, end):
    batch = submit(key, request(ALICE, block=1))
    if end == "DONE":
        finish(batch)
    else:
        reject(batch, "block_too_old", "It is too old.", retryable=False)
    before = Batch.objects.values().get()
    answer = cancel(batch.pk)
    assert (answer.status_code, answer.json()["code"]) == (409, "already_finished")
    assert end in answer.json()["error"]
    assert Batch.objects.values().get() == before


def test_another_user_s_batch_is_not_found(key, cancel):
    batch = submit(key, request(ALICE, block=1))
    for batch_id, by in ((batch.pk, a_key(BOB)), ("0" * 26, key), ("%00", key), ("x" * 300, key)):
        answer = cancel(batch_id, by)
        assert (answer.status_code, answer.json()) == (404, {"error": "No query found", "code": "not_found"})
    assert Batch.objects.get().status == BatchStatus.RECEIVED
