"""What a batch waits for: how old what a worker said is."""

import re
from datetime import timedelta

import pytest
from django.utils import timezone

from queries.models import Batch, Block
from tests.explorer.batches import (
    a_batch,
    accept,
    beat,
    page,
    polled,
)
from tests.explorer.pages import text_of
from tests.service import work

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def worker() -> None:
    beat()


def note(batch: Batch) -> str:
    """Return what the page says of the batch's waits: in a note, or beside its status while all goes well."""
    html = page(batch)
    found = re.search(r'<div class="note wait">.*?</div></div>', html, re.DOTALL) or re.search(
        r"<p>It (?:is|was) .*?</p>", html, re.DOTALL
    )
    assert found
    # Of what is hidden nobody reads anything.
    return text_of(f"<main>{re.sub(r'<span[^>]* hidden>.*?</span>[^<]*</span>', '', found[0])}</main>").replace(
        " .", "."
    )


def test_what_a_worker_said_has_its_age_as_soon_as_that_is_more_than_a_few_seconds():
    batch = a_batch()
    accept(batch)
    Block.objects.update(waiting_for="The signer is busy.", looked_at=timezone.now())
    assert note(batch) == "The signer is busy."
    Block.objects.update(looked_at=timezone.now() - timedelta(seconds=72))
    assert note(batch) == "The signer is busy. This was so 1 min 12 s ago."


def test_who_looks_notes_when():
    batch = a_batch()
    began = timezone.now() - timedelta(seconds=1)
    work()
    batch.refresh_from_db()
    assert batch.waiting_for
    assert batch.looked_at
    assert batch.looked_at > began
    accept(batch)
    work()
    block = Block.objects.get()
    assert block.waiting_for
    assert block.looked_at
    assert block.looked_at > began


def test_a_look_that_found_the_same_is_news():
    batch = a_batch()
    accept(batch)
    Block.objects.update(waiting_for="The signer is busy.", looked_at=timezone.now() - timedelta(minutes=1))
    found = re.search(r"version=(\w+)", page(batch))
    assert found
    assert polled(batch, version=found[1]).status_code == 204
    Block.objects.update(looked_at=timezone.now())
    assert polled(batch, version=found[1]).status_code == 200
