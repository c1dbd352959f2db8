"""The parts of the client's verifier, beside the service's."""

import contextlib

import pytest
import rlp
from eth_utils.crypto import keccak
from hypothesis import given, settings
from hypothesis import strategies as st
from trie import HexaryTrie

from batch_query_client import InvalidBundle
from batch_query_client import trie_proof as ours
from batch_query_client.block_header import decode
from chains import trie
from chains.header import ExecutionHeader, InvalidHeader
from proving import facts
from tests import headers

FORMS = {
    **headers.ETHEREUM,
    **headers.OTHERS,
}


def state(count: int) -> HexaryTrie:
    """A trie of so many accounts, whose addresses are their numbers."""
    made = HexaryTrie({})
    for number in range(count):
        made[keccak(number.to_bytes(20))] = rlp.encode([number, 10**18 * number, ours.EMPTY_ROOT, keccak(b"")])
    return made


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.integers(0, 40), st.integers(0, 60), st.data())
def test_of_any_trie_ours_and_the_service_s_verifier_tell_the_same(count, asked, data):
    """The proofs are whole, lack a node, have one twice, or have nodes of another account."""
    made, address = state(count), asked.to_bytes(20)
    proof = [rlp.encode(node) for node in made.get_proof(keccak(address))]
    others = [rlp.encode(node) for node in made.get_proof(keccak((asked + 1).to_bytes(20)))]
    kept = [node for node in proof for _ in range(data.draw(st.sampled_from([1, 1, 1, 1, 0, 2])))]
    given = data.draw(st.sampled_from([proof, kept, [*proof, *others], others]))
    outcomes: list[object] = []
    for verify_account, refusal in ((ours.account, InvalidBundle), (trie.verify_account, trie.InvalidProof)):
        try:
            found = verify_account(made.root_hash, address, given)
            outcomes.append((found.exists, found.nonce, found.balance, found.storage_root, found.code_hash))
        except refusal:
            outcomes.append("refused")
    assert outcomes[0] == outcomes[1]
    if given == proof:
        assert outcomes[0] != "refused"


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_headers_of_all_chains_are_read_as_the_service_reads_them(form):
    encoded = headers.encode(form)
    mine, theirs = decode(encoded), ExecutionHeader.decode(encoded)
    assert (mine.hash, mine.number, mine.timestamp) == (theirs.hash, theirs.number, theirs.timestamp)
    assert (mine.state_root, mine.parent_hash) == (theirs.state_root, theirs.parent_hash)
    assert mine.words == {field.name: word for field, word in facts.header_words(theirs).items()}


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.lists(st.binary(max_size=300), max_size=25))
def test_what_ours_takes_for_a_header_theirs_does(fields):
    encoded = rlp.encode(fields)
    try:
        mine = decode(encoded)
    except InvalidBundle:
        return
    with contextlib.suppress(InvalidHeader):  # Such as one without a state root.
        assert ExecutionHeader.decode(encoded).state_root == mine.state_root
