"""Headers and proofs of public chains, with their block hash planted in the block hash source."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
from eth_utils.crypto import keccak

from tests.contracts.deployed import Deployed, Reverted

FOLDER = Path(__file__).resolve().parents[3] / "shared" / "fixtures"
FIXTURES = {path.stem: json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))}
WITH_ACCOUNT = [fixture for fixture in FIXTURES.values() if "account" in fixture]
HEADERS = [
    (
        int(header.get("blockNumber", header.get("number"))),
        header.get("blockHash", header.get("hash")),
        header["headerRlp"],
    )
    for fixture in FIXTURES.values()
    for header in fixture.get("headers", [fixture])
]

pytestmark = pytest.mark.skipif(not FIXTURES, reason="The recorded proofs of public chains are not on this machine.")
each_account = pytest.mark.parametrize("fixture", WITH_ACCOUNT, ids=lambda fixture: fixture["name"])

ALL = 0b1111


def _bytes(value: str) -> bytes:
    return bytes.fromhex(value[2:])


def _nodes(fixture: Any) -> list[bytes]:
    return [_bytes(node) for node in fixture["account"]["proof"]]


def _accumulate(registry: Deployed, source: Deployed, fixture: Any) -> int:
    number = int(fixture["blockNumber"])
    source.send("set", number, _bytes(fixture["blockHash"]))
    registry.send("prove", number, _bytes(fixture["headerRlp"]), [])
    return number


def _refuses(registry: Deployed, number: int, address: str, nodes: list[bytes]) -> bool:
    try:
        registry.call("prove", number, b"", [(address, ALL, nodes)])
    except Reverted as reverted:
        return reverted.error == ("InvalidProof", address)
    return False


@pytest.mark.parametrize(("number", "block_hash", "header"), HEADERS)
def test_it_accumulates_headers_of_all_forms(registry, source, number, block_hash, header):
    source.send("set", number, _bytes(block_hash))
    receipt = registry.send("prove", number, _bytes(header), [])
    # After the prefix of the list (3 bytes): two hashes (33 each), an address (21), and the prefix of the root.
    state_root = _bytes(header)[3 + 33 + 33 + 21 + 1 :][:32]
    assert registry.logged(receipt) == [("HeaderAccumulated", number, state_root)]


@each_account
def test_it_proves_accounts_of_public_chains(registry, source, fixture):
    number, account = _accumulate(registry, source, fixture), fixture["account"]
    assert registry.call("stateRoot", number) == _bytes(fixture["stateRoot"])
    registry.send("prove", number, b"", [(account["address"], ALL, _nodes(fixture))])
    expected = account["expected"]
    assert [registry.call("accountField", account["address"], number, field) for field in range(4)] == [
        int(expected["nonce"], 16).to_bytes(32, "big"),
        int(expected["balance"], 16).to_bytes(32, "big"),
        _bytes(expected["storageRoot"]),
        # Nodes say the hash of no code where there is no account; the EVM says zero (EIP-1052), and so do we.
        _bytes(expected["codeHash"]) if expected["exists"] else bytes(32),
    ]


def test_it_proves_several_accounts_of_one_block_at_once(registry, source):
    fixtures = [fixture for fixture in WITH_ACCOUNT if fixture["name"].startswith("mainnet")]
    assert len(fixtures) > 1
    number = int(fixtures[0]["blockNumber"])
    source.send("set", number, _bytes(fixtures[0]["blockHash"]))
    proofs = [(fixture["account"]["address"], 2, _nodes(fixture)) for fixture in fixtures]
    registry.send("prove", number, _bytes(fixtures[0]["headerRlp"]), proofs)
    for fixture in fixtures:
        balance = int(fixture["account"]["expected"]["balance"], 16).to_bytes(32, "big")
        assert registry.call("accountField", fixture["account"]["address"], number, 1) == balance


@each_account
def test_it_refuses_every_cut_and_every_addition(registry, source, fixture):
    number, address, nodes = _accumulate(registry, source, fixture), fixture["account"]["address"], _nodes(fixture)
    assert not _refuses(registry, number, address, nodes)
    for place in range(len(nodes)):
        assert _refuses(registry, number, address, nodes[:place])
        assert _refuses(registry, number, address, nodes[place + 1 :])
        assert _refuses(registry, number, address, nodes[:place] + nodes[place + 1 :])
        assert _refuses(registry, number, address, [*nodes, nodes[place]])
        assert _refuses(registry, number, address, [*nodes[:place], nodes[place][:-1], *nodes[place + 1 :]])
        assert _refuses(registry, number, address, [*nodes[:place], nodes[place] + b"\x00", *nodes[place + 1 :]])
    for added in (b"", b"\x80"):
        assert _refuses(registry, number, address, [*nodes, added])


@each_account
def test_it_refuses_flipped_bits(registry, source, fixture):
    number, address, nodes = _accumulate(registry, source, fixture), fixture["account"]["address"], _nodes(fixture)
    chance = random.Random(fixture["name"])
    for _ in range(60):
        spoilt = [bytearray(node) for node in nodes]
        node = chance.choice(spoilt)
        node[chance.randrange(len(node))] ^= 1 << chance.randrange(8)
        assert _refuses(registry, number, address, [bytes(node) for node in spoilt])


@each_account
def test_it_refuses_the_proofs_of_other_accounts_and_other_blocks(registry, source, fixture):
    number, address = _accumulate(registry, source, fixture), fixture["account"]["address"]
    others = [other for other in WITH_ACCOUNT if other is not fixture]
    assert others
    for other in others:
        assert _refuses(registry, number, address, _nodes(other))


@each_account
def test_it_refuses_flipped_bits_in_headers(registry, source, fixture):
    number, header = int(fixture["blockNumber"]), _bytes(fixture["headerRlp"])
    source.send("set", number, _bytes(fixture["blockHash"]))
    for place in range(0, len(header), 37):
        spoilt = bytearray(header)
        spoilt[place] ^= 1
        with pytest.raises(Reverted) as reverted:
            registry.call("prove", number, bytes(spoilt), [])
        assert reverted.value.error == ("HeaderMismatch", number)


def test_the_library_proves_storage_slots_of_public_chains(harness):
    found = 0
    for fixture in WITH_ACCOUNT:
        root = _bytes(fixture["account"]["expected"]["storageRoot"])
        for slot in fixture["storage"]:
            key = keccak(int(slot["slot"], 16).to_bytes(32, "big"))
            nodes = [_bytes(node) for node in slot["proof"]]
            valid, value = harness.call("verify", root, key, nodes)
            assert valid
            assert harness.call("takeInteger", value) == (True, int(slot["value"], 16), b"")
            for cut in range(len(nodes)):
                assert harness.call("verify", root, key, nodes[:cut]) == (False, b"")
            found += 1
    assert found
