"""A registry is used only while its code is this version's."""

import io
import re
import time
from datetime import timedelta
from html import unescape

import pytest
from django.core.management import CommandError, call_command
from django.db import IntegrityError, connection
from django.test import Client
from django.utils import timezone
from eth_utils.crypto import keccak

from chains.contract_artifacts import DEPLOYER, NO_CONTRACT
from config.configured_chains import forget_chains
from devnet.devchain import DevChain
from proving.models import FactsRegistry, SignedTransaction, Transaction
from queries.models import Batch, BatchStatus, Block, Query, StepKind
from tests.contracts.deployed import Deployed
from tests.deployed import deploy, use_earlier_registry
from tests.explorer.batches import beat, bundle_of, path
from tests.proving import logs, money, prices
from tests.proving.chain_state import AccountField, balance_at, field_on_chain, registry, signer_nonce
from tests.service import (
    asking,
    balances,
    chains_toml,
    changed_replies,
    fresh,
    request,
    submit,
    waiting,
    work,
    work_until_done,
)
from tests.users import ALICE, BOB, CHARLIE, a_key

pytestmark = [pytest.mark.django_db, pytest.mark.outside]

# The code returns a word of ones for any call, so only its bytes differ from a registry's.
OTHER_CODE = "0x5f195f5260205ff3"
# PUSH0 PUSH0 REVERT
REVERTING_CODE = "0x5f5ffd"
OTHER = "its code differs from this version's contract"
REMEDY = "manage.py deploy_registry 31337 31337 --replace"


def restart() -> None:
    """Forget the process's observations, as a restart does."""
    forget_chains()


def replace_code(chain: DevChain, code: str = OTHER_CODE) -> FactsRegistry:
    row = registry()
    # The next block's header contains the state with the old code, so proofs at it show that code.
    chain.mine()
    chain.rpc("anvil_setCode", row.address, code)
    chain.mine()
    restart()
    return row


def health() -> tuple[int, str]:
    response = Client().get("/healthz")
    return response.status_code, " ".join(response.json()["problems"])


def check_chains() -> tuple[str, str]:
    """Run `check_chains`. Return its output and its error."""
    output = io.StringIO()
    try:
        call_command("check_chains", stdout=output)
    except CommandError as error:
        return output.getvalue(), str(error)
    return output.getvalue(), ""


def words_of(page: str) -> str:
    """Return a page's text as a copy contains it, with abbreviated values in full."""
    return unescape(re.sub(r"<[^>]*>", "", page))


# --- Refusal ----------------------------------------------------------------------------------------------------------


@pytest.mark.story
def test_while_its_code_is_another_one_nothing_is_sent_and_everybody_is_told(service, key):
    received, block = submit(key, request(ALICE, block=service.head())), service.head()
    row = replace_code(service)
    nonce = signer_nonce(service)
    work(3)
    assert fresh(received).status == BatchStatus.RECEIVED
    assert signer_nonce(service, "pending") == nonce
    beat()
    printed, error = check_chains()
    for text in (str(received.wait), words_of(Client().get(path(received)).text), health()[1], printed):
        # Pages show the chain's name instead of its number.
        by_number = text.replace("Development chain", "chain 31337")
        assert f"The facts registry at {row.address} on chain 31337 for chain 31337 is not used: {OTHER}" in by_number
    # Only operators read the command.
    assert REMEDY not in str(received.wait) + Client().get(path(received)).text
    assert REMEDY in health()[1]
    assert REMEDY in printed
    assert health()[0] == 503
    assert error.startswith(f"registry_refused: The facts registry at {row.address} on chain 31337")
    assert error.endswith(REMEDY)

    new = deploy(31337, 31337, "--replace")
    assert work_until_done(received).status == BatchStatus.DONE
    assert new.address == registry().address != row.address
    assert field_on_chain(service, ALICE, block, AccountField.BALANCE) == balance_at(service, ALICE, block)
    beat()
    assert health() == (200, "")
    printed, error = check_chains()
    assert error == ""
    assert f"{new} has verified code, {new.code_hash}." in printed


def test_a_batch_that_was_accepted_before_waits_too(service, key):
    batch = submit(key, request(ALICE, block=service.head()))
    call_command("stop")
    work()
    replace_code(service)
    call_command("resume")
    sent = Transaction.objects.count()
    work(3)
    assert fresh(batch).status == BatchStatus.IN_PROGRESS
    assert Transaction.objects.count() == sent
    (sentence,) = waiting()
    assert OTHER in sentence
    assert REMEDY not in sentence


@pytest.mark.parametrize("what", ["source", "history"])
def test_a_registry_that_was_deployed_with_something_else_is_refused(service, what):
    """The code is right, but its values differ: another block hash source or another history size than recorded."""
    row = registry()
    source = Deployed(service, "NativeBlockHashSource", 8191).address if what == "source" else row.block_hash_source
    window = 393168 if what == "history" else 8191
    row.address = Deployed(service, "FactsRegistry", 31337, source, window, NO_CONTRACT).address
    row.save()
    restart()
    work()
    assert OTHER in registry().refused


def test_a_registry_for_a_history_of_another_size_than_the_chain_has_is_refused(service, settings, tmp_path):
    settings.CHAINS_FILE = chains_toml(tmp_path, service.url, chain="history_window = 393168")
    work()
    assert "a history with 8191 slots, and chain 31337 has 393168 in chains.toml" in registry().refused


def test_a_registry_of_an_earlier_version_is_looked_at_before_it_is_used(service):
    """Earlier versions didn't record the code's hash."""
    FactsRegistry.objects.update(code_hash="")
    restart()
    work()
    assert registry().code_hash != ""


def test_a_registry_of_0_3_0_proves_facts_in_its_own_form_until_it_is_replaced(service, key):
    row = use_earlier_registry(service)
    number = logs.block_with_logs(service)
    transactions = {"0": {"logs": ["0"]}}
    account = {ALICE: {"props": ["BALANCE"], "slots": []}}
    asked = asking({f"block:{number}": {"accounts": account, "transactions": transactions}})
    before = submit(key, asked)
    assert work_until_done(before).status == BatchStatus.DONE
    assert (registry().address, registry().refused) == (row.address, "")
    assert field_on_chain(service, ALICE, number, AccountField.BALANCE) == balance_at(service, ALICE, number)
    (shown,) = Client().get("/chains.json").json()["connections"]
    assert (shown["codeIsRight"], shown["provesTransactions"], shown["notes"]) == (True, True, [])

    service.mine(2)  # what is proven is final now
    deploy(31337, 31337, "--replace")
    after = submit(key, asked)
    assert work_until_done(after).status == BatchStatus.DONE
    assert registry().address != row.address
    assert field_on_chain(service, ALICE, number, AccountField.BALANCE) == balance_at(service, ALICE, number)
    assert "has an earlier version" in FactsRegistry.objects.get(address=row.address).replaced_because


# --- Intervals of code checks -----------------------------------------------------------------------------------------


def later(monkeypatch, seconds: int) -> None:
    monotonic = time.monotonic
    monkeypatch.setattr(time, "monotonic", lambda: monotonic() + seconds)


def test_a_process_compares_it_again_from_time_to_time(service, monkeypatch):
    work()
    service.rpc("anvil_setCode", registry().address, OTHER_CODE)
    later(monkeypatch, 601)
    work()
    assert OTHER in registry().refused
    assert OTHER in str(registry().wait)


def test_a_registry_refused_by_a_nodes_mistake_is_checked_again_soon(service, monkeypatch):
    code = service.rpc("eth_getCode", registry().address, "latest")
    replace_code(service, "0x")
    work()
    assert "no code there" in registry().refused
    service.rpc("anvil_setCode", registry().address, code)
    later(monkeypatch, 11)
    work()
    assert registry().refused == ""


def test_a_node_that_does_not_answer_refuses_no_registry(service, settings, tmp_path, key):
    settings.CHAINS_FILE = chains_toml(tmp_path, "http://127.0.0.1:1")
    batch = submit(key, request(ALICE, block=3))
    work()
    assert "can't be reached" in str(fresh(batch).wait)
    assert "can't be reached" in str(registry().wait)
    assert registry().refused == ""
    assert "can't be read" in check_chains()[0]


# --- Transactions under way -------------------------------------------------------------------------------------------


@pytest.mark.long
def test_a_transaction_to_a_registry_refused_since_is_cancelled(service, key):
    service.rpc("evm_setAutomine", False)
    batch = submit(key, request(ALICE, block=service.head()))
    tx = money.pending(batch)
    service.rpc("anvil_setCode", registry().address, OTHER_CODE)
    restart()
    # The node has lost the transaction, as if it had never been broadcast.
    service.rpc("anvil_dropAllTransactions")
    SignedTransaction.objects.filter(transaction=tx).update(broadcast_at=None)
    work()
    service.mine()
    work()
    assert fresh(tx).versions.get(hash=tx.hash).is_cancellation
    assert tx.succeeded is False
    service.rpc("evm_setAutomine", True)
    deploy(31337, 31337, "--replace")
    assert work_until_done(batch).status == BatchStatus.DONE
    assert len({*Transaction.objects.exclude(to=DEPLOYER).values_list("to", flat=True)}) == 2


# --- Replacement ------------------------------------------------------------------------------------------------------


def test_there_is_one_registry_in_use_for_each_connection(service):
    row = registry()
    row.pk = None
    with pytest.raises(IntegrityError):
        row.save()


@pytest.mark.long
def test_a_registry_that_was_replaced_stays_on_record(service, key):
    old = replace_code(service)
    deploy(31337, 31337, "--replace")
    row = FactsRegistry.objects.get(pk=old.pk)
    assert row.address == old.address
    assert row.replaced_at is not None
    assert row.code_hash == "0x" + keccak(hexstr=OTHER_CODE).hex()
    assert OTHER in row.replaced_because
    beat()
    printed, error = check_chains()
    assert f"Replaced on {row.replaced_at:%Y-%m-%d}, code {row.code_hash}: {row.replaced_because}" in printed
    assert error == ""
    page = words_of(Client().get(path(submit(key, request(ALICE, block=1)))).text)
    assert row.address in page
    assert row.code_hash in page


@pytest.fixture
def half_proven(service, key) -> Query:
    """Return a proven query of an open batch. The batch's other block isn't mined yet."""
    batch = submit(key, asking(balances([service.head() - 1, service.head() + 40], BOB)))
    work(4)
    return batch.queries.get(step=None)


@pytest.mark.story
def test_facts_of_open_batches_on_a_replaced_registry_are_proven_to_its_successor(service, half_proven):
    batch = half_proven.batch
    before = transactions_of(half_proven)
    assert len(before) == 1
    old = replace_code(service)
    deploy(31337, 31337, "--replace")
    half_proven.refresh_from_db()
    batch.refresh_from_db()
    assert half_proven.step == StepKind.BLOCKHASH_AVAILABLE
    assert f"{old.address} is replaced" in batch.went_back_because
    service.mine(40)
    assert work_until_done(batch).status == BatchStatus.DONE
    assert len(transactions_of(half_proven)) == 1
    assert transactions_of(half_proven).isdisjoint(before)
    for block in Block.objects.all():
        assert field_on_chain(service, BOB, block.number, AccountField.BALANCE) == balance_at(
            service, BOB, block.number
        )


@pytest.mark.long
def test_transactions_to_a_replaced_registry_take_nothing_of_the_fees_of_open_batches(costly, key):
    """Transactions to the old registry aren't final yet. Both batches must still be finished within their fees."""
    costly.mine(10)
    costly.rpc("evm_setAutomine", True)
    prices.mine_at(costly, 1)
    head = costly.head()
    keys = {head: key, head - 4: a_key(BOB)}
    batches = [submit(keys[at], asking(balances([*range(at - 3, at + 1), head + 40]), fee="auto")) for at in keys]
    prices.go_on(costly, 1, 6)
    assert [batch.queries.filter(step=None).count() for batch in batches] == [4, 4]
    replace_code(costly)
    deploy(31337, 31337, "--replace")
    costly.mine(40)
    prices.mine_at(costly, 1)
    prices.go_on(costly, 1, 12)
    for batch in batches:
        assert fresh(batch).status == BatchStatus.DONE, waiting()
        assert 0 < fresh(batch).spent <= batch.fee


@pytest.mark.long
def test_transactions_to_a_replaced_registry_take_nothing_of_their_users_limits(costly, key, settings):
    costly.mine(10)
    costly.rpc("evm_setAutomine", True)
    prices.mine_at(costly, 1)
    done = work_until_done(submit(key, asking(balances(range(costly.head() - 3, costly.head())), fee="auto")), costly)
    replace_code(costly)
    call_command("deploy_registry", "31337", "31337", "--replace", stdout=io.StringIO())
    prices.mine_at(costly, 1)
    money.limit(settings, daily_limit=prices.ETHER, daily_limit_per_user=done.spent)
    two = [costly.head() - 1, costly.head()]
    batch = work_until_done(submit(key, asking(balances(two), fee="auto")), costly)
    assert batch.status == BatchStatus.DONE, batch.rejection_reason
    # Transactions to the new one count.
    money.limit(settings, daily_limit=prices.ETHER, daily_limit_per_user=batch.spent)
    more = work_until_done(submit(key, asking(balances([number + 1 for number in two]), fee="auto")), costly)
    assert more.status != BatchStatus.DONE


@pytest.mark.long
def test_facts_that_others_prove_to_the_successor_are_not_put_down_to_old_transactions(service, half_proven):
    (tx,) = Transaction.objects.filter(queries=half_proven)
    replace_code(service)
    new = deploy(31337, 31337, "--replace")
    sent = {"from": BOB, "to": new.address, "data": "0x" + bytes(tx.data).hex()}
    assert service.rpc("eth_sendTransactionSync", sent)["status"] == "0x1"
    service.mine(40)
    assert work_until_done(half_proven.batch).status == BatchStatus.DONE
    assert transactions_of(half_proven) == set()


def transactions_of(query: Query) -> set[str]:
    return set(query.steps.exclude(transaction_hash="").values_list("transaction_hash", flat=True))


@pytest.mark.long
def test_a_batch_that_was_done_before_says_where_its_facts_are(service, key):
    done = work_until_done(submit(key, request(ALICE, block=service.head())))
    old = replace_code(service)
    work()
    assert "in a registry that is no longer used" in " ".join(Client().get(path(done)).text.split())
    new = deploy(31337, 31337, "--replace")
    work()
    assert fresh(done).status == BatchStatus.DONE
    assert "in a registry that was replaced" in " ".join(Client().get(path(done)).text.split())
    body = Client().get(f"{path(done)}.json").json()
    assert {fact["registry"] for query in body["queryList"] for fact in query["facts"]} == {old.address}
    assert bundle_of(done, 1)["blocks"][0]["factsRegistry"] == old.address

    again = work_until_done(submit(key, request(ALICE, block=service.head())))
    text = Client().get(path(again)).text
    assert f'title="{new.address}"' in text
    assert "The facts of this batch are in a registry" not in text


@pytest.mark.long
def test_facts_that_a_refused_registry_loses_are_noticed_when_it_is_used_again(service, half_proven, monkeypatch):
    (tx,) = Transaction.objects.filter(queries=half_proven)
    address = registry().address
    code = service.rpc("eth_getCode", address, "latest")
    service.rpc("anvil_reorg", service.head() - (tx.block_number or 0) + 1, [])
    replace_code(service, "0x")
    work(3, service)
    assert registry().refused
    service.rpc("anvil_setCode", address, code)
    later(monkeypatch, 11)
    service.mine(40)
    assert work_until_done(half_proven.batch, service, rounds=20).status == BatchStatus.DONE
    for number in Block.objects.values_list("number", flat=True):
        assert field_on_chain(service, BOB, number, AccountField.BALANCE) == balance_at(service, BOB, number)


@pytest.mark.long
def test_a_batch_that_is_done_while_its_registry_is_replaced_stays_in_the_old_one(service, key):
    """The command waits for locks while a worker, whose clock is ahead, ends the batch."""
    batch, old = work_until_done(submit(key, request(ALICE, block=service.head()))), registry()
    end = timezone.now() + timedelta(seconds=30)
    ended = Batch.objects.filter(pk=batch.pk)
    ended.update(status=BatchStatus.IN_PROGRESS, finished_at=None)
    is_time = iter([True])

    def finish(execute, sql, *more):
        if sql.startswith('SELECT "queries_batch"."id"') and next(is_time, False):
            ended.update(status=BatchStatus.DONE, finished_at=end)
        return execute(sql, *more)

    replace_code(service)
    work()
    with connection.execute_wrapper(finish):
        deploy(31337, 31337, "--replace")
    assert fresh(batch).finished_at == end
    assert bundle_of(batch, 1)["blocks"][0]["factsRegistry"] == old.address


@pytest.mark.long
@pytest.mark.parametrize(("turns", "method"), [(0, "eth_getProof"), (0, "eth_estimateGas"), (1, "eth_call")])
def test_a_worker_that_looked_at_the_old_one_proves_nothing_by_what_it_saw(service, settings, key, turns, method):
    """The operator replaces the registry during a worker's turn, between two database transactions."""
    block, depth = service.head(), len(connection.savepoint_ids)
    old, methods = registry().address, set[str]()
    is_time = iter([True])

    def change(question, reply):
        methods.add(question["method"])
        return [reply]

    def replace(execute, *more):
        if method in methods and len(connection.savepoint_ids) == depth and next(is_time, False):
            replace_code(service)
            deploy(31337, 31337, "--replace")
        return execute(*more)

    with changed_replies(settings, service, change):
        batch = submit(key, request(CHARLIE, block=block))
        work(turns)
        methods.clear()
        with connection.execute_wrapper(replace):
            work()
        assert work_until_done(batch).status == BatchStatus.DONE
    assert old != registry().address
    # The old registry was used only in an earlier turn.
    assert Transaction.objects.filter(queries__batch=batch, to=old).count() == turns
    assert field_on_chain(service, CHARLIE, block, AccountField.BALANCE) == balance_at(service, CHARLIE, block)
