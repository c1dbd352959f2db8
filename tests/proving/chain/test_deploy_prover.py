"""`manage.py deploy_prover` deploys a state prover over a connection's registry, and its pointer (ERC-7888)."""

import io
import itertools

import pytest
from django.core.management import CommandError, call_command
from eth_utils.abi import function_signature_to_4byte_selector
from eth_utils.crypto import keccak

from chains.contract_artifacts import create2_address
from config.configured_chains import forget_chains
from devnet.devchain import DevChain
from proving.models import FactsRegistry, Transaction
from tests.chain_fixtures import chain_fixture
from tests.proving.chain_state import signer_nonce
from tests.service import SIGNER, chains_toml

pytestmark = pytest.mark.outside

there = chain_fixture(chain_id=10)


def deploy(*arguments: object) -> dict[str, str]:
    """Return what the command prints, by its names."""
    output = io.StringIO()
    call_command("deploy_prover", *map(str, arguments), stdout=output, stderr=io.StringIO())
    return {line[:10].strip(): line[11:] for line in output.getvalue().splitlines()}


def word(chain: DevChain, address: str, function: str) -> str:
    data = "0x" + function_signature_to_4byte_selector(function).hex()
    return str(chain.rpc("eth_call", {"to": address, "data": data}, "latest"))


def code(chain: DevChain, address: str) -> bytes:
    return bytes.fromhex(chain.rpc("eth_getCode", address, "latest")[2:])


@pytest.mark.long
def test_a_prover_and_its_pointer_are_deployed_once(service):
    row = FactsRegistry.objects.get()
    told = deploy(31337, 31337)
    assert int(word(service, told["prover"], "registry()"), 16) == int(row.address, 16)
    assert int(word(service, told["prover"], "homeChainId()"), 16) == 31337
    assert int(word(service, told["prover"], "kind()"), 16) == 0
    assert told["code hash"] == "0x" + keccak(code(service, told["prover"])).hex()
    assert word(service, told["pointer"], "implementationCodeHash()") == told["code hash"]
    assert int(word(service, told["pointer"], "implementationAddress()"), 16) == int(told["prover"], 16)
    assert told["scpInputs"] == "abi.encode(uint256 blockNumber)"
    assert row.block_hash_source in told["trusted"]
    before = signer_nonce(service)
    assert deploy(31337, 31337) == told
    assert signer_nonce(service) == before

    by_hash = deploy(31337, 31337, "--by-hash")
    assert int(word(service, by_hash["prover"], "kind()"), 16) == 1
    assert by_hash["scpInputs"] == "abi.encode(uint256 blockNumber, bytes32 blockHash)"
    assert not {told["prover"], told["pointer"]} & {by_hash["prover"], by_hash["pointer"]}


@pytest.mark.long
def test_a_copy_has_the_same_address_and_code_on_another_chain(service, there, settings):
    settings.CHAINS_FILE.write_text(
        settings.CHAINS_FILE.read_text()
        + f"""
[[chains]]
id = 10
name = "Copies"
rpc_urls = ["{there.url}"]
block_seconds = 1
test_network = true
confirmations = 1
[chains.signer]
key_file = "signer.key"
"""
    )
    forget_chains()
    told = deploy(31337, 31337, "--copy", 10)
    assert code(there, told["prover"]) == code(service, told["prover"]) != b""
    assert code(there, told["pointer"]) == b""
    before = signer_nonce(there)
    assert deploy(31337, 31337, "--copy", 10) == told
    assert signer_nonce(there) == before == 1
    there.rpc("anvil_setCode", told["prover"], "0x00")
    with pytest.raises(CommandError, match=f"other code than .* at {told['prover']} on Copies"):
        deploy(31337, 31337, "--copy", 10)


@pytest.mark.long
def test_killed_between_the_two_it_goes_on(service, killing):
    def sent() -> int:
        return signer_nonce(service, "pending")

    service.rpc("evm_setAutomine", False)
    before, statements = sent(), itertools.count()
    with killing.when(lambda: sent() == before + 1 and next(statements) == 20):
        deploy(31337, 31337)
    service.mine()
    [prover] = [create2_address(bytes(tx.data)[32:]) for tx in Transaction.objects.filter(nonce__gte=before)]
    service.rpc("evm_setAutomine", True)
    told = deploy(31337, 31337)
    assert told["prover"] == prover
    assert word(service, told["pointer"], "implementationCodeHash()") == told["code hash"]
    assert sent() == before + 2


@pytest.mark.long
def test_other_code_than_the_contracts_is_refused(service):
    told = deploy(31337, 31337)
    for name in ("prover", "pointer"):
        right = service.rpc("eth_getCode", told[name], "latest")
        service.rpc("anvil_setCode", told[name], "0x00")
        with pytest.raises(CommandError, match=f"other code than .* at {told[name]} on Development chain"):
            deploy(31337, 31337)
        service.rpc("anvil_setCode", told[name], right)


def test_what_cannot_be_deployed_is_said_in_a_sentence(service):
    for arguments, why in (
        ((31337, 5), "No facts registry|no facts registry"),
        ((5, 31337), "No chain with id 5 is configured"),
        ((31337, 31337, "--copy", 5), "No chain with id 5 is configured"),
    ):
        with pytest.raises(CommandError, match=why):
            deploy(*arguments)
    service.rpc("anvil_setCode", FactsRegistry.objects.get().address, "0x00")
    with pytest.raises(CommandError, match="is not used: its code differs from this version's contract"):
        deploy(31337, 31337)
    assert signer_nonce(service) == Transaction.objects.count()


def test_nothing_is_sent_that_the_signer_cannot_pay(service):
    before = signer_nonce(service, "pending")
    service.rpc("anvil_setBalance", SIGNER, "0x1")
    with pytest.raises(CommandError, match=r"The signer 0x\w+ on chain 31337 has .*, and it stops below 0.01"):
        deploy(31337, 31337)
    assert signer_nonce(service, "pending") == before


def test_a_dead_node_is_said_in_a_sentence(unreachable_chain, db):
    with pytest.raises(CommandError):
        deploy(31337, 31337)


@pytest.mark.long
def test_a_copy_is_for_chains_that_run_its_opcodes(service, settings):
    with DevChain(chain_id=10, extra_args=("--hardfork", "shanghai")) as before_cancun:
        text = chains_toml(settings.CHAINS_FILE.parent, before_cancun.url, chain_id=10).read_text()
        settings.CHAINS_FILE.write_text(
            chains_toml(settings.CHAINS_FILE.parent, service.url).read_text() + text.partition("[[connections]]")[0]
        )
        forget_chains()
        with pytest.raises(CommandError, match="lacks MCOPY"):
            deploy(31337, 31337, "--copy", 10)
