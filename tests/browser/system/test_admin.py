"""The admin's lists in a window of 1280 px."""

import pytest
from django.db.models import F
from django.utils import timezone

from proving.models import FactsRegistry, Signer, Stop, Transaction
from queries.models import Batch, Block, Webhook, WebhookDelivery
from queries.waits import wait
from tests.browser import installations
from tests.browser.conftest import overflows
from tests.explorer.batches import connect_source
from tests.factories import act, client_of
from tests.service import ALICE, BOB, SIGNER

LISTS = (
    *("queries/batch", "queries/block", "queries/webhookdelivery", "proving/transaction", "proving/signer"),
    *("proving/factsregistry", "proving/stop", "accounts/user", "accounts/apikey", "admin/logentry"),
)


@pytest.fixture
def rows(stage, settings) -> None:
    """Store rows of each list, with long values and sentences."""
    settings.OPERATOR_ADDRESSES = [ALICE]
    connect_source(stage.folder)
    installations.operated()
    now, failing = timezone.now(), wait("node_fails", problem="No node of Other chain (5) can be used: it fails.")
    batch = Batch.objects.latest("pk")
    Batch.objects.filter(pk=batch.pk).update(status="REJECTED", rejection_code="destination_chain_unsupported")
    webhook = Webhook.objects.create(batch=batch, user=batch.user, receiver="a.example:443", sealed=b"")
    WebhookDelivery.objects.create(webhook=webhook, user=batch.user, event="DONE", next_try_at=now, gives_up_at=now)
    low = wait("signer_below_minimum", signer=SIGNER, chain=31337, balance=10**15, minimum="0.01")
    Signer.objects.update(wait=low, due_at=now)
    Block.objects.update(number=F("number") + 23_418_077, wait=failing, due_at=now)
    Transaction.objects.update(hash=f"0x{'ab' * 32}", block_number=23_418_077, error=failing)
    FactsRegistry.objects.update(refused="Its code is not that of this version. " * 3, replaced_at=now)
    Stop.objects.update(reason="The node of this chain is replaced. " * 5, by=BOB)
    operator = client_of(ALICE)
    act(operator, "queries/batch", "cancel", Batch.objects.filter(status="RECEIVED")[0].pk, reason="A test. " * 20)


@pytest.mark.long
def test_each_list_fits_its_window(page, context, rows, sign_in_as):
    sign_in_as(context)
    too_wide = []
    for rows_of in LISTS:
        page.goto(f"/admin/{rows_of}/")
        beyond = page.locator(".results").evaluate("element => element.scrollWidth - element.clientWidth")
        too_wide += [(rows_of, beyond)] if beyond or overflows(page) else []
    assert too_wide == []
    page.goto("/admin/")
    assert "Batches" in page.locator("#content").inner_text()
    assert "Batchs" not in page.content()
