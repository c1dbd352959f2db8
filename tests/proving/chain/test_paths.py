"""Old blocks are reached by hops through the history of block hashes."""

from datetime import timedelta

import pytest
from django.core.management import call_command
from django.db.models import F
from django.test import Client

from chains.contract_artifacts import DEPLOYER
from config.configured_chains import forget_chains
from devnet.devchain import ACCOUNTS, DevChain
from proving.models import Transaction, TransactionState
from queries.models import Batch, BatchStatus, Block, Query, StepKind
from tests import deployed, service
from tests.chains.lying_node import ask, error, lying_node
from tests.proving import dear_registry, estimated_batches, sources
from tests.proving.chain_state import AccountField, HeaderField, balance_at, field_on_chain
from tests.proving.paths import HISTORY, WINDOW, connect, extending, rewrite_history
from tests.users import ALICE, BOB, CHARLIE, SIGNER, a_key

pytestmark = [pytest.mark.django_db, pytest.mark.outside]


def assert_proven(chain: DevChain, batch: Batch, address: str, block: int) -> None:
    assert service.work_until_done(batch, chain, rounds=30).status == BatchStatus.DONE
    assert field_on_chain(chain, address, block, AccountField.BALANCE) == balance_at(chain, address, block)


def rejected(batch: Batch) -> Batch:
    service.work_until_done(batch)
    assert batch.status == BatchStatus.REJECTED
    return batch


# --- Hops -------------------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_hops_go_through_a_history_of_another_size(chain, key, settings, tmp_path):
    """The history has 16 slots, so it wraps around. Real sizes differ, too: Arbitrum's history has 393,168."""
    rewrite_history(chain, limit=16, reads=16, writes=16)
    connect(chain, settings, tmp_path, of_chain="history_window = 16")
    deployed.deploy_on(chain)
    sources.grow(chain, 50)
    block = chain.head() - 3 * WINDOW - 5
    assert_proven(chain, service.submit(key, service.request(CHARLIE, block=block)), CHARLIE, block)


@pytest.mark.story
def test_a_block_three_windows_back_is_proven_by_hops_in_one_transaction(old, key):
    block = old.head() - 3 * WINDOW - 5
    before = Transaction.objects.count()
    batch = service.submit(key, service.request(CHARLIE, block=block))
    assert_proven(old, batch, CHARLIE, block)
    assert Transaction.objects.count() == before + 1
    (tx,) = extending()
    assert tx.succeeded
    step = Query.objects.get(batch=batch).steps.get(kind=StepKind.HEADER_ACCUMULATED)
    assert step.status == "COMPLETED"
    row = Block.objects.get(number=block)
    assert (row.path_unit, row.path_length, row.path_left) == ("hops", 3, 0)


@pytest.mark.long
def test_a_step_goes_on_showing_what_completes_it_when_the_path_there_is_confirmed(old, key):
    time = int(old.rpc("eth_getBlockByNumber", hex(old.head() - 3 * WINDOW - 5), False)["timestamp"], 16)
    # The path comes first, and the time has a proof of its own.
    data = {f"timestamp:{time}": {"accounts": {CHARLIE: {"props": ["BALANCE"]}}}}
    batch = service.submit(key, service.asking(data))
    service.work()
    assert len(extending()) == 1
    old.rpc("evm_setAutomine", False)
    service.work(4)
    proof = Transaction.objects.get(accumulates__isnull=False).versions.get().hash
    old.rpc("anvil_dropTransaction", proof)
    old.mine(3)
    service.work()
    (path,) = extending()
    assert (path.state, path.hash != proof) == (TransactionState.FINAL, True)
    assert Query.objects.get(batch=batch).steps.get(kind=StepKind.HEADER_ACCUMULATED).transaction_hash == proof


@pytest.mark.long
def test_a_path_begins_at_the_nearest_block_that_the_registry_trusts(old, key):
    near = old.head() - 3 * WINDOW
    assert_proven(old, service.submit(key, service.request(ALICE, block=near)), ALICE, near)
    before = len(extending())
    old.mine(3 * WINDOW)
    block = near - WINDOW
    assert_proven(old, service.submit(key, service.request(CHARLIE, block=block)), CHARLIE, block)
    assert len(extending()) == before + 1
    row = Block.objects.get(number=block)
    assert (row.path_unit, row.path_length) == ("hops", 1)


@pytest.mark.long
def test_blocks_of_one_batch_share_a_path(old, key):
    first = old.head() - 2 * WINDOW - 5
    blocks = range(first, first + 5)
    batch = service.submit(
        key, service.asking({f"block:{block}": {"accounts": {CHARLIE: {"props": ["BALANCE"]}}} for block in blocks})
    )
    for block in blocks:
        assert_proven(old, batch, CHARLIE, block)
    (tx,) = extending()
    assert tx.queries.count() == 5
    assert service.fresh(batch).gas_used <= (batch.estimated_gas or 0)


@pytest.mark.long
def test_the_oldest_batch_has_its_path_first(old, key):
    old.rpc("evm_setAutomine", False)
    blocks = [old.head() - back for back in (25, 45, 31)]
    for user, block in zip((key, a_key(BOB), key), blocks, strict=True):
        service.submit(user, service.request(CHARLIE, block=block))
    service.work(12, old)
    paths = [tx.queries.values_list("block__number", flat=True).get() for tx in extending()]
    assert paths == blocks


def test_an_old_block_is_proven_despite_a_stored_checkpoint_that_the_chain_lacks(old, key):
    """The stored checkpoint is only a hint, and the chain doesn't know it, as after a reorg."""
    block = old.head() - 3 * WINDOW
    Block.objects.create(
        destination_chain_id=31337,
        source_chain_id=31337,
        number=block + 2,
        hash="0x" + "01" * 32,
        state_root="0x" + "02" * 32,
        is_checkpoint=True,
    )
    assert_proven(old, service.submit(key, service.request(CHARLIE, block=block)), CHARLIE, block)


@pytest.mark.long
def test_properties_of_an_old_header_and_an_old_time_are_proven(old, key):
    block = old.head() - 3 * WINDOW
    header = old.rpc("eth_getBlockByNumber", hex(block), False)
    time = int(header["timestamp"], 16)
    data = {
        f"block:{block}": {"header": ["GAS_LIMIT", "PARENT_HASH"]},
        f"timestamp:{time}": {"accounts": {CHARLIE: {"props": ["BALANCE"]}}},
    }
    batch = service.submit(key, service.asking(data))
    assert service.work_until_done(batch, old, rounds=40).status == BatchStatus.DONE
    (timed,) = batch.queries.exclude(timestamp=None)
    assert Block.objects.get(queries=timed).number == block
    fields = list(map(int, batch.queries.get(address="").header_fields))
    assert fields == [HeaderField.PARENT_HASH, HeaderField.GAS_LIMIT]


@pytest.mark.long
def test_a_path_longer_than_one_transaction_goes_on_where_it_was(old, key, settings):
    service.reconfigure(settings, f"window = {WINDOW}", "window = 1")
    block = old.head() - 50
    batch = service.submit(key, service.request(CHARLIE, block=block))
    assert_proven(old, batch, CHARLIE, block)
    assert len(extending()) == 2
    row = Block.objects.get(number=block)
    assert row.path_length >= 49
    assert row.path_left == 0


def test_a_block_from_before_the_history_is_rejected_with_the_reason(old, key):
    fork = old.head()
    for number in range(fork):
        old.rpc("anvil_setStorageAt", HISTORY, f"0x{number:064x}", "0x" + "00" * 32)
    old.mine(2 * WINDOW)
    batch = rejected(service.submit(key, service.request(CHARLIE, block=fork - 6)))
    assert batch.rejection_code == "block_too_old"
    assert batch.rejection_reason == (
        f"Block {fork - 6} of chain 31337 is out of reach: the chain has no history of block hashes (EIP-2935) that "
        "goes back so far."
    )


@pytest.mark.long
def test_a_history_that_answers_with_other_hashes_spoils_no_block(chain, db, key, settings, tmp_path):
    """BLOCKHASH vouches for the newest blocks, and a path leads from there."""
    rewrite_history(chain, reads=13)
    connect(chain, settings, tmp_path)
    deployed.deploy(31337, 31337)
    sources.grow(chain, 60)
    for back in (1, 30):
        block = chain.head() - back
        assert_proven(chain, service.submit(key, service.request(CHARLIE, block=block)), CHARLIE, block)


@pytest.mark.long
def test_a_history_that_holds_other_hashes_rejects_a_batch_before_anything_is_priced(
    chain, db, key, settings, tmp_path
):
    # This history is wrong only for older blocks.
    rewrite_history(chain, limit=13, reads=13, writes=13)
    connect(chain, settings, tmp_path, of_chain="history_window = 11")
    deployed.deploy(31337, 31337)
    sources.grow(chain, 60)
    before = Transaction.objects.count()
    body = service.request(CHARLIE, block=chain.head() - 3 * WINDOW)
    (told,) = estimated_batches.estimate(Client(), key, body)["rejections"]
    batch = rejected(service.submit(key, body))
    assert (batch.rejection_code, batch.rejection_retryable, batch.estimated_gas) == ("block_too_old", False, None)
    assert "holds another block's hash" in batch.rejection_reason
    assert told["code"] == batch.rejection_code
    assert Transaction.objects.count() == before


# --- Limits and estimates ---------------------------------------------------------------------------------------------


@pytest.mark.long
def test_more_hops_than_are_allowed_are_rejected_with_the_figure(chain, db, settings, tmp_path, key):
    connect(chain, settings, tmp_path, more="max_hops = 2")
    deployed.deploy_on(chain)
    sources.grow(chain, 50)
    batch = rejected(service.submit(key, service.request(CHARLIE, block=chain.head() - 4 * WINDOW)))
    assert (batch.rejection_code, batch.rejection_retryable) == ("block_too_old", False)
    assert "is 4 hops before block" in batch.rejection_reason
    assert "1,060,000 gas" in batch.rejection_reason
    assert "at most 2 hops" in batch.rejection_reason


@pytest.mark.long
def test_only_old_states_that_no_node_serves_are_a_reason_to_reject(old, key, settings):
    refused = ""

    def change(question, reply):
        is_refused = refused and refused in (question["method"], question["params"][-1:] and question["params"][-1])
        return [error(question, -32000, "this block is not available") if is_refused else reply]

    block = old.head() - 3 * WINDOW
    with service.changed_replies(settings, old, change):
        refused = "pending"
        waits = service.submit(key, service.request(CHARLIE, block=block))
        service.work()
        assert service.fresh(waits).status == BatchStatus.RECEIVED
        refused = ""
        assert service.work_until_done(waits, old, rounds=20).status == BatchStatus.DONE
        refused = "eth_getStorageAt"
        batch = rejected(service.submit(key, service.request(CHARLIE, block=block - 2 * WINDOW)))
    assert batch.rejection_code == "proof_unavailable"


@pytest.mark.long
def test_a_fee_that_does_not_cover_the_path_is_rejected_with_the_figure(chain, db, settings, tmp_path, key):
    connect(chain, settings, tmp_path, of_chain="test_network = false\nminimum_signer_balance = '0'")
    settings.ALLOWED_ADDRESSES = ["*"]
    deployed.deploy_on(chain)
    sources.grow(chain, 50)
    batch = rejected(service.submit(key, service.request(CHARLIE, block=chain.head() - 3 * WINDOW, fee=10)))
    assert batch.rejection_code == "fee_too_low"
    assert "of it for the path to old blocks" in batch.rejection_reason


@pytest.mark.long
def test_whoever_can_no_longer_pay_holds_up_no_path_that_passes_them(chain, db, settings, tmp_path, key):
    settings.CHAINS_FILE = service.chains_toml(
        tmp_path,
        chain.url,
        chain="test_network = false\nminimum_signer_balance = '0'",
        connection="window = 40",
    )
    settings.ALLOWED_ADDRESSES = ["*"]
    deployed.deploy_on(chain)
    chain.mine(150)
    poor = service.submit(key, service.request(ALICE, block=chain.head() - 100, fee=10**18))
    call_command("stop")
    service.work()
    call_command("resume")
    # A lower fee has the same effect as a higher gas price.
    Batch.objects.filter(pk=poor.pk).update(fee=1)
    block = chain.head() - 130
    rich = service.submit(a_key(BOB), service.request(CHARLIE, block=block, fee=10**18))
    assert service.work_until_done(rich, chain, rounds=8).status == BatchStatus.DONE
    assert (service.fresh(poor).status, poor.gas_used) == (BatchStatus.IN_PROGRESS, 0)


@pytest.mark.long
def test_nobody_pays_for_what_another_asks_on_the_way_to_a_block_of_both(chain, db, settings, tmp_path, key):
    connect(chain, settings, tmp_path, "max_hops = 200", "test_network = false\nminimum_signer_balance = '0'")
    settings.ALLOWED_ADDRESSES = ["*"]
    deployed.deploy_on(chain)
    sources.grow(chain, 110)
    block = chain.head() - 100
    slots = [hex(number << 30) for number in range(100)]
    own = service.submit(key, service.asking({f"block:{block}": {"accounts": {CHARLIE: {"slots": slots}}}}, fee=10**18))
    call_command("stop")
    service.work()
    balance = {"accounts": {ALICE: {"props": ["BALANCE"]}}}
    service.submit(
        a_key(BOB), service.asking({f"block:{number}": balance for number in range(block, block + 80)}, fee=10**19)
    )
    service.work()
    call_command("resume")
    done = service.work_until_done(own, chain, rounds=30)
    assert (done.status, done.gas_used <= (done.estimated_gas or 0)) == (BatchStatus.DONE, True)


def test_a_path_that_cannot_be_sent_leaves_nothing_behind(old, key):
    """The path's first block changes at each reconcile. Rows of unsent paths must not pile up."""
    old.rpc("anvil_setBalance", SIGNER, "0x0")
    service.submit(key, service.request(CHARLIE, block=old.head() - 3 * WINDOW))
    service.work(3, old)
    assert "The operator must fund the signer" in service.waiting()[0]
    assert Block.objects.count() == 1


@pytest.mark.long
def test_a_path_that_another_key_has_begun_is_not_waited_for(old, key, settings):
    old.rpc("evm_setAutomine", False)
    service.submit(key, service.request(CHARLIE, block=old.head() - 3 * WINDOW))
    service.work()
    old.rpc("anvil_dropAllTransactions")
    old.rpc("anvil_setBalance", SIGNER, "0x0")
    (settings.CHAINS_FILE.parent / "signer.key").write_text(ACCOUNTS[0][1])
    forget_chains()
    old.rpc("evm_setAutomine", True)
    block = old.head() - 4 * WINDOW
    assert_proven(old, service.submit(a_key(BOB), service.request(CHARLIE, block=block)), CHARLIE, block)


@pytest.mark.long
def test_a_node_that_lags_has_no_path_paid_twice(old, key, settings):
    service.submit(key, service.request(CHARLIE, block=old.head() - 3 * WINDOW))
    before = old.head()
    service.work()
    (path,) = extending()
    mined = old.rpc("eth_getTransactionReceipt", path.newest.hash)
    assert mined["status"] == "0x1"

    def lagging(body):
        """Answer about an older block for `latest`, `pending` and `finalized`."""
        behind = [
            question
            | {"params": [hex(before) if of in ("latest", "pending", "finalized") else of for of in question["params"]]}
            for question in (body if isinstance(body, list) else [body])
        ]
        return ask(old.url, behind if isinstance(body, list) else behind[0])

    with lying_node(lagging) as url:
        service.reconfigure(settings, old.url, url)
        service.work(3)
    assert Transaction.objects.exclude(to=DEPLOYER).count() == 1


@pytest.mark.long
def test_nothing_is_sent_behind_a_path_that_may_still_be_cancelled(old, key):
    old.rpc("evm_setAutomine", False)
    block = old.head() - 3 * WINDOW
    first = service.submit(key, service.request(CHARLIE, block=block))
    service.work()
    (path,) = extending()
    second = service.submit(a_key(BOB), service.request(ALICE, block=block))
    service.work(2)
    assert not Transaction.objects.filter(nonce__gt=path.nonce).exists()
    # The block's hash isn't known yet, so the path isn't known to lead to it.
    assert {query.step for query in second.queries.all()} == {StepKind.BLOCKHASH_AVAILABLE}
    service.expire(Batch.objects.filter(pk=first.pk))
    old.rpc("evm_setAutomine", True)
    assert_proven(old, second, ALICE, block)
    assert not Transaction.objects.filter(succeeded=False, queries__batch=second).exists()


def code_of_wait(batch: Batch) -> str:
    (key,) = batch.user.api_keys.all()
    (wait,) = Client().get(f"/batch-queries/{batch.pk}", headers=service.header(key)).json()["waits"]
    assert "it reverted" in wait["sentence"]
    return str(wait["code"])


@pytest.mark.long
def test_a_path_that_reverted_twice_is_sent_again_only_when_its_batch_is_over(old, key):
    old.rpc("evm_setAutomine", False)
    block = old.head() - 3 * WINDOW
    batch = service.submit(key, service.request(CHARLIE, block=block))
    for _ in range(2):
        service.work(2)
        dear_registry.mine_broken(old)
    service.work(3, old)
    assert [path.succeeded for path in extending()] == [False, False]
    assert code_of_wait(batch) == "reverted"
    # Whoever asks for the path waits.
    other = service.submit(a_key(BOB), service.request(BOB, block=block))
    service.work(3, old)
    assert len(extending()) == 2
    assert code_of_wait(other) == "path_reverted"
    assert "transactions_fail" in Client().get("/healthz").json()["codes"]
    service.expire(Batch.objects.filter(pk=batch.pk))
    Transaction.objects.update(spent_at=F("spent_at") - timedelta(days=30))
    old.rpc("evm_setAutomine", True)
    assert service.work_until_done(other, old, rounds=20).status == BatchStatus.DONE
    assert (service.fresh(batch).status, batch.rejection_retryable) == (BatchStatus.REJECTED, True)
