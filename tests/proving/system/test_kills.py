"""Kills at any moment lose nothing and repeat nothing.

A kill is an exception that no code here catches. It comes at an exchange with the node, before the node gets the
request or after it has acted. Killed code writes nothing more. A run tries every fourth exchange, and `make chaos`
tries each.
"""

from contextlib import suppress
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.db.models import Q
from django.test import Client

from accounts.models import ApiKey
from chains.contract_artifacts import DEPLOYER
from devnet.devchain import DevChain
from proving.models import FactsRegistry, Share, SignedTransaction, Signer, Transaction
from queries.models import Batch, BatchStatus, Step, StepKind
from tests import deployed, users
from tests.proving import chain_state, money, several_signers
from tests.proving.kills import BEFORE_AND_AFTER, Killer, exchanges
from tests.proving.transactions import age, between_statements, sign_otherwise
from tests.service import chains_toml, done, expire_leases, fresh, reconfigure, request, submit, work, work_until_done

pytestmark = [pytest.mark.django_db, pytest.mark.outside]


@pytest.mark.long
@pytest.mark.story("after it acted")
@pytest.mark.parametrize("after", BEFORE_AND_AFTER)
def test_a_batch_is_done_once_wherever_the_worker_is_killed(service, killing, after):
    key = users.a_key()
    batches = 0
    for exchange in killing.exchanges(after=after):
        batches += 1
        # Earlier work is final and nothing is due, so the next work can only come from rows that the killed code made
        # due.
        service.mine(5)
        work(2)
        assert not Signer.objects.filter(due_at__isnull=False).exists()
        block = service.head()
        nonce = chain_state.signer_nonce(service)
        batch = submit(key, request(users.ALICE, users.BOB, block=block))
        with killing.at(exchange, after=after):
            work_until_done(batch)
        assert work_until_done(batch).status == BatchStatus.DONE
        work()  # a killed worker may have left work
        assert chain_state.signer_nonce(service) == chain_state.signer_nonce(service, "pending") == nonce + 1, (
            f"killed at exchange {exchange}"
        )
        assert Step.objects.filter(query__batch=batch).count() == 2 * len(StepKind)
        assert fresh(batch).gas_used > 0
    assert exchange > 7
    assert len(chain_state.events(service, chain_state.HEADER_ACCUMULATED)) == batches
    assert len(chain_state.events(service, chain_state.ACCOUNT_PROVEN)) == 2 * batches
    nonces = Transaction.objects.order_by("nonce").values_list("nonce", flat=True)
    assert list(nonces) == list(range(len(nonces)))


@pytest.mark.release
def test_a_transaction_that_gets_more_gas_is_sent_once_wherever_the_worker_is_killed(service, killing):
    key = users.a_key()
    for rounds, exchange in enumerate(killing.exchanges(), 1):
        service.mine(5)
        work(2)
        service.rpc("evm_setAutomine", False)
        nonce = chain_state.signer_nonce(service)
        batch = submit(key, request(users.ALICE, block=service.head()))
        tx = money.pending(batch)
        age()
        lack_gas(service, tx)
        # The kill is before the node acts in every other round, and after it in the rest.
        with killing.at(exchange, after=rounds % 2 == 0):
            work(2)
        service.rpc("evm_setAutomine", True)
        assert work_until_done(batch, service).status == BatchStatus.DONE
        work()
        assert chain_state.signer_nonce(service) == chain_state.signer_nonce(service, "pending") == nonce + 1, (
            f"killed at exchange {exchange}"
        )
        assert Transaction.objects.get(queries__batch=batch).pk == tx.pk
        assert tx.versions.count() == 2
    assert exchange > 5
    assert len(chain_state.events(service, chain_state.ACCOUNT_PROVEN)) == rounds


@pytest.mark.long
@pytest.mark.django_db(transaction=True)
def test_a_worker_that_is_frozen_at_any_exchange_pays_nothing_again_when_it_goes_on(service, killing):
    """The frozen worker's leases run out, and another worker does all the work."""
    key = users.a_key()
    for batches, exchange in enumerate(exchanges(), 1):
        service.mine(5)
        work(2)
        nonce = chain_state.signer_nonce(service)
        batch = submit(key, request(users.ALICE, users.BOB, block=service.head()))
        ended: list[str] = []

        def another_works(batch=batch, ended=ended) -> None:
            ended.append(work_until_done(batch).status)

        with killing.frozen_at(exchange, another_works, after=batches % 2 == 0), suppress(CommandError):
            work_until_done(batch)
        assert work_until_done(batch).status == BatchStatus.DONE
        work()
        assert chain_state.signer_nonce(service) == chain_state.signer_nonce(service, "pending") == nonce + 1, (
            f"frozen at exchange {exchange}"
        )
        if not ended:
            break
        assert ended == [BatchStatus.DONE]
    assert exchange > 7
    assert len(chain_state.events(service, chain_state.ACCOUNT_PROVEN)) == 2 * batches


# --- Between the stages of a version ----------------------------------------------------------------------------------

VERSIONS = SignedTransaction.objects.exclude(transaction__to=DEPLOYER)
STAGES = {"reserving": Q(hash=None), "storing": Q(hash__isnull=False, broadcast_at=None)}
FIELDS = ("pk", "max_fee_per_gas", "max_priority_fee_per_gas", "is_cancellation", "gas_limit")


def lack_gas(chain: DevChain, tx: Transaction) -> None:
    """Let the transaction have less gas than its bytes take. Nodes forget it."""
    sign_otherwise(tx, gas=34_500, price=tx.newest.max_fee_per_gas)
    chain.rpc("anvil_dropAllTransactions")


def reserved(chain: DevChain, key: ApiKey, killing: Killer) -> Batch:
    """Submit a batch, and kill the worker after it has reserved the batch's transaction."""
    batch = submit(key, request(users.ALICE, block=chain.head()))
    with killing.once(VERSIONS.filter(hash=None).exists):
        work_until_done(batch)
    assert killing.killed
    return batch


@pytest.mark.long
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("stage", "kind"),
    [
        *(("reserving", kind) for kind in ("new", "replacement", "replacement with more gas", "cancellation")),
        ("storing", "new"),
    ],
)
def test_a_reserved_version_is_sent_with_its_fields_wherever_the_worker_is_killed(service, killing, stage, kind):
    service.mine(5)
    work(2)
    assert not Signer.objects.filter(due_at__isnull=False).exists()
    service.rpc("evm_setAutomine", False)
    batch = submit(users.a_key(), request(users.ALICE, block=service.head()))
    nonce = chain_state.signer_nonce(service)
    if kind != "new":
        tx = money.pending(batch)
        age()
    if kind == "replacement with more gas":
        lack_gas(service, tx)
    if kind == "cancellation":
        money.cancel(batch)
    with killing.once(VERSIONS.filter(STAGES[stage]).exists):
        work(2)
    assert killing.killed
    assert Signer.objects.get().due_at is not None
    before = list(VERSIONS.order_by("pk").values(*FIELDS))
    work(2)
    assert list(VERSIONS.order_by("pk").values(*FIELDS)) == before
    newest = VERSIONS.latest("pk")
    assert newest.gas > 90_000 or kind == "cancellation"
    ((in_mempool,),) = (sent.values() for sent in service.rpc("txpool_content")["pending"].values())
    assert (in_mempool["hash"], int(in_mempool["nonce"], 16)) == (newest.hash, nonce)
    assert int(in_mempool["maxFeePerGas"], 16) == newest.max_fee_per_gas
    assert int(in_mempool["gas"], 16) == newest.gas
    assert Share.objects.get(batch=batch).gas == newest.transaction.gas >= newest.gas
    if kind != "cancellation":
        shown = Step.objects.filter(query__batch=batch, status="IN_PROGRESS").values_list("transaction_hash", flat=True)
        assert list(shown) == [newest.hash]
        assert work_until_done(batch, service).status == BatchStatus.DONE


@pytest.mark.long
def test_a_worker_that_is_frozen_before_it_signs_leaves_it_to_another(service):
    batch, nonce = submit(users.a_key(), request(users.ALICE, block=service.head())), chain_state.signer_nonce(service)

    def another_works() -> None:
        expire_leases()
        assert work_until_done(batch).status == BatchStatus.DONE

    with between_statements(lambda sql: sql.startswith('INSERT INTO "proving_signedtransaction"'), another_works):
        work_until_done(batch)
    work()
    assert chain_state.signer_nonce(service) == chain_state.signer_nonce(service, "pending") == nonce + 1
    assert VERSIONS.get().hash == Transaction.objects.get(queries__batch=batch).hash


@pytest.mark.long
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("stop", [{}, {"signer": users.SIGNER}], ids=["of the chain", "of the signer"])
def test_a_reserved_version_is_not_signed_while_sending_is_stopped(service, key, killing, stop):
    batch, nonce = reserved(service, key, killing), chain_state.signer_nonce(service)
    call_command("stop", "31337", stdout=StringIO(), **stop)
    work(2)
    assert VERSIONS.get().hash is None
    assert chain_state.signer_nonce(service, "pending") == nonce
    # The reservation counts, but no page shows it as a sent transaction.
    assert Transaction.objects.get(queries__batch=batch).reserved_gwei
    told = Client().get(f"/batch-queries/{batch.pk}", headers=users.header(key)).json()
    assert told["transactions"] == []
    for page in (f"/explorer/query/{batch.pk}", "/explorer/", "/metrics", "/healthz"):
        shown = Client().get(page).text
        assert "None" not in shown
        assert 'id="transactions"' not in shown
    call_command("resume", "31337", stdout=StringIO(), **stop)
    assert work_until_done(batch).status == BatchStatus.DONE
    assert chain_state.signer_nonce(service) == nonce + 1


@pytest.mark.long
@pytest.mark.django_db(transaction=True)
def test_facts_reserved_by_a_removed_signer_are_sent_by_another(two_signers, key, killing, settings, tmp_path):
    call_command("stop", "31337", signer=users.SIGNER, stdout=StringIO())
    batch = reserved(two_signers, key, killing)
    call_command("resume", "31337", signer=users.SIGNER, stdout=StringIO())
    several_signers.configure(settings, tmp_path, two_signers, signers=1)
    work()
    # After 300 seconds, a slow worker could still be signing the transaction.
    age(300)
    work()
    assert Transaction.objects.get(queries__batch=batch).state == "PENDING"
    age()
    assert work_until_done(batch).status == BatchStatus.DONE
    left_behind, sent = Transaction.objects.filter(queries__batch=batch).order_by("pk")
    assert (left_behind.state, left_behind.hashes, sent.signer.address) == ("DISPLACED", [], users.SIGNER)
    assert not Signer.objects.exclude(nonce_fault=None).exists()
    # The second key is configured again.
    several_signers.configure(settings, tmp_path, two_signers)
    call_command("stop", "31337", signer=users.SIGNER, stdout=StringIO())
    batch = done(submit(key, request(users.ALICE, block=two_signers.head())), two_signers)
    assert Transaction.objects.get(queries__batch=batch).signer.address == users.SECOND_SIGNER
    assert len(chain_state.events(two_signers, chain_state.ACCOUNT_PROVEN)) == 2


# --- At each exchange, of several signers, paths and commands ---------------------------------------------------------


@pytest.mark.long
def test_transactions_of_two_signers_are_sent_once_wherever_the_worker_is_killed(two_signers, killing):
    key = users.a_key()
    for batches, exchange in enumerate(killing.exchanges(), 1):
        two_signers.mine(5)
        work(2)
        nonce = chain_state.signer_nonce(two_signers)
        head = two_signers.head()
        # In every third round the first signer is stopped, so both signers send.
        call_command("stop" if batches % 3 == 0 else "resume", "31337", signer=users.SIGNER, stdout=StringIO())
        body = request(users.ALICE, block=head)
        (account,) = body["data"]["31337"].values()
        body["data"]["31337"][f"block:{head - 1}"] = account
        batch = submit(key, body)
        # The kill is before the node acts in every other round, and after it in the rest.
        with killing.at(exchange, after=batches % 2 == 0):
            work_until_done(batch)
        assert work_until_done(batch).status == BatchStatus.DONE
        work()
        sent = chain_state.signer_nonce(two_signers)
        assert sent == chain_state.signer_nonce(two_signers, "pending") == nonce + 2, f"killed at exchange {exchange}"
    assert exchange > 15
    assert len(chain_state.events(two_signers, chain_state.ACCOUNT_PROVEN)) == 2 * batches
    for signer in Signer.objects.all():
        nonces = list(signer.transactions.order_by("nonce").values_list("nonce", flat=True))
        assert nonces == list(range(len(nonces)))
        assert len(nonces) > 2
    assert not Transaction.objects.filter(succeeded=False).exists()


@pytest.mark.release
def test_a_path_is_sent_once_wherever_the_worker_is_killed(chain, db, settings, tmp_path, killing):
    settings.CHAINS_FILE = chains_toml(tmp_path, chain.url, connection="window = 10")
    deployed.deploy_on(chain)
    key = users.a_key()
    for batches, exchange in enumerate(killing.exchanges(), 1):
        chain.mine(40)
        work()
        nonce = chain_state.signer_nonce(chain)
        batch = submit(key, request(users.ALICE, block=chain.head() - 25))
        # The kill is before the node acts in every other round, and after it in the rest.
        with killing.at(exchange, after=batches % 2 == 0):
            work_until_done(batch)
        assert work_until_done(batch).status == BatchStatus.DONE
        work()
        # One transaction contains two hops, the header and the account.
        assert chain_state.signer_nonce(chain) == chain_state.signer_nonce(chain, "pending") == nonce + 1, (
            f"killed at exchange {exchange}"
        )
    assert exchange > 12
    headers = [log["topics"][1] for log in chain_state.events(chain, chain_state.HEADER_ACCUMULATED)]
    assert len(headers) == len(set(headers))


@pytest.mark.long
def test_a_registry_is_deployed_once_wherever_the_command_is_killed(service, killing, settings):
    reconfigure(settings, "id = 31337\n", "id = 31337\nhistory_window = 9000\n")
    for kills, exchange in enumerate(killing.exchanges()):
        FactsRegistry.objects.all().delete()
        # It is another registry in each round, because the contracts of the one before are there.
        reconfigure(settings, f"history_window = {9000 + kills}", f"history_window = {9001 + kills}")
        nonce = chain_state.signer_nonce(service)
        # The kill is before the node acts in every other round, and after it in the rest.
        with killing.at(exchange, after=kills % 2 == 0):
            deployed.deploy()
        deployed.deploy()
        assert chain_state.signer_nonce(service) == nonce + 2, f"killed at exchange {exchange}"
    assert exchange > 8


@pytest.mark.release
def test_a_registry_is_replaced_once_wherever_the_command_is_killed(service, killing, settings, tmp_path):
    """Each replaced registry stays on record, and an open batch is finished."""
    key = users.a_key()
    replaced: list[str] = []
    for exchange in killing.exchanges():
        batch = submit(key, request(users.ALICE, block=service.head()))
        work()
        if len(replaced) % 12 == 11:
            # A registry has 16 addresses. One for another history has others.
            history = f"history_window = {9000 + len(replaced)}"
            settings.CHAINS_FILE = chains_toml(tmp_path, service.url, chain=history)
        replaced.append(chain_state.registry().address)
        service.rpc("anvil_setCode", replaced[-1], "0x00")
        nonce = chain_state.signer_nonce(service, "pending")
        with killing.at(exchange, after=len(replaced) % 2 == 0):
            deployed.deploy(31337, 31337, "--replace")
        deployed.deploy(31337, 31337, "--replace")
        assert chain_state.signer_nonce(service) == nonce + 2, f"killed at exchange {exchange}"
        rows = FactsRegistry.objects.exclude(replaced_at=None).order_by("pk")
        assert list(rows.values_list("address", flat=True)) == replaced
        assert all(rows.values_list("replaced_because", flat=True))
        assert work_until_done(batch).status == BatchStatus.DONE
    assert exchange > 8
