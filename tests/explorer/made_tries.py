"""Tries as deep as those of large chains, made for a batch's accounts and slots without a chain."""

from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import rlp
from eth_utils.crypto import keccak

from proving.models import AccountProof, SlotProof
from queries.models import Batch, Block, StepKind
from tests import headers
from tests.explorer.batches import CONTRACT, SOURCE, accept, complete, connect_source, deployed, find_block
from tests.service import ALICE, BOB, a_key, submit

Proofs = dict[bytes, list[bytes]]
"""The nodes from the root, by hashed key."""

EMPTY_TRIE_ROOT, EMPTY_CODE_HASH = keccak(rlp.encode(b"")), keccak(b"")
# Fields of all headers. Their time is before the times that queries name.
FIELDS = headers.PRAGUE


def trie(values: Mapping[bytes, bytes], levels: int) -> tuple[bytes, Proofs]:
    """Return the root and the proofs of a trie with these values by hashed key.

    Each key is below at least `levels` full branches, whose other children belong to other keys.
    """
    proofs: Proofs = {key: [] for key in values}
    root = _node(sorted(values), 0, levels, values, proofs)
    for proof in proofs.values():
        proof.reverse()
    return keccak(root), proofs


def _node(keys: Sequence[bytes], depth: int, levels: int, values: Mapping[bytes, bytes], proofs: Proofs) -> bytes:
    """Return the node's RLP. Append it to the proofs of the keys below it."""
    if len(keys) == 1 and depth >= levels:
        encoded: bytes = rlp.encode([_leaf_path(keys[0].hex()[depth:]), values[keys[0]]])
    else:
        prefix = keys[0].hex()[:depth]
        children = [keccak(f"{prefix}{nibble:x}".encode()) if depth < levels else b"" for nibble in range(16)]
        for digit, below in groupby(keys, lambda key: key.hex()[depth]):
            children[int(digit, 16)] = keccak(_node(list(below), depth + 1, levels, values, proofs))
        encoded = rlp.encode([*children, b""])
    for key in keys:
        proofs[key].append(encoded)
    return encoded


def _leaf_path(nibbles: str) -> bytes:
    """Return the hex-prefix encoding (Yellow Paper, appendix C)."""
    return bytes.fromhex(f"3{nibbles}" if len(nibbles) % 2 else f"20{nibbles}")


# --- For a batch ------------------------------------------------------------------------------------------------------


def prove(batch: Batch, levels: int = 2) -> None:
    """Take a batch to DONE with valid proofs. Accounts have nonce 7 and `balance`, and slots have `slot_value`."""
    for block in Block.objects.filter(queries__batch=batch).distinct():
        slots_by_address: dict[str, dict[str, None]] = {}
        for query in batch.queries.filter(block=block).exclude(address=""):
            slots_by_address.setdefault(query.address, {}).update(dict.fromkeys(query.slots))
        root = _prove_accounts(block, slots_by_address, levels)
        _store_header(block, {**FIELDS, "stateRoot": root, "number": block.number})
    for source in batch.queries.values_list("source_chain_id", flat=True).distinct():
        accept(batch, source)
        deployed(source)
    complete(batch, *StepKind)
    batch.refresh_from_db()


def balance(address: str) -> int:
    return int(address, 16) % 10**24


def slot_value(slot: str) -> int:
    return int(slot, 16) * 7 % 2**256


def _prove_accounts(block: Block, slots_by_address: Mapping[str, Mapping[str, None]], levels: int) -> bytes:
    """Store proofs of the block's accounts and slots. Return the state root."""
    rows: dict[bytes, AccountProof] = {}
    values: dict[bytes, bytes] = {}
    slots: list[SlotProof] = []
    for address, numbers in slots_by_address.items():
        words = {keccak(bytes.fromhex(slot[2:])): rlp.encode(slot_value(slot)) for slot in numbers}
        root, proofs = trie(words, levels) if words else (EMPTY_TRIE_ROOT, {})
        key = keccak(bytes.fromhex(address[2:]))
        values[key] = rlp.encode([7, balance(address), root, EMPTY_CODE_HASH])
        rows[key] = AccountProof(
            block=block,
            address=address,
            nonce=7,
            balance=balance(address),
            storage_root="0x" + root.hex(),
            code_hash="0x" + EMPTY_CODE_HASH.hex(),
        )
        slots += [
            SlotProof(
                account=rows[key],
                slot=slot,
                value=slot_value(slot),
                nodes=_hex(proofs[keccak(bytes.fromhex(slot[2:]))]),
            )
            for slot in numbers
        ]
    state_root, proofs = trie(values, levels) if values else (keccak(b"a state"), {})
    for key, row in rows.items():
        row.nodes = _hex(proofs[key])
    AccountProof.objects.bulk_create(rows.values(), batch_size=500)
    SlotProof.objects.bulk_create(slots, batch_size=500)
    return state_root


def _hex(nodes: Sequence[bytes]) -> list[str]:
    return ["0x" + node.hex() for node in nodes]


def _store_header(block: Block, fields: headers.Fields) -> None:
    block.header_rlp = headers.encode(fields)
    block.hash, block.timestamp = "0x" + keccak(block.header_rlp).hex(), int(fields["timestamp"])
    block.state_root = "0x" + bytes(fields["stateRoot"]).hex()
    block.save()


def asked_of_everything(folder: Path | None, more: Mapping[str, Any] | None = None) -> Batch:
    """Return a RECEIVED batch of accounts, slots, headers and a time in three blocks, with `more` accounts in block 12.

    With a folder, add another source chain to its chains file (see `connect_source`), and a block of it to the batch.
    """
    data: dict[str, Any] = {
        "31337": {
            "block:12": {
                "accounts": {
                    ALICE: {"props": ["BALANCE", "CODE_HASH"]},
                    CONTRACT: {"slots": ["0x5", "0x6"]},
                    **(more or {}),
                },
                "header": ["GAS_USED", "LOGS_BLOOM", "BLOCK_NUMBER"],
            },
            "block:13": {"accounts": {ALICE: {"props": ["NONCE"]}, CONTRACT: {"props": ["BALANCE"], "slots": ["0x5"]}}},
            "timestamp:1700000005": {"accounts": {ALICE: {"props": ["NONCE"]}}},
        }
    }
    if folder is not None:
        connect_source(folder)
        data[str(SOURCE)] = {"block:9": {"accounts": {BOB: {"props": ["BALANCE"]}}}}
    batch = submit(a_key(), {"destinationChainId": "31337", "fee": "0", "data": data})
    find_block(batch, 14)
    return batch
