import pytest
import rlp
from eth_utils.crypto import keccak
from hypothesis import given, settings
from hypothesis import strategies as st

from chains.nodes.questions import ProofRequest
from chains.tries import trie
from chains.tries.header import verify
from devnet.devchain import ACCOUNTS
from tests.chains.tries import (
    DIGITS,
    EXTENSION_8,
    GOOD_LEAF,
    MALFORMED,
    MALFORMED_ACCOUNTS,
    MALFORMED_BESIDE,
    SHORT_BRANCH,
    branch,
    chained,
    slot_proof,
    storage_trie,
)
from tests.contracts import tries, worlds
from tests.fixtures_folder import fixture_names, load_fixture, unhex

REAL_ACCOUNTS = fixture_names("*_depth*.json")
ADDRESS = "0x" + "33" * 20


def real_proof(name: str) -> tuple[bytes, str, list[bytes]]:
    content = load_fixture(name)
    account = content["account"]
    return unhex(content["stateRoot"]), account["address"], [unhex(node) for node in account["proof"]]


# --- Real proofs ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", REAL_ACCOUNTS)
def test_real_accounts_are_as_the_chain_has_them(name):
    expected = load_fixture(name)["account"]["expected"]
    account = trie.verify_account(*real_proof(name))
    assert account.exists is expected["exists"]
    assert account.nonce == int(expected["nonce"], 16)
    assert account.balance == int(expected["balance"], 16)
    assert account.storage_root == unhex(expected["storageRoot"])
    # For a missing account, nodes return the hash of empty code. The EVM's EXTCODEHASH and the service return zero.
    assert account.code_hash == (unhex(expected["codeHash"]) if expected["exists"] else trie.NO_CODE_HASH)


@pytest.mark.parametrize("name", fixture_names("rollups/*.json"))
def test_a_real_slot_of_arbitrum_and_one_of_its_chain_below_are_proven_from_the_header(name):
    content = load_fixture(f"rollups/{name}")
    header = verify(unhex(content["rlpBlockHeader"]), unhex(content["blockHash"]))
    assert header.number == int(content["blockNumber"], 16)
    account = trie.verify_account(header.state_root, content["account"], rlp.decode(unhex(content["rlpAccountProof"])))
    nodes = rlp.decode(unhex(content["rlpStorageProof"]))
    assert trie.verify_slot(account.storage_root, int(content["slot"], 16), nodes) == int(content["slotValue"], 16)


# --- Random tries, compared with py-trie ------------------------------------------------------------------------------


@pytest.mark.long
@settings(derandomize=True, max_examples=40, deadline=None, database=None)
@given(
    size=st.one_of(st.integers(1, 40), st.integers(41, 2000)),
    values=st.lists(st.integers(1, 2**256 - 1) | st.integers(1, 300), min_size=1, max_size=20),
    near=st.booleans(),
    start=st.integers(0, 2**200),
)
def test_slots_of_random_tries_agree_with_another_implementation(size, values, near, start):
    slots = {start + index: values[index % len(values)] for index in range(size)}
    if near:
        slots |= dict.fromkeys(worlds.NEAR_SLOTS, 5)
    built = storage_trie(slots)
    step = max(1, size // 25)
    for slot in [*list(slots)[::step], *worlds.NEAR_SLOTS, *range(start + size, start + size + 10)]:
        nodes = slot_proof(built, slot)
        assert trie.verify_slot(built.root_hash, slot, nodes) == slots.get(slot, 0)
        with pytest.raises(trie.InvalidProof):
            trie.verify_slot(built.root_hash, slot, nodes[:-1])
        with pytest.raises(trie.InvalidProof):
            trie.verify_slot(built.root_hash, slot, [*nodes, nodes[-1]])


@settings(derandomize=True, max_examples=60, deadline=None, database=None)
@given(
    st.dictionaries(
        # Keys differ in few nibbles, so the trie has long extensions and embedded branches.
        st.lists(st.sampled_from(b"\x00\x01\x10\x11"), min_size=3, max_size=3).map(lambda end: bytes(29) + bytes(end)),
        st.binary(min_size=1, max_size=3) | st.binary(min_size=40, max_size=40),
        min_size=1,
        max_size=30,
    )
)
def test_tries_with_deeply_embedded_nodes_agree_with_another_implementation(values):
    built = tries.build(values)
    absent = (bytes(29) + bytes(end) for end in [(0, 0, 0), (1, 1, 1), (17, 0, 1), (2, 0, 0), (0, 0, 2)])
    for key in [*values, *absent, b"\xff" * 32]:
        assert trie._look_up(built.root_hash, key, tries.proof(built, key), bytes) == values.get(key)


@settings(derandomize=True, max_examples=20, deadline=None, database=None)
@given(
    nonce=st.integers(0, 2**64 - 1),
    balance=st.integers(0, 2**256 - 1),
    roots=st.tuples(st.binary(min_size=32, max_size=32), st.binary(min_size=32, max_size=32)),
    others=st.integers(0, 200),
)
def test_accounts_of_random_tries_agree_with_another_implementation(nonce, balance, roots, others):
    address = b"\x77" * 20
    accounts = {keccak(bytes([index]) * 20): rlp.encode([b"", b"\1", *roots]) for index in range(others % 119)}
    accounts[keccak(address)] = rlp.encode([nonce, balance, *roots])
    built = tries.build(accounts)
    account = trie.verify_account(built.root_hash, address, tries.proof(built, keccak(address)))
    assert account == trie.StateAccount(True, nonce, balance, *roots)
    absent = trie.verify_account(built.root_hash, b"\xee" * 20, tries.proof(built, keccak(b"\xee" * 20)))
    assert absent == trie.NO_ACCOUNT


# --- Exclusion --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("nodes", [[], [b"\x80"]])
def test_an_empty_trie_proves_absence(nodes):
    assert trie.verify_slot(trie.EMPTY_TRIE_ROOT, 7, nodes) == 0
    assert trie.verify_account(trie.EMPTY_TRIE_ROOT, ADDRESS, nodes) == trie.NO_ACCOUNT


@pytest.mark.parametrize("nodes", [[b""], [b"\xc0"], [b"\x80", b"\x80"], [rlp.encode([b"\x20", b"\1"])]])
def test_an_empty_trie_takes_no_other_nodes(nodes):
    with pytest.raises(trie.InvalidProof, match="the trie is empty"):
        trie.verify_slot(trie.EMPTY_TRIE_ROOT, 7, nodes)


@pytest.mark.parametrize("nodes", [[], [b"\x80"], [b""], [bytes(32)]])
@pytest.mark.parametrize("root", [bytes(32), b"", keccak(b"")])
def test_no_other_root_is_empty(root, nodes):
    with pytest.raises(trie.InvalidProof):
        trie.verify_account(root, ADDRESS, nodes)


# --- Nodes that no trie has, each below a root of its own -------------------------------------------------------------


def test_the_one_leaf_that_the_malformed_ones_differ_from_is_accepted():
    root, nodes = chained(GOOD_LEAF)
    assert trie.verify_slot(root, 0, nodes) == 7


def test_an_embedded_leaf_below_an_extension_is_accepted():
    root, nodes = chained([EXTENSION_8, keccak(rlp.encode(SHORT_BRANCH))], SHORT_BRANCH)
    assert trie.verify_slot(root, 0, nodes) == 7


@pytest.mark.parametrize(("nodes", "fault"), [*MALFORMED, *MALFORMED_BESIDE])
def test_malformed_trie_nodes_are_refused(nodes, fault):
    root, encoded = chained(*nodes)
    with pytest.raises(trie.InvalidProof, match=fault):
        trie.verify_slot(root, 0, encoded)


def test_a_branch_below_the_last_digit_is_refused():
    bottom = rlp.encode(branch("0", [b"\x20", b"\1" * 20]))
    node: object = keccak(bottom)
    nodes = [bottom]
    for digit in reversed(DIGITS):
        nodes.insert(0, rlp.encode(branch(digit, node)))
        node = keccak(nodes[0])
    with pytest.raises(trie.InvalidProof, match="deeper than its key"):
        trie.verify_slot(keccak(nodes[0]), 0, nodes)


@pytest.mark.parametrize("fields", MALFORMED_ACCOUNTS)
@pytest.mark.parametrize("address", [bytes(20), b"\1" * 20], ids=["itself", "another"])
def test_malformed_accounts_are_refused(fields, address):
    root, nodes = chained([tries.hex_prefix(keccak(bytes(20)).hex(), leaf=True), fields])
    with pytest.raises(trie.InvalidProof, match="account is malformed"):
        trie.verify_account(root, address, nodes)


@pytest.mark.parametrize("address", [bytes(20), b"\1" * 20], ids=["itself", "another"])
@pytest.mark.parametrize(
    "fields", [[b"", b"", trie.EMPTY_TRIE_ROOT], [b"", b"", trie.EMPTY_TRIE_ROOT, trie.EMPTY_CODE_HASH, b""]]
)
def test_accounts_with_another_number_of_fields_are_refused_as_other_account_form(fields, address):
    """Avalanche's accounts have a fifth field: ava-labs/coreth, plugin/evm/customtypes/state_account_ext.go."""
    root, nodes = chained([tries.hex_prefix(keccak(bytes(20)).hex(), leaf=True), rlp.encode(fields)])
    with pytest.raises(trie.OtherAccountForm, match=f"have {len(fields)} fields instead of Ethereum's 4"):
        trie.verify_account(root, address, nodes)


@pytest.mark.parametrize("address", [b"", bytes(19), bytes(32), "0x12"])
def test_an_address_has_twenty_bytes(address):
    with pytest.raises(ValueError, match="20 bytes"):
        trie.verify_account(trie.EMPTY_TRIE_ROOT, address, [])


# --- A real node ------------------------------------------------------------------------------------------------------


def test_proofs_of_a_real_node_verify(devchain, client_of):
    code = "0x60016000"
    values = {**dict.fromkeys(worlds.NEAR_SLOTS, 7), 1: 2**256 - 1, 2: 1}
    devchain.rpc("anvil_setCode", ADDRESS, code)
    for slot, value in values.items():
        devchain.rpc("anvil_setStorageAt", ADDRESS, f"0x{slot:064x}", f"0x{value:064x}")
    devchain.mine()
    client = client_of(devchain.url)
    head = client.head()
    absent_slots = [3, 2**256 - 1]
    contract, user, nobody = client.proofs(
        [
            ProofRequest(head.number, head.hash, head.state_root, address, slots)
            for address, slots in ((ADDRESS, [*values, *absent_slots]), (ACCOUNTS[0][0], [5]), ("0x" + "ab" * 20, [5]))
        ]
    )
    assert contract.account.code_hash == keccak(unhex(code))
    assert {proof.slot: proof.value for proof in contract.slots} == {**values, **dict.fromkeys(absent_slots, 0)}
    assert user.account.balance == client.balance(ACCOUNTS[0][0], head.number)
    assert user.account.code_hash == trie.EMPTY_CODE_HASH
    assert nobody.account == trie.NO_ACCOUNT
    assert user.slots[0].value == nobody.slots[0].value == 0
