"""Limits in money."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from django.db.models import Model
from django.db.models.signals import post_init
from django.utils import timezone

from proving.budget import reservations
from proving.models import SignedTransaction, Signer, Transaction, TransactionState
from queries.clock import Clock
from queries.models import ServiceClock
from tests.inside.working import admitted
from tests.proving.money import ETHER, pending
from tests.service import ALICE, BOB, request, submit, work_until_done


def test_a_signature_reads_no_version_of_what_was_signed_in_the_day_before(costly, key):
    """The signer is locked meanwhile, and each replacement is another version."""
    costly.rpc("evm_setAutomine", True)
    values = {
        "signer": Signer.objects.create(chain_id=31337, address=BOB),
        "data": b"",
        "gas_limit": 1,
        "state": TransactionState.FINAL,
    }
    versions = {"raw": b"", "max_fee_per_gas": 1, "max_priority_fee_per_gas": 1}
    for nonce in range(40):
        tx = Transaction.objects.create(nonce=nonce, **values)
        SignedTransaction.objects.create(transaction=tx, hash=str(nonce), **versions)
    read: list[SignedTransaction] = []
    with post_init_of(SignedTransaction, read):
        work_until_done(submit(key, request(BOB, block=costly.head(), fee=ETHER)), costly)
    assert 0 < len(read) < 30


@contextmanager
def post_init_of(model: type[Model], seen: list[Any]) -> Iterator[None]:
    """Note each row of the model that is read or made."""

    def note(instance: Model, **_: object) -> None:
        seen.append(instance)

    post_init.connect(note, sender=model)
    yield
    post_init.disconnect(note, sender=model)


def test_what_a_clock_far_ahead_has_signed_counts_for_a_day_and_no_longer(costly, key, monkeypatch):
    Clock().read([])
    batch = admitted(key, request(ALICE, block=costly.head(), fee=ETHER))
    now = timezone.now
    with monkeypatch.context() as patch:
        patch.setattr(timezone, "now", lambda: now() + timedelta(days=365))
        pending(batch)
    Transaction.objects.update(state=TransactionState.FINAL, gas_used=1, gas_price=1)
    assert reservations.on_chain(31337) == Transaction.objects.get().reserved > 1
    ServiceClock.objects.update(at=now() + timedelta(days=2))
    assert reservations.on_chain(31337) == 0
