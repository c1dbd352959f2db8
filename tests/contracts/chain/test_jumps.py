"""Jumps to blocks of any age by the beacon chain, from a trusted header or from constants."""

import random
from dataclasses import dataclass, replace

import pytest
from eth_utils.crypto import keccak

from chains.beacon import jumps, ssz
from chains.contract_artifacts import NO_CONTRACT
from chains.encoding import HISTORY_WINDOW
from chains.tries import packed
from chains.tries.packed import (
    BLOCK_BEFORE_CAPELLA,
    BLOCK_BEFORE_MERGE,
    OLD_BLOCK,
    AccountToProve,
    BlockBranch,
    CannotPack,
)
from devnet.devchain import DevChain
from tests.contracts import beacon_worlds, decoder, recorded_beacon, tries
from tests.contracts.beacon_worlds import SMALL, BeaconWorld
from tests.contracts.conftest import SOURCE_CHAIN_ID
from tests.contracts.deployed import Deployed, Reverted
from tests.fixtures_folder import needs_fixtures

# Number of the newer block, and slot of the beacon block before it.
NEWEST, ANCHOR = 1000, 89
_ADDRESS = b"\xa1" * 20


def newer_header(beacon_root: bytes) -> bytes:
    """Return a header with Prague's fields and this root in field 19."""
    before = [bytes(32), bytes(32), bytes(20), b"\x44" * 32, bytes(32), bytes(32), bytes(256), 0, NEWEST]
    before += [0, 0, 1_700_000_000, b"", bytes(32), bytes(8), 7, bytes(32), 0, 0]
    return tries.encode([*before, beacon_root, bytes(32)])


@dataclass
class Old:
    """A chain of old blocks with headers in a beacon world. Each state has one account."""

    world: BeaconWorld
    headers: dict[int, bytes]
    root: bytes
    accounts: list[AccountToProve]

    def branch(self, slot: int) -> BlockBranch:
        if slot < self.world.chain.capella:
            return BlockBranch(BLOCK_BEFORE_CAPELLA, self.world.before_capella(slot))
        return BlockBranch(OLD_BLOCK, self.world.old(slot, ANCHOR))


@pytest.fixture(scope="module")
def old() -> Old:
    key = keccak(_ADDRESS)
    root, proofs = tries.shaped({key: tries.account(7, 1234)}, random.Random(5), (16, 3))
    headers: dict[int, bytes] = {}
    parent = bytes(32)
    for slot in range(90):
        headers[slot] = tries.header(slot + 100, root, parent)
        parent = keccak(headers[slot])
    world = BeaconWorld(random.Random(6), hashes={slot: keccak(header) for slot, header in headers.items()})
    return Old(world, headers, root, [AccountToProve(_ADDRESS, 3, proofs[key])])


@pytest.fixture
def trusted(old) -> bytes:
    return newer_header(old.world.root(ANCHOR))


@pytest.fixture
def registry(chain, source, old, trusted) -> Deployed:
    """Return a registry that has a beacon history and trusts the newer block."""
    beacon = Deployed(chain, "GloasBeaconHistory", old.world.chain.arguments)
    source.send("set", NEWEST, keccak(trusted))
    return Deployed(chain, "FactsRegistry", SOURCE_CHAIN_ID, source.address, HISTORY_WINDOW, beacon.address)


def _model_takes(old: Old, trusted: bytes, proof: bytes) -> decoder.PackedFacts:
    return decoder.decode(
        proof,
        block_hash=lambda number: keccak(trusted) if number == NEWEST else None,
        state_root=lambda _: None,
        beacon=old.world.chain,
    )


def _refused(registry: Deployed, proof: bytes, *error: object) -> bool:
    return registry.refusal_raw(proof) == (error or ("InvalidProof",))


# --- Accepted proofs --------------------------------------------------------------------------------------------------


def test_a_hash_alone_becomes_known(registry, old, trusted):
    for slot in (33, 50, 70):
        digest = keccak(old.headers[slot])
        proof = packed.encode_block_hash([trusted, old.branch(slot)])
        assert _model_takes(old, trusted, proof).known_hashes == {digest}
        assert registry.logged(registry.send_raw(proof)) == [("BlockHashProven", digest)]
        assert registry.call("vouches", slot + 100, digest)
    assert registry.call("stateRoot", NEWEST) == bytes(32)


def test_a_header_follows_and_its_hash_is_not_stored(registry, old, trusted):
    proof = packed.encode([trusted, old.branch(50), old.headers[50]], old.root)
    assert registry.logged(registry.send_raw(proof)) == [("HeaderAccumulated", 150, old.root)]
    assert not registry.call("vouches", 150, keccak(old.headers[50]))
    assert registry.call("stateRoot", NEWEST) == bytes(32)


def test_facts_follow_in_the_same_transaction(registry, old, trusted):
    proof = packed.encode([trusted, old.branch(40), old.headers[40]], old.root, old.accounts, header_fields=[0, 9])
    facts = _model_takes(old, trusted, proof)
    assert facts.block_number == 140
    registry.send_raw(proof)
    assert registry.call("accountField", _ADDRESS, 140, 1) == (1234).to_bytes(32)
    assert registry.call("headerField", 140, 0) == keccak(old.headers[39])


def test_a_walk_goes_on_after_a_jump_and_a_jump_after_a_walk(registry, old, trusted):
    below = [old.branch(40), *(old.headers[slot] for slot in (40, 39, 38))]
    assert registry.logged(registry.send_raw(packed.encode([trusted, *below], old.root))) == [
        ("HeaderAccumulated", 138, old.root)
    ]
    above = tries.header(NEWEST + 1, b"\x45" * 32, keccak(trusted))
    registry_knows = registry.send_raw(packed.encode_block_hash([trusted, old.branch(70)]))
    assert registry.logged(registry_knows) == [("BlockHashProven", keccak(old.headers[70]))]
    proof = packed.encode_parent_hash([trusted, *below])
    assert registry.logged(registry.send_raw(proof)) == [("BlockHashProven", keccak(old.headers[37]))]
    assert _refused(registry, packed.encode([above, trusted, *below], old.root), "UnknownBlock", NEWEST + 1)


def test_blocks_before_capella_need_no_header(registry, old):
    digest = keccak(old.headers[30])
    proof = packed.encode_block_hash([old.branch(30)])
    assert registry.logged(registry.send_raw(proof)) == [("BlockHashProven", digest)]
    proof = packed.encode([old.branch(20), old.headers[20], old.headers[19]], old.root, old.accounts)
    registry.send_raw(proof)
    assert registry.call("accountField", _ADDRESS, 119, 0) == (7).to_bytes(32)


def test_a_registry_knows_blocks_before_the_merge(chain, source):
    chance = random.Random(8)
    count = 8192 + 3
    header = tries.header(8193, b"\x11" * 32)
    [first, last], _ = beacon_worlds.before_merge(chance, count)
    last[1] = (keccak(header), 12345)
    epochs = [ssz.list_root(jumps.record_leaves(each), jumps.RECORDS_DEPTH) for each in (first, last)]
    accumulator = ssz.list_root(epochs, jumps.EPOCHS_DEPTH)
    beacon = replace(SMALL, blocks_before_merge=count, accumulator=accumulator)
    contract = Deployed(chain, "GloasBeaconHistory", beacon.arguments)
    registry = Deployed(chain, "FactsRegistry", SOURCE_CHAIN_ID, source.address, HISTORY_WINDOW, contract.address)
    branch = BlockBranch(BLOCK_BEFORE_MERGE, jumps.before_merge(beacon, 8193, last, epochs))
    assert registry.logged(registry.send_raw(packed.encode_block_hash([branch]))) == [
        ("BlockHashProven", keccak(header))
    ]
    accumulated = registry.send_raw(packed.encode([branch, header], b"\x11" * 32))
    assert registry.logged(accumulated) == [("HeaderAccumulated", 8193, b"\x11" * 32)]


# --- Refused proofs ---------------------------------------------------------------------------------------------------


@pytest.fixture
def proofs(old, trusted) -> list[bytes]:
    """Return a valid proof of each form."""
    return [
        packed.encode_block_hash([trusted, old.branch(50)]),
        packed.encode([trusted, old.branch(50), old.headers[50]], old.root, old.accounts),
        packed.encode_block_hash([old.branch(30)]),
        packed.encode([old.branch(30), old.headers[30]], old.root),
    ]


@pytest.mark.long
def test_no_flipped_bit_and_no_cut_leaves_a_valid_proof(registry, harness, proofs, old, trusted):
    for proof in proofs:
        sizes = range(len(proof) - 1, 0, -1 if len(proof) < 1500 else -3)
        longer = [proof + bytes([byte]) for byte in range(0, 256, 5)]
        tried = [*(proof[:size] for size in sizes), *longer, proof]
        assert harness.accepted(registry, tried) == [*[False] * (len(tried) - 1), True]
        assert harness.accepted_flips(registry, proof) == 0
        for size in (*range(1, len(proof), 61), len(proof) + 1):
            with pytest.raises(decoder.InvalidPacked):
                _model_takes(old, trusted, (proof + b"\0")[:size])


def test_branches_are_packed_in_their_places_alone(old, trusted):
    below, first = old.branch(50), old.branch(30)
    for headers in ([below], [trusted, first], [below, trusted]):
        with pytest.raises(CannotPack):
            packed.encode_block_hash(headers)
    with pytest.raises(CannotPack):
        packed.encode([trusted, below], old.root)


# --- The right beacon history -----------------------------------------------------------------------------------------


def test_without_a_beacon_history_nothing_is_proven(chain, source, proofs, trusted):
    source.send("set", NEWEST, keccak(trusted))
    registry = Deployed(chain, "FactsRegistry", SOURCE_CHAIN_ID, source.address, HISTORY_WINDOW, NO_CONTRACT)
    for proof in proofs:
        assert _refused(registry, proof)


def test_a_beacon_history_of_another_chain_is_refused(chain, source, old):
    """On a rollup, field 19 is a beacon root of the chain below. Blocks of that chain would pass as the rollup's."""
    beacon = Deployed(chain, "GloasBeaconHistory", replace(old.world.chain, id=SOURCE_CHAIN_ID + 1).arguments)
    with pytest.raises(Reverted) as reverted:
        Deployed(chain, "FactsRegistry", SOURCE_CHAIN_ID, source.address, HISTORY_WINDOW, beacon.address)
    assert reverted.value.error == ("SourceOfAnotherChain", SOURCE_CHAIN_ID + 1)


@pytest.mark.parametrize(
    "code", ["0x", "0x00", "0x60015f5260205ff3", "0x5f5f5260205ff3", "0x60015f52601f5ff3", "0x60015f5260205ffd"]
)
def test_an_answer_is_a_word_and_not_zero(chain, registry, proofs, harness, code):
    """A real beacon history never answers so. Its code would be empty only if it could be destroyed."""
    beacon = registry.call("beaconChainHistory")
    before = chain.rpc("eth_getCode", beacon, "latest")
    chain.rpc("anvil_setCode", beacon, code)
    answers = harness.accepted(registry, [proofs[0], proofs[2]])
    chain.rpc("anvil_setCode", beacon, before)
    assert answers == [code == "0x60015f5260205ff3"] * 2


# --- Mainnet ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def mainnet(chain: DevChain) -> tuple[Deployed, Deployed]:
    """Return a registry with mainnet's constants, and its block hash source."""
    source = Deployed(chain, "test/SettableBlockHashSource", 1)
    beacon = Deployed(chain, "GloasBeaconHistory", jumps.MAINNET.arguments)
    return Deployed(chain, "FactsRegistry", 1, source.address, HISTORY_WINDOW, beacon.address), source


@pytest.mark.long
@needs_fixtures
@pytest.mark.parametrize("number", recorded_beacon.numbers())
def test_recorded_blocks_since_the_merge_are_proven(mainnet, harness, number):
    registry, source = mainnet
    block, branch = recorded_beacon.block(number), recorded_beacon.branch(number)
    start = []
    operation = BLOCK_BEFORE_CAPELLA
    if not recorded_beacon.is_before_capella(number):
        operation = OLD_BLOCK
        start = [newer_header(recorded_beacon.anchor().header.root)]
        source.send("set", NEWEST, keccak(start[0]))
    jump = BlockBranch(operation, branch)
    proof = packed.encode_block_hash([*start, jump])
    assert registry.logged(registry.send_raw(proof)) == [("BlockHashProven", block.block_hash)]
    assert harness.accepted_bytes(registry, proof, range(len(proof) - len(branch), len(proof), 53)) == 0
    try:
        header = recorded_beacon.header(number)
    except LookupError:
        return
    root = header[91:123]
    assert registry.logged(registry.send_raw(packed.encode([*start, jump, header], root))) == [
        ("HeaderAccumulated", number, root)
    ]


@needs_fixtures
@pytest.mark.parametrize("number", recorded_beacon.numbers_before_merge())
def test_recorded_blocks_before_the_merge_are_proven(mainnet, harness, number):
    registry, _ = mainnet
    jump = BlockBranch(BLOCK_BEFORE_MERGE, recorded_beacon.branch_before_merge(number))
    header = recorded_beacon.header(number)
    proof = packed.encode_block_hash([jump])
    assert registry.logged(registry.send_raw(proof)) == [("BlockHashProven", keccak(header))]
    assert registry.logged(registry.send_raw(packed.encode([jump, header], header[91:123]))) == [
        ("HeaderAccumulated", number, header[91:123])
    ]
    assert harness.accepted_bytes(registry, proof, range(3, len(proof), 97)) == 0
