"""Registries that can jump: deployed with a beacon history, whose code and values are compared."""

from dataclasses import replace
from pathlib import Path

import pytest
from eth_utils.abi import function_signature_to_4byte_selector

from chains.beacon.jumps import MAINNET
from chains.chains_file import load_chains
from config.configured_chains import forget_chains, get_chains, get_rpc
from devnet.devchain import DevChain
from proving.health import installation_check
from proving.models import FactsRegistry, Transaction
from proving.registry import deploying, deployments, funding
from proving.registry.deploying import DeploymentError
from tests.contracts.deployed import Deployed
from tests.proving.chain_state import signer_nonce
from tests.service import chains_toml, reconfigure

TABLE = """
[chains.beacon_chain]
preset = "minimal"
genesis_time = 1_700_000_000
bellatrix = 0
capella = 0
deneb = 0
electra = 64
"""


def configure(chain: DevChain, settings, folder: Path, table: str = TABLE) -> None:
    path = chains_toml(folder, chain.url)
    path.write_text(path.read_text().replace("\n[[connections]]", f"{table}\n[[connections]]"))
    settings.CHAINS_FILE = path
    forget_chains()


def answer(chain: DevChain, address: str, function: str) -> int:
    selector = function_signature_to_4byte_selector(function).hex()
    return int(chain.rpc("eth_call", {"to": address, "data": f"0x{selector}"}, "latest"), 16)


def check() -> str:
    row = FactsRegistry.in_use.get()
    deployments.check(row)
    return row.refused


def said() -> str:
    """Return what `check_chains` prints."""
    lines: list[str] = []
    installation_check.check(lines.append)
    return "\n".join(lines)


@pytest.fixture
def jumping(chain, db, settings, tmp_path) -> DevChain:
    configure(chain, settings, tmp_path)
    deploying.deploy(31337, 31337)
    jumping: DevChain = chain
    return jumping


def test_it_is_deployed_with_the_values_of_the_beacon_chain(jumping):
    row = FactsRegistry.objects.get()
    assert answer(jumping, row.address, "beaconChainHistory()") == int(row.beacon_history, 16)
    beacon_chain = get_chains().chain(31337).beacon_chain
    assert beacon_chain is not None
    assert beacon_chain.id == 31337
    for name, value in beacon_chain.immutables.items():
        assert answer(jumping, row.beacon_history, f"{name}()") == value
    assert deployments.find(31337, 31337).beacon_history == row.beacon_history
    assert Transaction.objects.count() == signer_nonce(jumping) == 4


def test_interrupted_anywhere_it_goes_on_and_deploys_each_contract_once(chain, db, settings, tmp_path):
    configure(chain, settings, tmp_path)
    chain.rpc("evm_setAutomine", False)
    for mined in range(2):
        with pytest.raises(DeploymentError, match="run it again to go on"):
            deploying.deploy(31337, 31337, seconds=0)
        begun = FactsRegistry.objects.get()
        assert (bool(begun.beacon_history), bool(begun.address)) == (True, bool(mined))
        chain.mine()
    row = deploying.deploy(31337, 31337)
    assert (row.beacon_history, row.refused) == (begun.beacon_history, "")
    assert signer_nonce(chain) == Transaction.objects.count() == 4


def test_the_registry_is_created_after_what_it_asks(chain, db, settings, tmp_path):
    """Its constructor reverts where the source is there and the beacon history is not yet."""
    configure(chain, settings, tmp_path)
    chain.rpc("evm_setAutomine", False)
    limit = chain.rpc("eth_getBlockByNumber", "latest", False)["gasLimit"]
    chain.rpc("evm_setBlockGasLimit", hex(1_800_000))
    for there in ([True, False], [True, True]):
        with pytest.raises(DeploymentError, match="run it again to go on"):
            deploying.deploy(31337, 31337, seconds=0)
        row = FactsRegistry.objects.get()
        assert not row.address
        chain.mine()
        codes = [chain.rpc("eth_getCode", one, "latest") for one in (row.block_hash_source, row.beacon_history)]
        assert [code != "0x" for code in codes] == there
    chain.rpc("evm_setBlockGasLimit", limit)
    chain.rpc("evm_setAutomine", True)
    assert not deploying.deploy(31337, 31337).refused


@pytest.mark.parametrize("what", ["none", "another's", "other values"])
def test_a_registry_that_believes_another_beacon_history_is_refused(jumping, what):
    row = FactsRegistry.objects.get()
    beacon_chain = get_chains().chain(31337).beacon_chain
    assert beacon_chain is not None
    if what == "other values":
        # The registry is the right one of a beacon history that isn't.
        row.beacon_history = Deployed(jumping, "BeaconHistory", replace(beacon_chain, electra=65).arguments).address
        of_registry = (31337, row.block_hash_source, 8191, row.beacon_history)
        row.address = Deployed(jumping, "FactsRegistry", *of_registry).address
    elif what == "another's":
        row.beacon_history = Deployed(jumping, "BeaconHistory", beacon_chain.arguments).address
    else:
        row.beacon_history = ""
    row.save()
    said = "the code of its beacon history" if what == "other values" else "its code is not that of this version's"
    assert said in check()


def test_a_registry_is_refused_if_its_beacon_history_is_gone_or_can_not_be_compared(jumping, settings):
    row = FactsRegistry.objects.get()
    code = jumping.rpc("eth_getCode", row.beacon_history, "latest")
    jumping.rpc("anvil_setCode", row.beacon_history, "0x")
    assert "the code of its beacon history" in check()
    jumping.rpc("anvil_setCode", row.beacon_history, code)
    assert check() == ""
    reconfigure(settings, "electra = 64", "electra = 65")
    assert "with the values of chain 31337" in check()
    reconfigure(settings, TABLE.replace("64", "65"), "")
    assert "chains.toml has no [chains.beacon_chain] for chain 31337" in check()


def test_a_registry_stays_usable_when_the_slot_of_the_next_fork_is_known_and_not_when_it_is_later(jumping, settings):
    reconfigure(settings, "electra = 64", "electra = 64\nend = 20_000_000")
    assert check() == ""
    deploying.deploy(31337, 31337)
    assert FactsRegistry.objects.count() == 1
    assert answer(jumping, FactsRegistry.objects.get().beacon_history, "end()") == 2**64 - 1
    FactsRegistry.objects.all().delete()
    deploying.deploy(31337, 31337)
    assert check() == ""
    reconfigure(settings, "end = 20_000_000", "end = 20_000_001")
    assert "with the values of chain 31337" in check()


def test_a_registry_without_one_stays_usable_until_the_operator_replaces_it(chain, db, settings, tmp_path):
    configure(chain, settings, tmp_path, table="")
    old = deploying.deploy(31337, 31337)
    configure(chain, settings, tmp_path)
    assert deploying.deploy(31337, 31337) == old
    assert deployments.find(31337, 31337).beacon_history == ""
    assert "was deployed without a beacon history, so old blocks are proven by hops and walks alone." in said()
    new = deploying.deploy(31337, 31337, replace=True)
    assert new != old
    assert new.beacon_history
    old.refresh_from_db()
    assert "without a beacon history" in old.replaced_because
    # It can jump: there is nothing to replace.
    assert deploying.deploy(31337, 31337, replace=True) == new
    assert f"So has its beacon history, {new.beacon_history}." in said()


def test_a_beacon_chain_that_the_contract_refuses_is_told_of_in_a_sentence(chain, db, settings, tmp_path):
    """One that had more periods before Capella than the list of them can hold."""
    table = TABLE
    for fork in ("capella = 0", "deneb = 0", "electra = 64"):
        table = table.replace(fork, f"{fork.partition(' ')[0]} = {2**40}")
    configure(chain, settings, tmp_path, table)
    with pytest.raises(DeploymentError, match=r"The contracts can't be created: InvalidChain\(\)"):
        deploying.deploy(31337, 31337)
    assert not FactsRegistry.objects.exists()
    assert not Transaction.objects.exists()


def test_a_signer_is_told_to_hold_what_it_takes(chain, db, settings, tmp_path):
    configure(chain, settings, tmp_path, table="")
    rpc = get_rpc(31337)
    without = funding.needed(get_chains().chain(31337), get_chains().connections, rpc).deploying
    configure(chain, settings, tmp_path)
    rpc = get_rpc(31337)
    needed = funding.needed(get_chains().chain(31337), get_chains().connections, rpc).deploying
    row = deploying.deploy(31337, 31337)
    assert row.beacon_history
    took = sum(tx.gas_limit * tx.most_for_gas // tx.gas_limit for tx in Transaction.objects.all())
    assert without < took <= needed


def test_mainnets_beacon_chain_is_known(tmp_path):
    path = chains_toml(tmp_path, "http://127.0.0.1:1", chain_id=1)
    assert load_chains(path, {}).chain(1).beacon_chain == MAINNET


def test_forks_that_fall_and_a_table_for_mainnet_are_faults(tmp_path):
    path = chains_toml(tmp_path, "http://127.0.0.1:1", chain_id=1)
    falling = TABLE.replace("capella = 0", "capella = 65")
    path.write_text(path.read_text().replace("\n[[connections]]", f"{falling}\n[[connections]]"))
    with pytest.raises(ValueError, match="bellatrix, capella, deneb, electra and end must not fall"):
        load_chains(path, {})
    path.write_text(path.read_text().replace(falling, TABLE))
    with pytest.raises(ValueError, match="that of Ethereum, chain 1, is known"):
        load_chains(path, {})
