"""Causes of refused broadcasts. The state of the chain decides, because each client words its refusals otherwise."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from math import inf
from typing import Any

from hexbytes import HexBytes

from chains.nodes import questions
from chains.nodes.chain_nodes import Question
from chains.nodes.node_errors import ChainError
from chains.nodes.questions import BlockIdentifier
from chains.nodes.rpc import RpcClient
from chains.transaction_fields import least_gas_limit
from chains.tries.header import Header
from proving.models import SignedTransaction, TransactionState


class RefusalCause(Enum):
    """The cause of a refusal, with a clause for logs."""

    SENT = "nodes have it, or a block has"
    NONCE_USED = "its nonce is used"
    REPLACEMENT = "nodes have another transaction with its nonce"
    GAP = "nodes lack a transaction with a lower nonce"
    FUNDS = "its signer has less than it may cost"
    FEE = "its fee is below the base fee"
    GAS = "its gas limit is below what its bytes take"
    UNEXPLAINED = "nothing on the chain explains the refusal"


def causes(rpc: RpcClient, versions: Sequence[SignedTransaction]) -> dict[int, RefusalCause]:
    """Return the causes of the refusals of these versions, by the versions' keys.

    Each node is asked once. One node alone decides only what changes nothing: no nonce is given up for these causes,
    and nothing is signed. If the process is killed before the causes are stored, the versions are broadcast again.
    """
    if not versions:
        return {}
    asked = _questions_about(versions)
    of_nodes = list(rpc.ask_each([*asked.values()]).values()) or [rpc.ask([*asked.values()])]
    answers = _StateAnswers([dict(zip(asked, of_node, strict=True)) for of_node in of_nodes])
    confirmed = _confirmed_nonces(rpc, versions, answers)
    return {version.pk: _cause(version, answers, confirmed) for version in versions}


_Subject = tuple[str, str]
"""The name of a question, and the hash or address that it is about."""


@dataclass(frozen=True)
class _StateAnswers:
    """The answers of one or several nodes."""

    nodes: Sequence[Mapping[_Subject, Any]]

    def of(self, name: str, about: str = "") -> list[Any]:
        """Return the answer of each node that has one."""
        answers = (node[name, about] for node in self.nodes)
        return [answer for answer in answers if answer is not None and not isinstance(answer, ChainError)]


def _questions_about(versions: Sequence[SignedTransaction]) -> dict[_Subject, Question[Any]]:
    asked: dict[_Subject, Question[Any]] = {("head", ""): questions.header("latest")}
    for version in versions:
        address = version.transaction.signer.address
        # The version may be newer than those that were read with its transaction.
        for tx_hash in {*version.transaction.hashes, version.hash or ""}:
            asked["known", tx_hash] = questions.is_known(HexBytes(tx_hash))
            asked["receipt", tx_hash] = questions.receipt(HexBytes(tx_hash))
        asked["latest", address] = questions.nonce(address)
        asked["pending", address] = questions.nonce(address, "pending")
        asked["balance", address] = questions.balance(address)
    return asked


def _confirmed_nonces(rpc: RpcClient, versions: Sequence[SignedTransaction], answers: _StateAnswers) -> dict[str, int]:
    """Return signers' next nonces in the newest confirmed block, where a single node tells that a nonce is used."""
    heads: list[Header] = answers.of("head")
    addresses = {
        version.transaction.signer.address
        for version in versions
        if len(told := answers.of("latest", version.transaction.signer.address)) == 1
        and told[0] > version.transaction.nonce
    }
    if not heads or not addresses:
        return {}
    depth = rpc.chain.confirmations
    block: BlockIdentifier = "finalized" if depth == "finalized" else max(0, heads[0].number + 1 - depth)
    nonces = dict(zip(addresses, rpc.ask([questions.nonce(address, block) for address in addresses]), strict=True))
    return {address: nonce for address, nonce in nonces.items() if isinstance(nonce, int)}


def _cause(version: SignedTransaction, answers: _StateAnswers, confirmed: Mapping[str, int]) -> RefusalCause:
    tx, address = version.transaction, version.transaction.signer.address
    if any(answers.of("known", version.hash or "")) or answers.of("receipt", version.hash or ""):
        return RefusalCause.SENT
    latest, pending = answers.of("latest", address), answers.of("pending", address)
    is_mined = any(answers.of("receipt", tx_hash) for tx_hash in tx.hashes)
    is_told_by_two = sum(nonce > tx.nonce for nonce in latest) > 1
    cost = _cost(version, min(latest, default=0))
    base_fees = [head.base_fee_per_gas or 0 for head in answers.of("head")]
    to, data = (address, b"") if version.is_cancellation else (tx.to or None, bytes(tx.data))
    # The first that holds is the cause. Where nodes differ, the answer counts that leaves a refusal unexplained.
    holds = {
        RefusalCause.NONCE_USED: is_mined or is_told_by_two or confirmed.get(address, 0) > tx.nonce,
        RefusalCause.REPLACEMENT: min(pending, default=0) > tx.nonce >= min(latest, default=inf),
        RefusalCause.GAP: max(pending, default=inf) < tx.nonce,
        RefusalCause.FUNDS: max(answers.of("balance", address), default=inf) < cost,
        RefusalCause.FEE: version.max_fee_per_gas < min(base_fees, default=0),
        RefusalCause.GAS: version.gas < least_gas_limit(to, data),
    }
    return next((cause for cause, is_true in holds.items() if is_true), RefusalCause.UNEXPLAINED)


def _cost(version: SignedTransaction, next_nonce: int) -> int:
    """Return the maximum cost of a version in wei, and of the transactions that must come before it."""
    tx = version.transaction
    before = tx.signer.transactions.filter(
        state=TransactionState.PENDING, nonce__gte=next_nonce, nonce__lt=tx.nonce
    ).defer("data")
    data_fee = 0 if version.is_cancellation else tx.data_fee
    costs = [earlier.cost for earlier in before.prefetch_related("versions")]
    return sum(costs) + version.gas * version.max_fee_per_gas + data_fee
