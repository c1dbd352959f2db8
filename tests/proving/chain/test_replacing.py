"""`manage.py deploy_registry --replace` waits until the facts of a usable registry are final."""

import io
from collections.abc import Callable
from contextlib import ExitStack
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import OperationalError, connection
from django.test import Client
from django.utils import timezone

from devnet.devchain import DevChain
from proving.models import FactsRegistry, Lane, Signer, Transaction
from queries.models import Batch, BatchStatus, Block
from tests import chain_fixtures, users
from tests.chains.lying_node import between
from tests.deployed import deploy, use_earlier_registry
from tests.explorer.batches import beat, path
from tests.explorer.pages import text_of
from tests.proving import self_funded
from tests.proving.chain_state import AccountField, balance_at, field_on_chain, registry
from tests.proving.proxy import Proxy
from tests.service import done, fresh, reconfigure, request, submit, work

pytestmark = [pytest.mark.django_db, pytest.mark.outside]

# The final block of this chain is 16 blocks below its newest one.
chain = chain_fixtures.chain_fixture(lambda chain: chain.mine(20), scope="function", slots_in_an_epoch=8)
FINAL = 16


class Told(io.StringIO):
    """A stream for the lines of a command. The next of the `events` happens after each line."""

    def __init__(self, *events: Callable[[], object]) -> None:
        super().__init__()
        self.events = [*events]

    def write(self, line: str) -> int:
        written = super().write(line)
        if self.events:
            self.events.pop(0)()
        return written


def replace(*events: Callable[[], object], seconds: int = 60) -> list[str]:
    """Run the command. Return what it told of its waits."""
    told = Told(*events)
    options = "--replace", f"--wait={seconds}"
    call_command("deploy_registry", "31337", "31337", *options, stdout=io.StringIO(), stderr=told)
    assert not told.events
    return told.getvalue().splitlines()


@pytest.fixture
def replaceable(service, key) -> FactsRegistry:
    """Return a usable registry with a fact that isn't final. The contracts of the next one are there."""
    row = use_earlier_registry(service)
    done(submit(key, request(users.ALICE, block=service.head())))
    with pytest.raises(CommandError, match=r"After 0 s the facts of the registry at .* are not final"):
        replace(seconds=0)
    assert registry().pk == row.pk
    return row


def transaction_of(batch: Batch) -> Transaction:
    return Transaction.objects.filter(queries__batch=batch).distinct().get()


def last_facts(block: int, final: int) -> str:
    where = "Development chain (31337)"
    return f"The old registry's last facts are in block {block} of {where}. The newest final block is {final}."


def held(chain: DevChain, number: int, account: str = users.ALICE) -> bool:
    """Return whether the registry in use has the account's balance at a block."""
    return field_on_chain(chain, account, number, AccountField.BALANCE) == balance_at(chain, account, number)


@pytest.mark.long
def test_its_facts_become_final_first_and_nothing_new_is_proven_to_it(service, key, replaceable):
    number, submitted = service.head(), list[Batch]()
    (before,) = Batch.objects.all()

    def wait_and_submit() -> None:
        submitted.append(submit(key, request(users.BOB, block=number)))
        work(3)
        assert fresh(submitted[0]).status == BatchStatus.ACCEPTED
        assert not Transaction.objects.filter(queries__batch=submitted[0]).exists()
        service.mine(1)

    told = replace(wait_and_submit, lambda: service.mine(FINAL))
    assert told == [last_facts(number, number - FINAL), last_facts(number, number + 1 - FINAL)]
    assert registry().address != replaceable.address
    done(submitted[0])
    assert transaction_of(submitted[0]).to in {registry().address, registry().multicall}
    assert held(service, number, users.BOB)
    assert fresh(before).status == BatchStatus.DONE
    facts = [fact for query in Client().get(f"{path(before)}.json").json()["queryList"] for fact in query["facts"]]
    assert {fact["registry"] for fact in facts} == {replaceable.address}


@pytest.mark.long
def test_after_its_time_it_has_changed_nothing(service, key, replaceable):
    started = list(Transaction.objects.values_list("pk", flat=True))
    before = FactsRegistry.objects.values().get()
    with pytest.raises(CommandError, match=r"not replaced.* The old registry's last facts are in block"):
        replace(seconds=1)
    assert FactsRegistry.objects.values().get() == before
    assert list(Transaction.objects.values_list("pk", flat=True)) == started
    batch = done(submit(key, request(users.BOB, block=service.head())))
    assert transaction_of(batch).to == replaceable.address


@pytest.mark.long
@pytest.mark.parametrize("contract", ["address", "multicall"])
def test_it_waits_for_open_transactions_which_it_watches_itself(service, key, replaceable, contract):
    service.rpc("evm_setAutomine", False)
    batch = submit(key, request(users.BOB, block=service.head()))
    work(3)
    tx = transaction_of(batch)
    # Batches that share a transaction call Multicall.
    type(tx).objects.filter(pk=tx.pk).update(to=getattr(replaceable, contract))
    # The node has lost the transaction, and no worker runs that would broadcast it again.
    service.rpc("anvil_dropAllTransactions")
    type(tx.newest).objects.filter(transaction=tx).update(broadcast_at=None)
    number = service.head() + 1

    def mine() -> None:
        service.rpc("evm_setAutomine", True)
        service.mine(FINAL)

    told = replace(service.mine, mine)
    assert told == [
        f"Open transactions to the old registry: 1. Waiting for transaction {tx.hashes[0]} to be mined.",
        last_facts(number, number - FINAL),
    ]
    assert fresh(tx).block_number == number
    # The batch was open, so the next registry gets its fact, too.
    done(batch)
    assert Transaction.objects.filter(queries__batch=batch).count() == 2
    assert held(service, number - 1, users.BOB)


@pytest.mark.long
def test_facts_that_a_reorg_moves_while_it_waits_become_final_where_they_are_then(service, key, replaceable):
    number = service.head()
    batch = done(submit(key, request(users.BOB, block=number)))
    first = transaction_of(batch)

    def reorganise() -> None:
        service.mine(2)
        service.rpc("evm_setAutomine", False)
        service.rpc("anvil_reorg", service.head() - (first.block_number or 0) + 1, [])

    told = replace(
        reorganise,
        lambda: service.rpc("evm_setAutomine", True) or service.mine(),
        lambda: service.mine(FINAL),
        lambda: service.mine(FINAL),
    )
    assert [line.partition(":")[0].partition(" in block")[0] for line in told] == [
        "The old registry's last facts are",
        "Open transactions to the old registry",
        "The old registry's last facts are",
        "The old registry's last facts are",
    ]
    assert fresh(batch).status == BatchStatus.DONE
    assert batch.went_back_at is None
    assert transaction_of(batch).block_hash != first.block_hash
    registry_now, old = registry(), replaceable
    assert registry_now.address != old.address
    FactsRegistry.objects.filter(pk=registry_now.pk).update(address=old.address)
    assert held(service, number, users.BOB)


@pytest.mark.long
def test_facts_of_others_that_a_reorg_takes_while_it_waits_are_proven_to_the_next(service, key, replaceable):
    number = service.head()
    batch = submit(key, self_funded.itself(request(users.BOB, block=number)))
    work(3)
    self_funded.send(service, self_funded.left_of(batch)["transactions"])
    done(batch)
    proven = service.head()

    def reorganise() -> None:
        service.rpc("anvil_reorg", service.head() - proven + 1, [])
        service.mine(FINAL + 2)

    replace(reorganise, lambda: service.mine(FINAL))
    assert fresh(batch).status == BatchStatus.IN_PROGRESS
    assert registry().address != replaceable.address
    self_funded.send(service, self_funded.left_of(batch)["transactions"])
    done(batch)
    assert held(service, number, users.BOB)


@pytest.mark.long
def test_what_is_final_in_the_old_one_stays_done_when_the_next_loses_the_same_facts(service, key, replaceable):
    number, old = Block.objects.get().number, Batch.objects.get()
    replace(lambda: service.mine(FINAL))
    again = done(submit(key, request(users.ALICE, users.BOB, block=number)))
    service.rpc("anvil_reorg", service.head() - (transaction_of(again).block_number or 0) + 1, [])
    work(2)
    assert (fresh(old).status, old.went_back_at) == (BatchStatus.DONE, None)
    assert fresh(again).went_back_at
    done(again, service)
    assert held(service, number)


@pytest.mark.long
def test_one_that_may_not_be_used_is_replaced_at_once(service, settings, replaceable):
    reconfigure(settings, "id = 31337\n", "id = 31337\nhistory_window = 9000\n")
    assert replace() == []
    assert registry().address != replaceable.address
    assert Batch.objects.get().status == BatchStatus.DONE


def test_without_facts_it_waits_for_nothing(service):
    row = use_earlier_registry(service)
    assert deploy(31337, 31337, "--replace", "--wait=0").address != row.address


@pytest.mark.long
def test_a_second_command_takes_over(service, replaceable):
    """The first ends without effect. An operator may have lost its terminal."""

    def others() -> None:
        assert replace(lambda: service.mine(FINAL))

    with pytest.raises(CommandError, match="Another process works on the connection now, so nothing was replaced"):
        replace(others)
    assert FactsRegistry.objects.count() == 2


@pytest.mark.long
def test_a_node_that_is_down_for_a_while_ends_no_wait(service, settings, replaceable):
    with Proxy(service.url) as proxy:
        reconfigure(settings, service.url, proxy.url)

        def up() -> None:
            service.mine(FINAL)
            proxy.up()

        told = replace(proxy.down, up)
    assert len(told) == 2
    assert "can't be reached" in told[1]
    assert registry().address != replaceable.address


BEING_REPLACED = (
    "The operator is replacing the facts registry of chain 31337 on chain 31337. Until this is done, the service "
    "proves nothing there. Send no transaction to the old registry: you would pay for its facts again."
)


def lane() -> Any:
    """Return the lane that the command holds, as a query set."""
    return Lane.objects.filter(name="connection:31337>31337")


@pytest.mark.long
def test_while_it_waits_nobody_is_given_transactions_to_the_old_registry(service, key, replaceable):
    theirs = submit(key, self_funded.itself(request(users.BOB, block=service.head())))
    work(3)
    ours = submit(key, request(users.CHARLIE, block=service.head()))
    held_by = list[str]()

    def look() -> None:
        held_by.append(lane().get().token)
        work(2)
        beat()
        left = self_funded.left_of(theirs)
        assert (left["transactions"], left["waits"], left["isComplete"]) == ([], [BEING_REPLACED], False)
        for batch in (ours, theirs):
            waits = Client().get(f"{path(batch)}.json").json()["waits"]
            assert ("registry_being_replaced", BEING_REPLACED) in [(each["code"], each["sentence"]) for each in waits]
            assert "The operator is replacing the facts registry" in text_of(Client().get(path(batch)).text)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        replace(look)
    assert self_funded.left_of(theirs)["transactions"]
    # A command that was killed leaves its lease, which ends.
    lane().update(token=held_by[0], until=timezone.now() + timedelta(seconds=15))
    assert not self_funded.left_of(theirs)["transactions"]
    lane().update(until=timezone.now() - timedelta(seconds=1))
    assert self_funded.left_of(theirs)["transactions"]


@pytest.mark.long
def test_while_it_waits_due_work_stands_still_and_is_reported(service, key, replaceable):
    hour_ago = timezone.now() - timedelta(hours=1)

    def leave() -> None:
        submit(key, request(users.BOB, block=service.head()))
        work(3)
        Block.objects.update(due_at=hour_ago)
        lane().update(advanced_at=hour_ago)
        service.mine(1)

    def look() -> None:
        health = Client().get("/healthz", REMOTE_ADDR="127.0.0.1").json()
        assert health["standstillSeconds"]["proving"] >= 3600
        service.mine(FINAL)

    replace(leave, look)


@pytest.mark.long
def test_it_keeps_the_connection_for_longer_than_a_lease(service, key, replaceable):
    submitted = list[Batch]()

    def leave() -> None:
        submitted.append(submit(key, request(users.BOB, block=service.head())))
        lane().update(until=timezone.now() - timedelta(hours=1))
        service.mine(1)

    def look() -> None:
        work(3)
        assert not Transaction.objects.filter(queries__batch=submitted[0]).exists()
        service.mine(FINAL)

    replace(leave, look)


@pytest.mark.long
def test_facts_are_final_when_each_node_reports_it(service, settings, replaceable):
    number = service.head()

    def invent(question: Any, reply: Any) -> list[Any]:
        if question["params"][:1] == ["finalized"]:
            reply = reply | {"result": service.rpc("eth_getBlockByNumber", "latest", False)}
        return [reply]

    with between(service.url, invent) as url:
        reconfigure(settings, f'"{service.url}"', f'"{url}", "{service.url}"')
        assert replace(lambda: service.mine(FINAL)) == [last_facts(number, number - FINAL)]


@pytest.mark.long
def test_transactions_of_a_removed_signer_are_not_waited_for(service, replaceable):
    removed = Signer.objects.create(chain_id=31337, address=users.BOB)
    removed.transactions.create(nonce=5, to=replaceable.address, data=b"", gas_limit=1)
    service.mine(FINAL)
    assert replace() == []


@pytest.mark.long
def test_a_registry_that_may_not_be_used_any_more_ends_the_wait(service, replaceable):
    def destroy() -> None:
        service.rpc("anvil_setCode", replaceable.address, "0x00")
        with pytest.raises(CommandError, match="its code differs"):
            deploy(31337, 31337)
        service.mine(FINAL)

    with pytest.raises(CommandError, match=r"^The facts registry at .* is not used: its code differs"):
        replace(destroy)
    assert FactsRegistry.objects.count() == 1


@pytest.mark.long
def test_a_database_that_fails_ends_the_wait_with_a_sentence(replaceable):
    def fail(*_: object) -> None:
        raise OperationalError("The server closed the connection.")

    with ExitStack() as outage, pytest.raises(CommandError) as ended:
        replace(lambda: outage.enter_context(connection.execute_wrapper(fail)))
    away = "The database of this service can't be reached, or accepts no more connections."
    assert (ended.value.returncode, str(ended.value)) == (1, f"{away} Run the command again later.")


@pytest.mark.parametrize("seconds", [-1, 86_401])
def test_it_waits_for_a_day_at_most(service, seconds):
    with pytest.raises(CommandError, match=r"^--wait must be 0 to 86400 seconds"):
        replace(seconds=seconds)
