"""Events are stored in the same transaction as the change that they report."""

import json
from collections.abc import Sequence

import pytest
from django.db import transaction

from queries import progress
from queries.models import Batch, StepKind, Webhook
from tests.explorer.batches import REORGANISED as WHY
from tests.explorer.batches import accept, queries_of
from tests.service import ALICE, request, submit

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("unreachable_chain")]


INITIAL, AVAILABLE, HEADER, _ = StepKind
THREE = ["DONE", "REJECTED", "WENT_BACK"]


def with_webhook(key, *, events: Sequence[str] = (*THREE, "STEP"), block: int = 12) -> Batch:
    webhook = {"url": "https://hooks.example.org", "events": events}
    accept(batch := submit(key, {**request(ALICE, block=block), "webhook": webhook}))
    return batch


def events_of(batch: Batch) -> list[tuple[str, str]]:
    bodies = [json.loads(row.body) for row in batch.webhook.deliveries.order_by("pk")]
    return [(body["type"].partition(".")[2], body["data"].get("step", "")) for body in bodies]


@pytest.fixture
def batch(key) -> Batch:
    return with_webhook(key)


def complete(batch: Batch, *kinds: StepKind) -> None:
    for kind in kinds:
        progress.complete(queries_of(batch), kind)


def test_before_done_it_is_told_to_those_who_were_told_of_the_step(key):
    with_steps, without = with_webhook(key), with_webhook(key, events=THREE, block=13)
    for batch in (with_steps, without):
        complete(batch, INITIAL, AVAILABLE)
        # The webhook has no event about HEADER, so none reports that the step is undone.
        progress.reopen(queries_of(batch), HEADER, reason=WHY)
        progress.reopen(queries_of(batch), AVAILABLE, reason=WHY)
        progress.reopen(queries_of(batch), AVAILABLE, reason=WHY)
    steps = [("step_completed", INITIAL), ("step_completed", AVAILABLE)]
    assert events_of(with_steps) == [*steps, ("went_back", AVAILABLE)]
    assert events_of(without) == []


def test_what_is_rolled_back_is_told_to_nobody(batch):
    with transaction.atomic():
        complete(batch, *StepKind)
        assert events_of(batch)
        transaction.set_rollback(True)
    assert events_of(batch) == []
    assert Webhook.objects.get().due_at is None
