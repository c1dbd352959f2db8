"""The dashboard: newest batches, today's budget, and the last thirty days."""

import re
from datetime import UTC, timedelta
from typing import Any

import pytest
from django.utils import timezone

from accounts.models import ApiKey
from proving.models import Share
from queries.models import Batch, BatchStatus
from tests.explorer.batches import DEAD_NODE, a_batch, send
from tests.service import ALICE, BOB, a_key, chains_toml

pytestmark = pytest.mark.django_db

JSON = {"Accept": "application/json"}


def ended(ago: timedelta, *, status: str = BatchStatus.DONE, address: str = ALICE, **columns: Any) -> None:
    """Store a batch that ended `ago` before the end of yesterday."""
    key = ApiKey.objects.filter(user__address=address).first() or a_key(address)
    at = timezone.now().astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0) - ago
    values = {"size": 2, "created_at": at - timedelta(minutes=1), "finished_at": at, "status": status} | columns
    of_user = {"user": key.user, "api_key": key, "destination_chain_id": 31337, "fee": 0, "request": "{}"}
    Batch.objects.create(**of_user, deadline_at=at, **values)


def test_programs_get_the_keys_at_either_address(alice):
    key = a_key()
    expected = alice.get("/keys", headers=JSON).json()
    assert [entry["id"] for entry in expected["keys"]] == [key.pk]
    assert alice.get("/dashboard", headers=JSON).json() == expected


def test_the_dashboard_shows_the_used_and_the_remaining_daily_budget(alice, settings, tmp_path):
    limit = 'test_network = false\ndaily_limit_per_user = "0.5"'
    settings.CHAINS_FILE = chains_toml(tmp_path, DEAD_NODE, chain=limit)
    settings.ALLOWED_ADDRESSES = ["*"]
    batch = a_batch(fee=10**18)
    Batch.objects.update(status=BatchStatus.REJECTED)
    Share.objects.create(transaction=send(batch), batch=batch, gas=2_000_000, wei=10**17 + 1, weight=1)
    text = " ".join(re.sub(r"<[^>]+>", " ", alice.get("/dashboard").text).split())
    for sentence in ("0.100001 ETH of 0.5 ETH on", "0.399999… ETH are left."):
        assert sentence in text


def test_neither_cancelled_batches_nor_those_of_others_are_on_a_dashboard(alice):
    def chart() -> str:
        return str(alice.get("/dashboard").text.partition("<figure")[2].partition("</figure>")[0])

    ended(timedelta(days=1))
    before = chart()
    ended(timedelta(days=1), address=BOB)
    ended(timedelta(days=1), status=BatchStatus.REJECTED, rejection_code="cancelled_by_user")
    assert chart() == before
    ended(timedelta(days=1))
    assert chart() != before
