"""The stop switch: nothing is signed or broadcast while it is on."""

import pytest
from django.core.management import CommandError, call_command

from proving.models import SignedTransaction, Signer, Transaction
from proving.transactions import funds, sending, signing, stop_switch
from queries.models import BatchStatus
from tests.proving.money import ETHER, in_mempool, rejected_late
from tests.proving.transactions import age
from tests.service import ALICE, request, submit, waiting, work, work_until_done

NOTHING_PENDING = {"pending": "0x0", "queued": "0x0"}


def test_a_stop_takes_effect_before_the_next_signature(costly, key):
    call_command("stop_signing", "31337", "--reason", "The key may have leaked.")
    batch = submit(key, request(ALICE, block=costly.head(), fee=ETHER))
    for _ in range(3):
        work()
    assert not SignedTransaction.objects.exists()
    assert waiting() == ["The operator has stopped sending on chain 31337. The reason given: The key may have leaked."]
    call_command("resume_signing")
    costly.rpc("evm_setAutomine", True)
    assert work_until_done(batch, costly).status == BatchStatus.DONE
    assert Signer.objects.get().notice == ""


def test_a_stop_between_the_check_and_the_signature_is_seen(costly, key, monkeypatch):
    affordable = funds.affordable

    def stopped_just_now(*arguments):
        can_pay = affordable(*arguments)
        stop_switch.stop(31337)
        return can_pay

    monkeypatch.setattr(funds, "affordable", stopped_just_now)
    submit(key, request(ALICE, block=costly.head(), fee=ETHER))
    for _ in range(3):
        work()
    assert not Transaction.objects.exists()
    assert waiting() == ["The operator has stopped sending on chain 31337."]


def test_a_stop_between_signature_and_broadcast_is_seen(costly, key, monkeypatch):
    broadcast = signing.broadcast

    def stopped_just_now(*arguments):
        stop_switch.stop(31337)
        broadcast(*arguments)

    monkeypatch.setattr(sending, "broadcast", stopped_just_now)
    batch = submit(key, request(ALICE, block=costly.head(), fee=ETHER))
    work()
    work()
    assert SignedTransaction.objects.get().broadcast_at is None
    assert costly.rpc("txpool_status") == NOTHING_PENDING
    monkeypatch.setattr(sending, "broadcast", broadcast)
    stop_switch.resume(31337)
    costly.rpc("evm_setAutomine", True)
    assert work_until_done(batch, costly).status == BatchStatus.DONE


def test_a_stop_holds_for_replacements_and_broadcasts_too(costly, key):
    batch, tx = in_mempool(costly, key)
    costly.rpc("anvil_dropAllTransactions")
    stop_switch.stop(31337)
    age()
    SignedTransaction.objects.update(broadcast_at=None)
    work()
    rejected_late(batch)  # Else replaced by an empty one.
    work()
    assert tx.versions.count() == 1
    assert costly.rpc("txpool_status") == NOTHING_PENDING
    stop_switch.resume(31337)
    work()
    assert tx.versions.count() == 2


def test_only_destinations_can_be_stopped(costly):
    with pytest.raises(CommandError, match="Not a destination chain: 5"):
        call_command("stop_signing", "5")
