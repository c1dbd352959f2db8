"""Bundles are verified against a trusted block hash by code that shares nothing with the service's."""

import json
import re
from typing import Any

import pytest
import rlp
from hypothesis import given, settings
from hypothesis import strategies as st

from batch_query_client import (
    InvalidBundle,
    VerifiedBundle,
    WrongChain,
    bundle_block,
    verify_bundle,
    verify_bundle_by_node,
)
from devnet.devchain import DevChain
from tests.client.forged_bundles import OF_ONE_QUERY
from tests.explorer.batches import everything, path, said_of, word

pytestmark = [pytest.mark.django_db, pytest.mark.outside]

# Of a chain that a test has started: what the service offers, and what a node of one's own says.
_REMEMBERED: dict[str, Any] = {}


@pytest.fixture
def bundles(request: pytest.FixtureRequest) -> dict[int, dict[str, Any]]:
    """By the query's number: 1 an account, 2 slots, 3 a header, 4 an account at a time. Proven once for all tests."""
    if not _REMEMBERED:
        service = request.getfixturevalue("service")
        client = request.getfixturevalue("client")
        batch = everything(service)
        _REMEMBERED["bundles"] = {n: client.get(f"{path(batch)}/{n}/bundle.json").json() for n in range(1, 5)}
        blocks = [service.rpc("eth_getBlockByNumber", hex(number), False) for number in range(service.head() + 1)]
        _REMEMBERED["hashes"] = [block["hash"] for block in blocks]
    found: dict[int, dict[str, Any]] = _REMEMBERED["bundles"]
    return found


def hash_of(number: int) -> str:
    found: str = _REMEMBERED["hashes"][number]
    return found


def verify(bundle: dict[str, Any], number: int | None = None) -> VerifiedBundle:
    """By the hashes that the chain itself told."""
    at = int(bundle["blockNumber"]) if number is None else number
    return verify_bundle(json.dumps(bundle), block_hash=hash_of(at), next_block_hash=hash_of(at + 1))


@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_what_the_service_offers_holds_and_says_what_its_own_verifier_says(bundles, number):
    mine = verify(bundles[number])
    theirs = said_of(json.dumps(bundles[number]))
    told = dict(re.findall(r"^  ([A-Z_]+) +(0x[0-9a-f]{64})", theirs, re.MULTILINE))
    assert {name: f"0x{shown.hex()}" for name, shown in mine.facts.items()} == told
    for slot, shown in mine.slots.items():
        assert f"slot {int(slot, 16):#x}: 0x{shown.hex()}" in theirs
    assert (mine.account or "the block's header") in theirs
    assert mine.exists == (mine.account is not None)
    assert f"  block    {mine.block_number}\n" in theirs
    assert (f"at the time {mine.timestamp}" in theirs) == (mine.timestamp is not None)
    assert bundle_block(json.dumps(bundles[number])) == (31337, mine.block_number)


def test_a_time_is_shown_only_by_the_hash_of_the_next_block(bundles):
    bundle = bundles[4]
    number = int(bundle["blockNumber"])
    alone = verify_bundle(json.dumps(bundle), block_hash=hash_of(number))
    assert (alone.timestamp, alone.claimed_timestamp) == (None, int(bundle["timestamp"]))
    assert verify(bundle | {"nextHeader": None}).timestamp is None
    assert verify(bundle).timestamp == int(bundle["timestamp"])


def test_the_next_block_is_the_one_that_the_caller_knows(bundles):
    bundle = bundles[4]
    number = int(bundle["blockNumber"])
    with pytest.raises(InvalidBundle, match="nextHeader is of a block with another hash than yours"):
        verify_bundle(json.dumps(bundle), block_hash=hash_of(number), next_block_hash=hash_of(number + 2))
    # Without a hash to compare with it shows nothing, but must not contradict the block either.
    of_another = rlp.encode([b"\1" * 32, *rlp.decode(bytes.fromhex(bundle["nextHeader"][2:]))[1:]])
    with pytest.raises(InvalidBundle, match="not that of the block after it"):
        verify_bundle(json.dumps(bundle | {"nextHeader": f"0x{of_another.hex()}"}), block_hash=hash_of(number))


@pytest.mark.parametrize("name", OF_ONE_QUERY)
def test_no_forgery_holds(bundles, name):
    number, change = OF_ONE_QUERY[name]
    bundle = bundles[number]
    with pytest.raises(InvalidBundle, match=r"\.$"):
        verify(bundle | change(bundle), int(bundle["blockNumber"]))


def test_the_hash_that_counts_is_the_caller_s(bundles):
    with pytest.raises(InvalidBundle, match="another hash than yours"):
        verify_bundle(json.dumps(bundles[1]), block_hash=hash_of(1))
    for wrong in ("", "0x12", "no hash", b"x"):
        with pytest.raises(InvalidBundle, match="32 bytes"):
            verify_bundle(json.dumps(bundles[1]), block_hash=wrong)


@pytest.mark.parametrize("content", [b"{", b"[" * 1_000_000, b"[]", b"{}", b"", b"\xff", b'{"format": "facts-2"}'])
def test_what_is_no_bundle_is_said_in_a_sentence(content):
    with pytest.raises(InvalidBundle, match=r"^The (file|bundle).*\.$"):
        verify_bundle(content, block_hash=word(0))


def test_no_flip_of_a_byte_shows_another_fact(bundles):
    """A bundle with a flipped byte, wherever it is, is refused or shows the same."""
    bundle, at = bundles[2], int(bundles[2]["blockNumber"])
    told = verify(bundle)
    places = [
        ("header", None),
        *((name, n) for name in ("accountProof", "storageNodes") for n in range(len(bundle[name]))),
    ]

    @settings(max_examples=300, deadline=None, derandomize=True)
    @given(st.sampled_from(places), st.integers(0, 10_000), st.integers(1, 255))
    def flip(place: tuple[str, int | None], offset: int, mask: int) -> None:
        name, number = place
        changed = bytearray(bytes.fromhex((bundle[name] if number is None else bundle[name][number])[2:]))
        changed[offset % len(changed)] ^= mask
        text = f"0x{changed.hex()}"
        value = text if number is None else [*bundle[name][:number], text, *bundle[name][number + 1 :]]
        try:
            assert verify(bundle | {name: value}, at) == told
        except InvalidBundle:
            return
        raise AssertionError(f"a flip in {place} was not noticed")

    flip()


def test_a_node_of_one_s_own_tells_the_hashes(bundles, chain: DevChain):
    # Another chain than the one of the bundles, by the same id.
    chain.mine(int(bundles[4]["blockNumber"]) + 5)
    with pytest.raises(InvalidBundle, match=rf"knows another block {bundles[1]['blockNumber']} than the bundle is of"):
        verify_bundle_by_node(json.dumps(bundles[1]), chain.url)
    with pytest.raises(WrongChain, match="is one of chain 31337, not of chain 5"):
        verify_bundle_by_node(json.dumps(bundles[1] | {"sourceChainId": "5"}), chain.url)
