"""Recorded blocks as nodes answer them. `python -m tests.chains.recorded_blocks` prints which make their roots."""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import rlp
from eth_account.typed_transactions.typed_transaction import TypedTransaction
from eth_utils.crypto import keccak
from hexbytes import HexBytes

from chains.chains_file import Chain
from chains.encoding import hex_data
from chains.nodes import block_transactions, receipts
from chains.nodes.node_errors import OtherRoot, RpcRefused
from chains.nodes.rpc import RpcClient
from chains.tries.header import Header
from tests.chains.lying_node import Raw, error, is_chain_id, lying_node, result
from tests.contracts.blocks import block_of
from tests.fixtures_folder import load_fixture, unhex

# The order of fields in RLP, which libraries for transactions of Ethereum don't know.
_OTHER_FIELDS = {
    0: ("nonce", "gasPrice", "gas", "to", "value", "input", "v", "r", "s"),
    0x6A: ("chainId", "input"),
    0x7E: ("sourceHash", "from", "to", "mint", "value", "gas", "isSystemTx", "input"),
}
_DATA = {"to", "input", "sourceHash", "from"}

NOT_TRIED = "not tried"
# A recorded block of each kind of chain, if there is one.
KINDS = {
    "Ethereum before Byzantium": "eth-mainnet-1000000",
    "Ethereum since, types 0 to 3": "eth-mainnet-20472570",
    "Bittensor's testnet, type 4": "bittensor-testnet-6646068-type4",
    "OP Goerli, before Canyon": "op-goerli-8381743",
    "OP Mainnet, since Canyon": "op-mainnet-154497277",
    "Arbitrum One": "arbitrum-one-150000000",
    "Polygon": "polygon-9826737",
    "Celo": None,
    "Gnosis": None,
    "Cronos": "cronos-10000-not-reproducible",
    "Hedera": "hedera-97395350-not-reproducible",
}


def load(name: str) -> dict[str, Any]:
    """Return a recorded block's fixture."""
    return load_fixture(f"receipts/{name}.json")


def transactions_of(fixture: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return all transactions of a block as JSON. Empty if their fields aren't recorded."""
    transactions = fixture["transactions"] or []
    if any(isinstance(each, str) and len(each) <= len("0x") + 64 for each in transactions):
        return []
    return [each if isinstance(each, dict) else as_json(unhex(each)) for each in transactions]


def as_json(raw: bytes) -> dict[str, Any]:
    """Return a transaction as nodes answer it. Those of Ethereum's types are read by another library than ours."""
    kind = raw[0] if raw[0] < 0x80 else 0
    if kind in _OTHER_FIELDS:
        names = _OTHER_FIELDS[kind]
        values = zip(names, rlp.decode(raw[1:] if kind else raw), strict=True)
        fields = {name: hex_data(value) if name in _DATA else hex(int.from_bytes(value)) for name, value in values}
    else:
        fields = {name: _written(value) for name, value in TypedTransaction.from_bytes(HexBytes(raw)).as_dict().items()}
    return fields | {"type": hex(kind), "hash": hex_data(keccak(raw))}


def _written(value: Any) -> Any:
    match value:
        case {"address": address, "storageKeys": keys}:
            # The library reads keys as numbers.
            return {"address": _written(address), "storageKeys": [f"{int(key):#066x}" for key in keys]}
        case bytes():
            return hex_data(value)
        case int():
            return hex(value)
        case dict():
            return {name: _written(each) for name, each in value.items()}
    return [_written(each) for each in value]


@contextmanager
def answering(**results: Any) -> Iterator[str]:
    """Serve these results by their methods: a function's by the parameters, and an error's as a refusal.

    Other methods are refused.
    """

    def answer(body: Any) -> Any:
        if is_chain_id(body):
            return result(body, "0x7a69")
        if body["method"] not in results:
            return error(body, -32601, "the method does not exist")
        told = results[body["method"]]
        if isinstance(told, RpcRefused):
            return error(body, told.code, told.message)
        return told if isinstance(told, Raw) else result(body, told(*body["params"]) if callable(told) else told)

    with lying_node(answer) as url:
        yield url


def table() -> list[str]:
    """Return the table in docs/concepts/chains.md: which recorded blocks make their roots."""
    lines = ["| chain | block | receipts make the root | transactions make the root |", "| --- | --- | --- | --- |"]
    for kind, name in KINDS.items():
        cells = [f"{int(re.findall(r'[0-9]+', name)[0]):,}", *_outcomes(name)] if name else ["none", *[NOT_TRIED] * 2]
        lines.append(f"| {kind} | {' | '.join(cells)} |")
    return lines


def _outcomes(name: str) -> Iterator[str]:
    """Yield whether a block's receipts make the root, and whether its transactions do."""
    fixture = load(name)
    header = Header.decode(block_of(fixture).header)
    transactions = transactions_of(fixture)
    full = {"hash": hex_data(header.hash), "transactions": transactions}
    with answering(eth_getBlockReceipts=fixture["receipts"], eth_getBlockByHash=full) as url:
        rpc = RpcClient(Chain(id=31337, name=name, rpc_urls=(url,)))
        of_blocks: list[Callable[[RpcClient, Header], object]] = [receipts.of_block]
        for of_block in (*of_blocks, block_transactions.of_block) if transactions else of_blocks:
            try:
                of_block(rpc, header)
            except OtherRoot:
                yield "no"
            else:
                yield "yes"
    if not transactions:
        yield NOT_TRIED


if __name__ == "__main__":
    print("\n".join(table()))
