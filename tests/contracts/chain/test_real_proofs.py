"""Headers and proofs of public chains. The block hash source is given their block hashes."""

from collections import Counter
from typing import Any

import pytest

from chains.tries.packed import AccountToProve, encode
from tests.contracts.decoder import InvalidPacked, decode
from tests.contracts.deployed import Deployed, Reverted
from tests.fixtures_folder import fixture_names, load_fixture, unhex

FIXTURES = [load_fixture(name) for name in fixture_names()]
WITH_ACCOUNT = [fixture for fixture in FIXTURES if "account" in fixture]
HEADERS = [
    (
        int(header.get("blockNumber", header.get("number"))),
        header.get("blockHash", header.get("hash")),
        header["headerRlp"],
    )
    for fixture in FIXTURES
    for header in fixture.get("headers", [fixture])
]

each_account = pytest.mark.parametrize("fixture", WITH_ACCOUNT, ids=lambda fixture: fixture["name"])
# Trying each bit takes seconds.
_SHORTEST = min(WITH_ACCOUNT, key=lambda fixture: len(str(fixture)))
one_account_at_once = pytest.mark.parametrize(
    "fixture",
    [
        pytest.param(fixture, id=fixture["name"], marks=() if fixture is _SHORTEST else pytest.mark.long)
        for fixture in WITH_ACCOUNT
    ],
)
BLOCKS_OF_SEVERAL = [
    number for number, count in Counter(fixture["blockNumber"] for fixture in WITH_ACCOUNT).items() if count > 1
]

ALL = 0b1111


def _account(fixture: Any, *, fields: int = ALL, slots: bool = True) -> AccountToProve:
    account = fixture["account"]
    proofs = {int(slot["slot"], 16): [unhex(node) for node in slot["proof"]] for slot in fixture["storage"]}
    nodes = [unhex(node) for node in account["proof"]]
    return AccountToProve(unhex(account["address"]), fields, nodes, proofs if slots else {})


def _proof(fixture: Any, *accounts: AccountToProve, known: bool = False) -> bytes:
    block = int(fixture["blockNumber"]) if known else unhex(fixture["headerRlp"])
    return encode(block, unhex(fixture["stateRoot"]), accounts or [_account(fixture)])


def _plant(source: Deployed, fixture: Any) -> int:
    number = int(fixture["blockNumber"])
    source.send("set", number, unhex(fixture["blockHash"]))
    return number


@pytest.mark.parametrize(("number", "block_hash", "header"), HEADERS)
def test_headers_of_all_forms_are_accumulated(registry, source, number, block_hash, header):
    source.send("set", number, unhex(block_hash))
    # Bytes before the state root: the list's prefix (3), two hashes (33 each), an address (21), and the root's prefix.
    state_root = unhex(header)[3 + 33 + 33 + 21 + 1 :][:32]
    receipt = registry.send_raw(encode(unhex(header), state_root))
    assert registry.logged(receipt) == [("HeaderAccumulated", number, state_root)]


@each_account
@pytest.mark.parametrize("known", [False, True], ids=["with header", "block known"])
def test_accounts_and_slots_of_public_chains_are_proven(registry, source, fixture, known):
    number = _plant(source, fixture)
    if known:
        registry.send_raw(encode(unhex(fixture["headerRlp"]), unhex(fixture["stateRoot"])))
    registry.send_raw(_proof(fixture, known=known))
    assert registry.call("stateRoot", number) == unhex(fixture["stateRoot"])
    address, expected = fixture["account"]["address"], fixture["account"]["expected"]
    assert [registry.call("accountField", address, number, field) for field in range(4)] == [
        int(expected["nonce"], 16).to_bytes(32),
        int(expected["balance"], 16).to_bytes(32),
        unhex(expected["storageRoot"]),
        # For a missing account, nodes return the hash of empty code. The EVM returns zero (EIP-1052), and so does the
        # registry.
        unhex(expected["codeHash"]) if expected["exists"] else bytes(32),
    ]
    for slot in fixture["storage"]:
        word = int(slot["slot"], 16).to_bytes(32)
        value = registry.call("accountStorageSlotValues", address, number, word)
        assert value == int(slot["value"], 16).to_bytes(32)


@pytest.mark.parametrize("number", BLOCKS_OF_SEVERAL)
def test_several_accounts_of_one_block_are_proven_at_once(registry, source, number):
    fixtures = [fixture for fixture in WITH_ACCOUNT if fixture["blockNumber"] == number]
    assert len(fixtures) > 1
    _plant(source, fixtures[0])
    registry.send_raw(_proof(fixtures[0], *(_account(fixture) for fixture in fixtures)))
    for fixture in fixtures:
        balance = int(fixture["account"]["expected"]["balance"], 16).to_bytes(32)
        assert registry.call("accountField", fixture["account"]["address"], number, 1) == balance


@pytest.mark.long
@one_account_at_once
@pytest.mark.parametrize("known", [False, True], ids=["with header", "block known"])
def test_no_flipped_bit_and_no_cut_leaves_a_valid_proof(registry, source, harness, fixture, known):
    _plant(source, fixture)
    if known:
        registry.send_raw(encode(unhex(fixture["headerRlp"]), unhex(fixture["stateRoot"])))
    proof = _proof(fixture, known=known)
    cuts = [proof[:size] for size in range(len(proof))]
    longer = [proof + bytes([byte]) for byte in range(256)]
    answers = harness.accepted(registry, [*cuts, *longer, proof])
    assert answers == [False] * (len(cuts) + len(longer)) + [True]
    assert harness.accepted_flips(registry, proof) == 0


@pytest.mark.long("goerli_7583802_7b2f05ce_depth7")
@each_account
def test_python_refuses_the_same_cuts_and_flips(fixture):
    def accepts(proof: bytes) -> bool:
        try:
            decode(proof, block_hash=lambda _: None, state_root=lambda _: unhex(fixture["stateRoot"]))
        except InvalidPacked:
            return False
        return True

    proof = _proof(fixture, known=True)
    # The block's number isn't changed, because `state_root` accepts any number here.
    start = 1 + proof[0]
    assert accepts(proof)
    for offset in range(start, len(proof), 5):
        assert not accepts(proof[:offset])
        assert not accepts(proof[:offset] + bytes([proof[offset] ^ 1 << offset % 8]) + proof[offset + 1 :])


@each_account
def test_proofs_of_other_blocks_are_refused(registry, source, fixture):
    number = _plant(source, fixture)
    registry.send_raw(encode(unhex(fixture["headerRlp"]), unhex(fixture["stateRoot"])))
    others = [other for other in WITH_ACCOUNT if other["blockNumber"] != fixture["blockNumber"]]
    assert others
    for other in others:
        with pytest.raises(Reverted) as reverted:
            registry.call_raw(encode(number, unhex(other["stateRoot"]), [_account(other)]))
        assert reverted.value.error == ("InvalidProof",)
        assert registry.refusal_raw(_proof(other, known=True)) == ("UnknownBlock", int(other["blockNumber"]))


def test_a_header_of_another_block_is_refused(registry, source):
    fixture, other = WITH_ACCOUNT[0], WITH_ACCOUNT[-1]
    number = int(fixture["blockNumber"])
    source.send("set", number, unhex(other["blockHash"]))
    assert registry.refusal_raw(_proof(fixture)) == ("HeaderMismatch", number)
