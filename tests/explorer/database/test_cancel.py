"""The page on which the owner of a batch cancels it."""

import re

import pytest
from django.test import Client

from accounts.models import ApiKey, User
from chains.configured_signers import SignerKey
from proving.models import Share, Transaction, TransactionState
from queries.models import Batch, BatchStatus
from tests.explorer import batches
from tests.explorer.pages import text_of
from tests.factories import client_of
from tests.service import ALICE, BOB, fresh, request, submit, work
from tests.users import key_columns

pytestmark = pytest.mark.django_db

LINK = re.compile(r'href="/explorer/query/(\w+)/cancel"')


def confirmation(client: Client, batch: Batch) -> dict[str, str]:
    """Return what the owner's browser posts with the button of the page."""
    html = client.get(f"{batches.path(batch)}/cancel").text
    return dict(re.findall(r'<input type="hidden" name="(newest)" value="([^"]+)">', html))


def confirm(client: Client, batch: Batch, seen: dict[str, str]) -> tuple[int, str]:
    answer = client.post(f"{batches.path(batch)}/cancel", seen)
    return answer.status_code, text_of(answer.text) if answer.content else answer.headers["Location"]


def send(batch: Batch, number: int) -> None:
    tx = batches.send(batch, tx_hash=batches.word(number))
    Share.objects.create(transaction=tx, batch=batch, gas=1, wei=203_974_400_000_000, weight=1)


def displace_and_send(batch: Batch) -> None:
    Transaction.objects.update(state=TransactionState.DISPLACED)
    send(batch, 2)


def test_the_owner_alone_is_offered_it_while_the_batch_is_open(alice, client, settings):
    settings.PUBLIC_BATCH_LIST = True
    batch = batches.accept(batches.a_batch())
    path, bob = batches.path(batch), client_of(BOB)
    poll = {"hx-request": "true"}
    for url, headers in ((path, {}), (f"{path}/1", {}), (path, poll), ("/explorer?of=everybody", {})):
        assert LINK.findall(alice.get(url, headers=headers).text) == [batch.pk]
        for other in (bob, client):
            assert "ancel" not in other.get(url, headers=headers).text
    batches.finish(batch)
    for url in (path, "/explorer"):
        assert "ancel" not in alice.get(url).text


def test_the_cancel_page_shows_what_was_sent_and_a_confirmation_cancels_once(alice):
    batch = batches.accept(batches.a_batch())
    assert "The service has sent nothing yet" in alice.get(f"{batches.path(batch)}/cancel").text
    send(batch, 1)
    send(batch, 2)
    text = text_of(alice.get(f"{batches.path(batch)}/cancel").text)
    assert "2 transactions were sent for it, and cost at most 0.000408 ETH" in text
    assert fresh(batch).status == BatchStatus.ACCEPTED
    seen = confirmation(alice, batch)
    for _ in range(2):  # in two tabs
        assert confirm(alice, batch, seen) == (302, batches.path(batch))
    assert alice.get(f"{batches.path(batch)}.json").json()["rejection"] == {
        "code": "cancelled_by_user",
        "error": "The user who submitted the batch has cancelled it on its page.",
        "retryable": False,
    }


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda batch: send(batch, 2), "The service has sent more transactions since you saw this page."),
        (displace_and_send, "The service has sent more transactions since you saw this page."),
        (batches.finish, "The batch is DONE. Nothing was changed."),
        (batches.reject, "The batch is REJECTED. Nothing was changed."),
    ],
)
def test_a_change_between_the_page_and_the_click_cancels_nothing(alice, change, told):
    batch = batches.accept(batches.a_batch())
    send(batch, 1)
    seen = confirmation(alice, batch)
    change(batch)
    before = Batch.objects.values().get()
    status, text = confirm(alice, batch, seen)
    assert (status, told in text) == (409, True)
    assert Batch.objects.values().get() == before
    if fresh(batch).is_open:
        assert confirm(alice, batch, confirmation(alice, batch)) == (302, batches.path(batch))


def test_nobody_else_cancels_it_nor_does_a_link(alice, client):
    batch = batches.a_batch()
    path, seen = f"{batches.path(batch)}/cancel", confirmation(alice, batch)
    wallet, bob = client_of(ALICE, 31337), client_of(BOB)  # the contract wallet is another user than the address
    for other in (bob, wallet):
        assert [other.get(path).status_code, other.post(path, seen).status_code] == [404, 404]
    assert client.post(path, seen).headers["Location"].startswith("/sign-in")
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(User.objects.for_address(ALICE))
    assert strict.post(path, seen).status_code == 403
    assert alice.put(path).status_code == 405
    assert alice.get(path).status_code == 200
    assert alice.post(f"/explorer/query/{'0' * 26}/cancel", seen).status_code == 404
    assert fresh(batch).status == BatchStatus.RECEIVED


@pytest.mark.long
def test_a_contract_wallet_cancels_its_batch_while_a_worker_signs_for_it(service, monkeypatch):
    service.rpc("evm_setAutomine", False)
    wallet = client_of(ALICE, 31337)
    key = ApiKey.objects.create(user=User.objects.for_address(ALICE, 31337), name="default", **key_columns())
    batch = submit(key, request(ALICE, block=1))
    seen, sign = confirmation(wallet, batch), SignerKey.sign
    answers: list[int] = []

    def cancel_and_sign(signer, transactions):
        if not answers:
            answers.extend((confirm(wallet, batch, seen)[0], confirm(wallet, batch, confirmation(wallet, batch))[0]))
        return sign(signer, transactions)

    monkeypatch.setattr(SignerKey, "sign", cancel_and_sign)
    work(4, service)
    assert answers == [409, 302], "What is being signed counts as sent."
    assert (fresh(batch).status, batch.rejection_code) == (BatchStatus.REJECTED, "cancelled_by_user")
    assert batch.spent == Share.objects.get(batch=batch).wei > 0
