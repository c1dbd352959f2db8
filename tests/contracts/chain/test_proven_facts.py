"""Each function of the package's `ProvenFacts`, over mocks of the registry and the reader."""

import pytest
from eth_abi.abi import encode
from eth_utils.crypto import keccak

from tests.contracts.deployed import Deployed, Reverted

CHAIN, BLOCK = 10, 5
ACCOUNT, EMITTER, NOBODY = "0x" + "a1" * 20, "0x" + "e2" * 20, "0x" + "00" * 19 + "09"
NONCE, BALANCE, STORAGE_ROOT, CODE_HASH = 2**64 - 1, 10**18, b"\1" * 32, b"\2" * 32
SLOT, VALUE = b"\7" * 32, b"\x08" * 32
TOPICS, DATA = [b"\3" * 32, b"\4" * 32], b"some data"
# The mock looks at no proof, but it has a byte.
PROOF = b"\xc0"


@pytest.fixture(scope="module")
def facts(chain) -> Deployed:
    facts = Deployed(chain, "test/FactsMock", CHAIN)
    facts.send("setStateRoot", BLOCK, b"\5" * 32)
    facts.send("setAccount", BLOCK, ACCOUNT, NONCE, BALANCE, STORAGE_ROOT, CODE_HASH)
    facts.send("setSlot", BLOCK, ACCOUNT, SLOT, VALUE)
    facts.send("setSlot", BLOCK, ACCOUNT, mapping_slot(3, NOBODY), (77).to_bytes(32))
    for field in (5, 11, 13):
        facts.send("setHeaderField", BLOCK, field, (field + 100).to_bytes(32))
    facts.send("setLog", BLOCK, 1, 2, EMITTER, TOPICS, DATA)
    facts.send("setLog", BLOCK, 1, 3, EMITTER, [], DATA)
    return facts


@pytest.fixture(scope="module")
def reader(chain, facts) -> Deployed:
    return Deployed(chain, "test/FactsReaderMock", [facts.address])


@pytest.fixture(scope="module")
def user(chain) -> Deployed:
    return Deployed(chain, "test/ProvenFactsUser")


def mapping_slot(slot: int, key: str) -> bytes:
    return keccak(encode(["address", "uint256"], [key, slot]))


def refusal(user: Deployed, function: str, *arguments: object) -> tuple[object, ...]:
    with pytest.raises(Reverted) as reverted:
        user.call(function, *arguments)
    return reverted.value.error


def test_the_places_of_header_fields(user):
    assert user.call("headerPlaces") == (0, 2, 3, 5, 11, 13, 15)
    assert user.call("placesByHeaders") == (0, 3, 4, 5, 6, 8, 11, 12, 19)


@pytest.mark.parametrize("required", [CHAIN - 1, CHAIN + 1, 0])
def test_another_source_chain_is_refused(user, facts, reader, required):
    assert refusal(user, "requireChainOfRegistry", facts.address, required) == ("WrongSourceChain", required, CHAIN)
    assert refusal(user, "requireChainOfReader", reader.address, required) == ("UnknownSourceChain", required)


def test_the_source_chain_is_accepted(user, facts, reader):
    user.call("requireChainOfRegistry", facts.address, CHAIN)
    user.call("requireChainOfReader", reader.address, CHAIN)


def test_an_account_is_read(user, facts):
    assert user.call("accountFields", facts.address, ACCOUNT, BLOCK) == (BALANCE, NONCE, CODE_HASH, STORAGE_ROOT)


@pytest.mark.parametrize("required", [0, BALANCE - 1, BALANCE])
def test_a_balance_that_suffices_is_returned(user, facts, reader, required):
    assert user.call("requireBalanceAt", facts.address, ACCOUNT, BLOCK, required) == BALANCE
    shown = (reader.address, CHAIN, BLOCK, ACCOUNT, required, PROOF)
    assert user.call("requireBalanceByProof", *shown) == BALANCE


@pytest.mark.parametrize("required", [BALANCE + 1, 2**256 - 1])
def test_a_lower_balance_is_refused(user, facts, reader, required):
    told = ("BalanceTooLow", ACCOUNT, BLOCK, required, BALANCE)
    assert refusal(user, "requireBalanceAt", facts.address, ACCOUNT, BLOCK, required) == told
    shown = (reader.address, CHAIN, BLOCK, ACCOUNT, required, PROOF)
    assert refusal(user, "requireBalanceByProof", *shown) == told


def test_a_slot_is_read_and_required(user, facts, reader):
    assert user.call("slotAt", facts.address, ACCOUNT, BLOCK, SLOT) == VALUE
    user.call("requireSlotAt", facts.address, ACCOUNT, BLOCK, SLOT, VALUE)
    user.call("requireSlotByProof", reader.address, CHAIN, BLOCK, ACCOUNT, SLOT, VALUE, PROOF)


@pytest.mark.parametrize("required", [bytes(32), b"\x07" * 32, b"\x09" * 32])
def test_another_value_of_a_slot_is_refused(user, facts, reader, required):
    told = ("SlotDiffers", ACCOUNT, BLOCK, SLOT, required, VALUE)
    assert refusal(user, "requireSlotAt", facts.address, ACCOUNT, BLOCK, SLOT, required) == told
    shown = (reader.address, CHAIN, BLOCK, ACCOUNT, SLOT, required, PROOF)
    assert refusal(user, "requireSlotByProof", *shown) == told


def test_the_slots_of_mappings_and_arrays(user):
    slot, number = (3).to_bytes(32), b"\6" * 32
    key = bytes(12) + bytes.fromhex(ACCOUNT[2:])
    assert user.call("mappingSlots", 3, ACCOUNT, number) == (
        keccak(key + slot),
        keccak(number + slot),
        keccak(slot + key),
        keccak(slot + number),
    )
    seed = 0x87A211A2
    assert user.call("soladySlot", seed, ACCOUNT) == keccak(key[12:] + seed.to_bytes(12))
    first = int.from_bytes(keccak(slot))
    for index, each in ((0, 1), (7, 1), (7, 3), (2**256 - 1, 2)):
        assert user.call("arraySlot", 3, index, each) == ((first + index * each) % 2**256).to_bytes(32)


@pytest.mark.parametrize(("offset", "size"), [(0, 256), (0, 8), (248, 8), (8, 96), (96, 160), (255, 1)])
@pytest.mark.parametrize("word", [2**256 - 1, int.from_bytes(keccak(b"word")), 1 << 103])
def test_a_part_of_a_word_is_read(user, word, offset, size):
    value = word >> offset & 2**size - 1
    signed = value - 2**size if value >> size - 1 else value
    assert user.call("parts", word.to_bytes(32), offset, size) == (value, signed)


def test_the_time_and_the_randomness_of_a_block(user, facts):
    assert user.call("headerOf", facts.address, BLOCK) == (111, (113).to_bytes(32))


def test_a_value_in_a_mapping_is_shown(user, reader):
    asked = ("mappingValueByProof", reader.address, CHAIN, BLOCK, ACCOUNT, 3, NOBODY, PROOF)
    assert user.call(*asked) == 77


def test_a_log_is_required(user, facts, reader):
    user.call("requireLog", facts.address, BLOCK, 1, 2, EMITTER, TOPICS, DATA)
    place = (CHAIN, BLOCK, 1, 2)
    assert user.call("requireLogByProof", reader.address, place, EMITTER, TOPICS[0], PROOF) == (tuple(TOPICS), DATA)


LOG_HASH = keccak(bytes(12) + bytes.fromhex(EMITTER[2:]) + b"".join(TOPICS) + keccak(DATA))


@pytest.mark.parametrize(
    ("emitter", "topics", "data"),
    [(ACCOUNT, TOPICS, DATA), (EMITTER, TOPICS[:1], DATA), (EMITTER, TOPICS[::-1], DATA), (EMITTER, TOPICS, b"other")],
)
def test_another_log_is_refused(user, facts, emitter, topics, data):
    name, *told, required, value = refusal(user, "requireLog", facts.address, BLOCK, 1, 2, emitter, topics, data)
    assert (name, told, value) == ("LogHashDiffers", [BLOCK, 1, 2], LOG_HASH)
    assert required == keccak(bytes(12) + bytes.fromhex(emitter[2:]) + b"".join(topics) + keccak(data))


@pytest.mark.parametrize(
    ("log", "emitter", "topic", "first"),
    [
        pytest.param(2, ACCOUNT, TOPICS[0], TOPICS[0], id="another, greater emitter"),
        pytest.param(2, "0x" + "ff" * 20, TOPICS[0], TOPICS[0], id="another, lower emitter"),
        pytest.param(2, EMITTER, TOPICS[1], TOPICS[0], id="its second topic"),
        pytest.param(2, EMITTER, bytes(32), TOPICS[0], id="a topic of zero"),
        pytest.param(3, EMITTER, TOPICS[0], bytes(32), id="a log without topics"),
        pytest.param(3, EMITTER, bytes(32), bytes(32), id="a log without topics, for zero"),
    ],
)
def test_a_shown_log_of_another_contract_or_event_is_refused(user, reader, log, emitter, topic, first):
    asked = ("requireLogByProof", reader.address, (CHAIN, BLOCK, 1, log), emitter, topic, PROOF)
    assert refusal(user, *asked) == ("LogDiffers", EMITTER, first)
