"""Stops of one connection, and of one signer."""

import getpass
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import Client
from django.utils import timezone

from chains.contract_artifacts import DEPLOYER
from proving.models import FactsRegistry, SignedTransaction, Stop, Transaction, TransactionState
from queries.models import BatchStatus
from tests.chains.lying_node import ask, lying_node, recording
from tests.factories import log_of_operators
from tests.proving.transactions import age, between_statements
from tests.service import done, fresh, reconfigure, request, submit, waiting, work, work_until_done
from tests.users import ALICE, BOB, SECOND_SIGNER, SIGNER

pytestmark = pytest.mark.outside

LOGIN = getpass.getuser()


def output_of(*command: str) -> str:
    out = StringIO()
    call_command(*command, stdout=out)
    return out.getvalue().strip()


def senders() -> set[str]:
    return set(Transaction.objects.exclude(to=DEPLOYER).values_list("signer__address", flat=True))


# --- A connection -----------------------------------------------------------------------------------------------------


STOPPED = "The operator has stopped sending from chain 31337 to chain 31337. The reason given: A test."


def stop_connection() -> str:
    return output_of("stop", "31337", "--source", "31337", "--reason", "A test.")


def test_batches_of_a_stopped_connection_wait_and_go_on(service, key):
    assert stop_connection() == f"{STOPPED} By manage.py ({LOGIN})."
    batch = submit(key, request(ALICE, block=service.head()))
    work()
    assert (fresh(batch).status, str(batch.wait)) == (BatchStatus.RECEIVED, STOPPED)
    assert output_of("resume", "31337", "--source", "31337") == "Sending from chain 31337 to chain 31337 goes on."
    assert (
        output_of("resume", "31337", "--source", "31337") == "Sending from chain 31337 to chain 31337 was not stopped."
    )
    assert work_until_done(batch).status == BatchStatus.DONE
    name = "stop from chain 31337 to chain 31337"
    messages = (f"Stopped. Why: A test. By: {LOGIN}", f"Resumed. By: {LOGIN}")
    assert log_of_operators() == [("manage.py", name, message) for message in messages]


@pytest.mark.long
def test_accepted_batches_wait_too_and_users_see_why(service, key, client):
    service.rpc("evm_setAutomine", False)
    batch = submit(key, request(ALICE, block=service.head()))
    work()
    stop_connection()
    other = submit(key, request(BOB, block=service.head() - 1))
    work()
    (sent, stopped) = sorted(waiting())[::-1]
    assert sent.startswith("Waiting for transaction")
    assert stopped == STOPPED
    by_name = STOPPED.replace("chain 31337", "Development chain")
    assert by_name in client.get(f"/explorer/query/{other.pk}").text
    # Transactions sent before the stop are still monitored.
    service.rpc("evm_setAutomine", True)
    service.mine()
    work()
    assert Transaction.objects.exclude(to=DEPLOYER).get().state != TransactionState.PENDING
    assert work_until_done(batch).status == BatchStatus.DONE
    assert Transaction.objects.exclude(to=DEPLOYER).count() == 1
    output_of("resume", "31337", "--source", "31337")
    assert work_until_done(other).status == BatchStatus.DONE


def test_a_stop_takes_effect_before_the_next_signature(service, key, settings):
    """The stop comes after a reconcile of the block has begun."""
    node_requests: list[Any] = []
    with lying_node(recording(node_requests, lambda body: ask(service.url, body))) as url:
        reconfigure(settings, service.url, url)
        submit(key, request(ALICE, block=service.head()))
        with between_statements(lambda _: "eth_estimateGas" in str(node_requests), stop_connection):
            work()
    assert waiting() == [STOPPED]
    assert not Transaction.objects.exclude(to=DEPLOYER).exists()


def test_a_stop_of_another_connection_is_no_matter(service, key):
    Stop.objects.create(source_chain_id=5, chain_id=31337)
    Stop.objects.create(source_chain_id=31337, chain_id=5)
    assert work_until_done(submit(key, request(ALICE, block=service.head()))).status == BatchStatus.DONE


def test_only_configured_connections_can_be_stopped(service):
    with pytest.raises(CommandError, match="Chain 5 is not connected to chain 31337"):
        call_command("stop", "31337", "--source", "5")
    assert log_of_operators() == []


# --- A signer ---------------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_another_signer_sends_instead_of_a_stopped_one(two_signers, key):
    sentence = f"The operator has stopped sending by the signer {SIGNER} on chain 31337. The reason given: A test."
    output = output_of("stop", "31337", "--signer", SIGNER.lower(), "--reason", "A test.")
    assert output == f"{sentence} By manage.py ({LOGIN})."
    done(submit(key, request(ALICE, block=two_signers.head())))
    assert senders() == {SECOND_SIGNER}
    assert output_of("resume", "31337", "--signer", SIGNER) == f"Sending by the signer {SIGNER} on chain 31337 goes on."
    assert work_until_done(submit(key, request(BOB, block=two_signers.head()))).status == BatchStatus.DONE
    assert senders() == {SIGNER, SECOND_SIGNER}
    messages = [f"Stopped. Why: A test. By: {LOGIN}", f"Resumed. By: {LOGIN}"]
    assert [message for *_, message in log_of_operators()] == messages


@pytest.mark.long
def test_batches_wait_while_all_signers_are_stopped(two_signers, key):
    output_of("stop", "31337", "--signer", SIGNER, "--reason", "A test.")
    output_of("stop", "31337", "--signer", SECOND_SIGNER)
    batch = submit(key, request(ALICE, block=two_signers.head()))
    work(2)
    assert waiting() == ["The operator has stopped sending by the signer on chain 31337. The reason given: A test."]
    assert not senders()
    output_of("resume", "31337", "--signer", SECOND_SIGNER)
    assert work_until_done(batch).status == BatchStatus.DONE
    assert senders() == {SECOND_SIGNER}


def test_a_stopped_signer_neither_replaces_nor_broadcasts(service, key):
    service.rpc("evm_setAutomine", False)
    submit(key, request(ALICE, block=service.head()))
    work(2)
    service.rpc("anvil_dropAllTransactions")
    tx = Transaction.objects.exclude(to=DEPLOYER).get(state=TransactionState.PENDING)
    output_of("stop", "31337", "--signer", SIGNER)
    age()
    SignedTransaction.objects.update(broadcast_at=timezone.now() - timedelta(hours=1))
    work()
    assert tx.versions.count() == 1
    assert not service.rpc("eth_getTransactionByHash", tx.latest_hash)
    output_of("resume", "31337", "--signer", SIGNER)
    work()
    assert service.rpc("eth_getTransactionByHash", tx.newest.hash)


def test_the_next_signer_deploys_while_the_first_one_is_stopped(two_signers, settings):
    reconfigure(settings, "id = 31337\n", "id = 31337\nhistory_window = 9000\n")
    output_of("stop", "31337", "--signer", SIGNER)
    FactsRegistry.objects.all().delete()
    call_command("deploy_registry", "31337", "31337")
    assert Transaction.objects.filter(to=DEPLOYER).order_by("-pk")[0].signer.address == SECOND_SIGNER
    assert FactsRegistry.objects.get().deployed_at is not None


def test_only_configured_signers_can_be_stopped(service):
    with pytest.raises(CommandError, match="Not a signer of Development chain"):
        call_command("stop", "31337", "--signer", ALICE)
    assert (
        output_of("resume", "31337", "--signer", ALICE)
        == f"Sending by the signer {ALICE} on chain 31337 was not stopped."
    )
    assert log_of_operators() == []


def test_health_tells_of_stops(service):
    stop_connection()
    Stop.objects.create(source_chain_id=5, chain_id=31337)
    output_of("stop", "31337", "--signer", SIGNER)
    told = Client().get("/healthz", REMOTE_ADDR="127.0.0.1").json()
    assert {"connection_paused", "signer_paused"} <= set(told["codes"])
    stopped = {STOPPED, f"The operator has stopped sending by the signer {SIGNER} on chain 31337."}
    by = f" By manage.py ({LOGIN})."
    assert {told for told in told["problems"] if "has stopped" in told} == {sentence + by for sentence in stopped}


@pytest.mark.long
def test_a_signer_is_exchanged_while_batches_are_open(two_signers, key, settings, tmp_path):
    """Follow the steps in docs/operating/deploying.md."""
    two_signers.rpc("evm_setAutomine", False)
    before = submit(key, request(ALICE, block=two_signers.head()))
    work(2)
    assert senders() == {SIGNER}
    output_of("stop", "31337", "--signer", SIGNER)
    meanwhile = submit(key, request(BOB, block=two_signers.head() - 1))
    for batch in (before, meanwhile):
        assert work_until_done(batch, two_signers).status == BatchStatus.DONE
    assert senders() == {SIGNER, SECOND_SIGNER}
    assert Transaction.objects.exclude(to=DEPLOYER).filter(signer__address=SIGNER).count() == 1
