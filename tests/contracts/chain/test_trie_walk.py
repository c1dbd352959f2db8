"""The views of `FactsReader` that verify plain nodes, and the same walk over arrays of nodes.

`chains.tries.trie` is their model: all agree on every proof.
"""

import random

import pytest
import rlp
from eth_utils.crypto import keccak

from chains.contract_artifacts import NO_CONTRACT
from devnet.devchain import ACCOUNTS
from tests.chains.tries import DIGITS, MALFORMED, MALFORMED_ACCOUNTS, MALFORMED_BESIDE, chained, storage_trie
from tests.contracts import tries
from tests.contracts.deployed import Deployed, Reverted
from tests.contracts.simulator import Call
from tests.contracts.walks import REFUSAL, ArrayWalk, OneOfSeveral, Walk, arrays, refusals, walk
from tests.contracts.worlds import NEAR_SLOTS
from tests.fixtures_folder import fixture_names, load_fixture, unhex

REAL = fixture_names("*_depth*.json")
SLOT = bytes(32)
ADDRESS = bytes(20)


@pytest.fixture(scope="module")
def reader(chain) -> Deployed:
    source = Deployed(chain, "test/SettableBlockHashSource", 1)
    registry = Deployed(chain, "FactsRegistry", 1, source.address, 8191, NO_CONTRACT)
    return Deployed(chain, "FactsReader", [registry.address])


@pytest.fixture(scope="module")
def user(chain) -> Deployed:
    return Deployed(chain, "test/PackageUser")


@pytest.fixture(scope="module")
def refused(simulator, reader, user):
    """Return a function that returns the model's refusals of walks, after all forms of the walk have agreed."""

    def agreed(*all_walks: Walk) -> list[str]:
        refusals(simulator, user, arrays(all_walks))
        refusals(simulator, user, [OneOfSeveral(each) for each in all_walks if len(each.name) == 32])
        return refusals(simulator, reader, all_walks)

    return agreed


def near_walk(slot: int, value: int) -> Walk:
    """Return the proof of a slot in a trie whose lowest nodes are embedded."""
    built = storage_trie(dict.fromkeys(NEAR_SLOTS, value) | {number: number for number in range(1, 200)})
    return walk(slot.to_bytes(32), built.root_hash, tries.proof(built, keccak(slot.to_bytes(32))))


def real_walks(name: str) -> list[Walk]:
    content = load_fixture(name)
    account = content["account"]
    root = unhex(account["expected"]["storageRoot"])
    return [
        walk(unhex(account["address"]), unhex(content["stateRoot"]), list(map(unhex, account["proof"]))),
        *(
            walk(int(slot["slot"], 16).to_bytes(32), root, list(map(unhex, slot["proof"])))
            for slot in content["storage"]
        ),
    ]


def spoilt(genuine: Walk) -> list[Walk]:
    """Return proofs that are cut anywhere, longer, or have a node too few, twice or in another place."""
    nodes = [bytes(node) for node in rlp.decode(genuine.proof)]
    places = range(len(nodes))
    changed = [[*nodes[:place], *nodes[place + 1 :]] for place in places]
    changed += [[*nodes[:place], nodes[place], *nodes[place:]] for place in places]
    changed += [[*nodes[:place], *nodes[place + 1 :], nodes[place]] for place in places[:-1]]
    changed += [[*nodes[:place], nodes[place][:-1], *nodes[place + 1 :]] for place in places]
    changed += [[*nodes, other] for other in (b"", b"\x80", b"\xc0", nodes[0])]
    proofs = [tries.encode(each) for each in changed]
    proofs += [genuine.proof[:size] for size in range(0, len(genuine.proof), 7)]
    proofs += [genuine.proof + b"\0", tries.encode(genuine.proof), tries.listed(genuine.proof), b"".join(nodes)]
    return [Walk(genuine.name, genuine.root, proof) for proof in proofs]


# --- Genuine proofs ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", REAL)
def test_real_accounts_and_slots_are_as_the_chain_has_them(reader, refused, name):
    content = load_fixture(name)
    walks = real_walks(name)
    assert refused(*walks) == [""] * len(walks)
    expected = content["account"]["expected"]
    account, *slots = (reader.call_raw(each.calldata) for each in walks)
    numbers = [int(expected[field], 16) for field in ("nonce", "balance", "codeHash", "storageRoot")]
    assert account == b"".join(number.to_bytes(32) for number in numbers)
    assert slots == [int(slot["value"], 16).to_bytes(32) for slot in content["storage"]]
    assert all(refused(*(changed for each in walks for changed in spoilt(each))))


@pytest.mark.parametrize("name", fixture_names("rollups/*.json"))
def test_real_proofs_in_satellites_form_are_taken_as_they_are(refused, name):
    content = load_fixture(f"rollups/{name}")
    header = rlp.decode(unhex(content["rlpBlockHeader"]))
    account = Walk(unhex(content["account"]), header[3], unhex(content["rlpAccountProof"]))
    slot = int(content["slot"], 16).to_bytes(32)
    assert refused(account, Walk(slot, account.answer()[96:], unhex(content["rlpStorageProof"]))) == ["", ""]


def test_accounts_of_the_trie_tests_of_ethereum(refused):
    """The trie `test1` of hex_encoded_securetrie_test.json, ethereum/tests at 089e3469."""
    empty, no_code = tries.EMPTY_ROOT.hex(), tries.EMPTY_CODE_HASH.hex()
    code, root = "04bccc5d94f4d1f99aab44369a910179931772f2a5c001c3229f57831c102769", "ba4b47865c55a341a4a78759bb913cd1"
    root += "5c3ee8eaf30a62fa8d1c8863113d84e8"
    accounts = {
        "a94f5374fce5edbc8e2a8697c15331677e6ebf0b": (1, 0x05F446A7, empty, no_code),
        "095e7baea6a6c7c4c2dfeb977efac326af552d87": (1, 1, empty, code),
        "d2571607e241ecf590ed94b12d87c94babe36db6": (1, 0, root, no_code),
        "62c01474f089b07dae603491675dc5b5748f7049": (0, 0, empty, no_code),
        "2adc25665018aa1fe0e6bc666dac8fc2697ff9ba": (0, 0x019A59, empty, no_code),
    }
    leaves = {
        bytes.fromhex(name): tries.account(nonce, balance, *map(bytes.fromhex, hashes))
        for name, (nonce, balance, *hashes) in accounts.items()
    }
    built = tries.build({keccak(name): leaf for name, leaf in leaves.items()})
    assert built.root_hash.hex() == "730a444e08ab4b8dee147c9b232fc52d34a223d600031c1e9d25bfc985cbd797"
    walks = [walk(name, built.root_hash, tries.proof(built, keccak(name))) for name in [*leaves, ADDRESS]]
    assert refused(*walks) == [""] * 6
    assert [each.answer()[:32] for each in walks] == [n.to_bytes(32) for n in (1, 1, 1, 0, 0, 0)]


def test_slots_of_random_tries_are_as_another_implementation_has_them(refused):
    chance = random.Random(1)
    walks, values = [], []
    for size in (1, 2, 3, 17, 200):
        slots = {chance.choice((number, chance.getrandbits(256))): chance.getrandbits(256) for number in range(size)}
        slots |= dict.fromkeys(NEAR_SLOTS, chance.choice((1, 127, 128, 2**200)))
        built = storage_trie(slots)
        for slot in [*list(slots)[-12:], *range(500, 512)]:
            walks.append(walk(slot.to_bytes(32), built.root_hash, tries.proof(built, keccak(slot.to_bytes(32)))))
            values.append(slots.get(slot, 0))
    assert refused(*walks) == [""] * len(walks)
    assert [int.from_bytes(each.answer()) for each in walks] == values


def test_an_anvil_shows_accounts_and_slots(chain, refused):
    source = Deployed(chain, "test/SettableBlockHashSource", 1)
    source.send("set", 5, b"\x07" * 32)
    root = unhex(chain.rpc("eth_getBlockByNumber", "latest", False)["stateRoot"])
    slot = keccak((5).to_bytes(32) + bytes(32))
    for address in (source.address, ACCOUNTS[0][0], "0x" + "ee" * 20):
        answer = chain.rpc("eth_getProof", address, ["0x" + slot.hex()], "latest")
        account = walk(unhex(address), root, list(map(unhex, answer["accountProof"])))
        nodes = list(map(unhex, answer["storageProof"][0]["proof"]))
        assert refused(account, walk(slot, account.answer()[96:], nodes)) == ["", ""]


@pytest.mark.parametrize("name", [SLOT, ADDRESS], ids=["slot", "account"])
@pytest.mark.parametrize(
    ("proof", "is_taken"),
    [
        pytest.param("c0", True, id="no node"),
        pytest.param("c28180", True, id="its root"),
        *(pytest.param(each, False, id=each) for each in ("", "80", "c180", "c3818080", "c4c28180", "c28181", "f800")),
        *(pytest.param(each, False, id=each) for each in ("c0c0", "c2c180", "c482818080", "c28080", "c100", "81c0")),
        *(pytest.param(each, False, id=each) for each in ("c3828000", "c3828001", "c3830080", "c180c0")),
    ],
)
def test_an_empty_trie_has_two_proofs(refused, name, proof, is_taken):
    [refusal] = refused(Walk(name, tries.EMPTY_ROOT, bytes.fromhex(proof)))
    assert (not refusal) == is_taken


# --- Arrays of nodes --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("slot", NEAR_SLOTS)
def test_embedded_nodes_may_be_listed_in_an_array_and_nothing_else(simulator, user, slot):
    genuine = near_walk(slot, 5)
    nodes = [bytes(node) for node in rlp.decode(genuine.proof)]
    embedded = [rlp.encode(item) for item in rlp.decode(nodes[-1]) if isinstance(item, list)]
    assert embedded
    taken = [[*nodes, *embedded], [nodes[0], b"", *nodes[1:]], [*nodes, b"\1" * 31]]
    # A node of 32 bytes isn't embedded, and nothing comes before the root.
    refused = [[*nodes, b"\1" * 32], [*nodes, nodes[-1]], [b"", *nodes], [*embedded, *nodes], nodes[:-1], []]
    walks = [ArrayWalk(genuine.name, genuine.root, each) for each in [*taken, *refused]]
    assert [not refusal for refusal in refusals(simulator, user, walks)] == [True] * 3 + [False] * 6


def test_an_array_whose_encoding_leads_out_of_the_calldata_is_refused(simulator, user):
    genuine = near_walk(NEAR_SLOTS[0], 5)
    nodes = [bytes(node) for node in rlp.decode(genuine.proof)]
    data = ArrayWalk(genuine.name, genuine.root, nodes).calldata
    # Behind the selector and three words come the array's size, the offsets of its nodes, and the first node's size.
    first_offset, first_size = 4 + 4 * 32, 4 + 4 * 32 + 32 * len(nodes)
    wrong = [
        data[:place] + word.to_bytes(32) + data[place + 32 :]
        for place in (first_offset, first_size)
        for word in (len(data), 2**63, 2**255, 2**256 - 1, 2**256 - 32, 2**256 - 32 * len(nodes))
    ]
    outcomes = simulator.run([Call(user.address, each) for each in [data, *wrong, data[: first_size + 32]]])
    assert outcomes[0].succeeded
    assert {(outcome.succeeded, outcome.data) for outcome in outcomes[1:]} == {(False, REFUSAL)}


def test_a_last_node_that_ends_behind_the_calldata_is_refused(simulator, user):
    """Behind the calldata are zeros, as at the end of this node."""
    leaf = tries.leaf(keccak(SLOT), tries.encode(2**248))
    data = ArrayWalk(SLOT, keccak(leaf), [leaf]).calldata
    end = data.index(leaf) + len(leaf)
    outcomes = simulator.run([Call(user.address, data[: end - cut]) for cut in (0, 1, 2, 31)])
    assert [outcome.data for outcome in outcomes] == [(2**248).to_bytes(32), *[REFUSAL] * 3]


def test_a_node_before_its_array_is_refused(simulator, user):
    """Its offset would be negative."""
    leaf = tries.leaf(keccak(SLOT), tries.encode(7))
    node = len(leaf).to_bytes(32) + leaf.ljust(64, b"\0")
    words = [SLOT, keccak(leaf), (96 + len(node)).to_bytes(32)]
    array = (1).to_bytes(32) + (2**256 - 32 - len(node)).to_bytes(32)
    data = ArrayWalk(SLOT, keccak(leaf), [leaf]).calldata[:4] + b"".join(words) + node + array
    [outcome] = simulator.run([Call(user.address, data)])
    assert (outcome.succeeded, outcome.data) == (False, REFUSAL)


def test_accounts_and_values_of_any_key_are_told_from_absent_ones(user):
    leaves = {bytes([number]) * 20: tries.account(number, number << 70) for number in range(30, 60)}
    built = tries.build({keccak(name): leaf for name, leaf in leaves.items()})
    present, absent = b"\x21" * 20, b"\x11" * 20
    for name, exists in [(present, True), (absent, False)]:
        nodes = tries.proof(built, keccak(name))
        for form, proof in [("bytes", tries.encode(nodes)), ("bytes[]", nodes)]:
            account = user.call(f"account(address,bytes32,{form})", name, built.root_hash, proof)
            items = (0x21, 0x21 << 70) if exists else (0, 0)
            assert account == (exists, *items, tries.EMPTY_ROOT, tries.EMPTY_CODE_HASH)
            value = user.call(f"value(bytes32,bytes32,{form})", keccak(name), built.root_hash, proof)
            assert value == (exists, leaves[name] if exists else b"")
    # A trie of one leaf shows every other key absent.
    leaf = tries.leaf(keccak(present), b"\1\2\3")
    for form, proof in [("bytes", tries.encode([leaf])), ("bytes[]", [leaf])]:
        for name, shown in [(present, (True, b"\1\2\3")), (absent, (False, b""))]:
            assert user.call(f"value(bytes32,bytes32,{form})", keccak(name), keccak(leaf), proof) == shown


def test_a_leaf_of_any_value_may_have_as_many_bytes_as_a_full_branch(user):
    value = b"\7" * 492
    leaf = tries.leaf(keccak(SLOT), value)
    assert len(leaf) == 3 + 16 * 33 + 1
    for form, proof in [("bytes", tries.encode([leaf])), ("bytes[]", [leaf])]:
        assert user.call(f"value(bytes32,bytes32,{form})", keccak(SLOT), keccak(leaf), proof) == (True, value)
        assert user.call(f"value(bytes32,bytes32,{form})", keccak(ADDRESS), keccak(leaf), proof) == (False, b"")


@pytest.mark.parametrize("value", [b"", [], [b"\7"]], ids=["nothing", "an empty list", "a list"])
def test_a_leaf_without_a_string_shows_no_key_and_none_absent(user, value):
    leaf = tries.encode([tries.hex_prefix(DIGITS, leaf=True), value])
    for form, proof in [("bytes", tries.encode([leaf])), ("bytes[]", [leaf])]:
        for key in (keccak(SLOT), keccak(ADDRESS)):
            refusal = user.refusal(f"value(bytes32,bytes32,{form})", key, keccak(leaf), proof)
            assert refusal == ("InvalidProof",)


# --- Proofs that no trie has ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("nodes", "fault"), [*MALFORMED, *MALFORMED_BESIDE])
def test_malformed_nodes_are_refused(refused, nodes, fault):
    root, encoded = chained(*nodes)
    assert all(refused(walk(SLOT, root, encoded)))


@pytest.mark.parametrize("is_branch", [True, False])
def test_no_byte_behind_a_node_counts(simulator, reader, is_branch):
    """The bytes that a node lacks follow its proof in the calldata."""
    there = tries.hash_reference(b"\x01" * 32)
    whole = tries.branch({1: there, 15: there}) if is_branch else tries.leaf(keccak(SLOT), tries.encode(2**250))
    payload = whole[2:]
    assert tries.listed(payload) == whole
    data = Walk(SLOT, tries.EMPTY_ROOT, b"\xc1\x81").calldata
    calls = [Call(reader.address, data[:-30] + b"\x80" + bytes(29))]
    for size in range(len(payload)):
        node = tries.listed(payload[:size])
        proof = tries.encode([node])
        data = Walk(SLOT, keccak(node), proof).calldata
        end = data.rindex(proof) + len(proof)
        calls.append(Call(reader.address, data[:end] + payload[size:] + bytes(32)))
    assert {(outcome.succeeded, outcome.data) for outcome in simulator.run(calls)} == {(False, REFUSAL)}


@pytest.mark.parametrize("other", [b"\xc0", b"\xde" + b"\x01" * 30], ids=["no byte", "30 bytes"])
def test_a_child_beside_the_path_may_be_any_short_list(refused, other):
    leaf = tries.leaf_below(keccak(SLOT), 1, b"\x07")
    node = tries.branch({int(DIGITS[0], 16): tries.reference(leaf), 15: other})
    assert refused(walk(SLOT, keccak(node), [node, leaf])) == [""]


def test_a_list_in_a_node_beside_the_path_is_rlp_all_through(refused):
    # The inner list is a 5 with a prefix that it doesn't need.
    node = tries.branch({4: bytes.fromhex("c3c28105")})
    assert all(refused(walk(bytes(32), keccak(node), [node])))


def test_a_full_branch_has_no_eighteenth_item(refused):
    leaf = tries.leaf_below(keccak(SLOT), 1, b"\x07")
    there = dict.fromkeys(range(16), tries.hash_reference(b"\x01" * 32))
    full = tries.branch(there | {int(DIGITS[0], 16): tries.hash_reference(keccak(leaf))})
    longer = tries.listed(full[3:] + b"\x80")
    assert refused(walk(SLOT, keccak(full), [full, leaf])) == [""]
    assert all(refused(walk(SLOT, keccak(longer), [longer, leaf])))


@pytest.mark.parametrize("place", range(17))
def test_a_full_branch_has_all_its_prefixes(refused, place):
    leaf = tries.leaf_below(keccak(SLOT), 1, b"\x07")
    there = dict.fromkeys(range(16), tries.hash_reference(b"\x01" * 32))
    full = tries.branch(there | {int(DIGITS[0], 16): tries.hash_reference(keccak(leaf))})
    at = 3 + 33 * place
    others = [full[:at] + bytes([prefix]) + full[at + 1 :] for prefix in (0, 0x20, 0x40, 0x7F, 0x80, 0x81, 0xA0, 0xC0)]
    assert all(refused(*(walk(SLOT, keccak(other), [other, leaf]) for other in others if other != full)))


@pytest.mark.parametrize("is_odd", [False, True])
def test_a_path_has_one_encoding(refused, is_odd):
    # An odd path begins with an odd digit, and its flag says even. An even path has a digit too many.
    depth = next(place for place in range(3, 64, 2) if int(DIGITS[place], 16) % 2) if is_odd else 2
    flags = 0x20 | int(DIGITS[depth], 16) if is_odd else 0x28
    path = bytes([flags]) + bytes.fromhex(DIGITS[depth + depth % 2 :])
    leaf = tries.encode([path, b"\x07"])
    there = {int(DIGITS[depth - 1], 16): tries.hash_reference(keccak(leaf))}
    branch = tries.branch(dict.fromkeys(range(16), tries.hash_reference(b"\x01" * 32)) | there)
    root = tries.extension(DIGITS[: depth - 1], tries.reference(branch))
    assert all(refused(walk(SLOT, keccak(root), [root, branch, leaf])))


def test_a_leaf_is_no_full_branch_whatever_follows_the_proof(user):
    # The leaf's two items begin as hashes do. So do the fourteen behind the proof.
    key, value = keccak(SLOT), b"\x9f" + b"\x33" * 31
    leaf = tries.leaf_below(key, 1, value)
    branch = tries.branch({int(DIGITS[0], 16): tries.hash_reference(keccak(leaf))})
    behind = (b"\xa0" + bytes(32)) * 14 + b"\x80"
    nodes, root = [branch, leaf], keccak(branch)
    for function, *arguments in (
        ("value(bytes32,bytes32,bytes)", key, root, tries.encode(nodes)),
        ("value(bytes32,bytes32,bytes[])", key, root, nodes),
        ("slotValue(bytes32,bytes32,bytes[])", SLOT, root, nodes),
        ("slotValues", [SLOT], root, tries.encode(nodes)),
    ):
        data = user.calldata(function, *arguments)
        # The last byte of the proof isn't zero.
        assert user.call_raw(data.rstrip(b"\0") + behind) == user.call_raw(data)
        assert b"\x33" * 31 in user.call_raw(data)


def test_a_node_of_32_bytes_is_referred_to_by_its_hash(refused):
    leaf = tries.leaf_below(keccak(SLOT), 41, tries.encode(b"\x07" * 16))
    assert len(leaf) == 32
    there = {int(DIGITS[40], 16): tries.hash_reference(keccak(leaf))}
    branch = tries.branch(dict.fromkeys(range(16), tries.hash_reference(b"\x01" * 32)) | there)
    root = tries.extension(DIGITS[:40], tries.reference(branch))
    assert refused(walk(SLOT, keccak(root), [root, branch, leaf])) == [""]


def test_an_account_may_have_the_greatest_nonce_and_balance(refused):
    leaf = tries.leaf(keccak(ADDRESS), tries.account(2**64 - 1, 2**256 - 1))
    assert refused(walk(ADDRESS, keccak(leaf), [leaf])) == [""]


def test_no_byte_behind_an_empty_node_counts(user):
    data = user.calldata("slotValue(bytes32,bytes32,bytes[])", SLOT, tries.EMPTY_ROOT, [b""])
    with pytest.raises(Reverted):
        user.call_raw(data + b"\x80")


def test_a_child_beside_the_path_is_no_byte(refused):
    node = tries.branch({4: b"\x05"})
    assert all(refused(walk(SLOT, keccak(node), [node])))


def test_a_node_of_a_proof_is_a_string(refused):
    genuine = near_walk(NEAR_SLOTS[0], 5)
    nodes = [bytes(node) for node in rlp.decode(genuine.proof)]
    for place in range(len(nodes)):
        items = [tries.listed(node) if place == at else tries.encode(node) for at, node in enumerate(nodes)]
        assert all(refused(Walk(genuine.name, genuine.root, tries.listed(b"".join(items)))))


@pytest.mark.parametrize("is_leaf", [True, False])
def test_a_path_is_a_string(refused, is_leaf):
    leaf = tries.leaf_below(keccak(SLOT), 3, b"\x07")
    path = tries.hex_prefix(DIGITS if is_leaf else DIGITS[:3], leaf=is_leaf)
    node = tries.listed(tries.listed(path) + (b"\7" if is_leaf else tries.hash_reference(keccak(leaf))))
    assert all(refused(walk(SLOT, keccak(node), [node] if is_leaf else [node, leaf])))


def test_a_list_that_ends_before_its_items_is_refused(refused):
    leaf = tries.leaf(keccak(SLOT), b"\x07")
    early = bytes([leaf[0] - 1]) + leaf[1:]
    proof = tries.encode([leaf])
    assert all(
        refused(
            walk(SLOT, keccak(early), [early]),
            Walk(SLOT, keccak(leaf), bytes([proof[0] - 1]) + proof[1:]),
        )
    )


def test_malformed_accounts_are_refused(refused):
    account, hashes = tries.account(), (tries.EMPTY_ROOT, tries.EMPTY_CODE_HASH)
    long = [
        tries.encode([b"", b"", *each]) for each in ((hashes[0] + b"\1", hashes[1]), (hashes[0], hashes[1] + b"\1"))
    ]
    lists = [
        tries.listed(b"\x80\x80" + tries.listed(hashes[0]) + tries.encode(hashes[1])),
        tries.listed(b"\x80\x80" + tries.encode(hashes[0]) + tries.listed(hashes[1])),
    ]
    early = account[:1] + bytes([account[1] - 1]) + account[2:]
    others = [tries.encode([1] * 3), tries.encode([b"", b"", *[bytes(32)] * 3]), *long, *lists, early, account[:-1]]
    for value in [*MALFORMED_ACCOUNTS, *others]:
        root, nodes = chained([tries.hex_prefix(keccak(ADDRESS).hex(), leaf=True), value])
        assert all(refused(*(walk(address, root, nodes) for address in (ADDRESS, b"\1" * 20))))


def test_a_branch_below_the_last_digit_is_refused(refused):
    there = tries.hash_reference(bytes(32))
    empty, ends = tries.branch({1: there}), tries.branch({0: there})
    full = tries.branch(dict.fromkeys(range(16), there) | {0: tries.hash_reference(keccak(empty))})
    for bottom in ([empty], [ends], [full], [full, empty]):
        nodes = list(bottom)
        for digit in reversed(DIGITS):
            nodes.insert(0, tries.branch({int(digit, 16): tries.hash_reference(keccak(nodes[0]))}))
        assert "deeper" in refused(walk(SLOT, keccak(nodes[0]), nodes))[0]


@pytest.mark.parametrize("depth", range(5))
def test_a_node_of_less_than_a_hash_is_the_root_or_embedded(refused, depth):
    """In the lowest branch the key's place is empty, and so are all others."""
    nodes = [tries.branch({})]
    for digit in reversed(DIGITS[:depth]):
        nodes.insert(0, tries.branch({int(digit, 16): tries.hash_reference(keccak(nodes[0]))}))
    assert len(nodes[-1]) < 32
    assert [not refusal for refusal in refused(walk(SLOT, keccak(nodes[0]), nodes))] == [depth == 0]


@pytest.mark.parametrize("slot", [*NEAR_SLOTS, 3, 500])
def test_a_spoilt_proof_with_embedded_nodes_is_refused(refused, slot):
    genuine = near_walk(slot, 5)
    assert refused(genuine) == [""]
    assert all(refused(*spoilt(genuine)))
    nodes = [bytes(node) for node in rlp.decode(genuine.proof)]
    # Some libraries list embedded nodes as nodes of their own (OpenZeppelin's and Optimism's vectors).
    embedded = [rlp.encode(item) for item in rlp.decode(nodes[-1]) if isinstance(item, list)]
    assert all(refused(*(walk(genuine.name, genuine.root, [*nodes, each]) for each in embedded)))


@pytest.mark.parametrize(
    ("nodes", "is_absent"),
    [
        pytest.param(
            [
                "e68416b65793a0f3f387240403976788281c0a6ee5b3fc08360d276039d635bb824ea7e6fed779",
                (
                    "f87180a034d14ccc7685aa2beb64f78b11ee2a335eae82047ef97c79b7dda7f0732b9f4ca05fb052b64e23d177131d9f32e9c5b942"
                    "209eb7229e9a07c99a5d93245f53af18a09a137197a43a880648d5887cce656a5e6bbbe5e44ecb4f264395ccaddbe1acca808080"
                    "80808080808080808080"
                ),
            ],
            False,
            id="validProof7, which goes on behind its end",
        ),
        pytest.param(
            ["e68416b65793a0f3f387240403976788281c0a6ee5b3fc08360d276039d635bb824ea7e6fed779"], True, id="its root"
        ),
        pytest.param(["d916d780c22061c22062c2206380808080808080808080808080"], True, id="validProof8"),
        pytest.param(
            [
                "d916d780c22061c22062c2206380808080808080808080808080",
                "d780c22061c22062c2206380808080808080808080808080",
            ],
            False,
            id="validProof8, with an embedded node",
        ),
        pytest.param(["ce87206b6579316161853031323334"], False, id="validProof4, a leaf of a shorter key"),
        pytest.param(["c78320f00082b443"], False, id="zeroLengthKey"),
        pytest.param(
            ["dd8200aad98080808080808080808080c43b82aabbc43c82aacc80808080"], True, id="zeroBranchValueLength"
        ),
        pytest.param(["c8820000822bad"], False, id="OpenZeppelin's corrupt internal short node"),
    ],
)
def test_tries_of_others_are_refused_or_answered_right(refused, nodes, is_absent):
    """MerkleTrie.t.sol of Optimism at 04b4b341, TrieProof.test.js of OpenZeppelin at 00780408: no key has 32 bytes."""
    encoded = [bytes.fromhex(node) for node in nodes]
    walks = [walk(name, keccak(encoded[0]), encoded) for name in (SLOT, ADDRESS, b"\1" * 32)]
    assert [not refusal for refusal in refused(*walks)] == [is_absent] * 3


@pytest.mark.parametrize("name", [0, 1], ids=["a slot with embedded nodes", "an account"])
def test_no_flipped_bit_leaves_a_valid_proof(reader, harness, user, name):
    address = b"\x33" * 20
    account = tries.build({keccak(bytes([n]) * 20): tries.account(n, n << 70) for n in range(30, 60)})
    walks = [near_walk(NEAR_SLOTS[0], 5), walk(address, account.root_hash, tries.proof(account, keccak(address)))]
    genuine = walks[name]
    data = genuine.calldata
    start = data.index(genuine.proof)
    assert harness.accepted_flips(reader, data, start, start + len(genuine.proof)) == 0
    assert harness.accepted(reader, [data]) == [True]
    array = ArrayWalk(genuine.name, genuine.root, [bytes(node) for node in rlp.decode(genuine.proof)])
    for node in array.nodes:
        start = array.calldata.index(node)
        assert harness.accepted_flips(user, array.calldata, start, start + len(node)) == 0
