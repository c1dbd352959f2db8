"""What a batch waits for: how old what a worker said is, and when it is over where that can be computed."""

import re
from datetime import timedelta
from pathlib import Path

import pytest
from django.utils import timezone

from proving.models import ChainHead, WorkerHeartbeat
from queries import progress
from queries.models import Batch, Block, StepKind
from tests.explorer.batches import (
    SOURCE,
    a_batch,
    accept,
    batch_at,
    beat,
    complete,
    connect_source,
    mine,
    of_two_sources,
    page,
    polled,
    queries_of,
    send,
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


def seen(chain: int, number: int, final: int) -> None:
    ChainHead.objects.update_or_create(
        chain_id=chain, defaults={"number": number, "final": final, "seen_at": timezone.now()}
    )


def expected_waits(batch: Batch) -> list[str]:
    """Return what the page expects, with its seconds in tens."""
    said = re.findall(r"([A-Z][^.]+? in about) (?:(\d+) min )?(\d+) s\.", note(batch))
    return [f"{what} {round((60 * int(minutes or 0) + int(seconds)) / 10) * 10} s" for what, minutes, seconds in said]


@pytest.mark.parametrize(
    ("confirmations", "final", "expected"),
    [
        ("confirmations = 40", 0, ["The transactions should be confirmed in about 30 s"]),
        ("confirmations = 3", 0, []),  # it has them
        ("confirmations = 40", 81, ["The transactions should be confirmed in about 20 s"]),  # it is final before
        ('confirmations = "finalized"', 10, ["The transactions should be confirmed in about 90 s"]),
        ('confirmations = "finalized"', 100, []),
    ],
)
def test_confirmations_come_as_fast_as_blocks(settings, confirmations, final, expected):
    settings.CHAINS_FILE.write_text(settings.CHAINS_FILE.read_text().replace("confirmations = 1", confirmations))
    batch = a_batch()
    accept(batch)
    complete(batch, StepKind.INITIAL_STATE, StepKind.BLOCKHASH_AVAILABLE)
    mine(send(batch), block=100)
    seen(31337, 109, final)
    assert expected_waits(batch) == expected
    if not expected:
        assert "be confirmed" not in page(batch)
        ChainHead.objects.update(number=101, final=99)
        assert "The transactions should be confirmed within a few seconds." in note(batch), "A block more is needed."


def test_a_block_that_is_to_come_and_one_that_attesters_wait_for(tmp_path: Path):
    connect_source(tmp_path)
    batch = of_two_sources()
    seen(31337, 2, 1)
    seen(SOURCE, 20, 2)
    for source in (31337, SOURCE):
        accept(batch, source)
    assert expected_waits(batch) == ["Block 12 of Development chain should be there in about 10 s"]
    progress.complete(batch.queries.filter(source_chain_id=SOURCE).values_list("pk", flat=True), StepKind.INITIAL_STATE)
    assert expected_waits(batch)[0] == "Block 9 of Other chain should be final in about 80 s"
    seen(SOURCE, 30, 9)
    assert expected_waits(batch) == ["Block 12 of Development chain should be there in about 10 s"]
    # Nobody vouches for the blocks of the chain itself.
    seen(31337, 20, 1)
    progress.complete(queries_of(batch), StepKind.INITIAL_STATE)
    assert expected_waits(batch) == []


def test_a_time_that_no_block_is_later_than():
    now = int(timezone.now().timestamp())
    batch = batch_at(
        **{f"timestamp_{now + 58}": {"header": ["GAS_USED"]}, f"timestamp_{now + 9}": {"header": ["NONCE"]}}
    )
    assert "in about" not in page(batch), "It isn't known yet whether it is waited for."
    accept(batch)
    assert expected_waits(batch) == [
        f"A block of Development chain after the time {now + 58} should be there in about 60 s"
    ]


@pytest.mark.parametrize(
    ("late", "said"), [(2, "within a few seconds"), (13, "by now: it was expected 13 s ago"), (-9.5, "in about 9 s")]
)
def test_what_should_be_over_is_said_to_be_late(late, said):
    batch = a_batch()
    seen(31337, 2, 1)
    ChainHead.objects.update(seen_at=timezone.now() - timedelta(seconds=10 + late))
    assert f"Block 12 of Development chain should be there {said}." in note(batch)


def test_nothing_is_promised_while_no_worker_runs():
    batch = a_batch()
    seen(31337, 2, 1)
    assert "data-about" in page(batch)
    WorkerHeartbeat.objects.all().delete()
    assert "data-about" not in page(batch)


def test_no_moment_is_told_of_a_block_that_no_batch_waits_for():
    batch = a_batch(block=2**63 - 1)
    seen(31337, 2, 1)
    assert expected_waits(batch) == []
