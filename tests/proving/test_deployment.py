"""`manage.py deploy_registry` deploys registries and records them."""

import io
import itertools

import pytest
from django.core.management import CommandError, call_command
from eth_utils.abi import function_signature_to_4byte_selector

from devnet.devchain import DevChain
from proving.models import FactsRegistry, Transaction
from tests.proving.chain_state import signer_nonce
from tests.proving.receipts import changed_receipts
from tests.service import chains_toml, work

pytestmark = pytest.mark.outside


def deploy(*arguments, tell=None) -> str:
    output = io.StringIO()
    call_command("deploy_registry", *map(str, arguments), stdout=output, stderr=tell)
    return output.getvalue()


def test_it_says_what_it_waits_for_once(chain, db, settings, tmp_path, killing):
    output = io.StringIO()
    chain.rpc("evm_setAutomine", False)
    settings.CHAINS_FILE = chains_toml(tmp_path, chain.url)
    statements = itertools.count()
    with killing.when(lambda: output.getvalue() and next(statements) == 40):
        deploy(31337, 31337, tell=output)
    first = Transaction.objects.earliest("nonce")
    assert output.getvalue().splitlines() == [f"Waiting for transaction {first.latest_hash} to be mined."]

    with changed_receipts(chain, gasUsed="0x0") as url:
        settings.CHAINS_FILE = chains_toml(tmp_path, url)
        chain.mine()
        with killing.when(lambda: "took 0 gas" in output.getvalue()):
            deploy(31337, 31337, tell=output)
    settings.CHAINS_FILE = chains_toml(tmp_path, chain.url)
    chain.rpc("evm_setAutomine", True)
    assert FactsRegistry.objects.get().address in deploy(31337, 31337)


def test_the_registry_knows_how_large_the_history_of_its_source_chain_is(chain, db, settings, tmp_path):
    settings.CHAINS_FILE = chains_toml(tmp_path, chain.url, chain="history_window = 393168")
    deploy(31337, 31337)
    selector = function_signature_to_4byte_selector("historyWindow()").hex()
    call = {"to": FactsRegistry.objects.get().address, "data": f"0x{selector}"}
    assert int(chain.rpc("eth_call", call, "latest"), 16) == 393168


def test_a_development_chain_that_was_started_anew_takes_an_empty_database(service, settings, tmp_path):
    service.mine(5)
    work()
    with DevChain() as fresh:
        settings.CHAINS_FILE = chains_toml(tmp_path, fresh.url)
        with pytest.raises(CommandError, match="no code there"):
            deploy(31337, 31337)
        with pytest.raises(CommandError, match="started anew takes an empty database"):
            deploy(31337, 31337, "--replace")
    assert FactsRegistry.in_use.count() == 1


def test_a_connection_that_is_not_configured_is_refused(service):
    with pytest.raises(CommandError, match="no connection from chain 31337 to chain 1"):
        deploy(1, 31337)


def test_a_dead_node_is_said_in_a_sentence(unreachable_chain, db):
    with pytest.raises(CommandError, match="can't be reached"):
        deploy(31337, 31337)
    assert not Transaction.objects.exists()


def test_a_chain_before_cancun_is_refused_by_its_name(db, settings, tmp_path):
    with DevChain(extra_args=("--hardfork", "shanghai")) as chain:
        settings.CHAINS_FILE = chains_toml(tmp_path, chain.url)
        with pytest.raises(CommandError, match=r"Development chain \(31337\) does not run MCOPY .EIP-5656"):
            call_command("deploy_registry", "31337", "31337")
    assert not Transaction.objects.exists()


def test_the_node_of_another_chain_is_refused(db, settings, tmp_path):
    with DevChain(chain_id=5) as other:
        settings.CHAINS_FILE = chains_toml(tmp_path, other.url)
        with pytest.raises(CommandError, match="chain"):
            deploy(31337, 31337)
        assert signer_nonce(other) == 0
