"""Amounts of 256 bits are stored and read exactly, singly and in bulk."""

import pytest
from django.utils import timezone

from proving.models import AccountProof
from queries.models import Batch, Block
from tests.service import a_key

AMOUNTS = [0, 1, 2**64, 10**27, 2**256 - 1]

pytestmark = [pytest.mark.django_db, pytest.mark.outside]


def test_one_at_a_time():
    key = a_key()
    for amount in AMOUNTS:
        Batch.objects.create(
            user=key.user, api_key=key, destination_chain_id=1, fee=amount, request="{}", deadline_at=timezone.now()
        )
    assert list(Batch.objects.order_by("fee").values_list("fee", flat=True)) == AMOUNTS


@pytest.mark.parametrize("count", [1, 5])
def test_many_at_once(count):
    block = Block.objects.create(destination_chain_id=1, source_chain_id=1, number=2)
    AccountProof.objects.bulk_create(
        AccountProof(block=block, address=str(at), nodes=[], nonce=amount, balance=amount)
        for at, amount in enumerate(AMOUNTS[-count:])
    )
    stored = AccountProof.objects.order_by("address").values_list("nonce", "balance")
    assert list(stored) == [(amount, amount) for amount in AMOUNTS[-count:]]
    proofs = list(AccountProof.objects.all())
    for proof in proofs:
        proof.balance = 2**255
    AccountProof.objects.bulk_update(proofs, ["balance"])
    assert set(AccountProof.objects.values_list("balance", flat=True)) == {2**255}
