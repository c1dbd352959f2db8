"""Rows of lists and titles of pages show only values that anyone can read from the registry."""

import re
from html import unescape

import pytest
from django.test import Client

from proving.models import AccountProof
from queries.models import Batch, StepKind
from tests.explorer.batches import a_batch, complete, deployed, finish, page, reopen
from tests.factories import client_of
from tests.service import ALICE

pytestmark = [pytest.mark.django_db, pytest.mark.outside]

CHAIN = "Development chain"


def title(batch: Batch) -> str:
    match = re.search(r'og:title" content="([^"]*)"', page(batch))
    assert match
    return unescape(match[1])


def test_no_value_is_told_that_the_registry_may_not_hold():
    batch = a_batch()
    finish(batch)
    AccountProof.objects.update(balance=10**18)

    def told(client: Client) -> bool:
        line = " ".join(re.sub("<[^>]+>", "", client.get("/explorer").text).split())
        assert f"Balance of {ALICE} at block 12" in line
        return "at block 12 = 1 ETH" in line

    alice = client_of(ALICE)
    assert told(alice)
    registry = deployed()
    registry.deployed_at = None
    registry.save()
    assert not told(alice)
    deployed()
    reopen(batch, StepKind.ACCOUNT_ACCUMULATED)
    assert (told(alice), title(batch)[-len(CHAIN) :]) == (False, CHAIN)
    complete(batch, StepKind.ACCOUNT_ACCUMULATED)
    Batch.objects.update(status="REJECTED")
    assert not told(alice)
