"""What a user may have open, and keep stored."""

import hashlib
import json
import threading
from collections.abc import Iterator

import pytest
from django.db import connection, connections
from django.test import Client
from django.test.utils import CaptureQueriesContext

from accounts.models import ThrottleCount, User
from proving.models import AccountProof, SlotProof
from queries import submission
from queries.models import Batch, BatchStatus, Block, Query
from tests.disks import bytes_used, file_size
from tests.fixtures_folder import fixture_names, load_fixture, needs_fixtures
from tests.service import ALICE, BOB, a_key, header, request, submit

pytestmark = pytest.mark.django_db(transaction=True)


def of_two_blocks(first: int = 1) -> dict[str, object]:
    body = request(ALICE, block=first)
    body["data"]["31337"][f"block:{first + 1}"] = {"accounts": {ALICE: {"slots": ["0x1", "0x2"]}}}
    return body


@pytest.mark.parametrize(
    ("setting", "most", "code", "numbers"),
    [
        (
            "MAX_OPEN_BATCHES",
            1,
            "too_many_open_batches",
            "This batch would raise the number of your open batches from 1 to 2.",
        ),
        (
            "MAX_OPEN_QUERIES",
            7,
            "too_many_open_queries",
            "This batch would raise the number of your open accounts, slots and headers from 4 to 8. You may",
        ),
        (
            "MAX_OPEN_BLOCKS",
            3,
            "too_many_open_blocks",
            "This batch would raise the number of your open blocks from 2 to 4.",
        ),
    ],
)
@pytest.mark.parametrize("ended", [BatchStatus.DONE, BatchStatus.REJECTED])
def test_what_a_user_may_have_open_is_bounded(post, settings, setting, most, code, numbers, ended):
    assert post(of_two_blocks()).status_code == 200
    setattr(settings, setting, most)
    answer = post(of_two_blocks(first=10))
    assert (answer.status_code, answer.json()["code"]) == (429, code)
    assert answer.headers["Retry-After"] == "60"
    assert answer.json()["error"].startswith(numbers)
    assert (Batch.objects.count(), Block.objects.count(), Query.objects.count()) == (1, 2, 2)
    Batch.objects.update(status=ended)
    assert post(of_two_blocks()).status_code == 200


def test_another_user_has_room_of_their_own(post, client: Client, settings):
    settings.MAX_OPEN_BATCHES = 1
    assert [post(request(ALICE, block=1)).status_code for _ in range(2)] == [200, 429]
    body = json.dumps(request(ALICE, block=1))
    answer = client.post("/submit-batch-query", body, content_type="application/json", headers=header(a_key(BOB)))
    assert answer.status_code == 200


def test_a_user_may_fill_the_room_to_the_last(post, settings):
    settings.MAX_OPEN_BATCHES, settings.MAX_OPEN_QUERIES, settings.MAX_OPEN_BLOCKS = 2, 8, 4
    assert [post(of_two_blocks()).status_code for _ in range(3)] == [200, 200, 429]


def test_what_a_user_keeps_stored_is_bounded_whatever_became_of_it(post, key, settings):
    settings.MAX_STORED_MEGABYTES = 1
    large = json.dumps(request(ALICE, block=1)).encode() + b" " * 600_000
    assert post(large).status_code == 200
    key.user.refresh_from_db()
    rows, proofs = len(large) + 4096 + 300 + 520 + 160, 8400 + 900
    assert key.user.stored_bytes == Batch.objects.get().stored_bytes == rows + proofs
    Batch.objects.update(status=BatchStatus.REJECTED)
    answer = post(large)
    assert (answer.status_code, answer.json()["code"]) == (403, "storage_quota_exceeded")
    assert answer.json()["error"] == (
        "Your batches take about 0.6 MB, and this one would add 0.6 MB. You may keep 1 MB. Ask the operator of this "
        "service for more."
    )
    assert "Retry-After" not in answer.headers
    assert Batch.objects.count() == 1
    assert post(request(ALICE, block=1)).status_code == 200


def account(number: int) -> str:
    """Spread as the hashes are that addresses come from."""
    return f"0x{hashlib.sha256(b'%d' % number).hexdigest()[:40]}"


def with_slots(accounts: int, slots: int) -> dict[str, object]:
    short = [f"{slot:x}" for slot in range(slots)]
    return {"block:1": {"accounts": {account(number): {"slots": short} for number in range(accounts)}}}


BALANCE = {"props": ["BALANCE"]}
NASTY: dict[str, dict[str, object]] = {
    "one account": {"block:1": {"accounts": {account(0): BALANCE}}},
    "short slots of one account": with_slots(1, 9999),
    "a slot of each account": with_slots(2500, 1),
    "rows of more than half a page": with_slots(300, 28),
    "rows of a page": with_slots(170, 56),
    "rows of more than a page": with_slots(160, 58),
    "many accounts": {"block:1": {"accounts": {account(number): BALANCE for number in range(5000)}}},
    "many blocks": {f"block:{int(account(number), 16) >> 98}": {"header": ["NONCE"]} for number in range(5000)},
    "an account at each of many blocks": {
        f"block:{int(account(number), 16) >> 98}": {"accounts": {account(number): BALANCE}} for number in range(5000)
    },
    "many times": {f"timestamp:{number}": {"header": ["NONCE"]} for number in range(5000)},
    "long lists of properties": {
        "block:1": {"accounts": {account(number): {"props": ["STORAGE_ROOT"] * 16} for number in range(2000)}}
    },
    "long lists of header properties": {
        f"block:{number}": {"header": ["TRANSACTIONS_ROOT"] * 64} for number in range(1000)
    },
}


@pytest.mark.sqlite_only(reason="quotas count what rows take in SQLite's file")
@pytest.mark.parametrize("data", NASTY.values(), ids=NASTY)
def test_before_anything_is_proven_the_file_grows_by_no_more_than_is_counted_and_by_half_at_least(
    key, data, monkeypatch, settings
):
    settings.MAX_BATCHES_PER_MINUTE = 100
    monkeypatch.setattr(submission, "_proof_bytes", lambda *_: 0)
    bytes_used()
    before = file_size()
    # So many of small ones that it isn't by chance how full the last pages are.
    batches = [
        submit(key, {**request(ALICE, block=1), "data": {"31337": data}})
        for _ in range(100 if data is NASTY["one account"] else 2)
    ]
    counted = sum(batch.stored_bytes for batch in batches)
    assert counted / 2 <= file_size() - before <= counted


def test_proofs_are_counted_before_there_are_any(key):
    entry = {"props": ["BALANCE"], "slots": ["0x1", "0x2"]}
    without = submit(key, {**request(ALICE, block=1), "data": {"31337": {"block:1": {"header": ["NONCE"]}}}})
    with_three = submit(key, {**request(ALICE, block=1), "data": {"31337": {"block:1": {"accounts": {ALICE: entry}}}}})
    assert with_three.stored_bytes - without.stored_bytes > 3 * 8400


def of_depth(levels: int) -> list[str]:
    """A proof of the largest nodes, and a leaf."""
    return ["0x" + "ab" * 532] * (levels - 1) + ["0x" + "ab" * 60]


@pytest.mark.sqlite_only(reason="quotas count what rows take in SQLite's file")
@needs_fixtures
def test_proofs_take_no_more_than_is_counted_and_half_of_it_at_least(key):
    """The proofs are of accounts of Mainnet, and of slots as deep as those of the largest contracts."""
    fixtures = [load_fixture(name) for name in fixture_names("mainnet_*_depth*.json")]
    words = {"storage_root": "0x" + "ab" * 32, "code_hash": "0x" + "cd" * 32}
    submit(key, request(ALICE, block=1))
    block = Block.objects.get()
    bytes_used()
    before = file_size()
    accounts = [
        AccountProof(block=block, address=account(at), nodes=nodes, nonce=2**30, balance=2**90, **words)
        for at, nodes in enumerate([each["account"]["proof"] for each in fixtures] * (200 // len(fixtures)))
    ]
    AccountProof.objects.bulk_create(accounts)
    SlotProof.objects.bulk_create(
        [
            SlotProof(
                account=accounts[0], slot=f"0x{hashlib.sha256(b'%d' % at).hexdigest()}", nodes=of_depth(8), value=1
            )
            for at in range(200)
        ]
    )
    counted = (len(accounts) + 200) * submission._BYTES_PER_PROOF
    assert counted / 2 <= file_size() - before <= counted


def test_the_last_room_can_not_be_taken_twice_at_once(key, settings):
    settings.MAX_OPEN_BATCHES = 3
    start = threading.Barrier(8)
    refused: list[str] = []

    def send() -> None:
        start.wait()
        try:
            submit(key, request(ALICE, block=1))
        except submission.TooMuch as much:
            refused.append(much.code)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=send) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert Batch.objects.count() == 3
    assert refused == ["too_many_open_batches"] * 5


@pytest.mark.postgresql_only(reason="SQLite has no locks of rows")
def test_where_rows_are_locked_what_is_open_is_counted_after_the_lock(key):
    """A statement that waits for a lock reads what was there before it waited."""
    said: list[str] = []

    def note(execute, sql, values, many, context):
        if connection.in_atomic_block:
            said.append(sql)
        return execute(sql, values, many, context)

    with connection.execute_wrapper(note):
        submit(key, request(ALICE, block=1))
    locks = next(at for at, sql in enumerate(said) if sql.startswith('UPDATE "accounts_user"'))
    counts = next(at for at, sql in enumerate(said) if "COUNT(open." in sql)
    assert locks < counts


# --- Large batches ----------------------------------------------------------------------------------------------------


@pytest.fixture
def another_is_being_stored(monkeypatch) -> Iterator[None]:
    """A large batch, by this process."""
    monkeypatch.setattr(submission, "_TURN_SECONDS", 0.01)
    with submission._large_turn:
        yield


LARGE = with_slots(1, submission._LARGE)


def test_of_large_batches_one_is_stored_at_a_time(post, another_is_being_stored):
    answer = post({**request(ALICE, block=1), "data": {"31337": LARGE}})
    assert (answer.status_code, answer.json()["code"]) == (503, "busy")
    assert answer.headers["Retry-After"] == "2"
    assert not Batch.objects.exists()
    assert not ThrottleCount.objects.filter(pk__startswith="submitted queries").exists()


def test_small_batches_wait_for_no_large_one(post, another_is_being_stored):
    assert post({**request(ALICE, block=1), "data": {"31337": with_slots(1, submission._LARGE - 1)}}).status_code == 200


def test_the_turn_comes_before_the_lock(key, another_is_being_stored):
    """A batch that waits for its turn keeps nobody from writing."""
    with CaptureQueriesContext(connection) as statements, pytest.raises(submission.Busy):
        submit(key, {**request(ALICE, block=1), "data": {"31337": LARGE}})
    assert all(statement["sql"].startswith("SELECT") for statement in statements)


def test_after_a_large_batch_was_refused_the_next_one_has_its_turn(post, settings):
    large = {**request(ALICE, block=1), "data": {"31337": LARGE}}
    settings.MAX_OPEN_BATCHES = 0
    assert post(large).status_code == 403
    settings.MAX_OPEN_BATCHES = 1
    assert post(large).status_code == 200


def test_the_lock_is_held_for_few_statements_whatever_the_size(key):
    """Rows are prepared before the lock is taken: under it, each row's preparing would keep others waiting."""
    with CaptureQueriesContext(connection) as statements:
        submit(key, {**request(ALICE, block=1), "data": {"31337": NASTY["many accounts"]}})
    assert len(statements) < 40


# --- Limits of a user's own -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("column", "lower", "higher", "code"),
    [
        ("max_open_batches", 1, 2, "too_many_open_batches"),
        ("max_open_queries", 7, 8, "too_many_open_queries"),
        ("max_open_blocks", 3, 4, "too_many_open_blocks"),
        ("max_stored_megabytes", 0, 1, "storage_quota_exceeded"),
    ],
)
def test_what_an_operator_set_for_a_user_counts_instead_of_the_installations(
    post, settings, column, lower, higher, code
):
    assert post(of_two_blocks()).status_code == 200
    User.objects.update(**{column: lower})
    assert post(of_two_blocks(first=10)).json()["code"] == code
    setattr(settings, column.upper(), lower)
    User.objects.update(**{column: higher})
    assert post(of_two_blocks(first=10)).status_code == 200
    User.objects.update(**{column: None})
    assert post(of_two_blocks(first=20)).json()["code"] == code


@pytest.mark.parametrize(("column", "most"), [("max_open_batches", 0), ("max_open_queries", 3), ("max_open_blocks", 1)])
def test_a_batch_that_will_never_fit_is_not_to_be_sent_again(post, column, most):
    User.objects.update(**{column: most})
    answer = post(of_two_blocks())
    assert (answer.status_code, answer.json()["code"]) == (403, "too_large_for_limit")
    assert "Retry-After" not in answer.headers
    assert answer.json()["error"].startswith(f"You may have {most} ")


def test_the_refusal_names_the_users_own_limit(post):
    post(of_two_blocks())
    User.objects.update(max_open_batches=1)
    assert "You may have 1 open at a time." in post(of_two_blocks()).json()["error"]
