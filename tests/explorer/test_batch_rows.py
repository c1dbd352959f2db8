"""Lines of lists, and the titles of batches' pages: what was asked and what came out, in words."""

import re
from html import unescape

import pytest
from django.test import Client

from proving.models import AccountProof
from queries.models import Batch, StepKind
from tests.explorer.batches import a_batch, batch_at, complete, deployed, finish, page, reopen
from tests.factories import client_of
from tests.service import ALICE

pytestmark = [pytest.mark.django_db, pytest.mark.outside]

SHORT, CHAIN = f"{ALICE[:6]}…{ALICE[-4:]}", "Development chain"


def title(batch: Batch) -> str:
    found = re.search(r'og:title" content="([^"]*)"', page(batch))
    assert found
    return unescape(found[1])


def account(**asked: object) -> dict[str, object]:
    return {"accounts": {ALICE: asked}}


@pytest.mark.parametrize(
    ("asked", "said", "answer"),
    [
        ({"block_12": account(props=["BALANCE"])}, f"Balance of {SHORT} at block 12", "123,456,789.0123 ETH"),
        ({"block_12": account(props=["CODE_HASH"])}, f"Code hash of {SHORT} at block 12", "0x22222222…222222"),
        ({"block_12": account(slots=["0x5"])}, f"Slot 0x5 of {SHORT} at block 12", "5"),
        ({"block_12": account(slots=[hex(2**255)])}, f"A slot of {SHORT} at block 12", "0x80000000…000000"),
        ({"block_12": {"header": ["GAS_LIMIT"]}}, "GAS_LIMIT of the header of block 12", "30,000,000"),
        ({"block_12": {"header": ["TIMESTAMP"]}}, "TIMESTAMP of the header of block 12", "2023-11-14 22:13:20 UTC"),
        ({"block_12": {"header": ["COINBASE"]}}, "COINBASE of the header of block 12", SHORT),
        ({"latest": account(props=["NONCE"])}, f"Nonce of {SHORT} at the newest block", None),
        ({"finalized": account(props=["NONCE"])}, f"Nonce of {SHORT} at the newest final block", None),
        ({f"timestamp_{2**62}": account(props=["NONCE"])}, f"Nonce of {SHORT} at the block at a time", None),
    ],
)
def test_a_title_says_what_was_asked_and_once_it_is_done_the_answer(asked, said, answer):
    batch = batch_at(**asked)
    assert title(batch) == f"{said} of {CHAIN}"
    if answer:
        finish(batch)
        assert title(batch) == f"{said} of {CHAIN}: {answer}"


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
