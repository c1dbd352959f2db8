"""Helpers for many folders: signed-in programs, concurrent calls, and waiting for a condition."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import pytest
from django.contrib.admin.models import LogEntry
from django.db import connection, connections
from django.db.models import Model
from django.test import Client

from accounts.models import User
from campaigns.rows import multiply
from queries.models import Batch, BatchStatus
from tests.service import waiting

SECONDS = 180
_T = TypeVar("_T")


def client_of(address: str, chain_id: int | None = None) -> Client:
    """Return a client in which this address is signed in. With a chain id, the user is the contract wallet there."""
    client = Client()
    client.force_login(User.objects.for_address(address, chain_id))
    return client


def copies(row: Model, count: int, **changed: str) -> None:
    """Store copies of a stored row, like `campaigns.rows.multiply`."""
    meta = row._meta
    assert meta.pk
    columns = ",".join(field.column for field in meta.local_fields if field.column and not field.generated)
    with connection.cursor() as cursor:
        multiply(cursor.execute, meta.db_table, columns, f"\"{meta.pk.column}\" = '{row.pk}'", count, **changed)


def until(
    condition: Callable[[], bool], what: str, seconds: float = SECONDS, says: Callable[[], object] = waiting
) -> None:
    """Wait for a condition. If it isn't met in time, fail with the batches' waits or with the text of `says`."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            pytest.fail(f"{what}: not within {seconds} s; waiting for {says()}")
        time.sleep(0.02)


def at_once(*calls: Callable[[], _T]) -> list[_T | Exception]:
    """Make these calls at the same moment, each in its own thread. Return their results or exceptions."""
    barrier = threading.Barrier(len(calls))

    def run(call: Callable[[], _T]) -> _T | Exception:
        barrier.wait(20)
        try:
            return call()
        except Exception as error:  # noqa: BLE001 (the test looks at it)
            return error
        finally:
            connections.close_all()

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(run, calls))


def is_done(*batches: Batch) -> bool:
    return all(Batch.objects.get(pk=batch.pk).status == BatchStatus.DONE for batch in batches)


def act(client: Client, rows: str, action: str, pk: object, **form: str) -> str:
    """Choose an action for a row of an admin list. Return the page that follows."""
    sent = {"action": action, "_selected_action": [pk], "index": "0", **form}
    return client.post(f"/admin/{rows}/", sent, follow=True).text


def log_of_operators() -> list[tuple[str, str, str]]:
    entries = LogEntry.objects.order_by("pk").select_related("user")
    return [(entry.user.address, entry.object_repr, entry.get_change_message()) for entry in entries]
