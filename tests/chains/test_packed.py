"""The encoder and the Python verifier by themselves; tests/contracts compares them with contract and py-trie."""

import random

import pytest
from eth_utils.crypto import keccak

from chains import packed
from chains.packed import AccountToProve, CannotPack, InvalidPacked, PackedFacts, decode, encode
from chains.trie import EMPTY_CODE_HASH, EMPTY_TRIE_ROOT, verify_account, verify_slot
from tests.contracts import tries
from tests.contracts.worlds import random_world
from tests.fixtures_folder import fixture_names, load_fixture, needs_fixtures, unhex

ALICE = b"\xa1" * 20
LEAF = tries.leaf(keccak(ALICE), tries.account(1, 2))
ROOT = keccak(LEAF)
ACCOUNT = AccountToProve(ALICE, 0b0011, [LEAF])
HEADER = tries.header(5, ROOT)


def under(root: bytes, calldata: bytes) -> PackedFacts:
    return decode(calldata, block_hash=lambda _: keccak(HEADER), state_root=lambda _: root)


def test_one_account_takes_its_bytes_and_no_more():
    # Block 5 is known; an account with its nonce and balance stored, depth 0, sizes 1 and 1, address, nonce, balance.
    assert encode(5, ROOT, [ACCOUNT]).hex() == "0105" + "c1" + "0041" + ALICE.hex() + "01" + "02"


def test_a_header_alone_says_so():
    assert encode(HEADER, ROOT) == HEADER + b"\x37"
    assert under(bytes(32), HEADER + b"\x37") == PackedFacts(5, ROOT, (HEADER,), {}, {})
    with pytest.raises(InvalidPacked):
        under(bytes(32), HEADER)


def test_header_fields_come_with_even_parity():
    assert encode(HEADER, ROOT, header_fields=[0, 11]) == HEADER + bytes.fromhex("31 00000801 37")
    assert encode(HEADER, ROOT, header_fields=[0]) == HEADER + bytes.fromhex("31 80000001 37")
    # State root and number need no asking.
    assert encode(HEADER, ROOT, header_fields=[3, 8]) == HEADER + b"\x37"


def test_what_is_asked_in_any_order_has_one_encoding():
    chance = random.Random(2)
    world = random_world(chance, 5, 30)
    accounts = [world.to_prove(*each) for each in world.ask(12)]
    assert len(accounts) > 4
    expected = encode(world.header, world.root, accounts)
    for _ in range(5):
        chance.shuffle(accounts)
        assert encode(world.header, world.root, accounts) == expected


@pytest.mark.parametrize("number", [0, 1, 255, 256, 2**64 - 1])
def test_every_block_number_can_be_named(number):
    calldata = encode(number, ROOT, [ACCOUNT])
    facts = under(ROOT, calldata)
    assert facts.block_number == number
    assert facts.headers == ()
    assert set(facts.accounts) == {ALICE}


def test_it_tells_what_was_proven():
    (account,) = under(ROOT, encode(HEADER, ROOT, [ACCOUNT])).accounts.values()
    assert account == packed.AccountFacts(
        exists=True,
        fields=0b0011,
        nonce=1,
        balance=2,
        storage_root=EMPTY_TRIE_ROOT,
        code_hash=EMPTY_CODE_HASH,
        slots={},
    )


@pytest.mark.parametrize(
    ("block", "accounts", "fields", "why"),
    [
        pytest.param(5, [], [], "nothing to prove", id="nothing"),
        pytest.param(5, [ACCOUNT], [0], "together with the header", id="header fields without header"),
        pytest.param(2**64, [ACCOUNT], [], "64 bits", id="block number"),
        pytest.param(-1, [ACCOUNT], [], "64 bits", id="negative block number"),
        pytest.param(HEADER, [], [31], "no field 31", id="header field"),
        pytest.param(5, [AccountToProve(ALICE, 0, [LEAF])], [], "to be stored", id="nothing to store"),
        pytest.param(5, [AccountToProve(ALICE, 3, [])], [], "missing", id="node missing"),
        pytest.param(5, [AccountToProve(ALICE, 3, [LEAF], {1: [b"\x80"]})], [], None, id="slot of no storage"),
    ],
)
def test_it_refuses_to_pack_what_makes_no_sense(block, accounts, fields, why):
    if why is None:
        assert under(ROOT, encode(block, ROOT, accounts, header_fields=fields))
        return
    with pytest.raises(CannotPack, match=why):
        encode(block, ROOT, accounts, header_fields=fields)


@pytest.mark.parametrize(
    "node",
    [
        pytest.param(b"\x81", id="not RLP"),
        pytest.param(b"\xb8\x38" + bytes(56), id="no list"),
        pytest.param(tries.encode([b"\x40" + keccak(ALICE), tries.account()]), id="no such node"),
        pytest.param(tries.encode([[b"\x20"], tries.account()]), id="path in a list"),
        pytest.param(tries.encode([b"\x20" + keccak(ALICE), [b"\x01" * 40]]), id="value in a list"),
        pytest.param(tries.leaf(keccak(ALICE), b"\x81"), id="account not RLP"),
        pytest.param(tries.leaf(keccak(ALICE), tries.encode([b"", b"", b""])), id="account of three fields"),
        pytest.param(tries.leaf(keccak(ALICE), tries.encode([[], b"", b"", b""])), id="account of lists"),
    ],
)
def test_it_refuses_to_pack_malformed_nodes(node):
    with pytest.raises(CannotPack):
        encode(5, keccak(node), [AccountToProve(ALICE, 3, [node])])


@pytest.mark.parametrize("unknown", [None, bytes(32)])
@pytest.mark.parametrize(
    "proof",
    [
        encode(HEADER, ROOT),
        encode(HEADER, ROOT, [ACCOUNT]),
        encode(5, ROOT, [ACCOUNT]),
        encode(5, EMPTY_TRIE_ROOT, [AccountToProve(ALICE, 3, [])]),
    ],
    ids=["header", "header and account", "account", "absence"],
)
def test_an_unknown_block_and_a_zero_hash_prove_nothing(proof, unknown):
    with pytest.raises(InvalidPacked):
        decode(proof, block_hash=lambda _: unknown, state_root=lambda _: unknown)


@needs_fixtures
@pytest.mark.parametrize("name", [*fixture_names("mainnet_1746*.json"), *fixture_names("goerli_7583802*.json")])
def test_real_proofs_keep_their_facts_when_packed(name):
    fixture = load_fixture(name)
    root, address = unhex(fixture["stateRoot"]), unhex(fixture["account"]["address"])
    nodes = [unhex(node) for node in fixture["account"]["proof"]]
    slots = {int(slot["slot"], 16): [unhex(node) for node in slot["proof"]] for slot in fixture["storage"]}
    calldata = encode(5, root, [AccountToProve(address, 0b1111, nodes, slots)])
    assert len(calldata) < sum(map(len, nodes)) + sum(len(node) for proof in slots.values() for node in proof)
    facts = under(root, calldata).accounts[address]
    expected = verify_account(root, address, nodes)
    assert (facts.exists, facts.nonce, facts.balance) == (expected.exists, expected.nonce, expected.balance)
    assert (facts.storage_root, facts.code_hash) == (expected.storage_root, expected.code_hash)
    assert facts.slots == {slot: verify_slot(expected.storage_root, slot, proof) for slot, proof in slots.items()}
