"""Slots of mappings and arrays, against known ones, against the ABI's encoding, and in a contract."""

import pytest
from eth_abi.abi import encode
from eth_utils.crypto import keccak

from explorer.new_batch import storage_slots
from tests.contracts.deployed import Deployed
from tests.service import ALICE, BOB

# keccak256 of 32 and of 64 zero bytes, and of the number 1.
ZERO, TWO_ZEROS = (
    "0x290decd9548b62a8d60345a988386fc84ba6bc95484008f6362f93160ef3e563",
    "0xad3228b676f7d3cd4284a5443f17f1962b36e491b30a40b2405849e597ba5fb5",
)
ONE = 0xB10E2D527612073B26EECDFD717E6A320CF44B4AFAC2B0732D9FCBE2B7FA0CF6
ALL = (1 << 256) - 1


def test_known_slots():
    assert storage_slots.of_mapping("uint256", "0", "0") == TWO_ZEROS
    assert storage_slots.of_array("0", "0") == ZERO
    assert storage_slots.of_array("7", "0x1") == f"0x{ONE + 7:064x}"
    # Slots end where they began.
    assert storage_slots.of_array(str(ALL), "1") == f"0x{ONE - 1:064x}"


@pytest.mark.parametrize(
    ("kind", "key", "value"),
    [
        ("address", ALICE, ALICE),
        ("address", f" {ALICE.lower()} ", ALICE),
        ("uint256", "31337", 31337),
        ("uint256", "0x7a69", 31337),
        ("uint256", str(ALL), ALL),
        ("bytes32", "0x" + "ab" * 32, bytes.fromhex("ab" * 32)),
        ("bytes32", "AB" * 32, bytes.fromhex("ab" * 32)),
    ],
)
@pytest.mark.parametrize("base", ["9", "0x9", "0x" + "0" * 63 + "9"])
def test_a_mapping_is_hashed_as_the_abi_encodes_it(kind, key, value, base):
    expected = keccak(encode([kind, "uint256"], [value, 9]))
    assert storage_slots.of_mapping(kind, key, base) == f"0x{expected.hex()}"


def test_the_slot_of_the_outer_mapping_is_the_base_of_the_inner_one():
    outer = storage_slots.of_mapping("address", ALICE, "1")
    expected = keccak(encode(["address"], [ALICE]) + keccak(encode(["address", "uint256"], [ALICE, 1])))
    assert storage_slots.of_mapping("address", ALICE, outer) == f"0x{expected.hex()}"


@pytest.mark.parametrize(
    ("kind", "key", "base", "of_base"),
    [
        ("address", "", "0", False),
        ("address", ALICE[:-1], "0", False),
        ("address", ALICE.swapcase(), "0", False),
        ("address", ALICE, "", True),
        ("address", ALICE, "-1", True),
        ("address", ALICE, str(ALL + 1), True),
        ("address", ALICE, "0x" + "1" * 65, True),
        ("address", ALICE, "9" * 5000, True),
        ("uint256", "1.0", "0", False),
        ("uint256", "٣", "0", False),
        ("bytes32", "0xab", "0", False),
    ],
)
def test_what_is_no_key_or_slot_is_said(kind, key, base, of_base):
    with pytest.raises(storage_slots.NotAKey) as refused:
        storage_slots.of_mapping(kind, key, base)
    assert refused.value.of_base == of_base
    assert refused.value.sentence.endswith(".")


def test_a_contract_keeps_its_values_there(chain):
    """`AttestedBlockHashSource` has its mappings at slots 0 and 1, and the array of its attesters at 2."""
    contract = Deployed(chain, "AttestedBlockHashSource", 5, [BOB, ALICE], 1)

    def stored(slot: str) -> int:
        return int(chain.rpc("eth_getStorageAt", contract.address, slot, "latest"), 16)

    assert stored(storage_slots.of_mapping("address", ALICE, "1")) == 1
    assert stored(storage_slots.of_mapping("address", contract.address, "1")) == 0
    assert [stored(storage_slots.of_array(index, "2")) for index in "01"] == sorted([int(ALICE, 16), int(BOB, 16)])
