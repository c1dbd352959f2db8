"""Several calls to the registry in one transaction."""

import pytest
from eth_utils.crypto import keccak

from chains.encoding import hex_data
from chains.tries.packed import HISTORY_ADDRESS, AccountToProve, encode
from devnet.devchain import ACCOUNTS
from tests.contracts import tries
from tests.contracts.deployed import SENDER, Deployed, Reverted

BLOCK, OLD_BLOCK = 1234, 1200
SLOT = OLD_BLOCK % 8191
OLD_ROOT = b"\x07" * 32
OLD = tries.header(OLD_BLOCK, OLD_ROOT)

STORAGE = tries.leaf(keccak(SLOT.to_bytes(32)), tries.encode(keccak(OLD)))
STATE = tries.leaf(keccak(HISTORY_ADDRESS), tries.account(1, 0, keccak(STORAGE), b"\x0c" * 32))
ROOT = keccak(STATE)
HEADER = tries.header(BLOCK, ROOT)

HOP = encode(HEADER, ROOT, [AccountToProve(HISTORY_ADDRESS, 0, [STATE], {}, {SLOT: [STORAGE]})])
LANDING = encode(OLD, OLD_ROOT)


@pytest.fixture(scope="module")
def multicall(chain) -> Deployed:
    return Deployed(chain, "Multicall")


@pytest.fixture
def vouched(registry: Deployed, source: Deployed) -> Deployed:
    """Return a registry whose source vouches only for the newer block."""
    source.send("set", BLOCK, keccak(HEADER))
    return registry


def test_a_call_may_need_what_the_one_before_has_stored(multicall, vouched):
    receipt = multicall.send("run", [(vouched.address, HOP), (vouched.address, LANDING)])
    assert vouched.logged(receipt) == [
        ("HeaderAccumulated", BLOCK, ROOT),
        ("BlockHashProven", keccak(OLD)),
        ("HeaderAccumulated", OLD_BLOCK, OLD_ROOT),
    ]
    assert vouched.call("stateRoot", OLD_BLOCK) == OLD_ROOT


def test_the_calls_are_made_in_order(multicall, vouched):
    with pytest.raises(Reverted):
        multicall.call("run", [(vouched.address, LANDING), (vouched.address, HOP)])


def test_a_call_that_reverts_undoes_those_before_and_its_error_comes_through(chain, multicall, vouched):
    other = encode(tries.header(5, OLD_ROOT), OLD_ROOT)
    calls = [(vouched.address, HOP), (vouched.address, other), (vouched.address, LANDING)]
    data = "0x" + multicall.calldata("run", calls).hex()
    assert multicall.refusal("run", calls) == ((keccak(text="UnknownBlock(uint256)")[:4] + (5).to_bytes(32)).hex(),)
    receipt = chain.rpc(
        "eth_sendTransactionSync", {"from": SENDER, "to": multicall.address, "data": data, "gas": hex(10**6)}
    )
    assert receipt["status"] == "0x0"
    assert vouched.call("stateRoot", BLOCK) == bytes(32)
    assert not vouched.call("vouches", OLD_BLOCK, keccak(OLD))


def test_a_revert_without_a_reason_stays_one(chain, multicall, vouched):
    chain.rpc("anvil_setCode", "0x" + "fd" * 20, "0x5f5ffd")
    assert multicall.refusal("run", [(vouched.address, HOP), ("0x" + "fd" * 20, b"")]) == ("",)


@pytest.mark.parametrize("to", [ACCOUNTS[1][0], "0x" + "00" * 20], ids=["account of a person", "zero address"])
def test_an_address_without_code_cannot_be_called(multicall, vouched, to):
    assert multicall.refusal("run", [(vouched.address, HOP), (to, HOP)]) == ("NoContract", to.lower())


def test_no_calls_are_no_error(multicall):
    assert multicall.logged(multicall.send("run", [])) == []


@pytest.mark.parametrize("size", [0, 1, 31, 32, 33, 1000])
def test_calldata_arrives_as_it_was_sent(chain, multicall, size):
    """The calldata of a call doesn't depend on earlier calls."""
    echo = f"0x{0xEC40:040x}"
    # CALLDATACOPY and LOG0: the code logs its calldata.
    chain.rpc("anvil_setCode", echo, "0x365f5f37365fa000")
    data = bytes(range(1, 251)) * 4
    receipt = multicall.send("run", [(echo, b"\xff" * 700), (echo, data[:size]), (echo, b"\xee" * 40)])
    assert [log["data"] for log in receipt["logs"]] == [
        hex_data(each) for each in (b"\xff" * 700, data[:size], b"\xee" * 40)
    ]


def test_multicall_takes_no_value(chain, multicall):
    data = "0x" + multicall.calldata("run", []).hex()
    transaction = {"from": SENDER, "to": multicall.address, "data": data, "value": "0x1", "gas": hex(10**6)}
    assert chain.rpc("eth_sendTransactionSync", transaction)["status"] == "0x0"
