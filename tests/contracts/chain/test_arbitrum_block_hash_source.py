"""Blocks of an Arbitrum chain, proven by Arbitrum's Outbox on the parent chain, or by a fact on another chain."""

import random
from typing import Any

import pytest
import rlp
from eth_utils.crypto import keccak

from chains.contract_artifacts import NO_CONTRACT
from chains.tries.packed import AccountToProve, encode
from devnet.arbitrum_outbox import ArbitrumOutbox
from devnet.devchain import DevChain
from tests.contracts import tries
from tests.contracts.deployed import Deployed
from tests.contracts.lying_calldata import lies
from tests.contracts.simulator import Call
from tests.contracts.worlds import Asked, World
from tests.fixtures_folder import load_fixture, unhex

ROLLUP_CHAIN_ID = 42161
BLOCK = 1234
SEND_ROOT, OTHER_SEND_ROOT = b"\x05" * 32, b"\x06" * 32
ZERO = bytes(32)
ROOTS_SLOT = 3

ON_SEPOLIA = "rollups/sepolia_9567705_arbitrum_outbox_slot.json"
ON_ARBITRUM_SEPOLIA = "rollups/arbitrum_sepolia_207673361_account_and_slot.json"


def header_of(number: int = BLOCK, *, state_root: bytes = b"\x01" * 32, extra_data: bytes = SEND_ROOT) -> bytes:
    return tries.header(number, state_root, extra_data=extra_data)


HEADER = header_of()
HASH = keccak(HEADER)


@pytest.fixture
def outbox(chain: DevChain) -> ArbitrumOutbox:
    return ArbitrumOutbox(chain)


@pytest.fixture
def arbitrum(chain: DevChain, outbox: ArbitrumOutbox) -> Deployed:
    return Deployed(chain, "ArbitrumBlockHashSource", ROLLUP_CHAIN_ID, outbox.address)


# --- Beside the Outbox ------------------------------------------------------------------------------------------------


def test_a_header_is_not_confirmed_under_another_send_root(outbox, arbitrum):
    outbox.confirm(OTHER_SEND_ROOT, HASH)
    outbox.confirm(ZERO, HASH)
    assert arbitrum.refusal("record", HEADER) == ("NotConfirmed", BLOCK)


@pytest.mark.parametrize("bit", [0, 63, 64, 127, 128, 160, 255])
def test_the_whole_hash_is_compared(outbox, arbitrum, bit):
    outbox.confirm(SEND_ROOT, (int.from_bytes(HASH) ^ 1 << bit).to_bytes(32))
    assert arbitrum.refusal("record", HEADER) == ("NotConfirmed", BLOCK)


def test_calldata_that_lies_about_places_and_sizes_records_nothing_else(simulator, outbox, arbitrum):
    outbox.confirm(SEND_ROOT, HASH)
    data = arbitrum.calldata("record", HEADER)
    first, *others = simulator.run([Call(arbitrum.address, each) for each in (data, *lies(data, [4]))])
    [log] = first.logs
    assert (log.topics[1], log.data) == (BLOCK.to_bytes(32), HASH)
    assert not any(each.succeeded for each in others)


@pytest.mark.parametrize("extra_data", [b"", b"\x05", b"\x05" * 31, b"\x05" * 33, b"\x05" * 64, bytes(31)])
def test_extra_data_of_another_size_is_no_send_root(outbox, arbitrum, extra_data):
    header = header_of(extra_data=extra_data)
    # The send roots that a careless reader would take from extra data of another size.
    for send_root in {
        extra_data.rjust(32, b"\0")[:32],
        extra_data.ljust(32, b"\0")[:32],
        extra_data[-32:].rjust(32, b"\0"),
    }:
        outbox.confirm(send_root, keccak(header))
    assert arbitrum.refusal("record", header) == ("InvalidHeader",)


_FIELDS = rlp.decode(HEADER)
NO_HEADERS = {
    "no extra data": tries.encode(_FIELDS[:12]),
    "a list for a field": tries.encode([*_FIELDS[:9], [b"\1"], *_FIELDS[10:]]),
}


@pytest.mark.parametrize("header", NO_HEADERS.values(), ids=NO_HEADERS)
def test_a_malformed_header_is_refused_even_if_its_hash_is_confirmed(outbox, arbitrum, header):
    outbox.confirm(SEND_ROOT, keccak(header))
    assert arbitrum.refusal("record", header) == ("InvalidHeader",)


# Each code puts the header's hash into memory. The codes end in different ways.
_PLANT = "0x7f" + HASH.hex() + "5f52"
_SIZES = "601f5ff3", "60405ff3"


@pytest.mark.parametrize(
    "code",
    [
        "0x",
        "0x00",
        "0xfe",
        _PLANT + "60205ffd",
        "0x60015f55" + _PLANT[2:] + "60205ff3",
        *(_PLANT + end for end in _SIZES),
    ],
    ids=["none", "stops", "invalid", "reverts", "writes", "31 bytes", "64 bytes"],
)
def test_without_a_working_outbox_nothing_is_recorded(chain, outbox, arbitrum, code):
    chain.rpc("anvil_setCode", outbox.address, code)
    assert arbitrum.refusal("record", HEADER) == ("NotConfirmed", BLOCK)
    assert arbitrum.call("blockHash", BLOCK) == ZERO


@pytest.mark.parametrize("last_byte", [0, SEND_ROOT[27]], ids=["nothing", "what was asked"])
def test_an_answer_that_is_a_byte_short_is_not_completed_by_what_memory_holds(chain, outbox, arbitrum, last_byte):
    # The answer has 31 bytes. The byte of memory behind them equals the hash's last byte.
    headers = (header_of(number) for number in range(BLOCK, BLOCK + 10_000))
    header = next(each for each in headers if keccak(each)[31] == last_byte)
    plant = "0x7f" + keccak(header).hex() + "5f52"
    chain.rpc("anvil_setCode", outbox.address, plant + "601f5ff3")
    assert arbitrum.refusal("record", header)[0] == "NotConfirmed"
    chain.rpc("anvil_setCode", outbox.address, plant + "60205ff3")
    arbitrum.send("record", header)


def test_gas_to_record_a_real_arbitrum_header_is_as_expected(outbox, arbitrum):
    fixture = load_fixture(ON_ARBITRUM_SEPOLIA)
    header, block_hash = unhex(fixture["rlpBlockHeader"]), unhex(fixture["blockHash"])
    number = int(fixture["blockNumber"], 16)
    assert arbitrum.refusal("record", header) == ("NotConfirmed", number)
    outbox.confirm(SEND_ROOT, keccak(header_of(number - 1)))
    arbitrum.send("record", header_of(number - 1))
    outbox.confirm(unhex(fixture["sendRoot"]), block_hash)
    gas = int(arbitrum.send("record", header)["gasUsed"], 16)
    assert arbitrum.call("blockHash", number) == block_hash
    # The first record costs 17,100 gas more, because the slot of the newest block was empty.
    assert 65_000 < gas < 68_000, gas


# --- As a fact of the parent chain ------------------------------------------------------------------------------------

OUTBOX = b"\x0b" * 20
PARENT_BLOCK = 99


def slot_of(send_root: bytes, mapping: int = ROOTS_SLOT) -> int:
    return int.from_bytes(keccak(send_root + mapping.to_bytes(32)))


def parent(slots: dict[int, int], *, number: int = PARENT_BLOCK, contract: bytes = OUTBOX) -> World:
    """Return a block of the parent chain with another account, and with these slots of a contract."""
    world = World(random.Random(number), number)
    world.accounts |= {contract: (1, 0, keccak(b"code")), b"\x77" * 20: (1, 5, keccak(b""))}
    world.storages[contract] = slots
    return world.close()


def prove(source: Deployed, registry: Deployed, world: World, contract: bytes = OUTBOX, slots: Any = None) -> None:
    source.send("set", world.number, world.block_hash)
    registry.send_raw(world.prove([Asked(contract, 0, sorted(slots or world.storages[contract]))]))


@pytest.fixture
def elsewhere(chain: DevChain, registry: Deployed) -> Deployed:
    """Return the source on a chain that has a registry for the parent chain."""
    return Deployed(chain, "ArbitrumSlotBlockHashSource", ROLLUP_CHAIN_ID, OUTBOX, registry.address)


@pytest.mark.parametrize(
    "world",
    [
        parent({slot_of(SEND_ROOT): int.from_bytes(HASH)}, number=PARENT_BLOCK + 1),
        parent({slot_of(SEND_ROOT): int.from_bytes(HASH)}, contract=b"\x0c" * 20),
        parent({slot_of(OTHER_SEND_ROOT): int.from_bytes(HASH)}),
        parent({slot_of(SEND_ROOT, mapping): int.from_bytes(HASH) for mapping in (0, 1, 2, 4, 5)}),
        parent({int.from_bytes(SEND_ROOT): int.from_bytes(HASH), int.from_bytes(keccak(SEND_ROOT)): 1}),
        parent({slot_of(SEND_ROOT): int.from_bytes(HASH) ^ 1}),
        parent({slot_of(SEND_ROOT): int.from_bytes(keccak(header_of(BLOCK + 1)))}),
    ],
    ids=[
        "another block",
        "another contract",
        "another send root",
        "another mapping",
        "no mapping",
        "a bit",
        "a header",
    ],
)
def test_nothing_else_that_is_proven_confirms_a_block(source, registry, elsewhere, world):
    (contract,) = world.storages
    prove(source, registry, world, contract)
    assert elsewhere.refusal("record", PARENT_BLOCK, HEADER) == ("NotConfirmed", BLOCK)
    assert elsewhere.call("blockHash", BLOCK) == ZERO


def test_a_slot_that_is_proven_empty_confirms_nothing(source, registry, elsewhere):
    prove(source, registry, parent({slot_of(OTHER_SEND_ROOT): 1}), slots=[slot_of(SEND_ROOT)])
    assert elsewhere.refusal("record", PARENT_BLOCK, HEADER) == ("NotConfirmed", BLOCK)


def test_a_slot_of_arbitrum_sepolia_is_proven_on_a_third_chain_from_a_state_root_of_sepolia(chain):
    """Prove a slot by records alone. No source vouches for the rollup's block."""
    above, below = load_fixture(ON_SEPOLIA), load_fixture(ON_ARBITRUM_SEPOLIA)
    assert above["slotValue"] == below["blockHash"]
    trusted = Deployed(chain, "test/SettableBlockHashSource", 11155111)
    sepolia = Deployed(chain, "FactsRegistry", 11155111, trusted.address, 8191, NO_CONTRACT)
    source = Deployed(chain, "ArbitrumSlotBlockHashSource", 421614, unhex(above["account"]), sepolia.address)
    registry = Deployed(chain, "FactsRegistry", 421614, source.address, 393168, NO_CONTRACT)

    l1_block, l2_block = int(above["blockNumber"], 16), int(below["blockNumber"], 16)
    header = unhex(below["rlpBlockHeader"])
    trusted.send("set", l1_block, unhex(above["blockHash"]))
    assert source.refusal("record", l1_block, header) == ("NotConfirmed", l2_block)
    proof_gas = int(sepolia.send_raw(recorded(above))["gasUsed"], 16)
    assert 238_000 < proof_gas < 241_000, proof_gas
    gas = int(source.send("record", l1_block, header)["gasUsed"], 16)
    registry.send_raw(recorded(below))
    assert source.call("blockHash", l2_block) == unhex(below["blockHash"])
    value = registry.call("accountStorageSlotValues", below["account"], l2_block, unhex(below["slot"]))
    assert int.from_bytes(value) == int(below["slotValue"], 16)
    assert 80_000 < gas < 84_000, gas


def recorded(fixture: dict[str, Any]) -> bytes:
    """Return packed calldata for the header and the slot."""
    account, storage = (rlp.decode(unhex(fixture[name])) for name in ("rlpAccountProof", "rlpStorageProof"))
    requested = AccountToProve(unhex(fixture["account"]), 0, account, {int(fixture["slot"], 16): storage})
    return encode(unhex(fixture["rlpBlockHeader"]), unhex(fixture["stateRoot"]), [requested])
