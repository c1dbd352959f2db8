"""The lies of one of two nodes, which alone must not pay more, stop a signer or call a person in vain."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from campaigns.incidents.site import ProxiedNode
from devnet.devchain import DevChain
from tests.chains.geth_answers import SYNCS
from tests.proving.money_node import (
    GWEI,
    Change,
    block_with,
    constant,
    higher_by,
    in_turn,
    multiplied_by,
    object_with,
)


@dataclass(frozen=True)
class Lie:
    description: str
    changes: Mapping[str, Change] = field(default_factory=dict)
    """Changes of results by method. None: `Node` of tests/proving/money_node.py knows the lie by its name."""
    codes: Sequence[str] = ()
    """One of them must be told if it is the first node that lies. No other code may be told."""
    is_told_anywhere: bool = False
    """True if they must be told of any node."""


def _true(value: Any, _: DevChain) -> Any:
    return value


_POOR = constant(hex(12_345))
_FALSE_PROOF = object_with("accountProof", lambda proof, _: proof[:-1])
_FAILED = object_with("status", constant("0x0"))

LIES: Mapping[str, Lie] = {
    "balance": Lie("a balance of 12,345 wei", {"eth_getBalance": _POOR}, ["node_doubtful"]),
    "proofs": Lie("false proofs", {"eth_getProof": _FALSE_PROOF}),
    "by-turns": Lie(
        "balances, failures and proofs, each true and false by turns",
        {
            "eth_getBalance": in_turn(_POOR, _true),
            "eth_getTransactionReceipt": in_turn(_FAILED, _true),
            "eth_getProof": in_turn(_FALSE_PROOF, _true),
        },
        ["node_doubtful", "receipt_unusable"],
    ),
    "wavering": Lie(
        "nonces and receipts, true and false by turns",
        {
            "eth_getTransactionCount": in_turn(higher_by(3), _true, higher_by(-3), constant("0x0")),
            "eth_getTransactionReceipt": in_turn(constant(None), _true, _FAILED),
        },
        ["nonce_gap", "receipt_unusable"],
    ),
    "head-ahead": Lie("a head 50 blocks ahead", {"eth_getBlockByNumber": block_with("number", 50)}),
    "price": Lie(
        "a price in receipts of 40 times as much",
        {"eth_getTransactionReceipt": object_with("effectiveGasPrice", multiplied_by(40))},
    ),
    "failed": Lie("that all transactions failed", codes=["receipt_unusable"]),
    "base-fee": Lie("a base fee of 180 gwei", {"eth_getBlockByNumber": block_with("baseFeePerGas", 180 * GWEI)}),
    "nonce-low": Lie("a nonce too low by 3", {"eth_getTransactionCount": higher_by(-3)}),
    "hidden": Lie("no receipt", codes=["receipt_unusable"]),
    "tip": Lie("a tip of 150 gwei", {"eth_maxPriorityFeePerGas": constant(hex(150 * GWEI))}, ["node_doubtful"]),
    "estimate": Lie("an estimate of 30,000 gas", {"eth_estimateGas": constant(hex(30_000))}),
    "estimate-low": Lie("0.6 of the gas", {"eth_estimateGas": multiplied_by(0.6)}),
    "estimate-high": Lie("10 times the gas", {"eth_estimateGas": multiplied_by(10)}),
    "reverts": Lie("that each transaction would revert"),
    "absent": Lie("that each call reverts, as without a registry"),
    "poor": Lie("that the signer can't pay for any transaction"),
    "nonce-high": Lie("a nonce too high by 3", {"eth_getTransactionCount": higher_by(3)}, ["nonce_gap"]),
    "chain-id": Lie(
        "the id of another chain", {"eth_chainId": constant("0x5")}, ["wrong_chain"], is_told_anywhere=True
    ),
    "syncing": Lie("that it syncs", {"eth_syncing": constant(SYNCS)}, ["node_syncing"], is_told_anywhere=True),
    "stale": Lie("a head 60 blocks behind"),
}
"""Lies by name. A node that lags or syncs rests for a minute, so such lies come last."""


@contextmanager
def lying(node: ProxiedNode, name: str) -> Iterator[None]:
    """Let the node tell a lie of `LIES`, of `ProxiedNode` or of its base classes."""
    node.is_honest.clear()
    node.changes, node.lies_told = LIES[name].changes if name in LIES else {}, 0
    node.lie = "" if node.changes else name
    yield
    node.lie, node.changes = "", {}
    node.is_honest.set()
