import pytest
import rlp
from eth_utils.crypto import keccak

from chains.devchain import ACCOUNTS
from chains.header import Header
from chains.trie import verify_account
from tests.contracts import tries
from tests.contracts.conftest import SOURCE_CHAIN_ID
from tests.contracts.deployed import Deployed, Reverted

NONCE, BALANCE, STORAGE_ROOT, CODE_HASH = range(4)
FIELDS = (NONCE, BALANCE, STORAGE_ROOT, CODE_HASH)
ALL = 0b1111

BLOCK = 1234
ALICE = "0x" + "a1" * 20
BOB = "0x" + "b0" * 20


def _mask(*fields: int) -> int:
    return sum(1 << field for field in fields)


def _word(value: int | bytes) -> bytes:
    return value if isinstance(value, bytes) else value.to_bytes(32, "big")


def _key(address: str) -> bytes:
    return keccak(bytes.fromhex(address[2:]))


def _plant(source: Deployed, state_root: bytes, number: int = BLOCK) -> bytes:
    """The header of a block with that state, which the source vouches for from now on."""
    header = tries.header(number, state_root)
    source.send("set", number, keccak(header))
    return header


def _plant_account(source: Deployed, leaf: bytes, address: str = ALICE) -> tuple[bytes, list[bytes]]:
    """The header and the proof of a state that holds one account, with that leaf."""
    node = tries.leaf(_key(address), leaf)
    return _plant(source, keccak(node)), [node]


def _readable(registry: Deployed, address: str = ALICE, number: int = BLOCK) -> set[int]:
    return {field for field in FIELDS if registry.call("tryAccountField", address, number, field)[0]}


# --- Reads ------------------------------------------------------------------------------------------------------------


def test_it_tells_its_source_chain_and_its_block_hash_source(registry, source):
    assert registry.call("sourceChainId") == SOURCE_CHAIN_ID
    assert registry.call("blockHashSource") == source.address.lower()


def test_account_field_has_the_selector_that_clients_know(registry, source):
    header, nodes = _plant_account(source, tries.account(balance=77))
    registry.send("prove", BLOCK, header, [(ALICE, _mask(BALANCE), nodes)])
    arguments = [bytes(12) + bytes.fromhex(ALICE[2:]), _word(BLOCK), _word(BALANCE)]
    assert registry.call_raw(bytes.fromhex("7177899b") + b"".join(arguments)) == _word(77)


@pytest.mark.parametrize("field", FIELDS)
def test_what_nobody_proved_is_an_error_that_names_it(registry, field):
    with pytest.raises(Reverted) as reverted:
        registry.call("accountField", ALICE, BLOCK, field)
    assert reverted.value.error == ("NotProven", ALICE, BLOCK, field)
    assert registry.call("tryAccountField", ALICE, BLOCK, field) == (False, bytes(32))


@pytest.mark.parametrize("function", ["accountField", "tryAccountField"])
@pytest.mark.parametrize("field", [4, 255])
def test_a_field_that_does_not_exist_is_an_error(registry, source, function, field):
    header, nodes = _plant_account(source, tries.account())
    registry.send("prove", BLOCK, header, [(ALICE, ALL, nodes)])
    with pytest.raises(Reverted):
        registry.call(function, ALICE, BLOCK, field)


@pytest.mark.parametrize("balance", [0, 1, 2**184 - 1, 2**184, 2**184 + 1, 2**255, 2**256 - 2, 2**256 - 1])
@pytest.mark.parametrize("nonce", [0, 1, 2**64 - 1])
def test_every_nonce_and_balance_reads_back_exactly(registry, source, nonce, balance):
    header, nodes = _plant_account(source, tries.account(nonce, balance, b"\x01" * 32, b"\x02" * 32))
    registry.send("prove", BLOCK, header, [(ALICE, ALL, nodes)])
    expected = {NONCE: nonce, BALANCE: balance, STORAGE_ROOT: b"\x01" * 32, CODE_HASH: b"\x02" * 32}
    for field, value in expected.items():
        assert registry.call("accountField", ALICE, BLOCK, field) == _word(value)
        assert registry.call("tryAccountField", ALICE, BLOCK, field) == (True, _word(value))


@pytest.mark.parametrize("balance", [0, 10**18], ids=["zero", "one ether"])
@pytest.mark.parametrize("field", FIELDS)
def test_reading_a_fact_costs_one_cold_read(registry, source, field, balance):
    header, nodes = _plant_account(source, tries.account(1, balance))
    registry.send("prove", BLOCK, header, [(ALICE, ALL, nodes)])
    data = registry.calldata("accountField", ALICE, BLOCK, field)
    zeros = data.count(0)
    used = int(registry.send("accountField", ALICE, BLOCK, field)["gasUsed"], 16)
    # EIP-2028 for the calldata; a cold read is 2,100 (EIP-2929).
    assert 2_100 < used - 21_000 - 4 * zeros - 16 * (len(data) - zeros) < 2_900


# --- What is stored ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "readable"),
    [
        ({NONCE}, {NONCE, BALANCE}),
        ({BALANCE}, {NONCE, BALANCE}),
        ({STORAGE_ROOT}, {STORAGE_ROOT}),
        ({CODE_HASH}, {CODE_HASH}),
        ({BALANCE, CODE_HASH}, {NONCE, BALANCE, CODE_HASH}),
        ({STORAGE_ROOT, CODE_HASH}, {STORAGE_ROOT, CODE_HASH}),
        ({NONCE, BALANCE, STORAGE_ROOT, CODE_HASH}, {NONCE, BALANCE, STORAGE_ROOT, CODE_HASH}),
    ],
)
@pytest.mark.parametrize("balance", [0, 2**256 - 1])
def test_only_what_was_asked_for_becomes_readable(registry, source, asked, readable, balance):
    header, nodes = _plant_account(source, tries.account(0, balance))
    receipt = registry.send("prove", BLOCK, header, [(ALICE, _mask(*asked), nodes)])
    assert _readable(registry) == readable
    assert registry.logged(receipt)[1:] == [("AccountProven", ALICE, BLOCK, _mask(*readable))]
    assert not _readable(registry, BOB)
    assert not _readable(registry, number=BLOCK + 1)


@pytest.mark.parametrize("field", FIELDS)
def test_of_an_absent_account_all_four_facts_become_readable_at_once(registry, source, field):
    header, nodes = _plant_account(source, tries.account(5, 5), address=BOB)
    receipt = registry.send("prove", BLOCK, header, [(ALICE, _mask(field), nodes)])
    assert registry.logged(receipt)[1:] == [("AccountProven", ALICE, BLOCK, ALL)]
    values = [registry.call("accountField", ALICE, BLOCK, each) for each in FIELDS]
    assert values == [bytes(32), bytes(32), tries.EMPTY_ROOT, bytes(32)]
    assert not _readable(registry, BOB)


def test_everybody_is_absent_from_an_empty_state(registry, source):
    header = _plant(source, tries.EMPTY_ROOT)
    registry.send("prove", BLOCK, header, [(ALICE, ALL, []), (BOB, ALL, [b"\x80"])])
    assert _readable(registry, ALICE) == _readable(registry, BOB) == set(FIELDS)


def test_proving_again_changes_and_logs_nothing(registry, source):
    header, nodes = _plant_account(source, tries.account(3, 2**200))
    proofs = [(ALICE, ALL, nodes), (BOB, ALL, nodes)]
    registry.send("prove", BLOCK, header, proofs)
    before = [registry.call("accountField", who, BLOCK, field) for who in (ALICE, BOB) for field in FIELDS]
    again = registry.send("prove", BLOCK, header, [*proofs, *proofs])
    assert registry.logged(again) == []
    assert before == [registry.call("accountField", who, BLOCK, field) for who in (ALICE, BOB) for field in FIELDS]


def test_facts_can_be_added_to_and_only_new_ones_are_logged(registry, source):
    header, nodes = _plant_account(source, tries.account(3, 4))
    registry.send("prove", BLOCK, header, [(ALICE, _mask(CODE_HASH), nodes)])
    receipt = registry.send("prove", BLOCK, b"", [(ALICE, _mask(CODE_HASH, BALANCE), nodes)])
    assert registry.logged(receipt) == [("AccountProven", ALICE, BLOCK, _mask(NONCE, BALANCE))]
    assert _readable(registry) == {NONCE, BALANCE, CODE_HASH}


def test_an_account_can_be_proven_at_several_blocks(registry, source):
    for number in (0, 1, 127, 128, 2**64 - 1):
        node = tries.leaf(_key(ALICE), tries.account(balance=number))
        header = _plant(source, keccak(node), number)
        registry.send("prove", number, header, [(ALICE, _mask(BALANCE), [node])])
    for number in (0, 1, 127, 128, 2**64 - 1):
        assert registry.call("accountField", ALICE, number, BALANCE) == _word(number)


# --- Headers ----------------------------------------------------------------------------------------------------------


def test_a_header_can_be_accumulated_alone(registry, source):
    assert registry.call("stateRoot", BLOCK) == bytes(32)
    receipt = registry.send("prove", BLOCK, _plant(source, b"\x07" * 32), [])
    assert registry.logged(receipt) == [("HeaderAccumulated", BLOCK, b"\x07" * 32)]
    assert registry.call("stateRoot", BLOCK) == b"\x07" * 32


@pytest.mark.parametrize("ignored", [b"", b"anything"])
def test_an_accumulated_block_needs_neither_its_header_nor_its_hash_again(registry, source, ignored):
    header, nodes = _plant_account(source, tries.account(balance=9))
    registry.send("prove", BLOCK, header, [])
    source.send("set", BLOCK, bytes(32))
    receipt = registry.send("prove", BLOCK, ignored, [(ALICE, _mask(BALANCE), nodes)])
    assert [event[0] for event in registry.logged(receipt)] == ["AccountProven"]
    assert registry.call("accountField", ALICE, BLOCK, BALANCE) == _word(9)


@pytest.mark.parametrize("header", [b"", tries.header(BLOCK, tries.EMPTY_ROOT)], ids=["no header", "a header"])
@pytest.mark.parametrize("accounts", [[], [(ALICE, ALL, [])]], ids=["alone", "with an account"])
def test_a_block_that_the_source_does_not_know_proves_nothing(registry, header, accounts):
    with pytest.raises(Reverted) as reverted:
        registry.send("prove", BLOCK, header, accounts)
    assert reverted.value.error == ("UnknownBlock", BLOCK)


@pytest.mark.parametrize(
    "header",
    [
        pytest.param(b"", id="none"),
        pytest.param(tries.header(BLOCK, b"\x07" * 32)[:-1], id="cut"),
        pytest.param(tries.header(BLOCK, b"\x07" * 32) + b"\x00", id="longer"),
        pytest.param(tries.header(BLOCK, tries.EMPTY_ROOT), id="of another block"),
    ],
)
def test_it_rejects_a_header_with_another_hash(registry, source, header):
    _plant(source, b"\x07" * 32)
    with pytest.raises(Reverted) as reverted:
        registry.send("prove", BLOCK, header, [])
    assert reverted.value.error == ("HeaderMismatch", BLOCK)
    assert registry.call("stateRoot", BLOCK) == bytes(32)


def _header(**changes: object) -> bytes:
    fields = dict(enumerate(rlp.decode(tries.header(BLOCK, b"\x07" * 32))))
    fields.update({int(place[1:]): value for place, value in changes.items()})
    return tries.encode([fields[place] for place in sorted(fields)])


@pytest.mark.parametrize(
    "header",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"\x80", id="no list"),
        pytest.param(b"\xc0", id="empty list"),
        pytest.param(_header() + b"\x00", id="a byte after it"),
        pytest.param(_header()[:-1], id="a byte missing"),
        pytest.param(_header(_8=BLOCK + 1), id="another number"),
        pytest.param(_header(_8=b"\x00" + BLOCK.to_bytes(2, "big")), id="number with a leading zero"),
        pytest.param(_header(_8=[BLOCK]), id="number in a list"),
        pytest.param(_header(_8=BLOCK + 2**256), id="number that overflows"),
        pytest.param(_header(_3=bytes(32)), id="state root of zero"),
        pytest.param(_header(_3=b"\x07" * 31), id="state root of 31 bytes"),
        pytest.param(_header(_3=b"\x07" * 33), id="state root of 33 bytes"),
        pytest.param(_header(_3=[b"\x07" * 31]), id="state root in a list"),
        pytest.param(_header(_0=[]), id="list as a field"),
        pytest.param(tries.encode(rlp.decode(_header())[:8]), id="no number"),
        pytest.param(tries.encode(rlp.decode(_header())[:3]), id="no state root"),
    ],
)
def test_it_rejects_what_is_no_header_of_that_block_whatever_the_source_says(registry, source, header):
    source.send("set", BLOCK, keccak(header))
    with pytest.raises(Reverted) as reverted:
        registry.send("prove", BLOCK, header, [])
    assert reverted.value.error == ("InvalidHeader", BLOCK)


# --- Proofs -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fields", [0, 0b10000, 0b10010, 0xFF])
def test_it_rejects_a_mask_of_nothing_or_of_unknown_fields(registry, source, fields):
    header, nodes = _plant_account(source, tries.account())
    with pytest.raises(Reverted) as reverted:
        registry.send("prove", BLOCK, header, [(ALICE, fields, nodes)])
    assert reverted.value.error == ("InvalidFields", ALICE, fields)


_NO_ACCOUNTS = {
    "not RLP": b"\x81",
    "no list": b"\x05",
    "empty list": b"\xc0",
    "three fields": tries.encode([0, 0, tries.EMPTY_ROOT]),
    "five fields": tries.encode([0, 0, tries.EMPTY_ROOT, tries.EMPTY_CODE_HASH, 0]),
    "a byte after it": tries.account() + b"\x00",
    "a byte missing": tries.account()[:-1],
    "nonce of 65 bits": tries.account(nonce=2**64),
    "nonce that overflows": tries.account(nonce=2**256),
    "nonce with a leading zero": tries.encode([b"\x00\x80", 0, tries.EMPTY_ROOT, tries.EMPTY_CODE_HASH]),
    "nonce as a zero byte": tries.encode([b"\x00", 0, tries.EMPTY_ROOT, tries.EMPTY_CODE_HASH]),
    "balance of 257 bits": tries.account(balance=2**256),
    "balance with a leading zero": tries.encode([0, b"\x00\x80", tries.EMPTY_ROOT, tries.EMPTY_CODE_HASH]),
    "balance in a list": tries.encode([0, [], tries.EMPTY_ROOT, tries.EMPTY_CODE_HASH]),
    "storage root of 31 bytes": tries.account(storage_root=b"\x07" * 31),
    "storage root of 33 bytes": tries.account(storage_root=b"\x07" * 33),
    "storage root of zero": tries.account(storage_root=bytes(32)),
    "code hash of 31 bytes": tries.account(code=b"\x07" * 31),
    "code hash of zero": tries.account(code=bytes(32)),
    "code hash empty": tries.account(code=b""),
}


@pytest.mark.parametrize("leaf", _NO_ACCOUNTS.values(), ids=_NO_ACCOUNTS)
def test_it_rejects_leaves_that_are_no_accounts(registry, source, leaf):
    header, nodes = _plant_account(source, leaf)
    with pytest.raises(Reverted) as reverted:
        registry.send("prove", BLOCK, header, [(ALICE, _mask(BALANCE), nodes)])
    assert reverted.value.error == ("InvalidProof", ALICE)


def test_one_invalid_proof_undoes_all_of_its_transaction(registry, source):
    header, nodes = _plant_account(source, tries.account())
    with pytest.raises(Reverted) as reverted:
        registry.send("prove", BLOCK, header, [(ALICE, ALL, nodes), (BOB, ALL, [])])
    assert reverted.value.error == ("InvalidProof", BOB)
    assert not _readable(registry)
    assert registry.call("stateRoot", BLOCK) == bytes(32)


def test_a_proof_must_be_valid_even_if_its_facts_are_known(registry, source):
    header, nodes = _plant_account(source, tries.account())
    registry.send("prove", BLOCK, header, [(ALICE, ALL, nodes)])
    with pytest.raises(Reverted) as reverted:
        registry.send("prove", BLOCK, b"", [(ALICE, ALL, [*nodes, nodes[0]])])
    assert reverted.value.error == ("InvalidProof", ALICE)


# --- A chain that proves its own accounts -----------------------------------------------------------------------------

RICHEST = "0x" + "c1" * 20
NEARLY_RICHEST = "0x" + "c2" * 20
BUSIEST = "0x" + "c3" * 20


@pytest.fixture(scope="module")
def native(chain) -> Deployed:
    """A registry of the chain's own accounts, and some accounts worth proving."""
    chain.rpc("anvil_setBalance", RICHEST, hex(2**256 - 1))
    chain.rpc("anvil_setBalance", NEARLY_RICHEST, hex(2**256 - 2))
    chain.rpc("anvil_setNonce", BUSIEST, hex(2**64 - 1))
    source = Deployed(chain, "NativeBlockHashSource")
    registry = Deployed(chain, "FactsRegistry", chain.chain_id, source.address)
    # So that the registry has storage of its own by the block that is proven.
    number = chain.head()
    registry.send("prove", number, _own_header(chain, number).encode(), [])
    return registry


def _own_header(chain, number: int) -> Header:
    return Header.from_rpc(chain.rpc("eth_getBlockByNumber", hex(number), False))


@pytest.mark.parametrize("who", [ACCOUNTS[0][0], RICHEST, NEARLY_RICHEST, BUSIEST, ALICE, "the registry"])
def test_it_proves_what_the_node_says_of_an_account(chain, native, who):
    address = native.address if who == "the registry" else who
    number = chain.head()
    header = _own_header(chain, number)
    answer = chain.rpc("eth_getProof", address, [], hex(number))
    nodes = [bytes.fromhex(node[2:]) for node in answer["accountProof"]]

    native.send("prove", number, header.encode(), [(address, ALL, nodes)])
    proven = verify_account(header.state_root, address, nodes)
    assert [native.call("accountField", address, number, field) for field in FIELDS] == [
        _word(proven.nonce),
        _word(proven.balance),
        proven.storage_root,
        proven.code_hash,
    ]
    assert proven.nonce == int(chain.rpc("eth_getTransactionCount", address, hex(number)), 16)
    assert proven.balance == int(chain.rpc("eth_getBalance", address, hex(number)), 16)
    assert proven.storage_root.hex() == answer["storageHash"][2:]
    assert (proven.storage_root != tries.EMPTY_ROOT) == (who == "the registry")
    assert proven.exists == (who != ALICE)


def test_the_current_block_can_only_be_proven_from_the_next_on(chain, native):
    number = chain.head()
    header = _own_header(chain, number).encode()
    with pytest.raises(Reverted) as reverted:
        native.call("prove", number, header, [], block="latest")
    assert reverted.value.error == ("UnknownBlock", number)
    native.call("prove", number, header, [], block="pending")
