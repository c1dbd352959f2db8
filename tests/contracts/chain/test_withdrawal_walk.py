"""Withdrawals that are shown to `FactsReader`. The contract and its model must agree on every proof."""

import random

import pytest
import rlp
from eth_utils.crypto import keccak

from chains.contract_artifacts import NO_CONTRACT
from chains.tries.packed import encode as pack
from chains.tries.packed_entries import root as root_of
from tests.contracts import tries
from tests.contracts.deployed import Deployed, Reverted
from tests.contracts.simulator import Call
from tests.contracts.walks import REFUSAL, receipt_trie, spoilt_proofs
from tests.contracts.withdrawal_walks import (
    NO_SUCH_WITHDRAWAL,
    Withdrawal,
    WithdrawalWalk,
    encode_answer,
    recorded,
    shown,
    values_of,
)

EMPTY, FULL = 17034870, (19426587, 22162263)
WITHDRAWALS_ROOT = 16
SOMEONE = b"\xaa" * 20
GENUINE = Withdrawal(38_266_022, 1_268_169, SOMEONE, 16_065_994)
VALUE = tries.encode(GENUINE.fields)
ABSENT = (16, 17, 31, 127, 128, 129, 255, 256, 300, 65_535)
OTHER = tries.hash_reference(b"\1" * 32)


def spoilt(genuine: WithdrawalWalk) -> list[WithdrawalWalk]:
    return [WithdrawalWalk(genuine.place, genuine.root, proof) for proof in spoilt_proofs(genuine.proof)]


def shown_value(value: bytes, place: int = 0) -> list[WithdrawalWalk]:
    """Return walks to a block's only withdrawal, and to a place that it shows absent."""
    [own] = shown([value], [0])
    return [own, WithdrawalWalk(place or 1, own.root, own.proof)]


# --- Genuine proofs ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", FULL)
def test_withdrawals_of_recorded_blocks_are_as_the_chain_has_them(simulator, reader, refused, number):
    block = recorded(number)
    values = values_of(block.withdrawals)
    assert (len(values), root_of(values)) == (16, block.root)
    walks = shown(values, range(16))
    assert {walk.root for walk in walks} == {block.root}
    outcomes = simulator.run([Call(reader.address, walk.calldata) for walk in walks])
    assert [outcome.data for outcome in outcomes] == [*map(encode_answer, block.withdrawals)]
    assert refused(walks) == [""] * 16
    assert set(refused(shown(values, ABSENT))) == {NO_SUCH_WITHDRAWAL}
    assert set(refused(spoilt(walks[0]))).isdisjoint({"", NO_SUCH_WITHDRAWAL})
    # A proof of one place shows no other.
    others = [
        WithdrawalWalk(place, walk.root, walk.proof) for walk in walks for place in range(16) if place != walk.place
    ]
    assert set(refused(others)).isdisjoint({"", NO_SUCH_WITHDRAWAL})


def test_a_withdrawal_of_one_block_isnt_shown_in_another(refused):
    first, second = (recorded(number) for number in FULL)
    walks = shown(values_of(first.withdrawals), range(16))
    moved = [WithdrawalWalk(walk.place, root, walk.proof) for walk in walks for root in (second.root, tries.EMPTY_ROOT)]
    assert set(refused(moved)).isdisjoint({"", NO_SUCH_WITHDRAWAL})


def test_an_empty_block_has_two_proofs(refused):
    assert recorded(EMPTY).root == tries.EMPTY_ROOT
    for proof in ("c0", "c28180"):
        walks = [WithdrawalWalk(place, tries.EMPTY_ROOT, bytes.fromhex(proof)) for place in (0, *ABSENT)]
        assert set(refused(walks)) == {NO_SUCH_WITHDRAWAL}
    walks = [WithdrawalWalk(0, tries.EMPTY_ROOT, bytes.fromhex(proof)) for proof in ("", "80", "c180", "c100", "c0c0")]
    assert set(refused(walks)).isdisjoint({"", NO_SUCH_WITHDRAWAL})


def random_withdrawal(chance: random.Random) -> Withdrawal:
    """Return a withdrawal that no branch embeds, of any width."""
    index, validator = (chance.getrandbits(chance.choice([1, 7, 8, 31, 32, 40, 64])) for _ in range(2))
    amount = chance.choice([2**24, 2**32 - 1, 2**32, 2**63, 2**64 - 1])
    return Withdrawal(index | 1 << 31, validator, chance.choice([bytes(20), chance.randbytes(20)]), amount)


@pytest.mark.parametrize("count", [1, 2, 3, 8, 15, 16, 17, 127, 128, 129, 130, 257, 300])
def test_withdrawals_of_blocks_of_all_sizes_are_shown_or_absent(simulator, reader, refused, count):
    withdrawals = [random_withdrawal(random.Random(1000 * count + place)) for place in range(count)]
    values = values_of(withdrawals)
    places = sorted(
        {place for place in (0, 1, 7, 8, 15, 16, 126, 127, 128, 129, 255, 256, 299, count - 1) if place < count}
    )
    walks = shown(values, places)
    outcomes = simulator.run([Call(reader.address, walk.calldata) for walk in walks])
    assert [outcome.data for outcome in outcomes] == [encode_answer(withdrawals[place]) for place in places]
    assert refused(walks) == [""] * len(places)
    absent = shown(values, [place for place in (*range(count, count + 20), *ABSENT, 4096) if place >= count])
    assert set(refused(absent)) == {NO_SUCH_WITHDRAWAL}


@pytest.mark.parametrize("place", [2**16 - 1, 2**16, 2**32, 2**64, 2**256 - 1])
def test_a_place_that_is_not_there_is_told_by_its_own_error(refused, place):
    [walk] = shown([VALUE], [0])
    beyond = place > 2**16 - 1
    told = refused([WithdrawalWalk(place, walk.root, walk.proof)])
    assert told == ["No block has such a place." if beyond else NO_SUCH_WITHDRAWAL]


# --- Values that no trie has ------------------------------------------------------------------------------------------

_ITEMS = [tries.encode(each) for each in GENUINE.fields]


def _raw(*items: bytes) -> bytes:
    return tries.listed(b"".join(items))


def _changed(at: int, item: bytes) -> bytes:
    return _raw(*_ITEMS[:at], item, *_ITEMS[at + 1 :])


TAKEN = {
    "as it is": VALUE,
    "zeros but the amount": tries.encode([0, 0, bytes(20), 2**64 - 1]),
    "an amount of nothing": tries.encode([2**64 - 1, 0, SOMEONE, 0]),
    "the greatest": tries.encode([2**64 - 1, 2**64 - 1, b"\xff" * 20, 2**64 - 1]),
    **{f"number {at} of a byte": _changed(at, b"\5") for at in (0, 1, 3)},
    **{f"number {at} of 0x80": _changed(at, b"\x81\x80") for at in (0, 1, 3)},
}
FORGED = {
    **{f"number {at} of nine bytes": _changed(at, b"\x89" + b"\1" * 9) for at in (0, 1, 3)},
    **{f"number {at} of 32 bytes": _changed(at, b"\xa0" + b"\1" * 32) for at in (0, 1, 3)},
    **{f"number {at} with a leading zero": _changed(at, b"\x82\0\1") for at in (0, 1, 3)},
    **{f"number {at} of a byte of zero": _changed(at, b"\0") for at in (0, 1, 3)},
    **{f"number {at} in two bytes": _changed(at, b"\x81\5") for at in (0, 1, 3)},
    **{f"number {at} with a long prefix": _changed(at, b"\xb8\1\5") for at in (0, 1, 3)},
    **{f"number {at} that is a list": _changed(at, b"\xc1\5") for at in (0, 1, 3)},
    **{f"number {at} that is a list of none": _changed(at, b"\xc0") for at in (0, 1, 3)},
    "a recipient of 19 bytes": _changed(2, b"\x93" + bytes(19)),
    "a recipient of 21 bytes": _changed(2, b"\x95" + bytes(21)),
    "a recipient of 32 bytes": _changed(2, b"\xa0" + bytes(32)),
    "no recipient": _changed(2, b"\x80"),
    "a recipient that is a list": _changed(2, b"\xd4" + b"\1" * 20),
    "a recipient with a long prefix": _changed(2, b"\xb8\x14" + SOMEONE),
    "three items": _raw(*_ITEMS[:3]),
    "five items": _raw(*_ITEMS, b"\1"),
    "no amount but a list behind": _raw(*_ITEMS[:3], b"\xc0"),
    "a string": tries.encode(VALUE),
    "a string of the items": tries.encode(b"".join(_ITEMS)),
    "a byte behind it": VALUE + b"\0",
    "a byte too few": VALUE[:-1],
    "a list's longer prefix": b"\xf8" + bytes([len(VALUE) - 1]) + VALUE[1:],
    "a list in a list": tries.listed(VALUE),
    "a type before it": b"\2" + VALUE,
    "an account": tries.account(),
    "an internal node": tries.branch({0: OTHER, 8: OTHER}),
    "a leaf": tries.leaf(b"\1" * 32, b"\1" * 30),
    "a receipt": tries.encode([1, 50_000, bytes(256), []]),
}


@pytest.mark.parametrize("values", [TAKEN, FORGED], ids=["taken", "forged"])
def test_a_withdrawal_that_no_block_has_is_refused_even_under_its_own_root(refused, values):
    for name, value in values.items():
        told = refused(shown_value(value))
        # The withdrawal at another place is read as strictly.
        assert told == ["", NO_SUCH_WITHDRAWAL] if values is TAKEN else {"", NO_SUCH_WITHDRAWAL}.isdisjoint(told), name


def test_no_byte_behind_a_withdrawal_counts(simulator, reader):
    """The bytes that the list lacks follow the proof in the calldata."""
    calls = []
    whole = b"".join(_ITEMS)
    for size in range(len(whole)):
        [walk] = shown([tries.listed(whole[:size]) + bytes(1)], [0])
        node = tries.encode([tries.hex_prefix("80", leaf=True), tries.listed(whole[:size])])
        if len(node) < 32:
            continue
        walk = WithdrawalWalk(0, keccak(node), tries.encode([node]))
        data = walk.calldata
        end = data.rindex(walk.proof) + len(walk.proof)
        calls.append(Call(reader.address, data[:end] + whole[size:] + bytes(32)))
    assert {(outcome.succeeded, outcome.data) for outcome in simulator.run(calls)} == {(False, REFUSAL)}


# --- Nodes that no trie of withdrawals has ----------------------------------------------------------------------------


def _leaf(digits: str, value: bytes = VALUE) -> bytes:
    return tries.encode([tries.hex_prefix(digits, leaf=True), value])


def _above(node: bytes, digits: str, others: bytes = OTHER) -> list[bytes]:
    """Return branches along digits down to a node, with one more child each."""
    nodes = [node]
    for digit in reversed(digits):
        place = int(digit, 16)
        nodes.insert(0, tries.branch({place: tries.hash_reference(keccak(nodes[0])), (place + 1) % 16: others}))
    return nodes


# The shortest that a branch embeds has an amount of less than 2^24 Gwei; the longest value that it embeds has 28 bytes.
SHORT, SHORTEST_APART = tries.encode([5, 7, SOMEONE, 2**24 - 1]), tries.encode([5, 7, SOMEONE, 2**24])
NODES: dict[str, tuple[int, list[bytes]]] = {
    **{
        f"a leaf of the key {key or 'of nothing'}": (5, [_leaf(key)])
        for key in ("", "0", "8", "00", "81", "82", "ff", "050", "0500", "8100", "817f", "8200", "8200ff", "83010000")
    },
    **{
        f"the key {key} for place {place}": (place, [_leaf(key)])
        for place, key in ((0, "00"), (0, "8100"), (0, "820000"), (5, "8105"), (5, "820005"), (128, "820080"), (0, ""))
    },
    **{
        f"a key that goes on as {key}": (place, [_leaf(key)])
        for place, key in ((0, "8000"), (0, "800"), (1, "0180"), (128, "81"), (128, "818000"), (256, "8201"))
    },
    "a branch below the key": (0, _above(tries.branch({0: OTHER, 1: OTHER}), "80")),
    "a leaf below the key": (0, _above(_leaf("0"), "80")),
    "an extension to the key's end": (0, [tries.extension("80", tries.hash_reference(keccak(_leaf("")))), _leaf("")]),
    "an embedded leaf": (0, [tries.branch({8: _leaf("0", SHORT), 0: OTHER})]),
    "an embedded leaf at its end": (1, _above(tries.branch({1: _leaf("", SHORT), 2: OTHER}), "0")),
    "an embedded leaf by its hash": (1, _above(_leaf("1", SHORT), "0")),
    "an embedded sibling": (1, _above(_leaf("1"), "0", _leaf("1", SHORT))),
    "an embedded sibling, absent": (64, _above(_leaf("1"), "0", _leaf("1", SHORT))),
    "an extension with an embedded node": (0, [tries.extension("8", _leaf("0", SHORT))]),
    "a branch with a value": (0, [tries.listed(_above(_leaf("0"), "8")[0][3:-1] + b"\1"), _leaf("0")]),
    "a branch with a withdrawal": (0, [tries.listed(_above(_leaf("0"), "8")[0][2:-1] + tries.encode(VALUE))]),
    "a list of three": (0, [tries.encode([tries.hex_prefix("80", leaf=True), VALUE, b""])]),
    "a leaf without a value": (0, [_leaf("80", b"")]),
    "a leaf with the list itself": (0, [tries.encode([tries.hex_prefix("80", leaf=True), GENUINE.fields])]),
    "a short root": (0, [_leaf("80", tries.encode([0, 0, SOMEONE, 0]))]),
}


@pytest.mark.parametrize("name", NODES)
def test_nodes_that_no_trie_of_withdrawals_has_are_refused(refused, name):
    place, nodes = NODES[name]
    assert {"", NO_SUCH_WITHDRAWAL}.isdisjoint(refused([WithdrawalWalk(place, keccak(nodes[0]), tries.encode(nodes))]))


def test_the_shortest_withdrawal_that_no_branch_embeds_is_shown(refused):
    assert len(_leaf("", SHORT)) == 31
    assert len(_leaf("", SHORTEST_APART)) == 32
    for value, told in ((SHORT, False), (SHORTEST_APART, True)):
        walks = shown([value] * 16, (1, 2, 15))
        assert [refusal == "" for refusal in refused(walks)] == [told] * 3


@pytest.mark.parametrize(("place", "key"), [(0, "8180"), (0, "820100"), (128, "80"), (256, "7f"), (1, "80"), (0, "01")])
def test_other_keys_show_a_place_absent(refused, place, key):
    node = _leaf(key)
    assert refused([WithdrawalWalk(place, keccak(node), tries.encode([node]))]) == [NO_SUCH_WITHDRAWAL]


def test_no_flipped_bit_leaves_a_valid_proof(reader, harness):
    [walk] = shown(values_of(recorded(FULL[0]).withdrawals), [7])
    data = walk.calldata
    start = data.index(walk.proof)
    assert harness.accepted_flips(reader, data, start, start + len(walk.proof)) == 0
    assert harness.accepted(reader, [data]) == [True]


# --- Another root in the header's field -------------------------------------------------------------------------------


def test_under_a_root_of_storage_no_withdrawal_is_shown_but_any_place_is_absent(refused):
    """OP Stack chains since Isthmus. Whoever passes messages chooses values, and no key: keys are hashes."""
    chance = random.Random(1)
    entries = {keccak(chance.randbytes(32)): tries.encode(1) for _ in range(200)}
    root, proofs = tries.shaped(dict(list(entries.items())[:40]), chance, [16, 16, 16, 9, 2])
    walks = [
        WithdrawalWalk(place, root, tries.encode(nodes[:size]))
        for place in (0, 5, 128, 256)
        for nodes in proofs.values()
        for size in range(1, len(nodes) + 1)
    ]
    assert "" not in refused(walks)
    # A leaf whose 64 digits begin like a place's key.
    for key in ("80", "05", "8180"):
        node = _leaf(key + "0" * (64 - len(key)))
        walks = [WithdrawalWalk(place, keccak(node), tries.encode([node])) for place in (0, 5, 128)]
        assert {"", NO_SUCH_WITHDRAWAL}.isdisjoint(refused(walks))
    # The contract has written to few slots: there is room beside them.
    few = receipt_trie({})
    for digest in [each for each in entries if each[0] > 0x90][:5]:
        few[digest] = tries.encode(1)
    nodes = tries.encode([few.db[few.root_hash]])
    walks = [WithdrawalWalk(place, few.root_hash, nodes) for place in (0, 1, 127, 128, 65_535)]
    assert set(refused(walks)) == {NO_SUCH_WITHDRAWAL}


# --- Under a fact -----------------------------------------------------------------------------------------------------


def test_a_withdrawal_is_shown_under_a_root_that_is_a_fact(chain):
    block = recorded(FULL[0])
    number = int.from_bytes(rlp.decode(block.header)[8])
    source = Deployed(chain, "test/SettableBlockHashSource", 1)
    registry = Deployed(chain, "FactsRegistry", 1, source.address, 8191, NO_CONTRACT)
    reader = Deployed(chain, "FactsReader", [registry.address])
    source.send("set", number, keccak(block.header))
    [walk] = shown(values_of(block.withdrawals), [3])
    state_root = rlp.decode(block.header)[3]
    registry.send_raw(pack(block.header, state_root))
    for chain_id in (1, 2):
        with pytest.raises(Reverted) as reverted:
            reader.call("withdrawalByProof", chain_id, number, 3, walk.proof)
        assert b"STORAGE_PROOF_HEADER_FIELD_NOT_SAVED" in bytes.fromhex(reverted.value.error[0])
    registry.send_raw(pack(block.header, state_root, header_fields=[WITHDRAWALS_ROOT]))
    index, validator, recipient, amount = reader.call("withdrawalByProof", 1, number, 3, walk.proof)
    assert Withdrawal(index, validator, bytes.fromhex(recipient[2:]), amount) == block.withdrawals[3]
    for place, proof in ((16, shown(values_of(block.withdrawals), [16])[0].proof), (4, walk.proof)):
        with pytest.raises(Reverted) as reverted:
            reader.call("withdrawalByProof", 1, number, place, proof)
        expected = ("NoSuchWithdrawal", 1, number, 16) if place == 16 else ("InvalidProof",)
        assert reverted.value.error == expected
