"""Facts of every kind: the requests, the node's values, and the registry's values."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from eth_account import Account
from eth_utils.crypto import keccak

from devnet import devchain, genesis, json_rpc
from tests.proving.logs import FAILS, LOG, PROPERTIES, RETURNS, emitting, log_hash

# EIP-2935's contract, and the number of hashes it holds.
_HISTORY, _HASHES = "0x0000F90827F1C53a10cb7A02335B175320002935", 8191
_EMPTY_TRIE_ROOT = keccak(b"\x80")
MISSING = "0x000000000000000000000000000000000000dEaD"
_SLOTS = (0, 1, 5, 2**255)
_PROPERTIES = ("NONCE", "BALANCE", "STORAGE_ROOT", "CODE_HASH")
# Header fields by index, with their names in nodes' answers.
_HEADER = {
    "PARENT_HASH": (0, "parentHash"),
    "UNCLES_HASH": (1, "sha3Uncles"),
    "COINBASE": (2, "miner"),
    "STATE_ROOT": (3, "stateRoot"),
    "TRANSACTIONS_ROOT": (4, "transactionsRoot"),
    "RECEIPTS_ROOT": (5, "receiptsRoot"),
    "LOGS_BLOOM": (6, "logsBloom"),
    "DIFFICULTY": (7, "difficulty"),
    "BLOCK_NUMBER": (8, "number"),
    "GAS_LIMIT": (9, "gasLimit"),
    "GAS_USED": (10, "gasUsed"),
    "TIMESTAMP": (11, "timestamp"),
    "EXTRA_DATA": (12, "extraData"),
    "MIX_HASH": (13, "mixHash"),
    "NONCE": (14, "nonce"),
    "BASE_FEE_PER_GAS": (15, "baseFeePerGas"),
    "WITHDRAWALS_ROOT": (16, "withdrawalsRoot"),
    "BLOB_GAS_USED": (17, "blobGasUsed"),
    "EXCESS_BLOB_GAS": (18, "excessBlobGas"),
    "PARENT_BEACON_BLOCK_ROOT": (19, "parentBeaconBlockRoot"),
    "REQUESTS_HASH": (20, "requestsHash"),
    "BLOCK_ACCESS_LIST_HASH": (21, "blockAccessListHash"),
    "SLOT_NUMBER": (22, "slotNumber"),
}
_HASHED = {"LOGS_BLOOM", "EXTRA_DATA"}

Call = tuple[str, *tuple[int, ...]]
"""A view of the registry by its signature, with arguments."""


class Node(Protocol):
    chain_id: int

    def rpc(self, method: str, *params: Any) -> Any: ...


@dataclass(frozen=True)
class Facts:
    """Requested facts of one block, with the node's answers."""

    asked: Mapping[str, Any]
    """The `data` of a batch query about the chain."""
    expected: Mapping[Call, int]


def send_transactions(node: Node) -> str:
    """Send transactions of three types, with logs and without: three succeed, and one fails. Return the last hash."""
    address, key = devchain.ACCOUNTS[2]
    nonce = int(node.rpc("eth_getTransactionCount", address, "latest"), 16)
    price: dict[str, Any] = {"maxFeePerGas": 10**11, "maxPriorityFeePerGas": 10**9}
    to_slot = [{"address": genesis.HOLDS_SLOTS, "storageKeys": [f"0x{1:064x}"]}]
    transactions: tuple[tuple[str, dict[str, Any]], ...] = (
        (LOG + RETURNS, {"gasPrice": 10**11}),
        (LOG + FAILS, price),
        (emitting(64, 5), {**price, "accessList": to_slot}),
        (LOG + LOG + RETURNS, {"gasPrice": 10**11, "accessList": to_slot}),
    )
    for place, (code, more) in enumerate(transactions):
        fields = {"chainId": node.chain_id, "nonce": nonce + place, "gas": 10**6, "value": 0, "data": f"0x{code}"}
        signed = Account.sign_transaction(fields | more, key).raw_transaction
        sent: str = node.rpc("eth_sendRawTransaction", signed.to_0x_hex())
    return sent


def facts_of(node: Node, number: int) -> Facts:
    """Return all properties of the header and of five accounts, slots, and the block at its own time.

    Also return all properties and logs of the block's transactions, by their hashes and by their indexes in turn.
    """
    at = hex(number)
    block = node.rpc("eth_getBlockByNumber", at, False)
    header = {name: block[told] for name, (_, told) in _HEADER.items() if block.get(told) is not None}
    expected: dict[Call, int] = {
        ("headerField(uint256,uint8)", number, _HEADER[name][0]): int(
            keccak(hexstr=value).hex() if name in _HASHED else value, 16
        )
        for name, value in header.items()
    }
    slots: dict[str, tuple[int, ...]] = dict.fromkeys((devchain.ACCOUNTS[0][0], devchain.ACCOUNTS[3][0], MISSING), ())
    slots[genesis.HOLDS_SLOTS] = _SLOTS
    # The first slot has the newest hash. The second is empty while the chain is short.
    slots[_HISTORY] = (number - 1, _HASHES - 1)
    for address, numbers in slots.items():
        for index, value in enumerate(_account(node, address, at)):
            expected["accountField(address,uint256,uint8)", int(address, 16), number, index] = value
        for slot in numbers:
            # ganache returns 0x for an empty slot.
            told = node.rpc("eth_getStorageAt", address, f"0x{slot:064x}", at).removeprefix("0x") or "0"
            call: Call = "accountStorageSlotValues(address,uint256,bytes32)", int(address, 16), number, slot
            expected[call] = int(told, 16)
    moment = int(block["timestamp"], 16)
    expected["blockAtTimestamp(uint256)", moment] = number
    accounts = {
        address: {"props": list(_PROPERTIES), "slots": [f"0x{slot:064x}" for slot in numbers]}
        for address, numbers in slots.items()
    }
    transactions = {}
    for index, tx_hash in enumerate(block["transactions"]):
        receipt = node.rpc("eth_getTransactionReceipt", tx_hash)
        logs = receipt["logs"]
        told = [int(receipt[name], 16) for name in ("status", "type", "cumulativeGasUsed")] + [len(logs)]
        for field, value in enumerate(told):
            expected["receiptField(uint256,uint32,uint8)", number, index, field] = value
        expected["transactionHash(uint256,uint32)", number, index] = int(tx_hash, 16)
        for place, log in enumerate(logs):
            expected["logHash(uint256,uint32,uint32)", number, index, place] = log_hash(log)
        name = str(index) if index % 2 else tx_hash
        transactions[name] = {"props": [*PROPERTIES, "HASH"], "logs": [str(place) for place in range(len(logs))]}
    of_block = {"header": list(header), "accounts": accounts} | ({"transactions": transactions} if transactions else {})
    only_balance = {devchain.ACCOUNTS[0][0]: {"props": ["BALANCE"], "slots": []}}
    return Facts(
        {
            f"block:{number}": of_block,
            f"timestamp:{moment}": {"accounts": only_balance},
        },
        expected,
    )


def _account(node: Node, address: str, at: str) -> tuple[int, ...]:
    """Return nonce, balance, storage root and code hash. An absent account has zeros and the empty trie's root."""
    code = node.rpc("eth_getCode", address, at)
    balance = int(node.rpc("eth_getBalance", address, at), 16)
    nonce = int(node.rpc("eth_getTransactionCount", address, at), 16)
    if not (balance or nonce or code != "0x"):
        return 0, 0, int.from_bytes(_EMPTY_TRIE_ROOT), 0
    storage_root = int(node.rpc("eth_getProof", address, [], at)["storageHash"], 16)
    return nonce, balance, storage_root, int.from_bytes(keccak(hexstr=code))


def wrong(node: Node, registry: str, facts: Facts) -> list[str]:
    """Return the facts that the registry on the chain of `node` lacks, or has with other values."""
    return [
        f"{call}: {'nothing' if read is None else hex(read)} instead of {value:#x}"
        for call, value in facts.expected.items()
        if (read := _read(node, registry, call)) != value
    ]


def _read(node: Node, registry: str, call: Call) -> int | None:
    """Return None if the call reverts, as for unproven facts, or if there is no registry."""
    signature, *arguments = call
    data = keccak(text=signature)[:4].hex() + "".join(f"{argument:064x}" for argument in arguments)
    try:
        told = node.rpc("eth_call", {"to": registry, "data": f"0x{data}"}, "latest")
        return None if told == "0x" else int(told, 16)
    except (json_rpc.NodeErrorReply, devchain.DevChainError):
        return None
