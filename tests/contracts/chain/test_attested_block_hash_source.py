import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from eth_account import Account
from eth_account.messages import encode_typed_data
from eth_account.signers.local import LocalAccount
from eth_utils.address import to_checksum_address

from devnet.devchain import DevChain
from tests.contracts.deployed import Deployed, Reverted

SOURCE_CHAIN_ID = 5
BLOCK = 1234
HASH = b"\x07" * 32
OTHER_HASH = b"\x08" * 32
THRESHOLD = 2

# The order of secp256k1.
ORDER = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141

BLOCK_HASH = {
    "BlockHash": [
        {"name": "sourceChainId", "type": "uint256"},
        {"name": "blockNumber", "type": "uint256"},
        {"name": "blockHash", "type": "bytes32"},
    ]
}
ATTESTER_SET = {
    "AttesterSet": [
        {"name": "attesters", "type": "address[]"},
        {"name": "threshold", "type": "uint256"},
        {"name": "nonce", "type": "uint256"},
    ]
}

# Sorted by address: attesters, and strangers before, between and after them.
PEOPLE = sorted((Account.from_key(bytes([n]) * 32) for n in range(1, 8)), key=lambda person: int(person.address, 16))
ALICE, BOB, CAROL = PEOPLE[1::2]
ATTESTERS = [ALICE, BOB, CAROL]
STRANGERS = PEOPLE[::2]


@pytest.fixture
def attested(chain) -> Deployed:
    """Return a source with three attesters, two of whom must agree."""
    return _deploy(chain)


def _deploy(chain: DevChain, attesters: Sequence[LocalAccount] = ATTESTERS, threshold: int = THRESHOLD) -> Deployed:
    return Deployed(chain, "AttestedBlockHashSource", SOURCE_CHAIN_ID, _addresses(attesters), threshold)


def _addresses(people: Sequence[LocalAccount]) -> list[str]:
    return [person.address.lower() for person in people]


def _domain(source: Deployed) -> dict[str, Any]:
    return {
        "name": "Batch Query Service Attestation",
        "version": "1",
        "chainId": source.chain.chain_id,
        "verifyingContract": source.address,
    }


def _sign(
    people: Sequence[LocalAccount], domain: dict[str, Any], types: dict[str, Any], message: dict[str, Any]
) -> bytes:
    return b"".join(bytes(person.sign_typed_data(domain, types, message).signature) for person in people)


def _signatures(
    source: Deployed, people: Sequence[LocalAccount], *, domain: dict[str, Any] | None = None, **changes: Any
) -> bytes:
    """Sign BLOCK and HASH. `changes` applies to the message, and `domain` to its domain."""
    message = {"sourceChainId": SOURCE_CHAIN_ID, "blockNumber": BLOCK, "blockHash": HASH, **changes}
    return _sign(people, {**_domain(source), **(domain or {})}, BLOCK_HASH, message)


def _set_signatures(
    source: Deployed, people: Sequence[LocalAccount], attesters: Sequence[str], threshold: int, nonce: int
) -> bytes:
    message = {"attesters": attesters, "threshold": threshold, "nonce": nonce}
    return _sign(people, _domain(source), ATTESTER_SET, message)


def _change(source: Deployed, signers: Sequence[LocalAccount], attesters: Sequence[str], threshold: int) -> Any:
    signatures = _set_signatures(source, signers, attesters, threshold, source.call("nonce"))
    return source.send("changeAttesters", attesters, threshold, signatures)


def _refuses(source: Deployed, signatures: bytes) -> tuple[Any, ...]:
    """Return the error when HASH is attested with these signatures."""
    with pytest.raises(Reverted) as reverted:
        source.send("attest", BLOCK, HASH, signatures)
    assert source.call("blockHash", BLOCK) == bytes(32)
    return reverted.value.error


# --- Properties -------------------------------------------------------------------------------------------------------


def test_a_new_source_tells_its_chain_attesters_and_threshold(chain):
    source = _deploy(chain)
    assert source.call("sourceChainId") == SOURCE_CHAIN_ID
    assert source.call("attesters") == tuple(_addresses(ATTESTERS))
    assert source.call("threshold") == THRESHOLD
    assert source.call("nonce") == 0
    assert source.call("blockHash", BLOCK) == bytes(32)
    assert [source.call("isAttester", person.address) for person in PEOPLE] == [
        person in ATTESTERS for person in PEOPLE
    ]


def test_the_eip_712_domain_is_described_as_wallets_expect_it(attested):
    fields, name, version, chain_id, contract, salt, extensions = attested.call("eip712Domain")
    # EIP-5267: one bit each for name, version, chainId and verifyingContract.
    assert fields == b"\x0f"
    domain = {"name": name, "version": version, "chainId": chain_id, "verifyingContract": to_checksum_address(contract)}
    assert domain == _domain(attested)
    assert (salt, extensions) == (bytes(32), ())


_ALICE, _BOB, _CAROL = _addresses(ATTESTERS)
_CROWD = [f"0x{number:040x}" for number in range(1, 102)]
WRONG_SETS = [
    pytest.param([], 0, "InvalidAttesters", id="nobody"),
    pytest.param([], 1, "InvalidAttesters", id="a threshold of nobody"),
    pytest.param([_BOB, _ALICE], 1, "InvalidAttesters", id="not in order"),
    pytest.param([_ALICE, _BOB, _BOB], 1, "InvalidAttesters", id="one twice"),
    pytest.param(["0x" + "00" * 20, _ALICE], 1, "InvalidAttesters", id="zero address"),
    pytest.param(_CROWD, 1, "InvalidAttesters", id="101 attesters"),
    pytest.param([_ALICE, _BOB], 0, "InvalidThreshold", id="threshold of zero"),
    pytest.param([_ALICE, _BOB], 3, "InvalidThreshold", id="threshold that all together miss"),
    pytest.param([_ALICE, _BOB], 2**256 - 1, "InvalidThreshold", id="largest threshold"),
]


@pytest.mark.parametrize(("attesters", "threshold", "error"), WRONG_SETS)
def test_a_source_with_an_invalid_attester_set_cannot_be_deployed(chain, attesters, threshold, error):
    with pytest.raises(Reverted) as reverted:
        Deployed(chain, "AttestedBlockHashSource", SOURCE_CHAIN_ID, attesters, threshold)
    assert reverted.value.error == (error,)


# --- Attesting --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("people", [*itertools.combinations(ATTESTERS, 2), ATTESTERS], ids=["AB", "AC", "BC", "ABC"])
def test_enough_attesters_make_a_hash_known(attested, people):
    receipt = attested.send("attest", BLOCK, HASH, _signatures(attested, people))
    assert attested.logged(receipt) == [("BlockAttested", BLOCK, HASH)]
    assert attested.call("blockHash", BLOCK) == HASH
    assert [attested.call("blockHash", number) for number in (0, BLOCK - 1, BLOCK + 1)] == [bytes(32)] * 3


@pytest.mark.parametrize("number", [0, 2**64, 2**256 - 1])
def test_any_number_can_be_attested(attested, number):
    attested.send("attest", number, HASH, _signatures(attested, [ALICE, BOB], blockNumber=number))
    assert attested.call("blockHash", number) == HASH


def test_the_source_chain_is_part_of_what_is_signed(chain):
    source = Deployed(chain, "AttestedBlockHashSource", 2**256 - 1, _addresses(ATTESTERS), THRESHOLD)
    assert _refuses(source, _signatures(source, [ALICE, BOB]))[0] == "NotAnAttester"
    source.send("attest", BLOCK, HASH, _signatures(source, [ALICE, BOB], sourceChainId=2**256 - 1))
    assert source.call("blockHash", BLOCK) == HASH


def test_one_of_one_suffices_and_a_hundred_of_a_hundred_can_sign(chain):
    crowd = sorted(
        (Account.from_key(number.to_bytes(32)) for number in range(1, 101)), key=lambda person: int(person.address, 16)
    )
    for people in (crowd[:1], crowd):
        source = _deploy(chain, people, len(people))
        source.send("attest", BLOCK, HASH, _signatures(source, people))
        assert source.call("blockHash", BLOCK) == HASH
    assert _refuses(_deploy(chain, crowd, 100), bytes(65 * 99)) == ("TooFewSignatures", 99, 100)


@pytest.mark.parametrize("people", [[], [ALICE], [CAROL]], ids=["none", "A", "C"])
def test_too_few_attesters_make_nothing_known(attested, people):
    assert _refuses(attested, _signatures(attested, people)) == ("TooFewSignatures", len(people), THRESHOLD)


@pytest.mark.parametrize(
    "changes",
    [
        {"sourceChainId": SOURCE_CHAIN_ID + 1},
        {"blockNumber": BLOCK + 1},
        {"blockHash": OTHER_HASH},
        {"domain": {"chainId": 1}},
        {"domain": {"verifyingContract": "0x" + "c0" * 20}},
        {"domain": {"name": "Batch Query Service"}},
        {"domain": {"version": "2"}},
    ],
    ids=str,
)
def test_a_signature_of_something_else_is_nobodys(attested, changes):
    name, signer = _refuses(attested, _signatures(attested, [ALICE, BOB], **changes))
    assert name == "NotAnAttester"
    assert signer not in _addresses(PEOPLE)


def _with_high_s(signature: bytes) -> bytes:
    """Return the second valid signature of the curve for the same key and message."""
    return signature[:32] + (ORDER - int.from_bytes(signature[32:64])).to_bytes(32) + bytes([27 + 28 - signature[64]])


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(_with_high_s, id="high s"),
        pytest.param(lambda signature: signature[:64] + bytes([signature[64] - 27]), id="v of 0 or 1"),
        pytest.param(lambda signature: signature[:64] + b"\x1d", id="v of 29"),
        pytest.param(lambda signature: signature[:64] + b"\xff", id="v of 255"),
        pytest.param(lambda signature: bytes(32) + signature[32:], id="r of zero"),
        pytest.param(lambda signature: signature[:32] + bytes(32) + signature[64:], id="s of zero"),
        pytest.param(lambda signature: ORDER.to_bytes(32) + signature[32:], id="r of the order"),
        pytest.param(lambda _: bytes(65), id="zeros"),
    ],
)
@pytest.mark.parametrize("index", [0, 1])
def test_an_invalid_signature_is_refused_with_its_index(attested, index, spoil):
    signatures = [_signatures(attested, [person]) for person in (ALICE, BOB)]
    signatures[index] = spoil(signatures[index])
    assert _refuses(attested, b"".join(signatures)) == ("InvalidSignature", index)


def test_the_largest_s_is_half_of_the_order(attested):
    # Any r and s are the signature of some address. Such addresses are the attesters here.
    r = _signatures(attested, [ALICE])[:32]
    highest, too_high = (r + s.to_bytes(32) + b"\x1b" for s in (ORDER // 2, ORDER // 2 + 1))
    message = {"sourceChainId": SOURCE_CHAIN_ID, "blockNumber": BLOCK, "blockHash": HASH}
    signable = encode_typed_data(_domain(attested), BLOCK_HASH, message)
    signers = {Account.recover_message(signable, signature=signature).lower() for signature in (highest, too_high)}
    _change(attested, ATTESTERS, sorted(signers), 1)

    assert _refuses(attested, too_high) == ("InvalidSignature", 0)
    attested.send("attest", BLOCK, HASH, highest)
    assert attested.call("blockHash", BLOCK) == HASH


@pytest.mark.parametrize("size", [1, 64, 66, 129, 131, 194])
def test_signatures_of_another_length_are_refused(attested, size):
    assert _refuses(attested, _signatures(attested, ATTESTERS)[:size]) == ("InvalidLength",)


def test_attesting_again_changes_nothing(attested):
    attested.send("attest", BLOCK, HASH, _signatures(attested, [ALICE, BOB]))
    receipt = attested.send("attest", BLOCK, HASH, _signatures(attested, [BOB, CAROL]))
    assert attested.logged(receipt) == []
    assert attested.call("blockHash", BLOCK) == HASH


@pytest.mark.parametrize("other", [OTHER_HASH, b"\x06" * 32], ids=["higher", "lower"])
def test_another_hash_of_a_known_block_is_a_conflict(attested, other):
    attested.send("attest", BLOCK, HASH, _signatures(attested, [ALICE, BOB]))
    assert attested.refusal("attest", BLOCK, other, _signatures(attested, ATTESTERS, blockHash=other)) == (
        "Conflict",
        BLOCK,
    )
    assert attested.call("blockHash", BLOCK) == HASH


def test_the_hash_of_zero_cannot_be_attested(attested):
    assert attested.refusal("attest", BLOCK, bytes(32), _signatures(attested, ATTESTERS, blockHash=bytes(32))) == (
        "ZeroHash",
    )


def test_a_chain_that_gets_another_id_takes_signatures_for_that_id_alone():
    with DevChain() as chain:
        source = _deploy(chain)
        before = _signatures(source, [ALICE, BOB])
        chain.rpc("anvil_setChainId", 4711)
        assert _refuses(source, before)[0] == "NotAnAttester"
        # A call, because anvil still signs transactions for its first chain id.
        source.call("attest", BLOCK, HASH, _signatures(source, [ALICE, BOB], domain={"chainId": 4711}))
        assert source.call("eip712Domain")[3] == 4711


def test_asking_for_a_hash_costs_one_cold_read(attested):
    attested.send("attest", BLOCK, HASH, _signatures(attested, [ALICE, BOB]))
    data = attested.calldata("blockHash", BLOCK)
    zeros = data.count(0)
    used = int(attested.send("blockHash", BLOCK)["gasUsed"], 16)
    # Calldata gas: EIP-2028. A cold read costs 2,100 (EIP-2929).
    assert 2_100 < used - 21_000 - 4 * zeros - 16 * (len(data) - zeros) < 2_500


# --- Other attesters --------------------------------------------------------------------------------------------------


def test_the_attesters_can_hand_over_to_others(attested):
    attested.send("attest", BLOCK, HASH, _signatures(attested, [ALICE, BOB]))
    others = [STRANGERS[0], CAROL, STRANGERS[3]]
    receipt = _change(attested, [ALICE, CAROL], _addresses(others), 3)
    assert attested.logged(receipt) == [("AttestersChanged", tuple(_addresses(others)), 3)]
    assert attested.call("attesters") == tuple(_addresses(others))
    assert (attested.call("threshold"), attested.call("nonce")) == (3, 1)
    assert [attested.call("isAttester", person.address) for person in PEOPLE] == [person in others for person in PEOPLE]

    assert attested.call("blockHash", BLOCK) == HASH
    attested.send("attest", BLOCK + 1, HASH, _signatures(attested, others, blockNumber=BLOCK + 1))
    assert attested.call("blockHash", BLOCK + 1) == HASH


@pytest.mark.parametrize("count", [1, 2, 4, 7])
def test_nobody_stays_when_fewer_or_more_take_over(attested, count):
    for others, signers in ((PEOPLE[:count], ATTESTERS), (PEOPLE[-1:], PEOPLE[:count])):
        _change(attested, signers, _addresses(others), 1)
        assert attested.call("attesters") == tuple(_addresses(others))
        assert [person for person in PEOPLE if attested.call("isAttester", person.address)] == list(others)
    assert attested.call("nonce") == 2


def test_signatures_of_those_who_left_count_for_nothing(attested):
    before = _signatures(attested, [ALICE, BOB])
    _change(attested, [ALICE, BOB], _addresses([BOB, CAROL]), 2)
    assert _refuses(attested, before) == ("NotAnAttester", _ALICE)
    with pytest.raises(Reverted) as reverted:
        _change(attested, [ALICE, BOB], _addresses([ALICE, BOB]), 1)
    assert reverted.value.error == ("NotAnAttester", _ALICE)


def test_a_change_cannot_be_made_again_once_it_was_undone(attested):
    change = (_addresses([ALICE, BOB]), 1)
    signatures = _set_signatures(attested, [ALICE, BOB], *change, 0)
    attested.send("changeAttesters", *change, signatures)
    _change(attested, [ALICE, BOB], _addresses(ATTESTERS), THRESHOLD)
    assert attested.refusal("changeAttesters", *change, signatures)[0] == "NotAnAttester"
    assert attested.call("attesters") == tuple(_addresses(ATTESTERS))


@pytest.mark.parametrize(
    ("attesters", "threshold"),
    [(_addresses([ALICE, CAROL]), 2), (_addresses([ALICE, BOB, CAROL]), 2), (_addresses([ALICE, BOB]), 1)],
    ids=["another member", "one more member", "another threshold"],
)
def test_only_the_change_that_was_signed_is_made(attested, attesters, threshold):
    signatures = _set_signatures(attested, ATTESTERS, _addresses([ALICE, BOB]), 2, 0)
    assert attested.refusal("changeAttesters", attesters, threshold, signatures)[0] == "NotAnAttester"


# --- At each index ----------------------------------------------------------------------------------------------------

# Sorted by address: twelve attesters, and a stranger before, between and after them.
CROWD = sorted((Account.from_key(bytes([n]) * 32) for n in range(20, 45)), key=lambda person: int(person.address, 16))
TWELVE = CROWD[1::2]


def _spoilt(members: Sequence[Any]) -> Iterator[tuple[list[Any], Any]]:
    """Yield lists with a doubled member, or two swapped ones, at each index, with the first member that is out of
    order.
    """
    for index, member in enumerate(members):
        yield [*members[: index + 1], *members[index:]], member
        if index:
            before = members[index - 1]
            yield [*members[: index - 1], member, before, *members[index + 1 :]], before


def test_signers_are_compared_at_each_place(chain):
    source = _deploy(chain, TWELVE, 9)
    signatures = {person.address: _signatures(source, [person]) for person in CROWD}

    def joined(people: Sequence[LocalAccount]) -> bytes:
        return b"".join(signatures[person.address] for person in people)

    for people, misplaced in _spoilt(TWELVE):
        assert _refuses(source, joined(people)) == ("WrongOrder", misplaced.address.lower())
    for index, stranger in enumerate(CROWD[::2]):
        refused = _refuses(source, joined([*TWELVE[:index], stranger, *TWELVE[index:]]))
        assert refused == ("NotAnAttester", stranger.address.lower())
    source.send("attest", BLOCK, HASH, joined(TWELVE))
    assert source.call("blockHash", BLOCK) == HASH


def test_members_are_compared_at_each_place(chain):
    source = _deploy(chain, [ALICE], 1)
    for wrong, _ in _spoilt(_addresses(TWELVE)):
        for use in (
            lambda wrong=wrong: Deployed(chain, "AttestedBlockHashSource", SOURCE_CHAIN_ID, wrong, 9),
            lambda wrong=wrong: _change(source, [ALICE], wrong, 9),
        ):
            with pytest.raises(Reverted) as reverted:
                use()
            assert reverted.value.error == ("InvalidAttesters",)
    _change(source, [ALICE], _addresses(TWELVE), 9)
