"""Transactions of recorded blocks and of a real node, as nodes answer and misanswer them, make the tries of their
blocks.
"""

import json
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import rlp
from eth_account import Account
from eth_utils.crypto import keccak
from eth_utils.currency import to_wei

from chains.encoding import hex_data
from chains.nodes import block_transactions
from chains.nodes.node_errors import InvalidReply, NodeUnavailable, OtherRoot, RpcRefused
from chains.tries.header import Header
from chains.tries.packed_entries import root
from devnet.devchain import ACCOUNTS
from tests.chains import geth_answers
from tests.chains.recorded_blocks import answering, as_json, load, transactions_of
from tests.contracts import tries
from tests.contracts.blocks import block_of
from tests.fixtures_folder import fixture_names, unhex

_NAMES = [name.removesuffix(".json") for name in fixture_names("receipts/*.json") if "not-reproducible" not in name]
_TRANSACTIONS = json.loads((Path(__file__).parents[1] / "recorded_transactions.json").read_text())
_KEY, _OTHER_KEY = (key for _, key in ACCOUNTS[:2])

Transactions = list[dict[str, Any]]
Change = Callable[[Transactions], Transactions]


def serving(of: Header, transactions: Any, **more: Any) -> AbstractContextManager[str]:
    """Serve a block with these transactions."""
    return answering(eth_getBlockByHash={"hash": hex_data(of.hash), "transactions": transactions}, **more)


def is_whole(name: str) -> bool:
    """Return whether all transactions of a recorded block are recorded with their fields."""
    fixture = load(name)
    return bool(transactions_of(fixture)) or not fixture["receipts"]


@dataclass
class SignedBlock:
    raw: list[bytes]

    @property
    def header(self) -> Header:
        return header_of(self.raw)

    @property
    def transactions(self) -> Transactions:
        """The transactions as nodes answer them."""
        return list(map(as_json, self.raw))


@pytest.fixture(scope="module")
def signed() -> SignedBlock:
    """Return a block of 66 signed transactions."""
    return SignedBlock([unhex(raw) for start in range(0, 66, 6) for raw in several_types(start)])


def header_of(values: Sequence[bytes]) -> Header:
    return Header.decode(tries.header(1, b"\1" * 32, roots=(root(values), bytes(32))))


@pytest.mark.parametrize("name", [name for name in _NAMES if is_whole(name)])
def test_the_trie_of_a_recorded_block_is_made(client_of, name):
    fixture = load(name)
    block = block_of(fixture)
    of = Header.decode(block.header)
    with serving(of, transactions_of(fixture)) as url:
        assert list(block_transactions.of_block(client_of(url), of)) == block.transactions


def of_the_system(raw: bytes) -> bytes:
    """Return a deposit as it was before Regolith: of the system, which pays for its gas."""
    *before, _, data = rlp.decode(raw[1:])
    encoded: bytes = rlp.encode([*before, b"\1", data])
    return raw[:1] + encoded


_DEPOSIT = _TRANSACTIONS[0]
# Transactions in JSON, with the trie's values.
ENCODED = {
    **{each["name"]: (each["transaction"], unhex(each["raw"])) for each in _TRANSACTIONS},
    "a deposit that mints nothing": ({**_DEPOSIT["transaction"], "mint": None}, unhex(_DEPOSIT["raw"])),
    "a deposit of no system": ({**_DEPOSIT["transaction"], "isSystemTx": False}, unhex(_DEPOSIT["raw"])),
    "the system's deposit": ({**_DEPOSIT["transaction"], "isSystemTx": True}, of_the_system(unhex(_DEPOSIT["raw"]))),
}


@pytest.mark.parametrize("case", ENCODED)
def test_a_transaction_in_json_is_encoded_as_it_was_on_its_chain(client_of, case):
    transaction, raw = ENCODED[case]
    of = header_of([raw])
    with serving(of, [transaction]) as url:
        assert block_transactions.of_block(client_of(url), of) == (raw,)


def each_of(**changes: Callable[[Any], Any]) -> Change:
    """Return a change of each transaction's fields that are named, where it has them."""

    def changed(told: dict[str, Any]) -> dict[str, Any]:
        return told | {name: change(told[name]) for name, change in changes.items() if name in told}

    return lambda transactions: list(map(changed, transactions))


def typed_without_parity(change: Callable[[int, int], int]) -> Change:
    """Return a change that gives transactions of a type a `v` made from the parity and the chain's id."""
    return lambda told: [
        each if each["type"] == "0x0" else each | {"v": hex(change(int(each["v"], 16), int(each["chainId"], 16)))}
        for each in told
    ]


# Answers that nodes have given, or may give, for the same transactions.
MISANSWERED: dict[str, Change] = {
    "the parity under its own name": lambda told: [
        each if each["type"] == "0x0" else {**each, "yParity": each["v"], "v": "0x25"} for each in told
    ],
    "27 or 28 in transactions of a type": typed_without_parity(lambda parity, _: 27 + parity),
    "EIP-155's in transactions of a type": typed_without_parity(lambda parity, chain_id: 35 + 2 * chain_id + parity),
    "leading zeros": each_of(r=lambda r: f"{int(r, 16):#066x}", s=lambda s: f"{int(s, 16):#066x}"),
    "no list of accesses": lambda told: [
        {**each, "accessList": None} if each.get("accessList") == [] else each for each in told
    ],
    "no type, and fields of later forks": lambda told: [
        {"chainId": None, "accessList": None, "maxFeePerGas": None, **each, "type": None}
        if each["type"] == "0x0"
        else each
        for each in told
    ],
    "another name of the data": lambda told: [
        {"input" if name == "data" else name: value for name, value in each.items()} for each in told
    ],
    "Polygon's transaction of what the bridge has done": lambda told: [
        *told,
        each_of(gas=lambda _: "0x0", hash=lambda _: "0x" + "11" * 32)([told[-1]])[0],
    ],
    "false hashes": each_of(hash=lambda _: "0x" + "11" * 32),
}


@pytest.mark.parametrize("case", MISANSWERED)
def test_transactions_misanswered_in_known_ways_still_make_the_blocks_encoded_ones(client_of, signed, case):
    of, transactions = signed.header, signed.transactions
    changed = MISANSWERED[case](transactions)
    assert changed != transactions
    with serving(of, changed) as url:
        assert list(block_transactions.of_block(client_of(url), of)) == signed.raw


def test_transactions_that_cannot_be_encoded_are_asked_for_as_they_are(client_of, signed):
    of, transactions = signed.header, signed.transactions
    raw = {hex_data(keccak(each)): hex_data(each) for each in signed.raw}
    strange = [each | {"type": "0x76"} if each["type"] == "0x1" else each for each in transactions]
    strange[5] = strange[5] | {"nonce": "0x0"}
    del strange[7]["gas"]
    asked: list[str] = []

    def answer(tx_hash: str) -> str:
        asked.append(tx_hash)
        return raw[tx_hash]

    with serving(of, strange, eth_getRawTransactionByHash=answer) as url:
        assert list(block_transactions.of_block(client_of(url), of)) == signed.raw
    changed = zip(strange, transactions, strict=True)
    assert asked == [each["hash"] for at, (each, was) in enumerate(changed) if each != was or at == 7]
    # Each is asked for after the one before, so a node that misanswers all of a large block is given up.
    with (
        serving(of, each_of(type=lambda _: "0x76")(transactions), eth_getRawTransactionByHash=answer) as url,
        pytest.raises(OtherRoot, match="root differs"),
    ):
        block_transactions.of_block(client_of(url), of)
    assert len(transactions) > 64


def first(**fields: Any) -> Change:
    return lambda told: [told[0] | fields, *told[1:]]


# Answers that are not the block's transactions, and one for a raw one if the node serves any.
FALSE: dict[str, tuple[Change, Sequence[Any]]] = {
    "another transaction": (lambda told: [*told[:3], told[4], *told[4:]], ()),
    "one more": (lambda told: [*told, told[-1]], ()),
    "one less": (lambda told: told[:-1], ()),
    "none": (lambda _: [], ()),
    "another order": (lambda told: told[::-1], ()),
    "another value": (first(value="0x1"), ("0x",)),
    "another raw transaction": (first(type="0x76"), ("0xc0",)),
    "no raw transaction": (first(type="0x76"), (None,)),
    "raw transactions refused": (first(type="0x76"), ()),
}


@pytest.mark.parametrize("case", FALSE)
def test_other_transactions_than_the_blocks_are_refused(client_of, signed, case):
    of, transactions = signed.header, signed.transactions
    change, raw = FALSE[case]
    more = {"eth_getRawTransactionByHash": raw[0]} if raw else {}
    with serving(of, change(transactions), **more) as lying, serving(of, transactions) as honest:
        with pytest.raises(OtherRoot, match=f"transactions of block {of.number} whose root differs"):
            block_transactions.of_block(client_of(lying), of)
        # A node that is down might have answered.
        with pytest.raises(NodeUnavailable) as caught:
            block_transactions.of_block(client_of(lying, "http://127.0.0.1:1"), of)
        assert not isinstance(caught.value, OtherRoot)
        assert list(block_transactions.of_block(client_of(lying, honest), of)) == signed.raw


def test_a_node_that_runs_out_of_time_for_a_raw_transaction_is_a_fault_that_passes(client_of, signed):
    of, transactions = signed.header, signed.transactions
    with (
        serving(
            of,
            first(type="0x76")(transactions),
            eth_getRawTransactionByHash=RpcRefused(*geth_answers.REFUSALS["a time-out"]),
        ) as url,
        pytest.raises(NodeUnavailable) as caught,
    ):
        block_transactions.of_block(client_of(url), of)
    assert not isinstance(caught.value, OtherRoot)


def test_a_block_of_megabytes_is_read(client_of):
    raw = rlp.encode([b"", b"\1", b"\1", b"", b"", bytes(2_500_000), b"\x1b", b"\1", b"\1"])
    of = header_of([raw])
    with serving(of, [as_json(raw)]) as url:
        assert block_transactions.of_block(client_of(url), of) == (raw,)


MALFORMED: dict[str, dict[str, Any] | None] = {
    "no block": None,
    "another block": {"hash": "0x" + "11" * 32, "transactions": []},
    "hashes only": {"transactions": ["0x" + "11" * 32]},
    "no list": {"transactions": None},
    "no hash": {"transactions": [{"type": "0x76"}]},
}


@pytest.mark.parametrize("case", MALFORMED)
def test_a_malformed_block_is_a_fault_that_may_pass(client_of, case):
    of = header_of([bytes(32)])
    fields = MALFORMED[case]
    block = None if fields is None else {"hash": hex_data(of.hash), **fields}
    with answering(eth_getBlockByHash=block) as url, pytest.raises(InvalidReply):
        block_transactions.of_block(client_of(url), of)


def test_transactions_of_several_types_are_read_from_a_real_node(client_of, chain):
    raws = several_types()
    chain.rpc("evm_setAutomine", False)
    for raw in raws:
        chain.rpc("eth_sendRawTransaction", raw)
    chain.mine()
    client = client_of(chain.url)
    assert list(map(hex_data, block_transactions.of_block(client, client.head()))) == raws


def several_types(first_nonce: int = 0) -> list[str]:
    """Return six signed transactions: with and without EIP-155, one that creates a contract, and types 1, 2 and 4.

    anvil's root of transactions covers the blobs of type 3, which no other node's does.
    """
    account = ACCOUNTS[1][0]
    gas = {"gas": 200_000, "value": 0, "to": account}
    old = {**gas, "gasPrice": to_wei(5, "gwei")}
    new = {**gas, "chainId": 31337, "maxFeePerGas": to_wei(5, "gwei"), "maxPriorityFeePerGas": 1}
    access = [{"address": account, "storageKeys": ["0x" + "00" * 32, "0x" + "11" * 32]}]
    authorization = {"chainId": 31337, "address": account, "nonce": 0}
    authorized = [Account.sign_authorization(authorization, _OTHER_KEY)]
    transactions: list[dict[str, Any]] = [
        {**old, "chainId": 31337},
        old,
        {**old, "to": "", "data": "0x00", "chainId": 31337},
        {**old, "chainId": 31337, "accessList": access, "type": 1},
        {**new, "data": "0x1234"},
        {**new, "authorizationList": authorized, "accessList": access},
    ]
    return [
        hex_data(bytes(Account.sign_transaction({**each, "nonce": nonce}, _KEY).raw_transaction))
        for nonce, each in enumerate(transactions, first_nonce)
    ]
