"""What must never verify, and that contract, Python verifier and py-trie agree; test_real_proofs.py has real proofs."""

import random
from collections.abc import Callable, Sequence

import pytest
import rlp
from eth_utils.abi import function_abi_to_4byte_selector
from eth_utils.crypto import keccak

from chains import packed
from chains.packed import AccountToProve, decoder, encode
from contracts import load_artifact
from tests.contracts import fuzz, tries
from tests.contracts.deployed import Deployed, Reverted
from tests.contracts.worlds import World, random_world

BLOCK = 77
INVALID = ("InvalidProof",)

Accepts = Callable[[bytes], bool]


@pytest.fixture
def trust(registry: Deployed, source: Deployed) -> Callable[[bytes], None]:
    """Accumulates a block with that state root."""

    def accumulate(root: bytes) -> None:
        header = tries.header(BLOCK, root)
        source.send("set", BLOCK, keccak(header))
        registry.send_raw(encode(header, root))

    return accumulate


@pytest.fixture
def accepts(registry: Deployed, trust) -> Callable[[bytes, bytes], bool]:
    """Whether contract and Python, which must agree, take operations under a state root."""

    def both(root: bytes, operations: bytes) -> bool:
        proof = bytes([1, BLOCK]) + operations
        if registry.call("stateRoot", BLOCK) == bytes(32):
            trust(root)
        try:
            packed.decode(proof, block_hash=lambda _: None, state_root=lambda _: root)
        except packed.InvalidPacked:
            with pytest.raises(Reverted) as reverted:
                registry.call_raw(proof)
            assert reverted.value.error == INVALID
            return False
        registry.call_raw(proof)
        return True

    return both


def test_no_function_begins_as_a_proof_does():
    functions = [entry for entry in load_artifact("FactsRegistry").abi if entry["type"] == "function"]
    first_bytes = {function_abi_to_4byte_selector(entry)[0] for entry in functions}
    assert len(functions) == 13
    assert not first_bytes & {*range(1, 9), *range(0xF8, 0xFB)}


# --- Random states ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, 2, 3, 10, 60])
def test_what_is_proven_of_random_states_reads_back_as_py_trie_has_it(registry, source, size):
    world = random_world(random.Random(size), BLOCK, size)
    source.send("set", BLOCK, world.block_hash)
    for most in (2, 6, 40):
        asked = world.ask(most)
        proof = world.prove(asked)
        facts = fuzz.python_accepts(proof, world, accumulated=False)
        assert facts is not None
        assert world.agrees(facts)
        assert {address: set(account.slots) for address, account in facts.accounts.items()} == {
            each.address: set(each.slots) for each in asked
        }
        registry.send_raw(proof)
        for address, account in facts.accounts.items():
            for slot, value in account.slots.items():
                word = registry.call("accountStorageSlotValues", address, BLOCK, slot.to_bytes(32))
                assert word == value.to_bytes(32)
            words = [account.nonce.to_bytes(32), account.balance.to_bytes(32), account.storage_root, account.code_hash]
            asked_for = account.fields if account.exists else 0b1111
            for field in range(4):
                if asked_for >> field & 1:
                    assert registry.call("accountField", address, BLOCK, field) == words[field]


def test_a_small_share_of_the_fuzzing_finds_nothing(chain):
    tally = fuzz.run(chain, seed=1, count=3_000)
    assert tally.mutations >= 3_000
    assert tally.others < tally.mutations / 10


def test_random_states_have_every_form_of_node_and_of_absence(monkeypatch):
    operations: set[int] = set()
    byte = decoder._Reader.byte

    def recording(reader: decoder._Reader) -> int:
        value = byte(reader)
        operations.add(value)
        return value

    monkeypatch.setattr(decoder._Reader, "byte", recording)
    chance = random.Random(3)
    for number in range(150):
        world = random_world(chance, number, chance.choice([1, 2, 3, 20]))
        assert fuzz.python_accepts(world.prove(world.ask()), world, accumulated=False)
    # Branches in three forms, extensions, zero slots and absent accounts in four (7c to 7f: with a storage to close).
    assert {
        0x10,
        0x11,
        0x20,
        0x30,
        0x32,
        0x34,
        0x35,
        0x36,
        0x70,
        0x72,
        0x74,
        0x77,
        0x78,
        0x7A,
        0x7C,
    } <= operations


# --- By exhaustion ----------------------------------------------------------------------------------------------------


def _mainnet_shaped(levels: Sequence[int] = tries.MAINNET_LEVELS) -> tuple[bytes, list[AccountToProve]]:
    """Two accounts, one of them with a slot, and one that isn't there."""
    chance = random.Random(5)
    addresses = [chance.randbytes(20) for _ in range(3)]
    slot = keccak((3).to_bytes(32))
    storage_root, slots = tries.shaped({slot: tries.encode(10**18)}, chance, (16, 16, 4))
    leaves = {
        keccak(addresses[0]): tries.account(3, 10**18, storage_root, chance.randbytes(32)),
        keccak(addresses[1]): tries.account(500, 10**17),
    }
    # The third is absent beside another account's leaf, where its own would be.
    near = bytearray(keccak(addresses[2]))
    near[-1] ^= 1
    leaves[bytes(near)] = tries.account(7, 10**19)
    root, proofs = tries.shaped(leaves, chance, levels)
    return root, [
        AccountToProve(addresses[0], 0b0011, proofs[keccak(addresses[0])], {3: slots[slot]}),
        AccountToProve(addresses[1], 0b1111, proofs[keccak(addresses[1])]),
        AccountToProve(addresses[2], 0b0011, proofs[bytes(near)]),
    ]


def test_no_other_value_of_any_control_byte_verifies(registry, trust, harness, monkeypatch):
    root, accounts = _mainnet_shaped((16, 16, 9, 2))
    trust(root)
    proof = encode(BLOCK, root, accounts)
    places: set[int] = set()
    operations: set[int] = set()
    take = decoder._Reader.take

    def recording(reader: decoder._Reader, size: int) -> bytes:
        # All but hashes: operations, masks, depths, sizes, numbers, addresses, paths.
        if size != 32:
            places.update(range(reader.cursor, reader.cursor + size))
        if size == 1 and proof[reader.cursor] >= 0x80:
            operations.add(reader.cursor)
        return take(reader, size)

    monkeypatch.setattr(decoder._Reader, "take", recording)
    packed.decode(proof, block_hash=lambda _: None, state_root=lambda _: root)
    assert len(places) > 100
    assert len(operations) == 2
    assert harness.accepted(registry, [proof]) == [True]
    # But for what is to be stored: 7 other choices where there is a slot, else 6, as it can't be nothing.
    assert harness.accepted_bytes(registry, proof, sorted(places - operations)) == 0
    assert harness.accepted_bytes(registry, proof, sorted(operations)) == 7 + 6


def test_no_flipped_bit_and_no_cut_of_a_generated_proof_verifies(registry, source, harness):
    root, accounts = _mainnet_shaped((16, 9, 2))
    header = tries.header(BLOCK, root)
    source.send("set", BLOCK, keccak(header))
    proof = encode(header, root, accounts, header_fields=[0, 11])
    assert harness.accepted(registry, [proof]) == [True]
    assert harness.accepted_flips(registry, proof) == 0
    assert not any(harness.accepted(registry, (proof[:size] for size in range(len(proof)))))


def test_no_operation_left_out_or_sent_twice_verifies(registry, trust, harness, monkeypatch):
    root, accounts = _mainnet_shaped()
    trust(root)
    proof = encode(BLOCK, root, accounts)
    starts: list[int] = []
    byte = decoder._Reader.byte

    def recording(reader: decoder._Reader) -> int:
        starts.append(reader.cursor)
        return byte(reader)

    monkeypatch.setattr(decoder._Reader, "byte", recording)
    packed.decode(proof, block_hash=lambda _: None, state_root=lambda _: root)
    pieces = [(start, end) for start in starts for end in [*starts, len(proof)] if end > start > 1]
    spoilt = [proof[:start] + proof[end:] for start, end in pieces]
    spoilt += [proof[:end] + proof[start:end] + proof[end:] for start, end in pieces if end - start < 700]
    assert len(spoilt) > 500
    assert not any(harness.accepted(registry, dict.fromkeys(spoilt)))


# --- By property ------------------------------------------------------------------------------------------------------

ALICE, BOB = b"\xa1" * 20, b"\xb0" * 20


@pytest.fixture(scope="module")
def world() -> World:
    """Alice with three slots, and nine accounts more."""
    chance = random.Random(9)
    world = World(chance, BLOCK)
    world.accounts[ALICE] = (5, 10**18, b"\x0c" * 32)
    world.storages[ALICE] = {1: 5, 2: 500, 3: 2**255}
    for _ in range(9):
        world.accounts[chance.randbytes(20)] = (1, 2, keccak(b""))
    return world.close()


def _branch_above(node: list[bytes], nibble: int, *, empty: bool = False) -> bytes:
    """The operation that puts a child at that place of a branch."""
    siblings = [(place, child) for place, child in enumerate(node[:16]) if place != nibble]
    absent = sum(1 << place for place, child in siblings if not child)
    hashes = b"".join(child for _, child in siblings)
    return (bytes([0x10]) + absent.to_bytes(2) if absent else b"\x00") + hashes


@pytest.mark.parametrize("depth", range(9))
def test_a_proof_cut_after_a_branch_does_not_prove_absence(accepts, depth):
    chance = random.Random(1)
    key = keccak(ALICE)
    root, proofs = tries.shaped({key: tries.account(1, 2)}, chance)
    nodes = [rlp.decode(node) for node in proofs[key]]
    above = b"".join(_branch_above(node, key[place // 2] >> 4 * (1 - place % 2) & 15)
                     for place, node in reversed(list(enumerate(nodes[:depth]))))  # fmt: skip
    # At an empty place; and, to see that the rest is right, the account itself.
    assert not accepts(root, b"\x70" + ALICE + bytes([depth]) + above)
    if depth == len(nodes) - 1:
        account = encode(BLOCK, root, [AccountToProve(ALICE, 3, proofs[key])])[2:]
        assert account.endswith(above)
        assert accepts(root, account)


@pytest.mark.parametrize("at", range(8))
def test_what_is_present_cannot_be_proven_absent(accepts, at):
    key = keccak(ALICE)
    leaf = tries.leaf(key, tries.account(1, 2))
    root = keccak(leaf)
    present = encode(BLOCK, root, [AccountToProve(ALICE, 3, [leaf])])[2:]
    head = (1 << 6 | 1).to_bytes(2)
    attempts = [
        b"\x70" + ALICE + b"\x00",
        b"\x71" + ALICE + b"\x00\x01" + key[:1] + bytes(32),
        b"\x74" + ALICE + head + key + b"\x01\x02",
        present + b"\x72" + ALICE,
        b"\x72" + ALICE,
        b"\x72" + ALICE + present,
        encode(BLOCK, root, [AccountToProve(BOB, 3, [leaf])])[2:] + b"\x72" + ALICE,
        encode(BLOCK, root, [AccountToProve(BOB, 3, [leaf])])[2:] + b"\x72" + BOB,
    ]
    assert accepts(root, present)
    assert not accepts(root, attempts[at])


def test_absent_keys_at_one_place_come_in_rising_order_and_once(accepts):
    leaf = tries.leaf(keccak(ALICE), tries.account(1, 2))
    root = keccak(leaf)
    absent = sorted((bytes([number]) * 20 for number in range(1, 5)), key=keccak)
    proof = encode(BLOCK, root, [AccountToProve(address, 3, [leaf]) for address in reversed(absent)])[2:]
    start = len(proof) - 3 * 21
    assert [proof[start + 1 + 21 * number :][:20] for number in range(3)] == absent[1:]
    same = [b"\x72" + address for address in absent[1:]]
    assert accepts(root, proof)
    assert accepts(root, proof[:start] + same[0] + same[2])
    assert not accepts(root, proof[:start] + same[1] + same[0] + same[2])
    assert not accepts(root, proof + same[2])
    assert not accepts(root, proof[:start] + b"\x72" + absent[0])


def test_slots_and_accounts_keep_to_their_own_tries(accepts, world):
    proof = world.prove([(ALICE, 3, [1, 2, 9])], known=True)[2:]
    assert proof[0] == 0x30
    slots_end = proof.index(bytes([0x40 + 1]))
    assert accepts(world.root, proof)
    # The storage of another account, or of none.
    assert not accepts(world.root, proof.replace(ALICE, BOB))
    assert not accepts(world.root, proof[21:])
    # Opened twice, and left open.
    assert not accepts(world.root, proof[:21] + proof)
    assert not accepts(world.root, proof + proof[:21])
    assert not accepts(world.root, proof[:slots_end] + proof[:21] + proof[slots_end:])
    # An account among the slots.
    other = world.prove([(min(world.accounts), 3, [])], known=True)[2:]
    assert not accepts(world.root, proof[:21] + other + proof[21:])
    assert not accepts(world.root, other + proof)
    # An account that isn't there has no storage but the empty one.
    closing = b"\x78" + b"\x00"
    assert not accepts(world.root, proof[:21].replace(ALICE, BOB) + proof[21:].split(b"\xc8")[0] + closing)


def test_a_proof_is_one_for_its_registry_and_its_block_only(chain, registry, source, world):
    source.send("set", BLOCK, world.block_hash)
    proof = world.prove([(ALICE, 3, [1])])
    stranger = Deployed(chain, "FactsRegistry", 1, Deployed(chain, "test/SettableBlockHashSource").address)
    with pytest.raises(Reverted) as reverted:
        stranger.call_raw(proof)
    assert reverted.value.error == ("UnknownBlock", BLOCK)
    registry.send_raw(proof)
    other = tries.header(BLOCK + 1, keccak(b"another state"))
    source.send("set", BLOCK + 1, keccak(other))
    registry.send_raw(encode(other, keccak(b"another state")))
    known = world.prove([(ALICE, 3, [1])], known=True)
    registry.call_raw(known)
    with pytest.raises(Reverted) as reverted:
        registry.call_raw(bytes([1, BLOCK + 1]) + known[2:])
    assert reverted.value.error == INVALID


@pytest.mark.parametrize(
    "proof",
    [b"", b"\x00", b"\x00\x00", b"\x01", b"\x01\x4d", b"\x02\x00\x4d", b"\x09" + bytes(8) + b"\x4d", b"\x37", b"\x7f"],
    ids=bytes.hex,
)
def test_what_names_a_block_is_written_in_one_way(registry, trust, proof):
    trust(tries.EMPTY_ROOT)
    operations = b"\x70" + ALICE + b"\x00"
    registry.call_raw(b"\x01\x4d" + operations)
    for tried in (proof, *([proof + operations] if proof != b"\x01\x4d" else [])):
        with pytest.raises(Reverted) as reverted:
            registry.call_raw(tried)
        assert reverted.value.error[0] in {"InvalidProof", "UnknownBlock"}


EMPTY_ROOT, EMPTY_CODE = tries.EMPTY_ROOT, tries.EMPTY_CODE_HASH
# Of an account with nonce 1, balance 2, and neither storage nor code, alone in its state. Depth 0.
_HEAD = (1 << 6 | 1).to_bytes(2)


@pytest.mark.parametrize(
    "operation",
    [
        pytest.param(b"\x80" + _HEAD + ALICE + b"\x01\x02", id="nothing to store"),
        pytest.param(b"\xc0" + _HEAD + ALICE + b"\x01\x02", id="odd parity"),
        pytest.param(b"\xc4" + _HEAD + ALICE + b"\x01\x02", id="storage root missing"),
        pytest.param(b"\xc4" + _HEAD + ALICE + b"\x01\x02" + EMPTY_ROOT, id="storage root implied"),
        pytest.param(b"\xc2" + _HEAD + ALICE + b"\x01\x02" + EMPTY_CODE, id="code hash implied"),
        pytest.param(b"\xc7" + _HEAD + ALICE + b"\x01\x02" + EMPTY_ROOT + EMPTY_CODE, id="both implied"),
        pytest.param(b"\xc8" + _HEAD + b"\x01\x02", id="no storage to close"),
        pytest.param(b"\xc1" + (2 << 6 | 1).to_bytes(2) + ALICE + b"\x00\x01\x02", id="nonce with a zero"),
        pytest.param(b"\xc1" + (1 << 6 | 2).to_bytes(2) + ALICE + b"\x01\x00\x02", id="balance with a zero"),
        pytest.param(b"\xc1" + (9 << 6 | 1).to_bytes(2) + ALICE + b"\x01" + bytes(8) + b"\x02", id="nonce of 9 bytes"),
        pytest.param(b"\xc1" + (1 << 6 | 33).to_bytes(2) + ALICE + b"\x01" + b"\x02" * 33, id="balance of 33 bytes"),
        pytest.param(b"\xc1" + (1 << 10 | 1 << 6 | 1).to_bytes(2) + ALICE + b"\x01\x02", id="deeper"),
        pytest.param(b"\xc1" + (63 << 10 | 1 << 6 | 1).to_bytes(2) + ALICE + b"\x01\x02", id="too deep"),
        pytest.param(b"\xc1" + _HEAD + BOB + b"\x01\x02", id="another address"),
        pytest.param(b"\xc1" + _HEAD + ALICE + b"\x01\x02\x00", id="a branch too many"),
        pytest.param(b"\xc1" + _HEAD + ALICE + b"\x01\x02\x36\x00", id="an empty extension"),
        pytest.param(b"\xc1" + _HEAD + ALICE + b"\x01\x02\x36\x01", id="an extension above the root"),
        pytest.param(b"\xc1" + _HEAD + ALICE + b"\x01\x02" * 2, id="more after it"),
        pytest.param((b"\xc1" + _HEAD + ALICE + b"\x01\x02") * 2, id="twice"),
        pytest.param(b"\x75" + BOB + _HEAD + keccak(ALICE) + b"\x01\x02" + EMPTY_CODE, id="another's code implied"),
        pytest.param(b"\x76" + BOB + _HEAD + keccak(ALICE) + b"\x01\x02" + EMPTY_ROOT, id="another's root implied"),
        pytest.param(b"\x73" + BOB + b"\x00", id="no such absence"),
        pytest.param(b"\x37", id="a header alone, without the header"),
        pytest.param(b"\x31" + (3).to_bytes(4), id="fields of a header, without it"),
    ],
)
def test_an_account_is_written_in_one_way(accepts, operation):
    root = keccak(tries.leaf(keccak(ALICE), tries.account(1, 2)))
    assert accepts(root, b"\xc1" + _HEAD + ALICE + b"\x01\x02")
    assert accepts(root, b"\x74" + BOB + _HEAD + keccak(ALICE) + b"\x01\x02")
    assert not accepts(root, operation)


@pytest.mark.parametrize(
    "slots",
    [
        pytest.param(b"\x42\x00\x05\x00\x01\x09", id="number with a zero"),
        pytest.param(b"\x41\x05\x00\x02\x00\x09", id="value with a zero"),
        pytest.param(b"\x41\x05\x00\x00", id="value of zero"),
        pytest.param(b"\x41\x05\x00\x21" + b"\x09" * 33, id="value of 33 bytes"),
        pytest.param(b"\x61\x01\x05\x00\x01\x09", id="a block hash of another contract than the history"),
        pytest.param(b"\x62" + bytes(34) + b"\x00\x01\x09", id="number of 34 bytes"),
        pytest.param(b"\x41\x06\x00\x01\x09", id="another slot"),
        pytest.param(b"\x41\x05\x00\x01\x08", id="another value"),
        pytest.param(b"\x41\x05\x3f\x01\x09", id="too deep"),
        pytest.param(b"\x41\x05\x00\x01\x09" * 2, id="twice"),
        pytest.param(b"\x32\x01\x05\x00", id="zero at an empty place"),
        pytest.param(b"\x35\x01\x05\x00" + keccak((5).to_bytes(32)) + b"\x01\x09", id="zero at its own leaf"),
        pytest.param(b"\x35\x02\x00\x06\x00" + keccak((5).to_bytes(32)) + b"\x01\x09", id="zero slot with a zero"),
        pytest.param(b"\x35\x01\x06\x3f" + b"\x01" + b"\x01\x09", id="leaf too deep"),
        pytest.param(b"\x36\x01", id="an extension to nothing"),
        pytest.param(b"\x00", id="a branch of nothing"),
        pytest.param(b"", id="nothing"),
    ],
)
def test_a_slot_is_written_in_one_way(accepts, slots):
    storage = tries.leaf(keccak((5).to_bytes(32)), tries.encode(9))
    root = keccak(tries.leaf(keccak(ALICE), tries.account(1, 2, keccak(storage))))

    def under_alice(operations: bytes) -> bytes:
        return b"\x30" + ALICE + operations + b"\xc8" + _HEAD + b"\x01\x02"

    assert accepts(root, under_alice(b"\x41\x05\x00\x01\x09"))
    assert accepts(root, under_alice(b"\x35\x01\x06\x00" + keccak((5).to_bytes(32)) + b"\x01\x09"))
    assert not accepts(root, under_alice(slots))


def test_branches_are_written_in_one_way(accepts):
    """Two accounts below one branch, with another child that is a hash."""
    first, second = sorted((bytes([number]) * 20 for number in (1, 2)), key=keccak)
    keys = [keccak(first), keccak(second)]
    assert keys[0][0] >> 4 != keys[1][0] >> 4
    root, proofs = tries.shaped({key: tries.account(1, 2) for key in keys}, random.Random(1), (3,))
    proof = encode(
        BLOCK, root, [AccountToProve(first, 3, proofs[keys[0]]), AccountToProve(second, 3, proofs[keys[1]])]
    )[2:]
    size = 1 + 2 + 20 + 2
    one, two, branch, hashes = proof[:size], proof[size : 2 * size], proof[2 * size :][:3], proof[2 * size + 3 :]
    assert branch[0] == 0x11
    assert len(hashes) == 32
    absent = int.from_bytes(branch[1:])
    assert accepts(root, one + two + branch + hashes)
    for spoilt in (
        two + one + branch + hashes,
        one + one + branch + hashes,
        one + branch + hashes,
        one + two + b"\x10" + branch[1:] + hashes,
        one + two + b"\x12" + branch[1:] + hashes,
        one + two + b"\x1f" + branch[1:] + hashes,
        one + two + b"\x01" + hashes,
        one + two + b"\x21" + branch[1:] + bytes(2) + hashes,
        one + two + branch + hashes + bytes(32),
        *(one + two + b"\x11" + (absent ^ 1 << place).to_bytes(2) + hashes for place in range(16)),
        *(one + two + b"\x21" + branch[1:] + (1 << place).to_bytes(2) + hashes for place in range(16)),
    ):
        assert not accepts(root, spoilt)


@pytest.mark.parametrize("child", ["c0", "c1", "80", "a0", "df", "bf", "ff", "de"])
def test_a_child_that_is_a_node_tells_its_own_length(accepts, child):
    """A branch whose children are leaves of less than 32 bytes, as deep storage tries have them."""
    world = World(random.Random(4), BLOCK)
    world.accounts[ALICE] = (1, 2, EMPTY_CODE)
    world.storages[ALICE] = {40364: 1, 105566: 2}
    world.close()
    proof = world.prove([(ALICE, 3, [40364])], known=True)[2:]
    assert accepts(world.root, proof)
    # The sibling is the one list of 30 bytes in it, prefix included.
    at = proof.index(b"\xde", proof.index(b"\x20", 25))
    assert not accepts(world.root, proof[:at] + bytes.fromhex(child) + proof[at + 1 :] if child != "de" else proof[:-1])
