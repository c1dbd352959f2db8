"""docs/concepts/soundness.md: the example limits the loss by a false block hash, and figures name the code they belong
to.
"""

import random
import re
from typing import Any

import pytest
from eth_utils.crypto import keccak

from chains.contract_artifacts import NO_CONTRACT, Artifact, code_digest, load_artifact
from chains.encoding import HISTORY_WINDOW
from chains.tries.packed import HISTORY_ADDRESS, encode
from contracts.build import run_compiler
from devnet.devchain import ACCOUNTS, PROJECT, DevChain
from tests.contracts.deployed import SENDER, Deployed, Reverted
from tests.contracts.worlds import Asked, World

PAGE = "docs/concepts/soundness.md"
SOURCE_CHAIN, BLOCK = 1, 5000
LEDGER, OWED_SLOT = "0x" + "1e" * 20, 3
ALICE, BOB, CAROL = ("0x" + letter * 40 for letter in "abc")
DAVE = ACCOUNTS[3][0]
EXTRA_DATA = 12
ETHER = 10**18
CAP = 4 * ETHER
OWED = {ALICE: CAP, BOB: 2 * ETHER, CAROL: 0, DAVE: CAP + 1}
# This contract requests its payment again while it receives it.
GREEDY = """
pragma solidity ^0.8.28;
contract Greedy {
    receive() external payable {
        (bool paid,) = msg.sender.call(abi.encodeWithSignature("execute(address)", address(this)));
        paid;
    }
}
"""


@pytest.fixture(scope="module")
def compiled() -> dict[str, Artifact]:
    """Return the artifacts of the example and of GREEDY, with the registry's errors, which pass through both."""
    files = ("examples/CautiousPayout.sol", "src/IFactsRegistry.sol")
    sources = {file: (PROJECT / "client/solidity" / file).read_text() for file in files}
    outputs = ["abi", "evm.bytecode.object", "evm.deployedBytecode.object"]
    output = run_compiler(sources | {"Greedy": GREEDY}, {"*": {"*": outputs}})
    errors = [entry for entry in load_artifact("FactsRegistry").abi if entry["type"] == "error"]
    return {
        name: Artifact(
            abi=[*contract["abi"], *errors],
            bytecode=bytes.fromhex(contract["evm"]["bytecode"]["object"]),
            runtime=bytes.fromhex(contract["evm"]["deployedBytecode"]["object"]),
            immutables={},
        )
        for contracts in output["contracts"].values()
        for name, contract in contracts.items()
    }


@pytest.fixture(scope="module")
def chain(devchain: DevChain) -> DevChain:
    return devchain


@pytest.fixture
def source(chain: DevChain) -> Deployed:
    return Deployed(chain, "test/SettableBlockHashSource", SOURCE_CHAIN)


@pytest.fixture
def registry(chain: DevChain, source: Deployed) -> Deployed:
    return Deployed(chain, "FactsRegistry", SOURCE_CHAIN, source.address, HISTORY_WINDOW, NO_CONTRACT)


def slot_of(account: str) -> int:
    return int.from_bytes(keccak(bytes(12) + bytes.fromhex(account[2:]) + OWED_SLOT.to_bytes(32)))


def owing(number: int = BLOCK) -> World:
    """Return a state in which the ledger owes the amounts in `OWED`."""
    world = World(random.Random(1), number)
    ledger = bytes.fromhex(LEDGER[2:])
    world.accounts[ledger] = (1, 0, keccak(b"code"))
    world.storages[ledger] = {slot_of(account): amount for account, amount in OWED.items() if amount}
    return world.close()


def proof(world: World, *accounts: str) -> bytes:
    return world.prove([Asked(bytes.fromhex(LEDGER[2:]), 0, [slot_of(account) for account in accounts])])


@pytest.fixture
def payout(chain: DevChain, source: Deployed, registry: Deployed, compiled) -> Deployed:
    """Return a payout contract with money and proven debts."""
    world = owing()
    source.send("set", BLOCK, world.block_hash)
    registry.send_raw(proof(world, *OWED))
    return deploy(chain, registry, compiled)


def deploy(chain: DevChain, registry: Deployed, compiled: dict[str, Artifact], guardian: str = SENDER) -> Deployed:
    artifact = compiled["CautiousPayout"]
    payout = Deployed(
        chain, "CautiousPayout", registry.address, BLOCK, LEDGER, OWED_SLOT, CAP, guardian, artifact=artifact
    )
    chain.rpc("eth_sendTransactionSync", {"from": SENDER, "to": payout.address, "value": hex(10 * ETHER)})
    for account in OWED:
        chain.rpc("anvil_setBalance", account, "0x0")
        chain.rpc("anvil_setCode", account, "0x")
    return payout


def balance(chain: DevChain, account: str) -> int:
    return int(chain.rpc("eth_getBalance", account, "latest"), 16)


def refusal(contract: Deployed, function: str, *arguments: Any, block: str = "pending") -> tuple[Any, ...]:
    with pytest.raises(Reverted) as reverted:
        contract.call(function, *arguments, block=block)
    return reverted.value.error


def queue(payout: Deployed, account: str) -> int:
    """Return the time from which the payout pays the claim."""
    ((event, of, amount, ready_at),) = payout.logged(payout.send("queue", account))
    assert (event, of, amount) == ("Queued", account.lower(), OWED[account])
    return int(ready_at)


def wait_until(chain: DevChain, time: int) -> None:
    """Mine a block with this timestamp."""
    chain.rpc("evm_setNextBlockTimestamp", time)
    chain.mine()


def start_of_a_window(payout: Deployed, time: int) -> int:
    """Return the first start of a window at or after this time."""
    window: int = payout.call("WINDOW")
    return -(-time // window) * window


def test_a_claim_is_paid_after_the_delay_and_once(chain, payout):
    ready_at = queue(payout, ALICE)
    queued_in = chain.rpc("eth_getBlockByNumber", "latest", False)
    assert ready_at == int(queued_in["timestamp"], 16) + payout.call("DELAY")
    wait_until(chain, ready_at - 1)
    assert refusal(payout, "execute", ALICE, block="latest") == ("TooEarly", ready_at)
    wait_until(chain, ready_at)
    payout.call("execute", ALICE)
    payout.send("execute", ALICE)
    assert balance(chain, ALICE) == OWED[ALICE]
    assert refusal(payout, "execute", ALICE) == ("NothingToPay",)
    assert refusal(payout, "queue", ALICE) == ("QueuedBefore",)


def test_an_account_that_asks_again_while_it_is_paid_gets_it_once(chain, payout, compiled):
    chain.rpc("anvil_setCode", BOB, "0x" + compiled["Greedy"].runtime.hex())
    wait_until(chain, start_of_a_window(payout, queue(payout, BOB)))
    payout.send("execute", BOB)
    assert balance(chain, BOB) == OWED[BOB]
    assert balance(chain, payout.address) == 10 * ETHER - OWED[BOB]


def test_no_window_pays_more_than_the_cap(chain, payout):
    queue(payout, ALICE)
    queue(payout, DAVE)
    opened = start_of_a_window(payout, queue(payout, BOB))
    wait_until(chain, opened)
    payout.send("execute", ALICE)
    assert refusal(payout, "execute", BOB) == ("AboveCap",)
    wait_until(chain, opened + payout.call("WINDOW") - 1)
    assert refusal(payout, "execute", BOB, block="latest") == ("AboveCap",)
    wait_until(chain, opened + payout.call("WINDOW"))
    payout.send("execute", BOB)
    assert (balance(chain, ALICE), balance(chain, BOB)) == (OWED[ALICE], OWED[BOB])
    wait_until(chain, opened + 2 * payout.call("WINDOW"))
    assert refusal(payout, "execute", DAVE) == ("AboveCap",)


def test_an_unproven_slot_is_not_taken_for_zero(chain, source, registry, compiled):
    payout, world = deploy(chain, registry, compiled), owing()
    unproven = ("SlotNotProven", LEDGER, BLOCK, slot_of(CAROL).to_bytes(32))
    assert refusal(payout, "queue", CAROL) == unproven
    source.send("set", BLOCK, world.block_hash)
    registry.send_raw(proof(world, ALICE))
    assert refusal(payout, "queue", CAROL) == unproven
    registry.send_raw(proof(world, CAROL))
    assert refusal(payout, "queue", CAROL) == ("NothingOwed",)
    assert refusal(payout, "execute", CAROL) == ("NothingToPay",)


def test_a_claim_proven_by_one_false_hash_stays_unpaid_if_the_guardian_stops(chain, source, registry, compiled):
    payout, invented = deploy(chain, registry, compiled), owing()
    false = World(random.Random(2), BLOCK - 1000)
    false.accounts[HISTORY_ADDRESS] = (1, 0, keccak(b"code"))
    false.storages[HISTORY_ADDRESS] = {7: int.from_bytes(invented.block_hash)}
    false.close()
    assert refusal(payout, "queue", ALICE)[0] == "SlotNotProven"
    source.send("set", false.number, false.block_hash)
    registry.send_raw(false.prove([Asked(HISTORY_ADDRESS, 0, [], [7])]))
    registry.send_raw(proof(invented, ALICE))

    ready_at = queue(payout, ALICE)
    assert refusal(payout, "withdraw") == ("NotStopped",)
    payout.send("stop")
    wait_until(chain, ready_at)
    assert refusal(payout, "execute", ALICE) == ("Stopped",)
    before = balance(chain, SENDER)
    payout.send("withdraw")
    assert balance(chain, SENDER) > before + 9 * ETHER
    assert (balance(chain, payout.address), balance(chain, ALICE)) == (0, 0)


def test_nobody_but_the_guardian_stops(chain, registry, compiled):
    payout = deploy(chain, registry, compiled, guardian=BOB)
    assert refusal(payout, "stop") == ("NotTheGuardian",)


def test_a_false_hash_changes_no_account_or_slot_of_a_block_whose_root_is_there(source, registry):
    true, false = owing(), owing()
    false.accounts[bytes(20)] = (0, 1, keccak(b""))
    false.close()
    source.send("set", BLOCK, true.block_hash)
    registry.send_raw(proof(true, ALICE))
    source.send("set", BLOCK, false.block_hash)
    assert registry.refusal_raw(proof(false, BOB)) == ("HeaderMismatch", BLOCK)

    # A false header can have the true state root. A false field of the header is proven then.
    true.make_headers(extra_data=b"false")
    source.send("set", BLOCK, true.block_hash)
    registry.send_raw(encode(true.header, true.root, header_fields=[EXTRA_DATA]))
    assert registry.call("headerField", BLOCK, EXTRA_DATA) == keccak(b"false")


# --- Figures ----------------------------------------------------------------------------------------------------------

# A figure stays valid for each contract whose code is still the same. Others have a claim of their own.
CLAIM = re.compile("digest `(0x[0-9a-f]{64})`, which is the current one(?: without `([A-Za-z]+)` and `([A-Za-z]+)`)?")


def fault(page: str, changelog: str) -> str:
    """Return what is wrong with a page's claims about its figures' code. The result is empty if nothing is."""
    claims = {digest: {*names} - {""} for digest, *names in CLAIM.findall(" ".join(page.split()))}
    for claimed, names in claims.items():
        if claimed != (digest := code_digest(names)):
            return f"figures of {claimed} are called current, and the code is {digest}"
    heading = re.search("^## .*$", changelog, re.MULTILINE)
    assert heading
    is_released = not heading[0].endswith("unreleased")
    is_whole = bool(claims) and not set.intersection(*claims.values())
    return "" if is_whole or not is_released else "a release needs figures of each contract"


def test_figures_that_are_called_current_are_of_this_code():
    page, changelog = ((PROJECT / path).read_text() for path in (PAGE, "CHANGELOG.md"))
    assert fault(page, changelog) == ""
    assert page.count("which is the current one") == len(CLAIM.findall(" ".join(page.split())))


def test_figures_of_other_code_are_not_called_current():
    both = "GloasBeaconHistory", "GloasBeaconBlockHashSource"
    of_both, of_others = (
        f"the digest `{code_digest(names)}`, which is the current one{without}"
        for names, without in (((), ""), (both, " without `{}` and `{}`".format(*both)))
    )
    assert [fault(page, "## 0.5.0") for page in (of_both, f"{of_both} {of_others}")] == ["", ""]
    assert fault(of_others, "## 0.5.0 - unreleased") == ""
    assert [fault(page, "## 0.5.0") for page in ("", of_others)] == ["a release needs figures of each contract"] * 2
    for page in (
        of_both.replace(code_digest(), code_digest(both)),
        of_others.replace(code_digest(both), code_digest()),
    ):
        assert "are called current" in fault(page, "## 0.5.0 - unreleased")
