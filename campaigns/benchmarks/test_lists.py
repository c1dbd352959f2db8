"""Time of lists over 100,000 rows, many of which have equal sort keys.

`python -m pytest campaigns/benchmarks/test_lists.py -q [--database postgresql]` prints the median of five answers for
each list. It fails if a median is above `_MOST_MILLISECONDS`. `LISTS=text` measures only lists whose line contains the
text.
"""

import os
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from itertools import chain
from pathlib import Path
from urllib.parse import urlencode

import pytest
from django.db import DatabaseError, connection, transaction
from django.test import Client
from django.utils import timezone

from accounts import read_rate
from accounts.models import AccountEvent, ApiKey, EventKind
from campaigns.rows import BATCH_ID
from proving.models import AccountProof, Share, SlotProof, Transaction
from proving.reading.fact_search import START
from queries.models import Batch, Block, DeliveryStatus, Query, Webhook, WebhookDelivery
from tests.explorer.batches import batch_at, beat, finish, mine, send, settle, word
from tests.factories import client_of, copies
from tests.service import ALICE, BOB, CHARLIE, SIGNER, a_key, header

pytestmark = pytest.mark.django_db

_ROWS = int(os.environ.get("ROWS", "100000"))
_MOST_MILLISECONDS = 250
_ROUNDS, _PATIENCE_SECONDS = 5, 4
_NOBODY = "0x" + "0" * 38 + "01"
_EQUAL, _APART, _LARGE = "E", "F", "G"


def batch_id(place: str, number: str = "i") -> str:
    return BATCH_ID.format(place).replace("i AS", f"{number} AS")


def fill() -> None:
    """Store equally many batches of Alice and Bob, and fewer of Charlie.

    Alice's batches are about Alice at block 12, with equal times. Bob's are about Charlie, each at a different block.
    Each of Charlie's has 2,000 queries at block 14.
    """
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
    for user in (ALICE, BOB, CHARLIE):
        a_key(user)
    equal = batch_at(block_12={"accounts": {ALICE: {"props": ["BALANCE"], "slots": [word(1)]}}})
    apart = batch_at(block_13={"accounts": {CHARLIE: {"props": ["BALANCE"]}}})
    large = batch_at(block_14={"accounts": {SIGNER: {"props": ["BALANCE"]}}})
    for batch, owner in ((equal, ALICE), (apart, BOB), (large, CHARLIE)):
        Batch.objects.filter(pk=batch.pk).update(
            user_id=ApiKey.objects.get(user__address=owner).user_id,
            api_key_id=ApiKey.objects.get(user__address=owner).pk,
        )
        finish(batch)
        batch.refresh_from_db()
    tx = send(equal)
    mine(tx, block=20)
    settle(equal)
    share = Share.objects.create(transaction=tx, batch=equal, gas=1, wei=1, weight=1)
    copies(equal, _ROWS, id=batch_id(_EQUAL))
    copies(equal.queries.get(), _ROWS, batch_id=batch_id(_EQUAL))
    copies(apart, _ROWS, id=batch_id(_APART), created_at=_earlier())
    block = Block.objects.get(number=13)
    copies(block, _ROWS, number="1000000 + i")
    its_block = "(SELECT id FROM queries_block b WHERE b.number = 1000000 + i)"
    copies(apart.queries.get(), _ROWS, batch_id=batch_id(_APART), block_id=its_block)
    copies(AccountProof.objects.get(block=block), _ROWS, block_id=its_block)
    copies(large, _ROWS // 2000, id=batch_id(_LARGE))
    copies(
        large.queries.get(),
        _ROWS,
        batch_id=batch_id(_LARGE, f"(1 + i % {_ROWS // 2000})"),
        position="i",
        address="'0x' || CAST(1000000000 + i AS TEXT) || '000000000000000000000000000000'",
    )
    copies(tx, _ROWS, nonce="i")
    first = Transaction.objects.order_by("pk")[1].pk - 1
    copies(
        tx.versions.get(),
        _ROWS,
        transaction_id=f"{first} + i",
        hash="'0x' || CAST(1000000000 + i AS TEXT) || '000000000000000000000000000000000000000000000000000000'",
    )
    copies(share, _ROWS, transaction_id=f"{first} + i", batch_id=batch_id(_EQUAL))
    through = Transaction.queries.through
    like = f"FROM queries_query WHERE batch_id LIKE '0{_EQUAL}%'"
    with connection.cursor() as cursor:
        cursor.execute(f"INSERT INTO {through._meta.db_table} (transaction_id, query_id) SELECT {tx.pk}, id {like}")
    slot = SlotProof.objects.first()
    assert slot
    copies(slot, _ROWS, slot="'0x' || CAST(1000000000 + i AS TEXT) || '000000000000000000000000000000000000000000'")
    _fill_webhooks(equal, large)
    event = AccountEvent.objects.create(user=equal.user, kind=EventKind.SIGNED_IN)
    copies(event, _ROWS)
    key = ApiKey.objects.get(user=equal.user)
    # A user can only have this many keys if most of them are revoked.
    copies(key, _ROWS, key_hash="CAST(i AS TEXT)", revoked_at="created_at")
    beat()
    if connection.vendor == "postgresql":
        # PostgreSQL's autovacuum would do the same later. SQLite isn't analysed in production either.
        with connection.cursor() as cursor:
            cursor.execute("ANALYZE")
            cursor.execute("SET LOCAL max_parallel_workers_per_gather = 0")


def _fill_webhooks(equal: Batch, large: Batch) -> None:
    """Store many deliveries of one webhook of Alice, and one delivery to each of many webhooks of Charlie."""
    values = {"user": equal.user, "events": ["DONE"], "receiver": "a:443", "sealed": b""}
    ended = {"status": DeliveryStatus.DELIVERED, "ended_at": timezone.now(), "gives_up_at": timezone.now()}
    for batch in (equal, large):
        webhook = Webhook.objects.create(batch=batch, **values)
    told = {"event": "DONE", "body": '{"data": {}}'}
    delivery = WebhookDelivery.objects.create(webhook=webhook, user=equal.user, **told, **ended)
    copies(delivery, _ROWS, message_id="'msg_' || " + batch_id("A"))
    of_charlie = {"user_id": str(large.user_id)}
    copies(webhook, _ROWS, batch_id=batch_id("W"), receiver="'host' || i % 100 || ':443'", **of_charlie)
    copies(delivery, _ROWS, message_id="'msg_' || " + batch_id("B"), webhook_id=batch_id("W"), **of_charlie)


def _earlier() -> str:
    return (
        "datetime(created_at, '-' || i || ' seconds')"
        if connection.vendor == "sqlite"
        else "created_at - i * interval '1 second'"
    )


def processor_seconds() -> float:
    """Return the processor time of this process and PostgreSQL. Other processes on this machine don't count."""
    if connection.vendor == "sqlite":
        return time.process_time()
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        fields = Path(f"/proc/{cursor.fetchone()[0]}/stat").read_text().rpartition(")")[2].split()
    return time.process_time() + sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def stopped_after(seconds: float) -> Iterator[None]:
    """Stop a statement that takes longer, so that the next list can be measured."""
    deadline = time.process_time() + seconds
    with suppress(DatabaseError), transaction.atomic():
        if connection.vendor == "sqlite":
            connection.connection.set_progress_handler(lambda: time.process_time() > deadline, 100_000)
        else:
            with connection.cursor() as cursor:
                cursor.execute(f"SET LOCAL statement_timeout = '{3 * seconds:.0f}s'")
        yield


Asked = tuple[str, str, dict[str, str]]
"""The requesting user (with `*` in a browser, empty for nobody), the path and the parameters."""


def middles() -> dict[str, str]:
    """Return the id of the middle batch of each kind."""
    return {place: f"0{place}00000000000000{1000000000 + _ROWS // 2}" for place in (_EQUAL, _APART, _LARGE)}


def lists_of_batches() -> Iterator[Asked]:
    middle = middles()
    now, ago = timezone.now().isoformat(), (timezone.now() - timedelta(days=9)).isoformat()
    noon = (timezone.now() - timedelta(seconds=_ROWS // 2)).isoformat()
    for user, own, others in ((ALICE, _EQUAL, CHARLIE), (BOB, _APART, ALICE), (CHARLIE, _LARGE, ALICE)):
        for parameters in (
            {},
            {"cursor": middle[own]},
            {"limit": "100", "cursor": middle[own]},
            *({"status": status} for status in ("DONE", "REJECTED", "RECEIVED")),
            {"status": "DONE", "cursor": middle[own]},
            {"account": others},
            {"account": others, "cursor": middle[own]},
            {"account": {ALICE: ALICE, BOB: CHARLIE, CHARLIE: SIGNER}[user]},
            {"account": _NOBODY},
            {"account": others, "status": "DONE"},
            {"account": others, "block": "12"},
            {"account": others, "block": "13"},
            {"account": others, "sourceChainId": "1"},
            {"account": others, "createdAfter": ago},
            {"account": others, "createdBefore": now},
            *({"block": block} for block in ("12", "13", "14", "99", str(1000000 + _ROWS // 2))),
            {"block": "12", "cursor": middle[own]},
            {"sourceChainId": "31337"},
            {"sourceChainId": "1"},
            {"destinationChainId": "1"},
            {"createdAfter": now},
            {"createdAfter": ago},
            {"createdAfter": noon},
            {"createdBefore": noon},
            {"createdBefore": ago},
            {"createdAfter": ago, "createdBefore": noon, "status": "DONE"},
        ):
            yield user, "/batch-queries", parameters


def lists_of_facts() -> Iterator[Asked]:
    for place in ({"account": ALICE}, {"account": CHARLIE}, {"block": "12"}, {"block": "14"}, _BOTH, _OTHER):
        at = Query.objects.filter(**_column(place)).order_by("block_id", "pk")[_ROWS // 2 : _ROWS // 2 + 1]
        cursor = next((f"{query.block_id}.{query.pk}.0" for query in at), START)
        for more in (
            {},
            {"limit": "100"},
            {"cursor": cursor},
            {"slot": word(1)},
            {"slot": word(2)},
            {"slot": word(2), "cursor": cursor},
            {"property": "BALANCE"},
            {"property": "NONCE"},
            {"property": "SLOT"},
            {"property": "BLOCK_AT_TIMESTAMP"},
            {"sourceChainId": "1"},
            {"destinationChainId": "1"},
        ):
            yield BOB, "/facts", place | more
        yield "*" + BOB, "/facts", place | {"slot": word(2)}
        yield "*" + BOB, "/facts", place
        yield "*" + BOB, "/facts.csv", place
        yield "*" + BOB, "/facts.csv", place | {"slot": word(2)}


def lists_of_deliveries() -> Iterator[Asked]:
    half = str(WebhookDelivery.objects.order_by("pk")[_ROWS // 2].pk)
    for parameters in (
        {},
        {"cursor": half},
        *({"status": status} for status in ("DELIVERED", "FAILED", "PENDING")),
        {"status": "FAILED", "cursor": half},
        *({"internalId": pk} for pk in (*Webhook.objects.values_list("pk", flat=True)[:2], "0" * 26)),
        {"internalId": str(WebhookDelivery.objects.values_list("webhook_id", flat=True)[0]), "status": "FAILED"},
    ):
        yield ALICE, "/webhook-deliveries", parameters
    yield BOB, "/webhook-deliveries", {}
    yield BOB, "/webhook-deliveries", {"status": "FAILED"}
    yield "*" + CHARLIE, "/webhooks", {}
    yield "*" + CHARLIE, "/webhooks", {"before": str(2 * int(half))}


def pages() -> Iterator[Asked]:
    middle, today = middles(), timezone.now().date().isoformat()
    for asker in ("*" + ALICE, "*" + BOB, ""):
        for path in ("/explorer",):
            for parameters in (
                {},
                {"of": "everybody"},
                *({"status": status} for status in ("DONE", "REJECTED")),
                {"chain": "1"},
                {"source": "31337"},
                *({"source": source, "status": "DONE"} for source in ("31337", "1")),
                *({"property": name} for name in ("BALANCE", "NONCE", "SLOT")),
                {"property": "NONCE", "before": middle[_EQUAL]},
                {"since": today},
                {"until": today},
                {"since": "2001-01-01", "until": "2001-01-01"},
                {"since": "2001-01-01", "until": today, "status": "REJECTED"},
                {"q": middle[_EQUAL][:8]},
                {"q": middle[_EQUAL][:25]},
                *({"before": before} for before in middle.values()),
                *({"q": text} for text in (ALICE, CHARLIE, SIGNER, _NOBODY, "12", "13", "14", "99", "0x" + "7a" * 32)),
                *({"q": text} for text in ("0x" + "ab" * 32, f"{1000000 + _ROWS // 2}")),
                {"q": ALICE, "status": "REJECTED"},
                {"q": CHARLIE, "status": "REJECTED"},
                {"q": "12", "status": "REJECTED"},
                {"q": CHARLIE, "before": middle[_EQUAL]},
            ):
                yield asker, path, parameters
        yield asker, "/explorer", {"after": middle[_EQUAL]}
        yield asker, "/explorer.csv", {}
        yield asker, "/explorer.csv", {"q": CHARLIE, "status": "REJECTED"}
        for path in ("/", "/dashboard", "/facts", "/chains", "/keys", "/dashboard/log"):
            yield asker, path, {}
    for path in ("/chain-connections", "/healthz", "/metrics"):
        yield ALICE, path, {}
    yield "*" + SIGNER, "/operator", {}


_BOTH = {"account": ALICE, "block": "12"}
_OTHER = {"account": _NOBODY, "block": "14"}


def _column(place: dict[str, str]) -> dict[str, str]:
    return {{"account": "address", "block": "block__number"}[name]: text for name, text in place.items()}


def test_lists(settings, capsys, monkeypatch):
    settings.PUBLIC_BATCH_LIST = True
    settings.OPERATOR_ADDRESSES = [SIGNER]
    monkeypatch.setattr(read_rate, "READS_PER_MINUTE", 10**6)
    began = time.monotonic()
    fill()
    pattern, slow = os.environ.get("LISTS", ""), []
    with capsys.disabled():
        print(f"\n{connection.vendor}, {_ROWS:,} rows, filled in {time.monotonic() - began:.0f} s; milliseconds, rows")
        names = {ALICE: "equal", BOB: "apart", CHARLIE: "large", SIGNER: "operator", "": "anyone"}
        for asker, path, parameters in chain(lists_of_batches(), lists_of_facts(), lists_of_deliveries(), pages()):
            name = f"{names[asker.strip('*')]:8} {path}{'?' if parameters else ''}{urlencode(parameters)}"
            for address, word_of in ((ALICE, "ALICE"), (CHARLIE, "CHARLIE"), (_NOBODY, "NOBODY"), (SIGNER, "SIGNER")):
                name = name.replace(address, word_of)
            if pattern not in name:
                continue
            if asker.startswith("*"):
                client, headers = client_of(asker[1:]), {"accept": "text/html"}
            elif asker:
                client, headers = Client(), header(ApiKey.objects.filter(user__address=asker).earliest("pk"))
            else:
                client, headers = Client(), {"accept": "text/html"}
            taken = []
            for _ in range(_ROUNDS):
                began = processor_seconds()
                with stopped_after(_PATIENCE_SECONDS):
                    answer = client.get(path, parameters, headers=headers)
                taken.append(1000 * (processor_seconds() - began))
                if taken[0] > 1500:
                    break
            milliseconds = statistics.median(taken)
            slow += [name] if milliseconds > _MOST_MILLISECONDS else []
            mark = "SLOW" if milliseconds > _MOST_MILLISECONDS else ""
            print(f"{milliseconds:8.0f} {answer.status_code} {len(answer.content):8} {mark:4} {name}", flush=True)
    assert not slow
