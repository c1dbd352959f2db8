"""The page of what can be proven where, and the operator's, in a real browser."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone
from playwright.sync_api import BrowserContext, Page, expect

from accounts.models import User
from proving.models import AttesterWatch, ChainWatch
from queries.models import Batch
from tests.browser.conftest import faults_for_anybody, weight
from tests.explorer.batches import REGISTRY, SOURCE, a_batch, connect_source, deployed
from tests.service import ALICE, BOB

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def connected(site: str, tmp_path: Path) -> None:
    """Two connections, one of which is in trouble."""
    connect_source(tmp_path)
    deployed()
    now = timezone.now()
    seen = {"looked_at": now, "seen_at": now, "timestamp": int(now.timestamp()), "number": 20_000, "final": 19_936}
    ChainWatch.objects.create(chain_id=31337, gas_price=10**9, keeps_hashes=True, **seen)
    down: list[Any] = [["chain_unavailable", "No node of Other chain (5) can be used: node.example can't be reached."]]
    ChainWatch.objects.create(chain_id=SOURCE, problems=down, **seen)
    said = [
        {"address": ALICE, "answer": "signed", "sentence": "It signs.", "since": now.isoformat()},
        {"address": BOB, "answer": "timed_out", "sentence": "It did not answer.", "since": now.isoformat()},
    ]
    AttesterWatch.objects.create(
        source_chain_id=SOURCE, destination_chain_id=31337, answered_at=now, block=19_900, answers=said
    )


@pytest.mark.usefixtures("connected")
def test_anybody_can_read_what_can_be_proven_where(page: Page, context: BrowserContext):
    page.goto("/chains")
    expect(page.get_by_role("article", name="Other chain to Development chain")).to_contain_text(
        "1 of 2 required attesters has signed"
    )
    expect(page.get_by_role("row", name="Development chain")).to_contain_text("20,000")
    expect(page.get_by_role("article").first).to_contain_text(REGISTRY)
    assert faults_for_anybody(page) == []
    assert weight(context, "/chains") < 60_000


@pytest.mark.usefixtures("connected")
def test_an_operator_sees_what_needs_a_person(
    page: Page, context: BrowserContext, sign_in_as: Callable[..., User], settings: Any
):
    settings.OPERATOR_ADDRESSES = [ALICE]
    sign_in_as(context, ALICE)
    batch = a_batch()
    failing = {"due_at": timezone.now(), "failing_since": timezone.now(), "attempts": 6}
    Batch.objects.filter(pk=batch.pk).update(**failing, waiting_for="No node serves the proof.")
    page.goto("/operator")
    expect(page.get_by_role("heading", level=1)).to_have_text("3 things need you")
    assert faults_for_anybody(page) == []
    assert weight(context, "/operator") < 60_000
    page.get_by_role("link", name="Failing batches").click()
    expect(page.get_by_role("link", name=batch.pk)).to_be_visible()
