"""Killed at any moment: nothing is lost, nothing is done twice.

A kill is an exception that nothing here catches, at every single exchange with the node, once before the node was
asked and once after it had acted but before we knew. What is killed writes nothing more.
A run takes each fourth exchange, and `make chaos` each.
"""

import itertools
from contextlib import suppress
from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from proving.models import FactsRegistry, Signer, Transaction
from queries.models import BatchStatus, Step, StepKind
from tests.deployed import deploy, deploy_on
from tests.proving.chain_state import ACCOUNT_PROVEN, HEADER_ACCUMULATED, events, registry, signer_nonce
from tests.proving.kills import BEFORE_AND_AFTER, exchanges
from tests.service import ALICE, BOB, SIGNER, a_key, chains_toml, request, submit, work, work_until_done

pytestmark = [pytest.mark.django_db, pytest.mark.outside]


@pytest.mark.parametrize("after", BEFORE_AND_AFTER)
def test_a_batch_is_done_once_wherever_the_worker_is_killed(service, killing, after):
    key = a_key()
    batches = 0
    for exchange in exchanges(after=after):
        batches += 1
        # Everything before is final and nothing is due: what is killed must make due whatever it leaves behind.
        service.mine(5)
        work()
        work()
        assert not Signer.objects.filter(due_at__isnull=False).exists()
        block = service.head()
        nonce = signer_nonce(service)
        batch = submit(key, request(ALICE, BOB, block=block))
        with killing.at(exchange, after=after):
            work_until_done(batch)
        assert work_until_done(batch).status == BatchStatus.DONE
        work()  # what a killed worker may have left behind
        assert signer_nonce(service) == signer_nonce(service, "pending") == nonce + 1, f"killed at exchange {exchange}"
        assert Step.objects.filter(query__batch=batch).count() == 2 * len(StepKind)
        batch.refresh_from_db()
        assert batch.gas_used > 0
        if not killing.killed:
            break
    assert exchange > 7
    assert len(events(service, HEADER_ACCUMULATED)) == batches
    assert len(events(service, ACCOUNT_PROVEN)) == 2 * batches
    nonces = Transaction.objects.order_by("nonce").values_list("nonce", flat=True)
    assert list(nonces) == list(range(len(nonces)))


@pytest.mark.django_db(transaction=True)
def test_a_worker_that_is_frozen_at_any_exchange_pays_nothing_again_when_it_goes_on(service, killing):
    """Meanwhile its leases run out, and another one does all of it."""
    key = a_key()
    for batches, exchange in enumerate(exchanges(), 1):
        service.mine(5)
        work()
        work()
        nonce = signer_nonce(service)
        batch = submit(key, request(ALICE, BOB, block=service.head()))
        ended: list[str] = []

        def another_works(batch=batch, ended=ended) -> None:
            ended.append(work_until_done(batch).status)

        with killing.frozen_at(exchange, another_works, after=batches % 2 == 0), suppress(CommandError):
            work_until_done(batch)
        assert work_until_done(batch).status == BatchStatus.DONE
        work()
        assert signer_nonce(service) == signer_nonce(service, "pending") == nonce + 1, f"frozen at exchange {exchange}"
        if not ended:
            break
        assert ended == [BatchStatus.DONE]
    assert exchange > 7
    assert len(events(service, ACCOUNT_PROVEN)) == 2 * batches


@pytest.mark.long
def test_what_two_signers_send_is_sent_once_wherever_the_worker_is_killed(two_signers, killing):
    key = a_key()
    for batches, exchange in enumerate(exchanges(), 1):
        two_signers.mine(5)
        work()
        work()
        nonce = signer_nonce(two_signers)
        head = two_signers.head()
        # By turns the one sends and the other.
        call_command("stop" if batches % 3 == 0 else "resume", "31337", signer=SIGNER, stdout=StringIO())
        body = request(ALICE, block=head)
        (account,) = body["data"]["31337"].values()
        body["data"]["31337"][f"block:{head - 1}"] = account
        batch = submit(key, body)
        # By turns before the node acts, and after it acted.
        with killing.at(exchange, after=batches % 2 == 0):
            work_until_done(batch)
        assert work_until_done(batch).status == BatchStatus.DONE
        work()
        sent = signer_nonce(two_signers)
        assert sent == signer_nonce(two_signers, "pending") == nonce + 2, f"killed at exchange {exchange}"
        if not killing.killed:
            break
    assert exchange > 15
    assert len(events(two_signers, ACCOUNT_PROVEN)) == 2 * batches
    for signer in Signer.objects.all():
        nonces = list(signer.transactions.order_by("nonce").values_list("nonce", flat=True))
        assert nonces == list(range(len(nonces)))
        assert len(nonces) > 2
    assert not Transaction.objects.filter(succeeded=False).exists()


@pytest.mark.long
def test_a_path_is_sent_once_wherever_the_worker_is_killed(chain, db, settings, tmp_path, killing):
    settings.CHAINS_FILE = chains_toml(tmp_path, chain.url, connection="window = 10")
    deploy_on(chain)
    key = a_key()
    for batches, exchange in enumerate(exchanges(), 1):
        chain.mine(40)
        work()
        nonce = signer_nonce(chain)
        batch = submit(key, request(ALICE, block=chain.head() - 25))
        # By turns before the node acts, and after it acted.
        with killing.at(exchange, after=batches % 2 == 0):
            work_until_done(batch)
        assert work_until_done(batch).status == BatchStatus.DONE
        work()
        # One transaction of two hops, the header and the account.
        assert signer_nonce(chain) == signer_nonce(chain, "pending") == nonce + 1, f"killed at exchange {exchange}"
        if not killing.killed:
            break
    assert exchange > 12
    headers = [log["topics"][1] for log in events(chain, HEADER_ACCUMULATED)]
    assert len(headers) == len(set(headers))


def test_it_may_be_killed_again_and_again(service, killing):
    """At every exchange of every try: each life gets one exchange further than the last."""
    nonce = signer_nonce(service)
    batch = submit(a_key(), request(ALICE, block=service.head()))
    lives = 0
    for exchange in itertools.count(1):
        with killing.at(exchange, after=True):
            work_until_done(batch)
        if not killing.killed:
            break
        lives += 1
        batch.refresh_from_db()
        if batch.status == BatchStatus.DONE:
            break
    work()
    assert lives > 5
    assert signer_nonce(service) == nonce + 1
    assert len(events(service, ACCOUNT_PROVEN)) == 1


@pytest.mark.parametrize("after", BEFORE_AND_AFTER)
def test_a_registry_is_deployed_once_wherever_the_command_is_killed(service, killing, after):
    for exchange in exchanges(after=after):
        FactsRegistry.objects.all().delete()
        nonce = signer_nonce(service)
        with killing.at(exchange, after=after):
            deploy()
        deploy()
        assert signer_nonce(service) == nonce + 3, f"killed at exchange {exchange}"
        if not killing.killed:
            break
    assert exchange > 8


@pytest.mark.parametrize("after", BEFORE_AND_AFTER)
def test_a_registry_is_replaced_once_wherever_the_command_is_killed(service, killing, after):
    """None is lost of those that it replaces, and a batch that is open meanwhile goes on."""
    key = a_key()
    replaced = []
    for exchange in exchanges(after=after):
        batch = submit(key, request(ALICE, block=service.head()))
        work()
        replaced.append(registry().address)
        service.rpc("anvil_setCode", replaced[-1], "0x00")
        nonce = signer_nonce(service, "pending")
        with killing.at(exchange, after=after):
            deploy(31337, 31337, "--replace")
        deploy(31337, 31337, "--replace")
        assert signer_nonce(service) == nonce + 3, f"killed at exchange {exchange}"
        rows = FactsRegistry.objects.exclude(replaced_at=None).order_by("pk")
        assert list(rows.values_list("address", flat=True)) == replaced
        assert all(rows.values_list("replaced_because", flat=True))
        assert work_until_done(batch).status == BatchStatus.DONE
        if not killing.killed:
            break
    assert exchange > 8
