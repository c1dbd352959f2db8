"""Registries that can jump have a beacon history. Its code and values are compared before use."""

import io
import itertools
import re
import time
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command
from django.test import Client
from eth_abi.abi import encode
from eth_utils.abi import function_signature_to_4byte_selector

from chains.contract_artifacts import DEPLOYER, NO_CONTRACT, create2_address, load_artifact
from config.configured_chains import forget_chains
from devnet.devchain import ACCOUNTS, DevChain
from proving.models import FactsRegistry, Transaction
from tests.chain_fixtures import chain_fixture
from tests.contracts.deployed import Deployed
from tests.deployed import deploy
from tests.proving.chain_state import signer_nonce
from tests.service import SIGNER, chains_toml, fresh, reconfigure, work

pytestmark = [pytest.mark.django_db, pytest.mark.outside]

TABLE = """
[chains.beacon_chain]
preset = "minimal"
genesis_time = 1_700_000_000
bellatrix = 0
capella = 0
deneb = 0
electra = 64
"""
SEPOLIA = 11155111
# The table that an operator wrote before the service knew Sepolia's beacon chain.
SEPOLIAS_TABLE = """
[chains.beacon_chain]
genesis_time = 1_655_733_600
bellatrix = 3_200
capella = 1_818_624
deneb = 4_243_456
electra = 7_118_848
"""
# Values of the source chain's beacon history.
VALUES = {"sourceChainId": 31337, "periodDepth": 6, "bellatrix": 0, "capella": 0, "deneb": 0, "electra": 64}
VALUES |= {"gloas": 2**64 - 1, "end": 2**64 - 1, "historicalRoots": 0, "blocksBeforeMerge": 0, "accumulator": 0}


def configure(chain: DevChain, settings, folder: Path, table: str = TABLE) -> None:
    path = chains_toml(folder, chain.url)
    path.write_text(path.read_text().replace("\n[[connections]]", f"{table}\n[[connections]]"))
    settings.CHAINS_FILE = path


def answer(chain: DevChain, address: str, function: str) -> int:
    selector = function_signature_to_4byte_selector(function).hex()
    return int(chain.rpc("eth_call", {"to": address, "data": f"0x{selector}"}, "latest"), 16)


def check() -> str:
    """Return the reason for which a new worker refuses the registry."""
    forget_chains()
    work()
    return FactsRegistry.in_use.get().refused


def reach() -> int | None:
    """Return the first slot that the registry's history doesn't know, as everything shows it."""
    row = FactsRegistry.in_use.get()
    (shown,) = Client().get("/chains.json").json()["connections"]
    end = shown["reach"]["beaconHistory"]["endSlot"]
    assert end == (None if row.history_end == 2**63 - 1 else str(row.history_end))
    said = "without a known end" if end is None else f"before slot {row.history_end:,}"
    assert f"It knows the beacon chain {said}." in output_of_check()
    return row.history_end


def values(**changed: int) -> tuple[int | bytes, ...]:
    """Return the constructor's arguments, with these values replaced."""
    roots = ("historicalRoots", "accumulator")
    return tuple(value.to_bytes(32) if name in roots else value for name, value in (VALUES | changed).items())


def output_of_check() -> str:
    """Return the output of `check_chains`."""
    printed = io.StringIO()
    with pytest.raises(CommandError):
        call_command("check_chains", stdout=printed)
    return printed.getvalue()


def make_earlier(chain: DevChain, row: FactsRegistry, end: int) -> None:
    """Put a registry of version 0.4.0 into the place of another."""
    arguments = tuple(value for name, value in zip(VALUES, values(end=end), strict=True) if name != "gloas")
    row.beacon_history = Deployed(chain, "BeaconHistory", arguments).address
    row.address = Deployed(chain, "FactsRegistry", 31337, row.block_hash_source, 8191, row.beacon_history).address
    row.save()


def sent(chain: DevChain) -> int:
    return signer_nonce(chain, "pending")


@pytest.fixture
def jumping(chain, db, settings, tmp_path) -> DevChain:
    configure(chain, settings, tmp_path)
    deploy(31337, 31337)
    jumping: DevChain = chain
    return jumping


def test_a_beacon_history_is_deployed_with_the_values_of_its_beacon_chain(jumping):
    row = FactsRegistry.objects.get()
    assert answer(jumping, row.address, "beaconChainHistory()") == int(row.beacon_history, 16)
    for name, value in VALUES.items():
        assert answer(jumping, row.beacon_history, f"{name}()") == value
    assert check() == ""
    assert Transaction.objects.count() == signer_nonce(jumping) == 4


@pytest.mark.long
def test_interrupted_anywhere_it_goes_on_and_deploys_each_contract_once(chain, db, settings, tmp_path, killing):
    configure(chain, settings, tmp_path)
    chain.rpc("evm_setAutomine", False)
    for mined in range(2):
        statements = itertools.count()
        with killing.when(lambda: sent(chain) == 3 + mined and next(statements) == 20):  # noqa: B023
            deploy(31337, 31337)
        assert not FactsRegistry.objects.exists()
        chain.mine()
    row = deploy(31337, 31337)
    assert (bool(row.beacon_history), row.refused) == (True, "")
    assert signer_nonce(chain) == Transaction.objects.count() == 4


@pytest.mark.long
def test_the_registry_is_created_after_what_it_asks(chain, db, settings, tmp_path, killing):
    """The registry's constructor calls the beacon history, so that must exist first."""
    configure(chain, settings, tmp_path)
    chain.rpc("evm_setAutomine", False)
    limit = chain.rpc("eth_getBlockByNumber", "latest", False)["gasLimit"]
    chain.rpc("evm_setBlockGasLimit", hex(2_400_000))
    for there in ([True, False], [True, True]):
        statements = itertools.count()
        with killing.when(lambda: sent(chain) == 3 and next(statements) == 20):  # noqa: B023
            deploy(31337, 31337)
        chain.mine()
        source, _, history = (create2_address(bytes(tx.data)[32:]) for tx in Transaction.objects.order_by("nonce"))
        codes = [chain.rpc("eth_getCode", address, "latest") for address in (source, history)]
        assert [code != "0x" for code in codes] == there
    chain.rpc("evm_setBlockGasLimit", limit)
    chain.rpc("evm_setAutomine", True)
    chain.mine()
    assert not deploy(31337, 31337).refused


@pytest.mark.parametrize("what", ["none", "another's", "other values"])
def test_a_registry_that_believes_another_beacon_history_is_refused(jumping, what):
    row = FactsRegistry.objects.get()
    if what == "other values":
        # The registry's own code is right, but its beacon history is wrong.
        row.beacon_history = Deployed(jumping, "GloasBeaconHistory", values(electra=65)).address
        of_registry = (31337, row.block_hash_source, 8191, row.beacon_history)
        row.address = Deployed(jumping, "FactsRegistry", *of_registry).address
    elif what == "another's":
        row.beacon_history = Deployed(jumping, "GloasBeaconHistory", values()).address
    else:
        row.beacon_history = ""
    row.save()
    fault = "the code of its beacon history" if what == "other values" else "its code differs from this version's"
    assert fault in check()


@pytest.mark.long
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


@pytest.mark.long
def test_a_registry_stays_usable_when_the_slot_of_the_next_fork_is_known_or_later(jumping, settings):
    assert (check(), reach()) == ("", 2**63 - 1)
    reconfigure(settings, "electra = 64", "electra = 64\nend = 20_000_000")
    assert (check(), reach()) == ("", 20_000_000)
    # A new registry would know no more.
    deploy(31337, 31337, "--replace")
    assert FactsRegistry.objects.count() == 1
    assert answer(jumping, FactsRegistry.objects.get().beacon_history, "end()") == 2**64 - 1
    FactsRegistry.objects.all().delete()
    deploy()
    assert check() == ""
    reconfigure(settings, "end = 20_000_000", "end = 20_000_001")
    assert (check(), reach()) == ("", 20_000_000)


@pytest.mark.long
def test_a_registry_without_one_stays_usable_until_the_operator_replaces_it(chain, db, settings, tmp_path):
    configure(chain, settings, tmp_path, table="")
    old = deploy(31337, 31337)
    configure(chain, settings, tmp_path)
    assert deploy(31337, 31337) == old
    assert check() == ""
    assert "was deployed without a beacon history, so only hops reach old blocks." in output_of_check()
    new = deploy(31337, 31337, "--replace")
    assert new != old
    assert new.beacon_history
    assert "without a beacon history" in fresh(old).replaced_because
    # The registry can jump already, so it isn't replaced.
    assert deploy(31337, 31337, "--replace") == new
    assert f"So has its beacon history, {new.beacon_history}." in output_of_check()


def test_a_beacon_chain_that_the_contract_refuses_is_told_of_in_a_sentence(chain, db, settings, tmp_path):
    """The chain has more periods before Capella than the contract's list can hold."""
    table = TABLE
    for fork in ("capella = 0", "deneb = 0", "electra = 64"):
        table = table.replace(fork, f"{fork.partition(' ')[0]} = {2**40}")
    configure(chain, settings, tmp_path, table)
    with pytest.raises(CommandError, match=r"GloasBeaconHistory can't be created: InvalidChain\(\)"):
        deploy(31337, 31337)
    assert not FactsRegistry.objects.exists()
    assert not Transaction.objects.exists()


@pytest.mark.long
def test_a_signer_is_told_to_hold_what_it_takes(chain, db, settings, tmp_path):
    balance = chain.rpc("eth_getBalance", SIGNER, "latest")
    chain.rpc("anvil_setBalance", SIGNER, "0x1")
    needed = []
    for table in ("", TABLE):
        configure(chain, settings, tmp_path, table=table)
        (amount,) = re.findall(r"deploying 1 registry takes at most ([0-9.]+)", output_of_check())
        needed.append(float(amount) * 10**18)
    chain.rpc("anvil_setBalance", SIGNER, balance)
    assert deploy(31337, 31337).beacon_history
    took = sum(tx.most_for_gas for tx in Transaction.objects.all())
    assert needed[0] < took <= needed[1]


@pytest.mark.long
@pytest.mark.parametrize("end", [2**64 - 1, 20_000_000], ids=["open", "the fork's slot"])
def test_a_registry_with_the_earlier_contract_stays_usable(jumping, settings, end):
    """Its deployment had no `gloas`. Its `end` was open, or the slot of the fork."""
    row = FactsRegistry.objects.get()
    make_earlier(jumping, row, end)
    assert (check(), reach()) == ("", min(end, 2**63 - 1))
    # A new registry would know no more if the fork has no slot.
    assert (deploy(31337, 31337, "--replace") == row) == (end == 2**64 - 1)


@pytest.mark.long
def test_a_registry_stays_usable_when_the_slot_of_gloas_is_known_and_not_when_it_is_later(jumping, settings):
    reconfigure(settings, "electra = 64", "electra = 64\ngloas = 20_000_000")
    assert (check(), reach()) == ("", 20_000_000)
    assert answer(jumping, FactsRegistry.objects.get().beacon_history, "gloas()") == 2**64 - 1
    FactsRegistry.objects.all().delete()
    deploy()
    assert answer(jumping, FactsRegistry.objects.get().beacon_history, "gloas()") == 20_000_000
    assert (check(), reach()) == ("", 2**63 - 1)
    reconfigure(settings, "gloas = 20_000_000", "gloas = 20_000_001")
    assert "with the values of chain 31337" in check()


@pytest.mark.long
@pytest.mark.parametrize("contract", ["BeaconHistory", "GloasBeaconHistory"])
def test_an_earlier_registry_goes_to_the_fork_whatever_slot_it_gets_and_is_replaced_then(jumping, settings, contract):
    row = FactsRegistry.objects.get()
    if contract == "BeaconHistory":
        make_earlier(jumping, row, 2**64 - 1)
    reconfigure(settings, "electra = 64", "electra = 64\ngloas = 20_000_000")
    assert (check(), reach()) == ("", 20_000_000)
    reconfigure(settings, "gloas = 20_000_000", "gloas = 20_000_001")
    assert (check(), reach()) == ("", 20_000_001)
    new = deploy(31337, 31337, "--replace")
    assert "knows no block from slot 20,000,001 on" in fresh(row).replaced_because
    assert (check(), reach()) == ("", 2**63 - 1)
    assert deploy(31337, 31337, "--replace") == new


@pytest.mark.parametrize(
    ("days", "words", "setting"),
    [
        (61, "", "gloas"),
        (59, "Replace the registry before.", "gloas"),
        (-1, "(31337) has passed it.", "gloas"),
        (61, "", "end"),
        (59, "look for a newer version, or set gloas and end", "end"),
        (-1, "(31337) has passed it.", "end"),
    ],
)
def test_the_end_of_a_history_is_a_problem_from_60_days_before(jumping, settings, days, words, setting):
    slot = int(time.time() + days * 86_400 - 1_700_000_000) // 12
    reconfigure(settings, "electra = 64", f"electra = 64\n{setting} = {slot}")
    assert check() == ""
    health = Client().get("/healthz", REMOTE_ADDR="127.0.0.1").json()
    told = [sentence for sentence in health["problems"] if "beacon history" in sentence]
    (shown,) = Client().get("/chains.json").json()["connections"]
    # Only operators read the command.
    public = [sentence.partition(" The operator must run")[0] for sentence in told]
    assert [each for each in shown["notes"] if "beacon history" in each] == public
    assert ("history_ends" in health["codes"], len(told)) == (bool(words), 1 if words else 0)
    if words:
        assert f"knows no block from slot {slot:,} on, of " in told[0]
        assert words in told[0]
        is_replaceable = setting == "gloas"
        unless = "without another registry " * is_replaceable
        assert f"What is recorded stays good, but {unless}no jump begins or ends after" in told[0]
        remedy = "manage.py deploy_registry 31337 31337 --replace"
        assert told[0].endswith(f"The operator must run: {remedy}") == is_replaceable
        assert f"It knows the beacon chain before slot {slot:,}." in output_of_check()


@pytest.mark.parametrize(
    ("wrong", "fault"),
    [
        ("capella = 65", "deneb must not be before capella"),
        ("gloas = 63", "gloas must not be before electra: both are first slots of forks, and no epochs"),
        ("gloas = 70\nend = 69", "end must not be before gloas"),
        ("end = 63", "end must not be before electra"),
        ("gloas = 0", r"beacon_chain\.gloas: Input should be greater than or equal to 1"),
        ("gloas = -1", r"beacon_chain\.gloas: Input should be greater than or equal to 1"),
        ("gloas = 1e6", r"beacon_chain\.gloas: Input should be a valid integer"),
    ],
)
def test_forks_out_of_order_are_faults_that_name_the_setting(db, settings, tmp_path, wrong, fault):
    path = chains_toml(tmp_path, "http://127.0.0.1:1")
    setting = wrong.partition(" = ")[0]
    table = TABLE.replace(f"{setting} = 0", wrong) if f"{setting} = 0" in TABLE else f"{TABLE}\n{wrong}\n"
    path.write_text(path.read_text().replace("\n[[connections]]", f"{table}\n[[connections]]"))
    settings.CHAINS_FILE = path
    with pytest.raises(CommandError, match=fault):
        work()


@pytest.mark.parametrize(
    ("chain_id", "table"),
    [
        (1, TABLE),
        (SEPOLIA, TABLE),
        (SEPOLIA, f"{SEPOLIAS_TABLE}gloas = 11_296_769\n"),
        (SEPOLIA, f"{SEPOLIAS_TABLE}end = 11_296_767\n"),
        (SEPOLIA, SEPOLIAS_TABLE.replace("7_118_848", "7_118_849")),
    ],
    ids=["Ethereum", "Sepolia", "another fork", "an earlier end", "another Electra"],
)
def test_a_table_with_other_values_than_the_service_knows_is_a_fault(db, settings, tmp_path, chain_id, table):
    path = chains_toml(tmp_path, "http://127.0.0.1:1", chain_id=chain_id)
    path.write_text(path.read_text().replace("\n[[connections]]", f"{table}\n[[connections]]"))
    settings.CHAINS_FILE = path
    with pytest.raises(
        CommandError, match=r"must have no \[chains.beacon_chain\] with other values .*: remove the table"
    ):
        work()


sepolia = chain_fixture(chain_id=SEPOLIA)


def of_sepolia(sepolia: DevChain, settings, folder: Path, table: str = "") -> None:
    settings.CHAINS_FILE = chains_toml(folder, sepolia.url, chain_id=SEPOLIA)
    reconfigure(settings, "\n[[connections]]", f"{table}\n[[connections]]")


@pytest.mark.long
def test_sepolia_needs_no_table(sepolia, db, settings, tmp_path):
    of_sepolia(sepolia, settings, tmp_path)
    row = deploy(SEPOLIA, SEPOLIA)
    told = {name: answer(sepolia, row.beacon_history, f"{name}()") for name in VALUES}
    forks = {"bellatrix": 3_200, "capella": 1_818_624, "deneb": 4_243_456, "electra": 7_118_848, "gloas": 11_296_768}
    assert told == VALUES | forks | {"sourceChainId": SEPOLIA, "periodDepth": 13}
    assert check() == ""


@pytest.mark.long
@pytest.mark.parametrize("end", [2**64 - 1, 11_296_768], ids=["open", "the fork's slot"])
@pytest.mark.parametrize(
    "table",
    [SEPOLIAS_TABLE, f'{SEPOLIAS_TABLE}historical_roots = "0x{"12" * 32}"\n', ""],
    ids=["kept", "with roots", "removed"],
)
def test_a_registry_of_sepolia_that_an_earlier_version_deployed_by_a_table_stays_usable(
    sepolia, db, settings, tmp_path, end, table
):
    of_sepolia(sepolia, settings, tmp_path, f"{table}end = {end}\n" if table and end < 2**63 else table)
    row = deploy(SEPOLIA, SEPOLIA)
    forks = {"bellatrix": 3_200, "capella": 1_818_624, "deneb": 4_243_456, "electra": 7_118_848}
    roots = int("12" * 32, 16) if "historical_roots" in table else 0
    arguments = values(sourceChainId=SEPOLIA, periodDepth=13, **forks, end=end, historicalRoots=roots)
    earlier = tuple(value for name, value in zip(VALUES, arguments, strict=True) if name != "gloas")
    row.beacon_history = Deployed(sepolia, "BeaconHistory", earlier).address
    row.address = Deployed(sepolia, "FactsRegistry", SEPOLIA, row.block_hash_source, 8191, row.beacon_history).address
    row.save()
    assert (check(), reach()) == ("", 11_296_768)


@pytest.mark.long
def test_a_registry_of_sepolia_from_before_its_beacon_chain_was_known_keeps_its_place(sepolia, db, settings, tmp_path):
    """Anyone who deployed it with an earlier version, without a table, has got this address."""
    of_sepolia(sepolia, settings, tmp_path)
    row = deploy(SEPOLIA, SEPOLIA)
    arguments = (SEPOLIA, row.block_hash_source, 8191, NO_CONTRACT)
    code = load_artifact("FactsRegistry").bytecode + encode(["uint256", "address", "uint256", "address"], arguments)
    sepolia.rpc(
        "eth_sendTransaction", {"from": ACCOUNTS[0][0], "to": DEPLOYER, "data": "0x" + (bytes(32) + code).hex()}
    )
    sepolia.mine()
    FactsRegistry.objects.update(beacon_history="", address=create2_address(code))
    output = output_of_check()
    assert "It has the same address everywhere." in output
    assert "was deployed without a beacon history, so only hops reach old blocks." in output
    assert check() == ""
