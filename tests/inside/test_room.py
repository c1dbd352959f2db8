"""What is counted of a batch, beside what the database's file grows by; and the order of locks."""

import hashlib

import pytest
from django.db import connection

from proving.models import AccountProof, SlotProof
from queries import submission
from queries.models import Block
from tests.disks import bytes_used, file_size
from tests.fixtures_folder import fixture_names, load_fixture, needs_fixtures
from tests.service import ALICE, request, submit

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("unreachable_chain")]


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
