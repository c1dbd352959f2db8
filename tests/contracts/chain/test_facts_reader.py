"""Reads of `FactsReader` as Satellite's clients make them, over real registries, its reads of transactions, and its
proofs under facts.
"""

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest
from eth_abi.abi import decode, encode
from eth_utils.crypto import keccak

from chains.contract_artifacts import NO_CONTRACT
from tests.contracts import tries
from tests.contracts.blocks import log_hash
from tests.contracts.deployed import SENDER, Deployed, Reverted
from tests.contracts.proven_world import (
    BLOCK,
    CHAIN,
    CODE,
    LOGS,
    NO_CODE,
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
    VALUES,
    ZERO_SLOT,
    new_registry,
    shown_receipt,
)
from tests.contracts.simulator import Call
from tests.contracts.walks import REFUSAL, encode_log, encode_receipt


class Kind(NamedTuple):
    selectors: tuple[str, str]
    """The strict form, then the safe one."""
    name: str
    types: Sequence[str]

    def calldata(self, arguments: Sequence[Any], *, safe: bool) -> bytes:
        return bytes.fromhex(self.selectors[safe]) + encode(self.types, arguments)


# Satellite's reads by their selectors, with their errors; then those of the older order of arguments.
HEADER_FIELD = Kind(("678519d4", "5781591a"), "HEADER_FIELD", ["uint256", "uint256", "uint8"])
ACCOUNT_FIELD = Kind(("053afc68", "cb5c0808"), "ACCOUNT_FIELD", ["uint256", "uint256", "address", "uint8"])
STORAGE_SLOT = Kind(("c591f456", "e49f43a1"), "SLOT", ["uint256", "uint256", "address", "bytes32"])
TIMESTAMP = Kind(("b97da33b", "d831b096"), "TIMESTAMP", ["uint256", "uint256"])
OLD_ACCOUNT_FIELD = Kind(("b859370c", "b4e4a897"), "ACCOUNT_FIELD", ["uint256", "address", "uint256", "uint8"])
OLD_STORAGE_SLOT = Kind(("bdbd3522", "f891438a"), "SLOT", ["uint256", "address", "uint256", "bytes32"])


def _of_entries(function: str, name: str, types: Sequence[str]) -> Kind:
    """Return a read that Satellite doesn't have."""
    strict, safe = (keccak(text=f"{function}{form}({','.join(types)})")[:4].hex() for form in ("", "Safe"))
    return Kind((strict, safe), name, types)


RECEIPT_FIELD = _of_entries("receiptField", "RECEIPT_FIELD", ["uint256", "uint256", "uint256", "uint8"])
LOG_HASH = _of_entries("logHash", "LOG", ["uint256"] * 4)
TRANSACTION_HASH = _of_entries("transactionHash", "TRANSACTION", ["uint256"] * 3)

UNSAVED = None
REFUSED = "refused"

ACCOUNT_FACTS = [
    *((SOMEONE, 0, 3), (SOMEONE, 1, 2**200), (SOMEONE, 2, keccak(STORAGE)), (SOMEONE, 3, CODE)),
    *((NOBODY, 0, 0), (NOBODY, 1, 0), (NOBODY, 2, tries.EMPTY_ROOT), (NOBODY, 3, NO_CODE)),
    *((SENDER, field, UNSAVED) for field in range(4)),
    *((SOMEONE, field, UNSAVED) for field in range(4, 9)),
    *((SOMEONE, 9, REFUSED), (SOMEONE, 255, REFUSED)),
]
SLOT_FACTS = [(SOMEONE, SLOT, 77), (SOMEONE, ZERO_SLOT, 0), (SOMEONE, OTHER_SLOT, UNSAVED), (NOBODY, SLOT, UNSAVED)]
RECEIPT_FACTS = [
    *((0, field, fact) for field, fact in enumerate([1, 2, 50_000, 2, 1])),
    *((1, field, fact) for field, fact in enumerate([UNSAVED, 0, 71_000, 0, 1])),
    *((2, field, UNSAVED) for field in range(4)),
    *((2, 4, 0), (3, 4, UNSAVED)),
    *((index, field, REFUSED) for index, field in [(0, 5), (0, 255), (2**32, 4), (2**256 - 1, 4)]),
]
LOG_FACTS = [
    *((0, 0, log_hash(LOGS[0])), (0, 1, UNSAVED), (1, 0, UNSAVED)),
    *((0, 2**32, REFUSED), (2**32, 0, REFUSED)),
]
TRANSACTION_FACTS = [(0, keccak(TRANSACTIONS[0])), (1, UNSAVED), (2**32, REFUSED)]
READS: list[tuple[Kind, tuple[Any, ...], Any]] = [
    *((ACCOUNT_FIELD, (CHAIN, BLOCK, account, field), fact) for account, field, fact in ACCOUNT_FACTS),
    *((OLD_ACCOUNT_FIELD, (CHAIN, account, BLOCK, field), fact) for account, field, fact in ACCOUNT_FACTS),
    *((STORAGE_SLOT, (CHAIN, BLOCK, account, slot), fact) for account, slot, fact in SLOT_FACTS),
    *((OLD_STORAGE_SLOT, (CHAIN, account, BLOCK, slot), fact) for account, slot, fact in SLOT_FACTS),
    # Fields 6 and 12 are proven, but as hashes. Field 10 isn't proven, and field 15 doesn't exist for Satellite.
    *((HEADER_FIELD, (CHAIN, BLOCK, field), fact) for field, fact in [(0, 0), (3, ROOT), (8, BLOCK), (11, 0), (14, 0)]),
    *((HEADER_FIELD, (CHAIN, BLOCK, field), UNSAVED) for field in (6, 10, 12)),
    *((HEADER_FIELD, (CHAIN, BLOCK, field), REFUSED) for field in (15, 16, 255)),
    *((TIMESTAMP, (CHAIN, time), fact) for time, fact in [(TIME - 1, BLOCK), (TIME, UNSAVED)]),
    *((kind, (CHAIN, *arguments), UNSAVED) for kind, arguments in [(HEADER_FIELD, (BLOCK + 1, 0))]),
    (ACCOUNT_FIELD, (CHAIN, BLOCK + 1, SOMEONE, 0), UNSAVED),
    *((RECEIPT_FIELD, (CHAIN, BLOCK, index, field), fact) for index, field, fact in RECEIPT_FACTS),
    *((LOG_HASH, (CHAIN, BLOCK, index, log), fact) for index, log, fact in LOG_FACTS),
    *((TRANSACTION_HASH, (CHAIN, BLOCK, index), fact) for index, fact in TRANSACTION_FACTS),
    *((RECEIPT_FIELD, (CHAIN, BLOCK + 1, 0, 4), UNSAVED), (LOG_HASH, (CHAIN, BLOCK + 1, 0, 0), UNSAVED)),
    (TRANSACTION_HASH, (CHAIN, BLOCK + 1, 0), UNSAVED),
    # Chains that the reader has no registry of.
    *((RECEIPT_FIELD, (9, BLOCK, 0, 4), UNSAVED), (RECEIPT_FIELD, (9, BLOCK, 0, 5), REFUSED)),
    *((LOG_HASH, (9, BLOCK, 0, 0), UNSAVED), (TRANSACTION_HASH, (9, BLOCK, 0), UNSAVED)),
    *((ACCOUNT_FIELD, (chain, BLOCK, SOMEONE, 0), UNSAVED) for chain in (0, 9, 11, 2**96 + CHAIN, 2**256 - 1)),
    *((STORAGE_SLOT, (chain, BLOCK, SOMEONE, SLOT), UNSAVED) for chain in (0, 9)),
    *((HEADER_FIELD, (chain, BLOCK, 3), UNSAVED) for chain in (0, 9)),
    *((TIMESTAMP, (chain, TIME - 1), UNSAVED) for chain in (0, 9)),
    *((HEADER_FIELD, (9, BLOCK, 15), REFUSED), (ACCOUNT_FIELD, (9, BLOCK, SOMEONE, 9), REFUSED)),
]


@pytest.fixture(scope="module")
def registry(chain) -> Deployed:
    return new_registry(chain)


@pytest.fixture(scope="module")
def reader(chain, registry) -> Deployed:
    return Deployed(chain, "FactsReader", [registry.address])


@pytest.fixture(scope="module")
def chains(chain) -> list[str]:
    """Return contracts that tell the ids of 17 chains, in order: 10, 20, ..."""
    return [Deployed(chain, "test/SettableBlockHashSource", 10 * n).address for n in range(1, 18)]


# --- Reads ------------------------------------------------------------------------------------------------------------


def test_facts_reader_reads_as_satellite_does(simulator, reader):
    calls = [
        Call(reader.address, kind.calldata(arguments, safe=safe))
        for kind, arguments, _ in READS
        for safe in (False, True)
    ]
    outcomes = iter(simulator.run(calls))
    for kind, _, fact in READS:
        strict, safe = next(outcomes), next(outcomes)
        if fact is REFUSED:
            assert (strict.succeeded, strict.data, safe.succeeded, safe.data) == (False, b"", False, b"")
        elif fact is UNSAVED:
            error = keccak(text="Error(string)")[:4] + encode(["string"], [f"STORAGE_PROOF_{kind.name}_NOT_SAVED"])
            assert (strict.succeeded, strict.data, safe.succeeded, safe.data) == (False, error, True, bytes(64))
        else:
            word = fact if isinstance(fact, bytes) else fact.to_bytes(32)
            assert (strict.data, safe.data) == (word, (1).to_bytes(32) + word)


PROVEN = [
    (ACCOUNT_FIELD, (CHAIN, BLOCK, SOMEONE, 1)),
    (ACCOUNT_FIELD, (CHAIN, BLOCK, NOBODY, 3)),
    (STORAGE_SLOT, (CHAIN, BLOCK, SOMEONE, SLOT)),
    (HEADER_FIELD, (CHAIN, BLOCK, 3)),
    (TIMESTAMP, (CHAIN, TIME - 1)),
    (RECEIPT_FIELD, (CHAIN, BLOCK, 0, 2)),
    (LOG_HASH, (CHAIN, BLOCK, 0, 0)),
    (TRANSACTION_HASH, (CHAIN, BLOCK, 0)),
]


@pytest.mark.parametrize(("kind", "arguments"), PROVEN)
def test_no_gas_makes_a_fact_look_unsaved(chain, reader, kind, arguments):
    call = {"from": SENDER, "to": reader.address, "data": "0x" + kind.calldata(arguments, safe=True).hex()}
    replies = [chain.ask("eth_call", {**call, "gas": hex(gas)}, "latest") for gas in range(22_000, 34_000, 300)]
    assert {reply.get("result", "")[:66] for reply in replies} == {"", "0x" + (1).to_bytes(32).hex()}


@pytest.mark.parametrize("code", ["0x", "0x5f5ffd", "0x602a5f5260205ffd", "0xfe", "0x60205ff3", "0x60605ff3"])
def test_a_registry_that_does_not_answer_makes_nothing_look_unsaved(chain, simulator, code):
    """The codes: none; two that revert, one with 42; one that fails; two that answer a word, or three."""
    registry = Deployed(chain, "test/SettableBlockHashSource", CHAIN)
    reader = Deployed(chain, "FactsReader", [registry.address])
    chain.rpc("anvil_setCode", registry.address, code)
    calls = [kind.calldata(arguments, safe=safe) for kind, arguments in PROVEN for safe in (False, True)]
    calls.append(reader.calldata("slotByProof", CHAIN, BLOCK, SOMEONE, SLOT, b"\xc0"))
    calls.append(reader.calldata("accountByProof", CHAIN, BLOCK, SOMEONE, b"\xc0"))
    calls.append(reader.calldata("receiptByProof", CHAIN, BLOCK, 0, shown_receipt(0)))
    calls.append(reader.calldata("logByProof", CHAIN, BLOCK, 0, 0, shown_receipt(0)))
    calls.append(reader.calldata("withdrawalByProof", CHAIN, BLOCK, 0, b"\xc0"))
    outcomes = simulator.run([Call(reader.address, data) for data in calls])
    assert not any(outcome.succeeded for outcome in outcomes)
    if "2a" in code:
        assert {outcome.data for outcome in outcomes} == {(42).to_bytes(32)}


# --- Registries -------------------------------------------------------------------------------------------------------


def test_each_chain_has_its_registry_however_many_there_are(chain, simulator, chains):
    for count in range(1, 17):
        reader = Deployed(chain, "FactsReader", chains[:count])
        ids = sorted(
            {0, 1, 2**96 - 1, 2**96 + 10, 2**256 - 1, *(10 * n + by for n in range(1, 18) for by in (-1, 0, 1))}
        )
        outcomes = simulator.run([Call(reader.address, reader.calldata("registryOf", each)) for each in ids])
        found = {each: "0x" + outcome.data[12:].hex() for each, outcome in zip(ids, outcomes, strict=True)}
        known = {10 * (n + 1): address.lower() for n, address in enumerate(chains[:count])}
        assert found == {each: known.get(each, NO_CONTRACT) for each in ids}


@pytest.mark.parametrize(
    ("places", "error"),
    [
        pytest.param([], ("InvalidCount", 0), id="none"),
        pytest.param(range(17), ("InvalidCount", 17), id="seventeen"),
        pytest.param([0, 0], ("InvalidRegistry", 0), id="twice"),
        pytest.param([0, 2, 1], ("InvalidRegistry", 1), id="falling"),
    ],
)
def test_facts_reader_refuses_no_registries_too_many_and_registries_out_of_order(chain, chains, places, error):
    with pytest.raises(Reverted) as reverted:
        Deployed(chain, "FactsReader", [chains[place] for place in places])
    name, value = error
    assert reverted.value.error == (name, chains[value].lower() if name == "InvalidRegistry" else value)


@pytest.mark.parametrize("chain_id", [0, 2**96, 2**256 - 1, None], ids=["0", "2**96", "2**256 - 1", "no code"])
def test_facts_reader_refuses_a_registry_without_code_or_with_an_invalid_chain_id(chain, chain_id):
    address = "0x" + "77" * 20
    if chain_id is not None:
        address = Deployed(chain, "test/SettableBlockHashSource", chain_id).address
    with pytest.raises(Reverted) as reverted:
        Deployed(chain, "FactsReader", [address])
    assert reverted.value.error == ("InvalidRegistry", address.lower())
    Deployed(chain, "FactsReader", [Deployed(chain, "test/SettableBlockHashSource", n).address for n in (1, 2**96 - 1)])


def test_a_read_through_the_reader_costs_one_more_call_and_little_else(chain, simulator, chains):
    """The call of an address that wasn't called before costs 2,600 gas."""
    registry = new_registry(chain, 1000)
    readers = [Deployed(chain, "FactsReader", [*chains[:others], registry.address]) for others in (0, 15)]
    for reader, (kind, arguments, function, own) in itertools.product(
        readers,
        (
            (ACCOUNT_FIELD, (1000, BLOCK, SOMEONE, 1), "accountField", (SOMEONE, BLOCK, 1)),
            (STORAGE_SLOT, (1000, BLOCK, SOMEONE, SLOT), "accountStorageSlotValues", (SOMEONE, BLOCK, SLOT)),
            (HEADER_FIELD, (1000, BLOCK, 0), "headerField", (BLOCK, 0)),
            (TIMESTAMP, (1000, TIME - 1), "blockAtTimestamp", (TIME - 1,)),
            (RECEIPT_FIELD, (1000, BLOCK, 0, 2), "receiptField", (BLOCK, 0, 2)),
            (LOG_HASH, (1000, BLOCK, 0, 0), "logHash", (BLOCK, 0, 0)),
            (TRANSACTION_HASH, (1000, BLOCK, 0), "transactionHash", (BLOCK, 0)),
        ),
    ):
        through, direct = kind.calldata(arguments, safe=False), registry.calldata(function, *own)
        outcomes = simulator.run([Call(reader.address, through), Call(registry.address, direct)])
        assert outcomes[0].data == outcomes[1].data
        more, plain = (
            outcome.gas_used - sum(4 if byte == 0 else 16 for byte in data)
            for outcome, data in zip(outcomes, (through, direct), strict=True)
        )
        # Each function whose selector is lower costs 22 gas.
        assert 2_600 < more - plain <= 2_600 + 1_300


# --- Proofs under facts -----------------------------------------------------------------------------------------------


def test_slots_and_accounts_are_shown_under_facts(reader):
    proof, state = tries.encode([STORAGE]), tries.encode([STATE])
    assert int.from_bytes(reader.call("slotByProof", CHAIN, BLOCK, SOMEONE, SLOT, proof)) == 77
    # Nobody has stored this slot.
    assert reader.call("slotByProof", CHAIN, BLOCK, SOMEONE, OTHER_SLOT, proof) == bytes(32)
    assert reader.call("slotByProof", CHAIN, BLOCK, NOBODY, SLOT, b"\xc0") == bytes(32)
    assert reader.call("accountByProof", CHAIN, BLOCK, SOMEONE, state) == (3, 2**200, CODE, keccak(STORAGE))
    assert reader.call("accountByProof", CHAIN, BLOCK, SENDER, state) == (0, 0, NO_CODE, tries.EMPTY_ROOT)
    assert reader.call("verifyOnlyAccount", 7, SOMEONE, ROOT, state) == (3, 2**200, CODE, keccak(STORAGE))


def test_receipts_and_logs_are_shown_under_facts(reader):
    for index, receipt in enumerate(RECEIPTS):
        proof = shown_receipt(index)
        data = reader.calldata("receiptByProof", CHAIN, BLOCK, index, proof)
        assert reader.call_raw(data) == encode_receipt(receipt)
        for log, each in enumerate(receipt.logs):
            assert reader.call_raw(reader.calldata("logByProof", CHAIN, BLOCK, index, log, proof)) == encode_log(each)
        with pytest.raises(Reverted) as reverted:
            reader.call("logByProof", CHAIN, BLOCK, index, len(receipt.logs), proof)
        assert reverted.value.error == ("NoSuchLog", CHAIN, BLOCK, index, len(receipt.logs))
    assert reader.call("receiptByProof", CHAIN, BLOCK, 2, shown_receipt(2)) == (False, False, 0, 0, 0, 0)
    # The hash of what is shown is the fact of what is stored.
    emitter, topics, data = reader.call("logByProof", CHAIN, BLOCK, 0, 0, shown_receipt(0))
    assert log_hash((bytes.fromhex(emitter[2:]), topics, data)) == reader.call("logHash", CHAIN, BLOCK, 0, 0)


@pytest.mark.parametrize(
    ("function", "arguments", "name"),
    [
        *(("slotByProof", (CHAIN, BLOCK, account, SLOT), "ACCOUNT_FIELD") for account in (SENDER, "0x" + "00" * 20)),
        *(
            ("slotByProof", (chain, number, SOMEONE, SLOT), "ACCOUNT_FIELD")
            for chain, number in ((9, BLOCK), (CHAIN, 9))
        ),
        *(("accountByProof", (chain, number, SOMEONE), "HEADER_FIELD") for chain, number in ((9, BLOCK), (CHAIN, 9))),
        # The header of the block after it is accumulated, but not its receipts' root.
        *(
            (function, (chain, number, *indexes), "HEADER_FIELD")
            for function, indexes in (("receiptByProof", [0]), ("logByProof", [0, 0]), ("withdrawalByProof", [0]))
            for chain, number in ((9, BLOCK), (CHAIN, 9), (CHAIN, BLOCK + 1))
        ),
    ],
)
@pytest.mark.parametrize("proof", [b"\xc0", tries.encode([STORAGE]), tries.encode([STATE]), shown_receipt(0)])
def test_no_proof_is_taken_where_its_root_is_no_fact(simulator, reader, function, arguments, name, proof):
    [outcome] = simulator.run([Call(reader.address, reader.calldata(function, *arguments, proof))])
    assert (outcome.succeeded, outcome.data[:4]) == (False, keccak(text="Error(string)")[:4])
    assert decode(["string"], outcome.data[4:]) == (f"STORAGE_PROOF_{name}_NOT_SAVED",)


def test_a_proof_of_another_root_is_refused(simulator, reader):
    pairs = [(SOMEONE, tries.encode([STATE])), (SOMEONE, b"\xc0"), (NOBODY, b"")]
    calls = [reader.calldata("slotByProof", CHAIN, BLOCK, account, SLOT, proof) for account, proof in pairs]
    calls.append(reader.calldata("accountByProof", CHAIN, BLOCK, SOMEONE, tries.encode([STORAGE])))
    others = [tries.encode([STATE]), shown_receipt(0, [*VALUES, VALUES[0]]), shown_receipt(0, TRANSACTIONS), b"\xc0"]
    calls += [reader.calldata("receiptByProof", CHAIN, BLOCK, 0, proof) for proof in others]
    calls += [reader.calldata("logByProof", CHAIN, BLOCK, 0, 0, proof) for proof in others]
    outcomes = simulator.run([Call(reader.address, data) for data in calls])
    assert [(outcome.succeeded, outcome.data) for outcome in outcomes] == [(False, REFUSAL)] * 12


def test_a_contract_that_takes_the_root_from_its_caller_is_robbed(chain, reader):
    """Its proof is right, and worth nothing: the caller has made the trie."""
    vault = Deployed(chain, "test/SlotVault", reader.address, CHAIN, SOMEONE, SLOT)
    chain.rpc("anvil_setBalance", vault.address, hex(10**18))
    forged = tries.leaf(keccak(SLOT), tries.encode(10**18 - 77))
    with pytest.raises(Reverted):
        vault.call("claim", BLOCK, tries.encode([forged]))
    vault.send("claimUnderAnyRoot", keccak(forged), tries.encode([forged]))
    assert int(chain.rpc("eth_getBalance", vault.address, "latest"), 16) == 77
    vault.send("claim", BLOCK, tries.encode([STORAGE]))
    assert int(chain.rpc("eth_getBalance", vault.address, "latest"), 16) == 0


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ((TIME, 5, TIME, TIME + 1), ""),
        ((TIME, 5, TIME - 5, TIME + 5), ""),
        ((TIME, 5, TIME + 1, TIME + 2), "STORAGE_PROOF_TIMESTAMP_NOT_BETWEEN_BLOCKS"),
        ((TIME, 5, TIME - 1, TIME), "STORAGE_PROOF_TIMESTAMP_NOT_BETWEEN_BLOCKS"),
        ((TIME, 2**256 - 1, TIME, TIME + 1), "STORAGE_PROOF_BLOCK_NUMBER_TOO_HIGH"),
    ],
)
def test_a_time_is_between_two_blocks(simulator, reader, arguments, name):
    data = reader.calldata("verifyOnlyTimestamp", *arguments)
    assert data[:4].hex() == "e3cf1585"
    [outcome] = simulator.run([Call(reader.address, data)])
    error = keccak(text="Error(string)")[:4] + encode(["string"], [name]) if name else b""
    assert (outcome.succeeded, outcome.data) == (not name, error)
