"""The package's mock answers as the real registry and the real reader do, value by value and error by error."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import rlp
from eth_utils.abi import abi_to_signature, filter_abi_by_type
from eth_utils.crypto import keccak

from chains.contract_artifacts import load_artifact
from chains.tries.packed import encode as pack
from tests.contracts import tries, withdrawal_walks
from tests.contracts.deployed import SENDER, Deployed, Reverted
from tests.contracts.proven_world import (
    BLOCK,
    CHAIN,
    CODE,
    FOLLOWING,
    HEADER,
    LOGS,
    NOBODY,
    OTHER_SLOT,
    RECEIPTS,
    ROOT,
    SLOT,
    SOMEONE,
    STATE,
    STORAGE,
    TIME,
    TRANSACTIONS,
    ZERO_SLOT,
    new_registry,
    shown_receipt,
)
from tests.contracts.simulator import Call

WITHDRAWN = withdrawal_walks.recorded(17034870)
WITHDRAWN_BLOCK = int.from_bytes(rlp.decode(WITHDRAWN.header)[8])
# Immutables of one deployment, and what writes. The others are reads.
NO_READS = {"historyWindow()", "beaconChainHistory()", "proveTimestamp(bytes,bytes,uint256)"}
# Addresses of contracts, which differ: they are compared with none.
ADDRESSES = {"blockHashSource()", "registryOf(uint256)"}

BIG = 2**256 - 1
ACCOUNTS = [*((SOMEONE, BLOCK), (NOBODY, BLOCK), (SENDER, BLOCK), (SOMEONE, BLOCK + 1))]
SLOTS = [(SOMEONE, SLOT), (SOMEONE, ZERO_SLOT), (SOMEONE, OTHER_SLOT), (NOBODY, SLOT)]
FIELDS = [*range(17), 30, 31, 255]
CHAINS = (CHAIN, 9, 0, BIG)
INDEXES = (0, 1, 2, 3)
LONG_INDEXES = (*INDEXES, 2**32, BIG)
# Beyond the places of the walk.
BEYOND = (2**16, 2**32, BIG)
TIMES = (TIME - 1, TIME, 0, BIG)
STORAGE_PROOF, STATE_PROOF, EMPTY_PROOF = tries.encode([STORAGE]), tries.encode([STATE]), b"\xc0"


def shown_withdrawal(place: int) -> bytes:
    [walk] = withdrawal_walks.shown(withdrawal_walks.values_of(WITHDRAWN.withdrawals), [place])
    return walk.proof


Arguments = Sequence[tuple[Any, ...]]
_account_fields = [(*at, field) for at in ACCOUNTS for field in range(4)]
_slot_values = [(account, block, slot) for block in (BLOCK, BLOCK + 1) for account, slot in SLOTS]
_header_fields = [(block, field) for block in (BLOCK, BLOCK + 1) for field in FIELDS]
_receipt_fields = [(block, index, field) for block in (BLOCK, BLOCK + 1) for index in INDEXES for field in range(5)]
_logs = [(block, index, log) for block in (BLOCK, BLOCK + 1) for index in INDEXES for log in (0, 1)]
_transactions = [(block, index) for block in (BLOCK, BLOCK + 1) for index in INDEXES]
OF_REGISTRY: Mapping[str, Arguments] = {
    "accountField(address,uint256,uint8)": _account_fields,
    "accountField(address,uint256,bytes32)": _slot_values,
    "accountStorageSlotValues(address,uint256,bytes32)": _slot_values,
    "tryAccountField(address,uint256,uint8)": _account_fields,
    "tryAccountStorageSlotValues(address,uint256,bytes32)": _slot_values,
    "headerField(uint256,uint8)": _header_fields,
    "tryHeaderField(uint256,uint8)": _header_fields,
    "blockAtTimestamp(uint256)": [(time,) for time in TIMES],
    "tryBlockAtTimestamp(uint256)": [(time,) for time in TIMES],
    "receiptField(uint256,uint32,uint8)": _receipt_fields,
    "tryReceiptField(uint256,uint32,uint8)": _receipt_fields,
    "logHash(uint256,uint32,uint32)": _logs,
    "tryLogHash(uint256,uint32,uint32)": _logs,
    "transactionHash(uint256,uint32)": _transactions,
    "tryTransactionHash(uint256,uint32)": _transactions,
    "stateRoot(uint256)": [(BLOCK,), (BLOCK + 1,), (BIG,)],
    "sourceChainId()": [()],
    "blockHashSource()": [()],
    "vouches(uint256,bytes32)": [
        (block, block_hash)
        for block in (BLOCK, BLOCK + 1, BLOCK + 2)
        for block_hash in (keccak(HEADER), keccak(FOLLOWING), bytes(32))
    ],
}

_accounts_of_chains = [
    (chain, block, account, field) for chain in CHAINS for account, block in ACCOUNTS for field in (*range(10), 255)
]
_slots_of_chains = [(chain, block, account, slot) for chain in CHAINS for account, block, slot in _slot_values]
_headers_of_chains = [(chain, block, field) for chain in CHAINS for block, field in _header_fields]
_receipts_of_chains = [
    (chain, BLOCK, index, field) for chain in CHAINS for index in LONG_INDEXES for field in (*range(6), 255)
]
_logs_of_chains = [(chain, BLOCK, index, log) for chain in CHAINS for index in LONG_INDEXES for log in (0, 1, 2**32)]
_transactions_of_chains = [(chain, BLOCK, index) for chain in CHAINS for index in LONG_INDEXES]
_times_of_chains = [(chain, time) for chain in CHAINS for time in TIMES]
_places = [(chain, block) for chain in (CHAIN, 9) for block in (BLOCK, BLOCK + 1)]


def _older(arguments: Arguments) -> Arguments:
    return [(chain, account, block, last) for chain, block, account, last in arguments]


OF_READER: Mapping[str, Arguments] = {
    "registryOf(uint256)": [(chain,) for chain in CHAINS],
    "headerField(uint256,uint256,uint8)": _headers_of_chains,
    "headerFieldSafe(uint256,uint256,uint8)": _headers_of_chains,
    "accountField(uint256,uint256,address,uint8)": _accounts_of_chains,
    "accountFieldSafe(uint256,uint256,address,uint8)": _accounts_of_chains,
    "accountField(uint256,address,uint256,uint8)": _older(_accounts_of_chains),
    "accountFieldSafe(uint256,address,uint256,uint8)": _older(_accounts_of_chains),
    "storageSlot(uint256,uint256,address,bytes32)": _slots_of_chains,
    "storageSlotSafe(uint256,uint256,address,bytes32)": _slots_of_chains,
    "storageSlot(uint256,address,uint256,bytes32)": _older(_slots_of_chains),
    "storageSlotSafe(uint256,address,uint256,bytes32)": _older(_slots_of_chains),
    "timestamp(uint256,uint256)": _times_of_chains,
    "timestampSafe(uint256,uint256)": _times_of_chains,
    "receiptField(uint256,uint256,uint256,uint8)": _receipts_of_chains,
    "receiptFieldSafe(uint256,uint256,uint256,uint8)": _receipts_of_chains,
    "logHash(uint256,uint256,uint256,uint256)": _logs_of_chains,
    "logHashSafe(uint256,uint256,uint256,uint256)": _logs_of_chains,
    "transactionHash(uint256,uint256,uint256)": _transactions_of_chains,
    "transactionHashSafe(uint256,uint256,uint256)": _transactions_of_chains,
    "slotByProof(uint256,uint256,address,bytes32,bytes)": [
        (*place, account, slot, proof)
        for place in _places
        for account, slot, proof in [
            (SOMEONE, SLOT, STORAGE_PROOF),
            (SOMEONE, ZERO_SLOT, STORAGE_PROOF),
            (SOMEONE, SLOT, b""),
            (NOBODY, SLOT, EMPTY_PROOF),
            (SENDER, SLOT, STORAGE_PROOF),
        ]
    ],
    "accountByProof(uint256,uint256,address,bytes)": [
        (*place, account, proof)
        for place in _places
        for account, proof in [(SOMEONE, STATE_PROOF), (NOBODY, STATE_PROOF), (SENDER, STATE_PROOF), (SOMEONE, b"")]
    ],
    "receiptByProof(uint256,uint256,uint256,bytes)": [
        *((*place, index, shown_receipt(index)) for place in _places for index in INDEXES),
        *((CHAIN, BLOCK, index, shown_receipt(0)) for index in BEYOND),
        (CHAIN, BLOCK, 0, b""),
    ],
    "logByProof(uint256,uint256,uint256,uint256,bytes)": [
        *(
            (*place, index, log, shown_receipt(index))
            for place in _places
            for index, log in [(0, 0), (0, 2), (1, 0), (2, 0)]
        ),
        *((CHAIN, BLOCK, index, 0, shown_receipt(0)) for index in BEYOND),
        (CHAIN, BLOCK, 0, 0, b""),
    ],
    "withdrawalByProof(uint256,uint256,uint256,bytes)": [
        *(
            (chain, block, place, shown_withdrawal(place))
            for chain in (CHAIN, 9)
            for block in (WITHDRAWN_BLOCK, BLOCK)
            for place in (0, 1, 5000)
        ),
        *((CHAIN, WITHDRAWN_BLOCK, place, shown_withdrawal(0)) for place in BEYOND),
        (CHAIN, WITHDRAWN_BLOCK, 0, b""),
    ],
    "verifyOnlyStorage(bytes32,bytes32,bytes)": [
        *((slot, keccak(STORAGE), proof) for slot in (SLOT, OTHER_SLOT) for proof in (STORAGE_PROOF, b"", STATE_PROOF)),
        (SLOT, tries.EMPTY_ROOT, EMPTY_PROOF),
    ],
    "verifyOnlyAccount(uint256,address,bytes32,bytes)": [
        (7, account, ROOT, proof) for account in (SOMEONE, SENDER) for proof in (STATE_PROOF, b"", STORAGE_PROOF)
    ],
    "verifyOnlyTimestamp(uint256,uint256,uint256,uint256)": [
        (TIME, 5, TIME, TIME + 1),
        (TIME, 5, TIME - 1, TIME),
        (TIME, BIG, TIME, TIME + 1),
    ],
}


@pytest.fixture(scope="module")
def registry(chain) -> Deployed:
    """Return a registry with the facts of `proven_world`, a root of withdrawals, and a hash that is proven alone."""
    registry = new_registry(chain)
    source = Deployed(chain, "test/SettableBlockHashSource", address=registry.call("blockHashSource"))
    source.send("set", WITHDRAWN_BLOCK, keccak(WITHDRAWN.header))
    root = bytes(rlp.decode(WITHDRAWN.header)[3])
    registry.send_raw(pack(WITHDRAWN.header, root, header_fields=[16]))
    registry.send_raw(FOLLOWING + b"\x39")
    return registry


@pytest.fixture(scope="module")
def mock(chain) -> Deployed:
    """Return a mock in which the same facts are set."""
    mock = Deployed(chain, "test/FactsMock", CHAIN)
    fields = rlp.decode(HEADER)
    mock.send("setStateRoot", BLOCK, ROOT)
    for field in (0, 4, 5, 11, 14):
        mock.send("setHeaderField", BLOCK, field, fields[field].rjust(32, b"\0"))
    for field in (6, 12):
        mock.send("setHeaderField", BLOCK, field, keccak(fields[field]))
    mock.send("setAccount", BLOCK, SOMEONE, 3, 2**200, keccak(STORAGE), CODE)
    mock.send("setAbsentAccount", BLOCK, NOBODY)
    mock.send("setSlot", BLOCK, SOMEONE, SLOT, (77).to_bytes(32))
    mock.send("setSlot", BLOCK, SOMEONE, ZERO_SLOT, bytes(32))
    mock.send("setTimestamp", TIME - 1, BLOCK)
    for index, receipt in enumerate(RECEIPTS):
        status = receipt.facts.status
        told = (True, status is not None, status or 0, receipt.type, receipt.gas, len(receipt.logs))
        mock.send("setReceipt", BLOCK, index, told)
    mock.send("setReceipt", BLOCK, 2, (False, False, 0, 0, 0, 0))
    mock.send("setLog", BLOCK, 0, 0, *LOGS[0])
    mock.send("setTransactionHash", BLOCK, 0, keccak(TRANSACTIONS[0]))
    mock.send("vouchFor", BLOCK, keccak(HEADER))
    mock.send("vouchFor", BLOCK + 1, keccak(FOLLOWING))
    mock.send("setBlockHash", keccak(HEADER))
    mock.send("setHeaderField", WITHDRAWN_BLOCK, 16, WITHDRAWN.root)
    for place, each in enumerate(WITHDRAWN.withdrawals[:2]):
        mock.send(
            *("setWithdrawal", WITHDRAWN_BLOCK, place),
            *(each.number, each.validator, each.recipient, each.amount),
        )
    return mock


@pytest.fixture(scope="module")
def mocked_reader(chain, mock) -> Deployed:
    return Deployed(chain, "test/FactsReaderMock", [mock.address])


@pytest.fixture(scope="module")
def reader(chain, registry) -> Deployed:
    return Deployed(chain, "FactsReader", [registry.address])


def reads_of(name: str) -> set[str]:
    return {
        abi_to_signature(entry)
        for entry in filter_abi_by_type("function", load_artifact(name).abi)
        if abi_to_signature(entry) not in NO_READS
    }


def test_no_read_is_forgotten():
    assert reads_of("FactsRegistry") == OF_REGISTRY.keys()
    assert reads_of("FactsReader") == OF_READER.keys()


@pytest.mark.parametrize("signature", OF_REGISTRY)
def test_the_mock_answers_as_the_registry(simulator, registry, mock, signature):
    assert_alike(simulator, registry, mock, signature, OF_REGISTRY[signature])


@pytest.mark.parametrize("signature", OF_READER)
def test_the_mock_answers_as_the_reader(simulator, reader, mocked_reader, signature):
    assert_alike(simulator, reader, mocked_reader, signature, OF_READER[signature])


def assert_alike(simulator: Any, real: Deployed, mock: Deployed, signature: str, arguments: Arguments) -> None:
    """Check that both answer the same. What is proven and what isn't must be among the arguments."""
    outcomes = [
        simulator.run([Call(contract.address, real.calldata(signature, *each)) for each in arguments])
        for contract in (real, mock)
    ]
    found, mocked = (
        [(each.succeeded, bool(int.from_bytes(each.data)) if signature in ADDRESSES else each.data) for each in side]
        for side in outcomes
    )
    assert dict(zip(map(str, arguments), mocked, strict=True)) == dict(zip(map(str, arguments), found, strict=True))
    assert signature in {"sourceChainId()", "blockHashSource()"} or len(set(found)) > 1


@pytest.mark.parametrize("data", [b"", b"\1", b"\xde\xad\xbe\xef", b"\xde\xad\xbe\xef" + bytes(32)])
def test_an_unknown_function_is_refused_as_by_the_registry(simulator, registry, mock, data):
    real, mocked = simulator.run([Call(each.address, data) for each in (registry, mock)])
    assert (real.succeeded, mocked.succeeded) == (False, False)
    if len(data) >= 4:
        assert real.data == mocked.data


def test_an_unknown_function_is_refused_as_by_the_reader(simulator, reader, mocked_reader):
    real, mocked = simulator.run([Call(each.address, b"\xde\xad\xbe\xef") for each in (reader, mocked_reader)])
    assert (real.succeeded, real.data) == (mocked.succeeded, mocked.data) == (False, b"")


def test_a_second_chain_has_its_own_registry_and_facts(chain, mock):
    second = Deployed(chain, "test/FactsMock", 8453)
    both = Deployed(chain, "test/FactsReaderMock", [mock.address, second.address])
    reads = Deployed(chain, "FactsReader", address=both.address)
    assert [reads.call("registryOf", chain_id).lower() for chain_id in (CHAIN, 8453, 9)] == [
        mock.address.lower(),
        second.address.lower(),
        "0x" + "0" * 40,
    ]
    second.send("setSlot", BLOCK, SOMEONE, SLOT, (5).to_bytes(32))
    storage_slot = "storageSlot(uint256,uint256,address,bytes32)"
    assert reads.call(storage_slot, 8453, BLOCK, SOMEONE, SLOT) == (5).to_bytes(32)
    assert reads.call(storage_slot, CHAIN, BLOCK, SOMEONE, SLOT) == (77).to_bytes(32)
    assert mock.call("accountStorageSlotValues", SOMEONE, BLOCK, SLOT) == (77).to_bytes(32)


def test_a_reader_takes_only_registries_as_the_real_one_does(chain, mock):
    second = Deployed(chain, "test/FactsMock", 8453)
    with pytest.raises(Reverted):
        Deployed(chain, "test/FactsReaderMock", [second.address, mock.address])


@pytest.mark.parametrize("field", [3, 8, 31])
def test_header_fields_that_follow_from_others_are_not_set(mock, field):
    [error] = mock.refusal("setHeaderField", BLOCK, field, bytes(32))
    assert b"set the state root instead".hex() in error


@pytest.mark.parametrize(
    ("setter", "arguments", "why"),
    [
        ("setAccount", (BLOCK, SOMEONE, 1, 1, bytes(32), CODE), "a root or a code hash of zero"),
        ("setAccount", (BLOCK, SOMEONE, 1, 1, keccak(STORAGE), bytes(32)), "a root or a code hash of zero"),
        ("setTimestamp", (TIME, 2**64), "no block has this number"),
        ("setLog", (BLOCK, 0, 0, SOMEONE, [bytes(32)] * 5, b""), "four topics at most"),
    ],
)
def test_what_no_registry_can_hold_is_not_set(mock, setter, arguments, why):
    [error] = mock.refusal(setter, *arguments)
    assert why.encode().hex() in error
