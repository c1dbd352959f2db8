"""Whose paths are extended first, and who rides along: it ends with riders and rotation."""

from devnet.devchain import DevChain
from proving.admission.admit import admit
from proving.paths import building, rotation
from proving.reconcile import decide
from proving.reconcile.block import reconcile
from queries.models import Block
from tests.deployed import deploy
from tests.proving.chain_state import registry
from tests.proving.conftest import old  # noqa: F401  # a fixture
from tests.proving.paths import extending
from tests.service import ALICE, BOB, CHARLIE, a_key, chains_toml, request, submit, waiting, work


def test_blocks_that_wait_for_confirmations_ride_no_further_path(db, settings, tmp_path, key, monkeypatch):
    """Their hashes are known: they would take the places of others, and pay again."""
    monkeypatch.setattr(building, "MAX_RIDERS", 3)
    with DevChain(slots_in_an_epoch=32) as chain:
        settings.CHAINS_FILE = chains_toml(tmp_path, chain.url, connection="window = 40")
        deploy(31337, 31337)
        chain.mine(150)
        settings.CHAINS_FILE = chains_toml(tmp_path, chain.url, chain="confirmations = 20", connection="window = 40")
        first = chain.head() - 110
        for block in range(first, first + 11):
            submit(key, request(ALICE, block=block))
        chain.rpc("evm_setAutomine", False)
        for _ in range(8):
            work()
            chain.mine()
        paid = [number for tx in extending() for number in tx.queries.values_list("block__number", flat=True)]
        assert sorted(paid) == list(range(first, first + 11))


def test_whose_turn_it_is_does_not_hang_on_what_blocks_say(old, key, monkeypatch):  # noqa: F811
    monkeypatch.setattr(decide, "EXTENDING", "Said otherwise.")
    old.rpc("evm_setAutomine", False)
    bob = a_key(BOB)
    for user_key, back in ((key, 35), (bob, 45)):
        batch = submit(user_key, request(CHARLIE, block=old.head() - back))
        admit(batch.pk)
        reconcile(Block.objects.get(queries__batch=batch).pk)
    sent_first = Block.objects.get(turn_of=key.user_id)
    assert waiting() == ["Said otherwise."] * 2
    assert rotation.of_paths(registry().pk, sent_first).first == bob.user_id
    old.rpc("evm_setAutomine", True)
    work()
    assert not Block.objects.filter(due_at=None, waits_for_path=True).exists()
