"""While the stop switch is on, nothing is signed or broadcast."""

from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from proving.models import SignedTransaction, Signer
from queries.models import BatchStatus
from tests.proving import money, prices, transactions
from tests.service import ALICE, request, submit, waiting, work, work_until_done

pytestmark = pytest.mark.outside

NOTHING_PENDING = {"pending": "0x0", "queued": "0x0"}


def stop() -> None:
    call_command("stop", "31337", stdout=StringIO())


@pytest.mark.long
def test_a_stop_takes_effect_before_the_next_signature(costly, key):
    call_command("stop", "31337", "--reason", "The key may have leaked.")
    batch = submit(key, request(ALICE, block=costly.head(), fee=prices.ETHER))
    work(3)
    assert not SignedTransaction.objects.exists()
    assert waiting() == ["The operator has stopped sending on chain 31337. The reason given: The key may have leaked."]
    call_command("resume")
    costly.rpc("evm_setAutomine", True)
    assert work_until_done(batch, costly).status == BatchStatus.DONE
    assert Signer.objects.get().wait is None


@pytest.mark.long
@pytest.mark.parametrize(
    ("statement", "is_signed"),
    [('INSERT INTO "proving_signedtransaction"', False), ('UPDATE "proving_signedtransaction" SET "hash"', True)],
    ids=["reservation and signature", "signature and broadcast"],
)
def test_a_stop_between_the_stages_of_a_version_is_seen(costly, key, statement, is_signed):
    batch = submit(key, request(ALICE, block=costly.head(), fee=prices.ETHER))
    with transactions.between_statements(lambda sql: sql.startswith(statement), stop):
        work()
    work()
    version = SignedTransaction.objects.get()
    assert (version.broadcast_at, bool(version.hash), bool(version.raw)) == (None, is_signed, is_signed)
    assert costly.rpc("txpool_status") == NOTHING_PENDING
    call_command("resume", stdout=StringIO())
    costly.rpc("evm_setAutomine", True)
    assert work_until_done(batch, costly).status == BatchStatus.DONE


def test_a_stop_holds_for_replacements_and_broadcasts_too(costly, key):
    batch, tx = money.in_mempool(costly, key)
    costly.rpc("anvil_dropAllTransactions")
    with money.stopped():
        transactions.age()
        SignedTransaction.objects.update(broadcast_at=None)
        work()
        money.cancel(batch)  # while sending is allowed, this leads to a cancellation
        work()
        assert tx.versions.count() == 1
        assert costly.rpc("txpool_status") == NOTHING_PENDING
    work()
    assert tx.versions.count() == 2


def test_only_destinations_can_be_stopped(costly):
    with pytest.raises(CommandError, match="Not a destination chain: 5"):
        call_command("stop", "5")
