"""The stages of a version: reserve its fields, sign them, store the bytes, broadcast them. Nothing else uses a key.

The money is checked once, when the fields are reserved. Until the nonce is final, the maximum cost counts. The later
stages hold no lock. After a kill between two stages, the transaction monitor has the same fields signed again. A key of
ours gives the same bytes (RFC 6979). A signing service may give others, or broadcast some by itself: whatever it was
asked for counts at its maximum until the nonce is final.
"""

import logging
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from math import inf
from operator import attrgetter
from typing import Any

from django.db.models import Q
from django.db.models.functions import Coalesce, Now
from django.utils import timezone
from eth_utils.crypto import keccak
from hexbytes import HexBytes

from chains.chains_file import Chain
from chains.configured_signers import NotSigned
from chains.encoding import hex_data
from chains.nodes import questions
from chains.nodes.chain_nodes import Question
from chains.nodes.node_errors import ChainError, RpcRefused
from chains.nodes.questions import BlockIdentifier
from chains.nodes.rpc import RpcClient
from chains.prices import GasPrices
from chains.transaction_fields import TransactionFields
from chains.tries.header import Header
from config import logs
from proving import money, stops
from proving.models import FactsRegistry, SignedTransaction, Signer, Transaction, TransactionState
from proving.money import OfferedFees
from proving.sending.signers import Unsent
from proving.working import destination_prices
from proving.working.lanes import HeldLane
from queries import batch_states, waits
from queries.models import Query
from queries.waits import WaitReason, wait

logger = logging.getLogger(__name__)


def senders(chain: Chain) -> tuple[str, ...]:
    """Return the addresses of this chain's signers, in the order of chains.toml. Raises `SignerError`."""
    return tuple(chain.signers_by_address())


# --- Reserve ----------------------------------------------------------------------------------------------------------


def reserve_version(
    chain: Chain,
    tx: Transaction,
    offer: OfferedFees,
    portions: Counter[str],
    *,
    least: int,
    gas: int = 0,
    is_new: bool = False,
) -> SignedTransaction | Unsent:
    """Reserve a version at the offered fees. If bounds are lower, use them, but not less than `least` wei per gas.

    `gas` is its gas limit; 0: that of the transaction.

    Only this checks stops, the chain's cap and limit, users' limits and batches' fees (`proving.money`). `portions`
    are the batches' parts of the gas limit. Stops of connections count only for a new transaction (`is_new`). Call it
    inside a database transaction in which no other worker reserves on the chain.
    """
    if stopped := stops.why_not_signed(tx, is_new=is_new):
        return Unsent(stopped)
    cap = money.cap(chain, is_new=is_new)
    if cap < least:
        return Unsent(wait("gas_above_cap", chain=chain.id, cap=str(chain.max_fee_per_gas_gwei)))
    batches = money.batches_of(portions)
    bounds = money.bounds(chain, tx, gas or tx.gas_limit, portions, batches)
    if too_low := [bound for bound in bounds if bound.price < least or bound.remaining < bound.data_fee]:
        whose = frozenset[str]().union(*(bound.batches for bound in too_low))
        return Unsent(min(too_low, key=attrgetter("price")).reason(chain, least), whose)
    price = min([cap, *(bound.price for bound in bounds)])
    if is_new and (even := money.even_price(chain, batches)) is not None:
        price = min(price, max(even, least))
    return _reserve(tx, portions, offer.at_most(price), gas=gas)


def reserve_cancellation(
    chain: Chain, tx: Transaction, offer: OfferedFees, portions: Counter[str], *, least: int, gas: int
) -> SignedTransaction | Unsent:
    """Reserve a version that only uses up the nonce, with this gas limit. Call it like `reserve_version`.

    Only the chain's own bounds limit its cost.
    """
    if stopped := stops.why_not_signed(tx, is_new=False):
        return Unsent(stopped)
    most = money.cancellation_price(chain, gas, tx)
    if most < least:
        return Unsent(wait("gas_above_cancellation", chain=chain.id))
    return _reserve(tx, portions, offer.at_most(most), gas=gas, is_cancellation=True)


def _reserve(
    tx: Transaction, portions: Counter[str], fees: OfferedFees, *, gas: int, is_cancellation: bool = False
) -> SignedTransaction:
    """Reserve a version with these fees. Its cost counts in later reservations."""
    version = SignedTransaction.objects.create(
        transaction=tx,
        max_fee_per_gas=fees.max_fee_per_gas,
        max_priority_fee_per_gas=fees.max_priority_fee_per_gas,
        is_cancellation=is_cancellation,
        gas_limit=gas or None,
    )
    # This reads all versions, including the new one.
    money.divide({tx: portions})
    tx.reserve()
    tx.save(update_fields=["data_fee", "expected_data_fee", "expected_gas", "reserved_gwei"])
    return version


# --- Sign and store ---------------------------------------------------------------------------------------------------


def send_reserved(rpc: RpcClient, lane: HeldLane, versions: Sequence[SignedTransaction]) -> None:
    """Sign, store and broadcast reserved versions, outside of any database transaction. Raises `LaneLost`."""
    sign_and_store(rpc.chain, lane, versions)
    broadcast(rpc, versions)


def sign_and_store(chain: Chain, lane: HeldLane, versions: Sequence[SignedTransaction]) -> None:
    """Sign and store versions that aren't signed yet, unless they are stopped. Raises `LaneLost`, `SignerError`.

    A version whose key or calldata no longer exists stays unsigned, and one that a signing service doesn't sign: it is
    asked again for the same fields.
    """
    rows = {version.transaction.signer.address: version.transaction.signer for version in versions}
    unsigned: dict[str, list[SignedTransaction]] = defaultdict(list)
    for version in versions:
        tx = version.transaction
        has_fields = version.is_cancellation or tx.pruned_at is None
        if not version.hash and has_fields and tx.state in _states_to_sign(version):
            unsigned[tx.signer.address].append(version)
    configured = chain.signers_by_address() if unsigned else {}
    signed: dict[SignedTransaction, bytes] = {}
    problems: dict[str, WaitReason] = {}
    for address in configured.keys() & unsigned.keys():
        if stops.why_signer_is_stopped(chain.id, address):
            continue
        fields = [_fields_of(version) for version in unsigned[address]]
        for version, answer in zip(unsigned[address], configured[address].sign(fields), strict=True):
            if not isinstance(answer, NotSigned):
                signed[version] = answer
            # A refused cancellation of a displaced transaction holds up nothing.
            elif version.transaction.state == TransactionState.PENDING:
                problems.setdefault(address, wait(answer.code, signer=address, chain=chain.id, problem=str(answer)))
    if signed:
        lane.write(partial(store, signed))
    show_signing_problems(rows, problems)
    weights = money.weights_of(*(version.transaction for version in signed))
    for version in (version for version in signed if version.hash):
        # Later log lines name only the transaction, so this one names its batches.
        batches = sorted(weights[version.transaction])
        extra = {"transaction": version.hash, "chain": chain.id, "batches": batches}
        logger.info("%s is stored for %s", version.hash, ", ".join(batches) or "the operator", extra=extra)


def show_signing_problems(rows: Mapping[str, Signer], problems: Mapping[str, WaitReason]) -> None:
    """Store why signers don't sign, or that they do again. While one doesn't, nothing more is reserved for it."""
    unsigned = SignedTransaction.objects.filter(hash=None, transaction__state=TransactionState.PENDING)
    for address, row in rows.items():
        problem = problems.get(address)
        is_over = row.signing_problem and not unsigned.filter(transaction__signer=row).exists()
        if problem != row.signing_problem and (problem or is_over):
            logger.warning("the signer %s: %s", row, problem or "It signs again.")
            # The monitor withdraws the problem, also if the transactions have become final meanwhile.
            Signer.objects.filter(pk=row.pk).update(signing_problem=problem, due_at=Coalesce("due_at", Now()))
            row.signing_problem = problem


def _fields_of(version: SignedTransaction) -> TransactionFields:
    """Return a version's reserved fields."""
    tx = version.transaction
    return TransactionFields(
        sender=tx.signer.address,
        chain_id=tx.signer.chain_id,
        nonce=tx.nonce,
        max_priority_fee_per_gas=version.max_priority_fee_per_gas,
        max_fee_per_gas=version.max_fee_per_gas,
        gas=version.gas,
        to=tx.signer.address if version.is_cancellation else tx.to,
        data=b"" if version.is_cancellation else bytes(tx.data),
    )


def store(signed: Mapping[SignedTransaction, bytes]) -> None:
    """Store the bytes of versions, and show their hashes, in the caller's database transaction.

    Bytes that another worker stored are kept. A transaction that was given up meanwhile gets none.
    """
    queries = Query.objects.filter(transactions__in=[version.transaction for version in signed])
    batch_states.lock_batches(queries.values_list("pk", flat=True))
    for version, raw in sorted(signed.items(), key=lambda item: item[0].pk):
        tx, tx_hash = version.transaction, hex_data(keccak(raw))
        reserved = SignedTransaction.objects.filter(
            pk=version.pk, hash=None, transaction__state__in=_states_to_sign(version)
        )
        if reserved.update(hash=tx_hash, raw=raw):
            show(tx, tx_hash, is_first=set(tx.hashes) <= {tx_hash})
            version.hash, version.raw = tx_hash, raw
        else:
            version.refresh_from_db(fields=["hash", "raw"])


def _states_to_sign(version: SignedTransaction) -> list[TransactionState]:
    """Return the states of the transaction in which the version may be signed.

    A cancellation is signed for a displaced transaction too, because nodes may still hold that.
    """
    may_be_held = version.is_cancellation and version.transaction.hashes
    return [TransactionState.PENDING, *([TransactionState.DISPLACED] if may_be_held else [])]


def show(tx: Transaction, tx_hash: str, *, is_first: bool = False) -> None:
    """Show this hash on the steps that wait for the transaction, but not on steps that wait for a later transaction.

    All open steps wait for the first version of a transaction (`is_first`). The caller has locked the batches.
    """
    shown = None
    if not is_first:
        if tx.state == TransactionState.DISPLACED or is_to_unused_registry(tx):
            return  # Other transactions prove its queries again.
        # A step that has just begun shows no hash. It gets this one unless the transaction only leads to the block.
        shown = [*tx.hashes, *([""] if tx.extends_id is None or tx.accumulates.exists() else [])]
    batch_states.note_transaction(tx.queries.all(), tx_hash, instead_of=shown)


def is_to_unused_registry(tx: Transaction) -> bool:
    """Return whether the transaction goes to a registry that was refused or replaced meanwhile."""
    if not tx.to:
        return False
    rows = FactsRegistry.objects.filter(Q(address=tx.to) | Q(multicall=tx.to), destination_chain_id=tx.signer.chain_id)
    unused = [bool(row.refused or row.replaced_at) for row in rows]
    # A chain that was restarted from scratch may have another registry at the same address.
    return bool(unused) and all(unused)


# --- Refused broadcasts -----------------------------------------------------------------------------------------------
#
# The state of the chain decides about the cause, because each client words its refusals otherwise.


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


def _causes(rpc: RpcClient, versions: Sequence[SignedTransaction]) -> dict[int, RefusalCause]:
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
    prices = destination_prices.of(rpc)
    return {version.pk: _cause(version, answers, confirmed, prices) for version in versions}


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


def _cause(
    version: SignedTransaction, answers: _StateAnswers, confirmed: Mapping[str, int], prices: GasPrices
) -> RefusalCause:
    tx, address = version.transaction, version.transaction.signer.address
    if any(answers.of("known", version.hash or "")) or answers.of("receipt", version.hash or ""):
        return RefusalCause.SENT
    latest, pending = answers.of("latest", address), answers.of("pending", address)
    is_mined = any(answers.of("receipt", tx_hash) for tx_hash in tx.hashes)
    is_told_by_two = sum(nonce > tx.nonce for nonce in latest) > 1
    cost = _most_before(version, min(latest, default=0))
    base_fees = [head.base_fee_per_gas or 0 for head in answers.of("head")]
    to, data = (address, b"") if version.is_cancellation else (tx.to or None, bytes(tx.data))
    # The first that holds is the cause. Where nodes differ, the answer counts that leaves a refusal unexplained.
    holds = {
        RefusalCause.NONCE_USED: is_mined or is_told_by_two or confirmed.get(address, 0) > tx.nonce,
        RefusalCause.REPLACEMENT: min(pending, default=0) > tx.nonce >= min(latest, default=inf),
        RefusalCause.GAP: max(pending, default=inf) < tx.nonce,
        RefusalCause.FUNDS: max(answers.of("balance", address), default=inf) < cost,
        RefusalCause.FEE: version.max_fee_per_gas < min(base_fees, default=0),
        RefusalCause.GAS: version.gas < prices.least_limit(to, data),
    }
    return next((cause for cause, is_true in holds.items() if is_true), RefusalCause.UNEXPLAINED)


def _most_before(version: SignedTransaction, next_nonce: int) -> int:
    """Return the maximum cost of a version in wei, and of the transactions that must come before it."""
    tx = version.transaction
    before = tx.signer.transactions.filter(
        state=TransactionState.PENDING, nonce__gte=next_nonce, nonce__lt=tx.nonce
    ).defer("data")
    data_fee = 0 if version.is_cancellation else tx.data_fee
    costs = [earlier.cost for earlier in before.prefetch_related("versions")]
    return sum(costs) + version.gas * version.max_fee_per_gas + data_fee


# --- Broadcast --------------------------------------------------------------------------------------------------------


def broadcast(rpc: RpcClient, versions: Collection[SignedTransaction]) -> None:
    """Send the stored bytes to nodes. Store their errors without raising, because the chain decides later."""
    addresses = {version.transaction.signer.address for version in versions}
    stopped = {address for address in addresses if stops.why_signer_is_stopped(rpc.chain.id, address)}
    going = [version for version in versions if version.raw and version.transaction.signer.address not in stopped]
    answers = _sent_to_nodes(rpc, going)
    refused = [version for version in going if isinstance(answers[version.pk], RpcRefused)]
    causes = _causes(rpc, refused)
    for version in going:
        with logs.about(transaction=str(version), chain=rpc.chain.id):
            _note(version, answers[version.pk], causes.get(version.pk))


def _sent_to_nodes(rpc: RpcClient, versions: Sequence[SignedTransaction]) -> dict[int, bytes | ChainError]:
    """Send the versions. Return the answers by the versions' keys: a refusal only if no node takes it."""
    answers: dict[int, bytes | ChainError] = {}
    raw_transactions = {version.pk: questions.raw_transaction(bytes(version.raw)) for version in versions}
    for version in versions:
        if version.broadcast_at or version.refused_at:
            # The node that accepted it before may not have forwarded it, and the one that refused it may be wrong.
            told = rpc.tell_all(raw_transactions[version.pk])
            refusal = next((answer for answer in told if isinstance(answer, RpcRefused)), None)
            if answer := next((answer for answer in told if isinstance(answer, bytes)), refusal):
                answers[version.pk] = answer
    asked = {key: question for key, question in raw_transactions.items() if key not in answers}
    return answers | dict(zip(asked, rpc.ask([*asked.values()]), strict=True))


# Waits of explained refusals. None: nothing is wrong with the transaction itself.
_WAITS: Mapping[RefusalCause | None, WaitReason | None] = {
    # The monitor decides whether the nonce is another version's or not ours.
    RefusalCause.NONCE_USED: None,
    # The transactions below it are broadcast first.
    RefusalCause.GAP: None,
    RefusalCause.REPLACEMENT: wait("replacement_fees_too_low"),
    RefusalCause.FEE: wait("fees_too_low"),
    RefusalCause.FUNDS: wait("signer_cant_pay"),
}


def _note(version: SignedTransaction, answer: bytes | ChainError, cause: RefusalCause | None) -> None:
    """Store the result of a broadcast. `cause` is that of a refusal."""
    tx, now, problem = version.transaction, timezone.now(), None
    if isinstance(answer, ChainError) and cause != RefusalCause.SENT:
        known = _WAITS.get(cause, waits.fault(answer))
        problem = known and replace(known, words=answer.message)
        why = f"{cause.value}. {answer.for_operators}" if cause else answer.for_operators
        logger.warning("broadcasting for %s: %s: %s", tx.signer.address, version.hash, why)
        SignedTransaction.objects.filter(pk=version.pk).update(refused_at=now)
    else:
        if version.broadcast_at is None:
            logger.info("broadcast %s", version.hash)
        SignedTransaction.objects.filter(pk=version.pk).update(broadcast_at=now, refused_at=None)
    if (problem, problem and problem.words) != (tx.error, tx.error and tx.error.words):
        tx.error = problem
        tx.save(update_fields=["error"])
