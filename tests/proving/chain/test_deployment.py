"""`manage.py deploy_registry` deploys registries and records them."""

import io
import itertools
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from eth_utils.abi import function_signature_to_4byte_selector

from chains.contract_artifacts import DEPLOYER, DEPLOYER_COST, DEPLOYER_SIGNER
from devnet.devchain import ACCOUNTS, DevChain
from proving.models import FactsRegistry, Transaction
from queries.models import BatchStatus
from tests.proving.chain_state import AccountField, field_on_chain, signer_nonce
from tests.proving.receipts import changed_receipts
from tests.service import SIGNER, chains_toml, changed_replies, fresh, request, submit, work, work_until_done

pytestmark = pytest.mark.outside


def deploy(*arguments, tell=None, command="deploy_registry") -> str:
    output = io.StringIO()
    call_command(command, *map(str, arguments), stdout=output, stderr=tell)
    return output.getvalue()


@pytest.mark.long
def test_another_operator_finds_the_contracts_and_their_facts_and_pays_for_nothing(service, key, client):
    block = service.head()
    work_until_done(submit(key, request(SIGNER, block=block)), service)
    reader = deploy(31337, command="deploy_reader").split()[-1]
    address, before = FactsRegistry.objects.get().address, signer_nonce(service)
    FactsRegistry.objects.all().delete()
    assert address in deploy(31337, 31337)
    batch = work_until_done(submit(key, request(SIGNER, block=block)), service)
    assert (batch.status, signer_nonce(service)) == (BatchStatus.DONE, before)
    page = " ".join(client.get(f"/explorer/query/{batch.pk}").text.split())
    assert "The registry already had this, so the service sent nothing." in page
    assert reader in page
    (there,) = client.get("/chains.json").json()["connections"]
    assert (there["factsRegistry"], there["factsReader"], there["provesTransactions"]) == (address, reader, True)
    assert there["sameAddressEverywhere"]
    assert there["readerSameAddressEverywhere"]
    assert " ".join(client.get("/chains").text.split()).count("same address on every chain") == 2


def test_a_reader_of_all_registries_is_deployed_once_and_tells_their_facts(service, key):
    block = service.head()
    work_until_done(submit(key, request(SIGNER, block=block)), service)
    first = deploy(31337, command="deploy_reader")
    before = signer_nonce(service)
    assert deploy(31337, command="deploy_reader") == first
    assert signer_nonce(service) == before
    # accountField(uint256 chainId, uint256 blockNumber, address account, uint8 field)
    data = "0x053afc68" + "".join(f"{word:064x}" for word in (31337, block, int(SIGNER, 16), AccountField.BALANCE))
    answer = service.rpc("eth_call", {"to": first.split()[-1], "data": data}, "latest")
    assert int(answer, 16) == field_on_chain(service, SIGNER, block, AccountField.BALANCE) > 0


def test_a_reader_that_a_reorg_has_removed_is_told_no_longer(service, client):
    reader = deploy(31337, command="deploy_reader").split()[-1]
    code = service.rpc("eth_getCode", reader, "latest")
    for there, told in (("0x", None), (code, reader)):
        service.rpc("anvil_setCode", reader, there)
        deploy(31337, 31337)  # compares the code
        assert client.get("/chains.json").json()["connections"][0]["factsReader"] == told
        assert FactsRegistry.objects.get().reader == (told or "")


def test_no_reader_is_made_of_code_that_is_not_right(service):
    """No worker has compared the code since the chain was another."""
    reader = deploy(31337, command="deploy_reader").split()[-1]
    service.rpc("anvil_setCode", reader, "0x00")
    with pytest.raises(CommandError, match="other code"):
        deploy(31337, command="deploy_reader")
    # It answers any call with the chain's id, twice.
    service.rpc("anvil_setCode", FactsRegistry.objects.get().address, "0x465f524660205260405ff3")
    told = io.StringIO()
    with pytest.raises(CommandError, match="has no usable facts registry"):
        deploy(31337, command="deploy_reader", tell=told)
    assert "Chain 31337 is left out" in told.getvalue()


@pytest.mark.parametrize(
    ("chain_id", "why"), [(31337, "has no usable facts registry"), (5, "No chain with id 5 is configured")]
)
def test_a_reader_needs_a_registry(chain, db, settings, tmp_path, chain_id, why):
    settings.CHAINS_FILE = chains_toml(tmp_path, chain.url)
    with pytest.raises(CommandError, match=why):
        deploy(chain_id, command="deploy_reader")


def test_a_contract_that_another_operator_creates_meanwhile_does_no_harm(chain, db, settings, tmp_path):
    settings.CHAINS_FILE = chains_toml(tmp_path, chain.url)

    def create_first(question: Any, answer: Any) -> list[Any]:
        """Create each contract that the service is about to create."""
        if question["method"] == "eth_estimateGas":
            other = {"from": ACCOUNTS[1][0], "to": DEPLOYER, "data": question["params"][0]["data"], "gas": "0x989680"}
            chain.rpc("eth_sendTransaction", other)
        return [answer]

    with changed_replies(settings, chain, create_first):
        assert deploy(31337, 31337).split()[-1] == FactsRegistry.objects.get().address


@pytest.mark.long
def test_a_chain_without_the_deployer_gets_it_when_its_cost_is_paid(db, settings, tmp_path):
    with DevChain() as chain:
        settings.CHAINS_FILE = chains_toml(tmp_path, chain.url)
        for code, why in (("0x00", "other code than the deterministic deployer's"), ("0x", "Send 0.01.* to 0x3fAB")):
            chain.rpc("anvil_setCode", DEPLOYER, code)
            with pytest.raises(CommandError, match=why):
                deploy(31337, 31337)
        chain.rpc("anvil_setNonce", DEPLOYER_SIGNER, "0x1")
        with pytest.raises(CommandError, match="can never have the deterministic deployer"):
            deploy(31337, 31337)
        chain.rpc("anvil_setNonce", DEPLOYER, "0x0")
        chain.rpc("anvil_setNonce", DEPLOYER_SIGNER, "0x0")
        chain.rpc("anvil_setBalance", DEPLOYER_SIGNER, hex(DEPLOYER_COST))
        assert deploy(31337, 31337).split()[-1] == FactsRegistry.objects.get().address


def test_a_registry_that_a_reorg_removed_is_created_at_its_address_again_and_stays_in_use(service):
    row = FactsRegistry.objects.get()
    service.rpc("anvil_setCode", row.address, "0x")
    service.rpc("anvil_setNonce", row.address, "0x0")
    assert row.address in deploy(31337, 31337, "--replace")
    assert (FactsRegistry.objects.get(), fresh(row).replaced_at, row.refused) == (row, None, "")


def test_a_registry_whose_multicall_is_gone_is_not_used(service):
    service.rpc("anvil_setCode", FactsRegistry.objects.get().multicall, "0x")
    with pytest.raises(CommandError, match=r"Multicall at .* has no code"):
        deploy(31337, 31337)


def test_other_code_at_the_address_is_passed_over_only_by_replace(service):
    row = FactsRegistry.objects.get()
    FactsRegistry.objects.all().delete()
    service.rpc("anvil_setCode", row.address, "0x00")
    with pytest.raises(CommandError, match="has other code at"):
        deploy(31337, 31337)
    assert row.address not in deploy(31337, 31337, "--replace")


@pytest.mark.long
def test_a_registry_that_was_replaced_is_not_taken_again(service):
    first = FactsRegistry.objects.get().address
    code = service.rpc("eth_getCode", first, "latest")
    service.rpc("anvil_setCode", first, "0x00")
    second = deploy(31337, 31337, "--replace").split()[-1]
    service.rpc("anvil_setCode", first, code)
    service.rpc("anvil_setCode", second, "0x00")
    assert deploy(31337, 31337, "--replace").split()[-1] not in {first, second}


@pytest.mark.long
def test_deploy_registry_says_once_which_transaction_it_waits_for(chain, db, settings, tmp_path, killing):
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
    assert deploy(31337, 31337).split()[-1] == FactsRegistry.objects.get().address


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
        with pytest.raises(CommandError, match="A new chain needs an empty database"):
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
        with pytest.raises(CommandError, match=r"Development chain \(31337\) lacks MCOPY .EIP-5656"):
            call_command("deploy_registry", "31337", "31337")
    assert not Transaction.objects.exists()


def test_the_node_of_another_chain_is_refused(db, settings, tmp_path):
    with DevChain(chain_id=5) as other:
        settings.CHAINS_FILE = chains_toml(tmp_path, other.url)
        with pytest.raises(CommandError, match="chain"):
            deploy(31337, 31337)
        assert signer_nonce(other) == 0
